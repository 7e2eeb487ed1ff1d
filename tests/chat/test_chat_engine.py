"""The chat model over the real engine: tiny random weights, then the embedded model."""

import re
from itertools import pairwise

import pytest
import torch
from chat_fakes import byte_tokenizer
from langchain_core.messages import HumanMessage, SystemMessage
from transformers import LlamaConfig, LlamaForCausalLM

from agentkv.chat_model import ChatAgentKV
from agentkv.engine import Engine
from agentkv.errors import AgentKVError, BudgetTooSmall

NUMBERS = 'start: /[0-9]{2,4}/ " apples"'


def tiny_engine(**options):
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    return Engine(LlamaForCausalLM(config).eval(), tokenizer, "tiny", **options)


@pytest.fixture(scope="module")
def engine():
    return tiny_engine()


def facts(message):
    return message.response_metadata["agentkv"]


def converse(chat, session_id, questions):
    messages, replies = [], []
    for question in questions:
        messages.append(HumanMessage(question))
        replies.append(chat.invoke(messages, config={"configurable": {"session_id": session_id}}))
        messages.append(replies[-1])
    return messages, replies


def test_a_long_conversation_is_prefilled_once(engine):
    chat = ChatAgentKV.from_engine(engine, max_tokens=12)
    _, replies = converse(chat, "once", ["one", "two", "three", "four"])
    assert [facts(reply)["session"] for reply in replies] == ["new"] + ["continued"] * 3
    for before, after in pairwise(replies):
        assert facts(after)["reused_tokens"] == facts(before)["logical_length"]
        assert facts(after)["new_tokens"] < 60


def test_a_continued_session_says_what_a_fresh_one_says_of_the_same_tokens(engine):
    chat = ChatAgentKV.from_engine(engine, max_tokens=12)
    _, replies = converse(chat, "same", ["one", "two", "three"])
    ledger = chat._host({})._sessions.by_id(chat._settings, "same").kv.ledger
    start = facts(replies[-1])["prompt_tokens"]
    fresh = engine.open_session("full")
    events = list(engine.generate(fresh, ledger[:start], chat._request([HumanMessage("x")], None, {}).params))
    assert "".join(event.text for event in events) == replies[-1].content
    fresh.close()


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_streamed_and_invoked_replies_are_equal(engine, temperature):
    chat = ChatAgentKV.from_engine(engine, max_tokens=30, temperature=temperature, seed=5)
    streamed = "".join(chunk.content for chunk in chat.stream("tell me"))
    assert streamed == chat.invoke("tell me").content
    assert streamed


def test_a_grammar_holds_under_any_temperature(engine):
    chat = ChatAgentKV.from_engine(engine, max_tokens=40)
    replies = [chat.invoke("how many?", grammar=NUMBERS, temperature=2.0, seed=seed) for seed in range(12)]
    assert all(re.fullmatch(r"[0-9]{2,4} apples", reply.content) for reply in replies)
    assert {reply.response_metadata["finish_reason"] for reply in replies} == {"stop"}
    assert len({reply.content for reply in replies}) > 3


def test_a_session_goes_on_after_a_grammar(engine):
    chat = ChatAgentKV.from_engine(engine, max_tokens=20)
    config = {"configurable": {"session_id": "grammar"}}
    messages = [HumanMessage("how many?")]
    messages += [chat.invoke(messages, config=config, grammar=NUMBERS), HumanMessage("why?")]
    assert facts(chat.invoke(messages, config=config))["session"] == "continued"
    ledger = chat._host({})._sessions.by_id(chat._settings, "grammar").kv.ledger
    assert re.search(r"assistant\n\d+ apples<\|im_end\|>\n<\|im_start\|>user\nwhy", engine.tokenizer.decode(ledger))


def test_an_evicting_policy_keeps_a_long_chat_inside_its_budget(engine):
    chat = ChatAgentKV.from_engine(engine, kv_policy="streaming-llm", kv_budget=64, max_tokens=20)
    _, replies = converse(chat, "budget", [f"question {i}" for i in range(6)])
    full = ChatAgentKV.from_engine(engine, max_tokens=20)
    _, unlimited = converse(full, "unlimited", [f"question {i}" for i in range(6)])
    assert facts(replies[-1])["evicted_tokens"] > 0
    assert facts(replies[-1])["peak_kv_bytes"] < facts(unlimited[-1])["peak_kv_bytes"] / 2


def spans_of(chat, engine, session_id):
    """(role, text) of each span of a session's ledger."""
    kv = chat._host({})._sessions.by_id(chat._settings, session_id).kv
    return [
        (span.role.value, engine.tokenizer.decode(kv.ledger[span.start : span.end])) for span in kv.cache.facts.spans
    ]


def test_the_engine_knows_whose_words_tokens_are(engine):
    chat = ChatAgentKV.from_engine(engine, max_tokens=6)
    config = {"configurable": {"session_id": "roles"}}
    messages = [SystemMessage("Be brief."), HumanMessage("Find a cup.")]
    messages += [chat.invoke(messages, config=config), HumanMessage("A page of cups.")]
    chat.invoke(messages, config=config)
    spans = spans_of(chat, engine, "roles")
    assert [role for role, _ in spans] == ["system", "task", "action", "observation", "action"]
    assert spans[0][1].endswith("Be brief.")
    assert spans[1][1].endswith("user\nFind a cup.")
    assert spans[2][1].startswith("<|im_end|>\n<|im_start|>assistant\n" + messages[2].content)
    assert spans[3][1].endswith("user\nA page of cups.")
    kv = chat._host({})._sessions.by_id(chat._settings, "roles").kv
    assert kv.cache.facts.spans[0].start == 0
    assert kv.cache.facts.spans[-1].end == len(kv.ledger), "every token is somebody's"


