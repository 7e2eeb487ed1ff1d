"""`agentkv models`: the models that come without a model hub."""

from __future__ import annotations

import json
from pathlib import Path
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
    from agentkv.models import EMBEDDED, adapter_names, is_pulled, model_folder, named_adapter
    from agentkv.models.adapters import read_adapter

    def show(name: str, summary: str, folder: Path, pulled: bool, state: str) -> None:
        if as_json:
            typer.echo(json.dumps({"name": name, "pulled": pulled, "folder": str(folder), "summary": summary}))
        else:
            typer.echo(f"{name}  {summary}  {state}")

    for model in EMBEDDED.values():
        pulled, folder = is_pulled(model.name), model_folder(model.name)
        state = f"in {folder}" if pulled else f"not pulled ({model.download_bytes / 1e6:.0f} MB to download)"
        show(model.name, model.summary, folder, pulled, state)
    for name in adapter_names():
        adapter = named_adapter(name)
        base = read_adapter(adapter.folder).base
        show(name, adapter.summary, adapter.folder, base not in EMBEDDED or is_pulled(base), f"an adapter of {base}")


@app.command("pull")
def pull_model(
    name: Annotated[str, typer.Argument(help="A name from `agentkv models list`.")],
    force: Annotated[bool, typer.Option("--force", help="Fetch it even if the copy here is whole.")] = False,
) -> None:
    """Fetch an embedded model, or an adapter's base, into the cache folder and print its path.

    The cache folder is ~/.cache/agentkv, or $AGENTKV_HOME.

    \b
    Example:
      agentkv models pull smollm2-135m
    """
    from agentkv.errors import UnknownName
    from agentkv.models import EMBEDDED, adapter_names, named_adapter, names, pull
    from agentkv.models.adapters import read_adapter

    if name in adapter_names():
        name = read_adapter(named_adapter(name).folder).base
    if name not in EMBEDDED:
        raise UnknownName(f"unknown model {name!r}; there are: {', '.join((*names(), *adapter_names()))}")
    typer.echo(pull(EMBEDDED[name], force=force))
