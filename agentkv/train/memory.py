"""How much memory a pack takes, and taking less of it."""

from __future__ import annotations

import psutil
import torch
from transformers import PreTrainedModel

from agentkv.train.errors import TrainError

# What autograd keeps of a layer per token, in numbers of the model's width and of its feed-forward's (counted by saved
# tensors of SmolLM2-135M: 1.38 MB a token), and what the process grows by for each byte of that.
_WIDTHS, _INNERS, _GROWTH = 12, 3, 2.0
# With recomputing, of the process's growth, this is left (0.78 MB of 2.67).
_RECOMPUTED = 0.3
# Gates train while the weights need no gradient: this is left of it (1.7 MB of 2.67).
# What is kept of the predictions, with fading and without, is so many bytes for each entry of the vocabulary.
_GATED, _PREDICTIONS = 0.64, 16


def recompute_activations(model: PreTrainedModel) -> None:
    """Keep only what goes into each layer and compute the rest again when it is needed: a third slower, less memory."""
    # transformers 5.24 renamed it.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def pack_bytes(model: PreTrainedModel, length: int, recompute: bool) -> int:
    """About how many bytes a process grows by while it computes a pack of `length` tokens, forward and backward."""
    config = model.config.get_text_config()
    numbers = config.num_hidden_layers * (_WIDTHS * config.hidden_size + _INNERS * config.intermediate_size)
    size = torch.finfo(model.dtype).bits // 8
    return int(length * numbers * size * _GROWTH * (_RECOMPUTED if recompute else 1.0))


def gated_pack_bytes(model: PreTrainedModel, length: int) -> int:
    """The same while gates are trained and every token is learned."""
    vocabulary = model.config.get_text_config().vocab_size
    return int(pack_bytes(model, length, False) * _GATED) + length * vocabulary * _PREDICTIONS


def check_memory(model: PreTrainedModel, needed: int, length: int, less: str = "") -> None:
    """Raises TrainError if a pack will not fit into the host's free memory, whose end is no error but a killed process.

    A GPU says so itself, and the trainer makes a sentence of it.

    Args:
        needed: bytes that a pack takes.
        length: its tokens.
        less: what else to do about it, ", or --flag".
    """
    if model.device.type != "cpu":
        return
    free = psutil.virtual_memory().available
    if needed > free:
        fits = int(length * free / needed) // 256 * 256
        raise TrainError(
            f"packs of {length} tokens take about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
            f"use --length {max(fits, 256)}{less}"
        )
