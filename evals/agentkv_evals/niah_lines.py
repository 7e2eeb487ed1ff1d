"""Contexts that consist of lines of one kind, each of which could be the one that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentkv_evals.errors import EvalError
from agentkv_evals.niah_prompts import NeedlePrompt


@dataclass(frozen=True)
class Line:
    """A line of a context, and how it is asked for.

    Attributes:
        text: the line.
        question, prefix, answer: as in a needle prompt; without an answer nobody asks for it.
        page: which page it stands on.
    """

    text: str
    question: str = ""
    prefix: str = ""
    answer: str = ""
    page: int = 0


def ask_for_one(
    depth: float, tokens: int, count: Callable[[str], int], lines: Iterable[Line], spare_last_page: bool = False
) -> NeedlePrompt:
    """A context of as many lines as fit, and the question for the one that is nearest to a depth.

    Args:
        depth: 0 to 1, of the part of the context that is asked for.
        tokens: of the context, at most.
        count: tokens of a piece of text.
        lines: from the first on; no two of them with the same question.
        spare_last_page: whether what the last page says is not asked for.

    Raises:
        EvalError: too few tokens for a choice of lines, or more than these lines can fill.
    """
    kept, starts, used = _as_many_as_fit(tokens, count, lines)
    last = kept[-1].page if kept and spare_last_page else None
    places = [at for at, line in enumerate(kept) if line.answer and line.page != last]
    if len(places) < 2:
        what = "two pages" if spare_last_page else "two lines"
        raise EvalError(f"a context of {tokens} tokens has no room for {what} to ask for; raise --length")
    end = starts[places[-1] + 1] if places[-1] + 1 < len(kept) else used
    chosen = kept[min(places, key=lambda at: abs(starts[at] - depth * end))]
    context = "\n".join(line.text for line in kept)
    return NeedlePrompt(context, chosen.question, chosen.prefix, chosen.answer)


def _as_many_as_fit(
    tokens: int, count: Callable[[str], int], lines: Iterable[Line]
) -> tuple[list[Line], list[int], int]:
    """The first lines that fit, how many tokens lie before each, and how many they take together."""
    kept: list[Line] = []
    starts: list[int] = []
    used = 0
    for line in lines:
        size = count(f"{line.text}\n")
        if used + size > tokens:
            return kept, starts, used
        kept.append(line)
        starts.append(used)
        used += size
    raise EvalError(f"there are only lines for {used} tokens of context; lower --length")
