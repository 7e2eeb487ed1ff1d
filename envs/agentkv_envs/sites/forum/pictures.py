"""Photographs in posts, drawn: a few things of one kind and colour before a background."""

from __future__ import annotations

import functools
import io
import random

from PIL import Image, ImageDraw

Paint = tuple[int, int, int]
_SIZE, _SCALE = (480, 320), 2
_COLOURS: dict[str, Paint] = {
    "red": (198, 62, 56),
    "blue": (58, 104, 184),
    "green": (74, 142, 88),
    "grey": (138, 144, 150),
    "black": (48, 50, 58),
    "white": (240, 240, 234),
    "yellow": (232, 190, 62),
    "orange": (226, 128, 50),
}
_FIXED: dict[str, Paint] = {"ink": (44, 44, 52), "wood": (160, 116, 76), "pale": (246, 240, 226), "leaf": (88, 142, 84)}
# Upper and lower half of the background.
_SCENES: tuple[tuple[Paint, Paint], ...] = (
    ((196, 220, 236), (150, 178, 120)),
    ((236, 224, 206), (196, 162, 124)),
    ((214, 210, 226), (170, 168, 182)),
    ((250, 222, 190), (206, 172, 140)),
    ((182, 206, 214), (128, 160, 172)),
)
NUMBERS = ("no", "one", "two", "three", "four", "five")

