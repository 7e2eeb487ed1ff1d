"""The seam with transformers, and the only module that knows its cache and attention interfaces.

A model is run with a ``Cache`` whose layers write new keys and values into pages and return a *handle* in place of
tensors; the attention function registered here reads the pages through it. Nothing is patched. The name is registered
in the mask interface as well: for a name that only the attention interface knows, transformers builds no mask at all
and causality would silently vanish elsewhere. Ours is decided per slot by token index, so it builds none on purpose.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from agentkv.cache.arena import PageArena
from agentkv.cache.budget import Limits, shape_of
from agentkv.cache.controller import CacheController, Step
from agentkv.cache.formats import KVLayout
from agentkv.errors import Unsupported
from agentkv.policies.base import Policy
from agentkv_kernels import paged_mixed_attention

ATTENTION_NAME = "agentkv"
_SURPRISE_ROWS = 64
"""Logits that are widened to float32 at once."""


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
    step, layer = key.step, key.layer
    rule = step.policy.mass
    result = paged_mixed_attention(
        query[0],
        step.views[layer],
        step.query_index,
        scaling,
        mass_weights=step.mass_weights,
        softcap=kwargs.get("softcap"),
        sinks=kwargs.get("s_aux"),
        window=step.store.arena.layout.window(layer),
        probs_of=0 if rule is None else rule.probs_of,
    )
    if step.mass is not None and result.mass is not None:
        step.note_mass(layer, result.mass)
    elif step.mass is not None and rule is not None and result.probs is not None:
        token_index = step.views[layer].token_index
        probs = result.probs.unflatten(0, (token_index.shape[0], -1))
        mass, stats = rule.reduce(probs, token_index, step.query_index[-probs.shape[2] :])
        step.note_mass(layer, mass)
        if stats is not None:
            step.layer_stats[layer] = stats
    return result.out.transpose(0, 1).unsqueeze(0), None


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
    windows = _windows(config)
    heads = config.num_attention_heads
    return KVLayout(
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=dtype,
        windows=windows,
    )


def _windows(config: PreTrainedConfig) -> tuple[int | None, ...]:
    """Width of each layer's sliding window, None for full attention; () if all layers are full."""
    layers: int = config.num_hidden_layers
    width = getattr(config, "sliding_window", None)
    if width is not None and width >= config.max_position_embeddings:
        width = None
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return () if width is None else (width,) * layers
    other = set(kinds) - {"full_attention", "sliding_attention"}
    if other:
        raise Unsupported(f"{config.model_type}: layers of type {', '.join(sorted(other))} are not supported")
    windows = tuple(width if kind == "sliding_attention" else None for kind in kinds)
    return windows if any(windows) else ()


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
        self._hidden: dict[int, Tensor] | None = None
        self._hooked = False

    def probe(self) -> None:
        """Run two tokens on pages.

        Raises:
            Unsupported: the model's attention does not go through transformers' attention and cache interfaces, or
                uses more than plain softmax attention.
        """
        policy = Policy(name="probe", scorer=None)
        pages = 2 * self.layout.layers * self.layout.kv_heads + 1
        arena = PageArena(self.layout, pages * self.layout.page_bytes, self.device)
        controller = CacheController(arena, policy, Limits(shape_of(policy, self.layout, 2), 2, 0))
        ids = torch.zeros(2, dtype=torch.long, device=self.device)
        try:
            logits = self.forward(ids, controller.begin([0, 0]))
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
    def forward(self, ids: Tensor, step: Step, before: Tensor | None = None) -> Tensor:
        """Run n new tokens [n] int64; returns the logits after the last one, [V], in the model's dtype.

        Args:
            ids: the tokens.
            step: where they go.
            before: logits [V] after the token before them, where the policy reads how surprising tokens are.
        """
        reads_surprise = step.policy.scorer is not None and step.policy.scorer.needs_surprise
        self._hidden = step.hidden if step.creation is not None else None
        out = self.model(
            input_ids=ids.unsqueeze(0),
            position_ids=step.positions.unsqueeze(0),
            use_cache=True,
            logits_to_keep=0 if reads_surprise else 1,
            **{self._cache_keyword: PagedCache(step)},
        )
        logits: Tensor = out.logits[0]
        if reads_surprise:
            step.surprise.append(_surprise(logits, ids, before))
        return logits[-1]

    def read_hidden(self) -> None:
        """From now on, steps of policies that ask for it get the input of each attention layer."""
        if self._hooked:
            return
        self._hooked = True
        for module in self.model.modules():
            layer = getattr(module, "layer_idx", None)
            if isinstance(layer, int) and hasattr(module, "scaling"):
                module.register_forward_pre_hook(partial(self._note_hidden, layer), with_kwargs=True)

    def _note_hidden(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._hidden is not None:
            hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            self._hidden[layer] = hidden[0]


def _surprise(logits: Tensor, ids: Tensor, before: Tensor | None) -> Tensor:
    """−log p of each token [n] float32, given logits [n, V] after each and [V] before the first; 0 if unknown."""
    surprise = torch.zeros(len(ids), device=ids.device)
    if before is not None:
        surprise[0] = torch.logsumexp(before.float(), -1) - before[ids[0]].float()
    for start in range(0, len(ids) - 1, _SURPRISE_ROWS):
        rows = logits[start : min(start + _SURPRISE_ROWS, len(ids) - 1)].float()
        next_ids = ids[start + 1 : start + 1 + len(rows)]
        surprise[start + 1 : start + 1 + len(rows)] = rows.logsumexp(-1) - rows.gather(-1, next_ids.unsqueeze(-1))[:, 0]
    return surprise
