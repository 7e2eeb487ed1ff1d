"""Comparing texts the way VisualWebArena does, in two dialects.

"official" reproduces the benchmark's released code, defects included; "fixed" (the default) mends them:
`> 5` excludes 5, whitespace and a closing full stop do not matter, alternatives are alternatives everywhere.

What only a reader can tell (`fuzzy_match`) is asked of a judge, a function of reference and text.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

# Whether a text says the same as a reference; None where there is no judge.
Ask = Callable[[str, str], bool] | None

# Signs that stand by themselves, and everything between them; a point, colon or comma before a digit belongs to it.
_SIGN = '[;@#$%&?!*\\[\\](){}<>"«»“”‘’„`\u2012-\u2015]'
_TOKEN = re.compile(rf"\.{{2,}}|--|{_SIGN}|[:,](?!\d)|(?:(?!{_SIGN})[^\s.:,-]|\.(?!\.)|[:,](?=\d)|-(?!-))+")
_CLITIC = re.compile(r"(.+?)(n't|'(?:s|m|d|ll|re|ve)|')$")
_OPENING = re.compile(r"'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
_TAIL = re.compile(r"[\s\]})>\"'»”’]*\Z")
_CONTRACTIONS = {
    "cannot": ["can", "not"],
    "gimme": ["gim", "me"],
    "gonna": ["gon", "na"],
    "gotta": ["got", "ta"],
    "lemme": ["lem", "me"],
    "wanna": ["wan", "na"],
}
_ABBREVIATIONS = frozenset(["dr", "etc", "inc", "jr", "ltd", "mr", "mrs", "ms", "no", "sr", "st", "vs"])
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
    """Tokens in the manner of the benchmark's tokenizer (NLTK's): words, numbers, signs by themselves.

    The benchmark keeps a full stop with a number inside a sentence ("0. yes" has no token "0"); "fixed" does not.
    """
    out: list[str] = []
    for match in _TOKEN.finditer(text):
        out += _pieces(match.group(), text, match.end(), dialect)
    return out


def _pieces(token: str, text: str, end: int, dialect: str) -> list[str]:
    """A token that ends there in the text, without the quote before it, the full stop behind it and its clitic."""
    if _OPENING.match(token):
        return ["'", *_pieces(token[1:], text, end, dialect)]
    if len(token) > 1 and token[-1] == "." and token[-2] != "." and _ends_sentence(token[:-1], text, end, dialect):
        return [*_pieces(token[:-1], text, end, dialect), "."]
    if clitic := _CLITIC.fullmatch(token):
        return [*_pieces(clitic.group(1), text, end, dialect), clitic.group(2)]
    return _CONTRACTIONS.get(token, [token])


def _ends_sentence(stem: str, text: str, end: int, dialect: str) -> bool:
    if _TAIL.match(text, end):
        return True
    if dialect == "fixed" and stem.replace(",", "").replace(".", "").isdigit():
        return True
    short = len(stem) == 1 or "." in stem or stem in _ABBREVIATIONS
    return not (short or stem[-1].isdigit()) and text[end].isspace()


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


def match_answer(answer: str, references: Mapping[str, Any], dialect: str, ask: Ask = None, reason: str = "") -> bool:
    """string_match: all keys of `reference_answers` must hold.

    Args:
        answer: the text of the final `stop`.
        references: the keys and what they want.
        dialect: "official" or "fixed".
        ask: the judge, asked only when everything else holds.
        reason: why the task cannot be done (`string_note`), for a reference "N/A".

    Raises:
        Unscored: everything else holds, but fuzzy_match needs a judge.
    """
    held = all(_answer_key(answer, key, value, dialect) for key, value in references.items() if key != "fuzzy_match")
    if not held or "fuzzy_match" not in references:
        return held
    if references["fuzzy_match"] == "N/A":
        return equals(answer, "N/A", dialect) or _judged(answer, f"N/A: {reason}" if reason else "N/A", dialect, ask)
    return all(_any_of(answer, one, dialect, ask) for one in _each(references["fuzzy_match"]))


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


def _any_of(text: str, reference: str, dialect: str, ask: Ask) -> bool:
    """fuzzy_match against alternatives; one that is settled without a judge saves asking it."""
    alternatives = reference.split(" |OR| ")
    if any(equals(text, one, dialect) for one in alternatives):
        return True
    return any(_judged(text, one, dialect, ask) for one in alternatives)


def _judged(text: str, reference: str, dialect: str, ask: Ask) -> bool:
    """Equality is sure and an empty text says nothing; the rest is the judge's."""
    if equals(text, reference, dialect):
        return True
    if not text.strip():
        return False
    if ask is None:
        raise Unscored("fuzzy_match needs a judge")
    return ask(reference, text)


def match_content(content: str, required: Mapping[str, Any], dialect: str, ask: Ask = None) -> bool:
    """required_contents of program_html: the first key that is present decides.

    "official" asks for every alternative of a fuzzy_match, "fixed" for one.

    Raises:
        Unscored: fuzzy_match needs a judge.
    """
    if "exact_match" in required:
        return equals(content, required["exact_match"], dialect)
    if "must_include" in required:
        return all(includes(content, one, dialect) for one in _each(required["must_include"]))
    if "must_exclude" in required:
        return not any(includes(content, one, dialect) for one in _each(required["must_exclude"]))
    if "required_values" in required:
        return all(satisfies(content, one, dialect) for one in _each(required["required_values"]))
    references = _each(required["fuzzy_match"])
    if dialect == "official":
        return all(_judged(content, one, dialect, ask) for ref in references for one in ref.split(" |OR| "))
    return all(_any_of(content, ref, dialect, ask) for ref in references)
