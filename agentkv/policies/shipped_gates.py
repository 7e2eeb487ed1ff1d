"""Retention gates that installed packages bring, found by the weights they were trained for.

A package names the file of its gates by an entry point of the group `agentkv.gates`: a `pathlib.Path`.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from agentkv.errors import GatesFileError
from agentkv.policies.rules import ModelFacts
from agentkv.policies.trim_gates import trained_for

ENTRY_POINT_GROUP = "agentkv.gates"


def find_gates(model: ModelFacts) -> Path | None:
    """The file of gates for a model's weights; None where no package brings any.

    Raises:
        GatesFileError: two packages bring gates for the same weights, or none does and one brings no file of gates.
    """
    fingerprint = model.fingerprint()
    files, broken = _installed()
    found = [name for name, file in files.items() if trained_for(file) == fingerprint]
    if len(found) > 1:
        raise GatesFileError(f"several installed packages bring gates for this model: {', '.join(found)}; name a file")
    if not found and broken:
        raise broken[0]
    return files[found[0]] if found else None


def installed_digests() -> dict[str, str]:
    """Sha256 of each file of gates that a package brings, by its name."""
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in _installed()[0].items()}


def _installed() -> tuple[dict[str, Path], list[GatesFileError]]:
    """Files of gates by name, and what is wrong with others: not every model needs every file."""
    files, broken = {}, []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            file = _file(entry)
            trained_for(file)
            files[entry.name] = file
        except GatesFileError as error:
            broken.append(error)
    return files, broken


def _file(entry: EntryPoint) -> Path:
    try:
        found = entry.load()
    except Exception as error:  # whatever a foreign package does when it is imported
        raise GatesFileError(f"the gates {entry.name!r} of {entry.value} cannot be loaded ({error})") from error
    if not isinstance(found, Path):
        raise GatesFileError(f"the gates {entry.name!r} of {entry.value} are no path of a file; mend that package")
    return found
