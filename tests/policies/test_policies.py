"""What each policy keeps, protects and refuses."""

from __future__ import annotations

import itertools
from typing import ClassVar

import pytest
import torch

from agentkv import policies
from agentkv.cache.facts import Role
from agentkv.engine import SamplingParams
from agentkv.errors import AgentKVError, UnknownName
from agentkv.policies import registry, scorers
from agentkv.policies.confidence import confidence
from agentkv.policies.rules import AttentionRule
from agentkv.policies.shares import as_slots
from tests.runtime_helpers import logits_after, random_ids, recording, tiny_engine


def run(policy: str, budget: int, tokens: int = 120, **options: object):
    """A session after a prefill and some decoding."""
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session(policy, budget, **options)
    ids = random_ids(tokens)
    logits_after(engine, session, ids[: tokens // 2])
    for token in ids[tokens // 2 :]:
        logits_after(engine, session, [token])
    return session


def kept(session) -> torch.Tensor:
    store = session.cache.store
    return store.in_use(store.token_index)


def test_window_keeps_the_newest() -> None:
    held = kept(run("window", 32)).sort(-1).values
    assert torch.equal(held, torch.arange(88, 120).int().expand_as(held))


def test_streaming_llm_keeps_sinks_and_the_newest() -> None:
    held = kept(run("streaming-llm", 32)).sort(-1).values
    assert torch.equal(held, torch.tensor([0, 1, 2, 3, *range(92, 120)]).int().expand_as(held))


def test_random_differs_between_heads_and_repeats_with_its_seed() -> None:
    first, again, other = (kept(run("random", 32, seed=seed)).sort(-1).values for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0, 0], first[0, 1])
    # Uniform over the unprotected: the kept ones are spread over the whole session.
    middle = first[(first >= 4) & (first < 110)]
    assert 25 < middle.float().median() < 100


@pytest.mark.parametrize("policy", ["random", "h2o", "conf-kv"])
def test_sinks_and_the_newest_are_protected(policy: str) -> None:
    session = run(policy, 32, recent=8)
    for head in kept(session).flatten(0, 1).tolist():
        assert {0, 1, 2, 3, *range(112, 120)} <= set(head)


def test_h2o_keeps_what_was_attended_most() -> None:
    """Of the tokens that compete, those with least mass in a full cache are the ones that go."""
    engine = tiny_engine(dtype=torch.float32)
    ids = random_ids(60)
    whole, pruned = engine.open_session("h2o"), engine.open_session("h2o", 40, recent=8)
    logits_after(engine, whole, ids[:40])
    logits_after(engine, pruned, ids[:40])
    mass = whole.cache.store.in_use(whole.cache.store.mass)
    logits_after(engine, pruned, ids[40:50])
    for layer in range(mass.shape[0]):
        for head in range(mass.shape[1]):
            held = set(kept(pruned)[layer, head].tolist())
            ranked = sorted(range(4, 32), key=lambda token: float(mass[layer, head, token]))
            assert set(ranked[:10]) == set(range(4, 32)) - held


def test_tova_drops_what_the_newest_token_attends_least() -> None:
    engine = tiny_engine(dtype=torch.float32)
    ids = random_ids(41)
    whole, pruned = engine.open_session("tova"), engine.open_session("tova", 40)
    for session in (whole, pruned):
        logits_after(engine, session, ids[:39])
        logits_after(engine, session, ids[39:40])
    mass = whole.cache.store.in_use(whole.cache.store.mass)
    torch.testing.assert_close(mass.sum(-1), torch.full(mass.shape[:2], 3.0))  # one query, three heads in a group
    logits_after(engine, pruned, ids[40:])
    for layer in range(mass.shape[0]):
        for head in range(mass.shape[1]):
            gone = set(range(40)) - set(kept(pruned)[layer, head].tolist())
            assert gone == {int(mass[layer, head].argmin())}


class TestConfKV:
    options: ClassVar[dict[str, object]] = {"tight": 0.5, "threshold": 0.5, "recent": 4, "fp_window": 8, "sinks": 2}

    def grown(self):
        engine = tiny_engine(dtype=torch.float32)
        session = engine.open_session("conf-kv", 64, **self.options)
        logits_after(engine, session, random_ids(100))
        return engine, session

    def test_confidence_moves_the_budget_like_a_sawtooth(self) -> None:
        engine, session = self.grown()
        slots, resident = [], []
        for step, token in enumerate(random_ids(60, seed=1)):
            session.cache.confidence = 0.9 if step % 20 == 19 else 0.1
            logits_after(engine, session, [token])
            slots.append(session.cache.store.slots_used)
            resident.append(session.stats.resident_bytes)
        falls = [b - a for a, b in itertools.pairwise(slots) if b < a]
        assert len(falls) == 3
        assert min(slots) == 32
        assert max(slots) > 45
        assert any(b < a for a, b in itertools.pairwise(resident)), "pages must come back"

    def test_old_slots_are_int8_and_the_newest_are_not(self) -> None:
        engine, session = self.grown()
        for token in random_ids(30, seed=2):
            logits_after(engine, session, [token])
        store = session.cache.store
        fp = store.token_index[..., store.code_cap :]
        int8 = store.token_index[..., : store.code_cap]
        newest = torch.arange(122, 130)
        for layer in range(2):
            for head in range(2):
                assert set(newest.tolist()) <= set(fp[layer, head].tolist())
                assert int(int8[layer, head].max()) < 122
        assert session.stats.quantized_tokens > 30

    def test_a_steady_step_quantises_the_oldest_fp_slot(self) -> None:
        engine, session = self.grown()
        while session.cache.store.slots_used < 64:
            logits_after(engine, session, [5])
        store = session.cache.store
        before = kept(session)
        counts = store.fp.used.copy(), store.code.used.copy()
        oldest = store.token_index[..., store.code_cap :].masked_fill(
            store.token_index[..., store.code_cap :] < 0, 9999
        ).amin(-1)  # fmt: skip
        logits_after(engine, session, [6])
        assert (store.fp.used == counts[0]).all()
        assert (store.code.used == counts[1]).all()
        int8 = store.token_index[..., : store.code_cap]
        for layer in range(2):
            for head in range(2):
                gone = set(before[layer, head].tolist()) - set(kept(session)[layer, head].tolist())
                assert len(gone) == 1
                assert int(oldest[layer, head]) in int8[layer, head].tolist() or gone == {int(oldest[layer, head])}

    def test_quantised_tokens_are_attended_like_what_they_stand_for(self) -> None:
        """Logits with INT8 slots stay close to those of the same kept set in the model's dtype."""
        logits = []
        for window in (8, 1.0):
            engine = tiny_engine(dtype=torch.float32)
            session = engine.open_session("conf-kv", 64, **{**self.options, "fp_window": window, "tight": 1.0})
            with recording(session) as log:
                logits.append(logits_after(engine, session, random_ids(58)))
            logits[-1] = logits_after(engine, session, [7])
        assert log.steps
        scale = logits[1].abs().max()
        assert float((logits[0] - logits[1]).abs().max() / scale) < 0.05

    def test_ragged_fp_windows_are_handled(self) -> None:
        """With a protected window smaller than the FP window, heads evict within it and hold different mixes."""
        engine = tiny_engine(dtype=torch.float32)
        session = engine.open_session("conf-kv", 64, **{**self.options, "fp_window": 24, "recent": 2, "alpha": 1.0})
        logits_after(engine, session, random_ids(150))
        for step, token in enumerate(random_ids(40, seed=4)):
            session.cache.confidence = (step % 7) / 7
            logits = logits_after(engine, session, [token])
        store = session.cache.store
        assert len(set(store.fp.used.flatten().tolist())) > 1
        assert bool(logits.isfinite().all())
        assert session.cache.store.resident_bytes <= session.limits.max_bytes

    def test_a_new_turn_starts_with_the_wide_budget(self) -> None:
        """However sure the model was when the last turn ended, and even if the new turn is a single token."""
        engine, session = self.grown()
        while session.cache.store.slots_used < 64:
            logits_after(engine, session, [5])
        session.cache.confidence = 0.95
        stream = engine.generate(session, [7], SamplingParams(max_tokens=3, min_tokens=3))
        next(stream)
        assert session.cache.store.slots_used == 64

    def test_confidence_is_taken_before_a_grammar_masks(self) -> None:
        class OneToken:
            done = False

            def mask(self, logits: torch.Tensor) -> torch.Tensor:
                return torch.full_like(logits, float("-inf")).index_fill(0, torch.tensor([9]), 0.0)

            def accept(self, token_id: int) -> None:
                assert token_id == 9

            def forced(self) -> list[int]:
                return []

        engine = tiny_engine(dtype=torch.float32)
        params = SamplingParams(max_tokens=1, min_tokens=1)
        free, bound = (
            next(engine.generate(engine.open_session("conf-kv", 64), random_ids(10), params, constraint)).confidence
            for constraint in (None, OneToken())
        )
        assert free == bound
        assert bound < 0.9

    def test_confidence_comes_from_generation(self) -> None:
        engine = tiny_engine(dtype=torch.float32)
        session = engine.open_session("conf-kv", 64)
        events = list(engine.generate(session, random_ids(10), SamplingParams(max_tokens=5, min_tokens=5)))
        values = [event.confidence for event in events if event.token_ids]
        assert all(value is not None and 0.1 < value <= 1 for value in values)
        assert session.cache.confidence == values[-1]


@pytest.mark.parametrize(
    ("scale", "expected"), [("largest", [0.5, 1.0, 0.0]), ("rank", [2 / 3, 1.0, 1 / 3]), ("sum", [1 / 3, 2 / 3, 0.0])]
)
def test_mass_is_scaled_among_unprotected_slots(scale: str, expected: list[float]) -> None:
    """A sink with a hundred times the mass changes nothing."""
    mass = torch.tensor([[[100.0, 1.0, 2.0, 0.0]]])
    protected = torch.tensor([[[True, False, False, False]]])
    assert scorers._scaled(mass, protected, scale)[0, 0, 1:].tolist() == pytest.approx(expected)


def test_confidence_formula() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0])
    p = logits.softmax(0)
    entropy = float(-(p * p.log()).sum() / torch.tensor(3.0).log())
    expected = 0.4 * (1 - entropy) + 0.3 * float(torch.sigmoid(torch.tensor(1.0))) + 0.3 * float(p[0])
    assert float(confidence(logits)) == pytest.approx(expected, abs=1e-6)


