"""What retention gates are trained for: to predict as the model does that forgets nothing, and to hold few tokens.

TRIM-KV (arXiv 2512.03324): the mean of the cross-entropy and of the forward KL divergence from the model's own
predictions, and a hinge on what a head holds, S_t = Σ_i β_i^(t − i), above M.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax
from transformers import PreTrainedModel

from agentkv.policies.trim_gates import Gates
from agentkv.train.documents import Batch, Document, Pack, as_batch
from agentkv.train.gated import GatedRun, use_gated_attention
from agentkv.train.measure import learned_logits
from agentkv_kernels import retention_capacity

_PARTS = ("w1", "b1", "w2", "b2")


@dataclass(frozen=True)
class GateFigures:
    """Gates on documents.

    Attributes:
        loss: what is trained: mean of `nll` and `kl`, and the weighted `excess`.
        nll, nll_full: mean negative log-likelihood of the learned tokens with fading and without it, nats.
        kl: mean divergence of the predictions from those without fading, nats.
        excess: the hinge, averaged over the heads and tokens that are above M.
        held: mean over layers, heads and documents of what a head holds after the last token, in tokens.
        tokens: learned tokens.
    """

    loss: float
    nll: float
    nll_full: float
    kl: float
    excess: float
    held: float
    tokens: int


def trainable(gates: Gates) -> dict[str, nn.Parameter]:
    """The gates' tensors as parameters, by name; the gates given share none of them."""
    return {name: nn.Parameter(getattr(gates, name).clone()) for name in _PARTS}


def as_gates(tensors: Mapping[str, Tensor], fingerprint: str | None = None) -> Gates:
    """Gates of these tensors, by name; of the weights with that fingerprint."""
    w1, b1, w2, b2 = (tensors[name] for name in _PARTS)
    return Gates(w1, b1, w2, b2, fingerprint)


class RetentionObjective:
    """The loss of gates for one model, whose own weights stay as they are.

    Args:
        model: in evaluation mode, on packed attention.
        parameters: from :func:`trainable`.
        capacity: M, tokens that a head may hold, on average over all heads if they are pooled.
        weight: λ of the hinge.
        pooled: one hinge for all layers and heads together, for heads that share a budget (arXiv 2605.09649).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        parameters: Mapping[str, nn.Parameter],
        capacity: int,
        weight: float = 1.0,
        pooled: bool = False,
    ):
        self._model = model
        self._gates = as_gates(parameters)
        self._capacity, self._weight, self._pooled = capacity, weight, pooled

    @property
    def device(self) -> torch.device:
        return self._model.device

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Within it losses can be taken."""
        self._model.requires_grad_(False)
        with use_gated_attention(self._model):
            yield

    def loss(self, batch: Batch) -> Tensor:
        """[] float32: of a pack, summed over its learned tokens."""
        nll, _, kl, run = self._compared(batch)
        excess = _mean_of_positive(self._excess(run, batch.lengths))
        return (nll + kl) / 2 + self._weight * len(batch.targets) * excess

    @torch.no_grad()
    def measure(self, packs: Sequence[Pack]) -> GateFigures:
        """Figures over all documents of the packs."""
        sums, above, held, tokens = torch.zeros(3, dtype=torch.float64), [], [], 0
        for documents in packs:
            batch = as_batch(documents, self._model.device)
            *compared, run = self._compared(batch)
            sums += torch.stack(compared).double().cpu()
            tokens += len(batch.targets)
            above.append(self._excess(run, batch.lengths))
            held += [own[..., -1].mean() for own in _held(run, batch.lengths)]
        nll, nll_full, kl = (sums / tokens).tolist()
        excess = float(_mean_of_positive(torch.cat(above)))
        loss = (nll + kl) / 2 + self._weight * excess
        return GateFigures(loss, nll, nll_full, kl, excess, float(torch.stack(held).mean()), tokens)

    @torch.no_grad()
    def log_beta(self, document: Document) -> Tensor:
        """[L, H, T] float32: what the gates say of each token of a document."""
        run = GatedRun(self._gates)
        learned_logits(self._model, as_batch((document,), self._model.device), gated_run=run)
        return torch.stack([run.log_beta[layer] for layer in sorted(run.log_beta)])

    def _compared(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, GatedRun]:
        """Sums over the learned tokens: NLL with fading, NLL without, KL; and the pass with fading."""
        with torch.no_grad():
            full = log_softmax(learned_logits(self._model, batch), dim=-1)
        run = GatedRun(self._gates)
        faded = log_softmax(learned_logits(self._model, batch, gated_run=run), dim=-1)
        at = batch.targets.unsqueeze(-1)
        kl = kl_div(faded, full, reduction="sum", log_target=True)
        return -faded.gather(-1, at).sum(), -full.gather(-1, at).sum(), kl, run

    def _excess(self, run: GatedRun, lengths: Sequence[int]) -> Tensor:
        """[n]: how far what is held lies above M, over the tokens seen beyond M, of every head and token."""
        parts = []
        for held in _held(run, lengths):
            own = held.mean(dim=(0, 1)) if self._pooled else held
            seen = torch.arange(1, held.shape[-1] + 1, device=held.device)
            parts.append(((own - self._capacity) / (seen - self._capacity).clamp_min(1)).clamp_min(0).flatten())
        return torch.cat(parts)


def _held(run: GatedRun, lengths: Sequence[int]) -> Iterator[Tensor]:
    """Of each document: [L, H, T] float32, tokens that each head holds after each token."""
    log_beta = torch.stack([run.log_beta[layer] for layer in sorted(run.log_beta)])
    for own in log_beta.split(list(lengths), dim=-1):
        yield retention_capacity(own)


def _mean_of_positive(values: Tensor) -> Tensor:
    """[]: 0 where none is."""
    return values.sum() / (values > 0).sum().clamp_min(1)
