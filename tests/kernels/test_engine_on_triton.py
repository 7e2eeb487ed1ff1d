"""The engine on Triton's kernels: whole sessions, evicting and quantising, give the logits that the reference gives."""

from __future__ import annotations

import pytest
import torch

from agentkv.engine import Engine
from agentkv_kernels import ops
from tests.kernels.devices import DEVICE, fast
from tests.runtime_helpers import VOCABULARY, DigitTokenizer, tiny_model

fast("attention")


def logits_of(policy: str, budget: str | None, tokens: int) -> torch.Tensor:
    """[tokens, V]: prompts of 60 and 23 tokens, then tokens one by one, of two sessions in a batch."""
    engine = Engine(tiny_model("llama", torch.float32).to(DEVICE), DigitTokenizer(), "tiny", "8MiB")
    sessions = [engine.open_session(policy, budget, exempt=()) for _ in range(2)]
    ids = torch.randint(VOCABULARY, (2, 60 + tokens), generator=torch.Generator().manual_seed(0)).tolist()
    for session, own, length in zip(sessions, ids, (60, 23), strict=True):
        session.ledger.extend(own[:length])
        engine.compute_waiting(session)
    steps = [engine.decode_batch(sessions, [own[60 + step] for own in ids]) for step in range(tokens)]
    return torch.stack(steps).cpu()


FULL = {"marks": pytest.mark.full}


@pytest.mark.parametrize(
    ("policy", "budget"),
    [("full", None), ("conf-kv", "24"), pytest.param("h2o", "24", **FULL), pytest.param("arkv", "48", **FULL)],
)
def test_the_same_logits_as_the_reference(monkeypatch, policy, budget) -> None:
    monkeypatch.setenv("AGENTKV_KERNELS", "reference")
    expected = logits_of(policy, budget, 3)
    calls = []
    module = ops._module
    monkeypatch.setenv("AGENTKV_KERNELS", "triton")
    monkeypatch.setattr(ops, "_module", lambda name, device: calls.append(name) or module(name, device))
    found = logits_of(policy, budget, 3)
    assert {"attention", "transfer"} <= set(calls)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
