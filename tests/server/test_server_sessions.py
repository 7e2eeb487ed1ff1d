"""Sessions over HTTP: listed, saved, restored, forked, forgotten; and after the process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_fakes import Running, byte_tokenizer, serving, tiny_engine

ASKED = [{"role": "user", "content": "I am Ada."}]


def talk(server: Running, name: str, messages: list[dict[str, Any]] = ASKED, **fields: Any) -> list[dict[str, Any]]:
    """One more turn of a conversation; returns it with the reply and the next question."""
    reply = server.ask(session_id=name, messages=messages, **fields)
    return [*messages, reply["choices"][0]["message"], {"role": "user", "content": "Go on."}]


def facts(server: Running, name: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return dict(server.ask(session_id=name, messages=messages)["agentkv"])


def names(server: Running) -> dict[str, str]:
    return {session["id"]: session["state"] for session in server.http.get("/v1/sessions").json()["data"]}


def code(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


def test_a_header_names_a_session_too(server: Running) -> None:
    body = {"messages": ASKED, "max_tokens": 4}
    server.http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": "by-header"})
    assert server.http.get("/v1/sessions/by-header").json()["turns"] == 2
    server.http.post("/v1/chat/completions", json=body | {"prompt_cache_key": "by-key"})
    assert names(server)["by-key"] == "idle"
    refused = server.http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": "../up"})
    assert code(refused) == (400, "invalid_session_id")


def test_save_forget_restore(server: Running) -> None:
    messages = talk(server, "ada")
    saved = server.http.post("/v1/sessions/ada/save").json()
    assert saved["file_bytes"] > 0
    ledger = saved["tokens"]
    talk(server, "ada", messages)  # what comes after is not in the file
    assert server.http.post("/v1/sessions/ada/restore").json()["tokens"] == ledger
    told = facts(server, "ada", messages)
    assert told["session"] == "continued"
    assert told["reused_tokens"] == ledger - 1  # the newest token's keys come with the next turn
    assert server.http.delete("/v1/sessions/ada").json()["deleted"]
    assert "ada" not in names(server)
    assert code(server.http.post("/v1/sessions/ada/restore")) == (404, "session_not_found")


def test_a_file_serves_several_sessions(server: Running) -> None:
    messages = talk(server, "first")
    server.http.post("/v1/sessions/first/save", json={"name": "template"})
    for name in ("second", "third"):
        assert server.http.post(f"/v1/sessions/{name}/restore", json={"name": "template"}).status_code == 200
        assert facts(server, name, messages)["session"] == "continued"
    assert names(server)["template"] == "saved"
    assert server.http.get("/v1/sessions/template").json()["state"] == "saved"


def test_a_fork_goes_its_own_way(server: Running) -> None:
    messages = talk(server, "trunk")
    copy = server.http.post("/v1/sessions/trunk/fork", json={"to": "branch"}).json()
    assert copy["id"] == "branch"
    assert facts(server, "branch", messages)["session"] == "continued"
    assert facts(server, "trunk", messages)["session"] == "continued"
    assert code(server.http.post("/v1/sessions/trunk/fork", json={"to": "branch"})) == (409, "session_exists")
    assert code(server.http.post("/v1/sessions/nobody/fork", json={"to": "x"})) == (404, "session_not_found")


def test_what_a_session_still_holds(server: Running) -> None:
    talk(server, "told", [{"role": "user", "content": "Remember Lake Geneva."}])
    told = server.http.get("/v1/sessions/told?explain=true").json()
    assert "Remember Lake Geneva." in "".join(span["text"] for span in told["explanation"]["spans"])


def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes(b"no session")
    folder = tmp_path / "sessions"
    with serving(tiny_engine(), folder) as server:
        talk(server, "ada")
        for name in ("../secret", "..%2Fsecret", "%2e%2e%2fsecret", "a/../../secret", ".hidden", "x" * 200, "a%00b"):
            for method in ("save", "restore", "fork"):
                reply = server.http.post(f"/v1/sessions/{name}/{method}", json={})
                assert reply.status_code in (400, 404), (name, method)
                assert reply.json()["error"]["message"]
            assert server.http.get(f"/v1/sessions/{name}").status_code == 404
            assert server.http.delete(f"/v1/sessions/{name}").status_code in (404, 405)
            reply = server.http.post("/v1/sessions/ada/save", json={"name": name})
            assert reply.status_code == 400, name
        assert server.http.post("/v1/sessions/ada/restore", json={"name": "../secret"}).status_code == 400
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["secret.safetensors"]


def test_a_file_that_is_damaged_or_of_another_policy_is_refused(tmp_path: Path) -> None:
    engine = tiny_engine()
    with serving(engine, tmp_path) as server:
        talk(server, "ada")
        server.http.post("/v1/sessions/ada/save")
    with serving(engine, tmp_path, policy="h2o", budget=64) as server:
        reply = server.http.post("/v1/sessions/ada/restore")
        assert code(reply) == (409, "session_file")
        assert "was saved under the policy" in reply.json()["error"]["message"]
    file = tmp_path / "ada.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with serving(engine, tmp_path) as server:
        assert code(server.http.post("/v1/sessions/ada/restore")) == (409, "session_file")


def test_a_session_in_use_is_left_alone(tmp_path: Path) -> None:
    with serving(tiny_engine(), tmp_path) as server:
        talk(server, "ada")
        server.http.post("/v1/sessions/ada/save")
        session = server.scheduler.host.sessions.by_id(server.scheduler.settings.kv, "ada")
        session.busy = True  # as while it is answering
        assert names(server)["ada"] == "busy"
        for method in ("save", "restore"):
            assert code(server.http.post(f"/v1/sessions/ada/{method}")) == (409, "session_in_use")
        assert code(server.http.post("/v1/sessions/ada/fork", json={"to": "b"})) == (409, "session_in_use")
        assert code(server.http.get("/v1/sessions/ada?explain=true")) == (409, "session_in_use")
        assert code(server.http.delete("/v1/sessions/ada")) == (409, "session_in_use")
        assert names(server) == {"ada": "busy"}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_engine()._paged.model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@contextmanager
def process(model: Path, sessions: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """`agentkv serve` in a process of its own."""
    command = [sys.executable, "-m", "agentkv", "serve", "--port", "0", "--model", str(model), "--kv-pool", "16MiB"]
    command += ["--sessions", str(sessions), "--spill", str(sessions.parent / "spilled"), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            assert " at http://127.0.0.1:" in line, line + server.stderr.read()
            url = line.split(" at ")[1].split("/v1")[0]
            transport = httpx.HTTPTransport(retries=3)
            with httpx.Client(base_url=url, timeout=120, transport=transport) as http:
                while http.get("/ready").status_code == 503:
                    pass
                yield server, http
        finally:
            server.kill()


def test_a_killed_server_comes_back_with_the_sessions_it_saved(model_folder: Path, tmp_path: Path) -> None:
    body = {"model": str(model_folder), "max_tokens": 8, "session_id": "ada"}
    sessions = tmp_path / "sessions"
    with process(model_folder, sessions) as (server, http):
        reply = http.post("/v1/chat/completions", json=body | {"messages": ASKED}).json()
        messages = [*ASKED, reply["choices"][0]["message"], {"role": "user", "content": "Go on."}]
        tokens = http.post("/v1/sessions/ada/save").json()["tokens"]
        expected = http.post("/v1/chat/completions", json=body | {"messages": messages}).json()
        assert (tmp_path / "spilled" / str(server.pid)).is_dir()
        server.send_signal(signal.SIGKILL)
        server.wait()
    with process(model_folder, sessions, "--restore") as (server, http):
        assert http.get("/v1/sessions/ada").json()["tokens"] == tokens
        again = http.post("/v1/chat/completions", json=body | {"messages": messages}).json()
        assert again["agentkv"]["session"] == "continued"
        assert again["choices"] == expected["choices"]
        assert [path.name for path in (tmp_path / "spilled").iterdir()] == [str(server.pid)], "the dead one's is gone"
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    assert os.listdir(tmp_path / "spilled") == []
