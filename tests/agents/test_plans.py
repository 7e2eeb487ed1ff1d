"""Plans: asked for before the first page, gone through by number, and kept in the conversation."""

from __future__ import annotations

from typing import Any

import pytest
from agent_fakes import ScriptedChatModel, accepting, page
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatResult
from puppet import lines, puppet

from agentkv.chat_model import ChatAgentKV
from agentkv.errors import ContextOverflow, Unsupported
from agentkv_agents import WebAgent
from agentkv_agents.base import Usage
from agentkv_agents.notes import start_with
from agentkv_agents.plans import (
    HELP,
    MOST_STEPS,
    format_plan,
    numbered,
    plan_grammar,
    split_number,
)
from agentkv_agents.prompting import Prompting
from agentkv_envs import action_grammar, action_help

PLAN = format_plan(['type "Search" [kettle] [1]', 'click "?"', "stop []"])
CLICK = 'click "red kettle" [2]'
TAUGHT = Prompting(plan=True, explain_actions=False)


@given(st.integers(1, 99), st.sampled_from([CLICK, "stop []", "go_back"]))
def test_what_is_numbered_is_read(number: int, action: str) -> None:
    assert split_number(numbered(number, action)) == (number, action)


@pytest.mark.parametrize("reply", [CLICK, "", "stop [3]", "100 stop []", "3"])
def test_a_reply_without_a_number_is_left_alone(reply: str) -> None:
    assert split_number(reply) == (None, reply)


def session_text(chat: ChatAgentKV, engine: object) -> str:
    (session,) = chat._hosts[engine.model_name].sessions  # type: ignore[attr-defined]
    text: str = engine.tokenizer.decode(session.kv.ledger)  # type: ignore[attr-defined]
    return text


def test_a_plan_is_made_before_the_first_page_and_stays() -> None:
    replies = (PLAN, '1 type "Search" [1] [kettle] [1]', f"2 {CLICK}", "3 stop []")
    engine = puppet(lines(*replies))
    chat = ChatAgentKV.from_engine(engine)
    agent = WebAgent(chat, "Find the kettle.", session_id="s", prompting=TAUGHT)
    steps = [agent.act(page(f"p{n}")) for n in range(3)]
    assert [step.raw_text for step in steps] == list(replies[1:])
    assert [str(step.action) for step in steps] == [reply[2:] for reply in replies[1:]]
    assert [step.plan for step in steps] == [PLAN, None, None]
    told = session_text(chat, engine)
    assert told.index("Open: ") < told.index(PLAN) < told.index(page("p0").text) < told.index(replies[1])
    assert told.count(PLAN) == 1
    assert HELP in told
    assert action_help("label-first") not in told


def test_the_step_after_a_plan_has_the_tokens_and_the_time_of_both() -> None:
    def said(text: str, new: int, generated: int) -> AIMessage:
        stats = {"prompt_tokens": 90, "reused_tokens": 9, "new_tokens": new, "generated_tokens": generated}
        times = {"prefill_ms": new / 2, "decode_ms": generated / 4}
        return AIMessage(text, response_metadata={"agentkv": {**stats, **times}})

    model = ScriptedChatModel(replies=[said(PLAN, 100, 40), said(f"1 {CLICK}", 30, 8), said("3 stop []", 20, 4)])
    agent = WebAgent(model, "Find the kettle.", prompting=TAUGHT, constrained=False)
    first, second = agent.act(page("p0")), agent.act(page("p1"))
    assert first.usage == Usage(180, 18, 130, 48)
    assert (first.prefill_ms, first.decode_ms) == (65.0, 12.0)
    assert second.usage == Usage(90, 9, 20, 4)
    assert (second.prefill_ms, second.decode_ms) == (10.0, 1.0)


def test_an_agent_that_need_not_follow_says_which_step_it_is_at() -> None:
    """The number is that of the step at hand or the next, the action any that the page allows."""
    replies = [PLAN, f"1 {CLICK}", f"1 {CLICK}", f"2 {CLICK}", f"3 {CLICK}", f"3 {CLICK}"]
    engine = puppet(lines(*replies))
    prompting = Prompting(plan=True, explain_actions=False, follow_plan=False)
    agent = WebAgent(ChatAgentKV.from_engine(engine), "Find the kettle.", session_id="s", prompting=prompting)
    assert [agent.act(page(f"p{n}")).raw_text for n in range(5)] == replies[1:]
    model = ScriptedChatModel(replies=replies)
    agent = WebAgent(model, "Find the kettle.", prompting=prompting, constrained=False)
    plain, allowed = action_grammar(page("p")), []
    for n in range(5):
        agent.act(page(f"p{n}"))
        allowed.append(agent._grammar(page("p")))
    # Asked before what the last action did is known.
    choices = [(1,), (1, 2), (1, 2), (2, 3), (3,)]
    starts = [" | ".join(f'"{number} " (unbound)' for number in numbers) for numbers in choices]
    assert allowed == [start_with(plain, start, "unbound") for start in starts]


def test_a_reply_that_is_no_plan_leaves_the_agent_without_one() -> None:
    model = ScriptedChatModel(replies=["I would rather not.", CLICK])
    agent = WebAgent(model, "Find the kettle.", prompting=TAUGHT, constrained=False)
    step = agent.act(page("p"))
    assert str(step.action) == CLICK
    assert agent._grammar(page("p")) == action_grammar(page("p"))


