"""One forward pass for several sessions: their KV heads stand side by side as the heads of one attention call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.step import Step
from agentkv.cache.store import KVStore
from agentkv_kernels import AttentionResult, KVFormat, PagedKV, paged_mixed_attention

_PADDING = 2
"""A session joins others whose heads hold at most so many times its slots: padding is read like any slot."""


@dataclass(frozen=True, slots=True)
class Group:
    """Sessions whose attention is one call. G sessions, H KV heads.

    Attributes:
        members: their places in the pass.
        steps: of the members.
        views: arguments of the attention kernel for G · H heads, one per layer.
        query_index: [n] of a single session, [G · H, 1] of several.
        mass_weights: [m ≤ n] float32 for the kernel, or None if no member measures mass.
        probs_of: the most last queries whose probabilities a member reads.
    """

    members: tuple[int, ...]
    steps: tuple[Step, ...]
    views: list[PagedKV]
    query_index: Tensor
    mass_weights: Tensor | None
    probs_of: int

    def note(self, layer: int, result: AttentionResult) -> None:
        """Give each session what was measured in one of its layers."""
        heads = self.views[layer].token_index.shape[0] // len(self.steps)
        for place, step in enumerate(self.steps):
            own = slice(place * heads, (place + 1) * heads)
            measured = self._measured(step, layer, own, result)
            if measured is not None:
                step.note_mass(layer, measured if len(self.steps) == 1 else self._unpadded(step, layer, measured))

    def _measured(self, step: Step, layer: int, own: slice, result: AttentionResult) -> Tensor | None:
        """[H, slots] float32: mass of a session's heads, padding included; None if its policy reads none."""
        rule = step.policy.mass
        if rule is None or step.mass is None:
            return None
        if rule.probs_of:
            assert result.probs is not None
            token_index = self.views[layer].token_index
            probs = result.probs.unflatten(0, (len(token_index), -1))[own, :, -rule.probs_of :]
            mass, stats = rule.reduce(probs, token_index[own], step.query_index[-probs.shape[2] :])
            if stats is not None:
                step.layer_stats[layer] = stats
            return mass
        assert result.mass is not None
        if len(self.steps) == 1:
            return result.mass
        assert step.mass_weights is not None
        return result.mass[own] * step.mass_weights

    def _unpadded(self, step: Step, layer: int, mass: Tensor) -> Tensor:
        """Without the slots that only other sessions of the group have."""
        padded, own = self.views[layer].code_slots, step.views[layer]
        return torch.cat([mass[:, : own.code_slots], mass[:, padded : padded + own.fp_slots]], dim=-1)


class ForwardPass:
    """Steps of one or several sessions in one arena, computed together. B sessions, n tokens of each.

    Args:
        steps: of different sessions; several only with one token each.

    Attributes:
        groups: sessions whose attention is one call: of one quantised format, and of not too different lengths.
    """

    def __init__(self, steps: Sequence[Step]):
        self.steps = tuple(steps)
        self.arena = steps[0].store.arena
        self.groups = [self._group(members) for members in _similar([step.store for step in steps])]
        together = [member for group in self.groups for member in group.members]
        self._order = sorted(range(len(together)), key=together.__getitem__)
        self._rows = steps[0].rows if len(steps) == 1 else torch.cat([step.rows for step in steps], dim=1)

    @property
    def first_token(self) -> int:
        """The largest logical length before the pass."""
        return max(step.first_token for step in self.steps)

    @property
    def positions(self) -> Tensor:
        """[B, n] int64."""
        return torch.stack([step.positions for step in self.steps])

    @property
    def reads_hidden(self) -> bool:
        """Whether a policy reads the input of the attention layers."""
        return any(step.creation is not None for step in self.steps)

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Store a layer's new keys and values, each [B, H, n, D] in the model's dtype."""
        rows = self.steps[0].store.fp.rows
        rows.index_copy_(0, self._rows[layer], torch.stack((key, value), dim=1).view(-1, rows.shape[-1]))
        for place, step in enumerate(self.steps):
            step.note_created(layer, key[place])

    def attend(self, layer: int, query: Tensor, sinks: Tensor | None, **computed: Any) -> Tensor:
        """Attention of a layer over its pages: query [B, Hq, n, D] to the same shape.

        Args:
            layer: whose keys and values of the new tokens have been written.
            query: in the model's dtype.
            sinks: [Hq] or None; this and the others as in :func:`agentkv_kernels.paged_mixed_attention`.
        """
        outs = [self._attend(group, layer, query, sinks, computed) for group in self.groups]
        return outs[0] if len(outs) == 1 else torch.cat(outs)[self._order]

    def _attend(
        self, group: Group, layer: int, query: Tensor, sinks: Tensor | None, computed: Mapping[str, Any]
    ) -> Tensor:
        members = len(group.steps)
        result = paged_mixed_attention(
            (query if members == len(query) else query[list(group.members)]).flatten(0, 1),
            group.views[layer],
            group.query_index,
            mass_weights=group.mass_weights,
            sinks=None if sinks is None else sinks.repeat(members),
            probs_of=group.probs_of,
            **computed,
        )
        group.note(layer, result)
        return result.out.unflatten(0, (members, -1))

    def note_hidden(self, layer: int, hidden: Tensor) -> None:
        """A layer's attention is about to read hidden [B, n, size]."""
        for place, step in enumerate(self.steps):
            if step.creation is not None:
                step.hidden[layer] = hidden[place]

    def _group(self, members: tuple[int, ...]) -> Group:
        steps = tuple(self.steps[member] for member in members)
        first, rules = steps[0], [step.policy.mass for step in steps]
        probs_of = max((rule.probs_of for rule in rules if rule is not None), default=0)
        if len(steps) == 1:
            return Group(members, steps, first.views, first.query_index, first.mass_weights, probs_of)
        heads = self.arena.layout.kv_heads
        query_index = torch.cat([step.query_index.expand(heads) for step in steps]).unsqueeze(-1)
        # Each session multiplies by its own weight afterwards.
        weighs = any(step.mass_weights is not None for step in steps)
        weights = torch.ones(1, device=self.arena.device) if weighs else None
        return Group(members, steps, joint_views([step.store for step in steps]), query_index, weights, probs_of)


