"""How benches show themselves: the progress bar, rows as JSON, tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

_TABLE_WIDTH = 120


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error, if that is a terminal; yields the function that moves it by one."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda: progress.advance(bar)


def print_row(row: Any) -> None:
    """One JSON object on a line of its own."""
    print(json.dumps(asdict(row)), flush=True)


def new_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """A table of left-aligned columns, then right-aligned ones."""
    table = Table(title=escape(title), title_justify="left", caption_justify="left")
    for heading in texts:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def print_table(table: Table) -> None:
    """On standard output, wide enough also in a pipe."""
    console = Console()
    console.width = max(console.width, _TABLE_WIDTH)
    console.print(table)
