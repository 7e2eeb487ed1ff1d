"""Rarity of segments, against plain counting, and the policy made of it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkv.cache.facts import Role
from agentkv.cache.formats import KVFormat
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError
from agentkv.policies import build
from agentkv.policies.rarity import SegmentRarity, rarity
from tests.runtime_helpers import logits_after, random_ids, tiny_engine

LINE_END = 90
"""Tokens from here on end a line."""


def line(seed: int) -> list[int]:
    return [token % LINE_END for token in random_ids(7, seed)] + [LINE_END]


MENU = [token for number in range(3) for token in line(100 + number)]
FACTS = [line(number) for number in range(5)]
TASK, REPLY = line(50), random_ids(4, seed=60)


def rarity_by_counting(ids: list[int]) -> list[float]:
    runs = [tuple(([None, None, *ids])[index : index + 3]) for index in range(len(ids))]
    return [-math.log(Counter(runs)[run]) for run in runs]


@given(st.lists(st.integers(0, 3), max_size=40))
def test_a_token_is_as_rare_as_its_run_is_seldom(ids: list[int]) -> None:
    assert rarity(torch.tensor(ids, dtype=torch.int32)).tolist() == pytest.approx(rarity_by_counting(ids))


def test_large_vocabularies_do_not_run_into_each_other() -> None:
    most = (1 << 20) - 2
    ids = [most, 0, 1, 0, most, 1, most, most, most, 0, 0, 1]
    assert rarity(torch.tensor(ids, dtype=torch.int32)).tolist() == pytest.approx(rarity_by_counting(ids))


def test_a_short_segment_is_worth_less_than_a_long_one_that_is_as_rare() -> None:
    ids = torch.tensor([7, 8, *range(20, 32), 7, 9, *range(40, 46)])
    segments = torch.tensor([0] * 2 + [1] * 12 + [2] * 2 + [3] * 6, dtype=torch.int32)
    tokens = torch.arange(len(ids), dtype=torch.int32).view(1, 1, -1)
    view = CacheView(
        tokens, None, torch.zeros_like(tokens, dtype=torch.bool), 0, len(ids), None, lambda: tokens,
        segments=segments, ids=ids,
    )  # fmt: skip
    score = SegmentRarity()(view)[0, 0]
    assert rarity(ids).unique().numel() == 1, "all are alike but for length"
    order = [int(segments[index]) for index in score.argsort(descending=True)]
    assert list(dict.fromkeys(order)) == [1, 3, 2, 0], "long before short, the newer of two alike first"


def after_pages(policy: str, budget: int, **options: object):
    """A session of a task and five turns of a page and a reply: every page has the same menu and a line of its own.

    Returns the session, the ledger and, of each page, the indices of its own line.
    """
    engine = tiny_engine(dtype=torch.float32)
    session, ids, own = engine.open_session(policy, budget, **options), [], []
    for number, fact in enumerate(FACTS):
        task = TASK if number == 0 else []
        page = MENU[:8] + fact + MENU[8:]
        own.append(set(range(len(ids) + len(task) + 8, len(ids) + len(task) + 16)))
        session.mark([(Role.TASK, len(task)), (Role.OBSERVATION, len(page)), (Role.ACTION, len(REPLY))])
        logits_after(engine, session, [*task, *page, *REPLY])
        ids += [*task, *page, *REPLY]
    return session, ids, own


def kept(session) -> list[set[int]]:
    tokens = session.cache.store.token_index
    return [set(head[head >= 0].tolist()) for head in tokens.flatten(0, 1)]


@pytest.mark.parametrize(("budget", "format"), [(105, "int8"), (130, "fp")])
def test_what_each_page_says_alone_outlives_what_all_pages_say(budget: int, format: str) -> None:
    session, ids, own = after_pages("agentkv", budget, format=format)
    observed = session.cache.facts.observations(len(ids))
    said = {index for index in range(len(ids)) if observed[index] < 0}
    newest = {index for index in range(len(ids)) if observed[index] == 4}
    for head in kept(session):
        assert said <= head
        assert newest <= head
        assert all(lines <= head for lines in own), "the facts of all pages"
        assert len(head) < len(ids)


def test_recency_with_the_same_room_loses_the_facts() -> None:
    session, _, own = after_pages(
        "compose", 105, recipe={"scorer": {"name": "by-role", "of": "recency"}, "precision": "age", "sinks": 4}
    )
    assert all(not lines & head for lines in own[:2] for head in kept(session))


def test_what_has_gone_still_counts_and_a_session_is_restored_with_it(tmp_path: Path) -> None:
    session, ids, _ = after_pages("agentkv", 60)
    engine = tiny_engine(dtype=torch.float32)
    facts = session.cache.facts
    assert session.stats.evicted_tokens > 0
    assert facts.ids(len(ids)).tolist() == ids
    engine.save_session(session, tmp_path / "s")
    restored = engine.restore_session(tmp_path / "s")
    assert restored.cache.facts.ids(len(ids)).tolist() == ids
    twin = facts.copy()
    twin.truncate(20)
    twin.note_tokens(20, torch.tensor([7, 8]))
    assert twin.ids(22).tolist() == [*ids[:20], 7, 8]
    assert facts.ids(len(ids)).tolist() == ids
    assert twin.nbytes >= 4 * len(ids)


def test_only_who_reads_ids_keeps_them() -> None:
    engine = tiny_engine(dtype=torch.float32)
    assert engine.open_session("surprise", 40).cache.facts.ids(0) is None
    assert engine.open_session("compose", 40, recipe={"scorer": "segment-rarity"}).cache.facts.ids(0) is not None


def test_the_default_is_int8() -> None:
    policy = build("agentkv")
    assert policy.precision is not None
    assert policy.precision.format is KVFormat.INT8_TOKEN
    assert build("agentkv", format="fp").precision is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "int4"}, "format must be one of fp, int8, not 'int4'"),
        ({"recent": -1}, "recent must be a whole number of slots or a share"),
        ({"sinks": 1.5}, "sinks must be a whole number"),
        ({"fp_window": "4"}, "fp_window must be"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(AgentKVError, match=said):
        build("agentkv", **options)
