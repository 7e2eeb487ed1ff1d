from __future__ import annotations

import pytest
from agent_fakes import ScriptedChatModel, page
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from agentkv.errors import BudgetTooSmall, ContextOverflow, UnknownName
from agentkv_agents import WebAgent
from agentkv_envs import Action

CLICK = 'click "red kettle" [2]'
STATS = {
    "prompt_tokens": 300, "reused_tokens": 200, "new_tokens": 100, "generated_tokens": 9,
    "resident_kv_bytes": 5000, "peak_kv_bytes": 7000, "evicted_tokens": 3, "quantized_tokens": 4,
    "logical_length": 309, "prefill_ms": 12.5, "decode_ms": 80.0, "finish_reason": "stop",
}  # fmt: skip


def test_append_history_only_grows() -> None:
    model = ScriptedChatModel(replies=[CLICK, CLICK, "stop [3]"])
    agent = WebAgent(model, "Buy the {red} kettle")
    for key in ("p1", "p2", "p3"):
        agent.act(page(key))
    first, second, third = model.asked
    assert [type(m) for m in third] == [SystemMessage, *[HumanMessage, AIMessage] * 2, HumanMessage]
    assert "Buy the {red} kettle" in str(first[0].content)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert second[2].content == CLICK
    assert first[1].content == page().text


def test_official_history_shows_the_page_and_the_action_before_it() -> None:
    model = ScriptedChatModel(replies=[CLICK, "stop []"])
    agent = WebAgent(model, "Buy", history="official")
    agent.act(page())
    agent.act(page("p2"))
    assert [len(messages) for messages in model.asked] == [2, 2]
    assert "Previous action: none" in str(model.asked[0][1].content)
    assert f"Previous action: {CLICK}" in str(model.asked[1][1].content)


def test_a_reply_that_is_no_action_is_corrected_without_the_page() -> None:
    model = ScriptedChatModel(replies=["I would like a kettle", f"Fine: {CLICK}"])
    agent = WebAgent(model, "Buy")
    failed = agent.act(page())
    assert (failed.action, failed.parse_mode, failed.raw_text) == (None, "failed", "I would like a kettle")
    assert failed.error
    step = agent.act(page(), failed.error)
    assert step.action == Action("click", 2, "red kettle")
    assert step.parse_mode == "lenient"
    correction = str(model.asked[1][-1].content)
    assert failed.error in correction
    assert page().text not in correction


def test_an_action_that_the_browser_refused_is_reported_with_the_page() -> None:
    model = ScriptedChatModel(replies=[CLICK, CLICK])
    agent = WebAgent(model, "Buy")
    agent.act(page())
    agent.act(page(), "the link is covered")
    assert model.asked[1][-1].content == f"Error: the link is covered\n{page().text}"


def test_session_and_grammar_reach_a_model_that_takes_grammars() -> None:
    reply = AIMessage(CLICK, response_metadata={"agentkv": STATS})
    model = ScriptedChatModel(replies=[reply])
    agent = WebAgent(model, "Buy", session_id="ep-1", constrained=True)
    step = agent.act(page())
    assert '\\"red kettle\\" [2]' in model.options[0]["grammar"]
    assert step.usage.reused_tokens == 200
    assert (step.kv.resident_bytes, step.kv.peak_bytes) == (5000, 7000)
    assert (step.kv.evicted_tokens, step.kv.quantized_tokens, step.kv.logical_length) == (3, 4, 309)
    assert (step.prefill_ms, step.decode_ms) == (12.5, 80.0)
    assert not step.context_full
    agent.close()
    assert model.closed == ["ep-1"]


def test_other_models_get_no_grammar_and_report_what_they_have() -> None:
    usage = {"input_tokens": 50, "output_tokens": 5, "total_tokens": 55, "input_token_details": {"cache_read": 20}}
    model = ScriptedChatModel(replies=[AIMessage(CLICK, usage_metadata=usage), CLICK])
    agent = WebAgent(model, "Buy")
    usage_read = agent.act(page()).usage
    assert (usage_read.prompt_tokens, usage_read.reused_tokens, usage_read.new_tokens) == (50, 20, 30)
    assert agent.act(page()).usage.prompt_tokens is None
    assert model.options == [{}, {}]


@pytest.mark.parametrize(
    "reply",
    [
        ContextOverflow(9000, 8192),
        BudgetTooSmall("the protected words take all of it"),
        AIMessage("click", response_metadata={"agentkv": {**STATS, "finish_reason": "context_full"}}),
    ],
)
def test_a_full_window_is_reported(reply: object) -> None:
    agent = WebAgent(ScriptedChatModel(replies=[reply]), "Buy")
    step = agent.act(page())
    assert step.context_full
    assert step.action is None


def test_unknown_history() -> None:
    with pytest.raises(UnknownName, match="append, official"):
        WebAgent(ScriptedChatModel(replies=[]), "Buy", history="all")


def test_an_action_that_changed_nothing_is_not_offered_again_until_the_page_changes() -> None:
    model = ScriptedChatModel(replies=[CLICK, "scroll [down]", CLICK, CLICK])
    agent = WebAgent(model, "Buy", constrained=True)
    for key in ("p1", "p1", "p1", "p2"):
        agent.act(page(key))
    first, second, third, fourth = (options["grammar"] for options in model.options)
    assert "click_target" not in first
    for grammar in (second, third):
        (clickable,) = [line for line in grammar.splitlines() if line.startswith("click_target: ")]
        assert "red kettle" not in clickable
    assert "scroll [down]" in second
    assert "scroll [down]" not in third
    assert "scroll [up]" in third
    assert fourth == first
