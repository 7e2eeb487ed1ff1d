"""A low-rank adapter on every projection of a model, by peft, and its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from agentkv.models.adapters import CONFIG, FORMAT, PREFIX, VERSION, WEIGHTS, Adapter
from agentkv.train.errors import TrainError

_NAME = "default"  # peft's, of the only adapter


def add_lora(model: PreTrainedModel, rank: int, alpha: int, seed: int) -> dict[str, nn.Parameter]:
    """Put an adapter on all projections but the output head, freeze everything else; returns its weights, in float32.

    Their names are those of the adapter's file. The product begins at zero, so the model computes what it did.

    Raises:
        TrainError: the model has no linear projections, or others beside them.
        ModuleNotFoundError: without peft.
    """
    from peft import LoraConfig, inject_adapter_in_model

    torch.manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    inject_adapter_in_model(config, model, _NAME)
    found: dict[str, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            parameter.data = parameter.data.float()
            found[PREFIX + name.replace(f".{_NAME}.", ".")] = parameter
        parameter.requires_grad_(".lora_" in name)
    odd = [n for n, m in model.named_modules() if hasattr(m, "lora_A") and not isinstance(m.base_layer, nn.Linear)]
    if odd:
        raise TrainError(f"{odd[0]} of a {type(model).__name__} is no linear layer; it cannot be trained by an adapter")
    if not found:
        raise TrainError(f"a {type(model).__name__} has no linear projections that an adapter could be put on")
    return found


def save_adapter(
    folder: Path, weights: Mapping[str, Tensor], *, rank: int, alpha: int, base: str, fingerprint: str
) -> None:
    """Write an adapter's weights in bfloat16 and its configuration, readable by agentkv and by peft.

    Args:
        base: the model it belongs to, as :func:`agentkv.models.resolve_model` knows it.
        fingerprint: of that model; see :func:`agentkv.engine.merging.base_fingerprint`.

    Raises:
        TrainError: the folder cannot be written.
    """
    tensors = {name: weight.detach().to("cpu", torch.bfloat16).contiguous() for name, weight in weights.items()}
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in tensors})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": targets,
        "bias": "none",
        "inference_mode": True,
    }
    about = {"format": FORMAT, "version": VERSION, "base": base, "fingerprint": fingerprint}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / WEIGHTS, about)
        (folder / WEIGHTS).chmod(0o644)  # safetensors makes it readable by its owner alone
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise TrainError(f"cannot write the adapter to {folder}: {error.strerror or error}") from error


def check_start(adapter: Adapter, rank: int, alpha: int) -> None:
    """Raises TrainError if an adapter has another rank or alpha than the training that is to begin with it."""
    if (adapter.rank, adapter.scale) != (rank, alpha / rank):
        raise TrainError(
            f"--start {adapter.folder} has rank {adapter.rank} and alpha {adapter.scale * adapter.rank:g}, "
            f"not {rank} and {alpha}; use the same --rank and --alpha"
        )


def start_weights(adapter: Adapter, parameters: Mapping[str, Tensor], fingerprint: str) -> dict[str, Tensor]:
    """Weights of an adapter that a training begins with.

    Args:
        parameters: by the names of the adapter's file.
        fingerprint: of the base; see :func:`agentkv.engine.merging.base_fingerprint`.

    Raises:
        TrainError: it belongs to another base, or its products are for other weights.
    """
    if adapter.fingerprint != fingerprint:
        raise TrainError(
            f"--start {adapter.folder} was trained for {adapter.base!r} with other weights; begin without it"
        )
    weights = load_file(adapter.folder / WEIGHTS)
    shapes = ({name: tensor.shape for name, tensor in of.items()} for of in (weights, parameters))
    if next(shapes) != next(shapes):
        raise TrainError(f"--start {adapter.folder} changes other weights than this training; begin without it")
    return weights


def load_weights(parameters: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor]) -> None:
    """Give the adapter these weights, name by name."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
