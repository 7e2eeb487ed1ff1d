"""Where a failed episode left the oracle's way, and by what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agentkv_envs import Action, Task, parse_action
from agentkv_envs.actions import ELEMENT_KINDS, FIELD_KINDS
from agentkv_envs.tasks.draft import READ


class Cause(StrEnum):
    """What was done instead of the oracle's next step."""

    OTHER_ELEMENT = "other element"
    OTHER_TEXT = "other text or key"
    OTHER_ACTION = "other kind of action"
    STOPPED = "stopped too early"
    ANSWER = "other answer"
    WENT_ON = "did not stop"
    CUT_OFF = "cut off on the way"
    ALL = "went all the way"


@dataclass(frozen=True)
class Way:
    """How far an episode went the oracle's way.

    Attributes:
        followed: so many of the oracle's steps were taken in their order, whatever was done between them.
        cause: what was done after the last of them.
        at_fact: whether the step that was not taken is the one that needs a fact seen earlier.
    """

    followed: int
    cause: Cause
    at_fact: bool


def left_way(task: Task, taken: Sequence[str | None]) -> Way | None:
    """How a failed episode compares with the solution of its task that it followed furthest.

    A task may have solutions beside those it names, so this explains failures and is no score. None where it cannot
    be told: a task without a solution, or one that does not name things by label.

    Args:
        task: as it was on the episode's data. What its plan only reads is no step.
        taken: the actions that were carried out, None for a reply that led to none.
    """
    extra = task.raw.get("agentkv", {})
    fact_step = (extra.get("needle") or {}).get("used_step")
    ways = [_compare(task.oracle, taken, fact_step)]
    # Of other solutions nobody says where they need the fact.
    ways += [_compare(other, taken, None) for other in extra.get("alternatives", ())]
    return max((way for way in ways if way is not None), key=lambda way: way.followed, default=None)


def _compare(plan: Sequence[str], taken: Sequence[str | None], fact_step: int | None) -> Way | None:
    texts = [text for text in plan if not READ.fullmatch(text)]
    steps = [step for text in texts if (step := _bare(text)) is not None and not _unlabelled(step)]
    if not steps or len(steps) < len(texts):
        return None
    done = [None if text is None else _bare(text) for text in taken]
    followed, after = 0, 0
    for number, step in enumerate(done, 1):
        if followed < len(steps) and step == steps[followed]:
            followed, after = followed + 1, number
    if followed == len(steps):
        return Way(followed, Cause.ALL, at_fact=False)
    did = next((step for step in done[after:] if step is not None), None)
    return Way(followed, _cause(steps[followed], did), at_fact=followed + 1 == fact_step)


def _bare(text: str) -> Action | None:
    """The action without the number of its element; None for what is none."""
    action = parse_action(text).action
    return None if action is None else replace(action, element_id=None)


def _unlabelled(action: Action) -> bool:
    return action.label is None and action.kind in (*ELEMENT_KINDS, *FIELD_KINDS)


def _cause(wanted: Action, did: Action | None) -> Cause:
    if did is None:
        return Cause.CUT_OFF
    if wanted.kind == "stop":
        return Cause.ANSWER if did.kind == "stop" else Cause.WENT_ON
    if did.kind == "stop":
        return Cause.STOPPED
    if did.kind != wanted.kind:
        return Cause.OTHER_ACTION
    return Cause.OTHER_TEXT if did.label == wanted.label else Cause.OTHER_ELEMENT