# Shapes on a canvas of 100 x 100: what, coordinates, paint ("main" is the thing's colour, "dark" a shade of it).
_SHAPES: dict[str, tuple[tuple[str, tuple[int, ...], str], ...]] = {
    "plant": (
        ("oval", (18, 10, 52, 50), "leaf"),
        ("oval", (48, 6, 84, 46), "leaf"),
        ("oval", (34, 0, 66, 52), "leaf"),
        ("poly", (28, 52, 72, 52, 64, 98, 36, 98), "main"),
    ),
    "watering can": (
        ("box", (30, 38, 74, 92), "main"),
        ("poly", (30, 62, 4, 36, 12, 30, 30, 46), "dark"),
        ("ring", (60, 34, 98, 82), "dark"),
        ("oval", (0, 26, 16, 42), "ink"),
    ),
    "basket": (
        ("ring", (22, 6, 78, 86), "wood"),
        ("poly", (14, 46, 86, 46, 74, 94, 26, 94), "main"),
        ("box", (12, 42, 88, 52), "dark"),
    ),
    "vase": (("oval", (26, 32, 74, 96), "main"), ("box", (40, 10, 60, 44), "main"), ("box", (36, 6, 64, 14), "dark")),
    "lamp": (
        ("poly", (32, 6, 68, 6, 84, 46, 16, 46), "main"),
        ("box", (47, 46, 53, 88), "wood"),
        ("oval", (30, 84, 70, 98), "wood"),
    ),
    "bowl": (("pie", (8, 16, 92, 96), "main"), ("box", (36, 92, 64, 98), "dark")),
    "cake": (("box", (12, 50, 88, 92), "main"), ("box", (12, 44, 88, 60), "pale"), ("oval", (42, 26, 58, 44), "dark")),
    "mug": (("ring", (56, 34, 96, 78), "dark"), ("box", (20, 22, 72, 92), "main"), ("box", (20, 22, 72, 30), "dark")),
    "bread": (
        ("oval", (6, 36, 94, 96), "main"),
        ("box", (28, 48, 34, 70), "pale"),
        ("box", (48, 44, 54, 70), "pale"),
        ("box", (66, 48, 72, 70), "pale"),
    ),
    "mountain": (
        ("poly", (0, 98, 44, 6, 92, 98), "main"),
        ("poly", (30, 36, 44, 6, 60, 36, 46, 46), "pale"),
        ("poly", (52, 98, 76, 44, 100, 98), "dark"),
    ),
    "tent": (("poly", (4, 94, 50, 12, 96, 94), "main"), ("poly", (36, 94, 50, 40, 64, 94), "ink")),
    "boot": (("box", (30, 8, 62, 70), "main"), ("oval", (30, 50, 96, 94), "main"), ("box", (28, 84, 96, 96), "ink")),
    "bicycle": (
        ("ring", (2, 46, 44, 96), "ink"),
        ("ring", (56, 46, 98, 96), "ink"),
        ("poly", (22, 70, 38, 32, 74, 32, 50, 72), "main"),
        ("box", (28, 26, 46, 32), "ink"),
    ),
    "helmet": (("pie", (8, -8, 92, 100), "main"), ("box", (8, 44, 92, 54), "dark")),
    "bird": (
        ("oval", (20, 36, 82, 84), "main"),
        ("oval", (58, 14, 90, 48), "main"),
        ("poly", (88, 28, 100, 34, 88, 38), "ink"),
        ("poly", (24, 52, 0, 40, 8, 70), "dark"),
        ("oval", (74, 22, 80, 28), "pale"),
    ),
    "nest box": (
        ("poly", (8, 34, 50, 4, 92, 34), "dark"),
        ("box", (18, 34, 82, 96), "main"),
        ("oval", (38, 46, 62, 70), "ink"),
    ),
    "binoculars": (
        ("box", (10, 16, 44, 92), "main"),
        ("box", (56, 16, 90, 92), "main"),
        ("box", (42, 36, 58, 58), "dark"),
    ),
    "chair": (
        ("box", (22, 4, 34, 96), "main"),
        ("box", (22, 52, 80, 62), "dark"),
        ("box", (70, 58, 80, 96), "main"),
        ("box", (30, 12, 38, 46), "main"),
    ),
    "box": (("box", (10, 34, 90, 94), "main"), ("box", (10, 24, 90, 40), "dark")),
    "stool": (
        ("box", (12, 34, 88, 46), "main"),
        ("poly", (22, 46, 32, 46, 22, 96, 12, 96), "dark"),
        ("poly", (68, 46, 78, 46, 88, 96, 78, 96), "dark"),
    ),
    "kettle": (
        ("oval", (18, 32, 78, 96), "main"),
        ("poly", (72, 54, 98, 36, 98, 46, 76, 76), "dark"),
        ("ring", (26, 4, 70, 60), "ink"),
    ),
    "sweater": (
        ("box", (26, 16, 74, 92), "main"),
        ("poly", (26, 16, 0, 62, 14, 70, 30, 44), "dark"),
        ("poly", (74, 16, 100, 62, 86, 70, 70, 44), "dark"),
    ),
    "hat": (("pie", (18, 6, 82, 118), "main"), ("box", (14, 58, 86, 74), "dark"), ("oval", (42, 0, 58, 16), "pale")),
    "boat": (
        ("poly", (4, 64, 96, 64, 80, 94, 20, 94), "main"),
        ("box", (46, 6, 50, 64), "wood"),
        ("poly", (52, 8, 90, 56, 52, 56), "pale"),
    ),
    "house": (
        ("poly", (4, 46, 50, 6, 96, 46), "dark"),
        ("box", (14, 46, 86, 96), "main"),
        ("box", (42, 62, 60, 96), "ink"),
        ("box", (22, 56, 36, 70), "pale"),
    ),
    "dice": (
        ("box", (12, 12, 88, 88), "main"),
        ("oval", (24, 24, 38, 38), "ink"),
        ("oval", (62, 62, 76, 76), "ink"),
        ("oval", (43, 43, 57, 57), "ink"),
    ),
    "table": (("box", (2, 34, 98, 46), "main"), ("box", (10, 46, 18, 96), "dark"), ("box", (82, 46, 90, 96), "dark")),
    "fish": (
        ("oval", (4, 28, 78, 76), "main"),
        ("poly", (70, 52, 98, 26, 98, 78), "dark"),
        ("oval", (18, 42, 26, 50), "ink"),
    ),
    "dog": (
        ("box", (16, 40, 74, 70), "main"),
        ("box", (16, 66, 26, 96), "main"),
        ("box", (62, 66, 72, 96), "main"),
        ("box", (62, 14, 92, 46), "main"),
        ("poly", (62, 14, 56, 38, 70, 30), "dark"),
        ("oval", (78, 22, 84, 28), "ink"),
    ),
    "cat": (
        ("oval", (24, 44, 78, 98), "main"),
        ("oval", (28, 12, 72, 56), "main"),
        ("poly", (30, 24, 32, 2, 46, 16), "dark"),
        ("poly", (70, 24, 68, 2, 54, 16), "dark"),
        ("oval", (38, 28, 44, 34), "ink"),
        ("oval", (56, 28, 62, 34), "ink"),
    ),
    "guitar": (
        ("oval", (22, 52, 78, 98), "main"),
        ("oval", (32, 36, 68, 68), "main"),
        ("box", (46, 0, 54, 54), "wood"),
        ("oval", (42, 58, 58, 74), "ink"),
    ),
    "drum": (("box", (12, 36, 88, 86), "main"), ("oval", (12, 22, 88, 50), "pale"), ("oval", (12, 72, 88, 98), "dark")),
    "book": (
        ("poly", (6, 20, 50, 32, 94, 20, 94, 80, 50, 94, 6, 80), "main"),
        ("poly", (12, 22, 49, 34, 49, 86, 12, 74), "pale"),
        ("poly", (88, 22, 51, 34, 51, 86, 88, 74), "pale"),
    ),
}


