"""A run folder as the values that the report's template shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentkv_evals.outcomes import Outcome
from agentkv_evals.plan import Arm
from agentkv_evals.report.plots import MIB, Series, memory_over_steps
from agentkv_evals.report.shots import ShotStore, embed
from agentkv_evals.run_folder import RunFolder
from agentkv_evals.summary import arms_of, data_seeds_of

_PALETTE = ("#6b7f99", "#e8590c", "#2f7ae5", "#2b9a5b", "#9c4fd6", "#c9a100", "#d6457f", "#0f9aa8")
_STEP_FIELDS = (
    "step", "url", "action", "raw", "parse_mode", "error", "prompt_tokens", "reused_tokens", "new_tokens",
    "generated_tokens", "resident_kv_bytes", "peak_kv_bytes", "evicted_tokens", "quantized_tokens",
    "browser_ms", "prefill_ms", "decode_ms", "total_ms",
)  # fmt: skip


@dataclass(frozen=True)
class EpisodeView:
    """One finished episode: its results row, its steps and its colour."""

    row: dict[str, Any]
    steps: list[dict[str, Any]]
    color: str


@dataclass(frozen=True)
class TaskView:
    """One task on one data seed: its episodes in the order of the arms (None: not run yet) and their memory plot."""

    name: str
    intent: str
    episodes: tuple[EpisodeView | None, ...]
    memory_svg: str


def arm_colors(arms: Sequence[Arm]) -> list[str]:
    """A colour per arm, the same in every plot and table."""
    return [_PALETTE[index % len(_PALETTE)] for index in range(len(arms))]


def task_views(run: RunFolder) -> list[TaskView]:
    """All tasks of a run in their order, with what has been run of them."""
    config, rows = run.config, run.rows()
    arms = arms_of(config)
    cells = {(row["task_id"], row["data_seed"], row["policy"], row["budget"]): row for row in rows.values()}
    first, count = config["settings"]["seed"], data_seeds_of(config)
    views: list[TaskView] = []
    for seed, (task_id, intent) in itertools.product(range(first, first + count), config["tasks"].items()):
        own = [cells.get((task_id, seed, arm.policy, arm.budget)) for arm in arms]
        episodes = tuple(_episode(run, row, color) for row, color in zip(own, arm_colors(arms), strict=True))
        name = task_id if count == 1 else f"{task_id}, data {seed}"
        # Other data have other names and numbers in what is asked.
        asked = next((row["intent"] for row in own if row is not None and row.get("intent")), intent)
        series = [_series(episode) for episode in episodes if episode is not None]
        title = f"KV memory over the steps of {name}"
        svg = memory_over_steps(f"t{len(views)}", [line for line in series if line is not None], title)
        views.append(TaskView(name, asked, episodes, svg))
    return views


def viewer_data(run: RunFolder, tasks: Sequence[TaskView]) -> dict[str, Any]:
    """What the step viewer's script reads. A step is a list in the order of `fields`; observations and pictures
    are given by their index, since many steps share them."""
    episodes = [episode for task in tasks for episode in task.episodes if episode is not None and episode.steps]
    store = ShotStore()
    folders = [run.episode_dir(episode.row["episode_id"]) for episode in episodes]
    shots = embed(
        store,
        [
            [folder / step["screenshot"] if step["screenshot"] else None for step in episode.steps]
            for folder, episode in zip(folders, episodes, strict=True)
        ],
    )
    texts: dict[str, int] = {}
    return {
        "fields": [*_STEP_FIELDS, "text", "shot", "file"],
        "episodes": [
            _viewer_episode(episode, indices, texts) for episode, indices in zip(episodes, shots, strict=True)
        ],
        "texts": list(texts),
        "shots": store.uris,
    }


def _episode(run: RunFolder, row: dict[str, Any] | None, color: str) -> EpisodeView | None:
    return None if row is None else EpisodeView(row, run.steps(row["episode_id"]), color)


def _series(episode: EpisodeView) -> Series | None:
    resident = [step["resident_kv_bytes"] for step in episode.steps]
    there = tuple(value / MIB for value in resident if value is not None)
    peak = episode.row["peak_kv_bytes"]
    return Series(episode.color, there, peak / MIB) if there and peak else None


def _viewer_episode(episode: EpisodeView, shots: Sequence[int | None], texts: dict[str, int]) -> dict[str, Any]:
    row = episode.row
    steps = []
    for step, shot in zip(episode.steps, shots, strict=True):
        text = texts.setdefault(step["observation"], len(texts))
        # A picture that did not fit is still beside the report, in the run folder.
        file = f"episodes/{row['episode_id']}/{step['screenshot']}" if shot is None and step["screenshot"] else None
        steps.append([*(_rounded(step[name]) for name in _STEP_FIELDS), text, shot, file])
    label = Arm(row["policy"], row["budget"]).label
    return {
        "id": row["episode_id"],
        "task": row["task_id"] if not row["data_seed"] else f"{row['task_id']}, data {row['data_seed']}",
        "arm": label,
        "color": episode.color,
        "outcome": row["outcome"],
        "reason": row["reason"],
        "answer": row["answer"],
        "steps": steps,
    }


def _rounded(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value


def outcome_shares(arm: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Outcomes that happened, with the episodes not run yet: (name, count, per cent of the planned)."""
    counts = {str(name): arm["outcomes"][name] for name in Outcome if arm["outcomes"][name]}
    waiting = arm["planned"] - arm["finished"]
    if waiting:
        counts["not run"] = waiting
    return [(name, count, 100 * count / arm["planned"]) for name, count in counts.items()]
