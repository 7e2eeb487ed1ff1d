"""Token sequences with the parts to be learned, packed into rows without padding."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from agentkv.train.errors import TrainError


@dataclass(frozen=True)
class Document:
    """One sequence.

    Attributes:
        ids: token ids.
        spans: parts [start, end) whose tokens are learned, in order, apart, none at 0: what comes first follows from
            nothing.
        name: for messages.
    """

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    name: str = ""

    def __post_init__(self) -> None:
        edges = [edge for span in self.spans for edge in span]
        if edges != sorted(edges) or any(start >= end for start, end in self.spans):
            raise ValueError(f"{self.name}: spans must be in order, apart and not empty, not {self.spans}")
        if edges and (edges[0] < 1 or edges[-1] > len(self.ids)):
            raise ValueError(f"{self.name}: spans must lie in 1..{len(self.ids)}, not {self.spans}")

    @property
    def learned(self) -> int:
        """How many tokens are learned."""
        return sum(end - start for start, end in self.spans)

    def cut(self, length: int) -> Document:
        """The beginning of it: up to the last span that ends within `length` tokens, which may be none."""
        if len(self.ids) <= length:
            return self
        spans = tuple(span for span in self.spans if span[1] <= length)
        return Document(self.ids[: spans[-1][1] if spans else 0], spans, self.name)


Pack = tuple[Document, ...]


def pack(documents: Sequence[Document], length: int, order: random.Random) -> list[Pack]:
    """The documents in packs of at most `length` tokens, both in random order; each goes into the first with room.

    Raises:
        TrainError: a document is longer than that.
    """
    packs: list[list[Document]] = []
    room: list[int] = []
    for document in order.sample(list(documents), len(documents)):
        size = len(document.ids)
        if size > length:
            raise TrainError(f"{document.name} has {size} tokens and a pack holds {length}; raise --length")
        place = next((n for n, free in enumerate(room) if free >= size), len(packs))
        if place == len(packs):
            packs.append([])
            room.append(length)
        packs[place].append(document)
        room[place] -= size
    order.shuffle(packs)
    return [tuple(documents) for documents in packs]


@dataclass(frozen=True, eq=False)
class Batch:
    """A pack as tensors.

    Attributes:
        ids, positions: [1, T] int64; positions begin anew with each document.
        lengths: tokens of each document, T in all.
        before: [n] int64, where in the row the tokens stand after which a learned one comes.
        targets: [n] int64, the learned tokens.
        spans: learned tokens of each span, n in all.
        spans_of: spans of each document.
    """

    ids: Tensor
    positions: Tensor
    lengths: tuple[int, ...]
    before: Tensor
    targets: Tensor
    spans: tuple[int, ...]
    spans_of: tuple[int, ...]


def as_batch(documents: Pack, device: torch.device | None = None) -> Batch:
    """The tensors of a pack."""
    lengths = tuple(len(document.ids) for document in documents)
    starts = accumulate(lengths, initial=0)
    learned = [
        start + index
        for start, document in zip(starts, documents, strict=False)
        for begin, end in document.spans
        for index in range(begin, end)
    ]
    ids = torch.tensor([token for document in documents for token in document.ids], device=device)
    at = torch.tensor(learned, dtype=torch.long, device=device)
    return Batch(
        ids=ids[None],
        positions=torch.cat([torch.arange(n, device=device) for n in lengths])[None],
        lengths=lengths,
        before=at - 1,
        targets=ids[at],
        spans=tuple(end - begin for document in documents for begin, end in document.spans),
        spans_of=tuple(len(document.spans) for document in documents),
    )
