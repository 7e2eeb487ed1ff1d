"""Work buffers that outlive a call."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import torch
from torch import Tensor


class _Buffers(threading.local):
    """By use, dtype and device: a flat buffer, and its view in the shape asked for last."""

    def __init__(self) -> None:
        self.by_use: dict[tuple[str, torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}


_buffers = _Buffers()


def scratch(use: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A buffer of this thread, valid until the next request for the same use.

    Fresh memory of several MiB costs more in page faults than the arithmetic that fills it. While a CUDA graph is
    captured it is fresh all the same: the graph goes on using it, whatever becomes of the buffers held here.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.empty(*shape, dtype=dtype, device=device)
    key = (use, dtype, device)
    held = _buffers.by_use.get(key)
    if held is not None and held[1].shape == shape:  # the layers of a model ask for one shape
        return held[1]
    size = math.prod(shape)
    with torch.inference_mode(False):  # usable outside inference mode too
        fits = held is not None and held[0].numel() >= size
        flat = held[0] if held is not None and fits else torch.empty(size, dtype=dtype, device=device)
        shaped = flat[:size].view(*shape)
    _buffers.by_use[key] = flat, shaped
    return shaped
