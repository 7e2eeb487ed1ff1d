"""What a session's owner does to its cache outside any policy: take a span out, or cut the end off."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.controller import CacheController
from agentkv.cache.formats import KVFormat
from agentkv.cache.plan import Plan
from agentkv.cache.store import KVStore
from agentkv.errors import Unsupported


def drop(cache: CacheController, start: int, end: int) -> None:
    """Give up every slot of the tokens start ≤ index < end. Raises Unsupported, changing nothing, if that cannot be."""
    tokens = cache.store.in_use(cache.store.token_index)
    gone = (tokens >= start) & (tokens < end)
    _check_whole_pages(cache.store, gone[..., : cache.store.code_slots], f"tokens {start} to {end - 1}")
    cache.store.apply(Plan((tokens >= 0) & ~gone))
    cache.facts.note_dropped(start, end)
    cache.changed_at = cache.logical_length


def can_truncate(cache: CacheController, length: int) -> bool:
    """Whether the cache can go back to its first ``length`` tokens as if the later ones had never been.

    Not if a slot was dropped, quantised or moved since: what it was is gone. Nor if the policy keeps account of
    attention (later queries have left their mark on every slot) or of the newest token's logits.
    """
    if length == cache.logical_length:
        return True
    return cache.changed_at < length and cache.policy.mass is None and not cache.policy.reads_surprise


def truncate(cache: CacheController, length: int) -> None:
    """Forget the tokens from ``length`` on; :func:`can_truncate` must hold."""
    tokens = cache.store.in_use(cache.store.token_index)
    if length < cache.logical_length:
        cache.store.apply(Plan((tokens >= 0) & (tokens < length)))
    cache.logical_length = length


def _check_whole_pages(store: KVStore, gone: Tensor, what: str) -> None:
    """gone [L, H, code slots] bool."""
    if store.code_format is not KVFormat.INT8_CHANNEL or not gone.shape[-1]:
        return
    per_page = gone.unflatten(-1, (-1, store.code.page_slots)).sum(-1)
    if bool(((per_page > 0) & (per_page < store.code.page_slots)).any()):
        raise Unsupported(
            f"{what} share quantised pages with other tokens, and a page whose scales are per channel is dropped "
            f"whole; drop a span that covers whole pages of {store.code.page_slots} tokens, or use a policy that "
            f"quantises per token"
        )


def share_of_heads(cache: CacheController) -> tuple[np.ndarray, np.ndarray]:
    """[T], [T] float64: the share of KV heads that hold each token in the model's dtype, and quantised.

    Heads of sliding-window layers outside the policy are left out: they hold their window whatever the policy.
    """
    store, length = cache.store, cache.logical_length
    managed = torch.tensor([not fixed for fixed in cache.limits.shape.fixed], device=store.arena.device)
    if not bool(managed.any()):
        managed = ~managed
    heads = int(managed.sum()) * store.arena.layout.kv_heads
    tokens = store.in_use(store.token_index)[managed].long()
    shares = []
    for part in (tokens[..., store.code_slots :], tokens[..., : store.code_slots]):
        counts = torch.bincount(part[part >= 0], minlength=length)
        shares.append(counts.cpu().numpy() / heads)
    return shares[0], shares[1]
