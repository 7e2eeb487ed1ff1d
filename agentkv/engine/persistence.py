"""Sessions on disk: one safetensors file that a restored session continues from, token for token."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from agentkv.cache.facts import Role, Span
from agentkv.cache.rotary import Rebased
from agentkv.cache.snapshot import Snapshot
from agentkv.cache.state import CacheState
from agentkv.engine.session import Session
from agentkv.errors import SessionFileError

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

FORMAT = 3
_BESIDE_SLOTS = ("layer_stats", "last_logits", "surprise")
"""Tensors of a session that belong to no slot."""
_SAMPLE = 4096
"""Values of each weight tensor that enter a model's fingerprint."""


def model_fingerprint(engine: Engine) -> str:
    """Sha256 over the model's configuration, a sample of every weight, and the chat template.

    Keys and values mean something only to the weights that made them, in their dtype.
    """
    digest = hashlib.sha256()
    layout = engine.layout
    shape = (layout.layers, layout.kv_heads, layout.head_dim, str(layout.dtype), engine.context_window)
    digest.update(repr(shape).encode())
    digest.update(str(getattr(engine.tokenizer, "chat_template", None)).encode())
    for name, weight in engine.weights():
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        stride = max(1, weight.numel() // _SAMPLE)
        digest.update(_bytes(weight.detach().flatten()[::stride].cpu()))
    return digest.hexdigest()


@dataclass(frozen=True)
class PackedSession:
    """What a session's file holds: a copy, so that the session may go on while it is written.

    Attributes:
        about: all that is no tensor, as JSON.
        tensors: slots and what belongs to none, by name.
    """

    about: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def notes(self) -> Any:
        """What was noted beside the session."""
        return self.about.get("notes")

    def write(self, path: Path) -> None:
        """To a file; an existing one is replaced only when the new one is whole. Raises SessionFileError."""
        tensors = dict(self.tensors)
        about = {**self.about, "checksum": ""}
        about["checksum"] = _checksum(tensors, about)
        _write(path, tensors, {"agentkv": json.dumps(about)})


def save_session(engine: Engine, session: Session, path: Path, notes: Any = None) -> None:
    """Write a session to a file; an existing file is replaced only when the new one is whole.

    Args:
        notes: JSON that :func:`read_notes` gives back.

    Raises:
        AgentKVError: the session is in use or closed.
        SessionFileError: the file cannot be written.
    """
    pack_session(engine, session, notes).write(path)


def pack_session(engine: Engine, session: Session, notes: Any = None) -> PackedSession:
    """Copy all that goes into a session's file. Raises AgentKVError: the session is in use or closed."""
    with session.exclusive():
        return pack_held(engine, session, notes)


def pack_held(engine: Engine, session: Session, notes: Any = None) -> PackedSession:
    """As :func:`pack_session`; the caller sees to it that nobody uses the session."""
    state = session.cache.state()
    tensors = state.snapshot.tensors() | _beside_slots(state)
    about = {
        "format": FORMAT,
        "model": engine.model_name,
        "fingerprint": engine.fingerprint,
        "policy": session.policy.registered,
        "options": dict(session.policy.options),
        "budget": session.budget,
        "prefill": session.cache.prefill,
        "exempt": sorted(session.exempt),
        "ledger": list(session.ledger),
        "spans": [[span.role, span.start, span.end] for span in state.facts.spans],
        "dropped": state.facts.dropped,
        "logical_length": state.logical_length,
        "confidence": state.confidence,
        "changed_at": state.changed_at,
        "position_offset": state.position_offset,
        "rebased": asdict(state.rebased),
        "notes": notes,
    }
    return PackedSession(about, tensors)


def restore_session(engine: Engine, path: Path) -> Session:
    """Open a session from a file written by :func:`save_session`.

    Everything that was computed is reused: ``session.reusable_tokens``. Checkpoints are not in the file.

    Raises:
        SessionFileError: not a session file, damaged, or of another model or chat template.
        AgentKVError: its policy cannot be built as it was, because its gates changed for example.
        PoolExhausted: no room.
    """
    return open_packed(engine, read_packed(engine, path))


def open_packed(engine: Engine, packed: PackedSession) -> Session:
    """Open a session that was read from a file. Raises as :func:`restore_session`, but SessionFileError."""
    about, tensors = packed.about, dict(packed.tensors)
    opened = {name: about[name] for name in ("prefill", "exempt")}
    session = engine.open_session(about["policy"], about["budget"], **opened, **about["options"])
    session.adopt(_state(session, about, tensors), about["ledger"])
    return session


def read_notes(path: Path) -> Any:
    """What was noted beside a session when it was saved. Raises SessionFileError."""
    about, _ = _read(path)
    return about.get("notes")


def read_snapshot(engine: Engine, path: Path) -> Snapshot:
    """The slots alone, of a session that is known otherwise. Raises SessionFileError."""
    tensors = read_packed(engine, path).tensors
    return Snapshot.from_tensors({name: t for name, t in tensors.items() if name not in _BESIDE_SLOTS})


def read_packed(engine: Engine, path: Path) -> PackedSession:
    """A session file that is whole and of this model. From any thread. Raises SessionFileError."""
    about, tensors = _read(path)
    if about.get("format") != FORMAT:
        raise SessionFileError(f"{path} has format {about.get('format')!r}, this version reads {FORMAT}")
    if about.get("checksum") != _checksum(tensors, about | {"checksum": ""}):
        raise SessionFileError(f"{path} is damaged: its checksum does not match; restore an older copy")
    if about["fingerprint"] != engine.fingerprint:
        raise SessionFileError(
            f"{path} was saved with the model {about['model']!r}, whose weights, dtype or chat template differ from "
            f"those of {engine.model_name!r}; load that model or start a new session"
        )
    return PackedSession(about, tensors)


def _beside_slots(state: CacheState) -> dict[str, Tensor]:
    named = (state.layer_stats, state.last_logits, state.facts.surprise(state.logical_length))
    return {name: t.contiguous() for name, t in zip(_BESIDE_SLOTS, named, strict=True) if t is not None}


def _state(session: Session, about: Mapping[str, Any], tensors: dict[str, Tensor]) -> CacheState:
    facts, device, length = session.cache.facts, session.cache.store.arena.device, about["logical_length"]
    extra = {name: tensors.pop(name).to(device) for name in _BESIDE_SLOTS if name in tensors}
    facts.spans = [Span(Role(role), start, end) for role, start, end in about["spans"]]
    facts.dropped = [(start, end) for start, end in about["dropped"]]
    facts.note_tokens(0, torch.tensor(about["ledger"][:length], dtype=torch.long, device=device))
    if "surprise" in extra:
        facts.note_surprise(0, extra["surprise"])
    return CacheState(
        snapshot=Snapshot.from_tensors(tensors),
        facts=facts,
        logical_length=length,
        confidence=about["confidence"],
        layer_stats=extra.get("layer_stats"),
        last_logits=extra.get("last_logits"),
        changed_at=about["changed_at"],
        position_offset=about["position_offset"],
        rebased=Rebased(**about["rebased"]),
    )


def _checksum(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tuple(tensors[name].shape)}{tensors[name].dtype}".encode())
        digest.update(_bytes(tensors[name].cpu()))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _write(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        save_file(tensors, temporary, metadata)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise SessionFileError(f"cannot write the session file {path}: {error}") from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("agentkv")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except FileNotFoundError as error:
        raise SessionFileError(f"there is no session file {path}") from error
    except (OSError, SafetensorError) as error:
        raise SessionFileError(f"{path} is no whole session file: {error}") from error
    if text is None:
        raise SessionFileError(f"{path} is a safetensors file, but not of a session")
    return _parsed(path, text), tensors


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        about = json.loads(text)
    except ValueError as error:
        raise SessionFileError(f"{path} is damaged: what it says of the session cannot be read: {error}") from error
    if not isinstance(about, dict):
        raise SessionFileError(f"{path} is damaged: what it says of the session is no mapping")
    return about
