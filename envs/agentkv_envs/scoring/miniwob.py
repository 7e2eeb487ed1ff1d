"""The reward a MiniWoB++ page gives itself."""

from __future__ import annotations

from agentkv_envs.scoring.case import Case

_STATE = "() => ({done: window.WOB_DONE_GLOBAL === true, reward: Number(window.WOB_RAW_REWARD_GLOBAL) || 0})"


async def miniwob(case: Case) -> tuple[float, str]:
    """The raw reward (without the time discount), 0 while the task is not done. Above 0 is a success."""
    state = await case.episode.page().evaluate(_STATE)
    if not state["done"]:
        return 0.0, "the task was not done"
    return float(state["reward"]), f"raw reward {state['reward']:g}"
