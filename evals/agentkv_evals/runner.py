"""Which episodes of a plan a run folder does not hold yet, and the rows of those that are played."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agentkv_evals.episode import Interrupted
from agentkv_evals.outcomes import Outcome
from agentkv_evals.plan import REFERENCE_POLICY, Arm, EvalPlan, PlannedEpisode
from agentkv_evals.player import Hands
from agentkv_evals.progress import Progress
from agentkv_evals.relative import in_bytes, times_less
from agentkv_evals.results import make_row
from agentkv_evals.run_folder import RunFolder


def pending(plan: EvalPlan, rows: dict[str, dict[str, Any]]) -> list[PlannedEpisode]:
    """Episodes still to play; with `retry_errors` also those that ended as infra_error."""
    retry = plan.options.retry_errors
    done = {key for key, row in rows.items() if not (retry and row["outcome"] == Outcome.INFRA_ERROR)}
    return [episode for episode in plan.episodes if episode.episode_id not in done]


class Runner:
    """Has the pending episodes played, and puts a row on disk for each as it ends.

    Args:
        hands: who plays; closed with the runner, which is a context manager.
    """

    def __init__(self, plan: EvalPlan, run: RunFolder, hands: Hands, progress: Progress) -> None:
        self._plan = plan
        self._run = run
        self._hands = hands
        self._progress = progress
        self._rows = run.rows()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._hands.close(at_once=kind is not None)

    def prepare(self) -> None:
        """Makes the chat models whose budgets are known. Raises what is wrong with a model, a budget or a policy."""
        first, later = self._phases()
        # A policy that is not for this model is found out now, even if its budget is not known yet.
        unlimited = dict.fromkeys(Arm(episode.arm.policy, None) for episode in later)
        self._hands.prepare(self._absolute(first) | {arm: arm for arm in unlimited})

    def play_all(self) -> bool:
        """Plays what is pending. True if everything is done, False if it was interrupted."""
        try:
            for episodes in self._phases():
                arms = self._absolute(episodes)  # of the second known when the first has ended
                for episode, result in self._hands.play(episodes, arms):
                    budget = arms[episode.arm].budget
                    row = make_row(self._plan, episode, result, self._rows.values(), budget)
                    self._run.append_row(row)
                    self._rows[episode.episode_id] = row
                    self._progress.episode_finished(row)
        except Interrupted:
            return False
        return True

    def _phases(self) -> tuple[list[PlannedEpisode], list[PlannedEpisode]]:
        """Pending episodes: those whose budgets stand by themselves, and those told by what full KV takes."""
        todo = pending(self._plan, self._rows)
        relative = {arm for arm in self._plan.arms if times_less(arm.budget) is not None}
        own = [episode for episode in todo if episode.arm not in relative]
        return own, [episode for episode in todo if episode.arm in relative]

    def _absolute(self, episodes: Iterable[PlannedEpisode]) -> dict[Arm, Arm]:
        """The episodes' arms, with budgets in bytes where they are told by what full KV takes; a run keeps those."""
        arms = dict.fromkeys(episode.arm for episode in episodes)
        return {arm: replace(arm, budget=self._in_bytes(arm.budget)) for arm in arms}

    def _in_bytes(self, budget: str | None) -> str | None:
        if budget is None or times_less(budget) is None:
            return budget
        return self._run.fixed_budget(budget, lambda: in_bytes(budget, self._full_peaks()))

    def _full_peaks(self) -> list[int]:
        """Bytes, of the episodes of full KV that have measured one."""
        full = (row["peak_kv_bytes"] for row in self._rows.values() if row["policy"] == REFERENCE_POLICY)
        return [peak for peak in full if peak]
