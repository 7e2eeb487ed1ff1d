"""What stands behind `agentkv eval` and `agentkv runs`. Every function returns an exit code.

0: done. 1: done, but some episode ended as infra_error. 2: a mistake of the user, said in one line.
130 (143): interrupted; everything finished is kept and the same command goes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from agentkv.errors import AgentKVError
from agentkv_envs import EnvError
from agentkv_evals import files
from agentkv_evals.errors import EvalError
from agentkv_evals.interrupt import InterruptGuard
from agentkv_evals.options import EvalOptions
from agentkv_evals.outcomes import Outcome
from agentkv_evals.plan import EvalPlan, make_plan
from agentkv_evals.player import Backends, Hands, Player
from agentkv_evals.progress import Progress, choose_progress
from agentkv_evals.relative import times_less
from agentkv_evals.run_folder import RunFolder, find_run, list_runs, open_run
from agentkv_evals.runner import Runner, pending
from agentkv_evals.summary import summarize
from agentkv_evals.text import summary_lines, table


def run_eval(options: EvalOptions, backends: Backends | None = None) -> int:
    """Runs, or continues, an evaluation and writes its report.

    Args:
        options: what to run.
        backends: other ways to make the browser and the chat models than `WebEnv` and `ChatAgentKV`; not with several
            workers, which they cannot reach.
    """
    return _one_line_errors(lambda: _run_eval(options, backends))


def runs_list(runs_dir: Path, *, json_rows: bool = False) -> int:
    """Prints the runs of a folder, oldest first."""
    return _one_line_errors(lambda: _runs_list(runs_dir, json_rows))


def runs_show(run: str, runs_dir: Path, *, json_rows: bool = False) -> int:
    """Prints the summary of a run and its episodes; with `json_rows` the rows of results.jsonl."""
    return _one_line_errors(lambda: _runs_show(run, runs_dir, json_rows))


def runs_report(run: str, runs_dir: Path) -> int:
    """Writes summary.json and report.html of a run again and prints the report's path."""
    return _one_line_errors(lambda: _runs_report(run, runs_dir))


def _run_eval(options: EvalOptions, backends: Backends | None) -> int:
    # All that a run needs is imported now: a missing package must not show when the episodes are over.
    import agentkv_evals.report  # noqa: F401
    from agentkv.models import check_model
    from agentkv_evals.backends import check_budgets, policy_names, preflight

    out = sys.stderr if options.json else sys.stdout
    plan = make_plan(options, policy_names)
    check_budgets([arm for arm in plan.arms if times_less(arm.budget) is None])
    if backends is None and plan.needs_model:
        check_model(options.model)
    if backends is None:
        preflight(plan, out)
    run = open_run(plan, fresh=options.fresh)
    guard = InterruptGuard(lambda: print("stopping after this step; Ctrl-C again: now", file=sys.stderr))
    try:
        finished = _play(plan, run, backends, guard, out)
        if run.rows():
            write_report(run)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EvalError(
            f"cannot write to {run.path}: {error.strerror or error}; the {len(run.rows())} episodes that are finished "
            "are kept, and the same command goes on when this is mended"
        ) from error
    finally:
        run.unlock()
        run.remove_if_empty()
    return _conclude(plan, run, finished, guard, out)


def _play(plan: EvalPlan, run: RunFolder, backends: Backends | None, guard: InterruptGuard, out: TextIO) -> bool:
    rows = run.rows()
    todo = {episode.episode_id for episode in pending(plan, rows)}
    if todo and not run.new:
        run.record_start(plan.options.workers)
    state = (
        f"{len(todo)} of {len(plan.episodes)} episodes to run" if todo else "every episode is done (--fresh runs again)"
    )
    print(f"run {run.path}: {state}", file=out, flush=True)
    for note in plan.notes:
        print(f"note: {note}", file=out, flush=True)
    progress = choose_progress(json_rows=plan.options.json, out=out)
    try:
        with Runner(plan, run, _hands(plan, run, backends, guard, progress), progress) as runner:
            runner.prepare()
            progress.start(plan, {key: row for key, row in rows.items() if key not in todo})
            with guard:
                return runner.play_all()
    except KeyboardInterrupt:
        return False
    finally:
        progress.stop()


