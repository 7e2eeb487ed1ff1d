"""Perplexity under one policy while its options change one at a time: how defaults are chosen.

    python benchmarks/sweep.py configs/sweeps/conf-kv.yaml --text tuning.txt

The YAML file names a policy, a budget, options and, for each option to vary, the values to try:

    policy: conf-kv
    budget: 6MiB
    options: {tight: 1.0}
    vary:
      recent: [0.03125, 0.0625, 0.25]

One JSON object per row on standard output; the first row has the options as they are. Tune on text that no reported
figure uses: `--skip` leaves out so many tokens at the start of the file.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from agentkv.engine import Engine
from agentkv_evals.bench_ppl import PplOptions, score
from agentkv_evals.bench_text import Window, cut_windows, encode, leading_ids, read_text


def variants(recipe: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what is varied, options) of each run."""
    options = recipe.get("options", {})
    yield "as given", options
    for name, values in recipe.get("vary", {}).items():
        for value in values:
            yield f"{name}={value}", {**options, name: value}


def perplexity(
    engine: Engine, windows: list[Window], policy: str, budget: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    nll: list[float] = []
    resident: list[int] = []
    peak = 0
    for window in windows:
        with closing(engine.open_session(policy, budget, **options)) as session:
            for value in score(engine, session, window):
                nll.append(value)
                resident.append(session.stats.resident_bytes)
            peak = max(peak, session.stats.peak_bytes)
    return {
        "ppl": round(math.exp(statistics.fmean(nll)), 4),
        "tokens": len(nll),
        "kv_bytes": peak,
        "mean_kv_bytes": round(statistics.fmean(resident)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--skip", type=int, default=0, help="tokens to leave out at the start of the text")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--windows", type=int, default=2)
    arguments = parser.parse_args()
    recipe = yaml.safe_load(arguments.recipe.read_text())
    engine = Engine.load(arguments.model)
    sizes = PplOptions(
        text=arguments.text,
        prompt_tokens=arguments.prompt_tokens,
        tokens=arguments.tokens,
        windows=arguments.windows,
    )
    ids = encode(engine.tokenizer, read_text(arguments.text))[arguments.skip :]
    windows = cut_windows(ids, leading_ids(engine.tokenizer), sizes)
    runs = [("full", "full", None, {})]
    runs += [(what, recipe["policy"], recipe["budget"], options) for what, options in variants(recipe)]
    for what, policy, budget, options in runs:
        row = {"bench": "sweep", "policy": policy, "budget": budget, "varied": what}
        print(json.dumps(row | perplexity(engine, windows, policy, budget, options)), flush=True)


if __name__ == "__main__":
    main()
