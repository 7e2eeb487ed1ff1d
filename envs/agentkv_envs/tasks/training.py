"""Training instances: tasks of the families that may be trained on, in worlds whose names no test task knows.

    python -m agentkv_envs.tasks.training traces.jsonl --count 2000 --seed 0 --slips 0.2

writes one JSON object a line: the task, and the observation and action of every step of its oracle; a fifth of the
demonstrations hold wrong steps and their repair. What the file holds already is kept, so that the same command goes on
where it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import random
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
from agentkv_envs.tasks.assemble import Spec, as_task, draw, plan_task, task_json
from agentkv_envs.tasks.oracle import Env
from agentkv_envs.tasks.slips import Demonstration, Taken, demonstrate
from agentkv_envs.types import Task

SUITE = "train"
PER_WORLD = 250
_SEEDS = 1000
_TRIES = 3


@dataclass(frozen=True)
class Instance:
    """A training task and the data seed it must be run with; its `oracle` is a plan for `oracle.Pilot`.

    Attributes:
        note: the fact that must be remembered, as a sentence; "" where there is none.
        uses: which step of the plan needs that fact.
    """

    task: Task
    data_seed: int
    note: str = ""
    uses: int | None = None


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
        note = "" if draft.needle is None else draft.needle.note
        uses = next((n for n, step in enumerate(draft.plan) if step.uses), None)
        yield Instance(as_task(task_json(spec, draft, world, plan, suite=SUITE)), world.seed, note, uses)


def record(env: Env, instance: Instance, slips: float = 0.0) -> dict[str, Any]:
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
    return {
        "task_id": task.task_id,
        "family": extra["family"],
        "data_seed": instance.data_seed,
        "sites": list(task.sites),
        # With the placeholders filled in, as the agent is told it.
        "intent": (env.task or task).intent,
        "needle": extra["needle"]
        and {**extra["needle"], "note": instance.note, "used_step": None if used is None else used + 1},
        "style": shown.steps[0].observation.style,
        "steps": [_step_row(step) for step in shown.steps],
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


def _step_row(step: Taken) -> dict[str, Any]:
    """Observation and action; `wrong` and `error` only where they say something."""
    row: dict[str, Any] = {"observation": step.observation.text, "action": str(step.action)}
    if step.wrong:
        row["wrong"] = True
    if step.error is not None:
        row["error"] = step.error
    return row


def recorded(file: Path) -> set[str]:
    """Ids of the tasks whose demonstrations a file holds; half a line at its end, of a write that was cut off, goes.

    Raises:
        EnvError: it holds something else.
    """
    if not file.exists():
        return set()
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    try:
        done = {str(json.loads(line)["task_id"]) for line in whole.splitlines()}
    except (ValueError, KeyError, TypeError):
        raise EnvError(f"{file} is no file of demonstrations; name another one") from None
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
    args = parser.parse_args()
    if not 0 <= args.slips <= 1:
        parser.error(f"--slips must be from 0 to 1, not {args.slips}")
    if args.count < 1:
        parser.error(f"--count must be at least 1, not {args.count}")
    try:
        _record_all(args.file, args.count, args.seed, args.slips)
    except OSError as error:
        parser.error(f"{args.file}: {error.strerror or error}")
    except EnvError as error:
        parser.error(str(error))


def _record_all(path: Path, count: int, seed: int, slips: float) -> None:
    from agentkv_envs.env import WebEnv

    done, failed = recorded(path), 0
    with path.open("a", encoding="utf-8") as file, WebEnv(screenshots=False) as env:
        for number, instance in enumerate(instances(count, seed), 1):
            if instance.task.task_id in done:
                continue
            try:
                file.write(json.dumps(record(env, instance, slips), ensure_ascii=False) + "\n")
                file.flush()
            except EnvError as error:
                failed += 1
                print(str(error).partition("\n")[0])
            if number % 100 == 0:
                print(f"{number} instances, {failed} failed", flush=True)
    print(f"{failed} of {count} instances failed")


if __name__ == "__main__":
    main()
