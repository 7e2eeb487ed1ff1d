"""What the encyclopedia writes about: invented names, in two vocabularies that share no name.

The common nouns (fern, museum, pie) are the same in both; the words that make a name a name are not.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Words:
    """The words one split's names are made of."""

    stems: tuple[str, ...]
    endings: tuple[str, ...]
    regions: tuple[str, ...]
    waters: tuple[str, ...]
    hills: tuple[str, ...]
    plants: tuple[str, ...]
    materials: tuple[str, ...]
    birds: tuple[str, ...]
    makers: tuple[str, ...]
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    norm: str
    trails: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """Something with an article: its title, its kind, and what the title already says about it."""

    title: str
    kind: str
    given: dict[str, str] = field(default_factory=dict)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


WORDS = {
    "test": Words(
        stems=_words(
            "Otter, Marrow, Bramble, Quill, Sorrel, Thistle, Wren, Copper, Damson, Ember, Finch, Gorse, Hazel,"
            " Juniper, Lantern, Mallow, Nettle, Osprey, Pebble, Rowan"
        ),
        endings=_words("ford, wick, stead, by, mouth, holm"),
        regions=_words("North Fallow, South Fallow, The Reaches, Harrowmark, Tidelands, Oldshire"),
        waters=_words("Arle, Brin, Selk, Tamsel, Wend, Yarrel"),
        hills=_words("Crag, Hobb, Skelder, Windle, Gannet, Tansy, Plover, Raven, Saffron, Tallow, Velvet, Amber"),
        plants=_words(
            "lantern, copper, moon, velvet, silver, harbour, winter, feather, thimble, ribbon, sparrow, candle"
        ),
        materials=_words("Fenwool, Marlwood, Kelpstone, Tarncloth, Glasscork, Softsteel, Reedboard, Clayfoam"),
        birds=_words("ember, pebble, silver, marsh, lantern, thorn, russet"),
        makers=_words(
            "Dunmore & Fitch, Halden Works, Piper & Sons, Brightwell, Corbel, Lindquist Mill, Oakum House, Tern & Tide,"
            " Vesper, Wickham Forge, Applegarth, Sundial Goods"
        ),
        first_names=_words("Ada, Bruno, Celia, Dario, Elin, Felix, Greta, Hugo, Iris, Jonas, Klara, Leo, Mira, Nils"),
        last_names=_words(
            "Ashdown, Barlow, Crane, Dunmore, Ellery, Frost, Greaves, Holt, Ingram, Jessop, Keane, Lowell, Marsh, Nye"
        ),
        norm="FB",
        trails=_words("Miller, Salt, Orchard, Beacon, Drover, Chapel"),
    ),
    "train": Words(
        stems=_words(
            "Badger, Bracken, Cobble, Dapple, Elder, Falcon, Garnet, Heron, Indigo, Jasper, Kestrel, Larch, Meadow,"
            " Nimbus, Onyx, Poplar, Rook, Saddle, Timber, Umber"
        ),
        endings=_words("ton, haven, combe, leigh, bridge, dale"),
        regions=_words("East Marl, West Marl, The Levels, Stonemark, Lakelands, Newshire"),
        waters=_words("Cole, Dunn, Ister, Lode, Penn, Ruel"),
        hills=_words("Anvil, Bison, Cloud, Drum, Eagle, Flint, Goose, Hawk, Iron, Jackdaw, Lark, Mast"),
        plants=_words("saddle, cinder, sun, cotton, golden, river, summer, needle, button, tassel, swallow, compass"),
        materials=_words("Brindlefelt, Duskwood, Chalkstone, Millcloth, Barkfoam, Bluesteel, Strawboard, Sandglass"),
        birds=_words("indigo, cobble, golden, meadow, bell, bracken, scarlet"),
        makers=_words(
            "Abbot & Rhys, Kiln Yard, Marlowe & Daughters, Northgate, Pelham, Quarry Lane Mill, Rope House,"
            " Sand & Spar, Tallis, Underhill Forge, Winterbourne, Zephyr Goods"
        ),
        first_names=_words(
            "Arne, Beata, Caspar, Dora, Emil, Freya, Gustav, Hedda, Ivo, Jana, Kasper, Lena, Magnus, Nora"
        ),
        last_names=_words(
            "Abbot, Byrne, Cole, Drake, Easton, Fenner, Grady, Harlow, Innes, Judd, Kerr, Lund, Moray, Norris"
        ),
        norm="HN",
        trails=_words("Tinker, Wool, Quarry, Signal, Pedlar, Abbey"),
    ),
}

