"""Compiling the C++ kernels for this machine, once; the result is kept in $AGENTKV_HOME, else ~/.cache/agentkv."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

logger = logging.getLogger(__name__)

# Sums may be taken in any order where a loop says so, and nowhere else: the exponential rounds by adding and
# subtracting a constant, which a freer compiler would cancel.
_FLAGS = (
    *("-O3", "-std=c++20", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"),
    *("-ffp-contract=fast", "-fPIC", "-shared"),
)
_SOURCES = ("attention.cpp", "product.cpp")
_HEADERS = ("vectors.h",)
_WIDE = "-mprefer-vector-width=512"


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where they cannot be had, which is said once."""
    try:
        return ctypes.CDLL(str(_compiled()))
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("no native CPU kernels, plain torch computes in their place: %s", _reason(error))
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stderr).strip().splitlines()
        return f"the compiler failed: {lines[-1] if lines else error}"
    return str(error)


def _compiled() -> Path:
    """Path of the library, compiled in some ten seconds if it is not there yet."""
    compiler = _compiler()
    folder = resources.files(__package__ or "")
    texts = {name: folder.joinpath(name).read_text("utf-8") for name in (*_SOURCES, *_HEADERS)}
    flags = [*_FLAGS, _WIDE] if platform.machine() in ("x86_64", "AMD64") else list(_FLAGS)
    identity = "\n".join((*texts.values(), *compiler, *flags, _processor()))
    target = _folder() / f"kernels-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as place:
        for name, text in texts.items():
            Path(place, name).write_text(text, "utf-8")
        result = Path(place, "kernels.so")
        command = [*compiler, *flags, *(str(Path(place, name)) for name in _SOURCES), "-o", str(result)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        os.replace(result, target)  # several processes may do this at once
    return target


def _compiler() -> list[str]:
    """The command that $CXX names, with its arguments, else g++ or clang++. Raises OSError if there is none."""
    if chosen := os.environ.get("CXX", "").split():
        if (path := shutil.which(chosen[0])) is None:
            raise OSError(f"CXX names the C++ compiler {chosen[0]!r}, which is not here")
        return [path, *chosen[1:]]
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        raise OSError("there is no C++ compiler (g++ or clang++)")
    return [found]


def _folder() -> Path:
    configured = os.environ.get("AGENTKV_HOME")
    return (Path(configured).expanduser() if configured else Path.home() / ".cache" / "agentkv") / "kernels"


def _processor() -> str:
    """What `-march=native` depends on: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
