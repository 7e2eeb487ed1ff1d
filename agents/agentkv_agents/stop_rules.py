"""When an episode that is not going anywhere is ended.

The rules are VisualWebArena's: at most 30 steps, at most 3 replies in a row that are no action, at most 5
equal actions. Two things differ, both in the agent's favour: equal means equal text (typing another query
into the same box is another action), and a page that changed in between starts the count anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_STEPS = "max_steps"
PARSE_FAILURES = "parse_failures"
REPEATED_ACTIONS = "repeated_actions"
CONTEXT_FULL = "context_full"

EARLY_STOP_REASONS = (MAX_STEPS, PARSE_FAILURES, REPEATED_ACTIONS, CONTEXT_FULL)


@dataclass(frozen=True)
class StopRules:
    """Limits of an episode; each is the count at which it ends."""

    max_steps: int = 30
    max_parse_failures: int = 3
    max_repeats: int = 5

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_parse_failures", "max_repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Taken:
    """One step as the stop rules see it: the action's canonical text (None if the reply did not parse) and
    the key of the page it was taken on."""

    action: str | None
    page_key: str


def trailing_parse_failures(taken: Sequence[Taken]) -> int:
    """How many of the last steps, without a gap, did not parse."""
    count = 0
    for step in reversed(taken):
        if step.action is not None:
            break
        count += 1
    return count


def trailing_repeats(taken: Sequence[Taken], page_key: str) -> int:
    """How often the last action was taken in a row while the page stayed the one of now (`page_key`)."""
    if not taken or taken[-1].action is None:
        return 0
    last = Taken(taken[-1].action, page_key)
    count = 0
    for step in reversed(taken):
        if step != last:
            break
        count += 1
    return count


def early_stop_reason(taken: Sequence[Taken], page_key: str, rules: StopRules) -> str | None:
    """Why the episode should end before another step is taken, or None if it may go on."""
    if trailing_parse_failures(taken) >= rules.max_parse_failures:
        return PARSE_FAILURES
    if trailing_repeats(taken, page_key) >= rules.max_repeats:
        return REPEATED_ACTIONS
    if len(taken) >= rules.max_steps:
        return MAX_STEPS
    return None
