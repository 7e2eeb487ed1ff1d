"""Photos of ads: what each kind of thing looks like. `drawing` explains the recipes."""

from __future__ import annotations

import functools
import io

from PIL import Image, ImageDraw, ImageOps, UnidentifiedImageError

from agentkv_envs.sites.drawing import Recipe, draw, png
from agentkv_envs.sites.storage import Refusal

SIZE = (280, 210)
MAX_BYTES = 4_000_000


def _bike(frame: str, wheel: int = 18) -> Recipe:
    low, high = 66 - wheel, 66 + wheel
    return (
        ("arc", (24 - wheel, low, 24 + wheel, high, 0, 360, 3), "ink"),
        ("arc", (76 - wheel, low, 76 + wheel, high, 0, 360, 3), "ink"),
        ("line", (24, 66, 40, 38, 4), frame),
        ("line", (40, 38, 68, 38, 4), frame),
        ("line", (40, 38, 50, 66, 4), frame),
        ("line", (50, 66, 68, 38, 4), frame),
        ("line", (24, 66, 50, 66, 3), frame),
        ("line", (66, 30, 76, 66, 4), frame),
        ("round", (32, 32, 48, 38, 3), "ink"),
        ("line", (60, 28, 74, 26, 3), "ink"),
        ("oval", (46, 61, 55, 70), "metal"),
    )


