"""Load, faults and speed of a running `agentkv serve`, on loopback. Prints one JSON object per result.

agentkv serve --policy conf-kv --budget 8MiB --port 8000 &
python benchmarks/load.py faults --sessions 8 --turns 20
python benchmarks/load.py throughput
python benchmarks/load.py stall
python benchmarks/load.py turns                                    # every turn sends the whole history
python benchmarks/load.py turns --url http://127.0.0.1:8001 --model HuggingFaceTB/SmolLM2-135M-Instruct
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

CHAT = "/v1/chat/completions"
WRONG: tuple[Any, ...] = ("text", "", -1, 1.5, 1e308, True, [], [1], [[]], {}, {"a": {"b": 1}}, "\x00", 10**30)
FIELDS = (
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "response_format",
    "stop", "seed", "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs",
    "n", "session_id", "prompt_cache_key", "functions",
)  # fmt: skip
NAMES = ("../x", "..", "a/b", "%2e%2e%2fx", "..%2f..%2fetc%2fpasswd", ".x", "a" * 300, "a\\b", "~", "%00")
TOPICS = ("a river", "a train", "a garden", "an engine", "a harbour", "a library", "a storm", "a mountain")


# --- faults ------------------------------------------------------------------------------------------------------


def malformed(max_tokens: int = 1) -> Iterator[tuple[str, bytes]]:
    """Bodies of chat requests that are wrong somewhere, each with its kind."""
    valid = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": max_tokens}
    for name in FIELDS:
        for value in WRONG:
            if isinstance(value, int) and value > 1 and "max" in name:
                continue  # a right one: a long reply
            yield f"{name}={value!r:.20}", json.dumps(valid | {name: value}).encode()
    for key in ("role", "content", "name", "tool_calls", "tool_call_id"):
        for value in WRONG:
            message = {"role": "user", "content": "Hello."} | {key: value}
            yield f"message.{key}={value!r:.20}", json.dumps(valid | {"messages": [message]}).encode()
    for role in ("assistant", "tool", "developer", "function"):
        yield f"only {role}", json.dumps(valid | {"messages": [{"role": role, "content": None}]}).encode()
    whole = json.dumps(valid).encode()
    for cut in range(0, len(whole), 7):
        yield f"cut at {cut}", whole[:cut]
    yield "not UTF-8", b"\xff\xfe\x00" + whole
    yield "deep", b"[" * 50_000
    yield "deep object", b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    yield "long number", b'{"messages": [], "seed": ' + b"1" * 10_000 + b"}"
    yield "NaN", whole.replace(b'"max_tokens": 1', b'"temperature": NaN')
    yield "infinite", whole.replace(b'"max_tokens": 1', b'"top_p": Infinity')
    yield "half a pair", whole.replace(b"Hello.", b"\\ud800")
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense", "$ref": "#/nowhere"}}}
    yield "schema", json.dumps(valid | {"response_format": schema}).encode()
    loop = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}
    yield "endless schema", json.dumps(valid | {"response_format": loop}).encode()


def oversize(window: int) -> Iterator[tuple[str, bytes]]:
    """What does not fit the model's window, which an evicting policy outlives, or the server's limit of a body."""
    long = [{"role": "user", "content": "word " * (window + 100)}]
    yield "window", json.dumps({"messages": long, "max_tokens": 1}).encode()
    yield "body", json.dumps({"messages": [{"role": "user", "content": "x" * (5 * 2**20)}]}).encode()
    many = [{"role": ("user", "assistant")[n % 2], "content": "word"} for n in range(window // 6)]
    yield "messages", json.dumps({"messages": many, "max_tokens": 1}).encode()


async def probe(http: httpx.AsyncClient, window: int, refused: Counter[int]) -> None:
    """Send everything that is wrong; a server's fault, or an answer that is no JSON, raises AssertionError."""
    for kind, body in [*malformed(), *oversize(window)]:
        reply = await http.post(CHAT, content=body, headers={"Content-Type": "application/json"})
        while reply.status_code == 429:  # the queue is full of the others' requests
            await asyncio.sleep(float(reply.headers["retry-after"]))
            reply = await http.post(CHAT, content=body, headers={"Content-Type": "application/json"})
        check_answer(kind, reply)
        refused[reply.status_code] += 1
    for name in NAMES:
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/save"), ("POST", "/restore"), ("POST", "/fork")):
            reply = await http.request(method, f"/v1/sessions/{name}{path}", json={"to": name, "name": name})
            assert 400 <= reply.status_code < 500, (method, name, reply.status_code)
            refused[reply.status_code] += 1


def check_answer(kind: str, reply: httpx.Response) -> None:
    """A refusal is in OpenAI's shape, and nothing is the server's fault."""
    assert reply.status_code < 500, (kind, reply.status_code, reply.text)
    if reply.status_code != 200:
        assert isinstance(reply.json()["error"]["message"], str), (kind, reply.text)


# --- sessions ----------------------------------------------------------------------------------------------------


