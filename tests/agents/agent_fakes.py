"""A page and a chat model that need neither browser nor weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llguidance
from chat_fakes import byte_tokenizer
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from llguidance.hf import from_tokenizer
from pydantic import PrivateAttr

from agentkv_envs import Element, Observation


def page(key: str = "p1", **changes: Any) -> Observation:
    """A shop page with a link, a search box, a select box and a disabled button."""
    elements = (
        Element(1, "searchbox", "Search", 'searchbox "Search"'),
        Element(2, "link", "red kettle", 'link "red kettle"'),
        Element(3, "combobox", "Sort by", 'combobox "Sort by"', options=("price", "name")),
        Element(4, "button", "Checkout", 'button "Checkout" disabled', disabled=True),
        Element(5, "more", "next items", 'more "next items"'),
    )
    fields: dict[str, Any] = {
        "text": "\n".join(f"{element.text} [{element.id}]" for element in elements),
        "url": "http://127.0.0.1:1/shop",
        "title": "Shop",
        "elements": elements,
        "alerts": (),
        "tabs": ("Shop",),
        "style": "label-first",
        "page_key": key,
    }
    return Observation(**{**fields, **changes})


class ScriptedChatModel(BaseChatModel):
    """Gives the replies it was given, one after the other, and remembers what it was asked."""

    replies: list[Any]
    _asked: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _options: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _closed: list[str] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def asked(self) -> list[list[BaseMessage]]:
        return self._asked

    @property
    def options(self) -> list[dict[str, Any]]:
        return self._options

    @property
    def closed(self) -> list[str]:
        return self._closed

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self._asked.append(list(messages))
        self._options.append(kwargs)
        reply = self.replies[len(self._asked) - 1]
        if isinstance(reply, Exception):
            raise reply
        message = reply if isinstance(reply, AIMessage) else AIMessage(reply)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def close_session(self, session_id: str) -> None:
        self._closed.append(session_id)


def accepting(grammar: str) -> Callable[[str], bool]:
    """Whether a text is wholly one of the grammar's."""
    wrapped = from_tokenizer(byte_tokenizer())

    def accepts(text: str) -> bool:
        matcher = llguidance.LLMatcher(wrapped, llguidance.LLMatcher.grammar_from_lark(grammar))
        ids = wrapped.tokenize_str(text)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    return accepts
