"""The embedded model behind the server, as an agent would use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from openai import OpenAI
from server_fakes import serving

from agentkv.engine import Engine

LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a city up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.mark.model
def test_an_agents_turns_under_a_budget(tmp_path: Path) -> None:
    engine = Engine.shared("smollm2-135m")
    with serving(engine, tmp_path, policy="conf-kv", budget="6MiB") as server:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="none")
        asked = {"model": "tiny", "extra_body": {"session_id": "agent"}, "tools": [LOOK_UP], "max_tokens": 60}
        messages = [{"role": "user", "content": "How many people live in Lisbon?"}]
        first = client.chat.completions.create(messages=messages, tool_choice="required", **asked)
        (call,) = first.choices[0].message.tool_calls
        assert "lisbon" in json.loads(call.function.arguments)["city"].lower()
        page = "Lisbon has 545,000 inhabitants. " + "It lies at the river Tagus. " * 60
        messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": page}]
        second = client.chat.completions.create(messages=messages, tool_choice="none", **asked)
        assert second.choices[0].message.content
        # The end of the call was forced: it is computed with the next turn.
        assert second.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens
        session = server.http.get("/v1/sessions/agent").json()
        assert session["evicted_tokens"] + session["quantized_tokens"] > 0
        assert session["peak_kv_bytes"] <= session["max_kv_bytes"] <= 6 * 2**20
