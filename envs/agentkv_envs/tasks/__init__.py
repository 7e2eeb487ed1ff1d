"""Tasks: their JSON, the suites that ship with the package, and binding to a running episode."""

from __future__ import annotations

import difflib
import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from agentkv_envs.errors import TaskError
from agentkv_envs.tasks import miniwob, official
from agentkv_envs.tasks.files import below
from agentkv_envs.tasks.schema import read_task
from agentkv_envs.types import Task

SUITES = ("vwa75", "vwa75-lite", "train", *official.SUITES, miniwob.SUITE)
_LITE = 25
_PLACEHOLDER = re.compile(r"__([A-Z][A-Z0-9_]*?)__")


def load_suite(spec: str, vwa_configs: str | Path | None = None) -> list[Task]:
    """The tasks of a suite: "vwa75", or "vwa75:GLOB[,GLOB...]" for those whose id matches.

    "vwa75-lite" are the 25 tasks of `vwa75` with the shortest oracles. "train" has a task of each family that may be
    trained on, in the worlds of training: to choose by, without a look at the tests.

    "vwa:SITE:0-50" and "vwa75-official" are tasks on VisualWebArena's real hosts, read from `vwa_configs` (see
    `official`); "miniwob" are those of the installed MiniWoB++.

    Raises:
        TaskError: no such suite (lists them), or no task matches (lists near ids).
    """
    if not spec.strip():
        raise TaskError("tasks", "", f"no suite is named; there are {', '.join(SUITES)}")
    name, _, globs = spec.partition(":")
    if name in official.SUITES:
        return official.load(spec, vwa_configs)
    if name == miniwob.SUITE:
        return miniwob.load(spec)
    if name not in SUITES:
        raise TaskError(spec, "", f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    tasks = _shipped(name)
    if ":" in spec and not globs.strip(" ,"):
        raise TaskError(spec, "", "there is nothing after the colon; write SUITE or SUITE:GLOB")
    if not globs.strip():
        return tasks
    chosen: dict[str, Task] = {}
    for glob in filter(None, (g.strip() for g in globs.split(","))):
        found = [task for task in tasks if fnmatch.fnmatchcase(task.task_id, glob)]
        if not found:
            ids = [task.task_id for task in tasks]
            near = difflib.get_close_matches(glob.strip("*?"), ids, 3, 0.5) or ids[:3]
            raise TaskError(spec, "", f"no task matches {glob!r}; near: {', '.join(near)}")
        chosen.update((task.task_id, task) for task in found)
    return [task for task in tasks if task.task_id in chosen]


def _shipped(suite: str) -> list[Task]:
    if suite == "vwa75-lite":
        tasks = _shipped("vwa75")
        shortest = {t.task_id for t in sorted(tasks, key=lambda t: (len(t.oracle), t.task_id))[:_LITE]}
        return [task for task in tasks if task.task_id in shortest]
    if suite == "train":
        from agentkv_envs.tasks import training

        return training.suite()
    folder = resources.files(__package__ or "").joinpath(suite)
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return [read_task(json.loads(f.read_text("utf-8")), f"{suite}/{f.name}") for f in files]


def load_task_file(path: str | Path) -> list[Task]:
    """Tasks from a JSON file that holds one task object or a list of them.

    Raises:
        TaskError: the file cannot be read, is not JSON, or a task in it is wrong (file, field, reason).
    """
    source = str(path)
    try:
        data = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise TaskError(source, "", f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise TaskError(source, "", "is not a UTF-8 text file") from None
    except json.JSONDecodeError as error:
        raise TaskError(source, "", f"is not JSON: {error.msg} in line {error.lineno}") from None
    except RecursionError:
        raise TaskError(source, "", "is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise TaskError(source, "", f"cannot be read: {error}") from None
    items = data if isinstance(data, list) else [data]
    if not items:
        raise TaskError(source, "", "holds no tasks")
    tasks = [_own(item, source, f"[{i}]." if isinstance(data, list) else "") for i, item in enumerate(items)]
    seen: set[str] = set()
    for task in tasks:
        if task.task_id in seen:
            raise TaskError(source, "task_id", f"{task.task_id!r} stands there twice")
        seen.add(task.task_id)
    return tasks


def _own(data: Any, source: str, prefix: str) -> Task:
    """A file's task: a copy of a suite's, perhaps changed, is neither drawn again nor counted as the suite's."""
    task = replace(read_task(data, source, prefix), folder=str(Path(source).absolute().parent))
    for picture in task.images:
        if not picture.startswith(("http://", "https://", "__")) and below(task.folder, picture) is None:
            raise TaskError(source, f"{prefix}image", f"there is no picture {picture!r} in the folder of the file")
    if task.suite not in SUITES:
        return task
    return replace(task, raw={**task.raw, "agentkv": {**task.raw["agentkv"], "suite": "file"}})


def bind(task: Task, values: Mapping[str, str]) -> Task:
    """The task with its placeholders (`__SHOPPING__`, `__WELCOME_CODE__`) replaced by an episode's values.

    Raises:
        TaskError: a placeholder that none of the task's sites knows.
    """

    def fill(value: Any, field: str) -> Any:
        if isinstance(value, str):
            return _PLACEHOLDER.sub(lambda m: _value(task, values, m.group(1), field), value)
        if isinstance(value, Mapping):
            return {key: fill(item, f"{field}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(fill(item, field) for item in value)
        return value

    return replace(
        task,
        intent=fill(task.intent, "intent"),
        start_url=fill(task.start_url, "start_url"),
        eval=fill(task.eval, "eval"),
        oracle=fill(task.oracle, "agentkv.oracle"),
    )


def _value(task: Task, values: Mapping[str, str], name: str, field: str) -> str:
    if name not in values:
        near = difflib.get_close_matches(name, list(values), 1)
        hint = f"; did you mean __{near[0]}__?" if near else ""
        raise TaskError(task.task_id, field, f"unknown placeholder __{name}__{hint}")
    return values[name]
