"""What the tests of the suite share: carrying out oracles, and judging whether an oracle knows only what it saw."""

from __future__ import annotations

import re
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer

from agentkv_envs import Action, Observation, Task, WebEnv, action_grammar
from agentkv_envs.tasks.oracle import Trace, carry_out, follow, plain

COMPUTED = "required_values"
BYTES = LLTokenizer("byte")


def solve(env: WebEnv, task: Task, seed: int = 0) -> Trace:
    """The oracle's way through a task at a data seed."""
    if seed == 0:
        return carry_out(env, task, task.oracle)
    env.reset(task, seed)
    assert env.task is not None
    return carry_out(env, task, env.task.oracle, seed)


def strangers(task: Task, trace: Trace) -> list[str]:
    """Texts the oracle typed, chose or answered that stand neither in the task nor in an observation before."""
    known = plain(task.intent)
    found = []
    for action, seen in zip(trace.actions, trace.observations, strict=False):
        known += "\n" + plain(seen.text)
        text = _said(action)
        if text and plain(text) not in known and not _computed(task, action):
            found.append(str(action))
    return found


def ungrammatical(trace: Trace) -> list[str]:
    """Actions that a model decoding under the page's grammar could not have written."""
    pairs = zip(trace.actions, trace.observations, strict=False)
    return [str(action) for action, seen in pairs if not _accepts(action_grammar(seen), str(action))]


def _accepts(grammar: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, grammar)
    tokens = BYTES.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def _said(action: Action) -> str:
    return (action.text or "") if action.kind in ("type", "select", "stop", "goto") else ""


def _computed(task: Task, action: Action) -> bool:
    """An answer that is a sum or a count is worked out, not read."""
    references = task.eval.get("reference_answers") or {}
    return action.kind == "stop" and COMPUTED in references


def play(env: WebEnv, task: Task, script: Sequence[str]) -> bool | None:
    """Whether a script solves a task; it stops where an action is impossible."""
    seen: Observation = env.reset(task)
    for text in script:
        try:
            action = follow(text, seen)
        except Exception:
            break
        assert action is not None
        result = env.step(action)
        seen = result.observation
        if result.done:
            return env.evaluate().success
    env.step(Action("stop", text=""))
    return env.evaluate().success


def wrong_script(task: Task) -> list[str]:
    """The oracle with its decisive step wrong: another answer, another text where the fact is needed, no last act."""
    *acts, last = task.oracle
    if last != "stop []":
        return [*acts, "stop [none of these]"]
    needle = task.raw["agentkv"]["needle"]
    if needle is not None and (used := acts[needle["used_step"] - 1]).startswith("type"):
        acts[needle["used_step"] - 1] = re.sub(r"\[.*\] \[", "[Quince 77] [", used)
        return [*acts, last]
    return [*acts[:-1], last]
