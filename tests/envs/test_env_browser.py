"""The browser under awkward pages: dialogs, tabs, hung pages, and leaving nothing behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest
from env_pages import Driver, task_at

from agentkv_envs import BrowserMissing, EnvError, InfraError, TaskError, WebEnv
from agentkv_envs.types import Action

pytestmark = pytest.mark.browser


def test_alerts_are_accepted_and_told(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/dialogs")
    result = driver.do('click "Alert"')
    assert result.observation.alerts == ("Saved!",)
    assert "alert: Saved!" in driver.seen.text
    assert driver.do("wait [0.1]").observation.alerts == ()


@pytest.mark.parametrize(("answer", "outcome"), [("accept", "yes"), ("dismiss", "no")])
def test_a_confirm_waits_for_the_agent(env: WebEnv, site: str, answer: str, outcome: str) -> None:
    driver = Driver(env, f"{site}/dialogs")
    driver.do('click "Confirm"')
    assert driver.seen.dialog == 'confirm "Sure?"'
    blocked = env.step(Action("scroll", text="down"))
    assert "a dialog is open" in (blocked.error or "")
    result = driver.do(f"dialog [{answer}]")
    assert (result.error, driver.seen.dialog) == (None, None)
    assert outcome in driver.seen.text.split("\n")


def test_a_prompt_takes_text_and_stop_dismisses_it(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/dialogs")
    driver.do('click "Prompt"')
    driver.do("dialog [accept] [Bo Lind]")
    assert "Bo Lind" in driver.seen.text
    driver.do('click "Prompt"')
    assert driver.do("stop [ok]").done
    assert env.evaluate().success is True


def test_a_new_tab_is_entered_and_closing_it_returns(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/popup")
    driver.do('click "Open"')
    assert (driver.seen.tabs, driver.seen.current_tab) == (("Opener", "Late"), 1)
    assert "tabs: 0: Opener | 1 (current, new): Late" in driver.seen.text
    driver.do("tab_focus [0]")
    assert driver.seen.title == "Opener"
    driver.do("tab_focus [1]")
    driver.do("close_tab")
    assert driver.seen.tabs == ("Opener",)
    driver.do("close_tab")
    assert len(driver.seen.tabs) == 1
    assert driver.seen.url == "about:blank"
    driver.do(f"goto [{site}/late]")
    assert driver.seen.title == "Late"


@pytest.mark.parametrize("opener", ["Link", "Opener link", "Form", "Script"])
def test_a_tab_whose_page_is_slow_is_waited_for(env: WebEnv, site: str, opener: str) -> None:
    """Playwright tells of a tab only once its server has answered, here long after the opening page is at rest."""
    driver = Driver(env, f"{site}/slow-popup")
    driver.do(f'click "{opener}"')
    assert (driver.seen.tabs, driver.seen.current_tab, driver.seen.title) == (("Opener", "Slow"), 1, "Slow")
    driver.do("close_tab")
    assert driver.seen.tabs == ("Opener",)


def test_a_tab_that_never_answers_is_given_up_once(env: WebEnv, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv_envs.tabs._OPENING_S", 0.3)
    driver = Driver(env, f"{site}/slow-popup")
    assert driver.do('click "Silent"').error is None
    assert driver.seen.tabs == ("Opener",)
    monkeypatch.setattr("agentkv_envs.tabs._OPENING_S", 60.0)  # a second wait for it would not end in time
    assert driver.do('click "Nothing"').error is None
    driver.do('click "Link"')
    assert driver.seen.tabs == ("Opener", "Slow")


def test_late_changes_are_waited_for(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/late")
    driver.do('click "Go"')
    assert "done" in driver.seen.text
    driver.do('click "Fetch"')
    assert "fetched" in driver.seen.text


def test_impossible_actions_are_errors_of_the_step(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/covered")
    assert "covers the element" in (driver.do('click "Under"').error or "")
    for action, hint in (
        (Action("click", 77), "no element [77]"),
        (Action("press", text="NoSuchKey"), "press:"),
        (Action("goto", text="javascript:alert(1)"), "must begin with http"),
        (Action("tab_focus", text="5"), "there is no tab 5"),
        (Action("go_back"), "no page to go back to"),
        (Action("dialog", text="accept"), "no dialog is open"),
    ):
        assert hint in (env.step(action).error or ""), action


def test_forms_show_values_options_and_complaints(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/form")
    assert driver.seen.text.count("checked") == 1
    driver.do('select "Plan" [Gold (plus)]')
    assert 'combobox "Plan"' in driver.seen.text
    assert "= Gold (plus)" in driver.seen.text
    assert "no single option" in (env.step(Action("select", driver.seen.elements[1].id, None, "Tin")).error or "")
    driver.do('click "Send"')
    assert any(alert.startswith("Age") for alert in driver.seen.alerts)
    driver.do('type "Age" [7] [1]')
    assert driver.seen.title == "Start"


def test_frames_and_shadow_roots_can_be_used(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/frames")
    assert driver.do('click "Inside"').error is None
    assert driver.do('click "Shadow"').error is None


def test_nothing_outside_the_machine_is_reached(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/outside")
    driver.do('click "Leave"')
    assert "Example Domain" not in driver.seen.text
    assert "cannot be reached" in (driver.do("goto [http://example.com/]").error or "")


@pytest.mark.parametrize("how", ["Busy", "Silent", "Freeze"])
def test_a_hung_page_ends_the_episode_and_the_next_reset_recovers(site: str, how: str) -> None:
    with WebEnv(step_timeout_s=4.0, screenshots=False) as env:
        driver = Driver(env, f"{site}/")
        with pytest.raises(InfraError, match=r"did not respond within 4 s"):
            driver.do(f'click "{how}"')
        with pytest.raises(EnvError, match="call reset first"):
            env.step(Action("scroll", text="down"))
        assert env.reset(task_at("__SHOPPING__/")).title == "Brightcart"


def test_a_killed_browser_is_an_infra_error_and_is_started_again(site: str) -> None:
    with WebEnv(screenshots=False) as env:
        driver = Driver(env, f"{site}/")
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # zombies, and those that went with the one before
                if env._host.mark in process.cmdline():
                    process.kill()
        with pytest.raises(InfraError):
            driver.do("scroll [down]")
        assert env.reset(task_at(f"{site}/late")).title == "Late"


def test_async_methods_work_in_any_loop(env: WebEnv, site: str) -> None:
    async def episode() -> bool | None:
        await env.areset(task_at(f"{site}/late"))
        await env.astep(Action("scroll", text="down"))
        assert (await env.ascreenshot())[:2] == b"\xff\xd8"
        await env.astep(Action("stop", text="OK"))
        return (await env.aevaluate()).success

    assert asyncio.run(episode()) is True


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05])
def test_a_reset_that_is_cancelled_leaves_no_half_episode(env: WebEnv, site: str, delay: float) -> None:
    async def cancelled() -> None:
        reset = asyncio.ensure_future(env.areset(task_at(f"{site}/late")))
        await asyncio.sleep(delay)
        reset.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reset
        with pytest.raises(EnvError, match="no episode is running; call reset first"):
            await env.astep(Action("scroll", text="down"))

    asyncio.run(cancelled())
    assert env.reset(task_at(f"{site}/late")).title == "Late"


def test_calls_made_at_once_run_one_by_one(env: WebEnv, site: str) -> None:
    async def at_once() -> list[object]:
        task, scroll = task_at(f"{site}/late"), Action("scroll", text="down")
        calls = (env.areset(task), env.astep(scroll), env.areset(task), env.astep(scroll))
        return list(await asyncio.gather(*calls))

    first, _, second, _ = asyncio.run(at_once())
    assert first == second


def test_closing_during_a_step_ends_the_step() -> None:
    async def closed_early() -> None:
        env = WebEnv()
        await env.areset(task_at("data:text/html,<title>Here</title>"))
        step = asyncio.ensure_future(env.astep(Action("wait", text="3")))
        await asyncio.sleep(0.2)
        await env.aclose()
        with pytest.raises(EnvError, match="closed while it worked"):
            await asyncio.wait_for(step, 2)
        with pytest.raises(EnvError, match="is closed; make a new one"):
            await env.astep(Action("wait"))

    asyncio.run(closed_early())


def test_actions_made_by_hand_are_checked(env: WebEnv, site: str) -> None:
    env.reset(task_at(f"{site}/late"))
    assert "there is no action 'fly'; there are click" in str(env.step(Action("fly")).error)
    assert env.step(Action("wait", text="soon")).error == "wait: 'soon' is no number of seconds"


def test_after_stop_only_scoring_is_left(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/late")
    result = driver.do("stop [no]")
    assert (result.done, result.answer) == (True, "no")
    with pytest.raises(EnvError, match="has ended"):
        env.step(Action("scroll", text="down"))
    assert env.evaluate().success is False


def test_a_missing_browser_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    with pytest.raises(BrowserMissing, match=r"apt-get install chromium-headless-shell.*playwright install chromium"):
        WebEnv(executable="/no/such/chromium").reset(task_at("http://127.0.0.1/"))
    monkeypatch.setenv("AGENTKV_CHROMIUM", "/nowhere/chrome")
    with pytest.raises(BrowserMissing, match="AGENTKV_CHROMIUM names /nowhere/chrome"):
        WebEnv().reset(task_at("http://127.0.0.1/"))
    monkeypatch.delenv("AGENTKV_CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with WebEnv() as env, pytest.raises(BrowserMissing, match="no Chromium found; install one with"):
        env.reset(task_at("http://127.0.0.1/"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"style": "html"}, "unknown style 'html'; there are label-first, vwa"),
        ({"scoring": "kind"}, "unknown scoring 'kind'"),
        ({"step_timeout_s": 0}, "must be positive"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(EnvError, match=reason):
        WebEnv(**options)  # type: ignore[arg-type]


def test_an_unknown_placeholder_is_a_task_error(env: WebEnv) -> None:
    with pytest.raises(TaskError, match=r"unknown placeholder __SHOPING__; did you mean __SHOPPING__\?"):
        env.reset(task_at("__SHOPING__/"))


_LEAVE = """
import os, sys
from agentkv_envs import WebEnv, load_suite
env = WebEnv(screenshots=False)
env.reset(load_suite("vwa75:shopping-001")[0])
print(env._host.mark, flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_no_browser_outlives_its_python(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", _LEAVE, how], capture_output=True, text=True, timeout=60, check=False)
    mark = done.stdout.strip()
    assert mark, done.stderr
    deadline = time.monotonic() + 5
    while any(mark in " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < deadline, "Chromium is still running"
        time.sleep(0.1)
