"""The control that guesses: any action the page allows, with equal probability."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from agentkv_agents.base import AgentStep
from agentkv_envs.actions import ELEMENT_KINDS
from agentkv_envs.grammar import suits
from agentkv_envs.types import Action

if TYPE_CHECKING:
    from agentkv_envs import Element, Observation

_WORD = re.compile(r"[^\W\d_]{3,}")


class RandomAgent:
    """Picks uniformly among `possible_actions`; the same seed makes the same choices on the same pages."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def act(self, observation: Observation, feedback: str | None = None) -> AgentStep:
        """Any possible action; see `Agent.act`."""
        words = _WORD.findall(observation.text) or ["a"]
        action = self._random.choice(possible_actions(observation, self._random.choice(words)))
        return AgentStep(action, str(action))

    def close(self) -> None:
        """Holds nothing."""


def possible_actions(observation: Observation, text: str) -> list[Action]:
    """Everything that can be done on a page; `text` is what is typed into fields, and the answer of `stop`.

    Left out are actions without a finite choice (`goto`) and those that only pass time (`wait`, keys).
    """
    stops = [Action("stop", text=""), Action("stop", text=text)]
    if observation.dialog is not None:
        return [Action("dialog", text="accept"), Action("dialog", text="dismiss"), *stops]
    actions = [action for element in observation.elements for action in _on_element(element, text)]
    actions += [Action("scroll", text="up"), Action("scroll", text="down"), *stops]
    if observation.can_go_back:
        actions.append(Action("go_back"))
    others = [index for index in range(len(observation.tabs)) if index != observation.current_tab]
    actions += [Action("tab_focus", text=str(index)) for index in others]
    if others:
        actions.append(Action("close_tab"))
    return actions


def _on_element(element: Element, text: str) -> list[Action]:
    actions = [Action(kind, element.id, element.label) for kind in ELEMENT_KINDS if suits(kind, element)]
    if suits("type", element):
        actions += [Action("type", element.id, element.label, text, enter) for enter in (True, False)]
    if suits("select", element):
        actions += [Action("select", element.id, element.label, option) for option in element.options]
    return actions
