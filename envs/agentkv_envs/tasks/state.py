"""Whether an episode's databases have what a task's `db_state` is about: known before the episode is played."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from agentkv_envs.errors import TaskError
from agentkv_envs.types import Task

FIELD = "agentkv.eval_ext.db_state"


def check_state(task: Task, databases: Mapping[str, sqlite3.Connection]) -> None:
    """Look for the sites, tables and columns that the task's `db_state` names, and compile its queries.

    Args:
        databases: the episode's, by the name of their site.

    Raises:
        TaskError: one is not there, or a query is wrong.
    """
    state = task.eval["db_state"] if "db_state" in task.eval["eval_types"] else {}
    for i, query in enumerate(state.get("rows", ())):
        database = _of(task, databases, query["site"])
        try:
            database.execute(f"EXPLAIN {query['sql']}").close()
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise TaskError(task.task_id, f"{FIELD}.rows[{i}].sql", f"{query['sql']!r}: {error}") from None
    for site, free in state.get("unchanged", {}).items():
        _check_names(task, site, _of(task, databases, site), free)


def _of(task: Task, databases: Mapping[str, sqlite3.Connection], site: str) -> sqlite3.Connection:
    if site not in databases:
        reason = f"the task has no site {site!r}; it has {', '.join(databases)}"
        raise TaskError(task.task_id, FIELD, reason)
    return databases[site]


def _check_names(task: Task, site: str, database: sqlite3.Connection, names: Sequence[str]) -> None:
    known = sorted(tables(database))
    for name in names:
        table, dot, column = name.partition(".")
        there = known if table not in known else columns(database, table)
        if table not in known or (dot and column not in there):
            what = f"table {table!r}" if table not in known else f"column {column!r} in the table {table}"
            reason = f"the database of {site} has no {what}; there are {', '.join(there)}"
            raise TaskError(task.task_id, f"{FIELD}.unchanged.{site}", reason)


def tables(database: sqlite3.Connection) -> set[str]:
    """Ordinary tables; the shadows of search indexes follow their contents."""
    rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    virtual = [name for name, sql in rows if sql and sql.upper().startswith("CREATE VIRTUAL")]
    return {
        name
        for name, _ in rows
        if not name.startswith("sqlite_") and not any(name == v or name.startswith(f"{v}_") for v in virtual)
    }


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    """Names of a table's columns."""
    name = table.replace('"', '""')
    return [row[1] for row in database.execute(f'PRAGMA table_info("{name}")')]
