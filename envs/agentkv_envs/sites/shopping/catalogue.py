"""The shop's range: what is sold under which name, the same for every data seed of a split.

The first part has 8 categories of 4 kinds with 7 products each, the second part 12 more of each of these kinds and 13
of each of 16 new kinds, by other makers, about half of them with options. Products of a kind differ in few
attributes, so each has near-duplicates to be told apart from: the same thing in another colour, size or material, at
another price. Prices and stock of the first part are fixed in the split "test"; all others change with the data seed.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from agentkv_envs.sites.shopping.kinds import FIRST_KINDS, SECOND_KINDS, Kind
from agentkv_envs.sites.shopping.vocabulary import VOCABULARIES

TODAY = date(2026, 3, 14)
PER_KIND, MORE_PER_KIND, PER_NEW_KIND = 7, 12, 13
FIRST = PER_KIND * len(FIRST_KINDS)


@dataclass(frozen=True)
class Product:
    """One product; prices in cents, `popularity` orders the default listing, dates are ISO texts.

    One with `colours` or `sizes` is sold by variant: its price is that of the cheapest, its stock that of all.
    `restock` is when a product that is sold out comes back, `option_label` what a size is called.
    """

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
    colours: tuple[str, ...] = ()
    option_label: str = "Size"
    added: str = ""
    restock: str = ""


@dataclass(frozen=True)
class Variant:
    """One choice of a product's options, such as colour "Red" and size "M"; "" where there is no such option."""

    product_id: int
    colour: str
    size: str
    price_cents: int
    stock: int


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


@functools.lru_cache(maxsize=2)
def build_catalogue(split: str = "test") -> tuple[Product, ...]:
    """All products of a split; names, slugs and SKUs are unique."""
    brands = VOCABULARIES[split].brands
    first = _first_part(random.Random("shopping-catalogue-1" if split == "test" else f"catalogue-{split}"), brands[0])
    rng = random.Random(f"shopping-catalogue-2-{split}")
    dated = [replace(product, added=_day(rng, 90, 700)) for product in first]
    return (*dated, *_second_part(rng, brands))


def _product(
    rng: random.Random, number: int, kind: Kind, brand: str, colour: str, variant: str, price: float
) -> Product:
    material = rng.choice(kind.materials)
    cents = max(4, round(price * rng.uniform(0.75, 1.3))) * 100
    weight, years = rng.randrange(90, 2400, 10), rng.choice((1, 2, 3, 5))
    name = " ".join(filter(None, (brand, colour, variant, kind.name)))
    return Product(
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
        price_cents=cents + rng.choice((0, 0, 0, 50)),
        stock=rng.choice((0, 3, 8, 15, 24, 40)),
        weight_g=weight,
        warranty_years=years,
        description=_describe(rng, kind, brand, material=material, weight=weight, years=years),
        popularity=number,
    )


def _first_part(rng: random.Random, brands: Sequence[str]) -> list[Product]:
    products: list[Product] = []
    order = list(range(1, FIRST + 1))
    rng.shuffle(order)
    for kind in FIRST_KINDS:
        looks = [
            (brand, colour, variant)
            for brand in rng.sample(brands, 3)
            for colour in kind.colours[:4]
            for variant in kind.variants
        ]
        for brand, colour, variant in sorted(rng.sample(looks, PER_KIND)):
            dearer = 1.25 if variant == kind.variants[1] else 1.0
            product = _product(rng, len(products) + 1, kind, brand, colour, variant, kind.price * dearer)
            products.append(replace(product, popularity=order[product.id - 1]))
    return products


def _second_part(rng: random.Random, brands: tuple[Sequence[str], Sequence[str]]) -> list[Product]:
    """Products from `FIRST + 1` on; a first maker's range of a kind stays closed, so that tasks about it hold."""
    ranges = [(kind, MORE_PER_KIND, brands[1]) for kind in FIRST_KINDS]
    ranges += [(kind, PER_NEW_KIND, (*brands[0], *brands[1])) for kind in SECOND_KINDS]
    total = sum(number for _, number, _ in ranges)
    order = list(range(FIRST + 1, FIRST + total + 1))
    rng.shuffle(order)
    products: list[Product] = []
    for kind, number, makers in ranges:
        for brand, colour, variant in _looks(rng, kind, number, makers):
            product = _product(rng, FIRST + len(products) + 1, kind, brand, colour, variant, kind.price)
            placed = replace(product, popularity=order[len(products)], added=_day(rng, 5, 400))
            products.append(placed if colour else _with_options(rng, placed, kind))
    return products


