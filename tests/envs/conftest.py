"""One browser for all tests of the environment, and the real tokenizer where the embedded model is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from env_pages import awkward_site

from agentkv_envs import WebEnv
from agentkv_envs.observe import estimate_tokens


@pytest.fixture(scope="session")
def env() -> Iterator[WebEnv]:
    with WebEnv(screenshots=False) as web_env:
        yield web_env


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    with awkward_site() as url:
        yield url


@pytest.fixture(scope="session")
def count_tokens() -> Callable[[str], int]:
    """Tokens by the embedded model's own tokenizer; by the cautious estimate where that model is not installed."""
    home = Path(os.environ.get("AGENTKV_HOME", Path.home() / ".cache" / "agentkv"))
    files = sorted(home.glob("**/tokenizer.json")) if home.is_dir() else []
    if not files:
        return estimate_tokens
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files[0]))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
