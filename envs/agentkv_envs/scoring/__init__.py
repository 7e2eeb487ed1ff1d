"""Scoring an episode with VisualWebArena's evaluators, and three of our own: the product of all parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agentkv_envs.episode import Episode
from agentkv_envs.scoring.case import Case
from agentkv_envs.scoring.html import program_html
from agentkv_envs.scoring.images import page_image_query
from agentkv_envs.scoring.judges import Judges
from agentkv_envs.scoring.miniwob import miniwob
from agentkv_envs.scoring.state import db_state
from agentkv_envs.scoring.text import Unscored, match_answer
from agentkv_envs.scoring.trace import http_trace
from agentkv_envs.scoring.urls import match_url
from agentkv_envs.types import DIALECTS, Score

__all__ = ["DIALECTS", "Judges", "score_episode"]


async def score_episode(episode: Episode, answer: str, dialect: str, judges: Judges | None = None) -> Score:
    """The verdict on where the episode ended.

    Args:
        episode: the episode; it stays open.
        answer: the text of the final `stop`.
        dialect: "official" reproduces the benchmark's released code, "fixed" mends it.
        judges: who answers what no rule can; what needs one that is not there stays unscored.

    Raises:
        TaskError: an evaluator of the task cannot be carried out, and why.
        InfraError: a real site does not answer.
    """
    case = Case(episode, answer, dialect, judges or Judges())
    parts: dict[str, float] = {}
    notes: list[str] = []
    kinds = case.eval["eval_types"]
    for kind in kinds:
        try:
            passed, note = await _EVALUATORS[kind](case)
        except Unscored as reason:
            notes.append(f"{kind}: {reason}")
            continue
        parts[kind] = float(passed)
        if note:
            notes.append(f"{kind}: {note}")
    failed = any(value <= 0.0 for value in parts.values())
    complete = len(parts) == len(set(kinds))
    return Score(False if failed else True if complete else None, parts, "; ".join(notes))


async def _string_match(case: Case) -> tuple[bool, str]:
    ask = case.judges.ask(case.task.intent)
    note = case.eval.get("string_note") or ""
    passed = await asyncio.to_thread(match_answer, case.answer, case.eval["reference_answers"], case.dialect, ask, note)
    return passed, "" if passed else f"the answer was {case.answer[:80]!r}"


async def _url_match(case: Case) -> tuple[bool, str]:
    url = case.episode.page().url
    passed = match_url(url, case.eval["reference_url"], case.eval.get("url_note", "EXACT"), case.dialect)
    return passed, "" if passed else f"ended on {url}"


_EVALUATORS: dict[str, Callable[[Case], Awaitable[tuple[bool | float, str]]]] = {
    "string_match": _string_match,
    "url_match": _url_match,
    "program_html": program_html,
    "page_image_query": page_image_query,
    "db_state": db_state,
    "http_trace": http_trace,
    "miniwob": miniwob,
}
