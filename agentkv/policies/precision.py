"""Which of the kept slots stay in the model's dtype and which are quantised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from agentkv.cache.formats import KVFormat, KVLayout, SlotCaps
from agentkv.cache.view import CacheView
from agentkv.policies.rules import AttentionRule
from agentkv.policies.shares import Share, as_slots


class Precision(Protocol):
    """Pure functions. A quantised slot never returns to the model's dtype."""

    @property
    def format(self) -> KVFormat: ...

    @property
    def rule(self) -> type[AttentionRule] | None:
        """The kind of attention rule whose statistics of layers it reads, or None if it reads none."""
        ...

    def caps(self, slots: int, chunk: int, layout: KVLayout) -> SlotCaps:
        """Room that a head of ``slots`` slots needs in each format, if up to ``chunk`` tokens arrive at once."""
        ...

    @property
    def narrow(self) -> bool:
        """Whether most slots are quantised whatever happens, so that a chunk at full width costs kept slots."""
        ...

    def least_fp(self, slots: int) -> int:
        """The fewest of a head's slots that are in the model's dtype once all that may be quantised is."""
        ...

    def demote(self, view: CacheView, keep: Tensor, score: Tensor, slots: Tensor, granule: int) -> Tensor:
        """[L, H, FP slots] bool: kept FP slots to quantise.

        Args:
            view: the cache.
            keep: [L, H, S] bool: what will be kept.
            score: [L, H, S] float32, protected slots at +inf, empty ones at −inf.
            slots: [L] int64: the most slots of a head.
            granule: a head quantises a multiple of so many slots (a page, for scales per channel).
        """
        ...


@dataclass(frozen=True)
class AgePrecision:
    """The newest slots stay in the model's dtype, older ones are quantised.

    Attributes:
        fp_window: how many newest slots of each head stay.
        format: of the older ones.
        block: slots by which the window may be exceeded before the excess is quantised in one go.
    """

    fp_window: Share = 1 / 16
    format: KVFormat = KVFormat.INT8_TOKEN
    block: int = 16
    rule: None = None
    narrow: bool = True

    def least_fp(self, slots: int) -> int:
        return max(1, as_slots(self.fp_window, slots))

    def caps(self, slots: int, chunk: int, layout: KVLayout) -> SlotCaps:
        window = self.least_fp(slots)
        slack = max(chunk, self.block)
        if self.format is KVFormat.INT8_CHANNEL:  # only whole pages leave: up to a page less a slot stays behind
            slack = chunk + layout.slots_per_page(self.format)
        return SlotCaps(fp=min(slots, window + slack), code=max(0, slots - window))

    def demote(self, view: CacheView, keep: Tensor, score: Tensor, slots: Tensor, granule: int) -> Tensor:
        fp_tokens = view.token_index[..., view.code_slots :].masked_fill(~keep[..., view.code_slots :], -1)
        window = torch.tensor([self.least_fp(int(n)) for n in slots.tolist()], device=fp_tokens.device)
        # Rank 0 is the oldest kept FP slot; all but the newest `window` go.
        rank = fp_tokens.argsort(-1).argsort(-1) - (fp_tokens < 0).sum(-1, keepdim=True)
        excess = (fp_tokens >= 0).sum(-1, keepdim=True) - window.view(-1, 1, 1)
        excess = excess.clamp_min(0) // granule * granule
        return (fp_tokens >= 0) & (rank < excess)


class LayerShare(Protocol):
    """Which share of a layer's slots stays in the model's dtype. A pure function of statistics of attention."""

    @property
    def rule(self) -> type[AttentionRule]:
        """The kind of rule that collects the statistics."""
        ...

    def __call__(self, layer_stats: Tensor) -> Tensor:
        """[L, k] float32 statistics, finite, to [L] shares from 0 to 1."""
        ...


@dataclass(frozen=True)
class ScorePrecision:
    """The best slots of each layer stay in the model's dtype, the other kept ones are quantised (ARKV).

    How many stay, beside the newest tokens, is the layer's share of the slots that those leave.
    Where nothing is known of the layers yet, all stay.

    Attributes:
        share: of each layer.
        format: of the others.
    """

    share: LayerShare
    format: KVFormat = KVFormat.FP8_TOKEN
    narrow: bool = False

    @property
    def rule(self) -> type[AttentionRule]:
        return self.share.rule

    def least_fp(self, slots: int) -> int:
        return 0

    def caps(self, slots: int, chunk: int, layout: KVLayout) -> SlotCaps:
        return SlotCaps(fp=slots, code=slots)

    def demote(self, view: CacheView, keep: Tensor, score: Tensor, slots: Tensor, granule: int) -> Tensor:
        fp_keep = keep[..., view.code_slots :]
        if view.layer_stats is None:
            return torch.zeros_like(fp_keep)
        stays = (self.share(view.layer_stats) * (slots - view.recent)).round().long() + view.recent
        rank = score.masked_fill(~keep, float("-inf")).argsort(-1, descending=True).argsort(-1)
        return fp_keep & (rank >= stays.view(-1, 1, 1))[..., view.code_slots :]
