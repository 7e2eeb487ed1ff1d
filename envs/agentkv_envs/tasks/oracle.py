"""The oracle: a plan carried out on the pages an agent sees, with the actions an agent has.

It reads nothing but observations. What it does is recorded as the literal actions of the task's `oracle`, together
with how far the needle lay behind when it was needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agentkv_envs.actions import parse_action
from agentkv_envs.errors import ActionError
from agentkv_envs.resolve import resolve
from agentkv_envs.tasks.draft import READ, Needle, Step
from agentkv_envs.types import Action, Observation, Score, StepResult, Task

MAX_REVEALS = 8
# Links and buttons that lead on in a list which a site itself has cut into pages.
_ONWARD = ("next page", "next", "load more comments", "load more", "older posts", "more comments")


class OracleError(ActionError):
    """A plan that cannot be carried out on the pages it meets."""


class Env(Protocol):
    """What the oracle needs of `WebEnv`."""

    @property
    def task(self) -> Task | None: ...

    def reset(self, task: Task, seed: int = 0) -> Observation: ...

    def step(self, action: Action) -> StepResult: ...

    def evaluate(self) -> Score: ...


def follow(step: str, observation: Observation) -> Action | None:
    """The next action towards a step of a plan: the step itself where the page shows what it names, else one that
    shows more of the page. None when the step asks for nothing more (a `read` whose text is there).

    Raises:
        OracleError: the page neither shows it nor has more to show.
    """
    if (wanted := READ.fullmatch(step)) is not None:
        if plain(wanted.group(2)) in plain(observation.text):
            return None
        return _reveal(step, observation, cut_texts=wanted.group(1) == "read")
    parsed = parse_action(step, observation.style)
    if parsed.action is None:
        raise OracleError(f"{step!r}: {parsed.error}")
    try:
        action = resolve(parsed.action, observation)
    except ActionError:
        return _reveal(step, observation, cut_texts=False)
    named = parsed.action.label
    if named is not None and (action.label or "").casefold() != named.casefold():
        return _reveal(step, observation, cut_texts=False)
    return action


def plain(text: str) -> str:
    """A text for comparison: one case, single spaces."""
    return " ".join(text.casefold().split())


def _reveal(step: str, observation: Observation, cut_texts: bool) -> Action:
    ways: list[Callable[[str, str], bool]] = [
        lambda role, label: role == "more" and label.startswith(("more", "rest of page")),
        lambda role, label: role in ("link", "button") and label in _ONWARD,
    ]
    if cut_texts:
        ways.insert(0, lambda role, label: role == "expand" and label.startswith("rest of"))
    for way in ways:
        for element in observation.elements:
            if way(element.role, element.label.casefold()) and not element.disabled:
                kind = element.role if element.role in ("more", "expand") else "click"
                return Action(kind, element.id, element.label)
    raise OracleError(f"{step} is not possible on this page:\n{observation.text}")


@dataclass(frozen=True)
class Trace:
    """A plan carried out.

    Attributes:
        observations: what was seen, from the first page on; one more than there are actions.
        actions: what was done, with the ids of that page.
        steps: for each step of the plan, the index of its own action in `actions` (None for a `read`).
        score: the verdict.
    """

    observations: tuple[Observation, ...]
    actions: tuple[Action, ...]
    steps: tuple[int | None, ...]
    score: Score

    @property
    def oracle(self) -> tuple[str, ...]:
        """The actions by label, without ids."""
        return tuple(str(replace(a, element_id=None) if a.label is not None else a) for a in self.actions)


class Pilot:
    """Follows a plan, one action per page.

    Attributes:
        steps: for each step of the plan that is behind, the index of its own action (None for a `read`).
    """

    def __init__(self, plan: Sequence[str]):
        self.steps: list[int | None] = []
        self._plan = tuple(plan)
        self._taken = 0
        self._looks = 0

    def next(self, observation: Observation) -> Action:
        """The action for this page.

        Raises:
            OracleError: the plan has ended, or its next step cannot be done here.
        """
        while len(self.steps) < len(self._plan):
            step = self._plan[len(self.steps)]
            action = follow(step, observation)
            if action is None:
                self._pass(None)
                continue
            if _is_step(action, step):
                self._pass(self._taken)
            elif self._looks == MAX_REVEALS:
                raise OracleError(f"{step} is not in sight after {MAX_REVEALS} looks")
            else:
                self._looks += 1
            self._taken += 1
            return action
        raise OracleError("the oracle has no action left and the task is not done")

    def _pass(self, index: int | None) -> None:
        self.steps.append(index)
        self._looks = 0


def carry_out(env: Env, task: Task, plan: Sequence[str], seed: int = 0) -> Trace:
    """Run a plan (texts of steps) from the task's first page to its end, and score it.

    Raises:
        OracleError: a step is impossible on the page it meets, or the site refuses it.
    """
    seen, done, pilot = [env.reset(task, seed)], list[Action](), Pilot(plan)
    while True:
        action = pilot.next(seen[-1])
        result = env.step(action)
        if result.error is not None:
            raise OracleError(f"{task.task_id}: {action}: {result.error}\n{seen[-1].text}")
        done.append(action)
        seen.append(result.observation)
        if result.done:
            return Trace(tuple(seen), tuple(done), tuple(pilot.steps), env.evaluate())


def _is_step(action: Action, step: str) -> bool:
    meant = parse_action(step).action
    return (
        meant is not None
        and meant.kind == action.kind
        and meant.text == action.text
        and (meant.label is None or meant.label.casefold() == (action.label or "").casefold())
    )


@dataclass(frozen=True)
class Distance:
    """How far a fact lies behind when it is needed.

    Attributes:
        first_seen_step: number of the action that first showed it, 0 for the first page.
        last_seen_step: number of the action that last showed it before it was needed.
        used_step: number of the action that needs it, from 1.
        tokens_between: tokens of what was seen and done since it was last shown.
    """

    first_seen_step: int
    last_seen_step: int
    used_step: int
    tokens_between: int


def measure(trace: Trace, plan: Sequence[Step], needle: Needle, count_tokens: Callable[[str], int]) -> Distance:
    """The distance of a needle in a trace.

    Raises:
        OracleError: the plan does not say where the fact is needed, or the trace never showed it before.
    """
    marked = [i for i, step in enumerate(plan) if step.uses]
    index = trace.steps[marked[0]] if marked else None
    if index is None:
        raise OracleError("the plan does not say which action needs the fact")
    used = index + 1
    shown = [k for k in range(used) if plain(needle.fact) in plain(trace.observations[k].text)]
    if not shown:
        raise OracleError(f"the fact {needle.fact!r} is not shown before action {used}")
    between = [trace.observations[k].text for k in range(shown[-1] + 1, used)]
    between += [str(action) for action in trace.actions[shown[-1] : index]]
    return Distance(shown[0], shown[-1], used, sum(count_tokens(text) for text in between))


def length_class(length: int) -> str:
    """ "short" (3-6 actions), "medium" (7-12) or "long" (13-20).

    Raises:
        ValueError: it is none of them.
    """
    for name, least, most in (("short", 3, 6), ("medium", 7, 12), ("long", 13, 20)):
        if least <= length <= most:
            return name
    raise ValueError(f"{length} actions are not within 3 to 20")


def total_tokens(trace: Trace, count_tokens: Callable[[str], int]) -> int:
    """Tokens of all observations of a trace."""
    return sum(count_tokens(seen.text) for seen in trace.observations)


def trace_rows(trace: Trace) -> list[dict[str, Any]]:
    """Observation and action of every step, for files."""
    pairs = zip(trace.observations, trace.actions, strict=False)
    return [{"observation": seen.text, "action": str(action)} for seen, action in pairs]
