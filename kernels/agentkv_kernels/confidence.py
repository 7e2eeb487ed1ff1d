"""What the next-token distribution says of the model's certainty, in one pass over the logits."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class ConfidenceTerms(NamedTuple):
    """Per row: entropy divided by log V (in [0, 1]), log p1 − log p2 (≥ 0), and p1. Shape [...], float32."""

    normalized_entropy: Tensor
    margin: Tensor
    top_probability: Tensor


def confidence_terms(logits: Tensor) -> ConfidenceTerms:
    """Entropy, margin and top probability of softmax(logits).

    Args:
        logits: [..., V], any floating dtype, finite: taken before a grammar masks them.
    """
    log_p = torch.log_softmax(logits.float(), dim=-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    top2 = log_p.topk(2, dim=-1).values
    return ConfidenceTerms(
        normalized_entropy=entropy / math.log(logits.shape[-1]),
        margin=top2[..., 0] - top2[..., 1],
        top_probability=top2[..., 0].exp(),
    )
