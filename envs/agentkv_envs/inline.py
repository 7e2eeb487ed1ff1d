"""A node as parts of a line: texts, captions of pictures, and marks for what an action can name."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from agentkv_envs.actions import clean_label
from agentkv_envs.snapshot import Node

FIELDS = frozenset(
    {"textbox", "searchbox", "spinbutton", "combobox", "listbox", "checkbox", "radio", "switch", "slider", "file"}
)
INTERACTIVE = FIELDS | {"link", "button", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "treeitem"}
BLOCKS = frozenset(
    {"list", "table", "grid", "treegrid", "feed", "heading", "paragraph", "blockquote", "article", "figure", "region"}
    | {"form", "search", "main", "banner", "navigation", "contentinfo", "complementary", "separator"}
    | {"alert", "status", "dialog", "alertdialog"}
)
_MAX_OPTIONS = 10


@dataclass(frozen=True)
class Mark:
    """An element at its place in a line.

    `key` is its handle: Playwright's reference, or for `more` and `expand` elements the part they open.
    `state` is printed after the id. `offset` is where a list continues for `more`. `box` is x, y, width and height in
    CSS pixels of the viewport.
    """

    key: str
    role: str
    label: str
    state: str = ""
    options: tuple[str, ...] = ()
    disabled: bool = False
    url: str = ""
    offset: int = 0
    box: tuple[float, float, float, float] | None = None
    focused: bool = False


class Caption(str):
    """What a picture shows; it stands at the end of its line."""


Part = str | Mark
Line = tuple[Part, ...]


def text_of(node: Node) -> str:
    """All text in a node, in reading order."""
    own = node.name or node.text
    if node.role == "text" or not node.children:
        return own
    inner = " ".join(filter(None, (text_of(child) for child in node.children if child.role != "option")))
    return " ".join(filter(None, (node.text, inner))) or node.name


def parts_of(node: Node, opened: Set[str]) -> list[Part]:
    """A node as it stands within a line."""
    if is_mark(node):
        return [*_mark(node, opened), *(c for n in node.walk() if n.role == "img" for c in _caption(n))]
    if node.role == "text":
        return [node.text]
    if node.role == "img":
        return _caption(node) or ([f'img "{clean_label(node.name, 40)}"'] if node.name else [])
    if node.role == "term":
        return [f"{text_of(node)}:"]
    if not node.children:
        return [node.text or node.name] if (node.text or node.name) else []
    inner = [part for child in node.children for part in parts_of(child, opened)]
    return [node.text, *inner] if node.text else inner


def _caption(node: Node) -> list[Part]:
    caption = node.attrs.get("caption")
    return [Caption(f'img "{clean_label(", ".join(filter(None, (node.name, caption))))}"')] if caption else []


def _mark(node: Node, opened: Set[str]) -> tuple[Mark, ...]:
    label = clean_label(node.name or ("" if node.role in FIELDS else text_of(node)))
    label = label or _last_segment(node.attrs.get("url", "")) or node.role
    role = node.role if node.role in INTERACTIVE else "button"
    state = [f"= {' '.join(node.text.split())[:80]}"] if node.role in FIELDS and node.text else []
    options = tuple(clean_label(o.name or o.text, 60) for o in node.children if o.role == "option")
    extra: tuple[Mark, ...] = ()
    if options:
        chosen = [clean_label(o.name or o.text, 60) for o in node.children if "selected" in o.attrs]
        key = f"options:{node.ref}"
        if len(options) > _MAX_OPTIONS and key not in opened:
            options = options[: _MAX_OPTIONS - 2]
            extra = (Mark(key, "expand", clean_label(f"options of {label}", 40)),)
        others = [option for option in options if option not in chosen]
        state = [f"= {', '.join(chosen)}"] if chosen else []
        state += [f"or {' | '.join(others)}"] if others else []
    state += [name for name in ("checked", "pressed", "expanded", "disabled") if node.attrs.get(name) == "true"]
    focused = "active" in node.attrs
    if focused and role in FIELDS:
        state.append("focused")
    mark = Mark(
        node.ref,
        role,
        label,
        " ".join(state),
        options,
        "disabled" in node.attrs,
        node.attrs.get("url", ""),
        box=node.box,
        focused=focused,
    )
    return (mark, *extra)


def is_mark(node: Node) -> bool:
    """Whether an action can name this node: a control, or something clickable that holds no control."""
    if not node.ref:
        return False
    if node.role in INTERACTIVE:
        return True
    clickable = "cursor" in node.attrs or (node.role == "generic" and bool(node.name))
    return clickable and bool(text_of(node)) and not any(c.role in INTERACTIVE for c in node.walk() if c is not node)


def is_inline(node: Node) -> bool:
    """Whether a node can share a line with its neighbours."""
    return is_mark(node) or not any(child.role in BLOCKS for child in node.walk())


def tidy(parts: Sequence[Part]) -> Line:
    """Drop empty texts, a field's own label beside it, and the second of two links to the same thing; captions go
    to the end."""
    clean: list[Part] = []
    captions = list(dict.fromkeys(part for part in parts if isinstance(part, Caption)))
    labels = {p.label for p in parts if isinstance(p, Mark) and p.role in FIELDS}
    named = {p.url for p in parts if isinstance(p, Mark) and p.label != _last_segment(p.url)}
    links: set[tuple[str, str]] = set()
    for part in parts:
        if isinstance(part, Caption):
            continue
        if isinstance(part, Mark):
            if part.role == "link" and part.url:
                nameless = part.label == _last_segment(part.url) and part.url in named
                if nameless or (part.label, part.url) in links:
                    continue
                links.add((part.label, part.url))
            clean.append(part)
            continue
        text = " ".join(part.split())
        if not text or clean_label(text) in labels:
            continue
        if clean and isinstance(clean[-1], str):
            clean[-1] = clean[-1] + text if text[0] in ".,;:!?)" else f"{clean[-1]} {text}"
        else:
            clean.append(text)
    return (*clean, *captions)


def name_by_row(lines: list[Line]) -> list[Line]:
    """Give buttons and fields that repeat from row to row the name of their row."""
    seen: dict[tuple[str, str], int] = {}
    for line in lines:
        for part in line:
            if isinstance(part, Mark):
                seen[part.role, part.label] = seen.get((part.role, part.label), 0) + 1
    named: list[Line] = []
    for line in lines:
        first = next((p for p in line if isinstance(p, Mark) or p.strip()), "")
        row = first.label if isinstance(first, Mark) else first
        named.append(
            tuple(
                replace(p, label=clean_label(f"{p.label} {row}"))
                if isinstance(p, Mark) and p is not first and seen[p.role, p.label] > 1
                else p
                for p in line
            )
        )
    return named


def _last_segment(url: str) -> str:
    """What stands in for the name of a link that has none."""
    return clean_label(url.rstrip("/").rpartition("/")[2], 40)


def plain_text(line: Line) -> str:
    return " ".join(p for p in line if isinstance(p, str))


def join_cells(cells: list[Line]) -> Line:
    """One row: texts of neighbouring cells are set apart by commas."""
    parts: list[Part] = []
    for cell in cells:
        for i, part in enumerate(cell):
            if i == 0 and type(part) is str and parts and type(parts[-1]) is str:
                parts[-1] = f"{parts[-1]}, {part}"
            else:
                parts.append(part)
    return tuple(parts)
