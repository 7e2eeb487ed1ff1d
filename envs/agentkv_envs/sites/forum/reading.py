"""What can be read in the forum, without any HTTP: lists of posts, threads of comments, people, wiki pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from agentkv_envs.sites.forum.content import ME, NOW
from agentkv_envs.sites.forum.database import world
from agentkv_envs.sites.storage import Row, Storage

PAGE_SIZE = 10
POSTS_A_PAGE = 5
THREADS = 2
SORTS = {
    "hot": "julianday(created) * 24 + MIN(72, score * 0.3 + comments * 2) DESC",
    "new": "created DESC",
    "top": "score DESC",
    "most_commented": "comments DESC",
}
PERIODS = {"all": None, "day": 1, "week": 7, "month": 31}
_POSTS = (
    "SELECT p.*, f.name AS forum, u.name AS author, COALESCE(v.choice, 0) AS choice,"
    " (SELECT COUNT(*) FROM comment c WHERE c.post_id = p.id) AS comments"
    " FROM post p JOIN forum f ON f.id = p.forum_id JOIN user u ON u.id = p.author_id"
    " LEFT JOIN post_vote v ON v.post_id = p.id"
)
_COMMENTS = (
    "SELECT c.*, u.name AS author, COALESCE(v.choice, 0) AS choice, b.user_id IS NOT NULL AS blocked"
    " FROM comment c JOIN user u ON u.id = c.author_id LEFT JOIN comment_vote v ON v.comment_id = c.id"
    " LEFT JOIN blocked b ON b.user_id = c.author_id"
)
_VISIBLE = "p.id NOT IN (SELECT post_id FROM hidden) AND p.author_id NOT IN (SELECT user_id FROM blocked)"


@dataclass(frozen=True)
class Listing:
    """One page of a list."""

    rows: list[Row]
    total: int
    page: int
    pages: int


@dataclass
class Node:
    """A comment in its thread; `above` is the author it answers, "" on the first level."""

    row: Row
    level: int
    above: str
    replies: list[Node] = field(default_factory=list)

    def walk(self) -> list[Node]:
        """This comment and all below it, in reading order."""
        return [self, *(node for reply in self.replies for node in reply.walk())]


class Reading(Storage):
    """One episode's forum, as far as it is read."""

    def __init__(self, seed: int = 0, split: str = "test"):
        super().__init__(world(seed, split)[0])

    # Posts

    def listing(self, where: str, args: tuple[object, ...], sort: str, period: str, page: int) -> Listing:
        """Posts under a condition, without hidden ones and those by blocked people."""
        days = PERIODS.get(period)
        if days is not None:
            where, args = (
                f"{where} AND p.created >= ?",
                (*args, (NOW - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M")),
            )
        return self.page_of(f"SELECT * FROM ({_POSTS} WHERE {where} AND {_VISIBLE})", args, SORTS[sort], page)

    def page_of(self, sql: str, args: tuple[object, ...], order: str, page: int, size: int = POSTS_A_PAGE) -> Listing:
        """One page of what a query finds, in this order and then by falling id."""
        total = self.count(f"SELECT COUNT(*) FROM ({sql})", *args)
        pages = max(1, -(-total // size))
        page = min(max(page, 1), pages)
        limit = f"LIMIT {size} OFFSET {(page - 1) * size}"
        return Listing(self.all(f"{sql} ORDER BY {order}, id DESC {limit}", *args), total, page, pages)

    def front(self, everything: bool, sort: str, period: str, page: int) -> Listing:
        """Posts of all forums, or of those the member is subscribed to."""
        where = "1" if everything else "p.forum_id IN (SELECT forum_id FROM subscription)"
        return self.listing(where, (), sort, period, page)

    def in_forum(self, forum_id: int, sort: str, period: str, page: int) -> Listing:
        return self.listing("p.forum_id = ?", (forum_id,), sort, period, page)

    def search(self, query: str, page: int) -> Listing:
        """Posts that hold every word of the query, those with it in the title first; words may be cut short."""
        words = "".join(c if c.isalnum() else " " for c in query).split()
        if not words:
            return Listing([], 0, 1, 1)
        match = " ".join(f'"{word}"*' for word in words)
        found = "(SELECT rowid, bm25(post_search, 10, 1) AS rank FROM post_search WHERE post_search MATCH ?) s"
        sql = f"SELECT q.*, s.rank FROM {found} JOIN ({_POSTS} WHERE {_VISIBLE}) q ON q.id = s.rowid"
        return self.page_of(sql, (match,), "rank", page)

    def marked(self, table: str, page: int) -> Listing:
        """The posts the member has saved or hidden (`table`)."""
        return self.page_of(f"{_POSTS} WHERE p.id IN (SELECT post_id FROM {table})", (), "created DESC", page)

    def posts_by(self, user_id: int, page: int) -> Listing:
        return self.page_of(f"{_POSTS} WHERE p.author_id = ?", (user_id,), "created DESC", page)

    def post(self, forum: str, post_id: int) -> Row | None:
        return self.one(f"{_POSTS} WHERE p.id = ? AND f.name = ?", post_id, forum)

    # Comments

    def threads(self, post_id: int) -> list[Node]:
        """The comments on a post: threads the member has written in today first, then by score."""
        nodes: dict[int, Node] = {}
        roots: list[Node] = []
        mine: set[int] = set()
        today = NOW.strftime("%Y-%m-%dT%H:%M")
        for row in self.all(f"{_COMMENTS} WHERE c.post_id = ? ORDER BY c.id", post_id):
            above = nodes.get(row["parent_id"] or 0)
            node = Node(row, above.level + 1 if above else 1, above.row["author"] if above else "")
            nodes[row["id"]] = node
            (above.replies if above else roots).append(node)
        for root in roots:
            if any(node.row["author_id"] == ME and node.row["created"] > today for node in root.walk()):
                mine.add(root.row["id"])
        for node in nodes.values():
            node.replies.sort(key=lambda reply: -reply.row["score"])
        return sorted(roots, key=lambda root: (root.row["id"] not in mine, -root.row["score"], root.row["id"]))

    def comment(self, post_id: int, comment_id: int) -> Row | None:
        return self.one(f"{_COMMENTS} WHERE c.post_id = ? AND c.id = ?", post_id, comment_id)

    def replies(self, comment_id: int) -> list[Row]:
        return self.all(f"{_COMMENTS} WHERE c.parent_id = ? ORDER BY c.score DESC, c.id", comment_id)

    def comments_by(self, user_id: int, page: int) -> Listing:
        sql = (
            "SELECT c.*, p.title, f.name AS forum FROM comment c JOIN post p ON p.id = c.post_id"
            " JOIN forum f ON f.id = p.forum_id WHERE c.author_id = ? AND NOT c.deleted"
        )
        return self.page_of(sql, (user_id,), "created DESC", page)

    # Forums, people, wiki

    def forums(self, page: int) -> Listing:
        source = "FROM forum f LEFT JOIN subscription s ON s.forum_id = f.id"
        sql = f"SELECT f.*, s.forum_id IS NOT NULL AS subscribed {source}"
        return self.page_of(sql, (), "name", page, PAGE_SIZE)

    def forum(self, name: str) -> Row | None:
        return self.one(
            "SELECT f.*, u.name AS moderator, s.forum_id IS NOT NULL AS subscribed FROM forum f"
            " JOIN user u ON u.id = f.moderator_id LEFT JOIN subscription s ON s.forum_id = f.id WHERE f.name = ?",
            name,
        )

    def forum_names(self) -> list[str]:
        return [row["name"] for row in self.all("SELECT name FROM forum ORDER BY name")]

    def subscriptions(self) -> list[str]:
        sql = "SELECT f.name FROM forum f JOIN subscription s ON s.forum_id = f.id ORDER BY f.name"
        return [row["name"] for row in self.all(sql)]

    def user(self, name: str) -> Row | None:
        return self.one(
            "SELECT u.*, b.user_id IS NOT NULL AS blocked,"
            " (SELECT COUNT(*) FROM post p WHERE p.author_id = u.id) AS posts,"
            " (SELECT COUNT(*) FROM comment c WHERE c.author_id = u.id) AS comments"
            " FROM user u LEFT JOIN blocked b ON b.user_id = u.id WHERE u.name = ?",
            name,
        )

    def user_by_id(self, user_id: int) -> Row | None:
        return self.one("SELECT * FROM user WHERE id = ?", user_id)

    def blocked(self) -> list[Row]:
        return self.all("SELECT u.* FROM user u JOIN blocked b ON b.user_id = u.id ORDER BY u.name")

    def is_marked(self, table: str, post_id: int) -> bool:
        return self.one(f"SELECT 1 FROM {table} WHERE post_id = ?", post_id) is not None

    def wiki_pages(self, page: int) -> Listing:
        return self.page_of("SELECT * FROM wiki_page", (), "path", page, PAGE_SIZE)

    def wiki_of(self, forum_id: int) -> list[Row]:
        return self.all("SELECT path, title FROM wiki_page WHERE forum_id = ? ORDER BY path", forum_id)

    def wiki_page(self, path: str) -> Row | None:
        sql = "SELECT w.*, f.name AS forum FROM wiki_page w JOIN forum f ON f.id = w.forum_id WHERE path = ?"
        return self.one(sql, path)

    # Messages

    def inbox(self) -> list[Row]:
        """Conversations, the newest first, each with the beginning of its last message."""
        return self.all(
            "SELECT t.id, t.unread, u.name AS person, m.created, m.body, m.mine, m.vanishes FROM thread t"
            " JOIN user u ON u.id = t.user_id"
            " JOIN message m ON m.id = (SELECT MAX(id) FROM message WHERE thread_id = t.id)"
            " ORDER BY m.created DESC, m.id"
        )

    def unread(self) -> int:
        return self.count("SELECT COUNT(*) FROM thread WHERE unread")

    def thread(self, thread_id: int) -> Row | None:
        sql = "SELECT t.*, u.name AS person FROM thread t JOIN user u ON u.id = t.user_id WHERE t.id = ?"
        return self.one(sql, thread_id)
