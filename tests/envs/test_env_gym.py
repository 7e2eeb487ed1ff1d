"""Gymnasium's interface and BrowserGym's dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from env_pages import task_at

from agentkv_envs import EnvError, Observation, resolve
from agentkv_envs.gym import AsyncGymEnv, GymEnv

pytestmark = pytest.mark.browser
# The observation of BrowserGym's environment, key by key.
KEYS = {
    "chat_messages",
    "goal",
    "goal_object",
    "open_pages_urls",
    "open_pages_titles",
    "active_page_index",
    "url",
    "screenshot",
    "dom_object",
    "axtree_object",
    "extra_element_properties",
    "focused_element_bid",
    "last_action",
    "last_action_error",
    "elapsed_time",
}


SHOP = task_at("__SHOPPING__/")
PLAN = ('click "Deals"', "stop [ok]")


@pytest.fixture(scope="module")
def gym() -> Iterator[GymEnv]:
    tasks = [replace(SHOP, task_id=name) for name in ("shop-1", "shop-2")]
    with GymEnv(tasks, max_steps=6, screenshots=False) as env:
        yield env


def test_a_solved_task_is_worth_one(gym: GymEnv) -> None:
    text, info = gym.reset(seed=0, options={"task_id": "shop-1"})
    assert text.startswith("page: Brightcart")
    assert (info["task_id"], info["step"], info["options"]["captions"]) == ("shop-1", 0, "noisy")
    rewards = []
    for action in PLAN:
        text, reward, terminated, truncated, info = gym.step(resolve(action, info["observation"]))
        assert text == info["observation"].text
        rewards.append(reward)
    assert (rewards, terminated, truncated) == ([0.0] * (len(rewards) - 1) + [1.0], True, False)
    assert info["score"].success is True
    with pytest.raises(EnvError, match="call reset first"):
        gym.step("scroll [down]")


def test_tasks_follow_each_other_and_too_many_steps_truncate(gym: GymEnv) -> None:
    assert [gym.reset()[1]["task_id"] for _ in range(3)] == ["shop-1", "shop-2", "shop-1"]
    _, reward, terminated, truncated, info = gym.step("let me think")
    assert (reward, terminated, truncated, info["step"]) == (0.0, False, False, 1)
    assert "no action found" in info["error"]
    for _ in range(5):
        _, reward, terminated, truncated, info = gym.step("scroll [down]")
    assert (reward, terminated, truncated, info["score"]) == (0.0, False, True, None)
    with pytest.raises(EnvError, match="there is no task 'shopping-999'"):
        gym.reset(options={"task_id": "shopping-999"})


def test_a_broken_browser_truncates_the_episode_and_the_next_reset_recovers(site: str) -> None:
    with GymEnv(task_at(f"{site}/"), step_timeout_s=4.0, screenshots=False) as env:
        env.reset()
        _, reward, terminated, truncated, info = env.step('click "Freeze"')
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert "did not respond within 4 s" in info["infra_error"]
        assert env.reset()[0].startswith("page: Start")


def test_the_dictionary_of_browsergym_names_elements_by_our_ids() -> None:
    with GymEnv(SHOP, observation_format="browsergym", screenshots=False) as env:
        obs, info = env.reset()
        seen: Observation = info["observation"]
        assert set(obs) == KEYS
        assert (obs["screenshot"].shape, obs["screenshot"].dtype) == ((800, 1280, 3), np.uint8)
        assert obs["goal"] == info["goal"]
        assert (list(obs["open_pages_titles"]), obs["active_page_index"].tolist()) == (["Brightcart"], [0])
        named = {n["browsergym_id"]: n["name"]["value"] for n in obs["axtree_object"]["nodes"] if "browsergym_id" in n}
        real = [e for e in seen.elements if e.role not in ("more", "expand")]
        assert named.keys() == {str(e.id) for e in real}
        assert {named[str(e.id)] for e in real} >= {"Deals", "My Account"}
        assert obs["extra_element_properties"].keys() == {str(e.id) for e in seen.elements}
        assert "bid=" not in env.env._thread.submit(env.env._episode.page().content()).result()  # type: ignore[union-attr]
        obs, *_ = env.step("go_back")
        assert obs["last_action"] == "go_back"
        assert "no page to go back to" in obs["last_action_error"]
        assert env.render().shape == (800, 1280, 3)


def test_the_awaitable_kind_does_the_same() -> None:
    async def play() -> tuple[float, bool]:
        async with AsyncGymEnv([SHOP], screenshots=False) as env:
            _, info = await env.reset(seed=1)
            for action in PLAN:
                _, reward, terminated, _, info = await env.step(resolve(action, info["observation"]))
            return reward, terminated

    assert asyncio.run(play()) == (1.0, True)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(EnvError, match="unknown observation_format 'html'"):
        GymEnv("vwa75", observation_format="html")
    with pytest.raises(EnvError, match="there are no tasks"):
        GymEnv([])
    with pytest.raises(EnvError, match="max_steps must be at least 1"):
        GymEnv("vwa75", max_steps=0)
