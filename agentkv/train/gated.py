"""Attention in which tokens fade as fast as their gates say: what retention gates are trained in.

TRIM-KV (arXiv 2512.03324, Eq. 3): query t attends token i with the logit q·k + (t − i) · log β_i. Where β is 1 this is
the model's own attention; a token whose β is small is soon as good as evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from agentkv.cache.adapter import attention_layers
from agentkv.policies.trim_gates import Gates
from agentkv.train.attention import check_plain, no_mask, packed_attention

ATTENTION_NAME = "agentkv_gated"


class GatedRun:
    """One forward pass in which tokens fade.

    Args:
        gates: whose parameters get the gradient.

    Attributes:
        log_beta: by layer, [H, T] float32, as the pass reaches it.
    """

    def __init__(self, gates: Gates):
        self._gates = gates
        self.log_beta: dict[int, Tensor] = {}

    def note_hidden(self, layer: int, hidden: Tensor) -> None:
        """A layer's attention is about to read hidden [1, T, size]."""
        self.log_beta[layer] = self._gates.log_beta(layer, hidden[0])


def gated_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    document_lengths: Sequence[int] | None = None,
    gated_run: GatedRun | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As :func:`agentkv.train.attention.packed_attention`; with ``gated_run``, fading as its gates say."""
    if gated_run is None:
        return packed_attention(
            module, query, key, value, attention_mask, scaling, document_lengths=document_lengths, **kwargs
        )
    lengths = check_plain(document_lengths, kwargs)
    fading = gated_run.log_beta[int(module.layer_idx)]  # type: ignore[arg-type]
    parts = zip(*(t[0].split(lengths, dim=1) for t in (query, key, value)), fading.split(lengths, dim=1), strict=True)
    out = [_faded(q, k, v, own, scaling) for q, k, v, own in parts]
    return torch.cat(out, dim=1).transpose(0, 1).unsqueeze(0).contiguous(), None


def _faded(query: Tensor, key: Tensor, value: Tensor, log_beta: Tensor, scaling: float) -> Tensor:
    """One document: query [Hq, T, D], key and value [H, T, D], log β [H, T] to [Hq, T, D].

    q·k + (t − i) log β_i is the product of (q, t, 1) and (k, log β_i, −i log β_i), so plain attention with two more
    numbers per head computes it, and no T × T scores are held. Beside what rounds q·k itself, an exponent moves by
    about T · 2⁻²³ of log β_i, since t counts from the document's middle.
    """
    length, size = value.shape[1:]
    exact = log_beta.dtype  # float32, since half precision would round ages
    at = torch.arange(length, device=query.device, dtype=exact) - (length - 1) / 2
    age = torch.stack([at, torch.ones_like(at)], dim=-1).expand(len(query), -1, -1)
    fading = torch.stack([log_beta, -at * log_beta], dim=-1)
    own = _widened(torch.cat([query.to(exact) * scaling, age], dim=-1))
    others = _widened(torch.cat([key.to(exact), fading], dim=-1))
    held = pad(value.to(exact), (0, own.shape[-1] - size))
    others, held = (t.repeat_interleave(len(query) // len(key), dim=0).unsqueeze(0) for t in (others, held))
    out = scaled_dot_product_attention(own.unsqueeze(0), others, held, is_causal=True, scale=1.0)
    return out[0, ..., :size].to(value.dtype)


def _widened(tensor: Tensor) -> Tensor:
    """Zeros at the end: fast kernels want values as wide as keys, and on a GPU a multiple of 8."""
    return pad(tensor, (0, -tensor.shape[-1] % 8))


AttentionInterface.register(ATTENTION_NAME, gated_attention)
AttentionMaskInterface.register(ATTENTION_NAME, no_mask)


@contextmanager
def use_gated_attention(model: PreTrainedModel) -> Iterator[None]:
    """Within it, the model's forward takes ``gated_run`` beside ``document_lengths``.

    Raises:
        Unsupported: its layers do not pass on what the forward is given.
    """
    before = model.config._attn_implementation
    model.set_attn_implementation(ATTENTION_NAME)
    hooks = [
        module.register_forward_pre_hook(_noting(layer), with_kwargs=True) for layer, module in attention_layers(model)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation(before)


def _noting(layer: int) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        run = kwargs.get("gated_run")
        if run is not None:
            run.note_hidden(layer, kwargs["hidden_states"] if "hidden_states" in kwargs else args[0])

    return note
