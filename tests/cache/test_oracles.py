"""The equalities that define a correct cache, token for token or in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from agentkv import policies
from agentkv.cache import batch
from agentkv.cache import controller as controller_module
from agentkv.cache.adapter import ATTENTION_NAME
from agentkv.engine import SamplingParams
from agentkv_kernels import paged_mixed_attention
from tests.runtime_helpers import (
    ARCHITECTURES,
    HYBRID,
    SLIDING,
    VOCABULARY,
    WINDOW,
    causal_logits,
    grid,
    logits_after,
    oracle_logits,
    oracle_probs,
    random_ids,
    recording,
    tiny_engine,
    tiny_model,
)

EVICTING = tuple(name for name in policies.names() if name != "full")
WHOLE = ("window", "streaming-llm", "random", "h2o", "tova")
"""Evicting policies that store everything in the model's dtype."""
TIGHT_OPTIONS: dict[str, dict[str, object]] = {
    "conf-kv": {"fp_window": 1.0, "recent": 4, "tight": 0.5, "threshold": 0.5}
}
CLOSE = {"rtol": 0.0, "atol": 1e-9}


@pytest.fixture(scope="module")
def engines():
    return {name: tiny_engine(name) for name in ARCHITECTURES}


@pytest.mark.parametrize(("architecture", "policy"), grid(ARCHITECTURES, policies.names()))
def test_enough_budget_equals_transformers_generate(architecture: str, policy: str) -> None:
    """Greedy output in float32, token for token, prefill in chunks and a second turn included."""
    engine = tiny_engine(architecture, torch.float32)
    reference = tiny_model(architecture, torch.float32)
    session = engine.open_session(policy, WINDOW)
    ids = random_ids(37)
    for turn in range(2):
        expected = reference.generate(
            torch.tensor([ids]), max_new_tokens=20, do_sample=False, pad_token_id=1, eos_token_id=None
        )[0, len(ids) :].tolist()
        new = ids[len(session.ledger) :]
        got = [t for e in engine.generate(session, new, SamplingParams(max_tokens=20)) for t in e.token_ids]
        if 1 in expected:  # we end at the end-of-sequence token
            expected = expected[: expected.index(1) + 1]
        assert got == expected
        ids = [*ids, *got, *random_ids(9, seed=turn + 1)]
    session.close()
    assert engine.arena.used_pages == 0


@pytest.mark.parametrize(("architecture", "policy"), grid(ARCHITECTURES, [*WHOLE, "conf-kv"]))
def test_pruned_cache_equals_masked_attention_over_the_kept_set(engines, architecture: str, policy: str) -> None:
    """Chunked prefill, decoding, and appending a turn of many tokens after eviction, against one masked pass.

    The append is where a mask by slot number lets queries see their own future.
    """
    engine = engines[architecture]
    session = engine.open_session(policy, 24, **TIGHT_OPTIONS.get(policy, {}))
    ids = random_ids(120, seed=3)
    with recording(session) as log:
        turns = [ids[:50], *([t] for t in ids[50:70]), ids[70:101], *([t] for t in ids[101:])]
        got = {}
        for turn in turns:
            logits = logits_after(engine, session, turn)
            got[len(session.ledger) - 1] = logits
            session.cache.confidence = float(torch.rand((), generator=torch.Generator().manual_seed(len(got))))
    layout = engine.layout
    visible = log.visible(layout.layers, layout.kv_heads, len(ids))
    assert session.stats.evicted_tokens > 80
    assert visible[:, :, -1].sum(-1).max() <= 24
    expected = oracle_logits(tiny_model(architecture), ids, visible)
    for position, logits in got.items():
        torch.testing.assert_close(logits, expected[position], **CLOSE)
    session.close()


@settings(max_examples=25, deadline=None)
@given(
    policy=st.sampled_from(WHOLE),
    budget=st.integers(16, 40),
    turns=st.lists(st.integers(1, 30), min_size=1, max_size=7),
    seed=st.integers(0, 1000),
)
def test_any_turns_under_any_budget_equal_the_masked_pass(policy: str, budget: int, turns: list[int], seed: int):
    engine = _float64_llama()
    session = engine.open_session(policy, budget)
    ids = random_ids(sum(turns), seed)
    with recording(session) as log:
        start = 0
        for turn in turns:
            logits = logits_after(engine, session, ids[start : start + turn])
            start += turn
    visible = log.visible(engine.layout.layers, engine.layout.kv_heads, len(ids))
    assert visible.sum(-1).max() <= max(budget, session.limits.dense_slots)
    assert max(log.resident) <= session.limits.max_bytes
    torch.testing.assert_close(logits, oracle_logits(tiny_model("llama"), ids, visible)[-1], **CLOSE)
    session.close()


