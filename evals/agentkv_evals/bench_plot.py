"""A bench's rows as a picture: one bar per policy and budget, one panel per setting."""

from __future__ import annotations

from collections.abc import Sequence
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
_BASELINE, _OTHERS = "#64748b", "#0ea5e9"


@dataclass(frozen=True)
class Panel:
    """Bars under a heading, top to bottom. The first is the baseline: a dashed line goes on from its end."""

    title: str
    labels: tuple[str, ...]
    values: tuple[float, ...]


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
    """Write the panels below one another as .svg or .png. Raises EvalError if the file cannot be written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    heights = [0.7 + 0.32 * len(panel.labels) for panel in panels]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.0, 0.9 + sum(heights)))
        figure.suptitle(title.replace("$", r"\$"))  # a file's name is no formula
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
        try:
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise EvalError(f"cannot write {path}: {error.strerror or error}") from error
