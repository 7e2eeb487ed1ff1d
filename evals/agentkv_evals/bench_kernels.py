"""`agentkv bench kernels`: bytes that each op of the runtime must move, how long that takes, and how long a copy would.

Decoding is bound by memory, so what counts is the share of a copy's bandwidth, measured in the same run.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import torch

from agentkv.engine.loading import as_device
from agentkv_evals.bench_output import new_table, print_row, print_table, progress_bar
from agentkv_evals.bench_plot import Point, check_plot_file, save_roofline
from agentkv_evals.errors import EvalError
from agentkv_evals.kernel_cases import Shape, Timed, attention_ops, other_ops
from agentkv_kernels import KVFormat, uses_triton

_GPU = {"batches": (1, 8, 32), "slots": (1024, 4096, 16384, 32768, 131072), "groups": (4, 8)}
_CPU = {"batches": (1, 2), "slots": (256, 1024), "groups": (3,)}
_SECONDS = {"cuda": 0.1, "cpu": 0.05}
"""Roughly, for each measurement."""
_COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}
_FLUSH_BYTES = 2**28
"""Written between two measurements on a GPU, so that its L2 holds nothing of use."""
_CHECKED_SLOTS = 2**17
"""Slots of all sessions up to which the reference runs in float64."""
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 2e-2}
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class KernelOptions:
    """What to measure; an empty tuple is the device's own grid.

    Attributes:
        batches: sessions decoded together.
        slots: per session and head.
        groups: query heads per KV head.
        coded: percentages of the slots that are quantised.
        format: of the quantised ones.
        refcheck: compare attention with the reference in float64 first, up to 131,072 slots of all sessions.
        plot: a file for the roofline, .svg or .png.
    """

    batches: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    coded: tuple[int, ...] = (0, 50, 100)
    format: str = "INT8_TOKEN"
    kv_heads: int = 8
    head_dim: int = 128
    dtype: str = "auto"
    device: str = "auto"
    refcheck: bool = False
    json: bool = False
    plot: Path | None = None

    def __post_init__(self) -> None:
        sizes = (*self.batches, *self.slots, *self.groups, self.kv_heads, self.head_dim)
        if min(sizes) < 1 or not all(0 <= share <= 100 for share in self.coded):
            raise EvalError("sizes must be at least 1, and --coded a percentage")
        formats = [fmt.name for fmt in KVFormat if fmt is not KVFormat.FP]
        if self.format not in formats:
            raise EvalError(f"unknown --format {self.format!r}; there are: {', '.join(formats)}")
        if self.dtype not in ("auto", *_DTYPES):
            raise EvalError(f"unknown --dtype {self.dtype!r}; there are: auto, {', '.join(_DTYPES)}")


@dataclass(frozen=True)
class KernelRow:
    """One op.

    Attributes:
        impl: "triton", "native" (C++ on the CPU), "reference" or "sdpa"; of the op "copy", "torch".
        format: of the quantised slots; "FP" if there are none.
        coded: percentage of the slots that is quantised.
        bytes: that must be moved, each counted once.
        gb_per_s: those over the median time; 10⁹ bytes.
        share_of_copy: that over a copy's.
        sdpa_ratio: time of torch's attention in the model's dtype over this one's, same slots; None if not attention.
        max_error: against float64, relative to the largest number; None without --refcheck.
    """

    op: str
    impl: str
    format: str
    batch: int
    slots: int
    group: int
    coded: int
    bytes: int
    us_median: float
    gb_per_s: float
    share_of_copy: float
    flops: int = 0
    sdpa_ratio: float | None = None
    max_error: float | None = None
    bench: str = field(default="kernels")


class Clock:
    """Median time of a call in microseconds. On a GPU the call is replayed from a CUDA graph, with a cold L2."""

    def __init__(self, device: torch.device):
        self._device = device
        self._gpu = device.type == "cuda"
        self._flush = torch.empty(_FLUSH_BYTES if self._gpu else 0, dtype=torch.int8, device=device)

    def time(self, call: Callable[[], object], replayed: bool = True) -> float:
        """Not ``replayed``: the call itself, launches included, for what waits for the host."""
        once = self._on_gpu(call, replayed) if self._gpu else self._on_cpu(call)
        first = next(once)
        repeats = max(3, min(100, int(1e6 * _SECONDS[self._device.type] / max(first, 1.0))))
        return statistics.median(next(once) for _ in range(repeats))

    def _on_cpu(self, call: Callable[[], object]) -> Iterator[float]:
        call()
        while True:
            started = time.perf_counter()
            call()
            yield 1e6 * (time.perf_counter() - started)

    def _on_gpu(self, call: Callable[[], object], replayed: bool) -> Iterator[float]:
        stream = torch.cuda.Stream(self._device)
        with torch.cuda.stream(stream):
            for _ in range(3):  # compiles, and lets libraries take their memory
                call()
        stream.synchronize()
        if replayed:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            call = graph.replay
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        while True:
            self._flush.zero_()
            begin.record()
            call()
            end.record()
            end.synchronize()
            yield 1e3 * begin.elapsed_time(end)


def shapes(options: KernelOptions, device: torch.device, dtype: torch.dtype) -> list[Shape]:
    """The grid, without what would not fit the memory."""
    grid = _GPU if device.type == "cuda" else _CPU
    room = torch.cuda.mem_get_info(device)[0] / 3 if device.type == "cuda" else 2**30
    found = []
    axes = (options.batches or grid["batches"], options.slots or grid["slots"], options.groups or grid["groups"])
    for batch, slots, group, coded in product(*axes, options.coded):
        shape = Shape(
            batch, slots, coded / 100, group, options.kv_heads, options.head_dim, dtype,
            KVFormat[options.format], device,
        )  # fmt: skip
        if shape.payload <= room:
            found.append(shape)
        else:
            print(f"left out: batch {batch}, {slots} slots, {shape.payload / 2**30:.1f} GiB", file=sys.stderr)
    return found


def copy_row(clock: Clock, device: torch.device) -> KernelRow:
    """What a copy within the device's memory achieves, read and written bytes counted."""
    source = torch.ones(_COPY_BYTES[device.type] // 2, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    us = clock.time(lambda: target.copy_(source))
    moved = 2 * source.nbytes
    return KernelRow("copy", "torch", "-", 1, 0, 0, 0, moved, round(us, 2), round(moved / us / 1e3, 2), 1.0)


def measure(shape: Shape, timed: Timed, clock: Clock, copy: KernelRow, refcheck: bool) -> KernelRow:
    """One row, without the ratio to torch's attention."""
    error = timed.check() if refcheck and timed.check and shape.batch * shape.slots <= _CHECKED_SLOTS else None
    us = clock.time(timed.call, replayed=timed.impl != "reference")
    gb_per_s = timed.bytes / us / 1e3
    return KernelRow(
        timed.op, timed.impl, timed.format, shape.batch, shape.slots, shape.group,
        round(100 * shape.code_slots / shape.slots) if timed.op.startswith("attention") else 0,
        timed.bytes, round(us, 2), round(gb_per_s, 2), round(gb_per_s / copy.gb_per_s, 4), timed.flops,
        max_error=None if error is None else float(f"{error:.3g}"),
    )  # fmt: skip


def with_ratios(rows: Sequence[KernelRow]) -> list[KernelRow]:
    """Each attention row gets its ratio to torch's attention over as many slots, all of them in the model's dtype."""
    sdpa = {(row.batch, row.slots, row.group): row.us_median for row in rows if row.impl == "sdpa"}
    return [
        replace(row, sdpa_ratio=round(sdpa[at] / row.us_median, 3))
        if row.op.startswith("attention") and (at := (row.batch, row.slots, row.group)) in sdpa
        else row
        for row in rows
    ]


def run(options: KernelOptions) -> int:
    """Measure and print; returns the exit code, 1 if a result was wrong.

    Raises:
        EvalError: a file that cannot be written.
        ModelError: no such device.
    """
    check_plot_file(options.plot)
    name = options.device if options.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    device = as_device(name)
    dtype = _DTYPES.get(options.dtype, torch.bfloat16 if device.type == "cuda" else torch.float32)
    impl = "triton" if uses_triton(device) else "reference"
    clock, grid = Clock(device), shapes(options, device, dtype)
    rows = [copy_row(clock, device)]
    measured: set[tuple[int, int]] = set()
    with progress_bar("timing kernels", len(grid)) as step_done, torch.inference_mode():
        for shape in grid:
            timed = list(attention_ops(shape, impl, sdpa=True))
            if (shape.batch, shape.slots) not in measured:  # neither group nor format matters to these
                measured.add((shape.batch, shape.slots))
                timed += other_ops(shape, impl)
            rows += [measure(shape, each, clock, rows[0], options.refcheck) for each in timed]
            step_done()
    rows = with_ratios(rows)
    wrong = [row for row in rows if row.max_error is not None and not row.max_error <= TOLERANCE[dtype]]
    if options.json:
        for row in rows:
            print_row(row)
    else:
        _print_table(rows, device, dtype, options)
    for row in wrong:
        print(f"WRONG: {row.op} {row.format} batch {row.batch} slots {row.slots}: {row.max_error}", file=sys.stderr)
    if options.plot is not None:
        save_roofline(options.plot, _points(rows), rows[0].gb_per_s, f"decode attention, {device}, {dtype}")
    return 1 if wrong else 0


def _points(rows: Sequence[KernelRow]) -> list[Point]:
    """Attention in the roofline: operations per byte, and 10⁹ operations per second."""
    attention = [row for row in rows if row.op == "attention"]
    return [
        Point(f"{row.impl}, {row.format}", row.flops / row.bytes, row.flops / row.us_median / 1e3) for row in attention
    ]


def _print_table(rows: Sequence[KernelRow], device: torch.device, dtype: torch.dtype, options: KernelOptions) -> None:
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    ours = " and ".join(dict.fromkeys(row.impl for row in rows[1:] if row.impl != "sdpa"))
    table = new_table(
        f"kernels, {ours}, {where}, {dtype}, {options.kv_heads} KV heads of {options.head_dim}, "
        f"copy {rows[0].gb_per_s:.1f} GB/s, load {os.getloadavg()[0]:.1f}",
        ("op", "format"),
        ("batch", "slots", "group", "µs", "GB/s", "of copy", "sdpa/this", "max error"),
    )
    for row in rows[1:]:
        share = f" {row.coded}%" if 0 < row.coded < 100 else ""
        table.add_row(
            "sdpa" if row.impl == "sdpa" else row.op, row.format + share, str(row.batch), f"{row.slots:,}",
            str(row.group), f"{row.us_median:.1f}", f"{row.gb_per_s:.1f}", f"{row.share_of_copy:.0%}",
            "–" if row.sdpa_ratio is None else f"{row.sdpa_ratio:.2f}",
            "–" if row.max_error is None else f"{row.max_error:.1e}",
        )  # fmt: skip
    print_table(table)
