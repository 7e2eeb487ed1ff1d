"""How the next token is chosen."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from types import UnionType

import torch
from torch import Tensor

from agentkv.errors import AgentKVError


@dataclass(frozen=True)
class SamplingParams:
    """Decoding parameters of one reply.

    Attributes:
        max_tokens: the most tokens to generate.
        temperature: 0 is greedy.
        top_p: nucleus: the smallest set of tokens whose probability reaches top_p.
        top_k: only the k likeliest tokens; 0 is all.
        seed: makes sampling repeatable; None draws a fresh one.
        stop: strings that end the reply; they are not part of it.
        min_tokens: an end of sequence is not sampled before so many tokens.
        logprobs: report every token's log probability, and those of so many likeliest ones; None reports nothing.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    min_tokens: int = 0
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_tokens", "top_k", "min_tokens"):
            _check_type(name, getattr(self, name), int, "a whole number")
        for name in ("temperature", "top_p"):
            _check_type(name, getattr(self, name), int | float, "a number")
        if self.seed is not None:
            _check_type("seed", self.seed, int, "a whole number")
        if self.logprobs is not None:
            _check_type("logprobs", self.logprobs, int, "a number of tokens")
        for text in self.stop:
            _check_type("stop", text, str, "a list of strings")
        rules = (
            (self.seed is None or 0 <= self.seed < 2**63, f"seed must be from 0 to 2^63 - 1, not {self.seed}"),
            (self.max_tokens >= 1, f"max_tokens must be at least 1, not {self.max_tokens}"),
            (0 <= self.temperature < math.inf, f"temperature must be 0 or above and finite, not {self.temperature}"),
            (0 < self.top_p <= 1, f"top_p must be above 0 and at most 1, not {self.top_p}"),
            (self.top_k >= 0, f"top_k must be 0 or above, not {self.top_k}"),
            (self.min_tokens >= 0, f"min_tokens must be 0 or above, not {self.min_tokens}"),
            ((self.logprobs or 0) >= 0, f"logprobs must be 0 or above, not {self.logprobs}"),
            (all(self.stop), "an empty stop string would end every reply at once"),
        )
        for holds, message in rules:
            if not holds:
                raise AgentKVError(message)


def _check_type(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise AgentKVError(f"{name} must be {wanted}, not {value!r}")


@dataclass(frozen=True)
class TokenLogprob:
    """How likely a token was among those that could come: after a grammar's mask, before temperature and top_p.

    Attributes:
        logprob: natural logarithm; 0 for a token that a grammar forced.
        top: the likeliest tokens there and their log probabilities, likeliest first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def token_logprob(logits: Tensor, token_id: int, top: int) -> TokenLogprob:
    """Of a token and the `top` likeliest ones, from logits [V]."""
    logprobs = logits.float().log_softmax(-1)
    best = logprobs.topk(min(top, len(logprobs)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return TokenLogprob(token_id, float(logprobs[token_id]), tuple(pair for pair in pairs if pair[1] > -math.inf))


class Sampler:
    """Draws tokens for one reply."""

    def __init__(self, params: SamplingParams, eos_token_ids: Collection[int], device: torch.device):
        self._params = params
        self._eos = torch.tensor(sorted(eos_token_ids), dtype=torch.long, device=device)
        self._generator = torch.Generator(device=device)
        if params.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(params.seed)

    def draw(self, logits: Tensor, generated: int) -> Tensor:
        """The next token, a scalar int64 tensor, from logits [V]; −inf marks what must not come."""
        if generated < self._params.min_tokens:
            logits = logits.index_fill(0, self._eos, float("-inf"))
        if self._params.temperature == 0:
            return logits.argmax()
        return torch.multinomial(self._distribution(logits.float()), 1, generator=self._generator)[0]

    def _distribution(self, logits: Tensor) -> Tensor:
        params = self._params
        # The largest logit becomes zero, so that no temperature, however small, overflows. Nor may it be infinite in
        # float32: what must not come would be −inf / inf.
        logits = (logits - logits.max()) / min(max(params.temperature, 1e-6), 1e6)
        if 0 < params.top_k < len(logits):
            logits = logits.masked_fill(logits < logits.topk(params.top_k).values[-1], float("-inf"))
        probs = torch.softmax(logits, dim=-1)
        if params.top_p < 1:
            ordered, order = probs.sort(descending=True)
            # A token stays while those before it have not reached top_p; the first always stays.
            outside = ordered.cumsum(0) - ordered >= params.top_p
            probs = probs.index_fill(0, order[outside], 0.0)
        return probs
