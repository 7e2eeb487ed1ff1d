"""Structured output: three methods, every kind of schema, whole or an error."""

import json
from typing import Annotated, Any

import pytest
from langchain_core.exceptions import OutputParserException
from puppet import call_text, lines, puppet
from pydantic import BaseModel, Field, ValidationError
from pydantic.v1 import BaseModel as BaseModelV1
from typing_extensions import TypedDict

from agentkv.chat_model import ChatAgentKV
from agentkv.errors import AgentKVError, ReplyTruncated, Unsupported

METHODS = ("json_schema", "function_calling", "json_mode")
DOCUMENT = '{"setup": "Why?", "rating": 3}'
VALUE = json.loads(DOCUMENT)


class Joke(BaseModel):
    """A joke."""

    setup: str = Field(description="its question")
    rating: int


class JokeV1(BaseModelV1):
    """A joke."""

    setup: str
    rating: int


class JokeDict(TypedDict):
    """A joke."""

    setup: Annotated[str, ..., "its question"]
    rating: int


def make(*replies: str, **fields: Any) -> tuple[Any, ChatAgentKV]:
    engine = puppet(lines(*replies))
    return engine, ChatAgentKV.from_engine(engine, **{"max_tokens": 200} | fields)


def reply(method: str, document: str = DOCUMENT, name: str = "Joke") -> str:
    return call_text(name, document) if method == "function_calling" else document


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (Joke, Joke(**VALUE)),
        (JokeV1, JokeV1(**VALUE)),
        (JokeDict, VALUE),
        (Joke.model_json_schema(), VALUE),
        (JokeV1.schema(), VALUE),
    ],
)
def test_every_method_gives_every_kind(method, schema, expected):
    name = schema["title"] if isinstance(schema, dict) else schema.__name__
    _, chat = make(*[reply(method, name=name)] * 2)
    model = chat.with_structured_output(schema, method=method)
    assert model.invoke("Tell me a joke.") == expected
    assert list(model.stream("Tell me a joke."))[-1] == expected


async def test_asynchronously():
    _, chat = make(DOCUMENT, DOCUMENT)
    model = chat.with_structured_output(Joke)
    assert await model.ainvoke("Tell me a joke.") == Joke(**VALUE)
    assert [chunk async for chunk in model.astream("Tell me a joke.")][-1] == Joke(**VALUE)


def test_the_model_is_told_of_the_schema_once_and_the_conversation_stays_what_it_is():
    engine, chat = make(DOCUMENT, DOCUMENT, "Ha.")
    config = {"configurable": {"session_id": "joke"}}
    first = chat.with_structured_output(Joke, include_raw=True).invoke("Tell me a joke.", config=config)["raw"]
    sessions = chat._host({})._sessions
    text = engine.tokenizer.decode(sessions.by_id(chat._settings, "joke").kv.ledger)
    assert 'Reply with a JSON object only: {"setup": string (its question), "rating": integer}' in text
    assert sessions.by_id(chat._settings, "joke").turns[0].content == "Tell me a joke."
    chat.with_structured_output(Joke, method="json_mode").invoke("Tell me a joke.", config=config)
    engine.script = lines("Ha.")
    # Asked again without the hint, the session must not go on behind the message that had it.
    plain = chat.invoke("Tell me a joke.", config=config)
    assert first.response_metadata["agentkv"]["session"] == "new"
    text = engine.tokenizer.decode(sessions.by_id(chat._settings, "joke").kv.ledger)
    assert "Reply with a JSON" not in text
    assert plain.content == "Ha."


def test_include_raw_and_errors_of_parsing():
    _, chat = make('{"setup": "Why?", "rating": 30}', '{"setup": "Why?", "rating": 30}')

    class Strict(BaseModel):
        """A joke."""

        setup: str
        rating: int

        def model_post_init(self, context: Any) -> None:
            if self.rating > 10:
                raise ValueError("rated too high")

    told = chat.with_structured_output(Strict, include_raw=True).invoke("Tell me a joke.")
    assert told["raw"].content == '{"setup": "Why?", "rating": 30}'
    assert told["parsed"] is None
    assert "rated too high" in str(told["parsing_error"])
    with pytest.raises((OutputParserException, ValidationError), match="rated too high"):
        chat.with_structured_output(Strict).invoke("Tell me a joke.")


