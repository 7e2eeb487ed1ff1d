"""The ads themselves: 8 categories of 4 kinds, 50 ads each, always the same within a split.

Ads of a kind differ in few attributes, so each has near-duplicates to be told apart from.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from datetime import timedelta

from agentkv_envs.sites.classifieds.vocabulary import VOCABULARIES
from agentkv_envs.sites.drawing import BACKGROUNDS, PATTERNS
from agentkv_envs.sites.storage import TODAY

PER_KIND = 50
SELLERS = 120
OWNER = 1
CONDITIONS = ("new", "like new", "good", "worn")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WORTH = {"new": 1.0, "like new": 0.8, "good": 0.6, "worn": 0.4}

CATEGORIES = (
    ("bikes", "Bikes"),
    ("furniture", "Furniture"),
    ("electronics", "Electronics"),
    ("garden", "Home and Garden"),
    ("music", "Music"),
    ("sports", "Sports"),
    ("kids", "Kids"),
    ("clothing", "Clothing"),
)


@dataclass(frozen=True)
class Kind:
    """A kind of thing: what it costs new (dollars), the attribute its ads differ in, and what may come with it."""

    name: str
    category: str
    price: int
    attribute: str
    values: tuple[str, ...]
    extras: tuple[str, ...]
    colours: tuple[str, ...]


@dataclass(frozen=True)
class Ad:
    """One ad; `price` in whole dollars before a seed changes it, `seller` the id of a user, `created` an ISO date."""

    id: int
    title: str
    kind: str
    category: str
    attribute: str
    value: str
    extra: str
    colour: str
    condition: str
    year: int
    price: int
    place: str
    seller: int
    created: str
    description: str
    pattern: str
    background: str


_BOLD = ("black", "white", "red", "blue", "green", "yellow", "orange")
_SOFT = ("grey", "brown", "white", "blue", "green", "pink", "black")
_PLAIN = ("black", "white", "grey", "red", "blue")

KINDS = (
    Kind("Mountain Bike", "bikes", 620, "Frame", ("48 cm", "52 cm", "56 cm"), ("lock", "pump", "helmet"), _BOLD),
    Kind("City Bike", "bikes", 430, "Gears", ("3 gears", "7 gears", "8 gears"), ("basket", "lock", "lights"), _SOFT),
    Kind("Kids Bike", "bikes", 180, "Wheels", ("12 inch", "16 inch", "20 inch"), ("bell", "helmet", "flag"), _BOLD),
    Kind("Scooter", "bikes", 240, "Range", ("15 km", "25 km", "40 km"), ("charger", "lock", "bag"), _PLAIN),
    Kind("Sofa", "furniture", 780, "Seats", ("2 seats", "3 seats", "4 seats"), ("cushions", "blanket", "stool"), _SOFT),
    Kind("Bookshelf", "furniture", 210, "Height", ("120 cm", "160 cm", "200 cm"), ("doors", "lamp", "screws"), _SOFT),
    Kind("Dining Table", "furniture", 460, "For", ("4 seats", "6 seats", "8 seats"), ("leaf", "cloth", "pads"), _SOFT),
    Kind("Armchair", "furniture", 340, "Cover", ("linen", "leather", "wool"), ("footrest", "cushion", "cover"), _SOFT),
    Kind("Laptop", "electronics", 900, "Screen", ("13 inch", "14 inch", "16 inch"), ("charger", "bag", "dock"), _PLAIN),
    Kind("Phone", "electronics", 620, "Memory", ("64 GB", "128 GB", "256 GB"), ("case", "charger", "box"), _BOLD),
    Kind("Camera", "electronics", 700, "Lens", ("35 mm", "50 mm", "85 mm"), ("bag", "tripod", "battery"), _PLAIN),
    Kind("Monitor", "electronics", 320, "Screen", ("22 inch", "24 inch", "27 inch"), ("cable", "arm", "stand"), _PLAIN),
    Kind("Lawn Mower", "garden", 390, "Width", ("32 cm", "38 cm", "46 cm"), ("bag", "cable", "blade"), _BOLD),
    Kind("Barbecue", "garden", 280, "Grill", ("45 cm", "57 cm", "67 cm"), ("tongs", "cover", "brush"), _BOLD),
    Kind("Coffee Machine", "garden", 360, "Tank", ("1 L", "2 L", "3 L"), ("mugs", "filter", "beans"), _PLAIN),
    Kind("Floor Lamp", "garden", 120, "Height", ("140 cm", "160 cm", "180 cm"), ("bulb", "dimmer", "shade"), _SOFT),
    Kind("Guitar", "music", 520, "Strings", ("steel", "nylon", "12 strings"), ("case", "strap", "tuner"), _BOLD),
    Kind("Keyboard", "music", 480, "Keys", ("61 keys", "76 keys", "88 keys"), ("stand", "pedal", "stool"), _PLAIN),
    Kind("Drum Kit", "music", 690, "Pieces", ("4 pieces", "5 pieces", "7 pieces"), ("sticks", "stool", "pads"), _BOLD),
    Kind("Turntable", "music", 330, "Drive", ("belt", "direct", "idler"), ("needle", "cover", "records"), _SOFT),
    Kind("Tent", "sports", 290, "Sleeps", ("2 people", "4 people", "6 people"), ("pegs", "mat", "lantern"), _BOLD),
    Kind("Kayak", "sports", 640, "Length", ("240 cm", "310 cm", "380 cm"), ("paddle", "vest", "seat"), _BOLD),
    Kind("Snowboard", "sports", 380, "Length", ("148 cm", "154 cm", "160 cm"), ("bindings", "bag", "wax"), _BOLD),
    Kind("Dumbbells", "sports", 150, "Weight", ("10 kg", "16 kg", "24 kg"), ("rack", "gloves", "mat"), _PLAIN),
    Kind("Stroller", "kids", 410, "Wheels", ("3 wheels", "4 wheels", "6 wheels"), ("cover", "cup", "bag"), _SOFT),
    Kind("Dollhouse", "kids", 130, "Rooms", ("4 rooms", "6 rooms", "9 rooms"), ("dolls", "lights", "chairs"), _BOLD),
    Kind("Train Set", "kids", 160, "Track", ("3 m", "5 m", "8 m"), ("bridge", "station", "tunnel"), _BOLD),
    Kind("High Chair", "kids", 170, "Up to", ("15 kg", "25 kg", "40 kg"), ("tray", "cushion", "harness"), _SOFT),
    Kind("Winter Coat", "clothing", 240, "Size", ("S", "M", "L"), ("hood", "belt", "scarf"), _SOFT),
    Kind("Dress", "clothing", 140, "Size", ("36", "38", "42"), ("belt", "hanger", "bag"), _BOLD),
    Kind("Boots", "clothing", 190, "Size", ("37", "41", "44"), ("laces", "soles", "box"), _SOFT),
    Kind("Backpack", "clothing", 110, "Volume", ("20 L", "30 L", "45 L"), ("cover", "bottle", "patch"), _BOLD),
)

_REASONS = (
    "We are moving and it does not fit the new flat",
    "I bought a bigger one last month",
    "It was a present and I hardly used it",
    "The children have outgrown it",
    "I am clearing out the garage",
    "Used on weekends only",
    "It stood in a dry cellar for a year",
    "My brother left it here",
    "I need the space",
    "A hobby I no longer have time for",
)
_UNUSED = (
    "I was given two of them",
    "It was a present",
    "I won it in a raffle",
    "The shop does not take it back",
    "I ordered the wrong one",
)
_STATES = {
    "new": ("still in its box", "never used", "the tag is still on it"),
    "like new": ("used twice", "no marks at all", "cleaned and checked"),
    "good": ("a few small marks", "works as it should", "serviced last autumn"),
    "worn": ("scratched but sound", "needs a little care", "shows its age"),
}
_CLOSINGS = ("Cash only.", "Please bring a helper.", "I can hold it for two days.", "No swaps.", "Ring twice.", "")


@functools.lru_cache(maxsize=2)
def build_ads(split: str) -> tuple[Ad, ...]:
    """All ads of a split, ids from 1, kinds mixed so that the newest are of many kinds."""
    rng = random.Random(f"classifieds-ads-{split}")
    words = VOCABULARIES[split]
    drafts = [
        (kind, brand, value)
        for kind in KINDS
        for brand, value in rng.sample([(b, v) for b in words.brands for v in kind.values], PER_KIND)
    ]
    rng.shuffle(drafts)
    return tuple(
        _ad(rng, split, number, kind, f"{brand} {kind.name}, {value}", value)
        for number, (kind, brand, value) in enumerate(drafts, 1)
    )


def _ad(rng: random.Random, split: str, number: int, kind: Kind, title: str, value: str) -> Ad:
    condition = rng.choice(CONDITIONS)
    year = 2025 if condition == "new" else rng.randint(2016, 2024)
    extra = rng.choice(kind.extras)
    state = rng.choice(_STATES[condition])
    reasons = _UNUSED if condition == "new" else _REASONS
    description = f"{rng.choice(reasons)}; {state}. {rng.choice(_CLOSINGS)}".strip()
    price = round(kind.price * _WORTH[condition] * (1 - 0.02 * (2025 - year)) * rng.uniform(0.75, 1.25))
    return Ad(
        id=number,
        title=title,
        kind=kind.name,
        category=kind.category,
        attribute=kind.attribute,
        value=value,
        extra=extra,
        colour=rng.choice(kind.colours),
        condition=condition,
        year=year,
        price=max(price, 8),
        place=rng.choice(VOCABULARIES[split].places)[0],
        # Every 250th ad is the owner's own, so that it has questions to answer and ads to look after.
        seller=OWNER if number % 250 == 0 else OWNER + 1 + rng.randrange(SELLERS),
        created=(TODAY - timedelta(days=1 + number // 20)).isoformat(),
        description=description,
        pattern=rng.choice(PATTERNS),
        background=rng.choice(BACKGROUNDS),
    )
