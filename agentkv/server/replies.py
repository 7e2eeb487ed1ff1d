"""From the items of a call to OpenAI's completions and chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentkv.chat.call import Finished
from agentkv.engine.sampling import TokenLogprob
from agentkv.server.running import Logprobs, Sent, Started
from agentkv.tools import CallDelta, TextDelta, ToolCall
from agentkv.tools.dialect import to_json

_REASONS = {"context_full": "length", "cancelled": "stop"}
"""Reasons of ours that OpenAI has no word for; `agentkv.finish_reason` has the whole truth."""


class Writer:
    """Writes one reply, as a whole or in chunks.

    Args:
        model: name that clients see.
        tokenizer: for the texts of tokens whose probabilities are asked for.
        include_usage: whether a stream ends with a chunk of usage.
    """

    def __init__(self, model: str, tokenizer: Any, include_usage: bool = False):
        self._tokenizer = tokenizer
        self._include_usage = include_usage
        self._logprobs: list[dict[str, Any]] = []
        self._common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def chunks(self, item: Sent) -> Iterator[dict[str, Any]]:
        """Chunks of a stream that an item makes."""
        if isinstance(item, Started):
            yield self._chunk({"role": "assistant", "content": ""})
        elif isinstance(item, Logprobs):
            self._logprobs += map(self._logprob, item.tokens)
        elif isinstance(item, TextDelta):
            yield self._chunk({"content": item.text})
        elif isinstance(item, CallDelta):
            yield self._chunk({"tool_calls": [_call_delta(item)]})
        elif isinstance(item, Finished):
            yield self._chunk({}, _reason(item)) | {"agentkv": item.metadata}
            if self._include_usage:
                yield self._head("chat.completion.chunk") | {"choices": [], "usage": usage(item.metadata)}

    def completion(self, items: Iterable[Sent]) -> dict[str, Any]:
        """The whole reply; the last of `items` is the Finished one."""
        words: list[str] = []
        finished: Finished | None = None
        for item in items:
            if isinstance(item, Logprobs):
                self._logprobs += map(self._logprob, item.tokens)
            elif isinstance(item, TextDelta):
                words.append(item.text)
            elif isinstance(item, Finished):
                finished = item
        assert finished is not None, "a call ends with Finished, or Failed was raised"
        text = "".join(words)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not finished.calls else None}
        if finished.calls:
            message["tool_calls"] = list(map(_call, finished.calls))
        choice = {"index": 0, "message": message, "finish_reason": _reason(finished), "logprobs": self._take_logprobs()}
        return self._head("chat.completion") | {
            "choices": [choice],
            "usage": usage(finished.metadata),
            "agentkv": finished.metadata,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"object": kind, **self._common}

    def _chunk(self, delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": self._take_logprobs()}
        return self._head("chat.completion.chunk") | {"choices": [choice]}

    def _take_logprobs(self) -> dict[str, Any] | None:
        """Those that were not written yet. A token's text may be held back, so they may be ahead of it."""
        taken, self._logprobs = self._logprobs, []
        return {"content": taken, "refusal": None} if taken else None

    def _logprob(self, token: TokenLogprob) -> dict[str, Any]:
        top = [self._token(token_id) | {"logprob": logprob} for token_id, logprob in token.top]
        return self._token(token.token_id) | {"logprob": token.logprob, "top_logprobs": top}

    def _token(self, token_id: int) -> dict[str, Any]:
        text = self._tokenizer.decode([token_id])
        whole = "\N{REPLACEMENT CHARACTER}" not in text  # part of a character has no text
        return {"token": text, "bytes": list(text.encode()) if whole else None}


def usage(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of the prompt, those of it that came from the cache, and those of the reply."""
    prompt, generated = metadata["prompt_tokens"], metadata["generated_tokens"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": metadata["reused_tokens"]},
    }


def _reason(finished: Finished) -> str:
    reason: str = finished.metadata["finish_reason"]
    return _REASONS.get(reason, reason)


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": to_json(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _call_delta(item: CallDelta) -> dict[str, Any]:
    """The id and name are on the first delta of a call only: clients join what they get."""
    function: dict[str, Any] = {"arguments": item.arguments}
    if item.name is None:
        return {"index": item.index, "function": function}
    return {"index": item.index, "id": item.id, "type": "function", "function": {"name": item.name, **function}}
