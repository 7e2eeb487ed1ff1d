"""What the benches of policies share: the grid of policies and budgets, and what a comparison needs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Protocol, cast, get_args

from agentkv import policies as kv_policies
from agentkv.cache.controller import Prefill
from agentkv.errors import ContextOverflow
from agentkv_evals.backends import check_budgets
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import REFERENCE_POLICY, Arm

if TYPE_CHECKING:
    from agentkv.engine import Engine, Session

MIB = 2**20
PREFILLS: tuple[str, ...] = get_args(Prefill)
"""How a prompt enters the cache: chunk by chunk inside the budget, or all of it before anything is dropped."""
UNEQUAL = 0.05
"""Rows of one budget whose bytes differ by more than this share are not a comparison at equal bytes."""


class Row(Protocol):
    """A measurement under a policy and a budget; a frozen dataclass."""

    @property
    def policy(self) -> str: ...
    @property
    def budget(self) -> str | None: ...
    @property
    def kv_bytes(self) -> int: ...


def grid(policies: Sequence[str], budgets: Sequence[str]) -> tuple[Arm, ...]:
    """The full-KV baseline, asked for or not, then every other policy under every budget; raises as `every_arm`."""
    return every_arm((REFERENCE_POLICY, *policies), budgets)


def every_arm(policies: Sequence[str], budgets: Sequence[str]) -> tuple[Arm, ...]:
    """Every policy under every budget, in order, none twice; `full` has no budget.

    Raises:
        UnknownName: no such policy.
        AgentKVError: a budget that is not understood.
    """
    for policy in policies:
        kv_policies.build(policy)
    arms = [
        Arm(policy, budget)
        for policy in dict.fromkeys(policies)
        for budget in ((None,) if policy == REFERENCE_POLICY else dict.fromkeys(budgets))
    ]
    check_budgets(arms)
    return tuple(arms)


def check_prefill(prefill: str) -> None:
    """Raises EvalError if there is no such way to prefill."""
    if prefill not in PREFILLS:
        raise EvalError(f"unknown --prefill {prefill!r}; there are: {', '.join(PREFILLS)}")


def open_session(engine: Engine, arm: Arm, prefill: str = PREFILLS[0]) -> Session:
    """A new session of an arm; see :meth:`Engine.open_session`."""
    return engine.open_session(arm.policy, arm.budget, prefill=cast(Prefill, prefill))


def check_room(engine: Engine, arms: Sequence[Arm], tokens: int, hint: str, prefill: str = PREFILLS[0]) -> None:
    """Raises, before anything is measured, if an arm cannot run a session of so many tokens.

    Raises:
        BudgetTooSmall: the policy's protected set does not fit.
        ContextOverflow: beyond the model's window, or the budget of a policy that drops nothing.
    """
    for arm in arms:
        with closing(open_session(engine, arm, prefill)) as session:
            limit = session.token_limit
        if tokens > limit:
            what = "the model's window" if limit == engine.context_window else arm.label
            raise ContextOverflow(tokens, limit, hint, what)


def unequal_bytes(rows: Sequence[Row], where: str = "") -> list[str]:
    """A sentence for every budget under which the peak bytes of these rows differ by more than `UNEQUAL`."""
    notes = []
    for budget in dict.fromkeys(row.budget for row in rows if row.budget is not None):
        same = [row for row in rows if row.budget == budget]
        least, most = min(same, key=lambda row: row.kv_bytes), max(same, key=lambda row: row.kv_bytes)
        if most.kv_bytes > (1 + UNEQUAL) * least.kv_bytes:
            notes.append(
                f"Not at equal bytes{where}: under {budget} the peaks range from {mib(least.kv_bytes)} MiB "
                f"({least.policy}) to {mib(most.kv_bytes)} MiB ({most.policy})."
            )
    return notes


def mib(size: float) -> str:
    """Bytes in MiB, two decimals."""
    return f"{size / MIB:.2f}"
