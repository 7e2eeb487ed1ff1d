"""`agentkv models`: the models that come without a model hub."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, help="Embedded models: list and fetch them.")


@app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per model.")] = False,
) -> None:
    """Show the embedded models and whether they are in the cache folder.

    \b
    Example:
      agentkv models list
    """
    from agentkv.models import EMBEDDED, is_pulled, model_folder

    for model in EMBEDDED.values():
        pulled, folder = is_pulled(model.name), model_folder(model.name)
        if as_json:
            row = {"name": model.name, "pulled": pulled, "folder": str(folder), "summary": model.summary}
            typer.echo(json.dumps(row))
        else:
            state = f"in {folder}" if pulled else f"not pulled ({model.download_bytes / 1e6:.0f} MB to download)"
            typer.echo(f"{model.name}  {model.summary}  {state}")


@app.command("pull")
def pull_model(
    name: Annotated[str, typer.Argument(help="A name from `agentkv models list`.")],
    force: Annotated[bool, typer.Option("--force", help="Fetch it even if the copy here is whole.")] = False,
) -> None:
    """Fetch an embedded model into the cache folder and print its path.

    The cache folder is ~/.cache/agentkv, or $AGENTKV_HOME.

    \b
    Example:
      agentkv models pull smollm2-135m
    """
    from agentkv.errors import UnknownName
    from agentkv.models import EMBEDDED, names, pull

    if name not in EMBEDDED:
        raise UnknownName(f"unknown model {name!r}; there are: {', '.join(names())}")
    typer.echo(pull(EMBEDDED[name], force=force))
