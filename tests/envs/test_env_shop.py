"""The shop's data and rules, without a browser."""

from __future__ import annotations

import sqlite3

import pytest

from agentkv_envs.sites import World
from agentkv_envs.sites.shopping.catalogue import FIRST, TODAY, build_catalogue, draw_stock
from agentkv_envs.sites.shopping.database import template
from agentkv_envs.sites.shopping.facts import facts
from agentkv_envs.sites.shopping.images import GROUNDS, customer_photo, product_picture, recipes
from agentkv_envs.sites.shopping.kinds import CATEGORIES, FIRST_KINDS, KINDS, kinds_of
from agentkv_envs.sites.shopping.store import Store
from agentkv_envs.sites.shopping.store_products import PAGE_SIZE, Filters
from agentkv_envs.sites.storage import Refusal, open_copy

ADDRESS = {
    "firstname": "Emma",
    "lastname": "Fischer",
    "street": "Lindenweg 8",
    "city": "Berlin",
    "postcode": "10435",
    "country": "Germany",
    "telephone": "1",
}
SPLITS = ("test", "train")


@pytest.fixture
def store() -> Store:
    return Store()


def table(world: World, name: str, order: str = "1") -> list[tuple[object, ...]]:
    rows = open_copy(template(world)).execute(f"SELECT * FROM {name} ORDER BY {order}").fetchall()
    return [tuple(row) for row in rows]


def one_with(store: Store, where: str) -> sqlite3.Row:
    """The first product for which an SQL condition holds."""
    row = store.one(f"SELECT id FROM product p WHERE {where} ORDER BY id")
    assert row is not None, where
    return store.product_by_id(row["id"])


# Data


@pytest.mark.parametrize("split", SPLITS)
def test_the_catalogue_is_large_distinct_and_always_the_same(split: str) -> None:
    products = build_catalogue(split)
    build_catalogue.cache_clear()
    assert products == build_catalogue(split)
    assert len(products) >= 800
    assert [p.id for p in products] == list(range(1, len(products) + 1))
    assert len({p.name for p in products}) == len({p.slug for p in products}) == len({p.sku for p in products})
    assert sorted(p.popularity for p in products) == list(range(1, len(products) + 1))
    assert all(sum(p.kind == kind.name for p in products[:FIRST]) == 7 for kind in FIRST_KINDS)
    assert min(sum(p.kind == kind.name for p in products) for kind in KINDS) >= 13
    assert 100 < sum(bool(p.colours) for p in products) < len(products) // 2
    assert {slug for slug, _, _ in CATEGORIES} == {p.category for p in products}
    assert all(len(kinds_of(slug)) == 6 for slug, _, _ in CATEGORIES)


def test_the_first_part_is_the_one_that_tasks_name() -> None:
    products, _ = draw_stock("test", 3)
    named = {6: "Harbor Red 2-Slice Toaster", 13: "Orbit Black 1 L Kettle", 172: "Field Red Rain Jacket"}
    assert {number: products[number - 1].name for number in named} == named
    speakers = sorted((p.price_cents, p.slug) for p in products if p.kind == "Speaker")
    assert speakers[0][1] == "alpine-white-mini-speaker"
    assert sum(p.name.startswith("Field") and p.name.endswith("Rain Jacket") for p in products) == 2


def test_the_splits_share_no_name() -> None:
    test, train = (Store(World(0, split)) for split in SPLITS)
    for sql in (
        "SELECT name FROM product",
        "SELECT DISTINCT brand FROM product",
        "SELECT DISTINCT nickname FROM review UNION SELECT DISTINCT nickname FROM question",
        "SELECT firstname FROM customer UNION SELECT lastname FROM customer UNION SELECT email FROM customer",
        "SELECT street FROM customer UNION SELECT street FROM address UNION SELECT city FROM address",
        "SELECT recipient FROM orders",
    ):
        assert not {row[0] for row in test.all(sql)} & {row[0] for row in train.all(sql)}, sql
    words = [{code[:-2] for code, *_ in table(World(0, split), "coupon")} for split in SPLITS]
    assert not words[0] & words[1]


@pytest.mark.parametrize("split", SPLITS)
def test_a_world_is_the_same_every_time(split: str) -> None:
    first = template(World(4, split))
    template.cache_clear()
    assert template(World(4, split)) == first


def test_a_seed_changes_facts_texts_and_the_second_part_only() -> None:
    assert facts(0) == facts(0) != facts(1)
    first, second = (table(World(seed), "product") for seed in (0, 1))
    assert first[:FIRST] == second[:FIRST]
    assert [row[:11] for row in first] == [row[:11] for row in second]
    assert sum(a[11:13] != b[11:13] for a, b in zip(first[FIRST:], second[FIRST:], strict=True)) > 500
    for name in ("review", "answer", "coupon", "inbox", "delivery_region", "dropoff"):
        assert table(World(0), name) != table(World(1), name), name
    assert facts(0, "train")["LASTNAME"] != facts(2, "train")["LASTNAME"]


