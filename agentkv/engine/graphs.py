"""Decode steps replayed as CUDA graphs: one launch in place of some thousand.

A step is two parts. The host makes room, decides where the new tokens go and writes that into buffers; the device then
runs the model on the buffers (:mod:`agentkv.cache.static`). The second part is captured once per shape and replayed.
Evicting and quantising belong to the first part, so steps that do either are replayed too. What cannot be captured is
computed as ever.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from agentkv.cache.adapter import PagedModel
from agentkv.cache.arena import PageArena
from agentkv.cache.batch import ForwardPass
from agentkv.cache.static import PassShape, StaticPass
from agentkv.cache.step import Step
from agentkv.errors import AgentKVError

_WORTH = 3
"""The use of a shape at which it is captured: that costs as much as several steps."""
_MOST_SHAPES = 16
"""Shapes remembered, captured or not; the one unused longest goes."""
_BUFFER_SHARE = 0.25
"""Of the page pool's bytes, which the buffers of all graphs but the newest must not exceed."""
_ROUNDING = 0.05
"""Of a replay's logits, in their standard deviations; the same kernels run, if not always in the same order."""
_logger = logging.getLogger(__name__)


class Capture(Protocol):
    """Runs a function so that it can be repeated: its result, and what computes that result anew, in place."""

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]: ...


class CudaCapture:
    """Captures CUDA graphs that share one pool of memory; they must not run at the same time.

    Args:
        device: where they run.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        """See :class:`Capture`. Raises whatever torch raises for an operation that cannot be captured."""
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            # Once before, on the same stream: kernels are compiled and libraries take their workspaces.
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                run()
            current.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            try:
                # Other threads may go on using the device.
                with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                    result = run()
            finally:
                torch.cuda.set_stream(current)  # a capture that fails leaves its own
            return result, graph.replay


@dataclass(frozen=True, slots=True)
class _Captured:
    """A shape's buffers, the logits [B, 1, V] that a replay computes from them, the replay, and the buffers' bytes."""

    inputs: StaticPass
    logits: Tensor
    replay: Callable[[], None]
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """What became of the forward passes so far.

    Attributes:
        captured: graphs made.
        replayed: decode steps that were replays.
        eager: passes computed operation by operation: prompts, the first steps of a shape, what cannot be captured.
        refused: why nothing is captured any more, or None.
        buffer_bytes: of the graphs' inputs, outside the KV budget; the memory that graphs work in comes on top.
    """

    captured: int = 0
    replayed: int = 0
    eager: int = 0
    refused: str | None = None
    buffer_bytes: int = 0


class DecodeGraphs:
    """Computes forward passes of one model, by replays where it can. One pass at a time.

    Args:
        paged: the model.
        arena: of the sessions.
        capture: makes replays; None computes every pass operation by operation.

    Attributes:
        enabled: whether passes may be replays; what was captured is kept meanwhile.
    """

    def __init__(self, paged: PagedModel, arena: PageArena, capture: Capture | None):
        self._paged = paged
        self._arena = arena
        self._capture = capture
        self.enabled = capture is not None
        self._shapes: OrderedDict[PassShape, _Captured | int] = OrderedDict()
        """A shape's graph, or how often it was used without one."""
        self._captured = self._replayed = self._eager = 0
        self._refused: str | None = None

    @property
    def counts(self) -> GraphCounts:
        return GraphCounts(self._captured, self._replayed, self._eager, self._refused, self._buffer_bytes)

    @property
    def _buffer_bytes(self) -> int:
        return sum(held.buffer_bytes for held in self._shapes.values() if isinstance(held, _Captured))

    @torch.inference_mode()
    def forward(self, ids: Tensor, steps: Sequence[Step], before: Sequence[Tensor | None]) -> Tensor:
        """As :meth:`PagedModel.forward`, of a pass of these steps: logits [B, V]."""
        graph = self._graph(ids, steps)
        if graph is None:
            self._eager += 1
            return self._paged.forward(ids, ForwardPass(steps), before)
        graph.inputs.fill(ids, steps)
        graph.replay()
        graph.inputs.take(steps)
        self._replayed += 1
        return graph.logits[:, -1].clone()  # the next replay overwrites it

    def _graph(self, ids: Tensor, steps: Sequence[Step]) -> _Captured | None:
        """The graph of such a pass; None if there is none, or not yet."""
        if self._capture is None or not self.enabled or self._refused is not None:
            return None
        shape = PassShape.of(steps)
        if shape is None:
            return None
        held: _Captured | int | None = self._shapes.get(shape, 0)
        if held == _WORTH - 1:
            held = self._made(self._capture, shape, ids, steps)
        elif isinstance(held, int):
            held += 1
        if held is None:
            return None
        self._shapes[shape] = held
        self._shapes.move_to_end(shape)
        self._forget()
        return None if isinstance(held, int) else held

    def _forget(self) -> None:
        """Drop the shapes unused longest while there are too many, or their buffers too large."""
        most_bytes = _BUFFER_SHARE * self._arena.pages * self._arena.layout.page_bytes
        while len(self._shapes) > _MOST_SHAPES or (len(self._shapes) > 1 and self._buffer_bytes > most_bytes):
            self._shapes.popitem(last=False)

    def _made(self, capture: Capture, shape: PassShape, ids: Tensor, steps: Sequence[Step]) -> _Captured | None:
        """Capture a pass of such a shape, and try it; None, and never again, if that fails."""
        try:
            inputs = StaticPass(shape, self._arena)
            inputs.fill(ids, steps)
            # This very pass, thrice: what it writes is the same every time.
            expected = self._paged.compute(inputs.ids, inputs).clone()
            logits, replay = capture(lambda: self._paged.compute(inputs.ids, inputs))
            replay()
            _check_same(logits, expected)
        except Exception as error:  # no memory, torch's, or whatever a model's code makes of being captured
            self._refused = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._shapes.clear()
            _logger.warning("decode steps run without CUDA graphs, since one could not be captured (%s)", self._refused)
            return None
        self._captured += 1
        return _Captured(inputs, logits, replay, inputs.nbytes)


def _check_same(replayed: Tensor, expected: Tensor) -> None:
    """Raises RuntimeError if logits [B, 1, V] differ by more than rounding."""
    off = (replayed.float() - expected.float()).pow(2).mean(-1).sqrt() / expected.float().std(-1).clamp_min(1e-6)
    if not float(off.max()) <= _ROUNDING:  # NaN among them
        raise RuntimeError(f"a replay gave other logits, off by {float(off.max()):.1%}")


def capture_for(setting: str, device: torch.device) -> Capture | None:
    """What captures decode steps, as ``decode_graph`` says: "auto", "on" or "off".

    Raises:
        AgentKVError: another setting, or "on" without a CUDA device.
    """
    if setting not in ("auto", "on", "off"):
        raise AgentKVError(f"unknown decode_graph {setting!r}; it is one of auto, on, off")
    if setting == "on" and device.type != "cuda":
        raise AgentKVError(f"decode_graph='on' needs a CUDA device, and the model is on {device}; use 'auto' or 'off'")
    return CudaCapture(device) if setting != "off" and device.type == "cuda" else None
