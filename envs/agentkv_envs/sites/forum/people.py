"""Members: their names, biographies, the letters they send, and the pages of the forums' wiki."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentkv_envs.sites.forum.content import PEOPLE, forum_words, people
from agentkv_envs.sites.forum.grammar import Draft, draft, pick
from agentkv_envs.sites.forum.phrases import BIOGRAPHIES, LETTERS
from agentkv_envs.sites.forum.themes import THEMES
from agentkv_envs.sites.wiki.names import titles

MEMBERS = {"test": "juniper", "train": "cobalt"}
PASSWORD = "Password.123"
VANISHING = 3
SUBSCRIBED = (0, 4, 8)

_FIRST = {
    "test": (
        *("moss", "quill", "tinker", "fern", "otter", "maple", "pebble", "cedar", "plum", "ginger", "rusty", "velvet"),
        *("mellow", "sunny", "tidal", "frosty", "peppery", "lucky", "quiet", "hasty"),
    ),
    "train": (
        *("bramble", "cobble", "dusty", "ember", "falcon", "granite", "hazel", "indigo", "jolly", "kettle", "lemon"),
        *("misty", "nutmeg", "olive", "proud", "rocket", "silver", "tulip", "umber"),
    ),
}
_SECOND = {
    "test": ("jay", "fox", "smith", "walker", "bee", "crow", "baker", "reed", "wren", "pine", "stone", "brook"),
    "train": ("mole", "hare", "miller", "rider", "moth", "finch", "cook", "leaf", "hawk", "oak", "field", "pond"),
}


def member_names(split: str) -> list[str]:
    """All names that members of a split can have, but for who is signed in."""
    return [a + b for a in _FIRST[split] for b in _SECOND[split]]


def names(seed: int, split: str) -> list[str]:
    """The names of all members, the one who is signed in first; they differ between data seeds."""
    pool = member_names(split)
    return [MEMBERS[split], *random.Random(f"forum-names-{split}-{seed}").sample(pool, PEOPLE - 1)]


def biographies(split: str) -> list[Draft]:
    """A biography for each member."""
    rng = random.Random(f"forum-biographies-{split}")
    found = []
    for theme in people(split):
        words = {**forum_words(THEMES.index(theme), split), "forum": (theme.name(split),)}
        found.append(draft(rng, pick(rng, BIOGRAPHIES), words))
    return found


def letters(split: str) -> list[Draft]:
    """The letters in the member's inbox; the first `VANISHING` vanish once read."""
    rng = random.Random(f"forum-letters-{split}")
    private = [theme.name(split) for theme in THEMES if theme.private][:1]
    return [
        draft(rng, text, {**forum_words(int(rng.random() * len(THEMES)), split), "private": private})
        for text in LETTERS
    ]


def wiki_pages(split: str) -> list[tuple[int, str, str, Draft, bool]]:
    """Pages of the forums' wiki: forum index, path, title, text (one entry a line), whether members may edit it."""
    rng = random.Random(f"forum-wiki-{split}")
    towns: Sequence[str] = titles(split, "town")
    makers: Sequence[str] = titles(split, "maker")
    pages = []
    for index, theme in enumerate(THEMES):
        name = theme.name(split)
        rules = (
            "At most <count:posts_a_month> posts a month.",
            f"Offers below <price:free_below> only in {pick(rng, towns)}.",
            "Pictures at most <size:picture_width> wide when printed.",
            "Meetings are announced <count:notice_days> days ahead.",
        )
        meetings = [f"<date:meeting_{i}>, <clock:time_{i}>: {town}" for i, town in enumerate(rng.sample(towns, 4), 1)]
        guide = [
            f"{item}: {maker}, <price:price_{i}>, <weight:weight_{i}>"
            for i, (item, maker) in enumerate(zip(theme.items[:5], rng.sample(makers, 5), strict=True), 1)
        ]
        for path, title, lines, open_ in (
            ("rules", "rules", rules, False),
            ("calendar", "calendar", meetings, True),
            ("guide", "buying guide", guide, True),
        ):
            pages.append((index, f"{name}/{path}", f"{name} {title}", draft(rng, "\n".join(lines), {}), open_))
    return pages
