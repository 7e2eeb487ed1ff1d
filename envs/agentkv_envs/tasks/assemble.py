"""From a family's draft to a task in VisualWebArena's JSON."""

from __future__ import annotations

import random
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentkv_envs.errors import TaskError
from agentkv_envs.sites import Site, World
from agentkv_envs.sites.reminder import Reminder, remind
from agentkv_envs.tasks import families
from agentkv_envs.tasks.draft import READ, Draft, Draw, NoDraw
from agentkv_envs.tasks.oracle import Distance, length_class
from agentkv_envs.tasks.schema import read_task
from agentkv_envs.types import Task

VERSION = 1
_DRAWS = 60


@dataclass(frozen=True)
class Spec:
    """Where a task comes from.

    Attributes:
        task_id: its name.
        family: name of its family.
        pinned: drawn values that are given for data seed 0; other seeds draw them.
        twin_of: the task it repeats with a reminder of the fact where it is needed.
    """

    task_id: str
    family: str
    pinned: Mapping[str, Any] = field(default_factory=dict)
    twin_of: str = ""


def draw(spec: Spec, world: World, databases: Mapping[str, sqlite3.Connection]) -> Draft:
    """The draft of a task in a world; the same arguments give the same draft. A twin has its original's.

    Raises:
        TaskError: the data of this world hold nothing that suits the family.
    """
    family = families.get(spec.family)
    name = spec.twin_of or spec.task_id
    for attempt in range(_DRAWS):
        rng = random.Random(f"{name}/{world.seed}/{world.split}/{attempt}")
        pinned = spec.pinned if world.seed == 0 and world.split == "test" else {}
        try:
            return family.draw(Draw(world, databases, rng, pinned))
        except NoDraw as reason:
            last = reason
    raise TaskError(spec.task_id, "", f"data seed {world.seed} holds nothing for the family {spec.family}: {last}")


def task_json(
    spec: Spec,
    draft: Draft,
    world: World,
    oracle: Sequence[str],
    distance: Distance | None = None,
    *,
    suite: str,
    alternatives: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:
    """The task as JSON: VisualWebArena's fields and `agentkv`.

    Args:
        oracle: literal actions, or the plan's texts where it has not been carried out.
        distance: where the needle lay in the trace that `oracle` comes from.
    """
    family = families.get(spec.family)
    horizon = _horizon(oracle)
    hard = {"short": "easy", "medium": "medium", "long": "hard"}[horizon]
    compares = draft.needle is not None and draft.needle.kind == "relation"
    return {
        "sites": list(family.sites),
        "task_id": spec.task_id,
        "require_login": True,
        "storage_state": None,
        "start_url": " |AND| ".join(draft.start),
        "geolocation": None,
        "intent_template": draft.template,
        "intent_template_id": zlib.crc32(draft.template.encode()) % 1_000_000,
        "instantiation_dict": dict(draft.values),
        "intent": draft.intent,
        "image": None,
        "require_reset": draft.changes,
        "eval": _full_eval(draft),
        "reasoning_difficulty": "hard" if compares else hard,
        "visual_difficulty": "easy",
        "overall_difficulty": hard,
        "comments": "",
        "agentkv": _extra(spec, draft, world, oracle, distance, suite=suite, alternatives=alternatives),
    }


def _horizon(oracle: Sequence[str]) -> str:
    """By its actions: what a plan only reads is none."""
    return length_class(sum(READ.fullmatch(step) is None for step in oracle))


def _full_eval(draft: Draft) -> dict[str, Any]:
    full: dict[str, Any] = {"eval_types": [], "reference_answers": None, "reference_url": "", "program_html": []}
    full.update(draft.eval)
    if draft.why_not:
        full["string_note"] = draft.why_not
    return full


def _extra(
    spec: Spec,
    draft: Draft,
    world: World,
    oracle: Sequence[str],
    distance: Distance | None,
    *,
    suite: str,
    alternatives: Sequence[Sequence[str]],
) -> dict[str, Any]:
    needle, reminder = draft.needle, None
    facts: dict[str, Any] | None = None
    if needle is not None:
        facts = {"kind": needle.kind, "fact": needle.fact}
        if distance is None and draft.fact_step is not None:
            facts["used_step"] = draft.fact_step
        if distance is not None:
            facts |= {
                "first_seen_step": distance.first_seen_step,
                "used_step": distance.used_step,
                "tokens_between": distance.tokens_between,
            }
        if spec.twin_of:
            reminder = {"site": needle.site, "path": needle.path, "text": needle.note}
    return {
        "version": VERSION,
        "suite": suite,
        "family": spec.family,
        "split": world.split,
        "data_seed": world.seed,
        "held_out": not families.get(spec.family).train,
        "horizon": _horizon(oracle),
        "needle": facts,
        "twin_of": spec.twin_of or None,
        "reminder": reminder,
        "changes_state": draft.changes,
        "alternatives": [list(other) for other in alternatives],
        "eval_ext": dict(draft.eval_ext),
        "oracle": list(oracle),
    }


def plan_task(spec: Spec, world: World, databases: Mapping[str, sqlite3.Connection], *, suite: str) -> Task:
    """The task of a world, its `oracle` being the plan (not yet carried out)."""
    draft = draw(spec, world, databases)
    return as_task(task_json(spec, draft, world, [step.text for step in draft.plan], suite=suite))


def as_task(data: dict[str, Any]) -> Task:
    """A `Task` from JSON whose oracle may still be a plan."""
    oracle = tuple(data["agentkv"]["oracle"])
    extra = {key: value for key, value in data["agentkv"].items() if key != "oracle"}
    task = read_task({**data, "agentkv": extra}, str(data["task_id"]))
    return replace(task, oracle=oracle, raw=data)


def at_seed(task: Task, world: World, sites: Sequence[Site]) -> Task:
    """The task as it is in this world: itself at the data seed it was written for, else drawn again.

    Raises:
        TaskError: a task of a file, which nothing can draw again, was written for another data seed.
    """
    written_for = (task.raw.get("agentkv") or {}).get("data_seed", world.seed)
    if written_for == world.seed:
        return task
    spec = families.spec_of(task)
    if spec is None:
        reason = f"holds the data of seed {written_for}, not {world.seed}; use that seed, or the task of the suite"
        raise TaskError(task.task_id, "agentkv.data_seed", reason)
    return plan_task(spec, world, {site.name: site.database for site in sites}, suite=task.suite)


def with_reminder(task: Task, sites: Sequence[Site]) -> list[Site]:
    """The episode's sites, one of them with the note a twin has."""
    note = task.raw.get("agentkv", {}).get("reminder")
    if not note:
        return list(sites)
    reminder = Reminder(note["path"], note["text"])
    return [replace(s, app=remind(s.app, reminder)) if s.name == note["site"] else s for s in sites]
