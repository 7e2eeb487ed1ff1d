"""Agents by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv.errors import UnknownName
from agentkv_agents.base import Agent
from agentkv_agents.prompting import PLAIN, Prompting
from agentkv_agents.random_agent import RandomAgent
from agentkv_agents.scripted import NullAgent, OracleAgent
from agentkv_agents.web_agent import WebAgent
from agentkv_envs.tasks.miniwob import SUITE as MINIWOB
from agentkv_envs.tasks.miniwob_oracle import MiniwobPilot

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from agentkv_envs import Task


@dataclass(frozen=True)
class AgentSetup:
    """All that an agent may need to know at the start of its episode."""

    task: Task
    style: str = "label-first"
    seed: int = 0
    history: str = "append"
    notes: bool = False
    prompting: Prompting = PLAIN
    model: BaseChatModel | None = None
    session_id: str | None = None


@dataclass(frozen=True)
class AgentKind:
    """A named way to make an agent; `needs_model` says whether `AgentSetup.model` must be set."""

    name: str
    make: Callable[[AgentSetup], Agent]
    needs_model: bool = False


_KINDS: dict[str, AgentKind] = {}


def register(kind: AgentKind) -> None:
    """Adds an agent. Raises ValueError if the name is taken."""
    if kind.name in _KINDS:
        raise ValueError(f"agent {kind.name!r} is already registered")
    _KINDS[kind.name] = kind


def names() -> tuple[str, ...]:
    """Names of the agents there are."""
    return tuple(_KINDS)


def get(name: str) -> AgentKind:
    """The agent of that name. Raises UnknownName."""
    if name not in _KINDS:
        raise UnknownName(f"unknown agent {name!r}; there are: {', '.join(_KINDS)}")
    return _KINDS[name]


def _make_llm(setup: AgentSetup) -> Agent:
    if setup.model is None:
        raise ValueError("the agent 'llm' needs a chat model")
    return WebAgent(
        setup.model,
        setup.task.intent,
        style=setup.style,
        history=setup.history,
        notes=setup.notes,
        prompting=setup.prompting,
        session_id=setup.session_id,
    )


def _make_oracle(setup: AgentSetup) -> Agent:
    task = setup.task
    if task.suite == MINIWOB:
        return OracleAgent((), MiniwobPilot(task.task_id, task.intent))
    return OracleAgent(task.oracle)


register(AgentKind("llm", _make_llm, needs_model=True))
register(AgentKind("oracle", _make_oracle))
register(AgentKind("null", lambda setup: NullAgent(setup.style)))
register(AgentKind("random", lambda setup: RandomAgent(f"{setup.seed}:{setup.task.task_id}")))
