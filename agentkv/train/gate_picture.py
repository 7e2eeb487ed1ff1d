"""What gates cost and hold, over a training, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FADED, _FULL, _HELD = "#e11d48", "#94a3b8", "#0ea5e9"


def save_picture(path: Path, rows: Sequence[dict[str, Any]], capacity: int) -> None:
    """Draw the validations of a log over the tokens seen: NLL with and without fading above, tokens held below."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    checks = [row for row in rows if row["kind"] == "validation"]
    seen = [row["tokens"] for row in checks]
    style: Any = {"svg.hashsalt": "agentkv", "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.0, 6.0), layout="constrained")
        nll, held = figure.subplots(2, sharex=True)
        nll.plot(seen, [row["nll"] for row in checks], color=_FADED, marker="o", ms=3, label="with gates")
        nll.plot(seen, [row["nll_full"] for row in checks], color=_FULL, lw=1.0, label="full attention")
        nll.set_ylabel("NLL of held-out tokens, nats")
        held.plot(seen, [row["held"] for row in checks], color=_HELD, marker="o", ms=3, label="held in the end")
        held.axhline(capacity, color=_FULL, lw=1.0, ls="--", label="capacity M")
        held.set_ylabel("tokens of a head, mean")
        held.set_ylim(bottom=0)
        held.set_xlabel("tokens seen")
        for axes in (nll, held):
            axes.legend(frameon=False, fontsize=9)
            axes.grid(axis="y", color="#e2e8f0", lw=0.6)
        figure.savefig(path)
