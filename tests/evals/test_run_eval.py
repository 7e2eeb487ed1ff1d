"""`run_eval` from options to files, on a fake site and fake models."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from eval_fakes import NEXT, FakeEnv, Lab

from agentkv.errors import BudgetTooSmall, ContextOverflow, ModelError
from agentkv_envs import BrowserMissing, InfraError
from agentkv_evals.cli import run_eval, runs_list
from agentkv_evals.plan import Arm
from agentkv_evals.player import Backends
from agentkv_evals.run_folder import RunFolder


def outcomes(lab: Lab) -> dict[str, str]:
    return {row["episode_id"]: row["outcome"] for row in lab.rows()}


def test_a_run_leaves_rows_steps_pictures_summary_and_report(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_eval(lab.options(), lab.backends) == 0
    rows = lab.rows()
    assert [(r["task_id"], r["policy"], r["outcome"]) for r in rows] == [
        ("t-1", "full", "success"),
        ("t-1", "window", "success"),
        ("t-2", "full", "fail"),
        ("t-2", "window", "fail"),
    ]
    first, second = rows[:2]
    assert first["episode_id"] == "t-1__full__all__s0"
    assert second["episode_id"] == "t-1__window__12MiB__s0"
    assert (first["peak_kv_bytes"], second["peak_kv_bytes"]) == (8500, 2500)
    assert (first["full_peak_ratio"], second["full_peak_ratio"]) == (1.0, 2500 / 8500)
    assert (first["steps"], first["prompt_tokens"], first["reused_tokens"]) == (2, 30, 10)
    assert (first["success"], first["answer"], first["budget"], first["data_seed"]) == (True, "one", None, 0)
    assert (first["model"], first["agent"], first["suite"]) == ("smollm2-135m", "llm", "fake")
    steps = RunFolder(lab.run).steps("t-1__full__all__s0")
    assert [step["action"] for step in steps] == [NEXT, "stop [one]"]
    assert steps[0]["resident_kv_bytes"] == 4000
    assert (lab.run / "episodes" / "t-1__full__all__s0" / steps[0]["screenshot"]).is_file()
    summary = json.loads((lab.run / "summary.json").read_text())
    assert summary["complete"]
    assert [arm["success_rate"] for arm in summary["arms"]] == [0.5, 0.5]
    assert summary["arms"][1]["times_less_kv"] == pytest.approx(8500 / 2500)
    config = json.loads((lab.run / "config.json").read_text())
    assert config["starts"][0]["versions"]["langchain-core"]
    printed = capsys.readouterr().out
    assert "note: no --budget given: 12MiB for window" in printed
    assert str(lab.run / "report.html") in printed
    assert lab.envs[0].closed
    assert len(lab.envs) == 1


def test_the_same_command_again_runs_nothing(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run_eval(lab.options(), lab.backends)
    before = lab.rows()
    capsys.readouterr()
    assert run_eval(lab.options(), lab.backends) == 0
    assert lab.rows() == before
    assert len(lab.envs) == 1
    assert len(lab.models) == 2
    assert len(json.loads((lab.run / "config.json").read_text())["starts"]) == 1
    assert "every episode is done" in capsys.readouterr().out


def test_other_settings_and_fresh_make_a_new_run(lab: Lab) -> None:
    run_eval(lab.options(), lab.backends)
    run_eval(lab.options(seed=1), lab.backends)
    run_eval(lab.options(fresh=True), lab.backends)
    run_eval(lab.options({"t-1": "one", "t-2": "another"}), lab.backends)
    assert len(list((lab.folder / "runs").iterdir())) == 4


def test_resume_goes_on_after_a_torn_line(lab: Lab) -> None:
    run_eval(lab.options(), lab.backends)
    path = lab.run / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][: len(lines[2]) // 2])
    assert run_eval(lab.options(), lab.backends) == 0
    assert [row["episode_id"] for row in lab.rows()] == [json.loads(line)["episode_id"] for line in lines]
    assert lab.envs[1].log == ["t-2", "t-2"]
    assert len(json.loads((lab.run / "config.json").read_text())["starts"]) == 2


def test_a_damaged_line_is_named(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run_eval(lab.options(), lab.backends)
    path = lab.run / "results.jsonl"
    path.write_bytes(b"{oops\n" + path.read_bytes())
    assert run_eval(lab.options(), lab.backends) == 2
    assert "results.jsonl, line 1: not JSON" in capsys.readouterr().err


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    def press(task_id: str, step: int) -> None:
        if task_id == "t-2" and step == 1 and len(lab.envs) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    lab.env = lambda: FakeEnv(press)
    assert run_eval(lab.options(), lab.backends) == 130
    assert list(outcomes(lab).values()) == ["success", "success"]
    assert (lab.run / "report.html").is_file()
    assert not json.loads((lab.run / "summary.json").read_text())["complete"]
    assert "2 of 4 episodes are done and kept; run the same command to go on" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert run_eval(lab.options(), lab.backends) == 0
    assert len(lab.rows()) == 4


def test_a_browser_that_ctrl_c_killed_is_no_infra_error(lab: Lab) -> None:
    def press(task_id: str, step: int) -> None:
        if step == 1:
            os.kill(os.getpid(), signal.SIGINT)
            raise InfraError("the browser has gone")

    lab.env = lambda: FakeEnv(press)
    assert run_eval(lab.options(), lab.backends) == 130
    assert not (lab.folder / "runs").exists() or not list((lab.folder / "runs").iterdir())


def test_second_ctrl_c_stops_at_once(lab: Lab) -> None:
    def press(task_id: str, step: int) -> None:
        if task_id == "t-2":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    lab.env = lambda: FakeEnv(press)
    assert run_eval(lab.options(), lab.backends) == 130
    assert len(lab.rows()) == 2


@pytest.mark.parametrize("error", [InfraError("the page hung for 20 s"), RuntimeError("a bug")])
def test_a_hung_page_ends_the_episode_and_not_the_run(
    lab: Lab, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def hang(task_id: str, step: int) -> None:
        if (task_id, step) == ("t-1", 1) and len(lab.envs) == 1:
            raise error

    lab.env = lambda: FakeEnv(hang)
    assert run_eval(lab.options(), lab.backends) == 1
    assert list(outcomes(lab).values()) == ["infra_error", "success", "fail", "fail"]
    row = lab.rows()[0]
    assert row["success"] is None
    assert str(error) in row["reason"]
    assert lab.envs[0].closed
    assert len(lab.envs) == 2  # a new browser after the failure
    known = isinstance(error, InfraError)
    assert (lab.run / "episodes" / row["episode_id"] / "error.txt").exists() != known
    assert run_eval(lab.options(), lab.backends) == 1  # not tried again by itself
    assert len(lab.rows()) == 4
    capsys.readouterr()
    assert run_eval(lab.options(retry_errors=True, json=True), lab.backends) == 0
    assert len(lab.rows()) == 5
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == lab.rows()[1:]  # the failed try is not among the results
    assert RunFolder(lab.run).rows()[row["episode_id"]]["outcome"] == "success"


@pytest.mark.parametrize(
    ("replies", "reason", "steps"),
    [
        (["nothing useful"], "parse_failures", 3),
        ([NEXT], "max_steps", 4),
        ([NEXT, ContextOverflow(9000, 8192)], "context_full", 2),
        ([NEXT, BudgetTooSmall("no room")], "context_full", 2),
    ],
)
def test_early_stops_are_failures(lab: Lab, replies: list[Any], reason: str, steps: int) -> None:
    lab.replies = {"full": replies}
    assert run_eval(lab.options(policies=("full",), limit=1, max_steps=4), lab.backends) == 0
    (row,) = lab.rows()
    assert (row["outcome"], row["reason"], row["success"], row["steps"]) == ("early_stop", reason, False, steps)


def test_repeated_actions_stop_an_episode(lab: Lab) -> None:
    class StuckEnv(FakeEnv):
        def _observe(self) -> Any:
            self._page = 0
            return super()._observe()

    lab.env = StuckEnv
    lab.replies = {"full": [NEXT]}
    run_eval(lab.options(policies=("full",), limit=1), lab.backends)
    assert (lab.rows()[0]["reason"], lab.rows()[0]["steps"]) == ("repeated_actions", 5)


def test_a_task_nobody_can_judge_is_unscored(lab: Lab) -> None:
    lab.env = lambda: FakeEnv(unscored=True)
    assert run_eval(lab.options(policies=("full",), limit=1), lab.backends) == 0
    assert (lab.rows()[0]["outcome"], lab.rows()[0]["success"]) == ("unscored", None)


def test_json_rows_alone_on_stdout_finished_ones_included(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run_eval(lab.options(limit=1), lab.backends)
    capsys.readouterr()
    for _ in range(2):
        assert run_eval(lab.options(limit=1, json=True), lab.backends) == 0
        printed = capsys.readouterr()
        assert [json.loads(line) for line in printed.out.splitlines()] == lab.rows()
        assert "report:" in printed.err


def test_budgets_apply_to_every_policy_but_full(lab: Lab) -> None:
    run_eval(lab.options(budgets=("512", "25%", "512"), limit=1), lab.backends)
    assert lab.models == [Arm("full"), Arm("window", "512"), Arm("window", "25%")]


def test_a_budget_told_by_what_full_takes_is_set_once_its_episodes_are_over(lab: Lab) -> None:
    options = lab.options(budgets=("full/2.5", "512"), policies=("window", "full", "h2o"))
    assert run_eval(options, lab.backends) == 0
    rows = lab.rows()
    assert [row["policy"] for row in rows][:2] == ["full", "full"]
    peaks = [row["peak_kv_bytes"] for row in rows[:2]]
    budget = f"{int(sum(peaks) / 2 / 2.5 / 1024)}KiB"
    tried = [Arm("window", None), Arm("h2o", None)]  # a policy that is not for the model is found out before all else
    assert lab.models == [
        Arm("full"), Arm("window", "512"), Arm("h2o", "512"), *tried, Arm("window", budget), Arm("h2o", budget),
    ]  # fmt: skip
    told = {(row["policy"], row["budget"]): row["kv_budget"] for row in rows}
    assert told == {
        ("full", None): None, ("window", "full/2.5"): budget, ("window", "512"): "512",
        ("h2o", "full/2.5"): budget, ("h2o", "512"): "512",
    }  # fmt: skip
    # What it was set to stays, whatever full takes when it is run again.
    file = lab.run / "results.jsonl"
    kept = [row for row in rows if row["budget"] != "full/2.5"]
    file.write_text("".join(json.dumps({**row, "peak_kv_bytes": 10**9}) + "\n" for row in kept))
    lab.models.clear()
    assert run_eval(options, lab.backends) == 0
    assert lab.models == [*tried, Arm("window", budget), Arm("h2o", budget)]


def test_a_budget_told_by_what_full_takes_needs_full_and_its_peaks(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_eval(lab.options(budgets=("full/2",), policies=("window",)), lab.backends) == 2
    assert "--budget full/2 is told by what full KV takes: add --policy full" in capsys.readouterr().err
    for budget in ("full/1", "full/0.5", "full/0"):
        assert run_eval(lab.options(budgets=(budget,)), lab.backends) == 2
        assert f"--budget {budget}: say how many times less than full KV, above 1" in capsys.readouterr().err

    def broken(task_id: str, step: int) -> None:
        raise InfraError("the browser is gone")

    lab.env = lambda: FakeEnv(hook=broken)
    assert run_eval(lab.options(budgets=("full/2",)), lab.backends) == 2
    error = capsys.readouterr().err
    assert "no episode of full has measured a peak, so nobody knows what full/2 is" in error
    assert len(lab.rows()) == 2


def test_agents_without_a_model_have_one_arm_and_load_none(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_eval(lab.options(agent="oracle"), lab.backends) == 0
    assert lab.models == []
    assert list(outcomes(lab).values()) == ["success", "success"]
    assert lab.rows()[0]["policy"] == "none"
    assert lab.rows()[0]["peak_kv_bytes"] is None
    assert "agent 'oracle' has no model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ("full", "magic")}, "unknown policy 'magic'"),
        ({"agent": "genius"}, "unknown agent 'genius'"),
        ({"budgets": ("12 parsecs",)}, "budget '12 parsecs'"),
        ({"style": "loud"}, "unknown style 'loud'"),
        ({"history": "long"}, "unknown history 'long'"),
        ({"tasks": "nosuch", "task_file": None}, "nosuch"),
        ({"task_file": Path("/nowhere/tasks.json")}, "/nowhere/tasks.json"),
    ],
)
def test_wrong_names_are_one_line_before_anything_is_loaded(
    lab: Lab, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    assert run_eval(lab.options(**changes), lab.backends) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not lab.models
    assert not lab.envs
    assert not (lab.folder / "runs").exists()


def test_unwritable_runs_folder(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    (lab.folder / "file").write_text("")
    assert run_eval(lab.options(runs_dir=lab.folder / "file" / "runs"), lab.backends) == 2
    error = capsys.readouterr().err
    assert "cannot write to the runs folder" in error
    assert "--runs-dir" in error
    assert error.count("\n") == 1
    assert not lab.models


@pytest.mark.parametrize("error", [ModelError("no such model"), BudgetTooSmall("too small"), BrowserMissing("apt")])
def test_a_mistake_found_late_leaves_no_empty_run(
    lab: Lab, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(*_: object) -> Any:
        raise error

    assert run_eval(lab.options(), Backends(fail, fail)) == 2
    assert str(error) in capsys.readouterr().err
    assert list((lab.folder / "runs").iterdir()) == []


def test_two_processes_cannot_write_one_run(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run_eval(lab.options(), lab.backends)
    other = RunFolder(lab.run)
    other.lock()
    try:
        assert run_eval(lab.options(), lab.backends) == 2
    finally:
        other.unlock()
    assert "another process is working on" in capsys.readouterr().err
    assert len(lab.rows()) == 4


def test_a_full_disk_names_the_run_and_keeps_what_is_finished(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written, append = [], RunFolder.append_row

    def fill(self: RunFolder, row: dict[str, Any]) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(row)
        append(self, row)

    monkeypatch.setattr(RunFolder, "append_row", fill)
    assert run_eval(lab.options(), lab.backends) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "No space left on device; the 1 episodes that are finished are kept" in error
    monkeypatch.setattr(RunFolder, "append_row", append)
    assert run_eval(lab.options(), lab.backends) == 0
    assert len(lab.rows()) == len({row["episode_id"] for row in lab.rows()})


def test_a_foreign_row_is_named_and_other_runs_are_listed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_eval(lab.options(), lab.backends) == 0
    good = lab.run
    broken = (lab.folder / "runs") / "20200101T000000Z-broken-00000000"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    capsys.readouterr()
    assert runs_list(lab.folder / "runs") == 0
    captured = capsys.readouterr()
    assert "is not the config of a run: it lacks 'settings'" in captured.err
    assert "success by policy" in captured.out
    with (good / "results.jsonl").open("a") as file:
        file.write("{}\n")
    assert run_eval(lab.options(), lab.backends) == 2
    assert "not a result, it lacks 'episode_id'; delete that line" in capsys.readouterr().err


def test_listing_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").write_text("")
    assert runs_list(tmp_path / "runs") == 2
    assert "is a file, not a folder" in capsys.readouterr().err
