"""States of a session that it can go back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentkv.cache.state import CacheState
from agentkv.errors import AgentKVError


@dataclass(eq=False)
class Checkpoint:
    """A session as it was. Made by :meth:`Session.checkpoint`, used by :meth:`Session.rollback`.

    Attributes:
        ledger: the tokens then, those waiting included.
        logical_length: how many of them were in the cache.
        automatic: made by the engine at the start of a turn.
    """

    ledger: tuple[int, ...]
    logical_length: int
    automatic: bool
    _state: CacheState | None = field(repr=False)

    @property
    def state(self) -> CacheState:
        """The cache then. Raises AgentKVError once the checkpoint was dropped."""
        if self._state is None:
            raise AgentKVError("the checkpoint was dropped, or its session closed")
        return self._state

    @property
    def dropped(self) -> bool:
        return self._state is None

    @property
    def nbytes(self) -> int:
        """Bytes it holds outside the KV pool, in host memory."""
        return 0 if self._state is None else self._state.nbytes

    def drop(self) -> None:
        """Free what it holds; it cannot be used any more."""
        self._state = None


@dataclass(frozen=True)
class Rewind:
    """What a rewind came to.

    Attributes:
        how: "exact": the cache is as it was, or holds what the newest token left saw, no more and no less.
            "checkpoint": it is as at an earlier checkpoint. "prefill": it is empty.
        recompute: indices of the ledger's tokens that are not in the cache: they are computed with the next call. In an
            exact rewind these are tokens that were waiting then too. Otherwise what the policy keeps of them may
            differ from what it kept before, since they come in other chunks.
    """

    how: Literal["exact", "checkpoint", "prefill"]
    recompute: range


class Checkpoints:
    """The live checkpoints of one session, oldest first.

    Args:
        keep: how many automatic ones to keep, the newest.
    """

    def __init__(self, keep: int = 0):
        self.keep = keep
        self._live: list[Checkpoint] = []

    @property
    def nbytes(self) -> int:
        return sum(checkpoint.nbytes for checkpoint in self._live)

    def __contains__(self, checkpoint: Checkpoint) -> bool:
        return checkpoint in self._live

    def add(self, checkpoint: Checkpoint) -> None:
        self._live = [c for c in self._live if not c.dropped]
        self._live.append(checkpoint)
        automatic = [c for c in self._live if c.automatic]
        self._drop(automatic[: max(0, len(automatic) - self.keep)])

    def newest(self, index: int, ledger: Sequence[int]) -> Checkpoint | None:
        """The one with most tokens in its cache, at most ``index``, of which the ledger begins with all."""
        found = [c for c in self._live if not c.dropped and c.logical_length <= index and _begins(c, ledger)]
        return max(found, key=lambda c: c.logical_length, default=None)

    def forget_after(self, index: int) -> None:
        """Drop automatic ones of more than ``index`` tokens: their turns are undone."""
        self._drop([c for c in self._live if c.automatic and c.logical_length > index])

    def clear(self) -> None:
        self._drop(list(self._live))

    def _drop(self, unwanted: Sequence[Checkpoint]) -> None:
        for checkpoint in unwanted:
            checkpoint.drop()
            self._live.remove(checkpoint)


def _begins(checkpoint: Checkpoint, ledger: Sequence[int]) -> bool:
    n = checkpoint.logical_length
    return tuple(ledger[:n]) == checkpoint.ledger[:n]
