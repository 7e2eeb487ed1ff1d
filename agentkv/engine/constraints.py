"""Constrained decoding: only tokens that keep the reply inside a grammar can be sampled."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from torch import Tensor

from agentkv.errors import AgentKVError, Unsupported

_tokenizers: WeakKeyDictionary[Any, dict[tuple[int, ...], LLTokenizer]] = WeakKeyDictionary()
_tokenizers_lock = threading.Lock()


class GrammarConstraint:
    """A Lark grammar (llguidance dialect) as a decoding constraint.

    One object serves one reply. When nothing can follow (`done`) generation ends without an end-of-sequence
    token; where the reply may end or go on, the mask allows the model's end-of-sequence tokens beside the
    continuations.
    """

    def __init__(self, source: Any, lark: str):
        """Compile `lark` for the tokenizer of `source`, an engine or a transformers tokenizer.

        Raises:
            AgentKVError: the grammar does not compile; the message says where.
            Unsupported: a tokenizer without a tokenizers-library backend.
        """
        self._start(source, LLMatcher.grammar_from_lark(lark), "grammar")

    @classmethod
    def from_json_schema(
        cls, source: Any, schema: dict[str, Any] | str, *, whitespace: bool = False
    ) -> GrammarConstraint:
        """A constraint to JSON documents of `schema`, compact unless `whitespace`.

        Raises:
            AgentKVError: the schema is no JSON or cannot be compiled.
        """
        try:
            parsed = json.loads(schema) if isinstance(schema, str) else schema
            text = json.dumps(parsed)
        except (TypeError, ValueError) as error:
            raise AgentKVError(f"the JSON schema is not valid JSON: {error}") from error
        constraint = cls.__new__(cls)
        grammar = LLMatcher.grammar_from_json_schema(text, {"whitespace_flexible": whitespace})
        constraint._start(source, grammar, "JSON schema")
        return constraint

    def _start(self, source: Any, grammar: str, kind: str) -> None:
        self._matcher = LLMatcher(_llguidance_tokenizer(source), grammar, log_level=0)
        if self._matcher.is_error():
            raise AgentKVError(f"the {kind} does not compile: {_one_line(self._matcher.get_error())}")

    @property
    def done(self) -> bool:
        """The grammar is satisfied and nothing may follow."""
        return self._matcher.is_stopped()

    @property
    def accepting(self) -> bool:
        """The tokens so far are a whole sentence of the grammar, though more may follow."""
        return self._matcher.is_accepting()

    def limit(self, tokens: int) -> None:
        """A grammar by itself does not care how many tokens there are."""

    def mask(self, logits: Tensor) -> Tensor:
        """Logits `[V]` with every token that the grammar forbids at -inf; the input is not changed."""
        vocabulary = logits.shape[-1]
        bits = self.allowed()[:vocabulary]
        allowed = np.zeros(vocabulary, dtype=bool)  # a padded vocabulary is wider than the tokenizer's
        allowed[: len(bits)] = bits
        if not allowed.any():
            raise AgentKVError("the grammar allows no continuation here: it matches no finite text")
        return logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), float("-inf"))

    def accept(self, token_id: int) -> None:
        """Advance by a token that was sampled or forced.

        Raises:
            AgentKVError: the grammar does not allow it here.
        """
        if not self._matcher.consume_token(token_id):
            self._raise_on_error()
            raise AgentKVError(f"token {token_id} is not allowed by the grammar here")

    def forced(self) -> list[int]:
        """Tokens that must come next, so that no forward pass is needed to choose them; may be empty.

        They are not accepted yet.
        """
        tokens: Sequence[int] = self._matcher.compute_ff_tokens()
        self._raise_on_error()
        return list(tokens)

    def copy(self) -> GrammarConstraint:
        """One that goes on from here by itself."""
        other = GrammarConstraint.__new__(GrammarConstraint)
        other._matcher = self._matcher.deep_copy()
        return other

    def allowed(self) -> np.ndarray:
        """[tokenizer's vocabulary] bool: tokens that may come next."""
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._raise_on_error()
        return np.unpackbits(packed, bitorder="little").view(bool)

    def _raise_on_error(self) -> None:
        if self._matcher.is_error():
            raise AgentKVError(f"the grammar cannot go on: {_one_line(self._matcher.get_error())}")


def _llguidance_tokenizer(source: Any) -> LLTokenizer:
    """The llguidance view of a tokenizer, built once per tokenizer (about 0.4 s for 49k tokens)."""
    from llguidance.hf import from_tokenizer

    if hasattr(source, "tokenizer"):
        tokenizer, eos = source.tokenizer, tuple(sorted(source.eos_token_ids))
    else:
        tokenizer, eos = source, (source.eos_token_id,)
    with _tokenizers_lock:
        known = _tokenizers.setdefault(tokenizer, {})
        if eos not in known:
            try:
                known[eos] = from_tokenizer(tokenizer, eos_token=list(eos))
            except ValueError as error:
                raise Unsupported(
                    f"a grammar needs a fast (tokenizers-library) tokenizer, not {type(tokenizer).__name__}: "
                    f"{_one_line(str(error))}"
                ) from error
        return known[eos]


def check_grammar(lark: str, what: str) -> None:
    """Compile a grammar without a tokenizer.

    Raises:
        AgentKVError: it does not compile; `what` says what it is.
    """
    if reason := LLMatcher.validate_grammar(lark):
        raise AgentKVError(f"{what} does not compile: {_one_line(reason)}")


def spell(source: Any, text: str) -> list[str | int]:
    """`text` split into plain parts and the ids of control tokens in it, which plain text of a grammar never matches.

    Args:
        source: an engine or a transformers tokenizer.
    """
    tokenizer = getattr(source, "tokenizer", source)
    parts: list[str | int] = [text]
    for token, added in getattr(tokenizer, "added_tokens_decoder", {}).items():
        if str(added) in text and _is_control(source, token):
            parts = [piece for part in parts for piece in _split(part, str(added), token)]
    return [part for part in parts if part != ""]


def _is_control(source: Any, token: int) -> bool:
    matcher = LLMatcher(_llguidance_tokenizer(source), "start: TEXT\nTEXT: /(.|\\n)+/", log_level=0)
    return not matcher.consume_token(token)


def _split(part: str | int, text: str, token: int) -> list[str | int]:
    if isinstance(part, int):
        return [part]
    pieces: list[str | int] = []
    for piece in part.split(text):
        pieces += [piece, token]
    return pieces[:-1]


def _one_line(error: str) -> str:
    """llguidance's message without its dump of parser state and its drawing of the spot."""
    lines = [line.strip() for line in error.split("<state>", maxsplit=1)[0].splitlines() if line.strip()]
    return "; ".join(lines[:2]) if lines else "no reason given"
