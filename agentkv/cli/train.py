"""`agentkv train`: the learned parts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from agentkv.train.settings import TrainSettings

app = typer.Typer(rich_markup_mode=None, help="Train the learned parts. Needs agentkv[train].")
_option = typer.Option


@app.command("agent")
def agent(
    traces: Annotated[list[Path], _option(help="File of demonstrations; repeatable.")],
    out: Annotated[Path, _option(help="Folder for the adapter, its card, the log and the checkpoint.")],
    model: Annotated[str, _option(help="The base: name, model folder or hub id.")] = "smollm2-135m",
    tokens: Annotated[int, _option(help="Tokens to train on.")] = TrainSettings.tokens,
    length: Annotated[int, _option(help="The most tokens computed at once.")] = TrainSettings.length,
    batch: Annotated[int, _option(help="Packs of that length per step.")] = TrainSettings.batch,
    rank: Annotated[int, _option(help="Rank of the adapter.")] = TrainSettings.rank,
    alpha: Annotated[int, _option(help="The adapter is scaled by alpha / rank.")] = TrainSettings.alpha,
    lr: Annotated[float, _option(help="Highest learning rate.")] = TrainSettings.lr,
    patience: Annotated[
        int, _option(help="Validations without a lower loss that end the training.")
    ] = TrainSettings.patience,
    validations: Annotated[int, _option(help="Validations in all.")] = TrainSettings.validations,
    notes: Annotated[
        float, _option(help="Share of the demonstrations that note what must be remembered, for agentkv eval --notes.")
    ] = 0.0,
    rename: Annotated[
        float, _option(help="Share of the demonstrations in which makers, people and places have other names.")
    ] = 0.0,
    plan: Annotated[
        bool | None,
        _option(help="Teach to write a plan first and to go through it by number. [default: as --start was, or yes]"),
    ] = None,
    explain_actions: Annotated[
        bool | None, _option(help="Explain the actions in the system message. [default: as --start was, or no]")
    ] = None,
    recall: Annotated[
        bool | None,
        _option(
            help="Teach to write down what was to be remembered once more where it is needed. [default: as --start was,"
            " or with a plan]"
        ),
    ] = None,
    start: Annotated[
        str | None, _option(help="An adapter, by folder or name, to begin with, of the same base, rank and alpha.")
    ] = None,
    validate: Annotated[int, _option(help="The most demonstrations of a validation set.")] = 24,
    held_out: Annotated[int, _option(help="Families of tasks held out for validation.")] = 6,
    seed: Annotated[int, _option(help="Of the adapter's beginning and of the order.")] = TrainSettings.seed,
    dtype: Annotated[str, _option(help="Of the base: auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, _option(help="cpu or cuda.")] = "cpu",
    replies_only: Annotated[
        bool, _option("--replies-only", help="Learn through replies alone, not through pages: about twice as fast.")
    ] = False,
    recompute: Annotated[
        bool, _option("--recompute", help="Compute activations twice: a third slower, in a third of the memory.")
    ] = False,
    finish: Annotated[
        bool, _option("--finish", help="End an interrupted training where it stands, and write what it has learned.")
    ] = False,
    fresh: Annotated[bool, _option("--fresh", help="Begin again if the folder holds a training.")] = False,
    as_json: Annotated[bool, _option("--json", help="One JSON object per step and validation on stdout.")] = False,
) -> None:
    """Teach a model to act from demonstrations. The same command goes on where it was interrupted.

    \b
    Examples:
      python -m agentkv_envs.tasks.training traces.jsonl --count 2000 --slips 0.2
      agentkv train agent --traces traces.jsonl --out adapter
      agentkv train agent --traces traces.jsonl --out quick --tokens 100000 --lr 5e-4
      agentkv train agent --traces more.jsonl --out further --start adapter --tokens 500000
      agentkv eval --tasks vwa75 --model adapter
    """
    from agentkv_agents.teaching.run import TeachOptions, run

    settings = TrainSettings(
        tokens=tokens,
        length=length,
        batch=batch,
        rank=rank,
        alpha=alpha,
        lr=lr,
        patience=patience,
        validations=validations,
        seed=seed,
    )
    options = TeachOptions(
        tuple(traces), out, model, settings, notes, rename, plan, explain_actions, recall, start,
        held_out, validate, dtype, device, replies_only, recompute, finish, fresh, as_json,
    )  # fmt: skip
    _interruptible(lambda requested: run(options, requested))


@app.command("gates")
def gates(
    text: Annotated[list[Path], _option(help="UTF-8 text; its end validates. Repeatable.")],
    out: Annotated[Path, _option(help="Folder for the gates, a picture, the log and the checkpoint.")],
    traces: Annotated[
        list[Path] | None, _option(help="File of demonstrations, to train on their actions too; repeatable.")
    ] = None,
    model: Annotated[str, _option(help="Name (agentkv models list), folder or hub id.")] = "smollm2-135m",
    tokens: Annotated[int, _option(help="Tokens to train on, shared by text, recall and traces.")] = 500_000,
    document: Annotated[int, _option(help="Tokens of a document of text and of recall.")] = 1024,
    length: Annotated[int, _option(help="The most tokens computed at once.")] = 2048,
    batch: Annotated[int, _option(help="Packs of that length per step.")] = 1,
    width: Annotated[int, _option(help="Hidden units of a gate; the paper has 512.")] = 128,
    bias: Annotated[float, _option(help="Where gates begin: 18 as in the paper needs a long training.")] = 8.0,
    capacity: Annotated[int, _option(help="M: tokens a head may hold.")] = 128,
    weight: Annotated[float, _option(help="Of the hinge on what is held above M.")] = 1.0,
    pooled: Annotated[bool, _option("--pooled", help="Heads share M, for trim-kv-db.")] = False,
    validate: Annotated[int, _option(help="Documents of each kind that validate.")] = 4,
    lr: Annotated[float, _option(help="Highest learning rate.")] = 1e-3,
    patience: Annotated[
        int, _option(help="Validations without a lower loss that end the training.")
    ] = TrainSettings.patience,
    validations: Annotated[int, _option(help="Validations in all.")] = TrainSettings.validations,
    seed: Annotated[int, _option(help="Of the gates' beginning and of the order.")] = TrainSettings.seed,
    dtype: Annotated[str, _option(help="Of the model: auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, _option(help="cpu or cuda.")] = "cpu",
    finish: Annotated[
        bool, _option("--finish", help="End an interrupted training where it stands, and write what it has learned.")
    ] = False,
    fresh: Annotated[bool, _option("--fresh", help="Begin again if the folder holds a training.")] = False,
    as_json: Annotated[bool, _option("--json", help="One JSON object per step and validation on stdout.")] = False,
) -> None:
    """Train TRIM-KV's retention gates: which tokens a model may forget, and how fast. The model stays as it is.

    \b
    Examples:
      agentkv train gates --text book.txt --out gates
      agentkv train gates --text book.txt --traces traces.jsonl --model adapter --out gates --capacity 256
    """
    from agentkv.train.gates import GateOptions, run
    from agentkv_agents.teaching.leaks import check_texts, test_text

    settings = TrainSettings(
        tokens=tokens, length=length, batch=batch, lr=lr, patience=patience, validations=validations, seed=seed
    )
    more: dict[str, Any] = {}
    if traces:
        from agentkv_agents.prompting import prompting_of
        from agentkv_agents.teaching.documents import trace_documents

        more = {"more": partial(trace_documents, tuple(traces), prompting_of(model)), "sources": tuple(traces)}
    options = GateOptions(
        tuple(text), out, model, settings, document, width, bias, capacity, weight, pooled, validate,
        check=lambda texts: check_texts(texts, test_text()),
        dtype=dtype, device=device, finish=finish, fresh=fresh, json=as_json, **more,
    )  # fmt: skip
    _interruptible(lambda requested: run(options, requested))


def _interruptible(train: Callable[[Callable[[], bool]], None]) -> None:
    """The first interruption ends the training after its step, with a checkpoint."""
    from agentkv_evals.interrupt import InterruptGuard

    guard = InterruptGuard(lambda: print("stopping after this step", file=sys.stderr, flush=True))
    try:
        with guard:
            train(guard.requested)
    except KeyboardInterrupt:
        print(
            "interrupted: the checkpoint is kept; run the same command to go on, or with --finish to end it there",
            file=sys.stderr,
        )
        raise typer.Exit(guard.exit_code) from None
