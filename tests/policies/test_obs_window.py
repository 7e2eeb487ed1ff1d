"""obs-window: the oldest observations go, each as a whole; everything else stays."""

from __future__ import annotations

import itertools

import pytest
import torch

from agentkv.cache.facts import Role
from agentkv.engine import SamplingParams
from agentkv.errors import AgentKVError
from tests.runtime_helpers import logits_after, random_ids, tiny_engine

TURN = [(Role.OBSERVATION, 20), (Role.OTHER, 4)]


def kept(session) -> list[set[int]]:
    tokens = session.cache.store.token_index
    return [set(head[head >= 0].tolist()) for head in tokens.flatten(0, 1)]


def agent(turns: int, budget: int = 100):
    """A session of a task of 12 tokens and turns of an observation of 20, a note of 4 and an action of 3."""
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("obs-window", budget)
    session_turns = [[(Role.TASK, 12), *TURN], *([TURN] * (turns - 1))]
    for number, roles in enumerate(session_turns):
        ids = random_ids(sum(count for _, count in roles), seed=number)
        list(engine.generate(session, ids, SamplingParams(max_tokens=3, min_tokens=3), roles=roles))
    return session


def observation(number: int) -> set[int]:
    start = 12 + 27 * number
    return set(range(start, start + 20))


def test_observations_go_oldest_first_and_whole() -> None:
    session = agent(turns=8)
    length = session.logical_length
    others = set(range(length)) - set().union(*(observation(number) for number in range(8)))
    for head in kept(session):
        assert others <= head
        whole = [number for number in range(8) if observation(number) <= head]
        partly = [number for number in range(7) if observation(number) & head and number not in whole]
        assert partly == []
        assert whole == list(range(whole[0], 8))
        assert 0 < whole[0] < 8
    assert session.cache.store.slots_used <= 100


def test_a_dropped_observation_frees_room_for_the_tokens_after_it() -> None:
    """Memory goes down by pages of observations, not slot by slot."""
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("obs-window", 100)
    for turn in range(5):
        logits_after_roles(engine, session, turn)
    used = []
    for token in random_ids(60, seed=9):
        logits_after(engine, session, [token])
        used.append(session.cache.store.slots_used)
    falls = [before - after for before, after in itertools.pairwise(used) if after < before]
    assert falls
    assert all(fall == 19 for fall in falls)  # twenty go, one comes


def logits_after_roles(engine, session, turn: int) -> None:
    session.mark(TURN)
    logits_after(engine, session, random_ids(24, seed=turn))


def test_without_roles_it_is_streaming_llm() -> None:
    held = []
    for policy in ("obs-window", "streaming-llm"):
        engine = tiny_engine(dtype=torch.float32)
        session = engine.open_session(policy, 40)
        logits_after(engine, session, random_ids(90))
        for token in random_ids(30, seed=1):
            logits = logits_after(engine, session, [token])
        held.append((kept(session), logits))
    assert held[0][0] == held[1][0]
    torch.testing.assert_close(held[0][1], held[1][1], rtol=1e-4, atol=1e-4)


def test_when_only_the_newest_observation_is_left_its_oldest_tokens_go() -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("obs-window", 60)
    roles = [(Role.TASK, 10), (Role.OBSERVATION, 110)]
    list(engine.generate(session, random_ids(120), SamplingParams(max_tokens=2, min_tokens=2), roles=roles))
    for head in kept(session):
        assert set(range(10)) <= head
        assert set(range(90, 120)) <= head
        assert not set(range(10, 30)) & head


def test_a_role_that_is_none_is_refused_and_changes_nothing() -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("obs-window", 60)
    with pytest.raises(
        AgentKVError, match=r"'page', 3\) says nothing of tokens; write a role of system, task, observation"
    ):
        engine.generate(session, [2, 3, 4], roles=[("page", 3)])
    assert session.ledger == []
    list(engine.generate(session, [2, 3, 4], SamplingParams(max_tokens=1), roles=[("observation", 3)]))
    assert session.cache.facts.spans[0].role is Role.OBSERVATION
