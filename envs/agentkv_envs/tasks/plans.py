"""What of a plan can be told before its first step, from the task's words alone.

The plan of a draft names all that its draw knows. An agent that plans ahead knows less: what the intent names, and
what is the same for every task of the kind (`click "Add to Cart"`). The rest it will read on its way, and writes as
`?`. Which is which comes from a comparison: where drafts of one template differ, once the drawn values that the intent
names are replaced by their names, the intent does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agentkv_envs.actions import clean_label, parse_action
from agentkv_envs.tasks.draft import Draft, Step
from agentkv_envs.tasks.oracle import plain
from agentkv_envs.types import Action

UNKNOWN = "?"
_ENOUGH = 4
"""So many drafts of a template are compared; where there are fewer, all drafts of the family are."""


def actions(plan: Sequence[Step]) -> list[Action]:
    """The actions of a plan; what it only reads is none."""
    return [_action(step.text) for step in plan if not step.reads]


def _action(text: str) -> Action:
    action = parse_action(text).action
    if action is None:
        raise ValueError(f"{text!r}, a step of a plan, is no action")
    return action


@dataclass(frozen=True)
class _Shape:
    """A draft's actions with the intent's values replaced by their names: (kind, label, text) of each."""

    template: str
    steps: tuple[tuple[str, str | None, str | None], ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind, _, _ in self.steps)


def _shape(draft: Draft) -> _Shape:
    names = {
        plain(text): "{" + name + "}" for name, value in draft.values.items() for text in (value, clean_label(value))
    }

    def named(argument: str | None) -> str | None:
        if argument is None:
            return None
        holding = [name for name, value in draft.values.items() if _has_words(value, argument)]
        return names.get(plain(argument)) or ("{part of " + holding[0] + "}" if holding else argument)

    return _Shape(draft.template, tuple((a.kind, named(a.label), named(a.text)) for a in actions(draft.plan)))


def _has_words(text: str, words: str) -> bool:
    """Whether the words stand in the text as they are, not within others."""
    return bool(words) and re.search(rf"(?<!\w){re.escape(plain(words))}(?!\w)", plain(text)) is not None


class Foresight:
    """Plans as they can be told at the start, for drafts of one family.

    Args:
        drafts: of that family, of more than one world: what is compared.
    """

    def __init__(self, drafts: Iterable[Draft]):
        self._shapes = [_shape(draft) for draft in drafts]

    def outline(self, draft: Draft) -> tuple[str, ...]:
        """The plan's actions without what cannot be known yet, answers above all.

        How many they are and of which kinds is told as it is: of a task that cannot be done, the way to that insight.
        """
        own = _shape(draft)
        alike = [shape for shape in self._shapes if shape.kinds == own.kinds]
        same = [shape for shape in alike if shape.template == own.template]
        compared = [*(same if len(same) >= _ENOUGH else alike), own]
        return tuple(
            _told(action, [shape.steps[n] for shape in compared]) for n, action in enumerate(actions(draft.plan))
        )


def _told(action: Action, others: Sequence[tuple[str, str | None, str | None]]) -> str:
    labels, texts = {label for _, label, _ in others}, {text for _, _, text in others}
    known = len(others) >= _ENOUGH
    if action.label is not None and not (known and len(labels) == 1):
        action = replace(action, label=UNKNOWN)
    if action.text and (action.kind == "stop" or not (known and len(texts) == 1)):
        action = replace(action, text=UNKNOWN)
    return str(action)
