"""Loading suites and task files, and the one line that says what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv_envs import EnvError, TaskError, WebEnv, bind, load_suite, load_task_file
from agentkv_envs.sites import World
from agentkv_envs.tasks.assemble import at_seed

GOOD: dict[str, Any] = {
    "task_id": 7,
    "sites": ["shopping"],
    "intent": "Say ok.",
    "start_url": "__SHOPPING__/",
    "eval": {"eval_types": ["string_match"], "reference_answers": {"exact_match": "ok"}},
    "comments": "unknown keys are ignored",
}


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_globs_choose_tasks_in_order() -> None:
    ids = [task.task_id for task in load_suite("vwa75:shopping-00[31],shopping-010")]
    assert ids == ["shopping-001", "shopping-003", "shopping-010"]
    assert len(load_suite("vwa75")) == 75


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("vwa99", "there is no suite 'vwa99'; there are vwa75"),
        ("vwa75:shoping-001", "no task matches 'shoping-001'; near: shopping-001"),
        ("vwa75:wiki-*", "no task matches 'wiki-*'; near: classifieds-001"),
        ("", "no suite is named; there are vwa75"),
        (" ", "no suite is named; there are vwa75"),
        ("vwa75: ,", "there is nothing after the colon"),
    ],
)
def test_unknown_names_list_what_there_is(spec: str, reason: str) -> None:
    with pytest.raises(TaskError) as caught:
        load_suite(spec)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_file_holds_one_task_or_many(tmp_path: Path) -> None:
    (task,) = load_task_file(write(tmp_path / "one.json", GOOD))
    assert (task.task_id, task.suite, task.oracle, task.horizon) == ("shopping-007", "file", (), "")
    other = {**GOOD, "task_id": "mine", "agentkv": {"oracle": ['click "Deals"', "stop [ok]"]}}
    tasks = load_task_file(write(tmp_path / "two.json", [GOOD, other]))
    assert [task.task_id for task in tasks] == ["shopping-007", "mine"]
    assert tasks[1].oracle == ('click "Deals"', "stop [ok]")


def changed(path: str, value: object) -> dict[str, Any]:
    """GOOD with the field at a dotted path set (None: removed)."""
    data = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    place = data
    for name in parents:
        place = place.setdefault(name, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


HTML = {"url": "last", "locator": "", "required_contents": {"must_include": ["x"]}}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("task_id", None, "is missing"),
        ("task_id", True, "must be a name or a number"),
        ("sites", None, "is missing"),
        ("sites", [], "must be a list of at least one text"),
        ("sites", ["reddit"], "there is no site 'reddit'; there are"),
        ("sites", ["shopping", "wiki", "shopping"], "'shopping' stands there twice"),
        ("image", "none.png", "there is no picture 'none.png' in the folder of the file"),
        ("image", ["../bad.json"], "there is no picture '../bad.json' in the folder of the file"),
        ("agentkv.files", ["pink-lamp.png"], "there is no file 'pink-lamp.png'; there are red-bicycle.png"),
        (
            "agentkv.reminder",
            {"site": "forum", "path": "/", "text": "x"},
            "the task has no site 'forum'; it has shopping",
        ),
        ("agentkv.eval_ext.http_trace", [{"path": "/", "site": "forum"}], "the task has no site 'forum'"),
        ("intent", "  ", "is empty"),
        ("intent", 3, "must be a text, not a number"),
        ("start_url", "shop", "must begin with a placeholder"),
        ("eval", [], "must be an object, not a list"),
        ("eval.eval_types", ["smell"], "unknown evaluator 'smell'"),
        ("eval.reference_answers", {}, "must be an object with one of exact_match"),
        ("eval.reference_answers", {"nearly": "x"}, "unknown key"),
        ("eval.reference_answers", {"must_include": [1]}, "must be a list of texts"),
        ("eval.eval_types", ["url_match"], "is missing"),
        ("eval.eval_types", ["program_html"], "must be a list of at least one target"),
        ("agentkv.oracle", ["jump"], "no action found"),
        ("agentkv.oracle", ["CLICK [3]", "stop []"], "write it as click [3]"),
        ("agentkv.oracle", ['click "Deals"'], "must end with stop"),
    ],
)
def test_errors_name_file_field_and_reason(tmp_path: Path, field: str, value: object, reason: str) -> None:
    path = write(tmp_path / "bad.json", [GOOD, changed(field, value)])
    with pytest.raises(TaskError) as caught:
        load_task_file(path)
    error = caught.value
    assert error.source == str(path)
    assert error.field.startswith("[1].")
    assert reason in error.reason
    assert "\n" not in str(error)
    assert isinstance(error, EnvError)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("x", "must be an object, not a text"),
        ({**HTML, "url": ""}, "is empty"),
        ({**HTML, "locator": 3}, "must be a text"),
        ({**HTML, "required_contents": {"exact_match": ["x"]}}, "must be a text"),
    ],
)
def test_program_targets_are_checked(tmp_path: Path, target: object, reason: str) -> None:
    data = changed("eval", {"eval_types": ["program_html"], "program_html": [HTML, target]})
    with pytest.raises(TaskError, match=r"eval\.program_html\[1\]") as caught:
        load_task_file(write(tmp_path / "bad.json", data))
    assert reason in caught.value.reason


def test_unreadable_files_are_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"a": \n')
    twice = write(tmp_path / "twice.json", [GOOD, GOOD])
    for path, reason in (
        (tmp_path / "none.json", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (broken, "is not JSON: Expecting value in line 2"),
        (write(tmp_path / "empty.json", []), "holds no tasks"),
        (write(tmp_path / "text.json", "task"), "a task must be an object, not a text"),
        (twice, "'shopping-007' stands there twice"),
    ):
        with pytest.raises(TaskError) as caught:
            load_task_file(path)
        assert reason in str(caught.value)


def test_binding_fills_every_text(tmp_path: Path) -> None:
    data = changed("agentkv.oracle", ['type "Code" [__CODE__] [1]', "stop [__CODE__]"])
    (task,) = load_task_file(
        write(tmp_path / "t.json", changed("intent", "Use __CODE__.") | {"agentkv": data["agentkv"]})
    )
    bound = bind(task, {"CODE": "FERN12", "SHOPPING": "http://127.0.0.1:1"})
    assert bound.intent == "Use FERN12."
    assert bound.start_url == "http://127.0.0.1:1/"
    assert bound.oracle[0] == 'type "Code" [FERN12] [1]'
    with pytest.raises(TaskError, match=r"shopping-007: intent: unknown placeholder __CODE__"):
        bind(task, {"SHOPPING": ""})


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("agentkv.split", "dev", "agentkv.split: there is no split 'dev'; there are test, train"),
        ("agentkv.files", 5, "agentkv.files: must be a list of at least one text"),
        ("agentkv.reminder", 5, "agentkv.reminder: must be an object, not a number"),
        ("agentkv.reminder", {"site": "shopping"}, "agentkv.reminder.path: is missing"),
        ("image", 5, "image: must be a text or a list of texts"),
        (
            "eval",
            {"eval_types": ["url_match"], "reference_url": "__SHOPPING__/ |OR| http://[x"},
            "'http://[x' is not an",
        ),
    ],
)
def test_what_would_break_an_episode_is_refused_on_loading(
    tmp_path: Path, path: str, value: object, reason: str
) -> None:
    key, _, inner = path.partition(".")
    data = {**GOOD, key: {inner: value} if inner else value}
    with pytest.raises(TaskError) as caught:
        load_task_file(write(tmp_path / "t.json", data))
    assert reason in str(caught.value)


def test_null_is_what_a_missing_key_is(tmp_path: Path) -> None:
    (task,) = load_task_file(write(tmp_path / "t.json", {**GOOD, "agentkv": None, "image": None}))
    assert (task.suite, task.split, task.images, task.external) == ("file", "test", (), False)


@pytest.mark.parametrize(("text", "reason"), [("[" * 100_000, "nested too deeply"), ("9" * 5000, "cannot be read")])
def test_json_that_python_gives_up_on_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TaskError, match=reason):
        load_task_file(path)


def test_a_copy_of_a_suites_task_is_the_users_own(tmp_path: Path) -> None:
    """It is not drawn again, which would undo its changes, nor counted as the suite's."""
    (shipped,) = load_suite("vwa75:shopping-001")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**shipped.raw, "intent": "Something else."}))
    (task,) = load_task_file(path)
    assert (task.suite, task.intent) == ("file", "Something else.")
    assert at_seed(task, World(0), []) is task
    with pytest.raises(TaskError, match=r"shopping-001.*data_seed.*holds the data of seed 0, not 3; use that seed"):
        at_seed(task, World(3), [])


@pytest.mark.parametrize("seed", ["x", "3", 1.5, True, None])
def test_a_seed_that_is_no_whole_number_is_refused(seed: Any) -> None:
    with pytest.raises(EnvError, match="the data seed must be a whole number, not"):
        World(seed)


def test_numbers_of_numpy_are_seeds() -> None:
    world = World(np.int64(3))  # type: ignore[arg-type]
    assert (world, type(world.seed)) == (World(3), int)


@pytest.mark.browser
def test_the_pictures_of_an_intent_must_be_there(env: WebEnv, tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(b"picture")
    there = ["mine.png", "__SHOPPING__/media/1.png"]
    (task,) = load_task_file(write(tmp_path / "t.json", {**GOOD, "image": there}))
    env.reset(task)
    (task,) = load_task_file(write(tmp_path / "t.json", {**GOOD, "image": [*there, "__SHOPPING__/media/0.png"]}))
    with pytest.raises(TaskError, match=r"shopping-007: image: cannot be read: http://127.0.0.1:\d+/media/0.png"):
        env.reset(task)
