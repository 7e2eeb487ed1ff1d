"""What policies are compared with: dense attention and keys of the whole text in float64, and plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from agentkv.cache.plan import Plan
from agentkv.cache.view import CacheView
from agentkv.engine import Session
from agentkv.policies import decide
from agentkv.policies.base import Policy
from tests.runtime_helpers import causal_logits, logits_after, oracle_probs, random_ids, tiny_engine, tiny_model

LAYERS, HEADS = 2, 2


def dense_keys(ids: list[int]) -> Tensor:
    """Keys [L, H, T, D] float64 of plain transformers, RoPE applied."""
    model = tiny_model("llama")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        cache = model(torch.tensor([ids]), use_cache=True).past_key_values
    return torch.stack([layer.keys[0] for layer in cache.layers])


def dense_probs(ids: list[int]) -> Tensor:
    """Attention probabilities [L, H, group, T, T] float64 of plain transformers."""
    causal_logits(tiny_model("llama"), ids)
    return torch.stack([probs.unflatten(0, (HEADS, -1)) for probs in oracle_probs])


def held(session: Session, layer: int, head: int) -> set[int]:
    """Tokens that a head holds."""
    store = session.cache.store
    tokens = store.in_use(store.token_index)[layer, head]
    return set(tokens[tokens >= 0].tolist())


def best(scores: Tensor, candidates: Sequence[int], n: int) -> set[int]:
    """The n candidates with the highest scores [T]."""
    return set(sorted(candidates, key=lambda token: float(scores[token]))[len(candidates) - n :])


def after_the_prompt(policy: str, budget: int, tokens: int, **options: object) -> tuple[list[int], Session]:
    """A session that has read a whole prompt and then made room for one token: its first decision."""
    engine = tiny_engine()
    session = engine.open_session(policy, budget, prefill="whole", **options)
    ids = random_ids(tokens + 1, seed=11)
    logits_after(engine, session, ids[:-1])
    assert session.stats.evicted_tokens == 0
    logits_after(engine, session, ids[-1:])
    assert session.stats.evicted_tokens > 0
    return ids[:-1], session


@dataclass(frozen=True)
class Decision:
    """One structural decision: what the policy saw, and what it kept."""

    view: CacheView
    keep: Tensor

    @property
    def cut(self) -> Tensor:
        """[L, H] bool: heads that gave something up."""
        return (self.view.filled & ~self.keep).any(-1)


def decisions(monkeypatch: pytest.MonkeyPatch) -> list[Decision]:
    """From now on, every structural decision is added to this list."""
    log: list[Decision] = []
    shrink = decide.shrink

    def logged(policy: Policy, view: CacheView, target: decide.Target) -> Plan:
        plan = shrink(policy, view, target)
        copies = {name: value.clone() for name in ("token_index", "mass") if (value := getattr(view, name)) is not None}
        log.append(Decision(CacheView(**{**_fields(view), **copies}), plan.keep.clone()))
        return plan

    monkeypatch.setattr(decide, "shrink", logged)
    return log


def _fields(view: CacheView) -> dict[str, object]:
    return {name: getattr(view, name) for name in CacheView.__dataclass_fields__}
