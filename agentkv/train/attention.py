"""Attention inside each document of a packed row: no document sees another, and nothing is computed for pairs of them.

A mask of the whole row would cost its length squared; documents of a row apart cost the sum of their own squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from agentkv.errors import Unsupported

ATTENTION_NAME = "agentkv_packed"
_NOT_COMPUTED = ("softcap", "s_aux", "position_bias")


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    document_lengths: Sequence[int] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function in transformers' signature: query [1, Hq, T, D] to ([1, T, Hq, D], no weights).

    Args:
        document_lengths: tokens of each document, T in all; the model's forward is given it.

    Raises:
        Unsupported: the model's attention is not plain causal softmax attention over the whole document.
    """
    lengths = check_plain(document_lengths, kwargs)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    parts = zip(*(t.split(lengths, dim=2) for t in (query, key, value)), strict=True)
    out = [scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling, is_causal=True) for q, k, v in parts]
    return torch.cat(out, dim=2).transpose(1, 2).contiguous(), None


def check_plain(document_lengths: Sequence[int] | None, kwargs: Mapping[str, Any]) -> list[int]:
    """The documents' lengths. Raises Unsupported for attention that is not computed here."""
    if document_lengths is None:
        raise Unsupported("the model does not pass on to its attention what its forward is given")
    window = kwargs.get("sliding_window")
    if window is not None and max(document_lengths) > window:
        raise Unsupported(f"the model's attention slides over {window} tokens and a document is longer")
    for argument in _NOT_COMPUTED:
        if kwargs.get(argument) is not None:
            raise Unsupported(f"the model's attention takes {argument!r}")
    return list(document_lengths)


def no_mask(*args: Any, **kwargs: Any) -> None:
    """Each document is causal by itself."""


AttentionInterface.register(ATTENTION_NAME, packed_attention)
AttentionMaskInterface.register(ATTENTION_NAME, no_mask)


def use_packed_attention(model: PreTrainedModel) -> None:
    """Switch a model to it; its forward then needs `document_lengths`."""
    model.set_attn_implementation(ATTENTION_NAME)
