"""Many clients at once, some of whom leave, and requests that are wrong in every way."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_fakes import Running, serving, tiny_engine

from agentkv.server.body import ChatBody

ROOT = Path(__file__).parents[2]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def load() -> ModuleType:
    """The load script."""
    spec = importlib.util.spec_from_file_location("agentkv_load", ROOT / "benchmarks/load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("policy", "budget", "spill"), [("full", None, "disk"), ("conf-kv", 128, None)], ids=["full", "conf-kv"]
)
async def test_eight_sessions_with_faults_and_clients_that_leave(
    load: ModuleType, tmp_path: Path, policy: str, budget: int | None, spill: str | None
) -> None:
    """Nobody gets another's reply, nothing is left behind, and the pool keeps to its size."""
    engine = tiny_engine(window=512, kv_pool="1MiB", spill=spill and tmp_path / "spilled")
    with serving(engine, tmp_path / "sessions", policy=policy, budget=budget, max_anonymous=4) as server:
        first = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "stream": True}
        server.http.post("/v1/chat/completions", json=first)  # it starts what the library for streams keeps running
        server.http.close()
        before = server.tasks
        wrong = policy == "full"  # once is enough
        told = await load.faults(server.url, sessions=8, turns=4, tokens=10, leave=0.2, seed=1, wrong=wrong)
        assert told["disconnects"] > 0
        if wrong:
            assert sum(told["statuses"].values()) > 300
            assert set(told["statuses"]) <= {200, 400, 404, 405, 413, 415}
        assert told["most"]["agentkv_kv_bytes"] <= told["kv_budget_bytes"] <= 2**20
        assert told["most"]["agentkv_running"] > 2
        assert engine.arena.used_pages == 0
        assert engine.spilled_bytes == 0
        for _ in range(100):  # keep-alive connections of the load script close
            if server.tasks <= before:
                break
            time.sleep(0.05)
        assert server.tasks <= before
    assert not list(tmp_path.glob("s*/*")), "neither spilled nor saved"


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fields=st.dictionaries(st.sampled_from(sorted(ChatBody.model_fields)), JSON, min_size=1, max_size=3),
    message=st.dictionaries(st.sampled_from(["role", "content", "name", "tool_calls", "tool_call_id", "x"]), JSON),
)
def test_no_body_makes_the_server_fail(server: Running, fields: dict, message: dict) -> None:
    whole = {"role": "user", "content": "Hello."}
    body = {"messages": [whole, whole | message], "max_tokens": 1} | fields
    raw = json.dumps(body).encode("utf-8", "surrogatepass")
    reply = server.http.post("/v1/chat/completions", content=raw, headers={"Content-Type": "application/json"})
    assert reply.status_code < 500, reply.text
    if reply.status_code != 200:
        assert reply.json()["error"]["message"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_client_that_leaves_is_noticed(server: Running, stream: bool) -> None:
    cancelled = server.metric("agentkv_cancelled_total")
    body = {"messages": [{"role": "user", "content": "x" * 2000}], "max_tokens": 2000, "stream": stream}
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=body))
        while not server.scheduler.load_state.running:
            await asyncio.sleep(0.001)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    while server.scheduler.load_state.running:
        await asyncio.sleep(0.01)
    assert server.metric("agentkv_cancelled_total") == cancelled + 1
    assert server.ask("still there")["choices"]
