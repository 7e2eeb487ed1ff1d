"""The model's thread: who is answered when, with whose memory, and when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from server_fakes import tiny_engine

from agentkv.chat.call import ChatCall, ChatRequest, Failed, Finished
from agentkv.chat.turns import Turn
from agentkv.engine import Engine, SamplingParams
from agentkv.errors import AgentKVError, ContextOverflow
from agentkv.server.errors import ApiError
from agentkv.server.running import Sent
from agentkv.server.scheduler import Scheduler
from agentkv.server.settings import ServerSettings
from agentkv.tools import ReplyForm, TextDelta


@dataclass
class Client:
    """Keeps what the thread sends it; `on_text` runs on that thread, after each piece of text."""

    name: str
    log: list[str]
    on_text: Callable[[int], None] = lambda count: None
    items: list[Sent] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    call: ChatCall | None = None

    def send(self, item: Sent) -> None:
        self.items.append(item)
        if isinstance(item, TextDelta):
            self.log.append(self.name)
            self.on_text(len([item for item in self.items if isinstance(item, TextDelta)]))
        if isinstance(item, Finished | Failed):
            self.ended.set()

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, TextDelta))

    @property
    def facts(self) -> dict[str, Any]:
        assert self.ended.wait(60)
        last = self.items[-1]
        assert isinstance(last, Finished), last
        return last.metadata

    @property
    def error(self) -> BaseException:
        assert self.ended.wait(60)
        last = self.items[-1]
        assert isinstance(last, Failed)
        return last.error


class Desk:
    """Asks a scheduler; `log` has the name of a client for each piece of text it got."""

    def __init__(self, scheduler: Scheduler):
        self.scheduler = scheduler
        self.log: list[str] = []

    def request(self, text: str, tokens: int, session: str | None, turns: tuple[Turn, ...]) -> ChatRequest:
        params = SamplingParams(max_tokens=tokens, min_tokens=tokens)
        asked = (*turns, Turn("user", text))
        return ChatRequest(asked, self.scheduler.settings.kv, params, session, ReplyForm(), 16)

    def ask(
        self, name: str, text: str, tokens: int, session: str | None = None, turns: tuple[Turn, ...] = (), **how: Any
    ) -> Client:
        client = Client(name, self.log, **how)
        client.call = self.scheduler.enqueue(self.request(text, tokens, session, turns), None, client.send)
        return client

    def value(self, name: str) -> float:
        value = self.scheduler.metrics.registry.get_sample_value(name)
        assert value is not None, name
        return value


@contextmanager
def desk(tmp_path: Path, engine: Engine | None = None, **settings: Any) -> Iterator[Desk]:
    scheduler = Scheduler(ServerSettings(sessions_folder=tmp_path, **settings), lambda: engine or tiny_engine())
    scheduler.start()
    assert scheduler._ready.wait(60)
    try:
        yield Desk(scheduler)
    finally:
        scheduler.stop()
    assert not scheduler._thread.is_alive()


@contextmanager
def paused(scheduler: Scheduler) -> Iterator[None]:
    """The model's thread stands still, so that what is queued meanwhile begins together."""
    stands, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait(60)

    scheduler.submit(stand)
    assert stands.wait(60)
    try:
        yield
    finally:
        go_on.set()


def test_a_long_prompt_stalls_nobody(tmp_path: Path) -> None:
    """Those who generate get a token between its chunks, and a short prompt does not wait for its end."""
    with desk(tmp_path, prefill_chunk=64) as at:
        others: list[Client] = []
        generated: list[int] = []

        def note(count: int) -> None:
            if count == 1:
                generated.append(at.scheduler._running[0].kv.timings.generated_tokens)

        def come(count: int) -> None:
            if count == 5:
                others.append(at.ask("long", "x" * 1500, 3, on_text=note))
                others.append(at.ask("short", "hello", 3, on_text=note))
                note(1)

        generating = at.ask("generating", "tell me", 120, on_text=come)
        assert generating.facts["generated_tokens"] == 120
        assert others[0].facts["new_tokens"] > 1500
        assert at.log.index("short") < at.log.index("long")
        came, short, long = generated
        assert short - came <= 3
        assert 1500 // 64 <= long - came < 60, "a token beside each chunk, and more to come"


