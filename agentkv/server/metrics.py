"""What Prometheus reads. No label has a session's id: there may be any number of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

OUTCOMES = ("ok", "cancelled", "refused", "busy", "error")
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKEN_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
_MASK_SECONDS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1)


@dataclass(frozen=True)
class Load:
    """The state of the model's thread after its newest step.

    Attributes:
        pages_bytes: pages held in the KV pool, by all sessions.
        metadata_bytes: what sessions hold beside pages.
        spilled_bytes: slots outside the pool.
    """

    queued: int = 0
    running: int = 0
    sessions: int = 0
    pages_bytes: int = 0
    metadata_bytes: int = 0
    spilled_bytes: int = 0


class Metrics:
    """The metrics of one server.

    Args:
        policy: of its sessions, a label of the KV gauges.
        load: gives the newest state.
    """

    def __init__(self, policy: str, load: Callable[[], Load]):
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("agentkv_requests", "Chat requests that ended.", ["outcome"], registry=registry)
        for outcome in OUTCOMES:
            self.requests.labels(outcome)
        self.cancelled = Counter("agentkv_cancelled", "Requests whose client went away.", registry=registry)
        self.prompt_tokens = Counter("agentkv_prompt_tokens", "Tokens of prompts.", registry=registry)
        self.cached_tokens = Counter("agentkv_cached_tokens", "Of these, those not computed again.", registry=registry)
        self.generated_tokens = Counter("agentkv_generated_tokens", "Tokens of replies.", registry=registry)
        self.evicted_tokens = Counter("agentkv_evicted_tokens", "Tokens that policies dropped.", registry=registry)
        self.sessions_evicted = Counter("agentkv_sessions_evicted", "Idle sessions closed for room.", registry=registry)
        self.ttft = Histogram("agentkv_ttft_seconds", "Arrival to first token.", buckets=_SECONDS, registry=registry)
        self.tpot = Histogram(
            "agentkv_tpot_seconds", "Per token after the first.", buckets=_TOKEN_SECONDS, registry=registry
        )
        self.mask = Histogram(
            "agentkv_grammar_mask_seconds", "One mask of a grammar.", buckets=_MASK_SECONDS, registry=registry
        )
        self.budget = Gauge("agentkv_kv_budget_bytes", "The KV pool.", registry=registry)
        self._gauge("agentkv_queue_depth", "Requests that wait.", lambda: load().queued)
        self._gauge("agentkv_running", "Requests being answered.", lambda: load().running)
        self._gauge("agentkv_sessions", "Live sessions, spilled ones included.", lambda: load().sessions)
        self._gauge("agentkv_kv_metadata_bytes", "Metadata of sessions.", lambda: load().metadata_bytes)
        self._gauge("agentkv_spilled_bytes", "Slots outside the pool.", lambda: load().spilled_bytes)
        held = Gauge("agentkv_kv_bytes", "Pages held in the KV pool.", ["policy"], registry=registry)
        held.labels(policy).set_function(lambda: load().pages_bytes)

    def _gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        Gauge(name, about, registry=self.registry).set_function(read)

    def render(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)
