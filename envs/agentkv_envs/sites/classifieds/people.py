"""Who is behind the ads and what they say: drawn anew for every data seed, so that it cannot be learnt by heart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from agentkv_envs.sites.classifieds.catalogue import DAYS, KINDS, OWNER, SELLERS, Ad
from agentkv_envs.sites.classifieds.vocabulary import Vocabulary
from agentkv_envs.sites.storage import TODAY

_REPLIES_IN = ("an hour", "3 hours", "half a day", "a day", "2 days")
_EXTRAS = {kind.name: kind.extras for kind in KINDS}
_PRAISE = {
    5: ("Friendly and on time.", "Everything as described.", "Would buy here again.", "Helped me carry it."),
    4: ("Good contact, small delay.", "Fair price.", "Quick and polite."),
    3: ("It was all right.", "Had to wait a little.", "The photo was old."),
    2: ("Not as clean as promised.", "Changed the date twice."),
}


class Person(NamedTuple):
    """A user: `sold` counts the things sold so far, `joined` is a year and month."""

    id: int
    name: str
    email: str
    phone: str
    place: str
    joined: str
    replies_in: str
    sold: int


class Remark(NamedTuple):
    """A comment on an ad; `reply_to` is the id of the one it answers."""

    id: int
    listing_id: int
    user_id: int
    reply_to: int | None
    body: str
    created: str


def draw_people(rng: random.Random, words: Vocabulary) -> list[Person]:
    """The owner, then the sellers."""
    pairs = rng.sample([f"{first} {last}" for first in words.first for last in words.last], SELLERS)
    return [_person(rng, number, name, words) for number, name in enumerate((words.owner, *pairs), OWNER)]


def _person(rng: random.Random, number: int, name: str, words: Vocabulary) -> Person:
    return Person(
        id=number,
        name=name,
        email=f"{name.lower().replace(' ', '.')}@example.com",
        phone=phone(rng),
        place=rng.choice(words.places)[0],
        joined=f"{rng.randint(2014, 2024)}-{rng.randint(1, 12):02d}",
        replies_in=rng.choice(_REPLIES_IN),
        sold=rng.randint(3, 90),
    )


def phone(rng: random.Random) -> str:
    return f"0{rng.randint(20, 99)}-{rng.randint(1000, 9999)}"


def code(rng: random.Random) -> str:
    """Two letters and three digits; no letters that look like digits."""
    return f"{rng.choice('BCDFGHKMPRTW')}{rng.choice('AEUY')}{rng.randint(100, 999)}"


def draw_remarks(rng: random.Random, ads: Sequence[Ad]) -> Iterator[Remark]:
    """Up to three questions an ad, most of them answered by its seller; the owner has answered none yet."""
    number = 0
    for ad in ads:
        count = 2 if ad.seller == OWNER else rng.choice((0, 1, 1, 2, 3))
        askers = rng.sample([n for n in range(OWNER + 1, OWNER + 1 + SELLERS) if n != ad.seller], count)
        for asker, (question, answer) in zip(askers, _questions(rng, ad, count), strict=True):
            number += 1
            asked = date.fromisoformat(ad.created) + timedelta(days=rng.randint(0, 3))
            yield Remark(number, ad.id, asker, None, question, min(asked, TODAY).isoformat())
            if ad.seller != OWNER and rng.random() < 0.7:
                number += 1
                answered = min(asked + timedelta(days=1), TODAY).isoformat()
                yield Remark(number, ad.id, ad.seller, number - 1, answer, answered)


def _questions(rng: random.Random, ad: Ad, count: int) -> list[tuple[str, str]]:
    other = rng.choice([extra for extra in _EXTRAS[ad.kind] if extra != ad.extra])
    day, hour = rng.choice(DAYS), rng.randint(9, 19)
    pool = (
        (f"Do you have a {other} for it too?", f"Yes, the {other} costs ${rng.randint(3, 24)} more."),
        ("Can I come and try it?", f"Yes, on {day} after {hour}:00."),
        ("How long have you had it?", f"For {rng.randint(4, 40)} months."),
        ("Would you take less?", f"Only if you collect it before {day}."),
        ("Where can I park?", f"In the yard of number {rng.randint(2, 88)}."),
        ("What does it weigh?", f"About {rng.randint(2, 45)} kg with the packaging."),
        ("Is there a receipt?", f"Yes, from {rng.choice(('spring', 'summer', 'autumn'))} {ad.year}."),
        ("Any pets or smokers at home?", rng.choice(("One cat, no smoke.", "Two dogs.", "Neither.", "A parrot."))),
        ("Who hands it over?", rng.choice(("My mother does.", "My neighbour does.", "I do.", "The caretaker does."))),
    )
    return rng.sample(pool, count)


def draw_ratings(rng: random.Random, seller: int) -> Iterator[tuple[int, int, int, str, str]]:
    """Seller, author, stars, text and date of a seller's ratings, newest last."""
    authors = rng.sample([n for n in range(OWNER + 1, OWNER + 1 + SELLERS) if n != seller], rng.randint(2, 5))
    days = sorted((rng.randrange(5, 400) for _ in authors), reverse=True)
    for author, ago in zip(authors, days, strict=True):
        stars = rng.choices((5, 4, 3, 2), (6, 4, 2, 1))[0]
        yield seller, author, stars, rng.choice(_PRAISE[stars]), (TODAY - timedelta(days=ago)).isoformat()
