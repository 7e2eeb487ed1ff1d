"""Tools through the chat model: what may be called, what streams, what the model is told, what is refused."""

import json
from typing import Annotated

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from puppet import call_text, lines, puppet
from pydantic import BaseModel
from typing_extensions import TypedDict

from agentkv.chat_model import ChatAgentKV
from agentkv.errors import AgentKVError, ReplyTruncated, Unsupported


@tool
def get_weather(location: str, days: int = 1) -> str:
    """Get weather at a location."""
    return "sunny"


@tool
def now() -> str:
    """The time."""
    return "noon"


OSLO = call_text("get_weather", '{"location": "Oslo"}')
NOW = call_text("now", "{}")


def make(*replies, native=False, **fields):
    engine = puppet(lines(*replies), native=native)
    return engine, ChatAgentKV.from_engine(engine, **{"max_tokens": 200} | fields)


def facts(message):
    return message.response_metadata["agentkv"]


def sent(chat, session_id):
    """The text of a session's ledger."""
    host = chat._host({})
    return host.engine.tokenizer.decode(host._sessions.by_id(chat._settings, session_id).kv.ledger)


@pytest.mark.parametrize("native", [False, True])
def test_a_call_is_parsed_and_streamed(native):
    _, chat = make(OSLO, OSLO, native=native)
    bound = chat.bind_tools([get_weather, now], tool_choice="any")
    invoked = bound.invoke("Weather in Oslo?")
    chunks = list(bound.stream("Weather in Oslo?"))
    (call,) = invoked.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"location": "Oslo"})
    assert invoked.content == ""
    assert invoked.response_metadata["finish_reason"] == "tool_calls"
    pieces = [piece for chunk in chunks for piece in chunk.tool_call_chunks]
    assert [piece["name"] for piece in pieces] == ["get_weather"] + [None] * (len(pieces) - 1)
    assert [bool(piece["id"]) for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert {piece["index"] for piece in pieces} == {0}
    assert len([piece for piece in pieces if piece["args"]]) > 3, "arguments come in pieces, not in one lump"
    assert json.loads("".join(piece["args"] for piece in pieces)) == {"location": "Oslo"}
    whole = sum(chunks[1:], chunks[0])
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [("get_weather", {"location": "Oslo"})]
    assert [chunk.usage_metadata is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize("native", [False, True])
def test_a_model_that_may_choose_says_words_then_calls_or_only_words(native):
    _, chat = make("Let me look. <tool" + " is a tag.", "Let me look.\n" + OSLO, native=native)
    bound = chat.bind_tools([get_weather], tool_choice="auto")
    plain = bound.invoke("Hello")
    assert (plain.content, plain.tool_calls) == ("Let me look. <tool is a tag.", [])
    chunks = list(bound.stream("Weather in Oslo?"))
    first_call = next(n for n, chunk in enumerate(chunks) if chunk.tool_call_chunks)
    words = [chunk.content for chunk in chunks[:first_call]]
    assert "".join(words) == "Let me look.\n"
    assert len(words) > 5, "text streams until a call opens"
    assert all(chunk.content == "" for chunk in chunks[first_call:])


@pytest.mark.parametrize("native", [False, True])
def test_parallel_calls(native):
    both = OSLO + "\n" + NOW
    engine, chat = make(both, both, OSLO, native=native)
    bound = chat.bind_tools([get_weather, now], tool_choice="any", parallel_tool_calls=True)
    reply = bound.invoke("Weather and time?")
    assert [call["name"] for call in reply.tool_calls] == ["get_weather", "now"]
    assert len({call["id"] for call in reply.tool_calls}) == 2
    whole = None
    for chunk in bound.stream("Weather and time?"):
        whole = chunk if whole is None else whole + chunk
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [
        ("get_weather", {"location": "Oslo"}),
        ("now", {}),
    ]
    engine.script = lines(OSLO)  # one call is a reply, too
    assert len(bound.invoke("Only the weather?").tool_calls) == 1


def test_one_call_unless_several_are_asked_for():
    _, chat = make(OSLO + "\n" + NOW)
    assert len(chat.bind_tools([get_weather, now], tool_choice="any").invoke("Weather and time?").tool_calls) == 1


@pytest.mark.parametrize("choice", ["now", {"type": "function", "function": {"name": "now"}}])
def test_a_named_tool_is_the_only_one(choice):
    engine, chat = make(NOW)
    bound = chat.bind_tools([get_weather, now], tool_choice=choice)
    before = engine.generate
    assert bound.invoke("Weather in Oslo?").tool_calls[0]["name"] == "now"
    engine.script = lines(OSLO)
    with pytest.raises(AssertionError, match="a forced token is not what the script says"):
        bound.invoke("Weather in Oslo?")
    assert before == engine.generate


@pytest.mark.parametrize("choice", ["none", False])
def test_none_forbids_calls_and_keeps_the_tools_in_the_prompt(choice):
    _, chat = make("It is noon.", "It is noon.", OSLO)
    config = {"configurable": {"session_id": "none"}}
    messages = [HumanMessage("Time?")]
    messages += [chat.bind_tools([now]).invoke(messages, config=config), HumanMessage("And now?")]
    silent = chat.bind_tools([now], tool_choice=choice)
    reply = silent.invoke(messages, config=config)
    assert (reply.content, reply.tool_calls) == ("It is noon.", [])
    assert facts(reply)["session"] == "continued", "the tools in the prompt are the same, so the cache holds"
    with pytest.raises(AssertionError, match="the constraint forbids"):
        silent.invoke([*messages, reply, HumanMessage("Weather?")], config=config)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("get_wether", "tool_choice 'get_wether' is unknown; choose one of auto, none, any, now"),
        ({"type": "function"}, "names no function"),
        (3, "tool_choice 3 is unknown"),
    ],
)
def test_unknown_choices_are_refused_when_tools_are_bound(choice, message):
    with pytest.raises(Unsupported, match=message):
        ChatAgentKV(model="no/such/model").bind_tools([now], tool_choice=choice)


