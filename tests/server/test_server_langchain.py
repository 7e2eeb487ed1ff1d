"""LangChain's client of OpenAI against the running server."""

from __future__ import annotations

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from server_fakes import Running


@pytest.fixture
def chat(server: Running) -> ChatOpenAI:
    return ChatOpenAI(
        model="tiny", base_url=f"{server.url}/v1", api_key="none", max_retries=0, max_tokens=120, stream_usage=True
    )


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


def test_invoke_and_its_usage(chat: ChatOpenAI) -> None:
    messages = [HumanMessage("Tell me of invoking.")]
    first = chat.invoke(messages)
    assert first.content
    second = chat.invoke([*messages, first, HumanMessage("Go on.")])
    reused = second.usage_metadata["input_token_details"]["cache_read"]
    assert reused >= first.usage_metadata["total_tokens"] - 1


def test_stream(chat: ChatOpenAI) -> None:
    whole = None
    for chunk in chat.stream("Tell me of streams."):
        whole = chunk if whole is None else whole + chunk
    assert whole.content == chat.invoke("Tell me of streams.").content
    assert whole.usage_metadata["output_tokens"] == 120


async def test_async_stream(chat: ChatOpenAI) -> None:
    assert "".join([chunk.content async for chunk in chat.astream("Tell me.")])


def test_streamed_calls_assemble(chat: ChatOpenAI) -> None:
    bound = chat.bind_tools([add], tool_choice="required")
    whole = None
    for chunk in bound.stream("What is 3 and 4?"):
        whole = chunk if whole is None else whole + chunk
    (call,) = whole.tool_calls
    assert call["name"] == "add"
    assert set(call["args"]) == {"a", "b"}


def test_a_round_of_tools(chat: ChatOpenAI) -> None:
    asked = [HumanMessage("What is 3 and 4?")]
    called = chat.bind_tools([add], tool_choice="add").invoke(asked)
    result = add.invoke(called.tool_calls[0])
    assert isinstance(result, ToolMessage)
    reply = chat.bind_tools([add], tool_choice="none").invoke([*asked, called, result])
    assert reply.content
    assert reply.usage_metadata["input_token_details"]["cache_read"] > 0


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(chat: ChatOpenAI, method: str) -> None:
    assert isinstance(chat.with_structured_output(City, method=method).invoke("Rome?"), City)


def test_json_mode(chat: ChatOpenAI) -> None:
    reply = chat.with_structured_output(None, method="json_mode").invoke("Some JSON, please.")
    assert isinstance(reply, dict)


def test_a_session_by_its_name(chat: ChatOpenAI, server: Running) -> None:
    named = chat.bind(extra_body={"session_id": "ada"})
    messages = [HumanMessage("I am Ada.")]
    messages.append(named.invoke(messages))
    messages.append(HumanMessage("Who am I?"))
    named.invoke(messages)
    session = server.http.get("/v1/sessions/ada").json()
    assert session["turns"] == 4
    assert not session["anonymous"]


def test_overflow_is_langchains_own_error(chat: ChatOpenAI) -> None:
    """Agents catch it, and shorten their history."""
    with pytest.raises(ContextOverflowError):
        chat.invoke("x" * 5000)
