"""What the member does to posts and comments, with the forum's rules. Refusals are sentences for the page."""

from __future__ import annotations

from datetime import timedelta

from agentkv_envs.sites.forum.content import ME, NOW
from agentkv_envs.sites.forum.reading import Reading
from agentkv_envs.sites.forum.themes import TAGS
from agentkv_envs.sites.storage import Refusal, Row

MAX_TITLE, MAX_BODY, MAX_COMMENT = 120, 2000, 600
REASONS = ("Spam", "Rude", "Wrong forum", "Copied")
VANISHED = "This note was deleted after it was read."


class Writing(Reading):
    """Posts, comments, votes, and what the member keeps or hides."""

    def stamp(self) -> str:
        """The time of what is written now: a minute after the last thing written."""
        minutes = self.count("UPDATE clock SET minutes = minutes + 1 RETURNING minutes")
        return (NOW + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M")

    # Posts

    def submit(self, forum_name: str, tag: str, title: str, body: str, url: str) -> int:
        """A new post; returns its id."""
        forum = self.forum(forum_name)
        if forum is None:
            raise Refusal("Please choose a forum.")
        if forum["door_word"] and not forum["subscribed"]:
            raise Refusal(f"Only members can post in f/{forum_name}. Subscribe first.")
        self._check_post(forum["id"], 0, tag, title, body, url)
        row = self.one("SELECT MAX(id) FROM post")
        post_id = (row[0] if row is not None else 0) + 1
        self.db.execute(
            "INSERT INTO post (id, forum_id, author_id, created, tag, title, body, url, topic, score)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', 1)",
            (post_id, forum["id"], ME, self.stamp(), tag, title.strip(), body.strip(), url.strip()),
        )
        self._index(post_id, title, body)
        return int(post_id)

    def edit_post(self, post: Row, tag: str, title: str, body: str, url: str) -> None:
        self._mine(post, "edit")
        if post["locked"]:
            raise Refusal("This post is locked and cannot be edited.")
        if post["url"].startswith("wiki:"):
            url = post["url"]
        self._check_post(post["forum_id"], post["id"], tag, title, body, url)
        self.db.execute(
            "UPDATE post SET tag = ?, title = ?, body = ?, url = ?, edited = 1 WHERE id = ?",
            (tag, title.strip(), body.strip(), url.strip(), post["id"]),
        )
        self.db.execute("DELETE FROM post_search WHERE rowid = ?", (post["id"],))
        self._index(post["id"], title, body)

    def delete_post(self, post: Row) -> None:
        self._mine(post, "delete")
        for table in ("comment", "saved", "hidden", "post_vote", "report", "fact"):
            self.db.execute(f"DELETE FROM {table} WHERE post_id = ?", (post["id"],))
        self.db.execute("DELETE FROM post_search WHERE rowid = ?", (post["id"],))
        self.db.execute("DELETE FROM post WHERE id = ?", (post["id"],))

    def _check_post(self, forum_id: int, post_id: int, tag: str, title: str, body: str, url: str) -> None:
        title, body, url = title.strip(), body.strip(), url.strip()
        if not title:
            raise Refusal("Please enter a title.")
        if len(title) > MAX_TITLE:
            raise Refusal(f"The title may have at most {MAX_TITLE} characters.")
        if tag not in TAGS:
            raise Refusal("Please choose a tag.")
        if not body and not url:
            raise Refusal("Please enter a text or a link.")
        if len(body) > MAX_BODY:
            raise Refusal(f"The text may have at most {MAX_BODY} characters.")
        if url and not url.startswith(("http://", "https://", "wiki:")):
            raise Refusal("A link must begin with http:// or https://.")
        sql = "SELECT 1 FROM post WHERE forum_id = ? AND title = ? COLLATE NOCASE AND id != ?"
        if self.one(sql, forum_id, title, post_id) is not None:
            raise Refusal("There is already a post with this title in the forum.")

    def _index(self, post_id: int, title: str, body: str) -> None:
        self.db.execute("INSERT INTO post_search (rowid, title, body) VALUES (?, ?, ?)", (post_id, title, body))

    @staticmethod
    def _mine(row: Row, verb: str) -> None:
        if row["author_id"] != ME:
            raise Refusal(f"You can only {verb} what you wrote yourself.")

    # Comments

    def add_comment(self, post: Row, body: str, parent: Row | None = None) -> int:
        """A comment on a post, or an answer to another comment; returns its id."""
        if post["locked"]:
            raise Refusal("This post is locked. It takes no more comments.")
        if parent is not None and parent["deleted"]:
            raise Refusal("The comment was deleted. It takes no more replies.")
        body = self._check_comment(body)
        cursor = self.db.execute(
            "INSERT INTO comment (post_id, parent_id, author_id, created, body, score) VALUES (?, ?, ?, ?, ?, 1)",
            (post["id"], parent["id"] if parent is not None else None, ME, self.stamp(), body),
        )
        return int(cursor.lastrowid or 0)

    def edit_comment(self, comment: Row, body: str) -> None:
        self._mine(comment, "edit")
        if comment["deleted"]:
            raise Refusal("A deleted comment cannot be edited.")
        body = self._check_comment(body)
        self.db.execute("UPDATE comment SET body = ?, edited = 1 WHERE id = ?", (body, comment["id"]))

    def delete_comment(self, comment: Row) -> None:
        """Remove a comment; one with replies stays as an empty place."""
        self._mine(comment, "delete")
        if self.replies(comment["id"]):
            self.db.execute("UPDATE comment SET body = '[deleted]', deleted = 1 WHERE id = ?", (comment["id"],))
        else:
            self.db.execute("DELETE FROM comment_vote WHERE comment_id = ?", (comment["id"],))
            self.db.execute("DELETE FROM comment WHERE id = ?", (comment["id"],))

    @staticmethod
    def _check_comment(body: str) -> str:
        if not body.strip():
            raise Refusal("Please write something first.")
        if len(body.strip()) > MAX_COMMENT:
            raise Refusal(f"A comment may have at most {MAX_COMMENT} characters.")
        return body.strip()

    # Votes

    def vote_post(self, post: Row, choice: int) -> None:
        self._vote(post, choice, "post")

    def vote_comment(self, comment: Row, choice: int) -> None:
        if comment["deleted"]:
            raise Refusal("The comment was deleted.")
        self._vote(comment, choice, "comment")

    def _vote(self, row: Row, choice: int, what: str) -> None:
        if choice not in (-1, 0, 1):
            raise Refusal("A vote is up, down or none.")
        if row["author_id"] == ME:
            raise Refusal(f"You cannot vote on your own {what}.")
        self.db.execute(f"UPDATE {what} SET score = score + ? WHERE id = ?", (choice - row["choice"], row["id"]))
        self.db.execute(f"DELETE FROM {what}_vote WHERE {what}_id = ?", (row["id"],))
        if choice:
            self.db.execute(f"INSERT INTO {what}_vote VALUES (?, ?)", (row["id"], choice))

    # Keeping, hiding, reporting

    def mark(self, table: str, post: Row, on: bool) -> None:
        """Put a post into `saved` or `hidden`, or take it out."""
        if table == "hidden" and on and post["author_id"] == ME:
            raise Refusal("You cannot hide your own post.")
        sql = f"INSERT OR IGNORE INTO {table} VALUES (?)" if on else f"DELETE FROM {table} WHERE post_id = ?"
        self.db.execute(sql, (post["id"],))

    def report(self, post: Row, reason: str) -> None:
        if reason not in REASONS:
            raise Refusal("Please choose a reason.")
        if post["author_id"] == ME:
            raise Refusal("You cannot report your own post.")
        if self.is_marked("report", post["id"]):
            raise Refusal("You have reported this post already.")
        self.db.execute("INSERT INTO report VALUES (?, ?)", (post["id"], reason))