RECIPES: dict[str, Recipe] = {
    "Mountain Bike": (*_bike("main", 20), ("line", (70, 42, 78, 64, 6), "dark")),
    "City Bike": (*_bike("main"), ("round", (70, 22, 92, 38, 2), "wood"), ("line", (16, 44, 34, 44, 3), "ink")),
    "Kids Bike": (*_bike("main", 13), ("oval", (36, 72, 50, 86), "light"), ("line", (69, 24, 80, 14, 2), "light")),
    "Scooter": (
        ("line", (26, 74, 74, 74, 5), "main"),
        ("line", (74, 74, 66, 18, 4), "main"),
        ("line", (54, 18, 78, 18, 4), "ink"),
        ("oval", (14, 68, 32, 86), "ink"),
        ("oval", (68, 68, 86, 86), "ink"),
        ("oval", (20, 74, 26, 80), "metal"),
        ("oval", (74, 74, 80, 80), "metal"),
    ),
    "Sofa": (
        ("round", (10, 34, 90, 66, 8), "dark"),
        ("round", (18, 32, 50, 62, 5), "main"),
        ("round", (50, 32, 82, 62, 5), "main"),
        ("round", (6, 46, 20, 80, 6), "main"),
        ("round", (80, 46, 94, 80, 6), "main"),
        ("round", (16, 60, 84, 80, 4), "light"),
        ("round", (14, 80, 20, 90, 1), "wood"),
        ("round", (80, 80, 86, 90, 1), "wood"),
    ),
    "Bookshelf": (
        ("round", (24, 6, 76, 92, 2), "dark"),
        ("round", (28, 10, 72, 34, 1), "main"),
        ("round", (28, 38, 72, 62, 1), "main"),
        ("round", (28, 66, 72, 88, 1), "main"),
        ("round", (32, 16, 38, 34, 1), "paper"),
        ("round", (40, 14, 45, 34, 1), "glass"),
        ("round", (47, 18, 53, 34, 1), "wood"),
        ("round", (52, 44, 58, 62, 1), "paper"),
        ("round", (60, 46, 66, 62, 1), "leaf"),
        ("round", (34, 76, 52, 88, 1), "metal"),
    ),
    "Dining Table": (
        ("poly", (14, 44, 86, 44, 94, 56, 6, 56), "main"),
        ("round", (6, 55, 94, 61, 1), "dark"),
        ("poly", (12, 61, 18, 61, 16, 90, 12, 90), "dark"),
        ("poly", (82, 61, 88, 61, 88, 90, 84, 90), "dark"),
        ("oval", (44, 36, 58, 48), "glass"),
        ("oval", (46, 20, 56, 40), "leaf"),
    ),
    "Armchair": (
        ("round", (26, 16, 74, 64, 12), "main"),
        ("round", (16, 44, 32, 82, 6), "dark"),
        ("round", (68, 44, 84, 82, 6), "dark"),
        ("round", (28, 58, 72, 80, 5), "light"),
        ("line", (26, 80, 22, 92, 4), "wood"),
        ("line", (74, 80, 78, 92, 4), "wood"),
    ),
    "Laptop": (
        ("round", (22, 18, 78, 64, 3), "main"),
        ("round", (26, 22, 74, 58, 1), "glass"),
        ("poly", (14, 66, 86, 66, 96, 82, 4, 82), "dark"),
        ("poly", (22, 68, 78, 68, 82, 74, 18, 74), "ink"),
        ("round", (42, 76, 58, 80, 1), "metal"),
    ),
    "Phone": (
        ("round", (32, 8, 68, 92, 7), "main"),
        ("round", (35, 14, 65, 84, 3), "glass"),
        ("round", (44, 10, 56, 12, 1), "ink"),
        ("oval", (46, 85, 54, 91), "light"),
    ),
    "Camera": (
        ("round", (10, 30, 90, 80, 7), "main"),
        ("round", (34, 20, 62, 34, 4), "dark"),
        ("oval", (32, 34, 72, 76), "ink"),
        ("oval", (40, 42, 64, 68), "glass"),
        ("oval", (48, 48, 56, 56), "paper"),
        ("round", (74, 36, 84, 42, 1), "paper"),
    ),
    "Monitor": (
        ("round", (8, 14, 92, 68, 4), "main"),
        ("round", (12, 18, 88, 62, 2), "glass"),
        ("round", (46, 68, 54, 82, 1), "dark"),
        ("round", (30, 82, 70, 88, 3), "dark"),
    ),
    "Lawn Mower": (
        ("poly", (22, 56, 78, 52, 86, 76, 14, 76), "main"),
        ("round", (40, 40, 66, 58, 4), "ink"),
        ("line", (24, 58, 4, 18, 3), "metal"),
        ("oval", (12, 68, 34, 90), "ink"),
        ("oval", (66, 68, 88, 90), "ink"),
        ("oval", (20, 76, 26, 82), "metal"),
        ("oval", (74, 76, 80, 82), "metal"),
    ),
    "Barbecue": (
        ("oval", (20, 14, 80, 66), "main"),
        ("round", (16, 38, 84, 44, 2), "metal"),
        ("round", (44, 8, 56, 16, 2), "wood"),
        ("line", (34, 62, 22, 92, 3), "ink"),
        ("line", (66, 62, 78, 92, 3), "ink"),
        ("line", (50, 66, 50, 92, 3), "ink"),
    ),
    "Coffee Machine": (
        ("round", (22, 12, 78, 90, 6), "main"),
        ("round", (32, 36, 68, 78, 3), "ink"),
        ("round", (44, 34, 56, 44, 2), "metal"),
        ("poly", (42, 58, 60, 58, 58, 76, 44, 76), "paper"),
        ("oval", (32, 18, 42, 28), "metal"),
        ("oval", (60, 18, 68, 26), "light"),
    ),
    "Floor Lamp": (
        ("poly", (36, 8, 64, 8, 76, 36, 24, 36), "main"),
        ("round", (48, 36, 52, 88, 1), "metal"),
        ("oval", (34, 84, 66, 94), "dark"),
    ),
    "Guitar": (
        ("line", (50, 6, 50, 54, 5), "wood"),
        ("round", (44, 2, 56, 14, 2), "ink"),
        ("oval", (34, 38, 66, 66), "main"),
        ("oval", (28, 54, 72, 94), "main"),
        ("oval", (42, 56, 58, 72), "ink"),
        ("round", (40, 80, 60, 84, 1), "ink"),
    ),
    "Keyboard": (
        ("round", (4, 36, 96, 72, 3), "main"),
        ("round", (8, 50, 92, 69, 1), "paper"),
        *(("round", (12 + 9 * i, 50, 16 + 9 * i, 61, 1), "ink") for i in (0, 1, 3, 4, 5, 7, 8)),
        ("round", (40, 40, 60, 46, 1), "glass"),
    ),
    "Drum Kit": (
        ("oval", (28, 40, 72, 88), "main"),
        ("oval", (34, 46, 66, 82), "paper"),
        ("round", (12, 50, 32, 76, 3), "dark"),
        ("round", (68, 50, 88, 76, 3), "dark"),
        ("line", (18, 50, 10, 20, 2), "metal"),
        ("line", (82, 50, 90, 20, 2), "metal"),
        ("oval", (2, 14, 30, 22), "wood"),
        ("oval", (70, 14, 98, 22), "wood"),
    ),
    "Turntable": (
        ("round", (8, 28, 92, 84, 5), "main"),
        ("oval", (16, 32, 68, 80), "ink"),
        ("oval", (36, 50, 48, 62), "light"),
        ("line", (80, 36, 60, 66, 3), "metal"),
        ("oval", (76, 32, 86, 42), "metal"),
    ),
    "Tent": (
        ("poly", (50, 14, 94, 86, 6, 86), "main"),
        ("poly", (50, 14, 62, 86, 38, 86), "dark"),
        ("poly", (50, 34, 56, 86, 44, 86), "ink"),
        ("line", (50, 14, 96, 90, 1), "ink"),
    ),
    "Kayak": (
        ("poly", (2, 62, 20, 52, 80, 52, 98, 62, 80, 74, 20, 74), "main"),
        ("oval", (36, 54, 64, 68), "ink"),
        ("line", (20, 30, 80, 84, 2), "wood"),
        ("oval", (10, 22, 26, 38), "light"),
        ("oval", (74, 76, 90, 92), "light"),
    ),
    "Snowboard": (
        ("round", (36, 4, 64, 94, 14), "main"),
        ("round", (38, 28, 62, 36, 2), "ink"),
        ("round", (38, 62, 62, 70, 2), "ink"),
        ("poly", (50, 40, 58, 50, 50, 60, 42, 50), "light"),
    ),
    "Dumbbells": (
        ("round", (20, 38, 80, 44, 2), "metal"),
        ("round", (10, 26, 26, 56, 4), "main"),
        ("round", (74, 26, 90, 56, 4), "main"),
        ("round", (24, 72, 84, 78, 2), "metal"),
        ("round", (16, 60, 32, 90, 4), "dark"),
        ("round", (76, 60, 92, 90, 4), "dark"),
    ),
    "Stroller": (
        ("poly", (30, 22, 30, 54, 66, 54, 56, 30), "dark"),
        ("round", (28, 48, 74, 68, 8), "main"),
        ("line", (72, 52, 90, 20, 3), "metal"),
        ("line", (36, 66, 64, 84, 3), "metal"),
        ("line", (66, 66, 36, 84, 3), "metal"),
        ("oval", (24, 74, 44, 94), "ink"),
        ("oval", (60, 74, 80, 94), "ink"),
    ),
    "Dollhouse": (
        ("poly", (50, 6, 90, 38, 10, 38), "dark"),
        ("round", (16, 38, 84, 92, 1), "main"),
        ("round", (24, 46, 44, 62, 1), "glass"),
        ("round", (56, 46, 76, 62, 1), "glass"),
        ("round", (42, 68, 58, 92, 2), "wood"),
    ),
    "Train Set": (
        ("round", (8, 44, 40, 72, 3), "main"),
        ("round", (46, 50, 66, 72, 3), "light"),
        ("round", (72, 50, 92, 72, 3), "dark"),
        ("round", (12, 28, 26, 46, 2), "dark"),
        ("round", (32, 34, 38, 46, 1), "ink"),
        *(("oval", (x, 68, x + 12, 80), "ink") for x in (12, 26, 50, 76)),
        ("line", (2, 82, 98, 82, 2), "metal"),
    ),
    "High Chair": (
        ("round", (34, 10, 66, 50, 6), "main"),
        ("round", (24, 44, 76, 52, 3), "light"),
        ("round", (36, 54, 64, 62, 3), "dark"),
        ("line", (38, 60, 26, 94, 3), "wood"),
        ("line", (62, 60, 74, 94, 3), "wood"),
        ("line", (30, 80, 70, 80, 2), "wood"),
    ),
    "Winter Coat": (
        ("poly", (34, 14, 66, 14, 76, 90, 24, 90), "main"),
        ("poly", (34, 14, 14, 60, 24, 66, 38, 34), "dark"),
        ("poly", (66, 14, 86, 60, 76, 66, 62, 34), "dark"),
        ("round", (34, 8, 66, 22, 6), "light"),
        ("line", (50, 20, 50, 90, 1), "ink"),
        *(("oval", (52, y, 56, y + 4), "ink") for y in (32, 48, 64)),
    ),
    "Dress": (
        ("poly", (38, 12, 62, 12, 60, 42, 82, 92, 18, 92, 40, 42), "main"),
        ("poly", (38, 12, 44, 12, 48, 24, 42, 26), "dark"),
        ("poly", (56, 12, 62, 12, 58, 26, 52, 24), "dark"),
        ("round", (39, 40, 61, 46, 1), "light"),
    ),
    "Boots": (
        ("poly", (16, 20, 36, 20, 36, 66, 52, 76, 52, 86, 16, 86), "main"),
        ("poly", (54, 20, 74, 20, 74, 66, 90, 76, 90, 86, 54, 86), "main"),
        ("round", (14, 84, 52, 90, 2), "ink"),
        ("round", (52, 84, 92, 90, 2), "ink"),
        ("round", (16, 18, 36, 26, 2), "light"),
        ("round", (54, 18, 74, 26, 2), "light"),
    ),
    "Backpack": (
        ("arc", (38, 4, 62, 28, 180, 360, 4), "ink"),
        ("round", (22, 16, 78, 90, 12), "main"),
        ("round", (30, 54, 70, 84, 6), "dark"),
        ("line", (34, 64, 66, 64, 1), "metal"),
        ("round", (28, 30, 72, 36, 2), "light"),
    ),
}


