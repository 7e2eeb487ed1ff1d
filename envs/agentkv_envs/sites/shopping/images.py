"""Product pictures, drawn from a small vector recipe per kind of product.

A recipe is a list of shapes on a 100 x 100 canvas: (shape, coordinates, paint). Paints are relative to the
product's colour, so one recipe serves all colours: "main", "dark", "light", and the fixed "metal", "ink",
"wood" and "paper".
"""

from __future__ import annotations

import functools
import io

from PIL import Image, ImageDraw

Colour = tuple[int, int, int]
Shape = tuple[str, tuple[int, ...], str]

_COLOURS: dict[str, Colour] = {
    "Black": (52, 54, 62),
    "White": (236, 236, 232),
    "Red": (205, 62, 58),
    "Blue": (58, 106, 190),
    "Green": (66, 140, 94),
    "Grey": (142, 148, 156),
    "Beige": (214, 192, 158),
    "Pink": (230, 150, 172),
}
_FIXED: dict[str, Colour] = {
    "metal": (176, 184, 192),
    "ink": (44, 46, 54),
    "wood": (166, 120, 78),
    "paper": (250, 248, 240),
}
_SIZE, _SCALE = 280, 2

_RECIPES: dict[str, tuple[Shape, ...]] = {
    "Toaster": (
        ("round", (18, 40, 82, 80, 10), "main"),
        ("round", (30, 28, 46, 52, 3), "wood"),
        ("round", (54, 28, 70, 52, 3), "wood"),
        ("round", (18, 46, 82, 80, 10), "main"),
        ("round", (84, 52, 90, 60, 2), "ink"),
        ("oval", (66, 62, 76, 72), "metal"),
    ),
    "Kettle": (
        ("poly", (34, 34, 66, 34, 76, 82, 24, 82), "main"),
        ("poly", (26, 50, 12, 36, 18, 34, 32, 44), "dark"),
        ("arc", (58, 30, 92, 72, 270, 90, 6), "ink"),
        ("round", (44, 24, 56, 34, 4), "ink"),
        ("round", (22, 80, 78, 86, 3), "metal"),
    ),
    "Blender": (
        ("poly", (32, 16, 68, 16, 62, 60, 38, 60), "light"),
        ("poly", (34, 36, 66, 36, 62, 60, 38, 60), "main"),
        ("round", (30, 10, 70, 18, 3), "ink"),
        ("poly", (36, 62, 64, 62, 72, 88, 28, 88), "dark"),
        ("oval", (44, 70, 56, 82), "metal"),
    ),
    "Frying Pan": (
        ("round", (62, 47, 96, 54, 3), "wood"),
        ("oval", (8, 22, 66, 80), "dark"),
        ("oval", (14, 28, 60, 74), "main"),
        ("oval", (20, 33, 44, 52), "light"),
    ),
    "Table Lamp": (
        ("poly", (34, 14, 66, 14, 80, 50, 20, 50), "main"),
        ("round", (47, 50, 53, 82, 1), "wood"),
        ("oval", (32, 78, 68, 90), "wood"),
        ("poly", (40, 18, 46, 18, 38, 46, 30, 46), "light"),
    ),
    "Pillow": (
        ("round", (16, 22, 84, 80, 18), "dark"),
        ("round", (19, 24, 81, 76, 18), "main"),
        ("line", (30, 36, 70, 64, 2), "light"),
        ("line", (70, 36, 30, 64, 2), "light"),
    ),
    "Wall Clock": (
        ("oval", (14, 14, 86, 86), "main"),
        ("oval", (22, 22, 78, 78), "paper"),
        ("line", (50, 50, 50, 30, 3), "ink"),
        ("line", (50, 50, 66, 58, 3), "ink"),
        ("oval", (47, 47, 53, 53), "ink"),
    ),
    "Rug": (
        ("round", (10, 30, 90, 74, 3), "dark"),
        ("round", (14, 34, 86, 70, 2), "main"),
        ("round", (22, 42, 78, 62, 2), "light"),
        ("poly", (50, 44, 60, 52, 50, 60, 40, 52), "dark"),
    ),
    "Headphones": (
        ("arc", (20, 16, 80, 84, 180, 360, 7), "main"),
        ("round", (14, 48, 32, 80, 7), "dark"),
        ("round", (68, 48, 86, 80, 7), "dark"),
        ("round", (28, 52, 36, 76, 3), "ink"),
        ("round", (64, 52, 72, 76, 3), "ink"),
    ),
    "Speaker": (
        ("round", (28, 12, 72, 88, 8), "main"),
        ("oval", (36, 44, 64, 72), "ink"),
        ("oval", (43, 51, 57, 65), "metal"),
        ("oval", (42, 20, 58, 36), "ink"),
    ),
    "Charger": (
        ("round", (28, 34, 72, 84, 8), "main"),
        ("round", (38, 18, 43, 36, 1), "metal"),
        ("round", (57, 18, 62, 36, 1), "metal"),
        ("round", (42, 66, 58, 72, 2), "ink"),
    ),
    "Mouse": (
        ("round", (32, 18, 68, 84, 17), "main"),
        ("line", (50, 18, 50, 46, 1), "dark"),
        ("round", (47, 28, 53, 42, 3), "ink"),
        ("arc", (34, 40, 66, 80, 20, 160, 2), "light"),
    ),
    "Notebook": (
        ("round", (26, 14, 78, 88, 4), "dark"),
        ("round", (22, 12, 74, 86, 4), "main"),
        ("round", (34, 26, 62, 40, 2), "paper"),
        ("round", (22, 12, 28, 86, 2), "dark"),
    ),
    "Desk Organizer": (
        ("line", (34, 14, 38, 56, 4), "wood"),
        ("line", (52, 18, 48, 56, 4), "metal"),
        ("line", (66, 22, 62, 56, 4), "light"),
        ("round", (18, 46, 82, 84, 4), "main"),
        ("round", (50, 46, 54, 84, 1), "dark"),
    ),
    "Office Chair": (
        ("round", (30, 10, 70, 54, 8), "main"),
        ("round", (24, 54, 76, 66, 5), "dark"),
        ("round", (47, 66, 53, 82, 1), "metal"),
        ("line", (50, 80, 26, 90, 4), "ink"),
        ("line", (50, 80, 74, 90, 4), "ink"),
    ),
    "Stapler": (
        ("poly", (14, 58, 78, 34, 88, 44, 86, 56, 18, 66), "main"),
        ("round", (12, 70, 90, 80, 3), "dark"),
        ("round", (20, 64, 30, 74, 2), "metal"),
    ),
    "Watering Can": (
        ("round", (34, 38, 78, 84, 6), "main"),
        ("poly", (36, 66, 12, 36, 18, 32, 38, 52), "dark"),
        ("oval", (8, 28, 22, 42), "metal"),
        ("arc", (40, 18, 76, 60, 180, 360, 5), "dark"),
    ),
    "Planter": (
        ("oval", (22, 12, 50, 50), "leaf"),
        ("oval", (48, 8, 78, 50), "leaf"),
        ("oval", (36, 16, 64, 54), "leaf"),
        ("poly", (22, 48, 78, 48, 70, 88, 30, 88), "main"),
        ("round", (18, 44, 82, 54, 3), "dark"),
    ),
    "Garden Hose": (
        ("arc", (14, 18, 86, 82, 0, 360, 8), "main"),
        ("arc", (26, 30, 74, 70, 0, 360, 8), "dark"),
        ("arc", (38, 40, 62, 60, 0, 360, 6), "main"),
        ("round", (78, 62, 94, 70, 2), "metal"),
    ),
    "Shears": (
        ("poly", (46, 50, 60, 8, 64, 12, 54, 54), "metal"),
        ("poly", (54, 50, 40, 8, 36, 12, 46, 54), "metal"),
        ("arc", (22, 50, 50, 92, 0, 360, 6), "main"),
        ("arc", (50, 50, 78, 92, 0, 360, 6), "main"),
        ("oval", (46, 46, 54, 54), "ink"),
    ),
    "Yoga Mat": (
        ("poly", (30, 60, 90, 60, 96, 78, 30, 78), "light"),
        ("round", (10, 40, 62, 78, 18), "main"),
        ("oval", (8, 40, 32, 78), "dark"),
        ("oval", (14, 50, 26, 68), "light"),
    ),
    "Bottle": (
        ("round", (36, 28, 64, 90, 8), "main"),
        ("round", (42, 10, 58, 28, 3), "ink"),
        ("round", (36, 52, 64, 66, 1), "light"),
        ("line", (42, 34, 42, 84, 2), "light"),
    ),
    "Dumbbell": (
        ("round", (30, 46, 70, 54, 2), "metal"),
        ("round", (12, 32, 24, 68, 4), "dark"),
        ("round", (22, 26, 34, 74, 4), "main"),
        ("round", (66, 26, 78, 74, 4), "main"),
        ("round", (76, 32, 88, 68, 4), "dark"),
    ),
    "Tent": (
        ("poly", (50, 18, 94, 80, 6, 80), "main"),
        ("poly", (50, 18, 62, 80, 38, 80), "dark"),
        ("poly", (50, 18, 50, 80, 38, 80), "ink"),
        ("line", (50, 18, 50, 10, 2), "wood"),
    ),
    "Jacket": (
        (
            "poly",
            (34, 16, 66, 16, 82, 24, 94, 70, 82, 75, 73, 46, 73, 88, 27, 88, 27, 46, 18, 75, 6, 70, 18, 24),
            "main",
        ),
        ("line", (50, 22, 50, 88, 2), "light"),
        ("poly", (38, 12, 62, 12, 56, 26, 44, 26), "dark"),
        ("round", (33, 62, 44, 74, 2), "dark"),
        ("round", (56, 62, 67, 74, 2), "dark"),
    ),
    "Sweater": (
        (
            "poly",
            (34, 18, 66, 18, 82, 26, 95, 70, 83, 76, 73, 48, 73, 86, 27, 86, 27, 48, 17, 76, 5, 70, 18, 26),
            "main",
        ),
        ("arc", (40, 8, 60, 28, 0, 180, 4), "dark"),
        ("line", (30, 56, 70, 56, 3), "light"),
        ("line", (30, 64, 70, 64, 3), "light"),
        ("round", (28, 80, 72, 86, 1), "dark"),
    ),
    "Shoes": (
        ("poly", (12, 34, 34, 34, 44, 48, 82, 58, 90, 70, 12, 70), "main"),
        ("round", (10, 68, 92, 78, 4), "light"),
        ("line", (36, 40, 46, 54, 2), "paper"),
        ("line", (44, 44, 54, 58, 2), "paper"),
        ("poly", (12, 34, 24, 34, 20, 60, 12, 60), "dark"),
    ),
    "Backpack": (
        ("arc", (38, 6, 62, 30, 180, 360, 4), "ink"),
        ("round", (24, 16, 76, 88, 14), "main"),
        ("round", (32, 54, 68, 80, 6), "dark"),
        ("line", (30, 40, 70, 40, 2), "light"),
        ("round", (46, 60, 54, 64, 1), "metal"),
    ),
    "Blocks": (
        ("round", (14, 54, 46, 86, 3), "main"),
        ("round", (52, 54, 84, 86, 3), "dark"),
        ("round", (33, 18, 65, 50, 3), "light"),
        ("oval", (24, 64, 36, 76), "light"),
        ("poly", (68, 62, 78, 78, 58, 78), "paper"),
    ),
    "Plush Bear": (
        ("oval", (18, 10, 38, 30), "dark"),
        ("oval", (62, 10, 82, 30), "dark"),
        ("oval", (24, 12, 76, 58), "main"),
        ("oval", (26, 50, 74, 92), "main"),
        ("oval", (40, 34, 60, 52), "light"),
        ("oval", (36, 28, 42, 34), "ink"),
        ("oval", (58, 28, 64, 34), "ink"),
        ("oval", (46, 37, 54, 43), "ink"),
    ),
    "Puzzle": (
        ("round", (16, 22, 48, 52, 2), "main"),
        ("round", (52, 22, 84, 52, 2), "light"),
        ("round", (16, 54, 48, 84, 2), "dark"),
        ("round", (56, 60, 88, 90, 2), "main"),
        ("oval", (44, 32, 56, 44), "main"),
        ("oval", (26, 48, 38, 60), "dark"),
    ),
    "Kite": (
        ("poly", (50, 8, 80, 42, 50, 78, 20, 42), "main"),
        ("poly", (50, 8, 80, 42, 50, 42), "light"),
        ("poly", (50, 78, 20, 42, 50, 42), "dark"),
        ("arc", (44, 72, 64, 92, 90, 270, 2), "ink"),
        ("line", (50, 8, 50, 78, 1), "ink"),
    ),
}


