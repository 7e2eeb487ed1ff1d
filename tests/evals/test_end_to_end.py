"""The evaluation on the embedded suite, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentkv_agents import AgentKind, AgentSetup, registry
from agentkv_agents.scripted import OracleAgent
from agentkv_evals.cli import run_eval
from agentkv_evals.options import EvalOptions

pytestmark = pytest.mark.browser


def rows_of(runs: Path) -> list[dict[str, Any]]:
    (run,) = runs.iterdir()
    return [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]


def test_the_oracle_solves_what_the_null_agent_does_not(tmp_path: Path) -> None:
    for agent, expected in (("oracle", "success"), ("null", "fail")):
        options = EvalOptions(tasks="vwa75", agent=agent, limit=2, runs_dir=tmp_path / agent)
        assert run_eval(options) == 0
        rows = rows_of(tmp_path / agent)
        assert {row["outcome"] for row in rows} == {expected}
        assert all(row["browser_ms"] > 0 and row["suite"] == "vwa75" for row in rows)


def test_workers_solve_tasks_side_by_side_and_leave_no_process(tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    options = EvalOptions(tasks="vwa75", agent="oracle", limit=4, workers=2, runs_dir=tmp_path)
    assert run_eval(options) == 0
    rows = rows_of(tmp_path)
    assert sorted(row["task_id"] for row in rows) == [f"classifieds-00{n}" for n in (1, 2, 3, 4)]
    assert {row["outcome"] for row in rows} == {"success"}
    left = {process for process in psutil.Process().children(recursive=True) if process.pid not in before}
    assert all("resource_tracker" in " ".join(process.cmdline()) for process in left)


class Saboteur(OracleAgent):
    """An oracle whose browser is killed under it, once."""

    done = False

    def act(self, observation: Any, feedback: str | None = None) -> Any:
        if not Saboteur.done:
            Saboteur.done = True
            for process in psutil.Process().children(recursive=True):
                if "chrom" in process.name() or "headless" in process.name():
                    process.kill()
        return super().act(observation, feedback)


def test_a_browser_that_dies_costs_one_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(setup: AgentSetup) -> Saboteur:
        return Saboteur(setup.task.oracle)

    monkeypatch.setitem(registry._KINDS, "saboteur", AgentKind("saboteur", make))
    options = {"tasks": "vwa75", "agent": "saboteur", "limit": 2, "runs_dir": tmp_path, "step_timeout_s": 10.0}
    assert run_eval(EvalOptions(**options)) == 1
    rows = rows_of(tmp_path)
    assert [row["outcome"] for row in rows] == ["infra_error", *["success"] * (len(rows) - 1)]
    assert run_eval(EvalOptions(**options, retry_errors=True)) == 0
    assert rows_of(tmp_path)[-1]["outcome"] == "success"


@pytest.mark.model
def test_policies_differ_in_memory_on_the_same_pages(tmp_path: Path) -> None:
    options = EvalOptions(
        tasks="vwa75",
        model="smollm2-135m",
        policies=("full", "window"),
        budgets=("400",),
        limit=1,
        max_steps=2,
        runs_dir=tmp_path,
    )
    assert run_eval(options) == 0
    full, window = rows_of(tmp_path)
    assert [row["outcome"] for row in (full, window)] == ["early_stop", "early_stop"]
    assert 0 < window["peak_kv_bytes"] < full["peak_kv_bytes"]
    assert window["full_peak_ratio"] == window["peak_kv_bytes"] / full["peak_kv_bytes"]
    assert full["evicted_tokens"] == 0 < window["evicted_tokens"]
    for row in (full, window):
        assert row["reused_tokens"] > 0
        assert row["prompt_tokens"] == row["reused_tokens"] + row["new_tokens"]
