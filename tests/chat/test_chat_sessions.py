"""Which session answers a call, and what is prefilled for it."""

import pytest
from chat_fakes import ScriptedEngine
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from agentkv.chat_model import ChatAgentKV
from agentkv.errors import AgentKVError, ContextOverflow, UnknownName


def named(session_id):
    return {"configurable": {"session_id": session_id}}


def facts(message):
    return message.response_metadata["agentkv"]


def test_a_named_session_prefills_only_the_new_messages():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    messages = [HumanMessage("one")]
    first = chat.invoke(messages, config=named("a"))
    messages += [first, HumanMessage("two")]
    second = chat.invoke(messages, config=named("a"))

    assert (facts(first)["session"], facts(second)["session"]) == ("new", "continued")
    assert engine.prompts[1] == "\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n"
    rendered = chat.get_num_tokens_from_messages(messages)
    assert facts(second)["prompt_tokens"] == rendered == second.usage_metadata["input_tokens"]
    assert facts(second)["reused_tokens"] == second.usage_metadata["input_token_details"]["cache_read"] > 0
    assert facts(second)["reused_tokens"] + facts(second)["new_tokens"] == rendered
    assert len(engine.sessions) == 1


def test_each_call_says_whose_words_the_new_tokens_are():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    messages = [SystemMessage("brief"), HumanMessage("one")]
    messages += [chat.invoke(messages), HumanMessage("two")]
    chat.invoke(messages)
    first, second = engine.roles
    assert [role for role, _ in first] == ["system", "task", "action"]
    assert [role for role, _ in second] == ["observation", "action"]
    opening = len("<|im_end|>\n<|im_start|>assistant\n") - len("<|im_end|>") - len("<|im_start|>") + 2
    assert first[-1][1] == second[-1][1] == opening


def test_messages_that_have_nothing_in_common_with_a_named_session_restart_it():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    chat.invoke("one", config=named("a"))
    again = chat.invoke("another start", config=named("a"))
    assert facts(again)["session"] == "restarted"
    assert facts(again)["reused_tokens"] == 0
    assert [session.closed for session in engine.sessions] == [True, False]


def test_a_named_session_goes_back_to_where_a_message_was_rewritten():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    messages = [HumanMessage("one")]
    messages += [chat.invoke(messages, config=named("a")), HumanMessage("two")]
    messages += [chat.invoke(messages, config=named("a")), HumanMessage("three")]
    chat.invoke(messages, config=named("a"))
    messages[1] = AIMessage("words the model never said")
    again = chat.invoke(messages, config=named("a"))
    assert facts(again)["session"] == "rewound"
    assert facts(again)["reused_tokens"] == len("_user\none")
    assert "".join(engine.tokenizer.decode(engine.sessions[0].ledger)).count("never said") == 1
    assert facts(again)["prompt_tokens"] == chat.get_num_tokens_from_messages(messages)
    messages += [again, HumanMessage("four")]
    assert facts(chat.invoke(messages, config=named("a")))["session"] == "continued"


def test_an_anonymous_conversation_that_branches_off_leaves_the_first_one_alone():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    start = [SystemMessage("be brief"), HumanMessage("one")]
    first = [*start, chat.invoke(start), HumanMessage("two")]
    other = chat.invoke([start[0], HumanMessage("something else")])
    assert facts(other)["session"] == "forked"
    assert facts(other)["reused_tokens"] == len("_system\nbe brief")
    assert facts(chat.invoke(first))["session"] == "continued"


def test_blanks_around_a_reply_do_not_make_it_another():
    engine = ScriptedEngine(lambda prompt: " ok \n")
    chat = ChatAgentKV.from_engine(engine)
    first = chat.invoke("one", config=named("a"))
    messages = [HumanMessage("one"), AIMessage(first.content.strip()), HumanMessage("two")]
    assert facts(chat.invoke(messages, config=named("a")))["session"] == "continued"


def test_anonymous_calls_continue_the_session_with_the_longest_prefix():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    one = [HumanMessage("one")]
    two = [*one, chat.invoke(one), HumanMessage("two")]
    three = [*two, chat.invoke(two), HumanMessage("three")]
    chat.invoke(one)  # the conversation has gone on, so this is a second one
    last = chat.invoke(three)
    assert facts(last)["session"] == "continued"
    assert engine.prompts[-1].startswith("\n<|im_start|>user\nthree")


