"""What a device computes fast."""

from __future__ import annotations

from functools import lru_cache

import torch

_HALF = (torch.bfloat16, torch.float16)


@lru_cache(maxsize=16)
def multiplies_fast(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether matrix products with many rows are at least as fast in this dtype as in float32.

    A CPU without half-precision arithmetic, as those are that have AVX2 at most, takes about 8 times as long.
    """
    if dtype not in _HALF or device.type != "cpu":
        return True
    ops = torch.ops.mkldnn
    return bool(ops._is_mkldnn_bf16_supported() if dtype is torch.bfloat16 else ops._is_mkldnn_fp16_supported())
