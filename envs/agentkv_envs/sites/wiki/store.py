"""What the encyclopedia knows, without any HTTP. It is only read."""

from __future__ import annotations

from dataclasses import dataclass

from agentkv_envs.sites.storage import Row, Storage
from agentkv_envs.sites.wiki.database import template

PAGE_SIZE = 10
MAIN_PAGE = "Main page"


@dataclass(frozen=True)
class Listing:
    """One page of a list of articles."""

    articles: list[Row]
    total: int
    page: int
    pages: int


class Store(Storage):
    """One episode's encyclopedia."""

    def __init__(self, seed: int = 0, split: str = "test"):
        super().__init__(template(seed, split))

    def article(self, title: str) -> Row | None:
        """By its title; an underscore is a space, and the first letter may be small."""
        title = title.replace("_", " ")
        return self.one("SELECT * FROM article WHERE title IN (?, ?)", title, title[:1].upper() + title[1:])

    def facts(self, article_id: int) -> list[Row]:
        """The infobox: plain values first, then those that link."""
        return self.all("SELECT * FROM fact WHERE article_id = ? AND boxed ORDER BY link != '', id", article_id)

    def sections(self, article_id: int) -> list[Row]:
        return self.all("SELECT * FROM section WHERE article_id = ? ORDER BY id", article_id)

    def categories(self) -> list[Row]:
        return self.all(
            "SELECT category AS name, COUNT(*) AS articles FROM article GROUP BY category ORDER BY category"
        )

    def in_category(self, name: str, page: int) -> Listing:
        return self._listing("FROM article a WHERE category = ?", (name,), "title", page)

    def linking_to(self, title: str, page: int) -> Listing:
        """Articles whose facts name this one."""
        return self._listing(
            "FROM article a WHERE id IN (SELECT article_id FROM fact WHERE link = ?)", (title,), "title", page
        )

    def search(self, query: str, page: int) -> Listing:
        """Articles that hold every word of the query, the one of that title first; words may be cut short."""
        words = "".join(c if c.isalnum() else " " for c in query).split()
        if not words:
            return Listing([], 0, 1, 1)
        match = " ".join(f'"{word}"*' for word in words)
        source = "FROM article_search s JOIN article a ON a.id = s.rowid WHERE article_search MATCH ?"
        order = "a.title != ? COLLATE NOCASE, bm25(article_search, 20, 4, 1), a.title"
        return self._listing(source, (match,), order, page, " ".join(query.split()))

    def _listing(self, source: str, args: tuple[object, ...], order: str, page: int, *order_args: object) -> Listing:
        total = self.count(f"SELECT COUNT(*) {source}", *args)
        pages = max(1, -(-total // PAGE_SIZE))
        page = min(max(page, 1), pages)
        limit = f"LIMIT {PAGE_SIZE} OFFSET {(page - 1) * PAGE_SIZE}"
        rows = self.all(f"SELECT a.* {source} ORDER BY {order} {limit}", *args, *order_args)
        return Listing(rows, total, page, pages)
