"""A tiny engine whose tokenizer reads words, in place of the embedded model."""

from __future__ import annotations

import zlib

import torch

from agentkv.engine import Engine
from tests.runtime_helpers import VOCABULARY, DigitTokenizer, tiny_model


class WordTokenizer(DigitTokenizer):
    """A number is the token of that id, any other word one of the ids from 2 on."""

    chat_template = None
    bos_token_id = 0

    def __init__(self, leading: bool = False):
        self._leading = leading

    def __call__(self, text: str, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, list[int]]:
        start = [self.bos_token_id] if self._leading and add_special_tokens else []
        return {"input_ids": start + [self._id(word) for word in text.split()]}

    @staticmethod
    def _id(word: str) -> int:
        if word.isdigit() and int(word) < VOCABULARY:
            return int(word)
        return 2 + zlib.crc32(word.encode()) % (VOCABULARY - 2)

    def apply_chat_template(self, messages, *, chat_template, tokenize, add_generation_prompt) -> str:
        assert chat_template
        assert add_generation_prompt
        assert not tokenize
        return "User: " + messages[0]["content"] + " Assistant:"


def word_engine(leading: bool = False) -> Engine:
    """Float64, 256 tokens of window."""
    return Engine(tiny_model("llama", torch.float64), WordTokenizer(leading), "tiny", "8MiB")
