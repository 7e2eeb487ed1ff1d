"""Questions about products and their answers: facts that stand nowhere else in the shop."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentkv_envs.sites.shopping.catalogue import Product

Answer = Callable[[random.Random], str]


@dataclass(frozen=True)
class Question:
    """A question about a product and its answer; `staff` when the shop answered."""

    product_id: int
    nickname: str
    text: str
    created: str
    answer: str
    answered_by: str
    staff: bool


def _number(text: str, low: int, high: int, step: int = 1) -> Answer:
    return lambda rng: text.format(rng.randrange(low, high + 1, step))


def _one(*answers: str) -> Answer:
    return lambda rng: rng.choice(answers)


_GENERAL: tuple[tuple[str, Answer], ...] = (
    ("Where is it made?", _one("In Portugal.", "In Poland.", "In Vietnam.", "In Germany.", "In Turkey.", "In Spain.")),
    ("How large is the box?", _number("{} cm on the longest side.", 18, 94)),
    ("Is a gift box included?", _one("Yes, a plain one.", "No, but we sell one for $3.", "Only from November on.")),
    ("How long are spare parts kept?", _number("{} years after the last sale.", 2, 12)),
)
_BY_CATEGORY: dict[str, tuple[tuple[str, Answer], ...]] = {
    "kitchen": (
        ("Can it go in the dishwasher?", _one("Yes, at 50 degrees.", "Only the lid.", "No, wash it by hand.")),
        ("How long is the handle or cable?", _number("{} cm.", 12, 140, 2)),
    ),
    "home-decor": (
        (
            "How do I clean it?",
            _one("Cold hand wash.", "With a soft brush.", "Machine wash at 30 degrees.", "Dust it."),
        ),
        ("Does it come with hooks?", _one("Yes, two of them.", "No hooks.", "One hook and a screw.")),
    ),
    "electronics": (
        ("How long does a charge last?", _number("About {} hours.", 5, 40)),
        ("How long is the cable?", _number("{} cm.", 60, 240, 10)),
    ),
    "office": (
        ("How much weight does it hold?", _number("Up to {} kg.", 2, 130)),
        ("Are refills sold here?", _one("Yes, in packs of 3.", "Yes, in packs of 10.", "No, any brand fits.")),
    ),
    "garden": (
        ("Can it stay outside in winter?", _one("Yes.", "Only down to minus 5 degrees.", "No, store it dry.")),
        ("How many years will it last?", _number("Mine is {} years old.", 2, 9)),
    ),
    "sports": (
        ("What body height is it made for?", _number("Up to {} cm.", 165, 205)),
        ("Is there a carry bag?", _one("Yes, in grey.", "No bag.", "A net with a strap.")),
    ),
    "clothing": (
        ("How should I wash it?", _one("At 30 degrees.", "By hand only.", "At 40 degrees, no spin.", "Dry clean.")),
        ("Does it run small?", _one("Take one size up.", "True to size.", "Rather large, take one down.")),
    ),
    "toys": (
        ("From which age on?", _number("From {} years on.", 2, 9)),
        ("Are batteries needed?", _one("No batteries.", "Two AA, not included.", "One button cell, included.")),
    ),
}


def draw_questions(rng: random.Random, product: Product, names: Sequence[str]) -> list[Question]:
    """One to four questions, oldest first, each asked once."""
    pool = (*_GENERAL, *_BY_CATEGORY[product.category])
    chosen = rng.sample(pool, rng.choice((1, 2, 2, 3, 4)))
    days = sorted(rng.sample(range(1, 330), len(chosen)))
    return [_question(rng, product, *entry, day, names) for entry, day in zip(chosen, days, strict=True)]


def _question(
    rng: random.Random, product: Product, text: str, answer: Answer, day: int, names: Sequence[str]
) -> Question:
    asker, answerer = rng.sample(names, 2)
    staff = rng.random() < 0.4
    created = f"2025-{1 + day // 28:02d}-{1 + day % 28:02d}"
    return Question(product.id, asker, text, created, answer(rng), "Brightcart" if staff else answerer, staff)
