"""A demonstration as the token stream of an episode: by the functions that make the agent's prompts at run time."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage

from agentkv.chat.messages import to_turns
from agentkv.chat.template import ChatTemplate, Rendered
from agentkv.train.documents import Document
from agentkv.train.errors import TrainError
from agentkv_agents.history import make_history
from agentkv_agents.prompts import system_prompt
from agentkv_agents.teaching.traces import Trace
from agentkv_envs import action_help


class Renderer:
    """Renders demonstrations for one tokenizer.

    Args:
        tokenizer: with the chat template of the model to be trained.
        eos: the token that ends a reply. A grammar ends replies before it; it is learned for use without one.
    """

    def __init__(self, tokenizer: Any, eos: int):
        self._template = ChatTemplate(tokenizer, frozenset({eos}))
        self._eos = eos

    def document(self, trace: Trace) -> Document:
        """The ledger of the session in which an agent does what the trace shows, and the actions to be learned in it.

        Raises:
            TrainError: the chat template cannot continue a conversation, so the model cannot be an append-only agent.
        """
        history = make_history("append", system_prompt(action_help(trace.style), trace.intent))
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        feedback: str | None = None
        for number, step in enumerate(trace.steps):
            turns = to_turns(history.ask(step.observation, feedback, parse_failed=False))
            ids += self._new(turns, ids, number).ids
            reply = self._template.encode(step.action)
            if not step.wrong:
                # What follows a reply is its end: the next prompt begins with it, and the last reply gets it below.
                spans.append((len(ids), len(ids) + len(reply) + 1))
            ids += reply
            history.answer(AIMessage(step.action), step.action)
            feedback = step.error
        return self._checked(Document((*ids, self._eos), tuple(spans), trace.task_id))

    def _new(self, turns: Any, ids: list[int], number: int) -> Rendered:
        """What the session's ledger lacks before a step: see `ChatHost`, which does the same."""
        if not number:
            return self._template.prompt(turns)
        rendered = self._template.delta(turns, len(turns) - 1, ids[-1])
        if rendered is None:
            raise TrainError("the model's chat template cannot continue a conversation; train another model")
        return rendered

    def _checked(self, document: Document) -> Document:
        if any(document.ids[end - 1] != self._eos for _, end in document.spans):
            raise TrainError(
                "the model's chat template does not end replies with the end-of-sequence token; train another model"
            )
        return document
