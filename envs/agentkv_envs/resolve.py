"""From an element's label to the id it has on the current page."""

from __future__ import annotations

import difflib
from dataclasses import replace

from agentkv_envs.actions import ELEMENT_KINDS, FIELD_KINDS, parse_action
from agentkv_envs.errors import ActionError
from agentkv_envs.grammar import suits
from agentkv_envs.types import Action, Element, Observation


def resolve(action: Action | str, observation: Observation) -> Action:
    """Fill in the id (and the exact label) of the element an action names by label.

    An exact label wins, then one that differs in case only, then the only one that contains the label.

    Raises:
        ActionError: no element of this label takes this action here; the message lists near ones.
    """
    if isinstance(action, str):
        parsed = parse_action(action, observation.style)
        if parsed.action is None:
            raise ActionError(f"{action!r}: {parsed.error}")
        action = parsed.action
    if action.kind not in (*ELEMENT_KINDS, *FIELD_KINDS):
        return action
    element = _by_id(action, observation) if action.element_id is not None else _by_label(action, observation)
    return replace(action, element_id=element.id, label=element.label)


def _by_id(action: Action, observation: Observation) -> Element:
    assert action.element_id is not None
    element = observation.element(action.element_id)
    if element is None:
        raise ActionError(f"there is no element [{action.element_id}] on this page")
    if action.label is not None and not _agree(action.label, element.label):
        raise ActionError(f'[{element.id}] is {element.role} "{element.label}", not "{action.label}"')
    if element.disabled:
        raise ActionError(f'{element.role} "{element.label}" [{element.id}] is disabled')
    return element


def _agree(given: str, label: str) -> bool:
    """A model may shorten a label; it may not name another element."""
    a, b = given.casefold().strip(" …."), label.casefold().strip(" ….")
    return a == b or (bool(a) and a in b) or (bool(b) and b in a)


def _by_label(action: Action, observation: Observation) -> Element:
    wanted = action.label or ""
    usable = [e for e in observation.elements if suits(action.kind, e)]
    for same in (lambda e: e.label == wanted, lambda e: e.label.casefold() == wanted.casefold()):
        if found := [e for e in usable if same(e)]:
            return found[0]
    partial = [e for e in usable if wanted.casefold() in e.label.casefold()]
    if len(partial) == 1:
        return partial[0]
    problem = f'several elements match "{wanted}"' if partial else f'no element "{wanted}" to {action.kind}'
    near = [e.label for e in partial] or difflib.get_close_matches(wanted, [e.label for e in usable], 3, 0.4)
    hint = "; near: " + ", ".join(f'"{label}"' for label in near[:3]) if near else ""
    raise ActionError(f"{problem} on this page{hint}")
