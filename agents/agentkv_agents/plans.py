"""Plans: what an agent writes before its first action, and then goes through by number.

    1 type "Search" [black toaster] [1]
    2 click "?"
    3 stop []

The plan is the reply to a message of its own, before the first page; `?` stands for what only pages will tell. Every
reply after it begins with the number of its step: `2 click "Black Toaster" [17]`. What comes next then follows from
the reply before and from the plan, which both stay in the conversation, and in its KV cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

HELP = "Begin each reply with the number of its step in your plan."
MOST_STEPS = 30
_NUMBER = re.compile(r"\s*(\d{1,2})[ .):]\s*(?=\S)")
_PRINTED = "[^\\x00-\\x1f\\x7f-\\x9f]"
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_STEPS = f"""\
step: typed | OTHER
typed: "type \\"" LABEL "\\" [" ("?" | SPAN) "] [" ("0" | "1") "]"
LABEL: /[^"\\x00-\\x1f\\x7f-\\x9f]{{1,80}}/
OTHER: /([^\\x00-\\x1f\\x7f-\\x9ft]|t[^\\x00-\\x1f\\x7f-\\x9fy]){_PRINTED}{{0,158}}/
"""


def request(titles: Sequence[str]) -> str:
    """The message that asks for a plan. `titles`: of the open tabs, the current one first."""
    return f"Open: {' | '.join(titles)}\nWrite your plan: one numbered action a line, ? for what is not known yet."


def format_plan(steps: Sequence[str]) -> str:
    """The reply that is a plan."""
    return "\n".join(f"{number} {step}" for number, step in enumerate(steps, 1))


def plan_grammar(intent: str, most: int = MOST_STEPS) -> str:
    """A grammar of plans of at most so many steps, for llguidance.

    What is to be typed is some words of the task as they stand there, or `?`: else it is not known yet, and a small
    model misspells names that it has never seen.

    Args:
        intent: the task, in words.
        most: the most steps.
    """
    rules = ['start: "1 " step after_1?']
    rules += [f'after_{n - 1}: "\\n{n} " step after_{n}?' for n in range(2, most)]
    rules.append(f'after_{most - 1}: "\\n{most} " step')
    words = _WORDS.findall(" ".join(intent.split())) or ["?"]
    span = f'SPAN: %regex {{"substring_chunks": {json.dumps(words, ensure_ascii=False)}}}'
    return "\n".join([*rules, _STEPS + span]) + "\n"


def numbered(number: int, action: str) -> str:
    """The reply that takes a step of the plan."""
    return f"{number} {action}"


def split_number(reply: str) -> tuple[int | None, str]:
    """The number that a reply begins with, None without one, and the rest of it."""
    found = _NUMBER.match(reply)
    return (int(found[1]), reply[found.end() :]) if found else (None, reply)
