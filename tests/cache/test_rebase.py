"""Sessions beyond the model's window: keys get new positions, and everything else holds as before."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from agentkv import policies
from agentkv.cache import rotary
from agentkv.cache.adapter import PagedModel
from agentkv.cache.controller import CacheController
from agentkv.cache.formats import KVFormat
from agentkv.cache.rotary import Rotary, dense_positions
from agentkv.engine import Engine, SamplingParams, Session
from agentkv.engine.positions import _keys_at, find_rotary
from agentkv.errors import ContextOverflow, Unsupported
from agentkv_kernels import dequantize
from tests.runtime_helpers import DigitTokenizer, logits_after, random_ids, recording, tiny_engine, tiny_model

WINDOW = 96
EVICTING = tuple(name for name in policies.names() if policies.build(name).evicts)
OPTIONS: dict[str, dict[str, Any]] = {
    "conf-kv": {"fp_window": 8, "recent": 4, "tight": 0.75, "threshold": 0.3},
    "conf-kv-l": {"fp_window": 8, "recent": 4, "tight": 0.75, "threshold": 0.3, "least": 8},
}


def small_engine(architecture: str = "llama", dtype: torch.dtype = torch.float64, window: int = WINDOW) -> Engine:
    """A tiny model that says it has few positions."""
    model = tiny_model(architecture, dtype)
    model.config.max_position_embeddings = window
    return Engine(model, DigitTokenizer(), f"small-{architecture}", "8MiB")


def least_budget(engine: Engine, policy: str) -> int:
    """At least 40 tokens, and what the policy's protected set needs."""
    built = policies.build(policy)
    return max(40, built.least_slots(40) + 8)


# --- how keys turn -----------------------------------------------------------------------------------------------


def _other_model(name: str) -> PreTrainedModel:
    """Models whose embedding is partial, interleaved, or missing in some layers."""
    import transformers

    torch.manual_seed(0)
    common: dict[str, Any] = {
        "vocab_size": 97, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 6,
        "num_key_value_heads": 2, "max_position_embeddings": WINDOW, "initializer_range": 0.3, "pad_token_id": 1,
    }  # fmt: skip
    extra: dict[str, Any] = {
        "Glm": {"head_dim": 16, "partial_rotary_factor": 0.5},
        "StableLm": {"partial_rotary_factor": 0.5},
        "SmolLM3": {"no_rope_layer_interval": 2},
    }.get(name, {})
    config = getattr(transformers, f"{name}Config")(**(common | extra))
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "mistral", "phi3", "gpt_oss", "gemma2", "gemma3"])
def test_a_turned_key_is_the_key_the_model_makes_there(architecture: str) -> None:
    """In float64, from the model's own modules; their angles are float32, hence the tolerance."""
    paged = PagedModel(tiny_model(architecture))
    found = find_rotary(paged, WINDOW)
    for old, new in ((0, 95), (90, 3), (41, 41)):
        before, after = _keys_at(paged, old), _keys_at(paged, new)
        for layer, rule in enumerate(found):
            assert rule is not None
            at = torch.zeros(before.shape[1], dtype=torch.long)
            turned = rule.turn(before[layer].double(), at + old, at + new)
            torch.testing.assert_close(turned, after[layer].double(), rtol=0, atol=1e-6 * float(after.abs().max()))


def test_embeddings_of_every_shape_are_recognised() -> None:
    cohere, glm = (find_rotary(PagedModel(_other_model(name)), WINDOW) for name in ("Cohere", "Glm"))
    assert all(rule is not None and rule.interleaved for rule in (*cohere, *glm))
    assert len(glm[0].frequencies) == 4  # of 16 channels, half turn
    stable, partly = (find_rotary(PagedModel(_other_model(name)), WINDOW) for name in ("StableLm", "SmolLM3"))
    assert all(rule is not None and len(rule.frequencies) == 2 and not rule.interleaved for rule in stable)
    assert [rule is None for rule in partly] == [False, True, False, True]


def test_the_layers_of_a_hybrid_have_frequencies_of_their_own() -> None:
    sliding, full = find_rotary(PagedModel(tiny_model("gemma3")), WINDOW)
    assert not torch.equal(sliding.frequencies, full.frequencies)


