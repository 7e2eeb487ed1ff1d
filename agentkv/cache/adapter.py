"""The seam with transformers, and the only module that knows its cache and attention interfaces.

A model is run with a ``Cache`` whose layers write new keys and values into pages and return a *handle* in place of
tensors; the attention function registered here reads the pages through it. Nothing is patched. The name is registered
in the mask interface as well: for a name that only the attention interface knows, transformers builds no mask at all
and causality would silently vanish elsewhere. Ours is decided per slot by token index, so it builds none on purpose.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from agentkv.cache.architecture import layout_of
from agentkv.cache.arena import PageArena
from agentkv.cache.batch import ForwardPass
from agentkv.cache.budget import Limits, shape_of
from agentkv.cache.controller import CacheController
from agentkv.cache.formats import KVFormat
from agentkv.cache.lean import lean_forward
from agentkv.errors import AgentKVError, Unsupported
from agentkv.policies.base import Policy
from agentkv_kernels import SettingError

ATTENTION_NAME = "agentkv"
_NOT_COMPUTED = ("position_bias", "indices", "block_indices", "sinks")
"""Arguments of attention functions that change the result in ways the kernel does not know."""
_PROBE_TOKENS = 8
_PROBE_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3}
_PROBE_TOLERANCE_HALF = 0.15
"""Distances of logits, in their standard deviations, that no rounding explains: see :func:`_distance`."""
_SURPRISE_ROWS = 64
"""Logits that are widened to float32 at once."""


@dataclass(frozen=True, slots=True)
class LayerHandle:
    """What a layer of the cache returns where transformers expects keys and values."""

    run: ForwardPass
    layer: int


class PagedLayer(CacheLayerMixin):
    """One layer of :class:`PagedCache`: writes into pages, hands out a handle."""

    is_sliding = False

    def __init__(self, run: ForwardPass, layer: int):
        super().__init__()
        self.is_initialized = True
        self.written = False
        self._handle = LayerHandle(run, layer)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: pages exist before the forward pass."""

    def update(  # type: ignore[override]  # handles, not tensors: the attention function reads the pages
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[LayerHandle, LayerHandle]:
        """Store [B, H, n, D] keys and values."""
        if self.written:
            raise Unsupported(f"layer {self._handle.layer} runs several times for one token")
        self.written = True
        self._handle.run.write(self._handle.layer, key_states, value_states)
        return self._handle, self._handle

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Logical length: positions continue from it whatever was evicted."""
        return self._handle.run.first_token

    def get_max_length(self) -> int:
        return -1


class PagedCache(Cache):
    """The cache of one forward pass."""

    def __init__(self, run: ForwardPass):
        self._paged = [PagedLayer(run, layer) for layer in range(run.arena.layout.layers)]
        super().__init__(layers=list(self._paged))

    def check_written(self) -> None:
        """Raises Unsupported if a layer stored no keys and values: it would go on with what was in its pages."""
        if not all(layer.written for layer in self._paged):
            raise Unsupported("some layers store no keys and values of their own")


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
    """Attention function in transformers' signature: query [B, Hq, n, D] to ([B, n, Hq, D], no weights)."""
    run, layer = key.run, key.layer
    window = run.arena.layout.window(layer)
    _check_plain(module, kwargs, window)
    sinks, softcap = kwargs.get("s_aux"), kwargs.get("softcap")
    out = run.attend(layer, query, scaling=scaling, softcap=softcap, sinks=sinks, window=window)
    return out.transpose(1, 2).contiguous(), None


def _check_plain(module: nn.Module, kwargs: dict[str, Any], window: int | None) -> None:
    """Refuse attention that the kernel does not compute. Raises Unsupported."""
    if getattr(module, "is_causal", True) is False:
        raise Unsupported("its attention is not causal")
    for argument in _NOT_COMPUTED:
        if kwargs.get(argument) is not None:
            raise Unsupported(f"its attention takes {argument!r}")
    if window is not None and kwargs.get("sliding_window") != window:
        raise Unsupported(f"attends within {kwargs.get('sliding_window')} tokens where its configuration says {window}")


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The handle carries token indices; the kernel masks by them."""


AttentionInterface.register(ATTENTION_NAME, paged_attention)
AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


def attention_layers(model: nn.Module) -> Iterator[tuple[int, nn.Module]]:
    """The attention modules of a transformers model, each with the number of its layer."""
    for module in model.modules():
        layer = getattr(module, "layer_idx", None)
        if isinstance(layer, int) and hasattr(module, "scaling"):
            yield layer, module


def cache_keyword(model: PreTrainedModel) -> str:
    """The keyword under which a model's forward takes its cache; transformers 5.24 renamed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class PagedModel:
    """A transformers causal language model that runs on pages.

    Args:
        model: the model; its attention implementation is switched, so its config object must not be shared with
            a model that is to keep another one.
        weights: of decode steps: "model", "int8" (quantised copies, see :mod:`agentkv.cache.lean`), or "auto": int8
            where they are known to be as good.

    Attributes:
        lean: computes the forward passes; None where transformers' modules do.
    """

    def __init__(self, model: PreTrainedModel, weights: str = "auto"):
        self.model = model
        self.layout = layout_of(model.config, model.dtype)
        self.lean = lean_forward(model, self.layout, weights)
        self._cache_keyword = cache_keyword(model)
        self._run: ForwardPass | None = None
        self._hooked = False
        expected = self._own_logits()
        model.set_attn_implementation(ATTENTION_NAME)
        self._probe(expected)

    def _probe_ids(self) -> Tensor:
        """A few tokens from all over the vocabulary, [n] int64."""
        return (
            torch.linspace(0, self.model.config.get_text_config().vocab_size - 1, _PROBE_TOKENS).long().to(self.device)
        )

    @torch.inference_mode()
    def _own_logits(self) -> Tensor | None:
        """Logits [n, V] of the probe under transformers' own attention; None if an engine has the model already."""
        if self.model.config._attn_implementation == ATTENTION_NAME:
            return None
        # The other implementations leave out what they do not know; in 5.17 that was Gemma 2's soft cap.
        self.model.set_attn_implementation("eager")
        try:
            logits: Tensor = self.model(input_ids=self._probe_ids().unsqueeze(0), use_cache=False).logits[0]
        except Exception as error:  # whatever a foreign model takes for bad input
            raise self._refusal("runs no plain tokens", error) from error
        return logits

    def _probe(self, expected: Tensor | None) -> None:
        """Run a few tokens on pages and compare.

        Raises:
            Unsupported: the model's attention does not go through transformers' attention and cache interfaces, or
                computes something else there: it is not causal, say, or biased by distance.
            AgentKVError: an environment variable of the kernels is not understood.
        """
        policy = Policy(name="probe", scorer=None)
        limits = Limits(shape_of(policy, self.layout, _PROBE_TOKENS), _PROBE_TOKENS, 0)
        pages = self.layout.pages_for(_PROBE_TOKENS, KVFormat.FP) * self.layout.layers * self.layout.kv_heads + 1
        controller = CacheController(
            PageArena(self.layout, pages * self.layout.page_bytes, self.device), policy, limits
        )
        ids, logits = self._probe_ids(), []
        try:
            for part in ids.split([_PROBE_TOKENS - 2, 1, 1]):  # a chunk, then single tokens
                step = controller.begin(part.tolist())
                logits.append(self.forward(part.unsqueeze(0), ForwardPass([step]))[0])
                controller.commit(step)
        except Unsupported as error:
            raise Unsupported(f"{self.model.config.model_type}: {error}") from error
        except SettingError as error:
            raise AgentKVError(str(error)) from error
        except Exception as error:  # whatever a foreign model does with handles in place of keys and values
            raise self._refusal("its attention cannot run on pages", error) from error
        ours = torch.stack(logits).float()
        if not bool(torch.isfinite(ours).all()):
            raise Unsupported(f"{self.model.config.model_type}: gives no finite logits on pages")
        tolerance = _PROBE_TOLERANCE.get(self.layout.dtype, _PROBE_TOLERANCE_HALF)
        if expected is not None and (off := _distance(ours, expected[-3:].float())) > tolerance:
            raise Unsupported(
                f"{self.model.config.model_type}: computes something else on pages than by itself (logits off by "
                f"{off:.1%}); its attention is not plain causal softmax attention"
            )

    def _refusal(self, what: str, error: Exception) -> Unsupported:
        reason = " ".join(str(error).split())[:200]
        return Unsupported(f"{self.model.config.model_type}: {what} ({type(error).__name__}: {reason})")

    @property
    def device(self) -> torch.device:
        return self.model.device

    @torch.inference_mode()
    def forward(self, ids: Tensor, run: ForwardPass, before: Sequence[Tensor | None] | None = None) -> Tensor:
        """Run new tokens of one or several sessions; returns the logits after each one's last, [B, V].

        Args:
            ids: [B, n] int64; of several sessions one token each.
            run: where they go.
            before: for each session the logits [V] after the token before, where its policy reads how surprising
                tokens are.
        """
        logits = self.compute(ids, run, any(step.policy.reads_surprise for step in run.steps))
        run.finish()
        for step, own, tokens, last in zip(run.steps, logits, ids, before or [None] * len(ids), strict=True):
            if step.policy.reads_surprise:
                step.surprise.append(_surprise(own, tokens, last))
        return logits[:, -1]

    @torch.inference_mode()
    def compute(self, ids: Tensor, run: ForwardPass, all_logits: bool = False) -> Tensor:
        """What the device does in a forward pass, and nothing that the host decides: logits [B, 1, V] or [B, n, V]."""
        return (self.lean or self._own_forward)(ids, run, all_logits)

    def _own_forward(self, ids: Tensor, run: ForwardPass, all_logits: bool) -> Tensor:
        """Logits [B, n or 1, V] by transformers' modules."""
        cache = PagedCache(run)
        self._run = run if run.reads_hidden else None
        out = self.model(
            input_ids=ids,
            position_ids=run.positions,
            use_cache=True,
            logits_to_keep=0 if all_logits else 1,
            **{self._cache_keyword: cache},
        )
        cache.check_written()
        self._run = None
        logits: Tensor = out.logits
        return logits

    def read_hidden(self) -> None:
        """From now on, steps of policies that ask for it get the input of each attention layer."""
        if self._hooked:
            return
        self._hooked = True
        for layer, module in attention_layers(self.model):
            module.register_forward_pre_hook(partial(self._note_hidden, layer), with_kwargs=True)

    def _note_hidden(self, layer: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.note_hidden(layer, kwargs["hidden_states"] if "hidden_states" in kwargs else args[0])


def _distance(a: Tensor, b: Tensor) -> float:
    """Between logits [n, V]: root mean square difference over b's standard deviation, at the median position.

    The median, since half precision may now and then send a token to another expert.
    """
    difference = (a - b).pow(2).mean(-1).sqrt() / b.std(-1).clamp_min(1e-6)
    return float(difference.median())


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