@dataclass
class Talker:
    """One client: a conversation with a marker that no other has.

    Attributes:
        named: whether it names its session, or leaves that to the longest prefix.
    """

    number: int
    named: bool
    chance: random.Random
    messages: list[dict[str, Any]] = field(default_factory=list)
    turn_seconds: list[float] = field(default_factory=list)
    disconnects: int = 0
    session_id: str | None = None

    @property
    def marker(self) -> str:
        return f"MARK-{self.number:03d}"

    async def talk(self, http: httpx.AsyncClient, turns: int, tokens: int, leave: float) -> None:
        """Say `turns` things; leave in the middle of a share of the replies, and ask again."""
        for turn in range(turns):
            said = f"{self.marker}: tell me about {TOPICS[turn % len(TOPICS)]} in part {turn}."
            self.messages.append({"role": "user", "content": said})
            while self.chance.random() < leave:
                await self._leave(http, tokens)
            await self._take_turn(http, tokens, check=turn % 3 == 0 or turn == turns - 1)

    def _body(self, tokens: int, check: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"messages": self.messages, "max_tokens": tokens}
        if self.named:
            body["session_id"] = f"load-{self.number}"
        if check:  # a reply that can only be this client's
            schema = {"type": "object", "properties": {"mark": {"const": self.marker}}, "required": ["mark"]}
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "mark", "schema": schema}}
            body["max_tokens"] = max(tokens, 40)
        return body

    async def _take_turn(self, http: httpx.AsyncClient, tokens: int, check: bool) -> None:
        started = time.perf_counter()
        reply = await ask(http, self._body(tokens, check))
        self.turn_seconds.append(time.perf_counter() - started)
        message = reply["choices"][0]["message"]
        if check:
            assert json.loads(message["content"]) == {"mark": self.marker}, (self.marker, message)
        self.session_id = reply["agentkv"]["session_id"]
        self.messages.append(message)

    async def _leave(self, http: httpx.AsyncClient, tokens: int) -> None:
        body = self._body(tokens, check=False) | {"stream": True}
        after = self.chance.randrange(6)
        async with http.stream("POST", CHAT, json=body) as reply:
            if reply.status_code == 429:
                return
            async for _ in reply.aiter_lines():
                after -= 1
                if after < 0:
                    break
        self.disconnects += 1


