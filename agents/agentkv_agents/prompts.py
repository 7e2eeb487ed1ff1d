"""The text that the model reads. It is short on purpose: a small model's window is 8,192 tokens."""

from __future__ import annotations

from agentkv_agents import notes as own_notes
from agentkv_agents import plans

_SYSTEM = "You control a web browser. Each message shows the page. Reply with one action only."

_CORRECTION = "{feedback}\nReply with one action only."


def system_prompt(actions: str, intent: str, notes: bool = False, plan: bool = False) -> str:
    """The system message: what to do, the actions, whether to take notes and to follow a plan, the task.

    Args:
        actions: `agentkv_envs.action_help`; "" for a model that knows them.
    """
    told = [_SYSTEM, actions.strip(), own_notes.HELP if notes else "", plans.HELP if plan else ""]
    return "\n".join([*filter(None, told), f"Task: {intent.strip()}"])


def observation_message(observation_text: str, feedback: str | None = None) -> str:
    """One page, after a line on what went wrong with the last action, if anything did."""
    return f"Error: {feedback.strip()}\n{observation_text}" if feedback else observation_text


def correction_message(feedback: str) -> str:
    """The answer to a reply that was no action; the page is not repeated, it is right above."""
    return _CORRECTION.format(feedback=feedback.strip())


def official_message(observation_text: str, previous_action: str | None, feedback: str | None = None) -> str:
    """The only user message of the `official` history: the page of now and the action before it."""
    return f"{observation_message(observation_text, feedback)}\nPrevious action: {previous_action or 'none'}"