def test_mass_rule_weights_are_those_of_the_recurrence() -> None:
    rule, mass, probs = AttentionRule(decay=0.9, gain=0.1), 0.0, torch.rand(7)
    for p in probs.tolist():
        mass = 0.9 * mass + 0.1 * p
    assert float(rule.weights(7) @ probs) == pytest.approx(mass, abs=1e-6)
    assert len(AttentionRule(queries=3).weights(7)) == 3
    assert AttentionRule().weights(4).tolist() == [1.0] * 4


class TestRegistry:
    def test_unknown_policies_list_the_known(self) -> None:
        with pytest.raises(UnknownName, match=r"did you mean 'conf-kv'.*streaming-llm"):
            policies.build("confkv")

    def test_unknown_options_list_the_known(self) -> None:
        with pytest.raises(AgentKVError, match="has no option 'sink'; it has sinks, protect, segments"):
            policies.build("streaming-llm", sink=3)

    @pytest.mark.parametrize(
        ("policy", "option", "value"),
        [
            ("h2o", "sinks", "4"),
            ("streaming-llm", "sinks", -5),
            ("tova", "sinks", 2.5),
            ("random", "seed", "a"),
            ("conf-kv", "threshold", "x"),
            ("conf-kv", "threshold", float("nan")),
            ("conf-kv", "alpha", 7.0),
        ],
    )
    def test_bad_options_are_refused(self, policy: str, option: str, value: object) -> None:
        with pytest.raises(AgentKVError, match=f"^{policy}: {option} must be"):
            policies.build(policy, **{option: value})

    @pytest.mark.parametrize("bad", [-1, 1.5, "half", True])
    def test_bad_shares_are_refused(self, bad: object) -> None:
        with pytest.raises(AgentKVError, match="recent must be a whole number of slots or a share"):
            policies.build("h2o", recent=bad)

    def test_segments_is_yes_or_no(self) -> None:
        with pytest.raises(AgentKVError, match="segments must be true or false, not 'x'"):
            policies.build("h2o", segments="x")

    def test_a_name_is_registered_once(self) -> None:
        with pytest.raises(AgentKVError, match="registered twice"):
            policies.register("full")(lambda: policies.build("full"))

    def test_another_package_can_register(self, monkeypatch) -> None:
        monkeypatch.setattr(registry, "_builders", dict(registry._builders))
        policies.register("mine")(lambda: policies.build("window"))
        assert "mine" in policies.names()
        assert policies.build("mine").name == "window"

    def test_every_policy_is_described(self) -> None:
        assert all(len(policies.describe(name)) > 20 for name in policies.names())


def test_shares_resolve_against_the_slots() -> None:
    assert [as_slots(share, 512) for share in (7, 0.25, 1.0, 0, 0.0)] == [7, 128, 512, 0, 0]


def test_a_policy_or_roles_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(UnknownName, match="by its name or the path of a recipe, not by 5"):
        policies.build(5)
    with pytest.raises(AgentKVError, match="h2o: protect must be a list of roles, not 3"):
        policies.build("h2o", protect=3)


def test_chunks_become_small_enough_for_what_is_protected() -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("h2o", 40, recent=2, protect=["task"])
    list(engine.generate(session, random_ids(30), SamplingParams(max_tokens=1), roles=[(Role.TASK, 30)]))
    list(engine.generate(session, random_ids(40, 1), SamplingParams(max_tokens=1)))
    for token in range(30):
        assert bool((kept(session) == token).any(-1).all()), token
    assert session.stats.peak_bytes <= session.limits.max_bytes
