"""Milliseconds per decoded token of a model with random weights, full KV against a policy, on pages.

    python benchmarks/gpu_decode.py --length 32768 --batch 1 --batch 8
    python benchmarks/gpu_decode.py --tiny                       the same on any machine, in seconds

The model has the shape of Qwen3-8B; what it says is noise, how long it takes is not. One session is prefilled and
forked for the batch, so that all of them hold as much. A step ends when its logits are there. Each batch is measured
operation by operation and then as replays of CUDA graphs; where one of the two fails, its row says why.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agentkv.engine import Engine, Session
from agentkv.errors import AgentKVError
from agentkv_kernels import uses_triton

_SHAPE = {
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
}  # fmt: skip
_TINY = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 97,
}  # fmt: skip
_WARM_UP = 6
"""Steps before the clock counts: the first makes room, kernels are compiled, graphs captured."""


class Numbers:
    """In place of a tokenizer: there is no text."""

    eos_token_id = None

    def __init__(self, vocabulary: int):
        self._vocabulary = vocabulary

    def __len__(self) -> int:
        return self._vocabulary


def random_model(shape: dict[str, int], window: int, device: torch.device) -> PreTrainedModel:
    """On the device from the start: there is no room for it in host memory on some machines."""
    config = Qwen3Config(**shape, max_position_embeddings=window, tie_word_embeddings=False)
    config.dtype = torch.bfloat16
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(default)
    return model.eval()


def decode(engine: Engine, sessions: list[Session], steps: int, synchronize: Callable[[], None]) -> list[float]:
    """Milliseconds of each step, greedily."""
    last, times = [1] * len(sessions), []
    for _ in range(_WARM_UP + steps):
        synchronize()
        started = time.perf_counter()
        logits = engine.decode_batch(sessions, last)
        last = logits.argmax(-1).tolist()
        synchronize()
        times.append(1e3 * (time.perf_counter() - started))
    return times[_WARM_UP:]


def measure(engine: Engine, policy: str, budget: str | None, batches: list[int], length: int, steps: int) -> None:
    """Print a row per batch, without graphs and with them."""
    synchronize: Callable[[], None] = torch.cuda.synchronize if engine.device.type == "cuda" else lambda: None
    about = {"bench": "gpu_decode", "policy": policy, "budget": budget, "logical_length": length}
    # Random weights make outliers that a trained model may not have: no layer is exempt from quantisation.
    with ExitStack() as opened:
        first = opened.enter_context(closing(engine.open_session(policy, budget, exempt=())))
        ids = torch.randint(len(engine.tokenizer), (length,), generator=torch.Generator().manual_seed(0)).tolist()
        started = time.perf_counter()
        first.ledger.extend(ids)
        engine.compute_waiting(first)
        synchronize()
        about |= {"prefill_s": round(time.perf_counter() - started, 2)}
        about |= {"kernels": "triton" if uses_triton(engine.device) else "reference"}
        for batch, graphs in itertools.product(batches, (False, True)):
            row = about | {"batch": batch, "graphs": graphs}
            try:
                row |= measure_batch(engine, first, batch, graphs, steps, synchronize)
            except (RuntimeError, AgentKVError) as error:  # out of memory, or what a kernel or a capture may raise
                row |= {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
            print(json.dumps(row), flush=True)


def measure_batch(
    engine: Engine, first: Session, batch: int, graphs: bool, steps: int, synchronize: Callable[[], None]
) -> dict[str, object]:
    """The figures of one row. Raises RuntimeError if there should be graphs, and not every step was one's replay."""
    engine.graphs.enabled = graphs
    if engine.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with ExitStack() as forks:
        sessions = [forks.enter_context(closing(engine.fork_session(first))) for _ in range(batch)]
        before = engine.graphs.counts.replayed
        times = decode(engine, sessions, steps, synchronize)
        kv_bytes = sum(session.stats.resident_bytes for session in sessions)
    counts = engine.graphs.counts
    if graphs and counts.replayed - before < steps:
        why = counts.refused or f"no CUDA device: {engine.device}" if not counts.captured else "shapes changed"
        raise RuntimeError(f"{counts.replayed - before} of {steps} steps were replays ({why})")
    median = statistics.median(times)
    return {
        "ms_median": round(median, 3), "ms_min": round(min(times), 3), "tokens_per_s": round(1e3 * batch / median, 1),
        "kv_bytes": kv_bytes, "replayed": counts.replayed - before,
        "peak_allocated": torch.cuda.max_memory_allocated() if engine.device.type == "cuda" else None,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=32768)
    parser.add_argument("--batch", type=int, action="append", help="sessions; repeatable")
    parser.add_argument("--policy", default="conf-kv")
    parser.add_argument("--budget", default="4096")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--pool", default="56GiB", help="memory for pages")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="a model of two layers, 256 tokens, a budget of 64")
    options = parser.parse_args()
    if options.tiny:
        options.length, options.budget, options.pool, options.steps = 256, "64", "64MiB", 3
    shape = _TINY if options.tiny else _SHAPE
    device = torch.device(options.device)
    window = options.length + 1024
    engine = Engine(
        random_model(shape, window, device), Numbers(shape["vocab_size"]), "qwen3-8b-shaped", kv_pool=options.pool
    )
    for policy, budget in (("full", None), (options.policy, options.budget)):
        measure(engine, policy, budget, options.batch or [1, 8], options.length, options.steps)


if __name__ == "__main__":
    main()
