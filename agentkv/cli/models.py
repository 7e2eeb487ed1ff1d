"""`agentkv models`: the models that come with a name, without a model hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, help="The models that come with a name: list and fetch them.")


@app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per model.")] = False,
) -> None:
    """Show the embedded models, whether they are in the cache folder, and the adapters that packages bring.

    \b
    Example:
      agentkv models list
    """
    from agentkv.models import EMBEDDED, adapter_names, is_pulled, model_folder

    for model in EMBEDDED.values():
        folder = model_folder(model.name)
        _show(model.name, model.summary, folder, is_pulled(model.name), as_json, _state(model.name))
    for name in adapter_names():
        _list_adapter(name, as_json)


def _list_adapter(name: str, as_json: bool) -> None:
    """A line for an adapter; a package that is broken is told and hides no other."""
    from agentkv.errors import ModelError
    from agentkv.models import EMBEDDED, is_pulled, named_adapter
    from agentkv.models.adapters import read_adapter

    try:
        adapter = named_adapter(name)
        base = read_adapter(adapter.folder).base
    except ModelError as error:
        typer.echo(f"{name}: {error}", err=True)
        return
    embedded = base in EMBEDDED
    state = f"adapter of {base}, " + (_state(base) if embedded else f"its base in {base}")
    _show(name, adapter.summary, adapter.folder, is_pulled(base) if embedded else None, as_json, state)


def _state(name: str) -> str:
    """Where an embedded model is."""
    from agentkv.models import EMBEDDED, is_pulled, model_folder

    if is_pulled(name):
        return f"in {model_folder(name)}"
    return f"not pulled ({EMBEDDED[name].download_bytes / 1e6:.0f} MB to download)"


def _show(name: str, summary: str, folder: Path, pulled: bool | None, as_json: bool, state: str) -> None:
    """One line; `pulled` is None where nobody knows."""
    if as_json:
        typer.echo(json.dumps({"name": name, "pulled": pulled, "folder": str(folder), "summary": summary}))
    else:
        typer.echo(f"{name}  {summary}  {state}")


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
    from agentkv.models import EMBEDDED, adapter_names, names, pull
    from agentkv.models.adapters import find_adapter, read_adapter

    adapter = find_adapter(name)
    wanted = name if adapter is None else read_adapter(adapter).base
    if wanted not in EMBEDDED and adapter is not None:
        raise UnknownName(f"the base of {name} is {wanted}, which is not fetched by agentkv; it is used where it lies")
    if wanted not in EMBEDDED:
        raise UnknownName(f"unknown model {name!r}; there are: {', '.join((*names(), *adapter_names()))}")
    typer.echo(pull(EMBEDDED[wanted], force=force))
