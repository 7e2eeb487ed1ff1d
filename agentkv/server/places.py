"""Where a server keeps sessions, and the names of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType

import psutil

from agentkv.models.registry import agentkv_home

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})


def default_sessions_folder() -> Path:
    """Below the cache folder."""
    return agentkv_home() / "sessions"


class SpillFolder:
    """Where idle sessions go: "cpu", None for nowhere, or a folder of this process that goes with it.

    Args:
        asked: "cpu", "none", a folder, or None for one below the cache folder. Memory would not stay inside the KV
            pool if sessions left it for other memory, so a folder is the default.
    """

    def __init__(self, asked: str | None):
        self._asked = asked
        self._folder: Path | None = None

    def __enter__(self) -> str | None:
        if self._asked in ("cpu", "none"):
            return None if self._asked == "none" else self._asked
        root = agentkv_home() / "spilled" if self._asked is None else Path(self._asked)
        _remove_dead(root)
        self._folder = root / str(os.getpid())
        self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        return str(self._folder)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _remove_dead(root: Path) -> None:
    """Folders of processes that were killed: what they spilled is of no use."""
    for folder in root.glob("*"):
        if folder.name.isdigit() and not psutil.pid_exists(int(folder.name)):
            shutil.rmtree(folder, ignore_errors=True)
