"""Reading what evaluators need off a page; a page that lacks it gives an empty text."""

from __future__ import annotations

from importlib import resources
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

_SCRIPT = resources.files(__package__ or "").joinpath("markup.js").read_text("utf-8")


async def _call(page: Page, name: str, arg: str = "", missing: Any = "") -> Any:
    """One of the script's functions; arguments are passed, never put into the script's text."""
    try:
        return await page.evaluate(f"([name, arg]) => {_SCRIPT.strip()}[name](arg)", [name, arg])
    except PlaywrightError:
        return missing


async def text(page: Page, selector: str) -> str:
    """Text of the first element that matches, hidden text too."""
    return str(await _call(page, "text", selector))


async def price(page: Page) -> str:
    """Price of the product on the page, "0" where there is none."""
    return str(await _call(page, "price", missing="0"))


async def review_count(page: Page) -> str:
    """Number of reviews of the product on the page."""
    return str(await _call(page, "reviewCount", missing="0"))


async def rating(page: Page) -> str:
    """Stars of the product on the page, in percent."""
    return str(await _call(page, "rating", missing="0"))


async def attributes(page: Page, name: str) -> str:
    """Values of the product's details with that name (alternatives joined by " |OR| "), comma-separated."""
    return str(await _call(page, "attributes", name))


async def order_lines(page: Page) -> list[dict[str, Any]]:
    """name, sku, qty and options of each product of the order on the page."""
    return list(await _call(page, "orderLines", missing=[]))


async def latest_comment(page: Page, user: str) -> dict[str, str]:
    """content of a user's newest comment on the page, and parent, the name of whom it answers."""
    found: dict[str, str] = await _call(page, "latestComment", user, {"content": "", "parent": ""})
    return found
