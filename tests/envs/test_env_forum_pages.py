"""The forum's pages, without a browser, and what only a browser can show."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

import pytest
from forum_rows import FORM, others, post_of, task_at
from starlette.testclient import TestClient

from agentkv_envs import Observation, WebEnv, parse_action, resolve
from agentkv_envs.sites import Site, World, open_site
from agentkv_envs.sites.forum import people
from agentkv_envs.sites.forum.content import ME
from agentkv_envs.sites.forum.forum import comment_path, post_path, slug
from agentkv_envs.sites.forum.pictures import caption
from agentkv_envs.sites.forum.reading import THREADS
from agentkv_envs.sites.forum.store import Store
from agentkv_envs.sites.storage import Row
from agentkv_envs.sites.wiki.articles import by_title


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store()
    yield opened
    opened.close()


@pytest.fixture
def site() -> Iterator[Site]:
    opened = open_site("forum", World(), {"home": "http://portal", "wiki": "http://wiki"})
    yield opened
    opened.close()


@pytest.fixture
def client(site: Site) -> TestClient:
    client = TestClient(site.app)
    client.cookies.update(site.cookies)
    return client


# Pages


def test_a_post_page_has_the_markup_that_evaluators_read(client: TestClient, store: Store) -> None:
    post = post_of(store, f"p.author_id != {ME} AND picture_count > 0")
    page = client.get(f"/f/{post['forum']}/{post['id']}/").text
    assert re.search(r'<div class="submission__vote"><form class="vote"', page)
    for name in ("submission__inner", "submission__title", "submission__info", "submission__body", "submission__image"):
        assert f'class="{name}' in page
    assert page.count('class="comment" data-level=') == len(
        [node for root in store.threads(post["id"])[:THREADS] for node in root.walk()]
    )
    assert client.get(post_path(post)).text == page


def test_addresses_end_in_a_slug() -> None:
    assert slug("Dunmore & Fitch: worth it?") == "dunmore-fitch-worth-it"
    assert slug("???") == "-"


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/all", "/new", "/all/top?t=week", "/forums", "/forums?page=2", "/search?q=tent", "/wiki", "/messages"),
        *("/f/allotment", "/f/allotment/most_commented", "/wiki/allotment/rules", "/wiki/-/edit/allotment/calendar"),
        *("/submit", "/submit/potluck", "/edit_biography", "/block_list", "/kept/saved", "/kept/hidden", "/message/4"),
        *("/user/juniper", "/user/juniper/comments", "/f/strings/subscribe", "/reader/Otterford", "/login"),
    ],
)
def test_every_page_can_be_opened_and_leads_to_the_portal(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert '<a href="http://portal/">Portal</a>' in page.text


@pytest.mark.parametrize(
    "path", ["/nope", "/f/nope", "/f/allotment/rising", "/f/allotment/1", "/user/nobody", "/wiki/nope", "/kept/x"]
)
def test_what_does_not_exist_is_a_polite_404(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 404
    assert "There is nothing at this address" in page.text


def test_who_is_not_signed_in_reads_and_is_asked_to_sign_in(site: Site, store: Store) -> None:
    client = TestClient(site.app)
    assert client.get("/f/allotment").status_code == 200
    assert client.get("/messages").url.path == "/login"
    assert client.post(f"/sv/{others(store)['id']}", data={"choice": "1"}).json() == {"error": "Sign in to vote."}
    wrong = client.post("/login", data={"name": "juniper", "password": "x"})
    assert "Name or password is wrong." in wrong.text
    form = {"name": "juniper", "password": people.PASSWORD, "next": "/messages"}
    assert client.post("/login", data=form).url.path == "/messages"
    client.post("/logout")
    assert client.get("/messages").url.path == "/login"


def test_a_refused_post_keeps_what_was_typed(client: TestClient) -> None:
    page = client.post("/submit", data=FORM | {"tag": "", "title": "A <b>title</b>"})
    assert "Please choose a tag." in page.text
    assert 'value="A &lt;b&gt;title&lt;/b&gt;"' in page.text


def test_acts_by_form(client: TestClient, site: Site, store: Store) -> None:
    """Each form leads to the page that shows what it did."""
    page = client.post("/submit", data=FORM)
    assert "Your post was published." in page.text
    assert page.url.path.endswith("/when-to-sow")
    own = page.url.path.rsplit("/", 1)[0]
    assert "[new]" in client.post(f"{own}/-/edit", data=FORM | {"title": "When? [new]"}).text
    assert "Your comment was posted." in client.post(f"{own}/-/comment", data={"comment": "Soon."}).text
    assert "Your post was deleted." in client.post(f"{own}/-/delete").text
    post = others(store)
    base = f"/f/{post['forum']}/{post['id']}"
    said = client.post(f"{base}/-/comment", data={"comment": "Mine."})
    mine = said.url.path
    assert "Your comment was changed." in client.post(f"{mine}/-/edit", data={"comment": "Ours."}).text
    assert "Your reply was posted." in client.post(mine, data={"comment": "Theirs."}).text
    for what, text in (("save", "Saved."), ("unsave", "No longer saved."), ("hide", "hidden from lists")):
        assert text in client.post(f"{base}/-/{what}").text
    assert client.post(f"{base}/-/burn").status_code == 404
    assert "the moderator will look" in client.post(f"{base}/-/report", data={"reason": "Spam"}).text
    assert "Your member number is" in client.post("/f/potluck/subscribe").text
    assert "You left f/potluck." in client.post("/f/potluck/unsubscribe").text
    assert "is not the door word" in client.post("/f/strings/subscribe", data={"door_word": "x"}).text
    assert f"You blocked {post['author']}." in client.post(f"/user/{post['author']}/block").text
    assert "no longer blocked" in client.post(f"/user/{post['author']}/unblock").text
    assert "Your biography was saved." in client.post("/edit_biography", data={"biography": "Hi"}).text
    assert "Your message was sent." in client.post("/message/4", data={"body": "Yes"}).text
    assert "was deleted." in client.post("/message/4/delete").text
    wiki = client.post("/wiki/-/edit/allotment/calendar", data={"body": "Nothing planned"})
    assert "The page was changed." in wiki.text
    assert "Nothing planned" in wiki.text


def test_a_link_leads_to_the_encyclopedia_where_there_is_one(client: TestClient, store: Store) -> None:
    post = post_of(store, "url LIKE 'wiki:%'")
    page = html.unescape(client.get(post_path(post)).text)
    assert f'href="http://wiki/fieldbook_en/A/{post["topic"].replace(" ", "_")}" target="_blank"' in page.replace(
        "%26", "&"
    )
    alone = open_site("forum", World(), {})
    alone_client = TestClient(alone.app)
    page = html.unescape(alone_client.get(post_path(post)).text)
    (target,) = re.findall(r'href="(/reader/[^"]+)" target="_blank"', page)
    article = by_title(0, "test")[post["topic"]]
    copy = html.unescape(alone_client.get(target).text)
    assert all(fact.value in copy for fact in article.facts if fact.boxed)
    alone.close()


def test_pictures_come_with_captions_that_the_page_does_not_tell(client: TestClient, site: Site, store: Store) -> None:
    post = post_of(store, "picture_count > 1 AND picture_kind = 'house'")
    path = f"/image/{post['id']}.png"
    assert client.get(path).headers["content-type"] == "image/png"
    told = caption("house", post["picture_colour"], post["picture_count"])
    assert site.caption(path) == told
    assert len(told) <= 60
    assert told not in client.get(post_path(post)).text
    for silent in ("/image/1.png", "/image/x.png", "/static/forum.css"):
        assert site.caption(silent) is None


def test_session_tokens_stay_out_of_pages(client: TestClient, site: Site) -> None:
    (token,) = site.cookies.values()
    assert all(token not in client.get(path).text for path in ("/", "/user/juniper", "/submit"))


# In the browser


def act(env: WebEnv, seen: Observation, *actions: str) -> Observation:
    for text in actions:
        action = parse_action(text, "label-first").action
        assert action is not None
        result = env.step(resolve(action, seen))
        assert result.error is None, (text, result.error)
        seen = result.observation
    return seen


def read(env: WebEnv, sql: str) -> list[Row]:
    episode = env._episode
    assert episode is not None
    (database,) = (site.database for site in episode.sites if site.name == "forum")
    return database.execute(sql).fetchall()


def address(post: Row) -> str:
    return f"__FORUM__{post_path(post)}"


@pytest.mark.browser
def test_the_vote_box_lives_in_a_shadow_root(env: WebEnv, store: Store) -> None:
    post = others(store)
    seen = env.reset(task_at(address(post)))
    seen = act(env, seen, 'click "Upvote"')
    assert seen.alerts == ("Upvoted.",)
    assert f'pressed {post["score"] + 1} button "Downvote"' in seen.text
    seen = act(env, seen, 'click "Downvote"')
    assert [tuple(row) for row in read(env, f"SELECT choice FROM post_vote WHERE post_id = {post['id']}")] == [(-1,)]
    # The toast goes with the next thing one does.
    assert act(env, seen, 'type "Comment" [x] [0]').alerts == ()


@pytest.mark.browser
def test_the_rest_of_a_thread_takes_its_time(env: WebEnv, store: Store) -> None:
    many = "(SELECT COUNT(*) FROM comment c WHERE c.post_id = p.id AND parent_id IS NULL) BETWEEN 4 AND 6"
    post = post_of(store, f"{many} AND p.author_id != {ME}")
    seen = env.reset(task_at(address(post)))
    last = store.threads(post["id"])[-1].row
    assert f"Reply to {last['author']}" not in seen.text
    seen = act(env, seen, 'click "Load more comments"')
    while "more items" in seen.text:
        seen = act(env, seen, 'more "more items"')
    assert f"{last['author']} ({last['score']}):" in seen.text


@pytest.mark.browser
def test_a_link_opens_a_new_tab(env: WebEnv, store: Store) -> None:
    post = post_of(store, f"url LIKE 'wiki:%' AND p.author_id != {ME}")
    seen = env.reset(task_at(address(post), "wiki"))
    seen = act(env, seen, f'click "{post["title"]}"', "wait [1]")
    assert (seen.title, seen.current_tab, len(seen.tabs)) == (post["topic"], 1, 2)


@pytest.mark.browser
def test_sorting_at_once_and_asking_before_deleting(env: WebEnv, store: Store) -> None:
    post = post_of(store, f"p.author_id = {ME}")
    seen = env.reset(task_at("__FORUM__/f/allotment"))
    seen = act(env, seen, 'select "Sort by" [Top]')
    assert seen.url.endswith("/f/allotment/top")
    seen = env.reset(task_at(address(post)))
    seen = act(env, seen, 'click "Delete"')
    assert seen.dialog is not None
    seen = act(env, seen, "dialog [accept]")
    assert seen.alerts == ("Your post was deleted.",)


@pytest.mark.browser
def test_pages_keep_to_the_budget(env: WebEnv, store: Store, count_tokens: Callable[[str], int]) -> None:
    post = others(store)
    comment = store.threads(post["id"])[0].row
    paths = [
        *(
            "/",
            "/f/allotment",
            "/forums",
            "/messages",
            "/message/1",
            "/user/juniper",
            "/submit",
            "/wiki/allotment/guide",
        ),
        *("/search?q=tent", post_path(post), comment_path(post, comment["id"]), "/kept/saved"),
    ]
    sizes = [count_tokens(env.reset(task_at(f"__FORUM__{path}")).text) for path in paths]
    assert max(sizes) <= 350
    assert sum(sizes) / len(sizes) <= 250
