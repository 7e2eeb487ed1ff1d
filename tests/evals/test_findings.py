"""What a run says first, beside the papers, and over the distance of facts."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv_evals.findings import beside_claims, headline
from agentkv_evals.plan import Arm
from agentkv_evals.summary import by_distance, compare, thirds


def arm(policy: str, budget: str | None, success: int, times_less: float | None = None) -> dict[str, Any]:
    return {
        "policy": policy,
        "budget": budget,
        "label": f"{policy} {budget}",
        "success": success,
        "planned": 75,
        "finished": 75,
        "times_less_kv": times_less,
    }


def summary(
    *arms: dict[str, Any], retention: dict[tuple[str, str], float] | None = None, complete: bool = True
) -> dict[str, Any]:
    paired = [{"policy": p, "budget": b, "retention": share} for (p, b), share in (retention or {}).items()]
    return {"arms": list(arms), "paired": paired, "complete": complete}


def test_where_dropping_pages_is_not_beaten_that_is_said_for_each_budget() -> None:
    arms = [
        arm("full", None, 30),
        arm("obs-window", "full/2", 21),
        arm("conf-kv", "full/2", 21),
        arm("random", "full/2", 25),
        arm("obs-window", "full/4", 9),
        arm("conf-kv", "full/4", 11),
        arm("obs-window", "full/6", 4),
        arm("arkv", "full/6", 1),
        arm("obs-window", "full/8", 3),
    ]
    assert headline(summary(*arms)) == (
        "No other policy did better than dropping the oldest pages whole (obs-window) under full/2, 21 of 75, next"
        " conf-kv with 21; and under full/6, 4 of 75, next arkv with 1."
    )
    assert headline(summary(*arms, complete=False)) is None, "that may change yet"


@pytest.mark.parametrize(
    "arms",
    [
        [arm("obs-window", "full/2", 0), arm("conf-kv", "full/2", 0)],
        [arm("obs-window", "full/2", 9), arm("conf-kv", "full/2", 10)],
        [arm("obs-window", "full/2", 9), arm("conf-kv", "full/4", 1)],
        [arm("full", None, 9), arm("conf-kv", "full/4", 1)],
        [arm("obs-window", "full/2", 9), arm("random", "full/2", 1)],
    ],
)
def test_else_nothing_is_said_first(arms: list[dict[str, Any]]) -> None:
    assert headline(summary(*arms)) is None


def test_a_claim_stands_beside_the_arm_of_the_nearest_memory() -> None:
    own = {("conf-kv", "full/2"): 0.9, ("conf-kv", "full/3"): 0.7, ("arkv", "full/4"): 0.5, ("tova", "full/4"): 0.4}
    arms = [
        arm("full", None, 30, 1.0),
        arm("conf-kv", "full/2", 27, 1.9),
        arm("conf-kv", "full/3", 21, 2.7),
        arm("arkv", "full/4", 15, None),
    ]
    (row,) = beside_claims(summary(*arms, arm("tova", "full/4", 12, 4.0), retention=own))
    assert (row["claim"].policy, row["claim"].retention, row["claim"].times_less) == ("conf-kv", 0.953, 2.8)
    assert (row["arm"]["budget"], row["retention"]) == ("full/3", 0.7)
    assert beside_claims(summary(arms[0])) == []


def test_every_paper_of_the_three_has_a_claim() -> None:
    own = dict.fromkeys([("conf-kv", "full/4"), ("arkv", "full/4"), ("trim-kv", "full/4")], 0.5)
    arms = [arm("full", None, 30, 1.0), *(arm(policy, budget, 15, 4.0) for policy, budget in own)]
    claims = [row["claim"] for row in beside_claims(summary(*arms, retention=own))]
    assert [claim.policy for claim in claims] == ["conf-kv", "arkv", "trim-kv"]
    assert claims[-1].retention == pytest.approx(44.8 / 49.4, abs=5e-4)


def row(
    success: bool, tokens: int | None, twin_of: str | None = None, task: str = "t", seed: int = 0
) -> dict[str, Any]:
    task_id = f"{task}-{tokens}"
    return {
        "task_id": task_id,
        "data_seed": seed,
        "success": success,
        "tokens_between": tokens,
        "needle": "code",
        "twin_of": twin_of,
    }


def test_success_is_counted_over_thirds_of_the_distances() -> None:
    rows = [row(tokens < 1300, tokens) for tokens in (1200, 1250, 1300, 1400, 1500, 1600)]
    rows += [row(True, 0, "t-1"), row(False, 1500, "t-2", "twin"), {"success": True, "needle": None}]
    edges = thirds([1200, 1250, 1300, 1400, 1500, 1600])
    assert edges == (1300, 1500)
    found = by_distance(rows, edges, 1)
    assert {group["tokens"]: (group["success"], group["finished"]) for group in found} == {
        "repeated": (1, 2),
        "up to 1,299": (2, 2),
        "1,300 to 1,499": (0, 2),
        "1,500 and more": (0, 2),
    }
    assert all(group["ci95"][0] <= group["success"] / group["finished"] <= group["ci95"][1] for group in found)
    (twins, *_) = by_distance([row(True, 1200)], edges, 1)
    assert (twins["finished"], twins["ci95"]) == (0, None)


def test_where_all_are_as_far_there_is_one_group_and_without_facts_none() -> None:
    assert [group["tokens"] for group in by_distance([row(True, 9)], (), 1)] == ["repeated", "not repeated"]
    assert by_distance([row(True, None)], (), 1) == []
    assert by_distance([{"success": True, "needle": "code"}], (5,), 1) == [], "rows of before know no distance"


def test_episodes_of_one_task_are_alike() -> None:
    rows = [row(task == 0, 1200, task=str(task), seed=seed) for task in range(4) for seed in range(4)]
    (_, four), (_, once) = (by_distance(rows, (), seeds) for seeds in (4, 1))
    assert (four["success"], four["finished"]) == (4, 16)
    assert four["ci95"][1] - four["ci95"][0] > 0.5
    assert once["finished"] == 16


def test_retention_is_of_the_tasks_both_ran() -> None:
    def rows(wins: str, arm: str) -> list[dict[str, Any]]:
        return [{**row(win == "1", n, task=arm), "task_id": f"t-{n}"} for n, win in enumerate(wins)]

    arm = Arm("conf-kv", "full/2")
    assert compare(arm, rows("1110", "full"), rows("100", "arm"))["retention"] == pytest.approx(1 / 3)
    assert compare(arm, rows("110", "full"), rows("111", "arm"))["retention"] == pytest.approx(1.5)
    assert compare(arm, rows("00", "full"), rows("01", "arm"))["retention"] is None


@pytest.mark.parametrize(("distances", "edges"), [([], ()), ([7], ()), ([7, 7, 7], ()), ([1, 1, 9], (9,))])
def test_few_distances_have_few_groups(distances: list[int], edges: tuple[int, ...]) -> None:
    assert thirds(distances) == edges
