"""From a request's body to a call of the chat host."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from agentkv.chat.call import ChatRequest
from agentkv.chat.messages import to_turns
from agentkv.chat.turns import Turn
from agentkv.engine.sampling import SamplingParams
from agentkv.server.body import Call, ChatBody, Message
from agentkv.server.errors import ApiError
from agentkv.server.settings import NAME, NAME_RULE, ServerSettings
from agentkv.tools import ReplyForm
from agentkv.tools.calls import parse_arguments

_SEEDS = 2**63
_WINDOWS = 4
"""Of the model: what one call may add to a session that outlives them."""


def chat_request(body: ChatBody, header: str | None, settings: ServerSettings, window: int) -> ChatRequest:
    """The call that a body asks for.

    Args:
        header: the session id of the X-Session-Id header.
        window: of the model. No reply is longer: a session may outlive it, and a reply that repeats itself for ever
            must end.

    Raises:
        ApiError: another model, or a session id that is none.
        AgentKVError: a value out of range, a form or content that is not supported.
    """
    check_model(body.model, settings)
    form = ReplyForm.parse(body.tools, body.tool_choice, body.parallel_tool_calls, body.response_format)
    return ChatRequest(
        turns=turns_of(body.messages),
        settings=settings.kv,
        params=_params(body, form, settings, window),
        session_id=session_id(body, header),
        form=form,
        max_anonymous=settings.max_anonymous,
        max_prompt=settings.max_prompt or _WINDOWS * window,
    )


def check_model(model: str | None, settings: ServerSettings) -> None:
    """Raises ApiError for a model that is not served."""
    if model not in (None, settings.model):
        message = f"there is no model {model!r} here; this server has {settings.model!r}"
        raise ApiError(message, 404, "model_not_found", "model")


def turns_of(messages: Sequence[Message]) -> tuple[Turn, ...]:
    """The conversation. Raises Unsupported for what the model cannot read."""
    called = {call.id: call.function.name for message in messages for call in message.tool_calls or ()}
    return to_turns([_to_langchain(message, place, called) for place, message in enumerate(messages, start=1)])


def session_id(body: ChatBody, header: str | None) -> str | None:
    """By body, header or prompt cache key; None: the session whose messages are the longest prefix.

    A prompt cache key may be any text; one that cannot be a name stands for its digest.
    """
    if header is not None and not NAME.fullmatch(header):
        raise ApiError(
            NAME_RULE,
            code="invalid_session_id",
            param="X-Session-Id",
        )
    key = body.prompt_cache_key or None
    if key is not None and not NAME.fullmatch(key):
        key = f"key-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    return body.session_id or header or key


def _to_langchain(message: Message, place: int, called: Mapping[str, str]) -> BaseMessage:
    """One message; `called` has the names of the tools by the ids of their calls, for templates that write them."""
    content: Any = "" if message.content is None else message.content
    match message.role:
        case "assistant":
            calls = [
                tool_call(name=call.function.name, args=dict(_arguments(call)), id=call.id)
                for call in message.tool_calls or ()
            ]
            return AIMessage(content, tool_calls=calls)
        case "tool":
            if message.tool_call_id is None:
                raise ApiError(f"message {place} is a tool's result without tool_call_id", param="messages")
            name = message.name or called.get(message.tool_call_id)
            return ToolMessage(content, tool_call_id=message.tool_call_id, name=name)
        case "user":
            return HumanMessage(content)
        case _:  # "developer" is OpenAI's newer name of "system"; templates know the older one
            return SystemMessage(content)


def _arguments(call: Call) -> Mapping[str, Any]:
    return parse_arguments(call.function.name, call.function.arguments)


def _params(body: ChatBody, form: ReplyForm, settings: ServerSettings, window: int) -> SamplingParams:
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return SamplingParams(
        max_tokens=min(settings.max_tokens if limit is None else limit, window),
        temperature=settings.temperature if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=body.top_k or 0,
        seed=None if body.seed is None else body.seed % _SEEDS,
        stop=() if form.constrained else tuple(stop),  # a grammar ends the reply
        min_tokens=int(not form.constrained),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )
