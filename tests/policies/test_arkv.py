"""ARKV: its scores and layer shares against their formulas, and quantised tokens that live on."""

from __future__ import annotations

import math

import pytest
import torch

from agentkv import policies
from agentkv.cache import batch
from agentkv.cache.formats import KVFormat
from agentkv.engine.states import layer_states
from agentkv.errors import AgentKVError
from agentkv.policies.arkv import OriginShare, WindowStatistics
from agentkv.policies.base import Policy
from agentkv.policies.precision import ScorePrecision
from agentkv.policies.scorers import Recency
from agentkv.policies.snapkv import PooledMass
from agentkv.policies.triggers import Block
from agentkv_kernels import dequantize, paged_mixed_attention
from tests.runtime_helpers import (
    causal_logits,
    logits_after,
    oracle_probs,
    random_ids,
    recording,
    tiny_engine,
    tiny_model,
)

WINDOW_OF_8: dict[str, object] = {"window": 8}


def release_scores(probs: torch.Tensor, kv_heads: int, window: int, gamma: float) -> torch.Tensor:
    """The release's heavy-hitter score, [H, T − window] float64, from attention [Hq, T, T] of a whole prompt."""
    last = probs[:, -window:, :-window]
    worth = last.mean(1) + gamma * last.var(1)
    smooth = torch.nn.functional.avg_pool1d(worth.unsqueeze(1), 5, stride=1, padding=2).squeeze(1)
    return smooth.view(kv_heads, -1, smooth.shape[-1]).mean(1)


def release_oq(probs: torch.Tensor, window: int, taus: tuple[float, float, float]) -> float:
    last = probs[:, -window:, :-window]
    dispersion = -(last * (last + 1e-10).log()).sum()
    centred = last - last.mean(1, keepdim=True)
    kurtosis = ((centred**4).mean(1) / (centred**2).mean(1).clamp_min(1e-8) ** 2).sum()
    statistics = (float(dispersion), float(last.var(1).sum()), float(kurtosis))
    return math.prod(value ** (1 / tau) for value, tau in zip(statistics, taus, strict=True))


def test_scores_and_shares_of_a_prompt_are_the_releases() -> None:
    engine, ids = tiny_engine(), random_ids(90, seed=3)
    session = engine.open_session("arkv")
    logits_after(engine, session, ids)
    causal_logits(tiny_model("llama"), ids)
    store = session.cache.store
    worth, tokens = session.policy.scorer(session.cache._view()), store.in_use(store.token_index).long()
    scores = []
    for layer, probs in enumerate(oracle_probs):
        expected = release_scores(probs, 2, 32, 263.8).float()
        for head in range(2):
            by_token = torch.zeros(90).index_put((tokens[layer, head],), worth[layer, head])
            torch.testing.assert_close(by_token[:-32], expected[head], rtol=1e-4, atol=1e-6)
            assert not bool(by_token[-32:].any())
        scores.append(release_oq(probs, 32, (7.774, 5.407, 5.528)))
    shares = OriginShare()(session.cache.layer_stats)
    torch.testing.assert_close(shares, torch.tensor(scores) / max(scores), rtol=1e-4, atol=0)


def test_a_decoded_token_ranks_by_its_own_attention_and_leaves_the_layers_shares() -> None:
    engine, ids = tiny_engine(), random_ids(60, seed=4)
    session = engine.open_session("arkv", **WINDOW_OF_8)
    logits_after(engine, session, ids[:59])
    shares = session.cache.layer_stats
    logits_after(engine, session, ids[59:])
    causal_logits(tiny_model("llama"), ids)
    worth = session.policy.scorer(session.cache._view())
    for layer, probs in enumerate(oracle_probs):
        last = probs[:, -1:, :-8]
        smooth = torch.nn.functional.avg_pool1d(last, 5, stride=1, padding=2)[:, 0].view(2, 3, -1).mean(1)
        torch.testing.assert_close(worth[layer, :, :-8], smooth.float(), rtol=1e-4, atol=1e-6)
    assert session.cache.layer_stats is shares


@pytest.mark.parametrize("prompt", [1, 2, 9, 31, 32, 33])
def test_a_prompt_inside_the_window_gives_no_nan(prompt: int) -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("arkv", 64)
    logits_after(engine, session, random_ids(prompt))
    for token in random_ids(session.limits.dense_slots, seed=1):
        assert bool(logits_after(engine, session, [token]).isfinite().all())
    assert bool(session.cache.store.mass.isfinite().all())
    stats = session.cache.layer_stats
    if stats is not None:
        assert bool(OriginShare()(stats).isfinite().all())
    assert session.stats.evicted_tokens > 0
    if prompt <= 32:  # nothing is known of the layers: what is kept is kept whole
        assert session.stats.quantized_tokens == 0


def test_shares_are_relative_to_the_best_layer() -> None:
    stats = torch.tensor([[2.0, 0.5, 30.0], [1.0, 0.25, 15.0], [0.0, 0.1, 1.0]])
    shares = OriginShare(1.0, 2.0, 3.0)(stats)
    expected = torch.tensor([1.0, 0.5 * 0.5**0.5 * 0.5 ** (1 / 3), 0.0])
    torch.testing.assert_close(shares, expected)
    assert OriginShare()(torch.zeros(2, 3)).tolist() == [1.0, 1.0]


