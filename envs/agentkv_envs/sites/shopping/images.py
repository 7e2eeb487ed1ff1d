"""Product pictures, drawn from a small vector recipe per kind of product.

A recipe (a line of `recipes.txt`) is a list of shapes on a 100 x 100 canvas: form, coordinates, paint. Paints are
relative to the product's colour, so one recipe serves all colours: "main", "dark", "light"; the others are fixed.
"""

from __future__ import annotations

import functools
import io
from importlib import resources

from PIL import Image, ImageDraw

Colour = tuple[int, int, int]
Shape = tuple[str, tuple[int, ...], str]

COLOURS: dict[str, Colour] = {
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
    "leaf": (92, 150, 96),
    "sky": (206, 224, 236),
    "glow": (250, 190, 70),
}
# What customers photograph their things on: the words of the caption, the colour of the ground.
GROUNDS: tuple[tuple[str, Colour], ...] = (
    ("on a wooden table", (196, 154, 108)),
    ("on green grass", (120, 172, 98)),
    ("on a blue cloth", (122, 160, 214)),
    ("on a white sheet", (240, 240, 238)),
    ("on a red carpet", (190, 92, 84)),
    ("on a grey floor", (150, 154, 160)),
)
_SIZE, _SCALE = 280, 2


@functools.lru_cache(maxsize=1)
def recipes() -> dict[str, tuple[Shape, ...]]:
    """The shapes of every kind."""
    text = resources.files(__package__ or "").joinpath("recipes.txt").read_text("utf-8")
    lines = [line.partition(": ") for line in text.splitlines() if not line.startswith("#")]
    return {kind: tuple(_shape(shape) for shape in shapes.split("; ")) for kind, _, shapes in lines}


def _shape(text: str) -> Shape:
    form, numbers, paint = text.split(" ")
    return form, tuple(int(n) for n in numbers.split(",")), paint


def _mix(colour: Colour, other: Colour, share: float) -> Colour:
    r, g, b = (round(a * (1 - share) + o * share) for a, o in zip(colour, other, strict=True))
    return r, g, b


def _paint(name: str, main: Colour) -> Colour:
    if name == "dark":
        return _mix(main, (0, 0, 0), 0.28)
    if name == "light":
        return _mix(main, (255, 255, 255), 0.42)
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


def _thing(canvas: ImageDraw.ImageDraw, kind: str, main: Colour, shadow: Colour) -> None:
    unit = _SIZE * _SCALE / 100
    canvas.ellipse([18 * unit, 82 * unit, 82 * unit, 94 * unit], fill=shadow)
    for shape in recipes()[kind]:
        _draw(canvas, shape, main, unit)


def _png(image: Image.Image, size: int) -> bytes:
    out = io.BytesIO()
    image.resize((size, size), Image.Resampling.BOX).quantize(64).save(out, "PNG")
    return out.getvalue()


@functools.lru_cache(maxsize=512)
def product_picture(kind: str, colour: str) -> bytes:
    """PNG of a product, 280 x 280 pixels."""
    main = COLOURS.get(colour, _FIXED["metal"])
    image = Image.new("RGB", (_SIZE * _SCALE, _SIZE * _SCALE), _mix(main, (246, 244, 250), 0.88))
    _thing(ImageDraw.Draw(image), kind, main, _mix(main, (214, 214, 222), 0.8))
    return _png(image, _SIZE)


@functools.lru_cache(maxsize=256)
def customer_photo(kind: str, colour: str, ground: int) -> bytes:
    """PNG of a product as a customer photographs it, on `GROUNDS[ground]`; 160 x 160 pixels, a little askew."""
    main, floor = COLOURS.get(colour, _FIXED["metal"]), GROUNDS[ground][1]
    image = Image.new("RGB", (_SIZE * _SCALE, _SIZE * _SCALE), floor)
    canvas = ImageDraw.Draw(image)
    for y in range(0, _SIZE * _SCALE, 56):
        canvas.line([0, y, _SIZE * _SCALE, y + 20], fill=_mix(floor, (0, 0, 0), 0.08), width=3)
    _thing(canvas, kind, main, _mix(floor, (0, 0, 0), 0.25))
    return _png(image.rotate(6 - 4 * (ground % 4), Image.Resampling.BILINEAR, fillcolor=floor), 160)
