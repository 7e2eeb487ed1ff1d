"""One session's cache: pages and slot metadata. The only code that moves keys and values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.arena import DUMMY_PAGE, PageArena
from agentkv.cache.formats import KVFormat, SlotCaps
from agentkv.cache.plan import Plan
from agentkv.cache.region import Region
from agentkv.cache.snapshot import Snapshot
from agentkv.errors import PoolExhausted
from agentkv_kernels import PagedKV, quantize_int8

_GROWTH = 256
"""Slots by which the metadata of the FP region grows."""
_NEVER = torch.iinfo(torch.int32).max
"""A token index above every real one."""


class KVStore:
    """Slots of a session over all layers and KV heads, INT8 slots first, FP slots after them.

    Pages hold payload only; metadata is dense over layers and heads so that every operation runs once for all of
    them. Slot order is free, since RoPE is baked into the keys: a new token takes the place of an evicted one, or the
    last slot moves into the hole. Within a region the slots [0, used) are filled.

    Args:
        arena: where pages come from.
        caps: the most slots per layer and head, by format, once slots are quantised.
        dense_slots: the most FP slots until then; the INT8 region does not exist before the first demotion.
        with_mass: whether to keep attention mass per slot.

    Attributes:
        code_cap: slots of the INT8 region, 0 before the first demotion.
        fp_cap: the most FP slots for now.
        token_index: [L, H, code_cap + FP capacity] int32; −1 where the slot is empty.
        mass: the same shape, float32, or None.
        scales: [L, 2, H, code_cap] float32: of K and of V.
        peak_bytes: the most bytes ever resident.
    """

    def __init__(self, arena: PageArena, caps: SlotCaps, dense_slots: int, with_mass: bool):
        layout = arena.layout
        self.arena = arena
        self._caps = caps
        self.code_cap = 0
        self.fp_cap = dense_slots
        self._fp_capacity = min(dense_slots, _GROWTH)
        self.fp = Region(arena, KVFormat.FP, self._fp_capacity)
        self.code = Region(arena, KVFormat.INT8_TOKEN, 0)
        shape = (layout.layers, layout.kv_heads, self._fp_capacity)
        self.token_index = torch.full(shape, -1, dtype=torch.int32, device=arena.device)
        self.mass = torch.zeros(shape, device=arena.device) if with_mass else None
        self.scales = torch.zeros(layout.layers, 2, layout.kv_heads, 0, device=arena.device)
        self.peak_bytes = 0
        self._note_peak()

    # --- what is there -------------------------------------------------------------------------------------------

    @property
    def code_slots(self) -> int:
        """INT8 slots in use, of the head that holds most."""
        return self.code.max_used

    @property
    def fp_slots(self) -> int:
        return self.fp.max_used

    @property
    def slots_used(self) -> int:
        """Slots in use, of the head that holds most."""
        return int((self.fp.used + self.code.used).max())

    @property
    def uniform(self) -> bool:
        return self.fp.uniform and self.code.uniform

    def tensors(self) -> list[Tensor]:
        """The session's live tensors beside its pages."""
        held = [self.token_index, self.scales, self.fp.half_index, self.code.half_index]
        return held if self.mass is None else [*held, self.mass]

    @property
    def page_bytes_held(self) -> int:
        return self.fp.page_bytes_held + self.code.page_bytes_held

    @property
    def resident_bytes(self) -> int:
        """Pages held plus metadata, measured from the live tensors."""
        return self.page_bytes_held + sum(t.nbytes for t in self.tensors())

    def in_use(self, tensor: Tensor) -> Tensor:
        """The slots in use of a metadata tensor [L, H, capacity]: [L, H, S], INT8 slots first."""
        fp = tensor[..., self.code_cap : self.code_cap + self.fp_slots]
        return torch.cat([tensor[..., : self.code_slots], fp], dim=-1) if self.code_slots else fp

    def views(self, visible_slots: int) -> list[PagedKV]:
        """Arguments of the attention kernel for each layer. ``visible_slots``: as there, if no head is padded."""
        uniform, code_slots, fp_slots = self.uniform, self.code_slots, self.fp_slots
        per_layer = zip(
            self.fp.page_index(),
            self.code.page_index(),
            self.scales[..., :code_slots],
            self.in_use(self.token_index),
            strict=True,
        )
        return [
            PagedKV(
                fp_halves=self.fp.halves,
                fp_index=fp_index,
                fp_slots=fp_slots,
                code_halves=self.code.halves,
                code_index=code_index,
                code_slots=code_slots,
                scales=scales,
                token_index=token_index,
                visible_slots=visible_slots if uniform else 0,
                ragged=not uniform,
            )
            for fp_index, code_index, scales, token_index in per_layer
        ]

    # --- writing new tokens --------------------------------------------------------------------------------------

    def append(self, first_token: int, n: int) -> Tensor:
        """Take n empty FP slots at the end of every head for tokens first_token, first_token + 1, ….

        Returns rows [L, 2, H, n] int64 of ``arena.rows(FP)`` where K and V are to be written.
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
        return self.fp.rows_of(slots)

    def overwrite(self, victims: Tensor, token: int) -> Tensor:
        """Steady state: one slot of each head makes room for one token. No host synchronisation.

        A victim among the FP slots is overwritten. A victim among the INT8 slots receives the oldest FP slot,
        quantised, and the new token takes that FP slot.

        Args:
            victims: [L, H] int64, in the numbering of slots in use.
            token: token index of the new token.

        Returns:
            rows [L, 2, H, 1] as :meth:`append`.
        """
        code_slots = self.code_slots
        fp_victim = victims - code_slots
        if code_slots:
            fp_tokens = self.token_index[..., self.code_cap : self.code_cap + self.fp_slots]
            oldest = fp_tokens.masked_fill(fp_tokens < 0, _NEVER).argmin(-1)
            in_code = fp_victim < 0
            self._demote_into(victims, oldest, in_code)
            fp_victim = torch.where(in_code, oldest, fp_victim)
        slot = (fp_victim + self.code_cap).unsqueeze(-1)
        self.token_index.scatter_(-1, slot, token)
        if self.mass is not None:
            self.mass.scatter_(-1, slot, 0.0)
        return self.fp.rows_of(fp_victim.unsqueeze(-1))

    def _demote_into(self, victims: Tensor, oldest: Tensor, chosen: Tensor) -> None:
        """Quantise FP slot oldest[l, h] into INT8 slot victims[l, h] wherever chosen[l, h]; all [L, H]."""
        source = self.fp.rows_of(oldest.unsqueeze(-1)).squeeze(-1)  # [L, 2, H]
        codes, scales = quantize_int8(self.fp.rows[source])
        code_slot = victims.clamp_max(self.code_slots - 1).unsqueeze(-1)
        target = self.code.rows_of(code_slot).squeeze(-1)
        # Heads that demote nothing write to the dummy page: shapes stay fixed and no host decision is needed.
        dummy_row = 2 * DUMMY_PAGE * self.code.page_slots
        target = torch.where(chosen.unsqueeze(1), target, dummy_row)
        self.code.rows.index_copy_(0, target.flatten(), codes.flatten(0, -2))
        both = code_slot.unsqueeze(1).expand(-1, 2, -1, -1)
        kept = self.scales.gather(-1, both)
        self.scales.scatter_(-1, both, torch.where(chosen[:, None, :, None], scales.unsqueeze(-1), kept))
        fp_slot = (oldest + self.code_cap).unsqueeze(-1)
        for meta in self._slot_metadata():
            moved = torch.where(chosen.unsqueeze(-1), meta.gather(-1, fp_slot), meta.gather(-1, code_slot))
            meta.scatter_(-1, code_slot, moved)

    def add_mass(self, mass: Tensor, decay: float) -> None:
        """mass ← decay · mass + new, over the slots in use; new [L, H, S] float32."""
        assert self.mass is not None
        split = self.code_slots
        for part, new in (
            (slice(0, split), mass[..., :split]),
            (slice(self.code_cap, None), mass[..., split:]),
        ):
            stored = self.mass[..., part][..., : new.shape[-1]]
            stored.mul_(decay).add_(new)

    def caps_after(self, plan: Plan) -> SlotCaps:
        """The most slots of each format a head may hold once the plan is applied."""
        demotes = plan.demote is not None and bool(plan.demote.any())
        return self._caps if demotes or self.code_cap else SlotCaps(fp=self.fp_cap)

    # --- structural changes --------------------------------------------------------------------------------------

    def apply(self, plan: Plan) -> None:
        """Evict, quantise and compact, give tail pages back. The plan must have been validated.

        Raises PoolExhausted before anything moves if the INT8 region would need pages that nobody has.
        """
        split = self.code_slots
        keep_fp, keep_code = plan.keep[..., split:], plan.keep[..., :split]
        demote = plan.demote if plan.demote is not None and bool(plan.demote.any()) else None
        if demote is not None:
            keep_fp = keep_fp & ~demote
        fp_counts, code_counts = _count(keep_fp), _count(keep_code)
        grown = code_counts if demote is None else code_counts + _count(demote)
        self._check_pages(fp_counts, grown)
        staged = None if demote is None else self._stage(demote)
        self._compact(self.fp, self.code_cap, keep_fp, fp_counts)
        self._compact(self.code, 0, keep_code, code_counts)
        if staged is not None:
            self._open_code_region()
            self.code.resize(grown)
            self._write_staged(staged, code_counts)
        self._note_peak()

    def _check_pages(self, fp_counts: np.ndarray, code_counts: np.ndarray) -> None:
        wanted = int(self.fp.pages_for(fp_counts).sum() + self.code.pages_for(code_counts).sum())
        available = int(self.fp.held.sum() + self.code.held.sum()) + self.arena.free_pages
        if wanted > available:
            raise PoolExhausted(
                f"the KV pool is full: quantising needs {wanted - available} more pages of "
                f"{self.arena.layout.page_bytes} bytes; close idle sessions or enlarge kv_pool"
            )

    def _stage(self, demote: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """Layer, head, codes [m, 2, D], scales [m, 2] and metadata of the slots to quantise, in row-major order."""
        layer, head, slot = demote.nonzero(as_tuple=True)
        codes, scales = quantize_int8(self.fp.rows[self.fp.rows_at(layer, head, slot)])
        where = (layer, head, slot + self.code_cap)
        meta = torch.stack([layer, head, self.token_index[where].long()])
        return codes, scales, meta, demote.sum(-1), None if self.mass is None else self.mass[where]

    def _write_staged(
        self, staged: tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None], first_slot: np.ndarray
    ) -> None:
        codes, scales, (layer, head, tokens), per_head, mass = staged
        # The k-th demoted slot of a head goes to that head's INT8 slot first_slot + k.
        begins = per_head.flatten().cumsum(0) - per_head.flatten()
        rank = torch.arange(len(layer), device=layer.device) - begins[layer * per_head.shape[1] + head]
        slot = torch.from_numpy(first_slot).to(layer.device)[layer, head] + rank
        self.code.rows.index_copy_(0, self.code.rows_at(layer, head, slot).flatten(), codes.flatten(0, 1))
        self.scales[layer, :, head, slot] = scales
        self.token_index[layer, head, slot] = tokens.to(torch.int32)
        if self.mass is not None and mass is not None:
            self.mass[layer, head, slot] = mass

    def _compact(self, region: Region, offset: int, keep: Tensor, counts: np.ndarray) -> None:
        """Move the last kept slots of each head into its holes, then give tail pages back.

        Args:
            region: the region.
            offset: where the region's slots begin in the metadata.
            keep: [L, H, used] bool.
            counts: [L, H], keep summed.
        """
        slots = torch.arange(keep.shape[-1], device=keep.device)
        inside = slots < torch.from_numpy(counts).to(keep.device).unsqueeze(-1)
        # A head has as many holes below its new end as kept slots above it, so row-major order pairs them up.
        layer, head, target = (~keep & inside).nonzero(as_tuple=True)
        if len(layer):
            source = (keep & ~inside).nonzero(as_tuple=True)[2]
            from_rows = region.rows_at(layer, head, source).flatten()
            to_rows = region.rows_at(layer, head, target).flatten()
            region.rows.index_copy_(0, to_rows, region.rows[from_rows])
            for meta in self._slot_metadata():
                meta[layer, head, target + offset] = meta[layer, head, source + offset]
            if region is self.code:
                self.scales[layer, :, head, target] = self.scales[layer, :, head, source]
        width = keep.shape[-1]
        self.token_index[..., offset : offset + width].masked_fill_(~inside, -1)
        if self.mass is not None:
            self.mass[..., offset : offset + width].masked_fill_(~inside, 0.0)
        region.resize(counts)

    # --- size ----------------------------------------------------------------------------------------------------

    def _enlarge_fp(self, slots: int) -> None:
        """Grow the FP region's metadata (never pages) so that a head can hold ``slots`` FP slots."""
        if slots <= self._fp_capacity:
            return
        capacity = min(self.fp_cap, -(-slots // _GROWTH) * _GROWTH)
        extra = capacity - self._fp_capacity
        self._relay(lambda old, empty: torch.cat([old, empty(extra)], dim=-1))
        self.fp.set_capacity(capacity)
        self._fp_capacity = capacity

    def _open_code_region(self) -> None:
        """Before the first slots are quantised: lay the metadata out for both regions. FP is already compact."""
        if self.code_cap:
            return
        caps = self._caps
        kept = self.fp_slots
        self._relay(lambda old, empty: torch.cat([empty(caps.code), old[..., :kept], empty(caps.fp - kept)], dim=-1))
        self.scales = self.scales.new_zeros(*self.scales.shape[:-1], caps.code)
        self.fp.set_capacity(caps.fp)
        self.code.set_capacity(caps.code)
        self.code_cap, self.fp_cap, self._fp_capacity = caps.code, caps.fp, caps.fp

    def _slot_metadata(self) -> tuple[Tensor, ...]:
        return (self.token_index,) if self.mass is None else (self.token_index, self.mass)

    def _relay(self, arrange: Callable[[Tensor, Callable[[int], Tensor]], Tensor]) -> None:
        """Rebuild each slot metadata tensor: arrange(old, empty) with empty(n) making n empty slots."""
        shape = self.token_index.shape[:-1]
        self.token_index = arrange(self.token_index, lambda n: self.token_index.new_full((*shape, n), -1))
        if self.mass is not None:
            mass = self.mass
            self.mass = arrange(mass, lambda n: mass.new_zeros((*shape, n)))

    def _note_peak(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.resident_bytes)

    # --- copies --------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A copy of every filled slot."""
        fp_at, code_at = _filled(self.fp), _filled(self.code)
        layer, head, slot = code_at
        nothing = self.token_index.new_zeros(0, dtype=torch.float32)
        return Snapshot(
            fp_used=torch.from_numpy(self.fp.used.copy()),
            code_used=torch.from_numpy(self.code.used.copy()),
            fp=self.fp.rows[self.fp.rows_at(*fp_at)],
            codes=self.code.rows[self.code.rows_at(*code_at)],
            scales=self.scales[layer, :, head, slot],
            fp_tokens=self.token_index[fp_at[0], fp_at[1], fp_at[2] + self.code_cap],
            code_tokens=self.token_index[code_at],
            fp_mass=nothing if self.mass is None else self.mass[fp_at[0], fp_at[1], fp_at[2] + self.code_cap],
            code_mass=nothing if self.mass is None else self.mass[code_at],
        )

    def load(self, snapshot: Snapshot) -> None:
        """Fill an empty store. Raises PoolExhausted, leaving it empty, if pages are lacking."""
        fp_used, code_used = snapshot.fp_used.numpy(), snapshot.code_used.numpy()
        if code_used.any():
            self._open_code_region()
        self._enlarge_fp(int(fp_used.max()))
        try:
            self.fp.resize(fp_used)
            self.code.resize(code_used)
        except PoolExhausted:
            self.release()
            raise
        fp_at, code_at = _filled(self.fp), _filled(self.code)
        layer, head, slot = code_at
        self.fp.rows[self.fp.rows_at(*fp_at)] = snapshot.fp.to(self.arena.device)
        self.code.rows[self.code.rows_at(*code_at)] = snapshot.codes.to(self.arena.device)
        self.scales[layer, :, head, slot] = snapshot.scales.to(self.arena.device)
        fp_meta = (fp_at[0], fp_at[1], fp_at[2] + self.code_cap)
        self.token_index[fp_meta] = snapshot.fp_tokens.to(self.arena.device)
        self.token_index[code_at] = snapshot.code_tokens.to(self.arena.device)
        if self.mass is not None:
            self.mass[fp_meta] = snapshot.fp_mass.to(self.arena.device)
            self.mass[code_at] = snapshot.code_mass.to(self.arena.device)
        self._note_peak()

    def release(self) -> None:
        """Give every page back; the store is empty afterwards."""
        nothing = np.zeros_like(self.fp.used)
        self.fp.resize(nothing)
        self.code.resize(nothing)


def _filled(region: Region) -> tuple[Tensor, Tensor, Tensor]:
    """Layer, head and slot of every filled slot, in row-major order; three [m] int64."""
    used = torch.from_numpy(region.used).to(region.rows.device)
    inside = torch.arange(region.max_used, device=used.device) < used.unsqueeze(-1)
    layer, head, slot = inside.nonzero(as_tuple=True)
    return layer, head, slot


def _count(mask: Tensor) -> np.ndarray:
    """True entries along the last dimension, on the host: [L, H] int64."""
    counts: np.ndarray = mask.sum(-1).cpu().numpy()
    return counts
