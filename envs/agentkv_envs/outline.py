"""From the tree of a page to the few lines an agent needs.

The rules are about roles, never about a particular site: landmarks around the content collapse into one line,
an entry of a list or table is one line, long texts and long lists are cut where the agent can ask for the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentkv_envs.actions import clean_label
from agentkv_envs.inline import (
    BLOCKS,
    FIELDS,
    Caption,
    Line,
    Mark,
    Part,
    is_inline,
    is_mark,
    join_cells,
    name_by_row,
    parts_of,
    plain_text,
    text_of,
    tidy,
)
from agentkv_envs.snapshot import Node

_LANDMARKS = {"contentinfo": "Footer", "complementary": "Sidebar", "navigation": "Menu"}
_OPEN_NAVIGATION = 6


@dataclass(frozen=True)
class Limits:
    """How much of a page one view shows; characters, or entries where it says so."""

    entries: int = 8
    list_chars: int = 480
    text: int = 110
    plain_list_chars: int = 150

    def smaller(self) -> Limits:
        """The next tighter limits."""
        return Limits(
            max(2, self.entries - 2),
            max(90, self.list_chars * 3 // 4),
            max(60, self.text * 3 // 4),
            max(90, self.plain_list_chars * 3 // 4),
        )


@dataclass
class View:
    """What the agent has asked to see on this page: opened parts and how far lists were paged.

    `follow` is set by scrolling: the next observation pages lists, and the page itself, to what the screen shows.
    """

    opened: set[str] = field(default_factory=set)
    offsets: dict[str, int] = field(default_factory=dict)
    follow: bool = False


@dataclass
class Outline:
    """A page as lines: the chrome around it, its alerts, its content.

    `ends` has the lower edge of each line on the screen, in CSS pixels, as far as it is known (else infinity).
    """

    chrome: list[Part] = field(default_factory=list)
    alerts: list[Line] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


class Outliner:
    """Builds one `Outline`; use `outline()`."""

    def __init__(self, view: View, limits: Limits):
        self.view = view
        self.limits = limits
        self.out = Outline()
        self.heading = ""
        self._end = math.inf

    def _emit(self, line: Line, end: float | None = None) -> None:
        self.out.lines.append(line)
        self.out.ends.append(self._end if end is None else end)

    def _parts(self, node: Node) -> list[Part]:
        return parts_of(node, self.view.opened)

    # Blocks

    def block(self, node: Node) -> None:
        """Add a node that starts its own line."""
        self._end = _bottom(node)
        handler = getattr(self, f"_{node.role}", None)
        if handler is not None and node.role in BLOCKS:
            handler(node)
        elif is_inline(node):
            self._flow([node])
        else:
            self._container(node)

    def _container(self, node: Node) -> None:
        if sum(child.role == "article" for child in node.children) > 2:
            self._entries(node, [child for child in node.children if child.role == "article"])
            return
        run: list[Node] = []
        for child in node.children:
            if is_inline(child):
                run.append(child)
                continue
            self._flow(run)
            run = []
            self.block(child)
        self._flow(run)

    def _flow(self, nodes: list[Node]) -> None:
        """Inline nodes: those beside each other on the screen share a line, fields start their own."""
        line: list[Part] = []
        bottom: float | None = None
        for node in nodes:
            parts = self._parts(node)
            top, end = _extent(node)
            field_starts = any(isinstance(p, Mark) and p.role in FIELDS for p in parts) and any(
                isinstance(p, Mark) for p in line
            )
            if line and (field_starts or (bottom is not None and top is not None and top >= bottom)):
                self._add(line)
                line, bottom = [], None
            line.extend(parts)
            if end is not None and parts:
                bottom = end if bottom is None else max(bottom, end)
                self._end = bottom
        self._add(line)

    def _add(self, parts: Sequence[Part], key: str = "") -> None:
        line = self._cut(tidy(parts), key)
        if line:
            self._emit(line)

    def _cut(self, line: Line, key: str, about: str = "") -> Line:
        """Shorten the text of a line; the rest is behind an `expand` element."""
        length = sum(len(p) for p in line if isinstance(p, str))
        if length <= self.limits.text * 1.25 or not key or key in self.view.opened:
            return line
        budget, short = self.limits.text, list[Part]()
        for part in line:
            if isinstance(part, Mark):
                short.append(part)
            elif isinstance(part, Caption):
                short += [part] if len(part) <= budget else []
                budget -= len(part)
            elif budget > 0:
                short.append(part if len(part) <= budget else part[:budget].rsplit(" ", 1)[0] + " …")
                budget -= len(part)
        return (*short, Mark(key, "expand", clean_label(f"rest of {about or self.heading or 'text'}", 40)))

    def _heading(self, node: Node) -> None:
        self.heading = clean_label(text_of(node), 40)
        marks = [p for p in self._parts(node) if isinstance(p, Mark)]
        self._add(["#", *marks] if marks else [f"# {' '.join(text_of(node).split())}"])

    def _paragraph(self, node: Node) -> None:
        self._add(self._parts(node), f"text:{node.ref}")

    _blockquote = _paragraph

    def _alert(self, node: Node) -> None:
        line = tidy(self._parts(node))
        if line:
            self.out.alerts.append(line)

    _status = _alert

    def _separator(self, node: Node) -> None:
        """A rule on the page says nothing to the agent."""

    # Landmarks

    def _banner(self, node: Node) -> None:
        for child in node.walk():
            if child.role == "navigation":
                self._navigation(child)
        self.out.chrome[:0] = self._chrome_parts(node)

    def _chrome_parts(self, node: Node) -> list[Part]:
        parts: list[Part] = []
        for child in node.children:
            if child.role == "navigation":
                continue
            if child.role == "search":
                parts += [p for p in self._parts(child) if isinstance(p, Mark) and p.role in FIELDS] or self._parts(
                    child
                )
            elif is_mark(child) or not child.children:
                parts += self._parts(child)
            else:
                parts += self._chrome_parts(child)
        return [p for p in parts if isinstance(p, Mark)]

    def _navigation(self, node: Node) -> None:
        marks = [p for p in self._parts(node) if isinstance(p, Mark)]
        if len(marks) <= _OPEN_NAVIGATION:
            self._add(self._parts(node))
        elif self._collapsed(node):
            self._pages_of_marks(node, marks)

    def _contentinfo(self, node: Node) -> None:
        if any(is_mark(child) for child in node.walk()) and self._collapsed(node):
            self._container(node)

    _complementary = _contentinfo

    def _collapsed(self, node: Node) -> bool:
        """Put an `expand` element for a landmark into the chrome line; True when it has been opened."""
        label = clean_label(node.name or _LANDMARKS[node.role], 40)
        if f"part:{node.ref}" in self.view.opened:
            self._emit((f"# {label}",))
            return True
        self.out.chrome.append(Mark(f"part:{node.ref}", "expand", label))
        return False

    def _pages_of_marks(self, node: Node, marks: list[Mark]) -> None:
        """The links of a long menu, several to a line."""
        size = 12
        rows: list[Line] = [tuple(marks[i : i + size]) for i in range(0, len(marks), size)]
        self._window(f"more:{node.ref}", rows, size * 24, 1, "items")

    # Lists and tables

    def _list(self, node: Node) -> None:
        self._entries(node, [child for child in node.children if child.children or child.text or child.name])

    _feed = _list

    def _entries(self, node: Node, entries: list[Node]) -> None:
        found = [(line, _bottom(entry)) for entry in entries if (line := self._entry(entry))]
        found = collapse_repeats(found)
        lines, ends = name_by_row([line for line, _ in found]), [end for _, end in found]
        plain = not any(isinstance(p, Mark) for line in lines for p in line)
        budget = self.limits.plain_list_chars if plain else self.limits.list_chars
        what = self.heading if plain and self.heading else "items"
        self._window(f"more:{node.ref}", lines, budget, self.limits.entries, what, ends)

    def _entry(self, node: Node) -> Line:
        line = tidy(self._parts(node))
        about = next((p.label if isinstance(p, Mark) else p for p in line), "")
        return self._cut(line, f"text:{node.ref}", about)

    def _window(
        self, key: str, lines: list[Line], chars: int, entries: int, what: str, ends: Sequence[float] = ()
    ) -> None:
        """The part of a list that this view shows, and a `more` element when there is more of it."""
        if self.view.follow and ends:
            self.view.offsets[key] = first_on_screen(ends)
        start = self.view.offsets.get(key, 0)
        start = start if start < len(lines) else 0
        end, used = start, 0
        while end < len(lines) and end - start < entries:
            used += sum(_length(p) for p in lines[end])
            if used > chars and end > start:
                break
            end += 1
        for i in range(start, end):
            self._emit(lines[i], ends[i] if ends else None)
        if start == 0 and end == len(lines):
            return
        after = end if end < len(lines) else 0
        label = clean_label(f"{'more' if after else 'first'} {what}", 40)
        shown = f"{start + 1}-{end} of {len(lines)} shown"
        self._emit((Mark(key, "more", label, shown, offset=after),))

    def _table(self, node: Node) -> None:
        rows = [row for row in node.walk() if row.role == "row"]
        lines: list[Line] = []
        ends: list[float] = []
        facts: list[str] = []
        for row in rows:
            cells = [tidy(self._parts(cell)) for cell in row.children]
            if (
                len(cells) == 2
                and row.children[0].role == "rowheader"
                and all(isinstance(p, str) for c in cells for p in c)
            ):
                facts.append(f"{plain_text(cells[0])}: {plain_text(cells[1])}")
                continue
            if any(cell.role != "columnheader" for cell in row.children):
                lines.append(join_cells(cells))
                ends.append(_bottom(row))
        if facts:
            self._facts(facts)
        if lines:
            head = next(
                (row for row in rows if row.children and all(c.role == "columnheader" for c in row.children)), None
            )
            if head is not None and (names := [n for c in head.children if (n := text_of(c))]):
                self._emit((", ".join(names) + ":",))
            key, limits = f"more:{node.ref}", self.limits
            self._window(key, name_by_row(lines), limits.list_chars, limits.entries, "items", ends)

    _grid = _treegrid = _table

    def _facts(self, facts: list[str]) -> None:
        line = ""
        for fact in facts:
            if line and len(line) + len(fact) > 120:
                self._add([line])
                line = ""
            line = f"{line}; {fact}" if line else fact
        self._add([line])


def outline(root: Node, view: View, limits: Limits) -> Outline:
    """The lines of a page under `view`, cut to `limits`."""
    outliner = Outliner(view, limits)
    outliner._container(root)
    return outliner.out


def _extent(node: Node) -> tuple[float | None, float | None]:
    """Middle and bottom of a node on the screen, in CSS pixels."""
    if node.box is None:
        return None, None
    _, y, _, height = node.box
    return y + height * 0.5, y + height


def _bottom(node: Node) -> float:
    return node.box[1] + node.box[3] if node.box is not None else math.inf


def _length(part: Part) -> int:
    """Characters by which lists are cut; captions do not count, so that they change no list's pages."""
    if isinstance(part, Mark):
        return len(part.label) + len(part.state) + 12
    return 0 if isinstance(part, Caption) else len(part)


def first_on_screen(ends: Sequence[float]) -> int:
    """Index of the first line that reaches into the viewport; the last when all are above it."""
    return next((i for i, end in enumerate(ends) if end > 0), max(0, len(ends) - 1))


def collapse_repeats(lines: Sequence[tuple[Line, float]]) -> list[tuple[Line, float]]:
    """Lines of text that repeat one after the other become one, with their number."""
    out: list[tuple[Line, float]] = []
    for line, run in itertools.groupby(lines, key=lambda pair: pair[0]):
        same = list(run)
        plain = len(line) == 1 and isinstance(line[0], str)
        out += [((f"{line[0]} (x{len(same)})",), same[0][1])] if plain and len(same) > 1 else same
    return out
