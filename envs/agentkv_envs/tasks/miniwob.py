"""The tasks of MiniWoB++ as a suite: one a page, wording and data by the episode's seed."""

from __future__ import annotations

import difflib
import fnmatch
from typing import Any

from agentkv_envs.errors import TaskError
from agentkv_envs.sites.miniwob.pages import task_names
from agentkv_envs.types import Task

SUITE = "miniwob"


def load(spec: str) -> list[Task]:
    """Tasks for "miniwob" or "miniwob:GLOB[,GLOB...]".

    Raises:
        EnvError: the package `miniwob` is not installed.
        TaskError: no task matches.
    """
    names = task_names()
    _, _, globs = spec.partition(":")
    if ":" not in spec:
        return [task(name) for name in names]
    chosen: set[str] = set()
    for glob in (part.strip() for part in globs.split(",")):
        found = fnmatch.filter(names, glob)
        if not found:
            near = difflib.get_close_matches(glob.strip("*?"), names, 3, 0.5) or names[:3]
            raise TaskError(spec, "", f"no task matches {glob!r}; near: {', '.join(near)}")
        chosen.update(found)
    return [task(name) for name in names if name in chosen]


def task(name: str) -> Task:
    """The task of a page; its intent becomes the page's own words once an episode has begun."""
    raw: dict[str, Any] = {"task_id": name, "agentkv": {"suite": SUITE}}
    return Task(
        task_id=name,
        sites=(SUITE,),
        intent="Do what the page asks for.",
        start_url=f"__MINIWOB__/miniwob/{name}.html",
        eval={"eval_types": [SUITE], SUITE: {}},
        oracle=(),
        raw=raw,
    )
