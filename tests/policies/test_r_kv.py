"""r-kv: importance of a window of queries against redundancy among keys."""

from __future__ import annotations

import math

import pytest
import torch

from agentkv import policies
from agentkv.errors import AgentKVError
from agentkv.policies import r_kv
from agentkv.policies.r_kv import redundancy
from tests.policies.reference import HEADS, LAYERS, after_the_prompt, best, decisions, dense_keys, dense_probs, held
from tests.runtime_helpers import (
    logits_after,
    oracle_logits,
    oracle_probs,
    random_ids,
    recording,
    tiny_engine,
    tiny_model,
)


def redundancy_by_hand(keys: torch.Tensor) -> list[float]:
    """Of one head's keys [T, D] in token order, entry by entry as the paper has it."""
    n = len(keys)
    cosine = [
        [float(a @ b / (a.norm() * b.norm())) if i != j else 0.0 for j, b in enumerate(keys)]
        for i, a in enumerate(keys)
    ]
    for row in cosine:
        alike = [j for j, value in enumerate(row) if value > 0.5]
        if alike:
            row[alike[-1]] = 0.0
    means = [sum(row[j] for row in cosine) / n for j in range(n)]
    total = sum(math.exp(mean) for mean in means)
    return [math.exp(mean) / total for mean in means]


def votes(probs: torch.Tensor, first_of_window: int) -> torch.Tensor:
    """[T]: votes of one query, probabilities [group, T]."""
    shares = probs / probs[:, :first_of_window].sum(-1, keepdim=True)
    return shares.clamp_max(1.0).amax(0)


def test_a_prompt_is_ranked_as_in_the_paper() -> None:
    tokens, budget, window, block = 90, 60, 8, 10
    ids, session = after_the_prompt("r-kv", budget, tokens, block=block, weight=0.3)
    keys, probs = dense_keys(ids), dense_probs(ids)
    for layer in range(LAYERS):
        for head in range(HEADS):
            queries = [votes(probs[layer, head, :, q], tokens - window) for q in range(tokens - window, tokens)]
            mean = sum(queries) / window
            importance = [
                float(mean[max(0, i - 3) : min(i + 4, tokens - window)].max()) for i in range(tokens - window)
            ]
            repeats = redundancy_by_hand(keys[layer, head])
            score = torch.tensor([0.3 * a - 0.7 * b for a, b in zip(importance, repeats, strict=False)])
            chosen = best(score, range(tokens - window), budget - block - window)
            assert held(session, layer, head) == chosen | set(range(tokens - window, tokens + 1))
    assert held(session, 0, 0) != held(session, 0, 1), "each KV head selects for itself"


def test_in_decoding_the_votes_are_those_of_the_last_queries(monkeypatch) -> None:
    """Each query's own last tokens are left out of what its votes are shares of."""
    window, engine, log = 8, tiny_engine(), decisions(monkeypatch)
    session = engine.open_session("r-kv", 60, block=16)
    ids = random_ids(120, seed=6)
    with recording(session) as steps:
        logits_after(engine, session, ids[:20])
        for token in ids[20:]:
            logits_after(engine, session, [token])
    oracle_logits(tiny_model("llama"), ids, steps.visible(LAYERS, HEADS, len(ids)))
    probs = torch.stack([layer.unflatten(0, (HEADS, -1)) for layer in oracle_probs])
    assert len(log) >= 4
    for decision in log:
        length = decision.view.logical_length
        for layer in range(LAYERS):
            for head in range(HEADS):
                queries = range(length - window, length)
                expected = sum(votes(probs[layer, head, :, q], q - window + 1) for q in queries)
                tokens = decision.view.token_index[layer, head].long()
                mass = decision.view.mass[layer, head]
                torch.testing.assert_close(mass, expected[tokens].float(), rtol=1e-4, atol=1e-6)


def test_redundancy_is_the_same_in_any_order_of_slots_and_in_any_tiles(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(2, 40, 4, generator=generator)
    expected = torch.tensor([redundancy_by_hand(head) for head in keys])
    shuffled = torch.randperm(40, generator=generator)
    for tile in (7, 40, 256):
        monkeypatch.setattr(r_kv, "_TILE", tile)
        got = redundancy(keys[:, shuffled], shuffled.expand(2, -1))
        torch.testing.assert_close(got, expected[:, shuffled], rtol=1e-4, atol=1e-7)


def test_of_keys_that_say_the_same_the_newest_is_the_least_redundant() -> None:
    same, other = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0])
    keys = torch.stack([same, same, same, other])[None]
    score = redundancy(keys, torch.tensor([[10, 30, 20, 40]]))[0]
    assert float(score[1]) < float(score[0])
    assert float(score[1]) < float(score[2])
    assert float(score[3]) == pytest.approx(float(score.min()))


def test_empty_slots_take_no_part() -> None:
    generator = torch.Generator().manual_seed(2)
    keys = torch.randn(1, 9, 4, generator=generator)
    padded = torch.cat([keys, torch.zeros(1, 3, 4)], dim=1)
    tokens = torch.cat([torch.arange(9), torch.full((3,), -1)])[None]
    got = redundancy(padded, tokens)
    torch.testing.assert_close(got[:, :9], redundancy(keys, tokens[:, :9]))
    assert got[:, 9:].tolist() == [[0.0] * 3]


def test_a_pruned_cache_equals_masked_attention() -> None:
    engine = tiny_engine()
    session = engine.open_session("r-kv", 40, block=8, sinks=2)
    ids = random_ids(130, seed=3)
    turns = [ids[:50], *([t] for t in ids[50:80]), ids[80:101], *([t] for t in ids[101:])]
    with recording(session) as log:
        got = [logits_after(engine, session, turn) for turn in turns]
    expected = oracle_logits(tiny_model("llama"), ids, log.visible(LAYERS, HEADS, len(ids)))
    torch.testing.assert_close(got[-1], expected[-1], rtol=0.0, atol=1e-9)
    assert max(log.resident) <= session.limits.max_bytes


@pytest.mark.parametrize(
    ("option", "value"), [("weight", 1.5), ("window", 0), ("kernel", 6), ("block", -1), ("sinks", None)]
)
def test_bad_options_are_refused(option: str, value: object) -> None:
    with pytest.raises(AgentKVError, match=f"^r-kv: {option} must be"):
        policies.build("r-kv", **{option: value})
