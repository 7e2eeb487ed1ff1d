"""Learning through replies alone: the same loss, and the gradient that does not go through what stands between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentkv.train.attention import no_mask, packed_attention, use_packed_attention
from agentkv.train.documents import Document, as_batch
from agentkv.train.frozen import ReplyTokens
from agentkv.train.measure import NextTokens
from agentkv.train.memory import recompute_activations

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def models() -> list[PreTrainedModel]:
    torch.manual_seed(0)
    found = [LlamaForCausalLM(LlamaConfig(**SIZES)), Qwen3ForCausalLM(Qwen3Config(**SIZES))]
    return [model.double() for model in found]


def document(length: int, *spans: tuple[int, int], seed: int = 0) -> Document:
    ids = torch.randint(0, 64, (length,), generator=torch.Generator().manual_seed(seed))
    return Document(tuple(ids.tolist()), spans, f"d{seed}")


PACKS = [
    (document(30, (5, 9), (20, 26)),),
    (document(20, (4, 8), (15, 20)), document(25, (1, 3), seed=1), document(12, (11, 12), seed=2)),
]


def gradients(
    model: PreTrainedModel, objective: NextTokens, pack: Sequence[Document]
) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad(set_to_none=True)
    loss = objective.loss(as_batch(tuple(pack)))
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("pack", PACKS, ids=["one document", "three"])
@pytest.mark.parametrize("model", models(), ids=["llama", "qwen3"])
def test_the_loss_is_that_of_learning_through_everything(model: PreTrainedModel, pack: Sequence[Document]) -> None:
    use_packed_attention(model)
    whole, _ = gradients(model, NextTokens(model), pack)
    replies, _ = gradients(model, ReplyTokens(model), pack)
    torch.testing.assert_close(replies, whole)


@pytest.mark.parametrize("model", models(), ids=["llama", "qwen3"])
def test_where_all_is_learned_the_gradient_is_the_same(model: PreTrainedModel) -> None:
    pack = (document(20, (1, 20)), document(9, (1, 4), (4, 9), seed=1))
    use_packed_attention(model)
    _, whole = gradients(model, NextTokens(model), pack)
    _, replies = gradients(model, ReplyTokens(model), pack)
    assert whole.keys() == replies.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(replies[name], gradient, msg=name)


@pytest.mark.parametrize("pack", PACKS, ids=["one document", "three"])
@pytest.mark.parametrize("model", models(), ids=["llama", "qwen3"])
def test_the_gradient_is_that_of_keys_and_values_held_fast(model: PreTrainedModel, pack: Sequence[Document]) -> None:
    """Told by attention over whole rows, in which the context's keys and values are cut off from the gradient."""
    _, replies = gradients(model, ReplyTokens(model), pack)
    own = torch.zeros(sum(len(part.ids) for part in pack), dtype=torch.bool)
    own[as_batch(tuple(pack)).before] = True
    starts = accumulate((len(part.ids) for part in pack), initial=0)
    for start, part in zip(starts, pack, strict=False):
        own[start : start + part.spans[0][0]] = True

    def held(module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        key, value = (torch.where(own[None, None, :, None], t, t.detach()) for t in (key, value))
        return packed_attention(module, query, key, value, *args, **kwargs)

    AttentionInterface.register("held", held)
    AttentionMaskInterface.register("held", no_mask)
    model.set_attn_implementation("held")
    _, expected = gradients(model, NextTokens(model), pack)
    assert replies.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(replies[name], gradient, msg=name)
    # Computing activations twice changes nothing.
    recompute_activations(model)
    _, again = gradients(model, ReplyTokens(model), pack)
    for name, gradient in replies.items():
        torch.testing.assert_close(again[name], gradient, msg=name)
    # It is another gradient than that through everything.
    use_packed_attention(model)
    _, whole = gradients(model, NextTokens(model), pack)
    assert any(not torch.allclose(whole[name], gradient) for name, gradient in replies.items())
