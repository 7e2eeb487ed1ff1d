"""Files that a task names by a path relative to its own folder."""

from __future__ import annotations

from pathlib import Path


def below(folder: str, source: str) -> Path | None:
    """The file `source` below `folder`; None where there is none, or where it lies outside."""
    if not folder:
        return None
    base = Path(folder).resolve()
    path = (base / source).resolve()
    return path if path.is_relative_to(base) and path.is_file() else None
