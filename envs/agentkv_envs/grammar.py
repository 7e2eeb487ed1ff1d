"""The actions possible on one observation, as a Lark grammar for llguidance.

A model that decodes under it cannot write an action that does not parse, an id that is not on the page, or
a label that belongs to another id. After the first characters of a label the rest is mostly forced, so the
decoder can fast-forward through it. The grammar is a few dozen literals: it compiles in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable

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
    return kind in ("click", "hover")


def target(element: Element, style: str) -> str:
    """How an action names this element: `"label" [id]`, or `[id]` in the style "vwa"."""
    return f'"{element.label}" [{element.id}]' if style == "label-first" else f"[{element.id}]"


def action_grammar(observation: Observation, *, kinds: Collection[str] | None = None, max_text: int = 60) -> str:
    """Lark text that generates exactly the actions possible on `observation`.

    Args:
        observation: the page the next action is for.
        kinds: the action kinds to allow (None: all); `stop` is always possible.
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
    starts = [start for kind in KINDS if kind in wanted and (start := _START[kind](kind, observation, rules))]
    body = "\n".join(f"{name}: {rule}" for name, rule in rules.items())
    text = f"TEXT: /[^\\[\\]\\x00-\\x1f\\x7f-\\x9f]{{1,{max_text}}}/"
    return "start: " + " | ".join(starts) + "\n" + (body + "\n" if body else "") + text + "\n"


_Rule = Callable[[str, Observation, dict[str, str]], str]


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _choice(texts: Iterable[str]) -> str:
    return " | ".join(_literal(text) for text in dict.fromkeys(texts))


def _on_element(kind: str, observation: Observation, rules: dict[str, str]) -> str:
    """`click "label" [id]` and its like; kinds with the same targets share one rule."""
    targets = _choice(target(e, observation.style) for e in observation.elements if suits(kind, e))
    if not targets:
        return ""
    name = {"hover": "target", "click": "target", "clear": "field"}.get(kind, kind)
    rules[name] = targets
    return f"{_literal(kind + ' ')} {name}"


def _on_field(kind: str, observation: Observation, rules: dict[str, str]) -> str:
    targets = _choice(target(e, observation.style) for e in observation.elements if suits(kind, e))
    if not targets:
        return ""
    rules["field"] = targets
    return '"type " field " [" TEXT "] [" ("0" | "1") "]"'


def _on_select(kind: str, observation: Observation, rules: dict[str, str]) -> str:
    boxes = [e for e in observation.elements if suits(kind, e)]
    if not boxes:
        return ""
    rules["box"] = " | ".join(f"{_literal(target(e, observation.style) + ' [')} ({_choice(e.options)})" for e in boxes)
    return '"select " box "]"'


def _fixed(*texts: str) -> _Rule:
    def rule(kind: str, observation: Observation, rules: dict[str, str]) -> str:
        return f"({_choice(texts)})" if len(texts) > 1 else _literal(texts[0])

    return rule


def _tabs(kind: str, observation: Observation, rules: dict[str, str]) -> str:
    if len(observation.tabs) < 2:
        return ""
    if kind == "close_tab":
        return '"close_tab"'
    others = [i for i in range(len(observation.tabs)) if i != observation.current_tab]
    return f'"tab_focus [" ({_choice(str(i) for i in others)}) "]"'


def _back(kind: str, observation: Observation, rules: dict[str, str]) -> str:
    return '"go_back"' if observation.can_go_back else ""


def _dialog(kind: str, observation: Observation, rules: dict[str, str]) -> str:
    if observation.dialog is None:
        return ""
    prompt = observation.dialog.startswith("prompt")
    accept = '"dialog [accept]" (" [" TEXT "]")?' if prompt else '"dialog [accept]"'
    return f'{accept} | "dialog [dismiss]"'


def _stop(kind: str, observation: Observation, rules: dict[str, str]) -> str:
    return '"stop [" TEXT? "]"'


def _goto(kind: str, observation: Observation, rules: dict[str, str]) -> str:
    rules["ADDRESS"] = "/https?:\\/\\/[a-zA-Z0-9._:\\/?&=%+-]{1,80}/"
    return '"goto [" ADDRESS "]"'


_START: dict[str, _Rule] = {
    "click": _on_element,
    "hover": _on_element,
    "clear": _on_element,
    "more": _on_element,
    "expand": _on_element,
    "type": _on_field,
    "select": _on_select,
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