@pytest.mark.parametrize(
    ("rope", "reason"),
    [
        ({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}, r"depend on the length \(dynamic\)"),
        (
            {
                "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
                "original_max_position_embeddings": 64, "factor": 4.0,
            },
            r"depend on the length \(longrope\)",
        ),
    ],
    ids=["dynamic", "longrope"],
)  # fmt: skip
def test_frequencies_that_depend_on_the_length_are_refused(rope: dict[str, Any], reason: str) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = tiny_model("llama").config.to_dict() | {"rope_parameters": rope}
    model = LlamaForCausalLM(LlamaConfig(**config)).eval()
    with pytest.raises(Unsupported, match=reason):
        find_rotary(PagedModel(model), WINDOW)
    session = Engine(model, DigitTokenizer(), "long", "8MiB").open_session("window", 40)
    with pytest.raises(ContextOverflow, match=reason):
        session.check_room(257)


def test_learned_positions_are_refused_and_the_overflow_says_why() -> None:
    engine = tiny_engine("gpt2", torch.float32)
    assert "no rotary embedding" in (engine.no_rebase or "")
    session = engine.open_session("streaming-llm", 40)
    with pytest.raises(ContextOverflow, match="gpt2 has no rotary embedding"):
        engine.generate(session, random_ids(257))
    assert session.ledger == []


def test_a_model_whose_keys_turn_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    paged = PagedModel(tiny_model("llama"))
    monkeypatch.setattr(Rotary, "turn", lambda self, keys, old, new: 1.5 * keys)
    with pytest.raises(Unsupported, match="do not turn as a rotary embedding says"):
        find_rotary(paged, WINDOW)


def test_dense_positions_are_right_aligned() -> None:
    tokens = torch.tensor([[[7, 3, 90, -1], [5, 80, 60, 70]]])
    assert dense_positions(tokens, 3).tolist() == [[[2, 1, 3, 0], [0, 3, 1, 2]]]


# --- the equality ------------------------------------------------------------------------------------------------


@dataclass
class Moved:
    """What each query of a session saw and where: [L, H, T, T] for keys, [T] for the queries."""

    visible: Tensor
    key_positions: Tensor
    query_positions: Tensor


@contextlib.contextmanager
def noting_positions(session: Session, tokens: int) -> Iterator[Moved]:
    layout = session.cache.store.arena.layout
    shape = (layout.layers, layout.kv_heads, tokens, tokens)
    seen = Moved(torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.long), torch.zeros(tokens).long())
    begin = CacheController.begin

    def noted(self: CacheController, ids: list[int]) -> Any:
        step, store = begin(self, ids), self.store
        held = store.in_use(store.token_index).long()
        places = held if store.rope_pos is None else store.in_use(store.rope_pos).long()
        for query, position in zip(step.query_index.tolist(), step.positions.tolist(), strict=True):
            seen.query_positions[query] = position
            for layer in range(layout.layers):
                for head in range(layout.kv_heads):
                    chosen = (held[layer, head] >= 0) & (held[layer, head] <= query)
                    seen.visible[layer, head, query, held[layer, head][chosen]] = True
                    seen.key_positions[layer, head, query, held[layer, head][chosen]] = places[layer, head][chosen]
        return step

    CacheController.begin = noted  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        CacheController.begin = begin  # type: ignore[method-assign]


_moved: list[Moved] = []
_frequency_of_layer: list[Tensor] = []


def _turns(positions: Tensor, frequencies: Tensor) -> Tensor:
    """[..., R] complex128: what multiplies pairs of channels at these positions; angles as the model takes them."""
    angles = positions.unsqueeze(-1).float() * frequencies
    return torch.complex(angles.cos().double(), angles.sin().double())


