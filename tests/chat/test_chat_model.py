"""LangChain's contract: every entry point, metadata, refusals."""

import asyncio
import threading
import time

import pytest
from chat_fakes import ScriptedEngine
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps, loads
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from pydantic import ValidationError

from agentkv.chat_model import ChatAgentKV
from agentkv.errors import Unsupported

CONFIG = {"configurable": {"session_id": "ep-1"}}


def make(script=lambda prompt: "a fine reply", **fields):
    return ChatAgentKV.from_engine(ScriptedEngine(script), **fields)


def slow(reply="z" * 500, **fields):
    engine = ScriptedEngine(lambda prompt: reply, step_s=0.005)
    return engine, ChatAgentKV.from_engine(engine, max_tokens=1000, **fields)


def joined(chunks):
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


def without_clock(message):
    facts = dict(message.response_metadata["agentkv"])
    for name in ("prefill_ms", "decode_ms", "session_id", "session"):
        facts.pop(name)
    return message.content, message.usage_metadata, message.response_metadata["finish_reason"], facts


async def test_the_four_entry_points_agree():
    chat = make(max_anonymous_sessions=0)
    invoked = chat.invoke("hello")
    streamed = joined(list(chat.stream("hello")))
    ainvoked = await chat.ainvoke("hello")
    astreamed = joined([chunk async for chunk in chat.astream("hello")])
    for message in (streamed, ainvoked, astreamed):
        assert without_clock(message) == without_clock(invoked)
    assert invoked.content == "a fine reply"
    assert invoked.response_metadata["model_name"] == "scripted"
    assert invoked.response_metadata["model_provider"] == "agentkv"


async def test_the_session_id_of_the_config_reaches_every_entry_point():
    chat = make()
    prompt = ChatPromptTemplate.from_messages([("human", "{word}")])
    replies = [
        chat.invoke("a", config=CONFIG),
        joined(list(chat.stream("b", config=CONFIG))),
        await chat.ainvoke("c", config=CONFIG),
        joined([chunk async for chunk in chat.astream("d", config=CONFIG)]),
        *chat.batch(["e", "f"], config=CONFIG),
        *await chat.abatch(["g"], config=CONFIG),
        chat.with_config(CONFIG).invoke("h"),
        chat.bind(stop=["never"]).invoke("i", config=CONFIG),
        (prompt | chat).invoke({"word": "j"}, config=CONFIG),
        chat.invoke("k", session_id="ep-1"),
    ]
    assert {reply.response_metadata["agentkv"]["session_id"] for reply in replies} == {"ep-1"}


def test_batch_inputs_keep_their_own_session_ids():
    configs = [{"configurable": {"session_id": f"s{i}"}} for i in range(4)]
    replies = make().batch([f"question {i}" for i in range(4)], config=configs)
    assert [r.response_metadata["agentkv"]["session_id"] for r in replies] == ["s0", "s1", "s2", "s3"]


def test_only_the_last_chunk_carries_metadata():
    *texts, last = list(make().stream("hello"))
    assert all(chunk.usage_metadata is None and not chunk.response_metadata for chunk in texts)
    assert last.chunk_position == "last"
    assert last.content == ""
    assert last.usage_metadata["output_tokens"] == len("a fine reply")


def test_tokens_reach_callbacks_before_the_caller():
    seen = []

    class Listener(BaseCallbackHandler):
        def on_llm_new_token(self, token, **kwargs):
            seen.append(token)

    count = 0
    for chunk in make().stream("hello", config={"callbacks": [Listener()]}):
        count += 1
        assert len(seen) == count
        assert seen[-1] == chunk.content
    assert count > 1


def test_per_call_arguments_override_the_fields():
    engine = ScriptedEngine()
    chat = ChatAgentKV.from_engine(engine, temperature=0.5, stop=["A"], max_tokens=9)
    chat.invoke("x")
    chat.invoke("x", stop=["B"], temperature=0.0, max_tokens=3, seed=7)
    assert (engine.params[0].temperature, engine.params[0].stop, engine.params[0].max_tokens) == (0.5, ("A",), 9)
    second = engine.params[1]
    assert (second.temperature, second.stop, second.max_tokens, second.seed) == (0.0, ("B",), 3, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"presence_penalty": 1}, "unknown argument 'presence_penalty'; a call takes max_tokens"),
        ({"grammar": 'start: "a"', "stop": ["b"]}, "not both"),
        ({"session_id": ""}, "session_id must be a non-empty string"),
        ({"session_id": 5}, "session_id must be a non-empty string"),
    ],
)
def test_calls_refuse_what_they_do_not_know(arguments, message):
    with pytest.raises(Unsupported, match=message):
        make().invoke("x", **arguments)