def test_protected_roles_stay_however_long_the_chat_becomes(engine):
    protect = {"protect": ["system", "task", "observation"], "recent": 0.1}
    chat = ChatAgentKV.from_engine(engine, kv_policy="h2o", kv_budget=220, kv_options=protect, max_tokens=8)
    config = {"configurable": {"session_id": "protected"}}
    messages = [SystemMessage("Answer in one word."), HumanMessage("Find the red cup.")]
    for page in range(5):
        messages += [chat.invoke(messages, config=config), HumanMessage(f"page {page}: " + "cup, " * 12)]
    chat.invoke(messages, config=config)
    kv = chat._host({})._sessions.by_id(chat._settings, "protected").kv
    spans = kv.cache.facts.spans
    kept = [set(head[head >= 0].tolist()) for head in kv.cache.store.token_index.flatten(0, 1)]
    newest = [span for span in spans if span.role == "observation"][-1]
    for span in (spans[0], spans[1], newest):
        assert all(set(range(span.start, span.end)) <= head for head in kept)
    assert kv.stats.evicted_tokens > 100
    older = next(span for span in spans if span.role == "observation")
    assert not all(set(range(older.start, older.end)) <= head for head in kept)


def test_too_much_to_protect_is_refused_before_the_session_changes(engine):
    chat = ChatAgentKV.from_engine(engine, kv_policy="h2o", kv_budget=100, kv_options={"protect": ["task"]})
    with pytest.raises(BudgetTooSmall, match=r"tokens are protected .* raise the budget or protect fewer roles"):
        chat.invoke("cup, " * 60)


def test_unknown_roles_are_refused(engine):
    chat = ChatAgentKV.from_engine(engine, kv_policy="h2o", kv_options={"protect": ["page"]})
    with pytest.raises(AgentKVError, match="cannot protect 'page'; roles: system, task, observation, action"):
        chat.invoke("hello")


def test_obs_window_drops_old_pages_of_a_chat(engine):
    chat = ChatAgentKV.from_engine(engine, kv_policy="obs-window", kv_budget=260, max_tokens=8)
    config = {"configurable": {"session_id": "pages"}}
    messages = [HumanMessage("Find the red cup.")]
    for page in range(5):
        messages += [chat.invoke(messages, config=config), HumanMessage(f"page {page}: " + "cup, " * 12)]
    chat.invoke(messages, config=config)
    kv = chat._host({})._sessions.by_id(chat._settings, "pages").kv
    kept = [set(head[head >= 0].tolist()) for head in kv.cache.store.token_index.flatten(0, 1)]
    pages = [set(range(span.start, span.end)) for span in kv.cache.facts.spans if span.role == "observation"]
    rest = set(range(kv.logical_length)) - set().union(*pages)
    for head in kept:
        assert rest <= head
        assert [bool(page & head) for page in pages] == sorted(bool(page & head) for page in pages)
        assert not pages[0] & head
        assert pages[-1] <= head


def test_idle_sessions_make_room_in_a_small_pool():
    engine = tiny_engine(kv_pool="96KiB")
    chat = ChatAgentKV.from_engine(engine, max_tokens=20)
    first, _ = converse(chat, "first", ["x" * 60])
    for i in range(6):
        converse(chat, f"other-{i}", ["y" * 60])
    again = chat.invoke([*first, HumanMessage("z")], config={"configurable": {"session_id": "first"}})
    assert facts(again)["session"] == "new"
    assert facts(again)["reused_tokens"] == 0


def test_idle_sessions_of_an_engine_that_spills_are_not_lost():
    last = []
    for engine in (tiny_engine(kv_pool="96KiB", spill="cpu"), tiny_engine()):
        chat = ChatAgentKV.from_engine(engine, max_tokens=20)
        first, _ = converse(chat, "first", ["x" * 60])
        for i in range(6):
            converse(chat, f"other-{i}", ["y" * 60])
        last.append(chat.invoke([*first, HumanMessage("z")], session_id="first"))
    again, expected = last
    assert facts(again)["session"] == "continued"
    assert facts(again)["reused_tokens"] == facts(expected)["reused_tokens"] > 60
    assert again.content == expected.content


def test_a_session_is_explained_as_text(engine):
    chat = ChatAgentKV.from_engine(engine, max_tokens=12, kv_policy="streaming-llm", kv_budget=96)
    assert chat.explain("explained") is None
    converse(chat, "explained", ["one", "two" * 30, "three"])
    told = chat.explain("explained")
    assert told.tokens > 150
    assert "dropped" not in told.to_text()
    assert {span.role for span in told.spans} >= {"task", "observation", "action"}
    assert "<|im_start|>user\ntwotwo" in "".join(span.text for span in told.spans)
    chat.close_session("explained")


@pytest.mark.model
def test_the_embedded_model_holds_a_conversation():
    chat = ChatAgentKV(max_tokens=16)
    messages, replies = converse(chat, "capitals", ["What is the capital of France? Answer briefly.", "And of Italy?"])
    assert [reply.content for reply in replies] == [
        "The capital of France is Paris.",
        "The capital of Italy is Rome.",
    ]
    assert replies[1].usage_metadata["input_token_details"]["cache_read"] > 40
    assert facts(replies[1])["prompt_tokens"] == chat.get_num_tokens_from_messages(messages[:3])
    assert chat.profile["max_input_tokens"] == 8192
    chat.close_session("capitals")
