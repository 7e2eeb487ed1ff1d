"""Constrained replies end inside their budget, whole; and what the tightened schema accepts, the user's accepts."""

import json

import pytest
import torch
from chat_fakes import byte_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from transformers import AutoTokenizer

from agentkv.engine.constraints import GrammarConstraint, spell
from agentkv.errors import Unsupported
from agentkv.models import resolve_model
from agentkv.tools import HERMES, CallDelta, ReplyForm, ReplyReader, TextDelta
from agentkv.tools.constraint import build_constraint
from agentkv.tools.dialect import Dialect
from agentkv.tools.schema import MAX_ITEMS, MAX_STRING, tighten

RECURSIVE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "child": {"$ref": "#/$defs/node"}},
            "required": ["name"],
        }
    },
}
WIDE = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "whole": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "string"}},
        "either": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"deep": {"type": "string"}}}]},
        "choice": {"enum": ["red", "green"]},
        "flag": {"type": "boolean"},
    },
    "required": ["text", "number", "whole", "list", "either", "choice", "flag"],
}
OPEN = {"type": "object", "additionalProperties": {"type": "integer"}}
SCHEMAS = {"recursive": RECURSIVE, "wide": WIDE, "open": OPEN, "any": {}, "number": {"type": "number"}}
TOOL = {"type": "function", "function": {"name": "act", "parameters": WIDE}}


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


def random_reply(tokenizer, form, max_tokens, seed, dialect=HERMES):
    """The text of a reply whose every choice is random, and whether it is whole."""
    constraint = build_constraint(tokenizer, dialect, form, max_tokens)
    generator, ids = torch.Generator().manual_seed(seed), []
    while not constraint.done and len(ids) < max_tokens:
        ahead = constraint.forced()
        if not ahead:
            token = int(constraint.mask(torch.randn(len(tokenizer), generator=generator)).argmax())
            if token == tokenizer.eos_token_id:
                break
            ahead = [token]
        for token in ahead:
            constraint.accept(token)
        ids += ahead
    assert len(ids) <= max_tokens
    return tokenizer.decode(ids), constraint.done or constraint.accepting


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("max_tokens", [130, 400])
def test_random_documents_are_whole_whatever_the_budget(tokenizer, name, max_tokens):
    form = ReplyForm(schema=SCHEMAS[name])
    for seed in range(6):
        text, whole = random_reply(tokenizer, form, max_tokens, seed)
        assert whole
        json.loads(text)


@pytest.mark.parametrize("parallel", [False, True])
def test_random_calls_are_whole_whatever_the_budget(tokenizer, parallel):
    form = ReplyForm.parse([TOOL], "required", parallel)
    for seed in range(6):
        text, whole = random_reply(tokenizer, form, 260, seed)
        assert whole
        reader = ReplyReader(HERMES)
        reader.push(text)
        assert reader.calls
        assert not reader.inside_call


@pytest.mark.model
def test_documents_in_tokens_of_several_characters_are_whole():
    tokenizer = AutoTokenizer.from_pretrained(resolve_model("smollm2-135m"))
    for seed in range(6):
        text, whole = random_reply(tokenizer, ReplyForm(schema=WIDE), 90, seed)
        assert whole
        assert set(json.loads(text)) == set(WIDE["properties"])


def test_the_likeliest_tokens_still_decide_until_the_end_is_near(tokenizer):
    """A model that only ever wants to write "x" gets to, as long as the reply can still be closed."""
    constraint = build_constraint(tokenizer, HERMES, ReplyForm(schema={"type": "string"}), 60)
    wants = torch.zeros(len(tokenizer))
    wants[tokenizer.convert_tokens_to_ids("x")] = 9.0
    ids = []
    while not constraint.done:
        ids.append(int(constraint.mask(wants).argmax()))
        constraint.accept(ids[-1])
    assert tokenizer.decode(ids) == '"' + "x" * 58 + '"'


def test_a_bias_raises_the_opener_only_as_long_as_the_reply_is_one(tokenizer):
    form = ReplyForm.parse([TOOL], tool_call_bias=5.0)
    constraint = build_constraint(tokenizer, HERMES, form, 400)
    flat = torch.zeros(len(tokenizer))
    opener = tokenizer(HERMES.opener)["input_ids"]
    for token in opener[:3]:
        raised = constraint.mask(flat)
        assert int(raised.argmax()) == token
        assert float(raised[token]) == 5.0
        constraint.accept(token)
    other = tokenizer("x")["input_ids"][0]
    constraint.accept(other)
    assert float(constraint.mask(flat).max()) == 0.0
    honest = build_constraint(tokenizer, HERMES, ReplyForm.parse([TOOL]), 400)
    assert float(honest.mask(flat).max()) == 0.0


