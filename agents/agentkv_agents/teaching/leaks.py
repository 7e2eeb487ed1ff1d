"""Nothing of the test suite may be trained on: no intent, no name of a thing, no code that must be remembered.

Intents are compared without case and punctuation: whole, and by their runs of four words, so that 89% of tests with
one word changed are found as well. Tasks of both sides are put together from halves that they share, so some runs are
common: of 3,000 training intents, the nearest one to a test has 69% of its runs, and 80% are too many. Names are those
of the sites' data in the split "test", of two words or more: single ones ("Robin") are words of the language too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
_RUN, _TOO_MANY = 4, 0.8


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

    @cached_property
    def runs_of(self) -> dict[str, frozenset[_Words]]:
        """The runs of four words of each intent, by the task's name."""
        return {task: frozenset(_runs(_words(intent))) for intent, task in self.intents.items()}

    @cached_property
    def by_first(self) -> dict[str, set[_Words]]:
        """Names and codes by their first word."""
        found: dict[str, set[_Words]] = {}
        for run in self.runs:
            found.setdefault(run[0], set()).add(run)
        return found


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
    for trace in traces:
        if (task_id := test.intents.get(normalised(trace.intent))) is not None:
            raise TrainError(f"the trace {trace.task_id} has the intent of {task_id}, a test; train on training tasks")
        if (task_id := _nearly(trace.intent, test)) is not None:
            raise TrainError(
                f"the intent of the trace {trace.task_id} is nearly that of {task_id}, a test; train on training tasks"
            )
        texts = {line for step in trace.steps for line in (*step.observation.split("\n"), step.action)}
        for text in (trace.intent, *trace.plan, *sorted(texts)):
            found = _found(_words(text), test.by_first)
            if found is not None:
                raise TrainError(
                    f"the trace {trace.task_id} has {' '.join(found)!r}, which stands in the tests; "
                    "train on tasks of the split 'train'"
                )


def check_texts(texts: Mapping[str, str], test: TestText) -> None:
    """Raises TrainError if a test's intent, or nearly one, stands in running text; says in which.

    Names are not looked for: "old mill" may stand in any book.
    """
    for name, text in texts.items():
        task_id = _nearly(text, test)
        if task_id is not None:
            raise TrainError(
                f"the text {name} holds the intent of {task_id}, a test, or nearly so; train on other text"
            )


def _nearly(text: str, test: TestText) -> str | None:
    """The test of whose intent the text holds too many runs of words."""
    own = frozenset(_runs(_words(text)))
    for task_id, runs in test.runs_of.items():
        if runs and len(runs & own) >= _TOO_MANY * len(runs):
            return task_id
    return None


def _runs(words: _Words) -> Iterable[_Words]:
    return (words[at : at + _RUN] for at in range(len(words) - _RUN + 1))


def _found(words: _Words, by_first: dict[str, set[_Words]]) -> _Words | None:
    for at, word in enumerate(words):
        for run in by_first.get(word, ()):
            if words[at : at + len(run)] == run:
                return run
    return None


def _words(text: str) -> _Words:
    return tuple(normalised(text).split())
