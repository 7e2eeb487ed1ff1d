"""How large an engine's page pool is."""

from __future__ import annotations

import psutil
import torch

from agentkv.cache.budget import Budget, full_bytes
from agentkv.cache.formats import KVLayout

_WINDOWS = 8
"""The default pool holds so many sessions of full KV at the model's window…"""
_SHARE = 0.4
"""…or this share of the memory that is free when the model is loaded, whichever is less."""


def pool_bytes(kv_pool: str | int | None, layout: KVLayout, window: int, device: torch.device) -> int:
    """Bytes of the pool that a user asks for: see :class:`agentkv.engine.Engine`."""
    pool = Budget.parse(kv_pool)
    if pool.bytes is not None:
        return pool.bytes
    if pool.tokens is not None:
        return full_bytes(layout, pool.tokens)
    free: int = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if pool.share is not None:
        return int(pool.share * free)
    return min(_WINDOWS * full_bytes(layout, window), int(_SHARE * free))
