"""Which layers of a model lose too much by quantisation: measured once per model, on its own attention.

An outlier channel (the biases of Qwen2's keys are the known case) takes the whole range of a vector's scale and leaves
the other channels a handful of codes. The keys' own error does not show it, since the outlier is most of their norm;
what attention makes of them does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from agentkv.cache.adapter import PagedModel
from agentkv.cache.arena import PageArena
from agentkv.cache.batch import ForwardPass
from agentkv.cache.budget import Limits, shape_of
from agentkv.cache.controller import CacheController
from agentkv.cache.demotion import decode, encode
from agentkv.cache.formats import KVFormat
from agentkv.cache.step import Step
from agentkv.policies.base import Policy

QUANTISED = (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN, KVFormat.INT8_CHANNEL)
LARGEST_ERROR = 0.15
"""A layer whose attention output is off by more, relative to its norm, stays in the model's dtype. Without outliers the
error is that of the format: SmolLM2-135M's layers reach 0.03 in INT8_TOKEN, 0.08 in FP8_TOKEN, 0.02 in INT8_CHANNEL."""
_TOKENS = 128


def quantization_errors(paged: PagedModel, window: int) -> dict[KVFormat, tuple[float, ...]]:
    """Relative error of each layer's attention output when all its keys and values are quantised, by format.

    One forward pass over 128 fixed tokens from all over the vocabulary, in a page pool of its own.

    Args:
        paged: the model.
        window: positions it has.
    """
    tokens = min(_TOKENS, window)
    policy, layout = Policy(name="probe", scorer=None), paged.layout
    pages = layout.pages_for(tokens, KVFormat.FP) * layout.layers * layout.kv_heads + 1
    arena = PageArena(layout, pages * layout.page_bytes, paged.device)
    cache = CacheController(arena, policy, Limits(shape_of(policy, layout, tokens), tokens, 0))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(paged.model.config.get_text_config().vocab_size, (tokens,), generator=generator)
    run = _Probe(cache.begin(ids.tolist()))
    paged.forward(ids.unsqueeze(0).to(paged.device), run)
    return {fmt: tuple(by_layer) for fmt, by_layer in run.errors.items()}


def exempt_layers(errors: Mapping[KVFormat, tuple[float, ...]]) -> dict[KVFormat, frozenset[int]]:
    """By format, the layers that must not be quantised."""
    return {
        fmt: frozenset(layer for layer, error in enumerate(by_layer) if not error <= LARGEST_ERROR)
        for fmt, by_layer in errors.items()
    }


class _Probe(ForwardPass):
    """A forward pass that also attends over what each format would make of keys and values, and notes the error."""

    def __init__(self, step: Step):
        super().__init__([step])
        self.errors: dict[KVFormat, list[float]] = {fmt: [] for fmt in QUANTISED}
        self._written: tuple[Tensor, Tensor] | None = None

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        super().write(layer, key, value)
        self._written = key, value

    def attend(self, layer: int, query: Tensor, sinks: Tensor | None, **computed: Any) -> Tensor:
        exact = super().attend(layer, query, sinks, **computed).clone()
        assert self._written is not None
        key, value = self._written
        for fmt, errors in self.errors.items():
            super().write(layer, *_through(fmt, key, value, self.arena.layout.slots_per_page(fmt)))
            error = (super().attend(layer, query, sinks, **computed).float() - exact.float()).norm()
            errors.append(float(error / exact.float().norm().clamp_min(1e-12)))
        super().write(layer, key, value)
        return exact


def _through(fmt: KVFormat, key: Tensor, value: Tensor, page_slots: int) -> tuple[Tensor, Tensor]:
    """Keys and values [1, H, n, D] quantised and read back, tokens beyond the last whole page as they are."""
    whole = key.shape[2] // page_slots * page_slots
    vectors = torch.stack((key, value), dim=3)[0, :, :whole]  # [H, whole, 2, D]
    at = torch.arange(vectors.shape[0] * whole * 2, device=key.device)
    codes, scales, channels = encode(vectors.flatten(0, 2), at.view(-1, 2), fmt, page_slots)
    page = torch.stack((at[: len(codes)] // page_slots, torch.full_like(at[: len(codes)], -1)), dim=1)
    read = decode(codes.flatten(0, 1), at, fmt, scales.contiguous(), at, channels, page.flatten())
    both = []
    for original, part in zip((key, value), read.view_as(vectors).unbind(2), strict=True):
        changed = original.clone()
        changed[0, :, :whole] = part.to(original.dtype)
        both.append(changed)
    return both[0], both[1]
