"""Folders with a low-rank adapter: a model is its base with the adapter's product added to its weights.

Such a folder is a model wherever one is asked for. The files are peft's; their metadata name the base and hold its
fingerprint, so that an adapter is never put on other weights than those it was trained for. An installed package can
bring adapters with names, by entry points of the group `agentkv.adapters` that are each a :class:`NamedAdapter`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from agentkv.errors import ModelError
from agentkv.models.registry import EMBEDDED

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
    """Names of the adapters that installed packages bring; loads none of them. Embedded models keep their names."""
    return tuple(sorted(_entries()))


def named_adapter(name: str) -> NamedAdapter:
    """The adapter of that name.

    Raises:
        ModelError: its package cannot be loaded, brings something else, or another one has the same name.
    """
    entries = _entries()[name]
    if len(entries) > 1:
        raise ModelError(
            f"several installed packages bring an adapter {name!r}: {_origins(entries)}; remove all but one"
        )
    try:
        found = entries[0].load()
    except Exception as error:  # whatever a foreign package does when it is imported
        raise ModelError(f"the adapter {name!r} of {_origins(entries)} cannot be loaded ({error})") from error
    if not isinstance(found, NamedAdapter) or not is_adapter(found.folder):
        raise ModelError(
            f"the adapter {name!r} of {_origins(entries)} is no NamedAdapter with files; mend that package"
        )
    return found


def find_adapter(name: Path | str) -> Path | None:
    """The folder of an adapter that is given by its name or by its folder; None where there is none.

    Raises:
        ModelError: as :func:`named_adapter`.
    """
    if str(name) in EMBEDDED:
        return None
    if str(name) in _entries():
        return named_adapter(str(name)).folder
    folder = Path(name).expanduser()
    return folder if is_adapter(folder) else None


@cache
def _entries() -> dict[str, tuple[EntryPoint, ...]]:
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name not in EMBEDDED:
            found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def _origins(entries: Sequence[EntryPoint]) -> str:
    return ", ".join(entry.dist.name if entry.dist else entry.value for entry in entries)


@dataclass(frozen=True)
class Adapter:
    """A folder with an adapter.

    Attributes:
        base: the model it belongs to: embedded name, folder or hub id.
        fingerprint: of the base's weights.
        rank: of the product that is added to a weight.
        scale: of that product, alpha / rank.
    """

    folder: Path
    base: str
    fingerprint: str
    rank: int
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
        rank = int(config["r"])
        scale = float(config["lora_alpha"]) / rank
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            about = file.metadata() or {}
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, SafetensorError) as error:
        raise ModelError(f"the adapter {folder} is incomplete or damaged ({error}); train or copy it again") from error
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ModelError(
            f"the adapter {folder} was not written by `agentkv train agent` of this version: its file does not say "
            "which weights it belongs to; merge it into its base and give the folder of the merged model"
        )
    return Adapter(folder, about["base"], about["fingerprint"], rank, scale)
