"""Checking a task's JSON: every error names the field and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentkv_envs.actions import parse_action
from agentkv_envs.errors import TaskError
from agentkv_envs.sites import SITE_NAMES
from agentkv_envs.types import Task

EVAL_TYPES = ("string_match", "url_match", "program_html", "page_image_query")
ANSWER_KEYS = ("exact_match", "must_include", "must_exclude", "one_of", "required_values", "fuzzy_match")
CONTENT_KEYS = ("exact_match", "must_include", "must_exclude", "required_values", "fuzzy_match")


def read_task(data: Any, source: str, prefix: str = "") -> Task:
    """A `Task` from parsed JSON.

    Args:
        data: the JSON value; unknown keys are ignored, as in VisualWebArena.
        source: the file, for messages.
        prefix: where in the file the task stands, such as "[3].".

    Raises:
        TaskError: file, field and reason.
    """

    def fail(field: str, reason: str) -> TaskError:
        return TaskError(source, prefix + field, reason)

    if not isinstance(data, dict):
        raise TaskError(source, prefix.rstrip("."), f"a task must be an object, not {_kind(data)}")
    sites = _strings(data, "sites", fail)
    for site in sites:
        if site not in SITE_NAMES:
            raise fail("sites", f"there is no embedded site {site!r}; there are {', '.join(SITE_NAMES)}")
    task_id = data.get("task_id")
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        task_id = f"{sites[0]}-{task_id:03d}"
    if not isinstance(task_id, str) or not task_id.strip():
        raise fail("task_id", "is missing" if task_id is None else "must be a name or a number")
    start_url = _text(data, "start_url", fail)
    for url in start_url.split(" |AND| "):
        if not url.startswith(("http://", "https://", "__")):
            raise fail("start_url", f"{url!r} must begin with a placeholder such as __SHOPPING__ or with http://")
    _check_eval(data.get("eval"), fail)
    return Task(
        task_id=task_id,
        sites=tuple(sites),
        intent=_text(data, "intent", fail),
        start_url=start_url,
        eval=data["eval"],
        oracle=_oracle(data.get("agentkv"), fail),
        raw=data,
    )


_Fail = Callable[[str, str], TaskError]


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "null")


def _text(data: dict[str, Any], field: str, fail: _Fail) -> str:
    value = data.get(field.rpartition(".")[2])
    if value is None:
        raise fail(field, "is missing")
    if not isinstance(value, str) or not value.strip():
        raise fail(field, f"must be a text, not {_kind(value)}" if not isinstance(value, str) else "is empty")
    return value


def _strings(data: dict[str, Any], field: str, fail: _Fail) -> list[str]:
    value = data.get(field.rpartition(".")[2])
    if value is None:
        raise fail(field, "is missing")
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise fail(field, "must be a list of at least one text")
    return value


def _check_eval(data: Any, fail: _Fail) -> None:
    if not isinstance(data, dict):
        raise fail("eval", "is missing" if data is None else f"must be an object, not {_kind(data)}")
    for name in _strings(data, "eval.eval_types", fail):
        if name not in EVAL_TYPES:
            raise fail("eval.eval_types", f"unknown type {name!r}; there are {', '.join(EVAL_TYPES)}")
    types = data["eval_types"]
    if "string_match" in types:
        _check_contents(data.get("reference_answers"), "eval.reference_answers", ANSWER_KEYS, fail)
    if "url_match" in types:
        _text(data, "eval.reference_url", fail)
        if data.get("url_note", "EXACT") not in ("EXACT", "GOLD in PRED"):
            raise fail("eval.url_note", "must be EXACT or GOLD in PRED")
    if "program_html" in types:
        _check_program(data.get("program_html"), fail)


def _check_program(targets: Any, fail: _Fail) -> None:
    if not isinstance(targets, list) or not targets:
        raise fail("eval.program_html", "must be a list of at least one target")
    for i, target in enumerate(targets):
        field = f"eval.program_html[{i}]"
        if not isinstance(target, dict):
            raise fail(field, f"must be an object, not {_kind(target)}")
        _text(target, f"{field}.url", fail)
        if not isinstance(target.get("locator", ""), str):
            raise fail(f"{field}.locator", "must be a text")
        _check_contents(target.get("required_contents"), f"{field}.required_contents", CONTENT_KEYS, fail)


def _check_contents(data: Any, field: str, keys: tuple[str, ...], fail: _Fail) -> None:
    if not isinstance(data, dict) or not data:
        raise fail(field, f"must be an object with one of {', '.join(keys)}")
    for key, value in data.items():
        if key not in keys:
            raise fail(f"{field}.{key}", f"unknown key; there are {', '.join(keys)}")
        many = isinstance(value, list) and value and all(isinstance(item, str) for item in value)
        if not (many or isinstance(value, str)) or (key == "exact_match" and not isinstance(value, str)):
            raise fail(f"{field}.{key}", "must be a text" if key == "exact_match" else "must be a list of texts")


def _oracle(extra: Any, fail: _Fail) -> tuple[str, ...]:
    if extra is None:
        return ()
    if not isinstance(extra, dict):
        raise fail("agentkv", f"must be an object, not {_kind(extra)}")
    if "oracle" not in extra:
        return ()
    actions = _strings(extra, "agentkv.oracle", fail)
    for i, text in enumerate(actions):
        parsed = parse_action(text)
        if parsed.mode != "strict":
            raise fail(f"agentkv.oracle[{i}]", f"{text!r}: {parsed.error or f'write it as {parsed.action}'}")
    if not actions[-1].startswith("stop"):
        raise fail("agentkv.oracle", "must end with stop [answer]")
    return tuple(actions)