_cached = {}


def _float64_llama():
    return _cached.setdefault("llama", tiny_engine("llama"))


@pytest.mark.parametrize(("architecture", "chunk"), grid(ARCHITECTURES, [1, 3, 16]))
def test_chunked_prefill_equals_one_shot(engines, monkeypatch, architecture: str, chunk: int) -> None:
    """Logits, and the attention mass that h2o and conf-kv rank by."""
    ids = random_ids(60, seed=5)
    expected = causal_logits(tiny_model(architecture), ids)[-1]
    for policy in ("full", "h2o", "conf-kv"):
        masses = []
        for size in (len(ids), chunk):
            monkeypatch.setattr(controller_module, "DENSE_CHUNK", size)
            session = engines[architecture].open_session(policy, exempt=())
            torch.testing.assert_close(logits_after(engines[architecture], session, ids), expected, **CLOSE)
            if policy != "full":
                masses.append(_mass_by_token(session.cache.store, len(ids)))
            session.close()
        if masses:
            torch.testing.assert_close(masses[0], masses[1], rtol=1e-5, atol=1e-6)


def _mass_by_token(store, tokens: int) -> torch.Tensor:
    """[L, H, T]: of the newest tokens that any sliding window keeps, and of all where every token is kept."""
    held = store.in_use(store.token_index).long()
    shape = (*held.shape[:2], tokens + 1)
    by_token = torch.zeros(shape).scatter_(-1, held % (tokens + 1), store.in_use(store.mass))[..., :tokens]
    for layer in range(held.shape[0]):
        window = store.arena.layout.window(layer) or tokens
        by_token[layer, :, : tokens - window] = 0.0  # how many older ones are left depends on the chunk
    return by_token


def test_h2o_mass_is_the_column_sum_of_attention(engines) -> None:
    """True accumulation: what eager attention's weights add up to, over queries and the group's heads."""
    ids = random_ids(40, seed=8)
    model = tiny_model("llama")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(torch.tensor([ids]), output_attentions=True, use_cache=False).attentions
    session = engines["llama"].open_session("h2o")
    logits_after(engines["llama"], session, ids)
    store = session.cache.store
    for layer, probs in enumerate(weights):  # [1, Hq, T, T]
        expected = probs[0].view(engines["llama"].layout.kv_heads, -1, len(ids), len(ids)).sum((1, 2))
        torch.testing.assert_close(store.in_use(store.mass)[layer], expected.float(), rtol=1e-5, atol=1e-5)
    session.close()


def test_h2o_mass_survives_eviction(engines) -> None:
    """After evictions, steady and structural, each kept slot's mass is what the queries that saw it gave it."""
    engine = engines["llama"]
    session = engine.open_session("h2o", 24)
    ids = random_ids(90, seed=4)
    with recording(session) as log:
        for turn in (ids[:40], *([t] for t in ids[40:60]), ids[60:75], *([t] for t in ids[75:])):
            logits_after(engine, session, turn)
    heads = engine.layout.kv_heads
    oracle_logits(tiny_model("llama"), ids, log.visible(engine.layout.layers, heads, len(ids)))
    store = session.cache.store
    tokens, mass = store.in_use(store.token_index).long(), store.in_use(store.mass)
    for layer, probs in enumerate(oracle_probs):
        expected = probs.view(heads, -1, len(ids), len(ids)).sum((1, 2))
        torch.testing.assert_close(mass[layer], expected.gather(1, tokens[layer]).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ["llama", *HYBRID])
