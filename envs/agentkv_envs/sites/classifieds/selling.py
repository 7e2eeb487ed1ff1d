"""Rules of one's own ads: posting, editing, marking as sold, renewing, deleting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentkv_envs.sites.classifieds.catalogue import CONDITIONS, DAYS, OWNER
from agentkv_envs.sites.classifieds.photos import prepared
from agentkv_envs.sites.classifieds.store import Store
from agentkv_envs.sites.storage import TODAY, Refusal, Row
from agentkv_envs.sites.web import Upload, to_int

MAX_ADS = 12
MAX_DOLLARS = 20_000


@dataclass(frozen=True)
class Draft:
    """A checked form of an ad."""

    title: str
    category_id: int
    price_cents: int
    condition: str
    place: str
    pickup_day: str
    description: str


def read_draft(store: Store, form: Mapping[str, str]) -> Draft:
    """Check the form of an ad.

    Raises:
        Refusal: names the first field that is wrong.
    """
    title, description = form.get("title", "").strip(), form.get("description", "").strip()
    if len(title) < 5:
        raise Refusal("The title needs at least 5 letters.")
    if len(title) > 60:
        raise Refusal("The title may have 60 letters at most.")
    category = store.one("SELECT id FROM category WHERE slug = ?", form.get("category", ""))
    if category is None:
        raise Refusal("Please choose a category.")
    price = to_int(form.get("price", "").removeprefix("$"), 0)
    if not 1 <= price <= MAX_DOLLARS:
        raise Refusal(f"The price must be a whole number from 1 to {MAX_DOLLARS}.")
    if form.get("condition") not in CONDITIONS:
        raise Refusal("Please choose a condition.")
    place = store.place(form.get("place", ""))
    if place is None:
        raise Refusal(f'We do not know the place "{form.get("place", "").strip()}". Choose one of the suggestions.')
    if form.get("pickup_day") not in DAYS:
        raise Refusal("Please choose a pickup day.")
    if len(description) < 10:
        raise Refusal("The description needs at least 10 letters.")
    return Draft(
        title, category["id"], price * 100, form["condition"], place["name"], form["pickup_day"], description[:500]
    )


def post_ad(store: Store, form: Mapping[str, str], upload: Upload) -> int:
    """Publish an ad and return its id; `upload` is empty where no photo was chosen."""
    if store.count("SELECT COUNT(*) FROM listing WHERE user_id = ? AND status != 'sold'", OWNER) >= MAX_ADS:
        raise Refusal(f"You may have {MAX_ADS} ads at a time. Delete one first.")
    draft = read_draft(store, form)
    if store.one("SELECT 1 FROM listing WHERE user_id = ? AND title = ?", OWNER, draft.title) is not None:
        raise Refusal("You already have an ad with this title.")
    picture = prepared(upload.content) if upload.content else b""
    number = store.count("SELECT MAX(id) FROM listing") + 1
    store.db.execute(
        "INSERT INTO listing (id, title, category_id, price_cents, condition, place, pickup_day, description, kind,"
        " attribute, value, extra, colour, year, floor_cents, user_id, created, pattern, background, pickup_code)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', '', '', '', '', 2026, ?, ?, ?, '', '', '')",
        (
            *(number, draft.title, draft.category_id, draft.price_cents, draft.condition, draft.place),
            *(draft.pickup_day, draft.description, draft.price_cents, OWNER, TODAY.isoformat()),
        ),
    )
    store.db.execute(
        "INSERT INTO listing_search (rowid, title, extra) VALUES (?, ?, ?)", (number, draft.title, draft.place)
    )
    _keep_photo(store, number, upload.name, picture)
    return number


def edit_ad(store: Store, ad: Row, form: Mapping[str, str], upload: Upload) -> None:
    """Change an ad; without an upload its photo stays."""
    own(ad)
    draft = read_draft(store, form)
    picture = prepared(upload.content) if upload.content else b""
    store.db.execute(
        "UPDATE listing SET title = ?, category_id = ?, price_cents = ?, condition = ?, place = ?, pickup_day = ?,"
        " description = ? WHERE id = ?",
        (
            *(draft.title, draft.category_id, draft.price_cents, draft.condition, draft.place, draft.pickup_day),
            *(draft.description, ad["id"]),
        ),
    )
    words = f"{ad['colour']} {ad['extra']} {draft.place}".strip()
    store.db.execute("UPDATE listing_search SET title = ?, extra = ? WHERE rowid = ?", (draft.title, words, ad["id"]))
    _keep_photo(store, ad["id"], upload.name, picture)


def _keep_photo(store: Store, number: int, name: str, picture: bytes) -> None:
    if picture:
        sql = "INSERT OR REPLACE INTO photo (listing_id, filename, png) VALUES (?, ?, ?)"
        store.db.execute(sql, (number, name, picture))


def mark_sold(store: Store, ad: Row) -> None:
    own(ad)
    if ad["status"] == "sold":
        raise Refusal("This ad is marked as sold already.")
    store.db.execute("UPDATE listing SET status = 'sold' WHERE id = ?", (ad["id"],))
    store.db.execute("UPDATE offer SET state = 'declined' WHERE listing_id = ? AND state = 'open'", (ad["id"],))


def renew(store: Store, ad: Row) -> None:
    """Give an ad today's date, so that it comes first again."""
    own(ad)
    if ad["status"] == "sold":
        raise Refusal("A sold ad cannot be renewed.")
    if ad["created"] == TODAY.isoformat():
        raise Refusal("This ad is from today. Renew it tomorrow at the earliest.")
    store.db.execute("UPDATE listing SET created = ? WHERE id = ?", (TODAY.isoformat(), ad["id"]))


def delete_ad(store: Store, ad: Row) -> None:
    own(ad)
    if store.one("SELECT 1 FROM offer WHERE listing_id = ? AND state = 'accepted'", ad["id"]) is not None:
        raise Refusal("You have accepted an offer for this ad. It can only be marked as sold.")
    for table in ("comment", "offer", "photo", "favourite", "report"):
        store.db.execute(f"DELETE FROM {table} WHERE listing_id = ?", (ad["id"],))
    store.db.execute("DELETE FROM listing_search WHERE rowid = ?", (ad["id"],))
    store.db.execute("DELETE FROM listing WHERE id = ?", (ad["id"],))


def own(ad: Row) -> None:
    """Refuse unless the ad is the owner's."""
    if ad["user_id"] != OWNER:
        raise Refusal("This is not your ad.")
