"""CONF-KV's confidence of the model in its next token (Li & Miao, arXiv 2605.24786)."""

from __future__ import annotations

import torch
from torch import Tensor

from agentkv_kernels import confidence_terms

ENTROPY_WEIGHT, MARGIN_WEIGHT, TOP_WEIGHT = 0.4, 0.3, 0.3


def confidence(logits: Tensor) -> Tensor:
    """c = 0.4 (1 − H/log V) + 0.3 σ(log p1 − log p2) + 0.3 p1, from logits [..., V]; about 0.15 to 1.

    The logits are those before a grammar masks them: a masked distribution looks confident for the wrong reason.
    """
    terms = confidence_terms(logits)
    return (
        ENTROPY_WEIGHT * (1 - terms.normalized_entropy)
        + MARGIN_WEIGHT * torch.sigmoid(terms.margin)
        + TOP_WEIGHT * terms.top_probability
    )
