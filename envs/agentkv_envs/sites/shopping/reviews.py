"""Customer reviews, drawn per product from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentkv_envs.sites.shopping.catalogue import Product
from agentkv_envs.sites.shopping.images import GROUNDS

_TITLES = {
    5: ("Love it", "Exactly right", "Would buy again", "Better than hoped", "A keeper", "Bought a second one"),
    4: ("Good value", "Nearly perfect", "Solid", "Happy with it", "Well made", "Does what it says"),
    3: ("It does the job", "Mixed feelings", "Average", "Fine for the price", "Neither here nor there"),
    2: ("Not for me", "Expected more", "Second choice", "Too many small flaws"),
    1: ("Sent it back", "Broke early", "Stay away", "Money lost"),
}
_OPENINGS = (
    "I have had this {thing} for {months} months and {point}.",
    "After {months} months {point}.",
    "A gift for my {person}: {point}.",
    "Bought for our {place}; {point}.",
    "I use it {often} and {point}.",
    "My {person} tried it first, and {point}.",
)
_POINTS = {
    5: (
        "the finish is better than the pictures",
        "the whole family fights over it",
        "it survived two moves",
        "I would not swap it for another",
        "every detail is thought through",
        "it still surprises me",
    ),
    4: (
        "only the delivery took a week",
        "the colour is a shade darker than shown",
        "just the packaging was dented",
        "I only miss a longer warranty",
        "it is good apart from a faint smell at first",
        "it took some time to get used to",
    ),
    3: (
        "it feels lighter than I thought",
        "the manual is hard to read",
        "one corner was scratched",
        "it works, no more and no less",
        "it is fine but not special",
    ),
    2: (
        "the material feels thin",
        "it is smaller than expected",
        "support answered late",
        "it wobbles a little",
        "the colour came off at one edge",
    ),
    1: (
        "it stopped working after a month",
        "a part was missing",
        "the smell never went away",
        "it arrived broken twice",
    ),
}
_ENDINGS = (
    "The {material} {looks} {state}.",
    "Weighs more than it looks.",
    "The {variant} one is the right choice.",
    "Delivery took {days} days.",
    "The box held everything.",
    "I paid less in a sale.",
    "",
)
_PEOPLE = ("sister", "father", "neighbour", "daughter", "flatmate", "colleague", "uncle")
_PLACES = ("kitchen", "office", "holiday flat", "balcony", "first flat", "workshop")
_OFTEN = ("every day", "twice a week", "on weekends", "all summer", "when guests come")


@dataclass(frozen=True)
class Review:
    """A customer's review of a product; `created` is an ISO date, `photo` an index into `GROUNDS` or None."""

    product_id: int
    nickname: str
    rating: int
    title: str
    detail: str
    created: str
    helpful: int
    photo: int | None


def draw_reviews(rng: random.Random, product: Product, names: Sequence[str]) -> list[Review]:
    """Between two and eight reviews, oldest first, at most one per name."""
    chosen = rng.sample(names, rng.choice((2, 3, 3, 4, 4, 5, 6, 8)))
    # A product's own quality, so that ratings of near-duplicates differ.
    lean = rng.choice(((8, 4, 1, 0, 0), (5, 5, 3, 1, 1), (5, 5, 3, 1, 1), (2, 4, 4, 2, 2)))
    days = sorted(rng.sample(range(1, 330), len(chosen)))
    return [_review(rng, product, name, day, lean) for name, day in zip(chosen, days, strict=True)]


def _review(rng: random.Random, product: Product, name: str, day: int, lean: Sequence[int]) -> Review:
    rating = rng.choices((5, 4, 3, 2, 1), lean)[0]
    words = {
        "thing": product.kind.lower(),
        "months": rng.randint(2, 11),
        "point": rng.choice(_POINTS[rating]),
        "person": rng.choice(_PEOPLE),
        "place": rng.choice(_PLACES),
        "often": rng.choice(_OFTEN),
        "material": product.material,
        "looks": rng.choice(("looks", "still looks", "feels")),
        "state": rng.choice(("fine", "good", "as new")),
        "variant": (product.variant or (*product.sizes, product.kind)[0]).lower(),
        "days": rng.randint(2, 9),
    }
    detail = f"{rng.choice(_OPENINGS)} {rng.choice(_ENDINGS)}".format(**words).strip()
    created = f"2025-{1 + day // 28:02d}-{1 + day % 28:02d}"
    helpful = rng.choice((0, 0, 1, 2, 3, 5, 8, 12))
    photo = rng.randrange(len(GROUNDS)) if rng.random() < 0.15 else None
    return Review(product.id, name, rating, rng.choice(_TITLES[rating]), detail, created, helpful, photo)
