"""The customer: signing in, addresses, rewards, newsletter, messages."""

from __future__ import annotations

from collections.abc import Mapping

from agentkv_envs.sites.shopping.history import COUNTRIES
from agentkv_envs.sites.shopping.store_cart import checked_email
from agentkv_envs.sites.storage import Refusal, Row, Storage

ADDRESS_FIELDS = ("firstname", "lastname", "street", "city", "postcode", "country", "telephone")
MAX_ADDRESSES = 5
TOPICS = ("Deals", "New products", "Garden tips")
FREQUENCIES = ("Weekly", "Monthly")


def checked_address(form: Mapping[str, str]) -> tuple[str, ...]:
    """The values of `ADDRESS_FIELDS`.

    Raises:
        Refusal: one is missing, or the country is not one the shop ships to.
    """
    values = tuple(form.get(field, "").strip() for field in ADDRESS_FIELDS)
    if not all(values):
        raise Refusal("Please fill in every field of the address.")
    if form.get("country") not in COUNTRIES:
        raise Refusal("We do not ship to that country.")
    return values


class Customer(Storage):
    """One customer's account."""

    def login(self, email: str, password: str) -> str:
        found = self.one("SELECT id FROM customer WHERE email = ? AND password = ?", email.strip().lower(), password)
        if found is None:
            raise Refusal("The sign-in was incorrect. Check your email and password.")
        return self.new_session(found["id"])

    def customer(self, token: str | None = None) -> Row | None:
        """The customer of a session token, or None."""
        return self.one("SELECT * FROM customer WHERE id = ?", self.user_id(token))

    def reveal_reward(self) -> str:
        """The reward code, told once."""
        row = self.one("UPDATE customer SET reward_shown = 1 WHERE reward_shown = 0 RETURNING reward_code")
        if row is None:
            raise Refusal("Your reward code was already shown. It is not shown again.")
        return str(row["reward_code"])

    # Addresses

    def save_address(self, form: Mapping[str, str]) -> None:
        """Change the default address."""
        values = checked_address(form)
        self.db.execute(f"UPDATE customer SET {', '.join(f'{f} = ?' for f in ADDRESS_FIELDS)}", values)

    def addresses(self) -> list[Row]:
        """The address book without the default address."""
        return self.all("SELECT * FROM address ORDER BY id")

    def address(self, address_id: int) -> Row | None:
        return self.one("SELECT * FROM address WHERE id = ?", address_id)

    def save_other_address(self, form: Mapping[str, str], address_id: int | None = None) -> None:
        """Add an address to the book, or change the one with this id."""
        label, values = form.get("label", "").strip(), checked_address(form)
        if not label:
            raise Refusal("Please give the address a label.")
        same = "SELECT 1 FROM address WHERE LOWER(label) = ? AND id IS NOT ?"
        if self.one(same, label.lower(), address_id) or label.lower() == "default":
            raise Refusal(f'There is already an address with the label "{label}".')
        columns = ("label", *ADDRESS_FIELDS)
        if address_id is not None:
            sets = ", ".join(f"{column} = ?" for column in columns)
            self.db.execute(f"UPDATE address SET {sets} WHERE id = ?", (label, *values, address_id))
            return
        if len(self.addresses()) >= MAX_ADDRESSES:
            raise Refusal(f"The address book is full: it holds {MAX_ADDRESSES} more addresses.")
        marks = ", ".join("?" * len(columns))
        self.db.execute(f"INSERT INTO address ({', '.join(columns)}) VALUES ({marks})", (label, *values))

    def delete_address(self, address_id: int) -> None:
        self.db.execute("DELETE FROM address WHERE id = ?", (address_id,))

    def make_default(self, address_id: int) -> None:
        """Swap an address of the book with the default one."""
        chosen, current = self.address(address_id), self.one("SELECT * FROM customer")
        if chosen is None or current is None:
            raise Refusal("We could not find that address.")
        sets = ", ".join(f"{field} = ?" for field in ADDRESS_FIELDS)
        self.db.execute(f"UPDATE customer SET {sets}", [chosen[field] for field in ADDRESS_FIELDS])
        self.db.execute(
            f"UPDATE address SET {sets} WHERE id = ?", [*(current[field] for field in ADDRESS_FIELDS), address_id]
        )

    # Newsletter

    def newsletter(self) -> list[Row]:
        return self.all("SELECT * FROM newsletter ORDER BY id")

    def subscribe(self, email: str, topic: str, frequency: str) -> str:
        """Subscribe an address and return the code that thanks for it."""
        email = checked_email(email)
        if topic not in TOPICS or frequency not in FREQUENCIES:
            raise Refusal("Please choose a topic and how often you want it.")
        if self.one("SELECT 1 FROM newsletter WHERE email = ?", email):
            raise Refusal(f"{email} already gets the newsletter.")
        self.db.execute("INSERT INTO newsletter (email, topic, frequency) VALUES (?, ?, ?)", (email, topic, frequency))
        row = self.one("SELECT code FROM coupon WHERE label = 'Newsletter'")
        assert row is not None
        return str(row["code"])

    def unsubscribe(self, subscription_id: int) -> None:
        self.db.execute("DELETE FROM newsletter WHERE id = ?", (subscription_id,))

    # Messages

    def inbox(self) -> list[Row]:
        return self.all("SELECT * FROM inbox ORDER BY received DESC, id")

    def open_message(self, message_id: int) -> Row:
        """A message; one that is told once is deleted by this."""
        row = self.one("SELECT * FROM inbox WHERE id = ?", message_id)
        if row is None:
            raise Refusal("This message was deleted.")
        if row["once"]:
            self.db.execute("DELETE FROM inbox WHERE id = ?", (message_id,))
        else:
            self.db.execute("UPDATE inbox SET opened = 1 WHERE id = ?", (message_id,))
        return row

    def send_message(self, name: str, topic: str, body: str) -> None:
        if not (name.strip() and body.strip()):
            raise Refusal("Please fill in your name and your message.")
        self.db.execute("INSERT INTO message (name, topic, body) VALUES (?, ?, ?)", (name.strip(), topic, body.strip()))
