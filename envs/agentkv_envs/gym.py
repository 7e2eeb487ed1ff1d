"""Gymnasium's interface to `WebEnv`, blocking and awaitable. It does not need gymnasium to be installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from agentkv_envs.actions import parse_action
from agentkv_envs.env import WebEnv
from agentkv_envs.errors import EnvError, InfraError
from agentkv_envs.tasks import load_suite
from agentkv_envs.types import Action, Observation, Score, StepResult, Task

FORMATS = ("text", "observation", "browsergym")
Turn = tuple[Any, float, bool, bool, dict[str, Any]]


class _Rules:
    """What both kinds share: which task comes next, what ends an episode, what it is worth."""

    def __init__(self, tasks: str | Task | Sequence[Task], max_steps: int, observation_format: str, env: WebEnv):
        if observation_format not in FORMATS:
            raise EnvError(f"unknown observation_format {observation_format!r}; there are {', '.join(FORMATS)}")
        if max_steps < 1:
            raise EnvError(f"max_steps must be at least 1, not {max_steps}")
        given = load_suite(tasks) if isinstance(tasks, str) else (tasks,) if isinstance(tasks, Task) else tuple(tasks)
        if not given:
            raise EnvError("there are no tasks")
        self.tasks: tuple[Task, ...] = tuple(given)
        self.max_steps = max_steps
        self.observation_format = observation_format
        self.env = env
        self._next = 0
        self._steps = 0
        self._over = True
        self._seen: Observation | None = None
        self._action = ""
        self._error: str | None = None

    def _choose(self, options: dict[str, Any] | None) -> Task:
        wanted = (options or {}).get("task_id")
        if wanted is None:
            task = self.tasks[self._next % len(self.tasks)]
            self._next += 1
            return task
        for task in self.tasks:
            if task.task_id == wanted:
                return task
        raise EnvError(f"there is no task {wanted!r}")

    def _began(self, seen: Observation) -> None:
        self._seen, self._steps, self._over, self._action, self._error = seen, 0, False, "", None

    def _read(self, action: str | Action) -> Action | None:
        """The action to carry out; None for a text that holds none, which costs a step all the same."""
        if self._over or self._seen is None:
            raise EnvError("no episode is running; call reset first")
        self._action, self._error = str(action), None
        self._steps += 1
        if isinstance(action, Action):
            return action
        parsed = parse_action(action, self._seen.style)
        self._error = parsed.error
        return parsed.action

    def _took(self, result: StepResult) -> None:
        self._seen, self._error = result.observation, result.error

    def _turn(self, observation: Any, done: bool, score: Score | None, infra: str | None = None) -> Turn:
        truncated = not done and (self._steps >= self.max_steps or infra is not None)
        self._over = done or truncated
        info = {**self._info(), "score": score, "infra_error": infra}
        return observation, float(score is not None and score.success is True), done, truncated, info

    def _info(self) -> dict[str, Any]:
        task = self.env.task
        return {
            "task_id": task.task_id if task is not None else "",
            "goal": task.intent if task is not None else "",
            "observation": self._seen,
            "error": self._error,
            "step": self._steps,
            "options": self.env.options,
        }

    def _plain(self) -> Any:
        assert self._seen is not None
        return self._seen.text if self.observation_format == "text" else self._seen

    @property
    def _as_dict(self) -> bool:
        return self.observation_format == "browsergym"


class GymEnv(_Rules):
    """`reset() -> (obs, info)`, `step(action) -> (obs, reward, terminated, truncated, info)`.

    Args:
        tasks: a suite such as "vwa75:shopping-00*", a task, or tasks; `reset` takes one after the other.
        max_steps: after so many the episode is truncated, with reward 0.
        observation_format: what `obs` is: "text", "observation" (`Observation`) or "browsergym" (its dictionary).
        options: of `WebEnv`.

    The reward is 1.0 when `stop` was called and the task is solved, else 0.0. `info` holds the `observation`, the
    `error` of the last action, the `score`, the `goal`, the `task_id` and all `options`. A failure of the browser
    truncates the episode and is named in `info["infra_error"]`.
    """

    def __init__(
        self,
        tasks: str | Task | Sequence[Task],
        *,
        max_steps: int = 30,
        observation_format: str = "text",
        **options: Any,
    ):
        super().__init__(tasks, max_steps, observation_format, WebEnv(**options))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next task, or `options={"task_id": ...}`, with the data of this seed (None: 0)."""
        self._began(self.env.reset(self._choose(options), 0 if seed is None else seed))
        return self._observation(), self._info()

    def step(self, action: str | Action) -> Turn:
        """Carry out one action, as text or `Action`."""
        wanted = self._read(action)
        try:
            done = False
            if wanted is not None:
                result = self.env.step(wanted)
                self._took(result)
                done = result.done
            score = self.env.evaluate() if done else None
            return self._turn(self._observation(), done, score)
        except InfraError as error:
            return self._turn(None if self._as_dict else self._plain(), False, None, str(error))

    def _observation(self) -> Any:
        return self.env.browsergym(self._action, self._error or "") if self._as_dict else self._plain()

    def render(self) -> Any:
        """The screenshot, uint8 of (height, width, 3)."""
        return _array(self.env.screenshot())

    def close(self) -> None:
        """End the browser."""
        self.env.close()

    def __enter__(self) -> GymEnv:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncGymEnv(_Rules):
    """`GymEnv` whose methods are awaited."""

    def __init__(
        self,
        tasks: str | Task | Sequence[Task],
        *,
        max_steps: int = 30,
        observation_format: str = "text",
        **options: Any,
    ):
        super().__init__(tasks, max_steps, observation_format, WebEnv(**options))

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """See `GymEnv.reset`."""
        self._began(await self.env.areset(self._choose(options), 0 if seed is None else seed))
        return await self._observation(), self._info()

    async def step(self, action: str | Action) -> Turn:
        """See `GymEnv.step`."""
        wanted = self._read(action)
        try:
            done = False
            if wanted is not None:
                result = await self.env.astep(wanted)
                self._took(result)
                done = result.done
            score = await self.env.aevaluate() if done else None
            return self._turn(await self._observation(), done, score)
        except InfraError as error:
            return self._turn(None if self._as_dict else self._plain(), False, None, str(error))

    async def _observation(self) -> Any:
        return await self.env.abrowsergym(self._action, self._error or "") if self._as_dict else self._plain()

    async def render(self) -> Any:
        """See `GymEnv.render`."""
        return _array(await self.env.ascreenshot())

    async def close(self) -> None:
        """See `GymEnv.close`."""
        await self.env.aclose()

    async def __aenter__(self) -> AsyncGymEnv:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _array(picture: bytes) -> Any:
    return np.array(Image.open(io.BytesIO(picture)).convert("RGB"))
