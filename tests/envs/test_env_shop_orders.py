"""The shop's rules about buying and about the account, without a browser."""

from __future__ import annotations

from datetime import date

import pytest
from test_env_shop import ADDRESS, one_with

from agentkv_envs.sites.shopping.catalogue import TODAY
from agentkv_envs.sites.shopping.facts import facts
from agentkv_envs.sites.shopping.store import Store
from agentkv_envs.sites.shopping.store_customer import MAX_ADDRESSES
from agentkv_envs.sites.storage import Refusal

FACTS = facts(0)
EMAIL = "emma.fischer@example.com"


@pytest.fixture
def store() -> Store:
    return Store()


def test_the_cart_minds_stock_sizes_and_limits(store: Store) -> None:
    scarce, jacket = store.product_by_id(1), store.product_by_id(172)
    store.add_to_cart(scarce, 2)
    with pytest.raises(Refusal, match="Only 3 of"):
        store.add_to_cart(scarce, 2)
    with pytest.raises(Refusal, match="choose a size"):
        store.add_to_cart(jacket, 1)
    with pytest.raises(Refusal, match="from 1 to 20"):
        store.add_to_cart(jacket, 0, "M")
    store.add_to_cart(jacket, 1, "M")
    store.add_to_cart(jacket, 1, "L")
    assert [(i["size"], i["qty"]) for i in store.cart()] == [("", 2), ("M", 1), ("L", 1)]
    store.set_quantity(store.cart()[0]["item_id"], 0)
    assert store.cart_count() == 2


def test_a_variant_has_its_own_price_and_stock(store: Store) -> None:
    product = one_with(
        store,
        "colours != '' AND option_label = 'Model' AND EXISTS (SELECT 1 FROM variant v WHERE v.product_id = p.id"
        " AND v.stock BETWEEN 1 AND 10 AND v.price_cents > p.price_cents)",
    )
    chosen = next(
        v for v in store.variants(product["id"]) if 1 <= v["stock"] <= 10 and v["price_cents"] > product["price_cents"]
    )
    with pytest.raises(Refusal, match="choose a colour"):
        store.add_to_cart(product, 1, chosen["size"])
    with pytest.raises(Refusal, match="choose a model"):
        store.add_to_cart(product, 1, "", chosen["colour"])
    with pytest.raises(Refusal, match=rf"Only {chosen['stock']} of {product['name']} in {chosen['colour']}, "):
        store.add_to_cart(product, chosen["stock"] + 1, chosen["size"], chosen["colour"])
    store.add_to_cart(product, chosen["stock"], chosen["size"], chosen["colour"])
    with pytest.raises(Refusal, match="Only"):
        store.add_to_cart(product, 1, chosen["size"], chosen["colour"])
    (item,) = store.cart()
    assert (item["price_cents"], item["size"]) == (chosen["price_cents"], f"{chosen['colour']}, {chosen['size']}")
    order = store.place_order({**ADDRESS, "shipping": "Pickup"})
    assert store.product_by_id(product["id"])["stock"] == product["stock"] - chosen["stock"]
    left = next(v["stock"] for v in store.variants(product["id"]) if v["id"] == chosen["id"])
    assert left == 0
    store.cancel_order(order)
    assert store.product_by_id(product["id"])["stock"] == product["stock"]
    assert store.reorder(order) == []
    assert store.cart()[0]["variant_id"] == chosen["id"]


def test_an_order_takes_the_coupon_the_address_and_the_stock(store: Store) -> None:
    code = FACTS["SPRING_CODE"]
    store.add_to_cart(store.product_by_id(220), 2)
    with pytest.raises(Refusal, match='"NOPE" is not valid'):
        store.apply_coupon("nope")
    store.apply_coupon(code.lower())
    assert store.totals("Express") == {"subtotal": 5500, "discount": 825, "shipping": 1200, "total": 5875}
    with pytest.raises(Refusal, match="every field of the address"):
        store.place_order({**ADDRESS, "city": " ", "shipping": "Express"})
    with pytest.raises(Refusal, match="do not ship"):
        store.place_order({**ADDRESS, "country": "Peru", "shipping": "Express"})
    with pytest.raises(Refusal, match="shipping method"):
        store.place_order({**ADDRESS, "shipping": "Drone"})
    with pytest.raises(Refusal, match="at most 80"):
        store.place_order({**ADDRESS, "shipping": "Express", "gift_note": "x" * 81})
    order = store.order(store.place_order({**ADDRESS, "shipping": "Express", "gift_note": " Hi "}))
    assert order is not None
    assert (order["total_cents"], order["coupon"], order["gift_note"]) == (5875, code, "Hi")
    assert (store.cart_count(), store.coupon()) == (0, None)
    assert store.product_by_id(220)["stock"] == 22
    with pytest.raises(Refusal, match="cart is empty"):
        store.place_order({**ADDRESS, "shipping": "Express"})


