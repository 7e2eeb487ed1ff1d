"""Where Triton's kernels are tested: on a GPU if there is one, else in Triton's interpreter."""

from __future__ import annotations

from dataclasses import fields, replace
from importlib import import_module
from typing import Any

import pytest
import torch

from tests.kernels.paged_cases import Case

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def fast(name: str) -> Any:
    """A module of Triton kernels; the tests of a platform without Triton are skipped."""
    pytest.importorskip("triton")
    return import_module(f"agentkv_kernels.triton.{name}")


def moved(case: Case) -> Case:
    """The case's tensors on the device."""
    kv = {field.name: getattr(case.kv, field.name) for field in fields(case.kv)}
    kv = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in kv.items()}
    return replace(
        case,
        kv=replace(case.kv, **kv),
        query=case.query if DEVICE.type == "cpu" else case.query.to(DEVICE),
        query_index=case.query_index.to(DEVICE),
    )
