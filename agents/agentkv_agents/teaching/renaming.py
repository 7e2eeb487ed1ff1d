"""Other names in demonstrations, so that names are learned to be copied, not to be known.

The training worlds have a few dozen makers and towns; who has read them a hundred times writes `Lagoon` for `Lantern`.
In a renamed demonstration every name, in task, plan, pages and actions alike, is another one, often made up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from agentkv.train.errors import TrainError
from agentkv_agents.teaching.traces import Trace, TraceNeedle
from agentkv_envs.tasks.proper_names import name_words, proper_words

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
    common, names, tests = _common_words(traces), proper_words("train"), name_words("test")
    found = []
    for trace in traces:
        draw = random.Random(f"names/{trace.task_id}")
        found.append(renamed(trace, names, tests, common, draw) if draw.random() < share else trace)
    return found


def renamed(
    trace: Trace, names: Collection[str], never: Collection[str], common: Sequence[str], draw: random.Random
) -> Trace:
    """A demonstration in which each of these names is another word, the same everywhere, in whatever case.

    Args:
        names: words in lower case.
        never: words in lower case that no name becomes.
        common: words of which some become names.
        draw: where chance comes from.
    """
    words = {word.lower() for text in _texts(trace) for word in _WORD.findall(text)}
    taken, others = {*words, *never}, dict[str, str]()
    for name in sorted(words & set(names)):
        others[name] = next(word for word in _new_words(common, draw) if word not in taken)
        taken.add(others[name])

    def other(found: re.Match[str]) -> str:
        new = others.get(found[0].lower())
        if new is None:
            return found[0]
        return new.capitalize() if found[0][0].isupper() else new

    def put(text: str) -> str:
        return _WORD.sub(other, text)

    steps = tuple(
        replace(step, observation=put(step.observation), action=put(step.action), error=step.error and put(step.error))
        for step in trace.steps
    )
    needle = trace.needle and _with_texts(trace.needle, put)
    return replace(
        trace, intent=put(trace.intent), steps=steps, needle=needle, plan=tuple(put(line) for line in trace.plan)
    )


def _with_texts(needle: TraceNeedle, put: Callable[[str], str]) -> TraceNeedle:
    return replace(needle, fact=put(needle.fact), note=put(needle.note), compared=put(needle.compared))


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
