"""Rules between people: comments, offers, pickups, ratings, private messages."""

from __future__ import annotations

from agentkv_envs.sites.classifieds.catalogue import OWNER
from agentkv_envs.sites.classifieds.selling import own
from agentkv_envs.sites.classifieds.store import Store
from agentkv_envs.sites.storage import TODAY, Refusal, Row

# Comments


def comments(store: Store, listing_id: int) -> list[Row]:
    """Questions in the order they came, each followed by its answers; `asker` is whom an answer is for."""
    return store.all(
        "SELECT c.*, u.name AS author, q.user_id AS asker_id, a.name AS asker FROM comment c"
        " JOIN user u ON u.id = c.user_id LEFT JOIN comment q ON q.id = c.reply_to LEFT JOIN user a ON a.id = q.user_id"
        " WHERE c.listing_id = ? ORDER BY COALESCE(c.reply_to, c.id), c.id",
        listing_id,
    )


def unanswered(store: Store, listing_id: int) -> list[Row]:
    return [
        c
        for c in comments(store, listing_id)
        if c["reply_to"] is None
        and c["user_id"] != OWNER
        and store.one("SELECT 1 FROM comment WHERE reply_to = ?", c["id"]) is None
    ]


def add_comment(store: Store, ad: Row, body: str, reply_to: int | None = None) -> None:
    """Ask something on an ad, or answer a question on one's own."""
    if len(body.strip()) < 3:
        raise Refusal("Please write your comment first.")
    if reply_to is not None:
        own(ad)
        if all(question["id"] != reply_to for question in unanswered(store, ad["id"])):
            raise Refusal("This question has been answered.")
    elif ad["status"] == "sold":
        raise Refusal("This ad is closed. It takes no comments.")
    store.db.execute(
        "INSERT INTO comment (listing_id, user_id, reply_to, body, created) VALUES (?, ?, ?, ?, ?)",
        (ad["id"], OWNER, reply_to, body.strip()[:300], TODAY.isoformat()),
    )


def delete_comment(store: Store, number: int) -> None:
    row = store.one("DELETE FROM comment WHERE id = ? AND user_id = ? RETURNING id", number, OWNER)
    if row is None:
        raise Refusal("You can delete only your own comments.")


# Offers


def offers(store: Store, listing_id: int) -> list[Row]:
    """Highest first."""
    return store.all(
        "SELECT o.*, u.name AS bidder FROM offer o JOIN user u ON u.id = o.user_id WHERE o.listing_id = ?"
        " AND o.state != 'withdrawn' ORDER BY o.amount_cents DESC, o.id",
        listing_id,
    )


def my_offers(store: Store) -> list[Row]:
    return store.all(
        "SELECT o.*, l.title, l.place, l.pickup_day FROM offer o JOIN listing l ON l.id = o.listing_id"
        " WHERE o.user_id = ? ORDER BY o.id DESC",
        OWNER,
    )


def make_offer(store: Store, ad: Row, dollars: int) -> str:
    """Offer a price; the seller answers at once. What comes back is told once and kept nowhere a page shows.

    Below half the price the offer is refused, below the seller's limit there is a counter-offer, and from there on
    the ad is reserved and the pickup code is told.
    """
    if ad["user_id"] == OWNER:
        raise Refusal("This is your own ad.")
    if ad["status"] != "active":
        raise Refusal("This ad takes no more offers.")
    if dollars * 200 < ad["price_cents"]:
        raise Refusal("The seller refuses offers under half the price.")
    if dollars * 100 > ad["price_cents"]:
        raise Refusal("Your offer is above the price.")
    if store.one("SELECT 1 FROM offer WHERE listing_id = ? AND user_id = ? AND state = 'open'", ad["id"], OWNER):
        raise Refusal("You have an open offer on this ad. Withdraw it first.")
    accepted = dollars * 100 >= ad["floor_cents"]
    store.db.execute(
        "INSERT INTO offer (listing_id, user_id, amount_cents, state, created) VALUES (?, ?, ?, ?, ?)",
        (ad["id"], OWNER, dollars * 100, "accepted" if accepted else "open", TODAY.isoformat()),
    )
    if not accepted:
        least = ad["floor_cents"] // 100
        return f"{ad['seller']} answers: not for ${dollars}, but for ${least} it is yours. This is shown only now."
    store.db.execute("UPDATE listing SET status = 'reserved' WHERE id = ?", (ad["id"],))
    return f"{ad['seller']} accepts ${dollars}. Your pickup code is {ad['pickup_code']}. It is shown only now."


def withdraw_offer(store: Store, number: int) -> None:
    row = store.one(
        "UPDATE offer SET state = 'withdrawn' WHERE id = ? AND user_id = ? AND state = 'open' RETURNING id",
        number,
        OWNER,
    )
    if row is None:
        raise Refusal("Only an open offer can be withdrawn.")


