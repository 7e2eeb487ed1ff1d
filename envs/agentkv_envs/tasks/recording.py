"""Carrying out tasks in the browser, to export or record them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv_envs.observe import estimate_tokens
from agentkv_envs.sites import World, open_site
from agentkv_envs.tasks.assemble import Spec, as_task, draw, task_json
from agentkv_envs.tasks.draft import Draft, Step
from agentkv_envs.tasks.families import get
from agentkv_envs.tasks.oracle import Distance, Env, OracleError, Trace, carry_out, measure
from agentkv_envs.types import Task


@dataclass(frozen=True)
class Recorded:
    """A task whose plan was carried out: its JSON with the literal oracle, and how it went."""

    data: dict[str, Any]
    draft: Draft
    trace: Trace
    distance: Distance | None

    @property
    def task(self) -> Task:
        return as_task(self.data)


def draft_of(spec: Spec, world: World) -> Draft:
    """The draft of a task; opens the sites' databases, no browser."""
    sites = {name: open_site(name, world, {}) for name in get(spec.family).sites}
    try:
        return draw(spec, world, {name: site.database for name, site in sites.items()})
    finally:
        for site in sites.values():
            site.close()


def record(
    env: Env, spec: Spec, world: World, *, suite: str, count_tokens: Callable[[str], int] = estimate_tokens
) -> Recorded:
    """Draw a task and carry out its plan.

    Raises:
        OracleError: the plan fails on the pages it meets.
    """
    draft = draft_of(spec, world)
    plan = [step.text for step in draft.plan]
    planned = as_task(task_json(spec, draft, world, plan, suite=suite))
    trace = carry_out(env, planned, plan, world.seed)
    distance = measure(trace, draft.plan, draft.needle, count_tokens) if draft.needle is not None else None
    others = [_literal(env, planned, other, world.seed) for other in draft.alternatives]
    data = task_json(spec, draft, world, trace.oracle, distance, suite=suite, alternatives=others)
    return Recorded(data, draft, trace, distance)


def _literal(env: Env, task: Task, plan: Sequence[Step], seed: int) -> tuple[str, ...]:
    """The literal actions of another plan that solves a task."""
    trace = carry_out(env, task, [step.text for step in plan], seed)
    if trace.score.success is not True:
        raise OracleError(f"{task.task_id}: another plan does not solve it: {trace.score.note}")
    return trace.oracle
