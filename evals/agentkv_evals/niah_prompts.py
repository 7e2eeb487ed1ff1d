"""Needle prompts: a number told once, somewhere in a long text, and asked for at the end."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from agentkv_evals.bench_text import read_text
from agentkv_evals.errors import EvalError

_NAMES = (
    "Agnes", "Alvar", "Beatrix", "Bruno", "Celeste", "Cyril", "Delia", "Edgar", "Elena", "Felix", "Flora", "Gideon",
    "Greta", "Hugo", "Ingrid", "Ivor", "Jasper", "Judith", "Klara", "Leander", "Lydia", "Magnus", "Mirela", "Nestor",
    "Odile", "Oskar", "Petra", "Quentin", "Ramona", "Rufus", "Selma", "Silas", "Tamsin", "Tobias", "Ursula", "Viktor",
    "Wanda", "Wilfred", "Yara", "Zelda",
)  # fmt: skip
_WHO = (
    "the baker", "an old sailor", "the girl next door", "our neighbour", "the postman", "a quiet student",
    "the gardener", "my uncle", "the librarian", "a young painter", "the innkeeper", "the schoolteacher",
)  # fmt: skip
_DID = (
    "carried a basket of apples", "told a story about the sea", "repaired the wooden gate", "waited for the last train",
    "planted beans along the wall", "read the newspaper aloud", "fed the ducks", "painted the shutters green",
    "wrote a long letter home", "looked for a lost glove", "hung the washing out to dry", "sharpened a dozen pencils",
    "listened to the rain", "counted the sheep on the hill", "boiled a pot of soup", "folded the clean sheets",
)  # fmt: skip
_WHERE = (
    "by the river", "behind the church", "in the market square", "on the way to the mill", "near the old bridge",
    "at the edge of the forest", "in the kitchen", "beside the stone well", "under the chestnut tree", "at the harbour",
)  # fmt: skip
_WHEN = (
    "before breakfast", "in the late afternoon", "every Sunday", "while the others slept", "on a windy morning",
    "after the first frost", "when the bells rang", "towards evening", "during the holidays", "as soon as it was warm",
)  # fmt: skip
_MOST_WORDS = 60
"""Longer sentences are cut: the needle's place and the context's length are only as fine as the pieces."""


@dataclass(frozen=True)
class NeedlePrompt:
    """One question about a long text.

    Attributes:
        context: the text.
        question: asked after it.
        prefix: how the reply begins; the model goes on from there. May be empty.
        answer: what the reply must contain.
    """

    context: str
    question: str
    prefix: str
    answer: str

    def found_in(self, reply: str) -> bool:
        """Whether the reply contains the answer as a whole word, whatever the case."""
        return re.search(rf"(?<!\w){re.escape(self.answer)}(?!\w)", reply, flags=re.IGNORECASE) is not None


def read_prompts(path: Path) -> list[NeedlePrompt]:
    """Prompts of a JSON-lines file of {context, question, prefix, answer}; `prefix` may be left out.

    Raises EvalError naming the file, the line and what is wrong there.
    """
    lines = read_text(path).split("\n")
    return [_parse(line, f"{path}, line {n}") for n, line in enumerate(lines, start=1) if line.strip()]


def _parse(line: str, where: str) -> NeedlePrompt:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise EvalError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise EvalError(f"{where}: not a JSON object with context, question, prefix and answer")
    values: dict[str, Any] = {"prefix": "", **row}
    for name in (column.name for column in fields(NeedlePrompt)):
        if name not in values:
            raise EvalError(f"{where}: {name!r} is missing")
        if not isinstance(values[name], str):
            raise EvalError(f"{where}: {name!r} must be a string, not {type(values[name]).__name__}")
        if name != "prefix" and not values[name].strip():
            raise EvalError(f"{where}: {name!r} is empty")
    return NeedlePrompt(values["context"], values["question"], values["prefix"].rstrip(), values["answer"].strip())


def make_prompts(
    n: int, tokens: int, seed: int, count: Callable[[str], int], text: str | None = None
) -> list[NeedlePrompt]:
    """Needle prompts whose needles lie at depths spread evenly over the context, from its start to its end.

    Args:
        n: how many.
        tokens: of a context; the last sentence that would exceed it is left out.
        seed: of names, numbers, depths and filler; each prompt depends on it and on its own place only.
        count: tokens of a piece of text.
        text: what the filler is taken from; None for sentences made up here.

    Raises:
        EvalError: a context so short that only the needle fits.
    """
    pieces = None if text is None else _sentences(text)
    prompts = []
    for index in range(n):
        chance = random.Random(f"{seed}/{index}")
        filler = _plain_sentences(chance) if pieces is None else _from_anywhere(pieces, chance)
        prompts.append(_make_prompt((index + chance.random()) / n, tokens, chance, count, filler))
    return prompts


def _make_prompt(
    depth: float, tokens: int, chance: random.Random, count: Callable[[str], int], filler: Iterator[str]
) -> NeedlePrompt:
    name, number = chance.choice(_NAMES), str(chance.randrange(10_000, 100_000))
    needle = f"The special number of {name} is {number}."
    room = tokens - count(f"\n{needle}\n")
    before: list[str] = []
    after: list[str] = []
    used = 0
    for sentence in filler:
        size = count(f" {sentence}")
        if used + size > room:
            break
        used += size
        if number not in sentence:
            (before if used <= depth * room else after).append(sentence)
    if not used:
        raise EvalError(f"a context of {tokens} tokens has no room for a needle and filler; raise --length")
    context = "\n".join(part for part in (" ".join(before), needle, " ".join(after)) if part)
    return NeedlePrompt(context, f"What is the special number of {name}?", f"The special number of {name} is", number)


def _plain_sentences(chance: random.Random) -> Iterator[str]:
    while True:
        who, did, where, when = (chance.choice(words) for words in (_WHO, _DID, _WHERE, _WHEN))
        sentence = f"{when}, {who} {did} {where}." if chance.random() < 0.5 else f"{who} {did} {where} {when}."
        yield sentence[0].upper() + sentence[1:]


def _sentences(text: str) -> list[str]:
    """Sentences of every line, none longer than `_MOST_WORDS`."""
    found = re.split(r"(?<=[.!?])\s+|\s*\n\s*", text)
    words = [sentence.split() for sentence in found if sentence.strip()]
    return [" ".join(part[at : at + _MOST_WORDS]) for part in words for at in range(0, len(part), _MOST_WORDS)]


def _from_anywhere(pieces: list[str], chance: random.Random) -> Iterator[str]:
    """The sentences in order from a random one on, over and over."""
    start = chance.randrange(len(pieces))
    return itertools.cycle([*pieces[start:], *pieces[:start]])
