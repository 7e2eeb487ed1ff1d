"""The store against a plain dictionary: every kept vector is where it should be, after any sequence of operations."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.cache.arena import PageArena
from agentkv.cache.formats import KVFormat, KVLayout, SlotCaps
from agentkv.cache.plan import InvalidPlan, Plan, Room, validate
from agentkv.cache.store import KVStore
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError, PoolExhausted
from agentkv_kernels import dequantize

LAYOUT = KVLayout(layers=2, kv_heads=3, head_dim=8, dtype=torch.float32, page_slots=4)
CAPS = SlotCaps(fp=24, code=40)
DENSE = 32
FMT = KVFormat.INT8_TOKEN


def live_bytes(store: KVStore) -> int:
    """Bytes held, counted without the store's own arithmetic: distinct pages named in its tables, and every tensor
    among its attributes that is not a view of the arena."""
    arena_start = store.arena._bytes.untyped_storage().data_ptr()
    total, pages = 0, set()
    for values in (vars(store), vars(store.fp), vars(store.code), store.columns):
        for value in values.values():
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() != arena_start:
                total += value.nbytes
    for region in (store.fp, store.code):
        pages |= set((region.half_index[:, 0] // 2).flatten().tolist())
    return total + len(pages - {0}) * store.arena.layout.page_bytes


@dataclass
class Model:
    """What the store must hold: per (layer, head), token → (vector [2, D], quantised or not)."""

    kept: dict[tuple[int, int], dict[int, tuple[torch.Tensor, bool]]] = field(
        default_factory=lambda: {(layer, head): {} for layer in range(2) for head in range(3)}
    )
    mass: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """Per (layer, head, token); a token that comes anew starts at zero."""


class Machine:
    """Drives a store and the dictionary side by side."""

    def __init__(self, arena: PageArena, seed: int):
        self.store = KVStore(arena, LAYOUT.uniform(CAPS), DENSE, columns=("mass",))
        self.model = Model()
        self.generator = torch.Generator().manual_seed(seed)
        self.tokens = 0

    def random(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator)

    def write(self, rows: torch.Tensor, tokens: list[int]) -> None:
        vectors = self.random(*rows.shape, LAYOUT.head_dim) - 0.5  # [L, 2, H, n, D]
        self.store.fp.rows[rows] = vectors
        for (layer, head), kept in self.model.kept.items():
            for i, token in enumerate(tokens):
                kept[token] = (vectors[layer, :, head, i], False)
        self.attend()

    def attend(self) -> None:
        """Every slot receives some attention mass, as after a forward pass."""
        held = self.store.in_use(self.store.token_index)
        new = self.random(*held.shape).masked_fill(held < 0, 0.0)
        self.store.add_mass(new, 0.5)
        for layer, head in self.model.kept:
            for slot, token in enumerate(held[layer, head].tolist()):
                if token >= 0:
                    before = self.model.mass.get((layer, head, token), 0.0)
                    self.model.mass[layer, head, token] = 0.5 * before + float(new[layer, head, slot])

    def append(self, n: int) -> None:
        n = min(n, int(self.store.fp_caps.min()) - self.store.fp_slots)
        if n < 1:
            return
        rows = self.store.append(self.tokens, n).rows
        self.write(rows, list(range(self.tokens, self.tokens + n)))
        self.tokens += n

    def overwrite(self) -> None:
        held = self.store.in_use(self.store.token_index)
        if held.shape[-1] == 0 or int((held >= 0).sum(-1).min()) < 1 or not self.store.fp.used.all():
            return
        noise = self.random(*held.shape).masked_fill(held < 0, 2.0)
        victims = noise.argmin(-1)
        in_code = victims < self.store.code_slots
        for layer, head in self.model.kept:
            kept = self.model.kept[layer, head]
            dropped = int(held[layer, head, victims[layer, head]])
            del kept[dropped]
            if in_code[layer, head]:
                oldest = min(token for token, (_, lossy) in kept.items() if not lossy)
                kept[oldest] = (kept[oldest][0], True)
        rows = self.store.overwrite(victims, self.tokens).rows
        self.write(rows, [self.tokens])
        self.tokens += 1

    def restructure(self, keep_share: float, demote_share: float) -> None:
        """Ragged on purpose: every head keeps and quantises its own slots."""
        held = self.store.in_use(self.store.token_index)
        keep = (held >= 0) & (self.random(*held.shape) < keep_share)
        keep_fp = keep[..., self.store.code_slots :]
        demote = keep_fp & (self.random(*keep_fp.shape) < demote_share)
        int8_after = keep[..., : self.store.code_slots].sum(-1) + demote.sum(-1)
        fp_after = (keep_fp & ~demote).sum(-1)
        if int8_after.max() > CAPS.code or (demote.any() and fp_after.max() > CAPS.fp):
            return
        for layer, head in self.model.kept:
            kept = self.model.kept[layer, head]
            for slot, token in enumerate(held[layer, head].tolist()):
                if token >= 0 and not keep[layer, head, slot]:
                    del kept[token]
                elif slot >= self.store.code_slots and demote[layer, head, slot - self.store.code_slots]:
                    kept[token] = (kept[token][0], True)
        self.store.apply(Plan(keep, demote))

    def check(self) -> None:
        store = self.store
        assert store.resident_bytes == live_bytes(store)
        assert store.peak_bytes >= store.resident_bytes
        for (layer, head), kept in self.model.kept.items():
            found = {}
            for region, offset in ((store.code, 0), (store.fp, store.code_cap)):
                used = int(region.used[layer, head])
                slots = torch.arange(used)
                at = torch.full_like(slots, layer), torch.full_like(slots, head), slots
                vectors = region.rows[region.rows_at(*at)]  # [used, 2, D]
                if region is store.code:
                    vectors = dequantize(vectors, store.scales[layer, :, head, :used].T, store.code.fmt, torch.float32)
                tokens = store.token_index[layer, head, offset : offset + used].tolist()
                mass = store.mass[layer, head, offset : offset + used].tolist()
                assert mass == pytest.approx([self.model.mass[layer, head, token] for token in tokens], rel=1e-5)
                for token, vector in zip(tokens, vectors, strict=True):
                    assert token not in found
                    found[token] = (vector, region is store.code)
            assert found.keys() == kept.keys()
            for token, (vector, lossy) in kept.items():
                assert found[token][1] == lossy
                allowed = float(vector.abs().max()) / 127 / 2 + 1e-6 if lossy else 0.0
                assert float((found[token][0] - vector).abs().max()) <= allowed
        filled = int((store.token_index >= 0).sum())
        assert filled == sum(len(kept) for kept in self.model.kept.values())


OPERATION = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 9)),
    st.tuples(st.just("overwrite")),
    st.tuples(st.just("restructure"), st.floats(0.3, 1.0), st.floats(0.0, 0.9)),
)


@settings(max_examples=60, deadline=None)
@given(operations=st.lists(st.tuples(st.integers(0, 1), OPERATION), max_size=14), seed=st.integers(0, 999))
def test_two_sessions_keep_what_they_should(operations: list, seed: int) -> None:
    arena = PageArena(LAYOUT, 400 * LAYOUT.page_bytes)
    machines = [Machine(arena, seed), Machine(arena, seed + 1)]
    for which, (name, *arguments) in operations:
        getattr(machines[which], name)(*arguments)
        for machine in machines:
            machine.check()
    assert arena.used_pages == sum(int(m.store.fp.held.sum() + m.store.code.held.sum()) for m in machines)
    for machine in machines:
        machine.store.release()
    assert arena.used_pages == 0


def test_pages_of_one_session_and_format_serve_another() -> None:
    pages = 2 * 3 * 8
    arena = PageArena(LAYOUT, (pages + 1) * LAYOUT.page_bytes)
    first, second = Machine(arena, 0), Machine(arena, 1)
    first.append(32)
    assert arena.free_pages == 0
    with pytest.raises(PoolExhausted, match="close idle sessions or enlarge kv_pool"):
        second.store.append(0, 1)
    second.check()
    first.restructure(1.0, 0.9)
    assert arena.free_pages > 0
    second.append(4)
    first.check()
    second.check()


def test_demotion_without_free_pages_leaves_the_cache_whole() -> None:
    arena = PageArena(LAYOUT, (2 * 3 * 3 + 1) * LAYOUT.page_bytes)
    machine = Machine(arena, 0)
    machine.append(10)
    arena.allocate(arena.free_pages)
    held = machine.store.in_use(machine.store.token_index)
    # One slot of each head to INT8: a page more for each, and none comes free.
    demote = torch.zeros(held.shape, dtype=torch.bool)
    demote[..., 1] = True
    keep = torch.ones_like(demote)
    before = machine.store.resident_bytes
    with pytest.raises(PoolExhausted):
        machine.store.apply(Plan(keep, demote))
    assert machine.store.resident_bytes == before
    machine.check()


def test_no_other_thread_takes_the_pages_that_codes_are_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is forked or restored beside a forward pass."""
    arena = PageArena(LAYOUT, (1 + 5 * 6) * LAYOUT.page_bytes)
    store = KVStore(arena, LAYOUT.uniform(CAPS), DENSE)
    store.append(0, 20)
    compact, others = KVStore._compact, []

    def compact_beside_another(self: KVStore, *args: object) -> None:
        compact(self, *args)  # type: ignore[arg-type]
        others.append(threading.Thread(target=take_all))
        others[-1].start()
        others[-1].join(0.2)

    def take_all() -> None:
        with arena.exclusive():
            arena.allocate(arena.free_pages)

    monkeypatch.setattr(KVStore, "_compact", compact_beside_another)
    demote = torch.zeros(2, 3, 20, dtype=torch.bool)
    demote[..., :13] = True
    store.apply(Plan(torch.ones_like(demote), demote))
    for other in others:
        other.join()
    assert (store.fp_slots, store.code_slots) == (7, 13)
    assert arena.free_pages == 0


