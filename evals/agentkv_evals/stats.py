"""Small-sample statistics."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache

# Outcomes rarer than this add nothing that shows.
_NEGLIGIBLE = 1e-9


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are there; None without any."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def wilson(successes: float, n: float, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion, as (low, high) in 0..1; 95% by default. (0, 1) for n = 0."""
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    # At the ends the exact bound is p itself; rounding must not carry it past.
    return (0.0 if successes == 0 else low), (1.0 if successes == n else high)


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Two-sided exact McNemar p-value from the two discordant counts; 1 without any."""
    n = only_first + only_second
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, k) for k in range(min(only_first, only_second) + 1)) / 2**n
    return min(1.0, 2 * tail)


def mcnemar_power(n: int, only_first: float, only_second: float, level: float = 0.05) -> float:
    """How often an exact McNemar test on n pairs comes out below `level` with the first ahead.

    Args:
        n: pairs.
        only_first, only_second: true shares of pairs in which only that one succeeds.
    """
    apart = only_first + only_second
    if not 0 < apart <= 1:
        return 0.0
    power = 0.0
    for differ in range(n + 1):
        if (chance := _binomial(differ, n, apart)) > _NEGLIGIBLE:
            ahead = range(_least_ahead(differ, level), differ + 1)
            power += chance * sum(_binomial(k, differ, only_first / apart) for k in ahead)
    return power


@cache
def _least_ahead(differ: int, level: float) -> int:
    """Of so many pairs that differ, how many have to favour the first for a p-value below `level`."""
    least = differ + 1
    while 2 * (least - 1) > differ and mcnemar_exact(least - 1, differ - least + 1) < level:
        least -= 1
    return least


def detectable_retention(n: int, success: float, gained: float, power: float = 0.8) -> float | None:
    """The highest share of the reference's successes that n pairs can tell from all of them, so often as `power` says.

    Args:
        n: independent pairs.
        success: success rate of the reference.
        gained: of the tasks that the reference fails, the share that the other solves; the other loses as many more.

    Returns:
        In steps of 0.01; None where no loss would be seen that often.
    """
    won = (1 - success) * gained

    def seen(hundredths: int) -> bool:
        return mcnemar_power(n, success * (1 - hundredths / 100) + won, won) >= power

    # Nobody loses more than there is: below this, retention is not possible with what is gained.
    least = math.ceil(100 * won / success) if success else 100
    possible = range(least, 100)
    count = bisect_left(possible, True, key=lambda hundredths: not seen(hundredths))
    return possible[count - 1] / 100 if count else None


def _binomial(k: int, n: int, p: float) -> float:
    if p in (0, 1):
        return float(k == n * p)
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log + k * math.log(p) + (n - k) * math.log1p(-p))


def wilson_clustered(successes: Sequence[int], size: int) -> tuple[float, float]:
    """95% interval of a proportion whose n come in clusters: as of so many independent ones as they are worth.

    Args:
        successes: of each cluster.
        size: of every cluster, counting what has not been run.
    """
    if not successes:
        return 0.0, 1.0
    worth = independent([[1.0] * won + [0.0] * (size - won) for won in successes])
    return wilson(sum(successes) / (len(successes) * size) * worth, worth)


def independent(clusters: Sequence[Sequence[float]]) -> float:
    """How many independent trials those of clusters are worth, given the value of each.

    Trials of one cluster are alike. How much is the intraclass correlation ρ (analysis of variance), and n of them, m
    in a cluster on average, are worth n / (1 + (m − 1) · ρ) (Kish's design effect). Where all are alike ρ cannot be
    seen and is taken as 1.
    """
    groups = [list(values) for values in clusters if values]
    n, count = sum(map(len, groups)), len(groups)
    if count < 2 or n == count:
        return count
    size = (n - sum(len(values) ** 2 for values in groups) / n) / (count - 1)
    means = [sum(values) / len(values) for values in groups]
    overall = sum(map(sum, groups)) / n
    between = sum(len(g) * (m - overall) ** 2 for g, m in zip(groups, means, strict=True)) / (count - 1)
    within = sum((v - m) ** 2 for g, m in zip(groups, means, strict=True) for v in g) / (n - count)
    total = between + (size - 1) * within
    rho = (between - within) / total if total else 1.0
    return n / (1 + (size - 1) * min(1.0, max(0.0, rho)))


def sign_flips(differences: Sequence[float], draws: int = 20_000) -> float:
    """Two-sided p-value of a paired comparison by tasks: how often random signs make as large a sum as there is.

    For differences that are sums over several data seeds of one task, which are not independent of each other.
    """
    there = [difference for difference in differences if difference]
    observed, rng = abs(sum(there)), random.Random(0)
    as_large = sum(abs(sum(d if rng.random() < 0.5 else -d for d in there)) >= observed for _ in range(draws))
    return (as_large + 1) / (draws + 1)
