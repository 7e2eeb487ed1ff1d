"""Where the pages of MiniWoB++ are: in the installed package `miniwob`, which is never imported."""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata
from pathlib import Path

from agentkv_envs.errors import EnvError

PACKAGE, _SOME_PAGE = "miniwob", "miniwob/html/miniwob/click-test.html"
_HINT = f"pip install --no-deps {PACKAGE}, or name its folder `html` in AGENTKV_MINIWOB"


def html_folder() -> Path:
    """The folder with `core/`, `common/` and `miniwob/`.

    Raises:
        EnvError: the package is not installed; says how to get it.
    """
    given = os.environ.get("AGENTKV_MINIWOB", "").strip()
    folder = Path(given).expanduser() if given else _installed()
    if not (folder / "miniwob" / "click-test.html").is_file():
        raise EnvError(f"{folder} does not hold the pages of MiniWoB++; {_HINT}")
    return folder


@cache
def _installed() -> Path:
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise EnvError(f"the pages of MiniWoB++ are not here; {_HINT}") from None
    page = next((file for file in files if str(file) == _SOME_PAGE), None)
    if page is None:
        raise EnvError(f"the installed {PACKAGE} has no {_SOME_PAGE}; {_HINT}")
    return Path(str(page.locate())).parents[1]


def task_names() -> list[str]:
    """Names of the tasks, such as "click-test"."""
    return sorted(file.stem for file in (html_folder() / "miniwob").glob("*.html"))
