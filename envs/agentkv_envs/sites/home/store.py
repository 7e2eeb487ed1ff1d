"""The rules of the notice board."""

from __future__ import annotations

from agentkv_envs.sites import World
from agentkv_envs.sites.home.database import TOPICS, template
from agentkv_envs.sites.storage import TODAY, Refusal, Row, Storage

MAX_OWN = 3


class Store(Storage):
    """One episode's notice board and parcel locker."""

    def __init__(self, world: World):
        super().__init__(template(world))

    def notices(self, topic: str = "") -> list[Row]:
        """Newest first; of one topic, or all."""
        return self.all("SELECT * FROM notice WHERE ? IN ('', topic) ORDER BY created DESC, id DESC", topic)

    def notice(self, number: int) -> Row | None:
        """A notice with `signed`, whether the visitor has signed up for it."""
        return self.one(
            "SELECT n.*, EXISTS (SELECT 1 FROM signup s WHERE s.notice_id = n.id) AS signed FROM notice n"
            " WHERE n.id = ?",
            number,
        )

    def pin(self, topic: str, title: str, body: str) -> int:
        """Hang up a notice and return its id."""
        title, body = title.strip(), body.strip()
        if topic not in TOPICS:
            raise Refusal("Please choose a topic.")
        if not (title and body):
            raise Refusal("Please fill in title and text.")
        if len(title) > 60 or len(body) > 300:
            raise Refusal("The title may have 60 letters, the text 300.")
        if self.one("SELECT 1 FROM notice WHERE title = ?", title) is not None:
            raise Refusal("There is a notice with this title already.")
        if self.count("SELECT COUNT(*) FROM notice WHERE mine") >= MAX_OWN:
            raise Refusal(f"You may have {MAX_OWN} notices at a time. Take one down first.")
        cursor = self.db.execute(
            "INSERT INTO notice (topic, title, body, author, created, mine) VALUES (?, ?, ?, 'you', ?, 1)",
            (topic, title, body, TODAY.isoformat()),
        )
        return int(cursor.lastrowid or 0)

    def take_down(self, number: int) -> None:
        if self.one("DELETE FROM notice WHERE id = ? AND mine RETURNING id", number) is None:
            raise Refusal("You can take down only your own notices.")

    def take_slip(self, number: int) -> str:
        """The phone number on a slip; told once a slip."""
        row = self.one(
            "UPDATE notice SET slips = slips - 1 WHERE id = ? AND phone != '' AND slips > 0 RETURNING phone", number
        )
        if row is None:
            raise Refusal("There are no slips left on this notice.")
        return str(row["phone"])

    def sign_up(self, number: int) -> None:
        notice = self.notice(number)
        if notice is None or notice["topic"] != "Event" or notice["mine"]:
            raise Refusal("This notice takes no sign-ups.")
        if notice["signed"]:
            raise Refusal("You have signed up already.")
        if not notice["seats"]:
            raise Refusal("All seats are taken.")
        self.db.execute("UPDATE notice SET seats = seats - 1 WHERE id = ?", (number,))
        self.db.execute("INSERT INTO signup (notice_id) VALUES (?)", (number,))

    def cancel(self, number: int) -> None:
        if self.one("DELETE FROM signup WHERE notice_id = ? RETURNING notice_id", number) is None:
            raise Refusal("You have not signed up for this.")
        self.db.execute("UPDATE notice SET seats = seats + 1 WHERE id = ?", (number,))

    def locker(self) -> Row:
        row = self.one("SELECT * FROM locker")
        assert row is not None
        return row

    def reveal_code(self) -> str:
        """The code of the parcel locker, told once."""
        row = self.one("UPDATE locker SET shown = 1 WHERE shown = 0 RETURNING code")
        if row is None:
            raise Refusal("The code was shown before. It is not shown again.")
        return str(row["code"])
