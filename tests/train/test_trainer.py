"""The loop: it learns, goes on exactly where it was interrupted, stops in time, and survives what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentkv.train import checkpoint
from agentkv.train.attention import use_packed_attention
from agentkv.train.checkpoint import Progress
from agentkv.train.documents import Document
from agentkv.train.errors import TrainError
from agentkv.train.log import FILE as LOG
from agentkv.train.log import Log, read_log
from agentkv.train.lora import add_lora
from agentkv.train.measure import NextTokens
from agentkv.train.settings import TrainSettings
from agentkv.train.trainer import Data, Trainer, plan_steps
from tests.runtime_helpers import random_ids, tiny_model

SETTINGS = TrainSettings(tokens=1200, length=64, batch=2, rank=4, lr=0.02, validations=3, patience=3)
# The same beginning, one thing that follows from it: something to be learned.
LEARNABLE = [Document((*random_ids(20, seed=n), 7, 8, 9, 10), ((20, 24),), f"d{n}") for n in range(8)]
OTHERS = [Document((*random_ids(20, seed=90 + n), 7, 8, 9, 10), ((20, 24),), f"v{n}") for n in range(2)]
# Contradict what is trained.
AGAINST = [Document((*random_ids(20, seed=n), 30, 31, 32, 33), ((20, 24),), f"a{n}") for n in range(3)]


def trainer(
    folder: Path,
    settings: TrainSettings = SETTINGS,
    progress: Progress | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    validation: list[Document] | None = None,
    **more: list[Document],
) -> Trainer[Any]:
    model = tiny_model("llama", torch.float32)
    use_packed_attention(model)
    parameters = add_lora(model, settings.rank, settings.alpha, settings.seed)
    progress = progress or Progress(settings.as_dict())
    data = Data(LEARNABLE, {"held out": validation or OTHERS, **more})
    return Trainer(
        NextTokens(model), parameters, data, settings, progress, folder, Log(folder, progress.step), interrupted
    )


def losses(folder: Path) -> list[tuple[str, int, float]]:
    return [(row["kind"], row["step"], row["loss"]) for row in read_log(folder / LOG)]


def test_it_learns_and_the_model_is_what_it_was_before_the_first_step(tmp_path: Path) -> None:
    trained = trainer(tmp_path).run()
    checks = [row for row in read_log(tmp_path / LOG) if row["kind"] == "validation"]
    assert checks[0]["step"] == 0
    assert checks[-1]["loss"] < 0.5 * checks[0]["loss"]
    assert trained.progress.best == pytest.approx(min(row["loss"] for row in checks), rel=1e-5)
    assert trained.progress.ended == "all tokens seen"
    assert trained.progress.tokens >= SETTINGS.tokens


@pytest.mark.parametrize("stop_at", [1, 4, 7])
def test_an_interrupted_training_goes_on_with_the_same_losses(tmp_path: Path, stop_at: int) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    uninterrupted = trainer(whole).run()

    asked: Iterator[bool] = (n == stop_at for n in range(1, 1000))
    with pytest.raises(KeyboardInterrupt):
        trainer(parts, interrupted=lambda: next(asked)).run()
    # Rows of a sitting that came to its end after the checkpoint was written.
    with (parts / LOG).open("a") as file:
        file.write(f'{{"kind": "step", "step": {stop_at + 1}, "loss": 99.0}}\n{{"half')
    progress = checkpoint.read_progress(parts / checkpoint.FILE)
    assert progress is not None
    assert progress.step == stop_at
    resumed = trainer(parts, progress=progress).run()

    assert losses(parts) == losses(whole)
    assert resumed.progress.best == uninterrupted.progress.best
    for name, weight in uninterrupted.best.items():
        assert torch.equal(weight, resumed.best[name])


def test_a_loss_that_is_no_number_stops_it_and_the_last_checkpoint_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, real = 0, NextTokens.loss

    def breaks(*args: Any) -> Any:
        nonlocal count
        count += 1
        return real(*args) * (float("nan") if count == 9 else 1.0)

    monkeypatch.setattr(NextTokens, "loss", breaks)
    with pytest.raises(TrainError, match=r"loss of step 5 is nan.*the last checkpoint is kept.*lower --lr"):
        trainer(tmp_path).run()
    progress = checkpoint.read_progress(tmp_path / checkpoint.FILE)
    assert progress is not None
    assert 0 < progress.step <= 4
    monkeypatch.undo()
    assert trainer(tmp_path, progress=progress).run().progress.ended == "all tokens seen"


def test_it_stops_when_validation_gets_no_better(tmp_path: Path) -> None:
    settings = TrainSettings(tokens=6000, length=64, batch=1, rank=4, lr=0.02, validations=30, patience=2)
    running = trainer(tmp_path, settings, validation=AGAINST)
    trained = running.run()
    assert trained.progress.ended == "2 validations without a lower loss"
    assert trained.progress.step < running.steps
    assert trained.progress.best_step < trained.progress.step


def test_the_best_weights_are_those_with_the_lowest_mean_over_the_sets(tmp_path: Path) -> None:
    trained = trainer(tmp_path, validation=AGAINST, one=OTHERS, two=OTHERS).run()
    by_step: dict[int, list[float]] = {}
    for row in read_log(tmp_path / LOG):
        if row["kind"] == "validation":
            by_step.setdefault(row["step"], []).append(row["loss"])
    means = {step: sum(found) / 3 for step, found in by_step.items()}
    assert trained.progress.best_step == min(means, key=means.__getitem__)
    assert trained.progress.best == pytest.approx(min(means.values()), rel=1e-5)
    # By the first set alone the beginning would be the best.
    assert min(by_step, key=lambda step: by_step[step][0]) != trained.progress.best_step


def test_out_of_memory_says_what_to_use_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*args: Any) -> Any:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(NextTokens, "loss", no_room)
    with pytest.raises(TrainError, match="packs of 64 tokens; use --length 32 --batch 4"):
        trainer(tmp_path).run()


def test_another_runtime_error_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(NextTokens, "loss", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        trainer(tmp_path).run()


def test_steps_come_again_in_another_order_until_there_are_enough_tokens() -> None:
    steps = plan_steps(LEARNABLE, SETTINGS)
    packs = [documents for packs in steps for documents in packs]
    tokens = [sum(len(d.ids) for d in documents) for documents in packs]
    assert sum(tokens[:-1]) < SETTINGS.tokens <= sum(tokens)
    names = [d.name for documents in packs for d in documents]
    first, second = names[:8], names[8:16]
    assert set(first) == set(second) == {d.name for d in LEARNABLE}
    assert first != second
    assert plan_steps(LEARNABLE, SETTINGS) == steps


def test_the_learning_rate_rises_then_falls_to_a_tenth() -> None:
    rates = [TrainSettings(lr=1.0, warmup=0.1).lr_at(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert max(rates) == rates[9] == rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.001)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rank": 0}, "--rank must be at least 1"),
        ({"tokens": 0}, "--tokens must be at least 1"),
        ({"lr": 0.0}, "--lr must be a number above 0"),
        ({"lr": float("nan")}, "--lr must be a number above 0"),
        ({"warmup": 1.0}, "--warmup must be a share"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainError, match=said):
        TrainSettings(**changed)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / checkpoint.FILE
    assert checkpoint.read_progress(file) is None
    file.write_bytes(b"no tensors")
    with pytest.raises(TrainError, match=r"damaged or no checkpoint.*--fresh"):
        checkpoint.read_progress(file)


def test_a_checkpoint_of_another_adapter_does_not_fit(tmp_path: Path) -> None:
    trainer(tmp_path).run()
    progress = checkpoint.read_progress(tmp_path / checkpoint.FILE)
    wider = TrainSettings(**{**SETTINGS.as_dict(), "rank": 8})
    with pytest.raises(TrainError, match="does not fit this model and adapter"):
        trainer(tmp_path, wider, progress)
