"""From an outline to the observation: ids, styles, and the token budget."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from agentkv_envs.inline import Line, Mark, Part
from agentkv_envs.outline import Limits, Outline, View, outline
from agentkv_envs.snapshot import parse_snapshot
from agentkv_envs.types import Element, Observation

MAX_ID = 99
HARD_LIMIT = 350
_LEVELS = 5
_MAX_CHROME = 12
_PIECE_PARTS, _PIECE_CHARS = 8, 240
_VOLATILE = re.compile(r" \[(?:ref|box|cursor)=[^\]]*\]| \[active\]")
_PIECES = re.compile(r"\d|[^\W\d_]+|[^\w\s]|_|\n")

TokenCounter = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """A cautious token count without a tokenizer: digits and signs one each, words by length, a tenth on top."""
    pieces = sum(1 if len(piece) < 7 else -(-len(piece) // 5) for piece in _PIECES.findall(text))
    return -(-pieces * 11 // 10)


class IdPool:
    """Small ids for elements; an element keeps its id while it lives on the page."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def copy(self) -> IdPool:
        """A pool that can give out ids without this one knowing."""
        twin = IdPool()
        twin._ids = dict(self._ids)
        return twin

    def assign(self, shown: Iterable[str], alive: set[str]) -> dict[str, int]:
        """Ids of the shown keys; keys that are gone give theirs back, and so do hidden ones when ids run out."""
        shown = list(dict.fromkeys(shown))[:MAX_ID]
        self._ids = {k: n for k, n in self._ids.items() if k.rpartition(":")[2] in alive or k in shown}
        missing = [key for key in shown if key not in self._ids]
        if len(self._ids) + len(missing) > MAX_ID:
            self._ids = {key: number for key, number in self._ids.items() if key in shown}
        taken = set(self._ids.values())
        free = (number for number in range(1, MAX_ID + 1) if number not in taken)
        self._ids.update(zip(missing, free, strict=False))
        return {key: self._ids[key] for key in shown}


@dataclass
class PageState:
    """What is remembered about a document: ids given out, the agent's view of it, and what it shows now."""

    document: str = ""
    ids: IdPool = field(default_factory=IdPool)
    view: View = field(default_factory=View)
    shown: dict[int, Mark] = field(default_factory=dict)


@dataclass(frozen=True)
class Surroundings:
    """What is observed besides the page's tree."""

    url: str
    title: str
    tabs: tuple[str, ...]
    current_tab: int
    messages: tuple[str, ...] = ()
    can_go_back: bool = False
    loading: bool = False


def observe(
    snapshot: str,
    state: PageState,
    around: Surroundings,
    style: str = "label-first",
    count_tokens: TokenCounter = estimate_tokens,
    limit: int = HARD_LIMIT,
) -> Observation:
    """The compact observation of a page; never longer than `limit` tokens by `count_tokens`.

    Limits on lists and texts tighten until the page fits; if that is not enough, the lines themselves are paged.
    """
    root = parse_snapshot(snapshot)
    alive = {node.ref for node in root.walk() if node.ref}
    limits = Limits()
    for _ in range(_LEVELS):
        page = outline(root, state.view, limits)
        draft = _Draft(page, around, style)
        rendered = draft.render(state.ids, alive)
        if count_tokens(rendered.text) <= limit:
            break
        limits = limits.smaller()
    else:
        start = state.view.offsets.get("more:page", 0)
        rendered = draft.render_paged(start, state.ids, alive, lambda text: count_tokens(text) <= limit)
    state.ids, state.shown = rendered.ids, rendered.shown
    return Observation(
        text=rendered.text,
        url=around.url,
        title=around.title,
        elements=draft.elements(rendered.shown),
        alerts=(*around.messages, *(_alert_text(line) for line in page.alerts)),
        tabs=around.tabs,
        style=style,
        page_key=_page_key(snapshot, around, state.view),
        current_tab=around.current_tab,
        can_go_back=around.can_go_back,
    )


def dialog_observation(last: Observation, dialog: str) -> Observation:
    """The observation while a dialog blocks the page: only the dialog can be answered."""
    text = f"page: {last.title}\ndialog: {dialog}\nanswer it with dialog [accept] or dialog [dismiss]"
    key = hashlib.sha256(f"{last.page_key}\n{dialog}".encode()).hexdigest()[:16]
    return Observation(
        text, last.url, last.title, (), (), last.tabs, last.style, key, last.current_tab, dialog, last.can_go_back
    )


def change_view(view: View, mark: Mark) -> None:
    """Apply `more` or `expand` on its element to what the agent sees of the page."""
    if mark.role == "more":
        view.offsets[mark.key] = mark.offset
    else:
        view.opened.add(mark.key)


