"""What the benchmark's own runner gets wrong (its defects f, g, i), beside what this one does; judges by flag."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import pytest
from eval_fakes import NEXT, FakeChatModel, FakeEnv, Lab
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage

from agentkv.errors import AgentKVError
from agentkv_envs import InfraError, Score, TaskError
from agentkv_envs.scoring.judges import Judges
from agentkv_envs.scoring.text import Unscored
from agentkv_evals import judge
from agentkv_evals.cli import run_eval
from agentkv_evals.errors import EvalError
from agentkv_evals.judge import chat_model, check_judge, image_judge, text_judge
from agentkv_evals.options import EvalOptions
from agentkv_evals.plan import make_plan


@pytest.mark.parametrize("error", [InfraError("reddit does not answer"), TaskError("t-2", "image", "cannot be read")])
def test_f_an_episode_that_breaks_counts(lab: Lab, error: Exception) -> None:
    def fail(task_id: str, step: int) -> None:
        if task_id == "t-2":
            raise error

    lab.env = lambda: FakeEnv(fail)
    assert run_eval(lab.options(policies=("full",)), lab.backends) == 1
    rows = lab.rows()
    assert [(row["outcome"], row["success"]) for row in rows] == [("success", True), ("infra_error", None)]
    assert str(error) in rows[1]["reason"]
    scored = [row["success"] for row in rows if row["success"] is not None]
    (arm,) = json.loads((lab.run / "summary.json").read_text())["arms"]
    released, ours = sum(scored) / len(scored), arm["success_rate"]
    assert (released, ours) == (1.0, 0.5)


def test_g_an_episode_that_is_stopped_early_is_not_scored(lab: Lab) -> None:
    class Anything(FakeEnv):
        """Where the page alone decides, as with url_match, being stopped there would pass."""

        def evaluate(self) -> Score:
            return Score(True, {"url_match": 1.0})

    lab.env = Anything
    lab.replies = {"full": [NEXT]}
    assert run_eval(lab.options({"t-1": "one"}, policies=("full",), max_steps=2), lab.backends) == 0
    (row,) = lab.rows()
    assert lab.envs[0].evaluate().success is True  # what the benchmark would have counted
    assert (row["outcome"], row["success"], row["score_parts"]) == ("early_stop", False, {})


def test_i_what_a_crash_left_behind_is_not_taken_for_done(lab: Lab) -> None:
    def crash(task_id: str, step: int) -> None:
        if task_id == "t-2" and step == 1 and len(lab.envs) == 1:
            raise KeyboardInterrupt

    lab.env = lambda: FakeEnv(crash)
    assert run_eval(lab.options(policies=("full",)), lab.backends) == 130
    left = {folder.name for folder in (lab.run / "episodes").iterdir()}
    done = {row["episode_id"] for row in lab.rows()}
    assert (len(left), len(done)) == (2, 1)  # the benchmark resumes by files and would pass over both
    assert run_eval(lab.options(policies=("full",)), lab.backends) == 0
    assert len(lab.rows()) == 2


# Judges


class Says(FakeChatModel):
    """Keeps what it was asked."""

    asked: list[Any] = []  # noqa: RUF012

    def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        self.asked.append(messages[0])
        return super()._generate(messages, stop, run_manager, **kwargs)


@pytest.mark.parametrize(("reply", "same"), [("Yes.", True), ("no", False), ("I say: yes", True)])
def test_a_chat_model_judges_texts(reply: str, same: bool) -> None:
    model = Says(replies=[reply], asked=[])
    assert text_judge(model)("What is it?", "a kettle", "a pot for tea") is same
    prompt = str(model.asked[0].content)
    assert all(part in prompt for part in ("What is it?", "a kettle", "a pot for tea"))
    text_judge(model)("Buy a unicorn.", "N/A: there is none", "no unicorns here")
    assert "True reason: there is none" in str(model.asked[1].content)


def test_a_judge_that_does_not_answer_leaves_the_part_unscored() -> None:
    ask = Judges(text=text_judge(Says(replies=["perhaps"], asked=[]))).ask("Which?")
    assert ask is not None
    with pytest.raises(Unscored, match="neither yes nor no, but 'perhaps'"):
        ask("a", "b")
    broken = Judges(text=text_judge(Says(replies=[RuntimeError("no credit")], asked=[]))).ask("Which?")
    assert broken is not None
    with pytest.raises(Unscored, match="RuntimeError: no credit"):
        broken("a", "b")


def test_a_chat_model_looks_at_pictures() -> None:
    model = Says(replies=["a red mug"], asked=[])
    assert image_judge(model)(b"\x89PNG...", "What is it?") == "a red mug"
    message = model.asked[0]
    assert isinstance(message, HumanMessage)
    text, image = message.content
    assert "What is it?" in text["text"]
    assert (image["type"], image["mime_type"], image["base64"]) == ("image", "image/png", "iVBORy4uLg==")


def test_a_judge_of_your_own_is_named_by_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("my.judges")
    module.ready = FakeChatModel(replies=["yes"])  # type: ignore[attr-defined]
    module.make = lambda: FakeChatModel(replies=["no"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my", types.ModuleType("my"))
    monkeypatch.setitem(sys.modules, "my.judges", module)
    check_judge("--judge", "my.judges:ready")
    replies = [chat_model("--judge", f"my.judges:{name}").invoke("?") for name in ("ready", "make")]
    assert [reply.content for reply in replies if isinstance(reply, AIMessage)] == ["yes", "no"]
    assert isinstance(chat_model("--judge", "my.judges:make"), BaseChatModel)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"judge": "no_such.module:model"}, "--judge no_such.module:model: No module named 'no_such'"),
        ({"judge": "json.decoder:nothing"}, "has no attribute 'nothing'"),
        ({"image_judge": "no such model"}, "no such model"),
        ({"scoring": "strict"}, "unknown scoring 'strict'; there are: official, fixed"),
        ({"tasks": "vwa75:shopping-001", "scoring": "kind"}, "unknown scoring 'kind'"),
    ],
)
def test_wrong_judges_and_scorings_are_refused_before_the_run(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(AgentKVError) as caught:
        make_plan(EvalOptions(**{"tasks": "vwa75", "agent": "null", **options}), lambda: ("full",))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_provider_needs_langchain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge.util, "find_spec", lambda name: None)
    with pytest.raises(EvalError, match="need the package langchain; pip install langchain"):
        check_judge("--judge", "openai:gpt-5-mini")


def test_a_provider_that_lacks_its_key_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(Exception):
        pass

    def init(name: str, **kwargs: object) -> None:
        raise Missing("Missing credentials.\nMore.")

    monkeypatch.setattr("langchain.chat_models.init_chat_model", init)
    with pytest.raises(EvalError, match=r"^--judge openai:any: Missing credentials\.$"):
        chat_model("--judge", "openai:any")
