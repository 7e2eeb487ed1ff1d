"""From generated tokens to text, piece by piece, with stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agentkv.errors import AgentKVError

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？")


class TextStream:
    """Turns tokens into text deltas; holds back what may yet become a stop string or a whole character.

    Args:
        tokenizer: a transformers tokenizer.
        stop: strings that end the text and are not part of it.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()):
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._ids: list[int] = []
        self._settled = 0
        """Tokens before this one are decoded for good; a window of text before it keeps spacing right."""
        self._context = 0
        self._held = ""
        self.stopped = False

    def push(self, token_ids: Sequence[int]) -> str:
        """Add tokens; returns the text that is now certain. Sets ``stopped`` when a stop string appeared."""
        self._ids.extend(token_ids)
        self._held += self._new_text()
        return self._cut()

    def flush(self) -> str:
        """The text still held back, at the end of the reply. A character that is not whole is left out."""
        if self.stopped:
            return ""
        self._held += self._new_text(final=True)
        text = self._cut()
        if not self.stopped:
            text, self._held = text + self._held, ""
        return text

    def _new_text(self, final: bool = False) -> str:
        decode = self._tokenizer.decode
        before = decode(self._ids[self._context : self._settled], skip_special_tokens=True)
        after = decode(self._ids[self._context :], skip_special_tokens=True)
        if after.endswith(_INCOMPLETE):
            if not final:
                return ""
            after = after.rstrip(_INCOMPLETE)
        self._context, self._settled = self._settled, len(self._ids)
        text: str = after[len(before) :]
        return text

    def _cut(self) -> str:
        found = [at for at in (self._held.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.stopped = True
            text, self._held = self._held[: min(found)], ""
            return text
        keep = max((_overlap(self._held, stop) for stop in self._stop), default=0)
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that ``stop`` begins with."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def segment_ends(tokenizer: Any, vocabulary: int) -> Tensor:
    """[vocabulary] bool: tokens with which a line or a sentence ends."""
    texts = (tokenizer.decode([token]) for token in range(min(vocabulary, len(tokenizer))))
    ends = torch.zeros(vocabulary, dtype=torch.bool)
    for token, text in enumerate(texts):
        ends[token] = "\n" in text or text.rstrip().endswith(_SENTENCE_ENDS)
    return ends


def check_tokens(ids: Sequence[int], vocabulary: int) -> None:
    """Raises AgentKVError unless all ids are whole numbers from 0 to below ``vocabulary``.

    A model that is given others fails in the middle of a pass, which costs every session in it.
    """
    for token in ids:
        if type(token) is not int or not 0 <= token < vocabulary:
            raise AgentKVError(
                f"{token!r} is no token of the model, whose ids are whole numbers from 0 to {vocabulary - 1}"
            )
