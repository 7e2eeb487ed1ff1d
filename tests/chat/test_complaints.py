"""What users of local chat models complained about, by symptom, each with the test that it does not happen here."""

import ast
import asyncio
import json
import re
import sqlite3
import time
from pathlib import Path

import pytest
from chat_fakes import ScriptedEngine
from langchain_core.caches import BaseCache, InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.tools import tool
from puppet import lines, puppet, tiny

from agentkv.chat_model import ChatAgentKV
from agentkv.engine import Engine
from agentkv.errors import AgentKVError, ContextOverflow

HERE = Path(__file__).parent
ELSEWHERE = {
    "tools are bound and silently dropped": "test_tools.py::test_results_and_earlier_calls_reach_the_model",
    "bound tools give an empty string or the prompt": "test_tools.py::test_a_call_is_parsed_and_streamed",
    "structured output raises, or is None or unchecked": "test_structured.py::test_every_method_gives_every_kind",
    "a model that may choose is made to call": "test_tools.py::test_a_model_that_may_choose",
    "tool_choice is ignored, and none still calls": "test_tools.py::test_none_forbids_calls",
    "streaming with tools raises": "test_tools.py::test_calls_stream_asynchronously",
    "bound tools turn streaming off": "test_tools.py::test_a_model_that_may_choose",
    "a tool's name is repeated in each delta": "test_tools.py::test_a_call_is_parsed_and_streamed",
    "no usage in a stream": "test_chat_model.py::test_only_the_last_chunk_carries_metadata",
    "the usage chunk misses the callbacks": "test_tools.py::test_every_chunk_reaches_callbacks",
    "asynchronous streaming raises": "test_chat_model.py::test_the_four_entry_points_agree",
    "asynchronous calls block the event loop": "test_chat_model.py::test_the_event_loop_runs_on",
    "there is no way to stop": "test_chat_model.py::test_closing_the_iterator_cancels",
    "the client is gone and the model goes on": "test_chat_model.py::test_cancelling_the_task_cancels",
    "arguments of an earlier call are a string": "test_messages.py::test_tool_calls_and_results_become_turns",
    "tokens are counted with another tokenizer": "test_chat_model.py::test_token_counts_come_from",
    "tokens of tools are not counted": "test_tools.py::test_token_counts_with_tools_are_exact",
    "the whole history is prefilled each turn": "test_langgraph.py::test_an_agent_with_tools_runs_thirty_turns",
    "memory grows over repeated calls": "test_long_session.py::test_two_hundred_calls_leave_nothing_behind",
    "threads of a batch enter one model": "test_chat_model.py::test_calls_queue_on_one_thread",
    "summing up leaves the tools out of the count": "test_langgraph.py::test_summarisation_in_the_middle",
    "a screenshot becomes text": "test_messages.py::test_a_file_in_the_guise_of_text",
    "a schema holds in calls but not in streams": "test_structured.py::test_streaming_and_invoking_give_the_same",
    "a server loses the usage at the end of a stream": "../server/test_server_http.py::test_the_raw_stream",
    "the client is gone and the server goes on": "../server/test_server_faults.py::test_a_client_that_leaves",
    "an old heavy prompt blocks the next one": "../server/test_server_scheduler.py::test_a_long_prompt_stalls",
    "a server refuses fields that it does not know": "../server/test_server_openai.py::test_fields_without_effect",
    "a wrong schema fails late and at length": "test_tools.py::test_a_schema_that_cannot_be_compiled",
}


@pytest.mark.parametrize("symptom", ELSEWHERE)
def test_the_test_of_a_symptom_exists(symptom):
    file, _, beginning = ELSEWHERE[symptom].partition("::")
    functions = ast.parse((HERE / file).read_text()).body
    assert any(getattr(node, "name", "").startswith(beginning) for node in functions)


def facts(message):
    return message.response_metadata["agentkv"]


def test_stop_strings_never_leak_and_end_the_generation():
    chat = ChatAgentKV.from_engine(puppet(lambda text: "Thought: go\nObservation: x" + "y" * 100), max_tokens=150)
    chunks = list(chat.stream("?", stop=["\nObservation:"]))
    assert "".join(chunk.content for chunk in chunks) == "Thought: go"
    assert chunks[-1].response_metadata["finish_reason"] == "stop"
    assert chunks[-1].usage_metadata["output_tokens"] <= len("Thought: go\nObservation:")


def test_a_reply_is_what_was_generated_and_not_the_prompt():
    reply = ChatAgentKV.from_engine(puppet(lambda text: "Fine.")).invoke("How are you?")
    assert reply.content == "Fine."
    assert reply.usage_metadata["output_tokens"] == len("Fine.") + 1


