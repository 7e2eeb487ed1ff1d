"""Sessions inside agent apps: a turn computes only what is new, inside the budget, whatever the app does to history."""

import re
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from puppet import call_text, puppet
from pydantic import BaseModel
from typing_extensions import TypedDict

from agentkv.chat_model import ChatAgentKV

TURNS = 30
BUDGET = 256 * 1024


@tool
def look(page: int) -> str:
    """Read a page."""
    return f"page {page} says {page * page}"


def answers(text: str) -> str:
    """Looks at the page that the newest message names, then says what it read."""
    newest = re.split(r"<\|im_start\|>user\n", text)[-1]
    if "<tool_response>" in newest:
        return "It says " + re.findall(r"says (\d+)", newest)[-1] + "."
    return call_text("look", f'{{"page": {re.findall(r"[0-9]+", newest)[-1]}}}')


def facts(message: BaseMessage) -> dict[str, Any]:
    return message.response_metadata["agentkv"]


def replies_of(messages: list[BaseMessage]) -> list[AIMessage]:
    return [message for message in messages if isinstance(message, AIMessage)]


def assert_only_new_tokens_were_computed(replies: list[AIMessage]) -> None:
    first, *rest = replies
    assert facts(first)["session"] == "new"
    assert {facts(reply)["session"] for reply in rest} == {"continued"}
    for before, after in zip(replies, rest, strict=False):
        details = after.usage_metadata["input_token_details"]
        # The end of a reply, forced by a grammar, is computed with the next turn.
        assert details["cache_read"] >= facts(before)["prompt_tokens"] + facts(before)["generated_tokens"] - 20
        assert after.usage_metadata["input_tokens"] - details["cache_read"] < 110


@pytest.mark.parametrize("native", [False, True])
def test_an_agent_with_tools_runs_thirty_turns_and_computes_only_new_tokens(native):
    engine = puppet(answers, window=16384, native=native)
    chat = ChatAgentKV.from_engine(engine, kv_policy="streaming-llm", kv_budget=BUDGET // 256, max_tokens=100)
    agent = create_agent(chat, [look], system_prompt="You read pages.", checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "book"}}
    for page in range(TURNS):
        state = agent.invoke({"messages": [HumanMessage(f"What is on {page}?")]}, config)
        assert state["messages"][-1].content == f"It says {page * page}."
    replies = replies_of(state["messages"])
    assert len(replies) == 2 * TURNS
    assert_only_new_tokens_were_computed(replies)
    limit = max(facts(reply)["peak_kv_bytes"] for reply in replies)
    session = next(iter(chat._host({})._sessions))
    assert limit <= session.kv.limits.max_bytes
    assert facts(replies[-1])["evicted_tokens"] > 1000
    assert len(chat._host({})._sessions) == 1


class State(TypedDict):
    messages: Annotated[list[BaseMessage], add_messages]


async def test_a_graph_with_a_checkpointer_runs_thirty_turns_and_computes_only_new_tokens():
    engine = puppet(answers, window=16384)
    chat = ChatAgentKV.from_engine(engine, kv_policy="h2o", kv_budget="256KiB", max_tokens=100)
    model = chat.bind_tools([look])

    async def think(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([SystemMessage("You read pages."), *state["messages"]])]}

    graph = StateGraph(State)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "think")
    app = graph.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1", "session_id": "reader"}}
    streamed = 0
    for page in range(TURNS):
        events = app.astream({"messages": [HumanMessage(f"What is on {page}?")]}, config, stream_mode="messages")
        streamed += len([part async for part, _ in events if part.content])
    replies = replies_of((await app.aget_state(config)).values["messages"])
    assert len(replies) == 2 * TURNS
    assert streamed > 4 * TURNS, "LangGraph's messages mode gets tokens, not whole replies"
    assert_only_new_tokens_were_computed(replies)
    assert {facts(reply)["session_id"] for reply in replies} == {"reader"}
    assert max(facts(reply)["peak_kv_bytes"] for reply in replies) <= BUDGET
    assert facts(replies[-1])["evicted_tokens"] > 1000


def test_two_threads_of_one_agent_do_not_mix():
    engine = puppet(answers)
    chat = ChatAgentKV.from_engine(engine, max_tokens=100)
    agent = create_agent(chat, [look], checkpointer=InMemorySaver())
    for page in range(3):
        for thread in ("a", "b"):
            question = {"messages": [HumanMessage(f"{thread} asks for {page}")]}
            state = agent.invoke(question, {"configurable": {"thread_id": thread}})
            assert state["messages"][-1].content == f"It says {page * page}."
            newest = replies_of(state["messages"])[-2:]
            expected = "continued" if page else {"a": "new", "b": "forked"}[thread]
            assert [facts(reply)["session"] for reply in newest] == [expected, "continued"]


def held(chat: ChatAgentKV, session_id: str) -> dict[str, list[float]]:
    """By role, which share of each of its spans some head holds."""
    kv = chat._host({})._sessions.by_id(chat._settings, session_id).kv
    index = kv.cache.store.token_index
    kept = set(index[index >= 0].tolist())
    shares: dict[str, list[float]] = {}
    for span in kv.cache.facts.spans:
        tokens = range(span.start, span.end)
        if len(tokens) > 4:
            shares.setdefault(span.role.value, []).append(len(kept & set(tokens)) / len(tokens))
    return shares


