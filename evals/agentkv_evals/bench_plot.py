"""Benches' rows as pictures: .svg or .png."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv_evals.errors import EvalError

_STYLE: Any = {
    "svg.hashsalt": "agentkv",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}
_BASELINE, _OTHERS, _GRID = "#64748b", "#0ea5e9", "#e2e8f0"
_LINES = (_OTHERS, "#e11d48", "#16a34a", "#d97706", "#7c3aed", _BASELINE)
_DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)))


@dataclass(frozen=True)
class Panel:
    """Bars under a heading, top to bottom. The first is the baseline: a dashed line goes on from its end."""

    title: str
    labels: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Curve:
    """A line through measured points."""

    label: str
    x: tuple[int, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """One measurement in a roofline: operations per byte moved, and 10⁹ operations per second."""

    label: str
    intensity: float
    gflop_per_s: float


@dataclass(frozen=True)
class Trace:
    """One value per decoded token; the first is that after the prefill."""

    label: str
    mib: tuple[float, ...]
    confidence: tuple[float | None, ...]


def check_plot_file(path: Path | None) -> None:
    """Raises EvalError if no plot could be written there; ModuleNotFoundError without matplotlib."""
    if path is None:
        return
    if path.suffix.lower() not in (".svg", ".png"):
        raise EvalError(f"--plot {path}: the name must end in .svg or .png")
    if not path.parent.is_dir():
        raise EvalError(f"--plot {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise EvalError(f"--plot {path} is a folder")
    import matplotlib  # noqa: F401 - missing, it should be missed now and not after the measurement


def save_plot(path: Path, panels: Sequence[Panel], value_name: str, title: str) -> None:
    """Write the panels of bars below one another. Raises EvalError if the file cannot be written."""
    heights = [0.7 + 0.32 * len(panel.labels) for panel in panels]
    with _figure(path, title, 0.9 + sum(heights)) as figure:
        grid = figure.subplots(len(panels), squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights})
        for axes, panel in zip(grid[:, 0], panels, strict=True):
            rows = range(len(panel.labels))
            colors = [_BASELINE, *[_OTHERS] * (len(panel.labels) - 1)]
            bars = axes.barh(rows, panel.values, color=colors, height=0.6)
            axes.bar_label(bars, fmt="%.4g", padding=3)
            axes.axvline(panel.values[0], color=_BASELINE, ls=(0, (4, 3)), lw=0.9)
            axes.set_yticks(rows, panel.labels)
            axes.tick_params(axis="y", length=0)
            axes.invert_yaxis()
            axes.set_title(panel.title, loc="left", fontsize=10)
            axes.margins(x=0.12)
        grid[-1, 0].set_xlabel(value_name)


def save_curves(path: Path, curves: Sequence[Curve], x_name: str, y_name: str, title: str) -> None:
    """Write curves over few, unevenly spaced values of x, which become the ticks. Raises as :func:`save_plot`."""
    ticks = sorted({x for curve in curves for x in curve.x})
    with _figure(path, title, 4.2) as figure:
        axes = figure.subplots()
        for number, curve in enumerate(curves):
            color, dashes = _look(number)
            axes.plot(curve.x, curve.y, marker="o", ms=4, color=color, ls=dashes, label=curve.label)
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{x:,}" for x in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=_GRID, lw=0.6)
        axes.set_xlabel(x_name)
        axes.set_ylabel(y_name)
        axes.legend(frameon=False, fontsize=9)


def save_traces(path: Path, traces: Sequence[Trace], title: str) -> None:
    """Write memory per step, and the confidence of those that have one below it. Raises as :func:`save_plot`."""
    felt = [(number, trace) for number, trace in enumerate(traces) if any(c is not None for c in trace.confidence)]
    rows = 1 + bool(felt)
    with _figure(path, title, 2.6 + 1.6 * rows) as figure:
        grid = figure.subplots(rows, squeeze=False, sharex=True, gridspec_kw={"height_ratios": [2.4, 1][:rows]})
        memory = grid[0, 0]
        for number, trace in enumerate(traces):
            color, dashes = _look(number)
            memory.plot(trace.mib, color=color, ls=dashes, lw=1.3, label=trace.label, drawstyle="steps-post")
        memory.set_ylabel("resident KV, MiB")
        memory.set_ylim(bottom=0)
        memory.legend(frameon=False, fontsize=9, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
        for number, trace in felt:
            grid[1, 0].plot(trace.confidence, color=_look(number)[0], lw=0.8)
            grid[1, 0].set_ylabel("confidence")
            grid[1, 0].set_ylim(0, 1)
        grid[-1, 0].set_xlabel("decoded tokens")


def save_scatter(
    path: Path,
    points: Sequence[tuple[float, float]],
    means: Sequence[tuple[float, float]],
    x_name: str,
    y_name: str,
    title: str,
) -> None:
    """Write points (x, y), with means of fifths of them on top, y logarithmic. Raises as :func:`save_plot`."""
    with _figure(path, title, 4.2) as figure:
        axes = figure.subplots()
        axes.scatter(*zip(*points, strict=True), s=6, color=_OTHERS, alpha=0.35, lw=0, label="one position")
        axes.plot(*zip(*means, strict=True), marker="o", color=_BASELINE, label="mean of a fifth")
        axes.set_yscale("log")
        axes.set_xlabel(x_name)
        axes.set_ylabel(y_name)
        axes.grid(axis="y", color=_GRID, lw=0.6)
        axes.legend(frameon=False, fontsize=9)


def save_roofline(path: Path, points: Sequence[Point], bandwidth: float, title: str) -> None:
    """Write points under the roof that a copy's bandwidth (10⁹ bytes per second) sets. Raises as :func:`save_plot`."""
    with _figure(path, title, 4.2) as figure:
        axes = figure.subplots()
        ends = [min(p.intensity for p in points) / 2, max(p.intensity for p in points) * 2]
        axes.plot(
            ends, [bandwidth * x for x in ends], color=_BASELINE, label=f"a copy's bandwidth, {bandwidth:,.0f} GB/s"
        )
        for number, label in enumerate(dict.fromkeys(point.label for point in points)):
            own = [(p.intensity, p.gflop_per_s) for p in points if p.label == label]
            axes.scatter(*zip(*own, strict=True), s=16, color=_look(number)[0], alpha=0.7, lw=0, label=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("operations per byte")
        axes.set_ylabel("10⁹ operations per second")
        axes.grid(color=_GRID, lw=0.6)
        axes.legend(frameon=False, fontsize=9)


def _look(number: int) -> tuple[str, Any]:
    """Colour and dashes of a line; no two of the first 18 look the same."""
    return _LINES[number % len(_LINES)], _DASHES[number // len(_LINES) % len(_DASHES)]


@contextmanager
def _figure(path: Path, title: str, height: float) -> Iterator[Any]:
    """A figure to draw into, written when done; inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.0, height))
        figure.suptitle(title.replace("$", r"\$"))  # a file's name is no formula
        yield figure
        try:
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise EvalError(f"cannot write {path}: {error.strerror or error}") from error
