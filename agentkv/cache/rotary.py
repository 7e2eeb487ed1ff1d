"""Giving stored keys new positions: rotation by a model's own frequencies, and dense positions for the kept slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentkv.cache.store import KVStore
from agentkv_kernels import dequantize, quantize


@dataclass(frozen=True, eq=False)
class Rotary:
    """How the keys of one layer turn with position (RoPE).

    Attributes:
        frequencies: [R] float32: by how much each pair of channels turns per position.
        interleaved: pairs are channels (2i, 2i + 1); else (i, i + R). Channels from 2R on do not turn.
    """

    frequencies: Tensor
    interleaved: bool

    def turn(self, keys: Tensor, old: Tensor, new: Tensor) -> Tensor:
        """Keys [..., D] at positions ``old`` [...] to what they are at positions ``new``; float32 or float64.

        Takes the sines and cosines that the model takes, float32 angles included, so that what comes out is the key
        the model would have made, up to rounding. A factor on both (yarn's) cancels.
        """
        cos_old, sin_old = self._table(old, keys.dtype)
        cos_new, sin_new = self._table(new, keys.dtype)
        length = cos_old.square() + sin_old.square()  # not quite 1 in float32
        cos = (cos_new * cos_old + sin_new * sin_old) / length
        sin = (sin_new * cos_old - cos_new * sin_old) / length
        first, second = self._pairs
        x, y = keys[..., first], keys[..., second]
        out = keys.clone()
        out[..., first] = x * cos - y * sin
        out[..., second] = y * cos + x * sin
        return out

    @property
    def _pairs(self) -> tuple[slice, slice]:
        half = len(self.frequencies)
        if self.interleaved:
            return slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        return slice(0, half), slice(half, 2 * half)

    def _table(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angles = positions.unsqueeze(-1).float() * self.frequencies.to(positions.device)
        return angles.cos().to(dtype), angles.sin().to(dtype)


@dataclass(frozen=True)
class Rebased:
    """What rebases did to a session, over all its layers and heads.

    Attributes:
        rebases: how often positions began again.
        rerotated: keys in the model's dtype that were turned and rounded.
        requantized: quantised keys that were turned and quantised again.
    """

    rebases: int = 0
    rerotated: int = 0
    requantized: int = 0

    def __add__(self, other: Rebased) -> Rebased:
        return Rebased(
            self.rebases + other.rebases, self.rerotated + other.rerotated, self.requantized + other.requantized
        )


def dense_positions(token_index: Tensor, last: int) -> Tensor:
    """[L, H, S] int64: positions without gaps in token order, the newest slot of every head at ``last``.

    Empty slots (token index −1) get position 0.
    """
    rank = token_index.argsort(-1).argsort(-1)  # empty slots come first
    return (last - (token_index.shape[-1] - 1) + rank).masked_fill(token_index < 0, 0)


def rebase(store: KVStore, rotary: Sequence[Rotary | None], logical_length: int) -> Rebased:
    """Give each head's slots dense positions, right-aligned: the newest slots of all heads share the last position.

    Keys that move are turned in float32 (float64 in a float64 model) and rounded, or quantised again. Layer by layer;
    a call that was interrupted can be repeated, since every slot's position is kept with it.

    Args:
        store: the cache.
        rotary: of each layer; None where keys do not depend on the position. Formats have a scale per token: those
            with scales per channel belong to policies that evict nothing.
        logical_length: token index of the next token, which gets the position after the last one.
    """
    store.open_positions()
    assert store.rope_pos is not None
    token_index = store.in_use(store.token_index)
    after = int(store.used.max())
    positions = dense_positions(token_index, after - 1)
    old = store.in_use(store.rope_pos).long()
    moves = (token_index >= 0) & (positions != old)
    split, fp_end = store.code_slots, store.code_cap + store.fp_slots
    turned = Rebased(rebases=1)
    code, fp = slice(0, split), slice(split, None)
    for layer, rule in enumerate(rotary):
        of_fp, of_code = ([t[layer, :, part] for t in (old, positions, moves)] for part in (fp, code))
        if rule is not None:
            turned += Rebased(rerotated=_turn_fp(store, rule, layer, *of_fp))
        store.rope_pos[layer, :, store.code_cap : fp_end] = of_fp[1].int()
        if rule is not None and split:
            turned += Rebased(requantized=_turn_codes(store, rule, layer, *of_code))
        store.rope_pos[layer, :, :split] = of_code[1].int()
    store.position_offset = logical_length - after
    return turned


def _turn_fp(store: KVStore, rule: Rotary, layer: int, old: Tensor, new: Tensor, moves: Tensor) -> int:
    """Turn the FP keys of one layer; old, new, moves [H, FP slots]. Returns how many."""
    head, slot = moves.nonzero(as_tuple=True)
    rows = store.fp.rows_at(torch.full_like(head, layer), head, slot)[:, 0]
    keys = store.fp.rows[rows]
    wide = keys if keys.dtype is torch.float64 else keys.float()
    store.fp.rows.index_copy_(0, rows, rule.turn(wide, old[head, slot], new[head, slot]).to(keys.dtype))
    return len(head)


def _turn_codes(store: KVStore, rule: Rotary, layer: int, old: Tensor, new: Tensor, moves: Tensor) -> int:
    """Turn the quantised keys of one layer and quantise them again; old, new, moves [H, code slots]."""
    head, slot = moves.nonzero(as_tuple=True)
    rows = store.code.rows_at(torch.full_like(head, layer), head, slot)[:, 0]
    keys = dequantize(store.code.rows[rows], store.scales[layer, 0, head, slot], store.code_format, torch.float32)
    codes, scales = quantize(rule.turn(keys, old[head, slot], new[head, slot]), store.code_format)
    store.code.rows.index_copy_(0, rows, codes)
    store.scales[layer, 0, head, slot] = scales
    return len(head)
