"""What an agent is: something that reads an observation and answers with one action."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentkv_envs import Action, Observation


@dataclass(frozen=True)
class Usage:
    """Tokens of one model call, or of all calls of a step. None where the model does not report them.

    `prompt_tokens` is the whole prompt, of which `reused_tokens` were already in the KV cache and
    `new_tokens` were computed; `generated_tokens` is the length of the reply.
    """

    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    new_tokens: int | None = None
    generated_tokens: int | None = None


@dataclass(frozen=True)
class KVStats:
    """State of the session's KV cache after one model call, in bytes and in tokens; `peak_bytes` is the
    most the session ever held. None where the model does not report it."""

    resident_bytes: int | None = None
    peak_bytes: int | None = None
    evicted_tokens: int | None = None
    quantized_tokens: int | None = None
    logical_length: int | None = None


@dataclass(frozen=True)
class AgentStep:
    """One decision of an agent.

    Attributes:
        action: what to do, or None if the reply was no action (then `error` says why).
        raw_text: the reply as the model wrote it.
        plan: the reply that was a plan, if this is the step after it (see `agentkv_agents.plans`).
        parse_mode: "strict", "lenient" or "failed".
        context_full: the model's window, or the budget of its KV cache, cannot hold what it must of the next prompt or
            of the whole reply; the episode is over.
        prefill_ms, decode_ms: the model's own clock, None without one; total_ms: the whole decision.
    """

    action: Action | None
    raw_text: str
    parse_mode: str = "strict"
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    kv: KVStats = field(default_factory=KVStats)
    prefill_ms: float | None = None
    decode_ms: float | None = None
    total_ms: float = 0.0
    context_full: bool = False
    plan: str | None = None


class Agent(Protocol):
    """One agent lives for one episode."""

    def act(self, observation: Observation, feedback: str | None = None) -> AgentStep:
        """Decides on one action.

        `feedback` says what went wrong with the agent's last action (it did not parse, the browser refused
        it); None if nothing did.
        """
        ...

    def close(self) -> None:
        """Frees what the agent holds, its KV session above all. Safe to call twice."""
        ...
