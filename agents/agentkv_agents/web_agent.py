"""The language-model agent: any LangChain chat model, one action per page."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.messages import AIMessage

from agentkv.errors import BudgetTooSmall, ContextOverflow
from agentkv_agents.base import AgentStep, KVStats, Usage
from agentkv_agents.history import make_history
from agentkv_agents.notes import allow_note, split_note
from agentkv_agents.prompts import system_prompt
from agentkv_envs import action_grammar, action_help, format_action, parse_action

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import RunnableConfig

    from agentkv_envs import Action, Observation


class WebAgent:
    """Acts in a browser through a chat model.

    With `ChatAgentKV` each action is generated under a grammar made from the page, so it always parses and
    names an element that exists, and all steps share one KV session. An action that left the page as it was is
    not offered again before the page changes: greedy decoding would repeat it for ever. Any other model is read by a
    lenient parser, and told what was wrong when its reply is no action.

    Args:
        model: the chat model.
        intent: the task, in words.
        style: observation style, "label-first" or "vwa".
        notes: whether a reply may begin with a note to itself; see `agentkv_agents.notes`.
        history: "append" (every page stays in the prompt) or "official" (only the page of now).
        session_id: name of the KV session; a new one by default.
        constrained: whether the model takes `grammar=`; by default, whether it is a `ChatAgentKV`.
    """

    def __init__(
        self,
        model: BaseChatModel,
        intent: str,
        *,
        style: str = "label-first",
        notes: bool = False,
        history: str = "append",
        session_id: str | None = None,
        constrained: bool | None = None,
    ) -> None:
        self._model = model
        self._style = style
        self._notes = notes
        self._history = make_history(history, system_prompt(action_help(style), intent, notes))
        self._session_id = session_id or f"episode-{uuid4().hex}"
        self._constrained = _takes_grammar(model) if constrained is None else constrained
        self._parse_failed = False
        self._page_key: str | None = None
        self._last: Action | None = None
        self._futile: set[str] = set()

    def act(self, observation: Observation, feedback: str | None = None) -> AgentStep:
        """Asks the model for the action on this page; see `Agent.act`."""
        messages = self._history.ask(observation.text, feedback, parse_failed=self._parse_failed)
        self._note_effect(observation)
        options: dict[str, Any] = {"grammar": self._grammar(observation)} if self._constrained else {}
        config: RunnableConfig = {"configurable": {"session_id": self._session_id}}
        start = time.perf_counter()
        try:
            reply = self._model.invoke(messages, config=config, **options)
        except (ContextOverflow, BudgetTooSmall) as full:
            return AgentStep(None, "", "failed", str(full), total_ms=_ms_since(start), context_full=True)
        return self._read(reply, _ms_since(start))

    def close(self) -> None:
        """Frees the KV session, if the model has any."""
        close_session = getattr(self._model, "close_session", None)
        if close_session is not None:
            close_session(self._session_id)

    def _grammar(self, observation: Observation) -> str:
        grammar = action_grammar(observation, exclude=self._futile)
        return allow_note(grammar) if self._notes else grammar

    def _note_effect(self, observation: Observation) -> None:
        """Remember actions that left this page as it was; a page that changed starts afresh."""
        if observation.page_key != self._page_key:
            self._futile.clear()
        elif self._last is not None:
            self._futile.add(format_action(self._last))
        self._page_key = observation.page_key

    def _read(self, reply: AIMessage, total_ms: float) -> AgentStep:
        text = str(reply.text)
        parsed = parse_action(split_note(text)[1] if self._notes else text, self._style)
        self._parse_failed = parsed.action is None
        self._last = parsed.action
        self._history.answer(reply, str(parsed.action) if parsed.action is not None else None)
        stats = reply.response_metadata.get("agentkv", {})
        return AgentStep(
            action=parsed.action,
            raw_text=text,
            parse_mode=parsed.mode,
            error=parsed.error,
            usage=_usage(reply, stats),
            kv=_kv_stats(stats),
            prefill_ms=stats.get("prefill_ms"),
            decode_ms=stats.get("decode_ms"),
            total_ms=total_ms,
            context_full=stats.get("finish_reason") == "context_full",
        )


def _takes_grammar(model: BaseChatModel) -> bool:
    # Looked up, not imported: where the module is not loaded, nobody can hold an instance of its class, and
    # agents on other chat models need not wait for torch.
    module = sys.modules.get("agentkv.chat_model")
    return module is not None and isinstance(model, module.ChatAgentKV)


def _usage(reply: AIMessage, stats: dict[str, Any]) -> Usage:
    if stats:
        names = ("prompt_tokens", "reused_tokens", "new_tokens", "generated_tokens")
        return Usage(**{name: stats.get(name) for name in names})
    if not reply.usage_metadata:
        return Usage()
    prompt = reply.usage_metadata["input_tokens"]
    reused = reply.usage_metadata.get("input_token_details", {}).get("cache_read", 0)
    return Usage(prompt, reused, prompt - reused, reply.usage_metadata["output_tokens"])


def _kv_stats(stats: dict[str, Any]) -> KVStats:
    return KVStats(
        resident_bytes=stats.get("resident_kv_bytes"),
        peak_bytes=stats.get("peak_kv_bytes"),
        evicted_tokens=stats.get("evicted_tokens"),
        quantized_tokens=stats.get("quantized_tokens"),
        logical_length=stats.get("logical_length"),
    )


def _ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1000.0