def test_too_small_a_budget_is_refused(tokenizer):
    with pytest.raises(Unsupported, match=r"the shortest reply of this form takes \d+ tokens and max_tokens is 20"):
        build_constraint(tokenizer, HERMES, ReplyForm(schema=WIDE), 20)


def accepts(tokenizer, schema, text):
    """Whether the schema as the user wrote it accepts a document."""
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
    constraint = GrammarConstraint.__new__(GrammarConstraint)
    constraint._start(tokenizer, grammar, "JSON schema")
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return constraint._matcher.try_consume_tokens(ids) == len(ids) and constraint.accepting


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_the_tight_schema_accepts_the_users_accepts(tokenizer, name):
    for seed in range(6):
        text, _ = random_reply(tokenizer, ReplyForm(schema=SCHEMAS[name]), 300, seed)
        assert accepts(tokenizer, SCHEMAS[name], text), text


def test_bounds_are_added_where_there_are_none():
    tight = tighten(WIDE)
    assert tight["additionalProperties"] is False
    assert tight["properties"]["text"]["maxLength"] == MAX_STRING
    assert tight["properties"]["list"]["maxItems"] == MAX_ITEMS
    assert tight["properties"]["list"]["items"]["maxLength"] == MAX_STRING
    assert tight["properties"]["whole"]["maximum"] > 10**12
    assert tight["properties"]["either"]["anyOf"][1]["additionalProperties"] is False


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "boolean"}},
        {"type": "object", "properties": {"a": {}}, "patternProperties": {"^b": {}}},
        {"allOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]},
        {"type": "object"},
        {"type": "string", "maxLength": 9000},
        {"type": "string", "pattern": "a+"},
        {"type": "integer", "minimum": 0},
        {"type": "array", "maxItems": 500},
        {"enum": ["a", 1]},
        {"type": "object", "properties": {"default": {"const": 1}}, "additionalProperties": False},
    ],
)
def test_what_must_stay_open_stays_open(schema):
    tight = tighten(schema)
    assert "additionalProperties" not in tight or tight["additionalProperties"] == schema["additionalProperties"]
    assert {key: tight[key] for key in schema if key not in ("properties", "allOf")} == {
        key: value for key, value in schema.items() if key not in ("properties", "allOf")
    }
    assert all("additionalProperties" not in part for part in tight.get("allOf", []))


def test_a_definition_that_others_build_on_stays_open():
    base = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {"allOf": [{"$ref": "#/$defs/base"}, {"type": "object", "properties": {"b": {}}}], "$defs": {"base": base}}
    assert "additionalProperties" not in tighten(schema)["$defs"]["base"]


MISTRAL = Dialect("[CALLS][", ", ", "]")
words = st.text(st.characters(exclude_characters="<[", exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(max_size=6), values, max_size=3)


@settings(max_examples=60, deadline=None)
@given(words, st.lists(arguments, min_size=1, max_size=3), st.sampled_from([HERMES, MISTRAL]), st.data())
def test_a_reply_reads_the_same_however_it_is_cut_into_pieces(text, wanted, dialect, data):
    from agentkv.tools import ToolCall

    calls = [ToolCall(f"tool_{n}", part) for n, part in enumerate(wanted)]
    reply = text + dialect.write(calls)
    reader, items, at = ReplyReader(dialect), [], 0
    while at < len(reply):
        size = data.draw(st.integers(1, 12))
        items += reader.push(reply[at : at + size])
        at += size
    items += reader.flush()
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == text
    assert reader.calls == calls
    assert not reader.inside_call
    for index, call in enumerate(calls):
        mine = [item for item in items if isinstance(item, CallDelta) and item.index == index]
        assert [item.name for item in mine] == [call.name] + [None] * (len(mine) - 1)
        assert json.loads("".join(item.arguments for item in mine)) == call.arguments


def test_control_tokens_are_spelled_as_such():
    from tokenizers import AddedToken

    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False)])
    token = tokenizer.convert_tokens_to_ids("<tool_call>")
    assert spell(tokenizer, "<tool_call>\n") == [token, "\n"]
    assert spell(byte_tokenizer(), "<tool_call>\n") == ["<tool_call>\n"]


def nested(levels: int) -> dict:
    """A schema of objects in objects."""
    schema: dict = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_a_schema_may_be_wrong_in_any_place() -> None:
    """What is no schema is the compiler's to refuse."""
    assert tighten({"type": {}}) == {"type": {}}
    assert tighten({"type": "string", "minLength": "two"})["maxLength"] == MAX_STRING
    assert tighten({"type": "array", "minItems": None})["maxItems"] == MAX_ITEMS
    assert tighten(nested(20))["additionalProperties"] is False
    for levels in (100, 100_000):
        with pytest.raises(Unsupported, match=r"levels deep|not valid JSON"):
            tighten(nested(levels))
    with pytest.raises(Unsupported, match="5001 properties"):
        tighten({"items": {"properties": {f"p{n}": {} for n in range(5001)}}})
