"""R-KV (Cai et al., arXiv 2505.24133): what is attended and does not repeat what is kept anyway."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from agentkv.cache.view import CacheView
from agentkv.policies.base import Policy, Scorer
from agentkv.policies.pooling import pooled
from agentkv.policies.registry import register
from agentkv.policies.rules import AttentionRule, WindowMass
from agentkv.policies.shares import Share, check_count, check_odd, check_share, check_unit
from agentkv.policies.triggers import Block

_TILE = 256
"""Rows of the similarity matrix that exist at once."""


@dataclass(frozen=True)
class WindowVotes(WindowMass):
    """Each of the last queries distributes a vote over the slots older than the window.

    Its probabilities are made to sum to one over those slots, and of the query heads that share a KV head the largest
    counts. A slot that was within the window of a query gets at most a whole vote from it.
    """

    queries: int | None = 8
    probs_of: int = 8

    def reduce(self, probs: Tensor, token_index: Tensor, query_index: Tensor) -> tuple[Tensor, Tensor | None]:
        older = (token_index >= 0) & (token_index <= query_index[-1] - self.probs_of)
        total = (probs * older[:, None, None]).sum(-1, keepdim=True)
        votes = (probs / total.clamp_min(1e-20)).clamp_max(1.0)
        return votes.amax(1).sum(1), None


def redundancy(keys: Tensor, token_index: Tensor, threshold: float = 0.5) -> Tensor:
    """How much the keys of one layer repeat one another: [H, S] float32, summing to one over a head's filled slots.

    Softmax of the mean cosine similarity to all other keys. Of the keys that are more similar than ``threshold`` to a
    key, the newest is not charged for it: of several alike, that one is to stay.

    Args:
        keys: [H, S, D] float32, zero at empty slots.
        token_index: [H, S], −1 at empty slots.
        threshold: cosine above which two keys say the same.
    """
    filled = token_index >= 0
    unit = functional.normalize(keys, dim=-1)
    charged = torch.zeros_like(keys[..., 0])
    for start in range(0, keys.shape[1], _TILE):
        cosine = unit[:, start : start + _TILE] @ unit.transpose(1, 2)
        cosine.diagonal(offset=start, dim1=1, dim2=2).zero_()
        newest = token_index.unsqueeze(1).where(cosine > threshold, -1).max(-1, keepdim=True)
        cosine.scatter_(-1, newest.indices, cosine.gather(-1, newest.indices).masked_fill(newest.values >= 0, 0.0))
        charged += cosine.sum(1)
    mean = charged / filled.sum(-1, keepdim=True).clamp_min(1)
    return mean.masked_fill(~filled, float("-inf")).softmax(-1).nan_to_num(0.0)


@dataclass(frozen=True)
class ImportantAndNew(Scorer):
    """weight · importance − (1 − weight) · redundancy.

    Attributes:
        weight: the paper's λ.
        kernel: slots over which the importance is maximised, odd.
        votes: how importance is measured.
    """

    weight: float = 0.1
    kernel: int = 7
    mass: AttentionRule | None = field(default_factory=WindowVotes)

    def __call__(self, view: CacheView) -> Tensor:
        assert view.mass is not None
        assert self.mass is not None
        mean = view.mass / self.mass.probs_of
        importance = pooled(mean, view.token_index, view.filled & ~view.protected, self.kernel, "max")
        repeats = [redundancy(*layer) for layer in zip(view.read_keys(), view.token_index, strict=True)]
        return self.weight * importance - (1 - self.weight) * torch.stack(repeats)


@register("r-kv")
def r_kv(weight: float = 0.1, window: int = 8, kernel: int = 7, block: Share = 1 / 8, sinks: int = 0) -> Policy:
    """Keep what the last queries attend and what does not repeat other keys, beside the last ``window`` tokens.

    Args:
        weight: λ, importance against redundancy.
        window: last queries that decide, and newest tokens never evicted.
        kernel: neighbours over which importance is maximised.
        block: slots freed by one decision, at least ``window`` for a full window of queries.
        sinks: first tokens never evicted (the paper names none).
    """
    weight = check_unit("r-kv", "weight", weight)
    window = check_count("r-kv", "window", window, least=1)
    kernel = check_odd("r-kv", "kernel", kernel)
    block = check_share("r-kv", "block", block)
    sinks = check_count("r-kv", "sinks", sinks)
    return Policy(
        name="r-kv",
        scorer=ImportantAndNew(weight, kernel, WindowVotes(queries=window, probs_of=window)),
        sinks=sinks,
        recent=window,
        trigger=Block(block),
        options={"weight": weight, "window": window, "kernel": kernel, "block": block, "sinks": sinks},
    )
