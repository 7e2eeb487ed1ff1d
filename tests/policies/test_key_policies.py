"""knorm and keydiff: ranking by keys alone."""

from __future__ import annotations

import pytest
import torch

from agentkv import policies
from agentkv.errors import AgentKVError
from agentkv.policies.knorm import KeyNorm
from tests.policies.reference import HEADS, LAYERS, after_the_prompt, best, dense_keys, held
from tests.runtime_helpers import logits_after, random_ids, tiny_engine


def test_knorm_keeps_the_smallest_keys_of_a_prompt() -> None:
    ids, session = after_the_prompt("knorm", 40, 80)
    norms = dense_keys(ids).norm(dim=-1)
    for layer in range(LAYERS):
        for head in range(HEADS):
            assert held(session, layer, head) == best(-norms[layer, head], range(80), 39) | {80}


def test_knorm_replaces_the_largest_key_in_decoding() -> None:
    """Norms come from the column; the keys in the pages have the same."""
    engine = tiny_engine()
    session = engine.open_session("knorm", 32)
    logits_after(engine, session, random_ids(70))
    for token in random_ids(5, seed=1):
        store = session.cache.store
        tokens = store.in_use(store.token_index).clone()
        norms = store.read_keys().norm(dim=-1)
        torch.testing.assert_close(store.in_use(store.columns["creation"]), norms, rtol=1e-6, atol=0.0)
        logits_after(engine, session, [token])
        newest = session.logical_length - 1
        for layer in range(LAYERS):
            for head in range(HEADS):
                gone = int(tokens[layer, head, norms[layer, head].argmax()])
                assert held(session, layer, head) == set(tokens[layer, head].tolist()) - {gone} | {newest}


def test_knorm_is_exact_for_half_precision_keys() -> None:
    keys = torch.randn(2, 5, 8, dtype=torch.bfloat16)
    norms = KeyNorm()(0, keys, None)
    assert norms.dtype == torch.float32
    torch.testing.assert_close(norms, keys.double().square().sum(-1).sqrt().float())


def test_keydiff_keeps_the_keys_least_like_their_mean() -> None:
    ids, session = after_the_prompt("keydiff", 60, 100, block=20)
    keys = dense_keys(ids)
    for layer in range(LAYERS):
        for head in range(HEADS):
            unit = [key / key.norm() for key in keys[layer, head]]
            anchor = sum(unit) / len(unit)
            unlike = -torch.stack([key @ anchor / anchor.norm() for key in unit])
            assert held(session, layer, head) == best(unlike, range(100), 40) | {100}


def test_keydiff_takes_its_anchor_from_what_is_held() -> None:
    """A decision in decoding, when heads hold different tokens: against a loop over the keys in the cache."""
    engine = tiny_engine()
    session = engine.open_session("keydiff", 40, block=8, recent=4)
    logits_after(engine, session, random_ids(60, seed=2))
    store = session.cache.store
    while store.slots_used < 40:
        logits_after(engine, session, [5])
    keys, tokens, length = store.read_keys().double(), store.in_use(store.token_index).clone(), session.logical_length
    logits_after(engine, session, [5])
    for layer in range(LAYERS):
        for head in range(HEADS):
            unit = [key / key.norm() for key in keys[layer, head]]
            anchor = sum(unit) / len(unit)
            likeness = {int(t): float(key @ anchor) for t, key in zip(tokens[layer, head], unit, strict=True)}
            alike = sorted((t for t in likeness if t < length - 4), key=lambda t: -likeness[t])
            assert set(likeness) - held(session, layer, head) == set(alike[:8])
    assert held(session, 0, 0) != held(session, 0, 1)


@pytest.mark.parametrize(
    ("policy", "option", "value"),
    [("knorm", "recent", 2.5), ("knorm", "sinks", -1), ("keydiff", "block", "all"), ("keydiff", "recent", -3)],
)
def test_bad_options_are_refused(policy: str, option: str, value: object) -> None:
    with pytest.raises(AgentKVError, match=f"^{policy}: {option} must be"):
        policies.build(policy, **{option: value})
