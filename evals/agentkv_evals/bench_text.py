"""Text files and token ids for the benches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentkv_evals.errors import EvalError


def read_text(path: Path) -> str:
    """The text of a UTF-8 file. Raises EvalError if it cannot be read, is no UTF-8, or holds nothing but blanks."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise EvalError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise EvalError(f"cannot read {path}: {error.strerror or error}") from error
    if not text.strip():
        raise EvalError(f"{path} holds no text")
    return text


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of `text` as it is."""
    # `verbose` would warn about long texts, which are cut or judged by the model's real window.
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def leading_ids(tokenizer: Any) -> list[int]:
    """The beginning-of-sequence token, if this tokenizer puts one before plain text."""
    ids = tokenizer("a")["input_ids"]
    return ids[:1] if len(ids) > 1 and ids[0] == tokenizer.bos_token_id else []


@dataclass(frozen=True)
class Window:
    """Token ids: what is prefilled, and what is scored after it."""

    prompt: list[int]
    continuation: list[int]


class WindowSizes(Protocol):
    """How a text is cut: the options of a bench."""

    @property
    def text(self) -> Path | None: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def windows(self) -> int: ...


def cut_windows(ids: Sequence[int], leading: Sequence[int], sizes: WindowSizes) -> list[Window]:
    """Consecutive windows of a text, each after the tokenizer's leading token. Raises EvalError if it is too short."""
    width = sizes.prompt_tokens + sizes.tokens
    needed = sizes.windows * width
    if len(ids) < needed:
        raise EvalError(
            f"{sizes.text} has {len(ids)} tokens, but {sizes.windows} × ({sizes.prompt_tokens} + "
            f"{sizes.tokens}) = {needed} are needed; give a longer text or lower --windows or --tokens"
        )
    starts = range(0, needed, width)
    split = sizes.prompt_tokens
    return [Window([*leading, *ids[at : at + split]], list(ids[at + split : at + width])) for at in starts]
