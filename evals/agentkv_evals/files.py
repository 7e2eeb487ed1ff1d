"""Files that survive a crash: lines that are on disk when the call returns, documents that are never half."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from agentkv_evals.errors import EvalError


def write_text(path: Path, text: str) -> None:
    """Replaces the file as a whole: a reader sees the old text or the new one."""
    temp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temp.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temp.replace(path)


def write_json(path: Path, data: Any) -> None:
    """`write_text` of readable JSON."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def append_line(path: Path, row: dict[str, Any], *, durable: bool = True) -> None:
    """Appends one JSON line; with `durable`, it is on disk when this returns."""
    line = json.dumps(row, ensure_ascii=False) + "\n"
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())
        if durable:
            os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All rows of a JSON-lines file; none if it does not exist.

    A last line without its newline is what a crash left of a row: it is skipped. Anything else that is no
    JSON object raises EvalError.
    """
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise EvalError(f"{path}, line {number}: not JSON ({error}); delete that line") from error
        if not isinstance(row, dict):
            raise EvalError(f"{path}, line {number}: not a JSON object; delete that line")
        rows.append(row)
    return rows


def drop_torn_line(path: Path) -> None:
    """Cuts off a last line that has no newline, so that the next append starts a line of its own."""
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
            os.fsync(file.fileno())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises EvalError if the file is missing or is something else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvalError(f"cannot read {path}: {error}") from error
    if not isinstance(data, dict):
        raise EvalError(f"cannot read {path}: it holds no JSON object")
    return data
