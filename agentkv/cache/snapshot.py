"""A store's content apart from where it lies: what a copy or a file of a session holds."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(frozen=True)
class Snapshot:
    """Filled slots in row-major order of (layer, head, slot). m FP slots, k INT8 slots, D = head size.

    Attributes:
        fp_used, code_used: [L, H] int64 filled slots.
        fp: [m, 2, D] keys and values in the model's dtype.
        codes: [k, 2, D] int8.
        scales: [k, 2] float32.
        fp_tokens, code_tokens: [m], [k] int32 token indices.
        fp_mass, code_mass: [m], [k] float32; empty where the policy keeps no mass.
    """

    fp_used: Tensor
    code_used: Tensor
    fp: Tensor
    codes: Tensor
    scales: Tensor
    fp_tokens: Tensor
    code_tokens: Tensor
    fp_mass: Tensor
    code_mass: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """By name, contiguous, for a file."""
        return {field.name: getattr(self, field.name).contiguous() for field in fields(self)}
