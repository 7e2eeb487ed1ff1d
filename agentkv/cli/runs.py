"""`agentkv runs`: what evaluations left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, help="Past evaluations: list, show, report.")

RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Folder that holds the runs.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per row, nothing else on stdout.")]
RunName = Annotated[str, typer.Argument(help="Name of a run, the start or end of one, or: latest.")]


@app.command("list")
def list_runs(runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """List the runs, oldest first.

    \b
    Example:
      agentkv runs list
    """
    from agentkv_evals.cli import runs_list

    raise typer.Exit(runs_list(runs_dir, json_rows=as_json))


@app.command("show")
def show_run(run: RunName, runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Show the results of a run.

    \b
    Example:
      agentkv runs show latest
    """
    from agentkv_evals.cli import runs_show

    raise typer.Exit(runs_show(run, runs_dir, json_rows=as_json))


@app.command("report")
def report_run(run: RunName, runs_dir: RunsDir = Path("runs")) -> None:
    """Write the report of a run again and print its path.

    \b
    Example:
      agentkv runs report latest
    """
    from agentkv_evals.cli import runs_report

    raise typer.Exit(runs_report(run, runs_dir))
