"""The folder of a training: what may be in it, and where to go on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from agentkv.train import checkpoint, log
from agentkv.train.checkpoint import Progress
from agentkv.train.errors import TrainError


def prepare(folder: Path, results: Collection[str], fresh: bool, finish: bool = False) -> None:
    """Make the folder, or check that what it holds is a training; `fresh` removes that.

    Args:
        folder: of the training.
        results: names of the files it ends with.
        fresh: begin again.
        finish: it must hold a training that can be ended.

    Raises:
        TrainError: it holds something else, nothing that could be finished, or cannot be made.
    """
    if fresh and finish:
        raise TrainError("--finish ends the training that is there and --fresh removes it; give one of them")
    if finish and not (folder / checkpoint.FILE).is_file():
        raise TrainError(f"{folder} holds no training that could be finished; leave out --finish")
    ours = {checkpoint.FILE, log.FILE, *results}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strangers = sorted({file.name for file in folder.iterdir()} - {*ours, Path(checkpoint.FILE).stem + ".partial"})
        if strangers:
            raise TrainError(f"{folder} holds {strangers[0]}, which is of no training; give an empty or new folder")
        for name in ours if fresh else ():
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise TrainError(f"cannot use the folder {folder}: {error.strerror or error}") from error


def progress_of(folder: Path, facts: Mapping[str, Any]) -> Progress:
    """Where to begin.

    Args:
        folder: of the training.
        facts: all that decides the result.

    Raises:
        TrainError: the folder's training is another one.
    """
    found = checkpoint.read_progress(folder / checkpoint.FILE)
    if found is None:
        return Progress(facts)
    # What is not named is off, so either may lack a name that the other has.
    other = [name for name in {**facts, **found.settings} if found.settings.get(name) != facts.get(name)]
    if other:
        was, now = found.settings.get(other[0]), facts.get(other[0])
        raise TrainError(
            f"{folder} holds a training with another {other[0]} ({was}, not {now}); "
            "use the same command to go on, --fresh to begin again, or another folder"
        )
    return found
