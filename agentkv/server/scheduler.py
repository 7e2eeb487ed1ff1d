"""The thread that owns the model: calls join and leave its steps, long prompts go in piece by piece."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from agentkv.chat.call import ChatCall, ChatRequest, Failed, Finished
from agentkv.chat.host import ChatHost
from agentkv.engine.reply import TokenEvent
from agentkv.errors import PoolExhausted, ReplyTruncated
from agentkv.server.errors import RETRY_AFTER, ApiError, log_bug, problem
from agentkv.server.metrics import Load, Metrics
from agentkv.server.running import Running, Sent, Ticket
from agentkv.server.saved import restore_all
from agentkv.server.settings import ServerSettings

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine
    from agentkv.tools.constraint import ReplyConstraint

T = TypeVar("T")
logger = logging.getLogger("agentkv.server")


class Scheduler:
    """Answers many calls with one model.

    A round is one decode step of all calls that generate, in one forward pass, and one chunk of one prompt. A call is
    admitted when the KV pool can hold all that the admitted ones may come to; sessions without a call give way.

    Args:
        settings: of the server.
        load: gives the engine; runs on the model's thread.
        failed: called there with what loading raised, or with a bug that ended the thread.

    Attributes:
        host: the sessions; set once the model is loaded. For the model's thread, but for its template.
    """

    host: ChatHost

    def __init__(
        self,
        settings: ServerSettings,
        load: Callable[[], Engine],
        failed: Callable[[BaseException], None] = lambda error: None,
    ):
        self.settings = settings
        self.load_state = Load()
        self.metrics = Metrics(settings.policy, lambda: self.load_state)
        self._load = load
        self._failed = failed
        self._ready = threading.Event()
        self._stopping = False
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._waiting: deque[Ticket] = deque()
        self._next: Running | None = None
        """Has its session, and waits for room in the pool; the calls behind it wait too."""
        self._running: list[Running] = []
        self._prefilled = -1
        self._sessions_changed = True
        self._thread = threading.Thread(target=self._main, name="agentkv-model", daemon=True)

    # --- for other threads ---------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the model is loaded."""
        return self._ready.is_set()

    def start(self) -> None:
        """Begin to load the model."""
        self._thread.start()

    def stop(self, timeout: float | None = 10.0) -> None:
        """Cancel every call and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def submit(self, work: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Run something on the model's thread, between two rounds."""
        future: Future[Any] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(*args))
                except BaseException as error:
                    future.set_exception(error)

        with self._changed:
            if self._stopping:
                raise _stopped()
            self._jobs.append(job)
            self._changed.notify()
        return future

    def enqueue(
        self, request: ChatRequest, constraint: ReplyConstraint | None, send: Callable[[Sent], None]
    ) -> ChatCall:
        """Queue a call. `send` runs on the model's thread; the last item is Finished or Failed.

        Args:
            constraint: by :meth:`ChatHost.constraint`. To compile it can take seconds, so that others do.

        Raises ApiError when the queue is full.
        """
        call = ChatCall(request, send)
        with self._changed:
            if self._stopping:
                raise _stopped()
            if len(self._waiting) >= self.settings.max_queue:
                self.metrics.requests.labels("busy").inc()
                message = f"{len(self._waiting)} requests are waiting already; try again later"
                raise ApiError(message, 429, "queue_full", headers=RETRY_AFTER)
            self._waiting.append(Ticket(call, constraint, send, time.perf_counter()))
            self._changed.notify()
        return call

    # --- the model's thread --------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            engine = self._load()
            self.host = ChatHost(engine, self)
            settings = self.settings
            engine.open_session(settings.policy, settings.budget, **settings.options).close()
        except BaseException as error:
            self._failed(error)
            return
        self.metrics.budget.set(engine.arena.pages * engine.layout.page_bytes)
        if settings.restore:
            restore_all(self.host, settings)
        self._ready.set()
        try:
            while self._wait():
                for job in self._take_jobs():
                    job()
                    self._sessions_changed = True
                self._drop_cancelled()
                self._admit()
                self._round()
                self._tell_load()
        except BaseException as error:  # a bug of ours: better an end than calls that nobody will ever answer
            self._failed(error)
            with self._changed:
                self._stopping = True
        self._end_all()

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when the server stops."""
        with self._changed:
            while not (self._stopping or self._jobs or self._waiting or self._next or self._running):
                self._changed.wait()
            return not self._stopping

    def _take_jobs(self) -> list[Callable[[], None]]:
        with self._changed:
            jobs = list(self._jobs)
            self._jobs.clear()
        return jobs

    # --- admission ---

    def _drop_cancelled(self) -> None:
        """Of the calls that wait."""
        with self._changed:
            gone = [ticket for ticket in self._waiting if ticket.call.cancel.is_set()]
            for ticket in gone:
                self._waiting.remove(ticket)
        if self._next is not None and self._next.call.cancel.is_set():
            self.host.abandon(self._next.answer)
            gone.append(self._next.ticket)
            self._next = None
        for _ in gone:
            self._count_cancelled()

    def _admit(self) -> None:
        while len(self._running) < self.settings.max_running:
            if self._next is None and not self._begin():
                return
            assert self._next is not None
            if self._running and not self._has_room(self._next):
                return
            running, self._next = self._next, None
            self._start(running)

    def _begin(self) -> bool:
        """Take the first waiting call whose session is idle; False if there is none."""
        while (ticket := self._take_waiting()) is not None:
            try:
                answer = self.host.begin(ticket.call, ticket.constraint)
            except PoolExhausted as error:  # it would not fit if it were alone, so that waiting does not help
                self._refuse(ticket, ApiError(str(error), 400, "kv_pool_too_small", "messages"))
                continue
            except BaseException as error:
                self._refuse(ticket, error)
                continue
            self._next = Running(self.host.engine, ticket, answer, self.metrics)
            return True
        return False

    def _take_waiting(self) -> Ticket | None:
        with self._changed:
            ticket = next((ticket for ticket in self._waiting if not self._session_busy(ticket.call)), None)
            if ticket is not None:
                self._waiting.remove(ticket)
            return ticket

    def _session_busy(self, call: ChatCall) -> bool:
        if call.request.session_id is None:
            return False
        session = self.host.sessions.by_id(call.request.settings, call.request.session_id)
        return session is not None and session.busy

    def _has_room(self, candidate: Running) -> bool:
        arena = self.host.engine.arena
        reserved = sum(running.reserved for running in self._running)
        return reserved + candidate.reserved <= (arena.pages - 1) * arena.layout.page_bytes

    def _start(self, running: Running) -> None:
        self._running.append(running)
        self._attempt(running, running.start)

    # --- a round ---

    def _round(self) -> None:
        for running in list(self._running):
            if running.call.cancel.is_set():
                self._attempt(running, running.reply.cancelled)
        # One token waits: of those that generate, and of prompts that are all but computed.
        self._decode([running for running in self._running if len(running.kv.waiting) == 1])
        for running in [running for running in self._running if not running.prefilling]:
            if len(running.kv.waiting) > 1:  # a grammar forced them: a few, and somebody waits for them
                self._compute(running)
        if prefilling := [running for running in self._running if running.prefilling]:
            self._prefilled = (self._prefilled + 1) % len(prefilling)
            self._compute(prefilling[self._prefilled])

    def _decode(self, together: Sequence[Running]) -> None:
        while together:
            started = time.perf_counter()
            compute = partial(self.host.engine.compute_last, [running.kv for running in together])
            try:
                logits = self._with_room(compute)
            except PoolExhausted as full:  # the others can go on without the newest
                self._fail(together[-1], full)
                together = together[:-1]
                continue
            except BaseException as error:
                for running in together:
                    self._fail(running, error)
                return
            for running, own in zip(together, logits, strict=True):
                self._attempt(running, partial(running.take, own, started))
            return

    def _compute(self, running: Running) -> None:
        self._attempt(running, partial(running.compute_chunk, self.host.engine, self.settings.prefill_chunk))

    def _with_room(self, act: Callable[[], T]) -> T:
        """Do what may find the pool full; then close idle sessions, least recently used first, and do it again.

        An engine that spills has moved them already. Raises PoolExhausted when none is left.
        """
        while True:
            try:
                return act()
            except PoolExhausted:
                if self.host.engine.spill_to is not None or not self.host.sessions.close_oldest():
                    raise
                self.metrics.sessions_evicted.inc()

    def _attempt(self, running: Running, act: Callable[[], TokenEvent | None]) -> None:
        """Do something for one call; what it raises ends that call only."""
        try:
            event = self._with_room(act)
            if event is not None:
                running.pass_on(event)
        except BaseException as error:
            self._fail(running, error)
            return
        if event is not None and event.finish_reason is not None:
            self._finish(running, event.finish_reason)

    # --- ends ---

    def _finish(self, running: Running, reason: str) -> None:
        self._running.remove(running)
        running.release()
        try:
            finished = self.host.finish(running.answer)
        except ReplyTruncated as truncated:
            # As OpenAI has it: what there is of the reply, and that it was cut off.
            finished = self.host.report(running.answer)
            finished = replace(finished, metadata=finished.metadata | {"finish_reason": truncated.finish_reason})
        except BaseException as error:
            self.host.abandon(running.answer)
            self._refuse(running.ticket, error)
            return
        if reason == "cancelled":
            self._count_cancelled()
        else:
            self.metrics.requests.labels("ok").inc()
        self._limit_sessions()
        self._send(running.ticket, finished)

    def _fail(self, running: Running, error: BaseException) -> None:
        if running in self._running:
            self._running.remove(running)
        running.release()
        self.host.abandon(running.answer)
        self._refuse(running.ticket, error)

    def _refuse(self, ticket: Ticket, error: BaseException) -> None:
        log_bug(error)
        self.metrics.requests.labels("refused" if problem(error).status < 500 else "error").inc()
        self._sessions_changed = True
        self._send(ticket, Failed(error))

    def _send(self, ticket: Ticket, item: Finished | Failed) -> None:
        try:
            ticket.send(item)
        except RuntimeError:  # the event loop is gone, and with it whoever would read this
            logger.debug("nobody listens any more")

    def _limit_sessions(self) -> None:
        sessions, settings = self.host.sessions, self.settings
        before = len(sessions)
        sessions.limit_anonymous(settings.max_anonymous)
        sessions.limit(settings.max_sessions)
        self.metrics.sessions_evicted.inc(before - len(sessions))
        self._sessions_changed = True

    def _count_cancelled(self) -> None:
        self.metrics.cancelled.inc()
        self.metrics.requests.labels("cancelled").inc()

    def _tell_load(self) -> None:
        engine, sessions = self.host.engine, self.host.sessions
        load = replace(
            self.load_state,
            queued=len(self._waiting) + (self._next is not None),
            running=len(self._running),
            sessions=len(sessions),
            pages_bytes=engine.arena.used_pages * engine.layout.page_bytes,
        )
        if self._sessions_changed:  # to ask every session takes too long for every step
            metadata = sum(session.kv.stats.metadata_bytes for session in sessions)
            load = replace(load, metadata_bytes=metadata, spilled_bytes=engine.spilled_bytes)
            self._sessions_changed = False
        self.load_state = load

    def _end_all(self) -> None:
        for running in list(self._running):
            self._fail(running, _stopped())
        if self._next is not None:
            self.host.abandon(self._next.answer)
            self._send(self._next.ticket, Failed(_stopped()))
        for ticket in self._waiting:
            self._send(ticket, Failed(_stopped()))
        for job in self._take_jobs():
            job()
        for session in list(self.host.sessions):
            self.host.sessions.close(session)


def _stopped() -> ApiError:
    return ApiError("the server is shutting down", 503, "shutting_down", headers=RETRY_AFTER)
