"""Before an order: cart, discount codes, wish list, notices about sold-out things."""

from __future__ import annotations

from datetime import date

from agentkv_envs.sites.shopping.catalogue import TODAY
from agentkv_envs.sites.shopping.history import SHIPPING
from agentkv_envs.sites.shopping.store_products import RATED, Products
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import money

MAX_QTY = 20


def checked_email(text: str) -> str:
    """An email address in lower case.

    Raises:
        Refusal: it is none.
    """
    name, at, host = text.strip().lower().partition("@")
    if not (name and at and "." in host) or " " in name + host:
        raise Refusal("Please enter a valid email address.")
    return f"{name}@{host}"


class Cart(Products):
    """The cart and what else a customer collects."""

    # Wish list

    def wishlist(self) -> list[Row]:
        return self.all(
            f"SELECT w.id AS item_id, q.* FROM wishlist_item w JOIN ({RATED}) q ON q.id = w.product_id ORDER BY w.id"
        )

    def wish(self, product_id: int) -> None:
        self.db.execute("INSERT OR IGNORE INTO wishlist_item (product_id) VALUES (?)", (product_id,))

    def unwish(self, item_id: int) -> None:
        self.db.execute("DELETE FROM wishlist_item WHERE id = ?", (item_id,))

    # Notices

    def notices(self) -> list[Row]:
        return self.all(
            "SELECT n.id AS notice_id, n.size, n.email, p.* FROM stock_notice n"
            " JOIN product p ON p.id = n.product_id ORDER BY n.id"
        )

    def notify(self, product: Row, email: str, colour: str = "", size: str = "") -> None:
        """Ask for an email when a sold-out product, or one of its variants, is back."""
        email = checked_email(email)
        chosen = self.variant(product, colour, size) if product["stock"] and (colour or size) else None
        if (chosen or product)["stock"]:
            raise Refusal("This product is in stock. You can order it now.")
        text = label(chosen) if chosen is not None else ""
        if self.one("SELECT 1 FROM stock_notice WHERE product_id = ? AND size = ?", product["id"], text):
            raise Refusal("You already get a notice for this product.")
        self.db.execute(
            "INSERT INTO stock_notice (product_id, size, email) VALUES (?, ?, ?)", (product["id"], text, email)
        )

    def drop_notice(self, notice_id: int) -> None:
        self.db.execute("DELETE FROM stock_notice WHERE id = ?", (notice_id,))

    # Cart

    def cart(self) -> list[Row]:
        return self.all(
            "SELECT c.id AS item_id, c.qty, c.size, c.variant_id, p.id, p.slug, p.name, p.category_id, p.option_label,"
            " p.colours, COALESCE(v.colour, p.colour) AS colour, COALESCE(v.price_cents, p.price_cents) AS price_cents,"
            " c.qty * COALESCE(v.price_cents, p.price_cents) AS row_cents FROM cart_item c"
            " JOIN product p ON p.id = c.product_id LEFT JOIN variant v ON v.id = c.variant_id ORDER BY c.id"
        )

    def cart_count(self) -> int:
        return self.count("SELECT SUM(qty) FROM cart_item")

    def add_to_cart(self, product: Row, qty: int, size: str = "", colour: str = "") -> None:
        variant = self.variant(product, colour, size)
        text = label(variant) if variant is not None else ""
        held = self.count("SELECT SUM(qty) FROM cart_item WHERE product_id = ? AND size = ?", product["id"], text)
        _check_stock(product["name"], variant, (variant or product)["stock"], qty, held + qty)
        self.db.execute(
            "INSERT INTO cart_item (product_id, variant_id, size, qty) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (product_id, size) DO UPDATE SET qty = qty + excluded.qty",
            (product["id"], variant["id"] if variant is not None else None, text, qty),
        )

    def set_quantity(self, item_id: int, qty: int) -> None:
        row = self.one("SELECT product_id, variant_id FROM cart_item WHERE id = ?", item_id)
        if row is None:
            return
        if qty <= 0:
            self.remove_from_cart(item_id)
            return
        product = self.product_by_id(row["product_id"])
        variant = self.one("SELECT * FROM variant WHERE id = ?", row["variant_id"])
        _check_stock(product["name"], variant, (variant or product)["stock"], qty, qty)
        self.db.execute("UPDATE cart_item SET qty = ? WHERE id = ?", (qty, item_id))

    def remove_from_cart(self, item_id: int) -> None:
        self.db.execute("DELETE FROM cart_item WHERE id = ?", (item_id,))

    def clear_cart(self) -> None:
        self.db.execute("DELETE FROM cart_item")
        self.db.execute("UPDATE cart SET coupon = NULL")

    # Discount codes

    def deals(self) -> list[Row]:
        return self.all(
            "SELECT c.*, k.name AS category FROM coupon c LEFT JOIN category k ON k.id = c.category_id"
            " WHERE listed ORDER BY c.rowid"
        )

    def coupon(self) -> Row | None:
        """The code of the cart."""
        return self.one("SELECT c.* FROM coupon c JOIN cart ON cart.coupon = c.code")

    def apply_coupon(self, code: str) -> None:
        """Use a code for the cart; an empty one takes the present code off."""
        code = code.strip().upper()
        coupon = self.one("SELECT * FROM coupon WHERE code = ?", code)
        if code and coupon is None:
            raise Refusal(f'The discount code "{code}" is not valid.')
        if coupon is not None:
            self._check_coupon(coupon)
        self.db.execute("UPDATE cart SET coupon = ?", (code or None,))

    def _check_coupon(self, coupon: Row) -> None:
        code = coupon["code"]
        if coupon["ends"] and coupon["ends"] < TODAY.isoformat():
            raise Refusal(f'The discount code "{code}" ended on {day(coupon["ends"])}.')
        if coupon["used"]:
            raise Refusal(f'The discount code "{code}" was already used.')
        worth = self._worth(coupon)
        if not worth:
            category = self.one("SELECT name FROM category WHERE id = ?", coupon["category_id"])
            name = category["name"] if category is not None else "no"
            raise Refusal(f'The discount code "{code}" is for {name} items only.')
        if worth < coupon["minimum_cents"]:
            raise Refusal(f'The discount code "{code}" needs items for at least {money(coupon["minimum_cents"])}.')

    def _worth(self, coupon: Row) -> int:
        """What the items in the cart that a code is for cost."""
        category = coupon["category_id"]
        return sum(row["row_cents"] for row in self.cart() if category in (None, row["category_id"]))

    def discount(self) -> int:
        """What the cart's code takes off now, in cents; 0 when the cart no longer meets its rule."""
        coupon = self.coupon()
        if coupon is None:
            return 0
        worth = self._worth(coupon)
        if worth < coupon["minimum_cents"]:
            return 0
        return worth * coupon["percent"] // 100 + min(worth, coupon["amount_cents"])

    def totals(self, shipping: str = "Standard") -> dict[str, int]:
        """Subtotal, discount, shipping and total in cents."""
        subtotal, discount = sum(row["row_cents"] for row in self.cart()), self.discount()
        fee = dict(SHIPPING).get(shipping, 0)
        return {"subtotal": subtotal, "discount": discount, "shipping": fee, "total": subtotal - discount + fee}


def label(variant: Row) -> str:
    """A variant's options as text: "M", "Blue", "Blue, M"."""
    return ", ".join(filter(None, (variant["colour"], variant["size"])))


def day(iso: str) -> str:
    """An ISO date as "14 March"."""
    then = date.fromisoformat(iso)
    return f"{then.day} {then:%B}"


def _check_stock(name: str, variant: Row | None, stock: int, qty: int, wanted: int) -> None:
    if not 1 <= qty <= MAX_QTY:
        raise Refusal(f"Please enter a quantity from 1 to {MAX_QTY}.")
    if wanted > stock:
        which = f" in {label(variant)}" if variant is not None else ""
        raise Refusal(f"Only {stock} of {name}{which} are in stock." if stock else f"{name}{which} is sold out.")
