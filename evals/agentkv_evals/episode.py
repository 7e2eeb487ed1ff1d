"""One episode: an agent and a browser taking turns until one of them is done."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from agentkv_agents import Agent, AgentStep, StopRules, Taken, early_stop_reason
from agentkv_agents.stop_rules import CONTEXT_FULL
from agentkv_envs import Action, EnvError, InfraError, Observation, Score, StepResult, Task, TaskError
from agentkv_evals import files
from agentkv_evals.outcomes import Outcome, outcome_of

T = TypeVar("T")
_PNG = b"\x89PNG"
# What spoils one episode, not the run.
_ONE_EPISODE = (InfraError, TaskError)


class Env(Protocol):
    """What an episode needs of `agentkv_envs.WebEnv`."""

    @property
    def task(self) -> Task | None: ...
    def reset(self, task: Task, seed: int = 0) -> Observation: ...
    def step(self, action: Action) -> StepResult: ...
    def evaluate(self) -> Score: ...
    def screenshot(self) -> bytes: ...
    def close(self) -> None: ...


class Interrupted(Exception):
    """The user asked to stop; the episode under way is dropped and will be run again."""


@dataclass
class EpisodeResult:
    """How an episode went. Sums are over its steps; None where the agent reports nothing.

    Attributes:
        task: as it was on the episode's data; None if it did not begin.
        carried_out: its actions by step, None where the browser carried none out.
    """

    outcome: Outcome
    reason: str = ""
    answer: str | None = None
    score_parts: dict[str, float] = field(default_factory=dict)
    task: Task | None = None
    carried_out: list[str | None] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    browser_ms: float = 0.0
    start_ms: float = 0.0
    wall_s: float = 0.0


class EpisodeRun:
    """Plays one episode and writes its steps as they happen.

    Args:
        env: the browser; the caller closes it.
        make_agent: makes the agent once the page is there, from the task with its placeholders filled in.
        folder: an empty folder for steps.jsonl and screenshots.
        on_step: called with every step row.
        interrupted: asked between steps; True raises Interrupted.
    """

    def __init__(
        self,
        env: Env,
        make_agent: Callable[[Task], Agent],
        folder: Path,
        rules: StopRules,
        *,
        on_step: Callable[[dict[str, Any]], None] = lambda row: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._env = env
        self._make_agent = make_agent
        self._folder = folder
        self._rules = rules
        self._on_step = on_step
        self._interrupted = interrupted
        self._taken: list[Taken] = []
        self._result = EpisodeResult(Outcome.FAIL)

    def play(self, task: Task, seed: int) -> EpisodeResult:
        """Runs the episode to its end. Whatever fails in browser, site, task or runtime ends it as infra_error.

        Raises Interrupted, and what a user has to mend before any episode can run, such as a missing browser.
        """
        start = time.perf_counter()
        try:
            self._play(task, seed)
        except Interrupted:
            raise
        except Exception as error:
            if isinstance(error, EnvError) and not isinstance(error, _ONE_EPISODE):
                raise
            self._check_interrupted()  # Ctrl-C ends the browser too: then this is no failure of its own
            self._fail(error)
        self._result.wall_s = time.perf_counter() - start
        return self._result

    def _play(self, task: Task, seed: int) -> None:
        result = self._result
        observation, result.start_ms = _timed(lambda: self._env.reset(task, seed))
        result.browser_ms += result.start_ms
        task = self._env.task or task  # as it is on these data
        result.task = task
        agent = self._make_agent(task)
        try:
            self._take_turns(agent, observation)
        finally:
            agent.close()

    def _take_turns(self, agent: Agent, observation: Observation) -> None:
        result = self._result
        feedback: str | None = None
        while True:
            self._check_interrupted()
            reason = early_stop_reason(self._taken, observation.page_key, self._rules)
            if reason is not None:
                result.outcome, result.reason = Outcome.EARLY_STOP, reason
                return
            decision, done, feedback, observation = self._step(agent, observation, feedback)
            if decision.context_full:
                result.outcome, result.reason = Outcome.EARLY_STOP, CONTEXT_FULL
                return
            if done:
                self._evaluate()
                return

    def _step(
        self, agent: Agent, observation: Observation, feedback: str | None
    ) -> tuple[AgentStep, bool, str | None, Observation]:
        shot, shot_ms = _timed(self._save_screenshot)
        decision = agent.act(observation, feedback)
        outcome, browser = self._carry_out(decision)
        browser["picture"] = shot_ms
        action = None if decision.action is None else str(decision.action)
        self._taken.append(Taken(action, observation.page_key))
        error = decision.error if outcome is None else outcome.error
        self._result.carried_out.append(None if outcome is None or outcome.error else action)
        self._write(observation, decision, browser, error=error, screenshot=shot)
        if outcome is None:
            return decision, False, error, observation
        return decision, outcome.done, error, outcome.observation

    def _carry_out(self, decision: AgentStep) -> tuple[StepResult | None, dict[str, float]]:
        """Lets the browser do the action, if there is one; returns its result and the times of its parts."""
        action = decision.action
        if action is None or decision.context_full:
            return None, {}
        outcome, step_ms = _timed(lambda: self._env.step(action))
        self._result.answer = outcome.answer
        return outcome, {**outcome.timings, "step": step_ms}

    def _evaluate(self) -> None:
        score, ms = _timed(self._env.evaluate)
        result = self._result
        result.browser_ms += ms
        result.outcome, result.reason = outcome_of(score), score.note
        result.score_parts = dict(score.parts)

    def _write(
        self,
        observation: Observation,
        decision: AgentStep,
        browser: dict[str, float],
        *,
        error: str | None,
        screenshot: str | None,
    ) -> None:
        browser_ms = browser["picture"] + browser.get("step", 0.0)
        self._result.browser_ms += browser_ms
        row = {
            "step": len(self._taken),
            "url": observation.url,
            "title": observation.title,
            "observation": observation.text,
            "action": self._taken[-1].action,
            "raw": decision.raw_text,
            **({} if decision.plan is None else {"plan": decision.plan}),
            "parse_mode": decision.parse_mode,
            "error": error,
            "prompt_tokens": decision.usage.prompt_tokens,
            "reused_tokens": decision.usage.reused_tokens,
            "new_tokens": decision.usage.new_tokens,
            "generated_tokens": decision.usage.generated_tokens,
            "logical_length": decision.kv.logical_length,
            "resident_kv_bytes": decision.kv.resident_bytes,
            "peak_kv_bytes": decision.kv.peak_bytes,
            "evicted_tokens": decision.kv.evicted_tokens,
            "quantized_tokens": decision.kv.quantized_tokens,
            "browser_ms": browser_ms,
            "browser_parts_ms": browser,
            "prefill_ms": decision.prefill_ms,
            "decode_ms": decision.decode_ms,
            "agent_ms": decision.total_ms,
            "total_ms": browser_ms + decision.total_ms,
            "screenshot": screenshot,
        }
        self._result.steps.append(row)
        files.append_line(self._folder / "steps.jsonl", row, durable=False)
        self._on_step(row)

    def _save_screenshot(self) -> str | None:
        image = self._env.screenshot()
        if not image:
            return None
        suffix = "png" if image.startswith(_PNG) else "jpg"
        name = f"step-{len(self._taken) + 1:03d}.{suffix}"
        (self._folder / name).write_bytes(image)
        return name

    def _fail(self, error: Exception) -> None:
        known = isinstance(error, _ONE_EPISODE)
        self._result.outcome = Outcome.INFRA_ERROR
        self._result.reason = str(error) if known else f"{type(error).__name__}: {error}"
        if not known:
            text = "".join(traceback.format_exception(error))
            files.write_text(self._folder / "error.txt", text)

    def _check_interrupted(self) -> None:
        if self._interrupted():
            raise Interrupted


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    value = call()
    return value, (time.perf_counter() - start) * 1000.0
