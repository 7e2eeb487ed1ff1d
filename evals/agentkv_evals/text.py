"""A run as text, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MIB = 2**20


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """One line per arm, columns aligned."""
    header = ("policy", "success", "95% CI", "mean peak KV", "less than full", "steps", "outcomes")
    return table([header, *(_arm_cells(arm) for arm in summary["arms"])])


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns, two spaces apart."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def mib(value: float | None) -> str:
    """Bytes in MiB, or a dash."""
    return "-" if value is None else f"{value / MIB:.1f} MiB"


def times(value: float | None) -> str:
    """A ratio as "2.8×", or a dash."""
    return "-" if value is None else f"{value:.1f}×"


def outcomes(arm: dict[str, Any]) -> str:
    """Counts of the outcomes that happened, with the reasons of early stops."""
    parts = []
    for name, count in arm["outcomes"].items():
        if count:
            reasons = arm["early_stops"] if name == "early_stop" else {}
            detail = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items()))
            parts.append(f"{name} {count}" + (f" ({detail})" if detail else ""))
    return ", ".join(parts) or "-"


def _arm_cells(arm: dict[str, Any]) -> tuple[str, ...]:
    low, high = arm["success_ci95"]
    steps = "-" if arm["mean_steps"] is None else f"{arm['mean_steps']:.1f}"
    return (
        arm["label"],
        f"{arm['success']}/{arm['planned']}",
        f"{low:.0%}-{high:.0%}",
        mib(arm["mean_peak_kv_bytes"]),
        times(arm["times_less_kv"]),
        steps,
        outcomes(arm),
    )
