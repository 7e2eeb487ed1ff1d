"""MiniWoB++: pages of our own in its shape, and its real ones where the package (or AGENTKV_MINIWOB) is there."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest

from agentkv_envs import ActionError, EnvError, TaskError, WebEnv, load_suite, resolve
from agentkv_envs.sites.miniwob import pages
from agentkv_envs.sites.miniwob.site import with_script
from agentkv_envs.tasks.miniwob import task
from agentkv_envs.tasks.miniwob_oracle import POLICIES, MiniwobPilot

# What the real core.js has, as far as pages and the start script use it.
CORE = """
var core = {EPISODE_MAX_TIME: 50, cover: null, timer: null};
var WOB_DONE_GLOBAL = false, WOB_RAW_REWARD_GLOBAL = 0, WOB_TASK_READY = true;
Math.seedrandom = seed => { Math.random = () => ((seed * 7919 + 13) % 100) / 100; };
core.startEpisode = () => {
  core.cover = document.createElement('div');
  core.cover.textContent = 'START';
  document.body.append(core.cover);
};
core.startEpisodeReal = () => {
  genProblem();
  core.cover.style.display = 'none';
  core.timer = setTimeout(() => core.endEpisode(-1), core.EPISODE_MAX_TIME);
};
core.endEpisode = reward => {
  if (core.timer === null) return;
  core.timer = null;
  WOB_RAW_REWARD_GLOBAL = reward;
  WOB_DONE_GLOBAL = true;
  core.startEpisode();
};
core.getUtterance = () => document.getElementById('query').textContent;
"""
PAGE = """<!doctype html><html><head><title>Test</title><script src="../core/core.js"></script><script>
var genProblem = () => {
  var wanted = Math.random() < 0.5 ? 'left' : 'right';
  document.getElementById('query').textContent = 'Click on the "' + wanted + '" button.';
  for (const button of document.querySelectorAll('button'))
    button.onclick = () => core.endEpisode(button.textContent === wanted ? 1 : -1);
};
window.onload = () => core.startEpisode();
</script></head><body><div id="query"></div><div><button>left</button> <button>right</button></div></body></html>"""
PARTIAL = PAGE.replace("? 1 : -1", "? 0.25 : -1").replace(
    "document.getElementById('query').textContent;", "({utterance: 'x'});"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    html = tmp_path / "html"
    for part in ("core", "miniwob"):
        (html / part).mkdir(parents=True)
    (html / "core" / "core.js").write_text(CORE)
    for name in ("click-test", "click-button", "enter-text"):
        (html / "miniwob" / f"{name}.html").write_text(PAGE)
    (html / "miniwob" / "partial.html").write_text(PARTIAL)
    monkeypatch.setenv("AGENTKV_MINIWOB", str(html))
    return html


def test_tasks_are_the_pages(folder: Path) -> None:
    assert [task.task_id for task in load_suite("miniwob")] == ["click-button", "click-test", "enter-text", "partial"]
    assert [task.task_id for task in load_suite("miniwob:click-*,enter-text")] == [
        "click-button",
        "click-test",
        "enter-text",
    ]
    with pytest.raises(TaskError, match="no task matches 'click-tset'; near: click-test"):
        load_suite("miniwob:click-tset")


def test_without_the_package_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTKV_MINIWOB", str(tmp_path))
    with pytest.raises(EnvError, match="does not hold the pages of MiniWoB"):
        load_suite("miniwob")
    monkeypatch.delenv("AGENTKV_MINIWOB")

    def none(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    pages._installed.cache_clear()
    monkeypatch.setattr(pages.metadata, "files", none)
    with pytest.raises(EnvError, match="pip install --no-deps miniwob"):
        load_suite("miniwob:click-test")


def test_the_script_comes_last() -> None:
    assert with_script("<body>a</body></html>", "S") == "<body>aS</body></html>"
    assert with_script("a", "S") == "aS"


@pytest.mark.browser
def test_an_episode_by_its_seed(env: WebEnv, folder: Path) -> None:
    wordings = set()
    for seed in range(6):
        seen = env.reset(task("click-button"), seed)
        assert env.task is not None
        wordings.add(env.task.intent)
        assert env.task.intent in seen.text
        assert "START" not in seen.text
        right = "left" if '"left"' in env.task.intent else "right"
        wrong = {"left": "right", "right": "left"}[right]
        assert env.evaluate().note == "miniwob: the task was not done"
        result = env.step(resolve(f'click "{right if seed % 2 else wrong}"', seen))
        assert "The task has ended." in result.observation.alerts
        score = env.evaluate()
        assert (score.success, score.parts) == ((True, {"miniwob": 1.0}) if seed % 2 else (False, {"miniwob": -1.0}))
        env.step(resolve(f'click "{right}"', result.observation))
        assert env.evaluate() == score  # what is done stays done
    assert len(wordings) == 2


@pytest.mark.browser
def test_partial_rewards_are_reported_raw(env: WebEnv, folder: Path) -> None:
    seen = env.reset(task("partial"), 1)
    assert env.task is not None
    env.step(resolve(f'click "{"left" if "left" in env.task.intent else "right"}"', seen))
    score = env.evaluate()
    assert (score.success, score.parts, score.note) == (True, {"miniwob": 0.25}, "miniwob: raw reward 0.25")


@pytest.mark.browser
def test_a_script_that_does_not_fit_says_so(env: WebEnv, folder: Path) -> None:
    seen = env.reset(task("enter-text"))
    with pytest.raises(ActionError, match=r"the script found no|no action found|not as the script expects"):
        MiniwobPilot("enter-text", "Type it.").next(seen)
    with pytest.raises(ActionError, match="there is no script for 'chase-circle'"):
        MiniwobPilot("chase-circle", "Chase it.").next(seen)


_HERE = bool(os.environ.get("AGENTKV_MINIWOB")) or any(d.name == pages.PACKAGE for d in metadata.distributions())
_SOME = ["click-button", "click-checkboxes-large", "guess-number", "login-user", "multi-layouts", "search-engine"]


@pytest.mark.browser
@pytest.mark.skipif(not _HERE, reason="the pages of MiniWoB++ are not here")
@pytest.mark.parametrize(
    "name", [*_SOME, *(pytest.param(n, marks=pytest.mark.full) for n in POLICIES if n not in _SOME)]
)
def test_the_scripts_solve_the_real_pages(env: WebEnv, name: str) -> None:
    for seed in (0, 1):
        seen = env.reset(task(name), seed)
        assert env.task is not None
        pilot = MiniwobPilot(name, env.task.intent)
        for _ in range(20):
            result = env.step(pilot.next(seen))
            assert result.error is None
            seen = result.observation
            if result.done:
                break
        assert env.evaluate().parts == {"miniwob": 1.0}


@pytest.mark.skipif(not _HERE, reason="the pages of MiniWoB++ are not here")
def test_there_are_130_pages() -> None:
    assert len(load_suite("miniwob")) == 130
    assert set(POLICIES) <= {task.task_id for task in load_suite("miniwob")}
    assert len(POLICIES) >= 20
