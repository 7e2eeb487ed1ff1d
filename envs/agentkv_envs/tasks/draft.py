"""What a family of tasks is made of: a draw from the opened databases, and the draft it leads to.

A *family* is a function that draws entities and returns a `Draft`: what is asked, how it is scored, and a *plan*, the
way to the goal in steps that name things by label. The plan says what to find, not where it stands: `follow` (in
`oracle`) turns the pages of a list as long as that takes.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv_envs.actions import clean_label
from agentkv_envs.sites import World

NEEDLE_KINDS = ("code", "attribute", "relation")
READ = re.compile(r"(read|scan) \[(.*)\]", re.DOTALL)


class NoDraw(Exception):
    """The data of this world hold nothing that suits; another draw may."""


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        text: an action that names its element by label, or `read [text]`: look on until the text is shown, in texts
            that were cut short first; `scan [text]`: in lists only.
        uses: whether it is here that the needle is needed.
    """

    text: str
    uses: bool = False

    @property
    def reads(self) -> bool:
        """Whether it is no action of its own."""
        return READ.fullmatch(self.text) is not None


@dataclass(frozen=True)
class Needle:
    """A fact that is seen once and needed later.

    Attributes:
        kind: "code" (must be repeated to the letter), "attribute" (a property of one thing) or "relation" (follows
            from a comparison of things).
        fact: text of the observation that holds it.
        note: the fact as a sentence, which a twin of the task repeats where it is needed.
        site, path: the page where it is needed; in the path, which may have a query, `*` stands for anything.
        compared: what a relation follows from, see `side_by_side`; "" where nothing is compared.
    """

    kind: str
    fact: str
    note: str
    site: str
    path: str
    compared: str = ""


def side_by_side(*shown: tuple[str, object]) -> str:
    """Things and what pages say of them, in the order in which they are read."""
    return "; ".join(f"{thing}: {value}" for thing, value in shown)


@dataclass(frozen=True)
class Draft:
    """A drawn task.

    Attributes:
        template: the intent with `{{name}}` for what is drawn.
        values: name to drawn text.
        start: path per tab, with the site as placeholder ("__SHOPPING__/").
        eval: VisualWebArena's `eval` object, empty fields left out.
        plan: the way to the goal; it ends with `stop`.
        needle: the fact to be remembered, if there is one.
        changes: whether a solution changes the sites' data.
        why_not: why there is no solution, for tasks to be answered with N/A.
        eval_ext: our own evaluation beyond VisualWebArena's.
        alternatives: other plans that solve it too.
    """

    template: str
    values: Mapping[str, str]
    start: tuple[str, ...]
    eval: Mapping[str, Any]
    plan: tuple[Step, ...]
    needle: Needle | None = None
    changes: bool = False
    why_not: str = ""
    eval_ext: Mapping[str, Any] = field(default_factory=dict)
    alternatives: tuple[tuple[Step, ...], ...] = ()

    @property
    def intent(self) -> str:
        """The template with its values filled in."""
        return re.sub(r"\{\{(\w+)\}\}", lambda m: self.values[m.group(1)], self.template)

    @property
    def fact_step(self) -> int | None:
        """The number, from 1, of the first action of the plan that needs the needle; what is only read is no action."""
        actions = (step for step in self.plan if not step.reads)
        return next((number for number, step in enumerate(actions, 1) if step.uses), None)


@dataclass(frozen=True)
class Draw:
    """A family's view of a world: the sites' databases and a source of chance.

    Attributes:
        world: data seed and split.
        databases: site name to its opened database.
        rng: decides everything that is drawn.
        pinned: values that are given instead of drawn.
    """

    world: World
    databases: Mapping[str, sqlite3.Connection]
    rng: random.Random
    pinned: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, site: str, sql: str, *args: object) -> list[sqlite3.Row]:
        """All rows of a query on a site's database; sorted, so that no draw depends on SQLite's version."""
        found = self._cursor(site).execute(sql, args).fetchall()
        return found if "ORDER BY" in sql else sorted(found, key=lambda row: tuple(map(str, row)))

    def value(self, site: str, sql: str, *args: object) -> Any:
        """The first column of the first row.

        Raises:
            NoDraw: there is no row.
        """
        rows = self.rows(site, sql, *args)
        if not rows:
            raise NoDraw(sql)
        return rows[0][0]

    def one(self, site: str, sql: str, *args: object) -> sqlite3.Row:
        """Any row of a query.

        Raises:
            NoDraw: there is no row.
        """
        return self.some(site, 1, sql, *args)[0]

    def some(self, site: str, count: int, sql: str, *args: object) -> list[sqlite3.Row]:
        """`count` different rows of a query, in any order; the first column must tell rows apart.

        Raises:
            NoDraw: there are fewer.
        """
        cursor = self._cursor(site)
        (total,) = cursor.execute(f"SELECT COUNT(*) FROM ({sql})", args).fetchone()
        if total < count:
            raise NoDraw(sql)
        picked = self.rng.sample(range(total), count)
        return [cursor.execute(f"SELECT * FROM ({sql}) ORDER BY 1 LIMIT 1 OFFSET {n}", args).fetchone() for n in picked]

    def _cursor(self, site: str) -> sqlite3.Cursor:
        cursor = self.databases[site].cursor()
        cursor.row_factory = sqlite3.Row
        return cursor

    def choice(self, items: Sequence[Any]) -> Any:
        """Any of the items.

        Raises:
            NoDraw: there are none.
        """
        if not items:
            raise NoDraw("nothing to choose from")
        return self.rng.choice(items)


