"""The `func:` functions of task JSON. `agentkv_envs.tasks.calls` names them and reads a call; here they are done."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from playwright.async_api import Page

from agentkv_envs.errors import TaskError
from agentkv_envs.scoring import markup
from agentkv_envs.scoring.forum import Forum, PostmillForum
from agentkv_envs.scoring.shop import OrderLine, Shop
from agentkv_envs.scoring.text import Unscored
from agentkv_envs.tasks.calls import parse_call


@dataclass(frozen=True)
class Sources:
    """What the functions may read: the page being checked, the shop where the task has one, the forum."""

    page: Page
    shop: Shop | None
    forum: Forum = field(default_factory=PostmillForum)

    def need_shop(self) -> Shop:
        """The shop; raises Unscored when the task has none."""
        if self.shop is None:
            raise Unscored("the task has no shop to ask")
        return self.shop


async def call(text: str, sources: Sources, where: str) -> str:
    """The result of a `func:` expression as a text ("" where the data holds nothing).

    `__last_url__` in an argument stands for the page's address.

    Raises:
        TaskError: not a call, an unknown function, or arguments that do not fit.
        Unscored: it asks about a site the task does not have.
    """
    try:
        name, args = parse_call(text)
    except ValueError as error:
        raise TaskError(where, "eval", str(error)) from None
    filled = [arg.replace("__last_url__", sources.page.url) for arg in args]
    return await FUNCTIONS[name](sources, *filled)


def _post_url(url: str) -> str:
    """The forum post an address belongs to, or the address itself."""
    parts = urlsplit(url)
    steps = parts.path.split("/")
    if len(steps) < 4 or steps[1] != "f":
        return url
    return f"{parts.scheme}://{parts.netloc}/f/{steps[2]}/{steps[3]}/"


async def _reddit_post_url(sources: Sources, url: str) -> str:
    return _post_url(url)


async def _comment(sources: Sources, user: str) -> str:
    return (await sources.forum.latest_comment(sources.page, user)).content


async def _comment_object(sources: Sources, user: str) -> str:
    return json.dumps(asdict(await sources.forum.latest_comment(sources.page, user)), ensure_ascii=False)


async def _comment_parent(sources: Sources, user: str) -> str:
    return (await sources.forum.latest_comment(sources.page, user)).parent


async def _query_text(sources: Sources, selector: str) -> str:
    return await markup.text(sources.page, selector)


async def _query_text_lowercase(sources: Sources, selector: str) -> str:
    return (await markup.text(sources.page, selector)).lower()


async def _latest_order_url(sources: Sources) -> str:
    return await sources.need_shop().latest_order_url()


def _latest_review(what: str) -> Callable[[Sources, str], Awaitable[str]]:
    async def function(sources: Sources, sku: str) -> str:
        return await sources.need_shop().latest_review(sku, what)

    return function


async def _order_names(sources: Sources) -> str:
    return " |OR| ".join(line.name for line in await sources.need_shop().order_lines(sources.page))


async def _order_line(sources: Sources, skus: str) -> OrderLine | None:
    wanted = skus.split(" |OR| ")
    lines = await sources.need_shop().order_lines(sources.page)
    return next((line for line in lines if line.sku in wanted), None)


async def _order_quantity(sources: Sources, skus: str) -> str:
    line = await _order_line(sources, skus)
    return str(line.qty if line else 0)


async def _order_option(sources: Sources, sku: str, option: str = "Size") -> str:
    line = await _order_line(sources, sku)
    return line.options.get(option, "") if line else ""


async def _attributes(sources: Sources, name: str) -> str:
    return await markup.attributes(sources.page, name)


async def _price(sources: Sources, sku: str = "") -> str:
    return await sources.need_shop().price(sources.page, sku)


async def _review_count(sources: Sources, sku: str = "") -> str:
    return await sources.need_shop().review_count(sources.page, sku)


async def _rating(sources: Sources) -> str:
    return await sources.need_shop().rating(sources.page)


FUNCTIONS: dict[str, Callable[..., Awaitable[str]]] = {
    "get_query_text": _query_text,
    "get_query_text_lowercase": _query_text_lowercase,
    "reddit_get_latest_comment_content_by_username": _comment,
    "reddit_get_latest_comment_obj_by_username": _comment_object,
    "reddit_get_parent_comment_username_of_latest_comment_by_username": _comment_parent,
    "reddit_get_post_url": _reddit_post_url,
    "shopping_get_latest_order_url": _latest_order_url,
    "shopping_get_num_reviews": _review_count,
    "shopping_get_order_product_name_list": _order_names,
    "shopping_get_order_product_option": _order_option,
    "shopping_get_order_product_quantity": _order_quantity,
    "shopping_get_product_attributes": _attributes,
    "shopping_get_product_price": _price,
    "shopping_get_rating_as_percentage": _rating,
    "shopping_get_sku_latest_review_author": _latest_review("author"),
    "shopping_get_sku_latest_review_rating": _latest_review("rating"),
    "shopping_get_sku_latest_review_text": _latest_review("text"),
}
