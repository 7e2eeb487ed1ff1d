"""Demonstrations with wrong steps: what may go wrong, how it is repaired, and that a recording goes on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from agentkv_envs import EnvError, Observation, WebEnv, parse_action
from agentkv_envs.tasks.slips import demonstrate, slips
from agentkv_envs.tasks.training import Planner, instances, main, record, recorded
from agentkv_envs.types import Action, Element

PLANNER = Planner()
PAGE = Observation(
    text="",
    url="http://127.0.0.1:1/",
    title="Shop",
    elements=(
        Element(1, "searchbox", "Search", 'searchbox "Search"'),
        Element(2, "link", "Red Kettle", 'link "Red Kettle"'),
        Element(3, "link", "Red Pan", 'link "Red Pan"'),
        Element(4, "button", "Delete everything", 'button "Delete everything"'),
        Element(5, "link", "Closed", 'link "Closed" disabled', disabled=True),
    ),
    alerts=(),
    tabs=("Shop",),
    style="label-first",
    page_key="p",
)


def test_a_slip_is_another_link_or_another_text_and_never_a_button() -> None:
    clicks = [str(action) for action in slips(Action("click", 2, "Red Kettle"), PAGE)]
    assert clicks == ['click "Red Pan" [3]']
    texts = [str(action) for action in slips(Action("type", 1, "Search", "Red Pan", True), PAGE)]
    assert texts == ['type "Search" [1] [Red Kettle] [1]']
    assert list(slips(Action("go_back"), PAGE)) == []
    assert list(slips(Action("stop", text=""), PAGE)) == []


def test_a_recording_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    assert recorded(file) == set()
    rows = [{"task_id": name, "plan": ["stop []"], "steps": [{}]} for name in ("a", "b")]
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    file.write_text(whole + '{"task_id": "c", "ste')
    assert recorded(file) == {"a", "b"}
    assert file.read_text() == whole
    with pytest.raises(EnvError, match="holds other rows than plans alone; name another file"):
        recorded(file, plans_only=True)
    # Of before there were plans: what is recorded again goes elsewhere.
    file.write_text(json.dumps({"task_id": "a", "steps": [{}]}) + "\n")
    with pytest.raises(EnvError, match="holds other rows than demonstrations with plans; name another file"):
        recorded(file)
    file.write_text("# notes\n")
    with pytest.raises(EnvError, match="no file of demonstrations"):
        recorded(file)
    assert file.read_text() == "# notes\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{folder}/none/traces.jsonl"], "No such file or directory"),
        (["{folder}"], "Is a directory"),
        (["{folder}/diary.txt"], "no file of demonstrations"),
        (["{folder}/t.jsonl", "--count", "-1"], "--count must be at least 1, not -1"),
        (["{folder}/t.jsonl", "--slips", "2"], "--slips must be from 0 to 1, not 2"),
    ],
)
def test_mistakes_of_a_recording_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    (tmp_path / "diary.txt").write_text("Dear diary\n")
    monkeypatch.setattr("sys.argv", ["training", *(argument.format(folder=tmp_path) for argument in arguments)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert (tmp_path / "diary.txt").read_text() == "Dear diary\n"


@pytest.mark.browser
def test_slips_are_repaired_and_the_task_is_solved() -> None:
    chosen = random.Random(1).sample(list(instances(62, seed=11)), 5)
    with WebEnv(screenshots=False) as env:
        rows = [record(env, instance, PLANNER, slips=1.0) for instance in chosen]
        plain = record(env, chosen[0], PLANNER)
        assert demonstrate(env, chosen[0].task, chosen[0].data_seed).score.success is True
    assert not any("wrong" in step for step in plain["steps"])
    assert any(step["action"] == "go_back" for row in rows for step in row["steps"])
    slipped = [row for row in rows if any(step.get("wrong") for step in row["steps"])]
    assert len(slipped) >= 3
    for row in slipped:
        steps = row["steps"]
        assert not steps[-1].get("wrong")
        for number in (n for n, step in enumerate(steps) if step.get("wrong")):
            wrong, repair = (parse_action(steps[n]["action"]).action for n in (number, number + 1))
            assert wrong is not None
            assert repair is not None
            if wrong.kind == "type":
                assert (repair.kind, repair.label) == ("type", wrong.label)
                assert repair.text != wrong.text
            elif repair.kind == "go_back":
                before, after = (steps[n]["observation"].split("\n")[0] for n in (number, number + 2))
                assert before == after


@pytest.mark.browser
def test_a_recording_says_which_step_needs_the_fact_slips_or_not() -> None:
    with_fact = [i for i in instances(62, seed=12) if i.uses is not None]
    chosen = random.Random(3).sample(with_fact, 3)
    moved = 0
    with WebEnv(screenshots=False) as env:
        for instance in chosen:
            assert instance.uses is not None
            planned = parse_action(instance.task.oracle[instance.uses]).action
            assert planned is not None
            numbers = []
            for slips_share in (0.0, 1.0):
                row = record(env, instance, PLANNER, slips_share)
                number = row["needle"]["used_step"]
                numbers.append(number)
                step = row["steps"][number - 1]
                taken = parse_action(step["action"]).action
                assert taken is not None
                assert not step.get("wrong")
                assert (taken.kind, taken.text) == (planned.kind, planned.text)
                pages = [" ".join(earlier["observation"].casefold().split()) for earlier in row["steps"][:number]]
                assert any(" ".join(row["needle"]["fact"].casefold().split()) in page for page in pages)
                assert row["needle"]["compared"] == instance.compared
            moved += numbers[0] != numbers[1]
    assert moved
