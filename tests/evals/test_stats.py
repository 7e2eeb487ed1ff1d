from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_evals.stats import mcnemar_exact, mean, wilson


def test_wilson_known_values() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson(5, 10) == pytest.approx((0.23659, 0.76341), abs=1e-5)
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion_and_mirrors(case: tuple[int, int]) -> None:
    k, n = case
    low, high = wilson(k, n)
    assert 0 <= low <= k / n <= high <= 1
    for end in (low, high):  # each end is where the observed proportion is just 1.96 standard errors away
        assert k in (0, n) or (k / n - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / n)
    mirrored = wilson(n - k, n)
    assert mirrored == pytest.approx((1 - high, 1 - low))


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_a_two_sided_binomial_test(a: int, b: int) -> None:
    n, most = a + b, max(a, b)
    upper = sum(math.comb(n, k) for k in range(most, n + 1)) / 2**n
    assert mcnemar_exact(a, b) == pytest.approx(min(1.0, 2 * upper))
    assert mcnemar_exact(a, b) == mcnemar_exact(b, a)


def test_mean_skips_what_is_missing() -> None:
    assert mean([1.0, None, 3.0]) == 2.0
    assert mean([None]) is None
