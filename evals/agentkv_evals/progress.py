"""What a user sees while a run is going on."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from agentkv_evals.plan import Arm, EvalPlan, PlannedEpisode

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

MIB = 2**20


class Progress(Protocol):
    """Listens to a run."""

    def start(self, plan: EvalPlan, rows: dict[str, dict[str, Any]]) -> None: ...
    def episode_started(self, episode: PlannedEpisode) -> None: ...
    def step_taken(self, step: dict[str, Any]) -> None: ...
    def episode_finished(self, row: dict[str, Any]) -> None: ...
    def stop(self) -> None: ...


def describe_row(row: dict[str, Any]) -> str:
    """A finished episode on one line."""
    reason = f" ({row['reason']})" if row["reason"] else ""
    budget = f" @ {row['budget']}" if row["budget"] else ""
    peak = "" if row["peak_kv_bytes"] is None else f", peak KV {row['peak_kv_bytes'] / MIB:.1f} MiB"
    return (
        f"{row['task_id']} {row['policy']}{budget}: {row['outcome']}{reason},"
        f" {row['steps']} steps{peak}, {row['wall_s']:.1f} s"
    )


class PlainProgress:
    """One line per finished episode, for pipes and log files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._done = 0
        self._total = 0

    def start(self, plan: EvalPlan, rows: dict[str, dict[str, Any]]) -> None:
        self._total = len(plan.episodes)
        self._done = len(rows)

    def episode_started(self, episode: PlannedEpisode) -> None:
        pass

    def step_taken(self, step: dict[str, Any]) -> None:
        pass

    def episode_finished(self, row: dict[str, Any]) -> None:
        self._done += 1
        print(f"[{self._done}/{self._total}] {describe_row(row)}", file=self._stream, flush=True)

    def stop(self) -> None:
        pass


class JsonProgress(PlainProgress):
    """Every row as JSON on stdout, rows of an earlier start first; the lines for people on stderr."""

    def start(self, plan: EvalPlan, rows: dict[str, dict[str, Any]]) -> None:
        super().start(plan, rows)
        for row in rows.values():
            self._print(row)

    def episode_finished(self, row: dict[str, Any]) -> None:
        self._print(row)
        super().episode_finished(row)

    def _print(self, row: dict[str, Any]) -> None:
        print(json.dumps(row, ensure_ascii=False), file=sys.stdout, flush=True)


class RichProgress:
    """A live table on a terminal: success and peak KV by policy, and the episode under way."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._rows: dict[Arm, list[dict[str, Any]]] = {}
        self._planned = 0
        self._now = ""
        self._steps = 0
        self._last: dict[str, Any] = {}
        self._live: Live | None = None

    def start(self, plan: EvalPlan, rows: dict[str, dict[str, Any]]) -> None:
        from rich.live import Live

        self._planned = len(plan.tasks) * plan.options.data_seeds
        self._rows = {arm: [] for arm in plan.arms}
        for row in rows.values():
            self._add(row)
        self._live = Live(self._table(), console=self._console, refresh_per_second=4, transient=True)
        self._live.start()

    def episode_started(self, episode: PlannedEpisode) -> None:
        self._now, self._steps, self._last = f"{episode.task.task_id}  {episode.arm.label}", 0, {}
        self._show()

    def step_taken(self, step: dict[str, Any]) -> None:
        self._steps, self._last = step["step"], step
        self._show()

    def episode_finished(self, row: dict[str, Any]) -> None:
        self._add(row)
        if self._live is not None:
            self._live.console.print(describe_row(row), highlight=False, markup=False)
        self._show()

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _add(self, row: dict[str, Any]) -> None:
        self._rows[Arm(row["policy"], row["budget"])].append(row)

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        # Page text and model replies are never markup.
        step = f"   step {self._steps}   {self._last.get('action') or ''}" if self._steps else ""
        caption = Text(f"{self._now}{step}"[:100])
        table = Table(caption=caption, caption_justify="left")
        for name in ("policy", "episodes", "success", "mean peak KV"):
            table.add_column(name, justify="left" if name == "policy" else "right")
        for arm, rows in self._rows.items():
            won = sum(row["success"] is True for row in rows)
            peaks = [row["peak_kv_bytes"] for row in rows if row["peak_kv_bytes"] is not None]
            peak = f"{sum(peaks) / len(peaks) / MIB:.1f} MiB" if peaks else "-"
            table.add_row(arm.label, f"{len(rows)}/{self._planned}", f"{won}/{len(rows)}", peak)
        return table


def choose_progress(*, json_rows: bool, out: TextIO) -> Progress:
    """The listener that fits where the output goes."""
    if json_rows:
        return JsonProgress(sys.stderr)
    return RichProgress() if out.isatty() else PlainProgress(out)
