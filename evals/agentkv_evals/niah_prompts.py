"""Needle prompts: one fact of a long context, asked for after it; read from a file, or made up by `niah_kinds`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from agentkv_evals.bench_text import read_text
from agentkv_evals.errors import EvalError


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
