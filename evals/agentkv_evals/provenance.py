"""Where a run came from: versions, commit, machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("agentkv", "torch", "transformers", "langchain-core", "llguidance", "playwright")


def utc_now() -> str:
    """Now, ISO 8601 in UTC to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def describe(workers: int) -> dict[str, Any]:
    """This start of the program: time, command line, versions, git commit, machine, and how many shared it."""
    return {
        "started_utc": utc_now(),
        "command": _command(),
        "workers": workers,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "git": git_state(Path(__file__).resolve().parent),
        "machine": {
            "system": platform.platform(),
            "cpu": _cpu_name(),
            "cpus": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        },
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that `folder` is in and whether it has changes; None outside of one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _command() -> list[str]:
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
