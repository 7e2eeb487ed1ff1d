"""How `vwa75-official` was drawn from VisualWebArena's 910 tasks: 25 a site, one a template, in proportion."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from agentkv_envs.tasks.official import SITES, intent_hash
from agentkv_envs.types import Task

PER_SITE = 25
_DIFFICULTIES = {"mediun": "medium", "hrad": "hard"}


def draw(tasks: Iterable[Task], per_site: int = PER_SITE) -> dict[str, str]:
    """Task id to hash of its intent.

    Of each site, strata are overall difficulty x evaluators. A stratum's share of the sample is its share of the
    tasks that need no judge; the largest remainders get what rounding leaves. Within a stratum tasks come in an order
    shuffled by a fixed seed; no template is drawn twice.
    """
    chosen: dict[str, str] = {}
    for site in SITES:
        mine = sorted((t for t in tasks if t.task_id.startswith(f"{site}-") and is_settled(t)), key=lambda t: t.task_id)
        picked = _draw_site(mine, per_site, random.Random(f"vwa75-official:{site}"))
        chosen.update((task.task_id, intent_hash(task)) for task in sorted(picked, key=lambda t: t.task_id))
    return chosen


def is_settled(task: Task) -> bool:
    """Whether rules alone decide the task: neither a text judge nor questions about pictures."""
    answers = task.eval.get("reference_answers") or {}
    targets = task.eval.get("program_html") or ()
    queries = task.eval.get("page_image_query") or ()
    fuzzy = "fuzzy_match" in answers or any("fuzzy_match" in target["required_contents"] for target in targets)
    return not fuzzy and not any(query.get("eval_vqa") for query in queries)


def stratum(task: Task) -> tuple[str, str]:
    """Overall difficulty and evaluators, such as ("medium", "program_html+url_match")."""
    level = str(task.raw.get("overall_difficulty", "")).lower()
    return _DIFFICULTIES.get(level, level), "+".join(sorted(task.eval["eval_types"]))


def _draw_site(tasks: Sequence[Task], count: int, rng: random.Random) -> list[Task]:
    strata: dict[tuple[str, str], list[Task]] = defaultdict(list)
    for task in tasks:
        strata[stratum(task)].append(task)
    shares = _shares({key: len(members) for key, members in strata.items()}, count)
    picked: list[Task] = []
    used: set[Any] = set()
    # Small strata first: they have the fewest templates to choose from.
    for key in sorted(strata, key=lambda k: (len(strata[k]), k)):
        picked += _pick(strata[key], shares[key], used, rng)
    spare = [task for key in sorted(strata) for task in strata[key]]
    return picked + _pick(spare, count - len(picked), used, rng)


def _pick(tasks: Sequence[Task], count: int, used: set[Any], rng: random.Random) -> list[Task]:
    found: list[Task] = []
    for task in rng.sample(tasks, len(tasks)):
        template = task.raw.get("intent_template_id")
        if len(found) < count and template not in used:
            used.add(template)
            found.append(task)
    return found


def _shares(sizes: dict[tuple[str, str], int], count: int) -> dict[tuple[str, str], int]:
    total = sum(sizes.values())
    exact = {key: count * size / total for key, size in sizes.items()}
    shares = {key: int(share) for key, share in exact.items()}
    by_remainder = sorted(exact, key=lambda key: (shares[key] - exact[key], key))
    for key in by_remainder[: count - sum(shares.values())]:
        shares[key] += 1
    return shares
