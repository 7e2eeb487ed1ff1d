"""Customer reviews, drawn per product from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from agentkv_envs.sites.shopping.catalogue import Product

_NAMES = ("Ada", "Bruno", "Carla", "Dario", "Elif", "Femke", "Goran", "Hana", "Igor", "Jana", "Kofi", "Lena", "Milo")
_TITLES = {
    5: ("Love it", "Exactly right", "Would buy again"),
    4: ("Good value", "Nearly perfect", "Solid"),
    3: ("It does the job", "Mixed feelings", "Average"),
    2: ("Not for me", "Expected more"),
    1: ("Sent it back", "Broke early"),
}
_POINTS = {
    5: ("the finish is better than the pictures", "my family fights over it", "it survived two moves"),
    4: ("delivery took a week", "the colour is a shade darker than shown", "the packaging was dented"),
    3: ("it feels lighter than I thought", "the manual is hard to read", "one corner was scratched"),
    2: ("the material feels thin", "it is smaller than expected", "support answered late"),
    1: ("it stopped working after a month", "a part was missing", "the smell never went away"),
}


@dataclass(frozen=True)
class Review:
    """A customer's review of a product; `created` is an ISO date."""

    product_id: int
    nickname: str
    rating: int
    title: str
    detail: str
    created: str


def draw_reviews(rng: random.Random, product: Product) -> list[Review]:
    """Between two and six reviews, newest first, at most one per name."""
    names = rng.sample(_NAMES, rng.randint(2, 6))
    days = sorted((rng.randrange(1, 300) for _ in names), reverse=True)
    return [_review(rng, product, name, day) for name, day in zip(names, days, strict=True)]


def _review(rng: random.Random, product: Product, name: str, day: int) -> Review:
    rating = rng.choices((5, 4, 3, 2, 1), (5, 5, 3, 1, 1))[0]
    thing = product.kind.lower()
    months, point = rng.randint(2, 11), rng.choice(_POINTS[rating])
    look, state = rng.choice(("looks", "still looks", "feels")), rng.choice(("fine", "good", "as new"))
    detail = f"I have had this {product.colour.lower()} {thing} for {months} months and {point}."
    detail += f" The {product.material} {look} {state}."
    month, date = 1 + (day // 28), 1 + day % 28
    return Review(product.id, name, rating, rng.choice(_TITLES[rating]), detail, f"2025-{month:02d}-{date:02d}")
