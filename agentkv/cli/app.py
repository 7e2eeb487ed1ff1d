"""The command tree: names, help and flags only."""

from __future__ import annotations

from typing import Annotated

import typer

from agentkv.cli import bench, chat, doctor, evaluate, models, runs, serve, train


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"agentkv {version('agentkv')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep the KV memory of an LLM agent inside a budget, and measure what that costs.

    \b
    Examples:
      agentkv models pull smollm2-135m
      agentkv chat --policy conf-kv --budget 8MiB
      agentkv serve --policy conf-kv --budget 8MiB
      agentkv eval --tasks vwa75 --policy full --policy conf-kv
      agentkv runs list
      agentkv train agent --traces traces.jsonl --out adapter
    """


app = typer.Typer(add_completion=True, rich_markup_mode=None)
app.callback()(_root)
app.command("chat")(chat.chat)
app.command("serve")(serve.serve)
app.command("eval")(evaluate.evaluate)
app.command("doctor")(doctor.doctor)
app.add_typer(models.app, name="models")
app.add_typer(runs.app, name="runs")
app.add_typer(bench.app, name="bench")
app.add_typer(train.app, name="train")
