"""The `func:` functions of task JSON: a fixed list, called by name with literal arguments, never `eval`."""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Page

from agentkv_envs.errors import TaskError


@dataclass(frozen=True)
class Sources:
    """What the functions may read: the shop's database and address, and the page being checked."""

    database: sqlite3.Connection | None
    shop_url: str
    page: Page | None


def parse_call(text: str) -> tuple[str, list[str | int | float]]:
    """Name and arguments of `name(literal, ...)`; `__page__` stands for the page and is passed over.

    Raises:
        ValueError: anything else than a call of a plain name with literals.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"func: {text!r} is not a function call") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise ValueError(f"func: {text!r} is not a plain function call")
    args: list[str | int | float] = []
    for arg in node.args:
        if isinstance(arg, ast.Name) and arg.id == "__page__":
            continue
        if not isinstance(arg, ast.Constant) or not isinstance(arg.value, str | int | float):
            raise ValueError(f"func: {text!r} may have only texts and numbers as arguments")
        args.append(arg.value)
    return node.func.id, args


async def call(text: str, sources: Sources, where: str) -> str:
    """The result of a `func:` expression as a text ("" where the data holds nothing).

    Raises:
        TaskError: not a call, an unknown function, or arguments that do not fit.
    """
    try:
        name, args = parse_call(text)
        function = FUNCTIONS.get(name)
        if function is None:
            raise ValueError(f"func: there is no function {name!r}; there are {', '.join(FUNCTIONS)}")
        return await function(sources, *args)
    except (ValueError, TypeError) as error:
        raise TaskError(where, "eval.program_html", str(error)) from None


def _value(sources: Sources, sql: str, *args: object) -> str:
    if sources.database is None:
        return ""
    row = sources.database.execute(sql, args).fetchone()
    return "" if row is None or row[0] is None else str(row[0])


async def latest_order_url(sources: Sources) -> str:
    """Address of the newest order."""
    order_id = _value(sources, "SELECT MAX(id) FROM orders WHERE created = (SELECT MAX(created) FROM orders)")
    return f"{sources.shop_url}/sales/order/view/order_id/{order_id}/"


def _latest_order(column: str) -> Callable[..., Awaitable[str]]:
    async def function(sources: Sources, sku: str = "") -> str:
        newest = "(SELECT MAX(id) FROM orders WHERE created = (SELECT MAX(created) FROM orders))"
        sql = (
            f"SELECT GROUP_CONCAT({column}, ' ') FROM order_item i JOIN product p ON p.id = i.product_id"
            f" WHERE i.order_id = {newest} AND (? = '' OR p.sku = ?)"
        )
        return _value(sources, sql, sku, sku)

    return function


def _latest_review(column: str) -> Callable[..., Awaitable[str]]:
    async def function(sources: Sources, sku: str) -> str:
        sql = (
            f"SELECT r.{column} FROM review r JOIN product p ON p.id = r.product_id WHERE p.sku = ?"
            " ORDER BY r.created DESC, r.id DESC LIMIT 1"
        )
        return _value(sources, sql, sku)

    return function


def _product(expression: str) -> Callable[..., Awaitable[str]]:
    async def function(sources: Sources, sku: str) -> str:
        return _value(sources, f"SELECT {expression} FROM product p WHERE p.sku = ?", sku)

    return function


async def query_text(sources: Sources, selector: str) -> str:
    """Text of the first element that matches the selector on the page being checked."""
    if sources.page is None:
        return ""
    text: Any = await sources.page.evaluate(
        "s => { const e = document.querySelector(s); return e ? e.innerText : ''; }", selector
    )
    return str(text)


async def query_text_lowercase(sources: Sources, selector: str) -> str:
    """`query_text` in lower case."""
    return (await query_text(sources, selector)).lower()


FUNCTIONS: dict[str, Callable[..., Awaitable[str]]] = {
    "shopping_get_latest_order_url": latest_order_url,
    "shopping_get_order_product_name_list": _latest_order("p.name"),
    "shopping_get_order_product_quantity": _latest_order("i.qty"),
    "shopping_get_order_product_option": _latest_order("i.size"),
    "shopping_get_sku_latest_review_author": _latest_review("nickname"),
    "shopping_get_sku_latest_review_rating": _latest_review("rating"),
    "shopping_get_sku_latest_review_text": _latest_review("detail"),
    "shopping_get_product_price": _product("p.price_cents / 100.0"),
    "shopping_get_num_reviews": _product("(SELECT COUNT(*) FROM review r WHERE r.product_id = p.id)"),
    "get_query_text": query_text,
    "get_query_text_lowercase": query_text_lowercase,
}
