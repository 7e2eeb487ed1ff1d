"""The action language: VisualWebArena's, with an optional element label and a few extra actions.

    click "black toaster" [27]          type "Search" [3] [toaster] [1]          stop [answer]

An action is strict when it is exactly its own canonical text, lenient when it could be understood all the
same (other case, `click(27)`, a fence, words around it), and failed otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agentkv_envs.types import Action, ParsedAction

ELEMENT_KINDS = ("click", "hover", "clear", "more", "expand")
FIELD_KINDS = ("type", "select", "upload")
TEXT_KINDS = ("press", "scroll", "goto", "tab_focus", "wait", "dialog", "stop")
BARE_KINDS = ("go_back", "go_forward", "new_tab", "close_tab")
KINDS = (*ELEMENT_KINDS, *FIELD_KINDS, *TEXT_KINDS, *BARE_KINDS)

MAX_WAIT_S = 5.0

_HELP = (
    ("click {e}", "press a link, button, checkbox or option"),
    ("type {e} [text] [1]", "replace a field's text; 1 presses Enter afterwards, 0 does not"),
    ("select {e} [option]", "choose an option of a combobox"),
    ("upload {e} [file]", "choose one of the task's files for a file field"),
    ("more {e}", "show the next entries of a list"),
    ("expand {e}", "show a menu or a text that was cut short"),
    ("hover {e}, clear {e}", "point at an element; empty a field"),
    ("scroll [down], press [Enter], wait [1]", "scroll up or down, press a key, wait some seconds"),
    ("go_back, go_forward, goto [address]", "move between pages"),
    ("new_tab, tab_focus [0], close_tab", "work with tabs"),
    ("dialog [accept], dialog [dismiss]", "answer an open dialog"),
    ("stop [answer]", "finish the task; leave the answer empty when none is asked for"),
)

_VERB = re.compile(r"(?<![\w/])(" + "|".join(sorted(KINDS, key=len, reverse=True)) + r")\b", re.IGNORECASE)
_FENCE = re.compile(r"```(?:\w+\n)?(.*?)```", re.DOTALL)
_LABEL = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'(?!\w))""")
_ID = re.compile(r"\s*(?:[\[(]\s*#?(\d{1,4})\s*[\])]|#?(\d{1,4})(?!\w))")
_NUMBER = re.compile(r"\s*#?(\d{1,4})\s*")
_FORBIDDEN_IN_LABEL = str.maketrans({'"': "'", "[": "(", "]": ")"})


def clean_label(name: str, limit: int = 80) -> str:
    """An element's name as a label: one line, no double quotes or square brackets, at most `limit` characters."""
    # Of a text of megabytes only the beginning is looked at.
    plain = "".join(c if c.isprintable() else " " for c in name[: 10 * limit].translate(_FORBIDDEN_IN_LABEL))
    label = " ".join(plain.split())
    return label if len(label) <= limit else label[: limit - 1].rstrip() + "…"


def format_action(action: Action) -> str:
    """The canonical text of an action; parsing it gives the action back."""
    parts = [action.kind]
    if action.label is not None:
        parts.append(f'"{action.label}"')
    if action.element_id is not None:
        parts.append(f"[{action.element_id}]")
    if action.text is not None:
        dialog_text = action.kind == "dialog" and action.text.startswith("accept ")
        parts.append(f"[accept] [{action.text[7:]}]" if dialog_text else f"[{action.text}]")
    if action.kind == "type":
        parts.append("[1]" if action.enter else "[0]")
    return " ".join(parts)


def action_help(style: str) -> str:
    """The lines of a prompt that explain the actions in this style."""
    element = '"label" [id]' if style == "label-first" else "[id]"
    return "\n".join(f"{form.format(e=element)}: {meaning}" for form, meaning in _HELP)


def parse_action(text: str, style: str = "label-first") -> ParsedAction:
    """Read the action out of a model's reply; never raises.

    Both styles accept the same texts. In the style "vwa" an action between ``` fences is strict too,
    because that is the form the benchmark's own prompts ask for.
    """
    bare = text.strip(" \n")
    fence = _FENCE.search(text)
    body = fence.group(1).strip() if fence else bare
    action, error = _read(body)
    if action is None:
        return ParsedAction(None, "failed", error)
    strict = body if fence and style == "vwa" else bare
    return ParsedAction(action, "strict" if format_action(action) == strict else "lenient")


