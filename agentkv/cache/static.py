"""A decode step whose inputs lie at fixed addresses in fixed shapes, so that the device can repeat it by itself.

What the host decides (who makes room, where new tokens go, how many slots each head holds) is written into buffers
first; what the model then computes depends on the buffers, the pages and the weights alone. Slots are rounded up to a
few sizes, and empty ones fill the rest, which kernels do not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.arena import PageArena
from agentkv.cache.batch import ForwardPass, Group, similar
from agentkv.cache.formats import KVFormat, ceil_div
from agentkv.cache.region import Region
from agentkv.cache.step import Step
from agentkv.cache.store import KVStore
from agentkv.cache.views import JointViews
from agentkv_kernels import PagedKV

_LEAST_ROOM = 64


def room_for(slots: int) -> int:
    """The size that stands for so many slots, in four steps per doubling: at most 64 or a quarter more."""
    if not slots:
        return 0
    step = max(_LEAST_ROOM, 1 << max(0, (slots - 1).bit_length() - 3))
    return ceil_div(slots, step) * step


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Sessions whose attention is one call.

    Attributes:
        members: their places in the pass.
        code_room, fp_room: slots of a head that there is room for.
        code_format: of the quantised slots.
        measures_mass: whether a member measures attention mass.
    """

    members: tuple[int, ...]
    code_room: int
    fp_room: int
    code_format: KVFormat
    measures_mass: bool


@dataclass(frozen=True, slots=True)
class PassShape:
    """All that decides which operations a decode step consists of."""

    groups: tuple[GroupShape, ...]

    @property
    def sessions(self) -> int:
        return sum(len(group.members) for group in self.groups)

    @classmethod
    def of(cls, steps: Sequence[Step]) -> PassShape | None:
        """The shape of a pass; None if it is no decode step, or one whose policies look into the layers."""
        if not all(map(_is_plain, steps)):
            return None
        return cls(tuple(_group_shape(members, steps) for members in similar([step.store for step in steps])))


def _is_plain(step: Step) -> bool:
    """Whether attention mass by fixed weights is all that is measured in a step of one token."""
    rule = step.policy.mass
    by_weights = rule is None or not rule.probs_of
    return step.tokens == 1 and by_weights and step.creation is None and not step.policy.reads_surprise


def _group_shape(members: tuple[int, ...], steps: Sequence[Step]) -> GroupShape:
    own = [steps[member] for member in members]
    stores = [step.store for step in own]
    return GroupShape(
        members,
        room_for(max(store.code_slots for store in stores)),
        room_for(max(store.fp_slots for store in stores)),
        next((store.code_format for store in stores if store.code_slots), KVFormat.INT8_TOKEN),
        any(step.mass is not None for step in own),
    )


class StaticPass(ForwardPass):
    """A decode step of one shape. L = layers, B sessions, H KV heads, G sessions of a group.

    Every operation on it but :meth:`fill` and :meth:`take` reads and writes tensors that stay where they are.

    Attributes:
        ids: [B, 1] int64 token ids.
    """

    def __init__(self, shape: PassShape, arena: PageArena):
        layout, device = arena.layout, arena.device
        self.steps = ()
        self.sessions = shape.sessions
        self.arena = arena
        self.ids = torch.zeros(self.sessions, 1, dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self.ids)
        # Until it is filled, everything is written to the dummy page.
        self._rows = torch.zeros(layout.layers, self.sessions * 2 * layout.kv_heads, dtype=torch.int64, device=device)
        self._inputs = [_GroupInputs(group, arena) for group in shape.groups]
        self.groups = [inputs.group for inputs in self._inputs]

    @property
    def first_token(self) -> int:
        """Of no meaning here: positions are given, and masks go by token index."""
        return 0

    @property
    def positions(self) -> Tensor:
        return self._positions

    @property
    def nbytes(self) -> int:
        of_groups = [tensor for inputs in self._inputs for tensor in inputs.tensors()]
        return sum(tensor.nbytes for tensor in (self.ids, self._positions, self._rows, *of_groups))

    def fill(self, ids: Tensor, steps: Sequence[Step]) -> None:
        """Become the pass of these steps, whose shape it has; ids [B, 1]."""
        self.ids.copy_(ids)
        rows = self._rows.view(len(self._rows), self.sessions, -1)
        for place, step in enumerate(steps):
            self._positions[place].copy_(step.positions)
            rows[:, place].copy_(step.rows)
        for inputs in self._inputs:
            inputs.fill([steps[member] for member in inputs.group.members])

    def take(self, steps: Sequence[Step]) -> None:
        """Give each of these steps what was measured of it."""
        for group in self.groups:
            replace(group, steps=tuple(steps[member] for member in group.members)).hand_over()


