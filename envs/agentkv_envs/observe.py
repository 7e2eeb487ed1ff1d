"""From an outline to the observation: ids, styles, and the token budget."""

from __future__ import annotations

import hashlib
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agentkv_envs.additions import add_captions, add_file_inputs, place_frames
from agentkv_envs.inline import Line, Mark, Part
from agentkv_envs.options import COMPACT_TOKENS, TokenCounter
from agentkv_envs.outline import Limits, Outline, View, collapse_repeats, first_on_screen, outline
from agentkv_envs.snapshot import Node, parse_snapshot
from agentkv_envs.types import Element, Observation

MAX_ID = 99
HARD_LIMIT = COMPACT_TOKENS
_LEVELS = 5
_PAGE = "more:page"
_MAX_CHROME = 12
_PIECE_PARTS, _PIECE_CHARS = 8, 240
_VOLATILE = re.compile(r" \[(?:ref|box|cursor)=[^\]]*\]| \[active\]")
_PIECES = re.compile(r"\d|[^\W\d_]+|[^\w\s]|_|\n")


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
    """What is observed besides the page's tree.

    Attributes:
        new_tab: whether the current tab opened since the last observation.
        messages: texts of alerts and of refused form fields.
        captions: a picture's mark to (caption, what it truly shows).
        inputs: label and value of each file input, in document order.
        files: names of the files the agent may upload.
    """

    url: str
    title: str
    tabs: tuple[str, ...]
    current_tab: int
    messages: tuple[str, ...] = ()
    can_go_back: bool = False
    loading: bool = False
    new_tab: bool = False
    captions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    inputs: tuple[Mapping[str, str], ...] = ()
    files: tuple[str, ...] = ()


def read_page(snapshot: str, around: Surroundings) -> tuple[Node, set[str]]:
    """The page's tree with captions and file inputs in it, and the handles that are alive."""
    root = parse_snapshot(snapshot)
    place_frames(root)
    add_captions(root, around.captions)
    add_file_inputs(root, around.inputs)
    return root, {node.ref for node in root.walk() if node.ref}


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
    root, alive = read_page(snapshot, around)

    def size(text: str) -> float:
        # No tokenizer puts so many characters into a token; counting a page of megabytes would take seconds.
        return count_tokens(text) if len(text) <= 30 * limit else math.inf

    levels = _levels()
    while levels:
        page = outline(root, state.view, levels.pop(0))
        draft = _Draft(page, around, style)
        rendered = draft.render(state.ids, alive)
        tokens = size(rendered.text)
        if tokens <= limit:
            break
        if tokens > 4 * limit:
            # The tightest limits show a quarter of a list: they will not do.
            levels = levels[-1:]
    else:
        rendered = draft.render_paged(state.view, state.ids, alive, limit, lambda text: size(text) <= limit)
    alerts = (*around.messages, *(_alert_text(line) for line in page.alerts))
    return finish(rendered, snapshot, state, around, alerts, style)


def _levels() -> list[Limits]:
    """The limits to try, from generous to tight."""
    levels = [Limits()]
    while len(levels) < _LEVELS:
        levels.append(levels[-1].smaller())
    return levels


