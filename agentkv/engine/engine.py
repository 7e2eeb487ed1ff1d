"""The engine: one model, one page pool, many sessions."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentkv.cache.adapter import PagedModel
from agentkv.cache.arena import PageArena
from agentkv.cache.budget import BudgetLike
from agentkv.cache.controller import Prefill
from agentkv.cache.facts import LedgerFacts
from agentkv.cache.formats import KVFormat
from agentkv.cache.lean import takes_int8
from agentkv.cache.rotary import Rotary
from agentkv.cache.step import Step
from agentkv.engine.batch import decode_batch, generate_batch
from agentkv.engine.explain import Explanation
from agentkv.engine.graphs import DecodeGraphs, capture_for
from agentkv.engine.loading import as_device, eos_token_ids
from agentkv.engine.merging import load_merged, weights_fingerprint
from agentkv.engine.outliers import exempt_layers, quantization_errors
from agentkv.engine.persistence import model_fingerprint, restore_session, save_session
from agentkv.engine.pool_size import pool_bytes
from agentkv.engine.positions import find_rotary
from agentkv.engine.reply import Constraint, Reply, TokenEvent
from agentkv.engine.sampling import SamplingParams
from agentkv.engine.session import Roles, Session
from agentkv.engine.spill import SessionPool
from agentkv.engine.text import check_tokens, segment_ends
from agentkv.errors import AgentKVError, Unsupported
from agentkv.models import resolve_model, takes_int8_weights
from agentkv.policies import Policy, build
from agentkv.policies.rules import ModelFacts


class Engine:
    """Runs one model on pages.

    Args:
        model: a causal language model of transformers, in evaluation mode. Its attention implementation is switched.
        tokenizer: its tokenizer.
        name: how to call the model in reports.
        kv_pool: the global budget, reserved once for all sessions: bytes ("2GiB"), tokens of full KV (16384), a share
            of the memory that is free now ("25%"), or None: eight windows of full KV, at most 40% of that memory.
        spill: where the least recently used idle session goes when the pool is full: "cpu" (host memory), a folder, or
            None: nowhere, and PoolExhausted is raised.
        weights: of decode steps: "model", "int8" (faster on a CPU, see :mod:`agentkv.cache.lean`), or "auto": int8 for
            models it was measured on.
        decode_graph: whether decode steps are replayed as CUDA graphs: "auto" (on a CUDA device), "on" (or refused) or
            "off"; see :mod:`agentkv.engine.graphs`.

    Attributes:
        context_window: tokens a session may see.
        arena: the page pool.
        eos_token_ids: tokens that end a reply.
        graphs: computes forward passes, and counts which of them were replays of CUDA graphs.
        no_rebase: why sessions of this model cannot outlive its window; None if they can, under an evicting policy.
    """

    _shared: ClassVar[dict[tuple[object, ...], Engine]] = {}
    _shared_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        name: str,
        kv_pool: str | int | None = None,
        spill: str | Path | None = None,
        weights: str = "auto",
        decode_graph: str = "auto",
    ):
        capture = capture_for(decode_graph, model.device)
        self.model_name = name
        self.tokenizer = tokenizer
        self.context_window: int = model.config.get_text_config().max_position_embeddings
        self.eos_token_ids = eos_token_ids(model, tokenizer)
        self._paged = PagedModel(model, weights)
        self._rotary: tuple[Rotary | None, ...] | None = None
        self.no_rebase: str | None = None
        try:
            self._rotary = find_rotary(self._paged, self.context_window)
        except Unsupported as reason:
            self.no_rebase = str(reason)
        self.layout = replace(self._paged.layout, rebases=self._rotary is not None)
        self.device = self._paged.device
        self.arena = PageArena(
            self.layout, pool_bytes(kv_pool, self.layout, self.context_window, self.device), self.device
        )
        self.graphs = DecodeGraphs(self._paged, self.arena, capture)
        self._pool = SessionPool(self, spill)
        self._forward_lock = threading.Lock()

    @classmethod
    def load(
        cls,
        model: str,
        *,
        dtype: str = "auto",
        device: str = "cpu",
        kv_pool: str | int | None = None,
        spill: str | Path | None = None,
        weights: str = "auto",
        decode_graph: str = "auto",
    ) -> Engine:
        """Load an embedded model by name (pulled if absent), a local folder of a model or an adapter, or a hub id.

        Raises:
            UnknownName, ModelError, Unsupported: see :func:`resolve_model` and :func:`load_merged`.
        """
        loaded, tokenizer = load_merged(resolve_model(model), dtype, as_device(device))
        if weights == "auto" and takes_int8_weights(model) and takes_int8(loaded):
            weights = "int8"
        return cls(loaded, tokenizer, model, kv_pool, spill, weights, decode_graph)

    @classmethod
    def shared(
        cls,
        model: str,
        *,
        dtype: str = "auto",
        device: str = "cpu",
        kv_pool: str | int | None = None,
        spill: str | Path | None = None,
        weights: str = "auto",
        decode_graph: str = "auto",
    ) -> Engine:
        """As :meth:`load`, but one engine per process for the same arguments."""
        key = (model, dtype, device, kv_pool, spill, weights, decode_graph)
        with cls._shared_lock:
            if key not in cls._shared:
                cls._shared[key] = cls.load(
                    model,
                    dtype=dtype,
                    device=device,
                    kv_pool=kv_pool,
                    spill=spill,
                    weights=weights,
                    decode_graph=decode_graph,
                )
            return cls._shared[key]

    def open_session(
        self,
        policy: str = "full",
        budget: BudgetLike = None,
        *,
        prefill: Prefill = "chunked",
        checkpoints: int = 0,
        exempt: Collection[int] | None = None,
        **options: Any,
    ) -> Session:
        """A new, empty session.

        Args:
            policy: name of a registered policy.
            budget: tokens (512), bytes ("24MiB"), share of full KV at the model's window ("25%"), or None.
            prefill: "chunked" keeps inside the budget at every step; "whole" reads several new tokens before it gives
                anything up, as most papers do, and reports the peak as it is.
            checkpoints: how many automatic checkpoints to keep: one is made at the start of each :meth:`generate` call
                with new tokens.
            exempt: layers whose slots are never quantised; None: those of :attr:`quantization_exempt`.
            options: of the policy, and those that every policy has: see :func:`agentkv.policies.build`.

        Raises:
            UnknownName: no such policy.
            BudgetTooSmall: the policy's protected set does not fit.
            AgentKVError: a budget or option that is not understood.
        """
        if prefill not in get_args(Prefill):
            raise AgentKVError(f"unknown prefill {prefill!r}; it is one of {', '.join(get_args(Prefill))}")
        if isinstance(checkpoints, bool) or not isinstance(checkpoints, int) or checkpoints < 0:
            raise AgentKVError(f"checkpoints must be a number of checkpoints to keep, not {checkpoints!r}")
        return self._open(build(policy, **options).bind(self._facts), budget, prefill, checkpoints, exempt)

    def _open(
        self,
        policy: Policy,
        budget: BudgetLike,
        prefill: Prefill,
        checkpoints: int,
        exempt: Collection[int] | None,
    ) -> Session:
        if exempt is None:
            exempt = () if policy.precision is None else self.quantization_exempt[policy.code_format]
        if unknown := set(exempt) - set(range(self.layout.layers)):
            raise AgentKVError(f"exempt: the model has layers 0 to {self.layout.layers - 1}, but no {unknown.pop()!r}")
        scorer = policy.scorer
        if policy.creation is not None and policy.creation.needs_hidden:
            self._paged.read_hidden()
        facts = LedgerFacts(
            self._ends_segment if scorer is not None and scorer.needs_segments else None,
            policy.reads_surprise,
            self.device,
            scorer is not None and scorer.needs_ids,
        )
        session = Session(
            self.arena,
            policy,
            budget,
            self.context_window,
            prefill,
            facts,
            frozenset(exempt),
            rotary=self._rotary,
            checkpoints=checkpoints,
            pool=self._pool,
            no_rebase=self.no_rebase,
        )
        self._pool.add(session)
        return session

    @property
    def _facts(self) -> ModelFacts:
        layout = self.layout
        hidden = self._paged.model.config.get_text_config().hidden_size
        shape = (layout.layers, layout.kv_heads, layout.head_dim, hidden)
        return ModelFacts(*shape, fingerprint=lambda: self.weights_fingerprint, device=self.device)

    @cached_property
    def _ends_segment(self) -> Tensor:
        """[V] bool: tokens that end a line or a sentence."""
        return segment_ends(self.tokenizer, self._paged.model.config.get_text_config().vocab_size).to(self.device)

    @cached_property
    def quantization_errors(self) -> Mapping[KVFormat, tuple[float, ...]]:
        """What quantising costs each layer; see :func:`agentkv.engine.outliers.quantization_errors`."""
        with self._forward_lock:
            return quantization_errors(self._paged, self.context_window)

    @cached_property
    def quantization_exempt(self) -> Mapping[KVFormat, frozenset[int]]:
        """By format, the layers that stay in the model's dtype because outliers would make them inexact."""
        return exempt_layers(self.quantization_errors)

    def fork_session(self, session: Session) -> Session:
        """A second session with the same tokens and cache, without its checkpoints; both go on independently.

        Every page is copied: under an evicting policy the next token may overwrite any of them.

        Raises:
            AgentKVError: the session is in use or closed.
            PoolExhausted: no room for the copy.
        """
        with session.exclusive():
            copy = self._open(
                session.policy, session.budget, session.cache.prefill, session.checkpoints.keep, session.exempt
            )
            copy.adopt(session.cache.state(), session.ledger)
        return copy

    def explain(self, session: Session) -> Explanation:
        """Which text of the session its cache still holds; see :mod:`agentkv.engine.explain`."""
        return session.explain(self.tokenizer)

    def spill(self, session: Session, to: str | Path = "cpu") -> None:
        """Move an idle session's slots out of the page pool; its next use brings them back, and it goes on unchanged.

        Args:
            session: to be moved.
            to: "cpu" (host memory), or a folder for a session file; it goes when the session comes back or ends.

        Raises:
            AgentKVError: the session is in use or closed.
            SessionFileError: the file cannot be written; the session is as it was.
        """
        self._pool.spill(session, to)

    @property
    def decode_weights(self) -> str:
        """What decode steps are computed with: "model" or "int8"."""
        return self._paged.lean.weights if self._paged.lean is not None else "model"

    @property
    def spill_to(self) -> str | Path | None:
        """Where idle sessions go when the pool is full."""
        return self._pool.spill_to

    @property
    def spilled_bytes(self) -> int:
        """Bytes of the slots that are not in the page pool but in host memory or files."""
        return self._pool.spilled_bytes

    def save_session(self, session: Session, path: str | Path, notes: Any = None) -> None:
        """Write a session to one file; see :func:`agentkv.engine.persistence.save_session`."""
        save_session(self, session, Path(path), notes)

    def restore_session(self, path: str | Path) -> Session:
        """Open a session from a file; see :func:`agentkv.engine.persistence.restore_session`."""
        return restore_session(self, Path(path))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The model's weights by name."""
        yield from self._paged.model.state_dict().items()

    @cached_property
    def weights_fingerprint(self) -> str:
        """Identifies the weights, in whatever dtype; see :func:`agentkv.engine.merging.weights_fingerprint`."""
        return weights_fingerprint(self._paged.model)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies model, dtype and chat template; see :func:`agentkv.engine.persistence.model_fingerprint`."""
        return model_fingerprint(self)

    def generate(
        self,
        session: Session,
        new_ids: Sequence[int],
        params: SamplingParams | None = None,
        constraint: Constraint | None = None,
        cancel: threading.Event | None = None,
        roles: Roles = (),
    ) -> Iterator[TokenEvent]:
        """Append ``new_ids`` to the session and generate a reply, which is appended too.

        Only tokens that are not in the cache yet are computed. Closing the iterator ends the reply; a cancelled one
        leaves the session usable. ``roles`` says whose words the new tokens are, as (role, number of tokens) in order:
        policies can protect them.

        Raises:
            ContextOverflow: the tokens do not fit the window, or the budget of a policy that drops nothing. The
                session is as it was.
            PoolExhausted: no pages left, from the iterator. The tokens are in the ledger by then: free pages and go on
                with ``generate(session, [])``.
            AgentKVError: nothing to compute, a token the model does not have, or the session is in use or closed.
        """
        if not new_ids and not session.waiting:
            raise AgentKVError("there are no tokens to compute: pass at least one new token")
        self.check_tokens(new_ids)
        session.check_room(len(new_ids), roles)
        reply = Reply(self, session, params or SamplingParams(), constraint, cancel)
        return reply.events(list(new_ids), roles)

    def check_tokens(self, ids: Sequence[int]) -> None:
        """Raises AgentKVError for ids that the model has no embedding for."""
        check_tokens(ids, self._paged.model.config.get_text_config().vocab_size)

    def compute_waiting(self, session: Session, cancel: threading.Event | None = None) -> Tensor | None:
        """Put the session's waiting tokens into its cache, chunk by chunk.

        Returns the logits [V] after the last one, or None if cancelled between chunks; what was computed stays.

        Raises:
            PoolExhausted: no pages left; the session is whole, and the call can be repeated when there are.
        """
        logits = None
        session.recall()
        while session.waiting:
            if cancel is not None and cancel.is_set():
                return None
            logits = self.compute_chunk(session)
        return logits

    def compute_chunk(self, session: Session, at_most: int | None = None) -> Tensor:
        """Put a chunk of the session's waiting tokens into its cache, of ``at_most`` so many: logits [V] after it.

        The caller holds the session. Raises as :meth:`compute_waiting`, and AgentKVError if it was closed.
        """
        if session.closed:
            raise AgentKVError("the session was closed; open a new one")
        waiting = session.waiting
        chunk = session.cache.chunk(len(waiting))
        return self._run([session], [waiting[: chunk if at_most is None else min(chunk, at_most)]])[0]

    def decode_batch(self, sessions: Sequence[Session], last: Sequence[int]) -> Tensor:
        """Append one token to each session's ledger, compute them in one forward pass, and return what follows.

        Sessions may differ in length, policy and budget.

        Args:
            sessions: different ones of this engine, idle, with nothing waiting.
            last: the token of each.

        Returns:
            logits [B, V] in the model's dtype.

        Raises:
            ContextOverflow: a session has no room for a token. All are as they were.
            PoolExhausted: no pages left. All are as they were, but for what some have evicted to make room.
            AgentKVError: a session is in use, closed, listed twice, of another engine, or has tokens waiting; or the
                model has no such token.
        """
        return decode_batch(self, sessions, last)

    def generate_batch(
        self, sessions: Sequence[Session], prompts: Sequence[Sequence[int]], params: SamplingParams | None = None
    ) -> list[list[int]]:
        """Append a prompt to each session and generate a reply to each, as :meth:`generate` does; returns their tokens.

        Prompts are computed one after another, replies together; a session whose reply ends leaves the batch.

        Raises:
            ContextOverflow, AgentKVError: as :meth:`generate`; the sessions are as they were.
            PoolExhausted: no pages left. What was generated is in the ledgers: free pages and go on with empty prompts.
        """
        return generate_batch(self, sessions, prompts, params)

    def compute_last(self, sessions: Sequence[Session]) -> Tensor:
        """Put the one waiting token of each session into its cache, in one forward pass: logits [B, V].

        Raises PoolExhausted: no pages left; the sessions are whole, and the call can be repeated when there are.
        """
        return self._run(sessions, [session.waiting for session in sessions])

    def _run(self, sessions: Sequence[Session], tokens: Sequence[list[int]]) -> Tensor:
        """One forward pass over as many waiting tokens of each session: logits [B, V] after the last ones."""
        with self._forward_lock:
            steps = self._begin(sessions, tokens)
            before = [session.cache.last_logits for session in sessions]
            try:
                logits = self.graphs.forward(torch.tensor(tokens, device=self.device), steps, before)
            except BaseException:
                # Slots were taken whose keys were never written; nothing can be trusted any more.
                for session in sessions:
                    session.close()
                raise
            for session, step, own in zip(sessions, steps, logits, strict=True):
                session.cache.commit(step)
                if session.policy.reads_surprise:
                    session.cache.last_logits = own.clone()  # not a view that keeps a whole chunk's logits alive
                session.timings.forward_passes += 1
        return logits

    def _begin(self, sessions: Sequence[Session], tokens: Sequence[list[int]]) -> list[Step]:
        """Make room in all sessions, or in none."""
        steps: list[Step] = []
        try:
            for session, new in zip(sessions, tokens, strict=True):
                steps.append(self._pool.with_room(session, partial(session.cache.begin, new)))
        except BaseException:
            for session, step in zip(sessions, steps, strict=False):
                session.cache.abandon(step)
            raise
        return steps
