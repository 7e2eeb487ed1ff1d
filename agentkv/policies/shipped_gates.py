"""Retention gates that installed packages bring, found by the weights they were trained for.

A package names the file of its gates by an entry point of the group `agentkv.gates`: a `pathlib.Path`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from agentkv.errors import GatesFileError
from agentkv.policies.rules import ModelFacts
from agentkv.policies.trim_gates import trained_for

ENTRY_POINT_GROUP = "agentkv.gates"


def find_gates(model: ModelFacts) -> Path | None:
    """The file of gates for a model's weights; None where no package brings any.

    Raises:
        GatesFileError: a package brings no file of gates, or two bring gates for the same weights.
    """
    fingerprint = model.fingerprint()
    files = {entry.name: _file(entry) for entry in entry_points(group=ENTRY_POINT_GROUP)}
    found = [name for name, file in files.items() if trained_for(file) == fingerprint]
    if len(found) > 1:
        raise GatesFileError(f"several installed packages bring gates for this model: {', '.join(found)}; name a file")
    return files[found[0]] if found else None


def _file(entry: EntryPoint) -> Path:
    try:
        found = entry.load()
    except Exception as error:  # whatever a foreign package does when it is imported
        raise GatesFileError(f"the gates {entry.name!r} of {entry.value} cannot be loaded ({error})") from error
    if not isinstance(found, Path):
        raise GatesFileError(f"the gates {entry.name!r} of {entry.value} are no path of a file; mend that package")
    return found