def _mix(colour: Colour, other: Colour, share: float) -> Colour:
    r, g, b = (round(a * (1 - share) + o * share) for a, o in zip(colour, other, strict=True))
    return r, g, b


def _paint(name: str, main: Colour) -> Colour:
    if name == "dark":
        return _mix(main, (0, 0, 0), 0.28)
    if name == "light":
        return _mix(main, (255, 255, 255), 0.42)
    if name == "leaf":
        return (92, 150, 96)
    return _FIXED.get(name, main)


def _draw(canvas: ImageDraw.ImageDraw, shape: Shape, main: Colour, unit: float) -> None:
    form, numbers, paint = shape
    fill = _paint(paint, main)
    if form == "poly":
        canvas.polygon([n * unit for n in numbers], fill=fill)
        return
    box = [n * unit for n in numbers[:4]]
    if form == "round":
        canvas.rounded_rectangle(box, radius=numbers[4] * unit, fill=fill)
    elif form == "oval":
        canvas.ellipse(box, fill=fill)
    elif form == "line":
        canvas.line(box, fill=fill, width=round(numbers[4] * unit))
    else:
        canvas.arc(box, numbers[4], numbers[5], fill=fill, width=round(numbers[6] * unit))


@functools.lru_cache(maxsize=512)
def product_picture(kind: str, colour: str) -> bytes:
    """PNG of a product, 280 x 280 pixels."""
    main = _COLOURS.get(colour, _FIXED["metal"])
    side = _SIZE * _SCALE
    image = Image.new("RGB", (side, side), _mix(main, (246, 244, 250), 0.88))
    canvas = ImageDraw.Draw(image)
    unit = side / 100
    canvas.ellipse([18 * unit, 82 * unit, 82 * unit, 94 * unit], fill=_mix(main, (214, 214, 222), 0.8))
    for shape in _RECIPES[kind]:
        _draw(canvas, shape, main, unit)
    out = io.BytesIO()
    image.resize((_SIZE, _SIZE), Image.Resampling.BOX).quantize(64).save(out, "PNG")
    return out.getvalue()