def caption(kind: str, colour: str, count: int) -> str:
    """What a picture shows: "three red mugs"."""
    if count == 1:
        return f"one {colour} {kind}"
    plural = {"fish": "fish", "dice": "dice", "binoculars": "binoculars", "nest box": "nest boxes", "box": "boxes"}
    return f"{NUMBERS[count]} {colour} {plural.get(kind, kind + 's')}"


@functools.lru_cache(maxsize=512)
def picture(kind: str, colour: str, count: int, scene: int) -> bytes:
    """A PNG of `count` things; `scene` chooses background and places."""
    upper, lower = _SCENES[scene % len(_SCENES)]
    width, height = _SIZE[0] * _SCALE, _SIZE[1] * _SCALE
    image = Image.new("RGB", (width, height), upper)
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, height * 3 // 5, width, height), fill=lower)
    rng = random.Random(f"picture-{kind}-{colour}-{count}-{scene}")
    side = int(min(height * 0.62, width / count * 0.86))
    for i in range(count):
        x = int((i + 0.5) * width / count - side / 2 + rng.uniform(-0.05, 0.05) * side)
        y = int(height * 0.86 - side - rng.random() * height * 0.1)
        pen.ellipse((x + side * 0.06, y + side * 0.9, x + side * 0.94, y + side * 1.04), fill=_shade(lower, 0.82))
        _draw(pen, kind, _COLOURS[colour], (x, y, side))
    out = io.BytesIO()
    image.resize(_SIZE, Image.Resampling.BILINEAR).save(out, "PNG")
    return out.getvalue()


def _shade(paint: Paint, factor: float) -> Paint:
    red, green, blue = (min(255, int(part * factor)) for part in paint)
    return red, green, blue


def _draw(pen: ImageDraw.ImageDraw, kind: str, colour: Paint, place: tuple[int, int, int]) -> None:
    left, top, side = place
    paints = {**_FIXED, "main": colour, "dark": _shade(colour, 0.72)}
    for shape, at, name in _SHAPES[kind]:
        points = [(left if i % 2 == 0 else top) + value * side / 100 for i, value in enumerate(at)]
        if shape == "oval":
            pen.ellipse(points, fill=paints[name])
        elif shape == "poly":
            pen.polygon(points, fill=paints[name])
        elif shape == "ring":
            pen.ellipse(points, outline=paints[name], width=max(3, side // 16))
        elif shape == "pie":
            low, high = (180, 360) if kind in ("helmet", "hat") else (0, 180)
            pen.pieslice(points, low, high, fill=paints[name])
        else:
            pen.rounded_rectangle(points, max(1, side // 40), fill=paints[name])
