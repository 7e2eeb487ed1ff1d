"""db_state: rows an episode's databases must hold, and that nothing else in them has changed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from time import monotonic
from typing import Any

from agentkv_envs.errors import TaskError
from agentkv_envs.scoring.case import Case
from agentkv_envs.scoring.text import Unscored, match_content
from agentkv_envs.tasks.state import FIELD, columns, tables

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
# The others draw by chance, make values of any size, or work for minutes in one step.
_FUNCTIONS = (
    *("count", "sum", "total", "avg", "min", "max", "group_concat", "abs", "round"),
    *("length", "lower", "upper", "trim", "ltrim", "rtrim", "substr", "substring", "replace"),
    *("instr", "like", "glob", "match", "coalesce", "ifnull", "nullif", "iif", "typeof"),
    *("date", "time", "datetime", "julianday", "strftime"),
)
_STEPS, _MAX_TICKS, _SECONDS = 1_000, 10_000, 5.0
_LIMITS = {sqlite3.SQLITE_LIMIT_LENGTH: 100_000, sqlite3.SQLITE_LIMIT_COLUMN: 100}
# So many of the rows a query gave stand in the score's note.
_SHOWN = 3
# What a visit itself writes: sign-ins and one-time messages.
_ALWAYS_FREE = ("session", "flash")


async def db_state(case: Case) -> tuple[bool, str]:
    """Whether every query gives the expected rows, and whether the rest is as it was at the episode's start.

    Raises:
        Unscored: the task has no embedded database.
        TaskError: a query is not allowed, or does not end.
    """
    state = case.eval["db_state"]
    databases = {site.name: site.database for site in case.episode.sites}
    if not databases:
        raise Unscored("there is no embedded database to look into")
    for i, query in enumerate(state.get("rows", ())):
        most = max(len(query["expect"]) + 1, _SHOWN)
        rows = select(databases[query["site"]], query["sql"], case.task.task_id, most)
        if not same_rows(rows, query["expect"], case.dialect):
            return False, f"query {i} gave {_short(rows)}"
    for name, free in state.get("unchanged", {}).items():
        now = databases[name].serialize()
        changes = changed_tables(case.episode.before[name], now, free)
        if changes:
            return False, f"{name} also changed: {', '.join(changes)}"
    return True, ""


def _short(rows: Sequence[Sequence[Any]]) -> str:
    return f"{[list(row) for row in rows[:_SHOWN]]!r}"[:120]


def select(database: sqlite3.Connection, sql: str, where: str, most: int = 1000) -> list[tuple[Any, ...]]:
    """The first `most` rows of a query on a copy of the database, on which nothing but reading is allowed.

    What it may take is bounded: the steps of SQLite's machine, seconds, the size of a value and of a row. Sorting and
    joining beyond SQLite's page cache go to temporary files, not to memory.

    Raises:
        TaskError: it is no query, tries to write or attach, takes too much, or does not end.
    """
    ticks, until = 0, monotonic() + _SECONDS

    def tick() -> bool:
        nonlocal ticks
        ticks += 1
        return ticks > _MAX_TICKS or monotonic() > until

    with closing(sqlite3.connect(":memory:")) as copy:
        copy.deserialize(database.serialize())
        copy.execute("PRAGMA temp_store = FILE")
        for limit, value in _LIMITS.items():
            copy.setlimit(limit, value)
        copy.set_authorizer(_may)
        copy.set_progress_handler(tick, _STEPS)
        try:
            return copy.execute(sql).fetchmany(most)
        except (sqlite3.Error, sqlite3.Warning) as error:
            reason = "does not end" if "interrupted" in str(error) else str(error)
            raise TaskError(where, FIELD, f"{sql!r}: {reason}") from None


def _may(action: int, name: str | None, function: str | None, *_: object) -> int:
    known = action != sqlite3.SQLITE_FUNCTION or function in _FUNCTIONS
    return sqlite3.SQLITE_OK if action in _ALLOWED and known else sqlite3.SQLITE_DENY


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
        names = sorted({*tables(old), *tables(new)} - {*free, *_ALWAYS_FREE})
        return list(_differences(old, new, names, set(free)))


def _differences(
    old: sqlite3.Connection, new: sqlite3.Connection, names: Sequence[str], free: set[str]
) -> Iterator[str]:
    for table in names:
        rows = [_rows(database, table, free) for database in (old, new)]
        gone, come = (rows[0] - rows[1]).total(), (rows[1] - rows[0]).total()
        if gone or come:
            yield f"{table} (-{gone} +{come})"


def _rows(database: sqlite3.Connection, table: str, free: set[str]) -> Counter[tuple[Any, ...]]:
    name = table.replace('"', '""')
    named = columns(database, table)
    kept = ['"' + column.replace('"', '""') + '"' for column in named if f"{table}.{column}" not in free]
    if not kept:
        return Counter()
    return Counter(database.execute(f'SELECT {", ".join(kept)} FROM "{name}"').fetchall())