def test_anonymous_calls_do_not_enter_named_sessions_nor_other_settings():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    other = ChatAgentKV.from_engine(engine, kv_policy="window", kv_budget=64)
    first = chat.invoke("one", config=named("a"))
    messages = [HumanMessage("one"), first, HumanMessage("two")]
    assert facts(chat.invoke(messages))["session"] == "new"
    assert facts(other.invoke(messages, config=named("a")))["session"] == "new"
    assert facts(chat.invoke(messages, config=named("a")))["session"] == "continued"
    anonymous = [HumanMessage("one"), chat.invoke("one"), HumanMessage("two")]
    assert facts(other.invoke(anonymous))["session"] == "new"


def test_instances_over_one_engine_share_sessions_of_equal_settings():
    engine = ScriptedEngine()
    first = ChatAgentKV.from_engine(engine, kv_options={"sinks": 4}).invoke("one", config=named("a"))
    chat = ChatAgentKV.from_engine(engine, kv_options={"sinks": 4})
    assert (
        facts(chat.invoke([HumanMessage("one"), first, HumanMessage("two")], config=named("a")))["session"]
        == "continued"
    )


def test_idle_anonymous_sessions_are_limited_and_named_ones_stay():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine, max_anonymous_sessions=2)
    chat.invoke("named", config=named("a"))
    for word in ("one", "two", "three"):
        chat.invoke(word)
    assert [session.closed for session in engine.sessions] == [False, True, False, False]


def test_a_full_pool_closes_the_least_recently_used_session():
    engine = ScriptedEngine(pages=150)
    chat = ChatAgentKV.from_engine(engine, max_tokens=10)
    replies = {name: chat.invoke("x" * 30, config=named(name)) for name in ("a", "b")}
    messages = [HumanMessage("x" * 30), replies["a"], HumanMessage("again")]
    chat.invoke(messages, config=named("a"))  # b is now the older one
    chat.invoke("y" * 30, config=named("c"))
    assert [session.closed for session in engine.sessions] == [False, True, False]


def test_a_prompt_beyond_the_window_leaves_the_session_as_it_was():
    engine = ScriptedEngine(window=80)
    chat = ChatAgentKV.from_engine(engine)
    messages = [HumanMessage("one")]
    messages.append(chat.invoke(messages, config=named("a")))
    with pytest.raises(ContextOverflow, match="the model's window holds 80"):
        chat.invoke([*messages, HumanMessage("x" * 100)], config=named("a"))
    shorter = chat.invoke([*messages, HumanMessage("two")], config=named("a"))
    assert facts(shorter)["session"] == "continued"


def test_a_refused_restart_leaves_the_session_as_it_was():
    engine = ScriptedEngine(window=80)
    chat = ChatAgentKV.from_engine(engine)
    messages = [HumanMessage("one")]
    messages.append(chat.invoke(messages, config=named("a")))
    with pytest.raises(ContextOverflow):
        chat.invoke("something else " * 20, config=named("a"))
    assert facts(chat.invoke([*messages, HumanMessage("two")], config=named("a")))["session"] == "continued"


def test_a_failed_first_call_leaves_no_session():
    engine = ScriptedEngine(window=80)
    chat = ChatAgentKV.from_engine(engine)
    with pytest.raises(ContextOverflow):
        chat.invoke("x" * 100, config=named("a"))
    assert engine.sessions[0].closed
    assert not chat.close_session("a")


def test_a_wrong_grammar_or_policy_touches_no_session():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    first = chat.invoke("one", config=named("a"))
    messages = [HumanMessage("one"), first, HumanMessage("two")]
    with pytest.raises(AgentKVError, match="grammar does not compile"):
        chat.invoke(messages, config=named("a"), grammar="start: nothing")
    assert facts(chat.invoke(messages, config=named("a")))["session"] == "continued"
    with pytest.raises(UnknownName, match="nope"):
        ChatAgentKV.from_engine(engine, kv_policy="nope").invoke("one")


async def test_closing_a_session_gives_its_pages_back():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine)
    free = engine.arena.free_pages
    chat.invoke("one", config=named("a"))
    assert engine.arena.free_pages < free
    assert chat.close_session("a")
    assert engine.arena.free_pages == free
    assert not await chat.aclose_session("a")


def test_closing_a_session_of_a_model_that_was_never_used_loads_nothing():
    assert not ChatAgentKV(model="no/such-model").close_session("a")
