"""Filling sentence patterns. `{word}` is filled from the post's own words, `<draw>` is drawn for each data seed."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_PART = re.compile(r"(\{\w+\}|<\w+(?::\w+)?>)")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SPOTS = ("old bridge", "station", "town hall", "harbour wall", "school yard", "mill", "library", "bus stop")
_COLOURS = ("red", "blue", "green", "grey", "black", "white", "yellow", "orange")
_CODE_WORDS = ("FERN", "OPAL", "RIVER", "SAGE", "TULIP", "MINT", "CORAL", "AMBER", "LUNAR", "PEARL", "BIRCH", "IVORY")

DRAWS: dict[str, Callable[[random.Random], str]] = {
    "price": lambda rng: f"${int(6 + rng.random() * 113)}",
    "weight": lambda rng: f"{int(12 + rng.random() * 188) * 10} g",
    "size": lambda rng: f"{int(9 + rng.random() * 140)} cm",
    "years": lambda rng: f"{int(2 + rng.random() * 14)} years",
    "minutes": lambda rng: f"{int(2 + rng.random() * 17) * 5} minutes",
    "oven": lambda rng: f"{int(30 + rng.random() * 17) * 5} °C",
    "distance": lambda rng: f"{int(3 + rng.random() * 45)} km",
    "count": lambda rng: str(int(3 + rng.random() * 26)),
    "few": lambda rng: str(int(2 + rng.random() * 4)),
    "phone": lambda rng: f"0{int(20 + rng.random() * 59)}-{int(1000 + rng.random() * 8999)}",
    "day": lambda rng: _DAYS[int(rng.random() * 7)],
    "date": lambda rng: f"{int(2 + rng.random() * 26)} {('April', 'May', 'June')[int(rng.random() * 3)]}",
    "clock": lambda rng: f"{int(8 + rng.random() * 12)}:{('00', '15', '30', '45')[int(rng.random() * 4)]}",
    "spot": lambda rng: _SPOTS[int(rng.random() * 8)],
    "colour": lambda rng: _COLOURS[int(rng.random() * 8)],
    "code": lambda rng: f"{_CODE_WORDS[int(rng.random() * 12)]}{int(10 + rng.random() * 89)}",
    "number": lambda rng: str(int(1000 + rng.random() * 8999)),
}


@dataclass(frozen=True)
class Draft:
    """A text whose drawn values are still open: `parts` are texts and, as pairs (draw, label), values."""

    parts: tuple[str | tuple[str, str], ...]

    def fill(self, rng: random.Random) -> tuple[str, list[tuple[str, str]]]:
        """The text for one data seed, and its values as (label, value)."""
        out: list[str] = []
        facts: list[tuple[str, str]] = []
        for part in self.parts:
            if isinstance(part, str):
                out.append(part)
                continue
            value = DRAWS[part[0]](rng)
            facts.append((part[1], value))
            out.append(value)
        return "".join(out), facts


@functools.cache
def _split(pattern: str) -> tuple[tuple[str, str], ...]:
    pieces = [piece for piece in _PART.split(pattern) if piece]
    return tuple((piece[0], piece[1:-1]) if _PART.fullmatch(piece) else ("", piece) for piece in pieces)


def pick(rng: random.Random, options: Sequence[str]) -> str:
    """One of `options`; much faster than `rng.choice`."""
    return options[int(rng.random() * len(options))]


def draft(rng: random.Random, pattern: str, words: Mapping[str, Sequence[str]]) -> Draft:
    """A pattern with its `{word}`s filled; sentences begin with a capital letter."""
    parts: list[str | tuple[str, str]] = []
    text = ""
    for mark, piece in _split(pattern):
        if mark == "<":
            name, _, label = piece.partition(":")
            parts += [text, (name, label or name)]
            text = ""
            continue
        word = pick(rng, words[piece]) if mark == "{" else piece
        begins = (not parts and not text) or text.endswith((". ", "! ", "? ", ": "))
        text += word[:1].upper() + word[1:] if begins and not text.endswith(": ") else word
    parts.append(text)
    return Draft(tuple(part for part in parts if part))


def plain(rng: random.Random, pattern: str, words: Mapping[str, Sequence[str]]) -> str:
    """A pattern without drawn values as a text."""
    (text,) = draft(rng, pattern, words).parts
    assert isinstance(text, str)
    return text
