"""From the tree of a page to the few lines an agent needs.

The rules are about roles, never about a particular site: landmarks around the content collapse into one line,
an entry of a list or table is one line, long texts and long lists are cut where the agent can ask for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentkv_envs.actions import clean_label
from agentkv_envs.snapshot import Node

FIELDS = frozenset(
    {"textbox", "searchbox", "spinbutton", "combobox", "listbox", "checkbox", "radio", "switch", "slider"}
)
INTERACTIVE = FIELDS | {"link", "button", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "treeitem"}
_LANDMARKS = {"contentinfo": "Footer", "complementary": "Sidebar", "navigation": "Menu"}
_BLOCKS = frozenset(
    {"list", "table", "grid", "treegrid", "feed", "heading", "paragraph", "blockquote", "article", "figure", "region"}
    | {"form", "search", "main", "banner", "navigation", "contentinfo", "complementary", "separator"}
    | {"alert", "status", "dialog", "alertdialog"}
)
_OPEN_NAVIGATION = 6
_MAX_OPTIONS = 10


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
    """What the agent has asked to see on this page: opened parts and how far lists were paged."""

    opened: set[str] = field(default_factory=set)
    offsets: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """An element at its place in a line.

    `key` is its handle: Playwright's reference, or for `more` and `expand` elements the part they open.
    `state` is printed after the id. `offset` is where a list continues for `more`.
    """

    key: str
    role: str
    label: str
    state: str = ""
    options: tuple[str, ...] = ()
    disabled: bool = False
    url: str = ""
    offset: int = 0


Part = str | Mark
Line = tuple[Part, ...]


@dataclass
class Outline:
    """A page as lines: the chrome around it, its alerts, its content."""

    chrome: list[Part] = field(default_factory=list)
    alerts: list[Line] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def text_of(node: Node) -> str:
    """All text in a node, in reading order."""
    own = node.name or node.text
    if node.role == "text" or not node.children:
        return own
    inner = " ".join(filter(None, (text_of(child) for child in node.children if child.role != "option")))
    return " ".join(filter(None, (node.text, inner))) or node.name


class Outliner:
    """Builds one `Outline`; use `outline()`."""

    def __init__(self, view: View, limits: Limits):
        self.view = view
        self.limits = limits
        self.out = Outline()
        self.heading = ""

    # Blocks

    def block(self, node: Node) -> None:
        """Add a node that starts its own line."""
        handler = getattr(self, f"_{node.role}", None)
        if handler is not None and node.role in _BLOCKS:
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
            parts = self.parts(node)
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
        self._add(line)

    def _add(self, parts: Sequence[Part], key: str = "") -> None:
        line = self._cut(tidy(parts), key)
        if line:
            self.out.lines.append(line)

    def _cut(self, line: Line, key: str, about: str = "") -> Line:
        """Shorten the text of a line; the rest is behind an `expand` element."""
        length = sum(len(p) for p in line if isinstance(p, str))
        if length <= self.limits.text * 1.25 or not key or key in self.view.opened:
            return line
        budget, short = self.limits.text, list[Part]()
        for part in line:
            if isinstance(part, Mark):
                short.append(part)
            elif budget > 0:
                short.append(part if len(part) <= budget else part[:budget].rsplit(" ", 1)[0] + " …")
                budget -= len(part)
        return (*short, Mark(key, "expand", clean_label(f"rest of {about or self.heading or 'text'}", 40)))

    def _heading(self, node: Node) -> None:
        self.heading = clean_label(text_of(node), 40)
        marks = [p for p in self.parts(node) if isinstance(p, Mark)]
        self._add(["#", *marks] if marks else [f"# {' '.join(text_of(node).split())}"])

    def _paragraph(self, node: Node) -> None:
        self._add(self.parts(node), f"text:{node.ref}")

    _blockquote = _paragraph

    def _alert(self, node: Node) -> None:
        line = tidy(self.parts(node))
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
                parts += [p for p in self.parts(child) if isinstance(p, Mark) and p.role in FIELDS] or self.parts(child)
            elif is_mark(child) or not child.children:
                parts += self.parts(child)
            else:
                parts += self._chrome_parts(child)
        return [p for p in parts if isinstance(p, Mark)]

    def _navigation(self, node: Node) -> None:
        marks = [p for p in self.parts(node) if isinstance(p, Mark)]
        if len(marks) <= _OPEN_NAVIGATION:
            self._add(self.parts(node))
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
            self.out.lines.append((f"# {label}",))
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
        lines = [self._entry(entry) for entry in entries]
        lines = name_by_row([line for line in lines if line])
        plain = not any(isinstance(p, Mark) for line in lines for p in line)
        budget = self.limits.plain_list_chars if plain else self.limits.list_chars
        what = self.heading if plain and self.heading else "items"
        self._window(f"more:{node.ref}", lines, budget, self.limits.entries, what)

    def _entry(self, node: Node) -> Line:
        line = tidy(self.parts(node))
        about = next((p.label if isinstance(p, Mark) else p for p in line), "")
        return self._cut(line, f"text:{node.ref}", about)

    def _window(self, key: str, lines: list[Line], chars: int, entries: int, what: str) -> None:
        """The part of a list that this view shows, and a `more` element when there is more of it."""
        start = self.view.offsets.get(key, 0)
        start = start if start < len(lines) else 0
        end, used = start, 0
        while end < len(lines) and end - start < entries:
            used += sum(len(p) if isinstance(p, str) else len(p.label) + len(p.state) + 12 for p in lines[end])
            if used > chars and end > start:
                break
            end += 1
        self.out.lines.extend(lines[start:end])
        if start == 0 and end == len(lines):
            return
        after = end if end < len(lines) else 0
        label = clean_label(f"{'more' if after else 'first'} {what}", 40)
        shown = f"{start + 1}-{end} of {len(lines)} shown"
        self.out.lines.append((Mark(key, "more", label, shown, offset=after),))

    def _table(self, node: Node) -> None:
        rows = [row for row in node.walk() if row.role == "row"]
        lines: list[Line] = []
        facts: list[str] = []
        for row in rows:
            cells = [tidy(self.parts(cell)) for cell in row.children]
            if (
                len(cells) == 2
                and row.children[0].role == "rowheader"
                and all(isinstance(p, str) for c in cells for p in c)
            ):
                facts.append(f"{_plain(cells[0])}: {_plain(cells[1])}")
                continue
            if any(cell.role != "columnheader" for cell in row.children):
                lines.append(_join_cells(cells))
        if facts:
            self._facts(facts)
        if lines:
            head = next(
                (row for row in rows if row.children and all(c.role == "columnheader" for c in row.children)), None
            )
            if head is not None and (names := [n for c in head.children if (n := text_of(c))]):
                self.out.lines.append((", ".join(names) + ":",))
            self._window(f"more:{node.ref}", name_by_row(lines), self.limits.list_chars, self.limits.entries, "items")

    _grid = _treegrid = _table

    def _facts(self, facts: list[str]) -> None:
        line = ""
        for fact in facts:
            if line and len(line) + len(fact) > 120:
                self._add([line])
                line = ""
            line = f"{line}; {fact}" if line else fact
        self._add([line])

    # Inline parts

    def parts(self, node: Node) -> list[Part]:
        """A node as it stands within a line."""
        if is_mark(node):
            return list(self._mark(node))
        if node.role == "text":
            return [node.text]
        if node.role == "img":
            return [f'img "{clean_label(node.name, 40)}"'] if node.name else []
        if node.role == "term":
            return [f"{text_of(node)}:"]
        if not node.children:
            return [node.text or node.name] if (node.text or node.name) else []
        inner = [part for child in node.children for part in self.parts(child)]
        return [node.text, *inner] if node.text else inner

    def _mark(self, node: Node) -> tuple[Mark, ...]:
        label = clean_label(node.name or ("" if node.role in FIELDS else text_of(node)))
        label = label or _last_segment(node.attrs.get("url", "")) or node.role
        role = node.role if node.role in INTERACTIVE else "button"
        state = [f"= {' '.join(node.text.split())[:80]}"] if node.role in FIELDS and node.text else []
        options = tuple(clean_label(o.name or o.text, 60) for o in node.children if o.role == "option")
        extra: tuple[Mark, ...] = ()
        if options:
            chosen = [clean_label(o.name or o.text, 60) for o in node.children if "selected" in o.attrs]
            key = f"options:{node.ref}"
            if len(options) > _MAX_OPTIONS and key not in self.view.opened:
                options = options[: _MAX_OPTIONS - 2]
                extra = (Mark(key, "expand", clean_label(f"options of {label}", 40)),)
            others = [option for option in options if option not in chosen]
            state = [f"= {', '.join(chosen)}"] if chosen else []
            state += [f"or {' | '.join(others)}"] if others else []
        state += [name for name in ("checked", "pressed", "expanded", "disabled") if node.attrs.get(name) == "true"]
        disabled = "disabled" in node.attrs
        return (Mark(node.ref, role, label, " ".join(state), options, disabled, node.attrs.get("url", "")), *extra)


def outline(root: Node, view: View, limits: Limits) -> Outline:
    """The lines of a page under `view`, cut to `limits`."""
    outliner = Outliner(view, limits)
    outliner._container(root)
    return outliner.out


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
    return is_mark(node) or not any(child.role in _BLOCKS for child in node.walk())


def tidy(parts: Sequence[Part]) -> Line:
    """Drop empty texts, a field's own label beside it, and the second of two links to the same thing."""
    clean: list[Part] = []
    labels = {p.label for p in parts if isinstance(p, Mark) and p.role in FIELDS}
    named = {p.url for p in parts if isinstance(p, Mark) and p.label != _last_segment(p.url)}
    links: set[tuple[str, str]] = set()
    for part in parts:
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
    return tuple(clean)


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


def _plain(line: Line) -> str:
    return " ".join(p for p in line if isinstance(p, str))


def _join_cells(cells: list[Line]) -> Line:
    """One row: texts of neighbouring cells are set apart by commas."""
    parts: list[Part] = []
    for cell in cells:
        for i, part in enumerate(cell):
            if i == 0 and isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] = f"{parts[-1]}, {part}"
            else:
                parts.append(part)
    return tuple(parts)


def _extent(node: Node) -> tuple[float | None, float | None]:
    """Top and bottom of a node on the screen, in CSS pixels."""
    try:
        _, y, _, height = (float(n) for n in node.attrs.get("box", "").split(","))
    except ValueError:
        return None, None
    return (y + height * 0.5 if height else None), (y + height if height else None)
