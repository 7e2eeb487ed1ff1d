"""What a run says, in numbers: one entry per arm, one per comparison with `full`."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from agentkv_evals.outcomes import Outcome
from agentkv_evals.plan import REFERENCE_POLICY, Arm
from agentkv_evals.run_folder import SCHEMA, RunFolder
from agentkv_evals.stats import (
    detectable_retention,
    independent,
    mcnemar_exact,
    mean,
    sign_flips,
    wilson_clustered,
)

Row = dict[str, Any]


def summarize(run: RunFolder) -> dict[str, Any]:
    """summary.json of a run, finished or not."""
    config, rows = run.config, list(run.rows().values())
    arms = arms_of(config)
    seeds = data_seeds_of(config)
    planned = len(config["tasks"]) * seeds
    reference = rows_of(rows, Arm(REFERENCE_POLICY))
    edges = thirds(row["tokens_between"] for row in rows if _needs_memory(row))
    return {
        "schema": SCHEMA,
        "run": run.path.name,
        "planned_episodes": planned * len(arms),
        "finished_episodes": len(rows),
        "complete": len(rows) >= planned * len(arms),
        "arms": [summarize_arm(arm, rows_of(rows, arm), len(config["tasks"]), seeds, reference) for arm in arms],
        "by_distance": [
            {"label": arm.label, "distances": by_distance(rows_of(rows, arm), edges, seeds)} for arm in arms
        ],
        "paired": [
            compare(arm, reference, rows_of(rows, arm)) for arm in arms if reference and arm.policy != REFERENCE_POLICY
        ],
    }


def arms_of(config: dict[str, Any]) -> list[Arm]:
    """The arms of a run, from its config."""
    return [Arm(policy, budget) for policy, budget in config["settings"]["arms"]]


def rows_of(rows: Iterable[Row], arm: Arm) -> list[Row]:
    """The rows that belong to an arm."""
    return [row for row in rows if (row["policy"], row["budget"]) == (arm.policy, arm.budget)]


def data_seeds_of(config: dict[str, Any]) -> int:
    """On how many data seeds a run plays each task."""
    return int(config["settings"].get("data_seeds", 1))


def summarize_arm(arm: Arm, rows: list[Row], tasks: int, seeds: int, reference: list[Row]) -> dict[str, Any]:
    """One arm. The success rate runs over all planned episodes: what has no verdict is no success."""
    planned = tasks * seeds
    won = sum(row["success"] is True for row in rows)
    by_task = Counter(row["task_id"] for row in rows if row["success"] is True)
    # Tasks without a success are clusters too.
    successes = [*by_task.values(), *[0] * (tasks - len(by_task))]
    peaks = [row["peak_kv_bytes"] for row in rows if row["peak_kv_bytes"] is not None]
    early = (row["reason"] for row in rows if row["outcome"] == Outcome.EARLY_STOP)
    return {
        "policy": arm.policy,
        "budget": arm.budget,
        "label": arm.label,
        "planned": planned,
        "finished": len(rows),
        "success": won,
        "success_rate": won / planned if planned else 0.0,
        "success_ci95": list(wilson_clustered(successes, seeds)),
        "groups": groups(rows),
        "left_by": left_by(rows),
        "outcomes": {str(outcome): sum(row["outcome"] == outcome for row in rows) for outcome in Outcome},
        "early_stops": dict(Counter(early)),
        "mean_peak_kv_bytes": mean(peaks),
        "max_peak_kv_bytes": max(peaks, default=None),
        "times_less_kv": times_less(reference, rows),
        "mean_steps": mean(row["steps"] for row in rows),
        "mean_wall_s": mean(row["wall_s"] for row in rows),
        "mean_step_ms": {part: _per_step(rows, f"{part}_ms") for part in ("browser", "prefill", "decode", "agent")},
        "prompt_tokens": _total(rows, "prompt_tokens"),
        "reused_tokens": _total(rows, "reused_tokens"),
        "generated_tokens": _total(rows, "generated_tokens"),
    }


def groups(rows: list[Row]) -> dict[str, dict[str, int]]:
    """Successes and finished episodes of the kinds of tasks a suite tells apart; kinds it does not have are left out.

    Held-out tasks are of families that no training instance comes from; a needle is a fact needed long after it was
    seen, which a twin repeats where it is needed; a way is what the oracle takes.
    """
    told = [row for row in rows if row.get("horizon")]
    sites = {site for row in told for site in row["sites"]}
    kinds = {
        "held out": [row for row in rows if row.get("held_out") is True],
        "families trained on": [row for row in rows if row.get("held_out") is False],
        "needles": [row for row in rows if row.get("needle") and not row.get("twin_of")],
        "twins": [row for row in rows if row.get("twin_of")],
        **{f"{way} way": [row for row in rows if row.get("horizon") == way] for way in ("short", "medium", "long")},
        **{site: [row for row in told if row["sites"] == [site]] for site in sorted(sites)},
        "several sites": [row for row in told if len(row["sites"]) > 1],
    }
    return {
        name: {"success": sum(row["success"] is True for row in some), "finished": len(some)}
        for name, some in kinds.items()
        if some
    }


def thirds(distances: Iterable[int]) -> tuple[int, ...]:
    """The distances that part them into three groups as even as can be; fewer where most are the same."""
    ordered = sorted(distances)
    cuts = {ordered[len(ordered) * third // 3] for third in (1, 2)} if ordered else set()
    return tuple(sorted(cut for cut in cuts if cut > ordered[0]))


def by_distance(rows: list[Row], edges: Sequence[int], seeds: int) -> list[dict[str, Any]]:
    """Success where a fact is needed, by the tokens since it was last shown on the oracle's way, nearest first.

    Twins are first: the same ways, with the fact repeated on the page that needs it. [] without such tasks. A way's
    tokens are those of the task's first data seed.

    Args:
        edges: where one group of distances ends and the next begins.
        seeds: data seeds that each task is played on.
    """
    far = [row for row in rows if _needs_memory(row)]
    kinds = {"repeated": [row for row in rows if row.get("twin_of") and row.get("needle")]}
    for number, (low, high) in enumerate(zip((0, *edges), (*edges, None), strict=True)):
        kinds[_between(low, high)] = [row for row in far if bisect_right(edges, row["tokens_between"]) == number]
    return [{"tokens": name, **_counted(some, seeds)} for name, some in kinds.items()] if far else []


def _between(low: int, high: int | None) -> str:
    if high is None:
        return f"{low:,} and more" if low else "not repeated"
    return f"{low:,} to {high - 1:,}" if low else f"up to {high - 1:,}"


def _counted(rows: list[Row], seeds: int) -> dict[str, Any]:
    won = Counter(row["task_id"] for row in rows if row["success"] is True)
    successes = [won[task] for task in sorted({row["task_id"] for row in rows})]
    interval = list(wilson_clustered(successes, seeds)) if rows else None
    return {"success": sum(successes), "finished": len(rows), "ci95": interval}


def _needs_memory(row: Row) -> bool:
    """Whether a fact has to be remembered in it, and is not repeated where it is needed."""
    return row.get("tokens_between") is not None and not row.get("twin_of")


def left_by(rows: list[Row]) -> dict[str, dict[str, int]]:
    """What failed episodes did instead of the oracle's next step: how many, and how many where a fact was needed."""
    causes = [row for row in rows if row.get("left_by")]
    return {
        cause: {
            "episodes": count,
            "at_fact": sum(row["left_at_fact"] for row in causes if row["left_by"] == cause),
        }
        for cause, count in Counter(row["left_by"] for row in causes).most_common()
    }