def answer_offer(store: Store, ad: Row, number: int, accept: bool) -> None:
    """Accept or decline an offer on one's own ad; accepting one declines the others."""
    own(ad)
    offer = store.one("SELECT * FROM offer WHERE id = ? AND listing_id = ? AND state = 'open'", number, ad["id"])
    if offer is None:
        raise Refusal("This offer is no longer open.")
    store.db.execute("UPDATE offer SET state = ? WHERE id = ?", ("accepted" if accept else "declined", number))
    if accept:
        store.db.execute("UPDATE offer SET state = 'declined' WHERE listing_id = ? AND state = 'open'", (ad["id"],))
        store.db.execute("UPDATE listing SET status = 'reserved' WHERE id = ?", (ad["id"],))


def confirm_pickup(store: Store, number: int, code: str) -> None:
    """Close a deal with the pickup code."""
    row = store.one(
        "SELECT o.*, l.pickup_code FROM offer o JOIN listing l ON l.id = o.listing_id"
        " WHERE o.id = ? AND o.user_id = ? AND o.state = 'accepted'",
        number,
        OWNER,
    )
    if row is None:
        raise Refusal("There is nothing to pick up for this offer.")
    if code.strip().upper() != row["pickup_code"]:
        raise Refusal("The pickup code is wrong.")
    store.db.execute("UPDATE offer SET state = 'collected' WHERE id = ?", (number,))
    store.db.execute("UPDATE listing SET status = 'sold' WHERE id = ?", (row["listing_id"],))


def rate_seller(store: Store, seller_id: int, stars: int, body: str) -> None:
    """Rate a seller something was bought from."""
    bought = store.one(
        "SELECT 1 FROM offer o JOIN listing l ON l.id = o.listing_id"
        " WHERE o.user_id = ? AND o.state = 'collected' AND l.user_id = ?",
        OWNER,
        seller_id,
    )
    if bought is None:
        raise Refusal("You can rate a seller after you have picked something up there.")
    if not 1 <= stars <= 5:
        raise Refusal("Please choose 1 to 5 stars.")
    if not body.strip():
        raise Refusal("Please write a few words.")
    store.db.execute(
        "INSERT OR REPLACE INTO rating (seller_id, user_id, stars, body, created) VALUES (?, ?, ?, ?, ?)",
        (seller_id, OWNER, stars, body.strip()[:200], TODAY.isoformat()),
    )


# Private messages


def threads(store: Store) -> list[Row]:
    """Conversations, the one with the newest message first."""
    return store.all(
        "SELECT t.*, u.name AS other, l.title FROM thread t JOIN user u ON u.id = t.user_id"
        " JOIN listing l ON l.id = t.listing_id"
        " ORDER BY (SELECT MAX(m.created) FROM message m WHERE m.thread_id = t.id) DESC,"
        " (SELECT MAX(m.id) FROM message m WHERE m.thread_id = t.id AND m.mine) DESC, t.id"
    )


def thread(store: Store, number: int) -> Row | None:
    """A conversation; looking at it marks it as read."""
    store.db.execute("UPDATE thread SET unread = 0 WHERE id = ?", (number,))
    return store.one(
        "SELECT t.*, u.name AS other, l.title FROM thread t JOIN user u ON u.id = t.user_id"
        " JOIN listing l ON l.id = t.listing_id WHERE t.id = ?",
        number,
    )


def messages_in(store: Store, number: int) -> list[Row]:
    return store.all("SELECT * FROM message WHERE thread_id = ? ORDER BY id", number)


def read_secret(store: Store, number: int) -> str:
    """The secret message of a conversation; it is destroyed by reading."""
    row = store.one("SELECT secret FROM thread WHERE id = ? AND secret != ''", number)
    if row is None:
        raise Refusal("The secret message was read before and is gone.")
    store.db.execute("UPDATE thread SET secret = '' WHERE id = ?", (number,))
    return str(row["secret"])


def reply(store: Store, number: int, body: str) -> None:
    if not body.strip():
        raise Refusal("Please write a message first.")
    store.db.execute(
        "INSERT INTO message (thread_id, mine, body, created) VALUES (?, 1, ?, ?)",
        (number, body.strip()[:500], TODAY.isoformat()),
    )


def contact_seller(store: Store, ad: Row, body: str) -> int:
    """Write to the seller of an ad and return the conversation's id."""
    if ad["user_id"] == OWNER:
        raise Refusal("This is your own ad.")
    if not body.strip():
        raise Refusal("Please write a message first.")
    known = store.one("SELECT id FROM thread WHERE user_id = ? AND listing_id = ?", ad["user_id"], ad["id"])
    if known is None:
        number = store.count("SELECT MAX(id) FROM thread") + 1
        store.db.execute(
            "INSERT INTO thread (id, user_id, listing_id) VALUES (?, ?, ?)", (number, ad["user_id"], ad["id"])
        )
    else:
        number = known["id"]
    reply(store, number, body)
    return int(number)


def delete_thread(store: Store, number: int) -> None:
    store.db.execute("DELETE FROM message WHERE thread_id = ?", (number,))
    store.db.execute("DELETE FROM thread WHERE id = ?", (number,))
