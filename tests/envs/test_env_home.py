"""The portal: links to the sites of the episode, and the notice board's rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from agentkv_envs.sites import World, open_site
from agentkv_envs.sites.home.database import facts, template
from agentkv_envs.sites.home.store import MAX_OWN, Store
from agentkv_envs.sites.storage import Refusal


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store(World())
    yield opened
    opened.close()


@pytest.fixture
def client() -> TestClient:
    addresses = {"home": "http://h", "classifieds": "http://c", "shopping": "http://s"}
    return TestClient(open_site("home", World(), addresses).app)


def number_of(store: Store, topic: str) -> int:
    return int(store.notices(topic)[0]["id"])


def test_worlds_differ_and_repeat() -> None:
    assert template.__wrapped__(World(5)) == template.__wrapped__(World(5)) != template(World(6))
    titles = [{row["title"] for row in Store(World(0, split)).notices()} for split in ("test", "train")]
    assert len(titles[0]) == len(titles[1]) == 8
    assert not titles[0] & titles[1]


def test_the_facts_are_on_the_board(store: Store) -> None:
    known = facts(World())
    for row in store.notices():
        assert known[f"NOTICE_{row['id']}_TITLE"] == row["title"]
        assert known[f"NOTICE_{row['id']}_BODY"] == row["body"]
        assert known.get(f"NOTICE_{row['id']}_PHONE", "") == row["phone"]
    assert (store.locker()["box"], store.locker()["code"]) == (known["LOCKER_BOX"], known["LOCKER_CODE"])


def test_it_links_the_sites_of_the_episode_and_no_others(client: TestClient) -> None:
    page = client.get("/").text
    assert '<a href="http://s/">Brightcart</a>' in page
    assert '<a href="http://c/">Doorstep</a>' in page
    assert "Fieldbook" not in page
    assert "http://h" not in page


def test_notices_are_pinned_and_taken_down(store: Store) -> None:
    for topic, title, body, reason in (
        ("Gossip", "T", "B", "choose a topic"),
        ("Event", " ", "B", "title and text"),
        ("Event", "T", "b" * 301, "300"),
        ("Event", store.notices()[0]["title"], "B", "already"),
    ):
        with pytest.raises(Refusal, match=reason):
            store.pin(topic, title, body)
    numbers = [store.pin("Event", f"Party {i}", "Come") for i in range(MAX_OWN)]
    with pytest.raises(Refusal, match="at a time"):
        store.pin("Event", "Party", "Come")
    assert store.notices()[0]["id"] == numbers[-1]
    store.take_down(numbers[0])
    with pytest.raises(Refusal, match="only your own"):
        store.take_down(number_of(store, "Found"))


def test_slips_run_out(store: Store) -> None:
    number = number_of(store, "Lesson")
    notice = store.notice(number)
    assert notice is not None
    for _ in range(notice["slips"]):
        assert store.take_slip(number) == notice["phone"]
    with pytest.raises(Refusal, match="no slips left"):
        store.take_slip(number)
    with pytest.raises(Refusal, match="no slips left"):
        store.take_slip(number_of(store, "Found"))


def test_seats_are_taken_and_given_back(store: Store) -> None:
    number = next(row["id"] for row in store.notices("Event") if row["seats"])
    before = store.notice(number)["seats"]  # type: ignore[index]
    store.sign_up(number)
    with pytest.raises(Refusal, match="already"):
        store.sign_up(number)
    assert store.notice(number)["seats"] == before - 1  # type: ignore[index]
    store.cancel(number)
    with pytest.raises(Refusal, match="not signed up"):
        store.cancel(number)
    assert store.notice(number)["seats"] == before  # type: ignore[index]
    store.db.execute("UPDATE notice SET seats = 0")
    with pytest.raises(Refusal, match="seats are taken"):
        store.sign_up(number)
    with pytest.raises(Refusal, match="no sign-ups"):
        store.sign_up(number_of(store, "Found"))


def test_the_locker_code_is_shown_on_one_page_only(client: TestClient) -> None:
    code = facts(World())["LOCKER_CODE"]
    assert code not in client.get("/locker/").text
    assert code in client.post("/locker/").text
    assert code not in client.get("/locker/").text
    assert "not shown again" in client.post("/locker/").text


def test_pages_and_forms(client: TestClient) -> None:
    for path in ("/", "/?topic=Event", "/notice/1/", "/notice/new/", "/locker/"):
        assert client.get(path).text == client.get(path).text
    page = client.post("/notice/new/", data={"topic": "Event", "title": "Tea", "body": ""}).text
    assert "title and text" in page
    assert 'value="Tea"' in page
    page = client.post("/notice/new/", data={"topic": "Event", "title": "Tea", "body": "At five"}).text
    assert "Your notice is up." in page
    assert client.get("/notice/999/").status_code == 404