def test_a_grammar_of_plans_allows_plans_and_nothing_else() -> None:
    accepts = accepting(plan_grammar("Find the kettle."))
    assert accepts(PLAN)
    assert accepts(format_plan([f"step {n}" for n in range(MOST_STEPS)]))
    assert not accepts(format_plan([f"step {n}" for n in range(MOST_STEPS + 1)]))
    assert not accepts("2 click")
    assert not accepts("1 click\n3 stop []")


def test_what_a_plan_types_are_words_of_the_task() -> None:
    accepts = accepting(
        plan_grammar("Search for 'Meeting in Ford?' and 'Harbor Red Toaster', then write: I will be there.")
    )
    typed = 'type "Search posts" [{}] [1]'
    for text in ("?", "Meeting in Ford?", "Harbor Red Toaster", "I will be there.", "Red"):
        assert accepts(format_plan([typed.format(text), "tab_focus [1]", "stop []"]))
    for text in ("Haven Red Toaster", "Harbor  Red", "Harbor Red Toast", "eeting", "there. Meeting"):
        assert not accepts(format_plan([typed.format(text)]))
    assert accepts('1 click "Haven Red Toaster"'), "what is clicked may be the page's own words"


@pytest.mark.parametrize(
    "intent", ["", "?", "\n", 'Say "hi" \\ [now] {x} %regex', "Größe ändern: 日本語\nund weiter", "a" * 3000]
)
def test_whatever_the_task_says_there_is_a_plan(intent: str) -> None:
    accepts = accepting(plan_grammar(intent))
    assert accepts(PLAN.replace("kettle", "?"))
    assert accepts("1 stop []")
    if "weiter" in intent:
        assert accepts('1 type "Suche" [日本語 und weiter] [0]')


def test_a_reply_may_have_a_note_and_has_a_number() -> None:
    search = 'type "Search" [1] [kettle] [1]'
    noted = f"note [the code is K7Q]\n1 {search}"
    engine = puppet(lines(PLAN, noted, "2 stop []"))
    agent = WebAgent(ChatAgentKV.from_engine(engine), "Find the kettle.", session_id="s", notes=True, prompting=TAUGHT)
    steps = [agent.act(page("p0")), agent.act(page("p1"))]
    assert [(step.raw_text, str(step.action)) for step in steps] == [(noted, search), ("2 stop []", "stop []")]


@pytest.mark.parametrize("notes", [False, True])
def test_what_is_recalled_is_no_part_of_the_action(notes: bool) -> None:
    """Who may take notes at every step may do so here as well."""
    plan = PLAN.replace("kettle", "?")
    recalled = 'note [the code is K7Q]\n1 type "Search" [1] [K7Q] [1]'
    engine = puppet(lines(plan, recalled, "2 stop []"))
    prompting = Prompting(plan=True, explain_actions=False, recall=True)
    chat = ChatAgentKV.from_engine(engine)
    agent = WebAgent(chat, "Find the code.", session_id="s", notes=notes, prompting=prompting)
    step = agent.act(page("p0"))
    assert (step.raw_text, str(step.action), step.parse_mode) == (recalled, 'type "Search" [1] [K7Q] [1]', "strict")
    agent.act(page("p1"))
    assert session_text(chat, engine).count(recalled) == 1


@pytest.mark.parametrize(
    ("notes", "recall", "limits"), [(False, False, [768, None]), (True, False, [768, 384]), (False, True, [768, 384])]
)
def test_a_reply_with_a_note_has_room_for_it(notes: bool, recall: bool, limits: list[int | None]) -> None:
    model = ScriptedChatModel(replies=[PLAN, f"1 {CLICK}"])
    prompting = Prompting(plan=True, explain_actions=False, recall=recall)
    agent = WebAgent(model, "Find the kettle.", prompting=prompting, notes=notes, constrained=True)
    agent.act(page("p0"))
    assert [options.get("max_tokens") for options in model.options] == limits


def test_a_window_that_holds_the_plan_and_not_the_page_ends_the_episode_with_what_the_plan_took() -> None:
    class Full(ScriptedChatModel):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            if len(messages) > 2:
                raise ContextOverflow(20, 9)
            return super()._generate(messages, *args, **kwargs)

    stats = {"prompt_tokens": 9, "reused_tokens": 0, "new_tokens": 9, "generated_tokens": 4, "peak_kv_bytes": 77}
    planned = AIMessage(PLAN, response_metadata={"agentkv": stats})
    agent = WebAgent(Full(replies=[planned]), "Find the kettle.", prompting=TAUGHT, constrained=False)
    step = agent.act(page("p0"))
    assert (step.context_full, step.action, step.plan, step.error) == (True, None, PLAN, str(ContextOverflow(20, 9)))
    assert step.usage == Usage(9, 0, 9, 4)
    assert step.kv.peak_bytes == 77


def test_a_history_that_keeps_no_replies_has_no_plan() -> None:
    with pytest.raises(Unsupported, match="the history 'official' keeps no replies, so there is no plan to follow"):
        WebAgent(ScriptedChatModel(replies=[]), "Find the kettle.", prompting=TAUGHT, history="official")
