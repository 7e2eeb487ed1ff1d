"""The shop's rules, without a browser."""

from __future__ import annotations

import pytest

from agentkv_envs.sites.shopping.catalogue import CATEGORIES, KINDS, build_catalogue
from agentkv_envs.sites.shopping.database import facts, open_database, template
from agentkv_envs.sites.shopping.images import product_picture
from agentkv_envs.sites.shopping.store import PAGE_SIZE, ShopError, Store

ADDRESS = {
    "firstname": "Emma",
    "lastname": "Fischer",
    "street": "Lindenweg 8",
    "city": "Berlin",
    "postcode": "10435",
    "country": "Germany",
    "telephone": "1",
}


@pytest.fixture
def store() -> Store:
    return Store(0)


def test_the_catalogue_is_large_distinct_and_always_the_same() -> None:
    products = build_catalogue()
    assert products == build_catalogue()
    assert len(products) >= 200
    assert len(CATEGORIES) == 8
    assert len({p.name for p in products}) == len({p.slug for p in products}) == len({p.sku for p in products})
    assert len({(p.kind, p.colour, p.variant, p.price_cents) for p in products}) > 200
    assert all(sum(p.kind == kind.name for p in products) == 7 for kind in KINDS)


def test_a_seed_changes_the_facts_and_nothing_in_the_catalogue() -> None:
    assert facts(0) == facts(0) != facts(1)
    rows = [open_database(seed).execute("SELECT * FROM product").fetchall() for seed in (0, 1)]
    assert [tuple(r) for r in rows[0]] == [tuple(r) for r in rows[1]]
    assert template(0) != template(1)


def test_databases_are_private() -> None:
    one, two = Store(0), Store(0)
    one.clear_cart()
    one.add_to_cart(one.product_by_id(6), 2)
    assert (one.cart_count(), two.cart_count()) == (2, 0)


def test_search_needs_every_word_and_allows_beginnings(store: Store) -> None:
    names = [row["name"] for row in store.search("red toast", "price", False, 1).products]
    assert names == ["Harbor Red 2-Slice Toaster", "Cedar Red 4-Slice Toaster"]
    assert store.search("2-slice", "name", False, 1).total == 3
    assert store.search("TO006", "name", False, 1).total == 1
    for nothing in ("", '"', "zebra", "NEAR(", "toaster kettle"):
        assert store.search(nothing, "name", False, 1).total == 0


def test_listings_sort_and_page(store: Store) -> None:
    first, second = (store.in_category(1, "price", True, page) for page in (1, 2))
    prices = [row["price_cents"] for listing in (first, second) for row in listing.products]
    assert prices == sorted(prices, reverse=True)
    assert (first.first, first.last, first.total, first.pages) == (1, PAGE_SIZE, 28, 3)
    assert store.in_category(1, "price", False, 99).page == 3


def test_the_cart_minds_stock_sizes_and_limits(store: Store) -> None:
    scarce, jacket = store.product_by_id(1), store.product_by_id(172)
    store.add_to_cart(scarce, 2)
    with pytest.raises(ShopError, match="Only 3 of"):
        store.add_to_cart(scarce, 2)
    with pytest.raises(ShopError, match="choose a size"):
        store.add_to_cart(jacket, 1)
    with pytest.raises(ShopError, match="from 1 to 20"):
        store.add_to_cart(jacket, 0, "M")
    store.add_to_cart(jacket, 1, "M")
    store.add_to_cart(jacket, 1, "L")
    assert [(i["size"], i["qty"]) for i in store.cart()] == [("", 2), ("M", 1), ("L", 1)]
    store.set_quantity(store.cart()[0]["item_id"], 0)
    assert store.cart_count() == 2


def test_an_order_takes_the_coupon_the_address_and_the_stock(store: Store) -> None:
    code = facts(0)["SPRING_CODE"]
    store.add_to_cart(store.product_by_id(220), 2)
    with pytest.raises(ShopError, match='"NOPE" is not valid'):
        store.apply_coupon("nope")
    store.apply_coupon(code.lower())
    assert store.totals("Express") == {"subtotal": 5500, "discount": 825, "shipping": 1200, "total": 5875}
    with pytest.raises(ShopError, match="every field of the address"):
        store.place_order({**ADDRESS, "city": " ", "shipping": "Express"})
    with pytest.raises(ShopError, match="shipping method"):
        store.place_order({**ADDRESS, "shipping": "Drone"})
    order = store.order(store.place_order({**ADDRESS, "shipping": "Express", "gift_note": " Hi "}))
    assert order is not None
    assert (order["total_cents"], order["coupon"], order["gift_note"]) == (5875, code, "Hi")
    assert (store.cart_count(), store.coupon()) == (0, None)
    assert store.product_by_id(220)["stock"] == 22
    with pytest.raises(ShopError, match="cart is empty"):
        store.place_order({**ADDRESS, "shipping": "Express"})


def test_the_reward_code_is_told_once(store: Store) -> None:
    assert store.reveal_reward() == facts(0)["REWARD_CODE"]
    with pytest.raises(ShopError, match="already shown"):
        store.reveal_reward()


def test_only_open_orders_can_be_cancelled(store: Store) -> None:
    store.cancel_order(1)
    for order_id in (1, 2, 4):
        with pytest.raises(ShopError, match="no longer"):
            store.cancel_order(order_id)


def test_sessions_open_and_close(store: Store) -> None:
    with pytest.raises(ShopError, match="sign-in was incorrect"):
        store.login("emma.fischer@example.com", "wrong")
    token = store.login(" Emma.Fischer@example.com", "Password.123")
    assert store.customer(token)["firstname"] == "Emma"  # type: ignore[index]
    store.logout(token)
    assert store.customer(token) is None


def test_reviews_need_a_rating_and_words(store: Store) -> None:
    with pytest.raises(ShopError, match="rating from 1 to 5"):
        store.add_review(6, 0, "A", "B", "C")
    with pytest.raises(ShopError, match="nickname, summary and review"):
        store.add_review(6, 5, "A", " ", "C")
    store.add_review(6, 5, "A", "B", "C")
    assert store.reviews(6)[0]["nickname"] == "A"


def test_every_kind_has_its_own_picture() -> None:
    pictures = {product_picture(kind.name, "Red") for kind in KINDS}
    assert len(pictures) == len(KINDS)
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert product_picture("Kite", "Blue") != product_picture("Kite", "Red")
