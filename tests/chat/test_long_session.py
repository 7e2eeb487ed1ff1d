"""A day's session: three hundred turns, far beyond the model's window, with a pause on disk in the middle."""

import gc
from itertools import pairwise

import pytest
from langchain_core.messages import HumanMessage
from puppet import tiny

from agentkv.chat_model import ChatAgentKV
from agentkv.errors import AgentKVError, SessionFileError

WINDOW = 512


def make(**fields):
    """Over a model whose weights are random and always the same."""
    settings = {"kv_policy": "streaming-llm", "kv_budget": 256, "max_tokens": 20, "temperature": 0.8}
    return ChatAgentKV.from_engine(tiny(window=WINDOW, kv_pool="4MiB"), **settings | fields)


def facts(message):
    return message.response_metadata["agentkv"]


def talk(chat, messages, turns):
    """Goes on with the conversation; returns the replies."""
    replies = []
    for _ in range(turns):
        messages.append(HumanMessage(f"Event {len(messages)}"))
        replies.append(chat.invoke(messages, session_id="day", seed=len(messages)))
        messages.append(replies[-1])
    return replies


@pytest.mark.full
def test_three_hundred_turns_beyond_the_window_in_flat_memory(tmp_path):
    check_a_day(300, tmp_path)


def test_forty_turns_beyond_the_window_in_flat_memory(tmp_path):
    check_a_day(40, tmp_path)


def check_a_day(turns, tmp_path):
    """Half a day, a night on disk, the other half in another process; against a day without a night."""
    chat, messages = make(), []
    first = talk(chat, messages, turns // 2)
    chat.save_session("day", tmp_path / "day.safetensors")
    assert chat.close_session("day")
    again = make()
    again.restore_session("day", tmp_path / "day.safetensors")
    second = talk(again, messages, turns - turns // 2)
    replies = first + second
    assert facts(second[0])["session"] == "continued"
    assert {facts(reply)["session"] for reply in replies[1:]} == {"continued"}
    assert max(facts(reply)["new_tokens"] for reply in replies[1:]) < 70, "each turn computes what it adds"
    assert facts(replies[-1])["logical_length"] > 2 * WINDOW
    kv = again._host({})._sessions.by_id(again._settings, "day").kv
    assert kv.stats.rebases > 0
    assert {facts(reply)["peak_kv_bytes"] <= kv.limits.max_bytes for reply in replies} == {True}
    resident = [facts(reply)["resident_kv_bytes"] for reply in replies[turns // 4 :]]
    assert max(resident) <= 1.1 * min(resident), "flat"
    uninterrupted = talk(make(), [], turns)
    assert [reply.content for reply in uninterrupted] == [reply.content for reply in replies]
    assert len({reply.content for reply in replies}) > turns // 4, "the model does not say the same all day"


def test_a_restored_session_goes_on_where_it_was(tmp_path):
    chat, messages = make(), []
    talk(chat, messages, 4)
    chat.save_session("day", tmp_path / "day.safetensors")
    here = talk(chat, list(messages), 2)
    there = make()
    there.restore_session("day", tmp_path / "day.safetensors")
    for before, after in zip(here, talk(there, list(messages), 2), strict=True):
        assert facts(after)["session"] == "continued"
        assert after.usage_metadata == before.usage_metadata


def test_what_is_no_session_of_this_chat_model_is_refused(tmp_path):
    chat, path = make(), tmp_path / "day.safetensors"
    with pytest.raises(AgentKVError, match="there is no session 'day' of this policy and budget"):
        chat.save_session("day", path)
    with pytest.raises(SessionFileError, match="there is no session file"):
        chat.restore_session("day", path)
    talk(chat, [], 1)
    chat.save_session("day", path)
    with pytest.raises(SessionFileError, match="was saved under the policy, budget and options"):
        make(kv_budget=300).restore_session("day", path)
    engine = chat._host({}).engine
    session = engine.open_session()
    engine.save_session(session, path)
    with pytest.raises(SessionFileError, match="not the conversation of a chat model"):
        chat.restore_session("day", path)


def test_a_damaged_file_does_not_cost_the_session_that_is_there(tmp_path):
    chat, messages, path = make(), [], tmp_path / "day.safetensors"
    talk(chat, messages, 3)
    chat.save_session("day", path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(SessionFileError):
        chat.restore_session("day", path)
    (after,) = talk(chat, messages, 1)
    assert facts(after)["session"] == "continued"


def test_two_hundred_calls_leave_nothing_behind():
    chat = make(max_anonymous_sessions=0, max_tokens=4)
    host, sizes = chat._host({}), []
    free = host.engine.arena.free_pages
    for round_ in range(4):
        for call in range(50):
            chat.invoke(f"call {round_} {call}")
        chat.close_session("none")  # waits until the last call has given its session back
        gc.collect()
        sizes.append(len(gc.get_objects()))
        assert (len(host._sessions), host.engine.arena.free_pages) == (0, free)
    assert max(after - before for before, after in pairwise(sizes[1:])) < 300
