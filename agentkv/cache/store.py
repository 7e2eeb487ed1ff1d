"""One session's cache: pages and slot metadata. The only code that moves keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.arena import PageArena
from agentkv.cache.demotion import demote_into, read_code_keys, stage, write_staged
from agentkv.cache.formats import KVFormat, SlotCaps
from agentkv.cache.plan import Plan
from agentkv.cache.region import Region
from agentkv.errors import PoolExhausted
from agentkv_kernels import compact, ema_mass

_GROWTH = 256
"""Slots by which the metadata of the FP region grows."""
_NEVER = torch.iinfo(torch.int32).max
"""A token index above every real one."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where new tokens go.

    Attributes:
        rows: [L, 2, H, n] int64 rows of ``arena.rows(FP)`` for their keys (0) and values (1).
        slots: [L, H, n] int64: their places in the slot metadata.
    """

    rows: Tensor
    slots: Tensor


class KVStore:
    """Slots of a session over all layers and KV heads, quantised slots ("codes") first, FP slots after them.

    Pages hold payload only; metadata is dense over layers and heads so that every operation runs once for all of
    them. Slot order is free, since RoPE is baked into the keys: a new token takes the place of an evicted one, or the
    last slot moves into the hole. Within a region the slots [0, used) are filled.

    Args:
        arena: where pages come from.
        caps: the most slots of a head in each layer once slots are quantised.
        dense_slots: the most FP slots until then; the code region does not exist before the first demotion.
        code_format: how slots are quantised.
        columns: names of float32 values to keep per slot, such as "mass".

    Attributes:
        code_cap: slots of the code region in the metadata, 0 before the first demotion.
        fp_caps: [L] the most FP slots of a head for now.
        token_index: [L, H, code_cap + FP capacity] int32; −1 where the slot is empty.
        rope_pos: int32, of the same shape: the position in a slot's key; None while it is the token index.
        position_offset: token index minus position of new tokens.
        columns: by name, of the same shape.
        scales: [L, 2, H, code_cap] float32: of K and of V.
        channel_scales: [L, H, code pages, D] float32 of K, where the format has one scale per channel; else no pages.
        peak_bytes: the most bytes ever resident.
    """

    def __init__(
        self,
        arena: PageArena,
        caps: Sequence[SlotCaps],
        dense_slots: int,
        code_format: KVFormat = KVFormat.INT8_TOKEN,
        columns: Sequence[str] = (),
    ):
        layout = arena.layout
        self.arena = arena
        self.code_format = code_format
        self._final_fp_caps = np.array([cap.fp for cap in caps])
        self._code_caps = np.array([cap.code for cap in caps])
        self.code_cap = 0
        self.fp_caps = np.maximum(dense_slots, self._final_fp_caps)
        self._fp_capacity = min(int(self.fp_caps.max()), _GROWTH)
        self.fp = Region(arena, KVFormat.FP, self._fp_capacity)
        self.code = Region(arena, code_format, 0)
        shape = (layout.layers, layout.kv_heads, self._fp_capacity)
        self.token_index = torch.full(shape, -1, dtype=torch.int32, device=arena.device)
        self.rope_pos: Tensor | None = None
        self.position_offset = 0
        self.columns = {name: torch.zeros(shape, device=arena.device) for name in columns}
        self.scales = torch.zeros(layout.layers, 2, layout.kv_heads, 0, device=arena.device)
        self.channel_scales = torch.zeros(layout.layers, layout.kv_heads, 0, layout.head_dim, device=arena.device)
        self.peak_bytes = 0
        self._note_peak()

    # --- what is there -------------------------------------------------------------------------------------------

    @property
    def code_slots(self) -> int:
        """Quantised slots in use, of the head that holds most."""
        return self.code.max_used

    @property
    def fp_slots(self) -> int:
        return self.fp.max_used

    @property
    def used(self) -> np.ndarray:
        """[L, H] slots in use."""
        return self.fp.used + self.code.used

    @property
    def slots_used(self) -> int:
        """Slots in use, of the head that holds most."""
        return int(self.used.max())

    @property
    def mass(self) -> Tensor | None:
        return self.columns.get("mass")

    @property
    def slot_metadata(self) -> dict[str, Tensor]:
        """What is kept per slot, by name: [L, H, capacity], quantised slots first."""
        positions = {} if self.rope_pos is None else {"rope_pos": self.rope_pos}
        return {"token_index": self.token_index} | positions | self.columns

    def tensors(self) -> list[Tensor]:
        """The session's live tensors beside its pages."""
        tables = [self.fp.half_index, self.code.half_index]
        return [*self.slot_metadata.values(), self.scales, self.channel_scales, *tables]

    @property
    def page_bytes_held(self) -> int:
        return self.fp.page_bytes_held + self.code.page_bytes_held

    @property
    def resident_bytes(self) -> int:
        """Pages held plus metadata, measured from the live tensors."""
        return self.page_bytes_held + sum(t.nbytes for t in self.tensors())

    def in_use(self, tensor: Tensor) -> Tensor:
        """The slots in use of a metadata tensor [L, H, capacity]: [L, H, S], quantised slots first."""
        fp = tensor[..., self.code_cap : self.code_cap + self.fp_slots]
        return torch.cat([tensor[..., : self.code_slots], fp], dim=-1) if self.code_slots else fp

    def read_keys(self) -> Tensor:
        """All keys in use, dequantised: [L, H, S, D] float32, zero at empty slots."""
        shape = (*self.fp.used.shape, -1)
        fp_slots = torch.arange(self.fp_slots, device=self.arena.device).expand(shape)
        keys = self.fp.rows[self.fp.rows_of(fp_slots)[:, 0]].float()
        if self.code_slots:
            keys = torch.cat([read_code_keys(self), keys], dim=2)
        return keys.masked_fill(self.in_use(self.token_index).unsqueeze(-1) < 0, 0.0)

    # --- writing new tokens --------------------------------------------------------------------------------------

    def append(self, first_token: int, n: int) -> Placement:
        """Take n empty FP slots at the end of every head for tokens first_token, first_token + 1, ….

        Raises PoolExhausted, taking none, if pages are lacking.
        """
        self._enlarge_fp(self.fp_slots + n)
        self._note_peak()
        start = self.fp.used
        self.fp.resize(start + n)
        self._note_peak()
        steps = torch.arange(n, device=self.arena.device)
        slots = torch.from_numpy(start).to(self.arena.device).unsqueeze(-1) + steps
        tokens = (steps + first_token).to(torch.int32).expand_as(slots)
        self.token_index.scatter_(-1, slots + self.code_cap, tokens)
        if self.rope_pos is not None:
            self.rope_pos.scatter_(-1, slots + self.code_cap, tokens - self.position_offset)
        return Placement(self.fp.rows_of(slots), slots + self.code_cap)

    def overwrite(self, victims: Tensor, token: int, grow: np.ndarray | None = None) -> Placement:
        """Steady state: one slot of each head makes room for one token. No host synchronisation.

        A victim among the FP slots is overwritten. A victim among the quantised slots receives the oldest FP slot,
        quantised, and the new token takes that FP slot.

        Args:
            victims: [L, H] int64, in the numbering of slots in use.
            token: token index of the new token.
            grow: [L, H] bool numpy, or None: heads that take an empty FP slot instead, whatever ``victims`` says.

        Raises PoolExhausted, changing nothing, if pages are lacking.
        """
        code_slots, fp_slots = self.code_slots, self.fp_slots
        grows = None
        if grow is not None and grow.any():
            grows = torch.from_numpy(grow).to(self.arena.device)
            end = torch.from_numpy(self.fp.used).to(self.arena.device)
            self._enlarge_fp(int((self.fp.used + grow).max()))
            self.fp.resize(self.fp.used + grow)
            self._note_peak()
        fp_victim = victims - code_slots
        if code_slots:
            fp_tokens = self.token_index[..., self.code_cap : self.code_cap + fp_slots]
            oldest = fp_tokens.masked_fill(fp_tokens < 0, _NEVER).argmin(-1)
            in_code = fp_victim < 0 if grows is None else (fp_victim < 0) & ~grows
            demote_into(self, victims, oldest, in_code)
            fp_victim = torch.where(in_code, oldest, fp_victim)
        if grows is not None:
            fp_victim = torch.where(grows, end, fp_victim)
        slot = (fp_victim + self.code_cap).unsqueeze(-1)
        self.token_index.scatter_(-1, slot, token)
        if self.rope_pos is not None:
            self.rope_pos.scatter_(-1, slot, token - self.position_offset)
        for column in self.columns.values():
            column.scatter_(-1, slot, 0.0)
        return Placement(self.fp.rows_of(fp_victim.unsqueeze(-1)), slot)

    def set_column(self, name: str, slots: Tensor, values: Tensor) -> None:
        """Write a column of new slots: slots, values [L, H, n]."""
        self.columns[name].scatter_(-1, slots, values)

    def add_mass(self, mass: Tensor, decay: float) -> None:
        """mass ← decay · mass + new, over the slots in use; new [L, H, S] float32."""
        split = self.code_slots
        for part, new in (
            (slice(0, split), mass[..., :split]),
            (slice(self.code_cap, None), mass[..., split:]),
        ):
            ema_mass(self.columns["mass"][..., part], new, decay)

    def clear_mass(self, heads: np.ndarray) -> None:
        """Forget the mass of these heads, [L, H] bool numpy."""
        chosen = torch.from_numpy(heads).to(self.arena.device)
        self.columns["mass"].masked_fill_(chosen.unsqueeze(-1), 0.0)

    # --- structural changes --------------------------------------------------------------------------------------

    def caps_after(self, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
        """[L], [L]: the most FP and quantised slots a head may hold once the plan is applied."""
        if self.code_cap or (plan.demote is not None and bool(plan.demote.any())):
            return self._final_fp_caps, self._code_caps
        return self.fp_caps, np.zeros_like(self._code_caps)

    def apply(self, plan: Plan) -> None:
        """Evict, quantise and compact, give tail pages back. The plan must have been validated.

        Raises PoolExhausted before anything moves if the code region would need pages that nobody has.
        """
        split = self.code_slots
        keep_fp, keep_code = plan.keep[..., split:], plan.keep[..., :split]
        demote = plan.demote if plan.demote is not None and bool(plan.demote.any()) else None
        if demote is not None:
            keep_fp = keep_fp & ~demote
        fp_counts, code_counts = _count(keep_fp), _count(keep_code)
        grown = code_counts if demote is None else code_counts + _count(demote)
        with self.arena.exclusive():  # the pages of evicted slots go to codes, not to another thread's session
            self.check_pages(int(self.fp.pages_for(fp_counts).sum() + self.code.pages_for(grown).sum()))
            staged = None if demote is None else stage(self, demote)
            self._compact(self.fp, self.code_cap, keep_fp, fp_counts)
            self._compact(self.code, 0, keep_code, code_counts)
            if staged is not None:
                self._open_code_region()
                self.code.resize(grown)
        if staged is not None:
            write_staged(self, staged, code_counts)
        self._note_peak()
        self._narrow_fp()

    def check_pages(self, wanted: int) -> None:
        """Raises PoolExhausted if the store cannot hold so many pages."""
        available = int(self.fp.held.sum() + self.code.held.sum()) + self.arena.free_pages
        if wanted > available:
            raise PoolExhausted(
                f"the KV pool is full: {wanted - available} more pages of {self.arena.layout.page_bytes} bytes are "
                f"needed; close idle sessions or enlarge kv_pool"
            )

    def _compact(self, region: Region, offset: int, keep: Tensor, counts: np.ndarray) -> None:
        """Move the last kept slots of each head into its holes, then give tail pages back.

        Args:
            region: the region.
            offset: where the region's slots begin in the metadata.
            keep: [L, H, used] bool.
            counts: [L, H], keep summed.
        """
        meta = [meta[..., offset:] for meta in self.slot_metadata.values()]
        if region is self.code:
            meta.append(self.scales)
            if self.code_format is KVFormat.INT8_CHANNEL:
                self._compact_channels(keep[..., :: region.page_slots])
        compact(region.halves, region.half_index, keep, meta)
        slots = torch.arange(keep.shape[-1], device=keep.device)
        inside = slots < torch.from_numpy(counts).to(keep.device).unsqueeze(-1)
        width = keep.shape[-1]
        self.token_index[..., offset : offset + width].masked_fill_(~inside, -1)
        for column in self.columns.values():
            column[..., offset : offset + width].masked_fill_(~inside, 0.0)
        region.resize(counts)

    def _compact_channels(self, keep: Tensor) -> None:
        """The key scales of the pages kept, [L, H, pages] bool, move as the pages do: whole ones left."""
        layers, heads, pages, dim = self.channel_scales.shape
        # A page's scales are one vector, as if they were keys and values alike.
        at = torch.arange(layers * heads * pages, device=keep.device).view(layers, 1, heads, pages)
        compact(self.channel_scales.view(-1, 1, dim), at.expand(-1, 2, -1, -1), keep)

    # --- size ----------------------------------------------------------------------------------------------------

    def _enlarge_fp(self, slots: int) -> None:
        """Grow the FP region's metadata (never pages) so that a head can hold ``slots`` FP slots."""
        if slots <= self._fp_capacity:
            return
        # Beyond the caps only while a whole prompt is prefilled before anything is dropped.
        capacity = max(slots, min(int(self.fp_caps.max()), -(-slots // _GROWTH) * _GROWTH))
        self._set_fp_capacity(capacity)

    def _narrow_fp(self) -> None:
        """Give back metadata that only a prefill beyond the caps needed."""
        most = int(self.fp_caps.max())
        if self._fp_capacity > most >= self.fp_slots:
            self._set_fp_capacity(most)

    def _set_fp_capacity(self, capacity: int) -> None:
        end = self.code_cap + min(capacity, self._fp_capacity)
        extra = max(0, capacity - self._fp_capacity)
        self._relay(lambda old, empty: torch.cat([old[..., :end], empty(extra)], dim=-1))
        self.fp.set_capacity(capacity)
        self._fp_capacity = capacity

    def _open_code_region(self) -> None:
        """Before the first slots are quantised: lay the metadata out for both regions. FP is already compact."""
        if self.code_cap:
            return
        layout, kept = self.arena.layout, self.fp_slots
        code, fp = int(self._code_caps.max()), int(self._final_fp_caps.max())
        self._relay(lambda old, empty: torch.cat([empty(code), old[..., :kept], empty(fp - kept)], dim=-1))
        self.scales = self.scales.new_zeros(*self.scales.shape[:-1], code)
        if self.code_format is KVFormat.INT8_CHANNEL:
            pages = layout.pages_for(code, self.code_format)
            self.channel_scales = self.channel_scales.new_zeros(layout.layers, layout.kv_heads, pages, layout.head_dim)
        self.fp.set_capacity(fp)
        self.code.set_capacity(code)
        self.code_cap, self.fp_caps, self._fp_capacity = code, self._final_fp_caps, fp

    def _relay(self, arrange: Callable[[Tensor, Callable[[int], Tensor]], Tensor]) -> None:
        """Rebuild each slot metadata tensor: arrange(old, empty) with empty(n) making n empty slots."""
        shape = self.token_index.shape[:-1]
        self.token_index = arrange(self.token_index, lambda n: self.token_index.new_full((*shape, n), -1))
        if (positions := self.rope_pos) is not None:
            self.rope_pos = arrange(positions, lambda n: positions.new_zeros((*shape, n)))
        for name, column in self.columns.items():
            self.columns[name] = arrange(column, lambda n, like=column: like.new_zeros((*shape, n)))  # type: ignore[misc]

    def _note_peak(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.resident_bytes)

    # --- all at once ---------------------------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Whether slots are to be quantised one day, and none is yet."""
        return not self.code_cap and bool(self._code_caps.any())

    def offset(self, region: Region) -> int:
        """Where a region's slots begin in the metadata."""
        return self.code_cap if region is self.fp else 0

    def reserve(self, fp_used: np.ndarray, code_used: np.ndarray) -> None:
        """Take room for so many slots of each head, [L, H], in an empty store.

        Raises PoolExhausted, leaving it empty, if pages are lacking.
        """
        if code_used.any():
            self._open_code_region()
        self._enlarge_fp(int(fp_used.max()))
        try:
            self.fp.resize(fp_used)
            self.code.resize(code_used)
        except PoolExhausted:
            self.release()
            raise
        self._note_peak()

    def open_positions(self) -> None:
        """From now on every slot's position is kept beside its token index."""
        if self.rope_pos is None:
            # Room that only a session kept whole needed makes room for the positions.
            if not self.code_cap and self.fp_slots <= int(self._final_fp_caps.max()):
                self.fp_caps = self._final_fp_caps
                self._narrow_fp()
            self.rope_pos = self.token_index - self.position_offset
            self._note_peak()

    def release(self) -> None:
        """Give every page back; the store is empty afterwards."""
        nothing = np.zeros_like(self.fp.used)
        self.fp.resize(nothing)
        self.code.resize(nothing)


def _count(mask: Tensor) -> np.ndarray:
    """True entries along the last dimension, on the host: [L, H] int64."""
    counts: np.ndarray = mask.sum(-1).cpu().numpy()
    return counts