STRICT = (
    "{% for m in messages %}{% if m['role'] == 'system' or (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("template", [None, STRICT])
def test_any_sequence_of_messages_is_taken(template):
    engine = puppet(lambda text: "Fine.")
    if template is not None:
        engine.tokenizer.chat_template = template
    chat = ChatAgentKV.from_engine(engine)
    call = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}])
    for messages in (
        [SystemMessage("a"), SystemMessage("b"), HumanMessage("c"), HumanMessage("d")],
        [HumanMessage("a"), AIMessage("b"), AIMessage("c"), HumanMessage("d")],
        [HumanMessage("a"), call, ToolMessage("b", tool_call_id="1"), ToolMessage("c", tool_call_id="2")],
        [SystemMessage("a"), HumanMessage("b"), call, ToolMessage("c", tool_call_id="1")],
    ):
        assert chat.invoke(messages).content == "Fine."
        text = engine.tokenizer.decode(list(chat._host({})._sessions)[-1].kv.ledger)
        assert all(letter in text for letter in "abcd"[: len(messages)] if letter != "b" or messages[1] is not call)


class SlowEngine(Engine):
    passes = 0

    def _run(self, sessions, tokens):
        self.passes += 1
        time.sleep(0.05)
        return super()._run(sessions, tokens)


async def test_a_long_prompt_is_given_up_between_its_chunks():
    engine = tiny(SlowEngine)
    chat = ChatAgentKV.from_engine(engine, max_tokens=2)
    prompt = "x" * 5000  # twenty chunks
    task = asyncio.create_task(chat.ainvoke(prompt))
    while not engine.passes:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    reply = await chat.ainvoke("next")
    assert reply.response_metadata["finish_reason"] in ("length", "stop")
    assert engine.passes < 12


def test_nothing_is_cut_from_the_front():
    chat = ChatAgentKV.from_engine(tiny(window=256), max_tokens=8)
    with pytest.raises(ContextOverflow) as caught:
        chat.invoke([SystemMessage("Be brief."), HumanMessage("x" * 300)])
    assert caught.value.limit == 256
    assert caught.value.prompt_tokens > 300


def test_what_was_evicted_is_reported_beside_the_original_count():
    chat = ChatAgentKV.from_engine(tiny(), max_tokens=8, kv_policy="streaming-llm", kv_budget=128)
    reply = chat.invoke("x" * 400)
    assert reply.usage_metadata["input_tokens"] > 400
    assert facts(reply)["evicted_tokens"] > 250


def test_reasons_for_the_end_are_told_apart():
    def reason(script, *, max_tokens=500, **fields):
        chat = ChatAgentKV.from_engine(puppet(script, window=256), max_tokens=max_tokens, **fields)
        return chat.invoke("?").response_metadata["finish_reason"]

    assert reason(lambda text: "Fine.") == "stop"
    assert reason(lambda text: "x" * 600, max_tokens=5) == "length"
    assert reason(lambda text: "x" * 600) == "context_full"
    engine = ScriptedEngine(lambda prompt: "z" * 500, step_s=0.005)
    with pytest.raises(TimeoutError):
        ChatAgentKV.from_engine(engine, timeout=0.05).invoke("?")


def test_the_profile_shows_what_a_session_takes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))

    def room(**fields):
        return ChatAgentKV(model=str(tmp_path), **fields).profile.get("max_input_tokens")

    assert room() == 4096
    assert room(kv_budget=512) == 512
    assert room(kv_budget="25%") == 1024
    assert room(kv_budget="8MiB") is None, "how many tokens these bytes hold is not known before the model is loaded"
    assert room(kv_policy="h2o", kv_budget=512) == 4096
    assert ChatAgentKV(model=str(tmp_path)).profile["tool_calling"]


def test_a_cache_that_evicted_is_not_trusted_to_go_back():
    """What a rewritten conversation gets is what a new session of the same policy says."""
    first = [SystemMessage("Be brief."), HumanMessage("One " * 40), AIMessage("Two " * 40), HumanMessage("Three " * 20)]
    second = [*first[:2], AIMessage("Four " * 30), HumanMessage("Five")]
    fields = {"max_tokens": 24, "kv_policy": "h2o", "kv_budget": 200}
    chat = ChatAgentKV.from_engine(tiny(), **fields)
    chat.invoke(first, session_id="a")
    again = chat.invoke(second, session_id="a")
    fresh = ChatAgentKV.from_engine(tiny(), **fields).invoke(second, session_id="a")
    assert facts(again)["session"] == "restarted"
    assert facts(again)["reused_tokens"] == 0
    assert again.content == fresh.content


def test_a_cache_that_kept_everything_goes_back_exactly():
    first = [SystemMessage("Be brief."), HumanMessage("One " * 40), AIMessage("Two " * 40), HumanMessage("Three")]
    second = [*first[:2], AIMessage("Four " * 30), HumanMessage("Five")]
    chat = ChatAgentKV.from_engine(tiny(), max_tokens=24)
    chat.invoke(first, session_id="a")
    again = chat.invoke(second, session_id="a")
    fresh = ChatAgentKV.from_engine(tiny(), max_tokens=24).invoke(second, session_id="a")
    assert facts(again)["session"] == "rewound"
    assert facts(again)["reused_tokens"] > 150
    assert again.content == fresh.content


@tool
def act(target: str, times: int) -> str:
    """Act."""
    return ""


