"""From a model's configuration to the layout of its cache, or the reason why this runtime does not handle it."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedConfig

from agentkv.cache.formats import KVLayout
from agentkv.errors import Unsupported

_KINDS = {"full_attention", "sliding_attention"}
"""Layers whose state is a softmax's keys and values, and nothing else."""
_REASONS = {
    "kv_lora_rank": "latent attention (MLA) keeps no keys and values per head",
    "num_kv_shared_layers": "some layers read the keys and values of others",
    "attention_chunk_size": "attention in chunks of the context",
    "use_bidirectional_attention": "its attention is not causal",
    "alibi": "attention biased by distance (ALiBi)",
}
"""By attribute of a configuration: why a model in which it is set is refused."""


def layout_of(config: PreTrainedConfig, dtype: torch.dtype) -> KVLayout:
    """The cache layout of a model.

    Raises:
        Unsupported: for an architecture that this runtime does not handle, with the reason.
    """
    if _get(config, "is_encoder_decoder"):
        raise _refusal(config, "an encoder-decoder; use a decoder-only model")
    config = _text_config(config)
    for attribute in ("num_hidden_layers", "num_attention_heads"):
        if _get(config, attribute) is None:
            raise _refusal(config, f"its configuration has no {attribute}")
    windows = _windows(config)
    for attribute, reason in _REASONS.items():
        if _get(config, attribute):
            raise _refusal(config, reason)
    if _get(config, "max_position_embeddings") is None:
        raise _refusal(config, "positions without a stated maximum")
    heads: int = config.num_attention_heads
    return KVLayout(
        layers=config.num_hidden_layers,
        kv_heads=_get(config, "num_key_value_heads") or heads,
        head_dim=_get(config, "head_dim") or config.hidden_size // heads,
        dtype=dtype,
        windows=windows,
    )


def _windows(config: PreTrainedConfig) -> tuple[int | None, ...]:
    """Width of each layer's sliding window, None for full attention; () if all layers are full."""
    layers: int = config.num_hidden_layers
    width = _get(config, "sliding_window")
    if width is not None and width >= (_get(config, "max_position_embeddings") or 0):
        width = None
    kinds = _get(config, "layer_types")
    if kinds is None:
        return () if width is None else (width,) * layers
    if other := set(kinds) - _KINDS:
        raise _refusal(config, f"layers of type {', '.join(sorted(other))} keep more than keys and values")
    windows = tuple(width if kind == "sliding_attention" else None for kind in kinds)
    return windows if any(windows) else ()


def _text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    try:
        return config.get_text_config()
    except ValueError as error:  # several of them
        raise _refusal(config, "a model of several parts") from error


def _get(config: PreTrainedConfig, attribute: str) -> Any:
    """The attribute, None if there is none."""
    try:
        return getattr(config, attribute, None)
    except RuntimeError as error:  # transformers' way to say that it differs from layer to layer
        raise _refusal(config, f"its layers differ in {attribute}") from error


def _refusal(config: PreTrainedConfig, reason: str) -> Unsupported:
    return Unsupported(f"{config.model_type} is not supported: {reason}")
