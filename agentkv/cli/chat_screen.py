"""What `agentkv chat` shows: plain lines for pipes, a live line of KV memory in a terminal."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from agentkv.cli.chat_talks import Memory, Step
    from agentkv.engine import Explanation

_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
"""What would move the cursor or change the terminal's colours, if a model wrote it."""
_POLICY_WIDTH = 16
_PROMPT = "\001\033[1m\002you> \001\033[0m\002"
"""Bold; the marks tell readline what takes no column."""


class Screen(Protocol):
    """Where the chat is shown."""

    def read(self) -> str | None:
        """The user's next line, or None at the end of the input."""

    def note(self, text: str) -> None:
        """Say something that is no reply."""

    def explain(self, told: Explanation) -> None:
        """Show what the cache holds."""

    def reply(self, say: Callable[[threading.Event], Iterable[Step]]) -> None:
        """Show a reply as it comes; `say` is given what ends it early when set."""


def screen() -> Screen:
    """For what stdout and stderr are."""
    console = Console(highlight=False)
    if sys.stdout.isatty() and sys.stderr.isatty() and not console.is_dumb_terminal:
        return TerminalScreen(console)
    return PlainScreen()


class PlainScreen:
    """Replies on stdout; everything else on stderr, a line of KV memory after each reply."""

    def read(self) -> str | None:
        return _read("you> " if sys.stdin.isatty() else "")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def explain(self, told: Explanation) -> None:
        self.note(told.to_text())

    def reply(self, say: Callable[[threading.Event], Iterable[Step]]) -> None:
        facts: dict[str, Any] = {}
        for step in say(threading.Event()):
            print(step.text, end="", flush=True)
            facts = step.facts or facts
        print()
        self.note(_facts_line(facts))


class TerminalScreen:
    """Words are wrapped; below the reply a line of KV memory follows every token. Ctrl-C ends the reply only."""

    def __init__(self, console: Console):
        self._console = console

    def read(self) -> str | None:
        return _read(_PROMPT if sys.stdin.isatty() else "")

    def note(self, text: str) -> None:
        self._console.print(Text(text, style="dim"))

    def explain(self, told: Explanation) -> None:
        self._console.print(told)

    def reply(self, say: Callable[[threading.Event], Iterable[Step]]) -> None:
        """Lines that are complete go to the scrollback; only the one being written is part of the live display."""
        cancel, console, line, status = threading.Event(), self._console, "", Text()
        live = Live(console=console, auto_refresh=False, transient=True)
        with _ctrl_c_sets(cancel), live:
            for step in say(cancel):
                complete, line = wrapped(line + printable(step.text), console.width)
                for text in complete:
                    console.print(Text(text))
                status = Text(memory_line(step.memory, step.facts is not None, console.width), "dim", no_wrap=True)
                live.update(Group(Text(line), status) if line else status, refresh=True)
        if line:
            console.print(Text(line))
        console.print(status)


def _read(prompt: str) -> str | None:
    if prompt:
        import readline  # noqa: F401 - input() then edits lines and remembers them
    try:
        return input(prompt).strip()
    except EOFError:
        return None


def wrapped(text: str, width: int) -> tuple[list[str], str]:
    """The lines of a text of which more is to come: those that nothing can change any more, and the last one."""
    complete = []
    while True:
        line, newline, rest = text.partition("\n")
        fits = sum(columns <= width for columns in accumulate(map(cell_len, line)))
        if fits < len(line):
            fits = max(1, fits)
            blank = max(0, line.rfind(" ", 0, fits + 1))
            cut = blank if line[:blank].strip() else fits
            complete.append(line[:cut])
            text = text[cut:].removeprefix(" ")
        elif newline:
            complete.append(line)
            text = rest
        else:
            return complete, line


def printable(text: str) -> str:
    """Text that only prints, with tabs as blanks."""
    return text.translate(_CONTROLS).replace("\t", "    ")


def memory_line(memory: Memory, done: bool, width: int) -> str:
    """What the session holds, in one line of at most so many columns; what comes last is left out first.

    Args:
        done: the reply is complete, so that the confidence is its mean.
    """
    policy = memory.policy if len(memory.policy) <= _POLICY_WIDTH else f"…{memory.policy[1 - _POLICY_WIDTH :]}"
    parts = [policy, f"KV {_size(memory.resident, memory.limit)}", f"{memory.evicted} evicted"]
    if memory.reading:
        parts.append(f"reading {memory.reading} tokens")
    elif memory.confidence is not None:
        parts.append(f"{'mean ' if done else ''}confidence {memory.confidence:.2f}")
    if memory.quantized:
        parts.append(f"{memory.quantized} quantised")
    while cell_len(line := "  ".join(parts)) > width and len(parts) > 1:
        parts.pop()
    return line


def _size(held: int, limit: int | None) -> str:
    unit, name = (2**30, "GiB") if max(held, limit or 0) >= 1000 * 2**20 else (2**20, "MiB")
    return f"{held / unit:.1f}{'' if limit is None else f'/{limit / unit:.1f}'} {name}"


def _facts_line(facts: dict[str, Any]) -> str:
    mib = 2**20
    return (
        f"[{facts['policy']}: KV {facts['resident_kv_bytes'] / mib:.1f} MiB, peak {facts['peak_kv_bytes'] / mib:.1f}"
        f" | {facts['logical_length']} tokens, {facts['evicted_tokens']} evicted,"
        f" {facts['quantized_tokens']} quantised | prefilled {facts['new_tokens']} in {facts['prefill_ms']:.0f} ms,"
        f" reused {facts['reused_tokens']}, generated {facts['generated_tokens']} in {facts['decode_ms']:.0f} ms]"
    )


@contextlib.contextmanager
def _ctrl_c_sets(cancel: threading.Event) -> Iterator[None]:
    """Ctrl-C sets `cancel`; a second one, if that is not heard, interrupts as ever."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
