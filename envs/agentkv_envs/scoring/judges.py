"""What only a reader or a viewer can tell is asked of judges; the package brings none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from agentkv_envs.scoring.text import Ask, Unscored

TextJudge = Callable[[str, str, str], bool]
ImageJudge = Callable[[bytes, str], str]
T = TypeVar("T")


@dataclass(frozen=True)
class Judges:
    """Judges there are; each may be called on another thread.

    Attributes:
        text: (question, reference, answer) to whether the answer says what the reference says. A reference that
            begins with "N/A: " is the reason why the question has no answer.
        image: (bytes of a picture, question) to an answer in words.
    """

    text: TextJudge | None = None
    image: ImageJudge | None = None

    def ask(self, question: str) -> Ask:
        """The text judge for one question, or None; an error of its own leaves the part unscored."""
        judge = self.text
        if judge is None:
            return None
        return lambda reference, answer: bool(_careful(lambda: judge(question, reference, answer)))

    def look(self, picture: bytes, question: str) -> str:
        """The image judge's answer.

        Raises:
            Unscored: there is none, or it failed.
        """
        judge = self.image
        if judge is None:
            raise Unscored("a question about a picture needs an image judge")
        return str(_careful(lambda: judge(picture, question)))


def _careful(call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        raise Unscored(f"the judge failed: {type(error).__name__}: {error}") from None
