"""Triton's kernels run in its interpreter where there is no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Memory that torch hands out uninitialised is filled with NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
