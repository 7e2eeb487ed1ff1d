"""The shop's range: 8 categories of 4 kinds, 7 products each, always the same.

Products of a kind differ in few attributes, so each has near-duplicates to be told apart from: the same
thing in another colour, size or material, at another price.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

PER_KIND = 7
BRANDS = ("Alpine", "Harbor", "Maple", "Orbit", "Summit", "Cedar", "Nova", "Field")


@dataclass(frozen=True)
class Kind:
    """A kind of product: what it is called, what it comes in, and what it costs about (dollars)."""

    name: str
    category: str
    price: int
    variants: tuple[str, ...]
    materials: tuple[str, ...]
    colours: tuple[str, ...]
    use: str
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Product:
    """One product; prices in cents, `rating` 0..5, `popularity` orders the default listing."""

    id: int
    sku: str
    slug: str
    name: str
    kind: str
    category: str
    brand: str
    colour: str
    variant: str
    material: str
    sizes: tuple[str, ...]
    price_cents: int
    stock: int
    weight_g: int
    warranty_years: int
    description: str
    popularity: int


CATEGORIES = (
    ("kitchen", "Kitchen", "Small appliances and cookware"),
    ("home-decor", "Home Decor", "Light, textiles and things for the wall"),
    ("electronics", "Electronics", "Audio, chargers and desk gear"),
    ("office", "Office", "Paper, desks and chairs"),
    ("garden", "Garden", "Pots, hoses and hand tools"),
    ("sports", "Sports", "Training and camping"),
    ("clothing", "Clothing", "Jackets, knitwear, shoes and bags"),
    ("toys", "Toys", "Play for every age"),
)

_BASIC = ("Black", "White", "Red", "Blue", "Green")
_SOFT = ("Grey", "Beige", "Blue", "Pink", "Green")

KINDS = (
    Kind("Toaster", "kitchen", 39, ("2-Slice", "4-Slice"), ("steel", "plastic"), _BASIC, "browns bread evenly"),
    Kind("Kettle", "kitchen", 34, ("1 L", "2 L"), ("steel", "glass"), _BASIC, "boils water in minutes"),
    Kind("Blender", "kitchen", 59, ("600 W", "900 W"), ("glass", "plastic"), _BASIC, "makes smoothies and soups"),
    Kind("Frying Pan", "kitchen", 29, ("Small", "Large"), ("steel", "cast iron"), _BASIC, "sears and fries"),
    Kind("Table Lamp", "home-decor", 45, ("Small", "Tall"), ("wood", "ceramic"), _SOFT, "gives a warm light"),
    Kind("Pillow", "home-decor", 19, ("Square", "Round"), ("cotton", "linen"), _SOFT, "softens a sofa"),
    Kind("Wall Clock", "home-decor", 32, ("Small", "Large"), ("wood", "metal"), _BASIC, "keeps silent time"),
    Kind("Rug", "home-decor", 89, ("Round", "Long"), ("wool", "cotton"), _SOFT, "warms a floor"),
    Kind("Headphones", "electronics", 79, ("Wireless", "Studio"), ("plastic", "metal"), _BASIC, "play all day"),
    Kind("Speaker", "electronics", 49, ("Mini", "Party"), ("plastic", "fabric"), _BASIC, "fills a room with sound"),
    Kind("Charger", "electronics", 25, ("30 W", "65 W"), ("plastic", "metal"), _BASIC, "charges two devices"),
    Kind("Mouse", "electronics", 27, ("Wireless", "Silent"), ("plastic", "metal"), _BASIC, "glides on any desk"),
    Kind("Notebook", "office", 9, ("Lined", "Dotted"), ("paper", "leather"), _SOFT, "holds your notes"),
    Kind("Desk Organizer", "office", 22, ("Small", "Wide"), ("wood", "metal"), _BASIC, "keeps pens in order"),
    Kind("Office Chair", "office", 149, ("Mesh", "Padded"), ("mesh", "leather"), _BASIC, "supports your back"),
    Kind("Stapler", "office", 12, ("Mini", "Heavy"), ("metal", "plastic"), _BASIC, "binds stacks of paper"),
    Kind("Watering Can", "garden", 18, ("3 L", "8 L"), ("metal", "plastic"), _BASIC, "waters without splashing"),
    Kind("Planter", "garden", 24, ("Round", "Long"), ("ceramic", "wood"), _SOFT, "suits balconies"),
    Kind("Garden Hose", "garden", 36, ("10 m", "25 m"), ("rubber", "fabric"), _BASIC, "does not kink"),
    Kind("Shears", "garden", 21, ("Short", "Long"), ("steel", "titanium"), _BASIC, "cut clean"),
    Kind("Yoga Mat", "sports", 28, ("Thin", "Thick"), ("rubber", "cork"), _SOFT, "does not slip"),
    Kind("Bottle", "sports", 16, ("500 ml", "750 ml"), ("steel", "plastic"), _BASIC, "keeps drinks cold"),
    Kind("Dumbbell", "sports", 33, ("3 kg", "6 kg"), ("iron", "rubber"), _BASIC, "trains arms and back"),
    Kind("Tent", "sports", 129, ("2-Person", "4-Person"), ("nylon", "canvas"), _BASIC, "stands in ten minutes"),
    Kind("Jacket", "clothing", 95, ("Rain", "Winter"), ("nylon", "cotton"), _BASIC, "keeps you dry", ("S", "M", "L")),
    Kind("Sweater", "clothing", 65, ("Knit", "Zip"), ("wool", "cotton"), _SOFT, "keeps you warm", ("S", "M", "L")),
    Kind("Shoes", "clothing", 85, ("Trail", "City"), ("mesh", "leather"), _BASIC, "carry you far", ("39", "41", "43")),
    Kind("Backpack", "clothing", 55, ("Day", "Travel"), ("canvas", "nylon"), _BASIC, "holds a laptop"),
    Kind("Blocks", "toys", 26, ("50-Piece", "90-Piece"), ("wood", "plastic"), _BASIC, "build towers"),
    Kind("Plush Bear", "toys", 17, ("Mini", "Giant"), ("cotton", "wool"), _SOFT, "listens well"),
    Kind("Puzzle", "toys", 14, ("300-Piece", "900-Piece"), ("paper", "wood"), _SOFT, "fills an evening"),
    Kind("Kite", "toys", 23, ("Delta", "Diamond"), ("nylon", "paper"), _BASIC, "flies in a light breeze"),
)


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def _describe(rng: random.Random, kind: Kind, brand: str, *, material: str, weight: int, years: int) -> str:
    opening = rng.choice(
        (
            f"This {kind.name.lower()} by {brand} {kind.use}.",
            f"{brand} made this {kind.name.lower()} for every day: it {kind.use}.",
            f"A {kind.name.lower()} that {kind.use}, from {brand}.",
        )
    )
    middle = rng.choice(
        (
            f"The body is made of {material} and easy to clean.",
            f"Its {material} parts come from recycled stock.",
            f"Made of {material}, finished by hand.",
        )
    )
    end = rng.choice(
        (
            f"It weighs {weight} g and comes with a {years}-year warranty.",
            f"With {weight} g it is light enough to carry; the warranty lasts {years} years.",
            f"Ships in a plain box ({weight} g in all) with {years} years of warranty.",
        )
    )
    care = rng.choice(
        (
            "Wipe it with a damp cloth; do not use bleach.",
            "Spare parts can be ordered from our service desk.",
            "The manual is printed on the inside of the box.",
        )
    )
    return f"{opening} {middle} {end} {care}"


def build_catalogue() -> tuple[Product, ...]:
    """All products, the same on every call; names, slugs and SKUs are unique."""
    rng = random.Random("shopping-catalogue-1")
    products: list[Product] = []
    order = list(range(1, len(KINDS) * PER_KIND + 1))
    rng.shuffle(order)
    for kind in KINDS:
        looks = [
            (brand, colour, variant)
            for brand in rng.sample(BRANDS, 3)
            for colour in kind.colours[:4]
            for variant in kind.variants
        ]
        for brand, colour, variant in sorted(rng.sample(looks, PER_KIND)):
            number = len(products) + 1
            name = f"{brand} {colour} {variant} {kind.name}"
            material = rng.choice(kind.materials)
            dearer = 1.25 if variant == kind.variants[1] else 1.0
            price = max(4, round(kind.price * dearer * rng.uniform(0.75, 1.3)))
            weight, years = rng.randrange(90, 2400, 10), rng.choice((1, 2, 3, 5))
            products.append(
                Product(
                    id=number,
                    sku=f"{kind.name[:2].upper()}{number:03d}",
                    slug=_slug(name),
                    name=name,
                    kind=kind.name,
                    category=kind.category,
                    brand=brand,
                    colour=colour,
                    variant=variant,
                    material=material,
                    sizes=kind.sizes,
                    price_cents=price * 100 + rng.choice((0, 0, 0, 50)),
                    stock=rng.choice((0, 3, 8, 15, 24, 40)),
                    weight_g=weight,
                    warranty_years=years,
                    description=_describe(rng, kind, brand, material=material, weight=weight, years=years),
                    popularity=order[number - 1],
                )
            )
    return tuple(products)
