"""Loss and accuracy of packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from agentkv.train.documents import Batch, Pack, as_batch


@dataclass(frozen=True)
class Measured:
    """Teacher-forced figures over documents: every token is predicted after the right ones.

    Attributes:
        loss: mean negative log-likelihood of the learned tokens, nats.
        tokens: learned tokens.
        token_accuracy: share of them that are the likeliest, no grammar helping.
        spans, span_accuracy: parts, and the share of them right in every token. A part is a reply.
        documents, document_accuracy: the same of documents, right in every part.
    """

    loss: float
    tokens: int
    token_accuracy: float
    spans: int
    span_accuracy: float
    documents: int
    document_accuracy: float


def learned_logits(model: PreTrainedModel, batch: Batch, **options: Any) -> Tensor:
    """[n, V] float32: the logits from which the learned tokens are predicted, and no others.

    ``options`` go to the model's attention.
    """
    out = model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        use_cache=False,
        logits_to_keep=batch.before,
        document_lengths=batch.lengths,
        **options,
    )
    logits: Tensor = out.logits[0].float()
    return logits


class NextTokens:
    """The objective of predicting the learned tokens.

    Args:
        model: whose forward takes `document_lengths`.
    """

    def __init__(self, model: PreTrainedModel):
        self._model = model

    @property
    def device(self) -> torch.device:
        return self._model.device

    def loss(self, batch: Batch) -> Tensor:
        """[] float32: negative log-likelihood of the learned tokens, summed, in nats."""
        self._model.train()
        return cross_entropy(learned_logits(self._model, batch), batch.targets, reduction="sum")

    def measure(self, packs: Sequence[Pack]) -> Measured:
        """Figures over all documents of the packs."""
        self._model.eval()
        return measure(self._model, packs, self.device)


@torch.no_grad()
def measure(model: PreTrainedModel, packs: Sequence[Pack], device: torch.device) -> Measured:
    """Figures over all documents of the packs, which learn something."""
    loss, right, spans, documents = 0.0, [], [], []
    for documents_of_pack in packs:
        batch = as_batch(documents_of_pack, device)
        logits = learned_logits(model, batch)
        loss += float(cross_entropy(logits, batch.targets, reduction="sum"))
        hit = (logits.argmax(dim=-1) == batch.targets).cpu()
        whole = [bool(part.all()) for part in hit.split(list(batch.spans))]
        right += hit.tolist()
        spans += whole
        documents += [all(whole.pop(0) for _ in range(count)) for count in batch.spans_of]
    return Measured(
        loss / len(right), len(right), _mean(right), len(spans), _mean(spans), len(documents), _mean(documents)
    )


def _mean(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits)
