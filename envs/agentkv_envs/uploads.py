"""The pictures an agent can upload: a fixed folder of samples, drawn here, that tasks name."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import ImageDraw

Colour = tuple[int, int, int]

_COLOURS: dict[str, Colour] = {
    "red": (200, 60, 56),
    "blue": (56, 104, 188),
    "green": (64, 140, 92),
    "yellow": (226, 186, 70),
}
# Shapes on a 100 x 100 canvas: (form, box or points, whether in the picture's colour).
_THINGS: dict[str, tuple[tuple[str, tuple[int, ...], bool], ...]] = {
    "bicycle": (
        ("ring", (8, 46, 44, 82), False),
        ("ring", (56, 46, 92, 82), False),
        ("line", (26, 64, 42, 34, 74, 64), True),
        ("line", (42, 34, 66, 34), True),
        ("line", (64, 26, 74, 64), True),
    ),
    "lamp": (
        ("poly", (34, 16, 66, 16, 82, 50, 18, 50), True),
        ("box", (47, 50, 53, 84), False),
        ("box", (32, 82, 68, 90), False),
    ),
    "chair": (
        ("box", (30, 10, 70, 50), True),
        ("box", (26, 52, 74, 62), True),
        ("box", (28, 62, 33, 92), False),
        ("box", (67, 62, 72, 92), False),
    ),
    "mug": (("box", (28, 28, 66, 82), True), ("ring", (58, 38, 84, 70), True), ("box", (28, 28, 66, 34), False)),
}
# File name to what the picture shows: the oracle caption of a site that shows it.
UPLOADS: dict[str, str] = {f"{colour}-{thing}.png": f"{colour} {thing}" for thing in _THINGS for colour in _COLOURS}


@functools.lru_cache(maxsize=len(UPLOADS))
def upload_bytes(name: str) -> bytes:
    """PNG of a sample, 320 x 320 pixels.

    Raises:
        KeyError: there is no sample of this name.
    """
    from PIL import Image, ImageDraw  # names are read where no picture is needed

    colour, thing = UPLOADS[name].split(" ")
    image = Image.new("RGB", (640, 640), (244, 242, 236))
    canvas = ImageDraw.Draw(image)
    for form, numbers, painted in _THINGS[thing]:
        _draw(canvas, form, [n * 6.4 for n in numbers], _COLOURS[colour] if painted else (60, 62, 68))
    out = io.BytesIO()
    image.resize((320, 320), Image.Resampling.BOX).save(out, "PNG")
    return out.getvalue()


def _draw(canvas: ImageDraw.ImageDraw, form: str, numbers: Sequence[float], paint: Colour) -> None:
    if form == "ring":
        canvas.ellipse(numbers, outline=paint, width=26)
    elif form == "line":
        canvas.line(numbers, fill=paint, width=26)
    elif form == "poly":
        canvas.polygon(numbers, fill=paint)
    else:
        canvas.rectangle(numbers, fill=paint)
