"""Nothing of the test suite may be trained on: no intent, no name of a thing, no code that must be remembered.

Intents are compared whole, without case and punctuation. Names are those of the sites' data in the split "test", of two
words or more: single ones ("Robin") are words of the language too. Other runs of words are no sign of a leak: families
are put together from halves that they share, so that "and close that tab; once you know it, save the post" is common
to many tasks of both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentkv.train.errors import TrainError
from agentkv_agents.teaching.traces import Trace
from agentkv_envs import load_suite
from agentkv_envs.sites import World, open_site
from agentkv_envs.tasks.training import normalised

_SUITE = "vwa75"
# By site, what gives the names of things.
_NAMES = {
    "classifieds": ("SELECT title FROM listing", "SELECT name FROM user"),
    "forum": ("SELECT title FROM post", "SELECT name FROM user"),
    "home": ("SELECT title FROM notice",),
    "shopping": ("SELECT name FROM product",),
    "wiki": ("SELECT title FROM article",),
}
_Words = tuple[str, ...]


@dataclass(frozen=True)
class TestText:
    """What must not be met.

    Attributes:
        intents: normalised, with the task's name.
        runs: names and codes, word for word.
    """

    __test__ = False  # no test case, whatever its name

    intents: dict[str, str]
    runs: frozenset[_Words]


def test_text() -> TestText:
    """That of `vwa75`, from the suite's file and the sites' data; no browser."""
    tasks = load_suite(_SUITE)
    needles = [task.raw["agentkv"]["needle"] for task in tasks]
    codes = {_words(needle["fact"]) for needle in needles if needle and needle["kind"] == "code"}
    intents = {normalised(task.intent): task.task_id for task in tasks}
    return TestText(intents, frozenset({*_test_names(), *codes}))


test_text.__test__ = False  # type: ignore[attr-defined]


def _test_names() -> Iterable[_Words]:
    for site, queries in _NAMES.items():
        opened = open_site(site, World(0, "test"), {})
        try:
            for sql in queries:
                names = (_words(str(name)) for (name,) in opened.database.execute(sql))
                yield from (name for name in names if len(name) > 1)
        finally:
            opened.close()


def check_leaks(traces: Sequence[Trace], test: TestText) -> None:
    """Raises TrainError if any of it stands in a demonstration; says where and what."""
    by_first: dict[str, set[_Words]] = {}
    for run in test.runs:
        by_first.setdefault(run[0], set()).add(run)
    for trace in traces:
        if (task_id := test.intents.get(normalised(trace.intent))) is not None:
            raise TrainError(f"the trace {trace.task_id} has the intent of {task_id}, a test; train on training tasks")
        texts = {line for step in trace.steps for line in (*step.observation.split("\n"), step.action)}
        for text in (trace.intent, *sorted(texts)):
            found = _found(_words(text), by_first)
            if found is not None:
                raise TrainError(
                    f"the trace {trace.task_id} has {' '.join(found)!r}, which stands in the tests; "
                    "train on tasks of the split 'train'"
                )


def _found(words: _Words, by_first: dict[str, set[_Words]]) -> _Words | None:
    for at, word in enumerate(words):
        for run in by_first.get(word, ()):
            if words[at : at + len(run)] == run:
                return run
    return None


def _words(text: str) -> _Words:
    return tuple(normalised(text).split())
