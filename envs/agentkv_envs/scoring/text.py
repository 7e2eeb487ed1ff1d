"""Comparing texts the way VisualWebArena does, in two dialects.

"official" reproduces the benchmark's released code, defects included; "fixed" (the default) mends them:
`> 5` excludes 5, whitespace and a closing full stop do not matter, alternatives are alternatives everywhere.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

DIALECTS = ("official", "fixed")

_TOKEN = re.compile(
    r"\d+(?:[.,:/]\d+)*(?:\.(?=\s|$))?|[^\W\d_][\w.]*(?:-[\w.]+)*(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b"
    r"|\w[\w.]*(?:-[\w.]+)*|\.{3}|--|[^\w\s]"
)
_COMPARE = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


class Unscored(Exception):
    """A part that needs a judge there is none of."""


def clean(text: str, dialect: str) -> str:
    """Lower case without one surrounding pair of quotes; "fixed" also evens out whitespace and unicode forms."""
    if dialect == "fixed":
        text = " ".join(unicodedata.normalize("NFKC", text).split())
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text.lower()


def words(text: str, dialect: str) -> list[str]:
    """Tokens in the manner of the benchmark's tokenizer: words and numbers, signs by themselves.

    The benchmark keeps a full stop after a number ("0." is one token, unequal to "0"); "fixed" does not.
    """
    found = _TOKEN.findall(text)
    out: list[str] = []
    for i, token in enumerate(found):
        ends = token.endswith(".") and token != "..." and len(token) > 1
        if ends and (dialect == "fixed" or (i == len(found) - 1 and not token[:-1].isdigit())):
            out += [token[:-1], "."]
        else:
            out.append(token)
    return out


def includes(answer: str, reference: str, dialect: str) -> bool:
    """Whether the answer holds the reference: as a token when it is one word, else as a substring.

    Alternatives are joined by " |OR| ".
    """
    return any(_holds(answer, one, dialect) for one in reference.split(" |OR| "))


def _holds(answer: str, reference: str, dialect: str) -> bool:
    reference, answer = clean(reference, dialect), clean(answer, dialect)
    if len(words(reference, dialect)) == 1:
        return reference in words(answer, dialect)
    return reference in answer


def equals(answer: str, reference: str, dialect: str) -> bool:
    """exact_match."""
    return clean(answer, dialect) == clean(reference, dialect)


def satisfies(answer: str, condition: str, dialect: str) -> bool:
    """required_values: the answer as a number against `"<op> n"`; alternatives are joined by " |OR| "."""
    number = _number(answer, dialect)
    return number is not None and any(_compare(number, one, dialect) for one in condition.split(" |OR| "))


def _number(text: str, dialect: str) -> float | None:
    plain = text.replace(",", "").strip()
    if dialect == "fixed":
        plain = plain.lstrip("$€£").strip().rstrip(".")
    try:
        return float(plain) if dialect == "fixed" else int(plain)
    except ValueError:
        return None


def _compare(number: float, condition: str, dialect: str) -> bool:
    match = re.fullmatch(r"\s*(<=|>=|==|<|>)\s*(-?[\d.]+)\s*", condition)
    if match is None:
        return False
    sign, bound = match.group(1), float(match.group(2))
    if dialect == "official" and sign in "<>" and number == bound:
        return True  # the released code widens strict comparisons by a tolerance
    return bool(_COMPARE[sign](number, bound))


def _each(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def match_answer(answer: str, references: Mapping[str, Any], dialect: str) -> bool:
    """string_match: all keys of `reference_answers` must hold.

    Raises:
        Unscored: everything else holds, but fuzzy_match needs a judge.
    """
    held = all(_answer_key(answer, key, value, dialect) for key, value in references.items() if key != "fuzzy_match")
    if held and "fuzzy_match" in references:
        return _fuzzy(answer, references["fuzzy_match"], dialect)
    return held


def _answer_key(answer: str, key: str, value: Any, dialect: str) -> bool:
    if key == "exact_match":
        return equals(answer, value, dialect)
    if key == "must_include":
        return all(includes(answer, one, dialect) for one in _each(value))
    if key == "must_exclude":
        return not any(includes(answer, one, dialect) for one in _each(value))
    if key == "one_of":
        return any(clean(one, dialect) in clean(answer, dialect) for one in _each(value))
    return all(satisfies(answer, one, dialect) for one in _each(value))


def _fuzzy(answer: str, value: Any, dialect: str) -> bool:
    """Without a judge only equality is sure: it passes, an empty answer fails, the rest is unscored."""
    if not answer.strip():
        return False
    if all(equals(answer, one, dialect) for one in _each(value)):
        return True
    raise Unscored("fuzzy_match needs a judge")


def match_content(content: str, required: Mapping[str, Any], dialect: str) -> bool:
    """required_contents of program_html: the first key that is present decides.

    "official" asks for every alternative of a fuzzy_match; either way a judge is needed for it.
    """
    if "exact_match" in required:
        return equals(content, required["exact_match"], dialect)
    if "must_include" in required:
        return all(includes(content, one, dialect) for one in _each(required["must_include"]))
    if "must_exclude" in required:
        return not any(includes(content, one, dialect) for one in _each(required["must_exclude"]))
    if "required_values" in required:
        return all(satisfies(content, one, dialect) for one in _each(required["required_values"]))
    return _fuzzy(content, required["fuzzy_match"], dialect)
