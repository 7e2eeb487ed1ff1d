"""How a slot is stored."""

from __future__ import annotations

from enum import IntEnum


class KVFormat(IntEnum):
    """Storage format of a page. The numbers are what kernels and files see."""

    FP = 0
    """K and V in the model's dtype."""
    INT8_TOKEN = 1
    """Symmetric INT8, one scale per token and head, for K and V apart."""
    FP8_TOKEN = 2
    """FP8 e4m3 (no infinities, largest value 448), scaled as INT8_TOKEN: the quantised format of ARKV."""
    INT8_CHANNEL = 3
    """Symmetric INT8. K: one scale per channel over the slots of a page, so a page is filled at once and immutable
    from then on. V: one scale per token. CONF-KV's wording is "per head and per channel"."""
