"""The byte arena: one block of memory per device, cut into pages that all sessions share."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.formats import KVFormat, KVLayout
from agentkv.errors import AgentKVError, PoolExhausted

DUMMY_PAGE = 0
"""Padding of ragged page tables, and the target of writes that must go nowhere. Never handed out."""


class PageArena:
    """Pages of one size in one tensor that is reserved once and never grows.

    The same bytes are seen through a typed view per format, so a freed page serves any session in any format.
    On a CPU the operating system commits the memory as pages are first written.

    Args:
        layout: shape of the model's cache.
        pool_bytes: size of the arena; whole pages, one of them the dummy.
        device: where it lives.
    """

    def __init__(self, layout: KVLayout, pool_bytes: int, device: torch.device | str = "cpu"):
        pages = pool_bytes // layout.page_bytes
        if pages < 2:
            raise AgentKVError(
                f"a KV pool of {pool_bytes} bytes holds no page of {layout.page_bytes} bytes; enlarge it"
            )
        self.layout = layout
        self.device = torch.device(device)
        self.pages = pages
        try:
            self._bytes = torch.empty(pages * layout.page_bytes, dtype=torch.uint8, device=self.device)
        except RuntimeError as error:
            raise AgentKVError(
                f"a KV pool of {pool_bytes} bytes cannot be reserved on {self.device}; make it smaller"
            ) from error
        self._bytes[: layout.page_bytes].zero_()
        # A stack: the page freed last is the one whose memory is warm.
        self._free = np.arange(pages - 1, 0, -1, dtype=np.int32)
        self._free_count = pages - 1
        self._lock = threading.RLock()
        # A forgotten session gives its pages back from a finalizer, which may run at any moment and in any thread,
        # inside `allocate` too: it may not take the lock, so pages wait here until somebody who holds it comes by.
        self._returned: deque[np.ndarray] = deque()

    @property
    def free_pages(self) -> int:
        with self._lock:
            self._collect_returned()
            return self._free_count

    def exclusive(self) -> AbstractContextManager[object]:
        """Meanwhile no other thread takes pages: what is free, or is given back, stays there for this one."""
        return self._lock

    @property
    def used_pages(self) -> int:
        return self.pages - 1 - self.free_pages

    def halves(self, fmt: KVFormat) -> Tensor:
        """[2 · pages, slots per page, D]: row 2p is the K half of page p, row 2p + 1 its V half."""
        dtype = self.layout.dtype if fmt is KVFormat.FP else torch.int8
        return self._bytes.view(dtype).view(-1, self.layout.slots_per_page(fmt), self.layout.head_dim)

    def rows(self, fmt: KVFormat) -> Tensor:
        """[rows, D]: the same bytes, one row per K or V vector."""
        return self.halves(fmt).view(-1, self.layout.head_dim)

    def allocate(self, count: int) -> np.ndarray:
        """Take ``count`` pages. Raises PoolExhausted, and takes none, if there are fewer."""
        with self._lock:
            self._collect_returned()
            if count > self._free_count:
                raise PoolExhausted(
                    f"the KV pool is full: {count} pages of {self.layout.page_bytes} bytes wanted, "
                    f"{self._free_count} of {self.pages - 1} free; close idle sessions or enlarge kv_pool"
                )
            self._free_count -= count
            return self._free[self._free_count : self._free_count + count].copy()

    def release(self, pages: np.ndarray) -> None:
        """Give pages back. Safe in a finalizer."""
        self._returned.append(pages)

    def _collect_returned(self) -> None:
        """Put returned pages on the stack; the caller holds the lock."""
        while self._returned:
            pages = self._returned.popleft()
            self._free[self._free_count : self._free_count + len(pages)] = pages
            self._free_count += len(pages)
