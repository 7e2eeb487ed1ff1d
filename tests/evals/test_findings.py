"""What a run says first, beside the papers, and over the distance of facts."""

from __future__ import annotations

from typing import Any

import pytest

from agentkv_evals.findings import beside_claims, headline
from agentkv_evals.summary import recall, thirds


def arm(policy: str, budget: str | None, success: int, times_less: float | None = None) -> dict[str, Any]:
    return {
        "policy": policy,
        "budget": budget,
        "label": f"{policy} {budget}",
        "success": success,
        "planned": 75,
        "times_less_kv": times_less,
    }


def summary(*arms: dict[str, Any], retention: dict[tuple[str, str], float] | None = None) -> dict[str, Any]:
    paired = [{"policy": p, "budget": b, "retention": share} for (p, b), share in (retention or {}).items()]
    return {"arms": list(arms), "paired": paired}


def test_where_dropping_pages_is_not_beaten_that_is_said_for_each_budget() -> None:
    full = arm("full", None, 30)
    told = headline(
        summary(
            full,
            arm("obs-window", "full/2", 21),
            arm("conf-kv", "full/2", 21),
            arm("random", "full/2", 4),
            arm("obs-window", "full/4", 9),
            arm("conf-kv", "full/4", 11),
            arm("obs-window", "full/8", 3),
        )
    )
    assert told == (
        "No policy did better than dropping the oldest pages whole (obs-window): under full/2 21 of 75, next conf-kv"
        " with 21."
    )


@pytest.mark.parametrize(
    "arms",
    [
        [arm("obs-window", "full/2", 0), arm("conf-kv", "full/2", 0)],
        [arm("obs-window", "full/2", 9), arm("conf-kv", "full/2", 10)],
        [arm("obs-window", "full/2", 9), arm("conf-kv", "full/4", 1)],
        [arm("full", None, 9), arm("conf-kv", "full/4", 1)],
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


def row(success: bool, tokens: int | None, twin_of: str | None = None) -> dict[str, Any]:
    return {"success": success, "tokens_between": tokens, "needle": "code", "twin_of": twin_of}


def test_success_is_counted_over_thirds_of_the_distances() -> None:
    rows = [row(tokens < 1300, tokens) for tokens in (1200, 1250, 1300, 1400, 1500, 1600)]
    rows += [row(True, 0, "t-1"), row(False, 1500, "t-2"), {"success": True, "needle": None}]
    edges = thirds([1200, 1250, 1300, 1400, 1500, 1600])
    assert edges == (1300, 1500)
    counted = {group["tokens"]: (group["success"], group["finished"]) for group in recall(rows, edges)}
    assert counted == {
        "repeated": (1, 2),
        "up to 1,299": (2, 2),
        "1,300 to 1,499": (0, 2),
        "1,500 and more": (0, 2),
    }
    assert all(
        group["ci95"][0] <= group["success"] / group["finished"] <= group["ci95"][1] for group in recall(rows, edges)
    )
    (first, *_) = recall([], edges)
    assert (first["finished"], first["ci95"]) == (0, None)


@pytest.mark.parametrize(("distances", "edges"), [([], ()), ([7], ()), ([7, 7, 7], ()), ([1, 1, 9], (9,))])
def test_few_distances_have_few_groups(distances: list[int], edges: tuple[int, ...]) -> None:
    assert thirds(distances) == edges
