"""Where a failed episode left the oracle's way, and by what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agentkv_envs import Action, parse_action
from agentkv_envs.actions import ELEMENT_KINDS, FIELD_KINDS
from agentkv_envs.tasks.draft import READ


class Cause(StrEnum):
    """What was done instead of the oracle's next step."""

    OTHER_ELEMENT = "other element"
    OTHER_TEXT = "other text"
    OTHER_ACTION = "other kind of action"
    STOPPED = "stopped too early"
    ANSWER = "other answer"
    WENT_ON = "did not stop"
    CUT_OFF = "cut off on the way"
    MORE = "all of it, and more"


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


def left_way(oracle: Sequence[str], taken: Sequence[str | None], fact_step: int | None) -> Way | None:
    """How a failed episode compares with the oracle's; None without an oracle, or where actions name no labels.

    A task may have other solutions than the oracle's, so this explains failures and is no score.

    Args:
        oracle: its actions, by label; of a plan, what is only read is left out.
        taken: the actions of the episode, None where a reply was none.
        fact_step: the number, from 1, of the oracle's step that needs a fact seen earlier.
    """
    plan = [_bare(text) for text in oracle if not READ.fullmatch(text)]
    done = [None if text is None else _bare(text) for text in taken]
    if not plan or any(step is not None and _unlabelled(step) for step in done):
        return None
    followed, after = 0, 0
    for number, step in enumerate(done, 1):
        if followed < len(plan) and step == plan[followed]:
            followed, after = followed + 1, number
    if followed == len(plan):
        return Way(followed, Cause.MORE, at_fact=False)
    did = next((step for step in done[after:] if step is not None), None)
    return Way(followed, _cause(plan[followed], did), at_fact=followed + 1 == fact_step)


def _bare(text: str) -> Action:
    action = parse_action(text).action
    if action is None:
        raise ValueError(f"{text!r} is no action")
    return replace(action, element_id=None)


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
