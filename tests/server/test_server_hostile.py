"""Clients who send too much, too deep, or at the wrong moment: one sentence for them, and nobody else waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_fakes import Running, serving, tiny_engine

from agentkv.chat.host import ChatHost
from agentkv.engine.persistence import PackedSession
from agentkv.server import app

ASKED = [{"role": "user", "content": "Hello."}]


def post(server: Running, **body: Any) -> httpx.Response:
    return server.http.post("/v1/chat/completions", json={"messages": ASKED, "max_tokens": 4} | body)


def called(arguments: str) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}]}


def schema(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def many(count: int) -> dict[str, Any]:
    return schema({"type": "object", "properties": {f"p{n}": {"type": "null"} for n in range(count)}})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (called("[" * 100_000), "not JSON"),
        (called('{"a":' * 5_000 + "1" + "}" * 5_000), "not JSON"),
        (called('{"a":' * 200 + "1" + "}" * 200), "more than 64 levels"),
        (called('{"a": ' + "9" * 5_000 + "}"), "not JSON"),
        (schema({"type": {}}), "does not compile"),
        (schema({"type": ["string", ["x"]]}), "does not compile"),
        (schema({"type": "string", "minLength": "two"}), "does not compile"),
        (schema({"type": "array", "minItems": None}), "does not compile"),
        (many(1_500), "the grammar cannot go on"),
        (many(5_001), "5001 properties; at most 5000"),
        ({"response_format": {"type": "json_object", "schema": "text"}}, "a JSON schema, not 'text'"),
        ({"messages": ASKED * 10_001}, "messages: List should have at most 10000 items"),
        ({"model": "m\n" * 100_000}, "there is no model"),
    ],
)
def test_a_hostile_body_is_refused_in_one_short_line(server: Running, fields: dict[str, Any], words: str) -> None:
    reply = post(server, **fields)
    message = reply.json()["error"]["message"]
    assert reply.status_code in (400, 404), message
    assert words in message
    assert "\n" not in message
    assert len(message) < 700


def test_one_call_adds_no_more_than_it_may(tmp_path: Path) -> None:
    """Under a policy that outlives the window, a prompt would have no end; a long conversation may still grow."""
    engine = tiny_engine(window=512)
    with serving(engine, tmp_path, policy="streaming-llm", budget=64, max_prompt=100) as server:
        for content, tokens in (("x" * 90, 120), ("x" * 5_000, 630)):  # counted, and too long to be counted
            reply = post(server, messages=[{"role": "user", "content": content}], session_id="s")
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (400, "context_length_exceeded")
            assert error["limit"] == 100
            assert abs(error["prompt_tokens"] - tokens) < 20
            assert "a call may add" in error["message"]
        assert not server.http.get("/v1/sessions").json()["data"], "a refused call opens no session"
        messages: list[dict[str, Any]] = []
        for turn in range(4):
            messages.append({"role": "user", "content": f"{turn}" * 50})
            reply = post(server, messages=messages, session_id="s")
            messages.append(reply.json()["choices"][0]["message"])
        usage = reply.json()["usage"]
        assert usage["prompt_tokens"] > 200
        refused = post(server, messages=[*messages, {"role": "user", "content": "x" * 100}], session_id="s")
        assert refused.status_code == 400
        again = post(server, messages=[*messages, {"role": "user", "content": "x"}], session_id="s").json()
        assert again["agentkv"]["session"] == "continued", "the refused call left the session as it was"


def test_without_a_setting_four_windows_may_be_added(tmp_path: Path) -> None:
    with serving(tiny_engine(window=64), tmp_path, policy="streaming-llm", budget=32) as server:
        assert post(server, messages=[{"role": "user", "content": "x" * 200}]).status_code == 200
        error = post(server, messages=[{"role": "user", "content": "x" * 300}]).json()["error"]
        assert (error["code"], error["limit"]) == ("context_length_exceeded", 256)


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """A function that says when it was entered, and the first time waits until it may go on."""
    entered, may_go = threading.Event(), threading.Event()
    real: Callable[..., Any] = getattr(owner, name)

    def slow(*args: Any) -> Any:
        first = not entered.is_set()
        entered.set()
        assert not first or may_go.wait(60)
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, slow)
        yield entered, may_go
        may_go.set()


def test_nobody_waits_for_a_session_that_is_written(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    server.ask("Hello.", session_id="slow-disk")
    with held(monkeypatch, PackedSession, "write") as (entered, may_go), ThreadPoolExecutor() as pool:
        saving = pool.submit(server.http.post, "/v1/sessions/slow-disk/save")
        assert entered.wait(60)
        messages = [*ASKED, {"role": "assistant", "content": "x"}, *ASKED]
        assert server.ask(messages=messages, session_id="slow-disk")["choices"]  # not even the session itself
        may_go.set()
        assert saving.result().json()["file_bytes"] > 0


def test_nobody_waits_for_a_schema_that_compiles(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(monkeypatch, ChatHost, "constraint") as (entered, may_go), ThreadPoolExecutor() as pool:
        asked = pool.submit(post, server, **schema({"const": 1}))
        assert entered.wait(60)
        assert server.ask("Hello.")["choices"]
        may_go.set()
        assert json.loads(asked.result().json()["choices"][0]["message"]["content"]) == 1


def test_a_session_is_not_replaced_while_it_answers(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its call begins while the file is read."""
    server.ask("Hello.", session_id="both")
    server.http.post("/v1/sessions/both/save").raise_for_status()
    with held(monkeypatch, app, "read") as (entered, may_go), ThreadPoolExecutor() as pool:
        restoring = pool.submit(server.http.post, "/v1/sessions/both/restore")
        assert entered.wait(60)
        body = {"messages": ASKED, "max_tokens": 600, "session_id": "both", "stream": True}
        with server.http.stream("POST", "/v1/chat/completions", json=body) as reply:
            lines = reply.iter_lines()
            next(lines)
            may_go.set()
            refused = restoring.result()
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_in_use")
            rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in rest[-2] or '"finish_reason":"stop"' in rest[-2]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://["])
def test_a_page_of_another_host_is_not_answered(server: Running, origin: str) -> None:
    """A request without a body needs no leave of the browser's: it could save or restore a session."""
    server.ask("Hello.", session_id="paged")
    reply = server.http.post("/v1/sessions/paged/save", headers={"Origin": origin})
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden_origin")
    own = server.http.post("/v1/sessions/paged/save", headers={"Origin": server.url})
    assert own.status_code == 200
