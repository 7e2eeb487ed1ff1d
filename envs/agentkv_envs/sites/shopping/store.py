"""What the shop does to its database. One `Store` serves one episode and one customer."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from agentkv_envs.sites.shopping.database import COUNTRIES, SHIPPING, TODAY, open_database

Row = sqlite3.Row
PAGE_SIZE = 12
MAX_QTY = 20
SORTS = {"position": "popularity", "name": "name", "price": "price_cents"}
ADDRESS_FIELDS = ("firstname", "lastname", "street", "city", "postcode", "country", "telephone")
_RATED = (
    "SELECT p.*, (SELECT ROUND(AVG(rating), 1) FROM review r WHERE r.product_id = p.id) AS rating,"
    " (SELECT COUNT(*) FROM review r WHERE r.product_id = p.id) AS reviews FROM product p"
)


class ShopError(Exception):
    """Something the customer asked for that the shop refuses; the message is shown on the page."""


@dataclass(frozen=True)
class Listing:
    """One page of products; `first` and `last` count from 1."""

    products: list[Row]
    total: int
    page: int
    pages: int

    @property
    def first(self) -> int:
        return (self.page - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.page * PAGE_SIZE, self.total)


class Store:
    """The shop's state and rules, without any HTTP."""

    def __init__(self, seed: int = 0):
        self.db = open_database(seed)

    def close(self) -> None:
        self.db.close()

    def one(self, sql: str, *args: object) -> Row | None:
        row: Row | None = self.db.execute(sql, args).fetchone()
        return row

    def all(self, sql: str, *args: object) -> list[Row]:
        return self.db.execute(sql, args).fetchall()

    # Customer and messages

    def new_session(self) -> str:
        """A token that logs its bearer in."""
        token = secrets.token_hex(16)
        self.db.execute("INSERT INTO session (token, customer_id) VALUES (?, 1)", (token,))
        return token

    def login(self, email: str, password: str) -> str:
        found = self.one("SELECT id FROM customer WHERE email = ? AND password = ?", email.strip().lower(), password)
        if found is None:
            raise ShopError("The sign-in was incorrect. Check your email and password.")
        return self.new_session()

    def logout(self, token: str) -> None:
        self.db.execute("DELETE FROM session WHERE token = ?", (token,))

    def customer(self, token: str | None = None) -> Row | None:
        """The customer of a session token, or None."""
        return self.one("SELECT c.* FROM customer c JOIN session s ON s.customer_id = c.id WHERE s.token = ?", token)

    def say(self, text: str, kind: str = "success", link: str = "", link_text: str = "") -> None:
        """Leave a message for the next page."""
        self.db.execute(
            "INSERT INTO flash (kind, text, link, link_text) VALUES (?, ?, ?, ?)", (kind, text, link, link_text)
        )

    def messages(self) -> list[Row]:
        """The messages for this page; each is given out once."""
        return self.all("DELETE FROM flash RETURNING *")

    def save_address(self, form: Mapping[str, str]) -> None:
        values = _address(form)
        self.db.execute(f"UPDATE customer SET {', '.join(f'{f} = ?' for f in ADDRESS_FIELDS)}", values)

    def reveal_reward(self) -> str:
        """The reward code, told once."""
        row = self.one("UPDATE customer SET reward_shown = 1 WHERE reward_shown = 0 RETURNING reward_code")
        if row is None:
            raise ShopError("Your reward code was already shown. It is not shown again.")
        return str(row["reward_code"])

    # Products

    def categories(self) -> list[Row]:
        return self.all("SELECT * FROM category ORDER BY id")

    def product(self, slug: str) -> Row | None:
        return self.one(f"{_RATED} WHERE p.slug = ?", slug)

    def product_by_id(self, product_id: int) -> Row:
        row = self.one(f"{_RATED} WHERE p.id = ?", product_id)
        if row is None:
            raise ShopError("We could not find that product.")
        return row

    def featured(self) -> list[Row]:
        return self.all(f"{_RATED} WHERE p.stock > 0 ORDER BY popularity LIMIT 4")

    def related(self, product: Row) -> list[Row]:
        return self.all(
            f"{_RATED} WHERE p.kind = ? AND p.id != ? ORDER BY popularity LIMIT 4", product["kind"], product["id"]
        )

    def reviews(self, product_id: int) -> list[Row]:
        return self.all("SELECT * FROM review WHERE product_id = ? ORDER BY created DESC, id DESC", product_id)

    def add_review(self, product_id: int, rating: int, nickname: str, title: str, detail: str) -> None:
        if not 1 <= rating <= 5:
            raise ShopError("Please choose a rating from 1 to 5.")
        if not (nickname.strip() and title.strip() and detail.strip()):
            raise ShopError("Please fill in nickname, summary and review.")
        self.db.execute(
            "INSERT INTO review (product_id, nickname, rating, title, detail, created) VALUES (?, ?, ?, ?, ?, ?)",
            (product_id, nickname.strip(), rating, title.strip(), detail.strip(), TODAY.isoformat()),
        )

    def in_category(self, category_id: int, sort: str, descending: bool, page: int) -> Listing:
        return self._listing("p.category_id = ?", (category_id,), sort, descending, page)

    def search(self, query: str, sort: str, descending: bool, page: int) -> Listing:
        """Products that hold every word of the query; words may be cut short."""
        words = ["".join(c for c in word if c.isalnum()) for word in query.replace("-", " ").split()]
        match = " ".join(f'"{word}"*' for word in words if word)
        if not match:
            return Listing([], 0, 1, 1)
        where = "p.id IN (SELECT rowid FROM product_search WHERE product_search MATCH ?)"
        return self._listing(where, (match,), sort, descending, page)

    def _listing(self, where: str, args: tuple[object, ...], sort: str, descending: bool, page: int) -> Listing:
        count = self.one(f"SELECT COUNT(*) FROM product p WHERE {where}", *args)
        assert count is not None
        pages = max(1, -(-count[0] // PAGE_SIZE))
        page = min(max(page, 1), pages)
        order = SORTS.get(sort, "popularity") + (" DESC" if descending else "")
        limit = f"LIMIT {PAGE_SIZE} OFFSET {(page - 1) * PAGE_SIZE}"
        rows = self.all(f"{_RATED} WHERE {where} ORDER BY {order}, p.id {limit}", *args)
        return Listing(rows, count[0], page, pages)

    # Wish list

    def wishlist(self) -> list[Row]:
        return self.all(
            f"SELECT w.id AS item_id, q.* FROM wishlist_item w JOIN ({_RATED}) q ON q.id = w.product_id ORDER BY w.id"
        )

    def wish(self, product_id: int) -> None:
        self.db.execute("INSERT OR IGNORE INTO wishlist_item (product_id) VALUES (?)", (product_id,))

    def unwish(self, item_id: int) -> None:
        self.db.execute("DELETE FROM wishlist_item WHERE id = ?", (item_id,))

    # Cart

    def cart(self) -> list[Row]:
        return self.all(
            "SELECT c.id AS item_id, c.qty, c.size, p.*, c.qty * p.price_cents AS row_cents FROM cart_item c"
            " JOIN product p ON p.id = c.product_id ORDER BY c.id"
        )

    def cart_count(self) -> int:
        row = self.one("SELECT COALESCE(SUM(qty), 0) FROM cart_item")
        return int(row[0]) if row is not None else 0

    def add_to_cart(self, product: Row, qty: int, size: str = "") -> None:
        if product["sizes"] and size not in product["sizes"].split(","):
            raise ShopError("Please choose a size.")
        held = self.one("SELECT COALESCE(SUM(qty), 0) FROM cart_item WHERE product_id = ?", product["id"])
        assert held is not None
        self._check_stock(product, qty, held[0] + qty)
        self.db.execute(
            "INSERT INTO cart_item (product_id, size, qty) VALUES (?, ?, ?)"
            " ON CONFLICT (product_id, size) DO UPDATE SET qty = qty + excluded.qty",
            (product["id"], size, qty),
        )

    def set_quantity(self, item_id: int, qty: int) -> None:
        row = self.one("SELECT product_id FROM cart_item WHERE id = ?", item_id)
        if row is None:
            return
        if qty <= 0:
            self.remove_from_cart(item_id)
            return
        self._check_stock(self.product_by_id(row["product_id"]), qty, qty)
        self.db.execute("UPDATE cart_item SET qty = ? WHERE id = ?", (qty, item_id))

    def remove_from_cart(self, item_id: int) -> None:
        self.db.execute("DELETE FROM cart_item WHERE id = ?", (item_id,))

    def clear_cart(self) -> None:
        self.db.execute("DELETE FROM cart_item")
        self.db.execute("UPDATE cart SET coupon = NULL")

    @staticmethod
    def _check_stock(product: Row, qty: int, wanted: int) -> None:
        if not 1 <= qty <= MAX_QTY:
            raise ShopError(f"Please enter a quantity from 1 to {MAX_QTY}.")
        if wanted > product["stock"]:
            raise ShopError(f"Only {product['stock']} of {product['name']} are in stock.")

    # Checkout and orders

    def coupon(self) -> Row | None:
        return self.one("SELECT c.* FROM coupon c JOIN cart ON cart.coupon = c.code")

    def deals(self) -> list[Row]:
        return self.all("SELECT * FROM coupon WHERE once = 0 ORDER BY percent")

    def thanks_code(self) -> str:
        row = self.one("SELECT code FROM coupon WHERE label = 'Thank you'")
        return str(row["code"]) if row is not None else ""

    def apply_coupon(self, code: str) -> None:
        code = code.strip().upper()
        if code and self.one("SELECT 1 FROM coupon WHERE code = ?", code) is None:
            raise ShopError(f'The discount code "{code}" is not valid.')
        self.db.execute("UPDATE cart SET coupon = ?", (code or None,))

    def totals(self, shipping: str = "Standard") -> dict[str, int]:
        """Subtotal, discount, shipping and total in cents."""
        subtotal = sum(row["row_cents"] for row in self.cart())
        coupon = self.coupon()
        discount = subtotal * coupon["percent"] // 100 if coupon is not None else 0
        fee = dict(SHIPPING).get(shipping, 0)
        return {"subtotal": subtotal, "discount": discount, "shipping": fee, "total": subtotal - discount + fee}

    def place_order(self, form: Mapping[str, str]) -> int:
        """Turn the cart into an order and return its id."""
        items = self.cart()
        if not items:
            raise ShopError("Your cart is empty.")
        shipping = form.get("shipping", "")
        if shipping not in dict(SHIPPING):
            raise ShopError("Please choose a shipping method.")
        first, last, street, city, postcode, country, telephone = _address(form)
        totals, coupon = self.totals(shipping), self.coupon()
        newest = self.one("SELECT MAX(CAST(number AS INTEGER)) FROM orders")
        assert newest is not None
        cursor = self.db.execute(
            "INSERT INTO orders (number, created, status, shipping, shipping_cents, coupon, discount_cents,"
            " total_cents, recipient, address, telephone, gift_note)"
            " VALUES (?, ?, 'Pending', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(str(newest[0] + 7), TODAY.isoformat(), shipping, totals["shipping"]),
                *(coupon["code"] if coupon is not None else None, totals["discount"], totals["total"]),
                *(f"{first} {last}", f"{street}, {postcode} {city}, {country}", telephone),
                form.get("gift_note", "").strip(),
            ),
        )
        order_id = int(cursor.lastrowid or 0)
        for item in items:
            self.db.execute(
                "INSERT INTO order_item (order_id, product_id, size, qty, price_cents) VALUES (?, ?, ?, ?, ?)",
                (order_id, item["id"], item["size"], item["qty"], item["price_cents"]),
            )
            self.db.execute("UPDATE product SET stock = stock - ? WHERE id = ?", (item["qty"], item["id"]))
        self.clear_cart()
        return order_id

    def orders(self) -> list[Row]:
        return self.all("SELECT * FROM orders ORDER BY created DESC, id DESC")

    def order(self, order_id: int) -> Row | None:
        return self.one("SELECT * FROM orders WHERE id = ?", order_id)

    def order_items(self, order_id: int) -> list[Row]:
        return self.all(
            "SELECT i.qty, i.size, i.price_cents AS paid_cents, p.* FROM order_item i"
            " JOIN product p ON p.id = i.product_id WHERE i.order_id = ? ORDER BY i.id",
            order_id,
        )

    def cancel_order(self, order_id: int) -> None:
        row = self.one(
            "UPDATE orders SET status = 'Canceled' WHERE id = ? AND status IN ('Pending', 'Processing') RETURNING id",
            order_id,
        )
        if row is None:
            raise ShopError("This order can no longer be cancelled.")

    def send_message(self, name: str, topic: str, body: str) -> None:
        if not (name.strip() and body.strip()):
            raise ShopError("Please fill in your name and your message.")
        self.db.execute("INSERT INTO message (name, topic, body) VALUES (?, ?, ?)", (name.strip(), topic, body.strip()))


def _address(form: Mapping[str, str]) -> tuple[str, ...]:
    values = tuple(form.get(field, "").strip() for field in ADDRESS_FIELDS)
    if not all(values):
        raise ShopError("Please fill in every field of the address.")
    if form.get("country") not in COUNTRIES:
        raise ShopError("We do not ship to that country.")
    return values
