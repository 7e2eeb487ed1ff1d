"""Plays the episodes of a plan that a run folder does not hold yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import agentkv_agents
from agentkv_agents import Agent, AgentSetup, StopRules
from agentkv_envs import Task
from agentkv_evals.episode import Env, EpisodeRun, Interrupted
from agentkv_evals.outcomes import Outcome
from agentkv_evals.plan import REFERENCE_POLICY, Arm, EvalPlan, PlannedEpisode
from agentkv_evals.progress import Progress
from agentkv_evals.relative import in_bytes, times_less
from agentkv_evals.results import make_row
from agentkv_evals.run_folder import RunFolder

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

MakeEnv = Callable[[], Env]
MakeModel = Callable[[Arm], "BaseChatModel"]


@dataclass(frozen=True)
class Backends:
    """How the runner gets a browser and a chat model per arm."""

    make_env: MakeEnv
    make_model: MakeModel


def pending(plan: EvalPlan, rows: dict[str, dict[str, Any]]) -> list[PlannedEpisode]:
    """Episodes still to play; with `retry_errors` also those that ended as infra_error."""
    retry = plan.options.retry_errors
    done = {key for key, row in rows.items() if not (retry and row["outcome"] == Outcome.INFRA_ERROR)}
    return [episode for episode in plan.episodes if episode.episode_id not in done]


class Runner:
    """Plays episodes one after the other, with one browser and one chat model per arm.

    After an infra_error the browser is replaced. Use as a context manager: it closes what it opened.
    """

    def __init__(
        self,
        plan: EvalPlan,
        run: RunFolder,
        backends: Backends,
        progress: Progress,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._plan = plan
        self._run = run
        self._backends = backends
        self._progress = progress
        self._interrupted = interrupted
        self._env: Env | None = None
        self._models: dict[Arm, BaseChatModel] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop_env()

    def prepare(self) -> None:
        """Makes the chat models that will be needed. Raises what is wrong with a model or a budget."""
        if self._plan.needs_model:
            self._make_models(relative=False)

    def play_all(self) -> bool:
        """Plays what is pending. True if everything is done, False if it was interrupted."""
        rows = self._run.rows()
        for episode in pending(self._plan, rows):
            if self._interrupted():
                return False
            try:
                row = self._play(episode, rows)
            except Interrupted:
                return False
            self._run.append_row(row)
            rows[episode.episode_id] = row
            self._progress.episode_finished(row)
            if row["outcome"] == Outcome.INFRA_ERROR:
                self._drop_env()
        return True

    def _play(self, episode: PlannedEpisode, rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
        model = self._model(episode.arm) if self._plan.needs_model else None
        if self._env is None:
            self._env = self._backends.make_env()
        folder = self._run.start_episode(episode.episode_id)
        self._progress.episode_started(episode)
        options = self._plan.options

        def make_agent(task: Task) -> Agent:
            setup = AgentSetup(
                task=task,
                style=options.style,
                seed=episode.seed,
                history=options.history,
                notes=options.notes,
                prompting=self._plan.prompting,
                model=model,
                session_id=f"{self._run.path.name}/{episode.episode_id}",
            )
            return agentkv_agents.get(options.agent).make(setup)

        result = EpisodeRun(
            self._env,
            make_agent,
            folder,
            StopRules(max_steps=options.max_steps),
            on_step=self._progress.step_taken,
            interrupted=self._interrupted,
        ).play(episode.task, episode.seed)
        return make_row(self._plan, episode, result, rows.values(), self._absolute(episode.arm).budget)

    def _model(self, arm: Arm) -> BaseChatModel:
        if arm not in self._models:
            self._make_models(relative=True)
        return self._models[arm]

    def _make_models(self, relative: bool) -> None:
        """Of all pending arms whose budgets are told by what full KV takes, or of all others: a mistake shows early."""
        for arm in dict.fromkeys(episode.arm for episode in pending(self._plan, self._run.rows())):
            if arm not in self._models and (times_less(arm.budget) is not None) == relative:
                self._models[arm] = self._backends.make_model(self._absolute(arm))

    def _absolute(self, arm: Arm) -> Arm:
        """The arm with its budget in bytes, where that is told by what full KV takes; the run keeps what it was."""
        if arm.budget is None or times_less(arm.budget) is None:
            return arm
        return replace(
            arm, budget=self._run.fixed_budget(arm.budget, lambda: in_bytes(str(arm.budget), self._full_peaks()))
        )

    def _full_peaks(self) -> list[int]:
        """Bytes, of the episodes of full KV that have measured one."""
        full = (row["peak_kv_bytes"] for row in self._run.rows().values() if row["policy"] == REFERENCE_POLICY)
        return [peak for peak in full if peak]

    def _drop_env(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            # A browser that has crashed may also fail to close; what it did is on record already.
            with suppress(Exception):
                env.close()
