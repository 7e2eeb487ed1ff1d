"""The same tasks on several data seeds: more episodes, and statistics that know that those of one task are alike."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from eval_fakes import FakeEnv, Lab

from agentkv_envs import Observation, Task, load_task_file
from agentkv_evals import plan as plans
from agentkv_evals.cli import run_eval
from agentkv_evals.errors import EvalError
from agentkv_evals.options import EvalOptions
from agentkv_evals.plan import make_plan
from agentkv_evals.stats import sign_flips, wilson, wilson_clustered

POLICIES = lambda: ("full", "window")  # noqa: E731


class SeededEnv(FakeEnv):
    """On other data something else is asked for."""

    def reset(self, task: Task, seed: int = 0) -> Observation:
        observation = super().reset(task, seed)
        self.task = replace(task, intent=f"{task.intent}, in the data of seed {seed}")
        return observation


@pytest.fixture
def seeded(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    lab.env = SeededEnv
    file = lab.options().task_file
    monkeypatch.setattr(plans, "_load_tasks", lambda options: list(load_task_file(file)))
    return lab


def options_of(lab: Lab, **changes: object) -> EvalOptions:
    return replace(lab.options(), task_file=None, tasks="fake", seed=5, data_seeds=3, **changes)


def test_every_task_is_planned_on_every_seed_and_arms_stay_together(seeded: Lab) -> None:
    plan = make_plan(options_of(seeded), POLICIES)
    order = [(episode.seed, episode.task.task_id, episode.arm.policy) for episode in plan.episodes]
    assert order == [(s, t, p) for s in (5, 6, 7) for t in ("t-1", "t-2") for p in ("full", "window")]
    assert len({episode.episode_id for episode in plan.episodes}) == 12
    one = make_plan(replace(options_of(seeded), data_seeds=1), POLICIES)
    assert one.fingerprint != plan.fingerprint
    assert "data_seeds" not in one.settings()  # runs of one seed keep their names


def test_a_run_counts_all_of_them_and_its_report_tells_them_apart(
    seeded: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_eval(options_of(seeded), seeded.backends) == 0
    assert len(seeded.rows()) == 12
    assert seeded.rows()[-1]["intent"] == "Find two, in the data of seed 7"
    summary = json.loads((seeded.run / "summary.json").read_text("utf-8"))
    assert (summary["planned_episodes"], summary["complete"]) == (12, True)
    full = summary["arms"][0]
    assert (full["planned"], full["success"]) == (6, 3)
    # One task is always solved, the other never: three seeds say no more than one.
    assert full["success_ci95"] == pytest.approx(wilson(1, 2))
    assert summary["paired"][0]["pairs"] == 6
    assert summary["paired"][0]["p_by_task"] == 1.0
    html = (seeded.run / "report.html").read_text("utf-8")
    assert "2 tasks of fake on 3 data seeds" in html
    for seed in (5, 6, 7):
        assert f"t-2, data {seed}" in html
        assert f"Find two, in the data of seed {seed}" in html
    assert run_eval(options_of(seeded), seeded.backends) == 0
    assert len(seeded.rows()) == 12, "everything was there"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_seeds": 0, "tasks": "vwa75", "task_file": None}, "--data-seeds must be at least 1, not 0"),
        ({"data_seeds": 2}, "tasks of a file keep the data they were written for"),
    ],
)
def test_what_cannot_be_drawn_again_is_refused(lab: Lab, changes: dict[str, object], message: str) -> None:
    with pytest.raises(EvalError, match=message):
        replace(lab.options(), **changes)


def test_real_hosts_have_one_state(seeded: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Task, "external", property(lambda task: True))
    with pytest.raises(EvalError, match="real hosts have one state of data"):
        make_plan(options_of(seeded), POLICIES)


def test_clusters_that_are_not_alike_are_as_good_as_independent_ones() -> None:
    rng = random.Random(3)
    independent = [sum(rng.random() < 0.4 for _ in range(4)) for _ in range(500)]
    assert wilson_clustered(independent, 4) == pytest.approx(wilson(sum(independent), 2000), abs=0.003)
    alike = [4 if rng.random() < 0.4 else 0 for _ in range(500)]
    assert wilson_clustered(alike, 4) == pytest.approx(wilson(sum(alike) / 4, 500))
    assert wilson_clustered([1, 0, 1], 1) == wilson(2, 3)
    assert wilson_clustered([0, 0, 0], 4) == wilson(0, 3)
    assert wilson_clustered([], 4) == (0.0, 1.0)
    assert wilson_clustered([2], 4) == wilson(0.5, 1)


def test_signs_are_flipped_by_task() -> None:
    assert sign_flips([]) == 1.0
    assert sign_flips([0, 0]) == 1.0
    assert sign_flips([4, -4]) == 1.0
    # All of ten tasks point one way: 2 of 2¹⁰ flips are as large.
    assert sign_flips([3] * 10) == pytest.approx(2 / 1024, abs=1e-3)
    assert sign_flips([1] * 10) == sign_flips([3] * 10)
    assert sign_flips([-1] * 10) == sign_flips([1] * 10)