@pytest.mark.parametrize("policy", ["full", "int8", "conf-kv", "streaming-llm"])
def test_arguments_stay_valid_under_every_policy(policy):
    fields = {} if policy in ("full", "int8") else {"kv_budget": 200}
    chat = ChatAgentKV.from_engine(tiny(), kv_policy=policy, max_tokens=140, temperature=1.0, **fields)
    for seed in range(2):
        reply = chat.bind_tools([act], tool_choice="any").invoke("word " * 60, seed=seed)
        assert {name: type(value) for name, value in reply.tool_calls[0]["args"].items()} == {
            "target": str,
            "times": int,
        }


def test_a_schema_without_types_is_any_json():
    spec = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {}}, "required": ["x"]}}}
    said = '<tool_call>\n{"name": "f", "arguments": {"x": [1, {"y": null}]}}\n</tool_call>'
    chat = ChatAgentKV.from_engine(puppet(lines(said)), max_tokens=200)
    reply = chat.bind_tools([spec], tool_choice="any").invoke("?")
    assert reply.tool_calls[0]["args"] == {"x": [1, {"y": None}]}


class SQLiteCache(BaseCache):
    """As `langchain_community`'s: generations as their JSON."""

    def __init__(self):
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute("CREATE TABLE cache (prompt, llm, idx, response, PRIMARY KEY (prompt, llm, idx))")

    def lookup(self, prompt, llm_string):
        query = "SELECT response FROM cache WHERE prompt = ? AND llm = ? ORDER BY idx"
        rows = self._db.execute(query, (prompt, llm_string)).fetchall()
        return [loads(row[0], allowed_objects="core") for row in rows] or None

    def update(self, prompt, llm_string, return_val):
        for index, generation in enumerate(return_val):
            values = (prompt, llm_string, index, dumps(generation))
            self._db.execute("INSERT OR REPLACE INTO cache VALUES (?, ?, ?, ?)", values)

    def clear(self, **kwargs):
        self._db.execute("DELETE FROM cache")


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
@pytest.mark.parametrize("cache", [InMemoryCache, SQLiteCache])
async def test_a_cached_reply_is_the_reply(cache):
    call = '<tool_call>\n{"name": "act", "arguments": {"target": "door", "times": 2}}\n</tool_call>'
    engine = puppet(lines(call, "Fine.", "Other."))
    chat = ChatAgentKV.from_engine(engine, cache=cache(), max_tokens=100)
    bound = chat.bind_tools([act])
    replies = [bound.invoke("?"), bound.invoke("?"), await bound.ainvoke("?")]
    assert {json.dumps(reply.tool_calls[0]["args"]) for reply in replies} == {'{"target": "door", "times": 2}'}
    assert {reply.usage_metadata["input_tokens"] for reply in replies} == {replies[0].usage_metadata["input_tokens"]}
    plain = [chat.invoke("?"), chat.invoke("?")]
    assert [reply.content for reply in plain] == ["Fine.", "Fine."], "other tools are another question"
    other = ChatAgentKV.from_engine(engine, cache=chat.cache, max_tokens=100, kv_policy="window", kv_budget=300)
    assert other.invoke("?").content == "Other.", "and so is another policy"


class CountingLimiter(BaseRateLimiter):
    def __init__(self):
        self.acquired = 0

    def acquire(self, *, blocking=True):
        self.acquired += 1
        return True

    async def aacquire(self, *, blocking=True):
        return self.acquire(blocking=blocking)


async def test_the_rate_limiter_is_asked_once_a_call_and_not_for_cached_replies():
    limiter = CountingLimiter()
    chat = ChatAgentKV.from_engine(ScriptedEngine(), rate_limiter=limiter, cache=InMemoryCache())
    chat.invoke("a")
    chat.invoke("a")
    await chat.ainvoke("b")
    list(chat.stream("c"))
    [chunk async for chunk in chat.astream("d")]
    assert limiter.acquired == 4


def test_callbacks_see_the_reply_and_the_error():
    events = []

    class Listener(BaseCallbackHandler):
        def on_chat_model_start(self, serialized, messages, **kwargs):
            events.append(("start", kwargs["invocation_params"]["kv_policy"]))

        def on_llm_end(self, response, **kwargs):
            events.append(("end", response.generations[0][0].message.usage_metadata["output_tokens"] > 0))

        def on_llm_error(self, error, **kwargs):
            events.append(("error", type(error).__name__))

    chat = ChatAgentKV.from_engine(ScriptedEngine(window=80), callbacks=[Listener()])
    chat.invoke("a")
    with pytest.raises(ContextOverflow):
        chat.invoke("x" * 200)
    assert events == [("start", "full"), ("end", True), ("start", "full"), ("error", "ContextOverflow")]


def test_errors_are_one_sentence():
    for script in (
        lambda: ChatAgentKV(kv_polcy="full"),
        lambda: ChatAgentKV.from_engine(tiny(window=128)).invoke("x" * 300),
        lambda: ChatAgentKV().bind_tools([act], tool_choice="walk"),
    ):
        with pytest.raises(AgentKVError) as caught:
            script()
        assert re.fullmatch(r"[^\n]{10,250}", str(caught.value))
