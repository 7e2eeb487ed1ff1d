"""Kinds of tasks are counted apart."""

from __future__ import annotations

from typing import Any

from agentkv_evals.summary import groups


def row(success: bool | None, **kind: Any) -> dict[str, Any]:
    return {"success": success, "held_out": None, "twin_of": None, "needle": None, **kind}


def test_held_out_families_needles_and_twins_are_counted_apart() -> None:
    rows = [
        row(True, held_out=True, needle="code"),
        row(False, held_out=True),
        row(True, held_out=False, needle="code", twin_of="shopping-005"),
        row(None, held_out=False, needle="relation"),
    ]
    assert groups(rows) == {
        "held out": {"success": 1, "finished": 2},
        "families trained on": {"success": 1, "finished": 2},
        "needles": {"success": 1, "finished": 2},
        "twins": {"success": 1, "finished": 1},
    }


def test_suites_without_kinds_and_rows_of_old_runs_have_no_groups() -> None:
    assert groups([row(True), {"success": True}]) == {}
