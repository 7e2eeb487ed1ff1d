"""conf-kv-l: conf-kv, with a layer's share of the slots falling with its depth."""

from __future__ import annotations

import pytest
import torch

from agentkv import policies
from agentkv.cache.budget import Budget, resolve
from agentkv.cache.formats import KVLayout
from agentkv.engine import SamplingParams
from agentkv.errors import AgentKVError
from tests.runtime_helpers import logits_after, random_ids, tiny_engine

LAYOUT = KVLayout(layers=12, kv_heads=4, head_dim=64, dtype=torch.bfloat16)


def test_layers_get_what_the_formula_says_at_the_same_total() -> None:
    """N(l) = max(N_min, N₀ β^(l/L)) with one N₀, and on average what was granted."""
    slots = resolve(Budget(tokens=256), policies.build("conf-kv-l"), LAYOUT, 4096).shape.layer_slots
    assert 0 <= 12 * 256 - sum(slots) < 12
    assert list(slots) == sorted(slots, reverse=True)
    assert min(slots) >= 96
    for layer, count in enumerate(slots):
        assert count == pytest.approx(slots[0] * 0.5 ** (layer / 12), abs=1.01)


def test_no_layer_falls_below_the_least() -> None:
    tight = policies.build("conf-kv-l", beta=0.1, least=96)
    slots = resolve(Budget(tokens=128), tight, LAYOUT, 4096).shape.layer_slots
    assert slots[-1] == slots[-2] == 96
    assert slots[0] > 128
    assert sum(slots) <= 12 * 128
    even = resolve(Budget(tokens=64), policies.build("conf-kv-l", least=96), LAYOUT, 4096).shape.layer_slots
    assert set(even) == {64}  # where all have less than the least, all have the same


def test_everything_else_is_conf_kv() -> None:
    plain, pyramid = policies.build("conf-kv", tight=0.5, sinks=2), policies.build("conf-kv-l", tight=0.5, sinks=2)
    for part in ("scorer", "trigger", "precision", "sinks", "recent"):
        assert getattr(plain, part) == getattr(pyramid, part)
    assert pyramid.options == {**plain.options, "beta": 0.5, "least": 96}
    assert policies.build("conf-kv-l", **pyramid.options) == pyramid


def test_early_layers_hold_more_and_both_follow_the_confidence() -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("conf-kv-l", 64, least=16, beta=0.25, fp_window=8, recent=4, tight=0.5, threshold=0.5)
    logits_after(engine, session, random_ids(140))
    held = {}
    for confidence in (0.1, 0.9):
        for token in random_ids(40, seed=int(10 * confidence)):
            session.cache.confidence = confidence
            logits_after(engine, session, [token])
        held[confidence] = session.cache.store.used[:, 0].tolist()
    first, last = session.limits.shape.layer_slots
    assert first > 1.8 * last
    assert held[0.1] == [first, last]
    assert held[0.9] == [first // 2, last // 2]


@pytest.mark.parametrize(("option", "value"), [("beta", 0), ("beta", 1.5), ("least", -1), ("alpha", 2)])
def test_bad_options_are_refused(option: str, value: object) -> None:
    with pytest.raises(AgentKVError, match=f"^conf-kv-l: {option} must be"):
        policies.build("conf-kv-l", **{option: value})


def test_a_layer_of_few_slots_keeps_what_is_protected_when_the_model_is_sure() -> None:
    engine = tiny_engine(dtype=torch.float32)
    options = {"beta": 0.1, "least": 8, "tight": 0.25, "threshold": 0.0, "recent": 4, "fp_window": 4}
    session = engine.open_session("conf-kv-l", 24, **options)
    reply = list(engine.generate(session, random_ids(60), SamplingParams(max_tokens=20, min_tokens=20)))
    assert sum(len(event.token_ids) for event in reply) == 20
    store = session.cache.store
    held = store.in_use(store.token_index)
    for token in (0, 1, 2, 3, *range(session.logical_length - 4, session.logical_length)):
        assert bool((held == token).any(-1).all()), token
