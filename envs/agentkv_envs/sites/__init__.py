"""The embedded sites. A site gives each episode its own application and database."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from agentkv_envs.errors import EnvError

if TYPE_CHECKING:
    from playwright.async_api import Page
    from starlette.types import ASGIApp

    from agentkv_envs.types import Task

SPLITS = ("test", "train")


@dataclass(frozen=True)
class World:
    """What the data of an episode are drawn from.

    Attributes:
        seed: changes codes, numbers and other facts that must not be learnt by heart.
        split: "test" for the tasks that are reported; "train" has the same kinds of things under other names, so
            that nothing learnt there is an answer here.
    """

    seed: int = 0
    split: str = "test"

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise EnvError(f"unknown split {self.split!r}; there are {', '.join(SPLITS)}")
        try:
            whole = operator.index(self.seed)
        except TypeError:
            whole = None
        if whole is None or isinstance(self.seed, bool):
            raise EnvError(f"the data seed must be a whole number, not {self.seed!r}")
        object.__setattr__(self, "seed", whole)  # of numpy's numbers, Python's: data are drawn from its text


def _no_caption(path: str) -> str | None:
    return None


@dataclass(frozen=True)
class Site:
    """One episode's instance of a site.

    Attributes:
        name: the site's name in tasks; `__NAME__` in upper case stands for its address.
        app: the ASGI application.
        database: the episode's database, for evaluators to read.
        cookies: name to value, set before the first page so that the episode starts logged in.
        facts: what differs between data seeds; tasks write `__KEY__` for a value.
        close: frees the database.
        caption: what an embedded picture shows (the "oracle" caption), by the path and query of its address as the
            page's `<img src>` has it, such as "/media/17.png"; None for pictures that show nothing to tell (icons).
            One short phrase in lower case of at most 60 characters, such as "two red striped mugs seen from above";
            attribute words come from `agentkv_envs.captions.ATTRIBUTES` where it has one, because noisy captions
            replace exactly those. The `alt` text of such a picture is "" or neutral: it must not tell the same.
        started: given the first page, what the task has become by it; None: it stays as it is.
    """

    name: str
    app: ASGIApp
    database: sqlite3.Connection
    cookies: dict[str, str]
    facts: dict[str, str]
    close: Callable[[], None]
    caption: Callable[[str], str | None] = _no_caption
    started: Callable[[Page, Task], Awaitable[Task]] | None = None


# A site is a subpackage of its name with a function `open_site(world, addresses) -> Site` in its module `site`.
SITE_NAMES = ("classifieds", "forum", "home", "miniwob", "shopping", "wiki")


def open_site(name: str, world: World, addresses: Mapping[str, str]) -> Site:
    """A fresh instance of a site for one episode.

    Args:
        name: one of `SITE_NAMES`.
        world: what its data are drawn from.
        addresses: site name to address of the episode's sites, without a final slash; it is complete before the first
            request, not necessarily now. Sites link to one another through it.

    Raises:
        EnvError: there is no such site.
    """
    if name not in SITE_NAMES:
        raise EnvError(f"there is no embedded site {name!r}; there are {', '.join(SITE_NAMES)}")
    opened: Site = import_module(f"agentkv_envs.sites.{name}.site").open_site(world, addresses)
    return opened
