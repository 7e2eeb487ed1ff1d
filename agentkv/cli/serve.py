"""`agentkv serve`: the OpenAI-compatible server."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

_option = typer.Option


def serve(
    host: Annotated[str, _option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, _option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    model: Annotated[str, _option(help="Name (agentkv models list), folder or hub id.")] = "smollm2-135m",
    policy: Annotated[str, _option(help="KV policy of every session.")] = "full",
    budget: Annotated[str | None, _option(help="KV budget of a session: 512, 24MiB or 25%.")] = None,
    kv_pool: Annotated[str | None, _option(help="KV memory of all sessions: 2GiB, or a share of what is free.")] = None,
    spill: Annotated[str | None, _option(help="Where idle sessions go when it is full: cpu, none or a folder.")] = None,
    sessions: Annotated[Path | None, _option(help="Folder of saved sessions.")] = None,
    restore: Annotated[bool, _option("--restore", help="Open every saved session at the start.")] = False,
    api_key: Annotated[str | None, _option(envvar="AGENTKV_API_KEY", help="Key that clients must send.")] = None,
    allow_host: Annotated[list[str] | None, _option(help="A further host name to answer to.")] = None,
    max_queue: Annotated[int, _option(min=1, help="Requests that may wait.")] = 32,
    max_running: Annotated[int, _option(min=1, help="Requests answered at a time.")] = 8,
    max_sessions: Annotated[int, _option(min=1, help="Live sessions.")] = 64,
    max_prompt: Annotated[int | None, _option(min=1, help="Tokens a request may add; by default 4 windows.")] = None,
    max_tokens: Annotated[int, _option(min=1, help="Longest reply of a request that does not say.")] = 512,
    checkpoints: Annotated[int, _option(min=0, help="Turns of a session that are kept to go back to.")] = 0,
    prefill_chunk: Annotated[int, _option(min=1, help="Prompt tokens between two decode steps.")] = 128,
    dtype: Annotated[str, _option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, _option(help="cpu, cuda or cuda:N.")] = "cpu",
    weights: Annotated[str, _option(help="Of decode steps: model, int8 or auto.")] = "auto",
) -> None:
    """Serve a model to OpenAI's clients: chat completions, sessions, metrics.

    \b
    Examples:
      agentkv serve --policy conf-kv --budget 8MiB
      AGENTKV_API_KEY=secret agentkv serve --host 0.0.0.0
    """
    from agentkv.engine import Engine
    from agentkv.errors import AgentKVError
    from agentkv.server.places import LOOPBACK, SpillFolder, default_sessions_folder
    from agentkv.server.serve import serve as run
    from agentkv.server.settings import ServerSettings

    if api_key == "":
        raise AgentKVError("the API key is empty; leave it out or set one")
    local = host in LOOPBACK
    if not local and api_key is None:
        print(f"agentkv: everybody who reaches {host} can use this server; set an API key", file=sys.stderr)
    settings = ServerSettings(
        model=model,
        policy=policy,
        budget=budget,
        options={"checkpoints": checkpoints} if checkpoints else {},
        sessions_folder=sessions or default_sessions_folder(),
        restore=restore,
        api_key=api_key,
        hosts=frozenset({*LOOPBACK, *(allow_host or ())}) if local else None,
        max_queue=max_queue,
        max_running=max_running,
        max_sessions=max_sessions,
        max_prompt=max_prompt,
        max_tokens=max_tokens,
        prefill_chunk=prefill_chunk,
    )
    # uvicorn ends replies and passes the signal on; by default the process would then be gone without cleaning up.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    with SpillFolder(spill) as place:
        run(
            settings,
            lambda: Engine.load(model, dtype=dtype, device=device, kv_pool=kv_pool, spill=place, weights=weights),
            host,
            port,
        )
