"""Live sessions and those in files: what the endpoints under /v1/sessions do, on the model's thread."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.chat.sessions import ChatSession
from agentkv.errors import AgentKVError
from agentkv.server.errors import ApiError
from agentkv.server.settings import NAME, ServerSettings

if TYPE_CHECKING:
    from agentkv.chat.host import ChatHost
    from agentkv.engine.persistence import PackedSession

logger = logging.getLogger("agentkv.server")

_SUFFIX = ".safetensors"


def path_of(settings: ServerSettings, name: str) -> Path:
    """The file of a saved session. Raises ApiError for a name that could lead out of the folder."""
    if not NAME.fullmatch(name):
        raise ApiError(f"{name[:80]!r} is no name of a session", 404, "session_not_found")
    return settings.sessions_folder / f"{name}{_SUFFIX}"


def saved_names(settings: ServerSettings) -> list[str]:
    """Of the sessions in the folder."""
    files = settings.sessions_folder.glob(f"*{_SUFFIX}")
    return sorted(name for file in files if NAME.fullmatch(name := file.name.removesuffix(_SUFFIX)))


def restore_all(host: ChatHost, settings: ServerSettings) -> None:
    """Open every saved session; one that cannot be opened is logged and left in its file."""
    for name in saved_names(settings):
        try:
            host.restore(settings.kv, name, read(host, settings, name))
        except AgentKVError as error:
            logger.warning("the session %s was not restored: %s", name, error)


def read(host: ChatHost, settings: ServerSettings, name: str) -> PackedSession:
    """A saved session. From any thread. Raises ApiError if there is none, SessionFileError."""
    path = path_of(settings, name)
    if not path.exists():
        raise ApiError(f"there is no saved session {name!r}", 404, "session_not_found")
    return host.read_session(settings.kv, path)


def write(settings: ServerSettings, name: str, packed: PackedSession) -> int:
    """Save a session; returns the bytes of its file. From any thread. Raises SessionFileError."""
    path = path_of(settings, name)
    packed.write(path)
    return path.stat().st_size


class Sessions:
    """The sessions of a server, by name. Every method runs on the model's thread."""

    def __init__(self, host: ChatHost, settings: ServerSettings):
        self._host = host
        self._settings = settings

    def list(self) -> list[dict[str, Any]]:
        """Live sessions, least recently used first, then those that are only saved."""
        live = [self._describe(session) for session in self._host.sessions]
        known = {session["id"] for session in live}
        saved = [name for name in saved_names(self._settings) if name not in known]
        return live + [{"id": name, "object": "session", "state": "saved", "saved": True} for name in saved]

    def get(self, name: str, explain: bool) -> dict[str, Any]:
        """One session; with `explain`, the text that its cache still holds. Raises ApiError if there is none."""
        session = self._find(name)
        if session is None:
            if path_of(self._settings, name).exists():
                return {"id": name, "object": "session", "state": "saved", "saved": True}
            raise _none(name)
        if not explain:
            return self._describe(session)
        self._check_idle(session)
        told = self._host.engine.explain(session.kv)
        return self._describe(session) | {"explanation": told.to_dict()}

    def delete(self, name: str) -> None:
        """Close a session and remove its file. Raises ApiError if there is neither, or it is in use."""
        path, session = path_of(self._settings, name), self._find(name)
        if session is None and not path.exists():
            raise _none(name)
        if session is not None:
            self._check_idle(session)
            self._host.sessions.close(session)
        path.unlink(missing_ok=True)

    def pack(self, name: str) -> PackedSession:
        """Copy a session, for a file. Raises ApiError if there is none or it is in use."""
        return self._host.pack(self._require(name))

    def restore(self, name: str, packed: PackedSession) -> dict[str, Any]:
        """Open a session that was read, in place of one of that name. Raises ApiError if it is in use."""
        path_of(self._settings, name)  # it must be a name
        session = self._find(name)
        if session is not None:
            self._check_idle(session)
        self._host.restore(self._settings.kv, name, packed)
        return self.get(name, False)

    def fork(self, name: str, to: str) -> dict[str, Any]:
        """A second session that goes on from where this one is. Raises ApiError, PoolExhausted."""
        session = self._require(name)
        if self._find(to) is not None:
            raise ApiError(f"there is a session {to!r} already", 409, "session_exists")
        kv = self._host.engine.fork_session(session.kv)
        copy = replace(session, session_id=to, anonymous=False, kv=kv)
        self._host.sessions.add(copy)
        return self._describe(copy)

    def _find(self, name: str) -> ChatSession | None:
        return self._host.sessions.by_id(self._settings.kv, name)

    def _require(self, name: str) -> ChatSession:
        session = self._find(name)
        if session is None:
            raise _none(name)
        self._check_idle(session)
        return session

    def _check_idle(self, session: ChatSession) -> None:
        if session.busy:
            raise ApiError(f"the session {session.session_id!r} is in use; wait for its reply", 409, "session_in_use")

    def _describe(self, session: ChatSession) -> dict[str, Any]:
        stats, kv = session.kv.stats, session.kv
        return {
            "id": session.session_id,
            "object": "session",
            "state": "busy" if session.busy else "idle" if kv.spilled is None else "spilled",
            "saved": path_of(self._settings, session.session_id).exists(),
            "anonymous": session.anonymous,
            "turns": len(session.turns),
            "tokens": len(kv.ledger),
            "resident_kv_bytes": stats.resident_bytes,
            "peak_kv_bytes": stats.peak_bytes,
            "max_kv_bytes": stats.max_bytes,
            "fp_tokens": stats.fp_tokens,
            "quantized_tokens": stats.quantized_tokens,
            "evicted_tokens": stats.evicted_tokens,
        }


def _none(name: str) -> ApiError:
    return ApiError(f"there is no session {name!r}", 404, "session_not_found")
