"""Agents that follow a script: the oracle, and the one that gives up at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkv_agents.base import AgentStep
from agentkv_envs import EnvError, parse_action
from agentkv_envs.tasks.miniwob_oracle import MiniwobPilot
from agentkv_envs.tasks.oracle import Pilot

if TYPE_CHECKING:
    from agentkv_envs import Observation


class OracleAgent:
    """Carries out a task's oracle: actions that name elements by label, looked up on the page they are due.

    Where the page does not show the element yet, it looks on (`more`, the next page). An action that does not fit the
    page is reported as a failed reply, so that a task whose oracle is broken shows as such instead of stopping the run.
    """

    def __init__(self, oracle: Sequence[str], pilot: Pilot | MiniwobPilot | None = None) -> None:
        self._pilot = pilot or Pilot(oracle)

    def act(self, observation: Observation, feedback: str | None = None) -> AgentStep:
        """The next action of the oracle; see `Agent.act`."""
        try:
            action = self._pilot.next(observation)
        except EnvError as error:
            return AgentStep(None, "", "failed", str(error))
        return AgentStep(action, str(action))

    def close(self) -> None:
        """Holds nothing."""


class NullAgent:
    """Stops at once with an empty answer: what a suite gives away for nothing."""

    def __init__(self, style: str) -> None:
        self._style = style

    def act(self, observation: Observation, feedback: str | None = None) -> AgentStep:
        """`stop []`; see `Agent.act`."""
        parsed = parse_action("stop []", self._style)
        return AgentStep(parsed.action, "stop []", parsed.mode, parsed.error)

    def close(self) -> None:
        """Holds nothing."""
