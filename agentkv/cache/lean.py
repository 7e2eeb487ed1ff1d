"""A forward pass without transformers' modules: the same arithmetic, with a tenth of the Python per layer.

Of a step of one token, a small model spends more time between the matrix products than in them. Here a layer is some
fifteen tensor operations. Families whose layers are exactly RMS norm, rotary attention and a gated SiLU are supported;
of other models transformers' own forward computes.

With int8 weights the products of few rows read half the bytes. Each row of a weight matrix has one scale, and rounding
is to the nearest, so no calibration is needed. Prompts keep the model's own weights: with many rows, products of int8
weights are slower than those of bfloat16.

How a CPU without half-precision arithmetic computes: see :mod:`agentkv_kernels.product`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from agentkv.cache.batch import ForwardPass
from agentkv.cache.formats import KVLayout
from agentkv.errors import AgentKVError, Unsupported
from agentkv_kernels import Int8Linear, OwnLinear
from agentkv_kernels.arithmetic import multiplies_fast

WEIGHTS = ("model", "int8")
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""By ``model_type``."""
INT8_ROWS = 4
"""Up to so many rows, products of int8 weights are faster than those of the model's own."""
INT8_ROWS_WIDENED = 16
"""The same where those are widened."""

Projection = Callable[[Tensor], Tensor]
"""A linear layer: [B, K] to [B, N]."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one layer.

    Attributes:
        qkv, gate_up: projections whose outputs stand side by side; one where they could be put together.
        out, down: back to the hidden size.
        attention_norm, mlp_norm: [hidden].
        query_norm, key_norm: [D], or None.
        scaling: of the attention scores.
    """

    qkv: tuple[Projection, ...]
    out: Projection
    gate_up: tuple[Projection, ...]
    down: Projection
    attention_norm: Tensor
    mlp_norm: Tensor
    query_norm: Tensor | None
    key_norm: Tensor | None
    scaling: float


