"""Sampling draws from the distribution it says it draws from."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkv.engine.sampling import Sampler, SamplingParams
from agentkv.errors import AgentKVError

LOGITS = torch.tensor([3.0, 1.0, 2.0, -1.0, 0.0])


def draws(params: SamplingParams, n: int = 3000, logits: torch.Tensor = LOGITS) -> torch.Tensor:
    sampler = Sampler(params, {4}, torch.device("cpu"))
    return torch.stack([sampler.draw(logits, generated=9) for _ in range(n)])


def test_greedy_takes_the_largest() -> None:
    assert set(draws(SamplingParams(), 5).tolist()) == {0}


def test_temperature_gives_the_softmax() -> None:
    counts = torch.bincount(draws(SamplingParams(temperature=2.0, seed=1)), minlength=5) / 3000
    torch.testing.assert_close(counts, (LOGITS / 2).softmax(0), rtol=0, atol=0.03)


def test_top_k_and_top_p_cut_the_tail() -> None:
    assert set(draws(SamplingParams(temperature=2.0, top_k=2, seed=0), 400).tolist()) == {0, 2}
    probs = LOGITS.softmax(0).sort(descending=True).values
    just_two = float(probs[0] + probs[1] / 2)
    assert set(draws(SamplingParams(temperature=1.0, top_p=just_two, seed=0), 400).tolist()) == {0, 2}
    assert set(draws(SamplingParams(temperature=1.0, top_p=1e-6, seed=0), 50).tolist()) == {0}


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    seeded = [draws(SamplingParams(temperature=1.0, seed=7), 50).tolist() for _ in range(2)]
    assert seeded[0] == seeded[1]
    free = [draws(SamplingParams(temperature=1.0), 50).tolist() for _ in range(2)]
    assert free[0] != free[1]


@given(temperature=st.floats(0, 5) | st.just(1e308), top_k=st.integers(0, 6), top_p=st.floats(0.01, 1.0))
def test_forbidden_tokens_are_never_drawn(temperature: float, top_k: int, top_p: float) -> None:
    masked = torch.tensor([float("-inf"), 1.0, float("-inf"), 0.5, float("-inf")])
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=0)
    assert set(draws(params, 20, masked).tolist()) <= {1, 3}


def test_min_tokens_hold_back_the_end() -> None:
    logits = torch.tensor([0.0, 0.0, 0.0, 0.0, 9.0])
    sampler = Sampler(SamplingParams(min_tokens=2), {4}, torch.device("cpu"))
    assert [int(sampler.draw(logits, n)) for n in range(3)] == [0, 0, 4]


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"temperature": float("inf")},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_tokens": -1},
        {"stop": ("",)},
        {"stop": (5,)},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"temperature": "hot"},
        {"seed": "x"},
        {"seed": 2**70},
    ],
)
def test_bad_parameters_are_refused(bad: dict) -> None:
    with pytest.raises(AgentKVError, match=next(iter(bad))):
        SamplingParams(**bad)
