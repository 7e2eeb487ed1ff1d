"""The engine moves keys, values and attention mass by the ops alone, so that a GPU runs their kernels."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from agentkv_kernels import ops
from tests.runtime_helpers import logits_after, random_ids, tiny_engine

BY_KEYS = {"recipe": {"scorer": "key-difference", "precision": "age"}}


@pytest.mark.parametrize(
    ("policy", "budget", "options", "expected"),
    [
        ("full", None, {}, set()),
        ("h2o", 24, {}, {"ema_mass", "compact"}),
        ("conf-kv", 24, {}, {"ema_mass", "compact", "demote", "promote"}),
        ("fp8", None, {}, {"compact", "demote", "promote"}),
        ("compose", 24, BY_KEYS, {"compact", "demote", "promote"}),
        ("int8-channel", None, {}, {"compact", "demote_pages", "promote"}),
    ],
)
def test_what_evicts_and_quantises_goes_through_the_ops(
    monkeypatch: pytest.MonkeyPatch, policy: str, budget: int | None, options: dict[str, Any], expected: set[str]
) -> None:
    called: set[str] = set()
    module = ops._module

    def noting(name: str, device: torch.device) -> Any:
        return noted(module(name, device), called)

    monkeypatch.setattr(ops, "_module", noting)
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session(policy, budget, exempt=(), **options)
    logits_after(engine, session, random_ids(200))
    for token in (5, 6, 7):
        logits_after(engine, session, [token])
    session.cache.store.read_keys()
    assert called == expected | {"append_kv"}


def noted(module: ModuleType, called: set[str]) -> Any:
    """The module, which says what of it is used."""

    def noting(name: str) -> Any:
        called.add(name)
        return getattr(module, name)

    names = [name for name in vars(module) if not name.startswith("_")]
    return SimpleNamespace(**{name: (lambda *a, name=name: noting(name)(*a)) for name in names})