def paired(first: list[Row], second: list[Row]) -> list[tuple[Row, Row]]:
    """Rows of both arms that ran the same task on the same data."""
    by_key = {(row["task_id"], row["data_seed"]): row for row in first}
    pairs = ((by_key.get((row["task_id"], row["data_seed"])), row) for row in second)
    return [(a, b) for a, b in pairs if a is not None]


def times_less(reference: list[Row], rows: list[Row]) -> float | None:
    """Σ peak(full) / Σ peak(arm) over the tasks both ran; None without any."""
    peaks = [(a["peak_kv_bytes"], b["peak_kv_bytes"]) for a, b in paired(reference, rows)]
    peaks = [(a, b) for a, b in peaks if a and b]
    return sum(a for a, _ in peaks) / sum(b for _, b in peaks) if peaks else None


def compare(arm: Arm, reference: list[Row], rows: list[Row]) -> dict[str, Any]:
    """Task by task, an arm against `full`, with McNemar's exact test on the episodes where they differ.

    `p_by_task` is for several data seeds: the episodes of one task are alike, which McNemar's test does not know.
    `retention` is its successes by those of `full`, on the episodes both ran.
    `detectable_retention` is the highest true retention that so many tasks would have told from 1 in 80% of such runs.
    """
    both = paired(reference, rows)
    pairs = [(a["success"] is True, b["success"] is True) for a, b in both]
    counts = Counter(pairs)
    only_full, only_arm = counts[True, False], counts[False, True]
    return {
        "policy": arm.policy,
        "budget": arm.budget,
        "label": arm.label,
        "pairs": len(pairs),
        "both": counts[True, True],
        "only_full": only_full,
        "only_this": only_arm,
        "neither": counts[False, False],
        "retention": (counts[True, True] + only_arm) / full if (full := counts[True, True] + only_full) else None,
        "p_mcnemar": mcnemar_exact(only_full, only_arm),
        "p_by_task": _p_by_task(both),
        "detectable_retention": _detectable(both),
    }


def _p_by_task(both: list[tuple[Row, Row]]) -> float | None:
    """None where no task was played on several data seeds."""
    differences: Counter[str] = Counter()
    for a, b in both:
        differences[a["task_id"]] += (b["success"] is True) - (a["success"] is True)
    return None if len(differences) == len(both) else sign_flips(list(differences.values()))


def _detectable(both: list[tuple[Row, Row]]) -> float | None:
    """At the reference's success rate and with as many tasks gained as here; None where no loss would be seen."""
    if not both:
        return None
    # What is tested is the difference, so it decides how much the episodes of one task are alike.
    by_task: dict[str, list[float]] = {}
    for a, b in both:
        by_task.setdefault(a["task_id"], []).append((b["success"] is True) - (a["success"] is True))
    won = sum(a["success"] is True for a, _ in both)
    failed = [b for a, b in both if a["success"] is not True]
    gained = mean(b["success"] is True for b in failed) or 0.0
    return detectable_retention(round(independent(list(by_task.values()))), won / len(both), gained)


def _per_step(rows: list[Row], name: str) -> float | None:
    there = [row for row in rows if row[name] is not None and row["steps"]]
    return sum(row[name] for row in there) / sum(row["steps"] for row in there) if there else None


def _total(rows: list[Row], name: str) -> int | None:
    values = [row[name] for row in rows if row[name] is not None]
    return sum(values) if values else None