class TestQuantisedTokens:
    def full(self, dtype: torch.dtype = torch.float32):
        """A session whose cache is about to be cut down, the second layer's with few whole slots."""
        engine = tiny_engine(dtype=dtype)
        session = engine.open_session("arkv", 64, **WINDOW_OF_8, tau_dispersion=1.0, tau_variance=1.0, tau_kurtosis=1.0)
        logits_after(engine, session, random_ids(50))
        session.cache.layer_stats = torch.tensor([[2.0, 1.0, 1.0], [0.5, 1.0, 1.0]])
        return engine, session

    def until_quantised(self, engine, session) -> None:
        for token in random_ids(200, seed=1):
            logits_after(engine, session, [token])
            if session.stats.quantized_tokens:
                return
        pytest.fail("nothing was quantised")

    def test_they_survive_and_are_attended_in_the_next_steps(self) -> None:
        """In the authors' release the next token throws them away."""
        engine, session = self.full()
        self.until_quantised(engine, session)
        store = session.cache.store
        assert store.code_format is KVFormat.FP8_TOKEN
        before = store.token_index[..., : store.code_slots].clone()
        counts = store.code.used.copy()
        assert counts.sum() > 20
        with recording(session) as log:
            for token in random_ids(5, seed=2):
                logits_after(engine, session, [token])
        for views in log.views:
            for layer in range(2):
                for head in range(2):
                    quantised = set(before[layer, head, : counts[layer, head]].tolist())
                    assert quantised <= set(views[layer].token_index[head].tolist())
                assert views[layer].code_slots == counts[layer].max()
        assert (store.code.used == counts).all()

    def test_logits_are_those_of_dense_attention_over_the_dequantised(self, monkeypatch) -> None:
        engine, session = self.full()
        store, calls = session.cache.store, []

        def checked(query, kv, query_index, scaling, **asked):
            result = paged_mixed_attention(query, kv, query_index, scaling, **asked)
            layer, group = len(calls) % 2, query.shape[0] // kv.token_index.shape[0]
            calls.append(kv.code_slots)
            for head in range(kv.token_index.shape[0]):
                at = lambda used, head=head: (torch.full((used,), layer), torch.full((used,), head), torch.arange(used))  # noqa: E731
                codes, fp = (int(region.used[layer, head]) for region in (store.code, store.fp))
                old = dequantize(
                    store.code.rows[store.code.rows_at(*at(codes))], store.scales[layer, :, head, :codes].T,
                    KVFormat.FP8_TOKEN, torch.float32,
                )  # fmt: skip
                keys, values = torch.cat([old, store.fp.rows[store.fp.rows_at(*at(fp))]]).unbind(1)
                begin = store.code_cap
                held = torch.cat(
                    [store.token_index[layer, head, :codes], store.token_index[layer, head, begin : begin + fp]]
                )
                queries = query[head * group : (head + 1) * group]
                hidden = held[None, None] > query_index[None, :, None]
                expected = (queries @ keys.T * scaling).masked_fill(hidden, -math.inf).softmax(-1) @ values
                torch.testing.assert_close(
                    result.out[head * group : (head + 1) * group], expected, rtol=1e-4, atol=1e-4
                )
            return result

        monkeypatch.setattr(batch, "paged_mixed_attention", checked)
        self.until_quantised(engine, session)
        logits_after(engine, session, random_ids(20, seed=7))
        for token in random_ids(30, seed=8):
            logits_after(engine, session, [token])
        assert sum(count > 0 for count in calls) > 20

    def test_the_best_of_each_layer_stay_whole(self) -> None:
        engine, session = self.full()
        dense = session.limits.dense_slots
        for token in random_ids(dense - 50, seed=9):
            logits_after(engine, session, [token])
        store = session.cache.store
        worth, tokens = session.policy.scorer(session.cache._view()), store.in_use(store.token_index).tolist()
        logits_after(engine, session, [6])
        assert (store.used == 64 - 16 + 1).all()  # a quarter is freed, one came
        # Beside the window of 8: of the other 56 slots the first layer may keep all whole, the second a quarter.
        assert store.code.used.tolist() == [[0, 0], [48 - 8 - 14] * 2]
        for head in range(2):
            ranked = sorted(range(dense - 8), key=dict(zip(tokens[1][head], worth[1, head].tolist(), strict=True)).get)
            quantised = set(store.token_index[1, head, : 48 - 8 - 14].tolist())
            assert quantised == set(ranked[-40:-14])

    def test_states_of_a_layer_add_up(self) -> None:
        engine, session = self.full()
        assert {(s.whole, s.quantized, s.evicted) for s in layer_states(session)} == {(1.0, 0.0, 0.0)}
        self.until_quantised(engine, session)
        states, stats = layer_states(session), session.stats
        assert all(state.whole + state.quantized + state.evicted == pytest.approx(1) for state in states)
        assert len({state.quantized for state in states}) == 2
        mean = sum(state.quantized for state in states) / 2 * session.logical_length
        assert round(mean) == stats.quantized_tokens
        assert layer_states(engine.open_session())[0].whole == 1.0


def test_precision_by_score_needs_its_scorer_and_block() -> None:
    with pytest.raises(AgentKVError, match=r"^x: precision: it reads statistics of layers"):
        Policy("x", Recency(), precision=ScorePrecision(OriginShare()), trigger=Block(8))
    with pytest.raises(AgentKVError, match=r"^x: trigger: precision by score is decided when a block is freed"):
        Policy("x", PooledMass(mass=WindowStatistics()), precision=ScorePrecision(OriginShare()))


@pytest.mark.parametrize(
    ("option", "value"), [("window", 1), ("gamma", -1), ("tau_kurtosis", 0), ("freed", 1.5), ("sinks", -1)]
)
def test_bad_options_are_refused(option: str, value: object) -> None:
    with pytest.raises(AgentKVError, match=f"^arkv: {option} must be"):
        policies.build("arkv", **{option: value})
