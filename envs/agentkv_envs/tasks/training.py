"""Training instances: tasks of the families that may be trained on, in worlds whose names no test task knows.

    python -m agentkv_envs.tasks.training traces.jsonl --count 2000 --seed 0 --slips 0.2

writes one JSON object a line: the task, and the observation and action of every step of its oracle; a fifth of the
demonstrations hold wrong steps and their repair. With `--plans-only` nothing is carried out and no browser is needed:
intents and their plans (see `plans`), thousands in a minute. What the file holds already is kept, so that the same
command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv_envs.errors import EnvError, TaskError
from agentkv_envs.sites import World, open_site
from agentkv_envs.sites.home.pages import SITES
from agentkv_envs.tasks import families
from agentkv_envs.tasks.assemble import Spec, as_task, draw, plan_task, task_json
from agentkv_envs.tasks.draft import Draft
from agentkv_envs.tasks.oracle import Env
from agentkv_envs.tasks.plans import Foresight
from agentkv_envs.tasks.slips import Demonstration, Taken, demonstrate
from agentkv_envs.types import Task

SUITE = "train"
PER_WORLD = 250
_SEEDS = 1000
# No instance of a seed from 0 on comes from these.
_COMPARED_WORLDS = (-1, -2)
_COMPARED = 12
_TRIES = 3


@dataclass(frozen=True)
class Instance:
    """A training task and the data seed it must be run with; its `oracle` is a plan for `oracle.Pilot`.

    Attributes:
        draft: what the task was made from.
    """

    task: Task
    data_seed: int
    draft: Draft

    @property
    def note(self) -> str:
        """The fact that must be remembered, as a sentence; "" where there is none."""
        return "" if self.draft.needle is None else self.draft.needle.note

    @property
    def compared(self) -> str:
        """What that fact follows from, where things are compared."""
        return "" if self.draft.needle is None else self.draft.needle.compared

    @property
    def uses(self) -> int | None:
        """Which step of the plan needs that fact."""
        return next((n for n, step in enumerate(self.draft.plan) if step.uses), None)


def normalised(intent: str) -> str:
    """An intent for comparison: lower case, words and numbers only."""
    return " ".join(re.findall(r"\w+", intent.casefold()))


def names() -> list[str]:
    """The families that may be trained on."""
    return sorted(name for name, family in families.load().items() if family.train)


def instances(count: int, seed: int = 0) -> Iterator[Instance]:
    """`count` instances, all of different intents, the families taking turns; a new world every `PER_WORLD`.

    Args:
        count: how many; some 100,000 for one seed at most.
        seed: instances of other seeds come from other worlds.
    """
    seen: set[str] = set()
    made = 0
    for index in range(_SEEDS):
        world = World(seed * _SEEDS + index, "train")
        with ExitStack() as stack:
            databases = _open_all(world, stack)
            for instance in _drawn(world, databases, min(PER_WORLD, count - made)):
                if (key := normalised(instance.task.intent)) not in seen:
                    seen.add(key)
                    made += 1
                    yield instance
        if made >= count:
            return


def suite() -> list[Task]:
    """A task of every family, in the world of data seed 0; other seeds draw it again. For choices, not for results."""
    world = World(0, "train")
    with ExitStack() as stack:
        databases = _open_all(world, stack)
        specs = [Spec(f"{SUITE}-{name}", name) for name in names()]
        return [plan_task(spec, world, databases, suite=SUITE) for spec in specs]


def _open_all(world: World, stack: ExitStack) -> dict[str, sqlite3.Connection]:
    needed = sorted({site for name in names() for site in families.get(name).sites})
    sites = [open_site(name, world, {}) for name in needed]
    for site in sites:
        stack.callback(site.close)
    return {site.name: site.database for site in sites}


def _drawn(world: World, databases: dict[str, sqlite3.Connection], count: int) -> Iterator[Instance]:
    """As many draws, the families in turn; those that find nothing in this world are passed over."""
    order = names()
    for number in range(count):
        name = order[number % len(order)]
        spec = Spec(f"train-{name}-{world.seed}-{number // len(order)}", name)
        try:
            draft = draw(spec, world, databases)
        except TaskError:
            continue
        plan = [step.text for step in draft.plan]
        yield Instance(as_task(task_json(spec, draft, world, plan, suite=SUITE)), world.seed, draft)


class Planner:
    """What an agent can tell of the ways of training tasks before their first step.

    Drafts of two worlds of its own, which no instance comes from, are compared (see `plans`).
    """

    def __init__(self) -> None:
        self._families: dict[str, Foresight] = {}

    def plan(self, instance: Instance) -> tuple[str, ...]:
        """The plan of an instance, `?` for what only its pages tell."""
        if not self._families:
            self._families = _foresights()
        family = str(instance.task.raw["agentkv"]["family"])
        return self._families[family].outline(instance.draft)


def _foresights() -> dict[str, Foresight]:
    drafts: dict[str, list[Draft]] = {name: [] for name in names()}
    for seed in _COMPARED_WORLDS:
        world = World(seed, "train")
        with ExitStack() as stack:
            databases = _open_all(world, stack)
            for name, number in itertools.product(drafts, range(_COMPARED)):
                with suppress(TaskError):
                    drafts[name].append(draw(Spec(f"plan-{name}-{number}", name), world, databases))
    return {name: Foresight(of_family) for name, of_family in drafts.items()}


def opened(task: Task) -> tuple[str, ...]:
    """Titles of the tabs that a task begins with, the current one first."""
    titles = {f"__{name.upper()}__/": title for name, (title, _) in SITES.items()} | {"__HOME__/": "Townboard"}
    starts = task.raw["start_url"].split(" |AND| ")
    if unknown := [start for start in starts if start not in titles]:
        raise TaskError(task.task_id, "start_url", f"{unknown[0]} is no first page of a site")
    return tuple(titles[start] for start in starts)


def plan_row(instance: Instance, planner: Planner) -> dict[str, Any]:
    """An instance and its plan, not carried out, for a file of demonstrations."""
    task = instance.task
    return {
        "task_id": task.task_id,
        "family": task.raw["agentkv"]["family"],
        "data_seed": instance.data_seed,
        "sites": list(task.sites),
        "intent": task.intent,
        "style": "label-first",
        "open": opened(task),
        "plan": planner.plan(instance),
        "steps": [],
    }


def record(env: Env, instance: Instance, planner: Planner, slips: float = 0.0) -> dict[str, Any]:
    """The oracle's way through an instance, for a file of demonstrations.

    Args:
        slips: the probability that it holds wrong steps and their repair; which instances those are is fixed.

    Raises:
        EnvError: the plan fails, or does not solve the task.
    """
    task = instance.task
    shown = _demonstrate(env, instance, random.Random(task.task_id).random() < slips)
    if shown.score.success is not True:
        raise EnvError(f"the oracle of {task.task_id} does not solve it: {shown.score.note}")
    extra = task.raw["agentkv"]
    used = None if instance.uses is None else shown.plan_steps[instance.uses]
    taken = [index for index in shown.plan_steps if index is not None]
    return {
        **plan_row(instance, planner),
        # With the placeholders filled in, as the agent is told it.
        "intent": (env.task or task).intent,
        "needle": extra["needle"]
        and {
            **extra["needle"],
            "note": instance.note,
            "compared": instance.compared,
            "used_step": None if used is None else used + 1,
        },
        "style": shown.steps[0].observation.style,
        "steps": [_step_row(step, plan_step_of(number, taken)) for number, step in enumerate(shown.steps)],
    }


def _demonstrate(env: Env, instance: Instance, with_slips: bool) -> Demonstration:
    """A demonstration with slips if that is asked for and can be done: some slips cannot be repaired."""
    task, seed = instance.task, instance.data_seed
    for attempt in range(_TRIES if with_slips else 0):
        try:
            shown = demonstrate(env, task, seed, random.Random(f"{task.task_id}/{attempt}"))
        except EnvError:
            continue
        if shown.score.success is True:
            return shown
    return demonstrate(env, task, seed)


def plan_step_of(index: int, taken: Sequence[int]) -> int:
    """Which step of the plan, from 1, a step is for: the first that is not behind it.

    Args:
        taken: for each action of the plan, the index of the step that carried it out.
    """
    return 1 + sum(own < index for own in taken)


def _step_row(step: Taken, number: int) -> dict[str, Any]:
    """Observation, action and the plan's step that it is for; `wrong` and `error` only where they say something."""
    row: dict[str, Any] = {"observation": step.observation.text, "action": str(step.action), "plan_step": number}
    if step.wrong:
        row["wrong"] = True
    if step.error is not None:
        row["error"] = step.error
    return row


