"""Constraints of replies with tools or a schema: such a reply ends inside its budget of tokens, whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from agentkv.engine.constraints import GrammarConstraint, spell
from agentkv.engine.reply import Constraint
from agentkv.errors import Unsupported
from agentkv.tools.dialect import Dialect
from agentkv.tools.form import ReplyForm
from agentkv.tools.grammar import reply_grammar

CANDIDATES = 8
"""Likeliest tokens looked at when the end of the budget is near."""
MARGIN = 48
"""Tokens by which one token may prolong the shortest ending before the budget is watched closely."""
_IN_STRING = ('"', "}", "]", "0", "a", " ")
_OUTSIDE = ("}", "]", '"', "0", "null", "true", "1", "-", ",", " ")
"""What ends a JSON document soonest, inside a string of it and elsewhere."""


class ReplyConstraint(Constraint, Protocol):
    """What the decode loop asks for, and whether the reply is whole where it is."""

    @property
    def accepting(self) -> bool:
        """The reply is whole, though more may follow."""
        ...

    def limit(self, tokens: int) -> None:
        """Say that there is room for no more than so many tokens."""
        ...


def build_constraint(engine: Any, dialect: Dialect, form: ReplyForm, max_tokens: int) -> ReplyConstraint | None:
    """The constraint of a reply of `form`; None if it needs none.

    Args:
        engine: or a transformers tokenizer.
        max_tokens: the budget of the reply.

    Raises:
        AgentKVError: the grammar or schema does not compile.
        Unsupported: the shortest reply does not fit the budget.
    """
    grammar = reply_grammar(form, dialect, partial(spell, engine))
    if grammar is None:
        return None
    constraint = GrammarConstraint(engine, grammar)
    if form.grammar is not None:
        return constraint
    chooses = form.may_call and form.choice == "auto"
    opener = _ids(getattr(engine, "tokenizer", engine), dialect.opener) if chooses else []
    return ClosingConstraint(constraint, engine, max_tokens, OpenerBias(opener, form.bias))


class ClosingConstraint:
    """A grammar whose reply is whole when its tokens are used up.

    The shortest ending from here is looked for by closing strings, arrays and objects. It always fits what is left of
    the budget: when that becomes tight, a token after which it would not fit is not allowed. Where no ending
    is found (a pattern that must be long, say), the reply may still be cut off.
    """

    def __init__(self, grammar: GrammarConstraint, engine: Any, max_tokens: int, bias: OpenerBias):
        self._grammar = grammar
        self._bias = bias
        self._left = max_tokens
        tokenizer = getattr(engine, "tokenizer", engine)
        self._eos = _eos_ids(engine)
        self._in_string = _plain_ids(tokenizer, _IN_STRING)
        self._outside = _plain_ids(tokenizer, _OUTSIDE)
        self._letters = _plain_ids(tokenizer, ("z", "q"))
        ending = self._ending(grammar.copy(), max(max_tokens + 1, 4 * MARGIN))
        if ending is not None and len(ending) > max_tokens:
            raise Unsupported(
                f"the shortest reply of this form takes {len(ending)} tokens and max_tokens is {max_tokens}; raise it"
            )
        self._bounded = ending is not None

    @property
    def done(self) -> bool:
        """The reply is whole and nothing may follow."""
        return self._grammar.done

    @property
    def accepting(self) -> bool:
        """The reply is whole, though more may follow."""
        return self._grammar.accepting

    def limit(self, tokens: int) -> None:
        """Say that there is room for no more than so many tokens."""
        self._left = min(self._left, tokens)

    def mask(self, logits: Tensor) -> Tensor:
        """Logits [V] with every token at −inf after which the reply could not end in time."""
        masked = self._grammar.mask(self._bias.raised(logits))
        if not self._bounded:
            return masked
        ending = self._ending(self._grammar.copy(), self._left)
        if ending is None or len(ending) + MARGIN <= self._left:
            return masked
        fitting = [token for token in self._candidates(masked) if self._fits(token)]
        if ending:
            fitting.append(ending[0])
        narrowed = torch.full_like(masked, float("-inf"))
        narrowed[fitting] = masked[fitting]
        return narrowed if fitting else masked

    def accept(self, token_id: int) -> None:
        """Advance by one token. Raises AgentKVError for one that is not allowed."""
        self._grammar.accept(token_id)
        self._bias.accept(token_id)
        self._left -= 1

    def forced(self) -> list[int]:
        """Tokens that must come next; they are not accepted yet."""
        return self._grammar.forced()

    def _candidates(self, masked: Tensor) -> list[int]:
        likeliest = masked.topk(min(CANDIDATES, masked.shape[-1]))
        return [int(token) for token, value in zip(likeliest.indices, likeliest.values, strict=True) if value > -1e30]

    def _fits(self, token: int) -> bool:
        """Whether the reply can still end in time after `token`."""
        if token in self._eos:
            return True
        after = self._grammar.copy()
        after.accept(token)
        return self._ending(after, self._left - 1) is not None

    def _ending(self, grammar: GrammarConstraint, limit: int) -> list[int] | None:
        """Tokens that end the reply, as few as are easily found; None if more than `limit`. Uses `grammar` up."""
        tokens: list[int] = []
        while not (grammar.done or grammar.accepting):
            ahead = grammar.forced() or self._closer(grammar)
            for token in ahead:
                grammar.accept(token)
            tokens += ahead
            if len(tokens) > limit or not ahead:
                return None
        return tokens

    def _closer(self, grammar: GrammarConstraint) -> list[int]:
        allowed = grammar.allowed()
        known = self._in_string if allowed[self._letters].any() else self._outside
        best = next((token for token in known if allowed[token]), None)
        if best is None:
            others = [token for token in allowed.nonzero()[0].tolist() if token not in self._eos]
            best = others[0] if others else None
        return [] if best is None else [best]


class OpenerBias:
    """Raises the tokens that open a tool call, as long as the reply has begun with them."""

    def __init__(self, opener: Sequence[int], bias: float):
        self._opener = list(opener)
        self._bias = bias

    def raised(self, logits: Tensor) -> Tensor:
        """Logits [V] with the bias on the opener's next token."""
        if not self._opener:
            return logits
        logits = logits.clone()
        logits[self._opener[0]] += self._bias
        return logits

    def accept(self, token_id: int) -> None:
        """Advance by one token."""
        self._opener = self._opener[1:] if self._opener[:1] == [token_id] else []


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _plain_ids(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    """Ids of the tokens that are just these texts, those there are."""
    found = (tokenizer.convert_tokens_to_ids(text) for text in texts)
    return [token for token in found if token is not None and token != tokenizer.unk_token_id]


def _eos_ids(engine: Any) -> frozenset[int]:
    return frozenset(engine.eos_token_ids if hasattr(engine, "tokenizer") else [engine.eos_token_id])
