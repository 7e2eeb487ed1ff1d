"""The plots of a report as SVG that takes its text colour and font from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIB = 2**20
# A colour that nothing else uses; it becomes `currentColor`, so that dark pages get light axes.
_INK = "#010203"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "agentkv",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _INK,
    "grid.alpha": 0.12,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.constrained_layout.use": True,
}
PARTS = (("browser", "#94a3b8"), ("prefill", "#0ea5e9"), ("decode", "#f59e0b"), ("other", "#a78bfa"))


@dataclass(frozen=True)
class Series:
    """Resident KV memory of one episode: MiB after each step, and the most it held at any moment."""

    color: str
    resident_mib: tuple[float, ...]
    peak_mib: float


def success_vs_memory(arms: Sequence[dict[str, Any]], colors: Sequence[str]) -> str:
    """Success rate with its interval over mean peak KV memory, one point per arm; "" if none has a peak."""
    points = [(arm, color) for arm, color in zip(arms, colors, strict=True) if arm["mean_peak_kv_bytes"]]
    if not points:
        return ""

    def draw(axes: Axes) -> None:
        peaks = [arm["mean_peak_kv_bytes"] / MIB for arm, _ in points]
        for (arm, color), x, aside in zip(points, peaks, sideways(peaks), strict=True):
            rate, (low, high) = 100 * arm["success_rate"], arm["success_ci95"]
            # Rounding must not make an error bar negative.
            error = [[max(0.0, rate - 100 * low)], [max(0.0, 100 * high - rate)]]
            moved = axes.transData + ScaledTranslation(aside / 72, 0, axes.figure.dpi_scale_trans)
            axes.errorbar(x, rate, error, fmt="o", transform=moved, color=color, ms=8, capsize=4, lw=1.5)
        axes.set(xlabel="mean peak KV memory (MiB)", ylabel="success (%)", ylim=(-4, 104))
        axes.set_xlim(left=0, right=1.12 * max(peaks))

    return _svg("success", (5.0, 3.1), draw, "Success rate over mean peak KV memory, by policy")


def sideways(values: Sequence[float], step: float = 6.0) -> list[float]:
    """Points by which marks at nearly the same place (arms under one budget) are moved apart; else 0."""
    near = 0.02 * max(values)
    offsets = []
    for index, value in enumerate(values):
        group = [other for other, at in enumerate(values) if abs(at - value) <= near]
        offsets.append((group.index(index) - (len(group) - 1) / 2) * step)
    return offsets


def memory_over_steps(key: str, series: Sequence[Series], title: str) -> str:
    """KV memory over the steps of one task, all arms overlaid; the dashed line is the peak. "" without data."""
    drawn = [line for line in series if line.resident_mib]
    if not drawn:
        return ""

    def draw(axes: Axes) -> None:
        for line in drawn:
            steps = range(1, len(line.resident_mib) + 1)
            axes.plot(steps, line.resident_mib, color=line.color, marker="o", ms=3, lw=1.5)
            axes.axhline(line.peak_mib, color=line.color, ls=(0, (4, 3)), lw=0.9, alpha=0.8)
        axes.set(xlabel="step", ylabel="KV (MiB)")
        axes.set_ylim(0, 1.1 * max(line.peak_mib for line in drawn))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return _svg(f"memory-{key}", (3.6, 2.1), draw, title)


def success_vs_distance(arms: Sequence[dict[str, Any]], colors: Sequence[str]) -> str:
    """Success where a fact is needed over the tokens since it was shown, one line per arm; "" without such tasks."""
    told = [(arm["distances"], color) for arm, color in zip(arms, colors, strict=True) if arm["distances"]]
    if not told:
        return ""

    def draw(axes: Axes) -> None:
        for number, (groups, color) in enumerate(told):
            aside = (number - (len(told) - 1) / 2) * min(0.08, 0.6 / len(told))
            there = [(place, group) for place, group in enumerate(groups) if group["finished"]]
            places = [place + aside for place, _ in there]
            rates = [100 * group["success"] / group["finished"] for _, group in there]
            low = [max(0.0, rate - 100 * group["ci95"][0]) for rate, (_, group) in zip(rates, there, strict=True)]
            high = [max(0.0, 100 * group["ci95"][1] - rate) for rate, (_, group) in zip(rates, there, strict=True)]
            axes.errorbar(places, rates, [low, high], fmt="o-", color=color, ms=6, capsize=3, lw=1.2)
        names = [group["tokens"] for group in told[0][0]]
        axes.set_xticks(range(len(names)), names)
        axes.set(xlabel="tokens since the fact was shown", ylabel="success (%)", ylim=(-4, 104))

    return _svg("distance", (5.0, 3.1), draw, "Success over the distance of the fact, by policy")


def step_time(arms: Sequence[dict[str, Any]]) -> str:
    """Where the time of a mean step goes, one bar per arm; "" if no arm has taken a step."""
    timed = [arm for arm in arms if arm["mean_step_ms"]["browser"] is not None]
    if not timed:
        return ""

    def draw(axes: Axes) -> None:
        labels = [arm["label"] for arm in timed]
        left = [0.0] * len(timed)
        for part, color in PARTS:
            widths = [_part_ms(arm["mean_step_ms"], part) for arm in timed]
            axes.barh(labels, widths, left=left, color=color, height=0.55)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set(xlabel="mean ms per step")
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)

    return _svg("time", (5.0, 0.8 + 0.42 * len(timed)), draw, "Mean time of a step by part and policy")


def _part_ms(times: dict[str, float | None], part: str) -> float:
    # "other" is what the agent needs beside the model's own two clocks: grammar, messages, tokenising.
    if part != "other":
        return times[part] or 0.0
    return max(0.0, (times["agent"] or 0.0) - (times["prefill"] or 0.0) - (times["decode"] or 0.0))


def _svg(key: str, size: tuple[float, float], draw: Any, title: str) -> str:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size)
        draw(figure.subplots())
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return _inline(buffer.getvalue(), key, title)


def _inline(svg: str, key: str, title: str) -> str:
    """Matplotlib's file as an element of an HTML page: ids that are unique there, no fonts, no namespaces."""
    svg = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', svg)
    assert box is not None
    svg = re.sub(r"<svg[^>]*>", "", svg, count=1)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]+;? ?", "", svg)
    svg = svg.replace("xlink:href", "href").replace(_INK, "currentColor")
    used = set(re.findall(r"#([mp][0-9a-f]{10})\b", svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{key}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r"#([mp][0-9a-f]{10})\b", rf"#{key}-\1", svg)
    svg = re.sub(r"\s*\n\s*", " ", svg)
    return f'<svg role="img" aria-label="{_attribute(title)}" viewBox="{box[1]}">{svg}'


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
