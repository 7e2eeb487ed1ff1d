"""The forum's whole store: posts and comments (`writing`), and memberships, people, messages and wiki pages here."""

from __future__ import annotations

from agentkv_envs.sites.forum.content import ME
from agentkv_envs.sites.forum.writing import VANISHED, Writing
from agentkv_envs.sites.storage import Refusal, Row

MAX_BIOGRAPHY, MAX_MESSAGE, MAX_WIKI = 300, 1000, 3000


class Store(Writing):
    """One episode's forum."""

    # Signing in

    def login(self, name: str, password: str) -> str:
        found = self.one(
            "SELECT id FROM user WHERE name = ? AND password = ? AND password != ''", name.strip(), password
        )
        if found is None:
            raise Refusal("Name or password is wrong.")
        return self.new_session(found["id"])

    # Memberships

    def subscribe(self, forum: Row, door_word: str = "") -> str:
        """Join a forum; returns the member number, which is told only now."""
        if forum["subscribed"]:
            raise Refusal(f"You are subscribed to f/{forum['name']} already.")
        if forum["door_word"] and door_word.strip().upper() != forum["door_word"]:
            raise Refusal("That is not the door word of this forum.")
        self.db.execute("INSERT INTO subscription VALUES (?)", (forum["id"],))
        self.db.execute("UPDATE forum SET members = members + 1 WHERE id = ?", (forum["id"],))
        return str(forum["member_number"])

    def unsubscribe(self, forum: Row) -> None:
        if not forum["subscribed"]:
            raise Refusal(f"You are not subscribed to f/{forum['name']}.")
        self.db.execute("DELETE FROM subscription WHERE forum_id = ?", (forum["id"],))
        self.db.execute("UPDATE forum SET members = members - 1 WHERE id = ?", (forum["id"],))

    # People

    def block(self, user: Row, on: bool) -> None:
        if user["id"] == ME:
            raise Refusal("You cannot block yourself.")
        sql = "INSERT OR IGNORE INTO blocked VALUES (?)" if on else "DELETE FROM blocked WHERE user_id = ?"
        self.db.execute(sql, (user["id"],))

    def save_biography(self, text: str) -> None:
        if len(text.strip()) > MAX_BIOGRAPHY:
            raise Refusal(f"A biography may have at most {MAX_BIOGRAPHY} characters.")
        self.db.execute("UPDATE user SET biography = ? WHERE id = ?", (text.strip(), ME))

    # Messages

    def read_thread(self, thread_id: int) -> list[Row]:
        """The messages of a conversation; those that vanish are emptied by this."""
        messages = self.all("SELECT * FROM message WHERE thread_id = ? ORDER BY id", thread_id)
        self.db.execute("UPDATE thread SET unread = 0 WHERE id = ?", (thread_id,))
        self.db.execute(
            "UPDATE message SET body = ?, vanishes = 0 WHERE thread_id = ? AND vanishes", (VANISHED, thread_id)
        )
        return messages

    def send(self, user: Row, body: str) -> int:
        """Write to a person; goes into the conversation with them, whose id is returned."""
        if user["id"] == ME:
            raise Refusal("You cannot write to yourself.")
        if self.one("SELECT 1 FROM blocked WHERE user_id = ?", user["id"]) is not None:
            raise Refusal(f"You have blocked {user['name']}. Unblock them first.")
        if not user["accepts_mail"]:
            raise Refusal(f"{user['name']} does not accept messages.")
        body = body.strip()
        if not body:
            raise Refusal("Please write a message.")
        if len(body) > MAX_MESSAGE:
            raise Refusal(f"A message may have at most {MAX_MESSAGE} characters.")
        thread = self.one("SELECT id FROM thread WHERE user_id = ?", user["id"])
        thread_id = thread["id"] if thread is not None else None
        if thread_id is None:
            thread_id = self.db.execute("INSERT INTO thread (user_id) VALUES (?)", (user["id"],)).lastrowid
        self.db.execute(
            "INSERT INTO message (thread_id, mine, created, body) VALUES (?, 1, ?, ?)", (thread_id, self.stamp(), body)
        )
        return int(thread_id or 0)

    def delete_thread(self, thread_id: int) -> None:
        self.db.execute("DELETE FROM message WHERE thread_id = ?", (thread_id,))
        self.db.execute("DELETE FROM thread WHERE id = ?", (thread_id,))

    # Wiki

    def edit_wiki(self, page: Row, body: str) -> None:
        if not page["open"]:
            raise Refusal("Only the moderator can edit this page.")
        if page["forum"] not in self.subscriptions():
            raise Refusal(f"Only members of f/{page['forum']} can edit this page.")
        body = "\n".join(line.strip() for line in body.splitlines() if line.strip())
        if not body:
            raise Refusal("A page cannot be empty.")
        if len(body) > MAX_WIKI:
            raise Refusal(f"A page may have at most {MAX_WIKI} characters.")
        self.db.execute("UPDATE wiki_page SET body = ? WHERE id = ?", (body, page["id"]))
