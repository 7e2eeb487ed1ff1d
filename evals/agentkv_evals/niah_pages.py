"""Needle prompts made of web pages: a detail of one product on an earlier page."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from agentkv_evals.niah_lines import Line, ask_for_one
from agentkv_evals.niah_prompts import NeedlePrompt

_PER_PAGE = 3
_CHROME = (
    'link "Brightcart" [1], searchbox "Search" [2], link "Deals" [3], link "My Account" [4], link "Cart (0)" [5], '
    'expand "Categories" [6], expand "Footer" [7]'
)
_IDS = range(8, 100)
_TYPES = {
    "Kitchen": ("Kettle", "Toaster", "Blender", "Teapot", "Skillet", "Colander", "Ladle", "Grinder", "Whisk"),
    "Garden": ("Rake", "Watering Can", "Trowel", "Hammock", "Lantern", "Wheelbarrow", "Sprinkler", "Parasol", "Spade"),
    "Office": ("Stapler", "Notebook", "Desk Lamp", "Paper Tray", "Whiteboard", "Shredder", "Pen Set", "Easel", "Globe"),
    "Sports": ("Racket", "Yoga Mat", "Jump Rope", "Football", "Helmet", "Dumbbell", "Kayak", "Frisbee", "Snorkel"),
    "Toys": ("Puzzle", "Kite", "Robot", "Train Set", "Dollhouse", "Drum", "Marble Run", "Teddy Bear", "Yo-yo"),
    "Home Decor": ("Pillow", "Vase", "Curtain", "Mirror", "Rug", "Candle", "Clock", "Picture Frame", "Basket"),
}  # fmt: skip
_BRANDS = (
    "Harbor", "Cedar", "Summit", "Ember", "Willow", "Orchard", "Granite", "Meadow", "Falcon", "Juniper", "Aspen",
    "Cobalt", "Maple", "Pioneer", "Lagoon", "Sierra", "Tundra", "Velvet", "Zephyr", "Onyx", "Prairie", "Quartz",
    "Raven", "Saffron",
)  # fmt: skip
_COLOURS = (
    "teal", "maroon", "ivory", "crimson", "turquoise", "lavender", "olive", "navy", "coral", "beige", "violet",
    "mustard", "silver", "black", "white", "brown", "orange", "yellow", "purple", "green",
)  # fmt: skip
_DETAILS = {"price": "$", "rating": "rated ", "colour": "in "}
"""What a page tells of its products, and what stands before it."""


def page_prompt(depth: float, tokens: int, chance: random.Random, count: Callable[[str], int]) -> NeedlePrompt:
    """Category pages of a shop as an agent observes them; asked for is a detail that a page before the last one shows.

    See :func:`agentkv_evals.niah_lines.ask_for_one`.
    """
    return ask_for_one(depth, tokens, count, _lines(chance), spare_last_page=True)


def _lines(chance: random.Random) -> Iterator[Line]:
    """Page after page, each product once. Ids differ as long as there are any left: agents' ids end at 99."""
    ids = itertools.cycle(chance.sample(_IDS, len(_IDS)))
    for page, (category, names) in enumerate(_pages(chance)):
        yield Line(f"page: {category}", page=page)
        yield Line(_CHROME, page=page)
        detail = chance.choice(tuple(_DETAILS))
        for name in names:
            yield _product(name, next(ids), detail, chance, page)


def _pages(chance: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Categories in turn, each with its next products; until there are none left."""
    shelves = {category: _shelf(kinds, chance) for category, kinds in _TYPES.items()}
    categories = chance.sample(sorted(shelves), len(shelves))
    for at in range(0, len(shelves[categories[0]]), _PER_PAGE):
        for category in categories:
            yield category, shelves[category][at : at + _PER_PAGE]


def _shelf(kinds: Sequence[str], chance: random.Random) -> list[str]:
    """Every brand's product of every kind, neighbours differing in both."""
    brands = chance.sample(_BRANDS, len(_BRANDS))
    kinds = chance.sample(kinds, len(kinds))
    turns = range(len(brands))
    return [f"{brands[(at + turn) % len(brands)]} {kind}" for turn in turns for at, kind in enumerate(kinds)]


def _product(name: str, number: int, detail: str, chance: random.Random, page: int) -> Line:
    value = {
        "price": str(chance.randrange(5, 100)),
        "rating": f"{chance.randrange(20, 50) / 10}",
        "colour": chance.choice(_COLOURS),
    }[detail]
    prefix = f'link "{name}" [{number}] {_DETAILS[detail]}'
    # A model goes on after "rated", not after "rated ": the blank belongs to the next token.
    return Line(
        text=f"{prefix}{value}",
        question=f'Which {detail} does the page show for "{name}"?',
        prefix=prefix.rstrip(),
        answer=value,
        page=page,
    )
