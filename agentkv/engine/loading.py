"""Load a transformers model and tokenizer, or say in one line why not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as hf_logging

from agentkv.cache.architecture import layout_of
from agentkv.cache.lean import FAMILIES
from agentkv.errors import AgentKVError, ModelError
from agentkv_kernels.arithmetic import multiplies_fast

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def load_model(source: Path | str, dtype: str, device: torch.device) -> tuple[PreTrainedModel, Any]:
    """Model in evaluation mode on the device, and its tokenizer.

    Args:
        source: folder or hub id.
        dtype: "auto" is the checkpoint's own, or float32 where this machine is slow in it: see :func:`choose_dtype`.
        device: where to put it.

    Raises:
        ModelError: not found, not readable, not a causal language model.
        Unsupported: an architecture this runtime does not handle, told before the weights are read.
    """
    try:
        config = AutoConfig.from_pretrained(source)
        chosen = choose_dtype(dtype, getattr(config, "dtype", None), device, config.model_type)
        layout_of(config, chosen)
        tokenizer = AutoTokenizer.from_pretrained(source)
        with no_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(source, dtype=chosen)
    except AgentKVError:
        raise
    except Exception as error:  # transformers raises anything from OSError to KeyError for a bad checkpoint
        reason = " ".join(str(error).split())
        raise ModelError(f"cannot load the model {str(source)!r}: {type(error).__name__}: {reason[:300]}") from error
    return move(model, device).eval(), tokenizer


def move(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The model, moved to the device."""
    model.to(str(device))  # type: ignore[arg-type]  # its annotation lost the overloads of nn.Module.to
    return model


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """A load of a second or two needs no bar, and one on standard error would break plain logs."""
    was_on = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            hf_logging.enable_progress_bar()


def as_device(name: str) -> torch.device:
    """Resolve a device name; raises ModelError if there is no such device here."""
    try:
        device = torch.device(name)
    except RuntimeError as error:  # torch lists a score of device types that no model runs on
        raise ModelError(f"device {name!r} cannot be used here: it is none of cpu, cuda and cuda:N") from error
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise ModelError(f"device {name!r} cannot be used here: {reason}") from error
    return device


def choose_dtype(
    wanted: str, checkpoint: torch.dtype | None, device: torch.device, family: str | None = None
) -> torch.dtype:
    """Resolve a dtype name; raises ModelError if there is no such dtype.

    Args:
        wanted: "auto" or a name.
        checkpoint: of its weights, if it says so.
        device: where the model will run. A CPU without half-precision arithmetic gets float32, except for what
            :mod:`agentkv.cache.lean` widens by itself.
        family: the ``model_type`` of its configuration.
    """
    if wanted != "auto":
        if wanted not in _DTYPES:
            raise ModelError(f"unknown dtype {wanted!r}; dtypes: auto, {', '.join(_DTYPES)}")
        return _DTYPES[wanted]
    chosen = checkpoint if checkpoint in _DTYPES.values() else None
    if chosen is None or (chosen is torch.bfloat16 and family in FAMILIES):
        return chosen or torch.float32
    return chosen if multiplies_fast(chosen, device) else torch.float32


def eos_token_ids(model: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a reply: the generation config's and the tokenizer's."""
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in (*listed, getattr(tokenizer, "eos_token_id", None)) if token is not None)
