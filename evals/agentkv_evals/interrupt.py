"""Ctrl-C that lets the step under way end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class InterruptGuard:
    """While entered, the first SIGINT or SIGTERM is only noted (and `on_first` called); the second one raises
    KeyboardInterrupt at once. Outside of the main thread, where Python takes no signals, it does nothing."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        self._on_first = on_first
        self._before: dict[int, Any] = {}
        self.signal: int | None = None

    def requested(self) -> bool:
        """Whether the run should end at the next safe moment."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """The shell's convention: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        self._on_first()
