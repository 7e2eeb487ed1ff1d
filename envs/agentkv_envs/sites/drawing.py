"""Procedural photos: a thing drawn from a few shapes, in a colour and pattern, on a background.

A recipe is a list of shapes on a 100 x 100 canvas: (form, coordinates, paint). Forms are "poly" (x, y, ...), "round"
(x0, y0, x1, y1, radius), "oval" (x0, y0, x1, y1), "line" (x0, y0, x1, y1, width) and "arc" (x0, y0, x1, y1, start, end,
width; degrees). Paints are relative to the thing's colour, so one recipe serves all: "main", "dark", "light", and the
fixed ones of `FIXED`. Only shapes painted "main" carry the pattern.
"""

from __future__ import annotations

import io
import random

from PIL import Image, ImageDraw

Colour = tuple[int, int, int]
Shape = tuple[str, tuple[int, ...], str]
Recipe = tuple[Shape, ...]

COLOURS: dict[str, Colour] = {
    "black": (50, 52, 60),
    "white": (234, 234, 228),
    "red": (201, 58, 52),
    "blue": (52, 100, 188),
    "green": (62, 134, 88),
    "grey": (140, 146, 154),
    "brown": (134, 92, 60),
    "yellow": (232, 186, 62),
    "pink": (228, 142, 168),
    "orange": (230, 124, 46),
}
FIXED: dict[str, Colour] = {
    "metal": (178, 186, 194),
    "ink": (40, 42, 50),
    "wood": (170, 124, 80),
    "paper": (250, 248, 240),
    "glass": (158, 200, 222),
    "leaf": (92, 150, 96),
}
PATTERNS = ("plain", "striped", "dotted", "checked")
BACKGROUNDS = ("wall", "grass", "planks", "bricks", "pavement")
_SCALE = 2


def mix(colour: Colour, other: Colour, share: float) -> Colour:
    """A colour with `share` (0..1) of another in it."""
    r, g, b = (round(a * (1 - share) + o * share) for a, o in zip(colour, other, strict=True))
    return r, g, b


def _paint(name: str, main: Colour) -> Colour:
    if name == "dark":
        return mix(main, (0, 0, 0), 0.3)
    if name == "light":
        return mix(main, (255, 255, 255), 0.45)
    return FIXED.get(name, main)


def _draw(
    canvas: ImageDraw.ImageDraw, shape: Shape, fill: Colour | int, unit: float, left: float, top: float = 0.0
) -> None:
    form, numbers, _ = shape
    count = len(numbers) if form == "poly" else 4
    points = [n * unit + (left if i % 2 == 0 else top) for i, n in enumerate(numbers[:count])]
    if form == "poly":
        canvas.polygon(points, fill=fill)
    elif form == "round":
        canvas.rounded_rectangle(points, radius=numbers[4] * unit, fill=fill)
    elif form == "oval":
        canvas.ellipse(points, fill=fill)
    elif form == "line":
        canvas.line(points, fill=fill, width=max(1, round(numbers[4] * unit)))
    else:
        canvas.arc(points, numbers[4], numbers[5], fill=fill, width=max(1, round(numbers[6] * unit)))


def _backdrop(name: str, size: tuple[int, int]) -> Image.Image:
    """Where the photo was taken; the lower third is the ground."""
    width, height = size
    ground = round(height * 0.7)
    rng = random.Random(name)
    if name == "grass":
        image = Image.new("RGB", size, (190, 220, 240))
        canvas = ImageDraw.Draw(image)
        canvas.rectangle((0, ground - 60, width, height), fill=(128, 178, 104))
        for _ in range(260):
            x, y = rng.randrange(width), rng.randrange(ground - 56, height)
            canvas.line((x, y, x + rng.randrange(-3, 4), y - 9), fill=(98, 150, 84), width=2)
    elif name == "planks":
        image = Image.new("RGB", size, (232, 226, 214))
        canvas = ImageDraw.Draw(image)
        for row, y in enumerate(range(ground - 40, height, 34)):
            canvas.rectangle((0, y, width, y + 32), fill=(196 - 8 * (row % 2), 158, 116))
    elif name == "bricks":
        image = Image.new("RGB", size, (214, 196, 184))
        canvas = ImageDraw.Draw(image)
        for row, y in enumerate(range(0, ground, 34)):
            for x in range(-40 + 38 * (row % 2), width, 76):
                canvas.rectangle((x, y, x + 72, y + 30), fill=(190 + rng.randrange(-10, 10), 124, 104))
        canvas.rectangle((0, ground, width, height), fill=(150, 146, 142))
    elif name == "pavement":
        image = Image.new("RGB", size, (206, 214, 222))
        canvas = ImageDraw.Draw(image)
        canvas.rectangle((0, ground - 50, width, height), fill=(168, 170, 174))
        for x in range(0, width + 120, 90):
            canvas.line((x, ground - 50, x - 70, height), fill=(146, 148, 152), width=3)
    else:
        image = Image.new("RGB", size, (238, 234, 226))
        ImageDraw.Draw(image).rectangle((0, ground, width, height), fill=(214, 204, 190))
    return image


