"""Notes before actions: written, read, allowed by the grammar, and kept in the conversation."""

from __future__ import annotations

import pytest
from agent_fakes import ScriptedChatModel, page
from hypothesis import given
from hypothesis import strategies as st
from puppet import lines, puppet

from agentkv.chat_model import ChatAgentKV
from agentkv_agents import WebAgent
from agentkv_agents.notes import HELP, allow_note, split_note, with_note
from agentkv_envs import action_grammar

CLICK = 'click "red kettle" [2]'
NOTED = f"note [the code is K7Q]\n{CLICK}"


@given(st.text(min_size=1), st.sampled_from([CLICK, "stop []", "go_back"]))
def test_what_is_written_is_read(note: str, action: str) -> None:
    read, rest = split_note(with_note(note, action))
    assert rest == action
    assert read is not None
    assert read == " ".join(note.translate(str.maketrans("[]", "()")).split())


@pytest.mark.parametrize("reply", [CLICK, "", "note of it\nstop []", "note [half\nstop []", "stop [note [x]]"])
def test_a_reply_without_a_note_is_left_alone(reply: str) -> None:
    assert split_note(reply) == (None, reply)


@pytest.mark.parametrize(("said", "action"), [(NOTED, CLICK), (CLICK, CLICK)])
def test_an_agent_may_note_and_acts_all_the_same(said: str, action: str) -> None:
    engine = puppet(lines(said, "stop []"))
    chat = ChatAgentKV.from_engine(engine)
    agent = WebAgent(chat, "Find the code.", session_id="s", notes=True)
    step = agent.act(page("p1"))
    assert (step.raw_text, str(step.action), step.parse_mode) == (said, action, "strict")
    agent.act(page("p2"))
    (session,) = chat._hosts[engine.model_name].sessions
    told = engine.tokenizer.decode(session.kv.ledger)
    assert HELP in told
    assert told.count(said) == 1


def test_without_notes_the_grammar_has_no_place_for_one() -> None:
    model = ScriptedChatModel(replies=[CLICK])
    without, allowed = (WebAgent(model, "Find the code.", notes=notes) for notes in (False, True))
    plain = action_grammar(page("p1"))
    assert without._grammar(page("p1")) == plain
    assert allowed._grammar(page("p1")) == allow_note(plain)


def test_only_grammars_of_actions_are_extended() -> None:
    assert allow_note(action_grammar(page("p1"))).startswith("start: note? action\n")
    with pytest.raises(ValueError, match="no grammar of actions"):
        allow_note("root ::= x")