def test_byte_formula_is_what_the_tensors_hold() -> None:
    arena = PageArena(LAYOUT, 400 * LAYOUT.page_bytes)
    for columns in ((), ("mass",), ("mass", "creation")):
        store = KVStore(arena, LAYOUT.uniform(CAPS), DENSE, columns=columns)
        store.append(0, 20)
        dense = LAYOUT.metadata_bytes([SlotCaps(DENSE)], FMT, len(columns))
        assert store.resident_bytes == dense + LAYOUT.payload_bytes(LAYOUT.uniform(SlotCaps(20)))
        demote = torch.zeros(2, 3, 20, dtype=torch.bool)
        demote[..., :13] = True
        store.apply(Plan(torch.ones_like(demote), demote))
        expected = LAYOUT.metadata_bytes([CAPS], FMT, len(columns)) + LAYOUT.payload_bytes(
            LAYOUT.uniform(SlotCaps(fp=7, code=13))
        )
        assert store.resident_bytes == expected == live_bytes(store)
        store.release()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_page_has_the_same_bytes(dtype: torch.dtype) -> None:
    layout = KVLayout(layers=1, kv_heads=1, head_dim=8, dtype=dtype)
    arena = PageArena(layout, 5 * layout.page_bytes)
    for fmt in KVFormat:
        halves = arena.halves(fmt)
        assert halves.nbytes == 5 * layout.page_bytes
        assert 2 * halves[0].nbytes == layout.page_bytes
        assert halves.shape[1] == layout.slots_per_page(fmt)