def _pattern(name: str, size: tuple[int, int], main: Colour) -> Image.Image:
    """A sheet of the pattern, to be seen through the shapes painted "main"."""
    light = mix(main, (255, 255, 255), 0.55) if sum(main) < 600 else mix(main, (0, 0, 0), 0.35)
    image = Image.new("RGB", size, main)
    canvas = ImageDraw.Draw(image)
    width, height = size
    if name in ("striped", "checked"):
        for x in range(0, width, 36):
            canvas.rectangle((x, 0, x + 10, height), fill=light)
    if name == "checked":
        for y in range(0, height, 36):
            canvas.rectangle((0, y, width, y + 10), fill=light)
    if name == "dotted":
        for y in range(0, height, 30):
            for x in range(15 * (y // 30 % 2), width, 30):
                canvas.ellipse((x, y, x + 12, y + 12), fill=light)
    return image


def _wear(canvas: ImageDraw.ImageDraw, mask: Image.Image, rng: random.Random) -> None:
    """Scratches, only where the thing is."""
    scratches = 0
    for _ in range(400):
        x, y = rng.randrange(mask.width), rng.randrange(mask.height)
        if mask.getpixel((x, y)):
            canvas.line((x, y, x + rng.randrange(8, 30), y + rng.randrange(-14, 15)), fill=(240, 236, 228), width=2)
            scratches += 1
        if scratches == 14:
            return


def draw(
    recipe: Recipe,
    colour: str,
    pattern: str = "plain",
    background: str = "wall",
    condition: str = "good",
    size: tuple[int, int] = (280, 210),
) -> bytes:
    """PNG of a thing.

    Args:
        recipe: its shapes.
        colour: one of `COLOURS`.
        pattern: one of `PATTERNS`.
        background: one of `BACKGROUNDS`.
        condition: "worn" adds scratches, "new" a price tag.
        size: width and height in pixels.
    """
    large = (size[0] * _SCALE, size[1] * _SCALE)
    unit = large[1] / 104
    left, top = (large[0] - 100 * unit) / 2, 2 * unit
    main = COLOURS[colour]
    image = _backdrop(background, large)
    canvas = ImageDraw.Draw(image)
    shadow = (left + 12 * unit, 84 * unit, left + 88 * unit, 97 * unit)
    canvas.ellipse(shadow, fill=mix(image.getpixel((4, large[1] - 4)), (0, 0, 0), 0.22))  # type: ignore[arg-type]
    sheet = _pattern(pattern, large, main) if pattern != "plain" else None
    for shape in recipe:
        if sheet is not None and shape[2] == "main":
            mask = Image.new("L", large)
            _draw(ImageDraw.Draw(mask), shape, 255, unit, left, top)
            image.paste(sheet, mask=mask)
        else:
            _draw(canvas, shape, _paint(shape[2], main), unit, left, top)
    if condition == "worn":
        whole = Image.new("L", large)
        for shape in recipe:
            _draw(ImageDraw.Draw(whole), shape, 255, unit, left, top)
        _wear(canvas, whole, random.Random(f"{colour}-{pattern}-{background}"))
    if condition == "new":
        canvas.line((large[0] - 120, 30, large[0] - 92, 62), fill=(90, 90, 96), width=3)
        canvas.rounded_rectangle((large[0] - 104, 58, large[0] - 36, 104), radius=8, fill=(255, 250, 220))
        canvas.line((large[0] - 92, 82, large[0] - 50, 82), fill=(201, 58, 52), width=6)
    return png(image.resize(size, Image.Resampling.BOX).quantize(96))


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
