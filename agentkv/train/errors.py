"""What can go wrong in training and can be mended."""

from __future__ import annotations

from agentkv.errors import AgentKVError


class TrainError(AgentKVError):
    """A training that cannot begin, go on or be written; the message says what to change."""
