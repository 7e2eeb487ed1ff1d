"""What hangs on the notice board: a template built once per split and data seed."""

from __future__ import annotations

import functools
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources

from agentkv_envs.sites import World, storage
from agentkv_envs.sites.storage import TODAY

TOPICS = ("Event", "Lesson", "Found", "Notice")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Words:
    """The names of one split."""

    halls: tuple[str, ...]
    events: tuple[str, ...]
    lessons: tuple[str, ...]
    finds: tuple[str, ...]
    closed: tuple[str, ...]
    people: tuple[str, ...]


_WORDS = {
    "test": Words(
        halls=("Mill Hall", "Dock House", "Pine Lodge"),
        events=("Flea Market", "Chess Evening", "Repair Day", "Choir Night"),
        lessons=("Violin Lessons", "Pottery Course", "Spanish for Beginners"),
        finds=("Silver Ring", "Green Umbrella", "Blue Glove"),
        closed=("Town Pool", "Market Street", "Library"),
        people=("A. Rowan", "B. Castel", "C. Amari", "D. Hollis", "E. Brandt", "F. Quint"),
    ),
    "train": Words(
        halls=("River Barn", "Hill Centre", "Oak Rooms"),
        events=("Book Swap", "Quiz Evening", "Garden Day", "Dance Night"),
        lessons=("Piano Lessons", "Weaving Course", "Italian for Beginners"),
        finds=("Gold Watch", "Red Scarf", "Black Wallet"),
        closed=("Ice Rink", "Castle Bridge", "Museum"),
        people=("G. Tamsin", "H. Lorenz", "I. Vance", "J. Petrov", "K. Marsh", "L. Okoye"),
    ),
}


@dataclass(frozen=True)
class Notice:
    """One sheet of paper: `slips` with `phone` can be torn off, an event with `seats` takes sign-ups."""

    topic: str
    title: str
    body: str
    author: str
    created: str
    phone: str = ""
    slips: int = 0
    seats: int = 0


def _notices(rng: random.Random, words: Words) -> Iterator[Notice]:
    people = rng.sample(words.people, len(words.people))
    dates = iter(sorted(((TODAY - timedelta(days=n)).isoformat() for n in rng.sample(range(1, 40), 8)), reverse=True))
    for event, author in zip(rng.sample(words.events, 3), people, strict=False):
        body = f"{rng.choice(_DAYS)} at {rng.randint(10, 20)}:00 in {rng.choice(words.halls)}, ${rng.randint(2, 15)}."
        yield Notice(
            "Event", event, body, author, next(dates), seats=rng.randint(0, 9) if event == words.events[0] else 6
        )
    for lesson, author in zip(rng.sample(words.lessons, 2), people[3:], strict=False):
        body = f"${rng.randint(14, 45)} an hour, on {rng.choice(_DAYS)}s. Take a slip with my phone number."
        yield Notice("Lesson", lesson, body, author, next(dates), phone=_phone(rng), slips=rng.randint(1, 5))
    for find in rng.sample(words.finds, 2):
        body = f"Found near {rng.choice(words.halls)}. Ask at counter {rng.randint(2, 9)}."
        yield Notice("Found", find, body, rng.choice(people), next(dates))
    body = f"Closed until {rng.randint(16, 31)} March. Detour by line {rng.randint(11, 48)}."
    yield Notice("Notice", rng.choice(words.closed), body, "Town office", next(dates))


def _phone(rng: random.Random) -> str:
    return f"0{rng.randint(20, 99)}-{rng.randint(1000, 9999)}"


@functools.lru_cache(maxsize=32)
def _drawn(world: World) -> tuple[tuple[Notice, ...], str, str]:
    """The notices, and number and code of the parcel locker."""
    rng = random.Random(f"home-{world.split}-{world.seed}")
    return (
        tuple(_notices(rng, _WORDS[world.split])),
        f"{rng.choice('ABCDEF')}{rng.randint(10, 99)}",
        str(rng.randint(10_000, 99_999)),
    )


def facts(world: World) -> dict[str, str]:
    """`LOCKER_BOX`, `LOCKER_CODE`, and `NOTICE_n_TITLE`, `NOTICE_n_BODY` and `NOTICE_n_PHONE` of notice n."""
    notices, box, code = _drawn(world)
    known = {"LOCKER_BOX": box, "LOCKER_CODE": code}
    for number, notice in enumerate(notices, 1):
        known |= {f"NOTICE_{number}_TITLE": notice.title, f"NOTICE_{number}_BODY": notice.body}
        known |= {f"NOTICE_{number}_PHONE": notice.phone} if notice.phone else {}
    return known


@functools.lru_cache(maxsize=32)
def template(world: World) -> bytes:
    """The serialised database of a world."""
    notices, box, code = _drawn(world)
    db = sqlite3.connect(":memory:")
    db.executescript(storage.SCHEMA + resources.files(__package__).joinpath("schema.sql").read_text())
    db.executemany(
        "INSERT INTO notice (topic, title, body, author, created, phone, slips, seats) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(n.topic, n.title, n.body, n.author, n.created, n.phone, n.slips, n.seats) for n in notices],
    )
    db.execute("INSERT INTO locker (id, box, code) VALUES (1, ?, ?)", (box, code))
    db.commit()
    data = db.serialize()
    db.close()
    return bytes(data)
