"""Tasks out of two halves: a fact is found in one place and used in another.

A family may join any `Found` with any `Use`; what lies between is the way from one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv_envs.tasks.draft import Draft, Draw, Needle, Step, act, pages, stop

_JOINTS = ("{Look}. Then {do}.", "First {look}. After that {do}.", "{Look}; once you know it, {do}.")


@dataclass(frozen=True)
class Found:
    """A fact and the way to it.

    Attributes:
        look: what to do to find it, as an order that begins in lower case, with `{{name}}` for `values`.
        fact: the text of the observation that holds it.
        value: what is to be repeated of it.
        note: the fact as a sentence.
        free: tables and columns by site that looking it up changes.
        compared: what it follows from, where things are compared; see `Needle`.
    """

    kind: str
    look: str
    values: Mapping[str, str]
    plan: tuple[Step, ...]
    fact: str
    value: str
    note: str
    free: Mapping[str, Sequence[str]] = field(default_factory=dict)
    compared: str = ""


@dataclass(frozen=True)
class Use:
    """What is done with a fact.

    Attributes:
        do: an order that begins in lower case; "that" is the fact.
        plan: the way, with the step that needs the fact marked.
        site, path: the page where it is needed.
        targets: targets of program_html.
        rows: queries of db_state.
        free: tables and columns by site that may change.
    """

    do: str
    values: Mapping[str, str]
    plan: tuple[Step, ...]
    site: str
    path: str
    targets: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    free: Mapping[str, Sequence[str]] = field(default_factory=dict)


def join(draw: Draw, found: Found, use: Use, start: Sequence[str], between: Sequence[Step] = ()) -> Draft:
    """The task of finding a fact and using it."""
    look = f"{found.look}, and close that tab" if _CLOSE in between else found.look
    template = draw.choice(_JOINTS).format(look=look, Look=look[0].upper() + look[1:], do=use.do)
    return Draft(
        template,
        {**found.values, **use.values},
        tuple(start),
        pages(*use.targets) if use.targets else {},
        (*found.plan, *between, *use.plan, stop()),
        Needle(found.kind, found.fact, found.note, use.site, use.path, found.compared),
        changes=True,
        eval_ext={"db_state": state(use.rows, found.free, use.free)},
    )


_CLOSE = act("close_tab")


def closing() -> tuple[Step, ...]:
    """Close the tab in which the fact was read, so that it cannot be looked up again."""
    return (_CLOSE,)


def state(rows: Sequence[Mapping[str, Any]], *free: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """db_state: these rows hold, and nothing changes but what is free."""
    sites = sorted({site for one in free for site in one})
    unchanged = {site: sorted({name for one in free for name in one.get(site, ())}) for site in sites}
    both = {"rows": [dict(row) for row in rows], "unchanged": unchanged}
    return {key: value for key, value in both.items() if value}


def rows(site: str, sql: str, *expect: Sequence[object]) -> dict[str, Any]:
    """A query of db_state and the rows it must give."""
    return {"site": site, "sql": sql, "expect": [list(row) for row in expect]}
