"""What a server is told when it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from agentkv.chat.sessions import KVSettings

NAME_RULE = "a session id is up to 128 letters, digits, dots, dashes and underscores, and begins with a letter or digit"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""A session's id. It is also the name of its file, so it has no separators and cannot begin with a dot."""


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server; every session of it has the same policy and budget.

    Attributes:
        model: name that clients see.
        options: of the policy.
        sessions_folder: the one folder that sessions are saved to and restored from.
        restore: open every saved session when the server starts.
        api_key: that clients must send; None lets everybody in.
        hosts: values of the Host header that are answered; None answers all. A page in a browser can reach a server
            on its own machine by a name that it controls, so a server for this machine answers to its own names only.
        max_queue: calls that may wait; more are told to come back later.
        max_running: calls that are answered at a time.
        max_sessions: live sessions, spilled ones included; the least recently used idle ones beyond are closed.
        max_anonymous: of these, how many may be without an id.
        prefill_chunk: tokens of a prompt between two steps of decoding. Always the same: under an evicting policy what
            is kept depends on the chunks, and must not depend on the load.
        max_prompt: tokens that the messages of one call may add to its session; by default four windows of the model.
            Under an evicting policy a session has no end, but whoever sends a library at once has others wait.
        max_tokens: of a reply whose request does not say.
        temperature: of a request that does not say.
        max_body_bytes: of a request.
    """

    model: str = "smollm2-135m"
    policy: str = "full"
    budget: int | str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    sessions_folder: Path = Path("sessions")
    restore: bool = False
    api_key: str | None = field(default=None, repr=False)
    hosts: frozenset[str] | None = None
    max_queue: int = 32
    max_running: int = 8
    max_sessions: int = 64
    max_anonymous: int = 16
    prefill_chunk: int = 128
    max_prompt: int | None = None
    max_tokens: int = 512
    temperature: float = 0.0
    max_body_bytes: int = 4 * 2**20

    @cached_property
    def kv(self) -> KVSettings:
        """Of every session."""
        return KVSettings(self.policy, self.budget, self.options)
