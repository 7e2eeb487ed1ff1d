"""Checking a task's JSON: every error names the field and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkv_envs.actions import parse_action
from agentkv_envs.errors import TaskError
from agentkv_envs.sites import SITE_NAMES, SPLITS
from agentkv_envs.tasks.evaluators import Fail, kind, read_eval, strings, text
from agentkv_envs.types import Task
from agentkv_envs.uploads import UPLOADS


def read_task(data: Any, source: str, prefix: str = "", sites: Sequence[str] = SITE_NAMES) -> Task:
    """A `Task` from parsed JSON.

    Args:
        data: the JSON value; unknown keys are ignored, as in VisualWebArena.
        source: the file, for messages.
        prefix: where in the file the task stands, such as "[3].".
        sites: the sites a task may name.

    Raises:
        TaskError: file, field and reason.
    """

    def fail(field: str, reason: str) -> TaskError:
        return TaskError(source, prefix + field, reason)

    if not isinstance(data, dict):
        raise TaskError(source, prefix.rstrip("."), f"a task must be an object, not {kind(data)}")
    named = strings(data, "sites", fail)
    for site in named:
        if site not in sites:
            raise fail("sites", f"there is no site {site!r}; there are {', '.join(sites)}")
        if named.count(site) > 1:
            raise fail("sites", f"{site!r} stands there twice")
    task_id = data.get("task_id")
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        task_id = f"{named[0]}-{task_id:03d}"
    if not isinstance(task_id, str) or not task_id.strip():
        raise fail("task_id", "is missing" if task_id is None else "must be a name or a number")
    start_url = text(data, "start_url", fail)
    for url in start_url.split(" |AND| "):
        if not url.startswith(("http://", "https://", "__")):
            raise fail("start_url", f"{url!r} must begin with a placeholder such as __SHOPPING__ or with http://")
    _images(data.get("image"), fail)
    checks = read_eval(data.get("eval"), data.get("agentkv"), fail)
    oracle = _additions(data.get("agentkv"), fail)
    _same_sites(named, checks, data.get("agentkv") or {}, fail)
    # null is what a missing key is.
    raw = {key: value for key, value in data.items() if key != "agentkv" or value is not None}
    return Task(
        task_id=task_id,
        sites=tuple(named),
        intent=text(data, "intent", fail),
        start_url=start_url,
        eval=checks,
        oracle=oracle,
        raw=raw,
    )


def _same_sites(named: Sequence[str], checks: dict[str, Any], extra: dict[str, Any], fail: Fail) -> None:
    """Requests that are looked for, and the reminder, belong to sites of the task."""
    places = [(f"agentkv.eval_ext.http_trace[{i}].site", one) for i, one in enumerate(checks.get("http_trace", ()))]
    places.append(("agentkv.reminder.site", extra.get("reminder") or {}))
    for field, place in places:
        if place.get("site", named[0]) not in named:
            raise fail(field, f"the task has no site {place['site']!r}; it has {', '.join(named)}")


def _images(given: Any, fail: Fail) -> None:
    many = given if isinstance(given, list) else [given or ""]
    if not all(isinstance(one, str) for one in many):
        raise fail("image", "must be a text or a list of texts")


def _additions(extra: Any, fail: Fail) -> tuple[str, ...]:
    """Checks what is ours in a task; returns its oracle."""
    if extra is None:
        return ()
    if not isinstance(extra, dict):
        raise fail("agentkv", f"must be an object, not {kind(extra)}")
    split = extra.get("split", "test")
    if split not in SPLITS:
        raise fail("agentkv.split", f"there is no split {split!r}; there are {', '.join(SPLITS)}")
    for name in strings(extra, "agentkv.files", fail) if extra.get("files") else ():
        if name not in UPLOADS:
            raise fail("agentkv.files", f"there is no file {name!r}; there are {', '.join(UPLOADS)}")
    if reminder := extra.get("reminder"):
        if not isinstance(reminder, dict):
            raise fail("agentkv.reminder", f"must be an object, not {kind(reminder)}")
        for key in ("site", "path", "text"):
            text(reminder, f"agentkv.reminder.{key}", fail)
    return _oracle(extra, fail)


def _oracle(extra: dict[str, Any], fail: Fail) -> tuple[str, ...]:
    if "oracle" not in extra:
        return ()
    actions = strings(extra, "agentkv.oracle", fail)
    for i, action in enumerate(actions):
        parsed = parse_action(action)
        if parsed.mode != "strict":
            raise fail(f"agentkv.oracle[{i}]", f"{action!r}: {parsed.error or f'write it as {parsed.action}'}")
    if not actions[-1].startswith("stop"):
        raise fail("agentkv.oracle", "must end with stop [answer]")
    return tuple(actions)
