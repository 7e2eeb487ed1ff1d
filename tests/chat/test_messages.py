import pytest
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from agentkv.chat.messages import to_turns
from agentkv.chat.turns import Turn
from agentkv.errors import Unsupported
from agentkv.tools import ToolCall as Call

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
AUDIO = {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"}


def test_roles_and_list_content_become_plain_turns():
    messages = [
        SystemMessage("be brief"),
        HumanMessage([{"type": "text", "text": "a"}, "b"]),
        AIMessage("c"),
        ChatMessage(role="critic", content="d"),
    ]
    assert to_turns(messages) == (
        Turn("system", "be brief"),
        Turn("user", "ab"),
        Turn("assistant", "c"),
        Turn("critic", "d"),
    )


@pytest.mark.parametrize(("part", "kind"), [(IMAGE, "image_url"), (AUDIO, "audio")])
def test_what_the_model_cannot_see_is_refused_with_its_place(part, kind):
    with pytest.raises(Unsupported, match=f"message 2 holds content of type '{kind}'"):
        to_turns([SystemMessage("s"), HumanMessage([{"type": "text", "text": "look"}, part])])


def test_tool_calls_and_results_become_turns():
    asked = AIMessage("", tool_calls=[ToolCall(name="add", args={"a": 1}, id="1")])
    assert to_turns([asked, ToolMessage("5", tool_call_id="1", name="add")]) == (
        Turn("assistant", "", (Call("add", {"a": 1}),)),
        Turn("tool", "5"),
    )


@pytest.mark.parametrize("kind", ["tool_use", "tool_call", "thinking", "reasoning"])
def test_parts_that_say_what_tool_calls_say_or_another_model_thought_are_left_out(kind):
    parts = [{"type": "text", "text": "some text"}, {"type": kind, "id": "1", "name": "add", "input": {}}]
    assert to_turns([AIMessage(parts)])[0].content == "some text"
    with pytest.raises(Unsupported, match=f"content of type '{kind}'"):
        to_turns([HumanMessage(parts)])


def test_a_call_that_could_not_be_read_is_refused():
    broken = AIMessage("", invalid_tool_calls=[InvalidToolCall(name="f", args="{", id="1", error="no end")])
    with pytest.raises(Unsupported, match="message 1 holds a tool call that could not be read"):
        to_turns([broken])


def test_a_file_in_the_guise_of_text_is_refused():
    picture = "see data:image/png;base64," + "iVBORw0KGgo" * 200
    with pytest.raises(Unsupported, match="message 1 holds a file as base64 text"):
        to_turns([HumanMessage(picture)])
    assert to_turns([HumanMessage("data:image/png;base64,iVBORw0KGgo is how it begins")])


def test_no_messages():
    with pytest.raises(Unsupported, match="send at least one"):
        to_turns([])
