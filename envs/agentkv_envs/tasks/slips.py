"""Demonstrations with wrong steps and their repair, so that an agent trained on them knows the way back.

A slip is a step that a small model takes: another link than the one that was meant, another text in the field. What
follows is what the oracle does about it: back (or the new tab closed) and the right step, or the right text over the
wrong one. Slips are marked, and are nothing to be learned; the repair is.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentkv_envs.tasks.oracle import Env, OracleError, Pilot, follow
from agentkv_envs.types import Action, Observation, Score, Task

MAX_SLIPS = 2
_LONGEST_TEXT = 60
# So many slips are of the kind that a model really makes: one of the few things that look most like the right one.
_LOOKALIKES, _NEAREST = 0.7, 3


@dataclass(frozen=True)
class Taken:
    """One step of a demonstration.

    Attributes:
        observation: the page it was taken on.
        wrong: whether it is a slip.
        error: why the browser refused it, None where it did not. Only a slip is ever refused.
    """

    observation: Observation
    action: Action
    wrong: bool = False
    error: str | None = None


@dataclass(frozen=True)
class Demonstration:
    """A plan carried out.

    Attributes:
        steps: all that was done, slips and repairs included.
        plan_steps: for each step of the plan, the index of its own action in `steps` (None for a `read`).
        score: the verdict.
    """

    steps: tuple[Taken, ...]
    plan_steps: tuple[int | None, ...]
    score: Score


def demonstrate(env: Env, task: Task, seed: int, chance: random.Random | None = None) -> Demonstration:
    """Carry out a task's plan, with one slip or two if `chance` is given.

    Raises:
        OracleError: a step is impossible, is refused, or cannot be found again after a slip.
    """
    return _Walk(env, task, seed, chance).to_the_end()


class _Walk:
    def __init__(self, env: Env, task: Task, seed: int, chance: random.Random | None):
        self._env = env
        self._pilot = Pilot(task.oracle)
        self._seen = env.reset(task, seed)
        self._taken: list[Taken] = []
        self._right: list[int] = []
        """Where in what was taken the pilot's own actions stand."""
        self._done = False
        self._chance = chance
        self._due = _when(chance, len(task.oracle))

    def to_the_end(self) -> Demonstration:
        while not self._done:
            action = self._pilot.next(self._seen)
            wrong = self._wrong(action)
            if wrong is not None:
                action = self._slip(wrong, action)
            self._right.append(len(self._taken))
            self._take(action)
        plan_steps = tuple(None if own is None else self._right[own] for own in self._pilot.steps)
        return Demonstration(tuple(self._taken), plan_steps, self._env.evaluate())

    def _wrong(self, right: Action) -> Action | None:
        """What to do instead of the right step, if a slip is due and one is possible."""
        if self._chance is None or not self._due or len(self._taken) < self._due[0]:
            return None
        possible = list(slips(right, self._seen))
        if not possible:
            return None
        self._due.pop(0)
        if self._chance.random() < _LOOKALIKES:
            possible = sorted(possible, key=lambda wrong: _likeness(wrong, right), reverse=True)[:_NEAREST]
        return self._chance.choice(possible)

    def _slip(self, wrong: Action, right: Action) -> Action:
        """Take the wrong step and go back; returns the right step on the page that this leads to."""
        before = self._seen
        self._take(wrong, wrong=True)
        if wrong.kind == "click":
            if len(self._seen.tabs) > len(before.tabs):
                self._take(Action("close_tab"))
            elif self._seen.url != before.url:
                self._take(Action("go_back"))
        meant = str(replace(right, element_id=None))
        again = follow(meant, self._seen)
        if again is None or str(replace(again, element_id=None)) != meant:
            raise OracleError(f"{meant} is not in sight after {wrong}")
        return again

    def _take(self, action: Action, wrong: bool = False) -> None:
        result = self._env.step(action)
        if result.error is not None and not wrong:
            raise OracleError(f"{action}: {result.error}\n{self._seen.text}")
        self._taken.append(Taken(self._seen, action, wrong, result.error))
        self._seen, self._done = result.observation, result.done


def _when(chance: random.Random | None, length: int) -> list[int]:
    """Numbers of the steps before which a slip is due, in order."""
    if chance is None:
        return []
    return sorted(chance.sample(range(length), min(length, chance.randint(1, MAX_SLIPS))))


def _likeness(wrong: Action, right: Action) -> float:
    """How much two steps look alike, 0 to 1."""
    one, other = (wrong.text, right.text) if right.kind == "type" else (wrong.label, right.label)
    return difflib.SequenceMatcher(None, one or "", other or "").ratio()


def slips(right: Action, page: Observation) -> Iterator[Action]:
    """Steps one may take on a page in place of the right one, and take back."""
    if right.element_id is None:
        return
    links = [e for e in page.elements if e.role == "link" and not e.disabled and e.label != right.label]
    if right.kind != "type":
        yield from (Action("click", link.id, link.label) for link in links)
        return
    for link in links:
        if len(link.label) <= _LONGEST_TEXT and link.label != right.text:
            yield replace(right, text=link.label)
