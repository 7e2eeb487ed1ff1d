"""Compile every Triton kernel as it is launched, without a GPU, and say what it takes of one.

    python benchmarks/kernel_resources.py                      every specialisation, as a table
    python benchmarks/kernel_resources.py --quick --json       the decode kernel of one head size, and the small ops
    python benchmarks/kernel_resources.py --write docs/kernels.md

The launching functions run on tensors in host memory under a driver that only compiles, so what is compiled is what
would be launched: the same block sizes, flags and argument types. Registers, stack and static shared memory come from
the machine code (cuobjdump, in triton's wheel); a stack of zero bytes means that nothing spills.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

if os.environ.pop("TRITON_INTERPRET", None) == "1":
    print("TRITON_INTERPRET=1 is ignored: this script compiles", file=sys.stderr)

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from agentkv_kernels import KVFormat, PagedKV
from agentkv_kernels.triton import attention, compaction, confidence, mass, retention, transfer

ARCHITECTURES = {80: 108, 90: 132}
"""Compute capability: multiprocessors (A100, H200)."""
HEAD_DIMS = (64, 80, 96, 128, 256)
HEADS, GROUP, PAGE, SLOTS = 8, 4, 16, 4096
FORMATS = ("FP", "INT8_TOKEN", "FP8_TOKEN", "INT8_CHANNEL", "mixed")
_BEGIN, _END = "<!-- resources -->", "<!-- end of resources -->"
_CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Row:
    """One compiled kernel.

    Attributes:
        op: what is computed.
        arch: compute capability, times ten.
        stack: bytes per thread; registers spill there.
        shared: bytes per program.
    """

    op: str
    format: str
    head_dim: int | None
    dtype: str
    kernel: str
    arch: int
    warps: int
    registers: int
    stack: int
    shared: int


class _CompilingDriver:
    """What Triton asks a driver before it launches; nothing is launched."""

    def __init__(self, arch: int):
        self._target = GPUTarget("cuda", arch, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return int(self._target.arch)  # compiled kernels are remembered by device

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def compiling(arch: int) -> Iterator[list[tuple[str, Any]]]:
    """Kernels launched inside are compiled for the architecture instead; yields (name, compiled kernel)."""
    compiled: list[tuple[str, Any]] = []

    def launcher(kernel: JITFunction, grid: Any) -> Callable[..., None]:
        def compile_only(*args: Any, **options: Any) -> None:
            compiled.append((kernel.fn.__name__, kernel.run(*args, grid=grid, warmup=True, **options)))

        return compile_only

    driver.set_active(_CompilingDriver(arch))
    with (
        mock.patch.object(JITFunction, "__getitem__", launcher),
        mock.patch.object(attention, "capability_of", return_value=arch // 10),
        mock.patch.object(attention, "multiprocessors", return_value=ARCHITECTURES[arch]),
    ):
        yield compiled


def attend(fmt: str, head_dim: int, dtype: torch.dtype, n_queries: int, **options: Any) -> None:
    """Attention over a cache half of which is in the format; tensors that hold nothing."""
    code_slots, code_page = (0 if fmt == "FP" else SLOTS), PAGE * dtype.itemsize
    code_pages, pages = code_slots // code_page, SLOTS // PAGE
    kv = PagedKV(
        torch.empty(2 * pages, PAGE, head_dim, dtype=dtype),
        torch.zeros(2, HEADS, pages, dtype=torch.int32),
        SLOTS,
        torch.empty(2 * pages, code_page, head_dim, dtype=torch.int8),
        torch.zeros(2, HEADS, code_pages, dtype=torch.int32),
        code_slots,
        torch.empty(2, HEADS, code_slots),
        torch.zeros(HEADS, code_slots + SLOTS, dtype=torch.int32),
        visible_slots=0,
        code_format=KVFormat[fmt] if fmt not in ("FP", "mixed") else KVFormat.INT8_TOKEN,
        channel_scales=torch.empty(HEADS, code_pages, head_dim) if fmt in ("INT8_CHANNEL", "mixed") else None,
        head_formats=torch.ones(HEADS, dtype=torch.int32) if fmt == "mixed" else None,
        slot_counts=torch.zeros(2, HEADS, dtype=torch.int32),
    )
    query = torch.empty(HEADS * GROUP, n_queries, head_dim, dtype=dtype)
    index = torch.zeros(HEADS, n_queries, dtype=torch.int32)
    weights = torch.ones(1) if n_queries == 1 else None
    attention.paged_mixed_attention(query, kv, index, 0.1, weights, **options)


def small_ops(dtype: torch.dtype) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """(op, format, call) of every other op, at head size 128; "read" promotes keys to float32, for policies."""
    rows, codes = torch.empty(64, 128, dtype=dtype), torch.empty(64, 128, dtype=torch.int8)
    exact = torch.empty(64, 128)
    key, at, scales = torch.empty(1, 8, 1, 128, dtype=dtype), torch.zeros(16, dtype=torch.int64), torch.empty(64)
    targets = at.view(1, 2, 8, 1)
    page = torch.zeros(2, 2, 32, dtype=torch.int64)
    channels = torch.empty(4, 128)
    yield "append", "FP", lambda: transfer.append_kv(key, key, rows, targets)
    for fmt in (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN):
        yield "append", fmt.name, lambda fmt=fmt: transfer.append_kv(key, key, codes, targets, fmt, scales, targets)
        yield "demote", fmt.name, lambda fmt=fmt: transfer.demote(rows, at, codes, at, fmt, scales, at)
        yield "promote", fmt.name, lambda fmt=fmt: transfer.promote(codes, at, fmt, scales, at, rows, at)
        yield "read", fmt.name, lambda fmt=fmt: transfer.promote(codes, at, fmt, scales, at, exact, at)
    yield (
        "demote", "INT8_CHANNEL",
        lambda: transfer.demote_pages(rows, page, codes, page, scales, page[:, 0], channels, at[:2]),
    )  # fmt: skip
    yield (
        "promote", "INT8_CHANNEL",
        lambda: transfer.promote(codes, at, KVFormat.INT8_CHANNEL, scales, at, rows, at, channels, at),
    )  # fmt: skip
    yield (
        "read", "INT8_CHANNEL",
        lambda: transfer.promote(codes, at, KVFormat.INT8_CHANNEL, scales, at, exact, at, channels, at),
    )  # fmt: skip
    halves, index = rows.view(4, 16, 128), torch.zeros(2, 2, 8, 4, dtype=torch.int32)
    keep = torch.ones(2, 8, 60, dtype=torch.bool)
    yield "compact", "FP", lambda: compaction.compact(halves, index, keep, [torch.zeros(2, 8, 60)])
    yield "ema_mass", "-", lambda: mass.ema_mass(torch.zeros(2, 8, 60), torch.zeros(2, 8, 60), 0.9)
    yield "confidence", "-", lambda: confidence.confidence_terms(torch.empty(1, 151_936, dtype=dtype))
    gates = torch.zeros(8, 256, requires_grad=True)
    yield "retention", "-", lambda: retention.retention_capacity(gates).sum().backward()


def cases(quick: bool) -> Iterator[tuple[str, str, int | None, torch.dtype, Callable[[], object]]]:
    """(op, format, head size, dtype, call)."""
    half = torch.bfloat16
    if quick:
        for fmt in ("FP", "INT8_TOKEN"):
            yield "decode", fmt, 128, half, lambda fmt=fmt: attend(fmt, 128, half, 1)
    else:
        kinds = [(dim, half) for dim in HEAD_DIMS] + [(128, torch.float16), (64, torch.float32)]
        for (dim, dtype), fmt in ((kind, fmt) for kind in kinds for fmt in FORMATS):
            for op, n in (("decode", 1), ("append", 64)):
                yield op, fmt, dim, dtype, lambda fmt=fmt, dim=dim, dtype=dtype, n=n: attend(fmt, dim, dtype, n)
        extra = {"softcap": 30.0, "window": 1024, "sinks": torch.zeros(HEADS * GROUP)}
        yield "decode, all options", "INT8_TOKEN", 128, half, lambda: attend("INT8_TOKEN", 128, half, 1, **extra)
    for op, fmt, call in small_ops(half):
        yield op, fmt, 128 if fmt != "-" else None, half, call


def resources(kernel: Any) -> tuple[int, int, int]:
    """Registers and stack bytes of a thread, shared bytes of a program."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [str(_CUOBJDUMP), "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    usage = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert usage is not None, said
    return int(usage[1]), int(usage[2]), kernel.metadata.shared