def _hands(
    plan: EvalPlan, run: RunFolder, backends: Backends | None, guard: InterruptGuard, progress: Progress
) -> Hands:
    from agentkv_evals.backends import default_backends
    from agentkv_evals.workers import WorkerPool

    started, interrupted = progress.episode_started, guard.requested
    if plan.options.workers > 1:
        if backends is not None:
            raise EvalError("several workers make their own browsers and models; leave out workers or backends")
        return WorkerPool(plan, run, plan.options.workers, on_start=started, interrupted=interrupted)
    return Player(
        plan,
        run,
        backends or default_backends(plan),
        on_start=started,
        on_step=progress.step_taken,
        interrupted=interrupted,
    )


def _conclude(plan: EvalPlan, run: RunFolder, finished: bool, guard: InterruptGuard, out: TextIO) -> int:
    rows = run.rows()
    if rows:
        for line in summary_lines(summarize(run)):
            print(line, file=out)
        print(f"report: {run.path / 'report.html'}", file=out)
    if not finished:
        print(
            f"interrupted: {len(rows)} of {len(plan.episodes)} episodes are done and kept; "
            "run the same command to go on",
            file=sys.stderr,
        )
        return guard.exit_code
    broken = sum(row["outcome"] == Outcome.INFRA_ERROR for row in rows.values())
    if broken:
        print(f"{broken} episodes ended as infra_error; --retry-errors runs them again", file=sys.stderr)
    return 1 if broken else 0


def write_report(run: RunFolder) -> Path:
    """Writes summary.json and report.html; returns the path of the report."""
    from agentkv_evals.report import render_report

    summary = summarize(run)
    files.write_json(run.path / "summary.json", summary)
    path = run.path / "report.html"
    files.write_text(path, render_report(run, summary))
    return path


def _runs_list(runs_dir: Path, json_rows: bool) -> int:
    if runs_dir.exists() and not runs_dir.is_dir():
        raise EvalError(f"{runs_dir} is a file, not a folder of runs")
    summaries = []
    for run in list_runs(runs_dir):
        try:
            summaries.append(summarize(run))
        except EvalError as error:
            print(f"agentkv: skipped: {error}", file=sys.stderr)
    if json_rows:
        _print_json(summaries)
        return 0
    if not summaries:
        print(f"no runs in {runs_dir}")
        return 0
    rows = [("run", "episodes", "success by policy")]
    for summary in summaries:
        won = ", ".join(f"{arm['label']} {arm['success']}/{arm['planned']}" for arm in summary["arms"])
        rows.append((summary["run"], f"{summary['finished_episodes']}/{summary['planned_episodes']}", won))
    print("\n".join(table(rows)))
    return 0


def _runs_show(name: str, runs_dir: Path, json_rows: bool) -> int:
    from agentkv_evals.progress import describe_row

    run = find_run(name, runs_dir)
    rows = list(run.rows().values())
    if json_rows:
        _print_json(rows)
        return 0
    print(f"{run.path}\n")
    print("\n".join(summary_lines(summarize(run))) + "\n")
    print("\n".join(describe_row(row) for row in rows))
    return 0


def _runs_report(name: str, runs_dir: Path) -> int:
    run = find_run(name, runs_dir)
    run.lock()
    try:
        print(write_report(run))
    finally:
        run.unlock()
    return 0


def _print_json(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


def _one_line_errors(work: Callable[[], int]) -> int:
    try:
        return work()
    except (AgentKVError, EnvError) as error:
        print("agentkv:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except OSError as error:
        print(f"agentkv: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("agentkv: interrupted", file=sys.stderr)
        return 130
