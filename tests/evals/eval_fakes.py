"""A site of numbered pages, and an evaluation that runs on it without browser and weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from agentkv_envs import Action, Element, Observation, Score, StepResult, Task
from agentkv_evals.options import EvalOptions
from agentkv_evals.plan import Arm
from agentkv_evals.player import Backends

NEXT = 'click "next" [1]'
PNG = b"\x89PNG not really a picture"


def write_tasks(path: Path, answers: dict[str, str]) -> Path:
    """A task file whose task ids map to the answers that solve them."""
    tasks = [
        {
            "task_id": task_id,
            "sites": ["shopping"],
            "intent": f"Find {answer}",
            "start_url": "__SHOPPING__",
            "eval": {"eval_types": ["string_match"], "reference_answers": {"exact_match": answer}},
            "agentkv": {"suite": "fake", "oracle": [NEXT, f"stop [{answer}]"]},
        }
        for task_id, answer in answers.items()
    ]
    path.write_text(json.dumps(tasks))
    return path


@dataclass
class FakeEnv:
    """`click` turns to the next page, `stop` ends; `hook(task_id, step)` may raise what a browser would."""

    hook: Callable[[str, int], None] = lambda task_id, step: None
    unscored: bool = False
    closed: bool = False
    log: list[str] = field(default_factory=list)
    task: Task | None = None

    def reset(self, task: Task, seed: int = 0) -> Observation:
        self.task, self._page, self._answer = task, 0, None
        self.log.append(task.task_id)
        self.hook(task.task_id, 0)
        return self._observe()

    def step(self, action: Action) -> StepResult:
        self._page += 1
        self.hook(self.task.task_id, self._page)
        done = action.kind == "stop"
        self._answer = action.text if done else None
        return StepResult(self._observe(), None, done, self._answer, {"action": 1.0, "settle": 2.0})

    def evaluate(self) -> Score:
        if self.unscored:
            return Score(None, {}, "needs a judge")
        success = self._answer == self.task.eval["reference_answers"]["exact_match"]
        return Score(success, {"string_match": float(success)}, "" if success else "wrong answer")

    def screenshot(self) -> bytes:
        return PNG

    def close(self) -> None:
        self.closed = True

    def _observe(self) -> Observation:
        link = Element(1, "link", "next", 'link "next"')
        text = f'page {self._page} <script>alert("x")</script>\nlink "next" [1]'
        return Observation(text, "http://127.0.0.1:1/", "Shop", (link,), (), ("Shop",), "label-first", f"p{self._page}")


class FakeChatModel(BaseChatModel):
    """Gives the same replies in every episode and reports KV bytes that grow with the prompt."""

    replies: list[Any]
    bytes_per_step: int = 1000

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        step = sum(message.type == "ai" for message in messages)
        reply = self.replies[min(step, len(self.replies) - 1)]
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, AIMessage):
            return ChatResult(generations=[ChatGeneration(message=reply)])
        held = self.bytes_per_step * (step + 1)
        stats = {
            "prompt_tokens": 10 * (step + 1), "reused_tokens": 10 * step, "new_tokens": 10, "generated_tokens": 3,
            "resident_kv_bytes": held, "peak_kv_bytes": held + 500, "evicted_tokens": 0, "quantized_tokens": 0,
            "logical_length": 10 * (step + 1), "prefill_ms": 5.0, "decode_ms": 7.0, "finish_reason": "stop",
        }  # fmt: skip
        message = AIMessage(reply, response_metadata={"agentkv": stats})
        return ChatResult(generations=[ChatGeneration(message=message)])


@dataclass
class Lab:
    """Options, backends and what they made."""

    folder: Path
    env: Callable[[], FakeEnv] = FakeEnv
    replies: dict[str, list[Any]] = field(default_factory=dict)
    envs: list[FakeEnv] = field(default_factory=list)
    models: list[Arm] = field(default_factory=list)

    def options(self, answers: dict[str, str] | None = None, **changes: Any) -> EvalOptions:
        file = write_tasks(self.folder / "tasks.json", answers or {"t-1": "one", "t-2": "two"})
        defaults: dict[str, Any] = {"task_file": file, "runs_dir": self.folder / "runs", "name": "try"}
        # A model that was taught nothing, so that the agent asks for actions alone.
        defaults |= {"model": "smollm2-135m", "policies": ("full", "window")}
        return EvalOptions(**{**defaults, **changes})

    @property
    def backends(self) -> Backends:
        return Backends(self._make_env, self._make_model)

    def _make_env(self) -> FakeEnv:
        self.envs.append(self.env())
        return self.envs[-1]

    def _make_model(self, arm: Arm) -> BaseChatModel:
        self.models.append(arm)
        size = 4000 if arm.policy == "full" else 1000
        return FakeChatModel(replies=self.replies.get(arm.policy, [NEXT, "stop [one]"]), bytes_per_step=size)

    @property
    def run(self) -> Path:
        """The only run folder."""
        (run,) = (path for path in (self.folder / "runs").iterdir() if path.is_dir())
        return run

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / "results.jsonl").read_text().splitlines()]
