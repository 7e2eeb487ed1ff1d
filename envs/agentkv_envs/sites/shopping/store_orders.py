"""Orders: placing, cancelling, ordering again, sending items back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from agentkv_envs.sites.shopping.catalogue import TODAY
from agentkv_envs.sites.shopping.history import SHIPPING
from agentkv_envs.sites.shopping.store_cart import Cart
from agentkv_envs.sites.shopping.store_customer import checked_address
from agentkv_envs.sites.storage import Refusal, Row

RETURN_DAYS = 45
NOTE_CHARS = 80
REASONS = ("Wrong size", "Arrived broken", "Not as described", "Changed my mind")
RESOLUTIONS = ("Refund", "Exchange", "Voucher")


class Orders(Cart):
    """What happens to a cart at the checkout and afterwards."""

    def place_order(self, form: Mapping[str, str]) -> int:
        """Turn the cart into an order and return its id."""
        items = self.cart()
        if not items:
            raise Refusal("Your cart is empty.")
        shipping = form.get("shipping", "")
        if shipping not in dict(SHIPPING):
            raise Refusal("Please choose a shipping method.")
        note = form.get("gift_note", "").strip()
        if len(note) > NOTE_CHARS:
            raise Refusal(f"A gift note can have at most {NOTE_CHARS} characters.")
        address = checked_address(form)
        coupon = self.coupon()
        self.apply_coupon(form.get("coupon", coupon["code"] if coupon is not None else ""))
        order_id = self._insert_order(shipping, note, address)
        for item in items:
            self.db.execute(
                "INSERT INTO order_item (order_id, product_id, variant_id, size, qty, price_cents)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (order_id, item["id"], item["variant_id"], item["size"], item["qty"], item["price_cents"]),
            )
        self._move_stock(order_id, -1)
        self.clear_cart()
        return order_id

    def _insert_order(self, shipping: str, note: str, address: tuple[str, ...]) -> int:
        first, last, street, city, postcode, country, telephone = address
        totals, coupon = self.totals(shipping), self.coupon()
        number = self.count("SELECT MAX(CAST(number AS INTEGER)) FROM orders") + 7
        cursor = self.db.execute(
            "INSERT INTO orders (number, created, status, shipping, shipping_cents, coupon, discount_cents,"
            " total_cents, recipient, address, telephone, gift_note)"
            " VALUES (?, ?, 'Pending', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(str(number), TODAY.isoformat(), shipping, totals["shipping"]),
                *(coupon["code"] if coupon is not None else None, totals["discount"], totals["total"]),
                *(f"{first} {last}", f"{street}, {postcode} {city}, {country}", telephone, note),
            ),
        )
        if coupon is not None and coupon["once"]:
            self.db.execute("UPDATE coupon SET used = 1 WHERE code = ?", (coupon["code"],))
        return int(cursor.lastrowid or 0)

    def _move_stock(self, order_id: int, sign: int) -> None:
        """Take an order's items from the stock (-1) or put them back (1)."""
        for item in self.all("SELECT * FROM order_item WHERE order_id = ?", order_id):
            change = (sign * item["qty"], item["product_id"])
            self.db.execute("UPDATE product SET stock = stock + ? WHERE id = ?", change)
            self.db.execute("UPDATE variant SET stock = stock + ? WHERE id = ?", (change[0], item["variant_id"]))

    def orders(self) -> list[Row]:
        return self.all("SELECT * FROM orders ORDER BY created DESC, id DESC")

    def order(self, order_id: int) -> Row | None:
        return self.one("SELECT * FROM orders WHERE id = ?", order_id)

    def order_items(self, order_id: int) -> list[Row]:
        return self.all(
            "SELECT i.id AS item_id, i.qty, i.size, i.price_cents AS paid_cents, p.*, t.number AS return_number,"
            " v.colour AS chosen_colour, v.size AS chosen_size FROM order_item i JOIN product p ON p.id = i.product_id"
            " LEFT JOIN variant v ON v.id = i.variant_id LEFT JOIN item_return t ON t.order_item_id = i.id"
            " WHERE i.order_id = ? ORDER BY i.id",
            order_id,
        )

    def thanks_code(self, order: Row) -> str:
        """The thank-you code that the newest order shows once it is under way, else ""."""
        if order["id"] != self.orders()[0]["id"] or order["status"] == "Pending":
            return ""
        row = self.one("SELECT code FROM coupon WHERE label = 'Thank you'")
        return str(row["code"]) if row is not None else ""

    def cancel_order(self, order_id: int) -> None:
        row = self.one(
            "UPDATE orders SET status = 'Canceled' WHERE id = ? AND status IN ('Pending', 'Processing') RETURNING id",
            order_id,
        )
        if row is None:
            raise Refusal("This order can no longer be cancelled.")
        self._move_stock(order_id, 1)

    def reorder(self, order_id: int) -> list[str]:
        """Put an order's items into the cart; returns why some could not be put there."""
        refused: list[str] = []
        for item in self.order_items(order_id):
            try:
                chosen = (item["chosen_size"] or "", item["chosen_colour"] or "")
                self.add_to_cart(self.product_by_id(item["id"]), item["qty"], *chosen)
            except Refusal as error:
                refused.append(str(error))
        return refused

    # Returns

    def returns(self) -> list[Row]:
        return self.all(
            "SELECT t.*, p.name, o.number AS order_number FROM item_return t"
            " JOIN order_item i ON i.id = t.order_item_id"
            " JOIN product p ON p.id = i.product_id JOIN orders o ON o.id = i.order_id ORDER BY t.id DESC"
        )

    def check_returnable(self, order: Row) -> None:
        """Raises: Refusal, an order whose items can not be sent back."""
        if order["status"] != "Complete":
            raise Refusal("Only items of a completed order can be returned.")
        if (TODAY - date.fromisoformat(order["created"])).days > RETURN_DAYS:
            raise Refusal(f"The {RETURN_DAYS} days for returning this order are over.")

    def open_return(self, order: Row, item_id: int, reason: str, resolution: str) -> tuple[str, str]:
        """Announce that an item comes back; its return number and the PIN for dropping it off."""
        self.check_returnable(order)
        item = next((row for row in self.order_items(order["id"]) if row["item_id"] == item_id), None)
        if item is None:
            raise Refusal("Please choose an item.")
        if item["return_number"]:
            raise Refusal(f"This item is already in return {item['return_number']}.")
        if reason not in REASONS:
            raise Refusal("Please choose a reason.")
        if resolution not in RESOLUTIONS:
            raise Refusal("Please choose what you want for it.")
        number = f"RT-{self.count('SELECT MAX(CAST(SUBSTR(number, 4) AS INTEGER)) FROM item_return') + 3}"
        cursor = self.db.execute(
            "INSERT INTO item_return (number, order_item_id, reason, resolution, status, created)"
            " VALUES (?, ?, ?, ?, 'Announced', ?)",
            (number, item_id, reason, resolution, TODAY.isoformat()),
        )
        pin = self.one("SELECT pin FROM dropoff WHERE return_id = ?", cursor.lastrowid)
        assert pin is not None
        return number, str(pin["pin"])