def test_a_code_typed_at_the_checkout_counts_without_being_applied(store: Store) -> None:
    store.add_to_cart(store.product_by_id(220), 2)
    with pytest.raises(Refusal, match="not valid"):
        store.place_order({**ADDRESS, "shipping": "Pickup", "coupon": "WRONG1"})
    order = store.order(store.place_order({**ADDRESS, "shipping": "Pickup", "coupon": FACTS["SPRING_CODE"]}))
    assert order is not None
    assert order["discount_cents"] == 825


def test_codes_have_rules(store: Store) -> None:
    kite, charger = store.product_by_id(220), one_with(store, "kind = 'Charger' AND stock >= 8 AND price_cents > 2000")
    store.add_to_cart(kite, 1)
    for name, reason in (
        ("WINTER", "ended on 28 February"),
        ("GARDEN", "for Garden items only"),
        ("MAIL", "for Office items only"),
        ("BASKET", r"at least \$120"),
        ("NEWS", r"at least \$40"),
    ):
        with pytest.raises(Refusal, match=reason):
            store.apply_coupon(FACTS[f"{name}_CODE"])
    can = one_with(store, "category_id = 5 AND stock >= 2 AND sizes = '' AND colours = ''")
    store.add_to_cart(can, 1)
    store.apply_coupon(FACTS["GARDEN_CODE"])
    assert store.discount() == can["price_cents"] * 20 // 100
    store.add_to_cart(charger, 5)
    store.apply_coupon(FACTS["BASKET_CODE"])
    assert store.discount() == 1500
    store.set_quantity(next(i["item_id"] for i in store.cart() if i["id"] == charger["id"]), 0)
    assert store.discount() == 0
    with pytest.raises(Refusal, match=r"at least \$120"):
        store.place_order({**ADDRESS, "shipping": "Pickup"})
    store.apply_coupon("")
    assert store.coupon() is None


def test_a_code_for_one_order_is_used_up(store: Store) -> None:
    for _ in range(2):
        store.add_to_cart(store.product_by_id(220), 1)
        if store.count("SELECT used FROM coupon WHERE code = ?", FACTS["REWARD_CODE"]):
            with pytest.raises(Refusal, match="already used"):
                store.apply_coupon(FACTS["REWARD_CODE"])
            return
        store.apply_coupon(FACTS["REWARD_CODE"])
        store.place_order({**ADDRESS, "shipping": "Pickup"})
    pytest.fail("the code could be used twice")


def test_the_reward_code_is_told_once(store: Store) -> None:
    assert store.reveal_reward() == FACTS["REWARD_CODE"]
    with pytest.raises(Refusal, match="already shown"):
        store.reveal_reward()


def test_only_open_orders_can_be_cancelled(store: Store) -> None:
    before = store.product_by_id(150)["stock"]
    store.cancel_order(1)
    assert store.product_by_id(150)["stock"] == before + 2
    for order_id in (1, 2, 4):
        with pytest.raises(Refusal, match="no longer"):
            store.cancel_order(order_id)


def test_the_newest_order_thanks_with_a_code(store: Store) -> None:
    newest, *others = store.orders()
    assert store.thanks_code(newest) == FACTS["THANKS_CODE"]
    assert {store.thanks_code(order) for order in others} == {""}


def test_items_of_a_recent_complete_order_go_back_once(store: Store) -> None:
    def order(order_id: int):
        found = store.order(order_id)
        assert found is not None
        return found

    for order_id, reason in ((1, "completed order"), (3, "45 days"), (4, "45 days")):
        with pytest.raises(Refusal, match=reason):
            store.check_returnable(order(order_id))
    recent = order(6)
    assert (TODAY - date.fromisoformat(recent["created"])).days <= 45
    item = store.order_items(6)[0]["item_id"]
    for choice, reason in (
        ((0, "Wrong size", "Refund"), "choose an item"),
        ((item, "", "Refund"), "choose a reason"),
        ((item, "Wrong size", ""), "what you want"),
    ):
        with pytest.raises(Refusal, match=reason):
            store.open_return(recent, *choice)
    told = store.open_return(recent, item, "Wrong size", "Refund")
    assert told == (FACTS["RETURN_2"], FACTS["RETURN_PIN_2"])
    assert store.returns()[0]["number"] == FACTS["RETURN_2"]
    with pytest.raises(Refusal, match=f"already in return {FACTS['RETURN_2']}"):
        store.open_return(recent, item, "Wrong size", "Refund")


