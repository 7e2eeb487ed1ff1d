"""Less memory for the same gradients, and a sentence before there is too little."""

from __future__ import annotations

from collections import namedtuple

import psutil
import pytest
import torch

from agentkv.train.attention import use_packed_attention
from agentkv.train.documents import Document, as_batch
from agentkv.train.errors import TrainError
from agentkv.train.lora import add_lora
from agentkv.train.measure import NextTokens
from agentkv.train.memory import check_memory, gated_pack_bytes, pack_bytes, recompute_activations
from tests.runtime_helpers import random_ids, tiny_model

DOCUMENTS = (
    Document(tuple(random_ids(40, seed=1)), ((5, 9), (20, 40)), "long"),
    Document(tuple(random_ids(13, seed=2)), ((1, 13),), "short"),
)


def saved_and_gradients(recompute: bool) -> tuple[int, list[torch.Tensor]]:
    model = tiny_model("llama", torch.float32)
    use_packed_attention(model)
    parameters = add_lora(model, 4, 8, 0)
    with torch.no_grad():  # B begins at zero, where A has no gradient
        for parameter in parameters.values():
            parameter.add_(0.1)
    if recompute:
        recompute_activations(model)
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = NextTokens(model).loss(as_batch(DOCUMENTS))
    total = sum(saved.values())
    loss.backward()
    return total, [p.grad for p in parameters.values() if p.grad is not None]


def test_recomputing_keeps_less_and_gives_the_same_gradients() -> None:
    whole, gradients = saved_and_gradients(False)
    less, again = saved_and_gradients(True)
    assert less < 0.5 * whole
    assert len(gradients) == len(again) == 28
    for one, other in zip(gradients, again, strict=True):
        torch.testing.assert_close(one, other)


def test_too_little_memory_is_said_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", torch.float32)
    needed = pack_bytes(model, 4096, False)
    memory = namedtuple("memory", "available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(needed // 2))
    with pytest.raises(TrainError, match=r"packs of 4096 tokens take about .* use --length 2048, or --less$"):
        check_memory(model, needed, 4096, ", or --less")
    check_memory(model, pack_bytes(model, 2048, False), 2048)
    check_memory(model, pack_bytes(model, 4096, True), 4096)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(needed // 10))
    with pytest.raises(TrainError, match=r"use --length \d+$"):
        check_memory(model, pack_bytes(model, 4096, True), 4096)


def test_gates_take_memory_for_the_predictions_of_every_token() -> None:
    model = tiny_model("llama", torch.float32)
    own, longer = (gated_pack_bytes(model, length) for length in (100, 200))
    model.config.vocab_size *= 1000
    assert longer == pytest.approx(2 * own, rel=0.01)
    assert gated_pack_bytes(model, 100) > 2 * own
