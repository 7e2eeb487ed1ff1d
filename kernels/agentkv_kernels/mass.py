"""Attention mass that fades. Reference in torch."""

from __future__ import annotations

from torch import Tensor


def ema_mass(mass: Tensor, new: Tensor, decay: float) -> None:
    """mass ← decay · mass + new, in place.

    Args:
        mass: [L, H, ≥ S] float32; slots beyond S are left alone.
        new: [L, H, S] float32.
    """
    mass[..., : new.shape[-1]].mul_(decay).add_(new)