def recorded(file: Path, plans_only: bool = False) -> set[str]:
    """Ids of the tasks whose demonstrations a file holds; half a line at its end, of a write that was cut off, goes.

    Args:
        plans_only: whether it should hold plans alone.

    Raises:
        EnvError: it holds something else.
    """
    if not file.exists():
        return set()
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    try:
        rows = [json.loads(line) for line in whole.splitlines()]
        done = {str(row["task_id"]) for row in rows}
        other = any("plan" not in row or bool(row["steps"]) == plans_only for row in rows)
    except (ValueError, KeyError, TypeError):
        raise EnvError(f"{file} is no file of demonstrations; name another one") from None
    if other:
        wanted = "plans alone" if plans_only else "demonstrations with plans"
        raise EnvError(f"{file} holds other rows than {wanted}; name another file")
    if len(whole) < len(content):
        with file.open("r+b") as cut:
            cut.truncate(len(whole))
    return done


def main() -> None:
    """Entry point; see the module."""
    parser = argparse.ArgumentParser(prog="python -m agentkv_envs.tasks.training", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slips", type=float, default=0.0, help="share of demonstrations with wrong steps, 0 to 1")
    parser.add_argument("--plans-only", action="store_true", help="intents and plans, not carried out in a browser")
    args = parser.parse_args()
    if not 0 <= args.slips <= 1:
        parser.error(f"--slips must be from 0 to 1, not {args.slips}")
    if args.count < 1:
        parser.error(f"--count must be at least 1, not {args.count}")
    try:
        if args.plans_only:
            _write_plans(args.file, args.count, args.seed)
        else:
            _record_all(args.file, args.count, args.seed, args.slips)
    except OSError as error:
        parser.error(f"{args.file}: {error.strerror or error}")
    except EnvError as error:
        parser.error(str(error))


def _write_plans(path: Path, count: int, seed: int) -> None:
    done, planner = recorded(path, plans_only=True), Planner()
    with path.open("a", encoding="utf-8") as file:
        for instance in instances(count, seed):
            if instance.task.task_id not in done:
                file.write(json.dumps(plan_row(instance, planner), ensure_ascii=False) + "\n")
    print(f"{path} holds the plans of {count} instances")


def _record_all(path: Path, count: int, seed: int, slips: float) -> None:
    from agentkv_envs.env import WebEnv

    done, failed, planner = recorded(path), 0, Planner()
    with path.open("a", encoding="utf-8") as file, WebEnv(screenshots=False) as env:
        for number, instance in enumerate(instances(count, seed), 1):
            if instance.task.task_id in done:
                continue
            try:
                file.write(json.dumps(record(env, instance, planner, slips), ensure_ascii=False) + "\n")
                file.flush()
            except EnvError as error:
                failed += 1
                print(str(error).partition("\n")[0])
            if number % 100 == 0:
                print(f"{number} instances, {failed} failed", flush=True)
    print(f"{failed} of {count} instances failed")


if __name__ == "__main__":
    main()