def test_notices_are_for_what_is_sold_out(store: Store) -> None:
    gone, there = one_with(store, "stock = 0"), store.product_by_id(6)
    with pytest.raises(Refusal, match="valid email"):
        store.notify(gone, "emma")
    with pytest.raises(Refusal, match="in stock"):
        store.notify(there, EMAIL)
    store.notify(gone, f" {EMAIL.upper()} ")
    with pytest.raises(Refusal, match="already get a notice"):
        store.notify(gone, EMAIL)
    variant = store.one("SELECT v.* FROM variant v JOIN product p ON p.id = v.product_id WHERE v.stock = 0 AND p.stock")
    assert variant is not None
    store.notify(store.product_by_id(variant["product_id"]), EMAIL, variant["colour"], variant["size"])
    rows = store.notices()
    assert [(row["id"], row["email"]) for row in rows] == [(gone["id"], EMAIL), (variant["product_id"], EMAIL)]
    assert rows[1]["size"]
    store.drop_notice(rows[0]["notice_id"])
    assert len(store.notices()) == 1


def test_the_address_book_keeps_labels_apart_and_is_finite(store: Store) -> None:
    office, kin = store.addresses()
    with pytest.raises(Refusal, match="a label"):
        store.save_other_address(ADDRESS)
    with pytest.raises(Refusal, match="already an address"):
        store.save_other_address({**ADDRESS, "label": office["label"].upper()})
    store.save_other_address({**ADDRESS, "label": kin["label"], "city": "Bonn"}, kin["id"])
    assert store.addresses()[1]["city"] == "Bonn"
    for number in range(MAX_ADDRESSES - 2):
        store.save_other_address({**ADDRESS, "label": f"Place {number}"})
    with pytest.raises(Refusal, match="is full"):
        store.save_other_address({**ADDRESS, "label": "One more"})
    store.make_default(office["id"])
    customer, swapped = store.one("SELECT * FROM customer"), store.address(office["id"])
    assert customer is not None
    assert swapped is not None
    assert (customer["street"], swapped["street"]) == (office["street"], "Lindenweg 8")
    store.delete_address(office["id"])
    assert store.address(office["id"]) is None
    with pytest.raises(Refusal, match="could not find"):
        store.make_default(office["id"])


def test_the_newsletter_is_subscribed_once_and_thanks_with_a_code(store: Store) -> None:
    for choice, reason in (
        (("no mail", "Deals", "Weekly"), "valid email"),
        ((EMAIL, "Gossip", "Weekly"), "topic"),
        ((EMAIL, "Deals", "Hourly"), "topic"),
    ):
        with pytest.raises(Refusal, match=reason):
            store.subscribe(*choice)
    assert store.subscribe(EMAIL, "Deals", "Weekly") == FACTS["NEWS_CODE"]
    with pytest.raises(Refusal, match="already gets"):
        store.subscribe(EMAIL.upper(), "Deals", "Monthly")
    store.unsubscribe(store.newsletter()[0]["id"])
    assert store.newsletter() == []


def test_a_message_told_once_is_gone_afterwards(store: Store) -> None:
    locker, kept = store.inbox()[0], store.inbox()[2]
    assert FACTS["LOCKER_CODE"] in store.open_message(locker["id"])["body"]
    with pytest.raises(Refusal, match="was deleted"):
        store.open_message(locker["id"])
    assert store.open_message(kept["id"])["body"] == store.open_message(kept["id"])["body"]
    assert [row["opened"] for row in store.inbox()] == [0, 1]


def test_sessions_open_and_close(store: Store) -> None:
    with pytest.raises(Refusal, match="sign-in was incorrect"):
        store.login(EMAIL, "wrong")
    token = store.login(f" {EMAIL.title()}", "Password.123")
    customer = store.customer(token)
    assert customer is not None
    assert customer["firstname"] == "Emma"
    store.end_session(token)
    assert store.customer(token) is None
    assert store.customer(None) is None


def test_messages_to_the_shop_need_a_name_and_words(store: Store) -> None:
    with pytest.raises(Refusal, match="your name and your message"):
        store.send_message("Emma", "Order", " ")
    store.send_message(" Emma ", "Order", "Hello")
    assert tuple(store.all("SELECT name, topic, body FROM message")[0]) == ("Emma", "Order", "Hello")
