"""CUDA graphs in small, on a CPU: torch's operations are recorded with the very tensors they ran on, and run again.

As in a CUDA graph, nothing of Python runs in a replay, numbers are those of the recording, and operations read and
write the memory they did then. What they had computed is overwritten before every replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITING = ("aten._local_scalar_dense", "aten.nonzero", "aten.equal", "aten.masked_select", "aten.unique")
"""Operations whose result the host has to wait for."""


class Operation(NamedTuple):
    function: Any
    args: Any
    kwargs: dict[str, Any]
    outputs: list[Tensor]


class Recorder(TorchDispatchMode):
    """Records every operation; one that the host has to wait for is refused, as in a capture."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func).startswith(WAITING):
            raise RuntimeError("operation not permitted when stream is capturing")
        out = func(*args, **(kwargs or {}))
        self.operations.append(Operation(func, args, kwargs or {}, tensors(out)))
        return out

    @torch.inference_mode()
    def replay(self) -> None:
        self._poison()
        for operation in self.operations:
            found = tensors(operation.function(*operation.args, **operation.kwargs))
            for recorded, new in zip(operation.outputs, found, strict=True):
                if new.data_ptr() != recorded.data_ptr():
                    recorded.copy_(new)

    def _poison(self) -> None:
        """Fill all memory that the operations write before they read it: with NaN, or −1."""
        given: set[int] = set()
        made: dict[int, torch.UntypedStorage] = {}
        for _, args, kwargs, outputs in self.operations:
            read = tensors((args, {name: value for name, value in kwargs.items() if name != "out"}))
            given |= {storage.data_ptr() for storage in storages(read)} - made.keys()
            made |= {storage.data_ptr(): storage for storage in storages(outputs)}
        for address, storage in made.items():
            if address not in given:
                torch.empty(0, dtype=torch.uint8).set_(storage).fill_(0xFF)


def storages(found: list[Tensor]) -> list[torch.UntypedStorage]:
    return [tensor.untyped_storage() for tensor in found]


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def recorded(run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
    """A capture, see :class:`agentkv.engine.graphs.Capture`."""
    with Recorder() as recorder:
        result = run()
    return result, recorder.replay
