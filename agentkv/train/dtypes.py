"""Which dtype to train in."""

from __future__ import annotations

import torch

from agentkv_kernels.arithmetic import multiplies_fast


def training_dtype(wanted: str, device: torch.device) -> str:
    """The name of the dtype to load a model in: float32 for "auto" where products of the model's own are slow."""
    slow = not multiplies_fast(torch.bfloat16, device)
    return "float32" if wanted == "auto" and slow else wanted
