"""What failed episodes did instead of the oracle's next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eval_fakes import NEXT, FakeEnv, Lab
from langchain_core.messages import AIMessage

from agentkv_envs import Action, StepResult, Task, load_suite
from agentkv_evals.cli import run_eval
from agentkv_evals.summary import groups, left_by
from agentkv_evals.ways import Cause, Way, left_way

ORACLE = ('type "Search" [kettle] [1]', 'click "Red kettle"', 'type "Comment" [DAHLIA47] [0]', "stop [done]")
BY_HAND = Task("t", ("shopping",), "Find it.", "__SHOPPING__", {"eval_types": []}, (), {})
SEARCH, RED = 'type "Search" [3] [kettle] [1]', 'click "Red kettle" [7]'


def way(
    taken: Sequence[str | None], fact_step: int | None = None, oracle: Sequence[str] = ORACLE, **extra: Any
) -> Way | None:
    needle = {"needle": {"used_step": fact_step}} if fact_step else {}
    return left_way(replace(BY_HAND, oracle=tuple(oracle), raw={"agentkv": {**needle, **extra}}), taken)


@pytest.mark.parametrize(
    ("taken", "followed", "cause"),
    [
        ([], 0, Cause.CUT_OFF),
        ([None, None], 0, Cause.CUT_OFF),
        ([SEARCH], 1, Cause.CUT_OFF),
        (['type "Search" [3] [red] [1]', RED], 0, Cause.OTHER_TEXT),
        (['type "Search" [3] [kettle] [0]'], 0, Cause.OTHER_TEXT),
        ([SEARCH, 'click "Blue kettle" [8]', "stop [done]"], 1, Cause.OTHER_ELEMENT),
        ([SEARCH, 'type "Red kettle" [7] [x] [0]'], 1, Cause.OTHER_ACTION),
        ([SEARCH, "stop [done]"], 1, Cause.STOPPED),
        ([SEARCH, RED, 'type "Comment" [9] [DAHLIA] [0]'], 2, Cause.OTHER_TEXT),
        ([SEARCH, RED, 'type "Comment" [9] [DAHLIA47] [0]', "stop [no]"], 3, Cause.ANSWER),
        ([SEARCH, RED, 'type "Comment" [9] [DAHLIA47] [0]', 'click "Post" [1]'], 3, Cause.WENT_ON),
        ([SEARCH, RED, 'type "Comment" [9] [DAHLIA47] [0]', "stop [done]"], 4, Cause.ALL),
        # Detours between common steps are no fault of their own, nor is a reply that was no action.
        ([SEARCH, 'click "Blue kettle" [8]', None, "go_back", RED, None, "go_back"], 2, Cause.OTHER_ACTION),
    ],
)
def test_the_first_step_after_the_last_common_one_is_the_cause(
    taken: list[str | None], followed: int, cause: Cause
) -> None:
    assert way(taken) == Way(followed, cause, at_fact=False)


def test_it_says_whether_the_step_needed_a_fact() -> None:
    forgot = [SEARCH, RED, 'type "Comment" [9] [TULIP12] [0]']
    assert [way(forgot, step) for step in (None, 2, 3, 4)] == [
        Way(2, Cause.OTHER_TEXT, at_fact) for at_fact in (False, False, True, False)
    ]


@pytest.mark.parametrize("oracle", [(), ("click [7]", "stop []"), ("no action at all",)])
def test_a_solution_that_names_nothing_cannot_be_compared_with(oracle: tuple[str, ...]) -> None:
    assert way([SEARCH], oracle=oracle) is None


def test_the_solution_that_was_followed_furthest_counts() -> None:
    other = ['click "All kettles"', 'click "Red kettle"', "stop [done]"]
    took = ['click "All kettles" [4]', RED, "stop [no]"]
    assert way(took, 1, alternatives=[other]) == Way(2, Cause.ANSWER, at_fact=False)
    assert way([SEARCH, "stop [no]"], 2, alternatives=[other]) == Way(1, Cause.STOPPED, at_fact=True)


def test_what_a_plan_only_reads_is_no_step() -> None:
    plan = (ORACLE[0], "read [type [x] of\nit]", *ORACLE[1:])
    assert way([SEARCH, RED, "stop [done]"], 3, plan) == Way(2, Cause.STOPPED, at_fact=True)


def test_plans_of_training_tasks_can_be_compared_with() -> None:
    for task in load_suite("train"):
        actions = [step for step in task.oracle if not step.startswith(("read [", "scan ["))]
        needle = task.raw["agentkv"]["needle"] or {}
        cut = needle.get("used_step", len(actions)) - 1
        assert left_way(task, actions[:cut]) == Way(cut, Cause.CUT_OFF, bool(needle))


def test_every_oracle_can_be_compared_with() -> None:
    for task in load_suite("vwa75"):
        assert left_way(task, task.oracle) == Way(len(task.oracle), Cause.ALL, at_fact=False)
        needle = task.raw["agentkv"]["needle"]
        used = needle and needle["used_step"]
        if used:
            assert left_way(task, task.oracle[: used - 1]) == Way(used - 1, Cause.CUT_OFF, at_fact=True)


def test_rows_and_report_tell_it(lab: Lab) -> None:
    lab.replies = {"full": [NEXT, "stop [three]"], "window": ["stop [one]"]}
    assert run_eval(lab.options(), lab.backends) == 0
    rows = lab.rows()
    assert [(row["policy"], row["oracle_steps_taken"], row["left_by"], row["left_at_fact"]) for row in rows] == [
        ("full", 1, "other answer", False),
        ("window", None, None, None),
        ("full", 1, "other answer", False),
        ("window", 0, "stopped too early", False),
    ]
    assert left_by(rows) == {
        "other answer": {"episodes": 2, "at_fact": 0},
        "stopped too early": {"episodes": 1, "at_fact": 0},
    }
    report = (Path(lab.run) / "report.html").read_text()
    assert "What failed episodes did instead" in report
    assert report.index("<td>stopped too early</td>") < report.index("<td>other answer</td>")
    assert "<td>other text</td>" not in report


def test_what_the_browser_refused_or_never_did_is_no_step(lab: Lab) -> None:
    class Refusing(FakeEnv):
        def step(self, action: Action) -> StepResult:
            done = super().step(action)
            return done if action.kind == "stop" else replace(done, error="the element did not become ready")

    lab.env = Refusing
    cut = AIMessage("stop [on", response_metadata={"agentkv": {"finish_reason": "context_full"}})
    lab.replies = {"full": [NEXT, "stop [three]"], "window": [NEXT, cut]}
    assert run_eval(lab.options({"t-1": "one"}), lab.backends) == 0
    assert [(row["oracle_steps_taken"], row["left_by"]) for row in lab.rows()] == [
        (0, "stopped too early"),
        (0, "cut off on the way"),
    ]


def test_a_style_whose_actions_name_nothing_has_no_such_rows(lab: Lab) -> None:
    lab.replies = {"full": ["stop [three]"]}
    assert run_eval(lab.options({"t-1": "one"}, policies=("full",), style="vwa"), lab.backends) == 0
    assert [(row["success"], row["left_by"]) for row in lab.rows()] == [(False, None)]


def test_a_report_without_failures_has_no_such_table(lab: Lab) -> None:
    lab.replies = {"full": [NEXT, "stop [one]"]}
    assert run_eval(lab.options({"t-1": "one"}, policies=("full",)), lab.backends) == 0
    assert "What failed episodes did instead" not in (Path(lab.run) / "report.html").read_text()


def test_tasks_are_grouped_by_the_length_of_their_way_and_by_site() -> None:
    def row(success: bool, horizon: str, *sites: str) -> dict[str, object]:
        return {"success": success, "horizon": horizon, "sites": list(sites)}

    found = groups([row(True, "short", "forum"), row(False, "long", "forum", "shopping"), row(False, "short", "forum")])
    assert found == {
        "short way": {"success": 1, "finished": 2},
        "long way": {"success": 0, "finished": 1},
        "forum": {"success": 1, "finished": 2},
        "several sites": {"success": 0, "finished": 1},
    }