class _GroupInputs:
    """The buffers of one group."""

    def __init__(self, shape: GroupShape, arena: PageArena):
        layout, device = arena.layout, arena.device
        self._layout, self._shape = layout, shape
        layers, heads = layout.layers, len(shape.members) * layout.kv_heads
        slots = shape.code_room + shape.fp_room
        self.token_index = torch.full((layers, heads, slots), -1, dtype=torch.int32, device=device)
        self.pages = {
            fmt: torch.zeros(layers, 2, heads, layout.pages_for(room, fmt), dtype=torch.int32, device=device)
            for fmt, room in ((KVFormat.FP, shape.fp_room), (shape.code_format, shape.code_room))
        }
        self.scales = torch.zeros(layers, 2, heads, shape.code_room, device=device)
        code_pages = self.pages[shape.code_format].shape[-1] if shape.code_format is KVFormat.INT8_CHANNEL else 0
        self.channel_scales = torch.zeros(layers, heads, code_pages, layout.head_dim, device=device)
        self.slot_counts = torch.zeros(layers, 2, heads, dtype=torch.int32, device=device)
        self.query_index = torch.zeros(heads, 1, dtype=torch.int32, device=device)
        mass = torch.zeros(layers, heads, slots, device=device) if shape.measures_mass else None
        weights = torch.ones(1, device=device) if shape.measures_mass else None  # each session has its own afterwards
        views = JointViews([self._view(layer, arena) for layer in range(layers)], shape.code_room, shape.fp_room)
        self.group = Group(shape.members, (), views, self.query_index, mass, weights, 0)

    def _view(self, layer: int, arena: PageArena) -> PagedKV:
        shape = self._shape
        return PagedKV(
            fp_halves=arena.halves(KVFormat.FP),
            fp_index=self.pages[KVFormat.FP][layer],
            fp_slots=shape.fp_room,
            code_halves=arena.halves(shape.code_format),
            code_index=self.pages[shape.code_format][layer],
            code_slots=shape.code_room,
            scales=self.scales[layer],
            token_index=self.token_index[layer],
            visible_slots=0,
            fp_filled=0,
            code_format=shape.code_format,
            channel_scales=self.channel_scales[layer] if self.channel_scales.shape[2] else None,
            slot_counts=self.slot_counts[layer],
        )

    def tensors(self) -> list[Tensor]:
        mass = [] if self.group.mass is None else [self.group.mass]
        of_slots = [self.token_index, self.scales, self.channel_scales, *mass]
        return [*of_slots, *self.pages.values(), self.slot_counts, self.query_index]

    def fill(self, steps: Sequence[Step]) -> None:
        stores = [step.store for step in steps]
        for place, step in enumerate(steps):
            heads = slice(place * self._layout.kv_heads, (place + 1) * self._layout.kv_heads)
            self.query_index[heads] = step.query_index
            self._fill_heads(heads, step.store)
        parts = zip(*map(_regions, stores), strict=True)
        counts = [np.concatenate([region.used for region in part], axis=1) for part in parts]
        self.slot_counts.copy_(torch.from_numpy(np.stack(counts, axis=1)))

    def _fill_heads(self, heads: slice, store: KVStore) -> None:
        first = 0
        for region, room in zip(_regions(store), (self._shape.code_room, self._shape.fp_room), strict=True):
            used, begin = region.max_used, store.offset(region)
            tokens = self.token_index[:, heads, first : first + room]
            tokens[..., :used].copy_(store.token_index[..., begin : begin + used])
            tokens[..., used:].fill_(-1)
            if used:
                pages = self._layout.pages_for(used, region.fmt)
                self.pages[region.fmt][:, :, heads, :pages].copy_(region.half_index[..., :pages])
            first += room
        used = store.code_slots
        self.scales[:, :, heads, :used].copy_(store.scales[..., :used])
        pages = min(self.channel_scales.shape[2], store.channel_scales.shape[2])
        self.channel_scales[:, heads, :pages].copy_(store.channel_scales[:, :, :pages])


def _regions(store: KVStore) -> tuple[Region, Region]:
    return store.code, store.fp