def _read(body: str) -> tuple[Action | None, str | None]:
    """The first readable action in `body`: a line that starts with a verb wins over a verb inside a sentence."""
    error = 'no action found; answer with one action such as click "label" [id]'
    starts = [m for m in _VERB.finditer(body) if not body[: m.start()].rpartition("\n")[2].strip()]
    for match in starts or list(_VERB.finditer(body)):
        kind = match.group(1).lower()
        line = body[match.end() :].partition("\n")[0]
        try:
            return _READERS[kind](kind, line.rstrip("\r")), None
        except ValueError as exc:
            error = str(exc)
    return None, error


def _target(kind: str, line: str) -> tuple[str | None, int | None, str]:
    """Label, id and what follows them."""
    label = None
    if (m := _LABEL.match(line)) is not None:
        label = m.group(1) if m.group(1) is not None else m.group(2)
        line = line[m.end() :]
    if (m := _ID.match(line)) is not None:
        return label, int(m.group(1) or m.group(2)), line[m.end() :]
    if label is None:
        raise ValueError(f'{kind} needs an element: {kind} "label" [id]')
    return label, None, line


def _read_element(kind: str, line: str) -> Action:
    label, element_id, _ = _target(kind, line)
    return Action(kind, element_id, label)


def _brackets(rest: str) -> list[str]:
    """Contents of the bracket groups in `rest`, outermost brackets only where they nest."""
    start, end = rest.find("["), rest.rfind("]")
    return re.split(r"\]\s*\[", rest[start + 1 : end]) if 0 <= start < end else []


def _read_field(kind: str, line: str) -> Action:
    """`type`, `select` and `upload`: [label] [id] [text] and, for `type`, [0|1].

    A single bracket group after a label is the text, not an id: oracles name elements by label alone.
    """
    label = None
    if (m := _LABEL.match(line)) is not None:
        label = m.group(1) if m.group(1) is not None else m.group(2)
        line = line[m.end() :]
    groups = _brackets(line)
    enter = True
    has_flag = kind == "type" and len(groups) > 1 and groups[-1].strip() in ("0", "1")
    if has_flag and (len(groups) > 2 or label is not None):
        enter = groups.pop().strip() == "1"
    element_id = None
    if kind == "upload" and len(groups) == 2 and _NUMBER.fullmatch(groups[1]) and not _NUMBER.fullmatch(groups[0]):
        groups.reverse()  # the benchmark's order: file, then id
    if len(groups) > 1 or label is None:
        number = _NUMBER.fullmatch(groups[0]) if groups else None
        if number is None:
            raise ValueError(f'{kind} needs an element: {kind} "label" [id] [text]')
        element_id = int(number.group(1))
        groups = groups[1:]
    if not groups:
        raise ValueError(f"{kind} needs a text in brackets after the element")
    return Action(kind, element_id, label, "][".join(groups), enter)


def _read_text(kind: str, line: str) -> Action:
    text = line.strip(" ")
    if text[:1] in "[(" and text[-1:] in ("]", ")") and len(text) > 1:
        text = text[1:-1]
    if kind in ("scroll", "tab_focus", "wait", "dialog"):
        text = text.strip().lower() if kind != "dialog" else text.strip()
    check = _CHECKS.get(kind)
    return Action(kind, text=check(text) if check else text)


def _direction(text: str) -> str:
    if text not in ("up", "down"):
        raise ValueError("scroll needs a direction: scroll [up] or scroll [down]")
    return text


def _tab_index(text: str) -> str:
    if not re.fullmatch(r"\d{1,2}", text, re.ASCII):
        raise ValueError("tab_focus needs the number of a tab: tab_focus [0]")
    return text


def _seconds(text: str) -> str:
    if not re.fullmatch(r"\d{1,2}(\.\d+)?", text, re.ASCII):
        raise ValueError("wait needs a number of seconds: wait [1]")
    return text


def _answer_to_dialog(text: str) -> str:
    verb, _, rest = text.partition("]") if "]" in text else text.partition(" ")
    rest = rest.strip().removeprefix("[")
    if verb.lower() not in ("accept", "dismiss"):
        raise ValueError("dialog needs an answer: dialog [accept] or dialog [dismiss]")
    return f"accept {rest}" if rest and verb.lower() == "accept" else verb.lower()


def _required(what: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not text.strip():
            raise ValueError(f"{what} in brackets is missing")
        return text

    return check


_CHECKS = {
    "scroll": _direction,
    "tab_focus": _tab_index,
    "wait": _seconds,
    "dialog": _answer_to_dialog,
    "press": _required("the key"),
    "goto": _required("the address"),
}


def _read_bare(kind: str, line: str) -> Action:
    return Action(kind)


_READERS = {
    **dict.fromkeys(ELEMENT_KINDS, _read_element),
    **dict.fromkeys(FIELD_KINDS, _read_field),
    **dict.fromkeys(TEXT_KINDS, _read_text),
    **dict.fromkeys(BARE_KINDS, _read_bare),
}
