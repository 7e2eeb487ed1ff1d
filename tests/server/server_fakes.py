"""A server in a thread of the tests' process, over a tiny random model."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
import uvicorn
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agentkv.engine import Engine
from agentkv.server.app import create_app
from agentkv.server.scheduler import Scheduler
from agentkv.server.serve import listen
from agentkv.server.settings import ServerSettings

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EOS = "<|im_end|>"


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, beside the two ChatML markers (ids 256 and 257)."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken(EOS, special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, chat_template=CHATML)


def tiny_engine(window: int = 4096, **options: Any) -> Engine:
    """In float32: batches and single sessions choose the same tokens."""
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    return Engine(LlamaForCausalLM(config).eval(), tokenizer, "tiny", **{"kv_pool": "32MiB"} | options)


@dataclass
class Running:
    """A server under test."""

    url: str
    scheduler: Scheduler
    engine: Engine
    http: httpx.Client
    loop: asyncio.AbstractEventLoop

    @property
    def tasks(self) -> int:
        """How many the server's event loop has."""

        async def count() -> int:
            return len(asyncio.all_tasks())

        return asyncio.run_coroutine_threadsafe(count(), self.loop).result(10)

    def ask(self, content: str | None = None, **fields: Any) -> dict[str, Any]:
        """A whole reply to one message, or to `messages`."""
        if content is not None:
            fields["messages"] = [{"role": "user", "content": content}]
        reply = self.http.post("/v1/chat/completions", json={"max_tokens": 8} | fields)
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def metric(self, name: str) -> float:
        """One value of /metrics, by name and labels."""
        lines = self.http.get("/metrics").text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name)


@contextmanager
def serving(engine: Engine, folder: Path, **settings: Any) -> Iterator[Running]:
    """A server on a free port of this machine."""
    listener = listen("127.0.0.1", 0)
    scheduler = Scheduler(ServerSettings(model="tiny", sessions_folder=folder, **settings), lambda: engine)
    config = uvicorn.Config(create_app(scheduler), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    loops: queue.SimpleQueue[asyncio.AbstractEventLoop] = queue.SimpleQueue()

    async def run() -> None:
        loops.put(asyncio.get_running_loop())
        await server.serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    key = scheduler.settings.api_key
    headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
            assert scheduler._ready.wait(60)
            yield Running(url, scheduler, engine, http, loops.get(timeout=60))
    finally:
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()
    assert not scheduler._thread.is_alive()
