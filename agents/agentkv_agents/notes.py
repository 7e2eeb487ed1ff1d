"""Notes: what an agent writes down before an action, so that it has a fact in its own words when the page is gone.

    note [the Spring cleaning code is DAHLIA47]
    click "Shop" [1]

A note is a part of the reply and of nothing else: it stays in the conversation, and in its KV cache.
"""

from __future__ import annotations

import re

HELP = "note [fact]: on a line before the action, to keep what the page shows and is needed later"
_NOTE = re.compile(r"\s*note \[([^\n]*)\][ \t]*\n", re.IGNORECASE)
_BRACKETS = str.maketrans("[]", "()")


def with_note(note: str, action: str) -> str:
    """The reply that notes something and acts."""
    return f"note [{' '.join(note.translate(_BRACKETS).split())}]\n{action}"


def split_note(reply: str) -> tuple[str | None, str]:
    """The note of a reply, None without one, and the rest of it."""
    found = _NOTE.match(reply)
    return (found[1].strip(), reply[found.end() :]) if found else (None, reply)


def allow_note(grammar: str, most: int = 160) -> str:
    """The grammar of `agentkv_envs.action_grammar`, with a note of at most so many characters allowed first."""
    note = f"NOTE: /[^\\[\\]\\x00-\\x1f\\x7f-\\x9f]{{1,{most}}}/"
    return begin_with(grammar, '("note [" NOTE "]\\n")?', "action") + note + "\n"


def begin_with(grammar: str, beginning: str, rest: str) -> str:
    """The grammar with something before what it generates; `rest` becomes the name of the rule that generates that."""
    start = "start:"
    if not grammar.startswith(start):
        raise ValueError("this is no grammar of actions: it does not begin with its start rule")
    return f"{start} {beginning} {rest}\n{rest}:{grammar.removeprefix(start)}"
