"""Reading demonstrations, holding some out, and refusing what belongs to the tests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from teach_helpers import CLICK, row, trace, write

from agentkv.train.errors import TrainError
from agentkv_agents.teaching.leaks import TestText, check_leaks, check_texts, test_text
from agentkv_agents.teaching.traces import Trace, TraceStep, digest, read_traces, split
from agentkv_envs import load_suite
from agentkv_envs.sites import World, open_site
from agentkv_envs.sites.classifieds import vocabulary as ad_words
from agentkv_envs.sites.shopping import vocabulary as shop_words
from agentkv_envs.tasks.training import instances

FAMILIES = ("shop", "forum", "ads", "wiki", "home")


@pytest.fixture(scope="module")
def tests_text() -> TestText:
    return test_text()


NEEDLE = {"kind": "relation", "fact": "A", "note": "A is more.", "used_step": 2}


def many(count: int = 20) -> list[dict[str, Any]]:
    return [row(number, family) for family in FAMILIES for number in range(count)]


def test_files_are_read_and_each_task_is_taken_once(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", [row(1), row(2)])
    second = write(tmp_path / "b.jsonl", [row(2), row(3)])
    found = read_traces([first, second])
    assert [t.task_id for t in found] == ["t-shop-1", "t-shop-2", "t-shop-3"]
    assert found[0].steps[0] == TraceStep('page: Shop 1\nlink "red kettle" [2] $1', CLICK, plan_step=1)
    assert digest(found) == digest(found[::-1]) != digest(found[:2])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"task_id": "t-shop-1", "fam', "line 2 is no trace.*run it again, it goes on"),
        ("[]", "line 2 is no trace"),
        ('{"task_id": 3, "family": "f", "intent": "i", "style": "vwa", "steps": []}', "line 2 is no trace"),
        ('{"task_id": "t", "family": "f", "intent": "i", "style": "label-first", "steps": []}', "t has no steps"),
        (json.dumps(row(2, plan="click")), "line 2 is no trace .TypeError: .click. is no list"),
        (json.dumps(row(2, plan=[3])), "line 2 is no trace .TypeError: 3 is no text"),
        (json.dumps(row(2, open=[])), "does not say which tabs are open"),
        (json.dumps(row(2, plan=["stop []"])), "plan_step is 2, of 1 steps of the plan"),
        (json.dumps(row(2, needle={"kind": "code", "note": "n", "used_step": 2})), "no trace .KeyError: 'fact'"),
        (json.dumps(row(2, needle={"kind": "code", "fact": "f", "used_step": 2})), "no trace .KeyError: 'note'"),
        (json.dumps(row(2, needle={**NEEDLE, "compared": 3})), "no trace .TypeError: 3 is no text"),
    ],
)
def test_a_line_that_is_no_trace_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = write(tmp_path / "a.jsonl", [row(1)])
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(TrainError, match=said):
        read_traces([file])


def test_what_is_compared_is_optional_and_is_trained_on(tmp_path: Path) -> None:
    sentences, digests = [], set()
    for more in ({}, {"compared": ""}, {"compared": "A: 3; B: 2"}):
        found = read_traces([write(tmp_path / "a.jsonl", [row(1, needle=NEEDLE | more)])])
        assert found[0].needle is not None
        sentences.append(found[0].needle.sentence)
        digests.add(digest(found))
    assert sentences == ["A is more.", "A is more.", "A: 3; B: 2; A is more."]
    assert len(digests) == 2


@pytest.mark.parametrize("first", ["plans", "whole"])
def test_a_whole_demonstration_goes_before_its_plan_alone(tmp_path: Path, first: str) -> None:
    plans = write(tmp_path / "plans.jsonl", [row(1, steps=[]), row(2, steps=[])])
    whole = write(tmp_path / "whole.jsonl", [row(1)])
    found = read_traces([plans, whole] if first == "plans" else [whole, plans])
    assert {trace.task_id: len(trace.steps) for trace in found} == {"t-shop-1": 2, "t-shop-2": 0}


def test_files_that_are_missing_empty_or_of_two_styles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="cannot read the traces"):
        read_traces([tmp_path / "none.jsonl"])
    with pytest.raises(TrainError, match="hold no trace"):
        read_traces([write(tmp_path / "a.jsonl", [])])
    with pytest.raises(TrainError, match=r"different styles .label-first, vwa."):
        read_traces([write(tmp_path / "b.jsonl", [row(1), row(2, style="vwa")])])


def test_families_are_held_out_whole_and_slips_do_not_validate(tmp_path: Path) -> None:
    rows = many()
    slip = {"observation": "page: x", "action": CLICK, "plan_step": 1, "wrong": True}
    for r in rows[::2]:
        r["steps"] = [slip, *r["steps"]]
    parts = split(read_traces([write(tmp_path / "a.jsonl", rows)]), families=2, seen=7, most=15)
    assert {t.family for t in parts.unseen_families} == set(parts.held_out)
    assert not {t.family for t in (*parts.training, *parts.seen_families)} & set(parts.held_out)
    assert (len(parts.held_out), len(parts.unseen_families), len(parts.seen_families)) == (2, 15, 7)
    assert len(parts.training) == 3 * 20 - 7
    assert any(t.has_slips for t in parts.training)
    assert not any(t.has_slips for t in (*parts.unseen_families, *parts.seen_families))


def test_more_traces_move_none_from_validation_to_training(tmp_path: Path) -> None:
    few = split(read_traces([write(tmp_path / "a.jsonl", many(10))]), 2, 5, 100)
    more = split(read_traces([write(tmp_path / "b.jsonl", many(20))]), 2, 5, 100)
    assert few.held_out == more.held_out
    assert set(few.unseen_families) <= set(more.unseen_families)


@pytest.mark.parametrize("families", [0, 5, 6])
def test_holding_out_no_family_or_all_is_refused(tmp_path: Path, families: int) -> None:
    traces = read_traces([write(tmp_path / "a.jsonl", many(3))])
    with pytest.raises(TrainError, match=f"--held-out {families} is not possible: the traces are of 5 families"):
        split(traces, families, 3, 3)


# Nothing of the tests is trained on


def as_traces(count: int) -> list[Trace]:
    return [trace(TraceStep("page: x", "stop []"), intent=i.task.intent) for i in instances(count)]


def test_training_instances_hold_nothing_of_the_tests(tests_text: TestText) -> None:
    check_leaks(as_traces(500), tests_text)


def test_brands_of_one_site_are_no_brands_of_another_sites_tests() -> None:
    """Of two words a product's name may be whole (`Breeze Keyboard`), and an ad's title begin with them."""
    shop, ads = shop_words.VOCABULARIES, ad_words.VOCABULARIES
    assert not {brand for group in shop["test"].brands for brand in group} & set(ads["train"].brands)


def test_a_test_is_found_in_a_plan(tests_text: TestText) -> None:
    name = " ".join(next(iter(tests_text.runs)))
    planned = replace(trace(TraceStep("page: x", "stop []"), name="p"), plan=(f'click "{name}"',))
    with pytest.raises(TrainError, match="the trace p has"):
        check_leaks([planned], tests_text)


@pytest.mark.parametrize("task", load_suite("vwa75")[::5], ids=lambda task: task.task_id)
def test_the_intent_of_a_test_is_found_however_it_is_written(tests_text: TestText, task: Any) -> None:
    shouted = task.intent.upper().replace(".", " !").replace(" ", "  ")
    with pytest.raises(TrainError, match=r"t has the intent of \w+-\d+, a test"):
        check_leaks([*as_traces(3), trace(TraceStep("page: x", "stop []"), intent=shouted)], tests_text)


@pytest.mark.parametrize("task", load_suite("vwa75")[::5], ids=lambda task: task.task_id)
def test_a_test_with_a_word_changed_is_found_by_its_runs(tests_text: TestText, task: Any) -> None:
    changed = " ".join([*task.intent.split()[:-1], "tomorrow"])
    with pytest.raises(TrainError, match=r"the intent of the trace t is nearly that of \w+-\d+, a test"):
        check_leaks([trace(TraceStep("page: x", "stop []"), intent=changed)], tests_text)
    with pytest.raises(TrainError, match=r"the text book.txt holds the intent of \w+-\d+, a test, or nearly so"):
        check_texts({"book.txt": f"It was night. {changed} He slept.", "other.txt": ""}, tests_text)
    check_texts({"book.txt": "It was a dark and stormy night, and nobody bought anything at all."}, tests_text)


@pytest.mark.parametrize(
    ("site", "sql"),
    [
        ("shopping", "SELECT name FROM product"),
        ("classifieds", "SELECT title FROM listing"),
        ("forum", "SELECT title FROM post"),
        ("wiki", "SELECT title FROM article"),
    ],
)
def test_the_name_of_a_thing_is_found_on_a_page_and_in_an_action(tests_text: TestText, site: str, sql: str) -> None:
    opened = open_site(site, World(0, "test"), {})
    names = [name for (name,) in opened.database.execute(sql) if len(name.split()) > 1]
    opened.close()
    for name in names[:: max(1, len(names) // 10)]:
        on_page = TraceStep(f'page: Shop\nlink "{name}" [4] $25', "stop []")
        in_action = TraceStep("page: Shop", f'type "Search" [2] [{name.lower()}] [1]')
        for step in (on_page, in_action):
            with pytest.raises(TrainError, match="which stands in the tests"):
                check_leaks([trace(step)], tests_text)


def test_a_code_that_must_be_remembered_is_found(tests_text: TestText) -> None:
    needles = [task.raw["agentkv"]["needle"] for task in load_suite("vwa75")]
    codes = [needle["fact"] for needle in needles if needle and needle["kind"] == "code"]
    assert codes
    for code in codes:
        with pytest.raises(TrainError, match="which stands in the tests"):
            check_leaks([trace(TraceStep(f"page: Note\nThe code is {code}.", "stop []"))], tests_text)
