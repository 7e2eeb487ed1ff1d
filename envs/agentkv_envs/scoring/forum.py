"""What evaluators ask about a forum: from an episode's database, or from the page of a real one."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import Protocol

from playwright.async_api import Page

from agentkv_envs.scoring import markup


@dataclass(frozen=True)
class Comment:
    """A comment's text, and the name of whom it answers: the post's author where it is the first. "" for none."""

    content: str = ""
    parent: str = ""


class Forum(Protocol):
    """The questions."""

    async def latest_comment(self, page: Page, user: str) -> Comment:
        """A user's newest comment on the post of the page."""


class PostmillForum:
    """Reads Postmill's markup."""

    async def latest_comment(self, page: Page, user: str) -> Comment:
        return Comment(**await markup.latest_comment(page, user))


class EmbeddedForum:
    """Reads the episode's database."""

    def __init__(self, database: sqlite3.Connection):
        self._database = database

    async def latest_comment(self, page: Page, user: str) -> Comment:
        shown = re.search(r"/f/[^/]+/(\d+)", page.url)
        row = self._database.execute(
            "SELECT c.body, COALESCE(above.name, poster.name) FROM comment c JOIN user u ON u.id = c.author_id"
            " JOIN post p ON p.id = c.post_id JOIN user poster ON poster.id = p.author_id"
            " LEFT JOIN comment parent ON parent.id = c.parent_id LEFT JOIN user above ON above.id = parent.author_id"
            " WHERE c.post_id = ? AND u.name = ? AND NOT c.deleted ORDER BY c.created DESC, c.id DESC LIMIT 1",
            (shown.group(1) if shown else 0, user),
        ).fetchone()
        return Comment(*row) if row else Comment()
