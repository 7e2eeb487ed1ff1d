"""What a run says of the papers, and of the plain alternative to all of them: to drop old pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DROPPING, CHANCE = "obs-window", "random"


@dataclass(frozen=True)
class Claim:
    """A paper's figure for success with less memory.

    Attributes:
        policy: that the paper is about.
        retention: the share of what full KV reaches.
        times_less: how much less memory that took.
        source: where it is claimed, and on what.
    """

    policy: str
    retention: float
    times_less: float
    source: str


CLAIMS = (
    Claim(
        "conf-kv",
        0.953,
        2.8,
        "CONF-KV, arXiv 2605.24786, VisualWebArena with a vision-language model (40.2% to 38.3% success)",
    ),
    Claim("arkv", 0.97, 4.0, "ARKV, arXiv 2603.08727, LongBench with models of 3 to 8 billion parameters"),
    Claim(
        "trim-kv",
        0.907,
        3.8,
        "TRIM-KV, arXiv 2512.03324, LongMemEval-S with 32K of 123K tokens (44.8 where full KV has 49.4, SnapKV 27.6)",
    ),
)


def beside_claims(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims on policies of a run, each with the arm whose memory is nearest to the paper's: its own figures."""
    arms = {(arm["policy"], arm["budget"]): arm for arm in summary["arms"]}
    found = []
    for claim in CLAIMS:
        own = [
            (arms[pair["policy"], pair["budget"]], pair["retention"])
            for pair in summary["paired"]
            if pair["policy"] == claim.policy and pair["retention"] is not None
        ]
        own = [(arm, retention) for arm, retention in own if arm["times_less_kv"]]
        if own:
            arm, retention = min(own, key=lambda one: abs(one[0]["times_less_kv"] - claim.times_less))
            found.append({"claim": claim, "arm": arm, "retention": retention})
    return found


def headline(summary: dict[str, Any]) -> str | None:
    """The sentence that a report begins with where, under a budget, no policy was ahead of dropping the oldest pages.

    None before all episodes are run, and where there was nothing to be ahead of.
    """
    arms = summary["arms"]
    said = []
    for dropping in (arm for arm in arms if arm["policy"] == DROPPING and arm["success"]):
        others = [
            arm for arm in arms if arm["budget"] == dropping["budget"] and arm["policy"] not in (DROPPING, CHANCE)
        ]
        best = max(others, key=lambda arm: arm["success"], default=None)
        if best is not None and dropping["success"] >= best["success"]:
            own = f"{dropping['success']} of {dropping['planned']}"
            said.append(f"under {dropping['budget']}, {own}, next {best['policy']} with {best['success']}")
    if not said or not summary["complete"]:
        return None
    return f"No other policy did better than dropping the oldest pages whole ({DROPPING}) {'; and '.join(said)}."
