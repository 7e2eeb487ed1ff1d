"""Scorers made of scorers: whose words go first, and what several scorers think together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkv import policies
from agentkv.cache.facts import Role
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError
from agentkv.policies import combined, trim_kv
from agentkv.policies.combined import ByRole, Mixture, ranked
from agentkv.policies.scorers import AttentionMass, Recency, SegmentMean
from agentkv.policies.trim_gates import random_gates, save_gates
from tests.runtime_helpers import logits_after, random_ids, tiny_engine

TASK, PAGE, REPLY = (Role.TASK, 12), (Role.OBSERVATION, 20), (Role.ACTION, 6)


def view(tokens: torch.Tensor, *, mass: torch.Tensor | None = None, observations: torch.Tensor | None = None):
    def nothing() -> torch.Tensor:
        raise AssertionError("keys are not read")

    length = int(tokens.max()) + 1
    protected = torch.zeros_like(tokens, dtype=torch.bool)
    return CacheView(tokens, mass, protected, 0, length, None, nothing, observations=observations)


def kept(session) -> list[set[int]]:
    tokens = session.cache.store.token_index
    return [set(head[head >= 0].tolist()) for head in tokens.flatten(0, 1)]


def after_pages(recipe: dict[str, object], budget: int, pages: int = 5):
    """A session of a task and so many turns of a page and a reply: 12 tokens, then 26 a turn."""
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("compose", budget, recipe=recipe)
    for number in range(pages):
        roles = [TASK, PAGE, REPLY] if number == 0 else [PAGE, REPLY]
        session.mark(roles)
        logits_after(engine, session, random_ids(sum(count for _, count in roles), seed=number))
    return session


def tokens_of(number: int) -> set[int]:
    return set(range(12 + 26 * number, 32 + 26 * number))


@pytest.mark.parametrize("inner", ["recency", "attention-mass", "segment-surprise", "noise"])
def test_own_words_and_the_newest_page_outlive_older_pages(inner: str) -> None:
    session = after_pages({"scorer": {"name": "by-role", "of": inner}}, 80)
    older = set().union(*map(tokens_of, range(4)))
    own = set(range(session.logical_length)) - older - tokens_of(4)
    assert len(own) + len(tokens_of(4)) <= 80
    for head in kept(session):
        assert own | tokens_of(4) <= head
        assert head & older, "the room that is left holds older pages"


def test_where_own_words_alone_do_not_fit_the_part_decides_among_them() -> None:
    session = after_pages({"scorer": {"name": "by-role", "of": "recency"}}, 24)
    older = set().union(*map(tokens_of, range(4)))
    own = set(range(session.logical_length)) - older - tokens_of(4)
    for head in kept(session):
        assert head == set(sorted(own)[-24:])


def test_where_even_those_do_not_fit_the_page_goes_before_own_words() -> None:
    session = after_pages({"scorer": {"name": "by-role", "of": "recency"}}, 48)
    older = set().union(*map(tokens_of, range(4)))
    own = set(range(session.logical_length)) - older - tokens_of(4)
    for head in kept(session):
        assert own <= head
        assert not head & older
        assert head & tokens_of(4)


def test_without_roles_the_part_alone_decides() -> None:
    held = []
    for scorer in ("attention-mass", {"name": "by-role", "of": "attention-mass"}):
        engine = tiny_engine(dtype=torch.float32)
        session = engine.open_session("compose", 40, recipe={"scorer": scorer, "sinks": 4})
        logits_after(engine, session, random_ids(90))
        held.append(kept(session))
    assert held[0] == held[1]


@dataclass(frozen=True)
class RecencyOfSlots(Recency):
    """As if it told heads apart."""

    by_token: bool = False


def test_what_is_known_of_tokens_is_ranked_without_comparing_heads(monkeypatch) -> None:
    tokens = torch.stack([torch.randperm(40, generator=torch.Generator().manual_seed(n))[:20] for n in range(6)])
    whose = torch.tensor([-1] * 10 + [0] * 15 + [1] * 15)
    seen = view(tokens.view(3, 2, 20).int(), observations=whose)
    seen = replace(seen, logical_length=40)
    by_slots = ByRole((RecencyOfSlots(),))(seen)
    monkeypatch.setattr(combined, "ranked", None)
    own = ByRole((Recency(),))(seen)
    assert torch.equal(own.argsort(-1), by_slots.argsort(-1))
    assert float(own.max()) < 3


def test_with_little_favour_the_rarest_lines_outlive_common_own_words() -> None:
    tokens = torch.arange(6).view(1, 1, 6)
    mass = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]])
    whose = torch.tensor([-1, -1, 0, 1, 0, 1])
    seen = view(tokens, mass=mass, observations=whose)
    assert ByRole((AttentionMass(),))(seen).flatten().argsort().tolist() == [2, 4, 3, 5, 0, 1]
    assert ByRole((AttentionMass(),), own=0.5, newest=0.0)(seen).flatten().argsort().tolist() == [2, 0, 3, 1, 4, 5]
    assert ByRole((AttentionMass(),), own=0.0, newest=0.4)(seen).flatten().argsort().tolist() == [0, 1, 2, 4, 3, 5]


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=12), st.data())
def test_a_rank_is_the_share_of_those_worth_less(values: list[float], data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    rank = ranked(torch.tensor([[values]]), torch.tensor([[flags]]))[0, 0]
    counted = [value for value, flag in zip(values, flags, strict=True) if flag]
    for value, flag, own in zip(values, flags, rank.tolist(), strict=True):
        if flag:
            assert own == pytest.approx(sum(other < value for other in counted) / len(values))
            assert 0 <= own < 1


def test_a_mixture_weighs_ranks_and_not_sizes() -> None:
    tokens = torch.arange(4).view(1, 1, 4)
    mass = torch.tensor([[[900.0, 2.0, 1.0, 3.0]]])
    seen = view(tokens, mass=mass)
    even = Mixture((Recency(), AttentionMass()), (1.0, 1.0))(seen)
    assert even.flatten().tolist() == [0.75, 0.5, 0.5, 1.25]
    newest = Mixture((Recency(), AttentionMass()), (3.0, 1.0))(seen)
    assert newest.flatten().tolist() == [0.75, 1.0, 1.5, 2.75]


def test_what_the_parts_read_is_read() -> None:
    recipe = {"name": "mixture", "of": ["attention-mass", "segment-surprise", {"name": "retention", "seed": 3}]}
    scorer = policies.build("compose", recipe={"scorer": {"name": "by-role", "of": recipe}}).scorer
    assert isinstance(scorer, ByRole)
    assert scorer.mass is not None
    assert scorer.creation is not None
    assert (scorer.needs_segments, scorer.needs_surprise, scorer.needs_observations) == (True, True, True)
    plain = policies.build("compose", recipe={"scorer": {"name": "by-role", "of": "recency"}}).scorer
    assert plain is not None
    assert (plain.mass, plain.creation, plain.needs_segments, plain.needs_surprise) == (None, None, False, False)


def test_the_example_of_the_docs_scores_whole_segments() -> None:
    part = {"name": "mixture", "of": ["segment-surprise", "attention-mass"], "weights": [2, 1]}
    recipe = {"scorer": {"name": "by-role", "of": part}, "segments": True, "sinks": 4}
    policy = policies.build("compose", recipe=recipe)
    assert isinstance(policy.scorer, SegmentMean)
    assert policy.options["recipe"]["segments"] is True  # type: ignore[index]
    alone = policies.build(
        "compose", recipe={"scorer": {"name": "by-role", "of": "segment-surprise"}, "segments": True}
    )
    assert isinstance(alone.scorer, ByRole), "what keeps whole segments by itself is not averaged over them"


@pytest.mark.parametrize(
    "more",
    [
        {"protect": ["system", "task"]},
        {"trigger": "confidence", "precision": {"name": "age", "format": "int8"}},
        {"precision": {"name": "age", "format": "fp8"}, "trigger": "block"},
        {"whole_observations": True},
        {"segments": True, "allocator": "pyramid"},
    ],
)
def test_they_go_with_all_other_parts(more: dict[str, object]) -> None:
    part = {"name": "mixture", "of": ["recency", "attention-mass"]}
    session = after_pages({"scorer": {"name": "by-role", "of": part}, "sinks": 4, **more}, 72)
    engine = tiny_engine(dtype=torch.float32)
    for token in random_ids(40, seed=3):
        assert bool(logits_after(engine, session, [token]).isfinite().all())
    assert session.stats.evicted_tokens > 0
    assert session.stats.peak_bytes <= session.limits.max_bytes


def test_what_was_left_out_is_written_down_and_a_session_is_restored(tmp_path) -> None:
    part = {"name": "mixture", "of": ["recency", "retention"], "weights": [2, 1]}
    session = after_pages({"scorer": {"name": "by-role", "of": part}, "segments": True, "sinks": 2}, 60)
    written = session.policy.options["recipe"]["scorer"]  # type: ignore[index]
    digest = session.policy.creation.digest
    assert len(digest) == 64
    assert written == {
        "name": "by-role",
        "own": 2.0,
        "newest": 1.0,
        "of": {
            "name": "mixture",
            "of": [{"name": "recency"}, {"name": "retention", "gates": "auto", "seed": 0, "digest": digest}],
            "weights": [2, 1],
        },
    }
    engine = tiny_engine(dtype=torch.float32)
    engine.save_session(session, tmp_path / "s")
    restored = engine.restore_session(tmp_path / "s")
    assert kept(restored) == kept(session)
    for token in random_ids(30, seed=8):
        torch.testing.assert_close(logits_after(engine, restored, [token]), logits_after(engine, session, [token]))
    assert kept(restored) == kept(session)


def test_a_recipe_remembers_which_gates_it_had(tmp_path, monkeypatch) -> None:
    part = {"name": "mixture", "of": ["recency", "retention"]}
    session = after_pages({"scorer": {"name": "by-role", "of": part}, "segments": True, "sinks": 2}, 60)
    engine = tiny_engine(dtype=torch.float32)
    engine.save_session(session, tmp_path / "s")
    save_gates(random_gates(2, 48, 2, seed=9, width=16), tmp_path / "other")
    monkeypatch.setattr(trim_kv, "find_gates", lambda model: tmp_path / "other")
    with pytest.raises(AgentKVError, match="holds other gates than the session was saved with"):
        engine.restore_session(tmp_path / "s")


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        ({"name": "by-role", "of": "none"}, "scorer: of: nothing is scored; name a scorer: recency, "),
        ({"name": "by-role", "of": "recencie"}, "there is no part 'recencie'; did you mean 'recency'?"),
        (
            {"name": "by-role", "on": "recency"},
            "there is no parameter 'on'; did you mean 'own'? known: of, own, newest",
        ),
        ({"name": "by-role", "of": "recency", "own": -1}, "own must be a number from 0 to 100, not -1"),
        ({"name": "by-role", "of": "recency", "newest": 1e39}, "newest must be a number from 0 to 100, not 1e+39"),
        ({"name": "by-role", "of": "recency", "own": 10**400}, "own must be a number from 0 to 100, not 1000"),
        ({"name": "by-role", "of": "recency", "own": float("nan")}, "own must be a number from 0 to 100, not nan"),
        ({"name": "mixture", "of": ["recency", "noise"], "weights": [1, 10**400]}, "weights must be a number above 0"),
        ({"name": "mixture"}, "of must be a list of two scorers or more, not None"),
        ({"name": "mixture", "of": ["recency"]}, "of must be a list of two scorers or more"),
        ({"name": "mixture", "of": ["recency", "noise"], "weights": [1]}, "weights must be a list of 2 numbers"),
        ({"name": "mixture", "of": ["recency", "noise"], "weights": [1, -1]}, "weights must be"),
        ({"name": "mixture", "of": ["attention-mass", "window-mass"]}, "only one part can read attention"),
        ({"name": "mixture", "of": ["retention", "retention"]}, "only one part can read gates"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(scorer: object, said: str) -> None:
    with pytest.raises(AgentKVError) as refused:
        policies.build("compose", recipe={"scorer": scorer})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_ranks_of_heads_do_not_compete() -> None:
    recipe = {"scorer": {"name": "by-role", "of": "attention-mass"}, "trigger": "block", "allocator": "global"}
    of_tokens = {"name": "by-role", "of": "recency"}
    assert policies.build("compose", recipe=recipe | {"scorer": of_tokens}).allocator.global_total
    for more in ({}, {"segments": True}):
        with pytest.raises(AgentKVError, match="allocator: heads compete by their scores"):
            policies.build("compose", recipe=recipe | more)


def test_a_scorer_that_is_a_part_of_itself_is_refused(tmp_path) -> None:
    recipe = tmp_path / "round.yaml"
    recipe.write_text("scorer: &a {name: by-role, of: *a}\n")
    with pytest.raises(AgentKVError, match=r"round\.yaml: scorers are nested too deep, or one is a part of itself"):
        policies.build(str(recipe))
