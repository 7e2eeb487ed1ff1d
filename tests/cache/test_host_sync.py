"""A decode step in the steady state asks the device for one thing, the token it has chosen, and keeps no memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from agentkv.cache.batch import ForwardPass
from agentkv.engine import SamplingParams, Session, TokenEvent
from tests.runtime_helpers import WINDOW, grid, logits_after, random_ids, tiny_engine

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


HOST_READS = {"item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__"}
PROMPT = 30
STEADY = {
    "full": (None, {}),
    "window": (32, {}),
    "h2o": (32, {}),
    "conf-kv": (32, {"tight": 1.0, "fp_window": 8, "recent": 8}),
}
"""Budgets and options with which every step after the prompt is like the one before."""


class HostReads(TorchFunctionMode):
    """Counts the tensors whose content Python asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        to_host = name == "to" and any(isinstance(where, str) and where == "cpu" for where in args[1:])
        self.count += to_host or name in HOST_READS
        return func(*args, **(kwargs or {}))


def live_bytes() -> int:
    """Of all memory that tensors of this process hold."""
    gc.collect()
    tensors = [found for found in gc.get_objects() if issubclass(type(found), Tensor)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def steady_reply(policy: str, lean: bool) -> tuple[Session, Iterator[TokenEvent]]:
    """A reply to the end of the window; its first events are those of the prompt."""
    budget, options = STEADY[policy]
    engine = tiny_engine(dtype=torch.float32)
    if not lean:
        engine._paged.lean = None
    session = engine.open_session(policy, budget, exempt=(), **options)
    params = SamplingParams(max_tokens=WINDOW - PROMPT - 1, min_tokens=WINDOW - PROMPT - 1)
    return session, engine.generate(session, random_ids(PROMPT), params)


@pytest.mark.parametrize(("policy", "lean"), grid(STEADY, [True, False]))
def test_a_token_reaches_the_host_in_one_copy(policy: str, lean: bool) -> None:
    """The token, and with it the model's confidence where the policy asks for that."""
    _, events = steady_reply(policy, lean)
    for _ in range(20):
        next(events)
    with HostReads() as reads:
        for _ in range(20):
            next(events)
    assert reads.count == 20


@pytest.mark.parametrize(("policy", "lean"), grid(STEADY, [True, False]))
def test_two_hundred_steps_leave_nothing_behind(policy: str, lean: bool) -> None:
    session, events = steady_reply(policy, lean)
    for _ in range(20):
        next(events)
    before = live_bytes()
    for _ in range(200):
        next(events)
    assert live_bytes() == before
    assert session.logical_length >= PROMPT + 200
    events.close()  # type: ignore[attr-defined]


def test_the_checks_themselves_see_what_they_look_for() -> None:
    with HostReads() as reads:
        found = torch.ones(3)
        assert found.sum() > 2
        found.tolist()
        float(found[0])
        found.to("cpu")
    assert reads.count == 4
    before = live_bytes()
    kept = torch.zeros(1000)
    assert live_bytes() == before + kept.nbytes
