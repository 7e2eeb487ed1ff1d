"""The families of tasks, by site."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING

from agentkv_envs.errors import EnvError
from agentkv_envs.tasks.draft import FAMILIES, Family

if TYPE_CHECKING:
    from agentkv_envs.tasks.assemble import Spec
    from agentkv_envs.types import Task

MODULES = (
    "classifieds",
    "classifieds_basics",
    "cross",
    "forum",
    "forum_basics",
    "shopping",
    "shopping_basics",
    "shopping_first",
    "shopping_orders",
)


@functools.lru_cache(maxsize=1)
def load() -> dict[str, Family]:
    """All families by name."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
    return FAMILIES


def get(name: str) -> Family:
    """The family of that name.

    Raises:
        EnvError: there is none.
    """
    if name not in load():
        raise EnvError(f"there is no family {name!r}; there are {', '.join(load())}")
    return FAMILIES[name]


def spec_of(task: Task) -> Spec | None:
    """Where an embedded task comes from; None for a task that was read from elsewhere."""
    from agentkv_envs.tasks.assemble import Spec
    from agentkv_envs.tasks.manifest import VWA75

    extra = task.raw.get("agentkv", {})
    if task.suite == "train":
        return Spec(task.task_id, extra["family"])
    return VWA75.get(task.task_id) if task.suite == "vwa75" else None
