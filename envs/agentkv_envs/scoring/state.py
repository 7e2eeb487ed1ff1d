"""db_state: rows an episode's databases must hold, and that nothing else in them has changed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from agentkv_envs.errors import TaskError
from agentkv_envs.scoring.case import Case
from agentkv_envs.scoring.text import Unscored, match_content

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_STEPS, _MAX_TICKS = 10_000, 5_000
# What a visit itself writes: sign-ins and one-time messages.
_ALWAYS_FREE = ("session", "flash")


async def db_state(case: Case) -> tuple[bool, str]:
    """Whether every query gives the expected rows, and whether the rest is as it was at the episode's start.

    Raises:
        Unscored: the task has no embedded database.
        TaskError: a query is wrong, or names a site that the task does not have.
    """
    state = case.eval["db_state"]
    databases = {site.name: site.database for site in case.episode.sites}
    if not databases:
        raise Unscored("there is no embedded database to look into")
    for i, query in enumerate(state.get("rows", ())):
        rows = select(_of(case, databases, query["site"]), query["sql"], case.task.task_id)
        if not same_rows(rows, query["expect"], case.dialect):
            return False, f"query {i} gave {_short(rows)}"
    for name, free in state.get("unchanged", {}).items():
        now = _of(case, databases, name).serialize()
        changes = changed_tables(case.episode.before[name], now, free)
        if changes:
            return False, f"{name} also changed: {', '.join(changes)}"
    return True, ""


def _of(case: Case, databases: Mapping[str, sqlite3.Connection], name: str) -> sqlite3.Connection:
    if name not in databases:
        raise TaskError(case.task.task_id, "agentkv.eval_ext.db_state", f"the task has no site {name!r}")
    return databases[name]


def _short(rows: Sequence[Sequence[Any]]) -> str:
    return f"{[list(row) for row in rows[:3]]!r}"[:120]


def select(database: sqlite3.Connection, sql: str, where: str) -> list[tuple[Any, ...]]:
    """The rows of a query on a copy of the database, on which nothing but reading is allowed.

    Raises:
        TaskError: it is no query, tries to write or attach, or does not end.
    """
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return ticks > _MAX_TICKS

    with closing(sqlite3.connect(":memory:")) as copy:
        copy.deserialize(database.serialize())
        copy.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
        copy.set_progress_handler(tick, _STEPS)
        try:
            return copy.execute(sql).fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise TaskError(where, "agentkv.eval_ext.db_state", f"{sql!r}: {error}") from None


def same_rows(rows: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]], dialect: str) -> bool:
    """Whether the rows are the expected ones in some order.

    A cell is a value, compared as itself or as text, or an object such as {"must_include": ["red"]}.
    """
    left = list(rows)
    if len(left) != len(expected):
        return False
    for wanted in expected:
        match = next((row for row in left if _same_row(row, wanted, dialect)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _same_row(row: Sequence[Any], wanted: Sequence[Any], dialect: str) -> bool:
    return len(row) == len(wanted) and all(
        _same_cell(cell, want, dialect) for cell, want in zip(row, wanted, strict=True)
    )


def _same_cell(cell: Any, wanted: Any, dialect: str) -> bool:
    if isinstance(wanted, dict):
        return match_content("" if cell is None else str(cell), wanted, dialect)
    if cell is None or wanted is None:
        return cell is wanted
    return bool(cell == wanted) or str(cell) == str(wanted)


def changed_tables(before: bytes, after: bytes, free: Sequence[str]) -> list[str]:
    """Tables that differ, with the number of rows gone and come: "orders (-0 +1)".

    Args:
        before, after: two serialized databases.
        free: tables ("orders") and columns ("product.stock") that may change; sign-ins always may.
    """
    with closing(sqlite3.connect(":memory:")) as old, closing(sqlite3.connect(":memory:")) as new:
        old.deserialize(before)
        new.deserialize(after)
        tables = sorted({*_tables(old), *_tables(new)} - {*free, *_ALWAYS_FREE})
        return list(_differences(old, new, tables, set(free)))


def _tables(database: sqlite3.Connection) -> set[str]:
    """Ordinary tables; the shadows of search indexes follow their contents."""
    rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    virtual = [name for name, sql in rows if sql and sql.upper().startswith("CREATE VIRTUAL")]
    return {
        name
        for name, _ in rows
        if not name.startswith("sqlite_") and not any(name == v or name.startswith(f"{v}_") for v in virtual)
    }


def _differences(
    old: sqlite3.Connection, new: sqlite3.Connection, tables: Sequence[str], free: set[str]
) -> Iterator[str]:
    for table in tables:
        rows = [_rows(database, table, free) for database in (old, new)]
        gone, come = (rows[0] - rows[1]).total(), (rows[1] - rows[0]).total()
        if gone or come:
            yield f"{table} (-{gone} +{come})"


def _rows(database: sqlite3.Connection, table: str, free: set[str]) -> Counter[tuple[Any, ...]]:
    name = table.replace('"', '""')
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{name}")')]
    kept = ['"' + column.replace('"', '""') + '"' for column in columns if f"{table}.{column}" not in free]
    if not kept:
        return Counter()
    return Counter(database.execute(f'SELECT {", ".join(kept)} FROM "{name}"').fetchall())