def test_contradictions_are_refused():
    chat = ChatAgentKV(model="no/such/model")
    with pytest.raises(Unsupported, match="demands a tool call, but there are no tools"):
        chat.bind_tools([], tool_choice="any")
    with pytest.raises(Unsupported, match="two tools called 'now'"):
        chat.bind_tools([now, {"type": "function", "function": {"name": "now", "description": "Another."}}])
    chat.bind_tools([now, now])  # one tool, said twice
    with pytest.raises(Unsupported, match="a grammar, or tools"):
        chat.bind_tools([now], grammar='start: "a"')
    with pytest.raises(Unsupported, match="parallel_tool_calls must be true or false"):
        chat.bind_tools([now], parallel_tool_calls="yes")


def test_a_schema_that_cannot_be_compiled_is_refused_when_tools_are_bound():
    broken = {"title": "broken", "description": "d", "type": "object", "properties": {"a": {"type": "objekt"}}}
    with pytest.raises(AgentKVError, match=r"^the JSON schema of tool 'broken' does not compile: .*objekt") as caught:
        ChatAgentKV(model="no/such/model").bind_tools([broken])
    assert "\n" not in str(caught.value)


class Point(TypedDict):
    """A point."""

    x: Annotated[int, ..., "across"]


class Place(BaseModel):
    """A place."""

    name: str


def move(x: int) -> None:
    """Move.

    Args:
        x: how far.
    """


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (now, {}),
        (move, {"x": 3}),
        (Point, {"x": 3}),
        (Place, {"name": "Oslo"}),
        ({"title": "Schema", "description": "d", "type": "object", "properties": {"x": {"type": "integer"}}}, {"x": 3}),
        ({"name": "claude", "description": "d", "input_schema": {"type": "object", "properties": {"x": {}}}}, {"x": 3}),
        ({"type": "function", "function": {"name": "bare"}}, {}),
    ],
)
def test_tools_of_every_kind(kind, arguments):
    from langchain_core.utils.function_calling import convert_to_openai_tool

    name = convert_to_openai_tool(kind)["function"]["name"]
    _, chat = make(call_text(name, json.dumps(arguments)))
    assert chat.bind_tools([kind], tool_choice="any").invoke("go").tool_calls[0]["args"] == arguments


def test_a_call_that_is_cut_off_is_an_error_with_its_reason_and_no_half_call():
    # The shortest ending of this schema is not found: the pattern wants many characters.
    pattern = {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^(b|a[^b]{400}b)$"}},
        "required": ["x"],
    }
    spec = {"type": "function", "function": {"name": "f", "parameters": pattern}}
    engine, chat = make(max_tokens=80)
    engine.script = lambda text: call_text("f", '{"x": "a' + "c" * 400 + 'b"}')
    with pytest.raises(ReplyTruncated, match="a tool call was cut off: max_tokens ran out; raise it") as caught:
        chat.invoke("go", tools=[spec], tool_choice="required")
    assert caught.value.finish_reason == "length"
    assert caught.value.text.startswith("<tool_call>")
    pieces = []
    with pytest.raises(ReplyTruncated):
        pieces.extend(chat.stream("go", tools=[spec], tool_choice="required"))
    assert not any(chunk.usage_metadata for chunk in pieces)


def test_a_stop_string_inside_a_call_is_an_error():
    _, chat = make(OSLO)
    with pytest.raises(ReplyTruncated, match="a stop string appeared in it"):
        chat.bind_tools([get_weather]).invoke("Weather in Oslo?", stop=["location"])


def test_more_than_fits_is_refused_before_anything_is_computed():
    _, chat = make(OSLO)
    with pytest.raises(Unsupported, match=r"the shortest reply of this form takes \d+ tokens and max_tokens is 10"):
        chat.bind_tools([get_weather], tool_choice="any").invoke("Weather in Oslo?", max_tokens=10)
    assert len(chat._host({})._sessions) == 0