def require(condition: object) -> None:
    """Give up this draw unless the condition holds.

    Raises:
        NoDraw: it does not.
    """
    if not condition:
        raise NoDraw("a condition of the family does not hold")


@dataclass(frozen=True)
class Family:
    """A kind of task. `train` says whether training instances may be drawn from it."""

    name: str
    sites: tuple[str, ...]
    train: bool
    draw: Callable[[Draw], Draft]


FAMILIES: dict[str, Family] = {}


def family(*sites: str, train: bool = True) -> Callable[[Callable[[Draw], Draft]], Callable[[Draw], Draft]]:
    """Register a function as the family of its name, on these sites."""

    def register(function: Callable[[Draw], Draft]) -> Callable[[Draw], Draft]:
        name = function.__name__
        if name in FAMILIES:
            raise ValueError(f"the family {name!r} exists already")
        FAMILIES[name] = Family(name, sites, train, function)
        return function

    return register


# Steps


def click(label: str, *, uses: bool = False) -> Step:
    """Press the element of this label."""
    return Step(f'click "{clean_label(label)}"', uses)


def type_in(label: str, text: str, *, enter: bool = False, uses: bool = False) -> Step:
    """Replace a field's text."""
    return Step(f'type "{clean_label(label)}" [{text}] [{int(enter)}]', uses)


def select(label: str, option: str, *, uses: bool = False) -> Step:
    """Choose an option of a combobox."""
    return Step(f'select "{clean_label(label)}" [{option}]', uses)


def expand(label: str) -> Step:
    """Open what is collapsed under this label."""
    return Step(f'expand "{clean_label(label)}"')


def read(text: str) -> Step:
    """Look on until this text is shown."""
    return Step(f"read [{text}]")


def scan(text: str) -> Step:
    """Look through lists until this text is shown."""
    return Step(f"scan [{text}]")


def act(text: str) -> Step:
    """Any action, as text."""
    return Step(text)


def stop(answer: str = "", *, uses: bool = False) -> Step:
    """End with this answer."""
    return Step(f"stop [{answer}]", uses)


# Evaluation


def answer(*include: str, exclude: Sequence[str] = ()) -> dict[str, Any]:
    """string_match: the answer holds all of `include` and none of `exclude`."""
    references: dict[str, Any] = {"must_include": list(include)}
    if exclude:
        references["must_exclude"] = list(exclude)
    return {"eval_types": ["string_match"], "reference_answers": references}


def number(value: str) -> dict[str, Any]:
    """string_match: the answer is this number."""
    return {"eval_types": ["string_match"], "reference_answers": {"required_values": [f"== {value}"]}}


def ends_on(url: str) -> dict[str, Any]:
    """url_match: the episode ends on this page."""
    return {"eval_types": ["url_match"], "reference_url": url, "url_note": "EXACT"}


def page_holds(url: str, selector: str, **required: Any) -> dict[str, Any]:
    """One target of program_html: what the text of the element `selector` on a page must hold."""
    quoted = selector.replace("'", "\\'")
    locator = f"document.querySelector('{quoted}').outerText"
    return {"url": url, "locator": locator, "required_contents": required}


def pages(*targets: Mapping[str, Any], reply: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """program_html over several targets, with an answer to be given as well where there is one."""
    both: dict[str, Any] = {"eval_types": ["program_html"], "program_html": [dict(t) for t in targets]}
    if reply is not None:
        both = {**reply, "eval_types": [*reply["eval_types"], "program_html"], "program_html": both["program_html"]}
    return both


def unachievable() -> dict[str, Any]:
    """string_match: the answer is N/A and nothing else."""
    return {"eval_types": ["string_match"], "reference_answers": {"exact_match": "N/A"}}