@pytest.mark.parametrize("method", METHODS)
def test_unknown_methods_and_broken_schemas_are_refused_without_a_model(method):
    chat = ChatAgentKV(model="no/such/model")
    with pytest.raises(
        Unsupported, match="unknown method 'yaml'; it is one of json_schema, function_calling, json_mode"
    ):
        chat.with_structured_output(Joke, method="yaml")
    broken = {"title": "Broken", "description": "d", "type": "object", "properties": {"a": {"type": "objekt"}}}
    with pytest.raises(AgentKVError, match=r"does not compile: .*objekt"):
        chat.with_structured_output(broken, method=method)


def test_a_document_that_is_cut_off_is_an_error():
    schema = {"title": "T", "type": "object", "properties": {"x": {"type": "string", "pattern": "^a[^b]{300}b$"}}}
    schema["required"] = ["x"]
    _, chat = make(*['{"x": "a' + "c" * 300 + 'b"}'] * 2, max_tokens=60)
    with pytest.raises(ReplyTruncated, match=r"the JSON reply was cut off: max_tokens ran out; raise it"):
        chat.with_structured_output(schema).invoke("go")
    with pytest.raises(ReplyTruncated, match="the JSON reply was cut off"):
        list(chat.with_structured_output(schema).stream("go"))


def test_a_session_without_room_says_so():
    _, chat = make(*['{"x": "' + "c" * 300 + '"}'] * 2)
    engine = puppet(lambda text: '{"x": "a' + "c" * 300 + 'b"}', window=256)
    schema = {"title": "T", "type": "object", "properties": {"x": {"type": "string", "pattern": "^a[^b]{300}b$"}}}
    chat = ChatAgentKV.from_engine(engine, max_tokens=400)
    with pytest.raises(ReplyTruncated, match="the session has no room for more") as caught:
        chat.with_structured_output(schema | {"required": ["x"]}).invoke("go")
    assert caught.value.finish_reason == "context_full"


def test_response_format_in_openais_shapes():
    _, chat = make('{"any": [1, {"thing": null}]}', "plain", DOCUMENT)
    free = chat.invoke("go", response_format={"type": "json_object"})
    assert json.loads(free.content) == {"any": [1, {"thing": None}]}
    assert free.response_metadata["finish_reason"] == "stop"
    assert chat.invoke("go", response_format={"type": "text"}).content == "plain"
    wanted = {
        "type": "json_schema",
        "json_schema": {"name": "joke", "strict": True, "schema": Joke.model_json_schema()},
    }
    assert chat.invoke("go", response_format=wanted).content == DOCUMENT
    with pytest.raises(Unsupported, match="response_format is"):
        chat.invoke("go", response_format={"type": "yaml"})


def test_tools_and_a_schema_together_are_a_call_or_a_document():
    from langchain_core.tools import tool

    @tool
    def now() -> str:
        """The time."""
        return "noon"

    _, chat = make(call_text("now", "{}"), DOCUMENT)
    wanted = {"type": "json_schema", "json_schema": {"name": "joke", "schema": Joke.model_json_schema()}}
    bound = chat.bind_tools([now], response_format=wanted)
    assert bound.invoke("Time?").tool_calls[0]["name"] == "now"
    assert json.loads(bound.invoke("A joke.").content) == VALUE
    with pytest.raises(Unsupported, match="drop one of them"):
        chat.bind_tools([now], tool_choice="any", response_format=wanted)


def test_streaming_and_invoking_give_the_same_under_sampling():
    from test_chat_engine import tiny_engine

    chat = ChatAgentKV.from_engine(tiny_engine(), max_tokens=60, temperature=1.5)
    for seed in range(4):
        model = chat.with_structured_output(Joke.model_json_schema()).bind()
        invoked = model.invoke("Tell me a joke.", seed=seed)
        *_, streamed = model.stream("Tell me a joke.", seed=seed)
        assert streamed == invoked
        assert set(invoked) == {"setup", "rating"}