class LeanForward:
    """Computes the forward passes of one model.

    Args:
        model: of one of :data:`FAMILIES`.
        layout: of its cache.
        weights: "model" shares the model's weights, "int8" makes quantised copies for passes of few tokens.

    Raises:
        Unsupported: a model this cannot compute, with the reason.
    """

    def __init__(self, model: PreTrainedModel, layout: KVLayout, weights: str = "model"):
        config = model.config
        check_supported(model, weights)
        self.weights = weights
        self._layout = layout
        self._q_heads: int = config.num_attention_heads
        self._eps: float = config.rms_norm_eps
        base: Any = model.model
        self._embedding: Tensor = base.embed_tokens.weight
        self._rotary: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = base.rotary_emb
        self._norm: Tensor = base.norm.weight
        self._own = _products(model, _shared)
        self._of_few_rows = _products(model, _quantized) if weights == "int8" else self._own
        self._few_rows = INT8_ROWS if multiplies_fast(layout.dtype, self._embedding.device) else INT8_ROWS_WIDENED

    def __call__(self, ids: Tensor, run: ForwardPass, all_logits: bool = False) -> Tensor:
        """n tokens of each of B sessions, [B, n], through all layers: logits [B, 1, V] after the last, or [B, n, V].

        Several tokens are of one session.
        """
        products = self._of_few_rows if ids.numel() <= self._few_rows else self._own
        reads_hidden = run.reads_hidden
        hidden = functional.embedding(ids, self._embedding)
        cos, sin = self._rotary(hidden, run.positions)
        half = sin.shape[-1] // 2
        # rotate_half(x) * sin is x, its halves exchanged, times sin with the first half negated.
        sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1).flatten(0, 1).unsqueeze(1)
        cos = cos.flatten(0, 1).unsqueeze(1)
        shape, hidden = ids.shape, hidden.flatten(0, 1)
        for index, layer in enumerate(products.layers):
            normed = self._normed(hidden, layer.attention_norm)
            if reads_hidden:
                run.note_hidden(index, normed.unflatten(0, shape))
            hidden = hidden + self._attend(index, layer, normed, cos, sin, run)
            gate, up = _together(layer.gate_up, self._normed(hidden, layer.mlp_norm)).chunk(2, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate) * up)
        if not all_logits:
            hidden = hidden.unflatten(0, shape)[:, -1]
        return products.head(self._normed(hidden, self._norm)).unflatten(0, (len(ids), -1))

    def _attend(self, index: int, layer: Layer, normed: Tensor, cos: Tensor, sin: Tensor, run: ForwardPass) -> Tensor:
        q_heads, kv_heads, size = self._q_heads, self._layout.kv_heads, self._layout.head_dim
        heads = _together(layer.qkv, normed).view(len(normed), -1, size)
        rotating = heads[:, : q_heads + kv_heads]
        if layer.query_norm is not None and layer.key_norm is not None:
            query = self._normed(rotating[:, :q_heads], layer.query_norm)
            rotating = torch.cat((query, self._normed(rotating[:, q_heads:], layer.key_norm)), dim=1)
        rotated = rotating * cos + rotating.roll(size // 2, -1) * sin
        query, key, value = (
            part.unflatten(0, (run.sessions, -1)).transpose(1, 2)
            for part in (rotated[:, :q_heads], rotated[:, q_heads:], heads[:, q_heads + kv_heads :])
        )
        run.write(index, key, value)
        window = self._layout.window(index)
        out = run.attend(index, query, None, scaling=layer.scaling, softcap=None, window=window)
        return layer.out(out.transpose(1, 2).reshape(len(normed), -1))

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        # In float32 and rounded before the weight, as transformers does it.
        return functional.rms_norm(x.float(), weight.shape, None, self._eps).to(x.dtype) * weight


def check_supported(model: PreTrainedModel, weights: str) -> None:
    """Raises Unsupported or AgentKVError where :class:`LeanForward` cannot compute this model with such weights."""
    config = model.config
    if weights not in WEIGHTS:
        raise AgentKVError(f"unknown weights {weights!r}; they are one of auto, {', '.join(WEIGHTS)}")
    if config.model_type not in FAMILIES:
        raise Unsupported(f"the lean forward pass knows {', '.join(FAMILIES)}, not {config.model_type}")
    if config.hidden_act not in ("silu", "swish"):
        raise Unsupported(f"the lean forward pass knows gated SiLU, not {config.hidden_act}")
    if weights == "int8" and not takes_int8(model):
        raise Unsupported(f"int8 weights need a bfloat16 model on the CPU, not {model.dtype} on {model.device}")
    if other := next((module for module in _projecting(model) if type(module) is not nn.Linear), None):
        raise Unsupported(f"the lean forward pass knows linear layers of torch, not {type(other).__name__}")
    rotated = model.model.rotary_emb.inv_freq.shape[0] * 2
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if rotated != head_dim:
        raise Unsupported("the lean forward pass rotates whole heads")


def _projecting(model: Any) -> Iterator[nn.Module]:
    """What should be linear layers; those of adapters and quantisers compute something else with their weights."""
    yield model.lm_head
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        yield from (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        yield from (mlp.gate_proj, mlp.up_proj, mlp.down_proj)


def takes_int8(model: PreTrainedModel) -> bool:
    """Whether torch multiplies int8 weights fast for a model of this dtype on this device."""
    return model.dtype is torch.bfloat16 and model.device.type == "cpu"


@dataclass(frozen=True, slots=True)
class Products:
    """The weights of a model."""

    layers: tuple[Layer, ...]
    head: Projection


def _products(model: Any, make: Callable[[Sequence[nn.Linear]], tuple[Projection, ...]]) -> Products:
    (head,) = make([model.lm_head])
    return Products(tuple(_layer(module, make) for module in model.model.layers), head)


def _layer(module: Any, make: Callable[[Sequence[nn.Linear]], tuple[Projection, ...]]) -> Layer:
    attention, mlp = module.self_attn, module.mlp
    query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return Layer(
        qkv=make([attention.q_proj, attention.k_proj, attention.v_proj]),
        out=make([attention.o_proj])[0],
        gate_up=make([mlp.gate_proj, mlp.up_proj]),
        down=make([mlp.down_proj])[0],
        attention_norm=module.input_layernorm.weight,
        mlp_norm=module.post_attention_layernorm.weight,
        query_norm=None if query_norm is None else query_norm.weight,
        key_norm=None if key_norm is None else key_norm.weight,
        scaling=attention.scaling,
    )


def _together(projections: tuple[Projection, ...], x: Tensor) -> Tensor:
    if len(projections) == 1:
        return projections[0](x)
    return torch.cat([projection(x) for projection in projections], dim=-1)


def _shared(linears: Sequence[nn.Linear]) -> tuple[Projection, ...]:
    """Projections with the modules' own weights; putting them together would take a copy."""
    return tuple(OwnLinear(linear.weight, linear.bias) for linear in linears)


def _quantized(linears: Sequence[nn.Linear]) -> tuple[Projection, ...]:
    """One projection in place of several, its rows rounded to int8."""
    dtype = linears[0].weight.dtype
    weight = torch.cat([linear.weight for linear in linears]).float()
    # Rounded first, so that codes make up for what the scale's own dtype loses.
    scale = (weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127).to(dtype)
    codes = (weight / scale.float()).round_().clamp_(-127, 127).to(torch.int8)
    biases: list[Tensor] = [linear.bias for linear in linears]
    return (Int8Linear(codes, scale[:, 0], None if linears[0].bias is None else torch.cat(biases)),)


def lean_forward(model: PreTrainedModel, layout: KVLayout, weights: str) -> LeanForward | None:
    """What computes a model's forward passes, or None: transformers' own.

    Args:
        model: any causal language model.
        layout: of its cache.
        weights: "auto": the model's own, by whatever can compute it; else see :class:`LeanForward`.

    Raises:
        Unsupported: int8 weights were asked for, and the model cannot be computed with them.
    """
    try:
        return LeanForward(model, layout, "model" if weights == "auto" else weights)
    except Unsupported as error:
        if weights == "int8":
            raise Unsupported(f"weights='int8' cannot be: {error}; use 'model' or 'auto'") from error
        return None
