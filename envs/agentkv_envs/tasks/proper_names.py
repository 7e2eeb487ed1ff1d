"""The words that make the names of one split names: of makers, people and places. They say nothing by themselves.

Whoever puts other words in their place, everywhere in a demonstration, has the same task about other things.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from agentkv_envs.sites.classifieds.catalogue import KINDS as AD_KINDS
from agentkv_envs.sites.classifieds.vocabulary import VOCABULARIES as CLASSIFIEDS
from agentkv_envs.sites.forum.people import member_names
from agentkv_envs.sites.forum.themes import THEMES
from agentkv_envs.sites.shopping.kinds import KINDS as SHOP_KINDS
from agentkv_envs.sites.shopping.vocabulary import VOCABULARIES as SHOPPING
from agentkv_envs.sites.wiki.names import WORDS, titles

# Kinds of articles whose titles are names through and through.
_KINDS = ("town", "material", "maker", "person")
_LEAST = 3


@functools.cache
def name_words(split: str) -> frozenset[str]:
    """Words of three letters or more that stand in names, in lower case.

    Args:
        split: "train" or "test".
    """
    ads, shop, wiki = CLASSIFIEDS[split], SHOPPING[split], WORDS[split]
    texts: Iterable[str] = (
        *ads.brands, *ads.first, *ads.last, *(place for place, _ in ads.places), ads.owner,
        *(brand for brands in shop.brands for brand in brands), *shop.reviewers, *shop.firstnames, *shop.lastnames,
        *(title for kind in _KINDS for title in titles(split, kind)),
        *wiki.stems, *wiki.waters, *wiki.hills, *wiki.trails,
        *member_names(split), *(theme.name(split) for theme in THEMES),
    )  # fmt: skip
    return frozenset(_words(texts))


def proper_words(split: str) -> frozenset[str]:
    """Those that do nothing but name: of a Drum Kit by Drum neither word."""
    return name_words(split) - _words([repr(AD_KINDS), repr(SHOP_KINDS)])


def _words(texts: Iterable[str]) -> set[str]:
    found = (word.lower() for text in texts for word in re.findall(r"[A-Za-z]+", text))
    return {word for word in found if len(word) >= _LEAST}
