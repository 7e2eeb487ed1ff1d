"""Episodes in several processes at once: the same rows as one by one, and what happens to a process that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eval_fakes import NEXT, FakeEnv, Lab
from langchain_core.language_models import BaseChatModel

from agentkv_envs import BrowserMissing, InfraError
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import Arm, EvalPlan, PlannedEpisode, make_plan
from agentkv_evals.player import Backends, Hands, Player
from agentkv_evals.progress import PlainProgress
from agentkv_evals.run_folder import RunFolder, open_run
from agentkv_evals.runner import Runner
from agentkv_evals.workers import WorkerPool

ANSWERS = {f"t-{n}": "one" if n % 2 else "two" for n in range(4)}
# Of the clock and of the process.
VARY = {"start_ms", "browser_ms", "agent_ms", "wall_s", "finished_utc"}


def folder_of(plan: EvalPlan) -> Path:
    return plan.options.runs_dir.parent


def quiet(plan: EvalPlan) -> Backends:
    return Lab(folder_of(plan)).backends


def company(plan: EvalPlan) -> Backends:
    """No episode goes on before two processes are at one."""

    def meet(task_id: str, step: int) -> None:
        met = folder_of(plan) / "pids"
        met.mkdir(exist_ok=True)
        (met / str(os.getpid())).touch()
        until = time.monotonic() + 120
        while len(list(met.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.01)

    return Lab(folder_of(plan), env=lambda: FakeEnv(meet)).backends


def fatal(plan: EvalPlan) -> Backends:
    """A process dies while the other one is about to give back more than a pipe holds."""

    def die(task_id: str, step: int) -> None:
        if task_id == "t-2":
            os._exit(9)

    return Lab(folder_of(plan), env=lambda: FakeEnv(die), replies={"full": [NEXT, f"stop [{'x' * 300_000}]"]}).backends


def slow_reference(plan: EvalPlan) -> Backends:
    def wait(task_id: str, step: int) -> None:
        time.sleep(0.1 if step else 0.0)

    lab = Lab(folder_of(plan), env=lambda: FakeEnv(wait))
    return replace(lab.backends, make_model=lambda arm: slow(lab, arm))


def slow(lab: Lab, arm: Arm) -> BaseChatModel:
    model = lab.backends.make_model(arm)
    return model.model_copy(update={"replies": [NEXT] * 8 + ["stop [one]"]}) if arm.policy == "full" else model


def endless(plan: EvalPlan) -> Backends:
    """One episode never ends, the others do at once."""

    def stay(task_id: str, step: int) -> None:
        if task_id != "t-3":
            raise InfraError("gone")
        (folder_of(plan) / "there").write_text(str(os.getpid()))
        time.sleep(0.05)

    return Lab(folder_of(plan), env=lambda: FakeEnv(stay), replies={"full": [NEXT]}).backends


def no_browser(plan: EvalPlan) -> Backends:
    def missing() -> FakeEnv:
        raise BrowserMissing("there is no browser; install one")

    return Backends(missing, quiet(plan).make_model)


def planned(lab: Lab, **changes: Any) -> EvalPlan:
    return make_plan(lab.options(ANSWERS, **changes), lambda: ("full", "window"))


def play(lab: Lab, plan: EvalPlan, hands: Callable[[RunFolder], Hands]) -> bool:
    run = open_run(plan, fresh=False)
    try:
        with Runner(plan, run, hands(run), PlainProgress(sys.stderr)) as runner:
            runner.prepare()
            return runner.play_all()
    finally:
        run.unlock()


def pool(plan: EvalPlan, make: Callable[[EvalPlan], Backends], **more: Any) -> Callable[[RunFolder], Hands]:
    return lambda run: WorkerPool(plan, run, 2, make_backends=make, **more)


def test_two_processes_at_once_give_the_rows_of_one(tmp_path: Path) -> None:
    """Budgets that full KV's peaks decide are among them."""
    rows = []
    for name in ("alone", "together"):
        lab = Lab(tmp_path / name)
        lab.folder.mkdir()
        plan = planned(lab, budgets=("full/2", "3KiB"))
        started: list[PlannedEpisode] = []
        alone = name == "alone"
        hands = (
            (lambda run, p=plan: Player(p, run, quiet(p))) if alone else pool(plan, company, on_start=started.append)
        )
        assert play(lab, plan, hands)
        assert alone or len(started) == 12
        rows.append({row["episode_id"]: {k: v for k, v in row.items() if k not in VARY} for row in lab.rows()})
    assert len(rows[0]) == 12
    assert rows[0] == rows[1]
    assert {row["kv_budget"] for row in rows[0].values() if row["budget"] == "full/2"} == {"4KiB"}
    assert {row["success"] for row in rows[0].values()} == {True, False}
    assert len(list((tmp_path / "together" / "pids").iterdir())) == 2


