"""The site's database: a template built once per split and data seed, copied into memory for every episode."""

from __future__ import annotations

import functools
import random
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from importlib import resources

from agentkv_envs.sites import World, storage
from agentkv_envs.sites.classifieds.catalogue import CATEGORIES, DAYS, OWNER, SELLERS, Ad, build_ads
from agentkv_envs.sites.classifieds.people import Person, code, draw_people, draw_ratings, draw_remarks, phone
from agentkv_envs.sites.classifieds.vocabulary import VOCABULARIES, Vocabulary
from agentkv_envs.sites.storage import TODAY

PASSWORD = "Password.123"
THREADS = 8


@functools.lru_cache(maxsize=32)
def facts(world: World) -> dict[str, str]:
    """What differs between data seeds and tasks may name as `__KEY__`.

    `CL_...` are the owner's account and what stands in the owner's messages; `AD_n_...` is about ad n: PRICE (dollars),
    SELLER, PHONE, PICKUP_DAY, CODE (the pickup code) and LEAST (the lowest offer, in dollars, that is accepted).
    """
    rng = random.Random(f"classifieds-facts-{world.split}-{world.seed}")
    people = _people(world)
    known = {
        "CL_EMAIL": people[0].email,
        "CL_PASSWORD": PASSWORD,
        "CL_PHONE": people[0].phone,
        "CL_GATE_CODE": str(rng.randint(1000, 9999)),
        "CL_VOUCHER_CODE": code(rng),
        "CL_MEETING_HOUR": str(rng.randint(10, 19)),
        "CL_MEETING_DAY": rng.choice(DAYS),
        "CL_WIDTH": str(rng.randint(41, 118)),
        "CL_FRIEND_PRICE": str(rng.randint(21, 95)),
        "CL_HELPER": rng.choice(("aunt", "uncle", "cousin", "sister", "neighbour")),
        "CL_HELPER_PHONE": phone(rng),
        "CL_WARRANTY": f"{rng.choice(('April', 'July', 'October'))} {rng.randint(2027, 2029)}",
        "CL_EXTRA_PRICE": str(rng.randint(4, 29)),
    }
    prices = _prices(world)
    for ad in build_ads(world.split):
        seller = people[ad.seller - OWNER]
        known |= {
            f"AD_{ad.id}_PRICE": str(prices[ad.id]),
            f"AD_{ad.id}_SELLER": seller.name,
            f"AD_{ad.id}_PHONE": seller.phone,
            f"AD_{ad.id}_PICKUP_DAY": rng.choice(DAYS),
            f"AD_{ad.id}_CODE": code(rng),
            f"AD_{ad.id}_LEAST": str(max(1, round(prices[ad.id] * rng.uniform(0.8, 0.95)))),
        }
    return known


@functools.lru_cache(maxsize=32)
def _people(world: World) -> tuple[Person, ...]:
    rng = random.Random(f"classifieds-people-{world.split}-{world.seed}")
    return tuple(draw_people(rng, VOCABULARIES[world.split]))


def _prices(world: World) -> dict[int, int]:
    """Dollars by ad: a seed changes every third price, and no two ads of a kind cost the same."""
    rng = random.Random(f"classifieds-prices-{world.split}-{world.seed}")
    taken: set[tuple[str, int]] = set()
    prices: dict[int, int] = {}
    for ad in build_ads(world.split):
        price = round(ad.price * rng.uniform(0.88, 1.12)) if ad.id % 3 == 0 else ad.price
        while (ad.kind, price) in taken:
            price += 1
        taken.add((ad.kind, price))
        prices[ad.id] = price
    return prices


@functools.lru_cache(maxsize=32)
def template(world: World) -> bytes:
    """The serialised database of a world."""
    words, ads, people = VOCABULARIES[world.split], build_ads(world.split), _people(world)
    rng = random.Random(f"classifieds-{world.split}-{world.seed}")
    db = sqlite3.connect(":memory:")
    db.executescript(storage.SCHEMA + resources.files(__package__).joinpath("schema.sql").read_text())
    _insert_town(db, rng, words, people)
    _insert_ads(db, ads, facts(world))
    _insert_talk(db, rng, ads, facts(world))
    _insert_owner(db, rng, ads, facts(world))
    db.commit()
    data = db.serialize()
    db.close()
    return bytes(data)


def _insert_town(db: sqlite3.Connection, rng: random.Random, words: Vocabulary, people: Sequence[Person]) -> None:
    db.executemany("INSERT INTO category (slug, name) VALUES (?, ?)", CATEGORIES)
    buses = rng.sample(range(3, 90), len(words.places))
    db.executemany(
        "INSERT INTO place (name, distance_km, bus) VALUES (?, ?, ?)",
        [
            (name, km, f"bus {bus}, {km * 3 + rng.randint(2, 9)} minutes")
            for (name, km), bus in zip(words.places, buses, strict=True)
        ],
    )
    db.executemany(
        "INSERT INTO user (id, name, email, phone, place, joined, replies_in, sold, password)"
        f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{PASSWORD}')",
        people,
    )
    ratings = [row for seller in range(OWNER + 1, OWNER + 1 + SELLERS) for row in draw_ratings(rng, seller)]
    db.executemany("INSERT INTO rating (seller_id, user_id, stars, body, created) VALUES (?, ?, ?, ?, ?)", ratings)


