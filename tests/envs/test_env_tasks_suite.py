"""What `vwa75` is made of, and that nothing of it stands in the training instances. No browser."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

import pytest

from agentkv_envs import Task, load_suite, parse_action
from agentkv_envs.sites import World, open_site
from agentkv_envs.tasks.assemble import at_seed
from agentkv_envs.tasks.manifest import VWA75
from agentkv_envs.tasks.oracle import length_class
from agentkv_envs.tasks.recording import draft_of
from agentkv_envs.tasks.training import Instance, instances, names, normalised

TASKS = load_suite("vwa75")
EXTRA = {task.task_id: task.raw["agentkv"] for task in TASKS}
VWA_FIELDS = {
    "sites", "task_id", "require_login", "storage_state", "start_url", "geolocation", "intent_template",
    "intent_template_id", "instantiation_dict", "intent", "image", "require_reset", "eval", "reasoning_difficulty",
    "visual_difficulty", "overall_difficulty", "comments",
}  # fmt: skip


COUNTS = [500, pytest.param(2000, marks=pytest.mark.full)]


@lru_cache(maxsize=2)
def training(count: int = 500) -> list[Instance]:
    return list(instances(count))


def originals() -> list[Task]:
    return [task for task in TASKS if EXTRA[task.task_id]["twin_of"] is None]


def test_there_are_25_tasks_a_site_and_12_across_sites() -> None:
    assert [task.task_id for task in TASKS] == sorted(VWA75)
    assert Counter(task.task_id.rpartition("-")[0] for task in TASKS) == dict.fromkeys(
        ("classifieds", "forum", "shopping"), 25
    )
    assert sum(len(set(task.sites) - {"home"}) > 1 for task in TASKS) == 12


def test_lengths() -> None:
    assert Counter(task.horizon for task in TASKS) == {"short": 20, "medium": 35, "long": 20}
    assert all(length_class(len(task.oracle)) == task.horizon == EXTRA[task.task_id]["horizon"] for task in TASKS)


def test_what_tasks_ask_for() -> None:
    assert sum(EXTRA[task.task_id]["changes_state"] for task in TASKS) >= 40
    assert sum(task.eval["reference_answers"] == {"exact_match": "N/A"} for task in TASKS) == 5
    kinds = {kind for task in TASKS for kind in task.eval["eval_types"]}
    assert kinds >= {"string_match", "url_match", "program_html", "db_state"}


def test_needles() -> None:
    kinds = Counter(e["needle"]["kind"] for e in EXTRA.values() if e["needle"] and e["twin_of"] is None)
    total = sum(kinds.values())
    assert 33 <= total <= 37
    assert kinds["code"] <= total / 3
    assert min(kinds["attribute"], kinds["relation"]) >= total / 3


def test_twins() -> None:
    twins = {name: extra for name, extra in EXTRA.items() if extra["twin_of"]}
    assert len(twins) == 15
    assert len({extra["twin_of"] for extra in twins.values()}) == 15
    for name, extra in twins.items():
        original = EXTRA[extra["twin_of"]]
        assert extra["oracle"] == original["oracle"], name
        assert 10 < len(extra["reminder"]["text"]) <= 150, "an alert is cut at 160 characters"
        assert original["reminder"] is None


def test_25_tasks_come_from_families_that_are_not_trained_on() -> None:
    held_out = [name for name, extra in EXTRA.items() if extra["held_out"]]
    assert len(held_out) == 25
    trained = {instance.task.raw["agentkv"]["family"] for instance in training()}
    assert not trained & {EXTRA[name]["family"] for name in held_out}
    assert trained >= {extra["family"] for extra in EXTRA.values() if not extra["held_out"]}


def test_lite_are_the_25_shortest() -> None:
    lite = load_suite("vwa75-lite")
    assert len(lite) == 25
    assert max(len(task.oracle) for task in lite) <= sorted(len(task.oracle) for task in TASKS)[24]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.task_id)
def test_tasks_are_well_formed(task: Task) -> None:
    assert set(task.raw) == VWA_FIELDS | {"agentkv"}
    extra = EXTRA[task.task_id]
    assert (extra["version"], extra["suite"], extra["split"]) == (1, "vwa75", "test")
    assert set(extra["needle"] or ()) <= {"kind", "fact", "first_seen_step", "used_step", "tokens_between"}
    filled = re.sub(r"\{\{(\w+)\}\}", lambda m: task.raw["instantiation_dict"][m.group(1)], task.raw["intent_template"])
    assert filled == task.intent
    assert all(parse_action(text).mode == "strict" for text in task.oracle)


def test_intents_differ() -> None:
    assert len({normalised(task.intent) for task in originals()}) == len(originals())


def test_another_data_seed_gives_as_many_tasks_again() -> None:
    drawn = {draft_of(spec, World(seed)).intent for seed in range(2) for spec in VWA75.values() if not spec.twin_of}
    assert len(drawn) > 1.9 * len(originals())


def test_the_suite_of_training_has_a_task_of_every_family_that_may_be_trained_on() -> None:
    tasks = load_suite("train")
    assert [task.raw["agentkv"]["family"] for task in tasks] == names()
    assert {(task.suite, task.split, task.raw["agentkv"]["held_out"]) for task in tasks} == {("train", "train", False)}
    assert load_suite("train:train-better_*,train-pickup_day")[0].task_id == "train-better_rated"
    # In another world everything is drawn again, and still solved by a plan.
    world = World(500, "train")
    (task,) = load_suite("train:train-better_rated")
    sites = [open_site(name, world, {}) for name in task.sites]
    again = at_seed(task, world, sites)
    for site in sites:
        site.close()
    assert again.intent != task.intent
    assert again.oracle[-1].startswith("stop")
    assert again.raw["agentkv"]["data_seed"] == 500


def test_a_plan_says_which_of_its_actions_needs_the_fact() -> None:
    (task,) = load_suite("train:train-deal_for_two")
    actions = [step for step in task.oracle if not step.startswith("read [")]
    needle = task.raw["agentkv"]["needle"]
    assert actions[needle["used_step"] - 1] == f'type "Discount code" [{needle["fact"]}] [1]'
    # Its length is that of its actions, too: with what it reads it would be a long one.
    assert (len(task.oracle), len(actions)) == (13, 12)
    assert task.horizon == task.raw["agentkv"]["horizon"] == "medium"


@pytest.mark.parametrize("count", COUNTS)
def test_training_instances_are_many_and_different(count: int) -> None:
    assert len(training(count)) == count
    assert len({normalised(i.task.intent) for i in training(count)}) == count
    assert {i.task.split for i in training(count)} == {"train"}


def test_training_instances_depend_on_the_seed_alone() -> None:
    assert [i.task.intent for i in instances(50, seed=4)] == [i.task.intent for i in instances(50, seed=4)]
    assert {i.task.intent for i in instances(50, seed=4)} != {i.task.intent for i in instances(50, seed=5)}


# Nothing of the tests stands in the training instances


@pytest.mark.parametrize("count", COUNTS)
def test_no_intent_stands_in_both(count: int) -> None:
    tested = {normalised(draft_of(spec, World(seed)).intent) for seed in range(2) for spec in VWA75.values()}
    assert not tested & {normalised(i.task.intent) for i in training(count)}


# Table and columns that hold names of things; what is common to both splits (kinds, colours, units) is not among them.
NAMES = {
    "classifieds": ("SELECT title FROM listing", "SELECT name FROM user", "SELECT name FROM place"),
    "forum": ("SELECT title FROM post", "SELECT name FROM user", "SELECT name FROM forum"),
    "home": ("SELECT title FROM notice",),
    "shopping": ("SELECT name FROM product", "SELECT brand FROM product"),
    "wiki": ("SELECT title FROM article",),
}


@lru_cache(maxsize=4)
def names_of(split: str) -> frozenset[tuple[str, str]]:
    """Names of things with their site; the same word may name a brand here and a person there."""
    found: set[tuple[str, str]] = set()
    for site, queries in NAMES.items():
        opened = open_site(site, World(0, split), {})
        for sql in queries:
            found |= {(site, str(row[0]).casefold()) for row in opened.database.execute(sql)}
        opened.close()
    return frozenset(found)


def test_no_name_of_a_thing_stands_in_both_splits() -> None:
    assert len(names_of("test")) > 1000
    assert not names_of("test") & names_of("train")


def triples(task: Task) -> set[tuple[str, str]]:
    """The named things of an intent with each fact or answer that belongs to them."""
    extra = task.raw["agentkv"]
    answers = [extra["needle"]["fact"]] if extra["needle"] else []
    answers += [text[6:-1] for text in extra["oracle"] if text.startswith("stop [") and text != "stop []"]
    things = {value.casefold() for value in task.raw["instantiation_dict"].values() if len(value) > 3}
    named = things & {name for _, name in names_of("test") | names_of("train")}
    return {(thing, answer.casefold()) for thing in named for answer in answers if answer != "N/A"}


@pytest.mark.parametrize("count", COUNTS)
def test_no_thing_with_its_answer_stands_in_both(count: int) -> None:
    tested = {triple for task in TASKS for triple in triples(task)}
    trained = {triple for instance in training(count) for triple in triples(instance.task)}
    assert tested
    assert trained
    assert not tested & trained
