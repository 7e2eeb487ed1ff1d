"""The forum's database: texts once per split, drawn values per data seed, a copy in memory for every episode."""

from __future__ import annotations

import functools
import random
import sqlite3
from importlib import resources

from agentkv_envs.sites.forum import content, people
from agentkv_envs.sites.forum.content import ME, PEOPLE
from agentkv_envs.sites.forum.themes import THEMES
from agentkv_envs.sites.storage import SCHEMA

_STAMP = "%Y-%m-%dT%H:%M"
_FACT = "INSERT INTO fact (post_id, comment_id, label, value) VALUES (?, ?, ?, ?)"


@functools.lru_cache(maxsize=32)
def world(seed: int, split: str) -> tuple[bytes, dict[str, str]]:
    """The serialised database of a world, and the values that tasks name."""
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA + resources.files(__package__ or "").joinpath("schema.sql").read_text("utf-8"))
    rng = random.Random(f"forum-values-{split}-{seed}")
    known: dict[str, str] = {}
    _insert_people(db, rng, seed, split, known)
    _insert_letters(db, rng, split, known)
    _insert_forums(db, rng, split, known)
    _insert_posts(db, rng, split, known)
    _insert_comments(db, rng, split)
    _insert_doings(db, split)
    db.commit()
    data = db.serialize()
    db.close()
    return bytes(data), known


def _insert_people(db: sqlite3.Connection, rng: random.Random, seed: int, split: str, known: dict[str, str]) -> None:
    rows = []
    for i, (name, biography) in enumerate(
        zip(people.names(seed, split), people.biographies(split), strict=True), start=1
    ):
        joined = f"{2016 + int(rng.random() * 9)}-{1 + int(rng.random() * 12):02d}-{1 + int(rng.random() * 28):02d}"
        text = biography.fill(rng)[0]
        rows.append((i, name, people.PASSWORD if i == ME else "", text, joined, int(i == ME or rng.random() > 0.06)))
        known[f"FORUM_USER_{i}"] = name
    db.executemany(
        "INSERT INTO user (id, name, password, biography, joined, accepts_mail) VALUES (?, ?, ?, ?, ?, ?)", rows
    )


def _insert_letters(db: sqlite3.Connection, rng: random.Random, split: str, known: dict[str, str]) -> None:
    letters = people.letters(split)
    senders = random.Random(f"forum-senders-{split}").sample(range(2, PEOPLE + 1), len(letters))
    for i, (letter, sender) in enumerate(zip(letters, senders, strict=True)):
        text, facts = letter.fill(rng)
        known.update((f"FORUM_{label.upper()}", value) for label, value in facts)
        known[f"FORUM_LETTER_{i + 1}_FROM"] = known[f"FORUM_USER_{sender}"]
        db.execute("UPDATE user SET accepts_mail = 1 WHERE id = ?", (sender,))
        db.execute("INSERT INTO thread (id, user_id, unread) VALUES (?, ?, ?)", (i + 1, sender, i < 5))
        db.execute(
            "INSERT INTO message (thread_id, mine, created, body, vanishes) VALUES (?, 0, ?, ?, ?)",
            (i + 1, f"2026-03-{13 - i // 2:02d}T{20 - i:02d}:{10 + i * 3}", text, i < people.VANISHING),
        )


def _insert_forums(db: sqlite3.Connection, rng: random.Random, split: str, known: dict[str, str]) -> None:
    moderators = random.Random(f"forum-moderators-{split}").sample(range(2, PEOPLE + 1), len(THEMES))
    for i, (theme, moderator) in enumerate(zip(THEMES, moderators, strict=True), start=1):
        number = str(int(1200 + rng.random() * 8700))
        word = known["FORUM_DOOR_WORD"] if theme.private else ""
        name = theme.name(split)
        known[f"FORUM_MEMBER_NUMBER_{i}"] = number
        known[f"FORUM_NAME_{i}"] = name
        db.execute("UPDATE user SET accepts_mail = 1 WHERE id = ?", (moderator,))
        db.execute(
            "INSERT INTO forum (id, name, title, about, moderator_id, members, member_number, door_word)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (i, name, theme.title, theme.about, moderator, int(180 + rng.random() * 9000), number, word),
        )
    for index, path, title, lines, is_open in people.wiki_pages(split):
        text, facts = lines.fill(rng)
        known.update((f"FORUM_WIKI_{index + 1}_{label.upper()}", value) for label, value in facts)
        db.execute(
            "INSERT INTO wiki_page (path, forum_id, title, body, open) VALUES (?, ?, ?, ?, ?)",
            (path, index + 1, title, text, is_open),
        )


def _score(rng: random.Random, highest: int) -> int:
    return int(highest * rng.random() ** 4) + int(rng.random() * 9) - 1


def _insert_posts(db: sqlite3.Connection, rng: random.Random, split: str, known: dict[str, str]) -> None:
    rows, facts, texts = [], [], []
    for post in content.posts(split):
        body, drawn = post.body.fill(rng)
        topic = post.about["entity"]
        facts += [(post.id, None, label, value) for label, value in drawn]
        known.update((f"FORUM_POST_{post.id}_{label.upper()}", value) for label, value in drawn)
        texts.append((post.id, post.title, body))
        rows.append(
            (
                *(post.id, post.forum + 1, post.author, post.created.strftime(_STAMP), post.tag, post.title, body),
                *(f"wiki:{topic}" if post.link else "", topic, _score(rng, 420), post.locked),
                *(post.picture or ("", "", 0)),
            )
        )
    db.executemany(
        "INSERT INTO post (id, forum_id, author_id, created, tag, title, body, url, topic, score, locked, picture_kind,"
        f" picture_colour, picture_count) VALUES ({', '.join('?' * 14)})",
        rows,
    )
    db.executemany("INSERT INTO post_search (rowid, title, body) VALUES (?, ?, ?)", texts)
    db.executemany(_FACT, facts)


def _insert_comments(db: sqlite3.Connection, rng: random.Random, split: str) -> None:
    rows, facts = [], []
    for comment in content.comments(split):
        body, drawn = comment.body.fill(rng)
        facts += [(comment.post, comment.id, label, value) for label, value in drawn]
        stamp = comment.created.strftime(_STAMP)
        rows.append((comment.id, comment.post, comment.parent, comment.author, stamp, body, _score(rng, 90)))
    db.executemany(
        "INSERT INTO comment (id, post_id, parent_id, author_id, created, body, score) VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    db.executemany(_FACT, facts)


def _insert_doings(db: sqlite3.Connection, split: str) -> None:
    """What the member did before the episode: subscriptions, saved and hidden posts, a blocked person."""
    db.executemany("INSERT INTO subscription (forum_id) VALUES (?)", [(i + 1,) for i in people.SUBSCRIBED])
    others = [post.id for post in content.posts(split) if post.author != ME]
    chosen = random.Random(f"forum-doings-{split}").sample(others, 7)
    db.executemany("INSERT INTO saved (post_id) VALUES (?)", [(i,) for i in chosen[:4]])
    db.executemany("INSERT INTO hidden (post_id) VALUES (?)", [(i,) for i in chosen[4:5]])
    db.executemany("INSERT INTO post_vote (post_id, choice) VALUES (?, 1)", [(i,) for i in chosen[5:]])
    db.execute("INSERT INTO blocked (user_id) VALUES (?)", (min(PEOPLE, 160),))
