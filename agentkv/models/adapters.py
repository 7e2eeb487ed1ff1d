"""Folders with a low-rank adapter: a model is its base with the adapter's product added to its weights.

Such a folder is a model wherever one is asked for. The files are peft's; their metadata name the base and hold its
fingerprint, so that an adapter is never put on other weights than those it was trained for. An installed package can
bring adapters with names, by entry points of the group `agentkv.adapters` that are each a :class:`NamedAdapter`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from agentkv.errors import ModelError

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
FORMAT = "agentkv-adapter"
VERSION = "1"
PREFIX = "base_model.model."
"""What peft puts before the names of the model's own modules."""
ENTRY_POINT_GROUP = "agentkv.adapters"


@dataclass(frozen=True)
class NamedAdapter:
    """An adapter that an installed package brings.

    Attributes:
        folder: with its files.
        summary: one line for `agentkv models list`.
        int8_weights: whether decoding with int8 weights was measured to be as good.
    """

    folder: Path
    summary: str
    int8_weights: bool = False


def adapter_names() -> tuple[str, ...]:
    """Names of the adapters that installed packages bring; loads none of them."""
    return tuple(sorted(_entries()))


def named_adapter(name: str) -> NamedAdapter:
    """The adapter of that name. Raises ModelError if its package has something else under it."""
    found = _entries()[name].load()
    if not isinstance(found, NamedAdapter):
        raise ModelError(f"the entry point {name!r} of {ENTRY_POINT_GROUP} is no NamedAdapter; mend that package")
    return found


@cache
def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


@dataclass(frozen=True)
class Adapter:
    """A folder with an adapter.

    Attributes:
        base: the model it belongs to: embedded name, folder or hub id.
        fingerprint: of the base's weights.
        scale: of the product that is added to a weight.
    """

    folder: Path
    base: str
    fingerprint: str
    scale: float


def is_adapter(source: Path | str) -> bool:
    """Whether this is a folder with an adapter."""
    return (Path(source).expanduser() / CONFIG).is_file()


def read_adapter(folder: Path | str) -> Adapter:
    """What a folder says of its adapter; its weights are not read.

    Raises:
        ModelError: it is incomplete, damaged, or of a kind that agentkv does not read.
    """
    from safetensors import SafetensorError, safe_open

    folder = Path(folder).expanduser()
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        scale = float(config["lora_alpha"]) / int(config["r"])
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            about = file.metadata() or {}
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, SafetensorError) as error:
        raise ModelError(f"the adapter {folder} is incomplete or damaged ({error}); train or copy it again") from error
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ModelError(
            f"the adapter {folder} was not written by `agentkv train agent` of this version: its file does not say "
            "which weights it belongs to; merge it into its base and give the folder of the merged model"
        )
    return Adapter(folder, about["base"], about["fingerprint"], scale)
