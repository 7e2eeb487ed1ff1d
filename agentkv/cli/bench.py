"""`agentkv bench`: measurements of the runtime alone, without a browser."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, help="Measure the runtime, without a browser.")
_option = typer.Option


@app.callback()
def _bench() -> None:
    """Keeps `latency` a subcommand while it is the only one."""


@app.command("latency")
def latency(
    model: Annotated[str, _option(help="Embedded name, model folder or hub id.")] = "smollm2-135m",
    policy: Annotated[list[str] | None, _option(help="KV policy; repeatable. [default: full, conf-kv]")] = None,
    budget: Annotated[
        list[str] | None, _option(help="KV budget: 512, 24MiB or 25%; repeatable. [default: 512]")
    ] = None,
    length: Annotated[
        list[int] | None,
        _option(min=1, help="Logical tokens before decoding; repeatable. [default: 256 1024 4096 8192]"),
    ] = None,
    steps: Annotated[int, _option(min=1, help="Tokens decoded and timed per measurement.")] = 32,
    dtype: Annotated[str, _option(help="auto, float32 or bfloat16.")] = "auto",
    as_json: Annotated[bool, _option("--json", help="One JSON object per row, nothing else on stdout.")] = False,
) -> None:
    """Milliseconds per decoded token at growing lengths, beside transformers' own cache.

    \b
    Example:
      agentkv bench latency --policy full --policy conf-kv --budget 512
    """
    from agentkv_evals.bench_latency import LatencyOptions, run

    options = LatencyOptions(
        model=model,
        policies=tuple(policy or LatencyOptions.policies),
        budgets=tuple(budget or LatencyOptions.budgets),
        lengths=tuple(length or LatencyOptions.lengths),
        steps=steps,
        dtype=dtype,
        json=as_json,
    )
    raise typer.Exit(run(options))