@functools.lru_cache(maxsize=256)
def photo(kind: str, colour: str, pattern: str, background: str, condition: str) -> bytes:
    """PNG of an ad's thing, 280 x 210 pixels; a grey card where no photo was given."""
    if kind not in RECIPES:
        return _no_photo()
    return draw(RECIPES[kind], colour, pattern, background, condition, SIZE)


_GROUND = {
    "wall": "indoors",
    "grass": "on grass",
    "planks": "on floorboards",
    "bricks": "before a brick wall",
    "pavement": "on a pavement",
}
_SEEN = {"worn": "scratched ", "new": "new "}


def short_caption(colour: str, pattern: str) -> str:
    """What a photo in a list tells beside its title, such as "red striped"."""
    return colour if pattern == "plain" else f"{colour} {pattern}"


def caption(kind: str, colour: str, pattern: str, background: str, condition: str) -> str:
    """What the photo shows, such as "scratched red striped tent on grass"; nothing that only the text tells."""
    return f"{_SEEN.get(condition, '')}{short_caption(colour, pattern)} {kind.lower()} {_GROUND[background]}"


def _no_photo() -> bytes:
    image = Image.new("RGB", SIZE, (226, 224, 218))
    canvas = ImageDraw.Draw(image)
    canvas.rounded_rectangle((90, 65, 190, 145), radius=10, outline=(170, 166, 158), width=5)
    canvas.ellipse((118, 82, 162, 126), outline=(170, 166, 158), width=5)
    return png(image)


def prepared(upload: bytes) -> bytes:
    """An uploaded picture as the site keeps it: PNG of the usual size.

    Raises:
        Refusal: it is too large or no picture.
    """
    if len(upload) > MAX_BYTES:
        raise Refusal("The photo is larger than 4 MB.")
    try:
        with Image.open(io.BytesIO(upload), formats=("PNG", "JPEG", "WEBP", "GIF")) as image:
            fitted = ImageOps.fit(image.convert("RGB"), SIZE)
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError):
        raise Refusal("The photo must be a PNG, JPEG, WebP or GIF picture.") from None
    return png(fitted)
