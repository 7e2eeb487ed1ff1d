"""A byte-level tokenizer and an engine that says what a test wrote for it, token by token."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from agentkv.cache.formats import KVLayout
from agentkv.engine.engine import TokenEvent
from agentkv.engine.sampling import SamplingParams
from agentkv.engine.session import SessionStats, Timings
from agentkv.errors import ContextOverflow, UnknownName

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EOS = "<|im_end|>"


def byte_tokenizer(chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """One token per byte, beside the two ChatML markers (ids 256 and 257)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken(EOS, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, chat_template=chat_template)


class ScriptedSession:
    """Keeps everything; a page is one slot of the only head."""

    def __init__(self, arena: ScriptedArena, window: int):
        self._arena = arena
        self.window = window
        self.ledger: list[int] = []
        self.timings = Timings()
        self.logical_length = 0
        self.closed = False

    @property
    def stats(self) -> SessionStats:
        held = self.logical_length * self._arena.layout.page_bytes
        limit = self.window * self._arena.layout.page_bytes
        return SessionStats(held, held, limit, 0, self.logical_length, self.logical_length, 0, 0)

    def check_room(self, new_tokens: int, roles: Any = ()) -> None:
        needed = len(self.ledger) + new_tokens
        if needed > self.window:
            raise ContextOverflow(needed, self.window)

    @property
    def token_limit(self) -> int:
        return self.window

    def rewind(self, token_index: int) -> None:
        self.ledger = self.ledger[:token_index]
        self._arena.free_pages += max(0, self.logical_length - token_index)
        self.logical_length = min(self.logical_length, token_index)

    def compute(self) -> None:
        self._arena.free_pages -= len(self.ledger) - self.logical_length
        assert self._arena.free_pages >= 0
        self.logical_length = len(self.ledger)

    def close(self) -> None:
        self._arena.free_pages += self.logical_length
        self.closed = True


class ScriptedArena:
    def __init__(self, layout: KVLayout, pages: int):
        self.layout = layout
        self.free_pages = pages


class ScriptedEngine:
    """Generates the texts that `script` returns for each prompt, one byte per step, then the end of sequence."""

    def __init__(
        self,
        script: Callable[[str], str] = lambda prompt: "ok",
        *,
        pages: int = 100_000,
        window: int = 4096,
        step_s: float = 0.0,
        chat_template: str | None = CHATML,
        ends_with_eos: bool = True,
    ):
        self.model_name = "scripted"
        self.tokenizer = byte_tokenizer(chat_template)
        self.eos_token_ids = frozenset({self.tokenizer.eos_token_id})
        self.context_window = window
        self.spill_to = None
        self.layout = KVLayout(layers=1, kv_heads=1, head_dim=8, dtype=torch.float32, page_slots=1)
        self.arena = ScriptedArena(self.layout, pages)
        self.sessions: list[ScriptedSession] = []
        self.prompts: list[str] = []
        self.params: list[SamplingParams] = []
        self.roles: list[list[tuple[str, int]]] = []
        self.steps = 0
        self._script = script
        self._step_s = step_s
        self._ends_with_eos = ends_with_eos

    def open_session(self, policy: str = "full", budget: Any = None, **options: Any) -> ScriptedSession:
        if policy == "nope":
            raise UnknownName("unknown policy 'nope'; there are: full")
        self.sessions.append(ScriptedSession(self.arena, self.context_window))
        return self.sessions[-1]

    def fork_session(self, session: ScriptedSession) -> ScriptedSession:
        copy = self.open_session()
        copy.ledger = list(session.ledger[: session.logical_length])
        copy.compute()
        copy.ledger = list(session.ledger)
        return copy

    def generate(
        self,
        session: ScriptedSession,
        new_ids: Sequence[int],
        params: SamplingParams,
        constraint: Any,
        cancel: Any,
        roles: Sequence[tuple[str, int]] = (),
    ) -> Iterator[TokenEvent]:
        self.roles.append(list(roles))
        needed = len(session.ledger) + len(new_ids)
        if needed > self.context_window:
            raise ContextOverflow(needed, self.context_window)
        return self._reply(session, new_ids, params, cancel)

    def _reply(
        self, session: ScriptedSession, new_ids: Sequence[int], params: SamplingParams, cancel: Any
    ) -> Iterator[TokenEvent]:
        self.prompts.append(self.tokenizer.decode(new_ids))
        self.params.append(params)
        session.ledger.extend(new_ids)
        session.compute()
        reply = self.tokenizer(self._script(self.tokenizer.decode(session.ledger)))["input_ids"]
        for count, token in enumerate(reply):
            if cancel.is_set():
                yield TokenEvent(finish_reason="cancelled")
                return
            if count == params.max_tokens:
                yield TokenEvent(finish_reason="length")
                return
            time.sleep(self._step_s)
            self.steps += 1
            session.ledger.append(token)
            session.timings.generated_tokens = count + 1
            yield TokenEvent((token,), self.tokenizer.decode([token]))
        session.ledger.extend(self.eos_token_ids if self._ends_with_eos else ())
        yield TokenEvent(tuple(self.eos_token_ids), finish_reason="stop")