def _similar(stores: Sequence[KVStore]) -> list[tuple[int, ...]]:
    """Places of the stores that make one attention call each."""
    formats = [store.code_format if store.code_slots else None for store in stores]
    # Without quantised slots a session goes with any format.
    some = next((fmt for fmt in formats if fmt is not None), KVFormat.FP)
    groups: list[list[int]] = []
    for place in sorted(range(len(stores)), key=lambda place: stores[place].slots_used):
        for group in groups:
            same = (formats[group[0]] or some) is (formats[place] or some)
            if same and stores[place].slots_used <= _PADDING * stores[group[0]].slots_used:
                group.append(place)
                break
        else:
            groups.append([place])
    return [tuple(sorted(group)) for group in groups]


def joint_views(stores: Sequence[KVStore]) -> list[PagedKV]:
    """Arguments of the attention kernel for the heads of all stores, each with its newest token: one per layer.

    Heads that hold fewer slots than others are padded with the dummy page and empty slots. Built for all layers at
    once: [L, G · H, …].
    """
    coded = next((store for store in stores if store.code_slots), stores[0])
    fp_used = np.concatenate([store.fp.used for store in stores], axis=1)
    code_used = np.concatenate([store.code.used for store in stores], axis=1)
    fp, code = int(fp_used.max()), int(code_used.max())
    fp_pages, code_pages = -(-fp // coded.fp.page_slots), -(-code // coded.code.page_slots)
    token_index = torch.cat([_padded_slots(store, code, fp) for store in stores], dim=1)
    # Padding names half-page 0, of the dummy page: what it holds is arbitrary, for keys and values alike.
    fp_index = torch.cat([_padded(store.fp.half_index, fp_pages) for store in stores], dim=2)
    code_index = torch.cat([_padded(store.code.half_index, code_pages) for store in stores], dim=2)
    scales = torch.cat([_padded(store.scales[..., : store.code_slots], code) for store in stores], dim=2)
    channel_scales = _joint_channel_scales(stores, code_pages)
    fp_most, code_most = fp_used.max(1), code_used.max(1)
    even = (fp_used == fp_most[:, None]).all(1) & (code_used == code_most[:, None]).all(1)

    views = []
    for layer, (fp, old, uniform) in enumerate(zip(fp_most.tolist(), code_most.tolist(), even.tolist(), strict=True)):
        tokens = token_index[layer, :, code : code + fp]
        old_pages = -(-old // coded.code.page_slots)
        views.append(
            PagedKV(
                fp_halves=coded.fp.halves,
                fp_index=fp_index[layer, ..., : -(-fp // coded.fp.page_slots)],
                fp_slots=fp,
                code_halves=coded.code.halves,
                code_index=code_index[layer, ..., :old_pages],
                code_slots=old,
                scales=scales[layer, ..., :old],
                token_index=torch.cat([token_index[layer, :, :old], tokens], dim=-1) if old else tokens,
                visible_slots=old + fp if uniform else 0,
                ragged=not uniform,
                code_format=coded.code_format,
                channel_scales=None if channel_scales is None else channel_scales[layer, :, :old_pages],
            )
        )
    return views


def _joint_channel_scales(stores: Sequence[KVStore], pages: int) -> Tensor | None:
    """[L, G · H, pages, D] float32, or None where no format has a scale per channel."""
    if not pages or all(store.code_format is not KVFormat.INT8_CHANNEL for store in stores):
        return None
    padded = [_padded(store.channel_scales.transpose(2, 3), pages) for store in stores]
    return torch.cat(padded, dim=1).transpose(2, 3).contiguous()


def _padded_slots(store: KVStore, code: int, fp: int) -> Tensor:
    """[L, H, code + fp] int32: token indices of the slots in use, −1 in padding."""
    old = store.token_index[..., : store.code_slots]
    new = store.token_index[..., store.code_cap : store.code_cap + store.fp_slots]
    return torch.cat([_padded(old, code, -1), _padded(new, fp, -1)], dim=-1)


def _padded(tensor: Tensor, size: int, value: int = 0) -> Tensor:
    """With the last dimension of size ``size``."""
    return torch.nn.functional.pad(tensor[..., :size], (0, max(0, size - tensor.shape[-1])), value=value)
