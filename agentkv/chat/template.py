"""Rendering turns to token ids: a whole prompt, or only what a session's ledger still lacks."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import uuid4

from agentkv.chat.messages import Turn, roles_of
from agentkv.errors import Unsupported

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
    """

    ids: list[int]
    roles: tuple[tuple[str, int], ...]


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

    def prompt(self, turns: Sequence[Turn]) -> Rendered:
        """Tokens of a new session: every turn, then the opening of the reply."""
        return self._rendered(lambda shown: self._prefix + self._render(shown), turns, 0)

    def delta(self, turns: Sequence[Turn], covered: int, last_token: int) -> Rendered | None:
        """Tokens that continue a ledger holding `turns[:covered]`.

        Args:
            covered: turns in the ledger; the last of them is a reply of the model.
            last_token: the ledger's last token; if it is an end-of-sequence token, the template's own is left out.

        Returns:
            None when the template does not show that reply, so that the ledger cannot be continued.
        """
        reply = Turn(turns[covered - 1].role, _MARK)

        def after_reply(shown: Sequence[Turn]) -> str:
            text = self._render([*turns[: covered - 1], reply, *shown[covered:]])
            return self._after_eos(text.partition(_MARK)[2], last_token) if text.count(_MARK) == 1 else ""

        rendered = self._rendered(after_reply, turns, covered)
        return rendered if rendered.ids else None

    def _rendered(self, show: Callable[[Sequence[Turn]], str], turns: Sequence[Turn], first: int) -> Rendered:
        """What `show` makes of the turns, and which of it comes from which of the turns from `first` on."""
        text = show(turns)
        marked = show([_with_end(turn, number) if number >= first else turn for number, turn in enumerate(turns)])
        if _ENDS.sub("", marked) != text or not getattr(self._tokenizer, "is_fast", False):
            return Rendered(self.encode(text), ())
        encoded = self._tokenizer(text, add_special_tokens=False, verbose=False, return_offsets_mapping=True)
        ids, starts = list(encoded["input_ids"]), [start for start, _ in encoded["offset_mapping"]]
        whose, ends, removed = roles_of(turns), [], 0
        for mark in _ENDS.finditer(marked):
            ends.append((whose[int(mark[1])], bisect_left(starts, mark.start() - removed)))
            removed += len(mark[0])
        ends.append(("action", len(ids)))
        counts = [(role, end - begin) for (_, begin), (role, end) in pairwise([("", 0), *ends])]
        return Rendered(ids, tuple((role, count) for role, count in counts if count))

    def _after_eos(self, text: str, last_token: int) -> str:
        """`text` without a leading end-of-sequence token that the ledger already has."""
        eos = self._eos_texts.get(last_token)
        if eos is None:
            return text
        before, found, after = text.partition(eos)
        return after if found and not before.strip() else text

    def _render(self, turns: Iterable[Turn]) -> str:
        from jinja2 import TemplateError

        messages = [{"role": turn.role, "content": self._plain(turn.content)} for turn in turns]
        render: Callable[..., str] = self._tokenizer.apply_chat_template
        try:
            return render(messages, chat_template=self._template, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise Unsupported(f"the model's chat template refuses these messages: {error}") from error

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


def _with_end(turn: Turn, number: int) -> Turn:
    """The turn with a mark after its last word: before trailing blanks, which a template may trim."""
    words = turn.content.rstrip()
    if not words:
        return turn
    return Turn(turn.role, f"{words}{_END}{number}\ue0f2" + turn.content[len(words) :])


def _control_texts(tokenizer: Any) -> list[str]:
    """How the tokenizer's special and added tokens are written, longest first."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    texts = {str(token) for token in (*getattr(tokenizer, "all_special_tokens", ()), *added)}
    return sorted((text for text in texts if len(text) > 1), key=len, reverse=True)


def _bos_text(tokenizer: Any) -> str:
    """The beginning-of-sequence token as text, if this tokenizer puts one before plain text."""
    ids = tokenizer("a")["input_ids"]
    return tokenizer.bos_token if ids and ids[0] == tokenizer.bos_token_id else ""
