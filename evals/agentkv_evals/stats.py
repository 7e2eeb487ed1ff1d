"""Small-sample statistics."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence


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


def wilson_clustered(successes: Sequence[int], size: int) -> tuple[float, float]:
    """95% interval of a proportion whose n come in clusters: as of so many independent ones as they are worth.

    Args:
        successes: of each cluster.
        size: of every cluster, counting what has not been run.

    Trials of one cluster are alike. How much is the intraclass correlation ρ (analysis of variance), and n of them are
    worth n / (1 + (size − 1) · ρ) (Kish's design effect). With no or only successes ρ cannot be seen and is taken as 1.
    """
    clusters, n, won = len(successes), len(successes) * size, sum(successes)
    if not clusters:
        return 0.0, 1.0
    if size == 1:
        return wilson(won, n)
    if won in (0, n) or clusters == 1:
        return wilson(won / size, clusters)
    p = won / n
    between = size * sum((k / size - p) ** 2 for k in successes) / (clusters - 1)
    within = sum(k * (1 - k / size) for k in successes) / (n - clusters)
    rho = (between - within) / (between + (size - 1) * within)
    worth = n / (1 + (size - 1) * min(1.0, max(0.0, rho)))
    return wilson(p * worth, worth)


def sign_flips(differences: Sequence[float], draws: int = 20_000) -> float:
    """Two-sided p-value of a paired comparison by tasks: how often random signs make as large a sum as there is.

    For differences that are sums over several data seeds of one task, which are not independent of each other.
    """
    there = [difference for difference in differences if difference]
    observed, rng = abs(sum(there)), random.Random(0)
    as_large = sum(abs(sum(d if rng.random() < 0.5 else -d for d in there)) >= observed for _ in range(draws))
    return (as_large + 1) / (draws + 1)