def _insert_ads(db: sqlite3.Connection, ads: Sequence[Ad], known: dict[str, str]) -> None:
    category_id = {slug: i for i, (slug, _) in enumerate(CATEGORIES, 1)}
    rows = [
        (
            *(ad.id, ad.title, ad.kind, category_id[ad.category], ad.attribute, ad.value, ad.extra, ad.colour),
            *(ad.condition, ad.year, int(known[f"AD_{ad.id}_PRICE"]) * 100, int(known[f"AD_{ad.id}_LEAST"]) * 100),
            *(ad.place, known[f"AD_{ad.id}_PICKUP_DAY"], ad.seller, ad.created, ad.description, ad.pattern),
            *(ad.background, known[f"AD_{ad.id}_CODE"]),
        )
        for ad in ads
    ]
    db.executemany(
        "INSERT INTO listing (id, title, kind, category_id, attribute, value, extra, colour, condition, year,"
        " price_cents, floor_cents, place, pickup_day, user_id, created, description, pattern, background, pickup_code)"
        f" VALUES ({', '.join('?' * 20)})",
        rows,
    )
    db.executemany(
        "INSERT INTO listing_search (rowid, title, extra) VALUES (?, ?, ?)",
        [(ad.id, ad.title, f"{ad.colour} {ad.extra} {ad.place}") for ad in ads],
    )


def _insert_talk(db: sqlite3.Connection, rng: random.Random, ads: Sequence[Ad], known: dict[str, str]) -> None:
    db.executemany(
        "INSERT INTO comment (id, listing_id, user_id, reply_to, body, created) VALUES (?, ?, ?, ?, ?, ?)",
        draw_remarks(rng, ads),
    )
    offers = []
    for ad in ads:
        least = int(known[f"AD_{ad.id}_LEAST"])
        count = 2 if ad.seller == OWNER else rng.choice((0, 0, 1, 1, 2, 3))
        bidders = rng.sample([n for n in range(OWNER + 1, OWNER + 1 + SELLERS) if n != ad.seller], count)
        amounts = rng.sample(range(least // 2 + 1, max(least, least // 2 + 4)), count)
        for bidder, amount in zip(bidders, sorted(amounts), strict=True):
            offers.append((ad.id, bidder, amount * 100, ad.created))
    db.executemany(
        "INSERT INTO offer (listing_id, user_id, amount_cents, state, created) VALUES (?, ?, ?, 'open', ?)", offers
    )


def _insert_owner(db: sqlite3.Connection, rng: random.Random, ads: Sequence[Ad], known: dict[str, str]) -> None:
    """The owner's messages, favourites, follows and saved searches."""
    others = [ad for ad in ads if ad.seller != OWNER]
    chosen: list[Ad] = []
    while len(chosen) < THREADS + 4:
        ad = rng.choice(others)
        if all(ad.seller != c.seller and ad.kind != c.kind for c in chosen):
            chosen.append(ad)
    texts = (
        ("I have sent you the gate code as a secret message.", f"The gate code is {known['CL_GATE_CODE']}."),
        (f"{known['CL_MEETING_DAY']} at {known['CL_MEETING_HOUR']}:00 suits me, at the north entrance.", ""),
        (f"I measured it for you: it is {known['CL_WIDTH']} cm wide.", ""),
        (f"As you asked so kindly: ${known['CL_FRIEND_PRICE']} and it is yours.", ""),
        ("A thank-you for waiting is in the secret message.", f"Repair voucher {known['CL_VOUCHER_CODE']}, 20% off."),
        (f"My {known['CL_HELPER']} will hand it over, phone {known['CL_HELPER_PHONE']}.", ""),
        (f"The warranty runs until {known['CL_WARRANTY']}.", ""),
        (f"I also have a second {chosen[7].extra}, for ${known['CL_EXTRA_PRICE']}.", ""),
    )
    for number, (ad, (body, secret)) in enumerate(zip(chosen, texts, strict=False), 1):
        db.execute(
            "INSERT INTO thread (id, user_id, listing_id, unread, secret) VALUES (?, ?, ?, ?, ?)",
            (number, ad.seller, ad.id, int(number <= 3), secret),
        )
        asked, answered = (TODAY - timedelta(days=number)).isoformat(), (TODAY - timedelta(days=number - 1)).isoformat()
        db.executemany(
            "INSERT INTO message (thread_id, mine, body, created) VALUES (?, ?, ?, ?)",
            [(number, 1, f"Hello, I am interested in the {ad.kind.lower()}.", asked), (number, 0, body, answered)],
        )
    db.executemany("INSERT INTO favourite (listing_id) VALUES (?)", [(ad.id,) for ad in chosen[THREADS:]])
    db.executemany("INSERT INTO follow (seller_id) VALUES (?)", [(ad.seller,) for ad in chosen[THREADS : THREADS + 2]])
    db.execute(
        "INSERT INTO saved_search (name, query) VALUES (?, ?)",
        (f"Cheap {chosen[0].kind}", f"sPattern={chosen[0].kind.replace(' ', '+')}&sPriceMax=150"),
    )
