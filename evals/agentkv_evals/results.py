"""The row of results.jsonl."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentkv_evals.episode import EpisodeResult
from agentkv_evals.outcomes import Outcome, success_of
from agentkv_evals.plan import REFERENCE_POLICY, EvalPlan, PlannedEpisode
from agentkv_evals.provenance import utc_now
from agentkv_evals.ways import left_way


def make_row(
    plan: EvalPlan,
    episode: PlannedEpisode,
    result: EpisodeResult,
    rows: Iterable[dict[str, Any]],
    kv_budget: str | None,
) -> dict[str, Any]:
    """One finished episode. Token counts are sums over its steps; `peak_kv_bytes` is the most its session held at any
    moment, `full_peak_ratio` that divided by the peak of `full` on the same task and seed, found among `rows` (None
    without one); `kv_budget` is the arm's budget without reference to full KV."""
    steps = result.steps
    peak = _most(steps, "peak_kv_bytes")
    options = plan.options
    extra = episode.task.raw.get("agentkv", {})
    return {
        "episode_id": episode.episode_id,
        "task_id": episode.task.task_id,
        "intent": result.task.intent if result.task else "",
        "suite": episode.task.suite,
        "sites": list(episode.task.sites),
        "horizon": extra.get("horizon"),
        "family": extra.get("family"),
        "held_out": extra.get("held_out"),
        "twin_of": extra.get("twin_of"),
        "needle": (extra.get("needle") or {}).get("kind"),
        "tokens_between": (extra.get("needle") or {}).get("tokens_between"),
        "policy": episode.arm.policy,
        "budget": episode.arm.budget,
        "kv_budget": kv_budget,
        "model": options.model if plan.needs_model else None,
        "agent": options.agent,
        "style": options.style,
        "captions": plan.environment.captions,
        "history": options.history,
        "data_seed": episode.seed,
        "outcome": str(result.outcome),
        "reason": result.reason,
        "success": success_of(result.outcome),
        "score_parts": result.score_parts,
        "answer": result.answer,
        "steps": len(steps),
        **_way(result, options.style),
        "peak_kv_bytes": peak,
        "full_peak_ratio": _ratio(episode, peak, rows),
        "prompt_tokens": _sum(steps, "prompt_tokens"),
        "reused_tokens": _sum(steps, "reused_tokens"),
        "new_tokens": _sum(steps, "new_tokens"),
        "generated_tokens": _sum(steps, "generated_tokens"),
        "logical_length": _most(steps, "logical_length"),
        "evicted_tokens": _most(steps, "evicted_tokens"),
        "quantized_tokens": _most(steps, "quantized_tokens"),
        "start_ms": result.start_ms,
        "browser_ms": result.browser_ms,
        "prefill_ms": _sum(steps, "prefill_ms"),
        "decode_ms": _sum(steps, "decode_ms"),
        "agent_ms": _sum(steps, "agent_ms"),
        "wall_s": result.wall_s,
        "finished_utc": utc_now(),
    }


def _way(result: EpisodeResult, style: str) -> dict[str, Any]:
    """How a failed episode compares with its task's solution: steps of it that were taken, and what was done then."""
    way = None
    # In other styles actions do not name what they act on.
    if result.outcome in (Outcome.FAIL, Outcome.EARLY_STOP) and style == "label-first" and result.task is not None:
        way = left_way(result.task, result.carried_out)
    if way is None:
        return {"oracle_steps_taken": None, "left_by": None, "left_at_fact": None}
    return {"oracle_steps_taken": way.followed, "left_by": str(way.cause), "left_at_fact": way.at_fact}


def _ratio(episode: PlannedEpisode, peak: int | None, rows: Iterable[dict[str, Any]]) -> float | None:
    if peak is None:
        return None
    if episode.arm.policy == REFERENCE_POLICY:
        return 1.0
    key = (REFERENCE_POLICY, episode.task.task_id, episode.seed)
    for row in rows:
        if (row["policy"], row["task_id"], row["data_seed"]) == key and row["peak_kv_bytes"]:
            return peak / row["peak_kv_bytes"]
    return None


def _values(steps: list[dict[str, Any]], name: str) -> list[Any]:
    return [step[name] for step in steps if step[name] is not None]


def _sum(steps: list[dict[str, Any]], name: str) -> Any:
    values = _values(steps, name)
    return sum(values) if values else None


def _most(steps: list[dict[str, Any]], name: str) -> Any:
    # Counters of the session so far; the largest, not the last, since a session can start over in an episode.
    return max(_values(steps, name), default=None)
