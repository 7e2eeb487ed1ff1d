from __future__ import annotations

import pytest
from agent_fakes import ScriptedChatModel, page
from llguidance import LLMatcher, LLTokenizer

import agentkv_agents
from agentkv.errors import UnknownName
from agentkv_agents import AgentKind, AgentSetup, WebAgent
from agentkv_agents.random_agent import RandomAgent, possible_actions
from agentkv_agents.scripted import NullAgent, OracleAgent
from agentkv_envs import Action, Task, action_grammar, parse_action

TASK = Task("shop-1", ("shopping",), "Buy", "/", {}, ('click "red kettle"', "stop [3]"), {})


def test_registry_is_strict() -> None:
    assert set(agentkv_agents.names()) >= {"llm", "oracle", "null", "random"}
    with pytest.raises(UnknownName, match=r"'genius'.*llm, oracle"):
        agentkv_agents.get("genius")
    with pytest.raises(ValueError, match="already registered"):
        agentkv_agents.register(AgentKind("llm", lambda setup: NullAgent("vwa")))


def test_llm_needs_a_model() -> None:
    kind = agentkv_agents.get("llm")
    assert kind.needs_model
    with pytest.raises(ValueError, match="chat model"):
        kind.make(AgentSetup(TASK))
    assert isinstance(kind.make(AgentSetup(TASK, model=ScriptedChatModel(replies=[]))), WebAgent)


def test_oracle_finds_ids_on_the_page() -> None:
    agent = OracleAgent(TASK.oracle)
    assert agent.act(page()).action == Action("click", 2, "red kettle")
    assert agent.act(page()).action == Action("stop", text="3")
    spent = agent.act(page())
    assert spent.action is None
    assert "no action left" in (spent.error or "")


def test_oracle_that_does_not_fit_the_page_keeps_its_place() -> None:
    agent = OracleAgent(TASK.oracle)
    lost = agent.act(page(elements=()))
    assert (lost.action, lost.parse_mode) == (None, "failed")
    assert "red kettle" in (lost.error or "")
    assert agent.act(page()).action == Action("click", 2, "red kettle")


def test_null_agent_stops_with_nothing() -> None:
    step = NullAgent("vwa").act(page(style="vwa"))
    assert step.action == Action("stop", text="")
    assert step.parse_mode == "strict"


def test_random_agent_repeats_itself_and_only_itself() -> None:
    def walk(seed: int) -> list[str]:
        agent = RandomAgent(seed)
        return [agent.act(page(f"p{n}")).raw_text for n in range(40)]

    assert walk(1) == walk(1)
    assert walk(1) != walk(2)


def test_random_actions_are_uniform() -> None:
    agent = RandomAgent(0)
    known = len(possible_actions(page(), "a"))
    counts: dict[str, int] = {}
    for _ in range(200 * known):
        action = agent.act(page()).action
        key = (
            str(action) if action.kind not in ("type", "stop") else f"{action.kind} {action.enter} {bool(action.text)}"
        )
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == known
    assert min(counts.values()) > 130  # 200 expected; below 130 is 5 standard deviations


@pytest.mark.parametrize(
    "observation",
    [
        page(),
        page(elements=(), can_go_back=True),
        page(tabs=("Shop", "Forum"), current_tab=1),
        page(dialog='confirm "Delete?"'),
    ],
)
def test_possible_actions_are_those_of_the_grammar(observation: object) -> None:
    """Every guess is a sentence of the grammar that a language model decodes under."""
    tokenizer = LLTokenizer("byte")
    actions = possible_actions(observation, "kettle")
    assert len({str(action) for action in actions}) == len(actions)
    assert not any(action.element_id == 4 for action in actions)  # disabled
    for action in actions:
        matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(action_grammar(observation)))
        assert matcher.consume_tokens(tokenizer.tokenize_str(str(action))), str(action)
        assert matcher.is_accepting(), str(action)
        assert parse_action(str(action), "label-first").action == action
