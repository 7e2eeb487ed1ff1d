"""Idle sessions outside the KV pool: in host memory or on disk, and back when they are used again."""

from __future__ import annotations

import contextlib
import itertools
import threading
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from agentkv.cache import copies
from agentkv.cache.snapshot import Snapshot
from agentkv.engine.persistence import pack_held, read_snapshot
from agentkv.engine.session import Session
from agentkv.errors import AgentKVError, PoolExhausted, SessionFileError

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

T = TypeVar("T")
HOST = "cpu"


class SpilledCopy:
    """The slots of one session while they are not in the pool.

    Args:
        nbytes: of the copy.
        used: [L, H] slots in the model's dtype, and quantised ones.
        snapshot: if it is in host memory.
        path: if it is on disk; a file that goes with this object.
    """

    def __init__(
        self,
        nbytes: int,
        used: tuple[np.ndarray, np.ndarray],
        snapshot: Snapshot | None = None,
        path: Path | None = None,
    ):
        self.nbytes = nbytes
        self.used = used
        self.path = path
        self._snapshot = snapshot
        self._remove = None if path is None else weakref.finalize(self, _unlink, path)

    def read(self, engine: Engine) -> Snapshot:
        """Raises SessionFileError if the file is gone or damaged, AgentKVError if the session was closed meanwhile."""
        snapshot = self._snapshot
        if snapshot is not None:
            return snapshot
        if self.path is None:
            raise AgentKVError("the session is closed; open a new one")
        return read_snapshot(engine, self.path)

    def discard(self) -> None:
        """Free it."""
        self.nbytes, self._snapshot = 0, None
        if self._remove is not None:
            self._remove()


class SessionPool:
    """The sessions of an engine, and which of them have to leave the page pool when it is full.

    Args:
        engine: whose pages and model.
        spill: where the least recently used idle session goes then: "cpu" (host memory), a folder, or None: nowhere.
    """

    def __init__(self, engine: Engine, spill: str | Path | None):
        self._engine = weakref.ref(engine)
        self.spill_to = spill
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._clock = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, session: Session) -> None:
        with self._lock:
            self._sessions.add(session)
        self.touch(session)

    def touch(self, session: Session) -> None:
        """The session is being used."""
        session.last_used = next(self._clock)

    @property
    def spilled_bytes(self) -> int:
        with self._lock:
            copies_there = [session.spilled_copy for session in self._sessions]
        return sum(copy.nbytes for copy in copies_there if copy is not None)

    def with_room(self, session: Session, action: Callable[[], T]) -> T:
        """Do what may find the pool full; then spill idle sessions, least recently used first, and do it again.

        Raises PoolExhausted when no idle session is left that could go.
        """
        while True:
            try:
                return action()
            except PoolExhausted as full:
                if not self._spill_oldest(session, full):
                    raise

    def spill(self, session: Session, to: str | Path) -> None:
        """See :meth:`Engine.spill`."""
        with session.moving:
            if session.busy or session.closed:
                raise AgentKVError("the session is in use or closed, and only an idle one can be spilled")
            self._spill(session, to)

    def recall(self, session: Session) -> None:
        """Bring a spilled session back into the pool.

        Raises:
            PoolExhausted: no room; it stays where it is.
            SessionFileError: its file is gone or damaged.
        """
        copy = session.spilled_copy
        if copy is None:
            return
        snapshot = copy.read(self._require_engine())
        self.with_room(session, lambda: copies.load(session.cache.store, snapshot))
        session.spilled_copy = None
        copy.discard()

    def _require_engine(self) -> Engine:
        engine = self._engine()
        if engine is None:
            raise AgentKVError("the engine of this session is gone")
        return engine

    def _spill_oldest(self, keep: Session, full: PoolExhausted) -> bool:
        """Spill one idle session; False if there is none, or nowhere to go."""
        if self.spill_to is None:
            return False
        with self._lock:
            candidates = sorted((s for s in self._sessions if s is not keep), key=lambda s: s.last_used)
        for session in candidates:
            with session.moving:
                if session.busy or session.closed or not session.cache.store.page_bytes_held:
                    continue
                try:
                    self._spill(session, self.spill_to)
                except SessionFileError as error:
                    raise PoolExhausted(f"{full}; an idle session could not be spilled: {error}") from error
                return True
        return False

    def _spill(self, session: Session, to: str | Path) -> None:
        """The caller holds ``session.moving``."""
        if session.spilled_copy is not None:
            return
        snapshot = copies.snapshot(session.cache.store).to(HOST)
        used = snapshot.fp.used.numpy(), snapshot.code.used.numpy()
        if str(to) == HOST:
            copy = SpilledCopy(snapshot.nbytes, used, snapshot=snapshot)
        else:
            path = Path(to) / f"spilled-{uuid.uuid4().hex}.safetensors"
            pack_held(self._require_engine(), session).write(path)
            copy = SpilledCopy(path.stat().st_size, used, path=path)
        session.spilled_copy = copy
        session.cache.empty(keep_positions=True)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
