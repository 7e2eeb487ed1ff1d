"""The encyclopedia: its data, its search, its pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from starlette.testclient import TestClient

from agentkv_envs import WebEnv, parse_action, resolve
from agentkv_envs.sites import SPLITS, Site, World, open_site
from agentkv_envs.sites.wiki.articles import articles, by_title
from agentkv_envs.sites.wiki.database import facts, template
from agentkv_envs.sites.wiki.names import topics
from agentkv_envs.sites.wiki.pages import linked, path_of
from agentkv_envs.sites.wiki.store import PAGE_SIZE, Store
from agentkv_envs.tasks.schema import read_task
from agentkv_envs.types import Task


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store()
    yield opened
    opened.close()


@pytest.fixture
def site() -> Iterator[Site]:
    opened = open_site("wiki", World(), {"home": "http://portal"})
    yield opened
    opened.close()


@pytest.fixture
def client(site: Site) -> TestClient:
    return TestClient(site.app)


def task_at(url: str) -> Task:
    answers = {"must_include": ["x"]}
    checks = {"eval_types": ["string_match"], "reference_answers": answers}
    return read_task({"sites": ["wiki"], "task_id": "try-1", "intent": "x", "start_url": url, "eval": checks}, "test")


# Data


def test_each_split_has_its_own_topics() -> None:
    test, train = ({topic.title for topic in topics(split)} for split in SPLITS)
    assert len(test) == len(topics("test")) >= 150
    assert len(train) == len(topics("train")) >= 150
    assert not test & train


def test_a_seed_changes_values_and_keeps_titles_and_relations() -> None:
    zero, one = articles(0, "test"), articles(1, "test")
    assert [a.title for a in zero] == [a.title for a in one] == sorted(a.title for a in zero)
    pairs = [(f, g) for a, b in zip(zero, one, strict=True) for f, g in zip(a.facts, b.facts, strict=True)]
    assert all(f.value == g.value for f, g in pairs if f.link)
    drawn = [f.value != g.value for f, g in pairs if not f.link and f.label != "Covers"]
    assert sum(drawn) > 0.7 * len(drawn)
    assert template(0, "test") == template.__wrapped__(0, "test") != template(1, "test")


@pytest.mark.parametrize("split", SPLITS)
def test_every_link_leads_to_an_article_and_no_slot_stays_open(split: str) -> None:
    known = by_title(0, split)
    for article in known.values():
        texts = [article.opening, *(body for _, body in article.sections)]
        named = {title for text in texts for title in re.findall(r"\[\[([^\]]+)\]\]", text)}
        assert named | {fact.link for fact in article.facts if fact.link} <= set(known) - {article.title}
        assert not any("{" in text or "}" in text for text in texts)
        assert all(fact.value for fact in article.facts)


@pytest.mark.parametrize("split", SPLITS)
def test_an_attribute_that_the_box_leaves_out_stands_in_the_text(split: str) -> None:
    hidden = [(a, f) for a in articles(0, split) for f in a.facts if not f.boxed]
    assert len(hidden) > 200
    assert all(any(f.value in body for _, body in a.sections) for a, f in hidden)


def test_relations_agree_with_one_another() -> None:
    known = by_title(0, "test")
    for article in known.values():
        if article.kind == "region":
            assert known[article.fact("Capital")].fact("Region") == article.title
        if article.kind in ("museum", "dish", "event"):
            assert article.title.startswith(article.fact("Town"))
        if article.kind == "trail":
            assert article.fact("Start") != article.fact("End")


def test_tasks_name_values_by_article_and_attribute() -> None:
    values = facts(3, "test")
    town = by_title(3, "test")["Otterford"]
    assert values["WIKI_OTTERFORD_MARKET_DAY"] == town.fact("Market day")
    assert len(values) == sum(len(a.facts) for a in articles(3, "test"))
    assert all(re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", key) for key in values)


# Search and lists


def test_search_needs_every_word_and_puts_titles_first(store: Store) -> None:
    assert [row["title"] for row in store.search("otterford", 1).articles][:1] == ["Otterford"]
    assert store.search("otterf", 1).total == store.search("OTTERFORD", 1).total > 1
    for nothing in ("", '"', "zebra", "zz OR (", "otterford zebra"):
        assert store.search(nothing, 1).total == 0


def test_search_finds_values_that_stand_in_the_box(store: Store) -> None:
    material = next(a for a in articles(0, "test") if a.kind == "material")
    found = store.search(f"material {material.fact('Weight').split()[0]}", 1)
    assert material.title in [row["title"] for row in found.articles]


def test_categories_are_paged_and_hold_every_article_once(store: Store) -> None:
    seen = []
    for category in store.categories():
        pages = -(-category["articles"] // PAGE_SIZE)
        seen += [
            row["title"] for page in range(1, pages + 1) for row in store.in_category(category["name"], page).articles
        ]
    assert sorted(seen) == [a.title for a in articles(0, "test")]
    assert store.in_category("Plants", 99).page == store.in_category("Plants", 1).pages


# Pages


def test_an_article_shows_text_box_and_links(client: TestClient) -> None:
    town = by_title(0, "test")["Otterford"]
    page = client.get(path_of("Otterford")).text
    assert f'<a href="{path_of(town.fact("River"))}">{town.fact("River")}</a>' in page
    assert f"<td>{town.fact('Market day')}</td>" in page
    assert town.fact("Town hall") in page
    assert client.get("/fieldbook_en/A/otterford").status_code == 200


@pytest.mark.parametrize("path", ["/", "/search?pattern=fern", path_of("Category:Plants"), path_of("Links:Otterford")])
def test_lists_have_pages_and_a_way_to_the_portal(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert '<a class="portal" href="http://portal/">Portal</a>' in page.text


@pytest.mark.parametrize("path", [path_of("Nothing here"), path_of("Category:Nothing"), "/static/none.css", "/nope"])
def test_what_does_not_exist_is_a_polite_404(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 404
    assert "There is no such article" in page.text


def test_nothing_can_be_written(client: TestClient) -> None:
    assert client.post(path_of("Otterford"), data={"body": "x"}).status_code == 405


def test_titles_are_escaped() -> None:
    assert str(linked("<b>[[Dunmore & Fitch]]")) == (
        '&lt;b&gt;<a href="/fieldbook_en/A/Dunmore_%26_Fitch">Dunmore &amp; Fitch</a>'
    )


# In the browser


@pytest.mark.browser
def test_pages_are_small_and_links_can_be_followed(env: WebEnv, count_tokens: Callable[[str], int]) -> None:
    seen = env.reset(task_at("__WIKI__/"))
    sizes = [count_tokens(seen.text)]
    for action in ('type "Search Fieldbook" [otterford] [1]', 'click "Otterford"', 'click "River Wend"'):
        parsed = parse_action(action, "label-first").action
        assert parsed is not None
        result = env.step(resolve(parsed, seen))
        assert result.error is None
        seen = result.observation
        sizes.append(count_tokens(seen.text))
    assert seen.title == "River Wend"
    length = by_title(0, "test")["River Wend"].fact("Length")
    assert f"Length: {length}" in seen.text
    assert max(sizes) <= 300
