"""What the benches share: the grid of policies and budgets, the progress bar, and how rows are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, cast, get_args

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

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
_TABLE_WIDTH = 120


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


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error, if that is a terminal; yields the function that moves it by one."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda: progress.advance(bar)


def print_row(row: Any) -> None:
    """One JSON object on a line of its own."""
    print(json.dumps(asdict(row)), flush=True)


def new_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """A table of left-aligned columns, then right-aligned ones."""
    table = Table(title=escape(title), title_justify="left", caption_justify="left")
    for heading in texts:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def print_table(table: Table) -> None:
    """On standard output, wide enough also in a pipe."""
    console = Console()
    console.width = max(console.width, _TABLE_WIDTH)
    console.print(table)


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
