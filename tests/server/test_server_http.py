"""What goes over the wire, and who is let in."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import httpx
import pytest
import uvicorn
from server_fakes import Running, serving, tiny_engine

from agentkv.engine import Engine
from agentkv.errors import AgentKVError, ModelError
from agentkv.server.app import create_app
from agentkv.server.scheduler import Scheduler
from agentkv.server.serve import listen, serve
from agentkv.server.settings import ServerSettings

ASKED = [{"role": "user", "content": "Hello."}]


def chat(server: Running, **body) -> httpx.Response:
    return server.http.post("/v1/chat/completions", json={"messages": ASKED, "max_tokens": 4} | body)


async def test_the_raw_stream(server: Running) -> None:
    body = {"messages": ASKED, "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}}
    async with (
        httpx.AsyncClient(base_url=server.url) as http,
        http.stream("POST", "/v1/chat/completions", json=body) as reply,
    ):
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [line async for line in reply.aiter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    *chunks, finish, usage = (json.loads(line[6:]) for line in lines[:-1])
    assert {chunk["object"] for chunk in [*chunks, finish, usage]} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert finish["choices"][0]["finish_reason"] == "length"
    assert finish["agentkv"]["generated_tokens"] == usage["usage"]["completion_tokens"] == 4
    assert usage["choices"] == []


def test_a_line_of_the_stream_is_a_line_for_every_client(server: Running) -> None:
    """U+2028 ends a line for some of them, so JSON escapes it."""
    schema = {"const": "a\u2028b😀"}
    form = {"type": "json_schema", "json_schema": {"name": "odd", "schema": schema}}
    reply = chat(server, response_format=form, stream=True, max_tokens=60)
    assert reply.content.isascii()
    chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert json.loads(text) == "a\u2028b😀"


def test_half_a_surrogate_pair_is_read(server: Running) -> None:
    raw = b'{"messages": [{"role": "user", "content": "cut \\ud83d"}], "max_tokens": 2}'
    reply = server.http.post("/v1/chat/completions", content=raw, headers={"Content-Type": "application/json"})
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("fields", "status", "code", "words"),
    [
        ({"messages": []}, 400, "invalid_value", "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "invalid_value", "messages.0.role"),
        ({"temperature": "hot"}, 400, "invalid_value", "temperature"),
        ({"n": 2}, 400, "invalid_value", "n: Input should be 1"),
        ({"functions": [{"name": "f"}]}, 400, "invalid_value", "replaced by tools"),
        ({"session_id": "../../etc/passwd"}, 400, "invalid_value", "session_id: a session id is up to 128 letters"),
        ({"session_id": "line\n"}, 400, "invalid_value", "session_id: a session id is up to 128 letters"),
        ({"tools": [{"type": "function"}]}, 400, "unsupported", "a tool is"),
        ({"tool_choice": "required"}, 400, "unsupported", "there are no tools"),
        ({"response_format": {"type": "xml"}}, 400, "unsupported", "response_format is"),
        ({"max_tokens": 0}, 400, "invalid_request", "max_tokens must be at least 1"),
        ({"model": "other"}, 404, "model_not_found", "there is no model 'other'"),
    ],
)
def test_refusals_say_why_and_where(server: Running, fields, status, code, words) -> None:
    reply = chat(server, **fields)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code)
    assert words in error["message"]
    assert "\n" not in error["message"]
    assert set(error) >= {"message", "type", "param", "code"}


def test_the_order_of_session_keys() -> None:
    from agentkv.server.body import ChatBody
    from agentkv.server.convert import session_id

    def of(header: str | None = None, **fields: str) -> str | None:
        return session_id(ChatBody(messages=ASKED, **fields), header)

    assert of("h", session_id="s", prompt_cache_key="k") == "s"
    assert of("h", prompt_cache_key="k") == "h"
    assert of(prompt_cache_key="k") == "k"
    assert of() is None
    odd = of(prompt_cache_key="any/text at all")
    assert odd == of(prompt_cache_key="any/text at all") != of(prompt_cache_key="another text")


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"\xff\xfe\xfd", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"messages": ' + b"[" * 80 + b"]" * 80 + b"}", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"messages": [], "seed": ' + b"9" * 5000 + b"}", "application/json", 400),
        (b'{"messages": []}', "text/plain", 415),
        (b'{"messages": "' + b"x" * (4 * 2**20) + b'"}', "application/json", 413),
        (b"", "application/json", 400),
    ],
)
def test_bodies_that_are_none(server: Running, content: bytes, kind: str, status: int) -> None:
    reply = server.http.post("/v1/chat/completions", content=content, headers={"Content-Type": kind})
    assert reply.status_code == status
    assert reply.json()["error"]["message"]


def test_a_reply_is_no_longer_than_the_window(tmp_path: Path) -> None:
    """Under a policy that outlives the window it might go on for ever."""
    with serving(tiny_engine(window=256), tmp_path, policy="streaming-llm", budget=64) as server:
        usage = chat(server, max_tokens=10**30, response_format={"type": "json_object"}).json()["usage"]
        assert usage["completion_tokens"] <= 256


def test_tokenize(server: Running) -> None:
    tokens = server.http.post("/tokenize", json={"text": "abc"}).json()
    assert tokens["count"] == len(tokens["tokens"]) == 3
    prompt = server.http.post("/tokenize", json={"messages": ASKED}).json()
    assert prompt["count"] == chat(server).json()["usage"]["prompt_tokens"]
    assert server.http.post("/tokenize", json={}).status_code == 400


def test_pages_that_there_are_not(server: Running) -> None:
    for reply, status in (
        (server.http.get("/v1/nothing"), 404),
        (server.http.get("/v1/chat/completions"), 405),
        (server.http.get("/v1/sessions/x?explain=perhaps"), 400),
    ):
        assert reply.status_code == status
        assert reply.json()["error"]["type"]


def test_metrics(server: Running) -> None:
    prompts, firsts = server.metric("agentkv_prompt_tokens_total"), server.metric("agentkv_ttft_seconds_count")
    refused = server.metric('agentkv_requests_total{outcome="refused"}')
    usage = chat(server).json()["usage"]
    chat(server, messages=[{"role": "user", "content": "x" * 9000}])
    assert server.metric("agentkv_prompt_tokens_total") == prompts + usage["prompt_tokens"]
    assert server.metric("agentkv_ttft_seconds_count") == firsts + 1
    chat(server, temperature="hot")
    assert server.metric('agentkv_requests_total{outcome="refused"}') == refused + 2
    assert 0 < server.metric('agentkv_kv_bytes{policy="full"}') <= server.metric("agentkv_kv_budget_bytes")
    named = {
        "queue_depth", "sessions", "sessions_evicted_total", "cancelled_total", "cached_tokens_total",
        "generated_tokens_total", "evicted_tokens_total", "tpot_seconds_count", "grammar_mask_seconds_count",
    }  # fmt: skip
    for name in named:
        assert server.metric(f"agentkv_{name}") >= 0


def test_an_api_key(tmp_path: Path) -> None:
    with serving(tiny_engine(), tmp_path, api_key="schlüssel") as server:
        assert server.ask("Hello.")["choices"]
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic schlüssel".encode()}):
            with httpx.Client(base_url=server.url) as stranger:
                for path in ("/v1/models", "/metrics", "/v1/sessions"):
                    reply = stranger.get(path, headers=header)
                    assert reply.status_code == 401
                    assert reply.json()["error"]["code"] == "invalid_api_key"
                assert stranger.get("/health").status_code == 200


def test_a_web_page_cannot_reach_it_by_a_name_of_its_own(tmp_path: Path) -> None:
    with serving(tiny_engine(), tmp_path, hosts=frozenset({"127.0.0.1"})) as server:
        assert server.http.get("/v1/models").status_code == 200
        reply = server.http.get("/v1/models", headers={"Host": "evil.example:8000"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden_host")


def test_requests_wait_until_the_model_is_there(tmp_path: Path) -> None:
    may_load, listener = threading.Event(), listen("127.0.0.1", 0)

    def load() -> Engine:
        may_load.wait(60)
        return tiny_engine()

    scheduler = Scheduler(ServerSettings(model="tiny", sessions_folder=tmp_path), load)
    server = uvicorn.Server(uvicorn.Config(create_app(scheduler), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}") as http:
        assert http.get("/health").status_code == 200
        for reply in (http.get("/ready"), http.post("/v1/chat/completions", json={"messages": ASKED})):
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "loading")
            assert reply.headers["retry-after"] == "1"
        may_load.set()
        assert scheduler._ready.wait(60)
        assert http.get("/ready").status_code == 200
    server.should_exit = True
    thread.join(20)


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    def load() -> Engine:
        raise ModelError("no such model")

    with pytest.raises(ModelError, match="no such model"):
        serve(ServerSettings(sessions_folder=tmp_path), load, "127.0.0.1", 0)


def test_an_address_that_cannot_be_used_is_one_clear_sentence() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AgentKVError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)
