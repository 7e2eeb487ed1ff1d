"""Checking the `eval` part of a task's JSON, and what `agentkv.eval_ext` adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from agentkv_envs.errors import TaskError
from agentkv_envs.tasks.calls import parse_call

EVAL_TYPES = ("string_match", "url_match", "program_html", "page_image_query")
EXTENSIONS = ("db_state", "http_trace", "miniwob")
ANSWER_KEYS = ("exact_match", "must_include", "must_exclude", "one_of", "required_values", "fuzzy_match")
CONTENT_KEYS = ("exact_match", "must_include", "must_exclude", "required_values", "fuzzy_match")

Fail = Callable[[str, str], TaskError]


def read_eval(data: Any, extra: Any, fail: Fail) -> dict[str, Any]:
    """The evaluators of a task: its `eval`, with the parts of `agentkv.eval_ext` joined to it.

    Raises:
        TaskError: field and reason.
    """
    if not isinstance(data, dict):
        raise fail("eval", "is missing" if data is None else f"must be an object, not {kind(data)}")
    extension = extra.get("eval_ext", {}) if isinstance(extra, dict) else {}
    if not isinstance(extension, dict):
        raise fail("agentkv.eval_ext", f"must be an object, not {kind(extension)}")
    types = data.get("eval_types")
    if not (types == [] and extension):
        types = strings(data, "eval.eval_types", fail)
    _known(types, EVAL_TYPES, "eval.eval_types", fail)
    _known(extension, EXTENSIONS, "agentkv.eval_ext", fail)
    for name in dict.fromkeys([*types, *extension]):
        _CHECKS[name](extension if name in EXTENSIONS else data, fail)
    return {**data, **extension, "eval_types": [*types, *extension]}


def _known(names: Iterable[str], known: tuple[str, ...], field: str, fail: Fail) -> None:
    for name in names:
        if name not in known:
            raise fail(field, f"unknown evaluator {name!r}; there are {', '.join(known)}")


# The benchmark's four


def _string_match(data: dict[str, Any], fail: Fail) -> None:
    _contents(data.get("reference_answers"), "eval.reference_answers", ANSWER_KEYS, fail)


def _url_match(data: dict[str, Any], fail: Fail) -> None:
    for url in text(data, "eval.reference_url", fail).split(" |OR| "):
        try:
            urlsplit(url)
        except ValueError as error:
            raise fail("eval.reference_url", f"{url!r} is not an address: {error}") from None
    if data.get("url_note", "EXACT") not in ("EXACT", "GOLD in PRED"):
        raise fail("eval.url_note", "must be EXACT or GOLD in PRED")


def _program_html(data: dict[str, Any], fail: Fail) -> None:
    for field, target in _objects(data.get("program_html"), "eval.program_html", fail):
        _address(target, f"{field}.url", fail)
        locator = target.get("locator", "")
        if not isinstance(locator, str):
            raise fail(f"{field}.locator", "must be a text")
        if locator.startswith("func:"):
            _function(locator, f"{field}.locator", fail)
        elif locator.strip() and not locator.startswith(("document.", "[...document.", "lambda:")):
            raise fail(f"{field}.locator", "must begin with document., [...document., lambda: or func:, or be empty")
        if "prep_actions" in target:
            strings(target, f"{field}.prep_actions", fail)
        _contents(target.get("required_contents"), f"{field}.required_contents", CONTENT_KEYS, fail)


def _page_image_query(data: dict[str, Any], fail: Fail) -> None:
    for field, query in _objects(data.get("page_image_query"), "eval.page_image_query", fail):
        _address(query, f"{field}.eval_image_url", fail)
        selector = query.get("eval_image_class", "")
        if not isinstance(selector, str) or (selector.strip() and not selector.startswith(".")):
            raise fail(f"{field}.eval_image_class", "must be a class selector such as .item-photo, or empty")
        questions = query.get("eval_vqa", [])
        if not questions and "eval_fuzzy_image_match" not in query:
            raise fail(field, "needs eval_vqa or eval_fuzzy_image_match")
        if questions:
            for place, question in _objects(questions, f"{field}.eval_vqa", fail):
                text(question, f"{place}.question", fail)
                text(question, f"{place}.answer", fail)
        if "eval_fuzzy_image_match" in query:
            text(query, f"{field}.eval_fuzzy_image_match", fail)
        limit = query.get("ssim_threshold", 0.8)
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not -1 <= limit <= 1:
            raise fail(f"{field}.ssim_threshold", "must be a number from -1 to 1")


# Ours


def _db_state(data: dict[str, Any], fail: Fail) -> None:
    state = data["db_state"]
    if not isinstance(state, dict):
        raise fail("agentkv.eval_ext.db_state", f"must be an object, not {kind(state)}")
    field = "agentkv.eval_ext.db_state"
    if "rows" not in state and "unchanged" not in state:
        raise fail(field, "needs rows, unchanged or both")
    if "rows" in state:
        for place, query in _objects(state["rows"], f"{field}.rows", fail):
            text(query, f"{place}.site", fail)
            sql = text(query, f"{place}.sql", fail)
            if sql.split(None, 1)[0].upper() not in ("SELECT", "WITH"):
                raise fail(f"{place}.sql", "must be a SELECT")
            rows = query.get("expect")
            if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
                raise fail(f"{place}.expect", "must be a list of rows, each a list of values")
            for cell in (cell for row in rows for cell in row if isinstance(cell, dict)):
                _contents(cell, f"{place}.expect", CONTENT_KEYS, fail)
    allowed = state.get("unchanged", {})
    if not isinstance(allowed, dict):
        raise fail(f"{field}.unchanged", "must be an object: a site, and the tables or columns that may change")
    for site in allowed:
        if allowed[site] != []:
            strings(allowed, f"{field}.unchanged.{site}", fail)


def _http_trace(data: dict[str, Any], fail: Fail) -> None:
    field = "agentkv.eval_ext.http_trace"
    for place, wanted in _objects(data["http_trace"], field, fail):
        text(wanted, f"{place}.path", fail)
        for key in ("site", "method"):
            if key in wanted:
                text(wanted, f"{place}.{key}", fail)
        form = wanted.get("form", {})
        if not isinstance(form, dict) or not all(isinstance(value, str) for value in form.values()):
            raise fail(f"{place}.form", "must be an object of texts")
        count = wanted.get("count", 1)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise fail(f"{place}.count", "must be a whole number, 0 for never")


def _miniwob(data: dict[str, Any], fail: Fail) -> None:
    if data["miniwob"] != {}:
        raise fail("agentkv.eval_ext.miniwob", "must be an empty object")


_CHECKS: dict[str, Callable[[dict[str, Any], Fail], None]] = {
    "string_match": _string_match,
    "url_match": _url_match,
    "program_html": _program_html,
    "page_image_query": _page_image_query,
    "db_state": _db_state,
    "http_trace": _http_trace,
    "miniwob": _miniwob,
}


# Values


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "null")


def text(data: dict[str, Any], field: str, fail: Fail) -> str:
    """The text under the last part of a dotted field; raises when there is none."""
    value = data.get(field.rpartition(".")[2])
    if value is None:
        raise fail(field, "is missing")
    if not isinstance(value, str) or not value.strip():
        raise fail(field, f"must be a text, not {kind(value)}" if not isinstance(value, str) else "is empty")
    return value


def strings(data: dict[str, Any], field: str, fail: Fail) -> list[str]:
    """The list of at least one text under the last part of a dotted field; raises when there is none."""
    value = data.get(field.rpartition(".")[2])
    if value is None:
        raise fail(field, "is missing")
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise fail(field, "must be a list of at least one text")
    return value


def _objects(value: Any, field: str, fail: Fail) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, list) or not value:
        raise fail(field, "must be a list of at least one target")
    for i, item in enumerate(value):
        if not isinstance(item, dict):
            raise fail(f"{field}[{i}]", f"must be an object, not {kind(item)}")
    return [(f"{field}[{i}]", item) for i, item in enumerate(value)]


def _address(data: dict[str, Any], field: str, fail: Fail) -> None:
    url = text(data, field, fail)
    if url.startswith("func:"):
        _function(url, field, fail)


def _function(value: str, field: str, fail: Fail) -> None:
    try:
        parse_call(value.removeprefix("func:"))
    except ValueError as error:
        raise fail(field, str(error)) from None


def _contents(data: Any, field: str, keys: tuple[str, ...], fail: Fail) -> None:
    if not isinstance(data, dict) or not data:
        raise fail(field, f"must be an object with one of {', '.join(keys)}")
    for key, value in data.items():
        if key not in keys:
            raise fail(f"{field}.{key}", f"unknown key; there are {', '.join(keys)}")
        many = isinstance(value, list) and value and all(isinstance(item, str) for item in value)
        if not (many or isinstance(value, str)) or (key == "exact_match" and not isinstance(value, str)):
            raise fail(f"{field}.{key}", "must be a text" if key == "exact_match" else "must be a list of texts")
