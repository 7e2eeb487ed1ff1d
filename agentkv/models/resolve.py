"""From what the user typed after --model to something transformers can load."""

from __future__ import annotations

import re
from pathlib import Path

from agentkv.errors import ModelError, UnknownName
from agentkv.models.adapters import adapter_names, find_adapter, named_adapter, read_adapter
from agentkv.models.progress import Progress, default_progress
from agentkv.models.registry import EMBEDDED, model_folder, names
from agentkv.models.store import damage, pull

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_pulled(name: str) -> bool:
    """Whether the folder of the embedded model `name` exists; says nothing about its files."""
    return model_folder(name).is_dir()


def resolve_model(name: str | Path, progress: Progress | None = None) -> Path | str:
    """Find a model by its name, by local folder (of a model or an adapter) or hub id, in this order.

    Names are those of embedded models and of the adapters that packages bring. An embedded model is pulled when
    absent, and pulled again when any of its files no longer has the hash recorded at the pull.

    Returns:
        A folder, or the hub id unchanged.

    Raises:
        UnknownName: `name` is none of the three.
        ModelError: a folder without config.json, an adapter that cannot be read, or a pull that failed.
    """
    check_model(name)
    text = str(name)
    if text in EMBEDDED:
        return _embedded(text, progress)
    if (adapter := find_adapter(text)) is not None:
        return adapter
    folder = Path(text).expanduser()
    return folder if folder.is_dir() else text


def check_model(name: str | Path) -> None:
    """Raise what :func:`resolve_model` would for a name that is none, without fetching or reading anything."""
    text = str(name)
    if text in EMBEDDED:
        return
    if (adapter := find_adapter(text)) is not None:
        check_model(read_adapter(adapter).base)
        return
    folder = Path(text).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"the folder {folder} holds no config.json, so it is no model; give a transformers folder")
        return
    if _HUB_ID.fullmatch(text):
        return
    raise UnknownName(
        f"unknown model {text!r}: not a name ({', '.join((*names(), *adapter_names()))}), "
        "not an existing folder, not a hub id like org/name"
    )


def takes_int8_weights(name: str) -> bool:
    """Whether decoding with int8 weights was measured to be as good for the model of that name."""
    if name in EMBEDDED:
        return EMBEDDED[name].int8_weights
    return name in adapter_names() and named_adapter(name).int8_weights


def _embedded(name: str, progress: Progress | None) -> Path:
    if not is_pulled(name):
        return pull(EMBEDDED[name], progress)
    fault = damage(name)
    if fault is None:
        return model_folder(name)
    (progress or default_progress()).line(f"the cached model {name} is damaged ({fault}); pulling it again")
    return pull(EMBEDDED[name], progress)
