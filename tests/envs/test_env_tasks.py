"""Every task in the real browser: the oracle solves it, doing nothing and answering wrongly do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentkv_envs import Observation, Task, WebEnv, bind, load_suite, parse_action, resolve
from agentkv_envs.sites.shopping.database import facts

pytestmark = pytest.mark.browser
TASKS = load_suite("vwa75")


def replay(env: WebEnv, task: Task, seed: int = 0) -> list[Observation]:
    """All observations of the oracle's way through a task."""
    seen = [env.reset(task, seed)]
    bound = env.task
    assert bound is not None
    for text in bound.oracle:
        result = env.step(resolve(text, seen[-1]))
        assert result.error is None, f"{task.task_id} {text}: {result.error}\n{seen[-1].text}"
        seen.append(result.observation)
    assert result.done
    return seen


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.task_id)
def test_the_oracle_solves_the_task_within_the_token_budget(
    env: WebEnv, task: Task, count_tokens: Callable[[str], int]
) -> None:
    seen = replay(env, task)
    assert env.evaluate().success is True
    sizes = [count_tokens(o.text) for o in seen]
    assert max(sizes) <= 350
    assert sum(sizes) <= 6000, "an episode with full memory must fit a window of 8192 tokens"
    assert max(e.id for o in seen for e in o.elements) <= 99


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.task_id)
def test_doing_nothing_fails(env: WebEnv, task: Task) -> None:
    seen = env.reset(task)
    env.step(resolve("stop []", seen))
    assert env.evaluate().success is False


@pytest.mark.parametrize("task", [t for t in TASKS if "string_match" in t.eval["eval_types"]], ids=lambda t: t.task_id)
def test_a_wrong_answer_fails(env: WebEnv, task: Task) -> None:
    seen = env.reset(task)
    for wrong in ("42", "I do not know", "N/A"):
        env.step(resolve(f"stop [{wrong}]", seen))
        assert env.evaluate().success is False
        seen = env.reset(task)


@pytest.mark.parametrize("task_id", ["shopping-002", "shopping-006"])
def test_other_data_seeds_have_other_facts_and_the_same_solution(env: WebEnv, task_id: str) -> None:
    (task,) = load_suite(f"vwa75:{task_id}")
    first, second = (bind(task, {**facts(seed), "SHOPPING": ""}).oracle for seed in (0, 3))
    assert first != second
    replay(env, task, seed=3)
    assert env.evaluate().success is True


def test_the_same_seed_gives_the_same_observations(env: WebEnv) -> None:
    (task,) = load_suite("vwa75:shopping-011")
    runs = [[(o.text, o.alerts, o.elements) for o in replay(env, task, seed=5)] for _ in range(2)]
    assert runs[0] == runs[1]


def test_episodes_do_not_see_each_other(env: WebEnv) -> None:
    (task,) = load_suite("vwa75:shopping-001")
    replay(env, task)
    fresh = env.reset(task)
    assert any(e.label == "Cart (0)" for e in fresh.elements)
    with WebEnv(screenshots=False) as other:
        replay(other, task)
        (still,) = [
            e for e in env.step(resolve("goto [/checkout/cart/]", fresh)).observation.elements if "Cart" in e.label
        ]
        assert still.label == "Cart (0)"


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.task_id)
def test_tasks_are_well_formed(task: Task) -> None:
    extra = task.raw["agentkv"]
    assert (extra["version"], extra["suite"], extra["horizon"]) == (1, "vwa75", task.horizon)
    assert all(parse_action(text).mode == "strict" for text in task.oracle)
    assert 3 <= len(task.oracle) <= 20
    if extra["needle"] is not None:
        needle = extra["needle"]
        assert 1 <= needle["first_seen_step"] < needle["used_step"] <= len(task.oracle)
        assert needle["tokens_between"] > 0


def test_the_suite_mixes_evaluators_and_horizons() -> None:
    kinds = {kind for task in TASKS for kind in task.eval["eval_types"]}
    assert kinds == {"string_match", "url_match", "program_html"}
    assert {task.horizon for task in TASKS} >= {"short", "medium"}
    assert sum(task.raw["agentkv"]["needle"] is not None for task in TASKS) >= 4