def test_construction_refuses_unknown_fields_and_impossible_values():
    with pytest.raises(Unsupported, match=r"^ChatAgentKV has no field 'kv_polcy'; did you mean 'kv_policy'\?$"):
        ChatAgentKV(kv_polcy="full")
    with pytest.raises(Unsupported, match=r"^ChatAgentKV has no field 'frequency_penalty'; see docs/chat_model.md"):
        ChatAgentKV(frequency_penalty=1)
    with pytest.raises(ValidationError, match="temperature"):
        ChatAgentKV(temperature=-1)


def test_standard_fields_of_remote_models_are_accepted():
    chat = ChatAgentKV(model="m", temperature=0, max_tokens=100, timeout=60, max_retries=2, api_key="k", stop=[])
    assert chat._get_ls_params(stop=["x"])["ls_provider"] == "agentkv"
    assert chat._get_ls_params(model="other")["ls_model_name"] == "other"
    assert chat._get_ls_params()["ls_max_tokens"] == 100


def test_a_response_cache_does_not_answer_across_policies():
    cache = InMemoryCache()
    calls = []
    engine = ScriptedEngine(lambda prompt: calls.append(prompt) or "ok")
    for budget in (64, 64, 128):
        ChatAgentKV.from_engine(engine, kv_policy="window", kv_budget=budget, cache=cache).invoke("x")
    for seed in (0, 3):
        ChatAgentKV.from_engine(engine, kv_policy="window", kv_budget=64, seed=seed, cache=cache).invoke("x")
    assert len(calls) == 4


def test_serialisation_keeps_the_settings_and_no_secret():
    chat = ChatAgentKV(kv_policy="window", kv_budget="8MiB", kv_options={"sinks": 2}, api_key="secret")
    text = dumps(chat)
    assert "secret" not in text
    again = loads(text, valid_namespaces=["agentkv"], allowed_objects=[ChatAgentKV])
    assert again._identifying_params == chat._identifying_params


def test_token_counts_come_from_the_models_own_tokenizer():
    chat = make()
    assert chat.get_num_tokens("héllo") == 6
    messages = [HumanMessage("hello")]
    assert chat.get_num_tokens_from_messages(messages) == chat.invoke(messages).usage_metadata["input_tokens"]


def wait_for_steps(engine, pause=0.1):
    before = engine.steps
    time.sleep(pause)
    return engine.steps - before


def test_closing_the_iterator_cancels_within_one_token():
    engine, chat = slow()
    stream = chat.stream("x")
    for _ in range(3):
        next(stream)
    stream.close()
    time.sleep(0.02)
    assert wait_for_steps(engine) == 0
    assert engine.steps < 20
    assert chat.invoke("y", max_tokens=2).response_metadata["finish_reason"] == "length"


async def test_closing_the_async_iterator_cancels():
    engine, chat = slow()
    stream = chat.astream("x")
    for _ in range(3):
        await anext(stream)
    await stream.aclose()
    await asyncio.sleep(0.02)
    assert wait_for_steps(engine) == 0


@pytest.mark.parametrize("entry", ["ainvoke", "astream"])
async def test_cancelling_the_task_cancels(entry):
    engine, chat = slow()

    async def consume():
        if entry == "ainvoke":
            return await chat.ainvoke("x")
        return [chunk async for chunk in chat.astream("x")]

    task = asyncio.create_task(consume())
    while engine.steps < 3:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.02)
    assert wait_for_steps(engine) == 0
    assert engine.steps < 100


async def test_the_event_loop_runs_on_while_the_model_works():
    _, chat = slow("z" * 40)
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.create_task(tick())
    await chat.ainvoke("x")
    ticker.cancel()
    assert ticks > 10


async def test_calls_queue_on_one_thread():
    threads = set()
    engine = ScriptedEngine(lambda prompt: threads.add(threading.current_thread().name) or "ok", step_s=0.002)
    chats = [ChatAgentKV.from_engine(engine), ChatAgentKV.from_engine(engine)]
    replies = await asyncio.gather(*(chats[i % 2].ainvoke(f"q{i}") for i in range(6)))
    assert [reply.content for reply in replies] == ["ok"] * 6
    assert len(threads) == 1
    assert threading.current_thread().name not in threads


async def test_timeout_cancels_and_says_so():
    engine, chat = slow(timeout=0.1)
    with pytest.raises(TimeoutError, match=r"timeout=0.1 s"):
        chat.invoke("x")
    with pytest.raises(TimeoutError, match=r"timeout=0.1 s"):
        await chat.ainvoke("x")
    await asyncio.sleep(0.02)
    assert wait_for_steps(engine) == 0
