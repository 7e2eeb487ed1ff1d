"""Layers whose keys have outliers stay in the model's dtype, each format apart."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agentkv.cache.formats import KVFormat
from agentkv.engine import Engine, Session
from agentkv.engine.outliers import LARGEST_ERROR, exempt_layers
from agentkv.errors import AgentKVError
from tests.runtime_helpers import (
    ARCHITECTURES,
    DigitTokenizer,
    logits_after,
    random_ids,
    tiny_engine,
    tiny_model,
)

PER_TOKEN = (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN)


@pytest.fixture(scope="module")
def biased() -> Engine:
    """A bias of one key channel a hundred times the others' spread, as in the first and last layers of Qwen2."""
    model = tiny_model("qwen2", torch.float32)
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.bias.view(2, -1)[:, 5] += 300.0
    return Engine(model, DigitTokenizer(), "biased", "8MiB")


def test_a_layer_with_an_outlier_channel_is_found(biased: Engine) -> None:
    assert all(biased.quantization_exempt[fmt] == {0} for fmt in PER_TOKEN)
    assert biased.arena.used_pages == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_models_without_outliers_have_none(architecture: str) -> None:
    engine = tiny_engine(architecture, torch.float32)
    assert not any(engine.quantization_exempt.values())
    assert all(0 < error < LARGEST_ERROR / 2 for errors in engine.quantization_errors.values() for error in errors)


def test_an_error_that_is_no_number_exempts_too() -> None:
    assert exempt_layers({KVFormat.INT8_TOKEN: (0.01, float("nan"), 9.0)}) == {KVFormat.INT8_TOKEN: {1, 2}}


def _run(engine: Engine, session: Session) -> Tensor:
    """Logits [n, V] along a session."""
    logits_after(engine, session, random_ids(120, seed=4))
    return torch.stack([logits_after(engine, session, [token]) for token in random_ids(20, seed=5)])


@pytest.mark.parametrize(
    ("policy", "budget", "share"),
    [("int8", None, 0.01), ("fp8", None, 0.01), ("conf-kv", 120, 0.8)],  # conf-kv also evicts here
)
def test_exempting_the_layer_makes_quantising_exact_again(
    biased: Engine, policy: str, budget: int | None, share: float
) -> None:
    """Divergence from full KV falls to this share of what it is without the exception."""
    exact = _run(biased, biased.open_session()).double().log_softmax(-1)
    off = []
    for exempt in (None, ()):
        session = biased.open_session(policy, budget, exempt=exempt)
        logits = _run(biased, session).double().log_softmax(-1)
        off.append(float((exact.exp() * (exact - logits)).sum(-1).mean()))
        used = session.cache.store.code.used
        assert used[1].all()
        assert used[0].any() == (exempt is not None)
        session.close()
    assert off[0] < share * off[1]


@pytest.mark.parametrize("exempt", [[99], [-1], [0.5], "ab"])
def test_layers_that_are_not_there_are_refused(biased: Engine, exempt: object) -> None:
    with pytest.raises(AgentKVError, match="exempt: the model has layers 0 to"):
        biased.open_session("conf-kv", 64, exempt=exempt)


def test_exempt_layers_count_in_bytes(biased: Engine) -> None:
    with_exempt, without = (biased.open_session("conf-kv", "64KiB", exempt=exempt) for exempt in (None, ()))
    assert with_exempt.limits.max_slots < without.limits.max_slots
    _run(biased, with_exempt)
    assert with_exempt.stats.peak_bytes <= 64 * 1024


def test_forks_and_files_keep_the_exempt_layers(biased: Engine, tmp_path) -> None:
    """Whatever the engine that reads the file would find: the slots are as they are."""
    session = biased.open_session("int8", exempt=())
    _run(biased, session)
    biased.save_session(session, tmp_path / "session")
    for copy in (biased.fork_session(session), biased.restore_session(tmp_path / "session")):
        assert copy.exempt == frozenset()
        assert torch.equal(logits_after(biased, copy, [7]), logits_after(biased, biased.fork_session(session), [7]))
        copy.close()


@pytest.mark.model
def test_the_embedded_model_needs_no_exception() -> None:
    engine = Engine.load("smollm2-135m", kv_pool="64MiB")
    assert not any(engine.quantization_exempt.values())
    worst = {fmt: max(errors) for fmt, errors in engine.quantization_errors.items()}
    assert worst[KVFormat.INT8_TOKEN] < 0.05
    assert worst[KVFormat.INT8_CHANNEL] < 0.05
    assert worst[KVFormat.FP8_TOKEN] < 0.1
