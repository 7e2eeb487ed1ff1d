"""Loss and accuracy of a training as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_COLOURS = ("#0ea5e9", "#e11d48", "#16a34a")
_TRAINING = "#94a3b8"


def save_picture(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Draw the rows of a log over the tokens seen: losses above, teacher-forced accuracy of whole actions below."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {"svg.hashsalt": "agentkv", "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.0, 6.0), layout="constrained")
        loss, accuracy = figure.subplots(2, sharex=True)
        steps = [row for row in rows if row["kind"] == "step"]
        loss.plot([r["tokens"] for r in steps], [r["loss"] for r in steps], color=_TRAINING, lw=0.8, label="training")
        checks = [row for row in rows if row["kind"] == "validation"]
        for number, name in enumerate(dict.fromkeys(row["set"] for row in checks)):
            own, color = [row for row in checks if row["set"] == name], _COLOURS[number % len(_COLOURS)]
            seen = [row["tokens"] for row in own]
            loss.plot(seen, [row["loss"] for row in own], color=color, marker="o", ms=3, label=name)
            accuracy.plot(seen, [row["span_accuracy"] for row in own], color=color, marker="o", ms=3, label=name)
        loss.set_yscale("log")
        loss.set_ylabel("loss, nats per token")
        accuracy.set_ylabel("replies right")
        accuracy.set_ylim(0, 1)
        accuracy.set_xlabel("tokens seen")
        for axes in (loss, accuracy):
            axes.legend(frameon=False, fontsize=9)
            axes.grid(axis="y", color="#e2e8f0", lw=0.6)
        figure.savefig(path)