@pytest.mark.parametrize("recent", [24, 2], ids=["even", "ragged"])
def test_every_attention_over_int8_equals_attention_over_what_it_stands_for(
    monkeypatch, recent: int, architecture: str
):
    """conf-kv through prefill, decoding and turns: each call of the kernel against dense attention over the store's
    content, dequantised. A protected window smaller than the FP window makes heads hold different mixes. In a hybrid
    model the sliding layer is full from early on while the other grows, shrinks with confidence, and is quantised.
    """
    engine = tiny_engine(architecture, torch.float32)
    session = engine.open_session("conf-kv", 64, fp_window=24, recent=recent, tight=0.5, threshold=0.5, alpha=1.0)
    store, seen = session.cache.store, {"int8": 0, "ragged": 0}

    def checked(query, kv, query_index, scaling, **asked):
        result = paged_mixed_attention(query, kv, query_index, scaling, **asked)
        out = result.out
        layer = seen["calls"] % 2
        seen["calls"] += 1
        seen["int8"] += kv.code_slots
        seen["ragged"] += bool((store.fp.used[layer] != store.fp.used[layer, 0]).any())
        group = query.shape[0] // kv.token_index.shape[0]
        for head in range(kv.token_index.shape[0]):
            vectors, tokens = [], []
            for region, offset in ((store.code, 0), (store.fp, store.code_cap)):
                used = int(region.used[layer, head])
                at = torch.full((used,), layer), torch.full((used,), head), torch.arange(used)
                part = region.rows[region.rows_at(*at)].float()
                if region is store.code:
                    part = part * store.scales[layer, :, head, :used].T.unsqueeze(-1)
                vectors.append(part)
                tokens.append(store.token_index[layer, head, offset : offset + used])
            (keys, values), held = torch.cat(vectors).unbind(1), torch.cat(tokens)
            queries = query[head * group : (head + 1) * group]
            scores = queries @ keys.T * scaling
            if asked["softcap"] is not None:
                scores = asked["softcap"] * torch.tanh(scores / asked["softcap"])
            age = query_index[None, :, None] - held[None, None]
            scores = scores.masked_fill((age < 0) | (age >= (asked["window"] or WINDOW)), -math.inf)
            if asked["sinks"] is not None:
                sinks = asked["sinks"][head * group : (head + 1) * group].view(-1, 1, 1).expand(-1, len(query_index), 1)
                probs = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
            else:
                probs = scores.softmax(-1)
            expected = probs @ values
            torch.testing.assert_close(out[head * group : (head + 1) * group], expected, rtol=1e-4, atol=1e-4)
        return result

    seen["calls"] = 0
    monkeypatch.setattr(batch, "paged_mixed_attention", checked)
    ids = random_ids(200, seed=7)
    for i, turn in enumerate((ids[:110], *([t] for t in ids[110:150]), ids[150:170], *([t] for t in ids[170:]))):
        session.cache.confidence = (i % 9) / 9
        logits_after(engine, session, turn)
    assert seen["int8"] > 500
    assert (seen["ragged"] > 10) == (recent == 2)
    assert architecture == "llama" or session.cache.store.used[0].tolist() == [SLIDING] * engine.layout.kv_heads
    assert session.stats.quantized_tokens > 0


def test_attention_name_is_known_to_the_mask_interface_too() -> None:
    """A name that only the attention interface knows makes transformers drop masks without a word. Ours needs none (the
    tests above are what holds it to causality), and says so where transformers looks."""
    assert ATTENTION_NAME in AttentionInterface._global_mapping
    assert AttentionMaskInterface()[ATTENTION_NAME]() is None


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_chunk_never_sees_its_own_future(engines, architecture: str) -> None:
    """Changing the last token of a chunk leaves every earlier key and value untouched, after eviction as before."""
    engine = engines[architecture]
    kept = []
    for last in (5, 6):
        session = engine.open_session("streaming-llm", 32)
        logits_after(engine, session, random_ids(60, seed=1))
        logits_after(engine, session, [*random_ids(7, seed=2), last])
        store = session.cache.store
        slots = torch.arange(store.fp_slots).expand(*store.token_index.shape[:2], -1)
        vectors = engine.arena.rows(store.fp.fmt)[store.fp.rows_of(slots)]  # [L, 2, H, S, D]
        token_index = store.in_use(store.token_index)
        older = (token_index >= 0) & (token_index < len(session.ledger) - 1)
        kept.append(vectors.movedim(1, 2)[older.unsqueeze(2).expand(-1, -1, 2, -1)].clone())
        session.close()
    assert torch.equal(*kept)


@pytest.mark.parametrize("policy", policies.names())
def test_generation_stops_at_the_window(policy: str) -> None:
    """Under a policy that drops nothing, and where positions cannot begin again; see test_rebase.py."""
    probe = _float64_llama().open_session(policy, WINDOW)
    engine = tiny_engine("gpt2") if probe.policy.evicts else _float64_llama()
    session = engine.open_session(policy, WINDOW)
    events = list(engine.generate(session, random_ids(WINDOW - 4), SamplingParams(max_tokens=50, min_tokens=50)))
    assert events[-1].finish_reason == "context_full"
    assert len(session.ledger) == WINDOW
    session.close()


def test_vocabulary_is_that_of_the_model() -> None:
    assert logits_after(_float64_llama(), _float64_llama().open_session(), [2]).shape == (VOCABULARY,)
