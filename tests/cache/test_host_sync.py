"""A decode step in the steady state asks the device for nothing: a queue of such steps never waits for its results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agentkv.cache.batch import ForwardPass
from tests.runtime_helpers import logits_after, random_ids, tiny_engine

SYNCHRONISING = ("aten._local_scalar_dense", "aten.nonzero", "aten.equal", "aten.masked_select", "aten.unique")


class NoHostSync(TorchDispatchMode):
    """Fails on operations whose result the host has to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        assert not str(func).startswith(SYNCHRONISING), f"{func} makes the host wait for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("window", {}),
        ("streaming-llm", {}),
        ("random", {}),
        ("h2o", {}),
        ("h2o", {"protect": ["system"]}),
        ("tova", {}),
        ("conf-kv", {"fp_window": 8, "recent": 8}),
    ],
)
def test_a_steady_step_has_no_host_sync(policy: str, options: dict[str, Any]) -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session(policy, 64, **options)
    logits_after(engine, session, random_ids(150))
    while session.cache.store.slots_used < 64:
        logits_after(engine, session, [5])
    session.cache.confidence = 0.1
    with NoHostSync() as mode:
        for token in (7, 8):
            ids = torch.tensor([[token]])
            step = session.cache.begin([token])
            engine._paged.forward(ids, ForwardPass([step]))
            session.cache.commit(step)
    assert mode.seen > 100
    assert session.cache.store.slots_used == 64


def test_the_check_itself_sees_a_sync() -> None:
    with pytest.raises(AssertionError, match="makes the host wait"), NoHostSync():
        int(torch.ones(3).sum())
