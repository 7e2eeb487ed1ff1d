"""Other names in demonstrations, so that names are learned to be copied, not to be known.

The training worlds have a few dozen makers and towns; who has read them a hundred times writes `Lagoon` for `Lantern`.
In a renamed demonstration every name, in task, plan, pages and actions alike, is another one, often made up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from agentkv.train.errors import TrainError
from agentkv_agents.teaching.traces import Trace
from agentkv_envs.tasks.proper_names import proper_words

_WORD = re.compile(r"[A-Za-z]+")
_ONSETS = (
    *("b", "br", "c", "cl", "d", "dr", "f", "g", "gr", "h", "k", "l"),
    *("m", "n", "p", "pl", "r", "s", "st", "t", "tr", "v", "w"),
)
_NUCLEI = ["a", "e", "i", "o", "u", "ai", "ea", "oo"]
_CODAS = ("", "", "", *["ck", "d", "l", "m", "n", "nd", "r", "rn", "s", "st", "t", "x"])
_MADE_UP = 0.5
"""How often a name is made up of syllables; else it is a common word of the pages."""


def rename(traces: Sequence[Trace], share: float) -> list[Trace]:
    """The demonstrations, a share of them with other names; which and what names follows from their ids.

    Raises:
        TrainError: the share is none.
    """
    if not 0 <= share <= 1:
        raise TrainError(f"--rename must be a share from 0 to 1, not {share}")
    if not share:
        return list(traces)
    # What is new is no name of the tests.
    tests = {word.casefold() for word in proper_words("test")}
    common, names = [word for word in _common_words(traces) if word not in tests], proper_words("train")
    found = []
    for trace in traces:
        draw = random.Random(f"names/{trace.task_id}")
        found.append(renamed(trace, names, common, draw) if draw.random() < share else trace)
    return found


def renamed(trace: Trace, names: Collection[str], common: Sequence[str], draw: random.Random) -> Trace:
    """A demonstration in which each of these names is another word, the same everywhere.

    Args:
        names: words, as they are written.
        common: words of which some become names.
        draw: where chance comes from.
    """
    words = {word for text in _texts(trace) for word in _WORD.findall(text)}
    taken, others = {word.casefold() for word in words}, dict[str, str]()
    for name in sorted(words & set(names)):
        other = next(word for word in _new_words(common, draw) if word not in taken)
        taken.add(other)
        others[name] = other.capitalize() if name[0].isupper() else other

    def put(text: str) -> str:
        return _WORD.sub(lambda found: others.get(found[0], found[0]), text)

    steps = tuple(
        replace(step, observation=put(step.observation), action=put(step.action), error=step.error and put(step.error))
        for step in trace.steps
    )
    needle = trace.needle and replace(trace.needle, fact=put(trace.needle.fact), note=put(trace.needle.note))
    return replace(
        trace, intent=put(trace.intent), steps=steps, needle=needle, plan=tuple(put(line) for line in trace.plan)
    )


def _texts(trace: Trace) -> Iterator[str]:
    yield trace.intent
    yield from trace.plan
    for step in trace.steps:
        yield step.observation
        yield step.action


def _common_words(traces: Sequence[Trace]) -> list[str]:
    """Words in lower case, of four to eight letters, that stand on the pages or in the tasks."""
    words = {word for trace in traces for text in _texts(trace) for word in _WORD.findall(text)}
    return sorted(word for word in words if word.islower() and 4 <= len(word) <= 8)


def _new_words(common: Sequence[str], draw: random.Random) -> Iterator[str]:
    while True:
        if common and draw.random() >= _MADE_UP:
            yield draw.choice(common)
        else:
            yield "".join(_syllable(draw) for _ in range(draw.choice((2, 2, 3))))


def _syllable(draw: random.Random) -> str:
    return draw.choice(_ONSETS) + draw.choice(_NUCLEI) + draw.choice(_CODAS)
