"""The seam with transformers, and the only module that knows its cache and attention interfaces.

A model is run with a ``Cache`` whose layers write new keys and values into pages and return a *handle* in place of
tensors; the attention function registered here reads the pages through it. Nothing is patched. The name is registered
in the mask interface as well: for a name that only the attention interface knows, transformers builds no mask at all
and causality would silently vanish elsewhere. Ours is decided per slot by token index, so it builds none on purpose.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from agentkv.cache.arena import PageArena
from agentkv.cache.budget import Limits
from agentkv.cache.controller import CacheController, Step
from agentkv.cache.formats import KVLayout
from agentkv.errors import Unsupported
from agentkv.policies.base import Policy
from agentkv_kernels import paged_mixed_attention

ATTENTION_NAME = "agentkv"


@dataclass(frozen=True, slots=True)
class LayerHandle:
    """What a layer of the cache returns where transformers expects keys and values."""

    step: Step
    layer: int


class PagedLayer(CacheLayerMixin):
    """One layer of :class:`PagedCache`: writes into pages, hands out a handle."""

    is_sliding = False

    def __init__(self, step: Step, layer: int):
        super().__init__()
        self.is_initialized = True
        self._handle = LayerHandle(step, layer)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: pages exist before the forward pass."""

    def update(  # type: ignore[override]  # handles, not tensors: the attention function reads the pages
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[LayerHandle, LayerHandle]:
        """Store [1, H, n, D] keys and values."""
        self._handle.step.write(self._handle.layer, key_states[0], value_states[0])
        return self._handle, self._handle

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Logical length: positions continue from it whatever was evicted."""
        return self._handle.step.first_token

    def get_max_length(self) -> int:
        return -1


class PagedCache(Cache):
    """The cache of one forward pass."""

    def __init__(self, step: Step):
        super().__init__(layers=[PagedLayer(step, layer) for layer in range(step.store.arena.layout.layers)])


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: LayerHandle,
    value: LayerHandle,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function in transformers' signature: query [1, Hq, n, D] to ([1, n, Hq, D], no weights)."""
    for unsupported in ("softcap", "s_aux", "sliding_window"):
        if kwargs.get(unsupported) is not None:
            raise Unsupported(
                f"this model's attention uses {unsupported}, which agentkv's attention does not implement"
            )
    step, layer = key.step, key.layer
    out, mass = paged_mixed_attention(
        query[0], step.views[layer], step.query_index, scaling, mass_weights=step.mass_weights
    )
    if step.mass is not None and mass is not None:
        step.mass[layer] = mass
    return out.transpose(0, 1).unsqueeze(0), None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The handle carries token indices; the kernel masks by them."""


AttentionInterface.register(ATTENTION_NAME, paged_attention)
AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


def layout_of(config: PreTrainedConfig, dtype: torch.dtype) -> KVLayout:
    """The cache layout of a model.

    Raises:
        Unsupported: for an architecture that this runtime does not handle, with the reason.
    """
    config = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        raise Unsupported(f"{config.model_type}: encoder-decoder models are not supported; use a decoder-only model")
    if getattr(config, "kv_lora_rank", None):
        raise Unsupported(f"{config.model_type}: latent attention (MLA) caches are not supported")
    if getattr(config, "max_position_embeddings", None) is None:
        raise Unsupported(f"{config.model_type}: positions without a stated maximum are not supported")
    layer_types = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if layer_types is None and window is not None and window < config.max_position_embeddings:
        raise Unsupported(f"{config.model_type}: sliding-window attention ({window} tokens) is not supported")
    other = {kind for kind in layer_types or () if kind != "full_attention"}
    if other:
        raise Unsupported(f"{config.model_type}: layers of type {', '.join(sorted(other))} are not supported")
    heads = config.num_attention_heads
    return KVLayout(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=dtype,
    )


def cache_keyword(model: PreTrainedModel) -> str:
    """The keyword under which a model's forward takes its cache; transformers 5.24 renamed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class PagedModel:
    """A transformers causal language model that runs on pages.

    Args:
        model: the model; its attention implementation is switched, so its config object must not be shared with
            a model that is to keep another one.
    """

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.layout = layout_of(model.config, model.dtype)
        model.set_attn_implementation(ATTENTION_NAME)
        self._cache_keyword = cache_keyword(model)

    def probe(self) -> None:
        """Run two tokens on pages.

        Raises:
            Unsupported: the model's attention does not go through transformers' attention and cache interfaces, or
                uses more than plain softmax attention.
        """
        policy = Policy(name="probe", scorer=None)
        pages = 2 * self.layout.layers * self.layout.kv_heads + 1
        arena = PageArena(self.layout, pages * self.layout.page_bytes, self.device)
        controller = CacheController(arena, policy, Limits(2, 2, 0, 2))
        ids = torch.zeros(2, dtype=torch.long, device=self.device)
        try:
            logits = self.forward(ids, controller.begin(2))
        except Exception as error:  # whatever a foreign model does with handles in place of keys and values
            reason = " ".join(str(error).split())[:200]
            raise Unsupported(
                f"{self.model.config.model_type}: its attention cannot run on pages ({type(error).__name__}: {reason})"
            ) from error
        if not bool(torch.isfinite(logits).all()):
            raise Unsupported(f"{self.model.config.model_type}: gives no finite logits on pages")

    @property
    def device(self) -> torch.device:
        return self.model.device

    @torch.inference_mode()
    def forward(self, ids: Tensor, step: Step) -> Tensor:
        """Run n new tokens [n] int64; returns the logits after the last one, [V], in the model's dtype."""
        out = self.model(
            input_ids=ids.unsqueeze(0),
            position_ids=step.query_index.long().unsqueeze(0),
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_keyword: PagedCache(step)},
        )
        logits: Tensor = out.logits[0, -1]
        return logits
