"""From the form of a reply to a Lark grammar in llguidance's dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkv.tools.calls import Tool
from agentkv.tools.dialect import Dialect
from agentkv.tools.form import ReplyForm
from agentkv.tools.schema import tighten

MAX_CALLS = 8
"""Calls of one reply, where several are allowed."""
_ANYTHING = r"(.|\n)*"
_SPACING = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}

Spelling = Callable[[str], Sequence[str | int]]
"""Splits text into plain parts and ids of control tokens, which no text of a grammar matches."""


def reply_grammar(form: ReplyForm, dialect: Dialect, spell: Spelling) -> str | None:
    """The grammar of the whole reply; None where anything goes.

    Raises:
        Unsupported: a schema that is no JSON.
    """
    if form.grammar is not None:
        return form.grammar
    if form.schema is None and not form.tools:
        return None
    rules = _call_rules(form, dialect, spell) if form.may_call else []
    if form.schema is not None:
        starts = ["reply", *(["opener calls"] if rules else [])]
        rules += [f"reply: {_json(form.schema)}", f"opener: {_spelled(dialect.opener, spell)}"]
    elif not rules:
        starts, rules = ["TEXT"], [_text_without(dialect.opener, spell)]
    elif form.choice == "required":
        starts, rules = ["opener calls"], [*rules, f"opener: {_spelled(dialect.opener, spell)}"]
    else:
        starts, rules = ["TEXT", "head calls"], [*rules, f"TEXT: /{_ANYTHING}/", *_head(dialect.opener, spell)]
    return "\n".join(["%llguidance {}", f"start: {' | '.join(starts)}", *rules])


def json_grammar(schema: Mapping[str, Any]) -> str:
    """The grammar of a JSON document alone, to be compiled before any model is there."""
    return f"%llguidance {{}}\nstart: {_json(schema)}"


def _call_rules(form: ReplyForm, dialect: Dialect, spell: Spelling) -> list[str]:
    """The calls and their closer, without the opener."""
    tools = form.callable_tools
    more = f" ({_spelled(dialect.separator, spell)} call){{0,{MAX_CALLS - 1}}}" if form.parallel else ""
    closer = f" {_spelled(dialect.closer, spell)}" if dialect.closer else ""
    heads = " | ".join(f"{json.dumps(_tail(dialect, tool))} arguments_{n}" for n, tool in enumerate(tools))
    return [
        f"calls: call{more}{closer}",
        f'call: {json.dumps(_HEAD)} ({heads}) "}}"',
        *(f"arguments_{n}: {_json(tool.schema)}" for n, tool in enumerate(tools)),
    ]


_HEAD = '{"name": "'


def _tail(dialect: Dialect, tool: Tool) -> str:
    """What of a call's head is the tool's own."""
    return dialect.head(tool.name).removeprefix(_HEAD)


def _json(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps(tighten(schema) | {"x-guidance": _SPACING})


def _head(opener: str, spell: Spelling) -> list[str]:
    """Any text that ends with the first opener in it."""
    parts = spell(opener)
    first = parts[0]
    if isinstance(first, int):
        return [f"head: TEXT {_joined(parts)}"]
    rest = f" {_joined(parts[1:])}" if parts[1:] else ""
    return [f"words[lazy]: /{_ANYTHING}/ {json.dumps(first)}", f"head: words{rest}"]


def _text_without(opener: str, spell: Spelling) -> str:
    """Any text in which no call is opened."""
    first = spell(opener.strip())[0]
    if isinstance(first, int):  # no text holds it
        return f"TEXT: /{_ANYTHING}/"
    return f"TEXT: /{_ANYTHING}/ & ~/{_ANYTHING}{_regex(first)}{_ANYTHING}/"


def _regex(text: str) -> str:
    return re.escape(text).replace("/", r"\/")


def _spelled(text: str, spell: Spelling) -> str:
    return _joined(spell(text))


def _joined(parts: Sequence[str | int]) -> str:
    return " ".join(f"<[{part}]>" if isinstance(part, int) else json.dumps(part) for part in parts)
