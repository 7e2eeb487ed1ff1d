"""A page that shows, in the text itself, which tokens each head keeps under trained gates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

_TEMPLATE = "kept.html"


@dataclass(frozen=True, eq=False)
class KeptTokens:
    """A document after its last token.

    Attributes:
        name: for readers.
        tokens: text of each.
        kept: [L, H, T] bool, by layer and KV head.
    """

    name: str
    tokens: Sequence[str]
    kept: Tensor


def most_retained(log_beta: Tensor, count: int) -> Tensor:
    """Which tokens are among the `count` of their head whose retention log β · (T + 1 − i) has decayed least.

    Args:
        log_beta: [L, H, T] float32.
        count: tokens a head keeps.

    Returns:
        [L, H, T] bool.
    """
    length = log_beta.shape[-1]
    score = log_beta * (length + 1 - torch.arange(length, device=log_beta.device))
    best = score.topk(min(count, length), dim=-1).indices
    return torch.zeros_like(score, dtype=torch.bool).scatter_(-1, best, True)


def save_page(path: Path, documents: Sequence[KeptTokens], about: str) -> None:
    """Write one self-contained page of these documents, which have the same layers and heads."""
    rows = [
        {
            "name": own.name,
            "tokens": list(own.tokens),
            "kept": [["".join("01"[int(keeps)] for keeps in head) for head in layer] for layer in own.kept.tolist()],
        }
        for own in documents
    ]
    # Text may hold what would end a script, or keep it from ending.
    data = json.dumps({"about": about, "documents": rows}).replace("<", "\\u003c")
    template = files(__package__).joinpath(_TEMPLATE).read_text("utf-8")
    path.write_text(template.replace("/*DATA*/null", data), "utf-8")