def test_calls_that_join_and_leave_get_what_they_get_alone(tmp_path: Path) -> None:
    lengths = {"a": (10, 60), "b": (300, 20), "c": (150, 40), "d": (5, 80), "e": (700, 10), "f": (40, 30)}
    prompts = {name: f"{name} " * (size // 2) for name, (size, _) in lengths.items()}
    with desk(tmp_path, prefill_chunk=64) as at:
        alone = {}
        for name, (_, tokens) in lengths.items():
            client = at.ask(name, prompts[name], tokens)
            assert client.facts["generated_tokens"] == tokens
            alone[name] = client.text
    with desk(tmp_path, prefill_chunk=64, max_running=4) as at:
        with paused(at.scheduler):
            together = [at.ask(name, prompts[name], tokens) for name, (_, tokens) in lengths.items()]
        for client in together:
            assert client.facts["generated_tokens"] == lengths[client.name][1]
            assert client.text == alone[client.name]
        assert len(set(at.log[:40])) > 1, "none was answered beside another"


@pytest.mark.parametrize("count", [1, 7])
def test_a_cancelled_call_ends_within_a_token(tmp_path: Path, count: int) -> None:
    with desk(tmp_path) as at:
        generated = []

        def leave(texts: int) -> None:
            if texts == count:
                client.call.cancel.set()
                generated.append(at.scheduler._running[0].kv.timings.generated_tokens)

        client = Client("gone", at.log, leave)
        with paused(at.scheduler):
            client.call = at.scheduler.enqueue(at.request("tell me", 500, "s", ()), None, client.send)
        assert client.facts["finish_reason"] == "cancelled"
        assert [client.facts["generated_tokens"]] == generated
        assert at.value("agentkv_cancelled_total") == 1
        # The session has what was said, and goes on from there.
        said = (Turn("user", "tell me"), Turn("assistant", client.text))
        assert at.ask("again", "go on", 2, "s", said).facts["session"] == "continued"


def test_a_prompt_is_cancelled_between_its_chunks(tmp_path: Path) -> None:
    with desk(tmp_path, prefill_chunk=16) as at:
        gone = Client("gone", at.log)
        gone.send = lambda item: (Client.send(gone, item), gone.call and gone.call.cancel.set())  # type: ignore
        with paused(at.scheduler):
            gone.call = at.scheduler.enqueue(at.request("x" * 2000, 5, "s", ()), None, gone.send)
        assert gone.facts["logical_length"] <= 16
        assert gone.text == ""


def test_a_call_that_waits_is_cancelled_before_it_costs_anything(tmp_path: Path) -> None:
    with desk(tmp_path, max_running=1) as at:
        first = at.ask("first", "tell me", 50)
        waits = at.ask("waits", "me too", 50)
        waits.call.cancel.set()
        last = at.ask("last", "and me", 2)
        assert last.facts["generated_tokens"] == 2
        assert first.ended.is_set()
        assert waits.items == []
        assert at.value("agentkv_cancelled_total") == 1


def test_a_full_queue_says_come_back_later(tmp_path: Path) -> None:
    with desk(tmp_path, max_running=1, max_queue=2) as at, paused(at.scheduler):
        for name in "ab":
            at.ask(name, "tell me", 2)
        with pytest.raises(ApiError, match="2 requests are waiting already") as full:
            at.ask("c", "tell me", 2)
        assert (full.value.status, full.value.headers["Retry-After"]) == (429, "1")


def test_calls_of_one_session_are_answered_one_after_the_other(tmp_path: Path) -> None:
    with desk(tmp_path) as at:
        with paused(at.scheduler):
            first = at.ask("first", "one", 20, "s")
            second = at.ask("second", "two", 20, "s")
            other = at.ask("other", "three", 20)
        assert first.facts["session"] == "new"
        assert second.facts["generated_tokens"] == 20
        assert other.facts["generated_tokens"] == 20
        assert at.log.index("second") > len(at.log) - at.log[::-1].index("first") - 1
        assert at.log.index("other") < at.log.index("second")


def test_a_conversation_asked_twice_at_once_is_not_mixed_up(tmp_path: Path) -> None:
    """A session that answers is nobody else's, though its messages are the longest prefix."""
    with desk(tmp_path) as at:
        start = at.ask("start", "one", 10)
        said = (Turn("user", "one"), Turn("assistant", start.facts and start.text))
        with paused(at.scheduler):
            twins = [at.ask(name, "go on", 15, turns=said) for name in ("twin", "other twin")]
        assert {client.facts["session"] for client in twins} == {"continued", "new"}
        assert twins[0].text == twins[1].text
        assert len({client.facts["session_id"] for client in twins}) == 2


def test_calls_wait_for_room_in_the_pool(tmp_path: Path) -> None:
    """Room for two prompts with their replies, not for three."""
    engine = tiny_engine(kv_pool="700KiB")
    with desk(tmp_path, engine, prefill_chunk=64) as at:
        most = []

        def look(count: int) -> None:
            most.append(len(at.scheduler._running))

        with paused(at.scheduler):
            clients = [at.ask(str(n), str(n) * 900, 30, on_text=look) for n in range(4)]
        for client in clients:
            assert client.facts["generated_tokens"] == 30
        assert max(most) == 2


@pytest.mark.parametrize("spill", ["cpu", None], ids=["spilled", "closed"])
def test_idle_sessions_give_way(tmp_path: Path, spill: str | None) -> None:
    engine = tiny_engine(kv_pool="700KiB", spill=spill)
    with desk(tmp_path, engine, prefill_chunk=64) as at:
        for name in "abc":
            assert at.ask(name, name * 900, 30, name).facts["session"] == "new"
        assert engine.arena.used_pages * engine.layout.page_bytes <= 700 * 1024
        again = at.ask("again", "a" * 900, 30, "a")
        assert again.facts["session"] in (("rewound", "continued") if spill else ("new",))
        assert bool(again.facts["reused_tokens"]) == (spill is not None)


def test_a_prompt_that_never_fits_the_pool_is_refused_at_once(tmp_path: Path) -> None:
    with desk(tmp_path, tiny_engine(kv_pool="200KiB")) as at:
        error = at.ask("big", "x" * 2000, 5).error
        assert isinstance(error, ApiError)
        assert (error.status, error.code) == (400, "kv_pool_too_small")
        assert at.ask("small", "x", 5).facts["generated_tokens"] == 5


def test_a_refused_call_leaves_its_session_as_it_was(tmp_path: Path) -> None:
    with desk(tmp_path) as at:
        first = at.ask("first", "one", 8, "s")
        said = (Turn("user", "one"), Turn("assistant", first.facts and first.text))
        assert isinstance(at.ask("long", "x" * 9000, 8, "s", said).error, ContextOverflow)
        assert at.ask("next", "two", 8, "s", said).facts["session"] == "continued"


def test_a_failing_pass_ends_its_calls_and_no_others(tmp_path: Path) -> None:
    engine = tiny_engine()
    with desk(tmp_path, engine) as at:
        honest = engine.compute_last

        def fails(sessions: Any) -> Any:
            raise ValueError("a bug")

        with paused(at.scheduler):
            engine.compute_last = fails  # type: ignore[method-assign]
            broken = [at.ask(name, "tell me", 5) for name in ("one", "two")]
        for client in broken:
            assert isinstance(client.error, ValueError)
        engine.compute_last = honest  # type: ignore[method-assign]
        assert at.ask("after", "tell me", 5).facts["generated_tokens"] == 5
        assert at.scheduler.metrics.registry.get_sample_value("agentkv_requests_total", {"outcome": "error"}) == 2


def test_stopping_answers_everybody_and_gives_every_page_back(tmp_path: Path) -> None:
    engine = tiny_engine()
    with desk(tmp_path, engine, max_running=1) as at:
        at.ask("before", "tell me", 5).facts["generated_tokens"]
        started = threading.Event()
        clients = [at.ask("runs", "tell me", 1000, on_text=lambda count: started.set())]
        clients.append(at.ask("waits", "me too", 5))
        assert started.wait(60)
    for client in clients:
        assert isinstance(client.error, AgentKVError)
    assert engine.arena.used_pages == 0
    with pytest.raises(ApiError, match="shutting down"):
        at.ask("late", "hello", 1)


def test_live_sessions_are_limited(tmp_path: Path) -> None:
    with desk(tmp_path, max_sessions=3, max_anonymous=1) as at:
        for name in ("a", "b", None, None, "c", None):
            assert at.ask("x", f"hello {name}", 2, name).facts["generated_tokens"] == 2
        assert [session.session_id for session in at.scheduler.host.sessions if not session.anonymous] == ["b", "c"]
        assert len(at.scheduler.host.sessions) == 3
        assert at.value("agentkv_sessions_evicted_total") == 3


def test_a_bug_of_the_thread_leaves_nobody_waiting(tmp_path: Path) -> None:
    """A server that hangs is worse than one that is gone."""
    failures: list[BaseException] = []
    engine = tiny_engine()
    scheduler = Scheduler(ServerSettings(sessions_folder=tmp_path), lambda: engine, failures.append)
    scheduler.start()
    assert scheduler._ready.wait(60)
    at = Desk(scheduler)
    at.ask("before", "tell me", 5, "s").facts["generated_tokens"]
    bug = ValueError("a bug")

    def fails() -> None:
        raise bug

    scheduler._round = fails  # type: ignore[method-assign]
    assert isinstance(at.ask("during", "tell me", 5).error, AgentKVError)
    scheduler._thread.join(60)
    assert failures == [bug]
    assert engine.arena.used_pages == 0
    with pytest.raises(ApiError, match="shutting down"):
        at.ask("late", "hello", 1)
