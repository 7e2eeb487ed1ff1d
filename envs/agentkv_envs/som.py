"""Set-of-mark observations: a screenshot with numbered boxes, and the list of what the boxes are."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from PIL import Image, ImageDraw, ImageFont

from agentkv_envs.contexts import VIEWPORT
from agentkv_envs.inline import Mark, is_mark, parts_of
from agentkv_envs.observe import PageState, Rendered, Surroundings, TokenCounter, finish, head_lines, read_page
from agentkv_envs.snapshot import Node
from agentkv_envs.types import Element, Observation

Box = tuple[float, float, float, float]
# Texts are cut at so many characters; 0 leaves out what no action can name.
_CUTS = (200, 80, 40, 0)
_TOO_LARGE = 0.8
_TAGS = {
    "link": "A",
    "button": "BUTTON",
    "combobox": "SELECT",
    "listbox": "SELECT",
    "tab": "TAB",
    "menuitem": "MENUITEM",
}
_COLOURS = ("#c2185b", "#1565c0", "#2e7d32", "#e65100", "#6a1b9a", "#00838f", "#4e342e", "#455a64")

# What one line of the list is: something an action can name, or (tag, text).
Entry = Mark | tuple[str, str]


def observe_som(
    snapshot: str, state: PageState, around: Surroundings, style: str, count_tokens: TokenCounter, limit: int
) -> Observation:
    """What is on the screen as the list that goes with a marked screenshot.

    One line per element, `link "toaster" [7]` or, in the benchmark's style, `[7] [A] [toaster]`; texts and pictures
    between them have no number. Only what the viewport shows is listed; scrolling brings the rest.
    """
    root, alive = read_page(snapshot, around)
    entries = list(_entries(root, None))
    marks = [entry for entry in entries if isinstance(entry, Mark)]
    ids = state.ids.copy()
    numbers = ids.assign((mark.key for mark in marks), alive)
    head = [str(part) for line in head_lines(around) for part in line]
    head += [f"alert: {message}" for message in around.messages]
    head += ["page still loading"] if around.loading else []
    for cut in _CUTS:
        lines = [*head, *_lines(entries, numbers, style, cut)]
        if count_tokens("\n".join(lines)) <= limit:
            break
    while count_tokens("\n".join(lines)) > limit and marks:
        # Not even the elements alone: as many as fit, the upper ones first.
        marks = marks[: len(marks) * 3 // 4]
        numbers = {mark.key: numbers[mark.key] for mark in marks if mark.key in numbers}
        lines = [*head, *_lines(marks, numbers, style, 0), "more below; not all is listed"]
    text = "\n".join(lines)
    shown = {number: mark for mark in marks if (number := numbers.get(mark.key)) is not None}
    rendered = Rendered(text, ids, shown)
    return finish(rendered, snapshot, state, around, around.messages, style)


def _entries(node: Node, box: Box | None) -> Iterator[Entry]:
    """Elements, texts and pictures on the screen, in reading order; `box` is the nearest known one around them."""
    for child in node.children:
        inner = child.box or box
        if inner is not None and not _on_screen(inner):
            continue
        if is_mark(child):
            parts = parts_of(child, frozenset())
            yield from (part for part in parts if isinstance(part, Mark) and part.role != "expand" and _fits(part.box))
            yield from (("IMG", str(part)[5:-1]) for part in parts if not isinstance(part, Mark))
        elif child.role == "img":
            said = ", ".join(filter(None, (child.name, child.attrs.get("caption"))))
            if said:
                yield "IMG", said
        else:
            if child.text or (child.name and not child.children):
                yield "StaticText", child.text or child.name
            yield from _entries(child, inner)


def _on_screen(box: Box) -> bool:
    x, y, width, height = box
    return x + width > 0 and y + height > 0 and x < VIEWPORT["width"] and y < VIEWPORT["height"]


def _fits(box: Box | None) -> bool:
    """Whether a box helps to find something: one over most of the screen does not."""
    return box is None or box[2] * box[3] <= _TOO_LARGE * VIEWPORT["width"] * VIEWPORT["height"]


def _lines(entries: Iterable[Entry], numbers: dict[str, int], style: str, cut: int) -> Iterator[str]:
    before: list[str] = []
    entries = list(entries)
    for entry, following in zip(entries, [*entries[1:], None], strict=False):
        if isinstance(entry, tuple) and isinstance(following, Mark) and entry[1] == following.label:
            continue  # a field's own label
        line = _mark_line(entry, numbers, style) if isinstance(entry, Mark) else _text_line(entry, style, cut)
        # As the benchmark does: a text that one of the last three lines has is not said again.
        if line and not (isinstance(entry, tuple) and any(entry[1][:cut] in last for last in before[-3:])):
            yield line
            before.append(line)


def _mark_line(mark: Mark, numbers: dict[str, int], style: str) -> str:
    number = numbers.get(mark.key)
    if number is None:
        return ""
    state = f" {mark.state}" if mark.state else ""
    if style == "vwa":
        return f"[{number}] [{_TAGS.get(mark.role, 'INPUT')}] [{mark.label}]{state}"
    return f'{mark.role} "{mark.label}" [{number}]{state}'


def _text_line(entry: tuple[str, str], style: str, cut: int) -> str:
    tag, text = entry
    text = " ".join(text.split())[:cut]
    if not text:
        return ""
    if style == "vwa":
        return f"[] [{tag}] [{text}]"
    return f'img "{text}"' if tag == "IMG" else text


def draw_marks(picture: bytes, elements: Iterable[Element]) -> bytes:
    """The screenshot with a box and the id of every element on it, as JPEG.

    Args:
        picture: JPEG or PNG of the viewport, one pixel per CSS pixel.
        elements: those of the observation of the same moment.
    """
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    canvas = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=13)
    for element in elements:
        if element.box is None:
            continue
        x, y, width, height = element.box
        colour = _COLOURS[element.id % len(_COLOURS)]
        canvas.rectangle((x, y, x + width, y + height), outline=colour, width=2)
        label = str(element.id)
        left, _, right, bottom = canvas.textbbox((0, 0), label, font=font)
        corner_x = min(max(0.0, x), image.width - right - 5)
        corner_y = y - bottom - 3 if y - bottom - 3 >= 0 else max(0.0, y)
        canvas.rectangle((corner_x, corner_y, corner_x + right - left + 5, corner_y + bottom + 3), fill=colour)
        canvas.text((corner_x + 2, corner_y), label, fill="white", font=font)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=75)
    return out.getvalue()
