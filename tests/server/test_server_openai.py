"""OpenAI's own client against the running server."""

from __future__ import annotations

import json

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel
from server_fakes import Running

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
NOW = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {}}}
ASKED = [{"role": "user", "content": "Hello there."}]


@pytest.fixture
def client(server: Running) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_a_whole_reply(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="tiny", messages=ASKED, max_completion_tokens=12)
    (choice,) = reply.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert reply.usage.completion_tokens == 12
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 12


def test_a_streamed_reply_is_the_whole_one(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=20)
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=ASKED, max_tokens=20, stream=True, stream_options={"include_usage": True}
        )
    )
    *deltas, usage = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in deltas) == whole.choices[0].message.content
    assert [chunk.choices[0].delta.role for chunk in deltas if chunk.choices[0].delta.role] == ["assistant"]
    assert [chunk.choices[0].finish_reason for chunk in deltas if chunk.choices[0].finish_reason] == ["length"]
    assert usage.choices == []
    assert usage.usage.completion_tokens == 20
    assert len({chunk.id for chunk in chunks}) == 1


def test_without_asking_there_is_no_usage_chunk(client: OpenAI) -> None:
    chunks = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=3, stream=True)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_turns_are_read_from_the_cache(client: OpenAI) -> None:
    messages, cached = [{"role": "user", "content": "My name is Ada."}], []
    for question in ("And yours?", "Really?", "Well then."):
        reply = client.chat.completions.create(model="tiny", messages=messages, max_tokens=8)
        cached.append((reply.usage.prompt_tokens_details.cached_tokens, reply.usage.total_tokens))
        messages += [reply.choices[0].message, {"role": "user", "content": question}]
    assert cached[0][0] == 0
    assert cached[1][0] >= cached[0][1] - 1
    assert cached[2][0] >= cached[1][1] - 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}], ids=["any", "one"])
def test_forced_calls(client: OpenAI, choice, stream: bool) -> None:
    asked = {"model": "tiny", "messages": ASKED, "tools": [ADD, NOW], "tool_choice": choice, "max_tokens": 120}
    if stream:
        calls, names, reasons = {}, [], []
        for chunk in client.chat.completions.create(**asked, stream=True):
            (one,) = chunk.choices
            reasons += [one.finish_reason] if one.finish_reason else []
            for delta in one.delta.tool_calls or ():
                names += [delta.function.name] if delta.function.name else []
                calls[delta.index] = calls.get(delta.index, "") + (delta.function.arguments or "")
        assert reasons == ["tool_calls"]
        ((name,), (arguments,)) = names, calls.values()
    else:
        (one,) = client.chat.completions.create(**asked).choices
        assert one.finish_reason == "tool_calls"
        assert one.message.content is None
        (call,) = one.message.tool_calls
        assert call.id
        name, arguments = call.function.name, call.function.arguments
    assert name in ("add", "now") if choice == "required" else name == "add"
    assert set(json.loads(arguments)) == ({"a", "b"} if name == "add" else set())


def test_parallel_calls_and_their_results(client: OpenAI) -> None:
    asked = {"model": "tiny", "tools": [ADD, NOW], "tool_choice": "required", "max_tokens": 200}
    first = client.chat.completions.create(messages=ASKED, parallel_tool_calls=True, **asked).choices[0].message
    assert first.tool_calls
    results = [{"role": "tool", "tool_call_id": call.id, "content": "7"} for call in first.tool_calls]
    reply = client.chat.completions.create(
        model="tiny", messages=[*ASKED, first, *results], tools=[ADD, NOW], tool_choice="none", max_tokens=8
    )
    assert reply.choices[0].message.tool_calls is None
    assert reply.choices[0].message.content
    assert reply.usage.prompt_tokens_details.cached_tokens > 100


class Person(BaseModel):
    name: str
    age: int


def test_structured_output_is_parsed(client: OpenAI) -> None:
    reply = client.chat.completions.parse(model="tiny", messages=ASKED, response_format=Person, max_tokens=100)
    assert isinstance(reply.choices[0].message.parsed, Person)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_json_object(client: OpenAI, stream: bool) -> None:
    asked = {"model": "tiny", "messages": ASKED, "response_format": {"type": "json_object"}, "max_tokens": 60}
    if stream:
        chunks = client.chat.completions.create(**asked, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        text = client.chat.completions.create(**asked).choices[0].message.content
    assert isinstance(json.loads(text), dict)


def test_a_stop_string_ends_the_reply_and_is_not_in_it(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=40).choices[0].message.content
    stop = whole[10:13]
    for stream in (False, True):
        reply = client.chat.completions.create(
            model="tiny", messages=ASKED, max_tokens=40, stop=[stop, "never said"], stream=stream
        )
        if stream:
            last = list(reply)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in last)
            reason = last[-1].choices[0].finish_reason
        else:
            text, reason = reply.choices[0].message.content, reply.choices[0].finish_reason
        assert reason == "stop"
        assert text == whole[: whole.index(stop)]


def test_a_seed_repeats_a_reply(client: OpenAI) -> None:
    def say(seed: int) -> str | None:
        reply = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=30, temperature=1.0, seed=seed)
        return reply.choices[0].message.content

    assert say(3) == say(3) != say(-4)


def test_log_probabilities(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=5, logprobs=True, top_logprobs=3)
    tokens = reply.choices[0].logprobs.content
    assert len(tokens) == 5
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob < 0  # greedy
    chunks = client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=5, logprobs=True, stream=True)
    streamed = [token for chunk in chunks if chunk.choices[0].logprobs for token in chunk.choices[0].logprobs.content]
    assert [token.logprob for token in streamed] == pytest.approx([token.logprob for token in tokens], abs=1e-4)
    assert all(token.top_logprobs == [] for token in streamed)


def test_what_a_grammar_forces_has_probability_one(client: OpenAI) -> None:
    schema = {"type": "object", "properties": {"word": {"const": "river"}}, "required": ["word"]}
    reply = client.chat.completions.create(
        model="tiny",
        messages=ASKED,
        response_format={"type": "json_schema", "json_schema": {"name": "w", "schema": schema}},
        logprobs=True,
        max_tokens=60,
    )
    assert reply.choices[0].message.content == '{"word": "river"}'
    assert "".join(token.token for token in reply.choices[0].logprobs.content) == '{"word": "river"}'
    assert all(token.logprob == 0 for token in reply.choices[0].logprobs.content)


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "tiny"
    assert model.max_model_len == 4096
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-4o' here"):
        client.models.retrieve("gpt-4o")


def test_errors_are_those_that_the_client_knows(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4o", messages=ASKED)
    assert missing.value.code == "model_not_found"
    for stream in (False, True):  # a stream that cannot begin is an error of its own, not an event
        with pytest.raises(openai.BadRequestError) as overflow:
            client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "x" * 5000}], stream=stream
            )
        assert overflow.value.code == "context_length_exceeded"
        assert overflow.value.body["limit"] == 4096
        assert overflow.value.body["prompt_tokens"] > 5000
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError, match="the model reads text only"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": [picture]}])
    with pytest.raises(openai.BadRequestError, match="temperature must be 0 or above"):
        client.chat.completions.create(model="tiny", messages=ASKED, temperature=-1)


def test_fields_without_effect_are_named(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=ASKED, max_tokens=2, frequency_penalty=0.5, extra_body={"min_p": 0.1}, user="somebody"
    )
    assert raw.headers["x-agentkv-ignored"] == "frequency_penalty, min_p"


async def test_the_async_client(server: Running) -> None:
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none")
    stream = await client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=6, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    await client.close()
