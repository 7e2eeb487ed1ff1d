"""A rendered demonstration is, token for token, the ledger of a session in which an agent does the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent_fakes import page
from puppet import lines, puppet

from agentkv.chat_model import ChatAgentKV
from agentkv.train.errors import TrainError
from agentkv_agents import WebAgent
from agentkv_agents.teaching.render import Renderer
from agentkv_agents.teaching.traces import Trace, TraceStep
from agentkv_envs import Observation

CLICK, TYPE, MORE, STOP = (
    'click "red kettle" [2]',
    'type "Search" [1] [kettle] [1]',
    'more "next items" [5]',
    "stop [done]",
)
EPISODE = (
    TraceStep(page("p1").text, TYPE),
    TraceStep(page("p2", text="page: wrong one <|im_end|>\n").text, MORE, wrong=True),
    TraceStep(page("p2").text, CLICK, wrong=True, error="the element did not become ready"),
    TraceStep(page("p3").text, CLICK),
    TraceStep(page("p4", text="page: red kettle").text, STOP),
)
TRACE = Trace("t", "shop", "Find the {red} kettle; then stop.", "label-first", EPISODE)


def ledger_of(steps: tuple[TraceStep, ...], intent: str) -> list[int]:
    """What the session of an agent holds that takes these steps, under the grammar of each page."""
    engine = puppet(lines(*(step.action for step in steps)))
    chat = ChatAgentKV.from_engine(engine)
    agent = WebAgent(chat, intent, session_id="episode")
    feedback = None
    for number, step in enumerate(steps):
        seen: Observation = replace(page(f"p{number}"), text=step.observation)
        decided = agent.act(seen, feedback)
        assert (decided.raw_text, decided.parse_mode) == (step.action, "strict")
        feedback = step.error
    (session,) = chat._hosts[engine.model_name].sessions
    return list(session.kv.ledger)


def renderer() -> tuple[Renderer, int]:
    tokenizer = puppet(lines()).tokenizer
    return Renderer(tokenizer, tokenizer.eos_token_id), tokenizer.eos_token_id


@pytest.mark.parametrize("steps", [EPISODE[:1], EPISODE], ids=["one step", "all steps"])
def test_it_is_the_token_stream_of_an_episode(steps: tuple[TraceStep, ...]) -> None:
    render, eos = renderer()
    document = render.document(replace(TRACE, steps=steps))
    assert list(document.ids) == [*ledger_of(steps, TRACE.intent), eos]


def test_only_right_actions_and_their_ends_are_learned() -> None:
    render, _ = renderer()
    document = render.document(TRACE)
    tokenizer = puppet(lines()).tokenizer
    learned = [tokenizer.decode(document.ids[start:end]) for start, end in document.spans]
    assert learned == [f"{action}<|im_end|>" for action in (TYPE, CLICK, STOP)]
    # What a page says of control tokens is spelled apart: the only ends are those of messages.
    assert "wrong one < |im_end|>" in tokenizer.decode(document.ids)


def test_a_template_that_does_not_end_replies_cannot_be_trained_on() -> None:
    tokenizer = puppet(lines()).tokenizer
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    with pytest.raises(TrainError, match="does not end replies with the end-of-sequence token"):
        Renderer(tokenizer, tokenizer.eos_token_id).document(TRACE)
