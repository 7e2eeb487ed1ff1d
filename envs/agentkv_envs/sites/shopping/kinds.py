"""The kinds of products the shop sells, by category: the same in both splits."""

from __future__ import annotations

from dataclasses import dataclass


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

# The first part of the range, and what the second one adds.
FIRST_KINDS = (
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

SECOND_KINDS = (
    Kind(
        "Coffee Grinder", "kitchen", 44, ("Manual", "Electric"), ("steel", "ceramic"), _BASIC, "grinds fine and coarse"
    ),
    Kind("Lunch Box", "kitchen", 17, ("Flat", "Deep"), ("steel", "plastic"), _BASIC, "keeps lunch apart from books"),
    Kind("Blanket", "home-decor", 41, ("Single", "Double"), ("wool", "cotton"), _SOFT, "keeps a sofa warm"),
    Kind("Mirror", "home-decor", 52, ("Oval", "Tall"), ("wood", "metal"), _BASIC, "brightens a hallway"),
    Kind("Keyboard", "electronics", 58, ("Compact", "Full"), ("plastic", "metal"), _BASIC, "types without noise"),
    Kind("Webcam", "electronics", 47, ("HD", "4K"), ("plastic", "metal"), _BASIC, "shows you in good light"),
    Kind("Whiteboard", "office", 63, ("60 cm", "120 cm"), ("steel", "glass"), _BASIC, "wipes clean"),
    Kind("Fountain Pen", "office", 31, ("Fine", "Broad"), ("metal", "plastic"), _SOFT, "writes smoothly"),
    Kind("Lantern", "garden", 34, ("Solar", "Candle"), ("metal", "bamboo"), _BASIC, "lights a path"),
    Kind("Bird Feeder", "garden", 22, ("Hanging", "Standing"), ("wood", "metal"), _BASIC, "brings finches"),
    Kind("Helmet", "sports", 61, ("Road", "Urban"), ("foam", "carbon"), _BASIC, "protects on two wheels"),
    Kind("Jump Rope", "sports", 13, ("Speed", "Weighted"), ("nylon", "leather"), _SOFT, "warms you up"),
    Kind("Scarf", "clothing", 27, ("Short", "Long"), ("wool", "cotton"), _SOFT, "keeps your neck warm"),
    Kind("Cap", "clothing", 19, ("Flat", "Sun"), ("cotton", "nylon"), _BASIC, "shades your eyes", ("S", "M", "L")),
    Kind("Toy Train", "toys", 38, ("4-Piece", "8-Piece"), ("wood", "metal"), _BASIC, "runs on any floor"),
    Kind("Board Game", "toys", 29, ("2-Player", "6-Player"), ("paper", "wood"), _BASIC, "takes half an hour"),
)
KINDS = (*FIRST_KINDS, *SECOND_KINDS)


def kinds_of(category: str) -> tuple[str, ...]:
    """The kinds in a category, by name."""
    return tuple(kind.name for kind in KINDS if kind.category == category)
