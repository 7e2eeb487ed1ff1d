"""Errors of the evaluation: one line each, exit code 2."""

from __future__ import annotations

from agentkv.errors import AgentKVError


class EvalError(AgentKVError):
    """Options that make no sense, a run folder that cannot be written, read or found."""
