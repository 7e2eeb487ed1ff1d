"""Attention mass that fades, in Triton; see :mod:`agentkv_kernels.mass`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_SLOTS = 1024


@triton.jit(do_not_specialize=["heads", "slots"])
def ema_kernel(
    mass, by_layer, by_head, new, new_by_layer, new_by_head, decay, heads, slots, N: tl.constexpr
):  # fmt: skip
    """One block of slots of one head; grid (blocks, L · H)."""
    at = tl.program_id(1).to(tl.int64)
    slot = tl.program_id(0) * N + tl.arange(0, N)
    there = slot < slots
    held = mass + at // heads * by_layer + at % heads * by_head + slot
    added = new + at // heads * new_by_layer + at % heads * new_by_head + slot
    sums = tl.load(held, mask=there, other=0.0) * decay + tl.load(added, mask=there, other=0.0)
    tl.store(held, sums, mask=there)


def ema_mass(mass: Tensor, new: Tensor, decay: float) -> None:
    """See :func:`agentkv_kernels.mass.ema_mass`."""
    layers, heads, slots = new.shape
    if not slots:
        return
    ema_kernel[(triton.cdiv(slots, _SLOTS), layers * heads)](
        mass, mass.stride(0), mass.stride(1), new, new.stride(0), new.stride(1), decay, heads, slots, N=_SLOTS
    )
