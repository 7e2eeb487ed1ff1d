"""The values that pass between the environment and its users. All of them are immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

STYLES = ("label-first", "vwa")
# Rules of scoring: as the benchmark's released code has them, or mended.
DIALECTS = ("official", "fixed")


@dataclass(frozen=True)
class Element:
    """Something on the page that an action can name.

    Attributes:
        id: 1..99, stable while the element lives on its page.
        role: ARIA role; the pseudo roles "more" and "expand" stand for text the observation left out.
        label: the name an action repeats; one line without double quotes or square brackets.
        text: the element as the observation prints it, without its id.
        options: labels of a select box that can be chosen, else empty.
        disabled: whether the page refuses input on it.
        box: x, y, width and height on the screen, in CSS pixels of the viewport; None where it has none.
    """

    id: int
    role: str
    label: str
    text: str
    options: tuple[str, ...] = ()
    disabled: bool = False
    box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class Observation:
    """What the agent sees of the browser after a step.

    Attributes:
        text: the whole observation, ready for a prompt.
        url: address of the current tab (not part of `text`); of an embedded site its name, without the port that
            differs from episode to episode: http://shopping/deals/. `goto` takes such addresses.
        title: title of the current tab.
        elements: the elements `text` shows, in reading order.
        alerts: messages of the page and of the browser since the last observation.
        tabs: titles of the open tabs.
        style: "label-first" or "vwa".
        page_key: changes exactly when something the agent could see on the page changed (the focus aside).
        current_tab: index into `tabs`.
        dialog: the open confirm or prompt dialog that blocks the page, or None.
        can_go_back: whether the current tab has a page to go back to.
        focused: id of the element that has the keyboard, where it is shown.
        files: names of the files that `upload` can take.
        full_text: the whole text where `text` is a delta to earlier observations, else "".
    """

    text: str
    url: str
    title: str
    elements: tuple[Element, ...]
    alerts: tuple[str, ...]
    tabs: tuple[str, ...]
    style: str
    page_key: str
    current_tab: int = 0
    dialog: str | None = None
    can_go_back: bool = False
    focused: int | None = None
    files: tuple[str, ...] = ()
    full_text: str = ""

    def element(self, element_id: int) -> Element | None:
        """The element with this id, or None."""
        return next((e for e in self.elements if e.id == element_id), None)


@dataclass(frozen=True)
class Action:
    """One step of the agent. `str(action)` is its canonical text, the same in both styles' grammars.

    Attributes:
        kind: one of `agentkv_envs.actions.KINDS`.
        element_id: the element it acts on, where the kind needs one.
        label: that element's label; alone (without an id) it is resolved against the page.
        text: typed text, option, key combination, direction, address, tab index, answer or seconds.
        enter: for `type`, whether Enter is pressed afterwards.
    """

    kind: str
    element_id: int | None = None
    label: str | None = None
    text: str | None = None
    enter: bool = True

    def __str__(self) -> str:
        from agentkv_envs.actions import format_action

        return format_action(self)


@dataclass(frozen=True)
class ParsedAction:
    """The result of reading a model's reply.

    Attributes:
        action: the action, or None when the reply holds none.
        mode: "strict" (canonical text), "lenient" (understood all the same) or "failed".
        error: what is wrong when failed, in words meant for the model.
    """

    action: Action | None
    mode: str
    error: str | None = None


@dataclass(frozen=True)
class StepResult:
    """What a step led to.

    Attributes:
        observation: the page after the step.
        error: why the action could not be carried out, or None.
        done: whether the episode has ended (`stop`).
        answer: the text of `stop`, once done.
        timings: milliseconds by part: action, settle, observe, screenshot.
    """

    observation: Observation
    error: str | None
    done: bool
    answer: str | None
    timings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """The verdict on an episode.

    Attributes:
        success: True or False; None when the task cannot be scored here (see `note`).
        parts: value in [0, 1] per evaluator type; the total is their product.
        note: why a part failed or could not be scored, "" otherwise.
    """

    success: bool | None
    parts: dict[str, float]
    note: str = ""


@dataclass(frozen=True)
class Task:
    """One task in VisualWebArena's JSON shape.

    Attributes:
        task_id: suite-wide name such as "shopping-003".
        sites: names of the sites it needs.
        intent: what the agent is asked to do.
        start_url: first page(s); several tabs are joined by " |AND| ".
        eval: the VWA `eval` object.
        oracle: actions that solve it, by label and without ids.
        raw: the JSON object the task was read from.
        folder: where files stand that it names by a relative path, "" for nowhere.
    """

    task_id: str
    sites: tuple[str, ...]
    intent: str
    start_url: str
    eval: dict[str, Any]
    oracle: tuple[str, ...]
    raw: dict[str, Any]
    folder: str = ""

    @property
    def external(self) -> bool:
        """Whether it runs on the benchmark's real hosts, not on embedded sites."""
        return bool(self.raw.get("agentkv", {}).get("external", False))

    @property
    def images(self) -> tuple[str, ...]:
        """Pictures that belong to the intent: addresses, or paths below `folder`."""
        given = self.raw.get("image") or ()
        return (given,) if isinstance(given, str) else tuple(given)

    @property
    def suite(self) -> str:
        """Name of the suite the task belongs to ("file" for a task from a file without one)."""
        return str(self.raw.get("agentkv", {}).get("suite", "file"))

    @property
    def split(self) -> str:
        """The split of the data it runs on: "test", or "train" for a training instance."""
        return str(self.raw.get("agentkv", {}).get("split", "test"))

    @property
    def horizon(self) -> str:
        """ "short", "medium" or "long", by the actions of the oracle ("" when there is none)."""
        from agentkv_envs.tasks.draft import READ  # which needs this module

        if not self.oracle:
            return ""
        actions = sum(READ.fullmatch(step) is None for step in self.oracle)
        return "short" if actions <= 6 else "medium" if actions <= 12 else "long"
