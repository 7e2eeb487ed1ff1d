"""Tiny random models, and the oracle that every cache is held against: plain attention under explicit masks."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AttentionInterface,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentkv.cache.controller import CacheController, Step
from agentkv.cache.views import joint_views
from agentkv.engine import Engine, Session
from agentkv_kernels import PagedKV

VOCABULARY = 97
WINDOW = 256
SLIDING = 20
"""Width of the sliding windows of tiny models that have some."""
_HYBRID: dict[str, Any] = {"sliding_window": SLIDING, "layer_types": ["sliding_attention", "full_attention"]}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": WINDOW // 4}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "eager"}
_GPT_OSS = _HYBRID | _EXPERTS | {"head_dim": 16, "rope_parameters": _YARN}
_BUILDERS: dict[str, tuple[type[PreTrainedModel], type[PreTrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),  # biases of q, k and v
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}),  # norms of q and k
    "gpt2": (GPT2LMHeadModel, GPT2Config, {"num_attention_heads": 4, "num_key_value_heads": None}),  # learned positions
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": SLIDING}),  # every layer slides
    "phi3": (Phi3ForCausalLM, Phi3Config, {}),  # q, k and v in one projection
    "gpt_oss": (GptOssForCausalLM, GptOssConfig, _GPT_OSS),  # sinks
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, _HYBRID | {"head_dim": 16, "attn_logit_softcapping": 5.0}),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, _HYBRID | {"head_dim": 16}),  # rotations by kind of layer
}
ARCHITECTURES = tuple(_BUILDERS)
HYBRID = ("gpt_oss", "gemma2", "gemma3")
"""Architectures whose first layer slides and whose second attends to everything."""


def grid(*axes: Iterable[Any]) -> list[Any]:
    """Every combination of the axes for ``parametrize``, all but a diagonal marked ``full``.

    The diagonal has each value of each axis at least once.
    """
    values = [list(axis) for axis in axes]
    longest = max(map(len, values))
    diagonal = {tuple(axis[i % len(axis)] for axis in values) for i in range(longest)}
    return [
        pytest.param(*combination, marks=[] if combination in diagonal else pytest.mark.full)
        for combination in itertools.product(*values)
    ]


def tiny_model(architecture: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> PreTrainedModel:
    """A random model of two layers; weights large enough that attention is far from uniform."""
    torch.manual_seed(seed)
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": WINDOW,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    build, config, extra = _BUILDERS[architecture]
    model = build(config(**(common | extra)))
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "sinks")):  # transformers starts them at zero, where they would test nothing
            torch.nn.init.normal_(parameter, std=0.3)
    return model.to(dtype).eval()


class DigitTokenizer:
    """Token n reads "n "; enough of a tokenizer for an engine."""

    eos_token_id = 1

    def __len__(self) -> int:
        return VOCABULARY

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """Tokens from 90 on end a line."""
        kept = (n for n in ids if not (skip_special_tokens and n == self.eos_token_id))
        return "".join(f"{n}\n" if n >= 90 else f"{n} " for n in kept)


def tiny_engine(architecture: str = "llama", dtype: torch.dtype = torch.float64, kv_pool: str | int = "8MiB") -> Engine:
    return Engine(tiny_model(architecture, dtype), DigitTokenizer(), f"tiny-{architecture}", kv_pool)


def random_ids(n: int, seed: int = 0) -> list[int]:
    """Random token ids that never end a sequence."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, VOCABULARY, (n,), generator=generator).tolist()


@dataclass
class Recording:
    """What each forward pass of a session could see, and the bytes that were resident."""

    steps: list[Step] = field(default_factory=list)
    views: list[list[PagedKV]] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    def visible(self, layers: int, heads: int, tokens: int) -> Tensor:
        """[L, H, T, T] bool: whether query t saw token s, in that layer and KV head."""
        seen = torch.zeros(layers, heads, tokens, tokens, dtype=torch.bool)
        for step, views in zip(self.steps, self.views, strict=True):
            for query in step.query_index.tolist():
                for layer in range(layers):
                    for head in range(heads):
                        held = views[layer].token_index[head]
                        held = held[(held >= 0) & (held <= query)].long()
                        assert held.unique().numel() == held.numel(), "a token is held twice"
                        seen[layer, head, query, held] = True
        return seen


@contextlib.contextmanager
def recording(session: Session) -> Iterator[Recording]:
    """Record every step of the session."""
    log = Recording()
    begin, commit = CacheController.begin, CacheController.commit

    def logged_begin(self: CacheController, ids: list[int]) -> Step:
        step = begin(self, ids)
        if self is session.cache:
            views = joint_views([self.store], len(ids)).layers
            log.steps.append(step)
            log.views.append([replace(view, token_index=view.token_index.clone()) for view in views])
            log.resident.append(self.store.resident_bytes)
        return step

    def logged_commit(self: CacheController, step: Step) -> None:
        commit(self, step)
        if self is session.cache:
            log.resident.append(self.store.resident_bytes)

    CacheController.begin, CacheController.commit = logged_begin, logged_commit  # type: ignore[method-assign]
    try:
        yield log
    finally:
        CacheController.begin, CacheController.commit = begin, commit  # type: ignore[method-assign]


_masks: list[Tensor] = []
oracle_probs: list[Tensor] = []
"""Attention probabilities [Hq, T, T] of each layer in the last oracle pass."""


def _masked_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    visible = _masks[module.layer_idx]
    visible = visible.repeat_interleave(query.shape[1] // visible.shape[0], dim=0)
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    scores = query @ key.transpose(-1, -2) * scaling
    if kwargs.get("softcap") is not None:
        scores = kwargs["softcap"] * torch.tanh(scores / kwargs["softcap"])
    if kwargs.get("sliding_window") is not None:
        visible = visible & torch.ones_like(visible).triu(1 - kwargs["sliding_window"])
    scores = scores.masked_fill(~visible, float("-inf"))
    if kwargs.get("s_aux") is not None:
        sinks = kwargs["s_aux"].view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        probs = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
    else:
        probs = scores.softmax(-1)
    oracle_probs.append(probs[0])
    return (probs @ value).transpose(1, 2), None


AttentionInterface.register("masked-oracle", _masked_attention)


@torch.no_grad()
def oracle_logits(model: PreTrainedModel, ids: list[int], visible: Tensor) -> Tensor:
    """Logits [T, V] of one pass over all tokens in which query t sees exactly visible[l, h, t]; [L, H, T, T]."""
    model.set_attn_implementation("masked-oracle")
    _masks[:] = list(visible)
    oracle_probs.clear()
    logits: Tensor = model(torch.tensor([ids]), use_cache=False).logits[0]
    return logits


def causal_logits(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """Logits [T, V] of full causal attention. (transformers' eager attention takes its softmax in float32.)"""
    causal = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    return oracle_logits(model, ids, causal.expand(model.config.num_hidden_layers, 1, -1, -1))


def logits_after(engine: Engine, session: Session, ids: list[int]) -> Tensor:
    """Append tokens to a session and return the logits after the last, [V]."""
    session.ledger.extend(ids)
    logits = engine.compute_waiting(session)
    assert logits is not None
    return logits.clone()
