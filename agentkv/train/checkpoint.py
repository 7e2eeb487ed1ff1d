"""The state of a training in one file, replaced only when the new one is whole."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from agentkv.train.errors import TrainError

FILE = "checkpoint.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        step: steps of the optimizer that are done.
        tokens: seen so far.
        seconds: of computing, over all sittings.
        best: the lowest validation loss, at `best_step`; None before the first.
        worse: validations since then.
        ended: why it is over, "" while it is not.
        settings: everything that decides the result; another training does not go on from here.
    """

    settings: Mapping[str, Any]
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    worse: int = 0
    ended: str = ""


def save(
    path: Path,
    progress: Progress,
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    best: Mapping[str, Tensor],
) -> None:
    """Write the state. `best` are the weights with the lowest validation loss, {} before the first.

    Raises:
        TrainError: it cannot be written; the file before it is as it was.
    """
    tensors = {f"weight/{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        moments = optimizer.state.get(parameter, {})
        tensors |= {f"{moment}/{name}": moments[moment] for moment in _MOMENTS if moment in moments}
    tensors |= {f"best/{name}": weight for name, weight in best.items()}
    whole = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    temporary = path.with_suffix(".partial")
    try:
        save_file(whole, temporary, {"progress": json.dumps(asdict(progress))})
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise TrainError(f"cannot write the checkpoint {path}: {error}; the last one is kept") from error


def read_progress(path: Path) -> Progress | None:
    """How far the training of a checkpoint is; None where there is no file.

    Raises:
        TrainError: the file is no checkpoint.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            return Progress(**json.loads((file.metadata() or {})["progress"]))
    except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise TrainError(f"{path} is damaged or no checkpoint ({error}); begin again with --fresh") from error


def restore(path: Path, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Give the adapter and the optimizer what the file holds; returns the best weights in it.

    Raises:
        TrainError: the file does not fit them.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(tensors[f"weight/{name}"])
                if f"step/{name}" in tensors:
                    device = parameter.device
                    moments = {moment: tensors[f"{moment}/{name}"] for moment in _MOMENTS}
                    # The count of steps stays where the optimizer keeps it: on the host.
                    optimizer.state[parameter] = {
                        key: moment if key == "step" else moment.to(device) for key, moment in moments.items()
                    }
    except (OSError, KeyError, RuntimeError, SafetensorError) as error:
        raise TrainError(f"{path} does not fit this model and adapter ({error}); begin again with --fresh") from error
    return {name.removeprefix("best/"): tensor for name, tensor in tensors.items() if name.startswith("best/")}
