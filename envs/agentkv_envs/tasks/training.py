"""Training instances: tasks of the families that may be trained on, in worlds whose names no test task knows.

    python -m agentkv_envs.tasks.training traces.jsonl --count 2000 --seed 0

writes one JSON object a line: the task, and the observation and action of every step of its oracle.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv_envs.errors import EnvError, TaskError
from agentkv_envs.sites import World, open_site
from agentkv_envs.tasks import families
from agentkv_envs.tasks.assemble import Spec, plan_task
from agentkv_envs.tasks.oracle import Env, carry_out
from agentkv_envs.types import Task

SUITE = "train"
PER_WORLD = 250
_SEEDS = 1000


@dataclass(frozen=True)
class Instance:
    """A training task and the data seed it must be run with; its `oracle` is a plan for `oracle.Pilot`."""

    task: Task
    data_seed: int


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
            for task in _drawn(world, databases, min(PER_WORLD, count - made)):
                if (key := normalised(task.intent)) not in seen:
                    seen.add(key)
                    made += 1
                    yield Instance(task, world.seed)
        if made >= count:
            return


def _open_all(world: World, stack: ExitStack) -> dict[str, sqlite3.Connection]:
    needed = sorted({site for name in names() for site in families.get(name).sites})
    sites = [open_site(name, world, {}) for name in needed]
    for site in sites:
        stack.callback(site.close)
    return {site.name: site.database for site in sites}


def _drawn(world: World, databases: dict[str, sqlite3.Connection], count: int) -> Iterator[Task]:
    """As many draws, the families in turn; those that find nothing in this world are passed over."""
    order = names()
    for number in range(count):
        name = order[number % len(order)]
        spec = Spec(f"train-{name}-{world.seed}-{number // len(order)}", name)
        try:
            yield plan_task(spec, world, databases, suite=SUITE)
        except TaskError:
            continue


def record(env: Env, instance: Instance) -> dict[str, Any]:
    """The oracle's way through an instance, for a file of demonstrations.

    Raises:
        EnvError: the plan fails, or does not solve the task.
    """
    task = instance.task
    trace = carry_out(env, task, task.oracle, instance.data_seed)
    if trace.score.success is not True:
        raise EnvError(f"the oracle of {task.task_id} does not solve it: {trace.score.note}")
    steps = [{"observation": s.text, "action": str(a)} for s, a in zip(trace.observations, trace.actions, strict=False)]
    extra = task.raw["agentkv"]
    return {
        "task_id": task.task_id,
        "family": extra["family"],
        "data_seed": instance.data_seed,
        "sites": list(task.sites),
        "intent": task.intent,
        "steps": steps,
    }


def main() -> None:
    """Entry point; see the module."""
    from agentkv_envs.env import WebEnv

    parser = argparse.ArgumentParser(prog="python -m agentkv_envs.tasks.training", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    failed = 0
    with WebEnv(screenshots=False) as env, args.file.open("w", encoding="utf-8") as file:
        for number, instance in enumerate(instances(args.count, args.seed), 1):
            try:
                file.write(json.dumps(record(env, instance), ensure_ascii=False) + "\n")
            except EnvError as error:
                failed += 1
                print(str(error).partition("\n")[0])
            if number % 100 == 0:
                print(f"{number} instances, {failed} failed", flush=True)
    print(f"{failed} of {args.count} instances failed")


if __name__ == "__main__":
    main()