def finish(
    rendered: Rendered, snapshot: str, state: PageState, around: Surroundings, alerts: tuple[str, ...], style: str
) -> Observation:
    """The observation of a rendered page; what it shows becomes what the next action can name."""
    state.ids, state.shown, state.view.follow = rendered.ids, rendered.shown, False
    return Observation(
        text=rendered.text,
        url=around.url,
        title=around.title,
        elements=tuple(
            Element(number, m.role, m.label, mark_text(m, None, style), m.options, m.disabled, m.box)
            for number, m in rendered.shown.items()
        ),
        alerts=alerts,
        tabs=around.tabs,
        style=style,
        page_key=_page_key(snapshot, around, state.view),
        current_tab=around.current_tab,
        can_go_back=around.can_go_back,
        focused=next((number for number, mark in rendered.shown.items() if mark.focused), None),
        files=around.files,
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
class Rendered:
    """An observation's text, the ids after giving out those it needs, and its elements by id."""

    text: str
    ids: IdPool
    shown: dict[int, Mark]


class _Draft:
    """Turns the lines of one page into text and elements."""

    def __init__(self, page: Outline, around: Surroundings, style: str):
        self.style = style
        self.head = head_lines(around)
        if page.chrome:
            self.head.append(tuple(page.chrome[:_MAX_CHROME]))
        self.head += [(f"alert: {_short(message, 160)}",) for message in around.messages]
        self.head += [("alert:", *(_short(p, 160) if isinstance(p, str) else p for p in line)) for line in page.alerts]
        if around.loading:
            self.head.append(("page still loading",))
        # A heading that repeats the title says nothing new.
        found = zip(page.lines, page.ends, strict=True)
        rest = collapse_repeats([(line, end) for line, end in found if line != (f"# {around.title}",)])
        self.lines = [*((part,) for part in page.chrome[_MAX_CHROME:]), *(line for line, _ in rest)]
        self.ends = [*(math.inf for _ in page.chrome[_MAX_CHROME:]), *(end for _, end in rest)]

    def render(self, ids: IdPool, alive: set[str], lines: list[Line] | None = None) -> Rendered:
        """The head and these lines (None: all of the page); `ids` itself stays as it is."""
        lines = [*self.head, *(self.lines if lines is None else lines)]
        marks = {p.key: p for line in lines for p in line if isinstance(p, Mark)}
        ids = ids.copy()
        numbers = ids.assign(marks, alive)
        text = "\n".join(self._line(line, numbers) for line in lines)
        return Rendered(text, ids, {number: marks[key] for key, number in numbers.items()})

    def render_paged(
        self, view: View, ids: IdPool, alive: set[str], limit: int, fits: Callable[[str], bool]
    ) -> Rendered:
        """As many lines as fit, from where the view begins; a `more` element leads to the rest."""
        pieces = [(piece, end) for line, end in zip(self.lines, self.ends, strict=True) for piece in _pieces(line)]
        lines = [piece for piece, _ in pieces]
        if view.follow:
            view.offsets[_PAGE] = first_on_screen([end for _, end in pieces])
        start = view.offsets.get(_PAGE, 0)
        start = start if start < len(lines) else 0
        end = min(len(lines), start + limit)
        while True:
            after = end if end < len(lines) else 0
            label = "rest of page" if after else "top of page"
            rest: Line = (Mark(_PAGE, "more", label, offset=after),)
            rendered = self.render(ids, alive, [*lines[start:end], rest])
            if fits(rendered.text) or end <= start + 1:
                return rendered
            end = start + max(1, (end - start) * 3 // 4)

    def _line(self, line: Line, numbers: dict[str, int]) -> str:
        out = ""
        previous: Part = ""
        for part in line:
            piece = part if isinstance(part, str) else mark_text(part, numbers.get(part.key), self.style)
            glue = ", " if isinstance(part, Mark) and isinstance(previous, Mark) else " "
            if isinstance(part, str) and part[:1] in (".", ",", ";", "!", "?", ")"):
                glue = ""
            out = f"{out}{glue}{piece}" if out else piece
            previous = part
        return out


def mark_text(mark: Mark, number: int | None, style: str) -> str:
    """An element as observations print it; without its id where `number` is None."""
    state = f" {mark.state}" if mark.state else ""
    if style == "vwa":
        head = f"[{number}] " if number is not None else ""
        return f"{head}{mark.role} '{mark.label}'{state}"
    head = f" [{number}]" if number is not None else ""
    return f'{mark.role} "{mark.label}"{head}{state}'


def head_lines(around: Surroundings) -> list[Line]:
    """Title of the page and, where there are several, the tabs."""
    head: list[Line] = [(f"page: {_short(around.title, 60)}",)]
    if len(around.tabs) > 1:
        now = " (current, new)" if around.new_tab else " (current)"
        titles = (
            f"{i}{now if i == around.current_tab else ''}: {_short(title, 30)}" for i, title in enumerate(around.tabs)
        )
        head.append((f"tabs: {' | '.join(titles)}",))
    return head


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
