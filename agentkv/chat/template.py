"""Rendering turns to token ids: a whole prompt, or only what a session's ledger still lacks."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any
from uuid import uuid4

from agentkv.chat.turns import Turn, as_text, roles_of
from agentkv.errors import Unsupported
from agentkv.tools import HERMES, Dialect, Tool
from agentkv.tools.dialect import probe

# For tokenizers that bring no chat template (GPT-2 and other base models).
FALLBACK_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
# Stands for the last reply when a delta is rendered; private-use characters, so that no text contains it.
_MARK = "\ue0f1agentkv\ue0f2"
# Stands, with the number of the message, after its last word while its end is looked for. No page can know it.
_END = f"\ue0f1{uuid4().hex}-"
_ENDS = re.compile(f"{_END}(\\d+)\ue0f2")


@dataclass(frozen=True)
class Rendered:
    """Tokens to append to a session.

    Attributes:
        ids: token ids.
        roles: whose words they are, in order: (role, number of tokens). A message begins where the one before it ends,
            so that what the template writes before it counts as its own; the opening of the reply is the model's.
            Empty where template or tokenizer do not show where messages end.
        ends: for each new message, how many of the tokens come before its end; None where that is not known, or inside
            a token.
    """

    ids: list[int]
    roles: tuple[tuple[str, int], ...]
    ends: tuple[int | None, ...]


class ChatTemplate:
    """The chat template of one tokenizer.

    A session's ledger is append-only, so history is never rendered again: `delta` renders the turns with the last
    reply marked and keeps only the text after the mark. Whatever a template does to older turns (dropping
    thoughts, trimming blanks) therefore cannot disagree with the ledger.
    """

    def __init__(self, tokenizer: Any, eos_token_ids: frozenset[int]):
        self._tokenizer = tokenizer
        self._eos_texts = {token: tokenizer.decode([token]) for token in eos_token_ids}
        self._template = tokenizer.chat_template or FALLBACK_TEMPLATE
        self._prefix = "" if tokenizer.chat_template else _bos_text(tokenizer)
        self._control = _control_texts(tokenizer)

    @cached_property
    def dialect(self) -> Dialect:
        """How the model writes tool calls."""
        found = probe(self._apply)
        special = getattr(self._tokenizer, "all_special_tokens", ())
        # Control tokens are left out of decoded text, so calls between them could not be read.
        shown = found and not any(token in found.opener + found.separator + found.closer for token in special)
        return found if found and shown else HERMES

    def prompt(self, turns: Sequence[Turn], tools: Sequence[Tool] = ()) -> Rendered:
        """Tokens of a new session: every turn, then the opening of the reply."""
        shown = [self._shown(turn) for turn in turns]
        return self._rendered(lambda turns: self._prefix + self._render(turns, tools), shown, 0)

    def delta(
        self, turns: Sequence[Turn], covered: int, last_token: int, tools: Sequence[Tool] = ()
    ) -> Rendered | None:
        """Tokens that continue a ledger holding `turns[:covered]`.

        Args:
            covered: turns in the ledger, at least one.
            last_token: the ledger's last token; if it is an end-of-sequence token, the template's own is left out.

        Returns:
            None when the template does not show where the last of them ends, so that the ledger cannot be continued.
        """
        turns = [self._shown(turn) for turn in turns]
        last = turns[covered - 1]
        # A reply is never rendered again; of other messages the end is marked, as when they were rendered first.
        marked = Turn(last.role, _MARK) if last.role == "assistant" else _with_end(last, _MARK)

        def after_last(shown: Sequence[Turn]) -> str:
            text = self._render([*turns[: covered - 1], marked, *shown[covered:]], tools)
            return self._after_eos(text.partition(_MARK)[2], last_token) if text.count(_MARK) == 1 else ""

        try:
            rendered = self._rendered(after_last, turns, covered)
        except Unsupported:  # a template may refuse results without the calls before them
            return None
        return rendered if rendered.ids else None

    def _rendered(self, show: Callable[[Sequence[Turn]], str], turns: Sequence[Turn], first: int) -> Rendered:
        """What `show` makes of the turns, and which of it comes from which of the turns from `first` on."""
        text = show(turns)
        marked = show([_with_end(turn, f"{_END}{n}\ue0f2") if n >= first else turn for n, turn in enumerate(turns)])
        new = len(turns) - first
        if _ENDS.sub("", marked) != text or not getattr(self._tokenizer, "is_fast", False):
            return Rendered(self.encode(text), (), (None,) * new)
        encoded = self._tokenizer(text, add_special_tokens=False, verbose=False, return_offsets_mapping=True)
        ids, starts = list(encoded["input_ids"]), [start for start, _ in encoded["offset_mapping"]]
        whose, ends, removed = roles_of(turns), [], 0
        clean: list[int | None] = [None] * new
        for mark in _ENDS.finditer(marked):
            number, at = int(mark[1]), mark.start() - removed
            end = bisect_left(starts, at)
            ends.append((whose[number], end))
            clean[number - first] = end if end < len(starts) and starts[end] == at else None
            removed += len(mark[0])
        ends.append(("action", len(ids)))
        counts = [(role, end - begin) for (_, begin), (role, end) in pairwise([("", 0), *ends])]
        return Rendered(ids, tuple((role, count) for role, count in counts if count), tuple(clean))

    def _after_eos(self, text: str, last_token: int) -> str:
        """`text` without a leading end-of-sequence token that the ledger already has."""
        eos = self._eos_texts.get(last_token)
        if eos is None:
            return text
        before, found, after = text.partition(eos)
        return after if found and not before.strip() else text

    def _shown(self, turn: Turn) -> Turn:
        return turn if self.dialect.native else as_text(turn, self.dialect)

    def _render(self, turns: Sequence[Turn], tools: Sequence[Tool]) -> str:
        from jinja2 import TemplateError

        specs = [tool.to_openai() for tool in tools] if self.dialect.native else []
        reason: Exception | None = None
        # Some templates want roles to alternate, some know no system message.
        for adapt in (list, merged, _without_system):
            try:
                return self._apply([self._message(turn) for turn in adapt(turns)], specs)
            except TemplateError as error:
                reason = reason or error
        raise Unsupported(f"the model's chat template refuses these messages: {reason}") from reason

    def _apply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        render: Callable[..., str] = self._tokenizer.apply_chat_template
        return render(
            messages, chat_template=self._template, tools=tools or None, tokenize=False, add_generation_prompt=True
        )

    def _message(self, turn: Turn) -> dict[str, Any]:
        message: dict[str, Any] = {"role": turn.role, "content": self._plain(turn.content)}
        if turn.role == "tool":
            message |= {"name": turn.name or "", "tool_call_id": turn.call_id or ""}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "type": "function",
                    "id": call.id,
                    # A mapping, never JSON text: templates write it as JSON, and would quote the text again.
                    "function": {"name": call.name, "arguments": self._plain_values(dict(call.arguments))},
                }
                for call in turn.calls
            ]
        return message

    def _plain_values(self, value: Any) -> Any:
        """JSON with every string in it made plain."""
        if isinstance(value, str):
            return self._plain(value)
        if isinstance(value, Mapping):
            return {self._plain(str(key)): self._plain_values(part) for key, part in value.items()}
        return [self._plain_values(part) for part in value] if isinstance(value, list | tuple) else value

    def _plain(self, content: str) -> str:
        """Content that cannot pass for a part of the template.

        Control tokens written out in a message, by a web page say, would open turns of their own: they are spelled
        apart ("< |im_end|>"). Lone surrogates, which no tokenizer takes, become replacement characters.
        """
        content = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for control in self._control:
            content = content.replace(control, f"{control[0]} {control[1:]}")
        return content

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` as it is."""
        # The template writes its special tokens itself. `verbose` would warn about long prompts, which the
        # engine judges by the model's real window.
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _with_end(turn: Turn, mark: str) -> Turn:
    """The turn with a mark after its last word: before trailing blanks, which a template may trim."""
    words = turn.content.rstrip()
    if not words or turn.calls:  # what a template writes of calls comes after the words
        return turn
    return replace(turn, content=f"{words}{mark}" + turn.content[len(words) :])


def merged(turns: Sequence[Turn]) -> list[Turn]:
    """Turns in which neighbours of one role are one message."""
    joined: list[Turn] = []
    for turn in turns:
        if joined and joined[-1].role == turn.role != "tool" and not joined[-1].calls:
            joined[-1] = replace(turn, content=f"{joined[-1].content}\n\n{turn.content}")
        else:
            joined.append(turn)
    return joined


def _without_system(turns: Sequence[Turn]) -> list[Turn]:
    """Turns whose system messages are part of the user's."""
    return merged([replace(turn, role="user") if turn.role in ("system", "developer") else turn for turn in turns])


def _control_texts(tokenizer: Any) -> list[str]:
    """How the tokenizer's special and added tokens are written, longest first."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    texts = {str(token) for token in (*getattr(tokenizer, "all_special_tokens", ()), *added)}
    return sorted((text for text in texts if len(text) > 1), key=len, reverse=True)


def _bos_text(tokenizer: Any) -> str:
    """The beginning-of-sequence token as text, if this tokenizer puts one before plain text."""
    ids = tokenizer("a")["input_ids"]
    return tokenizer.bos_token if ids and ids[0] == tokenizer.bos_token_id else ""
