"""The shop's database: a template built once per data seed, copied into memory for every episode."""

from __future__ import annotations

import functools
import random
import sqlite3
from dataclasses import fields
from datetime import date
from importlib import resources

from agentkv_envs.sites.shopping.catalogue import CATEGORIES, Product, build_catalogue
from agentkv_envs.sites.shopping.reviews import draw_reviews

TODAY = date(2026, 3, 14)
_WORDS = ("FERN", "OPAL", "RIVER", "SAGE", "TULIP", "MINT", "CORAL", "AMBER", "LUNAR", "PEARL", "BIRCH", "IVORY")

SHIPPING = (("Standard", 500), ("Express", 1200), ("Pickup", 0))
COUNTRIES = ("Germany", "France", "Italy", "Spain", "Austria")

# Past orders: (month, day, status, shipping, recipient, product ids with quantities).
_PAST = (
    ("2026-03-02", "Processing", "Express", "Emma Fischer", ((13, 1), (150, 2))),
    ("2026-02-18", "Shipped", "Standard", "Emma Fischer", ((57, 1),)),
    ("2026-01-27", "Complete", "Standard", "Paul Fischer", ((216, 1), (203, 1), (39, 2))),
    ("2025-12-11", "Complete", "Pickup", "Emma Fischer", ((89, 4),)),
    ("2025-11-03", "Canceled", "Standard", "Emma Fischer", ((167, 1),)),
)


@functools.lru_cache(maxsize=64)
def facts(seed: int) -> dict[str, str]:
    """What differs between data seeds: codes, order numbers, tracking numbers.

    Tasks name them as `__NAME__`, so that one task gives as many different needles as there are seeds.
    """
    rng = random.Random(f"shopping-facts-{seed}")
    words = rng.sample(_WORDS, 4)
    codes = [f"{word}{rng.randint(10, 99)}" for word in words]
    numbers = sorted(rng.sample(range(1100, 9900), len(_PAST)), reverse=True)
    result = dict(zip(("WELCOME_CODE", "SPRING_CODE", "REWARD_CODE", "THANKS_CODE"), codes, strict=True))
    for i, number in enumerate(numbers, 1):
        result[f"ORDER_{i}"] = str(number)
        result[f"TRACKING_{i}"] = f"BC{rng.randint(100, 999)}-{rng.choice('KLMNPR')}"
    result["PHONE"] = f"030-{rng.randint(100, 999)}{rng.randint(10, 99)}"
    return result


@functools.lru_cache(maxsize=64)
def template(seed: int) -> bytes:
    """The serialised database of a data seed (about 300 KB, built in some 30 ms)."""
    db = sqlite3.connect(":memory:")
    db.executescript(resources.files(__package__).joinpath("schema.sql").read_text())
    products = build_catalogue()
    _insert_catalogue(db, products)
    _insert_reviews(db, products, seed)
    _insert_customer(db, facts(seed))
    _insert_orders(db, products, facts(seed))
    db.commit()
    data = db.serialize()
    db.close()
    return bytes(data)


def open_database(seed: int) -> sqlite3.Connection:
    """A private in-memory copy of the template; closing the connection forgets it."""
    db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    db.deserialize(template(seed))
    db.row_factory = sqlite3.Row
    return db


def _insert_catalogue(db: sqlite3.Connection, products: tuple[Product, ...]) -> None:
    db.executemany("INSERT INTO category (slug, name, blurb) VALUES (?, ?, ?)", CATEGORIES)
    category_id = {slug: i for i, (slug, _, _) in enumerate(CATEGORIES, 1)}
    names = [column.name for column in fields(Product)]
    rows = []
    for product in products:
        values = {name: getattr(product, name) for name in names}
        values |= {"category": category_id[product.category], "sizes": ",".join(product.sizes)}
        rows.append(tuple(values[name] for name in names))
    marks = ", ".join("?" * len(names))
    stored = ", ".join(names).replace("category", "category_id")
    db.executemany(f"INSERT INTO product ({stored}) VALUES ({marks})", rows)
    db.executemany(
        "INSERT INTO product_search (rowid, name, extra) VALUES (?, ?, ?)",
        [(p.id, p.name, f"{p.sku} {p.material} {p.category}") for p in products],
    )


def _insert_reviews(db: sqlite3.Connection, products: tuple[Product, ...], seed: int) -> None:
    rng = random.Random(f"shopping-reviews-{seed}")
    rows = [
        (r.product_id, r.nickname, r.rating, r.title, r.detail, r.created)
        for product in products
        for r in draw_reviews(rng, product)
    ]
    db.executemany(
        "INSERT INTO review (product_id, nickname, rating, title, detail, created) VALUES (?, ?, ?, ?, ?, ?)", rows
    )


def _insert_customer(db: sqlite3.Connection, known: dict[str, str]) -> None:
    db.execute(
        "INSERT INTO customer (id, email, password, firstname, lastname, street, city, postcode, country, telephone,"
        " points, reward_code) VALUES (1, 'emma.fischer@example.com', 'Password.123', 'Emma', 'Fischer',"
        " 'Lindenweg 8', 'Berlin', '10435', 'Germany', ?, 420, ?)",
        (known["PHONE"], known["REWARD_CODE"]),
    )
    db.execute("INSERT INTO cart (id) VALUES (1)")
    db.executemany(
        "INSERT INTO coupon (code, percent, label, once) VALUES (?, ?, ?, ?)",
        [
            (known["WELCOME_CODE"], 10, "Welcome back", 0),
            (known["SPRING_CODE"], 15, "Spring cleaning", 0),
            (known["REWARD_CODE"], 25, "Reward", 1),
            (known["THANKS_CODE"], 20, "Thank you", 1),
        ],
    )
    db.executemany("INSERT INTO wishlist_item (product_id) VALUES (?)", [(31,), (192,)])


def _insert_orders(db: sqlite3.Connection, products: tuple[Product, ...], known: dict[str, str]) -> None:
    price = {p.id: p.price_cents for p in products}
    fee = dict(SHIPPING)
    for order_id, (created, status, shipping, recipient, items) in enumerate(_PAST, 1):
        total = sum(price[product] * qty for product, qty in items) + fee[shipping]
        tracking = known[f"TRACKING_{order_id}"] if status in ("Shipped", "Complete") else ""
        db.execute(
            "INSERT INTO orders (id, number, created, status, shipping, shipping_cents, discount_cents, total_cents,"
            " recipient, address, telephone, tracking) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?)",
            (
                *(order_id, known[f"ORDER_{order_id}"], created, status, shipping, fee[shipping], total, recipient),
                *("Lindenweg 8, 10435 Berlin, Germany", known["PHONE"], tracking),
            ),
        )
        db.executemany(
            "INSERT INTO order_item (order_id, product_id, size, qty, price_cents) VALUES (?, ?, '', ?, ?)",
            [(order_id, product, qty, price[product]) for product, qty in items],
        )
