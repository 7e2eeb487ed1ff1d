"""Other names in demonstrations: the same everywhere, none of the tests', and nothing else is touched."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from random import Random

import pytest

from agentkv.train.errors import TrainError
from agentkv_agents.teaching.leaks import check_leaks, test_text
from agentkv_agents.teaching.renaming import rename, renamed
from agentkv_agents.teaching.traces import Trace, TraceNeedle, TraceStep
from agentkv_envs.sites import World, open_site
from agentkv_envs.tasks.proper_names import name_words, proper_words
from agentkv_envs.tasks.training import Planner, instances, plan_row

TRACE = Trace(
    "t-1",
    "wish_for",
    "Order one Raven Toaster from Umberhaven; the ravenous raven. Then message nutmegrider.",
    "label-first",
    (
        TraceStep('link "Raven Toaster" [3] in Umberhaven\nHouse of ravens', 'click "Raven Toaster" [3]', plan_step=1),
        TraceStep("link nutmegrider", "stop []", error='no "Raven Toaster"', plan_step=2),
    ),
    TraceNeedle("attribute", "in Umberhaven", "the Raven Toaster is in Umberhaven.", 2, "Raven: Umberhaven"),
    ('click "Raven Toaster"', "stop []"),
    ("Brightcart",),
)
NAMES = {"raven", "umberhaven", "nutmegrider", "absent"}


def test_a_name_is_another_word_wherever_it_stands_and_the_rest_stays() -> None:
    other = renamed(TRACE, NAMES, {"spoon"}, ["spoon", "lamp"], Random(3))
    (new,) = set(re.findall(r"one (\w+) Toaster from", other.intent))
    town = other.intent.split("from ")[1].split(";")[0]
    member = other.intent.split()[-1].rstrip(".")
    assert new[0].isupper()
    assert town[0].isupper()
    assert member.islower()
    assert len({"raven", "umberhaven", "nutmegrider", "spoon", new.lower(), town.lower(), member}) == 7
    assert other.intent == f"Order one {new} Toaster from {town}; the ravenous {new.lower()}. Then message {member}."
    assert other.plan == (f'click "{new} Toaster"', "stop []")
    first, second = other.steps
    assert (first.observation, first.action) == (
        f'link "{new} Toaster" [3] in {town}\nHouse of ravens',
        f'click "{new} Toaster" [3]',
    )
    assert (second.observation, second.action, second.error) == (f"link {member}", "stop []", f'no "{new} Toaster"')
    assert other.needle == TraceNeedle(
        "attribute", f"in {town}", f"the {new} Toaster is in {town}.", 2, f"{new}: {town}"
    )
    assert other.seen_step == TRACE.seen_step
    assert (other.task_id, other.family, other.opened) == (TRACE.task_id, TRACE.family, TRACE.opened)


def test_no_two_names_become_one_and_none_a_word_that_is_there() -> None:
    for seed in range(200):
        other = renamed(TRACE, NAMES, {"spoon"}, ["toaster", "house", "spoon", "lamp"], Random(seed))
        words = re.findall(r"[A-Za-z]+", other.intent)
        assert len(set(words)) == len(set(re.findall(r"[A-Za-z]+", TRACE.intent)))
        assert "spoon" not in other.intent.lower()


def test_a_share_of_them_and_always_the_same() -> None:
    traces = [replace(TRACE, task_id=f"t-{n}") for n in range(400)]
    found = rename(traces, 0.25)
    changed = sum(one != other for one, other in zip(traces, found, strict=True))
    assert 70 < changed < 130
    assert rename(traces, 0.25) == found
    assert rename(traces, 0.0) == traces
    assert len({trace.intent for trace in rename(traces, 1.0)}) > 300, "names differ between demonstrations"


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(TrainError, match="--rename must be a share from 0 to 1"):
        rename([TRACE], share)


def plans(count: int) -> list[Trace]:
    planner = Planner()
    rows = [plan_row(instance, planner) for instance in instances(count, 5)]
    return [
        Trace(row["task_id"], row["family"], row["intent"], "label-first", (), None, tuple(row["plan"]), row["open"])
        for row in rows
    ]


def words_of(traces: list[Trace]) -> set[str]:
    return {word.lower() for trace in traces for word in re.findall(r"[A-Za-z]+", f"{trace.intent} {trace.plan}")}


def test_of_real_tasks_no_name_is_left_and_no_name_of_the_tests_comes_in() -> None:
    traces = plans(130)
    found = rename(traces, 1.0)
    for one, other in zip(traces, found, strict=True):
        # A common word may have become a name that another demonstration has.
        assert not words_of([one]) & words_of([other]) & proper_words("train")
    new = words_of(found) - words_of(traces)
    assert len(new) > 150
    assert not new & name_words("test")
    check_leaks(found, test_text())


@pytest.mark.parametrize("split", ["test", "train"])
def test_proper_words_are_those_of_the_data(split: str) -> None:
    with closing(open_site("classifieds", World(3, split), {})) as site:
        brands = {title.split()[0].lower() for (title,) in site.database.execute("SELECT title FROM listing")}
        people = {word.lower() for (name,) in site.database.execute("SELECT name FROM user") for word in name.split()}
    assert brands | people <= name_words(split)
    assert len((brands | people) - proper_words(split)) <= 4  # which are also coats and kites
    assert not {"winter", "drum", "kit", "coat", "delta", "red"} & proper_words(split)
    with closing(open_site("shopping", World(3, split), {})) as site:
        names = [name.lower().split() for (name,) in site.database.execute("SELECT name FROM product")]
    assert {name[0] for name in names} <= name_words(split)


def test_the_splits_share_few_of_them() -> None:
    test, train = proper_words("test"), proper_words("train")
    assert min(len(test), len(train)) > 300
    assert len(test & train) < 0.1 * len(test)
