"""A rendered demonstration is, token for token, the ledger of a session in which an agent does the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent_fakes import page
from puppet import lines, puppet

from agentkv.chat_model import ChatAgentKV
from agentkv.train.errors import TrainError
from agentkv_agents import WebAgent
from agentkv_agents.notes import with_note
from agentkv_agents.plans import format_plan, numbered
from agentkv_agents.prompting import PLAIN, Prompting
from agentkv_agents.teaching.render import Renderer
from agentkv_agents.teaching.traces import Trace, TraceNeedle, TraceStep
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


def ledger_of(
    steps: tuple[TraceStep, ...],
    intent: str,
    noted: dict[int, str] | None = None,
    plan: tuple[str, ...] = (),
    prompting: Prompting = PLAIN,
    notes: bool | None = None,
) -> list[int]:
    """What the session of an agent holds that plans, notes, and takes these steps under the grammar of each page.

    Args:
        notes: whether it may note at any step; by default, whether anything is noted.
    """
    notes = noted is not None if notes is None else notes
    replies = [numbered(step.plan_step, step.action) if plan else step.action for step in steps]
    for at, note in (noted or {}).items():
        replies[at] = with_note(note, replies[at])
    engine = puppet(lines(*([format_plan(plan)] if plan else []), *replies))
    chat = ChatAgentKV.from_engine(engine)
    agent = WebAgent(chat, intent, session_id="episode", notes=notes, prompting=prompting)
    feedback = None
    for number, step in enumerate(steps):
        seen: Observation = replace(page(f"p{number}"), text=step.observation)
        decided = agent.act(seen, feedback)
        assert (decided.raw_text, decided.parse_mode) == (replies[number], "strict")
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


PLAN = (TYPE.replace(" [1] [k", " [k"), 'click "?"', "stop [?]")
PLANNED = replace(
    TRACE,
    plan=PLAN,
    opened=("Shop",),
    steps=tuple(replace(step, plan_step=number) for step, number in zip(EPISODE, (1, 2, 2, 2, 3), strict=True)),
)


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("noting", [False, True])
def test_it_is_the_token_stream_of_an_episode_that_began_with_a_plan(noting: bool, explain: bool) -> None:
    tokenizer = puppet(lines()).tokenizer
    prompting = Prompting(plan=True, explain_actions=explain)
    needle = TraceNeedle("code", "Red  kettle", "the code is [7]", used_step=5)
    trace = replace(PLANNED, needle=needle)
    renderer = Renderer(tokenizer, tokenizer.eos_token_id, float(noting), prompting)
    document = renderer.document(trace)
    noted = {3: needle.note} if noting else None
    ledger = ledger_of(PLANNED.steps, TRACE.intent, noted, PLAN, prompting)
    assert list(document.ids) == [*ledger, tokenizer.eos_token_id]
    learned = [tokenizer.decode(document.ids[start:end]) for start, end in document.spans]
    assert learned[:2] == [f"{format_plan(PLAN)}<|im_end|>", f"1 {TYPE}<|im_end|>"]
    assert len(learned) == 4
    steps = list(renderer.steps(trace))
    assert renderer.before == 1
    assert tokenizer.decode(steps[renderer.before].action) == f"1 {TYPE}"


def test_a_trace_without_a_plan_cannot_be_rendered_with_one() -> None:
    tokenizer = puppet(lines()).tokenizer
    with pytest.raises(TrainError, match="the trace of t has no plan, and the model is one that plans"):
        Renderer(tokenizer, tokenizer.eos_token_id, prompting=Prompting(plan=True)).document(TRACE)


def test_a_fact_is_noted_on_the_page_that_shows_it_last() -> None:
    tokenizer = puppet(lines()).tokenizer
    needle = TraceNeedle("code", "Red  kettle", "the code is [7]", used_step=5)
    trace = replace(TRACE, needle=needle)
    assert (trace.seen_step, replace(trace, needle=replace(needle, fact="wrong one")).seen_step) == (4, None)
    noted = Renderer(tokenizer, tokenizer.eos_token_id, notes=1).document(trace)
    assert list(noted.ids) == [*ledger_of(EPISODE, TRACE.intent, {3: needle.note}), tokenizer.eos_token_id]
    # Without a fact to remember there is none, but the agent is told of notes.
    plain = Renderer(tokenizer, tokenizer.eos_token_id, notes=1).document(TRACE)
    assert list(plain.ids) == [*ledger_of(EPISODE, TRACE.intent, {}), tokenizer.eos_token_id]


@pytest.mark.parametrize("noting", [False, True])
def test_a_fact_is_recalled_where_it_is_needed_with_what_it_follows_from(noting: bool) -> None:
    tokenizer = puppet(lines()).tokenizer
    prompting = Prompting(plan=True, recall=True)
    needle = TraceNeedle("relation", "Red  kettle", "red is dearer.", used_step=5, compared="red: 3; blue: 2")
    said = "red: 3; blue: 2; red is dearer."
    renderer = Renderer(tokenizer, tokenizer.eos_token_id, float(noting), prompting)
    document = renderer.document(replace(PLANNED, needle=needle))
    noted = {3: said, 4: said} if noting else {4: said}
    ledger = ledger_of(PLANNED.steps, TRACE.intent, noted, PLAN, prompting, notes=noting)
    assert list(document.ids) == [*ledger, tokenizer.eos_token_id]
    assert with_note(said, f"3 {STOP}") in tokenizer.decode(document.ids)
    nothing = renderer.document(PLANNED)
    ledger = ledger_of(PLANNED.steps, TRACE.intent, {}, PLAN, prompting, notes=noting)
    assert list(nothing.ids) == [*ledger, tokenizer.eos_token_id]


def test_a_share_of_the_demonstrations_takes_notes() -> None:
    tokenizer = puppet(lines()).tokenizer
    without, always, half = (Renderer(tokenizer, tokenizer.eos_token_id, notes) for notes in (0, 1, 0.5))
    noting = 0
    for number in range(60):
        trace = replace(TRACE, task_id=f"t{number}", needle=TraceNeedle("code", "Red  kettle", "it is [7]", 5))
        document = half.document(trace)
        assert document in (without.document(trace), always.document(trace))
        noting += document == always.document(trace)
    assert 15 < noting < 45


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
