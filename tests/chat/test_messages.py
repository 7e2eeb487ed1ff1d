import pytest
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from agentkv.chat.messages import Turn, to_turns
from agentkv.errors import Unsupported

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


def test_tool_traffic_is_refused():
    call = AIMessage("", tool_calls=[ToolCall(name="f", args={}, id="1")])
    with pytest.raises(Unsupported, match="message 1 holds tool calls"):
        to_turns([call])
    with pytest.raises(Unsupported, match="message 1 is a ToolMessage"):
        to_turns([ToolMessage("5", tool_call_id="1")])


def test_no_messages():
    with pytest.raises(Unsupported, match="send at least one"):
        to_turns([])
