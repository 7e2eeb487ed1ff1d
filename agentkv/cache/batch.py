"""One forward pass for several sessions: their KV heads stand side by side as the heads of one attention call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agentkv.cache.step import Step
from agentkv.cache.store import KVStore
from agentkv.cache.views import JointViews, joint_views
from agentkv_kernels import AttentionResult, KVFormat, append_kv, paged_mixed_attention

_PADDING = 2
"""A session joins others whose heads hold at most so many times its slots: padding is read like any slot."""


@dataclass(frozen=True, slots=True)
class Group:
    """Sessions whose attention is one call. G sessions, H KV heads.

    Attributes:
        members: their places in the pass.
        steps: of the members.
        views: what the attention kernel is given.
        query_index: [n] of a single session, [G · H, 1] of several.
        mass: [L, G · H, slots] float32: what the layers measure, in the numbering of ``views``; None if no member
            measures mass.
        mass_weights: [m ≤ n] float32 for the kernel, or None if no member has weights.
        probs_of: the most last queries whose probabilities a member reads.
    """

    members: tuple[int, ...]
    steps: tuple[Step, ...]
    views: JointViews
    query_index: Tensor
    mass: Tensor | None
    mass_weights: Tensor | None
    probs_of: int

    @classmethod
    def of(cls, members: tuple[int, ...], steps: tuple[Step, ...]) -> Group:
        views = joint_views([step.store for step in steps], steps[0].tokens)
        probs_of = max((step.policy.mass.probs_of for step in steps if step.policy.mass is not None), default=0)
        if len(steps) == 1:
            (step,) = steps
            return cls(members, steps, views, step.query_index, step.mass, step.mass_weights, probs_of)
        arena = steps[0].store.arena
        heads = arena.layout.kv_heads
        query_index = torch.cat([step.query_index.expand(heads) for step in steps]).unsqueeze(-1)
        shape = arena.layout.layers, len(steps) * heads, views.code_slots + views.fp_slots
        measured = any(step.mass is not None for step in steps)
        mass = torch.zeros(shape, device=arena.device) if measured else None
        # Each session multiplies by its own weight afterwards.
        weighs = any(step.mass_weights is not None for step in steps)
        weights = torch.ones(1, device=arena.device) if weighs else None
        return cls(members, steps, views, query_index, mass, weights, probs_of)

    def note(self, layer: int, result: AttentionResult) -> None:
        """Keep what was measured in one layer."""
        if self.mass is None:
            return
        kv, own_mass = self.views.layers[layer], self.mass[layer]
        old, first_new = kv.code_slots, self.views.code_slots
        if result.mass is not None:
            own_mass[:, :old] = result.mass[:, :old]
            own_mass[:, first_new : first_new + kv.fp_slots] = result.mass[:, old:]
        if result.probs is None:
            return
        probs = result.probs.unflatten(0, (len(kv.token_index), -1))
        for heads, step in self._heads():
            if step.policy.mass is not None and step.policy.mass.probs_of:
                mass = self._reduced(step, layer, probs[heads], kv.token_index[heads])
                own_mass[heads, :old] = mass[:, :old]
                own_mass[heads, first_new : first_new + kv.fp_slots] = mass[:, old:]

    def hand_over(self) -> None:
        """Give each session its mass."""
        if self.mass is None or self.mass is self.steps[0].mass:
            return
        for heads, step in self._heads():
            if step.mass is None:
                continue
            old, new = step.store.code_slots, step.store.fp_slots
            first_new = self.views.code_slots
            step.mass[..., :old] = self.mass[:, heads, :old]
            step.mass[..., old:] = self.mass[:, heads, first_new : first_new + new]
            if step.mass_weights is not None:
                step.mass.mul_(step.mass_weights)

    def _heads(self) -> Iterator[tuple[slice, Step]]:
        """Which of the G · H heads are whose."""
        heads = self.steps[0].store.arena.layout.kv_heads
        for place, step in enumerate(self.steps):
            yield slice(place * heads, (place + 1) * heads), step

    @staticmethod
    def _reduced(step: Step, layer: int, probs: Tensor, token_index: Tensor) -> Tensor:
        """What a rule makes of probabilities [H, group, m, slots] of a layer: mass [H, slots] float32."""
        rule = step.policy.mass
        assert rule is not None
        probs = probs[:, :, -rule.probs_of :]
        mass, stats = rule.reduce(probs, token_index, step.query_index[-probs.shape[2] :])
        if stats is not None:
            step.layer_stats[layer] = stats
        return mass


class ForwardPass:
    """Steps of one or several sessions in one arena, computed together. B sessions, n tokens of each.

    Args:
        steps: of different sessions; several only with one token each.

    Attributes:
        sessions: B.
        groups: sessions whose attention is one call: of one quantised format, and of not too different lengths.
    """

    def __init__(self, steps: Sequence[Step]):
        self.steps = tuple(steps)
        self.sessions = len(self.steps)
        self.arena = steps[0].store.arena
        self.groups = [
            Group.of(members, tuple(steps[member] for member in members))
            for members in similar([step.store for step in steps])
        ]
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
        append_kv(key, value, self.arena.rows(KVFormat.FP), self._rows[layer])
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
        if len(outs) == 1:
            return outs[0]
        by_member = {
            member: own
            for group, out in zip(self.groups, outs, strict=True)
            for member, own in zip(group.members, out, strict=True)
        }
        return torch.stack([by_member[member] for member in range(len(query))])

    def _attend(
        self, group: Group, layer: int, query: Tensor, sinks: Tensor | None, computed: Mapping[str, Any]
    ) -> Tensor:
        members = len(group.members)
        of_group = query if members == len(query) else torch.stack([query[member] for member in group.members])
        result = paged_mixed_attention(
            of_group.flatten(0, 1),
            group.views.layers[layer],
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

    def finish(self) -> None:
        """All layers have run: each session gets what was measured of it."""
        for group in self.groups:
            group.hand_over()


def similar(stores: Sequence[KVStore]) -> list[tuple[int, ...]]:
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