@dataclass(frozen=True)
class _Rendered:
    """An observation's text, the ids after giving out those it needs, and its elements by id."""

    text: str
    ids: IdPool
    shown: dict[int, Mark]


class _Draft:
    """Turns the lines of one page into text and elements."""

    def __init__(self, page: Outline, around: Surroundings, style: str):
        self.style = style
        self.head: list[Line] = [(f"page: {_short(around.title, 60)}",)]
        if len(around.tabs) > 1:
            titles = (
                f"{i}{' (current)' if i == around.current_tab else ''}: {_short(title, 30)}"
                for i, title in enumerate(around.tabs)
            )
            self.head.append((f"tabs: {' | '.join(titles)}",))
        if page.chrome:
            self.head.append(tuple(page.chrome[:_MAX_CHROME]))
        self.head += [(f"alert: {_short(message, 160)}",) for message in around.messages]
        self.head += [("alert:", *(_short(p, 160) if isinstance(p, str) else p for p in line)) for line in page.alerts]
        if around.loading:
            self.head.append(("page still loading",))
        # A heading that repeats the title says nothing new.
        rest = [line for line in page.lines if line != (f"# {around.title}",)]
        self.lines = [*((part,) for part in page.chrome[_MAX_CHROME:]), *rest]

    def render(self, ids: IdPool, alive: set[str], lines: list[Line] | None = None) -> _Rendered:
        """The head and these lines (None: all of the page); `ids` itself stays as it is."""
        lines = [*self.head, *(self.lines if lines is None else lines)]
        marks = {p.key: p for line in lines for p in line if isinstance(p, Mark)}
        ids = ids.copy()
        numbers = ids.assign(marks, alive)
        text = "\n".join(self._line(line, numbers) for line in lines)
        return _Rendered(text, ids, {number: marks[key] for key, number in numbers.items()})

    def render_paged(self, start: int, ids: IdPool, alive: set[str], fits: Callable[[str], bool]) -> _Rendered:
        """As many lines from `start` on as fit; a `more` element leads to the rest."""
        lines = [piece for line in self.lines for piece in _pieces(line)]
        start = start if start < len(lines) else 0
        end = len(lines)
        while True:
            after = end if end < len(lines) else 0
            label = "rest of page" if after else "top of page"
            rest: Line = (Mark("more:page", "more", label, offset=after),)
            rendered = self.render(ids, alive, [*lines[start:end], rest])
            if fits(rendered.text) or end <= start + 1:
                return rendered
            end = start + max(1, (end - start) * 3 // 4)

    def elements(self, shown: dict[int, Mark]) -> tuple[Element, ...]:
        """The shown elements, in reading order."""
        return tuple(
            Element(number, m.role, m.label, self._mark(m, None), m.options, m.disabled) for number, m in shown.items()
        )

    def _line(self, line: Line, numbers: dict[str, int]) -> str:
        out = ""
        previous: Part = ""
        for part in line:
            piece = part if isinstance(part, str) else self._mark(part, numbers.get(part.key))
            glue = ", " if isinstance(part, Mark) and isinstance(previous, Mark) else " "
            if isinstance(part, str) and part[:1] in (".", ",", ";", "!", "?", ")"):
                glue = ""
            out = f"{out}{glue}{piece}" if out else piece
            previous = part
        return out

    def _mark(self, mark: Mark, number: int | None) -> str:
        state = f" {mark.state}" if mark.state else ""
        if self.style == "vwa":
            head = f"[{number}] " if number is not None else ""
            return f"{head}{mark.role} '{mark.label}'{state}"
        head = f" [{number}]" if number is not None else ""
        return f'{mark.role} "{mark.label}"{head}{state}'


def _pieces(line: Line) -> Iterator[Line]:
    """A long line as several short ones."""
    piece: list[Part] = []
    chars = 0
    for part in line:
        for cut in textwrap.wrap(part, _PIECE_CHARS) if isinstance(part, str) else [part]:
            size = len(cut) if isinstance(cut, str) else len(cut.label) + len(cut.state)
            if piece and (chars + size > _PIECE_CHARS or len(piece) >= _PIECE_PARTS):
                yield tuple(piece)
                piece, chars = [], 0
            piece.append(cut)
            chars += size
    if piece:
        yield tuple(piece)


def _alert_text(line: Line) -> str:
    return " ".join(p if isinstance(p, str) else p.label for p in line)


def _short(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _page_key(snapshot: str, around: Surroundings, view: View) -> str:
    seen = (around.url, _VOLATILE.sub("", snapshot), around.messages, sorted(view.opened), sorted(view.offsets.items()))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
