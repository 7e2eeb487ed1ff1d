"""Telling a user's mistakes, which get one line, from bugs, which get a traceback."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from agentkv.errors import AgentKVError

USER_MISTAKE = 2

# Packages of the extras -> the extra that brings them.
_EXTRAS = {
    "fastapi": "serve",
    "sse_starlette": "serve",
    "prometheus_client": "serve",
    "playwright": "eval",
    "starlette": "eval",
    "uvicorn": "eval",
    "jinja2": "eval",
    "PIL": "eval",
    "multipart": "eval",
    "python_multipart": "eval",
    "matplotlib": "eval",
    "peft": "train",
}


@dataclass(frozen=True)
class Mistake:
    """What to say about an error that the user can mend, and the exit code."""

    line: str
    code: int = USER_MISTAKE


def mistake(error: BaseException) -> Mistake | None:
    """The one line for `error`, or None when it is a bug."""
    if isinstance(error, (AgentKVError, *_errors_of_others())):
        return Mistake(one_line(str(error)))
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in _EXTRAS:
            return Mistake(f"this command needs {package}: pip install 'agentkv[{_EXTRAS[package]}]'")
    # The command line library's own errors; its classes moved between versions, this method did not.
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "agentkv"
        return Mistake(f"{one_line(error.format_message()).rstrip('.')}; see {command} --help")
    return None


def one_line(text: str) -> str:
    """`text` with its line breaks and runs of blanks as single blanks."""
    return " ".join(text.split())


_ERRORS_OF_OTHERS = {"agentkv_envs.errors": "EnvError", "agentkv_kernels.dispatch": "SettingError"}
"""Modules of packages that do not know :mod:`agentkv.errors`, and their classes of user's mistakes."""


def _errors_of_others() -> tuple[type[BaseException], ...]:
    """Those of the modules that were imported at all."""
    return tuple(
        getattr(sys.modules[module], name) for module, name in _ERRORS_OF_OTHERS.items() if module in sys.modules
    )