def measure(quick: bool, say: Callable[[str], None]) -> list[Row]:
    """Compile everything for every architecture."""
    rows: dict[tuple[object, ...], Row] = {}
    for arch in ARCHITECTURES:
        for op, fmt, dim, dtype, call in cases(quick):
            say(f"sm_{arch} {op} {fmt} {dim}")
            with compiling(arch) as compiled:
                call()
            for name, kernel in compiled:
                name_of_dtype = str(dtype).removeprefix("torch.")
                row = Row(op, fmt, dim, name_of_dtype, name, arch, kernel.metadata.num_warps, *resources(kernel))
                rows.setdefault((op, fmt, dim, dtype, name, arch), row)
    return list(rows.values())


def table(rows: list[Row]) -> str:
    """Markdown: a kernel per line, the architectures side by side. Joining and finishing kernels once per head size."""
    lines = ["| op | format | head size | dtype | kernel | " + " | ".join(f"sm_{a}" for a in ARCHITECTURES) + " |"]
    lines.append("|---|---|---|---|---|" + "---|" * len(ARCHITECTURES))
    by_case: dict[tuple[Any, ...], dict[int, Row]] = {}
    for row in rows:
        plain = row.op in ("decode", "append") and row.kernel in ("join_kernel", "finish_kernel")
        what = ("any", "any") if plain else (row.op, row.format)
        by_case.setdefault((*what, row.head_dim, row.dtype, row.kernel), {}).setdefault(row.arch, row)
    for (op, fmt, dim, dtype, kernel), found in by_case.items():
        cells = " | ".join(
            f"{r.registers} / {r.stack} / {r.shared / 1024:.0f}" for r in (found[a] for a in ARCHITECTURES)
        )
        lines.append(f"| {op} | {fmt} | {dim or '–'} | {dtype} | `{kernel}` | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one head size, two formats, no append")
    parser.add_argument("--json", action="store_true", help="one JSON object per kernel")
    parser.add_argument("--write", type=Path, help="a Markdown file with the two markers between which the table goes")
    options = parser.parse_args()
    rows = measure(options.quick, lambda what: print(what, file=sys.stderr, flush=True))
    if options.json:
        for row in rows:
            print(json.dumps(asdict(row)))
        return
    if options.write is None:
        print(table(rows))
        return
    page = options.write.read_text(encoding="utf-8")
    before, rest = page.split(_BEGIN)
    after = rest.split(_END)[1]
    options.write.write_text(f"{before}{_BEGIN}\n{table(rows)}\n{_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
