"""Learning through a document's beginning and its learned tokens: what stands between is read without a gradient.

Of an agent's conversation nine tokens in ten are pages. Their keys and values are computed as they are, and only the
beginning (with the task) and the tokens from which others are predicted are computed again, with a gradient: it flows
through these and through each other (a plan learns from what later replies read in it), but not into pages. The loss is
the same number, in about half the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from agentkv.train.attention import check_plain, no_mask, packed_attention
from agentkv.train.documents import Batch
from agentkv.train.measure import NextTokens

ATTENTION_NAME = "agentkv_frozen"


@dataclass(frozen=True, eq=False)
class _Part:
    """One document of a row.

    Attributes:
        at: [n] int64, which of its tokens have a gradient: the beginning, up to where the first learned token is
            predicted, and wherever else one is.
        seen: [n, T] bool, what each of them sees, itself and all before; None where nothing stands between them.
    """

    at: Tensor
    seen: Tensor | None

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, held: tuple[Tensor, Tensor] | None, options: Mapping[str, Any]
    ) -> Tensor:
        """[1, Hq, n, D], from those of its tokens with a gradient and, if others stand between, from all `held`."""
        both: tuple[Tensor, ...] = (key, value)
        if held is not None:
            both = tuple(whole.index_copy(2, self.at, own) for whole, own in zip(held, both, strict=True))
        groups = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(groups, dim=1) for t in both)
        causal = self.seen is None
        return scaled_dot_product_attention(query, key, value, attn_mask=self.seen, is_causal=causal, **options)


class Context:
    """Which tokens of a row have a gradient, and keys and values of the documents in which others stand between them.

    Attributes:
        at: [n] int64, their places in the row.
        predicts: [m] int64, which of the n tokens come before a learned one.
        between: [c] int64, places of all tokens of the documents with others between; none of the other documents.
        lengths: tokens of each of these documents, c in all.
    """

    def __init__(self, batch: Batch):
        learned = torch.zeros(batch.ids.shape[1], dtype=torch.bool, device=batch.ids.device)
        learned[batch.before] = True
        rows = [_part(own) for own in learned.split(list(batch.lengths))]
        starts = list(accumulate(batch.lengths, initial=0))
        self._parts = rows
        self._kept: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self.at = torch.cat([part.at + start for part, start in zip(rows, starts, strict=False)])
        self.predicts = learned[self.at].nonzero()[:, 0]
        self.lengths = [n for n, part in zip(batch.lengths, rows, strict=True) if part.seen is not None]
        places = torch.arange(len(learned), device=learned.device).split(list(batch.lengths))
        kept = [place for place, part in zip(places, rows, strict=True) if part.seen is not None]
        self.between = torch.cat([*kept, places[0][:0]])

    def keep(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Keys and values of `between`, [1, H, c, D]."""
        keys, values = (t.split(self.lengths, dim=2) for t in (key, value))
        self._kept[layer] = list(zip(keys, values, strict=True))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Mapping[str, Any]) -> Tensor:
        """[1, Hq, n, D]: of the tokens with a gradient, each over what it sees of its document.

        `options` go to `scaled_dot_product_attention`.
        """
        counts = [len(part.at) for part in self._parts]
        kept, out = iter(self._kept.get(layer, ())), []
        for part, *own in zip(self._parts, *(t.split(counts, dim=2) for t in (query, key, value)), strict=True):
            held = None if part.seen is None else next(kept)
            out.append(part.attend(*own, held, options))
        return torch.cat(out, dim=2)


def _part(learned: Tensor) -> _Part:
    """A document. learned [T]: where a learned token is predicted."""
    own = learned | (learned.cumsum(0) == 0)
    at = own.nonzero()[:, 0]
    places = torch.arange(len(learned), device=learned.device)
    return _Part(at, None if len(at) == at[-1] + 1 else places <= at[:, None])


def frozen_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *args: Any,
    context: Context | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As :func:`agentkv.train.attention.packed_attention`, which takes all other arguments.

    With `context`, query [1, Hq, n, D] is of the tokens with a gradient; without gradients it is of the tokens whose
    keys and values `context` is to hold.

    Raises:
        Unsupported: the model's attention is not plain causal softmax attention over the whole document.
    """
    if context is not None and torch.is_grad_enabled():
        check_plain(kwargs.get("document_lengths"), kwargs)
        options = {"scale": kwargs.get("scaling"), "dropout_p": kwargs.get("dropout", 0.0)}
        out = context.attend(int(module.layer_idx), query, key, value, options)  # type: ignore[arg-type]
        return out.transpose(1, 2).contiguous(), None
    if context is not None:
        context.keep(int(module.layer_idx), key, value)  # type: ignore[arg-type]
    return packed_attention(module, query, key, value, *args, **kwargs)


AttentionInterface.register(ATTENTION_NAME, frozen_attention)
AttentionMaskInterface.register(ATTENTION_NAME, no_mask)


class ReplyTokens(NextTokens):
    """The objective of predicting the learned tokens, with no gradient through what stands between them.

    Args:
        model: its attention is switched to this module's.
    """

    def __init__(self, model: PreTrainedModel):
        super().__init__(model)
        model.set_attn_implementation(ATTENTION_NAME)

    def loss(self, batch: Batch) -> Tensor:
        """[] float32: negative log-likelihood of the learned tokens, summed, in nats."""
        self._model.train()
        context = Context(batch)
        if context.lengths:
            with torch.no_grad():
                self._forward(self._model.base_model, batch, context.between, context, context.lengths)
        options = {"logits_to_keep": context.predicts}
        out = self._forward(self._model, batch, context.at, context, batch.lengths, **options)
        return cross_entropy(out.logits[0].float(), batch.targets, reduction="sum")

    def _forward(
        self, model: nn.Module, batch: Batch, at: Tensor, context: Context, lengths: Sequence[int], **options: Any
    ) -> Any:
        """The model on some of a row's tokens."""
        ids, positions = batch.ids[:, at], batch.positions[:, at]
        return model(
            input_ids=ids, position_ids=positions, use_cache=False, document_lengths=lengths, context=context, **options
        )
