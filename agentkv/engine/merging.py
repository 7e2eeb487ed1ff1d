"""Adding an adapter's product to the weights of its base, and telling bases apart."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from agentkv.engine.loading import load_model, no_progress_bar
from agentkv.errors import ModelError
from agentkv.models import resolve_model
from agentkv.models.adapters import PREFIX, WEIGHTS, Adapter, is_adapter, read_adapter

_SAMPLE = 4096
_STEP = 2.0**-10
_MERGED = "agentkv_merged"
"""Attribute of a model with an adapter merged in: its fingerprint."""


def load_merged(source: Path | str, dtype: str, device: torch.device) -> tuple[PreTrainedModel, Any]:
    """As :func:`load_model`; of an adapter's folder, its base with the adapter merged in.

    Raises:
        ModelError, UnknownName, Unsupported: the base or the adapter cannot be loaded, or do not belong together.
    """
    if not is_adapter(source):
        return load_model(source, dtype, device)
    adapter = read_adapter(source)
    model, tokenizer = load_model(resolve_model(adapter.base), dtype, device)
    merge_adapter(model, adapter)
    return model, tokenizer


def plain_model(source: Path | str, **arguments: Any) -> PreTrainedModel:
    """A model as transformers loads it, for comparisons; an adapter is merged in here too.

    Args:
        source: folder or hub id.
        arguments: of transformers' `from_pretrained`.
    """
    adapter = read_adapter(source) if is_adapter(source) else None
    with no_progress_bar():
        base = source if adapter is None else resolve_model(adapter.base)
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(base, **arguments)
    if adapter is not None:
        merge_adapter(model, adapter)
    return model.eval()


def base_fingerprint(model: PreTrainedModel) -> str:
    """Sha256 over names, shapes and a sample of every weight, whatever dtype a checkpoint is loaded in.

    A weight counts in steps of 2⁻¹⁰: what half precision rounds of a bfloat16 number is far below that.
    """
    digest = hashlib.sha256()
    for name, weight in model.state_dict().items():
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        stride = max(1, weight.numel() // _SAMPLE)
        sample = weight.detach().flatten()[::stride].cpu().float() / _STEP
        digest.update(sample.round().to(torch.int32).numpy().tobytes())
    return digest.hexdigest()


def weights_fingerprint(model: PreTrainedModel) -> str:
    """Identifies what a model computes with, in whatever dtype: its weights, or its base and what was merged into it.

    Merged weights do not identify themselves: a sum rounded to half precision may fall into another of the steps that
    :func:`base_fingerprint` counts in.
    """
    return getattr(model, _MERGED, None) or base_fingerprint(model)


def merge_adapter(model: PreTrainedModel, adapter: Adapter) -> None:
    """Add scale · B · A to each weight that the adapter has a product for, computed in float32.

    Raises:
        ModelError: the model is not the adapter's base, or the file holds something else than products for it.
    """
    base = base_fingerprint(model)
    if base != adapter.fingerprint:
        raise ModelError(
            f"the adapter {adapter.folder} was trained for {adapter.base!r} with other weights than those loaded here; "
            "use the base it was trained for, or train it again"
        )
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, (down, up) in _products(adapter).items():
            target = weights.get(name)
            change = (up.float() @ down.float()) * adapter.scale
            if target is None or target.shape != change.shape:
                raise ModelError(
                    f"the adapter {adapter.folder} changes {name}, which its base lacks or has in another shape"
                )
            target.copy_(target.float() + change.to(target.device))
    own = hashlib.sha256((adapter.folder / WEIGHTS).read_bytes()).hexdigest()
    setattr(model, _MERGED, hashlib.sha256(f"{base} {own} {adapter.scale}".encode()).hexdigest())


def _products(adapter: Adapter) -> dict[str, tuple[Tensor, Tensor]]:
    """By the name of the base's weight: A [rank, in] and B [out, rank]."""
    try:
        tensors = load_file(adapter.folder / WEIGHTS)
        downs = [name for name in tensors if name.endswith(".lora_A.weight")]
        found = {
            f"{name.removeprefix(PREFIX).removesuffix('.lora_A.weight')}.weight": (
                tensors.pop(name),
                tensors.pop(name.replace(".lora_A.", ".lora_B.")),
            )
            for name in downs
        }
    except (OSError, KeyError, SafetensorError) as error:
        raise ModelError(f"the adapter {adapter.folder} is damaged ({error}); train or copy it again") from error
    if tensors or not found:
        raise ModelError(f"the adapter {adapter.folder} holds {next(iter(tensors), 'nothing')}, not products A and B")
    return found
