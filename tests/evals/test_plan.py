from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from eval_fakes import Lab

from agentkv.errors import AgentKVError
from agentkv_agents.prompting import PLAIN, Prompting, save_prompting
from agentkv_envs import Task
from agentkv_evals.backends import protection
from agentkv_evals.errors import EvalError
from agentkv_evals.options import EvalOptions
from agentkv_evals.plan import Arm, EvalPlan, make_plan

POLICIES = lambda: ("full", "window", "conf-kv")  # noqa: E731


def test_arms_of_a_task_follow_each_other_full_first(lab: Lab) -> None:
    plan = make_plan(lab.options(policies=("conf-kv", "full", "conf-kv")), POLICIES)
    order = [(episode.task.task_id, episode.arm.label) for episode in plan.episodes]
    assert order == [
        ("t-1", "full"),
        ("t-1", "conf-kv @ 12MiB"),
        ("t-2", "full"),
        ("t-2", "conf-kv @ 12MiB"),
    ]


def test_fingerprint_ignores_what_does_not_change_the_numbers(lab: Lab) -> None:
    base = make_plan(lab.options(), POLICIES).fingerprint
    for same in ({"json": True}, {"fresh": True}, {"retry_errors": True}, {"policies": ("window", "full")}):
        assert make_plan(lab.options(**same), POLICIES).fingerprint == base
    for other in (
        {"seed": 1},
        {"limit": 1},
        {"max_steps": 5},
        {"budgets": ("512",)},
        {"style": "vwa"},
        {"protect": ("task",)},
        {"notes": True},
        {"plan": True},
        {"explain_actions": False},
    ):
        assert make_plan(lab.options(**other), POLICIES).fingerprint != base


def test_a_role_that_there_is_not_is_refused(lab: Lab) -> None:
    with pytest.raises(AgentKVError, match="--protect: cannot protect 'page'; roles: system, task"):
        make_plan(lab.options(protect=("page",)), POLICIES)


@pytest.mark.parametrize(
    "changes",
    [
        {"notes": True},
        {"plan": False},
        {"explain_actions": True},
        {"protect": ("task",)},
        {"protect": ("bogus",)},
    ],
)
def test_what_concerns_a_model_is_refused_for_agents_without_one(lab: Lab, changes: dict[str, Any]) -> None:
    with pytest.raises(EvalError, match=r"is for agents with a model, and 'oracle' has none"):
        make_plan(lab.options(agent="oracle", **changes), POLICIES)


@pytest.mark.parametrize("asked", ["notes", "plan"])
def test_notes_and_plans_need_a_history_that_keeps_them(lab: Lab, asked: str) -> None:
    with pytest.raises(EvalError, match=f"--{asked} has no use with --history official"):
        make_plan(lab.options(**{asked: True}, history="official"), POLICIES)


def test_a_model_is_asked_as_it_was_taught_unless_the_options_say_otherwise(lab: Lab, tmp_path: Path) -> None:
    taught = Prompting(plan=True, explain_actions=False)
    save_prompting(tmp_path, taught)

    def of(**changes: Any) -> EvalPlan:
        return make_plan(lab.options(model=str(tmp_path), **changes), POLICIES)

    assert of().prompting == taught
    settings = {"plan": True, "explain_actions": False, "follow_plan": True, "recall": False}
    assert of().settings()["prompting"] == settings
    assert of(recall=True).settings()["prompting"] == settings | {"recall": True}
    assert of(follow_plan=False).prompting == Prompting(plan=True, explain_actions=False, follow_plan=False)
    for flag in ("follow_plan", "recall"):
        with pytest.raises(EvalError, match=f"--{flag.replace('_', '-')} has no use without a plan"):
            _ = of(plan=False, **{flag: True}).prompting
    assert of(plan=False).prompting == Prompting(plan=False, explain_actions=False)
    assert of(explain_actions=True).prompting == Prompting(plan=True, explain_actions=True)
    # A history that keeps no replies keeps no plan.
    assert of(history="official").prompting == Prompting(plan=False, explain_actions=False)
    assert of(plan=False, explain_actions=True).prompting == PLAIN
    # Runs of before are gone on with.
    assert "prompting" not in of(plan=False, explain_actions=True).settings()
    assert make_plan(lab.options(agent="oracle"), POLICIES).prompting == PLAIN


def test_protection_is_an_option_of_every_policy_but_full(lab: Lab) -> None:
    assert protection(Arm("h2o", "512"), ("system", "task")) == {"protect": ["system", "task"]}
    assert protection(Arm("full"), ("system",)) == protection(Arm("h2o", "512"), ()) == {}


def test_a_recipe_is_a_policy_and_its_content_counts(lab: Lab, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    prints = []
    for recent in (0.25, 0.5):
        recipe.write_text(f"scorer: recency\nrecent: {recent}\n")
        plan = make_plan(lab.options(policies=("full", str(recipe))), POLICIES)
        assert [arm.policy for arm in plan.arms] == ["full", str(recipe)]
        assert plan.settings()["recipes"][str(recipe)]["recent"] == recent
        prints.append(plan.fingerprint)
    assert prints[0] != prints[1]
    with pytest.raises(AgentKVError, match="there is no such recipe"):
        make_plan(lab.options(policies=("none.yaml",)), POLICIES)


def test_episode_ids_are_folder_names_and_unique(lab: Lab) -> None:
    plan = make_plan(lab.options({"a/b": "x"}, budgets=("25%", "25")), POLICIES)
    ids = [episode.episode_id for episode in plan.episodes]
    assert ids == ["a-b__full__all__s0", "a-b__window__25pct__s0", "a-b__window__25__s0"]


def test_tasks_that_would_share_a_folder_are_refused(lab: Lab) -> None:
    with pytest.raises(EvalError, match="share one name"):
        make_plan(lab.options({"a/b": "x", "a b": "y"}), POLICIES)


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": "vwa75"},
        {"task_file": None},
        {"limit": 0},
        {"max_steps": 0},
        {"policies": ()},
        {"name": "../up"},
        {"step_timeout_s": 0},
    ],
)
def test_options_that_make_no_sense(lab: Lab, changes: dict[str, object]) -> None:
    with pytest.raises(EvalError):
        lab.options(**changes)


def test_run_name_comes_from_the_tasks() -> None:
    assert EvalOptions(tasks="vwa75:shop*").run_name == "vwa75"
    assert EvalOptions(tasks="vwa75", name="mine").run_name == "mine"


def test_labels() -> None:
    assert Arm("full").label == "full"
    assert Arm("conf-kv", "512").label == "conf-kv @ 512"


def test_plan_can_be_made_by_hand() -> None:
    task = Task("t", (), "", "", {}, (), {})
    plan = EvalPlan(EvalOptions(tasks="x", agent="null"), (task,), (Arm("none"),))
    assert [episode.episode_id for episode in plan.episodes] == ["t__none__all__s0"]
