"""The folder of one run: `<runs>/<utc>-<name>-<hash>/`.

config.json       what was asked, and every start of the program that worked on it
results.jsonl     one row per finished episode, on disk before the next one begins
episodes/<id>/    steps.jsonl, screenshots
summary.json, report.html
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agentkv_evals import files
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import EvalPlan
from agentkv_evals.provenance import describe

SCHEMA = 1
_ROW_KEYS = ("episode_id", "task_id", "policy", "budget", "outcome", "success", "steps", "peak_kv_bytes")


class RunFolder:
    """A run on disk. Reading works on any run; writing needs `lock()`."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        self.new = new
        self._lock: int | None = None

    @property
    def config(self) -> dict[str, Any]:
        """config.json. Raises EvalError if this is no run folder."""
        path = self.path / "config.json"
        config = files.read_json(path)
        missing = [key for key in ("settings", "tasks", "starts") if key not in config]
        if missing or "arms" not in config["settings"]:
            raise EvalError(f"{path} is not the config of a run: it lacks {(missing or ['settings.arms'])[0]!r}")
        return config

    def rows(self) -> dict[str, dict[str, Any]]:
        """Results by episode id; of an episode that was run again, the last. Raises EvalError for a foreign row."""
        path = self.path / "results.jsonl"
        rows = files.read_lines(path)
        for number, row in enumerate(rows, start=1):
            missing = [key for key in _ROW_KEYS if key not in row]
            if missing:
                raise EvalError(f"{path}, line {number}: not a result, it lacks {missing[0]!r}; delete that line")
        return {row["episode_id"]: row for row in rows}

    def steps(self, episode_id: str) -> list[dict[str, Any]]:
        """Step rows of an episode; none if it has not started."""
        return files.read_lines(self.episode_dir(episode_id) / "steps.jsonl")

    def episode_dir(self, episode_id: str) -> Path:
        """Folder of an episode; need not exist."""
        return self.path / "episodes" / episode_id

    def start_episode(self, episode_id: str) -> Path:
        """An empty folder for an episode; what an interrupted try left in it is deleted."""
        folder = self.episode_dir(episode_id)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def append_row(self, row: dict[str, Any]) -> None:
        """Adds a finished episode; it is on disk when this returns."""
        files.append_line(self.path / "results.jsonl", row)

    def record_start(self, workers: int) -> None:
        """Adds this start of the program to config.json."""
        config = self.config
        config["starts"] = [*config["starts"], describe(workers)]
        files.write_json(self.path / "config.json", config)

    def fixed_budget(self, name: str, make: Callable[[], str]) -> str:
        """What a budget was set to in this run; set now and written to config.json if it was not yet."""
        config = self.config
        known: dict[str, str] = config.setdefault("budgets", {})
        if name not in known:
            known[name] = make()
            files.write_json(self.path / "config.json", config)
        return known[name]

    def lock(self) -> None:
        """Claims the folder for this process until `unlock()`. Raises EvalError if another one writes it."""
        handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise EvalError(
                f"another process is working on {self.path}; wait for it, or use --fresh for a second run"
            ) from error
        self._lock = handle
        files.drop_torn_line(self.path / "results.jsonl")

    def unlock(self) -> None:
        """Gives the folder back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove_if_empty(self) -> None:
        """Deletes the folder if no episode was finished in it, as after a model that cannot be loaded."""
        if not self.rows():
            shutil.rmtree(self.path, ignore_errors=True)


def open_run(plan: EvalPlan, *, fresh: bool) -> RunFolder:
    """The newest run with the plan's name and settings, or a new one; locked.

    Raises EvalError if the folder cannot be written or another process works on it.
    """
    options = plan.options
    try:
        options.runs_dir.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(options.runs_dir):  # two that start together must not both find nothing
            known = sorted(options.runs_dir.glob(f"*-{options.run_name}-{plan.fingerprint}"))
            known = [path for path in known if (path / "config.json").exists()]
            run = RunFolder(known[-1]) if known and not fresh else _create(plan)
            run.lock()
    except OSError as error:
        reason = error.strerror or str(error)
        raise EvalError(
            f"cannot write to the runs folder {options.runs_dir}: {reason}; choose another with --runs-dir"
        ) from error
    return run


@contextmanager
def _one_at_a_time(runs_dir: Path) -> Iterator[None]:
    handle = os.open(runs_dir, os.O_RDONLY)  # the folder itself is the lock: no file is left behind
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def find_run(run: str | Path, runs_dir: Path) -> RunFolder:
    """A run by path, by folder name, or by the start or end of its name ("latest": the newest).

    Raises EvalError if there is none, or more than one.
    """
    path = Path(run)
    if (path / "config.json").is_file():
        return RunFolder(path)
    names = {folder.path.name: folder for folder in list_runs(runs_dir)}
    if str(run) == "latest" and names:
        return names[max(names)]
    hits = [name for name in names if name == str(run)] or [
        name for name in names if name.startswith(str(run)) or name.endswith(str(run))
    ]
    if len(hits) == 1:
        return names[hits[0]]
    if hits:
        raise EvalError(f"{run!r} fits {len(hits)} runs: {_some(hits)}; write more of the name")
    raise EvalError(f"no run {str(run)!r} in {runs_dir}; " + (f"there are: {_some(names)}" if names else "it has none"))


def list_runs(runs_dir: Path) -> list[RunFolder]:
    """All runs of the folder, oldest first; none if it does not exist."""
    if not runs_dir.is_dir():
        return []
    return [RunFolder(path) for path in sorted(runs_dir.iterdir()) if (path / "config.json").is_file()]


def _create(plan: EvalPlan) -> RunFolder:
    options = plan.options
    path = _new_folder(options.runs_dir, f"{options.run_name}-{plan.fingerprint}")
    (path / "results.jsonl").touch()
    (path / "episodes").mkdir()
    config = {
        "schema": SCHEMA,
        "name": options.run_name,
        "fingerprint": plan.fingerprint,
        "suite": plan.tasks[0].suite,
        "source": options.tasks or str(options.task_file),
        "settings": plan.settings(),
        "tasks": {task.task_id: task.intent for task in plan.tasks},
        "starts": [describe(options.workers)],
    }
    files.write_json(path / "config.json", config)
    return RunFolder(path, new=True)


def _new_folder(runs_dir: Path, name: str) -> Path:
    now = datetime.now(UTC)
    for second in range(60):  # two runs may start in one second
        stamp = (now + timedelta(seconds=second)).strftime("%Y%m%dT%H%M%SZ")
        path = runs_dir / f"{stamp}-{name}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise EvalError(f"{runs_dir} is full of runs called {name} that started this minute")


def _some(names: Iterable[str], limit: int = 5) -> str:
    listed = sorted(names, reverse=True)
    return ", ".join(listed[:limit]) + (f" and {len(listed) - limit} more" if len(listed) > limit else "")
