"""The loop: steps of AdamW over packs, validation, early stop, and a checkpoint to go on from."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from agentkv.train import checkpoint
from agentkv.train.checkpoint import FILE, Progress
from agentkv.train.documents import Batch, Document, Pack, as_batch, pack
from agentkv.train.errors import TrainError
from agentkv.train.log import Log
from agentkv.train.lora import load_weights
from agentkv.train.settings import TrainSettings

_SAVE_EVERY_S = 300.0


@dataclass(frozen=True)
class Data:
    """What is trained on.

    Attributes:
        training: its documents.
        validation: documents by the name of their set; the mean of the sets' losses says which weights are the best.
    """

    training: Sequence[Document]
    validation: Mapping[str, Sequence[Document]]


@dataclass(frozen=True)
class Trained:
    """How a training ended: why, and the weights with the lowest validation loss."""

    progress: Progress
    best: Mapping[str, Tensor]


class Figures(Protocol):
    """What a validation finds: a dataclass of numbers, of which the loss decides."""

    @property
    def loss(self) -> float: ...


FiguresT_co = TypeVar("FiguresT_co", bound=Figures, covariant=True)


class Objective(Protocol[FiguresT_co]):
    """What is trained for."""

    @property
    def device(self) -> torch.device: ...

    def loss(self, batch: Batch) -> Tensor:
        """[] float32: of a pack, summed over its learned tokens."""

    def measure(self, packs: Sequence[Pack]) -> FiguresT_co:
        """Figures over all documents of the packs."""


class Trainer(Generic[FiguresT_co]):
    """Trains some parameters for an objective.

    Args:
        objective: depends on the parameters.
        parameters: by name, in float32.
        progress: where to begin; the folder has its checkpoint unless it is at step 0.
        folder: for the checkpoint, written at every validation and every five minutes.
        interrupted: asked between steps; True leaves a checkpoint and raises KeyboardInterrupt.
    """

    def __init__(
        self,
        objective: Objective[FiguresT_co],
        parameters: Mapping[str, nn.Parameter],
        data: Data,
        settings: TrainSettings,
        progress: Progress,
        folder: Path,
        log: Log,
        interrupted: Callable[[], bool] = lambda: False,
    ):
        self._objective = objective
        self._parameters = parameters
        self._settings = settings
        self._progress = progress
        self._file = folder / FILE
        self._log = log
        self._interrupted = interrupted
        self._saved = time.monotonic()
        self._steps = plan_steps(data.training, settings)
        self._validation = {
            name: pack(documents, settings.length, random.Random(0)) for name, documents in data.validation.items()
        }
        self._optimizer = torch.optim.AdamW(parameters.values(), lr=settings.lr, weight_decay=settings.weight_decay)
        self._best: dict[str, Tensor] = {}
        if progress.step:
            self._best = checkpoint.restore(self._file, parameters, self._optimizer)

    @property
    def steps(self) -> int:
        """Steps of the whole training, unless it stops early."""
        return len(self._steps)

    def run(self) -> Trained:
        """Train to the end.

        Raises:
            TrainError: the loss is no number any more, or memory ran out.
        """
        progress, every = self._progress, max(1, self.steps // self._settings.validations)
        if not progress.step:
            self._validate()
        while not progress.ended:
            self._step(self._steps[progress.step])
            if progress.step == self.steps or progress.step % every == 0:
                self._validate()
            elif time.monotonic() - self._saved > _SAVE_EVERY_S:
                self._save()
            if not progress.ended and self._interrupted():
                self._save()
                raise KeyboardInterrupt
        return Trained(progress, self._best)

    def finish(self) -> Trained:
        """End an interrupted training where it stands, after one more validation."""
        progress = self._progress
        if not progress.ended:
            self._validate()
            progress.ended = progress.ended or "finished by hand"
            self._save()
        return Trained(progress, self._best)

    def measure(self) -> dict[str, FiguresT_co]:
        """Figures of every validation set with the parameters as they are."""
        with self._memory():
            return {name: self._objective.measure(packs) for name, packs in self._validation.items()}

    def _step(self, packs: Sequence[Pack]) -> None:
        """One step of the optimizer; nothing has changed when it raises."""
        start, progress = time.perf_counter(), self._progress
        lr = self._settings.lr_at(progress.step, self.steps)
        learned = sum(document.learned for documents in packs for document in documents)
        self._optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        with self._memory():
            for documents in packs:
                part = self._objective.loss(as_batch(documents, self._objective.device)) / learned
                part.backward()
                loss += float(part.detach())
        norm = float(nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.clip))
        self._check_finite(loss, norm)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        seconds = time.perf_counter() - start
        tokens = sum(len(document.ids) for documents in packs for document in documents)
        progress.step += 1
        progress.tokens += tokens
        progress.seconds += seconds
        self._log.step(progress.step, progress.tokens, loss=loss, lr=lr, grad_norm=norm, tokens_per_s=tokens / seconds)

    def _check_finite(self, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        kept = "the last checkpoint is kept" if self._file.exists() else "there is no checkpoint yet"
        raise TrainError(
            f"the loss of step {self._progress.step + 1} is {loss} with a gradient of norm {norm}; {kept}; "
            "train again with a lower --lr, in another folder or with --fresh"
        )

    def _validate(self) -> None:
        progress, found = self._progress, self.measure()
        for name, measured in found.items():
            self._log.validation(progress.step, progress.tokens, name, asdict(cast(Any, measured)))
        loss = sum(measured.loss for measured in found.values()) / len(found)
        if not math.isfinite(loss):
            self._check_finite(loss, 0.0)
        if progress.best is None or loss < progress.best:
            progress.best, progress.best_step, progress.worse = loss, progress.step, 0
            self._best = {name: p.detach().clone() for name, p in self._parameters.items()}
        else:
            progress.worse += 1
        if progress.step == self.steps:
            progress.ended = "all tokens seen"
        elif progress.worse >= self._settings.patience:
            progress.ended = f"{progress.worse} validations without a lower loss"
        self._save()

    def _save(self) -> None:
        self._saved = time.monotonic()
        checkpoint.save(self._file, self._progress, self._parameters, self._optimizer, self._best)

    def use_best(self, weights: Mapping[str, Tensor]) -> None:
        """Give the parameters these values."""
        load_weights(self._parameters, weights)

    @contextmanager
    def _memory(self) -> Iterator[None]:
        """Running out of memory becomes a sentence on what to use instead."""
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not _is_memory(error):
                raise
            length = self._settings.length
            raise TrainError(
                f"out of memory with packs of {length} tokens; use --length {length // 2} "
                f"--batch {self._settings.batch * 2}, which trains as much a step"
            ) from error


def _is_memory(error: RuntimeError) -> bool:
    """Whether torch says so; on a CPU it has no class of its own for that."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def plan_steps(documents: Sequence[Document], settings: TrainSettings) -> list[tuple[Pack, ...]]:
    """The packs of every step: all documents, in an order of its own each time, until there are enough tokens."""
    packs: list[Pack] = []
    tokens, epoch = 0, 0
    while tokens < settings.tokens:
        for documents_of_pack in pack(documents, settings.length, random.Random(f"{settings.seed}/{epoch}")):
            if tokens >= settings.tokens:
                break
            packs.append(documents_of_pack)
            tokens += sum(len(document.ids) for document in documents_of_pack)
        epoch += 1
    return [tuple(packs[n : n + settings.batch]) for n in range(0, len(packs), settings.batch)]
