"""Notes: what an agent writes down before an action, so that it has a fact in its own words when the page is gone.

    note [the Spring cleaning code is DAHLIA47]
    click "Shop" [1]

A note is a part of the reply and of nothing else: it stays in the conversation, and in its KV cache. It may be taken
when the fact is seen, and it may be what an agent recalls when the fact is needed (see `Prompting.recall`).
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


def note_rule(most: int = 320) -> str:
    """The rule `note` of Lark: a line that is a note of at most so many characters."""
    text = f"/[^\\[\\]\\x00-\\x1f\\x7f-\\x9f]{{1,{most}}}/"
    return f'note: "note [" {text} "]\\n"\n'


def allow_note(grammar: str) -> str:
    """The grammar of `agentkv_envs.action_grammar`, with a note allowed first."""
    return start_with(grammar, "note? action", "action") + note_rule()


def start_with(grammar: str, start: str, rest: str) -> str:
    """The grammar with another start, in which `rest` stands for what the grammar generates."""
    own = "start:"
    if not grammar.startswith(own):
        raise ValueError("this is no grammar of actions: it does not begin with its start rule")
    return f"{own} {start}\n{rest}:{grammar.removeprefix(own)}"
