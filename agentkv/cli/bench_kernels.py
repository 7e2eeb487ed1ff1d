"""`agentkv bench kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_option = typer.Option


def kernels(
    batch: Annotated[
        list[int] | None, _option(min=1, help="Sessions; repeatable. [default: 1 8 32; on a CPU 1 2]")
    ] = None,
    slots: Annotated[
        list[int] | None,
        _option(min=1, help="Slots per session; repeatable. [default: 1024 to 131072; on a CPU 256 1024]"),
    ] = None,
    group: Annotated[
        list[int] | None, _option(min=1, help="Query heads per KV head; repeatable. [default: 4 8; on a CPU 3]")
    ] = None,
    coded: Annotated[
        list[int] | None, _option(min=0, max=100, help="Percentage of quantised slots; repeatable. [default: 0 50 100]")
    ] = None,
    fmt: Annotated[
        str, _option("--format", help="Of quantised slots: INT8_TOKEN, FP8_TOKEN or INT8_CHANNEL.")
    ] = "INT8_TOKEN",
    kv_heads: Annotated[int, _option(min=1, help="KV heads of a layer.")] = 8,
    head_dim: Annotated[int, _option(min=1, help="Size of a head.")] = 128,
    dtype: Annotated[str, _option(help="auto, float32, float16 or bfloat16.")] = "auto",
    device: Annotated[str, _option(help="auto, cpu or cuda.")] = "auto",
    refcheck: Annotated[bool, _option("--refcheck", help="First compare attention with float64.")] = False,
    as_json: Annotated[bool, _option("--json", help="One JSON object per row, nothing else on stdout.")] = False,
    plot: Annotated[Path | None, _option(help="Draw the roofline into this .svg or .png file.")] = None,
) -> None:
    """Bytes, time and share of a copy's bandwidth of every kernel.

    \b
    Example:
      agentkv bench kernels --batch 8 --slots 32768 --coded 0 --coded 75 --refcheck
    """
    from agentkv_evals.bench_kernels import KernelOptions, run

    options = KernelOptions(
        batches=tuple(batch or ()),
        slots=tuple(slots or ()),
        groups=tuple(group or ()),
        coded=tuple(KernelOptions.coded if coded is None else coded),
        format=fmt,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=dtype,
        device=device,
        refcheck=refcheck,
        json=as_json,
        plot=plot,
    )
    raise typer.Exit(run(options))
