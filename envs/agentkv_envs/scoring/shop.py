"""What evaluators ask about a shop: from an episode's database, or from a real shop's own interface."""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
from playwright.async_api import Page

from agentkv_envs.errors import InfraError
from agentkv_envs.scoring import markup

_TIMEOUT_S = 20.0
_NEWEST = "(SELECT MAX(id) FROM orders WHERE created = (SELECT MAX(created) FROM orders))"
_COLUMNS = {"author": "r.nickname", "rating": "r.rating * 20", "text": "r.detail"}
_FIELDS = {"author": "nickname", "text": "detail"}


@dataclass(frozen=True)
class OrderLine:
    """One product of an order."""

    name: str
    sku: str
    qty: int
    options: dict[str, str] = field(default_factory=dict)


class Shop(Protocol):
    """The questions; an empty text is the answer where the shop holds nothing."""

    async def latest_order_url(self) -> str:
        """Address of the newest order of all."""

    async def latest_review(self, sku: str, what: str) -> str:
        """Of a product's newest review the "author", the "rating" (percent) or the "text"."""

    async def order_lines(self, page: Page) -> list[OrderLine]:
        """What the order on the page consists of."""

    async def price(self, page: Page, sku: str) -> str:
        """Price of a product, of the one on the page when `sku` is empty."""

    async def review_count(self, page: Page, sku: str) -> str:
        """Number of a product's reviews, of the one on the page when `sku` is empty."""

    async def rating(self, page: Page) -> str:
        """Stars of the product on the page, in percent."""


class EmbeddedShop:
    """Reads the episode's database."""

    def __init__(self, database: sqlite3.Connection, url: str):
        self._database = database
        self._url = url

    def _value(self, sql: str, *args: object) -> str:
        row = self._database.execute(sql, args).fetchone()
        return "" if row is None or row[0] is None else str(row[0])

    async def latest_order_url(self) -> str:
        order = self._value(f"SELECT {_NEWEST}")
        return f"{self._url}/sales/order/view/order_id/{order}/"

    async def latest_review(self, sku: str, what: str) -> str:
        return self._value(
            f"SELECT {_COLUMNS[what]} FROM review r JOIN product p ON p.id = r.product_id WHERE p.sku = ?"
            " ORDER BY r.created DESC, r.id DESC LIMIT 1",
            sku,
        )

    async def order_lines(self, page: Page) -> list[OrderLine]:
        shown = re.search(r"/order_id/(\d+)", page.url)
        order = shown.group(1) if shown else self._value(f"SELECT {_NEWEST}")
        rows = self._database.execute(
            "SELECT p.name, p.sku, i.qty, i.size, v.colour FROM order_item i JOIN product p ON p.id = i.product_id"
            " LEFT JOIN variant v ON v.id = i.variant_id WHERE i.order_id = ? ORDER BY i.id",
            (order,),
        )
        return [OrderLine(name, sku, int(qty), _options(size, colour)) for name, sku, qty, size, colour in rows]

    def _of_product(self, expression: str, page: Page, sku: str = "") -> str:
        """A value of the product with that number, or of the one whose page it is."""
        slug = urlsplit(page.url).path.rpartition("/")[2].removesuffix(".html")
        column, key = ("sku", sku) if sku else ("slug", slug)
        return self._value(f"SELECT {expression} FROM product p WHERE p.{column} = ?", key)

    async def price(self, page: Page, sku: str) -> str:
        return self._of_product("p.price_cents / 100.0", page, sku)

    async def review_count(self, page: Page, sku: str) -> str:
        return self._of_product("(SELECT COUNT(*) FROM review r WHERE r.product_id = p.id)", page, sku)

    async def rating(self, page: Page) -> str:
        return self._of_product("(SELECT ROUND(AVG(r.rating) * 20) FROM review r WHERE r.product_id = p.id)", page)


def _options(size: str, colour: str | None) -> dict[str, str]:
    return {name: value for name, value in (("Size", size), ("Color", colour)) if value}


class MagentoShop:
    """Reads a Magento shop's REST interface with its administrator's account, and its pages.

    The account is the benchmark's public one; SHOPPING_ADMIN_USER and SHOPPING_ADMIN_PASSWORD name another.
    """

    def __init__(self, url: str, transport: httpx.AsyncBaseTransport | None = None):
        self._url = url.rstrip("/")
        self._transport = transport

    async def _get(self, path: str, **params: str) -> Any:
        account = {
            "username": os.environ.get("SHOPPING_ADMIN_USER", "admin"),
            "password": os.environ.get("SHOPPING_ADMIN_PASSWORD", "admin1234"),
        }
        try:
            async with httpx.AsyncClient(transport=self._transport, timeout=_TIMEOUT_S) as client:
                token = await client.post(f"{self._url}/rest/default/V1/integration/admin/token", json=account)
                token.raise_for_status()
                headers = {"Authorization": f"Bearer {token.json()}"}
                answer = await client.get(f"{self._url}/rest/V1/{path}", params=params, headers=headers)
                answer.raise_for_status()
                return answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise InfraError(f"the shop at {self._url} did not answer an evaluator: {error}") from None

    async def latest_order_url(self) -> str:
        found = await self._get(
            "orders",
            **{
                "searchCriteria[sortOrders][0][field]": "created_at",
                "searchCriteria[sortOrders][0][direction]": "DESC",
                "searchCriteria[pageSize]": "1",
            },
        )
        items = found.get("items") or []
        order = str(int(items[0]["increment_id"])) if items else ""
        return f"{self._url}/sales/order/view/order_id/{order}/"

    async def latest_review(self, sku: str, what: str) -> str:
        reviews = await self._get(f"products/{sku}/reviews")
        if not reviews:
            return ""
        if what == "rating":
            ratings = reviews[-1].get("ratings") or [{}]
            return str(ratings[0].get("percent", ""))
        return str(reviews[-1].get(_FIELDS[what], ""))

    async def order_lines(self, page: Page) -> list[OrderLine]:
        return [OrderLine(**line) for line in await markup.order_lines(page)]

    async def price(self, page: Page, sku: str) -> str:
        if not sku:
            return await markup.price(page)
        return str((await self._get(f"products/{sku}")).get("price", ""))

    async def review_count(self, page: Page, sku: str) -> str:
        if not sku:
            return await markup.review_count(page)
        return str(len(await self._get(f"products/{sku}/reviews")))

    async def rating(self, page: Page) -> str:
        return await markup.rating(page)
