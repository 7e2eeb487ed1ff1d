"""Looking at the range: listings with filters, search, products and their variants, what is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentkv_envs.sites.storage import Refusal, Row, Storage
from agentkv_envs.sites.web import to_int

PAGE_SIZE = 12
COMPARED = 3
SORTS = {
    "position": "popularity",
    "name": "name",
    "price": "price_cents",
    "price-desc": "price_cents DESC",
    "rating": "rating DESC",
    "newest": "added DESC",
}
_AVERAGE = "(SELECT ROUND(AVG(rating), 1) FROM review r WHERE r.product_id = p.id)"
RATED = (
    f"SELECT p.*, {_AVERAGE} AS rating, (SELECT COUNT(*) FROM review r WHERE r.product_id = p.id) AS reviews,"
    " (SELECT MAX(price_cents) FROM variant v WHERE v.product_id = p.id) AS highest_cents FROM product p"
)


@dataclass(frozen=True)
class Filters:
    """What a listing is narrowed to; the neutral value of each lets everything pass. Prices in whole dollars."""

    brand: str = ""
    kind: str = ""
    low: int = 0
    high: int = 0
    rating: int = 0
    in_stock: bool = False

    @classmethod
    def of(cls, params: Mapping[str, str]) -> Filters:
        """From an address's query; what is no number counts as not given."""
        low, high, rating = (max(0, to_int(params.get(name), 0)) for name in ("low", "high", "rating"))
        return cls(params.get("brand", ""), params.get("kind", ""), low, high, rating, params.get("stock") == "1")

    @property
    def active(self) -> str:
        """The filters in words, "" where nothing is filtered."""
        parts = (
            (self.brand, self.brand),
            (self.kind, self.kind),
            (self.low, f"from ${self.low}"),
            (self.high, f"up to ${self.high}"),
            (self.rating, f"rated {self.rating} and up"),
            (self.in_stock, "in stock"),
        )
        return ", ".join(words for given, words in parts if given)

    def conditions(self) -> tuple[list[str], list[object]]:
        """SQL conditions on product p, and their values."""
        parts = (
            (self.brand, "p.brand = ?", self.brand),
            (self.kind, "p.kind = ?", self.kind),
            (self.low, "p.price_cents >= ?", self.low * 100),
            (self.high, "p.price_cents <= ?", self.high * 100),
            (self.rating, f"{_AVERAGE} >= ?", self.rating),
            (self.in_stock, "p.stock >= ?", 1),
        )
        chosen = [(sql, value) for given, sql, value in parts if given]
        return [sql for sql, _ in chosen], [value for _, value in chosen]


@dataclass(frozen=True)
class Listing:
    """One page of products; `first` and `last` count from 1. `brands` are those of the list before filters."""

    products: list[Row]
    total: int
    page: int
    pages: int
    brands: list[str]

    @property
    def first(self) -> int:
        return (self.page - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.page * PAGE_SIZE, self.total)


