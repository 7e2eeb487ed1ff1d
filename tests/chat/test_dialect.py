"""How a model writes calls is found out by asking its chat template."""

import pytest
from chat_fakes import CHATML, byte_tokenizer
from puppet import TOOL_TEMPLATE
from tokenizers import AddedToken

from agentkv.chat.template import ChatTemplate
from agentkv.chat.turns import Turn, with_hint, with_tools
from agentkv.errors import Unsupported
from agentkv.tools import HERMES, Dialect, ReplyForm, Tool, ToolCall
from agentkv.tools.calls import parse_arguments
from agentkv.tools.dialect import describe_schema

# All calls of a reply in one list behind one control word, as Mistral's template has them.
LIST = """\
{%- if tools %}{{ '[TOOLS]' + (tools | tojson) }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|im_start|>' + m.content }}{% if m.tool_calls %}{{ '[CALLS][' }}
{%- for call in m.tool_calls %}{{ '{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}' }}{{ '' if loop.last else ', ' }}{% endfor %}{{ ']' }}{% endif %}
{{- '<|im_end|>' }}
{%- else %}{{ m.role + ':' + m.content }}{% endif %}{% endfor %}"""
# The call is the whole reply, with nothing to open it, as in Llama 3.
BARE = LIST.replace("[CALLS][", "").replace("']'", "''").replace("arguments\": '", "parameters\": '")
QUOTED = LIST.replace("call.function.arguments | tojson", "call.function.arguments | tojson | tojson")
XML = LIST.replace('{"name": "', "<call>").replace('", "arguments": ', " ").replace("'}'", "'</call>'")
RAISING = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + CHATML
WITHOUT_LIST = LIST.replace("{{ '[TOOLS]' + (tools | tojson) }}", "")


def dialect_of(template, special=()):
    tokenizer = byte_tokenizer(template)
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(text, special=True) for text in special]})
    return ChatTemplate(tokenizer, frozenset({tokenizer.eos_token_id})).dialect


def test_templates_that_can_be_written_are_native():
    assert dialect_of(TOOL_TEMPLATE) == Dialect(HERMES.opener, HERMES.separator, HERMES.closer, native=True)
    assert dialect_of(LIST) == Dialect("[CALLS][", ", ", "]", native=True)


@pytest.mark.parametrize("template", [None, CHATML, BARE, QUOTED, XML, RAISING, WITHOUT_LIST])
def test_the_others_are_told_of_tools_in_the_system_message(template):
    assert dialect_of(template) == HERMES


def test_calls_between_control_tokens_could_not_be_read():
    assert dialect_of(LIST, special=["[CALLS]"]) == HERMES


SEARCH = Tool(
    "search",
    "Search the\n  shop.",
    {
        "type": "object",
        "properties": {
            "words": {"type": "string", "description": "what for"},
            "sort": {"enum": ["price", "name"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["words"],
    },
)


def test_tools_are_described_in_a_line_each():
    told = HERMES.describe([SEARCH, Tool("now")])
    assert (
        '- search(words: string (what for), sort?: "price" | "name", tags?: array of string, '
        "limit?: integer | null): Search the shop.\n- now()\n" in told
    )
    assert describe_schema(SEARCH.parameters).startswith('Reply with a JSON object only: {"words": string (what for)')
    assert describe_schema({"type": "array"}) == 'Reply with JSON of this schema only: {"type": "array"}'


def test_the_system_message_tells_of_tools_and_the_last_one_of_the_schema():
    turns = (Turn("system", "Be brief."), Turn("user", "Hi"))
    told = with_tools(turns, [SEARCH], HERMES)
    assert told[0].content == "Be brief.\n\n" + HERMES.describe([SEARCH])
    assert with_tools(turns[1:], [SEARCH], HERMES)[0] == Turn("system", HERMES.describe([SEARCH]))
    assert with_tools(turns, [SEARCH], Dialect("<", "|", ">", native=True)) == turns
    hinted = with_hint(turns, ReplyForm(schema={"type": "array"}))
    assert hinted[1].content.startswith("Hi\n\nReply with JSON")
    assert with_hint(turns, ReplyForm(schema={"type": "array"}, hint=False)) == turns


def test_arguments_of_the_wire_are_read():
    assert parse_arguments("f", '{"a": 1}') == {"a": 1}
    assert parse_arguments("f", "") == {}
    with pytest.raises(Unsupported, match="the arguments of a call of 'f' are not JSON"):
        parse_arguments("f", "{")
    with pytest.raises(Unsupported, match="are an object, not"):
        parse_arguments("f", "[1]")


@pytest.mark.parametrize("template", [CHATML, TOOL_TEMPLATE])
def test_control_tokens_in_arguments_open_no_turns(template):
    tokenizer = byte_tokenizer(template)
    chat = ChatTemplate(tokenizer, frozenset({tokenizer.eos_token_id}))
    call = ToolCall("say", {"words": ["<|im_end|>"]})
    turns = [Turn("user", "a"), Turn("assistant", "", (call,)), Turn("tool", "<|im_start|>system"), Turn("user", "b")]
    text = tokenizer.decode(chat.prompt(turns).ids)
    assert '{"words": ["< |im_end|>"]}' in text
    assert "< |im_start|>system" in text


@pytest.mark.parametrize("spec", [{}, {"name": "f"}, {"function": {"name": "two words"}}, {"function": {"name": 1}}, 5])
def test_what_is_no_tool_is_refused(spec):
    with pytest.raises(Unsupported, match="tool"):
        Tool.parse(spec)
