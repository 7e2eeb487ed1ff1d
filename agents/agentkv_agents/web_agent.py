"""The language-model agent: any LangChain chat model, one action per page."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from langchain_core.messages import AIMessage

from agentkv.errors import BudgetTooSmall, ContextOverflow, Unsupported
from agentkv_agents import plans
from agentkv_agents.base import AgentStep, KVStats, Usage
from agentkv_agents.following import Course, labelled, read_plan
from agentkv_agents.history import make_history
from agentkv_agents.notes import allow_note, split_note
from agentkv_agents.prompting import PLAIN, Prompting
from agentkv_agents.prompts import system_prompt
from agentkv_envs import action_grammar, action_help, format_action, parse_action

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from agentkv_envs import Action, Observation

Number = TypeVar("Number", int, float)
_PLAN_TOKENS, _NOTED_TOKENS = 768, 384


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
        prompting: how its model is asked; a taught model needs to be asked as it was taught (`prompting_of`).
        history: "append" (every page stays in the prompt) or "official" (only the page of now).
        session_id: name of the KV session; a new one by default.
        constrained: whether the model takes `grammar=`; by default, whether it is a `ChatAgentKV`.

    Raises:
        Unsupported: it should follow a plan, and the history keeps none.
    """

    def __init__(
        self,
        model: BaseChatModel,
        intent: str,
        *,
        style: str = "label-first",
        notes: bool = False,
        prompting: Prompting = PLAIN,
        history: str = "append",
        session_id: str | None = None,
        constrained: bool | None = None,
    ) -> None:
        self._model = model
        self._intent = intent
        self._style = style
        self._notes = notes
        if prompting.plan and history != "append":
            raise Unsupported(f"the history {history!r} keeps no replies, so there is no plan to follow; use 'append'")
        self._prompting = prompting
        actions = action_help(style) if prompting.explain_actions else ""
        self._history = make_history(history, system_prompt(actions, intent, notes, prompting.plan))
        self._session_id = session_id or f"episode-{uuid4().hex}"
        self._constrained = _takes_grammar(model) if constrained is None else constrained
        self._parse_failed = False
        self._page: Observation | None = None
        self._page_key: str | None = None
        self._last: Action | None = None
        self._futile: set[str] = set()
        self._planned = False
        self._course: Course | None = None
        self._number: int | None = None

    def act(self, observation: Observation, feedback: str | None = None) -> AgentStep:
        """Asks the model for the action on this page, and for a plan before the first one; see `Agent.act`.

        The step after a plan has the tokens and the time of both.
        """
        start, planning = time.perf_counter(), None
        try:
            if self._prompting.plan and not self._planned:
                planning = self._make_plan(observation)
            messages = self._history.ask(observation.text, feedback, parse_failed=self._parse_failed)
            self._go_on_in_plan(feedback)
            self._note_effect(observation)
            reply = self._ask(messages, lambda: self._grammar(observation), **self._room_for_notes())
        except (ContextOverflow, BudgetTooSmall) as full:
            step = AgentStep(None, "", "failed", str(full), usage=Usage(0, 0, 0, 0), context_full=True)
        else:
            step = self._read(reply)
        step = step if planning is None else _with_plan(step, planning)
        return replace(step, total_ms=_ms_since(start))

    def close(self) -> None:
        """Frees the KV session, if the model has any."""
        close_session = getattr(self._model, "close_session", None)
        if close_session is not None:
            close_session(self._session_id)

    def _ask(self, messages: list[BaseMessage], grammar: Callable[[], str], **options: Any) -> AIMessage:
        config: RunnableConfig = {"configurable": {"session_id": self._session_id}}
        if self._constrained:
            options["grammar"] = grammar()
        return self._model.invoke(messages, config=config, **options)

    def _room(self, tokens: int) -> dict[str, int]:
        """Plans and notes are longer than the replies that a chat model may be set to, and a grammar ends them."""
        return {"max_tokens": tokens} if self._constrained else {}

    def _room_for_notes(self) -> dict[str, int]:
        return self._room(_NOTED_TOKENS) if self._notes or self._prompting.recall else {}

    def _make_plan(self, observation: Observation) -> AIMessage:
        tabs = list(observation.tabs)
        titles = [tabs.pop(observation.current_tab), *tabs]
        messages = self._history.ask(plans.request(titles), None, parse_failed=False)
        reply = self._ask(messages, lambda: plans.plan_grammar(self._intent), **self._room(_PLAN_TOKENS))
        self._history.answer(reply, None)
        self._planned = True
        # Who may take notes at every step may do so at those that the plan leaves open.
        recall = self._prompting.recall and not self._notes
        self._course = read_plan(str(reply.text), binding=self._prompting.follow_plan, recall=recall)
        return reply

    def _grammar(self, observation: Observation) -> str:
        if self._course is None:
            grammar = action_grammar(observation, exclude=self._futile)
        else:
            grammar = self._course.grammar(observation, self._futile)
        return allow_note(grammar) if self._notes else grammar

    def _go_on_in_plan(self, feedback: str | None) -> None:
        """The last action was carried out, unless there is something to say about it."""
        if self._course is not None and self._last is not None and feedback is None:
            self._course = self._course.after(self._number or self._course.number, labelled(self._last, self._page))

    def _note_effect(self, observation: Observation) -> None:
        """Remember actions that left this page as it was; a page that changed starts afresh."""
        if observation.page_key != self._page_key:
            self._futile.clear()
        elif self._last is not None:
            self._futile.add(format_action(self._last))
        self._page, self._page_key = observation, observation.page_key

    def _read(self, reply: AIMessage) -> AgentStep:
        text = str(reply.text)
        said = split_note(text)[1] if self._notes or self._prompting.recall else text
        if self._prompting.plan:
            self._number, said = plans.split_number(said)
        parsed = parse_action(said, self._style)
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
            context_full=stats.get("finish_reason") == "context_full",
        )


def _with_plan(step: AgentStep, planning: AIMessage) -> AgentStep:
    """The step with what its plan took."""
    stats = planning.response_metadata.get("agentkv", {})
    own, more = asdict(step.usage), asdict(_usage(planning, stats))
    return replace(
        step,
        plan=str(planning.text),
        usage=Usage(**{name: _sum(own[name], more[name]) for name in own}),
        kv=_kv_stats(stats) if step.context_full and not step.raw_text else step.kv,
        prefill_ms=_sum(step.prefill_ms, stats.get("prefill_ms")),
        decode_ms=_sum(step.decode_ms, stats.get("decode_ms")),
    )


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return None if one is None or other is None else one + other


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
