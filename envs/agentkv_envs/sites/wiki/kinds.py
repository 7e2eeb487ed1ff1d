"""Kinds of articles, and how the values of their attributes are drawn.

In sentences `{Attribute}` stands for a value and `{title}` for the name. An attribute is either drawn anew for every
data seed or a relation to another topic, which stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Draw = Callable[[random.Random], str]


@dataclass(frozen=True)
class Attribute:
    """`draw` makes a value or `relation` names the kind of topic it points to; what the topic itself gives comes first.

    `boxed`: stands in the infobox, else only in the text.
    """

    label: str
    draw: Draw | None = None
    relation: str | None = None
    boxed: bool = True


@dataclass(frozen=True)
class Kind:
    """One kind of article: its category, attributes, openings and sections (heading, alternative texts)."""

    category: str
    summary: str
    attributes: tuple[Attribute, ...]
    openings: tuple[str, ...]
    sections: tuple[tuple[str, tuple[str, ...]], ...]


def number(low: int, high: int, step: int = 1, form: str = "{:,}") -> Draw:
    return lambda rng: form.format(rng.randrange(low, high + 1, step))


def pick(text: str) -> Draw:
    options = text.split(", ")
    return lambda rng: options[int(rng.random() * len(options))]


def phone(rng: random.Random) -> str:
    return f"0{rng.randint(20, 79)}-{rng.randint(1000, 9999)}"


def hours(rng: random.Random) -> str:
    return f"{rng.choice((9, 10, 11))}:00 to {rng.choice((16, 17, 18, 19))}:{rng.choice(('00', '30'))}"


def date(rng: random.Random) -> str:
    return f"{rng.randint(2, 28)} {rng.choice(('April', 'May', 'June', 'July', 'August', 'September', 'October'))}"


def of(label: str, draw: Draw, boxed: bool = True) -> Attribute:
    return Attribute(label, draw, None, boxed)


def to(label: str, kind: str) -> Attribute:
    return Attribute(label, None, kind)


DAYS = "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"
MONTHS = "January, February, March, April, May, June, July, August, September, October, November, December"
