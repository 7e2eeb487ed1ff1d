"""The site's state: looking around and what the owner keeps. `selling` and `dealing` hold the other rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from agentkv_envs.sites import World
from agentkv_envs.sites.classifieds.catalogue import OWNER
from agentkv_envs.sites.classifieds.database import template
from agentkv_envs.sites.storage import Refusal, Row, Storage
from agentkv_envs.sites.web import to_int

PAGE_SIZE = 6
SORTS = {"dt_pub_date": "l.created", "i_price": "l.price_cents"}
REASONS = ("Sold already", "Wrong category", "Misleading photo", "Scam")
_LISTING = (
    "SELECT l.*, c.name AS category, c.slug AS category_slug, u.name AS seller FROM listing l"
    " JOIN category c ON c.id = l.category_id JOIN user u ON u.id = l.user_id"
)
# Newest first: smaller ids are newer.
_NEWEST = "l.created DESC, l.id"


@dataclass(frozen=True)
class Page:
    """One page of ads; `first` and `last` count from 1."""

    ads: list[Row]
    total: int
    number: int
    pages: int

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.number * PAGE_SIZE, self.total)


@dataclass(frozen=True)
class Search:
    """What to look for; empty texts and None leave a condition out. Prices in whole dollars."""

    pattern: str = ""
    category: str = ""
    place: str = ""
    condition: str = ""
    price_min: int | None = None
    price_max: int | None = None
    sort: str = "dt_pub_date"
    descending: bool = True

    @classmethod
    def of(cls, params: Mapping[str, str]) -> Search:
        """From the parameters of an address."""
        low, high = to_int(params.get("sPriceMin"), -1), to_int(params.get("sPriceMax"), -1)
        return cls(
            pattern=params.get("sPattern", "").strip(),
            category=params.get("sCategory", ""),
            place=params.get("sCity", "").strip(),
            condition=params.get("sCondition", ""),
            price_min=low if low >= 0 else None,
            price_max=high if high >= 0 else None,
            sort=params.get("sOrder", "dt_pub_date"),
            descending=params.get("iOrderType", "desc") != "asc",
        )

    def query(self, **other: object) -> str:
        """The parameters of an address for this search, without what is left out."""
        low, high = self.price_min, self.price_max
        params = {
            "sPattern": self.pattern,
            "sCategory": self.category,
            "sCity": self.place,
            "sCondition": self.condition,
            "sPriceMin": "" if low is None else low,
            "sPriceMax": "" if high is None else high,
        }
        return urlencode({k: v for k, v in {**params, **other}.items() if v != ""})


class Store(Storage):
    """One episode's database and the rules of searching, favourites, follows, saved searches, reports, the profile."""

    def __init__(self, world: World):
        super().__init__(template(world))

    # Sign-in

    def login(self, email: str, password: str) -> str:
        """A session token.

        Raises:
            Refusal: no such user, or another password.
        """
        found = self.one("SELECT id FROM user WHERE email = ? AND password = ?", email.strip().lower(), password)
        if found is None or found["id"] != OWNER:
            raise Refusal("The email or the password is wrong.")
        return self.new_session(OWNER)

    def owner(self, token: str | None) -> Row | None:
        """The signed-in user."""
        number = self.user_id(token)
        return self.user(number) if number is not None else None

    # Looking around

    def categories(self) -> list[Row]:
        return self.all("SELECT * FROM category ORDER BY id")

    def places(self, beginning: str = "") -> list[Row]:
        """Places whose name begins so, nearest first."""
        return self.all(
            "SELECT * FROM place WHERE SUBSTR(LOWER(name), 1, ?) = ? ORDER BY distance_km",
            len(beginning),
            beginning.lower(),
        )

    def place(self, name: str) -> Row | None:
        return self.one("SELECT * FROM place WHERE LOWER(name) = ?", name.strip().lower())

    def listing(self, number: int) -> Row | None:
        return self.one(f"{_LISTING} WHERE l.id = ?", number)

    def photo(self, number: int) -> Row | None:
        """The uploaded photo of an ad; None where it is drawn, or there is none."""
        return self.one("SELECT filename, png FROM photo WHERE listing_id = ?", number)

    def latest(self, count: int) -> list[Row]:
        return self.all(f"{_LISTING} WHERE l.status = 'active' ORDER BY {_NEWEST} LIMIT ?", count)

    def similar(self, ad: Row) -> list[Row]:
        return self.all(
            f"{_LISTING} WHERE l.kind = ? AND l.id != ? AND l.status = 'active' ORDER BY {_NEWEST} LIMIT 4",
            ad["kind"],
            ad["id"],
        )

    def search(self, wanted: Search, page: int = 1) -> Page:
        """Ads that hold every word of the pattern (words may be cut short) and meet all other conditions."""
        where, args = ["l.status != 'sold'"], list[object]()
        words = ["".join(c for c in word if c.isalnum()) for word in wanted.pattern.replace("-", " ").split()]
        if match := " ".join(f'"{word}"*' for word in words if word):
            where.append("l.id IN (SELECT rowid FROM listing_search WHERE listing_search MATCH ?)")
            args.append(match)
        for column, value in (("c.slug", wanted.category), ("l.condition", wanted.condition)):
            if value:
                where.append(f"{column} = ?")
                args.append(value)
        if wanted.place:
            where.append("LOWER(l.place) = ?")
            args.append(wanted.place.lower())
        for sign, dollars in ((">=", wanted.price_min), ("<=", wanted.price_max)):
            if dollars is not None:
                where.append(f"l.price_cents {sign} ?")
                args.append(dollars * 100)
        order = SORTS.get(wanted.sort, "l.created")
        order += (" DESC" if wanted.descending else "") + ", l.id"
        return self._page(" AND ".join(where), args, order, page)

    def ads_of(self, user_id: int, page: int = 1) -> Page:
        return self._page("l.user_id = ?", [user_id], _NEWEST, page)

    def _page(self, where: str, args: list[object], order: str, page: int) -> Page:
        total = self.count(
            f"SELECT COUNT(*) FROM listing l JOIN category c ON c.id = l.category_id WHERE {where}", *args
        )
        pages = max(1, -(-total // PAGE_SIZE))
        page = min(max(page, 1), pages)
        limit = f"LIMIT {PAGE_SIZE} OFFSET {(page - 1) * PAGE_SIZE}"
        return Page(self.all(f"{_LISTING} WHERE {where} ORDER BY {order} {limit}", *args), total, page, pages)

    def user(self, number: int) -> Row | None:
        """A user with `stars` (average, None without ratings), `ratings` and `ads` (counts)."""
        return self.one(
            "SELECT u.*, (SELECT ROUND(AVG(stars), 1) FROM rating r WHERE r.seller_id = u.id) AS stars,"
            " (SELECT COUNT(*) FROM rating r WHERE r.seller_id = u.id) AS ratings,"
            " (SELECT COUNT(*) FROM listing l WHERE l.user_id = u.id) AS ads FROM user u WHERE u.id = ?",
            number,
        )

    def ratings(self, seller_id: int) -> list[Row]:
        """Newest first."""
        return self.all(
            "SELECT r.*, u.name AS author FROM rating r JOIN user u ON u.id = r.user_id WHERE r.seller_id = ?"
            " ORDER BY r.created DESC, r.id DESC",
            seller_id,
        )

    # Favourites, follows, saved searches

    def favourites(self) -> list[Row]:
        return self.all(f"{_LISTING} JOIN favourite f ON f.listing_id = l.id ORDER BY f.id")

    def is_favourite(self, listing_id: int) -> bool:
        return self.one("SELECT 1 FROM favourite WHERE listing_id = ?", listing_id) is not None

    def add_favourite(self, ad: Row) -> None:
        if ad["user_id"] == OWNER:
            raise Refusal("This is your own ad.")
        self.db.execute("INSERT OR IGNORE INTO favourite (listing_id) VALUES (?)", (ad["id"],))

    def remove_favourite(self, listing_id: int) -> None:
        self.db.execute("DELETE FROM favourite WHERE listing_id = ?", (listing_id,))

    def follows(self, seller_id: int) -> bool:
        return self.one("SELECT 1 FROM follow WHERE seller_id = ?", seller_id) is not None

    def followed(self) -> list[Row]:
        return self.all("SELECT u.* FROM follow f JOIN user u ON u.id = f.seller_id ORDER BY f.id")

    def follow(self, seller_id: int) -> None:
        if seller_id == OWNER:
            raise Refusal("You cannot follow yourself.")
        self.db.execute("INSERT OR IGNORE INTO follow (seller_id) VALUES (?)", (seller_id,))

    def unfollow(self, seller_id: int) -> None:
        self.db.execute("DELETE FROM follow WHERE seller_id = ?", (seller_id,))

    def saved_searches(self) -> list[Row]:
        return self.all("SELECT * FROM saved_search ORDER BY id")

    def save_search(self, name: str, query: str) -> None:
        """Keep a search, given as the parameters of its address."""
        query = Search.of(dict(parse_qsl(query))).query()
        if not query:
            raise Refusal("Search for something before you save the search.")
        if not name.strip():
            raise Refusal("Please give the search a name.")
        if self.one("SELECT 1 FROM saved_search WHERE query = ?", query) is not None:
            raise Refusal("You have saved this search already.")
        self.db.execute("INSERT INTO saved_search (name, query) VALUES (?, ?)", (name.strip()[:60], query))

    def delete_search(self, number: int) -> None:
        self.db.execute("DELETE FROM saved_search WHERE id = ?", (number,))

    # Reports, phone numbers, the profile

    def report(self, ad: Row, reason: str, note: str) -> None:
        if reason not in REASONS:
            raise Refusal("Please choose a reason.")
        if ad["user_id"] == OWNER:
            raise Refusal("This is your own ad.")
        if self.one("SELECT 1 FROM report WHERE listing_id = ?", ad["id"]) is not None:
            raise Refusal("You have reported this ad already.")
        self.db.execute(
            "INSERT INTO report (listing_id, reason, note) VALUES (?, ?, ?)", (ad["id"], reason, note.strip())
        )

    def reveal_phone(self, ad: Row) -> str:
        """The seller's phone number, told once per ad."""
        row = self.one(
            "UPDATE listing SET phone_shown = 1 WHERE id = ? AND phone_shown = 0 RETURNING user_id", ad["id"]
        )
        if row is None:
            raise Refusal("The phone number of this ad was already shown. It is not shown again.")
        user = self.user(row["user_id"])
        assert user is not None
        return str(user["phone"])

    def save_profile(self, phone: str, place: str) -> None:
        found = self.place(place)
        if found is None:
            raise Refusal(f'We do not know the place "{place.strip()}". Choose one of the suggestions.')
        if sum(c.isdigit() for c in phone) < 5:
            raise Refusal("Please give a phone number of at least five digits.")
        self.db.execute("UPDATE user SET phone = ?, place = ? WHERE id = ?", (phone.strip(), found["name"], OWNER))
