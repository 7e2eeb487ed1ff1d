"""Progress of a pull: a rich bar on a terminal, plain lines elsewhere, always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Progress(Protocol):
    """Where a pull says what it is doing."""

    def line(self, text: str) -> None:
        """Say one finished thing."""

    def step(self, text: str) -> AbstractContextManager[None]:
        """Say what is being done while the context is open."""

    def bytes(self, text: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Like `step`; the context gives a function that takes the bytes done so far."""


class PlainProgress:
    """One line per step, for logs and pipes."""

    def line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        self.line(f"{text} ...")
        yield

    @contextmanager
    def bytes(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        self.line(f"{text} ({total / 1e6:.0f} MB) ...")
        yield lambda done: None


class RichProgress:
    """Live spinner and byte bar, gone when done."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)

    def line(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        with self._console.status(text):
            yield

    @contextmanager
    def bytes(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Bar(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(text, total=total)
            yield lambda done: bar.update(task, completed=min(done, total))


def default_progress() -> Progress:
    """Rich on a terminal, plain lines elsewhere."""
    return RichProgress() if sys.stderr.isatty() else PlainProgress()
