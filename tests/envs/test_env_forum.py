"""The forum's data and rules, without any page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from forum_rows import FORM, comment_of, forum_of, others, post_of, user_of
from PIL import Image

from agentkv_envs.captions import ATTRIBUTES
from agentkv_envs.sites import SPLITS
from agentkv_envs.sites.forum import content, people
from agentkv_envs.sites.forum.content import ME
from agentkv_envs.sites.forum.database import world
from agentkv_envs.sites.forum.grammar import DRAWS, draft
from agentkv_envs.sites.forum.phrases import COLOURS
from agentkv_envs.sites.forum.pictures import picture
from agentkv_envs.sites.forum.reading import POSTS_A_PAGE, SORTS
from agentkv_envs.sites.forum.store import Store
from agentkv_envs.sites.forum.themes import THEMES
from agentkv_envs.sites.forum.writing import VANISHED
from agentkv_envs.sites.storage import Refusal
from agentkv_envs.sites.wiki.articles import by_title
from agentkv_envs.sites.wiki.names import titles


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store()
    yield opened
    opened.close()


# Data


@pytest.mark.parametrize("split", SPLITS)
def test_the_forum_is_large_and_its_texts_differ(split: str) -> None:
    store = Store(0, split)
    assert store.count("SELECT COUNT(*) FROM post") >= 900
    assert store.count("SELECT COUNT(*) FROM comment") >= 6500
    assert store.count("SELECT COUNT(DISTINCT title) FROM post") == store.count("SELECT COUNT(*) FROM post")
    assert store.count("SELECT COUNT(DISTINCT body) FROM comment") > 5000
    assert store.count("SELECT COUNT(*) FROM post WHERE picture_count > 0") > 80
    assert store.count("SELECT COUNT(*) FROM (SELECT 1 FROM comment GROUP BY post_id, body HAVING COUNT(*) > 1)") < 60
    store.close()


def test_the_splits_share_no_name_and_no_title() -> None:
    stores = [Store(0, split) for split in SPLITS]
    for sql in ("SELECT title FROM post", "SELECT name FROM user", "SELECT name FROM forum", "SELECT topic FROM post"):
        test, train = ({row[0] for row in store.all(sql)} for store in stores)
        assert not test & train
    for seeds in ((0, 5), (3, 0)):
        test_names, train_names = (set(people.names(n, split)) for n, split in zip(seeds, SPLITS, strict=True))
        assert not test_names & train_names


def test_a_seed_changes_names_values_and_scores_and_keeps_titles() -> None:
    one, two = Store(0), Store(1)
    titles_of = "SELECT id, title, author_id, created, topic FROM post ORDER BY id"
    assert [tuple(r) for r in one.all(titles_of)] == [tuple(r) for r in two.all(titles_of)]
    for sql in ("SELECT name FROM user WHERE id > 1", "SELECT value FROM fact", "SELECT score FROM post"):
        pairs = list(zip(one.all(sql), two.all(sql), strict=True))
        assert sum(a[0] != b[0] for a, b in pairs) > 0.6 * len(pairs)
    assert one.user_by_id(ME)["name"] == two.user_by_id(ME)["name"]  # type: ignore[index]


def test_a_world_is_always_the_same() -> None:
    assert world(2, "train") == world.__wrapped__(2, "train")


def test_every_value_in_the_ground_truth_stands_in_its_text(store: Store) -> None:
    sql = (
        "SELECT f.value, COALESCE(c.body, p.body) AS text FROM fact f JOIN post p ON p.id = f.post_id"
        " LEFT JOIN comment c ON c.id = f.comment_id"
    )
    rows = store.all(sql)
    assert len(rows) > 3000
    assert all(row["value"] in row["text"] for row in rows)


def test_tasks_name_values_by_post_and_label(store: Store) -> None:
    _, known = world(0, "test")
    fact = store.one("SELECT * FROM fact WHERE comment_id IS NULL AND label = 'price'")
    assert fact is not None
    assert known[f"FORUM_POST_{fact['post_id']}_PRICE"] == fact["value"]
    assert known["FORUM_DOOR_WORD"] == forum_of(store, "strings")["door_word"]
    assert all(re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", key) for key in known)


def test_codes_are_a_small_part_of_what_is_drawn() -> None:
    parts = [part[0] for post in content.posts("test") for part in post.body.parts if isinstance(part, tuple)]
    assert 0 < parts.count("code") < len(parts) / 10
    assert set(parts) <= set(DRAWS)


def test_posts_are_about_articles(store: Store) -> None:
    known = by_title(0, "test")
    assert all(row[0] in known for row in store.all("SELECT topic FROM post"))


def test_comments_come_after_what_they_answer_and_before_now(store: Store) -> None:
    assert not store.all("SELECT 1 FROM comment c JOIN post p ON p.id = c.post_id WHERE c.created < p.created")
    early = "SELECT 1 FROM comment c JOIN comment d ON d.id = c.parent_id WHERE c.created < d.created"
    assert not store.all(early)
    assert not store.all("SELECT 1 FROM comment WHERE created >= '2026-03-14T12:00'")


def test_sentences_begin_with_a_capital_letter() -> None:
    import random

    words = {"a": ("one two",), "b": ("three",)}
    assert draft(random.Random(0), "{a}. {b}, {b}! {a}", words).parts == ("One two. Three, three! One two",)


def test_themes_draw_pictures_that_exist() -> None:
    for theme in THEMES:
        for kind in theme.picture:
            image = Image.open(io.BytesIO(picture(kind, "red", 2, 1)))
            assert image.size == (480, 320)
    assert picture.__wrapped__("mug", "blue", 3, 0) == picture("mug", "blue", 3, 0) != picture("mug", "blue", 2, 0)
    assert set(COLOURS) <= set(ATTRIBUTES[0])


# Reading


def test_lists_are_sorted_as_they_say(store: Store) -> None:
    forum_id = forum_of(store, "allotment")["id"]
    for sort, column in (("new", "created"), ("top", "score"), ("most_commented", "comments")):
        values = [row[column] for row in store.in_forum(forum_id, sort, "all", 1).rows]
        assert len(values) == POSTS_A_PAGE
        assert values == sorted(values, reverse=True)
    assert len({tuple(r["id"] for r in store.in_forum(forum_id, sort, "all", 1).rows) for sort in SORTS}) == 4


def test_a_period_narrows_a_list(store: Store) -> None:
    counts = [store.front(True, "top", period, 1).total for period in ("day", "week", "month", "all")]
    assert counts == sorted(set(counts))


def test_the_front_page_holds_subscribed_forums_only(store: Store) -> None:
    rows = [row for page in (1, 2, 3) for row in store.front(False, "new", "all", page).rows]
    assert {row["forum"] for row in rows} <= set(store.subscriptions())
    assert store.front(True, "new", "all", 1).total > store.front(False, "new", "all", 1).total


def test_search_needs_every_word(store: Store) -> None:
    found = store.search("tent pole", 1)
    assert all("tent" in (row["title"] + row["body"]).lower() for row in found.rows)
    assert store.search("tent", 1).total > found.total
    for nothing in ("", '"', "zzebra", "tent zzebra"):
        assert store.search(nothing, 1).total == 0


def test_threads_are_nested_and_complete(store: Store) -> None:
    post = post_of(store, "(SELECT COUNT(*) FROM comment c WHERE c.post_id = p.id) > 8")
    nodes = [node for root in store.threads(post["id"]) for node in root.walk()]
    assert len(nodes) == post["comments"]
    by_id = {node.row["id"]: node for node in nodes}
    for node in nodes:
        parent = by_id.get(node.row["parent_id"])
        assert node.level == (parent.level + 1 if parent else 1)
        assert node.above == (parent.row["author"] if parent else "")


# Rules


def test_a_post_is_published_found_and_leads_its_forum(store: Store) -> None:
    post_id = store.submit(*FORM.values())
    forum_id = forum_of(store, "allotment")["id"]
    assert store.in_forum(forum_id, "new", "all", 1).rows[0]["id"] == post_id
    assert [row["id"] for row in store.search("when sow idea", 1).rows] == [post_id]
    second = store.submit(*(FORM | {"title": "Second"}).values())
    rows = store.in_forum(forum_id, "new", "all", 1).rows
    assert [row["id"] for row in rows[:2]] == [second, post_id]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"forum": ""}, "choose a forum"),
        ({"forum": "strings"}, "Only members can post"),
        ({"tag": "Rant"}, "choose a tag"),
        ({"title": "  "}, "enter a title"),
        ({"title": "x" * 121}, "at most 120"),
        ({"body": ""}, "a text or a link"),
        ({"url": "ftp://x"}, "must begin with http"),
    ],
)
def test_a_post_that_breaks_a_rule_is_refused(store: Store, change: dict[str, str], reason: str) -> None:
    before = store.count("SELECT COUNT(*) FROM post")
    with pytest.raises(Refusal, match=reason):
        store.submit(*(FORM | change).values())
    assert store.count("SELECT COUNT(*) FROM post") == before


def test_a_title_stands_once_in_a_forum(store: Store) -> None:
    store.submit(*FORM.values())
    with pytest.raises(Refusal, match="already a post"):
        store.submit(*(FORM | {"title": "when to SOW?"}).values())
    store.submit(*(FORM | {"forum": "potluck"}).values())


def test_own_posts_can_be_changed_and_deleted(store: Store) -> None:
    post = post_of(store, f"p.author_id = {ME} AND url = ''")
    store.edit_post(post, "Story", "A new title", "A new text", "")
    changed = post_of(store, f"p.id = {post['id']}")
    assert (changed["title"], changed["body"], changed["tag"], changed["edited"]) == (
        *("A new title", "A new text"),
        *("Story", 1),
    )
    assert store.search("new title text", 1).total == 1
    store.delete_post(changed)
    assert store.post(post["forum"], post["id"]) is None
    assert store.count("SELECT COUNT(*) FROM comment WHERE post_id = ?", post["id"]) == 0
    assert store.search("new title text", 1).total == 0


def test_what_others_wrote_cannot_be_changed(store: Store) -> None:
    post, comment = others(store), comment_of(store, f"author_id != {ME}")
    for act in (
        lambda: store.edit_post(post, "Story", "x", "y", ""),
        lambda: store.delete_post(post),
        lambda: store.edit_comment(comment, "x"),
        lambda: store.delete_comment(comment),
    ):
        with pytest.raises(Refusal, match="wrote yourself"):
            act()


def test_comments_and_replies(store: Store) -> None:
    post = others(store)
    comment_id = store.add_comment(post, "  First.  ")
    comment = comment_of(store, f"id = {comment_id}")
    reply_id = store.add_comment(post, "Second.", comment)
    reply = comment_of(store, f"id = {reply_id}")
    assert (comment["body"], reply["parent_id"]) == ("First.", comment_id)
    assert comment["created"] < reply["created"]
    assert store.threads(post["id"])[0].row["id"] == comment_id
    store.edit_comment(reply, "Third.")
    store.delete_comment(comment)
    assert comment_of(store, f"id = {comment_id}")["body"] == "[deleted]"
    with pytest.raises(Refusal, match="was deleted"):
        store.add_comment(post, "x", comment_of(store, f"id = {comment_id}"))
    store.delete_comment(comment_of(store, f"id = {reply_id}"))
    assert store.comment(post["id"], reply_id) is None


def test_comments_that_break_a_rule_are_refused(store: Store) -> None:
    with pytest.raises(Refusal, match="write something"):
        store.add_comment(others(store), "   ")
    with pytest.raises(Refusal, match="at most 600"):
        store.add_comment(others(store), "x" * 601)
    with pytest.raises(Refusal, match="locked"):
        store.add_comment(post_of(store, "locked"), "x")


def test_votes_count_once_and_can_be_taken_back(store: Store) -> None:
    post = others(store)
    for choice, expected in ((1, 1), (1, 1), (-1, -1), (0, 0)):
        store.vote_post(post_of(store, f"p.id = {post['id']}"), choice)
        now = post_of(store, f"p.id = {post['id']}")
        assert (now["score"] - post["score"], now["choice"]) == (expected, choice)
    comment = comment_of(store, f"author_id != {ME}")
    store.vote_comment(comment, -1)
    assert comment_of(store, f"id = {comment['id']}")["score"] == comment["score"] - 1


def test_nobody_votes_on_their_own(store: Store) -> None:
    with pytest.raises(Refusal, match="own post"):
        store.vote_post(post_of(store, f"p.author_id = {ME}"), 1)
    with pytest.raises(Refusal, match="own comment"):
        store.vote_comment(comment_of(store, f"author_id = {ME}"), 1)
    with pytest.raises(Refusal, match="up, down or none"):
        store.vote_post(others(store), 2)


def test_a_member_number_is_told_on_joining(store: Store) -> None:
    forum = forum_of(store, "potluck")
    _, known = world(0, "test")
    assert store.subscribe(forum) == known[f"FORUM_MEMBER_NUMBER_{forum['id']}"]
    joined = forum_of(store, "potluck")
    assert (joined["subscribed"], joined["members"]) == (1, forum["members"] + 1)
    with pytest.raises(Refusal, match="already"):
        store.subscribe(joined)
    store.unsubscribe(joined)
    with pytest.raises(Refusal, match="not subscribed"):
        store.unsubscribe(forum_of(store, "potluck"))


def test_a_forum_for_members_asks_for_its_door_word(store: Store) -> None:
    forum = forum_of(store, "strings")
    with pytest.raises(Refusal, match="not the door word"):
        store.subscribe(forum, "wrong")
    store.subscribe(forum, f" {forum['door_word'].lower()} ")
    store.submit(*(FORM | {"forum": "strings"}).values())


def test_hidden_posts_and_blocked_people_leave_the_lists(store: Store) -> None:
    post = others(store)
    store.mark("hidden", post, True)
    total = store.front(True, "new", "all", 1).total
    store.block(user_of(store, f"id = {store.front(True, 'new', 'all', 1).rows[0]['author_id']}"), True)
    assert store.front(True, "new", "all", 1).total < total
    assert post["id"] in [row["id"] for page in (1, 2) for row in store.marked("hidden", page).rows]
    store.mark("hidden", post, False)
    assert not store.is_marked("hidden", post["id"])
    with pytest.raises(Refusal, match="own post"):
        store.mark("hidden", post_of(store, f"p.author_id = {ME}"), True)
    with pytest.raises(Refusal, match="block yourself"):
        store.block(user_of(store, f"id = {ME}"), True)


def test_saving_and_reporting(store: Store) -> None:
    post = others(store)
    before = store.marked("saved", 1).total
    store.mark("saved", post, True)
    store.mark("saved", post, True)
    assert store.marked("saved", 1).total == before + 1
    store.report(post, "Spam")
    with pytest.raises(Refusal, match="already"):
        store.report(post, "Rude")
    with pytest.raises(Refusal, match="choose a reason"):
        store.report(post, "")
    with pytest.raises(Refusal, match="own post"):
        store.report(post_of(store, f"p.author_id = {ME}"), "Spam")


def test_messages_go_into_the_conversation_with_a_person(store: Store) -> None:
    person = user_of(store, "id IN (SELECT user_id FROM thread)")
    thread = store.send(person, "Hello again")
    assert store.inbox()[0]["id"] == thread
    stranger = user_of(store, f"accepts_mail AND id != {ME} AND id NOT IN (SELECT user_id FROM thread)")
    assert store.send(stranger, "Hello") != thread
    store.delete_thread(thread)
    assert store.thread(thread) is None


def test_messages_that_break_a_rule_are_refused(store: Store) -> None:
    person = user_of(store, "id IN (SELECT user_id FROM thread)")
    for who, text, reason in (
        (person, " ", "write a message"),
        (person, "x" * 1001, "at most 1000"),
        (user_of(store, f"id = {ME}"), "x", "yourself"),
        (user_of(store, "NOT accepts_mail"), "x", "does not accept"),
    ):
        with pytest.raises(Refusal, match=reason):
            store.send(who, text)
    store.block(person, True)
    with pytest.raises(Refusal, match="have blocked"):
        store.send(person, "x")


def test_a_note_vanishes_once_it_was_read(store: Store) -> None:
    _, known = world(0, "test")
    unread = store.unread()
    (note,) = store.read_thread(1)
    assert known["FORUM_DOOR_WORD"] in note["body"]
    assert store.unread() == unread - 1
    assert [row["body"] for row in store.read_thread(1)] == [VANISHED]
    assert [row["body"] for row in store.read_thread(5)] == [row["body"] for row in store.read_thread(5)] != [VANISHED]


def test_wiki_pages_are_edited_by_members(store: Store) -> None:
    page = store.wiki_page("allotment/calendar")
    closed, foreign = store.wiki_page("allotment/rules"), store.wiki_page("potluck/calendar")
    assert page is not None
    assert closed is not None
    assert foreign is not None
    store.edit_wiki(page, " One \n\n Two ")
    changed = store.wiki_page("allotment/calendar")
    assert changed is not None
    assert changed["body"] == "One\nTwo"
    for entry, text, reason in ((closed, "x", "moderator"), (foreign, "x", "Only members"), (page, "\n", "empty")):
        with pytest.raises(Refusal, match=reason):
            store.edit_wiki(entry, text)


def test_a_biography_has_a_limit(store: Store) -> None:
    store.save_biography(" Hello ")
    assert user_of(store, f"id = {ME}")["biography"] == "Hello"
    with pytest.raises(Refusal, match="at most 300"):
        store.save_biography("x" * 301)


def test_episodes_do_not_share_a_database() -> None:
    one, two = Store(), Store()
    one.submit(*FORM.values())
    assert one.count("SELECT COUNT(*) FROM post") == two.count("SELECT COUNT(*) FROM post") + 1


def test_usernames_are_not_topics() -> None:
    names = {name for split in SPLITS for name in people.names(0, split)}
    topics = {
        title.lower() for split in SPLITS for kind in ("town", "person", "maker") for title in titles(split, kind)
    }
    assert not names & topics