def test_results_and_earlier_calls_reach_the_model_and_only_new_tokens_are_computed():
    _, chat = make(OSLO, "It is sunny in Oslo.")
    bound = chat.bind_tools([get_weather])
    config = {"configurable": {"session_id": "loop"}}
    messages = [SystemMessage("Be brief."), HumanMessage("Weather in Oslo?")]
    asked = bound.invoke(messages, config=config)
    messages += [asked, ToolMessage("sunny", tool_call_id=asked.tool_calls[0]["id"], name="get_weather")]
    answer = bound.invoke(messages, config=config)
    assert answer.content == "It is sunny in Oslo."
    assert facts(answer)["session"] == "continued"
    assert facts(answer)["new_tokens"] < 90 < facts(answer)["reused_tokens"]
    assert answer.usage_metadata["input_token_details"]["cache_read"] == facts(answer)["reused_tokens"]
    text = sent(chat, "loop")
    assert "Be brief.\n\nYou are an expert" in text
    assert "- get_weather(location: string, days?: integer): Get weather at a location." in text
    assert f"{OSLO}<|im_end|>\n<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>" in text
    assert facts(answer)["tool_prompt"] == "system message"


def test_a_template_that_knows_tools_renders_them_itself():
    _, chat = make(OSLO, "It is sunny.", native=True)
    bound = chat.bind_tools([get_weather])
    config = {"configurable": {"session_id": "native"}}
    messages = [HumanMessage("Weather in Oslo?")]
    asked = bound.invoke(messages, config=config)
    messages += [asked, ToolMessage("sunny", tool_call_id=asked.tool_calls[0]["id"])]
    answer = bound.invoke(messages, config=config)
    assert facts(answer)["tool_prompt"] == "template"
    assert facts(answer)["session"] == "continued"
    text = sent(chat, "native")
    assert '"name": "get_weather"' in text.split("<|im_end|>")[0]
    assert "an expert in composing" not in text
    assert "<tool_response>\nsunny\n</tool_response>" in text


@pytest.mark.parametrize("native", [False, True])
def test_token_counts_with_tools_are_exact(native):
    _, chat = make(OSLO, native=native)
    messages = [SystemMessage("Be brief."), HumanMessage("Weather in Oslo?")]
    reply = chat.bind_tools([get_weather, now]).invoke(messages)
    counted = chat.get_num_tokens_from_messages(messages, tools=[get_weather, now])
    assert counted == reply.usage_metadata["input_tokens"]
    assert counted > chat.get_num_tokens_from_messages(messages) + 60


@pytest.mark.parametrize("native", [False, True])
def test_calls_of_another_model_are_rendered_and_their_arguments_stay_json(native):
    _, chat = make("Fine.", native=native)
    history = [
        HumanMessage("Weather in Oslo?"),
        AIMessage("Let me look.", tool_calls=[{"name": "get_weather", "args": {"location": "Ålesund"}, "id": "1"}]),
        ToolMessage("rain", tool_call_id="1"),
        HumanMessage("And?"),
    ]
    chat.bind_tools([get_weather]).invoke(history, config={"configurable": {"session_id": "other"}})
    assert 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"location": "Ålesund"}}' in sent(
        chat, "other"
    )


def test_other_tools_start_a_session_over():
    _, chat = make("One.", "Two.")
    messages = [HumanMessage("One?")]
    messages += [chat.bind_tools([now]).invoke(messages, session_id="t"), HumanMessage("Two?")]
    assert facts(chat.bind_tools([get_weather]).invoke(messages, session_id="t"))["session"] == "restarted"


def test_every_chunk_reaches_callbacks_before_the_caller():
    _, chat = make(OSLO)
    seen = []

    class Listener(BaseCallbackHandler):
        def on_llm_new_token(self, token, *, chunk=None, **kwargs):
            seen.append(chunk.message)

    for count, chunk in enumerate(chat.bind_tools([get_weather]).stream("?", config={"callbacks": [Listener()]}), 1):
        assert len(seen) == count
        assert seen[-1].tool_call_chunks == chunk.tool_call_chunks
    assert seen[-1].usage_metadata


async def test_calls_stream_asynchronously():
    _, chat = make(OSLO, OSLO)
    bound = chat.bind_tools([get_weather], tool_choice="any")
    invoked = await bound.ainvoke("Weather in Oslo?")
    whole = None
    async for chunk in bound.astream("Weather in Oslo?"):
        whole = chunk if whole is None else whole + chunk
    assert whole.tool_calls[0]["args"] == invoked.tool_calls[0]["args"] == {"location": "Oslo"}


def test_what_a_grammar_forces_takes_no_forward_pass():
    _, chat = make(OSLO)
    chat.bind_tools([get_weather], tool_choice="any").invoke("Weather in Oslo?", session_id="forced")
    timings = chat._host({})._sessions.by_id(chat._settings, "forced").kv.timings
    assert timings.generated_tokens == len(OSLO) > 80
    assert timings.forward_passes < 10, "two for the prompt, one a letter of Oslo, two for whether more follows"
