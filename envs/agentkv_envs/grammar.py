"""The actions possible on one observation, as a Lark grammar for llguidance.

A model that decodes under it cannot write an action that does not parse, an id that is not on the page, or
a label that belongs to another id. After the first characters of a label the rest is mostly forced, so the
decoder can fast-forward through it. The grammar is a few dozen literals: it compiles in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from agentkv_envs.actions import KINDS
from agentkv_envs.types import Element, Observation

TEXT_ROLES = frozenset({"textbox", "searchbox", "spinbutton"})
PSEUDO_ROLES = frozenset({"more", "expand"})
KEYS = ("Enter", "Escape", "Tab", "ArrowDown", "ArrowUp", "PageDown", "PageUp", "Control+a", "Backspace", "Delete")


def suits(kind: str, element: Element) -> bool:
    """Whether an action of this kind makes sense on this element."""
    if element.disabled:
        return False
    if kind in PSEUDO_ROLES:
        return element.role == kind
    if element.role in PSEUDO_ROLES:
        return False
    if kind in ("type", "clear"):
        return element.role in TEXT_ROLES or (element.role == "combobox" and not element.options)
    if kind == "select":
        return bool(element.options)
    if kind == "upload":
        return element.role in ("file", "button")
    return kind == "hover" or (kind == "click" and element.role != "file")


def target(element: Element, style: str) -> str:
    """How an action names this element: `"label" [id]`, or `[id]` in the style "vwa"."""
    return f'"{element.label}" [{element.id}]' if style == "label-first" else f"[{element.id}]"


def bare_possible(kind: str, observation: Observation) -> bool:
    """Whether an action without an element, of `agentkv_envs.actions.BARE_KINDS`, can be done now."""
    if kind == "close_tab":
        return len(observation.tabs) > 1
    return kind != "go_back" or observation.can_go_back


def literal(text: str) -> str:
    """A text as Lark writes it."""
    return json.dumps(text, ensure_ascii=False)


def action_grammar(
    observation: Observation,
    *,
    kinds: Collection[str] | None = None,
    exclude: Collection[str] = (),
    max_text: int = 60,
) -> str:
    """Lark text that generates exactly the actions possible on `observation`.

    Args:
        observation: the page the next action is for.
        kinds: the action kinds to allow (None: all); `stop` is always possible.
        exclude: actions to leave out, in canonical text; those that carry a free text cannot be left out.
        max_text: the most characters of a typed text, an address or an answer.

    Raises:
        ValueError: a kind that does not exist.
    """
    unknown = set(kinds or ()) - set(KINDS)
    if unknown:
        raise ValueError(f"unknown action kinds {sorted(unknown)}; there are {', '.join(KINDS)}")
    wanted = set(KINDS if kinds is None else kinds) | {"stop"}
    if observation.dialog is not None:
        wanted = {"dialog", "stop"}
    rules: dict[str, str] = {}
    page = _Page(observation, frozenset(exclude), rules)
    starts = [start for kind in KINDS if kind in wanted and (start := _START[kind](kind, page))]
    body = "\n".join(f"{name}: {rule}" for name, rule in rules.items())
    text = f"TEXT: /[^\\[\\]\\x00-\\x1f\\x7f-\\x9f]{{1,{max_text}}}/"
    return "start: " + " | ".join(starts) + "\n" + (body + "\n" if body else "") + text + "\n"


@dataclass(frozen=True)
class _Page:
    """What a rule is made from: the observation, actions to leave out, and the named rules so far."""

    observation: Observation
    exclude: frozenset[str]
    rules: dict[str, str]

    def possible(self, texts: Iterable[str]) -> list[str]:
        return [text for text in texts if text not in self.exclude]

    def targets(self, kind: str) -> list[str]:
        style = self.observation.style
        return [target(e, style) for e in self.observation.elements if suits(kind, e)]


_Rule = Callable[[str, _Page], str]


def _choice(texts: Iterable[str]) -> str:
    return " | ".join(literal(text) for text in dict.fromkeys(texts))


def _on_element(kind: str, page: _Page) -> str:
    """`click "label" [id]` and its like; kinds with the same targets share one rule."""
    all_targets = page.targets(kind)
    targets = [t for t in all_targets if f"{kind} {t}" not in page.exclude]
    if not targets:
        return ""
    shared = {"hover": "target", "click": "target", "clear": "field"}.get(kind, kind)
    name = shared if targets == all_targets else f"{kind}_target"
    page.rules[name] = _choice(targets)
    return f"{literal(kind + ' ')} {name}"


def _on_field(kind: str, page: _Page) -> str:
    targets = _choice(page.targets(kind))
    if not targets:
        return ""
    page.rules["field"] = targets
    return '"type " field " [" TEXT "] [" ("0" | "1") "]"'


def _on_select(kind: str, page: _Page) -> str:
    boxes = []
    for element in page.observation.elements:
        if not suits(kind, element):
            continue
        named = target(element, page.observation.style)
        options = [option for option in element.options if f"select {named} [{option}]" not in page.exclude]
        if options:
            boxes.append(f"{literal(named + ' [')} ({_choice(options)})")
    if not boxes:
        return ""
    page.rules["box"] = " | ".join(boxes)
    return '"select " box "]"'


def _on_upload(kind: str, page: _Page) -> str:
    """File fields where there are any, else buttons, one of which may open a file chooser."""
    observation = page.observation
    if not observation.files:
        return ""
    usable = [e for e in observation.elements if suits(kind, e)]
    fields = [e for e in usable if e.role == "file"] or usable
    if not fields:
        return ""
    page.rules["file_field"] = _choice(target(e, observation.style) for e in fields)
    return f'"upload " file_field " [" ({_choice(observation.files)}) "]"'


def _fixed(*texts: str) -> _Rule:
    def rule(kind: str, page: _Page) -> str:
        possible = page.possible(texts)
        return f"({_choice(possible)})" if possible else ""

    return rule


def _tabs(kind: str, page: _Page) -> str:
    observation = page.observation
    if not bare_possible("close_tab", observation):
        return ""
    if kind == "close_tab":
        return '"close_tab"'
    others = [f"tab_focus [{i}]" for i in range(len(observation.tabs)) if i != observation.current_tab]
    return f"({_choice(possible)})" if (possible := page.possible(others)) else ""


def _back(kind: str, page: _Page) -> str:
    return '"go_back"' if bare_possible(kind, page.observation) and page.possible(["go_back"]) else ""


def _dialog(kind: str, page: _Page) -> str:
    if page.observation.dialog is None:
        return ""
    prompt = page.observation.dialog.startswith("prompt")
    accept = '"dialog [accept]" (" [" TEXT "]")?' if prompt else '"dialog [accept]"'
    return f'{accept} | "dialog [dismiss]"'


def _stop(kind: str, page: _Page) -> str:
    return '"stop [" TEXT? "]"'


def _goto(kind: str, page: _Page) -> str:
    page.rules["ADDRESS"] = "/https?:\\/\\/[a-zA-Z0-9._:\\/?&=%+-]{1,80}/"
    return '"goto [" ADDRESS "]"'


_START: dict[str, _Rule] = {
    "click": _on_element,
    "hover": _on_element,
    "clear": _on_element,
    "more": _on_element,
    "expand": _on_element,
    "type": _on_field,
    "select": _on_select,
    "upload": _on_upload,
    "press": _fixed(*(f"press [{key}]" for key in KEYS)),
    "scroll": _fixed("scroll [up]", "scroll [down]"),
    "goto": _goto,
    "tab_focus": _tabs,
    "wait": _fixed("wait [1]", "wait [3]"),
    "dialog": _dialog,
    "stop": _stop,
    "go_back": _back,
    "go_forward": _fixed("go_forward"),
    "new_tab": _fixed("new_tab"),
    "close_tab": _tabs,
}