@pytest.mark.parametrize(
    ("policy", "budget", "options"),
    [("h2o", 1000, {"protect": ["system", "observation"], "recent": 0.1}), ("obs-window", 1900, {})],
)
def test_tool_results_are_kept_or_dropped_by_role(policy, budget, options):
    engine = puppet(answers)
    chat = ChatAgentKV.from_engine(engine, kv_policy=policy, kv_options=options, kv_budget=budget, max_tokens=60)
    model, config = chat.bind_tools([look]), {"configurable": {"session_id": "pages"}}
    messages: list[BaseMessage] = [HumanMessage("Read 1")]
    for page in range(7):
        asked = model.invoke(messages, config)
        result = ToolMessage("." * 60 + f" page {page} says {page}", tool_call_id=asked.tool_calls[0]["id"])
        messages += [asked, result, model.invoke([*messages, asked, result], config), HumanMessage(f"Read {page}")]
    shares = held(chat, "pages")
    assert shares["system"] == [1.0]
    results = shares["observation"][::2] if policy == "h2o" else shares["observation"]
    assert results[-1] == 1.0, "the newest is whole"
    assert min(shares["observation"]) < 1.0
    if policy == "obs-window":
        assert set(shares["observation"]) == {0.0, 1.0}, "results go whole"
        assert set(shares["action"][:-1]) == {1.0}  # the end of the last one is still to be computed


def test_summarisation_in_the_middle_is_noticed_and_what_is_left_is_reused():
    def script(text: str) -> str:
        newest = text.rsplit("<|im_start|>user\n", maxsplit=1)[-1]
        return "They read pages." if "<messages>" in newest or "Messages to summarize" in newest else answers(text)

    engine = puppet(script, window=16384)
    chat = ChatAgentKV.from_engine(engine, max_tokens=100)
    summary = SummarizationMiddleware(chat, trigger=("messages", 12), keep=("messages", 4))
    agent = create_agent(
        chat, [look], system_prompt="You read pages.", middleware=[summary], checkpointer=InMemorySaver()
    )
    config = {"configurable": {"thread_id": "book"}}
    states = []
    for page in range(8):
        messages = agent.invoke({"messages": [HumanMessage(f"What is on {page}?")]}, config)["messages"]
        assert messages[-1].content == f"It says {page * page}."
        states += [facts(reply)["session"] for reply in replies_of(messages)[-2:]]
    assert any("They read pages." in str(message.content) for message in messages), "it was summed up"
    assert "forked" in states, "and the session went back to the system message"
    rewritten = states.index("forked")
    assert states[rewritten + 1] == "continued"
    last = replies_of(messages)[-1]
    shown = [SystemMessage("You read pages."), *messages[: messages.index(last)]]
    assert facts(last)["prompt_tokens"] == chat.get_num_tokens_from_messages(shown, tools=[look])


def test_template_drift_is_no_drift_of_the_session():
    drifting = (
        "{% for m in messages %}{% set text = m['content'] %}"
        "{% if m['role'] == 'assistant' and not loop.last %}{% set text = text.split('</t>') | last %}{% endif %}"
        "<|im_start|>{{ m['role'] }}\n{{ text }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    engine = puppet(lambda text: "a thought</t>It is so.")
    engine.tokenizer.chat_template = drifting
    chat = ChatAgentKV.from_engine(engine)
    messages: list[BaseMessage] = [HumanMessage("One?")]
    for _ in range(4):
        messages += [chat.invoke(messages), HumanMessage("And?")]
    states = [facts(reply)["session"] for reply in replies_of(messages)]
    assert states == ["new", "continued", "continued", "continued"]
    # An app that keeps only what its own parser leaves of a reply has rewritten it.
    messages[5] = AIMessage("It is so.")
    reply = chat.invoke(messages)
    assert facts(reply)["session"] == "forked"
    assert facts(reply)["reused_tokens"] > 60


class Answer(BaseModel):
    """What is on the page."""

    number: int


@pytest.mark.parametrize("strategy", [ProviderStrategy, ToolStrategy])
def test_an_agent_ends_with_structured_output(strategy):
    def script(text: str) -> str:
        said = answers(text)
        if said.startswith("It says"):
            document = f'{{"number": {re.findall("[0-9]+", said)[0]}}}'
            return document if strategy is ProviderStrategy else call_text("Answer", document)
        return said

    engine = puppet(script)
    chat = ChatAgentKV.from_engine(engine, max_tokens=100)
    agent = create_agent(chat, [look], response_format=strategy(Answer))
    state = agent.invoke({"messages": [HumanMessage("What is on 7?")]})
    assert state["structured_response"] == Answer(number=49)
    assert [facts(reply)["session"] for reply in replies_of(state["messages"])] == ["new", "continued"]


@pytest.mark.model
def test_an_agent_on_the_embedded_model():
    @tool
    def get_weather(location: str) -> str:
        """Get weather at a location."""
        return f"It is sunny in {location}."

    chat = ChatAgentKV(tool_call_bias=4.4, max_tokens=40, kv_policy="conf-kv", kv_budget="8MiB")
    agent = create_agent(chat, [get_weather], checkpointer=InMemorySaver())
    asked = {"messages": [HumanMessage("What is the weather in San Francisco, CA?")]}
    config = {"configurable": {"thread_id": "weather"}, "recursion_limit": 6}
    messages = agent.invoke(asked, config | {"interrupt_after": []}, interrupt_before=["model"])["messages"]
    while len(messages) < 4:
        messages = agent.invoke(None, config, interrupt_before=["model"])["messages"]
    first, second = replies_of(messages)[:2]
    assert first.tool_calls[0]["args"] == {"location": "San Francisco, CA"}
    assert facts(second)["session"] == "continued"
    assert second.usage_metadata["input_token_details"]["cache_read"] > 130
    assert facts(second)["peak_kv_bytes"] <= 8 * 2**20
