from __future__ import annotations

import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from eval_fakes import NEXT, FakeEnv, Lab
from PIL import Image

from agentkv_evals.cli import run_eval, runs_list, runs_report, runs_show
from agentkv_evals.report.plots import sideways
from agentkv_evals.report.shots import ShotStore, embed

EVIL = "</script><script>alert('x')</script> <img src=x onerror=alert(1)> & \"quotes\""


def picture(color: tuple[int, int, int], size: tuple[int, int] = (1280, 720)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, "PNG")
    return buffer.getvalue()


class PictureEnv(FakeEnv):
    def screenshot(self) -> bytes:
        return picture((40 * self._page % 256, 90, 120))


class Page(HTMLParser):
    """Tags with their attributes, visible text, and what stands in script elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


def viewer_steps(data: dict[str, Any]) -> list[dict[str, Any]]:
    """All steps of the report's data, by field name."""
    return [dict(zip(data["fields"], step, strict=True)) for run in data["episodes"] for step in run["steps"]]


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run in which the task, the page, the reply and the answer all try to break out of the report."""
    lab = Lab(tmp_path_factory.mktemp("lab"), env=PictureEnv)
    lab.replies = {"full": [NEXT, f"no action, but {EVIL}", NEXT, f"stop [{EVIL}]"], "window": [NEXT]}
    assert run_eval(lab.options({"t-1": EVIL, "t-2": "two"}, policies=("full", "window")), lab.backends) == 0
    return lab


@pytest.fixture(scope="module")
def html(evil: Lab) -> str:
    return (evil.run / "report.html").read_text()


def test_what_a_run_says_of_dropping_pages_of_papers_and_of_distance_is_shown(evil: Lab, tmp_path: Path) -> None:
    run = tmp_path / "2026-told"
    shutil.copytree(evil.run, run)
    config = json.loads((run / "config.json").read_text())
    config["settings"]["arms"] = [["full", None], ["obs-window", "full/2"], ["conf-kv", "full/2"]]
    first = [row for row in evil.rows() if row["policy"] == "full"]
    rows = []
    for number, row in enumerate(first):
        for policy, budget in config["settings"]["arms"]:
            told = {
                "policy": policy,
                "budget": budget,
                "episode_id": f"{number}-{policy}",
                "success": policy != "conf-kv",
            }
            rows.append(row | told | {"needle": "code", "tokens_between": 1000 + number, "twin_of": None})
    (run / "config.json").write_text(json.dumps(config))
    (run / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert runs_report(str(run), tmp_path) == 0
    page = Page((run / "report.html").read_text())
    assert "(obs-window) under full/2, 2 of 2, next conf-kv with 0." in page.text
    assert "What the papers say" in page.text
    assert "95.3%" in page.text
    labels = [dict(attributes).get("aria-label") for tag, attributes in page.tags if tag == "svg"]
    assert "Success over the distance of the fact, by policy" in labels


def test_a_run_without_such_policies_and_tasks_shows_none_of_that(html: str) -> None:
    assert "No other policy did better" not in html
    assert "What the papers say" not in html
    assert "Success over the distance" not in html


def test_nothing_is_loaded_from_elsewhere(html: str) -> None:
    for tag, attributes in Page(html).tags:
        assert tag not in ("link", "iframe", "object", "base", "a")
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith(("#", "data:")), (tag, value)
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest", html)
    assert "http://" not in re.sub(r"http://127\.0\.0\.1:1/", "", html)
    assert "https://" not in html


def test_text_of_pages_and_models_is_never_markup(html: str) -> None:
    page = Page(html)
    assert len(page.scripts) == 2  # the data and our own code
    assert f"Find {EVIL}" in page.text
    assert not [tag for tag, attributes in page.tags if "onerror" in attributes]
    data = json.loads(page.scripts[0])
    first = data["episodes"][0]
    steps = viewer_steps(data)
    assert EVIL in steps[1]["raw"]
    assert first["answer"] == EVIL
    assert "<script>alert" in data["texts"][steps[0]["text"]]


def test_plots_share_a_page(html: str) -> None:
    ids = [attributes["id"] for _, attributes in Page(html).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', html))
    assert used <= set(ids)
    assert html.count("<svg") == 2 + 2  # success, time, and one per task
    assert "currentColor" in html
    assert "#010203" not in html


def test_pictures_are_embedded_once_and_small(html: str) -> None:
    data = json.loads(Page(html).scripts[0])
    shots = [step["shot"] for step in viewer_steps(data)]
    assert None not in shots
    assert len(data["shots"]) < len(shots)
    assert all(uri.startswith("data:image/jpeg;base64,") for uri in data["shots"])


def test_the_report_says_what_happened(html: str) -> None:
    text = " ".join(Page(html).text.split())
    for words in ("1/2", "early_stop", "max_steps", "With so few tasks", "less than full", "McNemar"):
        assert words in text
    assert "not VisualWebArena" not in text  # only said of the suite it is true of
    assert "Unfinished" not in text


@pytest.mark.browser
def test_the_step_viewer_steps(evil: Lab) -> None:
    from playwright.sync_api import sync_playwright

    from agentkv_envs.browser import find_executable

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_executable(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        problems: list[Any] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.goto((evil.run / "report.html").as_uri())
        assert page.locator("#position").inner_text() == "step 1 of 4"
        assert page.locator("#previous").is_disabled()
        page.locator("#next").click()
        assert EVIL in page.locator("#action").inner_text()
        page.locator("button[data-episode]").nth(1).click()
        assert "window" in page.locator("#pick option:checked").inner_text()
        assert page.locator("#shot").evaluate("image => image.naturalWidth") == 480
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert problems == []
        browser.close()


def test_an_unfinished_run_has_a_report(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run_eval(lab.options(), lab.backends)
    path = lab.run / "results.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    capsys.readouterr()
    assert runs_report(lab.run.name, lab.folder / "runs") == 0
    assert capsys.readouterr().out.strip() == str(lab.run / "report.html")
    text = Page((lab.run / "report.html").read_text()).text
    assert "Unfinished: 1 of 4 episodes" in text
    assert "not run" in text


def test_a_run_under_two_commits_says_so(lab: Lab) -> None:
    run_eval(lab.options(), lab.backends)
    path = lab.run / "config.json"
    config = json.loads(path.read_text())
    config["starts"] = [{**config["starts"][0], "git": {"commit": name, "dirty": False}} for name in ("aaa", "bbb")]
    path.write_text(json.dumps(config))
    runs_report("latest", lab.folder / "runs")
    assert "continued after the code had changed: aaa, bbb" in (lab.run / "report.html").read_text()


def test_runs_list_and_show(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    runs = lab.folder / "runs"
    assert runs_list(runs) == 0
    assert "no runs in" in capsys.readouterr().out
    run_eval(lab.options(), lab.backends)
    capsys.readouterr()
    runs_list(runs)
    assert f"{lab.run.name}  4/4       full 1/2, window @ 12MiB 1/2" in capsys.readouterr().out
    runs_list(runs, json_rows=True)
    assert json.loads(capsys.readouterr().out)["finished_episodes"] == 4
    for name in (lab.run.name, str(lab.run), lab.run.name[:10], lab.run.name[-8:], "latest"):
        assert runs_show(name, runs) == 0
        assert "t-2 window @ 12MiB: fail (wrong answer), 2 steps, peak KV 0.0 MiB" in capsys.readouterr().out
    runs_show("latest", runs, json_rows=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == lab.rows()


def test_unknown_and_ambiguous_runs(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run_eval(lab.options(), lab.backends)
    run_eval(lab.options(fresh=True), lab.backends)
    capsys.readouterr()
    assert runs_show("nosuch", lab.folder / "runs") == 2
    assert "no run 'nosuch' in" in capsys.readouterr().err
    assert runs_show("2", lab.folder / "runs") == 2
    assert "fits 2 runs" in capsys.readouterr().err
    assert runs_report("nosuch", lab.folder / "none") == 2


def test_a_tight_budget_cuts_the_tails_of_all_episodes(tmp_path: Path) -> None:
    paths = [[tmp_path / f"{row}-{step}.png" for step in range(3)] for row in range(2)]
    for row, steps in enumerate(paths):
        for step, path in enumerate(steps):
            path.write_bytes(picture((row * 100, step * 60, 5)))
    probe = ShotStore()
    probe.add(paths[0][0])
    size = len(probe.uris[0])
    assert embed(ShotStore(4 * size + size // 2), [*paths, []]) == [[0, 2, None], [1, 3, None], []]


def test_a_broken_picture_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG no")
    assert ShotStore().add(tmp_path / "a.png") is None
    assert ShotStore().add(tmp_path / "missing.png") is None


def test_only_marks_that_would_hide_each_other_move() -> None:
    assert sideways([70.0, 12.0, 24.0, 12.1]) == [0.0, -3.0, 0.0, 3.0]
