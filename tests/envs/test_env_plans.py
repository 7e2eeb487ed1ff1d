"""What of a plan can be told before its first step, and what only its pages tell."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkv_envs import parse_action
from agentkv_envs.tasks.draft import Draft, Step
from agentkv_envs.tasks.oracle import plain
from agentkv_envs.tasks.plans import UNKNOWN, Foresight, actions
from agentkv_envs.tasks.training import Planner, instances, main, opened, plan_row, plan_step_of


def draft(template: str, values: dict[str, str], *plan: str) -> Draft:
    steps = tuple(Step(text) for text in plan)
    return Draft(template, values, ("__SHOPPING__/",), {}, steps)


def cheapest(kind: str, found: str) -> Draft:
    """Of a kind: what is found cannot be told, all else can."""
    values = {"kind": kind}
    return draft(
        "Open the cheapest {{kind}}.",
        values,
        f'type "Search" [{kind}] [1]',
        'click "Cheapest"',
        f"read [{found}]",
        f'click "{found}"',
        "stop []",
    )


def better(one: str, other: str, choice: str) -> Draft:
    """Of two things that the intent names: which of them it is cannot be told."""
    return draft(
        "Save {{one}} or {{other}}, whichever is better.",
        {"one": one, "other": other},
        f'click "{choice}"',
        'click "Save"',
        "stop []",
    )


KINDS = [cheapest(f"kind {n}", f"Thing {n}") for n in range(6)]
CHOICES = [better(f"A{n}", f"B{n}", f"{'AB'[n % 2]}{n}") for n in range(6)]


def test_what_the_intent_names_and_what_never_changes_is_told() -> None:
    told = Foresight(KINDS).outline(cheapest("kite", "Red Kite"))
    assert told == ('type "Search" [kite] [1]', 'click "Cheapest"', 'click "?"', "stop []")


def test_a_choice_between_two_named_things_is_not_told() -> None:
    assert Foresight(CHOICES).outline(better("X", "Y", "Y")) == ('click "?"', 'click "Save"', "stop []")


@pytest.mark.parametrize("answer", ["N/A", "4.2", "Red Kite"])
def test_an_answer_is_never_told(answer: str) -> None:
    drafts = [draft("What is it?", {}, f"stop [{answer}]") for _ in range(6)]
    assert Foresight(drafts).outline(drafts[0]) == ("stop [?]",)


def test_of_a_plan_that_nothing_is_compared_with_little_is_told() -> None:
    alone = Foresight([]).outline(cheapest("kite", "Red Kite"))
    assert alone == ('type "?" [?] [1]', 'click "?"', 'click "?"', "stop []")


def test_templates_are_told_apart_where_there_are_enough_drafts_of_each() -> None:
    """Which button it is follows from the wording, and the wording is the template."""
    drafts = [draft(f"{verb} it.", {}, f'click "{verb}"', "stop []") for verb in ("Save", "Hide") for _ in range(4)]
    assert Foresight(drafts).outline(drafts[0]) == ('click "Save"', "stop []")
    # With too few of each, all drafts are compared, and they differ.
    assert Foresight(drafts[2:6]).outline(drafts[0]) == ('click "?"', "stop []")


def test_what_a_plan_reads_is_no_action() -> None:
    assert [action.kind for action in actions(KINDS[0].plan)] == ["type", "click", "click", "stop"]


@pytest.mark.parametrize(("index", "number"), [(0, 1), (1, 2), (2, 2), (3, 3), (4, 3), (5, 4)])
def test_a_step_is_for_the_first_of_the_plan_that_is_not_behind_it(index: int, number: int) -> None:
    # Steps 0, 2 and 4 are those of the plan; 1 and 3 turned pages or were slips.
    assert plan_step_of(index, [0, 2, 4]) == number


def test_a_part_of_a_named_thing_is_told_if_it_is_always_of_the_same_one() -> None:
    def with_part(one: str, other: str, part: str) -> Draft:
        return draft("Of {{one}} and {{other}} ...", {"one": one, "other": other}, f'click "{part}"', "stop []")

    same = [with_part(f"A{n} deluxe", f"B{n} deluxe", f"A{n}") for n in range(6)]
    either = [with_part(f"A{n} deluxe", f"B{n} deluxe", f"{'AB'[n % 2]}{n}") for n in range(6)]
    assert Foresight(same).outline(same[0])[0] == 'click "A0"'
    assert Foresight(either).outline(either[0])[0] == 'click "?"'


def test_a_step_that_is_no_action_is_named() -> None:
    with pytest.raises(ValueError, match="'shrug', a step of a plan, is no action"):
        actions([Step("shrug")])


def test_plans_of_training_tasks_tell_what_the_intent_or_every_such_task_does() -> None:
    planner, unknown = Planner(), 0
    chosen = list(instances(62, seed=13))
    elsewhere = defaultdict(set)
    for instance in (*instances(62, seed=14), *instances(62, seed=15)):
        arguments = (text for a in actions(instance.draft.plan) for text in (a.label, a.text) if text)
        elsewhere[instance.task.raw["agentkv"]["family"]].update(map(plain, arguments))
    for instance in chosen:
        row = plan_row(instance, planner)
        assert row["open"][0] in ("Brightcart", "Doorstep", "Commonroom", "Fieldbook", "Townboard")
        whole = actions(instance.draft.plan)
        assert len(whole) == len(row["plan"])
        for action, text in zip(whole, row["plan"], strict=True):
            told = parse_action(text).action
            assert told is not None
            assert told.kind == action.kind
            assert told.label in (action.label, UNKNOWN)
            assert told.text in (action.text, UNKNOWN)
            for argument in filter(None, (told.label, told.text)):
                known = argument == UNKNOWN or plain(argument) in plain(instance.task.intent)
                assert known or plain(argument) in elsewhere[row["family"]], (instance.task.intent, argument)
            unknown += UNKNOWN in (told.label, told.text)
        needle = instance.draft.needle
        if needle is not None:
            # Where the fact is needed the plan is open, so it may be recalled there.
            acting = [step for step in instance.draft.plan if not step.reads]
            (at,) = (number for number, step in enumerate(acting) if step.uses)
            needed = parse_action(row["plan"][at]).action
            assert needed is not None
            assert UNKNOWN in (needed.label, needed.text)
        if needle is not None and needle.kind == "code":
            code = actions([step for step in instance.draft.plan if step.uses])[0].text
            assert code is not None
            assert plain(code) not in plain(" ".join(row["plan"]))
    assert unknown > len(chosen) / 3


def test_plans_are_written_without_a_browser_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plans.jsonl"

    def write(count: int) -> Sequence[str]:
        monkeypatch.setattr("sys.argv", ["training", str(file), "--count", str(count), "--plans-only"])
        main()
        return file.read_text().splitlines()

    first, more = write(3), write(5)
    assert (len(first), list(more[:3])) == (3, list(first))
    assert len({json.loads(line)["task_id"] for line in more}) == 5
    for line in more:
        row = json.loads(line)
        assert row["steps"] == []
        assert row["plan"][-1].startswith("stop [")


def test_tabs_are_named_as_their_first_pages_are() -> None:
    starts = {instance.task.raw["start_url"]: opened(instance.task) for instance in instances(62, seed=13)}
    assert starts["__WIKI__/ |AND| __SHOPPING__/"] == ("Fieldbook", "Brightcart")
    assert starts["__HOME__/"] == ("Townboard",)


def test_what_a_relation_follows_from_is_read_on_the_way() -> None:
    """Both values stand on pages of the way, and the thing that is then used is one of the two."""
    families = set()
    for instance in filter(lambda instance: instance.compared, instances(186, seed=14)):
        read = [step.text for step in instance.draft.plan if step.reads]
        shown = [text.rsplit(": ", 1) for text in instance.compared.split("; ")]
        assert len(shown) == 2
        family = instance.task.raw["agentkv"]["family"]
        if family == "better_rated":  # both stand on one page
            shown.sort(key=lambda one: -float(one[1]))
            assert instance.note.startswith(f"the {shown[0][0]} is rated better")
        assert all(value in text for (_, value), text in zip(shown, read, strict=True))
        (used,) = actions([step for step in instance.draft.plan if step.uses])
        assert any(str(used.text) in thing for thing, _ in shown)
        families.add(family)
    assert families == {
        "better_rated", "better_seller", "compared_for_comment", "compared_for_note", "earlier_meeting",
        "lighter_of_two", "longer_thing", "newer_of_two",
    }  # fmt: skip
