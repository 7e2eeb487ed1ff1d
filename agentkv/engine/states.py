"""In which state each layer of a session holds its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from agentkv.engine.session import Session


@dataclass(frozen=True)
class LayerState:
    """Shares of the tokens that a session has seen, mean over the KV heads of one layer; they add up to 1.

    Attributes:
        whole: kept in the model's dtype.
        quantized: kept in fewer bits.
        evicted: not kept.
    """

    whole: float
    quantized: float
    evicted: float


def layer_states(session: Session) -> tuple[LayerState, ...]:
    """One state per layer; measured from the slots in use. An empty session holds all of nothing whole."""
    seen, store = session.logical_length, session.cache.store
    if seen == 0:
        return (LayerState(1.0, 0.0, 0.0),) * len(store.used)
    shares = zip((store.fp.used.mean(1) / seen).tolist(), (store.code.used.mean(1) / seen).tolist(), strict=True)
    return tuple(LayerState(whole, quantized, 1 - whole - quantized) for whole, quantized in shares)
