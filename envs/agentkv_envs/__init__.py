"""Web environments for language-model agents: a real browser, embedded sites, tasks and evaluators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkv_envs.actions import KINDS, action_help, format_action, parse_action
from agentkv_envs.errors import ActionError, BrowserMissing, EnvError, InfraError, TaskError
from agentkv_envs.grammar import action_grammar
from agentkv_envs.options import EnvOptions
from agentkv_envs.resolve import resolve
from agentkv_envs.tasks import SUITES, bind, load_suite, load_task_file
from agentkv_envs.types import DIALECTS, STYLES, Action, Element, Observation, ParsedAction, Score, StepResult, Task

if TYPE_CHECKING:
    from agentkv_envs.browser import find_executable
    from agentkv_envs.env import WebEnv

__all__ = [
    "DIALECTS",
    "KINDS",
    "STYLES",
    "SUITES",
    "Action",
    "ActionError",
    "BrowserMissing",
    "Element",
    "EnvError",
    "EnvOptions",
    "InfraError",
    "Observation",
    "ParsedAction",
    "Score",
    "StepResult",
    "Task",
    "TaskError",
    "WebEnv",
    "action_grammar",
    "action_help",
    "bind",
    "find_executable",
    "format_action",
    "load_suite",
    "load_task_file",
    "parse_action",
    "resolve",
]

_LAZY = {"WebEnv": "agentkv_envs.env", "find_executable": "agentkv_envs.browser"}


def __getattr__(name: str) -> Any:
    """The browser parts load on first use: tasks and actions need no browser stack."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        raise EnvError(f"the package {error.name!r} is missing; install it with: pip install 'agentkv[envs]'") from None