PLANT_KINDS = ("fern", "sage", "thrift", "bean", "ivy", "lily", "mint", "clover")
BIRD_KINDS = ("tern", "warbler", "plover", "owl", "rail")
DISHES = ("pot pie", "dumplings", "flatbread", "apple cake", "fish stew", "oat biscuits", "cheese tart", "bean soup")
MUSEUMS = ("Clock Museum", "Boat Museum", "Textile Museum", "Museum of Bells", "Railway Museum", "Glass House")
EVENTS = ("Lantern Walk", "Wool Fair", "Cider Week", "Kite Day", "Book Market", "River Race", "Harvest Supper")
COVERED = (
    *("kettles", "tents", "backpacks", "desk lamps", "chargers", "garden hoses", "office chairs", "bicycle helmets"),
    *("frying pans", "rain jackets", "speakers", "wooden toys"),
)


@functools.cache
def topics(split: str) -> tuple[Topic, ...]:
    """All topics of a split, always the same; titles are unique."""
    words = WORDS[split]
    rng = random.Random(f"wiki-topics-{split}")
    towns = [stem + words.endings[i % len(words.endings)] for i, stem in enumerate(words.stems)]
    regions = words.regions
    found = [Topic(name, "region", {"Capital": town}) for name, town in zip(regions, towns, strict=False)]
    found += [Topic(name, "town", {"Region": regions[i % len(regions)]}) for i, name in enumerate(towns)]
    found += [Topic(f"River {name}", "river") for name in words.waters]
    found += [Topic(f"Lake {stem}", "lake") for stem in words.stems[1::3][:6]]
    found += [Topic(f"{name} {('Fell', 'Peak', 'Hill')[i % 3]}", "mountain") for i, name in enumerate(words.hills)]
    for name in (*words.trails, *words.stems[2::3][:6]):
        start, end = rng.sample(towns, 2)
        found.append(Topic(f"{name} Way", "trail", {"Start": start, "End": end}))
    found += [Topic(name, "material") for name in words.materials]
    found += [Topic(f"Norm {words.norm} {101 + 7 * i}", "norm", {"Covers": name}) for i, name in enumerate(COVERED)]
    found += [Topic(name, "maker") for name in words.makers]
    found += [Topic(f"{a} {b}", "person") for a, b in zip(words.first_names, words.last_names, strict=True)]
    found += _pairs(rng, words.plants, PLANT_KINDS, "plant", 24)
    found += _pairs(rng, words.birds, BIRD_KINDS, "bird", 14)
    for kind, things, number in (("dish", DISHES, 20), ("museum", MUSEUMS, 15), ("event", EVENTS, 18)):
        pairs = [(town, thing) for town in towns for thing in things]
        for town, thing in sorted(rng.sample(pairs, number)):
            found.append(Topic(f"{town} {thing}", kind, {"Town": town}))
    return tuple(found)


def _pairs(rng: random.Random, firsts: tuple[str, ...], nouns: tuple[str, ...], kind: str, number: int) -> list[Topic]:
    pairs = sorted(rng.sample([(a, b) for a in firsts for b in nouns], number))
    return [Topic(f"{a.capitalize()} {b}", kind) for a, b in pairs]


@functools.cache
def titles(split: str, kind: str) -> tuple[str, ...]:
    """Titles of one kind of topic."""
    return tuple(topic.title for topic in topics(split) if topic.kind == kind)
