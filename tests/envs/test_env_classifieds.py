"""The data and the rules of the classifieds, without any page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agentkv_envs.sites import World
from agentkv_envs.sites.classifieds import dealing, selling
from agentkv_envs.sites.classifieds.catalogue import CATEGORIES, KINDS, OWNER, build_ads
from agentkv_envs.sites.classifieds.database import facts, template
from agentkv_envs.sites.classifieds.photos import MAX_BYTES, RECIPES, prepared
from agentkv_envs.sites.classifieds.store import PAGE_SIZE, REASONS, Search, Store
from agentkv_envs.sites.classifieds.vocabulary import VOCABULARIES
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import Upload
from agentkv_envs.uploads import upload_bytes

FORM = {
    "title": "Old red lamp",
    "category": "garden",
    "price": "12",
    "condition": "worn",
    "place": "oakham",
    "pickup_day": "Friday",
    "description": "A lamp of my aunt.",
}
NO_PHOTO = Upload()


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store(World())
    yield opened
    opened.close()


def ad_of(store: Store, number: int) -> Row:
    ad = store.listing(number)
    assert ad is not None
    return ad


# Data


def test_there_is_enough_of_everything(store: Store) -> None:
    assert store.count("SELECT COUNT(*) FROM listing") >= 1500
    assert store.count("SELECT COUNT(*) FROM comment") >= 1500
    assert store.count("SELECT COUNT(*) FROM offer") >= 1500
    assert store.count("SELECT COUNT(DISTINCT title) FROM listing") == store.count("SELECT COUNT(*) FROM listing")
    per_kind = store.all("SELECT COUNT(*), COUNT(DISTINCT price_cents) FROM listing GROUP BY kind")
    assert [tuple(row) for row in per_kind] == [(50, 50)] * len(KINDS)
    assert (
        store.count("SELECT COUNT(*) FROM listing WHERE floor_cents > price_cents OR floor_cents * 2 < price_cents")
        == 0
    )
    assert {kind.name for kind in KINDS} == set(RECIPES)
    assert {kind.category for kind in KINDS} == {slug for slug, _ in CATEGORIES}


def test_a_world_is_always_the_same_and_a_seed_changes_the_facts() -> None:
    fresh = template.__wrapped__(World(3))
    assert fresh == template.__wrapped__(World(3)) != template(World(4))
    one, two = facts(World(3)), facts(World(4))
    assert one["CL_GATE_CODE"] != two["CL_GATE_CODE"]
    assert sum(one[f"AD_{ad.id}_CODE"] == two[f"AD_{ad.id}_CODE"] for ad in build_ads("test")) < 10
    same = sum(one[f"AD_{ad.id}_PRICE"] == two[f"AD_{ad.id}_PRICE"] for ad in build_ads("test"))
    assert len(build_ads("test")) // 2 < same < len(build_ads("test")) * 3 // 4


def test_the_facts_are_what_the_database_holds(store: Store) -> None:
    known = facts(World())
    for row in store.all("SELECT l.*, u.name, u.phone FROM listing l JOIN user u ON u.id = l.user_id"):
        prefix = f"AD_{row['id']}_"
        assert known[prefix + "SELLER"] == row["name"]
        assert known[prefix + "PHONE"] == row["phone"]
        assert known[prefix + "CODE"] == row["pickup_code"]
        assert known[prefix + "PICKUP_DAY"] == row["pickup_day"]
        assert int(known[prefix + "PRICE"]) * 100 == row["price_cents"]
        assert int(known[prefix + "LEAST"]) * 100 == row["floor_cents"]


def test_the_splits_share_no_names() -> None:
    test, train = VOCABULARIES["test"], VOCABULARIES["train"]
    for column in ("brands", "places", "first", "last"):
        assert not set(getattr(test, column)) & set(getattr(train, column))
    stores = [Store(World(0, split)) for split in ("test", "train")]
    for sql in ("SELECT title FROM listing", "SELECT name FROM user", "SELECT name FROM place"):
        names = [{row[0] for row in store.all(sql)} for store in stores]
        assert names[0]
        assert not names[0] & names[1]


def test_databases_are_private() -> None:
    one, two = Store(World()), Store(World())
    one.add_favourite(ad_of(one, 3))
    assert one.is_favourite(3)
    assert not two.is_favourite(3)


# Rules


def test_search_joins_its_conditions(store: Store) -> None:
    found = store.search(Search(pattern="sofa", price_max=400, condition="good", sort="i_price", descending=False))
    assert found.total > 0
    assert all(ad["kind"] == "Sofa" and ad["condition"] == "good" and ad["price_cents"] <= 40_000 for ad in found.ads)
    prices = [ad["price_cents"] for ad in found.ads]
    assert prices == sorted(prices)
    assert store.search(Search(category="music")).total == 200
    assert all(ad["place"] == "Ashford" for ad in store.search(Search(place="ashford")).ads)
    for nothing in ("zebra", "sofa kayak"):
        assert store.search(Search(pattern=nothing)).total == 0
    last = store.search(Search(), 999)
    assert (last.number, last.last, len(last.ads)) == (last.pages, 1600, 1600 % PAGE_SIZE or PAGE_SIZE)


def test_the_newest_ads_come_first(store: Store) -> None:
    dates = [ad["created"] for ad in store.search(Search()).ads]
    assert dates == sorted(dates, reverse=True)
    assert store.latest(1)[0]["id"] == store.search(Search()).ads[0]["id"]


def test_a_search_survives_its_address() -> None:
    wanted = Search.of({"sPattern": " red sofa ", "sPriceMin": "5", "sPriceMax": "x", "sCity": "Oakham"})
    assert (wanted.pattern, wanted.price_min, wanted.price_max) == ("red sofa", 5, None)
    assert wanted.query(iPage=2) == "sPattern=red+sofa&sCity=Oakham&sPriceMin=5&iPage=2"


def test_posting_names_the_first_wrong_field(store: Store) -> None:
    for field, value, reason in (
        ("title", "Lamp", "at least 5 letters"),
        ("title", "x" * 61, "60 letters at most"),
        ("category", "", "choose a category"),
        ("price", "0", "whole number"),
        ("price", "12.50", "whole number"),
        ("condition", "broken", "choose a condition"),
        ("place", "Atlantis", 'place "Atlantis"'),
        ("pickup_day", "", "pickup day"),
        ("description", "short", "at least 10 letters"),
    ):
        with pytest.raises(Refusal, match=reason):
            selling.post_ad(store, {**FORM, field: value}, NO_PHOTO)
    assert store.ads_of(OWNER).total == 6


def test_an_ad_is_posted_edited_renewed_sold_and_deleted(store: Store) -> None:
    ad = ad_of(store, selling.post_ad(store, FORM, Upload("red-lamp.png", upload_bytes("red-lamp.png"))))
    assert (ad["place"], ad["price_cents"], ad["category_slug"]) == ("Oakham", 1200, "garden")
    assert store.search(Search(pattern="old red lamp")).total == 1
    with pytest.raises(Refusal, match="already have an ad"):
        selling.post_ad(store, FORM, NO_PHOTO)
    selling.edit_ad(store, ad, {**FORM, "title": "Old blue lamp", "price": "$15"}, NO_PHOTO)
    assert store.search(Search(pattern="old blue lamp", price_min=15, price_max=15)).total == 1
    assert store.photo(ad["id"])["filename"] == "red-lamp.png"  # type: ignore[index]
    with pytest.raises(Refusal, match="from today"):
        selling.renew(store, ad)
    old = ad_of(store, 1500)
    selling.renew(store, old)
    assert ad_of(store, 1500)["created"] == "2026-03-14"
    selling.mark_sold(store, old)
    assert {o["state"] for o in dealing.offers(store, 1500)} == {"declined"}
    for refused in (selling.mark_sold, selling.renew):
        with pytest.raises(Refusal, match="sold"):
            refused(store, ad_of(store, 1500))
    selling.delete_ad(store, ad)
    assert store.listing(ad["id"]) is None
    assert store.photo(ad["id"]) is None
    assert store.search(Search(pattern="old blue lamp")).total == 0


def test_one_may_have_twelve_ads(store: Store) -> None:
    for number in range(6):
        selling.post_ad(store, {**FORM, "title": f"Lamp number {number}"}, NO_PHOTO)
    with pytest.raises(Refusal, match="12 ads"):
        selling.post_ad(store, FORM, NO_PHOTO)


@pytest.mark.parametrize("act", [selling.mark_sold, selling.renew, selling.delete_ad])
def test_other_peoples_ads_are_not_ours(store: Store, act: Callable[[Store, Row], None]) -> None:
    with pytest.raises(Refusal, match="not your ad"):
        act(store, ad_of(store, 3))


def test_uploads_become_pictures_of_one_size() -> None:
    assert prepared(upload_bytes("blue-mug.png")) == prepared(upload_bytes("blue-mug.png"))
    for wrong in (b"hello", upload_bytes("blue-mug.png")[:60]):
        with pytest.raises(Refusal, match="must be a PNG"):
            prepared(wrong)
    with pytest.raises(Refusal, match="4 MB"):
        prepared(b"x" * (MAX_BYTES + 1))


def test_an_offer_is_refused_countered_or_accepted(store: Store) -> None:
    ad = ad_of(store, 3)
    price, least = ad["price_cents"] // 100, ad["floor_cents"] // 100
    with pytest.raises(Refusal, match="half the price"):
        dealing.make_offer(store, ad, price // 2 - 1)
    with pytest.raises(Refusal, match="above the price"):
        dealing.make_offer(store, ad, price + 1)
    assert f"for ${least} it is yours" in dealing.make_offer(store, ad, least - 1)
    with pytest.raises(Refusal, match="open offer"):
        dealing.make_offer(store, ad, least)
    dealing.withdraw_offer(store, dealing.my_offers(store)[0]["id"])
    assert ad["pickup_code"] in dealing.make_offer(store, ad, least)
    assert ad_of(store, 3)["status"] == "reserved"
    with pytest.raises(Refusal, match="no more offers"):
        dealing.make_offer(store, ad_of(store, 3), least)
    with pytest.raises(Refusal, match="Only an open offer"):
        dealing.withdraw_offer(store, dealing.my_offers(store)[0]["id"])
    with pytest.raises(Refusal, match="own ad"):
        dealing.make_offer(store, ad_of(store, 250), 5)


def test_a_deal_ends_with_its_code_and_a_rating(store: Store) -> None:
    ad = ad_of(store, 3)
    with pytest.raises(Refusal, match="after you have picked"):
        dealing.rate_seller(store, ad["user_id"], 5, "Nice.")
    dealing.make_offer(store, ad, ad["price_cents"] // 100)
    deal = dealing.my_offers(store)[0]["id"]
    with pytest.raises(Refusal, match="code is wrong"):
        dealing.confirm_pickup(store, deal, "XX000")
    dealing.confirm_pickup(store, deal, f" {ad['pickup_code'].lower()} ")
    assert ad_of(store, 3)["status"] == "sold"
    assert store.search(Search(pattern=ad["title"].replace(",", ""))).total == 0
    with pytest.raises(Refusal, match="nothing to pick up"):
        dealing.confirm_pickup(store, deal, ad["pickup_code"])
    with pytest.raises(Refusal, match="1 to 5 stars"):
        dealing.rate_seller(store, ad["user_id"], 6, "Nice.")
    with pytest.raises(Refusal, match="few words"):
        dealing.rate_seller(store, ad["user_id"], 4, " ")
    dealing.rate_seller(store, ad["user_id"], 4, "Nice.")
    assert store.ratings(ad["user_id"])[0]["body"] == "Nice."


def test_offers_on_own_ads_are_answered_once(store: Store) -> None:
    ad = ad_of(store, 250)
    high, low = (offer["id"] for offer in dealing.offers(store, 250))
    dealing.answer_offer(store, ad, high, True)
    assert [o["state"] for o in dealing.offers(store, 250)] == ["accepted", "declined"]
    for offer in (high, low):
        with pytest.raises(Refusal, match="no longer open"):
            dealing.answer_offer(store, ad, offer, False)
    with pytest.raises(Refusal, match="accepted an offer"):
        selling.delete_ad(store, ad)
    with pytest.raises(Refusal, match="not your ad"):
        dealing.answer_offer(store, ad_of(store, 3), 1, True)


def test_comments_and_answers(store: Store) -> None:
    dealing.add_comment(store, ad_of(store, 3), "Is it warm?")
    mine = dealing.comments(store, 3)[-1]
    assert (mine["body"], mine["user_id"], mine["created"]) == ("Is it warm?", OWNER, "2026-03-14")
    with pytest.raises(Refusal, match="write your comment"):
        dealing.add_comment(store, ad_of(store, 3), " ")
    question = dealing.unanswered(store, 250)[0]
    dealing.add_comment(store, ad_of(store, 250), "Yes, it is.", question["id"])
    answered = next(c for c in dealing.comments(store, 250) if c["reply_to"] == question["id"])
    assert answered["asker"] == question["author"]
    with pytest.raises(Refusal, match="has been answered"):
        dealing.add_comment(store, ad_of(store, 250), "Yes.", question["id"])
    dealing.delete_comment(store, mine["id"])
    with pytest.raises(Refusal, match="only your own"):
        dealing.delete_comment(store, question["id"])


def test_what_is_told_once_is_told_once(store: Store) -> None:
    known = facts(World())
    assert store.reveal_phone(ad_of(store, 3)) == known["AD_3_PHONE"]
    with pytest.raises(Refusal, match="not shown again"):
        store.reveal_phone(ad_of(store, 3))
    secrets = [t["id"] for t in dealing.threads(store) if t["secret"]]
    assert known["CL_GATE_CODE"] in dealing.read_secret(store, secrets[0])
    with pytest.raises(Refusal, match="is gone"):
        dealing.read_secret(store, secrets[0])


def test_messages_are_sent_and_deleted(store: Store) -> None:
    unread = [t["id"] for t in dealing.threads(store) if t["unread"]]
    dealing.thread(store, unread[0])
    assert [t["id"] for t in dealing.threads(store) if t["unread"]] == unread[1:]
    with pytest.raises(Refusal, match="write a message"):
        dealing.contact_seller(store, ad_of(store, 3), "")
    with pytest.raises(Refusal, match="own ad"):
        dealing.contact_seller(store, ad_of(store, 250), "Hello me")
    number = dealing.contact_seller(store, ad_of(store, 3), "Hello")
    assert dealing.contact_seller(store, ad_of(store, 3), "Again") == number
    assert [m["body"] for m in dealing.messages_in(store, number)] == ["Hello", "Again"]
    dealing.delete_thread(store, number)
    assert dealing.thread(store, number) is None
    assert dealing.messages_in(store, number) == []


def test_favourites_follows_searches_reports_profile(store: Store) -> None:
    with pytest.raises(Refusal, match="own ad"):
        store.add_favourite(ad_of(store, 250))
    with pytest.raises(Refusal, match="follow yourself"):
        store.follow(OWNER)
    store.follow(7)
    store.follow(7)
    assert store.follows(7)
    store.unfollow(7)
    assert not store.follows(7)
    for name, query, reason in (("", "sPattern=sofa", "a name"), ("All", "sOrder=i_price", "Search for something")):
        with pytest.raises(Refusal, match=reason):
            store.save_search(name, query)
    store.save_search("Sofas", "sPattern=sofa&sOrder=i_price")
    with pytest.raises(Refusal, match="already"):
        store.save_search("Sofas again", "sPattern=sofa")
    store.report(ad_of(store, 3), REASONS[0], "")
    with pytest.raises(Refusal, match="reported this ad already"):
        store.report(ad_of(store, 3), REASONS[0], "")
    with pytest.raises(Refusal, match="choose a reason"):
        store.report(ad_of(store, 4), "Bored", "")
    with pytest.raises(Refusal, match="do not know the place"):
        store.save_profile("012-34567", "Atlantis")
    with pytest.raises(Refusal, match="five digits"):
        store.save_profile("none", "Oakham")
    store.save_profile("012-34567", "oakham")
    assert (store.user(OWNER)["place"], store.user(OWNER)["phone"]) == ("Oakham", "012-34567")  # type: ignore[index]
