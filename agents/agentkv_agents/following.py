"""Following a plan: which of its steps is at hand, and what an agent may do for it on a page.

A step that the plan tells wholly, `4 click "Add to Cart"`, is taken as it was written where the page offers it; of one
that it tells in part, `9 type "Comment" [?] [0]`, the part that was told. Elsewhere, and where the page offers no such
thing, the agent may do whatever the page allows: turn a page, choose what the plan left open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from agentkv_agents.notes import note_rule, start_with
from agentkv_agents.plans import split_number
from agentkv_envs import Action, Observation, action_grammar, format_action, parse_action
from agentkv_envs.actions import BARE_KINDS, ELEMENT_KINDS
from agentkv_envs.grammar import bare_possible, literal, suits, target
from agentkv_envs.tasks.plans import UNKNOWN
from agentkv_envs.types import Element

_CUT = "…"


@dataclass(frozen=True)
class Course:
    """Where an agent is in its plan.

    Attributes:
        steps: the plan's actions; None for a line that is none.
        number: the step at hand, from 1; after the last one, one more.
        unsure: whether what was done for that step may have been all of it, or only on the way to it. Then the agent
            says by its next number which it was.
        binding: whether steps that the plan tells have to be taken as they were written.
        recall: whether a reply may begin with a note where the plan leaves something open, and does where a text is
            to be typed that the plan does not tell: what a demonstration types there was always to be remembered.
    """

    steps: tuple[Action | None, ...]
    number: int = 1
    unsure: bool = False
    binding: bool = True
    recall: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """What the next reply may begin with. Whoever is through goes on with the last number."""
        own = (self.number, self.number + 1) if self.unsure else (self.number,)
        return tuple(dict.fromkeys(min(number, len(self.steps)) for number in own))

    def after(self, number: int, action: Action) -> Course:
        """Once an action was carried out for that step; of a number that the plan has not, for the nearest.

        Args:
            number: that the reply began with.
            action: with the label of what it was done to.
        """
        number = min(max(1, number), len(self.steps))
        step = self.steps[number - 1]
        if not self.binding or step is None or not _agrees(step, action) or step.label == UNKNOWN:
            return replace(self, number=number, unsure=True)
        return replace(self, number=number + 1, unsure=False)

    def grammar(self, observation: Observation, exclude: Collection[str] = ()) -> str:
        """What may be replied to a page: one of the numbers and what may be done for that step.

        Args:
            observation: the page.
            exclude: actions that are not offered again.
        """
        told = dict.fromkeys(self.numbers, "")
        if self.binding and not self._through:
            told = {number: ways(self.steps[number - 1], observation, exclude) for number in self.numbers}
        notes = {number: self._recalled(number, own) for number, own in told.items()}
        starts = [f'{notes[number]}"{number} " ({own or "unbound"})' for number, own in told.items()]
        grammar = start_with(action_grammar(observation, exclude=exclude), " | ".join(starts), "unbound")
        return grammar + note_rule() if any(notes.values()) else grammar

    def _recalled(self, number: int, own: str) -> str:
        """The place of a note before a step: none where the plan tells all, a must where a text is to be typed now."""
        step = self.steps[number - 1]
        if not self.recall or (step is not None and UNKNOWN not in (step.label, step.text)):
            return ""
        return "note " if own and step is not None and step.kind == "type" else "note? "

    @property
    def _through(self) -> bool:
        """Whether the last step is done, or may be: then nothing binds, or a plan that does not stop would not end."""
        return self.number + self.unsure > len(self.steps)


def read_plan(reply: str, *, binding: bool = True, recall: bool = False) -> Course | None:
    """The course at its beginning: lines that go on counting from 1; None where there are none.

    A line that is not exactly an action ("check the price and stop") tells nothing.
    """
    steps: list[Action | None] = []
    for line in reply.splitlines():
        number, rest = split_number(line)
        if number == len(steps) + 1:
            parsed = parse_action(rest)
            steps.append(parsed.action if parsed.mode == "strict" else None)
    return Course(tuple(steps), binding=binding, recall=recall) if steps else None


def labelled(action: Action, page: Observation | None) -> Action:
    """An action with the label of its element, where it names that by number alone."""
    if action.label is not None or action.element_id is None or page is None:
        return action
    return replace(action, label=next((e.label for e in page.elements if e.id == action.element_id), None))


def ways(step: Action | None, observation: Observation, exclude: Collection[str] = ()) -> str:
    """The ways to take a step on a page, as an expression of Lark over TEXT; "" where the plan or the page has none."""
    if step is None or observation.dialog is not None or step.label == UNKNOWN:
        return ""
    possible = (way for way in _ways(step, observation) if not way.is_among(exclude))
    return " | ".join(dict.fromkeys(way.grammar for way in possible))


@dataclass(frozen=True)
class _Way:
    """An action, or with TEXT in place of `after` several that differ in a text."""

    text: str
    after: str | None = None

    @property
    def grammar(self) -> str:
        return literal(self.text) if self.after is None else f"{literal(self.text)} TEXT {literal(self.after)}"

    def is_among(self, actions: Collection[str]) -> bool:
        """Whether one of them is this, or begins like it: a field that took nothing takes no other text either."""
        if self.after is None:
            return self.text in actions
        return any(action.startswith(self.text) for action in actions)


def _ways(step: Action, observation: Observation) -> Iterator[_Way]:
    kind, text = step.kind, step.text or ""
    if any(bracket in text for bracket in "[]"):
        return
    if kind == "stop":
        yield _Way("stop [", "]") if text == UNKNOWN else _Way(format_action(step))
    elif kind in BARE_KINDS:
        if bare_possible(kind, observation):
            yield _Way(kind)
    elif step.label is not None:
        for element in observation.elements:
            if suits(kind, element) and _same(step.label, element.label):
                yield from _on(element, f"{kind} {target(element, observation.style)}", replace(step, text=text))


def _on(element: Element, beginning: str, step: Action) -> Iterator[_Way]:
    if step.kind in ELEMENT_KINDS:
        yield _Way(beginning)
    elif step.kind == "type":
        flag = f"] [{int(step.enter)}]"
        yield _Way(f"{beginning} [", flag) if step.text == UNKNOWN else _Way(f"{beginning} [{step.text}{flag}")
    elif step.kind == "select":
        for option in element.options:
            if step.text == UNKNOWN or _same(str(step.text), option):
                yield _Way(f"{beginning} [{option}]")


def _agrees(step: Action, action: Action) -> bool:
    """Whether an action is what the step says, as far as it does."""
    label, text = step.label in (None, UNKNOWN) or _same(str(step.label), action.label or ""), step.text
    return step.kind == action.kind and label and (text in (None, UNKNOWN) or _same(str(text), action.text or ""))


def _same(told: str, shown: str) -> bool:
    """Whether a plan's words are an element's; a page cuts long ones short."""
    told, shown = told.casefold(), shown.casefold()
    return told == shown or (shown.endswith(_CUT) and len(shown) > 20 and told.startswith(shown[: -len(_CUT)]))
