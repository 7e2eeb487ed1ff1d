"""The forum's posts, comments and people for a split: texts whose drawn values are still open. See `grammar`."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from agentkv_envs.sites.forum.grammar import Draft, draft, pick
from agentkv_envs.sites.forum.phrases import (
    COLOURS,
    COMMENTS,
    GENRES,
    OPENERS,
    REPLIES,
    SEASONS,
    SPANS,
    Genre,
)
from agentkv_envs.sites.forum.themes import THEMES, Theme
from agentkv_envs.sites.wiki.names import titles

NOW = datetime(2026, 3, 14, 12, 0)
PER_FORUM = 47
PEOPLE = 170
ME = 1
_OLDEST_MINUTES = 100 * 24 * 60
_COUNTS = (2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 10, 11, 13, 16)
_NARROWED = ("entity", "item", "maker", "town", "rival", "other")
_WORDS = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Post:
    """`about` names its topic (an article), thing, makers and town; `link`: it links to the article."""

    id: int
    forum: int
    author: int
    created: datetime
    tag: str
    title: str
    body: Draft
    about: dict[str, str]
    link: bool
    picture: tuple[str, str, int] | None
    locked: bool


@dataclass(frozen=True)
class Comment:
    """`parent` is the comment it answers, None for the post itself."""

    id: int
    post: int
    parent: int | None
    author: int
    created: datetime
    body: Draft


@functools.cache
def forum_words(index: int, split: str) -> dict[str, Sequence[str]]:
    """What a forum's people talk about; the posts narrow it down."""
    theme = THEMES[index]
    return {
        "entity": [title for kind in theme.kinds for title in titles(split, kind)],
        "item": theme.items,
        "other": theme.items,
        "trouble": theme.troubles,
        "praise": theme.praise,
        "chore": theme.chores,
        "maker": titles(split, "maker"),
        "rival": titles(split, "maker"),
        "town": titles(split, "town"),
        "other_town": titles(split, "town"),
        "event": titles(split, "event"),
        "season": SEASONS,
        "span": SPANS,
        "colour": COLOURS,
    }


@functools.cache
def posts(split: str) -> tuple[Post, ...]:
    """All posts, oldest first; titles are unique in the split."""
    rng = random.Random(f"forum-posts-{split}")
    genres = [genre for genre in GENRES for _ in range(genre.weight)]
    minutes = sorted((int(rng.random() * _OLDEST_MINUTES) for _ in range(len(THEMES) * PER_FORUM)), reverse=True)
    order = [forum for forum in range(len(THEMES)) for _ in range(PER_FORUM)]
    rng.shuffle(order)
    seen: set[str] = set()
    made = []
    for i, (forum, ago) in enumerate(zip(order, minutes, strict=True)):
        genre = genres[int(rng.random() * len(genres))]
        created = NOW - timedelta(minutes=ago + 40)
        made.append(_post(rng, 1001 + i, forum, split, genre, created, seen))
    mine = set(rng.sample(range(len(made)), 9))
    return tuple(replace(post, author=ME, locked=False) if i in mine else post for i, post in enumerate(made))


def _post(
    rng: random.Random, post_id: int, forum: int, split: str, genre: Genre, created: datetime, seen: set[str]
) -> Post:
    title = ""
    while not title or title in seen or len(title) > 62:
        words = _narrow(rng, forum_words(forum, split))
        named = draft(rng, pick(rng, genre.titles), words)
        title = "".join(part if isinstance(part, str) else _fixed(rng, part[0]) for part in named.parts)
    seen.add(title)
    body = draft(rng, " ".join(pick(rng, group) for group in genre.groups), words)
    picture = None
    if genre.tag == "Picture":
        picture = (pick(rng, THEMES[forum].picture), pick(rng, COLOURS), 1 + int(rng.random() * 5))
    return Post(
        post_id,
        forum,
        2 + int(rng.random() * (PEOPLE - 1)),
        created,
        genre.tag,
        title,
        body,
        {name: words[name][0] for name in _NARROWED},
        genre.tag == "Link",
        picture,
        rng.random() < 0.04,
    )


def _fixed(rng: random.Random, name: str) -> str:
    """A value in a title, which does not change with the data seed."""
    return Draft(((name, name),)).fill(rng)[0]


def _narrow(rng: random.Random, words: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """One topic, thing, maker and town for a post and all who answer."""
    chosen = {name: (pick(rng, words[name]),) for name in _NARROWED[:4]}
    chosen["rival"] = (pick(rng, [maker for maker in words["maker"] if maker != chosen["maker"][0]]),)
    chosen["other"] = (pick(rng, [item for item in words["item"] if item != chosen["item"][0]]),)
    return {**words, **chosen}


@functools.cache
def comments(split: str) -> tuple[Comment, ...]:
    """All comments, in the order of their posts; a comment comes after the one it answers."""
    rng = random.Random(f"forum-comments-{split}")
    tags = {genre.tag: genre for genre in GENRES}
    made: list[Comment] = []
    for post in posts(split):
        genre = tags[post.tag]
        words = {**forum_words(post.forum, split), **{name: (word,) for name, word in post.about.items()}}
        made += _thread(rng, post, genre, words, len(made) + 1)
    return tuple(made)


def _thread(rng: random.Random, post: Post, genre: Genre, words: _WORDS, first_id: int) -> list[Comment]:
    made: list[Comment] = []
    level: dict[int, int] = {}
    used: set[str] = set()
    span = (NOW - post.created).total_seconds() / 60
    step = min(span, 4000.0) / (max(_COUNTS) + 2)
    for i in range(_COUNTS[int(rng.random() * len(_COUNTS))]):
        parent = None
        if made and rng.random() < 0.42:
            above = made[int(rng.random() * len(made))]
            parent = above if level[above.id] < 3 else None
        pattern = _pattern(rng, genre, parent is not None, used)
        author = 2 + int(rng.random() * (PEOPLE - 1)) if rng.random() > 0.004 else ME
        if parent is not None and rng.random() < 0.3:
            author = post.author
        created = post.created + timedelta(minutes=int(step * (i + rng.random())))
        comment = Comment(
            first_id + i, post.id, parent.id if parent else None, author, created, draft(rng, pattern, words)
        )
        level[comment.id] = level[parent.id] + 1 if parent else 1
        made.append(comment)
    return made


def _pattern(rng: random.Random, genre: Genre, reply: bool, used: set[str]) -> str:
    """A sentence pattern that this thread has not had; now and then with a second one."""
    while True:
        pool = REPLIES if reply else genre.comments if rng.random() < 0.5 else COMMENTS
        main = pick(rng, pool)
        if main not in used or len(used) > 15:
            break
    used.add(main)
    opener = pick(rng, OPENERS) if not reply else ""
    tail = f" {pick(rng, COMMENTS)}" if rng.random() < 0.16 else ""
    return f"{opener}{main[:1].lower() + main[1:] if opener and main[1:2] != ' ' else main}{tail}"


@functools.cache
def people(split: str) -> tuple[Theme, ...]:
    """The theme each member is mostly there for, by member."""
    rng = random.Random(f"forum-people-{split}")
    return tuple(THEMES[int(rng.random() * len(THEMES))] for _ in range(PEOPLE))
