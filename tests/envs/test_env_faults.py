"""Awkward pages and broken browsers: each complaint that users of web environments have had, by its symptom."""

from __future__ import annotations

import asyncio
import io
import time
from typing import Any

import pytest
from env_pages import Driver, awkward_site, task_at
from PIL import Image
from playwright.async_api import Error as PlaywrightError

from agentkv_envs import EnvError, InfraError, WebEnv, resolve
from agentkv_envs.types import Action

pytestmark = pytest.mark.browser
FILES = ("blue-bicycle.png", "red-mug.png")


# Files


def test_a_hidden_file_input_behind_a_label_takes_a_file(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/upload", FILES)
    assert 'file "Add photo" [1], file "Papers" [2]' in driver.seen.text
    assert driver.do('upload "Add photo" [blue-bicycle.png]').error is None
    assert 'file "Add photo" [1] = blue-bicycle.png' in driver.seen.text
    assert "blue-bicycle.png 4797" in driver.seen.text
    assert driver.do('upload "Papers" [red-mug.png]').error is None
    assert 'file "Papers" [2] = red-mug.png' in driver.seen.text


def test_a_button_that_opens_a_file_chooser_takes_a_file(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/upload", FILES)
    assert driver.do('upload "Attach" [red-mug.png]').error is None
    assert "chosen red-mug.png" in driver.seen.text
    assert driver.do('upload "Other" [red-mug.png]').error == "upload: this element does not ask for a file"


def test_only_the_files_of_the_task_can_be_uploaded(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/upload", FILES[:1])
    assert driver.do('upload "Papers" [red-mug.png]').error == (
        'upload: there is no file "red-mug.png"; there are blue-bicycle.png'
    )
    assert driver.do('upload "Papers" [/etc/passwd]').error is not None


# Effects are verified


@pytest.mark.parametrize(
    ("action", "kept"),
    [('type "Code" [abc] [0]', ""), ('type "Late" [abc] [0]', "old"), ('select "Plan" [Gold]', "Basic")],
)
def test_a_field_that_the_page_reverts_is_reported(env: WebEnv, site: str, action: str, kept: str) -> None:
    driver = Driver(env, f"{site}/stubborn")
    assert f'reverted by the page: the field holds "{kept}"' in (driver.do(action).error or "")


def test_a_field_that_the_page_formats_is_no_error(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/stubborn")
    assert driver.do('type "Phone" [1234567] [0]').error is None
    assert driver.do('select "Fine" [Two]').error is None
    assert 'combobox "Fine" [5] = Two' in driver.seen.text
    driver.do("press [Tab]")
    assert 'textbox "Phone" [3] = 123-4567' in driver.seen.text


def test_a_stale_element_is_an_error_at_once(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/stale")
    driver.do('click "Later"')
    stale = resolve('click "Going"', driver.seen)
    time.sleep(0.5)
    began = time.monotonic()
    result = env.step(stale)
    assert time.monotonic() - began < 2  # not the four seconds of an element that is waited for
    assert "is stale" in (result.error or "")
    assert "Going" not in result.observation.text


def test_a_key_that_no_keyboard_has_is_typed(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/leave")
    driver.do('click "textbox"')
    assert driver.do("press [ü]").error is None
    assert 'textbox "textbox" [1] = ü focused' in driver.seen.text
    assert driver.seen.focused == 1


# What is seen


def test_leaving_a_page_that_asks_back_does_not_hang(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/leave")
    driver.do('type "textbox" [a] [0]')
    driver.do('click "Away"')
    assert driver.seen.title == "Late"


def test_icons_get_names_and_what_has_no_box_is_kept(env: WebEnv, site: str) -> None:
    assert 'button "Star" [1], button "Bin" [2], link "Boxless" [3]' in Driver(env, f"{site}/icons").seen.text


def test_lines_that_repeat_are_one_line(env: WebEnv, site: str) -> None:
    assert Driver(env, f"{site}/repeats").seen.text.split("\n")[1:] == ["Sold out (x5)", "In stock"]


def test_scrolling_pages_lists_to_what_the_screen_shows(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/table")
    assert "1-8 of 60 shown" in driver.seen.text
    driver.do("scroll [down]")
    first = driver.seen.text.split("\n")[1]
    assert first.startswith("Row ")
    assert int(first.split()[1]) > 15
    driver.do('more "more items"')
    assert int(driver.seen.text.split("\n")[1].split()[1]) == int(first.split()[1]) + 8
    driver.do("scroll [up]")
    assert "1-8 of 60 shown" in driver.seen.text


def test_scrolling_pages_a_long_page_to_what_the_screen_shows(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/tall")
    assert "Text of part 0" in driver.seen.text
    driver.do("scroll [down]")
    assert "Text of part 0\n" not in driver.seen.text
    driver.do("press [End]")
    assert "Text of part 59" in driver.seen.text


def test_the_browser_knows_the_sites_date(env: WebEnv, site: str) -> None:
    assert "2026-03-14 true 0 true" in Driver(env, f"{site}/clock").seen.text


def test_localhost_is_the_sites_own_address(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/late")
    driver.do(f"goto [{site.replace('127.0.0.1', 'localhost')}/form]")
    assert driver.seen.title == "Form"


def test_a_menu_stays_open_between_steps(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/menu")
    assert "Saws" not in driver.seen.text
    driver.do('hover "Tools"')
    driver.do("wait [0.2]")
    env.screenshot()
    assert "blurred" not in driver.seen.text
    driver.do('click "Saws"')
    assert driver.seen.title == "Late"


def test_a_frame_of_another_site_can_be_used(env: WebEnv, site: str) -> None:
    with awkward_site() as other:
        driver = Driver(env, f"{site}/other-frame?{other.rpartition(':')[2]}")
        driver.do('click "Go"')
        assert "done" in driver.seen.text


def test_a_frame_that_vanishes_takes_nothing_with_it(env: WebEnv, site: str) -> None:
    assert "Stays" in Driver(env, f"{site}/vanishing-frame").seen.text


@pytest.mark.parametrize("failures", [2, 3])
def test_a_page_that_is_left_while_it_is_read_is_read_again(env: WebEnv, site: str, failures: int) -> None:
    driver = Driver(env, f"{site}/late")
    page = env._episode.page()  # type: ignore[union-attr]
    read, left = page.aria_snapshot, iter([True] * failures)

    async def snapshot(**options: Any) -> str:
        if next(left, False):
            raise PlaywrightError("Execution context was destroyed, most likely because of a navigation")
        return await read(**options)

    page.aria_snapshot = snapshot  # type: ignore[method-assign]
    if failures < 3:
        assert driver.do("scroll [down]").observation.title == "Late"
    else:
        with pytest.raises(InfraError, match="changes faster than it can be read"):
            driver.do("scroll [down]")


def test_the_page_is_as_large_as_the_screenshot(env: WebEnv, site: str) -> None:
    assert "1280 x 800" in Driver(env, f"{site}/size").seen.text
    assert Image.open(io.BytesIO(env.screenshot())).size == (1280, 800)


def test_blocking_methods_work_inside_a_running_loop(env: WebEnv, site: str) -> None:
    async def episode() -> str:
        return env.reset(task_at(f"{site}/late")).title

    assert asyncio.run(episode()) == "Late"


# Pages that do not come to rest


def test_a_document_whose_load_event_never_comes_is_observed(env: WebEnv, site: str) -> None:
    began = time.monotonic()
    driver = Driver(env, f"{site}/slow-picture")
    assert "# Here" in driver.seen.text
    assert env.screenshot()[:2] == b"\xff\xd8"
    assert time.monotonic() - began < 8


def test_a_document_without_a_body_is_observed(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/bare")
    driver.do('click "Drawing"')
    assert (driver.seen.title, driver.seen.elements) == ("Drawing", ())
    driver.do("go_back")
    driver.do('click "Empty"')
    assert driver.seen.elements == ()


@pytest.mark.parametrize("page", ["restless", "halting"])
def test_a_page_that_never_stops_changing_is_observed_after_the_cap(env: WebEnv, site: str, page: str) -> None:
    driver = Driver(env, f"{site}/{page}")
    assert driver.seen.title == page.title()
    assert driver.do("scroll [down]").timings["settle"] >= 1500


def test_a_page_that_never_stops_loading_says_so(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/polling")
    driver.do("wait [0.1]")
    assert "page still loading" in driver.seen.text
    assert "Still" in driver.seen.text


def test_many_alerts_are_told_in_short(env: WebEnv, site: str) -> None:
    alerts = Driver(env, f"{site}/alerts").do('click "Many"').observation.alerts
    assert alerts == ("Note 0", "Note 1", "Note 2", "Note 3", "Note 4", "and 3 more alerts")


def test_a_loop_of_questions_can_be_stopped(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/alerts")
    driver.do('click "Ask"')
    driver.do("dialog [accept]")
    assert driver.seen.dialog == 'confirm "Once more?"'
    driver.do("dialog [dismiss]")
    assert driver.seen.dialog is None


def test_a_loop_of_alerts_is_a_hung_page(site: str) -> None:
    with WebEnv(step_timeout_s=4.0, screenshots=False) as env:
        driver = Driver(env, f"{site}/alerts")
        with pytest.raises(InfraError, match="did not respond within 4 s"):
            driver.do('click "Loop"')
        assert env.reset(task_at(f"{site}/late")).title == "Late"


# Pages and hosts that cannot be used


def test_a_page_of_ten_megabytes_is_paged(env: WebEnv, site: str) -> None:
    seen = env.reset(task_at(f"{site}/ten-megabytes"))
    assert seen.text.split("\n")[1].startswith("0 ")
    assert 'more "rest of page"' in seen.text


def test_a_page_of_too_many_elements_is_refused_and_the_next_reset_recovers(env: WebEnv, site: str) -> None:
    with pytest.raises(InfraError, match=r"too large to be read: 210\d\d elements"):
        env.reset(task_at(f"{site}/huge"))
    assert env.reset(task_at(f"{site}/late")).title == "Late"


def test_a_host_that_does_not_answer_is_named(env: WebEnv, site: str) -> None:
    with pytest.raises(InfraError, match=r"start page http://127.0.0.1:9911/ cannot be reached: net::ERR_CONNECTION"):
        env.reset(task_at("http://127.0.0.1:9911/"))
    with pytest.raises(EnvError, match="call reset first"):
        env.step(Action("scroll", text="down"))
    assert env.reset(task_at(f"{site}/late")).title == "Late"


def test_a_crashed_page_is_an_infra_error_and_the_next_reset_recovers(env: WebEnv, site: str) -> None:
    driver = Driver(env, f"{site}/late")

    async def crash() -> None:
        page = env._episode.page()  # type: ignore[union-attr]
        session = await page.context.new_cdp_session(page)
        await asyncio.wait({asyncio.ensure_future(session.send("Page.crash"))}, timeout=1)

    env._thread.submit(crash()).result()
    with pytest.raises(InfraError, match="the page crashed"):
        driver.do("scroll [down]")
    assert env.reset(task_at("__SHOPPING__/")).title == "Brightcart"
