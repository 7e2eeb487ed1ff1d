from __future__ import annotations

import io
from typing import Any

from eval_fakes import Lab
from rich.console import Console

from agentkv_evals.plan import make_plan
from agentkv_evals.progress import PlainProgress, RichProgress, choose_progress, describe_row

ROW: dict[str, Any] = {
    "task_id": "t-1", "policy": "window", "budget": "12MiB", "outcome": "early_stop", "reason": "max_steps",
    "steps": 30, "peak_kv_bytes": 12 * 2**20, "wall_s": 61.23, "success": False,
}  # fmt: skip
POLICIES = ("full", "window")


def test_a_row_on_one_line() -> None:
    assert describe_row(ROW) == "t-1 window @ 12MiB: early_stop (max_steps), 30 steps, peak KV 12.0 MiB, 61.2 s"
    plain = {**ROW, "policy": "none", "budget": None, "reason": "", "outcome": "success", "peak_kv_bytes": None}
    assert describe_row(plain) == "t-1 none: success, 30 steps, 61.2 s"


def test_plain_lines_count_on_after_a_resume(lab: Lab) -> None:
    out = io.StringIO()
    progress = choose_progress(json_rows=False, out=out)
    assert isinstance(progress, PlainProgress)
    progress.start(make_plan(lab.options(), lambda: POLICIES), {"a": ROW})
    progress.episode_finished(ROW)
    assert out.getvalue().startswith("[2/4] t-1 window @ 12MiB: early_stop")


def test_terminal_shows_success_and_memory_by_policy_and_the_step(lab: Lab) -> None:
    out = io.StringIO()
    plan = make_plan(lab.options(), lambda: POLICIES)
    progress = RichProgress(Console(file=out, force_terminal=True, width=100))
    progress.start(plan, {"a": ROW})
    progress.episode_started(plan.episodes[0])
    progress.step_taken({"step": 3, "action": "click [/markup] [1]"})
    progress.episode_finished({**ROW, "task_id": "t-2", "success": True, "outcome": "success", "reason": ""})
    progress.stop()
    progress.stop()  # safe twice
    shown = out.getvalue()
    for words in ("window @ 12MiB", "1/2", "2/2", "12.0 MiB", "step 3", "click [/markup] [1]", "t-2 window"):
        assert words in shown