def _moved_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """Dense attention in which every query has every key at the position it had then: query [1, Hq, T, D]."""
    (moved,), frequencies = _moved, _frequency_of_layer[module.layer_idx]
    group, half = query.shape[1] // key.shape[1], query.shape[-1] // 2
    written = torch.arange(query.shape[2])
    query, key = (torch.complex(x[0, ..., :half], x[0, ..., half:]) for x in (query, key))
    query = query / _turns(written, frequencies) * _turns(moved.query_positions, frequencies)
    key = key / _turns(written, frequencies)
    out = []
    for head in range(len(query)):
        of_head = module.layer_idx, head // group
        seen = moved.visible[of_head]
        keys = key[head // group] * _turns(moved.key_positions[of_head], frequencies)  # [T, T, R]
        scores = (query[head].unsqueeze(1) * keys.conj()).sum(-1).real * scaling
        if kwargs.get("sliding_window") is not None:
            seen = seen & torch.ones_like(seen).triu(1 - kwargs["sliding_window"])
        scores = scores.masked_fill(~seen, float("-inf"))
        out.append(scores.softmax(-1) @ value[0, head // group])
    return torch.stack(out, dim=1).unsqueeze(0), None


AttentionInterface.register("moved-oracle", _moved_attention)


def _frequencies(model: PreTrainedModel, layer: int) -> Tensor:
    embedding, kinds = model.model.rotary_emb, getattr(model.config, "layer_types", None)
    own = f"{kinds[layer]}_inv_freq" if kinds else "inv_freq"
    return getattr(embedding, own if hasattr(embedding, own) else "inv_freq").float()


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma3", "mistral"])
@pytest.mark.parametrize("policy", ["streaming-llm", "h2o"])
def test_logits_beyond_the_window_are_those_of_dense_attention_at_the_new_positions(
    architecture: str, policy: str
) -> None:
    """Chunks, single tokens and turns over 4 windows; per head the positions differ under h2o."""
    engine = small_engine(architecture)
    session, ids = engine.open_session(policy, 40), random_ids(4 * WINDOW, seed=3)
    turns = [ids[:70], *([t] for t in ids[70:130]), ids[130:200], *([t] for t in ids[200:230]), ids[230:]]
    got = {}
    with noting_positions(session, len(ids)) as moved:
        for turn in turns:
            logits = logits_after(engine, session, turn)
            got[len(session.ledger) - 1] = logits
    assert session.stats.rebases >= 4
    assert session.stats.rerotated > 0
    assert moved.query_positions.max() < WINDOW
    reference = tiny_model(architecture)
    _moved[:], _frequency_of_layer[:] = [moved], [_frequencies(reference, layer) for layer in range(2)]
    reference.set_attn_implementation("moved-oracle")
    with torch.no_grad():
        expected = reference(torch.tensor([ids]), use_cache=False).logits[0]
    for position, logits in got.items():
        torch.testing.assert_close(logits, expected[position], rtol=0, atol=1e-9)
    session.close()


# --- everything else holds as before -----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", EVICTING)
def test_a_session_of_four_windows_stays_inside_its_bytes_and_positions(policy: str) -> None:
    engine = small_engine(dtype=torch.float32, window=160)
    session = engine.open_session(policy, least_budget(engine, policy))
    assert session.token_limit == sys.maxsize
    with recording(session) as log:
        for seed in range(5):
            events = list(engine.generate(session, random_ids(100, seed), SamplingParams(max_tokens=40, min_tokens=40)))
            assert events[-1].finish_reason == "length"
    stats = session.stats
    assert stats.rebases >= 3
    assert stats.rerotated > 0
    assert len(session.ledger) == 700
    assert max(log.resident) <= stats.peak_bytes <= stats.max_bytes
    for step in log.steps:
        assert 0 <= int(step.positions[0]) <= int(step.positions[-1]) < 160
    store = session.cache.store
    assert store.rope_pos is not None
    tokens, places = store.in_use(store.token_index), store.in_use(store.rope_pos)
    ranked = dense_positions(tokens, 0)
    for layer in range(2):
        for head in range(2):
            held = tokens[layer, head] >= 0
            order = ranked[layer, head][held].argsort()
            assert (places[layer, head][held][order].diff() > 0).all(), "positions follow the order of tokens"
    session.close()
    assert engine.arena.used_pages == 0


@pytest.mark.parametrize("budget", [None, WINDOW, "100%"])
@pytest.mark.parametrize("policy", ["window", "h2o", "conf-kv"])
def test_a_budget_of_the_whole_window_leaves_an_eighth_free_at_a_rebase(policy: str, budget: Any) -> None:
    engine = small_engine(dtype=torch.float32)
    session = engine.open_session(policy, budget, **OPTIONS.get(policy, {}))
    list(engine.generate(session, random_ids(90), SamplingParams(max_tokens=100, min_tokens=100)))
    assert 1 <= session.stats.rebases <= 1 + 100 // (WINDOW // 8 - 1)
    assert session.stats.peak_bytes <= session.limits.max_bytes


@pytest.mark.parametrize("policy", ["streaming-llm", "h2o", "conf-kv", "tova"])
def test_saving_and_forking_after_a_rebase(policy: str, tmp_path: Path) -> None:
    engine = small_engine(dtype=torch.float32)
    session = engine.open_session(policy, 40, **OPTIONS.get(policy, {}))
    list(engine.generate(session, random_ids(250), SamplingParams(max_tokens=9, min_tokens=9)))
    assert session.stats.rebases > 1
    engine.save_session(session, tmp_path / "s")
    others = [engine.restore_session(tmp_path / "s"), engine.fork_session(session)]
    assert all(other.stats.rebases == session.stats.rebases for other in others)
    params = SamplingParams(max_tokens=70, min_tokens=70)
    expected, *continued = (
        [t for event in engine.generate(one, random_ids(5, 1), params) for t in event.token_ids]
        for one in (session, *others)
    )
    assert continued == [expected, expected]


def test_quantised_keys_are_turned_and_counted() -> None:
    """Each key after the rebase against the one before, turned exactly: at most half a step of its scale apart."""
    engine = small_engine(dtype=torch.float32)
    session = engine.open_session("conf-kv", 40, **OPTIONS["conf-kv"])
    logits_after(engine, session, random_ids(WINDOW - 1))
    store = session.cache.store
    used = int(store.code.used.min())
    slots = torch.arange(used).expand(2, 2, -1)

    def keys() -> Tensor:
        codes = store.code.rows[store.code.rows_of(slots)[:, 0]]
        return dequantize(codes, store.scales[:, 0, :, :used], store.code_format, torch.float32)

    before, tokens = keys(), store.token_index[..., :used].long()
    done = rotary.rebase(store, find_rotary(engine._paged, WINDOW), session.logical_length)
    assert done.requantized > 0
    assert done.rerotated > 0
    assert store.code_format is KVFormat.INT8_TOKEN
    assert store.rope_pos is not None
    after, scales = keys(), store.scales[:, 0, :, :used]
    for layer, rule in enumerate(find_rotary(engine._paged, WINDOW)):
        assert rule is not None
        expected = rule.turn(before[layer], tokens[layer], store.rope_pos[layer, :, :used].long())
        assert ((after[layer] - expected).abs() <= 0.5001 * scales[layer].unsqueeze(-1)).all()


@pytest.mark.parametrize("policy", ["streaming-llm", "h2o", "conf-kv"])
def test_the_next_token_follows_the_newest_kept_one(policy: str) -> None:
    engine = small_engine(dtype=torch.float32)
    session = engine.open_session(policy, 40, **OPTIONS.get(policy, {}))
    list(engine.generate(session, random_ids(WINDOW - 1), SamplingParams(max_tokens=1, min_tokens=1)))
    before = session.stats.rebases
    while session.stats.rebases == before:
        logits_after(engine, session, [5])
    store, newest = session.cache.store, session.logical_length - 1
    assert newest - session.cache.position_offset == store.slots_used - 1
    assert int(store.in_use(store.rope_pos).max()) == store.slots_used - 1


def test_an_interrupted_rebase_is_finished_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small_engine(dtype=torch.float32)
    session, twin = (engine.open_session("streaming-llm", 40) for _ in range(2))
    for one in (session, twin):
        logits_after(engine, one, random_ids(WINDOW - 1))
    turn, calls = Rotary.turn, []

    def failing(self: Rotary, *args: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return turn(self, *args)

    session.ledger.extend([5, 6, 7])
    with monkeypatch.context() as patched:
        patched.setattr(Rotary, "turn", failing)
        with pytest.raises(MemoryError):
            engine.compute_waiting(session)
    logits = engine.compute_waiting(session)
    assert logits is not None
    torch.testing.assert_close(logits, logits_after(engine, twin, [5, 6, 7]))


def test_what_drops_nothing_and_what_prefills_at_once_end_at_the_window() -> None:
    engine = small_engine(dtype=torch.float32)
    whole = engine.open_session("streaming-llm", 40, prefill="whole")
    for session in (engine.open_session(), engine.open_session("int8"), whole):
        assert session.token_limit == WINDOW
        with pytest.raises(ContextOverflow, match=f"the model's window holds {WINDOW}"):
            engine.generate(session, random_ids(WINDOW + 1))
