from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_evals.stats import (
    detectable_retention,
    independent,
    mcnemar_exact,
    mcnemar_power,
    mean,
    wilson,
)


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


@given(st.integers(1, 12), st.floats(0, 0.5), st.floats(0, 0.5))
def test_power_is_the_chance_of_a_significant_outcome(n: int, only_first: float, only_second: float) -> None:
    neither = 1 - only_first - only_second
    expected = sum(
        math.comb(n, a) * math.comb(n - a, b) * only_first**a * only_second**b * neither ** (n - a - b)
        for a in range(n + 1)
        for b in range(n + 1 - a)
        if a > b and mcnemar_exact(a, b) < 0.05
    )
    assert mcnemar_power(n, only_first, only_second) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("n", "success", "gained"), [(75, 0.45, 0.05), (75, 0.45, 0.0), (300, 0.6, 0.1), (40, 1.0, 0.0)]
)
def test_a_loss_a_little_smaller_than_the_detectable_one_goes_unseen(n: int, success: float, gained: float) -> None:
    found = detectable_retention(n, success, gained)
    assert found is not None
    won = (1 - success) * gained
    powers = [mcnemar_power(n, success * (1 - kept) + won, won) for kept in (found, found + 0.01)]
    assert powers[1] < 0.8 <= powers[0]


@pytest.mark.parametrize(("n", "success", "gained"), [(4, 0.5, 0.0), (75, 0.0, 0.0), (75, 0.01, 0.5), (0, 0.5, 0.0)])
def test_where_no_loss_could_be_seen_there_is_none(n: int, success: float, gained: float) -> None:
    assert detectable_retention(n, success, gained) is None


def test_trials_that_are_all_alike_are_worth_one_of_each_cluster() -> None:
    assert independent([[1] * 4, [0] * 4, [1] * 4, [0] * 4]) == pytest.approx(4)
    assert independent([[1, 1, 0, 0]] * 4) == pytest.approx(16)
    assert independent([[1], [0], [1]]) == 3
    assert independent([[0, 0], [0, 0]]) == 2  # nothing to see: as if they were all alike
    # Uneven clusters: 75 tasks of which two were run four times are worth no more than the trials there are.
    uneven = [[1, 0, 1, 0], [0, 1, 1, 0], *([n % 2] for n in range(73))]
    assert 73 < independent(uneven) <= 81


def test_mean_skips_what_is_missing() -> None:
    assert mean([1.0, None, 3.0]) == 2.0
    assert mean([None]) is None
