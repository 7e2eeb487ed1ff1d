"""Budgets told by what full KV takes: "full/2.8" is its mean peak, 2.8 times less.

Such a budget is set once, in bytes, from measured peaks; it is the same for every task and policy.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from agentkv_evals.errors import EvalError

_FORM = re.compile(r"full/(\d+(?:\.\d+)?)")
_KIB = 1024


def times_less(budget: str | None) -> float | None:
    """How many times less than full KV a budget asks for; None for one that does not say it so.

    Raises:
        EvalError: not more than 1.
    """
    found = _FORM.fullmatch(budget or "")
    if found is None:
        return None
    times = float(found[1])
    if times <= 1:
        raise EvalError(f"--budget {budget}: say how many times less than full KV, above 1, as in full/2.8")
    return times


def in_bytes(budget: str, peaks: Sequence[int]) -> str:
    """The same as a number of KiB, given the peaks of full KV in bytes; a budget of another form as it is.

    Raises:
        EvalError: there are no peaks.
    """
    times = times_less(budget)
    if times is None:
        return budget
    if not peaks:
        raise EvalError(f"no episode of full has measured a peak, so nobody knows what {budget} is; give bytes")
    return f"{max(1, int(statistics.fmean(peaks) / times / _KIB))}KiB"
