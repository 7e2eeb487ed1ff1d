"""Captions of pictures, for agents that cannot see them.

A site knows what each of its pictures shows (`Site.caption`). "oracle" captions say exactly that; "noisy" ones are
wrong about some attributes, as a captioning model would be; with "none" pictures are silent.
"""

from __future__ import annotations

import random
import re

CAPTIONS = ("none", "noisy", "oracle")
# Share of attribute words that a noisy caption gets wrong.
NOISE = 0.15

# Words that name an attribute of a thing in a picture, by attribute. A wrong one is replaced by its neighbour in kind.
ATTRIBUTES: tuple[tuple[str, ...], ...] = (
    ("black", "white", "red", "blue", "green", "grey", "beige", "pink", "yellow", "orange", "purple", "brown"),
    ("one", "two", "three", "four", "five", "six", "seven", "eight"),
    ("striped", "dotted", "checked", "plain", "floral"),
    ("wooden", "metal", "plastic", "glass", "leather", "cotton", "wool", "ceramic", "steel", "canvas", "paper"),
    ("small", "large", "tiny", "big"),
    ("round", "square", "oval", "triangular", "rectangular"),
    ("left", "right", "top", "bottom", "front", "back", "side"),
    ("old", "new", "used", "worn", "scratched", "clean"),
    ("morning", "noon", "evening", "night"),
)
_CLASS = {word: words for words in ATTRIBUTES for word in words}
_WORD = re.compile(r"[a-z]+")


def noisy_caption(caption: str, key: str, noise: float = NOISE) -> str:
    """`caption` with a share of its attribute words replaced by others of their kind.

    Args:
        caption: what the picture shows.
        key: names the picture; the same key gives the same errors.
        noise: probability in [0, 1] that an attribute word is wrong.
    """
    rng = random.Random(f"caption:{key}")

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        others = [other for other in _CLASS.get(word, ()) if other != word]
        return rng.choice(others) if others and rng.random() < noise else word

    return _WORD.sub(replace, caption)


def caption_of(truth: str, key: str, mode: str) -> str:
    """What an agent is told of a picture that shows `truth`, under "noisy" or "oracle" captions."""
    return noisy_caption(truth, key) if mode == "noisy" else truth