class Products(Storage):
    """Queries about products; the only thing that changes here is the list of compared ones."""

    def categories(self) -> list[Row]:
        return self.all("SELECT * FROM category ORDER BY id")

    def product(self, slug: str) -> Row | None:
        return self.one(f"{RATED} WHERE p.slug = ?", slug)

    def product_by_id(self, product_id: int) -> Row:
        row = self.one(f"{RATED} WHERE p.id = ?", product_id)
        if row is None:
            raise Refusal("We could not find that product.")
        return row

    def variants(self, product_id: int) -> list[Row]:
        return self.all("SELECT * FROM variant WHERE product_id = ? ORDER BY id", product_id)

    def variant(self, product: Row, colour: str, size: str) -> Row | None:
        """The chosen variant; None for a product without options.

        Raises:
            Refusal: an option is not chosen, or there is no such choice.
        """
        if product["colours"] and colour not in product["colours"].split(","):
            raise Refusal("Please choose a colour.")
        if product["sizes"] and size not in product["sizes"].split(","):
            raise Refusal(f"Please choose a {product['option_label'].lower()}.")
        return self.one(
            "SELECT * FROM variant WHERE product_id = ? AND colour = ? AND size = ?",
            *(product["id"], colour if product["colours"] else "", size if product["sizes"] else ""),
        )

    def featured(self) -> list[Row]:
        return self.all(f"{RATED} WHERE p.stock > 0 ORDER BY popularity LIMIT 4")

    def related(self, product: Row) -> list[Row]:
        return self.all(
            f"{RATED} WHERE p.kind = ? AND p.id != ? ORDER BY popularity LIMIT 4", product["kind"], product["id"]
        )

    def in_category(self, category_id: int, sort: str, page: int, filters: Filters | None = None) -> Listing:
        return self._listing("p.category_id = ?", (category_id,), sort, page, filters or Filters())

    def search(self, query: str, sort: str, page: int, filters: Filters | None = None) -> Listing:
        """Products that hold every word of the query; words may be cut short."""
        words = ["".join(c for c in word if c.isalnum()) for word in query.replace("-", " ").split()]
        match = " ".join(f'"{word}"*' for word in words if word)
        if not match:
            return Listing([], 0, 1, 1, [])
        where = "p.id IN (SELECT rowid FROM product_search WHERE product_search MATCH ?)"
        return self._listing(where, (match,), sort, page, filters or Filters())

    def _listing(self, base: str, given: Sequence[object], sort: str, page: int, filters: Filters) -> Listing:
        brands = self.all(f"SELECT DISTINCT brand FROM product p WHERE {base} ORDER BY brand", *given)
        conditions, values = filters.conditions()
        where, args = " AND ".join([base, *conditions]), [*given, *values]
        total = self.count(f"SELECT COUNT(*) FROM product p WHERE {where}", *args)
        pages = max(1, -(-total // PAGE_SIZE))
        page = min(max(page, 1), pages)
        limit = f"LIMIT {PAGE_SIZE} OFFSET {(page - 1) * PAGE_SIZE}"
        rows = self.all(f"{RATED} WHERE {where} ORDER BY {SORTS.get(sort, 'popularity')}, p.id {limit}", *args)
        return Listing(rows, total, page, pages, [row["brand"] for row in brands])

    # Comparing

    def compared(self) -> list[Row]:
        return self.all(f"SELECT q.* FROM compare_item c JOIN ({RATED}) q ON q.id = c.product_id ORDER BY c.id")

    def compare(self, product_id: int) -> None:
        if self.one("SELECT 1 FROM compare_item WHERE product_id = ?", product_id):
            raise Refusal("This product is already on your compare list.")
        if self.count("SELECT COUNT(*) FROM compare_item") >= COMPARED:
            raise Refusal(f"You can compare {COMPARED} products at a time. Remove one first.")
        self.db.execute("INSERT INTO compare_item (product_id) VALUES (?)", (product_id,))

    def uncompare(self, product_id: int) -> None:
        self.db.execute("DELETE FROM compare_item WHERE product_id = ?", (product_id,))

    def clear_compared(self) -> None:
        self.db.execute("DELETE FROM compare_item")

    # Delivery

    def delivery(self, product: Row, postcode: str) -> tuple[int, int]:
        """Working days until a product is at a postcode by Standard and by Express (0: no Express there).

        Raises:
            Refusal: not a postcode of five digits, or the product is sold out.
        """
        postcode = postcode.strip()
        if len(postcode) != 5 or not postcode.isdecimal():
            raise Refusal("Please enter a postcode of five digits.")
        if not product["stock"]:
            raise Refusal("This product is sold out.")
        region = self.one("SELECT * FROM delivery_region WHERE digit = ?", postcode[0])
        assert region is not None
        heavy = 1 if product["weight_g"] > 2000 else 0
        return region["standard_days"] + heavy, region["express_days"]
