"""What the stores of all sites share: one episode's private database, sign-in sessions, messages for the next page."""

from __future__ import annotations

import secrets
import sqlite3
from datetime import date

# The clock of all sites stands still.
TODAY = date(2026, 3, 14)
Row = sqlite3.Row

# Every site's schema holds these two tables; `Storage` works on them.
SCHEMA = """
CREATE TABLE session (token TEXT PRIMARY KEY, user_id INTEGER NOT NULL);
CREATE TABLE flash (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, text TEXT NOT NULL, link TEXT NOT NULL, link_text TEXT NOT NULL
);
"""


class Refusal(Exception):
    """Something a visitor asked for that a site refuses; the message is shown on the page."""


def open_copy(template: bytes) -> sqlite3.Connection:
    """A private in-memory copy of a serialised database; closing the connection forgets it."""
    db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    db.deserialize(template)
    db.row_factory = sqlite3.Row
    return db


class Storage:
    """Base of a site's store: short forms for queries, sessions, and messages that are shown once."""

    def __init__(self, template: bytes):
        self.db = open_copy(template)

    def close(self) -> None:
        self.db.close()

    def one(self, sql: str, *args: object) -> Row | None:
        row: Row | None = self.db.execute(sql, args).fetchone()
        return row

    def all(self, sql: str, *args: object) -> list[Row]:
        return self.db.execute(sql, args).fetchall()

    def count(self, sql: str, *args: object) -> int:
        """The first column of the first row, 0 where there is none."""
        row = self.one(sql, *args)
        return int(row[0] or 0) if row is not None else 0

    def new_session(self, user_id: int) -> str:
        """A token that signs its bearer in."""
        token = secrets.token_hex(16)
        self.db.execute("INSERT INTO session (token, user_id) VALUES (?, ?)", (token, user_id))
        return token

    def user_id(self, token: str | None) -> int | None:
        """Who a session token belongs to."""
        row = self.one("SELECT user_id FROM session WHERE token = ?", token)
        return int(row[0]) if row is not None else None

    def end_session(self, token: str | None) -> None:
        self.db.execute("DELETE FROM session WHERE token = ?", (token,))

    def say(self, text: str, kind: str = "success", link: str = "", link_text: str = "") -> None:
        """Leave a message for the next page; `kind` is "success" or "error"."""
        self.db.execute(
            "INSERT INTO flash (kind, text, link, link_text) VALUES (?, ?, ?, ?)", (kind, text, link, link_text)
        )

    def messages(self) -> list[Row]:
        """The messages for this page; each is given out once."""
        return self.all("DELETE FROM flash RETURNING *")
