"""From the items of a call to LangChain's messages and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from agentkv.chat.call import Finished
from agentkv.chat.pump import Part
from agentkv.tools import CallDelta, TextDelta


def to_chunk(item: Part, model: str) -> ChatGenerationChunk:
    """Text or a piece of a tool call; only the last chunk carries metadata, which would add up if repeated."""
    if isinstance(item, TextDelta):
        return ChatGenerationChunk(message=AIMessageChunk(content=item.text))
    if isinstance(item, CallDelta):
        piece = tool_call_chunk(name=item.name, args=item.arguments, id=item.id, index=item.index)
        return ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
    message = AIMessageChunk(
        content="",
        usage_metadata=_usage(item.metadata),
        response_metadata=_response_metadata(item.metadata, model),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=message)


def to_result(items: Sequence[Part], model: str) -> ChatResult:
    """The whole reply; the last of `items` is the Finished one."""
    text = "".join(item.text for item in items if isinstance(item, TextDelta))
    finished = next(item for item in items if isinstance(item, Finished))
    message = AIMessage(
        content=text,
        tool_calls=[tool_call(name=call.name, args=dict(call.arguments), id=call.id) for call in finished.calls],
        usage_metadata=_usage(finished.metadata),
        response_metadata=_response_metadata(finished.metadata, model),
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def _usage(metadata: dict[str, Any]) -> UsageMetadata:
    prompt, generated = metadata["prompt_tokens"], metadata["generated_tokens"]
    return UsageMetadata(
        input_tokens=prompt,
        output_tokens=generated,
        total_tokens=prompt + generated,
        input_token_details=InputTokenDetails(cache_read=metadata["reused_tokens"]),
    )


def _response_metadata(metadata: dict[str, Any], model: str) -> dict[str, Any]:
    return {
        "model_name": model,
        "model_provider": "agentkv",
        "finish_reason": metadata["finish_reason"],
        "agentkv": metadata,
    }
