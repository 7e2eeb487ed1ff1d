"""Delta observations: lines that an earlier observation of the episode printed are referred to, not repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentkv_envs.types import Observation


class Delta:
    """Rewrites the observations of one episode, in their order.

    A run of lines that stood in the same order in the text of an earlier observation becomes
    `= lines 2-9 as in step 3`: step 0 is the first observation, lines are counted from 1 in the text of that step.
    The first line (`page: ...`) is always printed. A run is referred to only where that is shorter.
    """

    def __init__(self, count_tokens: Callable[[str], int]):
        self._count = count_tokens
        self._printed: dict[str, tuple[int, int]] = {}
        self._step = 0

    def apply(self, observation: Observation) -> Observation:
        """The same observation with a shorter text; its `full_text` keeps the whole one."""
        lines = observation.text.split("\n")
        out = [lines[0]]
        i = 1
        while i < len(lines):
            run = self._run(lines, i)
            reference = self._reference(lines[i], run)
            if run and self._count("\n".join(lines[i : i + run])) > self._count(reference):
                out.append(reference)
                i += run
            else:
                out.append(lines[i])
                i += 1
        for number, line in enumerate(out):
            if not line.startswith("= "):
                self._printed[line] = (self._step, number + 1)
        self._step += 1
        return replace(observation, text="\n".join(out), full_text=observation.text)

    def _run(self, lines: list[str], start: int) -> int:
        """How many lines from `start` on were printed one after the other in one earlier text."""
        first = self._printed.get(lines[start])
        length = 0
        while (
            first is not None
            and start + length < len(lines)
            and self._printed.get(lines[start + length]) == (first[0], first[1] + length)
        ):
            length += 1
        return length

    def _reference(self, line: str, run: int) -> str:
        step, number = self._printed.get(line, (0, 0))
        which = f"line {number}" if run < 2 else f"lines {number}-{number + run - 1}"
        return f"= {which} as in step {step}"