def test_a_pool_without_a_page_is_refused() -> None:
    with pytest.raises(AgentKVError, match="holds no page"):
        PageArena(LAYOUT, LAYOUT.page_bytes)


def test_a_pool_beyond_the_memory_is_refused() -> None:
    with pytest.raises(AgentKVError, match="cannot be reserved"):
        PageArena(LAYOUT, 2**60)


ROOM = SlotCaps(2, 3)


class TestValidate:
    view = CacheView(
        token_index=torch.tensor([[[0, 1, 2, -1]]], dtype=torch.int32),
        mass=None,
        protected=torch.tensor([[[True, False, False, False]]]),
        code_slots=2,
        logical_length=3,
        confidence=None,
        read_keys=lambda: torch.empty(0),
    )

    def check(self, keep: list[bool], demote: list[bool] | None = None, most: int = 3, caps: SlotCaps = ROOM) -> None:
        plan = Plan(torch.tensor([[keep]]), None if demote is None else torch.tensor([[demote]]))
        validate(
            plan,
            self.view,
            Room(np.array([[most]]), None, np.array([caps.fp]), np.array([caps.code]), np.array([True])),
        )

    @pytest.mark.parametrize("caps", [SlotCaps(0, 3), SlotCaps(1, 1)])
    def test_a_plan_beyond_a_formats_room_is_refused(self, caps: SlotCaps) -> None:
        with pytest.raises(InvalidPlan, match="there is room for"):
            self.check([True, True, True, False], caps=caps)
        with pytest.raises(InvalidPlan, match="leaves 0 FP and 3 quantised"):
            self.check([True, True, True, False], [True, False], caps=SlotCaps(1, 2))

    def test_good_plans_pass(self) -> None:
        self.check([True, True, True, False], [True, False])
        self.check([True, False, False, False])

    @pytest.mark.parametrize(
        ("keep", "demote", "most", "reason"),
        [
            ([False, True, True, False], None, 3, "evicts a protected slot"),
            ([True, True, True, True], None, 4, "keeps a slot that is empty"),
            ([True, True, True, False], None, 2, "keeps 3 slots"),
            ([True, True, False, False], [True, False], 3, "quantises a slot that it does not keep"),
            ([True, True], None, 3, "shape"),
        ],
    )
    def test_bad_plans_are_refused(self, keep, demote, most, reason) -> None:
        with pytest.raises(InvalidPlan, match=reason):
            self.check(keep, demote, most)
