"""`agentkv train`: the learned parts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentkv.train.settings import TrainSettings

app = typer.Typer(rich_markup_mode=None, help="Train the learned parts. Needs agentkv[train].")
_option = typer.Option


@app.callback()
def _group() -> None:
    """Keeps `agent` a subcommand while it is the only one."""


@app.command("agent")
def agent(
    traces: Annotated[list[Path], _option(help="File of demonstrations; repeatable.")],
    out: Annotated[Path, _option(help="Folder for the adapter, its card, the log and the checkpoint.")],
    model: Annotated[str, _option(help="The base: embedded name, model folder or hub id.")] = "smollm2-135m",
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
    validate: Annotated[int, _option(help="The most demonstrations of a validation set.")] = 24,
    held_out: Annotated[int, _option(help="Families of tasks held out for validation.")] = 6,
    seed: Annotated[int, _option(help="Of the adapter's beginning and of the order.")] = TrainSettings.seed,
    dtype: Annotated[str, _option(help="Of the base: auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, _option(help="cpu or cuda.")] = "cpu",
    fresh: Annotated[bool, _option("--fresh", help="Begin again if the folder holds a training.")] = False,
    as_json: Annotated[bool, _option("--json", help="One JSON object per step and validation on stdout.")] = False,
) -> None:
    """Teach a model to act from demonstrations. The same command goes on where it was interrupted.

    \b
    Examples:
      python -m agentkv_envs.tasks.training traces.jsonl --count 2000 --slips 0.2
      agentkv train agent --traces traces.jsonl --out adapter
      agentkv train agent --traces traces.jsonl --out quick --tokens 100000 --lr 5e-4
      agentkv eval --tasks vwa75 --model adapter
    """
    from agentkv_agents.teaching.run import TeachOptions, run
    from agentkv_evals.interrupt import InterruptGuard

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
    options = TeachOptions(tuple(traces), out, model, settings, held_out, validate, dtype, device, fresh, as_json)
    guard = InterruptGuard(lambda: print("stopping after this step", file=sys.stderr, flush=True))
    try:
        with guard:
            run(options, guard.requested)
    except KeyboardInterrupt:
        print("interrupted: the checkpoint is kept; run the same command to go on", file=sys.stderr)
        raise typer.Exit(guard.exit_code) from None
