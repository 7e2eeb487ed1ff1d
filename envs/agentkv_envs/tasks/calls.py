"""Reading a `func:` expression of task JSON: a plain call of a known name with literals, never evaluated."""

from __future__ import annotations

import ast

# Least and greatest number of arguments, `__page__` not counted.
FUNCTIONS: dict[str, tuple[int, int]] = {
    "get_query_text": (1, 1),
    "get_query_text_lowercase": (1, 1),
    "reddit_get_latest_comment_content_by_username": (1, 1),
    "reddit_get_latest_comment_obj_by_username": (1, 1),
    "reddit_get_parent_comment_username_of_latest_comment_by_username": (1, 1),
    "reddit_get_post_url": (1, 1),
    "shopping_get_latest_order_url": (0, 0),
    "shopping_get_num_reviews": (0, 1),
    "shopping_get_order_product_name_list": (0, 0),
    "shopping_get_order_product_option": (1, 2),
    "shopping_get_order_product_quantity": (1, 1),
    "shopping_get_product_attributes": (1, 1),
    "shopping_get_product_price": (0, 1),
    "shopping_get_rating_as_percentage": (0, 0),
    "shopping_get_sku_latest_review_author": (1, 1),
    "shopping_get_sku_latest_review_rating": (1, 1),
    "shopping_get_sku_latest_review_text": (1, 1),
}


def parse_call(text: str) -> tuple[str, list[str]]:
    """Name and arguments of `name(literal, ...)`; `__page__` stands for the page and is passed over.

    Raises:
        ValueError: anything else than a call of one of `FUNCTIONS` with as many literals as it takes.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        raise ValueError(f"func: {text!r} is not a function call") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.keywords:
        raise ValueError(f"func: {text!r} is not a plain function call")
    name = node.func.id
    if name not in FUNCTIONS:
        raise ValueError(f"func: there is no function {name!r}; there are {', '.join(FUNCTIONS)}")
    args: list[str] = []
    for arg in node.args:
        if isinstance(arg, ast.Name) and arg.id == "__page__":
            continue
        if not isinstance(arg, ast.Constant) or not isinstance(arg.value, str | int | float):
            raise ValueError(f"func: {text!r} may have only texts and numbers as arguments")
        args.append(str(arg.value))
    least, most = FUNCTIONS[name]
    if not least <= len(args) <= most:
        counts = f"{least}" if least == most else f"{least} to {most}"
        raise ValueError(f"func: {name} takes {counts} arguments besides the page, not {len(args)}")
    return name, args
