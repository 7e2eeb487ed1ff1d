"""A demonstration as the token stream of an episode: by the functions that make the agent's prompts at run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from langchain_core.messages import AIMessage

from agentkv.chat.messages import to_turns
from agentkv.chat.template import ChatTemplate, Rendered
from agentkv.train.documents import Document
from agentkv.train.errors import TrainError
from agentkv_agents import plans
from agentkv_agents.history import make_history
from agentkv_agents.notes import with_note
from agentkv_agents.prompting import PLAIN, Prompting
from agentkv_agents.prompts import system_prompt
from agentkv_agents.teaching.traces import Trace
from agentkv_envs import action_help


@dataclass(frozen=True)
class RenderedStep:
    """What one step adds to the ledger; the first one may be a plan.

    Attributes:
        prompt: what the session lacks before the reply; it begins with the end of the reply before.
        action: tokens of the reply (a plan; or a note, a number and the action), without the token that ends it.
        wrong: whether the action is a slip.
    """

    prompt: Rendered
    action: tuple[int, ...]
    wrong: bool


class Renderer:
    """Renders demonstrations for one tokenizer.

    Args:
        tokenizer: with the chat template of the model to be trained.
        eos: the token that ends a reply. A grammar ends replies before it; it is learned for use without one.
        notes: share of the demonstrations, 0 to 1, that take notes: the reply to the page that last shows a fact to
            remember begins with a note of it. Which ones they are depends on their names alone.
        prompting: how the agent asks its model.
    """

    def __init__(self, tokenizer: Any, eos: int, notes: float = 0.0, prompting: Prompting = PLAIN):
        self._template = ChatTemplate(tokenizer, frozenset({eos}))
        self._eos = eos
        self._notes = notes
        self._prompting = prompting

    @property
    def before(self) -> int:
        """How many rendered steps there are before that of the first page."""
        return int(self._prompting.plan)

    def document(self, trace: Trace) -> Document:
        """The ledger of the session in which an agent does what the trace shows, and the actions to be learned in it.

        Raises:
            TrainError: the chat template cannot continue a conversation, so the model cannot be an append-only agent.
                Or there is no plan in a trace, and one should come first.
        """
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for step in self.steps(trace):
            ids += step.prompt.ids
            if not step.wrong:
                # What follows a reply is its end: the next prompt begins with it, and the last reply gets it below.
                spans.append((len(ids), len(ids) + len(step.action) + 1))
            ids += step.action
        return self._checked(Document((*ids, self._eos), tuple(spans), trace.task_id))

    def steps(self, trace: Trace) -> Iterator[RenderedStep]:
        """The same step by step. Raises as :meth:`document`."""
        notes = Random(f"notes/{trace.task_id}").random() < self._notes
        actions = action_help(trace.style) if self._prompting.explain_actions else ""
        history = make_history("append", system_prompt(actions, trace.intent, notes, self._prompting.plan))
        last: int | None = None
        for asked, feedback, reply, wrong in self._turns(trace, self._notes_of(trace, notes)):
            turns = to_turns(history.ask(asked, feedback, parse_failed=False))
            prompt, ids = self._new(turns, last), tuple(self._template.encode(reply))
            yield RenderedStep(prompt, ids, wrong)
            history.answer(AIMessage(reply), None)
            last = ids[-1]

    def _notes_of(self, trace: Trace, taken: bool) -> dict[int | None, str]:
        """What is noted at which step: where the fact is seen, if notes are taken, and where it is recalled."""
        if trace.needle is None:
            return {}
        seen = {trace.seen_step: trace.needle.sentence} if taken else {}
        return seen | ({trace.needle.used_step: trace.needle.sentence} if self._prompting.recall else {})

    def _turns(self, trace: Trace, notes: dict[int | None, str]) -> Iterator[tuple[str, str | None, str, bool]]:
        """What is asked, what went wrong before, the reply, and whether it is a slip."""
        planned = self._prompting.plan
        if planned:
            if not trace.plan:
                raise TrainError(
                    f"the trace of {trace.task_id} has no plan, and the model is one that plans: record a new file, "
                    "with python -m agentkv_envs.tasks.training FILE, or train a model with --no-plan"
                )
            yield plans.request(trace.opened), None, plans.format_plan(trace.plan), False
        feedback = None
        for number, step in enumerate(trace.steps, 1):
            reply = plans.numbered(step.plan_step, step.action) if planned else step.action
            if note := notes.get(number):
                reply = with_note(note, reply)
            yield step.observation, feedback, reply, step.wrong
            feedback = step.error

    def _new(self, turns: Any, last: int | None) -> Rendered:
        """What the session's ledger lacks before a step: see `ChatHost`, which does the same."""
        if last is None:
            return self._template.prompt(turns)
        rendered = self._template.delta(turns, len(turns) - 1, last)
        if rendered is None:
            raise TrainError("the model's chat template cannot continue a conversation; train another model")
        return rendered

    def _checked(self, document: Document) -> Document:
        if any(document.ids[end - 1] != self._eos for _, end in document.spans):
            raise TrainError(
                "the model's chat template does not end replies with the end-of-sequence token; train another model"
            )
        return document