async def ask(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """A whole reply; waits when it is told to."""
    while True:
        reply = await http.post(CHAT, json=body)
        if reply.status_code != 429:
            assert reply.status_code == 200, reply.text
            return dict(reply.json())
        await asyncio.sleep(float(reply.headers["retry-after"]))


async def check_session(http: httpx.AsyncClient, talker: Talker) -> None:
    """Its session has its marker and nobody else's."""
    told = await http.get(f"/v1/sessions/{talker.session_id}", params={"explain": True})
    if told.status_code == 404 and not talker.named:  # closed for the sake of others
        return
    text = "".join(span["text"] or "" for span in told.json()["explanation"]["spans"])
    # Whole ones: a reply that copies the marker may be cut off in it.
    assert set(re.findall(r"MARK-\d{3}", text)) == {talker.marker}, "somebody else's words"


async def metric(http: httpx.AsyncClient, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = (await http.get("/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)


async def watch(http: httpx.AsyncClient, most: dict[str, float]) -> None:
    """Keep the largest values seen, and check that the pool keeps to its size."""
    budget = await metric(http, "agentkv_kv_budget_bytes")
    while True:
        for name in ("agentkv_kv_bytes", "agentkv_kv_metadata_bytes", "agentkv_queue_depth", "agentkv_running"):
            most[name] = max(most.get(name, 0), await metric(http, name))
        assert most["agentkv_kv_bytes"] <= budget
        await asyncio.sleep(0.1)


async def faults(
    url: str, sessions: int, turns: int, tokens: int, leave: float, seed: int, wrong: bool = True
) -> dict[str, Any]:
    """Everything at once, wrong requests included if `wrong`; raises AssertionError at whatever should not be."""
    talkers = [Talker(number, number % 2 == 0, random.Random(seed + number)) for number in range(sessions)]
    refused: Counter[int] = Counter()
    most: dict[str, float] = {}
    limits = httpx.Limits(max_connections=4 * sessions)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as http:
        window = (await http.get("/v1/models")).json()["data"][0]["max_model_len"]
        started = time.perf_counter()
        watching = asyncio.create_task(watch(http, most))
        probes = [probe(http, window, refused)] if wrong else []
        await asyncio.gather(*probes, *(talker.talk(http, turns, tokens, leave) for talker in talkers))
        seconds = time.perf_counter() - started
        watching.cancel()
        while await metric(http, "agentkv_running") + await metric(http, "agentkv_queue_depth"):
            await asyncio.sleep(0.05)
        for talker in talkers:
            await check_session(http, talker)
        for session in (await http.get("/v1/sessions")).json()["data"]:
            (await http.delete(f"/v1/sessions/{session['id']}")).raise_for_status()
        assert await metric(http, "agentkv_kv_bytes") == 0, "pages are held by nobody"
        return {
            "bench": "faults",
            "sessions": sessions,
            "turns": turns,
            "seconds": round(seconds, 1),
            "disconnects": sum(talker.disconnects for talker in talkers),
            "cancelled": await metric(http, "agentkv_cancelled_total"),
            "statuses": dict(sorted(refused.items())),
            "kv_budget_bytes": await metric(http, "agentkv_kv_budget_bytes"),
            "most": most,
            "turn_seconds_median": statistics.median(s for talker in talkers for s in talker.turn_seconds),
        }


# --- speed -------------------------------------------------------------------------------------------------------


async def stream(http: httpx.AsyncClient, body: dict[str, Any]) -> AsyncIterator[float]:
    """When each piece of text came, in seconds of `time.perf_counter`."""
    async with http.stream("POST", CHAT, json=body | {"stream": True}) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: {") and (choices := json.loads(line[6:]).get("choices")):
                delta = choices[0]["delta"]
                if delta.get("content"):
                    yield time.perf_counter()


def story(topic: str, words: int = 60) -> list[dict[str, Any]]:
    """A prompt that a model has much to say to."""
    filler = f"It is a long story about {topic}. " * (words // 7)
    return [{"role": "user", "content": f"{filler}Go on with the story, at length."}]


async def throughput(url: str, tokens: int, counts: tuple[int, ...]) -> AsyncIterator[dict[str, Any]]:
    """Tokens per second of so many replies at a time, from the first token of the last to begin."""
    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        for count in counts:
            asked = [stream(http, {"messages": story(topic), "max_tokens": tokens}) for topic in TOPICS[:count]]
            times = await asyncio.gather(*(_collected(one) for one in asked))
            begin, end = max(one[0] for one in times), max(one[-1] for one in times)
            pieces = sum(1 for one in times for at in one if begin < at <= end)
            yield {"bench": "throughput", "sessions": count, "tokens_per_s": round(pieces / (end - begin), 1)}


async def _collected(times: AsyncIterator[float]) -> list[float]:
    return [at async for at in times]


async def stall(url: str, tokens: int) -> dict[str, Any]:
    """Time to first token of a short prompt, alone and while a long prompt goes in beside a reply."""
    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        short = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 4}
        alone = await _first(http, short)
        reply = asyncio.create_task(_collected(stream(http, {"messages": story("rain"), "max_tokens": tokens})))
        await asyncio.sleep(1)
        long = asyncio.create_task(_first(http, {"messages": story("a very long war", 2550), "max_tokens": 4}))
        await asyncio.sleep(0.5)
        beside = await _first(http, short | {"messages": [{"role": "user", "content": "Name a planet."}]})
        long_seconds = await long
        gaps = [later - sooner for sooner, later in pairwise(await reply)]
        return {
            "bench": "stall",
            "short_alone_s": round(alone, 2),
            "short_beside_s": round(beside, 2),
            "long_s": round(long_seconds, 2),
            "gap_median_s": round(statistics.median(gaps), 3),
            "gap_max_s": round(max(gaps), 3),
        }


async def _first(http: httpx.AsyncClient, body: dict[str, Any]) -> float:
    """Seconds to the first piece of text; the rest is read."""
    started = time.perf_counter()
    times = await _collected(stream(http, body))
    return times[0] - started


async def turns(url: str, model: str | None, count: int, tokens: int) -> AsyncIterator[dict[str, Any]]:
    """Seconds of each turn of a growing conversation, the whole of which is sent every time."""
    messages: list[dict[str, Any]] = []
    async with httpx.AsyncClient(base_url=url, timeout=600) as http:
        for turn in range(1, count + 1):
            messages.append({"role": "user", "content": story(f"part {turn}", 120)[0]["content"]})
            body: dict[str, Any] = {"messages": copy.copy(messages), "max_tokens": tokens, "temperature": 0}
            started = time.perf_counter()
            reply = await http.post(CHAT, json=body if model is None else body | {"model": model})
            seconds = time.perf_counter() - started
            assert reply.status_code == 200, reply.text
            told = reply.json()
            messages.append({"role": "assistant", "content": told["choices"][0]["message"]["content"]})
            usage = told.get("usage") or {}
            yield {
                "bench": "turns",
                "turn": turn,
                "seconds": round(seconds, 2),
                "prompt_tokens": usage.get("prompt_tokens"),
                "cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
                "generated_tokens": usage.get("completion_tokens"),
            }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", choices=["faults", "throughput", "stall", "turns"])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", help="for servers that want one")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=24, help="of a reply")
    parser.add_argument("--leave", type=float, default=0.2, help="chance that a client goes away in a reply")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.bench == "faults":
        print(json.dumps(await faults(args.url, args.sessions, args.turns, args.tokens, args.leave, args.seed)))
    elif args.bench == "stall":
        print(json.dumps(await stall(args.url, args.tokens)))
    else:
        rows = (
            throughput(args.url, args.tokens, (1, 2, 4, 8))
            if args.bench == "throughput"
            else turns(args.url, args.model, args.turns, args.tokens)
        )
        async for row in rows:
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
