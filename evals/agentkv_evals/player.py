"""Plays single episodes: one browser, and one chat model per arm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import agentkv_agents
from agentkv_agents import Agent, AgentSetup, StopRules
from agentkv_envs import Task
from agentkv_evals.episode import Env, EpisodeResult, EpisodeRun, Interrupted
from agentkv_evals.outcomes import Outcome
from agentkv_evals.plan import Arm, EvalPlan, PlannedEpisode
from agentkv_evals.run_folder import RunFolder

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

MakeEnv = Callable[[], Env]
MakeModel = Callable[[Arm], "BaseChatModel"]
Played = tuple[PlannedEpisode, EpisodeResult]


@dataclass(frozen=True)
class Backends:
    """How a player gets a browser and a chat model per arm."""

    make_env: MakeEnv
    make_model: MakeModel


class Hands(Protocol):
    """Whatever plays episodes: a player, or several of them at once."""

    def prepare(self, arms: Mapping[Arm, Arm]) -> None:
        """Make the chat models of these arms, each given with its budget in absolute terms.

        Raises what is wrong with a model or a budget.
        """
        ...

    def play(self, episodes: Iterable[PlannedEpisode], arms: Mapping[Arm, Arm]) -> Iterator[Played]:
        """Play them in this order; each is yielded when it ends. Raises Interrupted when the user wants to stop."""
        ...

    def close(self, at_once: bool = False) -> None:
        """Close the browsers; at once: without waiting for what is under way."""
        ...


class Player:
    """Plays episodes one after the other. After an infra_error its browser is replaced.

    Args:
        plan: the episodes' plan.
        run: where their steps and pictures go.
        backends: how to get a browser and chat models.
        on_start: called with every episode.
        on_step: called with every step row.
        interrupted: asked between steps; True ends the episode, which is dropped.
    """

    def __init__(
        self,
        plan: EvalPlan,
        run: RunFolder,
        backends: Backends,
        *,
        on_start: Callable[[PlannedEpisode], None] = lambda episode: None,
        on_step: Callable[[dict[str, Any]], None] = lambda row: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._plan = plan
        self._run = run
        self._backends = backends
        self._on_start = on_start
        self._on_step = on_step
        self._interrupted = interrupted
        self._env: Env | None = None
        self._models: dict[Arm, BaseChatModel] = {}

    def prepare(self, arms: Mapping[Arm, Arm]) -> None:
        if self._plan.needs_model:
            for arm, absolute in arms.items():
                if arm not in self._models:
                    self._models[arm] = self._backends.make_model(absolute)

    def play(self, episodes: Iterable[PlannedEpisode], arms: Mapping[Arm, Arm]) -> Iterator[Played]:
        self.prepare(arms)
        for episode in episodes:
            yield episode, self.play_one(episode)

    def play_one(self, episode: PlannedEpisode) -> EpisodeResult:
        """Play an episode of an arm that was prepared.

        Raises Interrupted, and what a user has to mend before any episode can run, such as a missing browser.
        """
        if self._interrupted():
            raise Interrupted
        if self._env is None:
            self._env = self._backends.make_env()
        folder = self._run.start_episode(episode.episode_id)
        self._on_start(episode)
        rules = StopRules(max_steps=self._plan.options.max_steps)
        result = EpisodeRun(
            self._env,
            lambda task: self._make_agent(episode, task),
            folder,
            rules,
            on_step=self._on_step,
            interrupted=self._interrupted,
        ).play(episode.task, episode.seed)
        if result.outcome == Outcome.INFRA_ERROR:
            self.close()
        return result

    def close(self, at_once: bool = False) -> None:
        env, self._env = self._env, None
        if env is not None:
            # A browser that has crashed may also fail to close; what it did is on record already.
            with suppress(Exception):
                env.close()

    def _make_agent(self, episode: PlannedEpisode, task: Task) -> Agent:
        options = self._plan.options
        setup = AgentSetup(
            task=task,
            style=options.style,
            seed=episode.seed,
            history=options.history,
            notes=options.notes,
            prompting=self._plan.prompting,
            model=self._models[episode.arm] if self._plan.needs_model else None,
            session_id=f"{self._run.path.name}/{episode.episode_id}",
        )
        return agentkv_agents.get(options.agent).make(setup)