def test_a_process_that_dies_ends_the_run_in_one_sentence_and_costs_no_row(lab: Lab) -> None:
    plan = planned(lab, policies=("full",))
    with pytest.raises(EvalError, match=r"a worker ended by itself.*with fewer --workers") as refusal:
        play(lab, plan, pool(plan, fatal))
    assert "\n" not in str(refusal.value)
    done = [row["task_id"] for row in lab.rows()]
    assert {"t-0", "t-1"} & set(done)
    assert "t-2" not in done
    assert play(lab, plan, pool(plan, quiet)), "the same command goes on"
    assert sorted(row["task_id"] for row in lab.rows()) == sorted(ANSWERS)


def test_every_row_says_how_much_less_it_took_than_full_kv(lab: Lab) -> None:
    """Full KV takes longer here, and its rows come first all the same."""
    plan = planned(lab, budgets=("3KiB",))
    assert play(lab, plan, pool(plan, slow_reference))
    assert all(row["full_peak_ratio"] for row in lab.rows())
    assert len({row["full_peak_ratio"] for row in lab.rows()}) == 2


def test_a_mistake_of_the_user_is_said_once(lab: Lab) -> None:
    plan = planned(lab)
    with pytest.raises(EvalError, match=r"^there is no browser; install one$"):
        play(lab, plan, pool(plan, no_browser))


def test_a_request_to_stop_ends_the_episodes_under_way(lab: Lab) -> None:
    plan = planned(lab, policies=("full",), max_steps=10_000)
    there = lab.folder / "there"
    assert not play(lab, plan, pool(plan, endless, interrupted=there.exists))
    assert "t-3" not in [row["task_id"] for row in lab.rows()]
    assert ended(int(there.read_text()))


def started(lab: Lab) -> subprocess.Popen[str]:
    """A process of its own, and group of processes, that plays what never ends, until Ctrl-C."""
    script = lab.folder / "run.py"
    script.write_text(
        "import sys; from pathlib import Path\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from eval_fakes import Lab; import test_workers as t; from agentkv_evals.interrupt import InterruptGuard\n"
        "if __name__ == '__main__':\n"
        f"    lab = Lab(Path({str(lab.folder)!r})); plan = t.planned(lab, policies=('full',), max_steps=10_000)\n"
        "    with InterruptGuard(lambda: None) as guard:\n"
        "        print('ready', flush=True)\n"
        "        print(t.play(lab, plan, t.pool(plan, t.endless, interrupted=guard.requested)))\n"
    )
    command, pipe = [sys.executable, str(script)], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


@pytest.mark.full
def test_ctrl_c_while_workers_are_starting_is_no_crash(lab: Lab) -> None:
    parent = started(lab)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.killpg(parent.pid, signal.SIGINT)
    out, err = parent.communicate(timeout=120)
    assert (parent.returncode, out) == (0, "False\n")
    assert "Traceback" not in err


@pytest.mark.full
def test_a_second_ctrl_c_ends_everything_at_once(lab: Lab) -> None:
    parent, there = started(lab), lab.folder / "there"
    within(120, lambda: there.exists() and bool(there.read_text()))
    for _ in range(2):
        os.killpg(parent.pid, signal.SIGINT)
    parent.communicate(timeout=60)
    within(60, lambda: ended(int(there.read_text())))


@pytest.mark.full
def test_workers_end_with_a_parent_that_was_killed(lab: Lab) -> None:
    parent = started(lab)
    there = lab.folder / "there"
    within(120, lambda: there.exists() and bool(there.read_text()))
    parent.send_signal(signal.SIGKILL)
    parent.communicate(timeout=60)
    within(60, lambda: ended(int(there.read_text())))


def within(seconds: float, holds: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"
    except FileNotFoundError:
        return True
