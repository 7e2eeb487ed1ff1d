"""What a training reports: a file with one JSON object a line, and live progress or the same lines for a program."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

FILE = "log.jsonl"
_QUIET_S = 30.0


class Log:
    """Appends rows to `log.jsonl` of a folder and passes each on.

    Args:
        step: rows of later steps are of a sitting whose end was lost, and go.
        show: gets every row.
    """

    def __init__(self, folder: Path, step: int, show: Callable[[dict[str, Any]], None] = lambda row: None):
        self.path = folder / FILE
        self._show = show
        kept = [row for row in read_log(self.path) if step and row["step"] <= step]
        self.path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")

    def step(self, step: int, tokens: int, **figures: float) -> None:
        """A step of the optimizer."""
        self._write({"kind": "step", "step": step, "tokens": tokens, **_short(figures)})

    def validation(self, step: int, tokens: int, name: str, figures: Mapping[str, float]) -> None:
        """A validation set after that step. Of the figures, `tokens` are those that were learned."""
        row = {"kind": "validation", "step": step, "tokens": tokens, "set": name}
        row["learned_tokens"] = figures["tokens"]
        self._write(row | _short({name: value for name, value in figures.items() if name != "tokens"}))

    def _write(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._show(row)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; a line that was cut off ends it."""
    rows: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def _short(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value if isinstance(value, int) else float(f"{value:.6g}") for name, value in figures.items()}


def as_line(row: dict[str, Any], steps: int) -> str:
    """A row in words."""
    at = f"step {row['step']}/{steps}"
    if row["kind"] == "step":
        return f"{at}  loss {row['loss']:.4f}  {row['tokens']:,} tokens  {row['tokens_per_s']:.0f} tokens/s"
    found = f"{at}  {row['set']}: loss {row['loss']:.4f}, "
    if "held" in row:
        return f"{found}NLL {row['nll']:.4f} (full {row['nll_full']:.4f}), a head holds {row['held']:.0f} tokens"
    return (
        f"{found}replies right {row['span_accuracy']:.1%} of {row['spans']}, "
        f"whole ways {row['document_accuracy']:.1%} of {row['documents']}"
    )


class Screen:
    """Shows rows on standard error: a live bar on a terminal, else a line for a validation or half a minute."""

    def __init__(self) -> None:
        self._steps = 0
        self._said = 0.0
        self._bar: Any = None

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, steps: int, done: int) -> None:
        """So many steps there are, and so many were done before."""
        self._steps = steps
        if sys.stderr.isatty():
            self._bar = _bar(steps, done)
            self._bar.start()

    def show(self, row: dict[str, Any]) -> None:
        """One row."""
        line = as_line(row, self._steps)
        if self._bar is not None:
            self._show_live(row, line)
        elif row["kind"] == "validation" or time.monotonic() - self._said > _QUIET_S:
            self._said = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def _show_live(self, row: dict[str, Any], line: str) -> None:
        if row["kind"] == "validation":
            self._bar.console.print(line, highlight=False, soft_wrap=True)
            return
        said = f"loss {row['loss']:.4f}  {row['tokens_per_s']:.0f} tokens/s"
        self._bar.update(self._bar.task_ids[0], completed=row["step"], said=said)


def _bar(steps: int, done: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    bar = Progress(TextColumn("training"), *columns, console=Console(stderr=True), transient=True)
    bar.add_task("training", total=steps, completed=done, said="")
    return bar
