"""What a kernel does not write shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Memory that torch hands out uninitialised is filled with NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