def _looks(rng: random.Random, kind: Kind, number: int, makers: Sequence[str]) -> list[tuple[str, str, str]]:
    """Brand, colour and variant of `number` products; an empty colour or variant becomes an option."""
    plain = [(b, c, v) for b in makers for c in kind.colours for v in kind.variants]
    coloured = [(b, "", v) for b in makers for v in kind.variants]
    free = [(b, "", "") for b in makers]
    families = rng.sample(free, 2) if not kind.sizes else []
    swatches = rng.sample([look for look in coloured if look[0] not in {f[0] for f in families}], number // 3)
    taken = {(b, v) for b, _, v in swatches} | {(b, v) for b, _, _ in families for v in kind.variants}
    rest = rng.sample([look for look in plain if (look[0], look[2]) not in taken], number - len(swatches + families))
    return sorted(families + swatches + rest)


def _with_options(rng: random.Random, product: Product, kind: Kind) -> Product:
    """A product that leaves its colour, and if its name has no variant also that, to be chosen."""
    colours = tuple(sorted(rng.sample(kind.colours, rng.randint(2, 4)), key=kind.colours.index))
    product = replace(product, colour=colours[0], colours=colours)
    return product if product.variant else replace(product, sizes=kind.variants, option_label="Model")


def _day(rng: random.Random, nearest: int, farthest: int) -> str:
    return (TODAY - timedelta(days=rng.randint(nearest, farthest))).isoformat()


def draw_stock(split: str, seed: int) -> tuple[list[Product], list[Variant]]:
    """The range of a data seed with its prices and stock, and the variants of what has options."""
    catalogue = build_catalogue(split)
    drawn = random.Random(f"shopping-stock-{split}-{seed}")
    fixed = random.Random(f"shopping-stock-{split}")
    lowest = {p.kind: p.price_cents for p in sorted(catalogue[:FIRST], key=lambda p: -p.price_cents)}
    products: list[Product] = []
    variants: list[Variant] = []
    for entry in catalogue:
        rng = fixed if split == "test" and entry.id <= FIRST else drawn
        # The second part starts above a kind's cheapest, so that "the cheapest speaker" is the same for every seed.
        floor = lowest.get(entry.kind, 0) + 150 if entry.id > FIRST else 400
        priced = entry if rng is fixed else _reprice(rng, entry, floor)
        back = (TODAY + timedelta(days=rng.randint(4, 40))).isoformat()
        products.append(replace(priced, restock="" if priced.stock else back))
        variants += _variants(rng, priced)
    return products, variants


def _reprice(rng: random.Random, product: Product, floor: int) -> Product:
    cents = round(product.price_cents * rng.uniform(0.85, 1.15) / 50) * 50
    return replace(product, price_cents=max(cents, floor), stock=rng.choice((0, 0, 2, 5, 9, 14, 22, 35)))


def _variants(rng: random.Random, product: Product) -> list[Variant]:
    """One variant per combination of options; each has its own price and its share of the stock."""
    if not product.colours and not product.sizes:
        return []
    choices = [(colour, size) for colour in product.colours or ("",) for size in product.sizes or ("",)]
    stock = _shares(rng, product.stock, len(choices))
    extra = {colour: rng.choice((0, 0, 200, 350)) for colour in product.colours[1:]}
    model = {product.sizes[-1]: rng.choice((600, 850, 1100))} if product.option_label == "Model" else {}
    return [
        Variant(product.id, colour, size, product.price_cents + extra.get(colour, 0) + model.get(size, 0), stock[i])
        for i, (colour, size) in enumerate(choices)
    ]


def _shares(rng: random.Random, total: int, parts: int) -> list[int]:
    """`total` in `parts` shares, each at least 1 where that goes round."""
    cuts = sorted(rng.randint(0, max(0, total - parts)) for _ in range(parts - 1))
    ends = [0, *cuts, max(0, total - parts)]
    spread = [ends[i + 1] - ends[i] for i in range(parts)]
    return [share + (i < total) for i, share in enumerate(spread)]
