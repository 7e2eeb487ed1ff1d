"""What is known of the tokens of a ledger beside their ids: whose words they are, their segments, their surprise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

_GROWTH = 1024


class Role(StrEnum):
    """Whose words a span of tokens is."""

    SYSTEM = "system"
    TASK = "task"
    OBSERVATION = "observation"
    ACTION = "action"
    OTHER = "other"


@dataclass(frozen=True)
class Span:
    """Tokens start ≤ index < end of the ledger."""

    role: Role
    start: int
    end: int


def protected_ranges(
    spans: Sequence[Span], roles: Iterable[Role], sinks: int, first_recent: int, length: int
) -> list[tuple[int, int]]:
    """Disjoint ranges of protected tokens among the first ``length``, in order.

    Sinks, the tokens from ``first_recent`` on, and spans of the roles; of observations the newest span only.
    """
    roles = set(roles)
    ranges = [(0, sinks), (first_recent, length)]
    ranges += [(span.start, span.end) for span in spans if span.role in roles - {Role.OBSERVATION}]
    if Role.OBSERVATION in roles:
        begun = [s for s in spans if s.role is Role.OBSERVATION and s.start <= length]
        ranges += [(span.start, span.end) for span in begun[-1:]]
    return _merged([(max(0, start), min(end, length)) for start, end in ranges])


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same tokens in disjoint ranges, in order; empty ones left out."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


class LedgerFacts:
    """Per-token tensors that grow with the ledger, kept only where a policy asks for them.

    Args:
        ends_segment: [V] bool: tokens of the vocabulary that end a sentence or a line; None keeps no segments.
        with_surprise: whether to keep −log p of every token.
        device: where they live.
        with_ids: whether to keep the tokens' ids.

    Attributes:
        spans: whose words which tokens are, in order, without overlap; tokens of no span are nobody's.
        dropped: tokens taken out of the cache by hand: disjoint ranges (start, end) in order.
    """

    def __init__(self, ends_segment: Tensor | None, with_surprise: bool, device: torch.device, with_ids: bool = False):
        self._ends_segment = ends_segment
        self.spans: list[Span] = []
        self.dropped: list[tuple[int, int]] = []
        self._segments = None if ends_segment is None else torch.zeros(_GROWTH, dtype=torch.int32, device=device)
        self._surprise = torch.zeros(_GROWTH, device=device) if with_surprise else None
        self._ids = torch.zeros(_GROWTH, dtype=torch.int32, device=device) if with_ids else None
        self._device = device

    def add_span(self, span: Span) -> None:
        """Say whose words the next tokens are; what goes on where the last span ends, in the same role, extends it."""
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.role, last.end) == (span.role, span.start):
            self.spans[-1] = Span(span.role, last.start, span.end)
        elif span.end > span.start:
            self.spans.append(span)

    def note_tokens(self, first: int, ids: Tensor) -> None:
        """Tokens first, first + 1, … are read. May be repeated."""
        if self._ids is not None:
            self._ids = _grown(self._ids, first + len(ids))
            self._ids[first : first + len(ids)] = ids
        if self._ends_segment is None or self._segments is None:
            return
        self._segments = _grown(self._segments, first + len(ids) + 1)
        ends = self._ends_segment[ids].to(torch.int32).cumsum(0)
        # Each entry says in which segment the token after it begins.
        self._segments[first + 1 : first + 1 + len(ids)] = self._segments[first] + ends

    def note_surprise(self, first: int, surprise: Tensor) -> None:
        """surprise [n] float32 of tokens first, first + 1, …."""
        assert self._surprise is not None
        self._surprise = _grown(self._surprise, first + len(surprise))
        self._surprise[first : first + len(surprise)] = surprise

    def segments(self, length: int) -> Tensor | None:
        """[length] int32: number of the segment of each token."""
        return None if self._segments is None else self._segments[:length]

    def surprise(self, length: int) -> Tensor | None:
        return None if self._surprise is None else self._surprise[:length]

    def ids(self, length: int) -> Tensor | None:
        """[length] int32."""
        return None if self._ids is None else self._ids[:length]

    def observations(self, length: int) -> Tensor:
        """[length] int32: number of the observation of each token, −1 for none."""
        numbers = torch.full((length,), -1, dtype=torch.int32)
        seen = [span for span in self.spans if span.role is Role.OBSERVATION]
        for number, span in enumerate(seen):
            numbers[span.start : span.end] = number
        return numbers.to(self._device)

    def note_dropped(self, start: int, end: int) -> None:
        """Tokens start ≤ index < end are taken out of the cache by hand."""
        self.dropped = _merged([*self.dropped, (start, end)])

    @property
    def dropped_tokens(self) -> int:
        return sum(end - start for start, end in self.dropped)

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (self._segments, self._surprise, self._ids) if t is not None)

    def truncate(self, length: int) -> None:
        """Forget tokens from ``length`` on."""
        self.dropped = [(start, min(end, length)) for start, end in self.dropped if start < length]
        kept = [span for span in self.spans if span.start < length]
        self.spans = [Span(span.role, span.start, min(span.end, length)) for span in kept]

    def copy(self) -> LedgerFacts:
        twin = LedgerFacts(self._ends_segment, self._surprise is not None, self._device, self._ids is not None)
        twin.spans, twin.dropped = list(self.spans), list(self.dropped)
        twin._segments = None if self._segments is None else self._segments.clone()
        twin._surprise = None if self._surprise is None else self._surprise.clone()
        twin._ids = None if self._ids is None else self._ids.clone()
        return twin


def _grown(tensor: Tensor, size: int) -> Tensor:
    if size <= len(tensor):
        return tensor
    return torch.cat([tensor, tensor.new_zeros(max(size - len(tensor), len(tensor)))])
