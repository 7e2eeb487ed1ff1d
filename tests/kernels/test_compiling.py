"""Kernels compile for GPUs that are not there: Ampere and Hopper, as they would be launched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "kernel_resources.py"
SHARED = {80: 163 << 10, 90: 227 << 10}
"""Most shared memory of a program, in bytes."""


def compiled(*flags: str) -> list[dict]:
    """In a process of its own: this one interprets."""
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", *flags], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(rows: list[dict]) -> None:
    assert {row["arch"] for row in rows} == {80, 90}
    assert all(row["shared"] <= SHARED[row["arch"]] for row in rows)
    spilling = [row for row in rows if row["op"].startswith("decode") and row["stack"]]
    assert not spilling
    kernels = {"attend_kernel", "join_kernel", "finish_kernel", "transfer_kernel", "demote_page_kernel", "pair_kernel"}
    kernels |= {"move_kernel", "move_column_kernel", "ema_kernel", "share_kernel", "terms_kernel"}
    assert {row["kernel"] for row in rows} == kernels | {"capacity_kernel", "slope_kernel"}


def test_the_decode_kernel_and_the_small_ops_compile_without_spills() -> None:
    check(compiled("--quick"))


@pytest.mark.full
def test_every_specialisation_compiles() -> None:
    rows = compiled()
    check(rows)
    assert {row["head_dim"] for row in rows if row["op"] == "decode"} == {64, 80, 96, 128, 256}