@pytest.mark.parametrize("split", SPLITS)
def test_there_is_much_to_read(split: str) -> None:
    store = Store(World(0, split))
    assert store.count("SELECT COUNT(*) FROM review") >= 3000
    assert store.count("SELECT COUNT(*) FROM (SELECT DISTINCT detail FROM review)") >= 2500
    assert store.count("SELECT COUNT(*) FROM review WHERE photo IS NOT NULL") >= 300
    assert store.count("SELECT COUNT(*) FROM question") >= 1500
    assert store.count("SELECT COUNT(*) FROM variant") >= 1000
    newest = store.one("SELECT MAX(created) FROM review")
    assert newest is not None
    assert newest[0] < TODAY.isoformat()


@pytest.mark.parametrize("split", SPLITS)
def test_facts_are_what_the_database_says(split: str) -> None:
    store, known = Store(World(7, split)), facts(7, split)
    for order in store.orders():
        assert order["number"] == known[f"ORDER_{order['id']}"]
        assert order["tracking"] in ("", known[f"TRACKING_{order['id']}"])
    numbers = [int(order["number"]) for order in store.orders()]
    assert numbers == sorted(numbers, reverse=True)
    customer = store.customer(store.login(known["EMAIL"], known["PASSWORD"]))
    assert customer is not None
    assert [customer[k] for k in ("firstname", "lastname", "telephone")] == [
        known[k] for k in ("FIRSTNAME", "LASTNAME", "PHONE")
    ]
    bodies = {row["subject"].split()[0]: row["body"] for row in store.inbox()}
    assert known["LOCKER"] in bodies["Locker"]
    assert known["LOCKER_CODE"] in bodies["Locker"]
    assert known["MAIL_CODE"] in bodies["For"]
    assert known["COLLECTION_DAY"] in bodies["Collection"]


@pytest.mark.parametrize("split", SPLITS)
def test_variants_add_up_to_their_product(split: str) -> None:
    store = Store(World(1, split))
    for product in store.all("SELECT * FROM product WHERE colours != '' OR sizes != ''"):
        variants = store.variants(product["id"])
        options = [len(product[name].split(",")) for name in ("colours", "sizes")]
        assert len(variants) == options[0] * options[1]
        assert sum(v["stock"] for v in variants) == product["stock"]
        assert min(v["price_cents"] for v in variants) == product["price_cents"]
    assert store.count("SELECT COUNT(*) FROM product WHERE (stock = 0) != (restock != '')") == 0


def test_databases_are_private() -> None:
    one, two = Store(), Store()
    one.clear_cart()
    one.add_to_cart(one.product_by_id(6), 2)
    assert (one.cart_count(), two.cart_count()) == (2, 0)


def test_every_kind_has_its_own_picture() -> None:
    assert set(recipes()) == {kind.name for kind in KINDS}
    pictures = {product_picture(kind.name, "Red") for kind in KINDS}
    assert len(pictures) == len(KINDS)
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert product_picture("Kite", "Blue") != product_picture("Kite", "Red")
    photos = {customer_photo("Kite", "Red", ground) for ground in range(len(GROUNDS))}
    assert len(photos) == len(GROUNDS)


# Looking


def test_search_needs_every_word_and_allows_beginnings(store: Store) -> None:
    names = [row["name"] for row in store.search("red 4-slice toast", "position", 1).products]
    assert names[0] == "Cedar Red 4-Slice Toaster"
    assert all("Toaster" in name for name in names)
    assert store.search("TO006", "name", 1).total == 1
    options = one_with(store, "colours LIKE '%Red%' AND kind = 'Toaster'")
    assert options["name"] in [row["name"] for row in store.search("red toaster", "newest", 1).products]
    for nothing in ("", '"', "zebra", "NEAR(", "toaster kettle"):
        assert store.search(nothing, "name", 1).total == 0


def test_listings_sort_and_page(store: Store) -> None:
    first, second = (store.in_category(1, "price-desc", page) for page in (1, 2))
    prices = [row["price_cents"] for listing in (first, second) for row in listing.products]
    assert prices == sorted(prices, reverse=True)
    assert (first.first, first.last, first.total, first.pages) == (1, PAGE_SIZE, 102, 9)
    assert store.in_category(1, "price", 99).page == 9
    ratings = [row["rating"] for row in store.in_category(2, "rating", 1).products]
    assert ratings == sorted(ratings, reverse=True)
    added = [row["added"] for row in store.in_category(2, "newest", 1).products]
    assert added == sorted(added, reverse=True)


