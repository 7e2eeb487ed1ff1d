"""Files of demonstrations, as `python -m agentkv_envs.tasks.training` writes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.train.errors import TrainError
from agentkv_envs.tasks.oracle import plain


@dataclass(frozen=True)
class TraceStep:
    """One step: the page, what was done on it, and how that went.

    Attributes:
        wrong: whether it is a slip, which is shown and not learned.
        error: why the browser refused the action, None where it did not.
        plan_step: number, from 1, of the step of the plan that it is for; 0 where the file says nothing of plans.
    """

    observation: str
    action: str
    wrong: bool = False
    error: str | None = None
    plan_step: int = 0


@dataclass(frozen=True)
class TraceNeedle:
    """A fact that is seen and needed later.

    Attributes:
        kind: "code", "attribute" or "relation".
        fact: text of an observation before, which holds it.
        note: the fact as a sentence.
        used_step: number of the step that needs it, from 1.
        compared: what it follows from, where things are compared.
    """

    kind: str
    fact: str
    note: str
    used_step: int
    compared: str = ""

    @property
    def sentence(self) -> str:
        """What a note says: the fact, after what it follows from."""
        return f"{self.compared}; {self.note}" if self.compared else self.note


@dataclass(frozen=True)
class Trace:
    """One demonstration; without steps, of planning alone.

    Attributes:
        needle: the fact that must be remembered, where there is one and the file says when it is needed.
        plan: what can be told of its way before the first step; () where the file says nothing of plans.
        opened: titles of the tabs it begins with, the current one first.
    """

    task_id: str
    family: str
    intent: str
    style: str
    steps: tuple[TraceStep, ...]
    needle: TraceNeedle | None = None
    plan: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()

    @property
    def seen_step(self) -> int | None:
        """Number, from 1, of the last right step before the fact is needed whose page shows it; None without any."""
        if self.needle is None:
            return None
        fact, pages = plain(self.needle.fact), self.steps[: self.needle.used_step - 1]
        shown = (n for n, page in enumerate(pages, 1) if not page.wrong and fact in plain(page.observation))
        return max(shown, default=None)

    @property
    def has_slips(self) -> bool:
        """Whether there are wrong steps in it."""
        return any(step.wrong for step in self.steps)


def read_traces(files: Sequence[Path]) -> list[Trace]:
    """The demonstrations of all files, each task once.

    Raises:
        TrainError: a file or line that cannot be read, different styles, or nothing at all.
    """
    found: dict[str, Trace] = {}
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise TrainError(f"cannot read the traces {file}: {error}") from error
        for number, line in enumerate(lines, 1):
            trace = _trace(line, file, number)
            # A whole demonstration says more than its plan alone.
            if not (known := found.get(trace.task_id)) or (trace.steps and not known.steps):
                found[trace.task_id] = trace
    if not found:
        raise TrainError("the files hold no trace; record some with python -m agentkv_envs.tasks.training FILE")
    if len(styles := {trace.style for trace in found.values()}) > 1:
        raise TrainError(f"the traces are of different styles ({', '.join(sorted(styles))}); train on one of them")
    return list(found.values())


def _trace(line: str, file: Path, number: int) -> Trace:
    try:
        row = json.loads(line)
        fields = {name: _text(row[name]) for name in ("task_id", "family", "intent", "style")}
        plan, opened = _texts(row.get("plan", [])), _texts(row.get("open", []))
        steps = tuple(_step(step, len(plan)) for step in row["steps"])
        if plan and not opened:
            raise ValueError("it has a plan and does not say which tabs are open")
        needle = _needle(row.get("needle"), len(steps))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrainError(
            f"{file}, line {number} is no trace ({type(error).__name__}: {error}); if a recording was cut off there, "
            "run it again, it goes on"
        ) from error
    if not steps and not plan:
        raise TrainError(f"{file}, line {number}: the trace of {fields['task_id']} has no steps")
    if bare := next((n for n, step in enumerate(steps, 1) if not step.action.strip()), None):
        raise TrainError(f"{file}, line {number}: step {bare} of {fields['task_id']} has no action")
    return Trace(**fields, steps=steps, needle=needle, plan=plan, opened=opened)


def _step(row: Any, planned: int) -> TraceStep:
    number = row["plan_step"] if planned else 0
    if planned and not (type(number) is int and 1 <= number <= planned):
        raise ValueError(f"plan_step is {number!r}, of {planned} steps of the plan")
    wrong = bool(row.get("wrong", False))
    return TraceStep(_text(row["observation"]), _text(row["action"]), wrong, row.get("error"), number)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return tuple(_text(item) for item in value)


def _needle(row: Any, steps: int) -> TraceNeedle | None:
    if not row or row.get("used_step") is None:
        return None
    used = row["used_step"]
    if not isinstance(used, int) or not 1 <= used <= steps:
        raise ValueError(f"used_step is {used!r}, of {steps} steps")
    kind, fact, note = (_text(row[name]) for name in ("kind", "fact", "note"))
    return TraceNeedle(kind, fact, note, used, _text(row.get("compared", "")))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def digest(traces: Sequence[Trace]) -> str:
    """Sha256 over all that is trained on, in any order."""
    parts = sorted(hashlib.sha256(repr(trace).encode()).hexdigest() for trace in traces)
    return hashlib.sha256("".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Split:
    """Demonstrations to train on, and two sets to validate on: other families, and other tasks of the same families."""

    training: tuple[Trace, ...]
    unseen_families: tuple[Trace, ...]
    seen_families: tuple[Trace, ...]
    held_out: tuple[str, ...]


def split(traces: Sequence[Trace], families: int, seen: int, most: int) -> Split:
    """Hold some demonstrations out for validation. Which ones depends on their names alone, not on the others.

    Args:
        families: how many families to hold out whole.
        seen: how many demonstrations of the other families to hold out.
        most: the most demonstrations that validate unseen families; the rest of theirs is not used.

    Raises:
        TrainError: nothing would be left to train on, or to validate on.
    """
    # Planning is validated with the way that follows, if there are such traces at all.
    whole = [trace for trace in traces if trace.steps] or traces
    names = sorted({trace.family for trace in whole}, key=_lot)
    if not 0 < families < len(names):
        raise TrainError(
            f"--held-out {families} is not possible: the traces are of {len(names)} families; "
            "hold out at least one and leave at least one"
        )
    held_out = names[:families]
    ordered = sorted(whole, key=lambda trace: _lot(trace.task_id))
    plain = [trace for trace in ordered if not trace.has_slips]
    unseen = [trace for trace in plain if trace.family in held_out][:most]
    others = [trace for trace in plain if trace.family not in held_out][:seen]
    kept = {trace.task_id for trace in (*unseen, *others)}
    training = [t for t in traces if t.family not in held_out and t.task_id not in kept]
    if not training or not unseen:
        raise TrainError("there are too few traces to train and to validate; record more")
    return Split(tuple(training), tuple(unseen), tuple(others), tuple(sorted(held_out)))


def _lot(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
