"""snapkv and pyramidkv: the attention of an observation window, pooled over neighbours, at KV-head granularity."""

from __future__ import annotations

import pytest
import torch

from agentkv import policies
from agentkv.cache import controller as controller_module
from agentkv.errors import AgentKVError, BudgetTooSmall
from agentkv.policies.allocators import Pyramid
from tests.policies.reference import HEADS, LAYERS, after_the_prompt, best, decisions, dense_probs, held
from tests.runtime_helpers import (
    logits_after,
    oracle_logits,
    oracle_probs,
    random_ids,
    recording,
    tiny_engine,
    tiny_model,
)


def one_shot(ids: list[int], window: int, kernel: int) -> torch.Tensor:
    """SnapKV's scores [L, H, T − window] of a prompt, from dense attention in float64."""
    probs = dense_probs(ids)[:, :, :, -window:, :-window].sum((2, 3))
    side = kernel // 2
    padded = torch.nn.functional.pad(probs, (side, side))
    return torch.stack([padded[..., at : at + probs.shape[-1]] for at in range(kernel)]).sum(0) / kernel


@pytest.mark.parametrize("pieces", [1, 3], ids=["one pass", "three passes"])
@pytest.mark.parametrize("options", [{}, {"window": 16, "kernel": 7}], ids=["defaults", "narrow"])
def test_snapkv_of_a_whole_prompt_is_the_one_shot_selection(monkeypatch, pieces: int, options: dict[str, int]) -> None:
    tokens, budget = 150, 110
    monkeypatch.setattr(controller_module, "DENSE_CHUNK", tokens // pieces)
    ids, session = after_the_prompt("snapkv", budget, tokens, **options)
    window = options.get("window", 32)
    scores = one_shot(ids, window, options.get("kernel", 5))
    for layer in range(LAYERS):
        for head in range(HEADS):
            chosen = best(scores[layer, head], range(tokens - window), budget - 2 * window)
            assert held(session, layer, head) == chosen | set(range(tokens - window, tokens + 1))
    assert held(session, 0, 0) != held(session, 0, 1), "each KV head selects for itself"


def test_pyramidkv_keeps_fewer_in_later_layers_at_the_same_total() -> None:
    tokens, budget, window = 200, 100, 16
    ids, session = after_the_prompt("pyramidkv", budget, tokens, window=window, beta=4.0)
    scores = one_shot(ids, window, 5)
    spare = budget - 2 * window  # what is beside the window once a block is free
    kept = 2 * spare - spare // 4, spare // 4
    for layer in range(LAYERS):
        for head in range(HEADS):
            chosen = best(scores[layer, head], range(tokens - window), kept[layer])
            assert held(session, layer, head) == chosen | set(range(tokens - window, tokens + 1))
    assert int(session.cache.store.used.sum()) <= LAYERS * HEADS * budget


def test_pyramid_layers_can_all_hold_the_window_and_a_block() -> None:
    session = tiny_engine().open_session("pyramidkv", 100, window=16)
    assert session.limits.shape.least_layer >= 32
    assert sum(session.limits.shape.layer_slots) <= 200
    assert Pyramid(20.0).layer_slots(100, 2, 32) == session.limits.shape.layer_slots


COMPETING = {
    "scorer": {"name": "window-mass", "window": 8}, "trigger": {"name": "block", "size": 8}, "recent": 8,
    "allocator": "global",
}  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "options"),
    [("snapkv", {"window": 8}), ("pyramidkv", {"window": 8}), ("compose", {"recipe": COMPETING})],
    ids=["snapkv", "pyramidkv", "heads compete"],
)
def test_in_decoding_the_sum_is_over_exactly_the_last_queries(monkeypatch, policy: str, options: dict) -> None:
    """From a short prompt through the first decision and several more, each layer at its own pace."""
    window, engine, log = 8, tiny_engine(), decisions(monkeypatch)
    session = engine.open_session(policy, 60, **options)
    ids = random_ids(150, seed=6)
    with recording(session) as steps:
        logits_after(engine, session, ids[:20])
        for token in ids[20:]:
            logits_after(engine, session, [token])
    oracle_logits(tiny_model("llama"), ids, steps.visible(LAYERS, HEADS, len(ids)))
    probs = torch.stack([layer.unflatten(0, (HEADS, -1)) for layer in oracle_probs])
    checked = 0
    for decision in log:
        length = decision.view.logical_length
        expected = probs[:, :, :, length - window : length].sum((2, 3))
        for layer, head in decision.cut.nonzero().tolist():
            mass = decision.view.mass[layer, head]
            tokens = decision.view.token_index[layer, head]
            filled = tokens >= 0
            torch.testing.assert_close(
                mass[filled], expected[layer, head][tokens[filled].long()].float(), rtol=1e-5, atol=1e-6
            )
            checked += 1
    assert checked >= 16


@pytest.mark.parametrize("policy", ["snapkv", "pyramidkv"])
def test_a_pruned_cache_equals_masked_attention(policy: str) -> None:
    engine = tiny_engine()
    session = engine.open_session(policy, 40, window=8, sinks=2)
    ids = random_ids(130, seed=3)
    turns = [ids[:50], *([t] for t in ids[50:80]), ids[80:101], *([t] for t in ids[101:])]
    with recording(session) as log:
        got = [logits_after(engine, session, turn) for turn in turns]
    expected = oracle_logits(tiny_model("llama"), ids, log.visible(LAYERS, HEADS, len(ids)))
    torch.testing.assert_close(got[-1], expected[-1], rtol=0.0, atol=1e-9)
    assert max(log.resident) <= session.limits.max_bytes


def test_chunks_smaller_than_the_window_still_add_up_within_a_chunk(monkeypatch) -> None:
    """Under a small budget a chunk has fewer queries than the window: those are what decides."""
    engine, log = tiny_engine(), decisions(monkeypatch)
    session = engine.open_session("snapkv", 64)
    logits_after(engine, session, random_ids(120))
    chunk = session.limits.shape.chunk
    assert chunk < 32
    later = [decision for decision in log if decision.view.logical_length > 64 + chunk]
    assert later
    for decision in later:  # every query gives each KV head a mass of one per query head
        held_mass = decision.view.mass.sum(-1)
        assert bool((held_mass <= 3 * chunk + 1e-3).all())
        assert bool((held_mass > 0).all())


def test_what_does_not_fit_is_refused_with_the_least_that_does() -> None:
    with pytest.raises(BudgetTooSmall, match="32 newest tokens and frees 32 at a time; give at least 64 tokens"):
        tiny_engine().open_session("snapkv", 48)


@pytest.mark.parametrize(
    ("policy", "option", "value"),
    [
        ("snapkv", "window", 0),
        ("snapkv", "kernel", 4),
        ("snapkv", "kernel", 2.0),
        ("pyramidkv", "window", -1),
        ("pyramidkv", "beta", 0.5),
        ("pyramidkv", "beta", "steep"),
    ],
)
def test_bad_options_are_refused(policy: str, option: str, value: object) -> None:
    with pytest.raises(AgentKVError, match=rf"^{policy}: {option} must be"):
        policies.build(policy, **{option: value})