@pytest.mark.parametrize(
    ("params", "holds"),
    [
        ({"brand": "Harbor"}, lambda p: p["brand"] == "Harbor"),
        ({"kind": "Kettle"}, lambda p: p["kind"] == "Kettle"),
        ({"low": "40", "high": "60"}, lambda p: 4000 <= p["price_cents"] <= 6000),
        ({"rating": "4"}, lambda p: p["rating"] >= 4),
        ({"stock": "1"}, lambda p: p["stock"] > 0),
        ({"brand": "Tundra", "stock": "1"}, lambda p: p["brand"] == "Tundra" and p["stock"] > 0),
    ],
)
def test_filters_keep_exactly_what_fits(store: Store, params: dict[str, str], holds) -> None:
    filters = Filters.of(params)
    everything = store.in_category(1, "name", 1)
    pages = [store.in_category(1, "name", page) for page in range(1, everything.pages + 1)]
    wanted = [p["name"] for page in pages for p in page.products if holds(p)]
    found = store.in_category(1, "name", 1, filters)
    assert 0 < found.total == len(wanted) < everything.total
    assert [p["name"] for p in found.products] == wanted[:PAGE_SIZE]
    assert filters.active
    assert found.brands == everything.brands


def test_filters_that_are_no_numbers_let_everything_pass(store: Store) -> None:
    filters = Filters.of({"low": "cheap", "high": "-3", "rating": ""})
    assert filters == Filters()
    assert filters.active == ""


def test_three_products_can_be_compared(store: Store) -> None:
    for number in (1, 2, 3):
        store.compare(number)
    with pytest.raises(Refusal, match="Remove one first"):
        store.compare(4)
    store.uncompare(2)
    with pytest.raises(Refusal, match="already on your compare list"):
        store.compare(3)
    store.compare(4)
    assert [row["id"] for row in store.compared()] == [1, 3, 4]
    store.clear_compared()
    assert store.compared() == []


def test_delivery_depends_on_the_postcode_and_needs_one(store: Store) -> None:
    light = one_with(store, "stock > 0 AND weight_g < 2000")
    heavy = one_with(store, "stock > 0 AND weight_g > 2000")
    for wrong in ("", "1043", "1o435", "104355"):
        with pytest.raises(Refusal, match="five digits"):
            store.delivery(light, wrong)
    times = {store.delivery(light, f"{digit}0000") for digit in range(10)}
    assert len(times) > 2
    assert store.delivery(heavy, "10435")[0] == store.delivery(light, "10435")[0] + 1
    with pytest.raises(Refusal, match="sold out"):
        store.delivery(one_with(store, "stock = 0"), "10435")


# Reviews and questions


def test_reviews_need_a_rating_and_words_and_are_written_once(store: Store) -> None:
    with pytest.raises(Refusal, match="rating from 1 to 5"):
        store.add_review(6, 0, "A", "B", "C")
    with pytest.raises(Refusal, match="nickname, summary and review"):
        store.add_review(6, 5, "A", " ", "C")
    store.add_review(6, 5, "A", "B", "C")
    assert store.reviews(6)[0]["nickname"] == "A"
    with pytest.raises(Refusal, match="already reviewed"):
        store.add_review(6, 4, "A", "B", "C")


def test_reviews_are_paged_and_sorted(store: Store) -> None:
    product = store.one("SELECT product_id FROM review GROUP BY product_id HAVING COUNT(*) = 8")
    assert product is not None
    pages = [store.review_page(product[0], "helpful", page) for page in (1, 2)]
    votes = [row["helpful"] for page in pages for row in page.reviews]
    assert (len(votes), pages[0].pages) == (8, 2)
    assert votes == sorted(votes, reverse=True)
    lowest = [row["rating"] for row in store.review_page(product[0], "lowest", 1).reviews]
    assert lowest == sorted(lowest)


def test_a_vote_counts_once_and_not_for_oneself(store: Store) -> None:
    review = store.reviews(6)[0]
    store.vote_helpful(review["id"])
    assert store.reviews(6)[0]["helpful"] == review["helpful"] + 1
    with pytest.raises(Refusal, match="already voted"):
        store.vote_helpful(review["id"])
    store.add_review(6, 5, "Emma", "B", "C")
    with pytest.raises(Refusal, match="your own review"):
        store.vote_helpful(store.reviews(6)[0]["id"])
    with pytest.raises(Refusal, match="could not find"):
        store.vote_helpful(999999)


def test_questions_are_asked_and_answered_once(store: Store) -> None:
    other = store.questions(6)[0]
    with pytest.raises(Refusal, match="at least 8"):
        store.ask(6, "Emma", " Why? ")
    with pytest.raises(Refusal, match="asked before"):
        store.ask(6, "Emma", other["text"].upper())
    store.ask(6, "Emma", "Is it loud at night?")
    mine = store.questions(6)[0]
    assert (mine["nickname"], mine["answers"]) == ("Emma", None)
    with pytest.raises(Refusal, match="your own question"):
        store.answer(mine["id"], "Emma", "No.")
    with pytest.raises(Refusal, match="write an answer"):
        store.answer(other["id"], "Emma", " ")
    store.answer(other["id"], "Emma", "Yes, it is.")
    assert store.questions(6)[1]["answers"].endswith("Yes, it is. (Emma)")
    with pytest.raises(Refusal, match="already answered"):
        store.answer(other["id"], "Emma", "Again.")
