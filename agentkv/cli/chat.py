"""`agentkv chat`: talk to a model and watch its KV memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.errors import ContextOverflow

if TYPE_CHECKING:
    from agentkv.chat_model import ChatAgentKV

_option = typer.Option


def chat(
    model: Annotated[str, _option(help="Embedded name, model folder or hub id.")] = "smollm2-135m",
    policy: Annotated[str, _option(help="KV policy of the session.")] = "full",
    budget: Annotated[str | None, _option(help="KV budget of the session: 512, 24MiB or 25%.")] = None,
    session: Annotated[str, _option(help="Id of the session.")] = "chat",
    system: Annotated[str | None, _option(help="System prompt.")] = None,
    max_tokens: Annotated[int, _option(min=1, help="Longest reply, in tokens.")] = 256,
    temperature: Annotated[float, _option(min=0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, _option(help="Seed of sampling.")] = None,
    dtype: Annotated[str, _option(help="auto, float32, bfloat16, float16 or float64.")] = "auto",
    device: Annotated[str, _option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Chat in the terminal; after each reply a line shows the session's KV. /quit or Ctrl-D ends it.

    /kv shows which text the cache still holds, and in what form.

    Lines piped to stdin are taken as one message each; replies go to stdout, KV lines to stderr.

    \b
    Examples:
      agentkv chat --policy conf-kv --budget 8MiB
      echo "Name three colours." | agentkv chat --max-tokens 40
    """
    from agentkv.chat_model import ChatAgentKV

    chat_model = ChatAgentKV(
        model=model,
        kv_policy=policy,
        kv_budget=budget,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        dtype=dtype,
        device=device,
    )
    _converse(chat_model, session, system)


def _converse(chat_model: ChatAgentKV, session: str, system: str | None) -> None:
    from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

    chat_model.load()
    messages: list[BaseMessage] = [SystemMessage(system)] if system else []
    while (line := _read_line()) is not None and line != "/quit":
        if line == "/kv":
            _show_kv(chat_model, session)
        elif line:
            asked = [*messages, HumanMessage(line)]
            try:
                messages = [*asked, _reply(chat_model, asked, session)]
            except ContextOverflow as overflow:  # the conversation is whole without this message
                print(f"agentkv: {overflow}", file=sys.stderr, flush=True)


def _show_kv(chat_model: ChatAgentKV, session: str) -> None:
    """Show the conversation coloured by what the cache holds of it: on a terminal; else a line per span."""
    from rich.console import Console

    told = chat_model.explain(session)
    if told is None:
        print("agentkv: nothing was said yet", file=sys.stderr, flush=True)
    elif sys.stderr.isatty():
        Console(stderr=True, highlight=False).print(told)
    else:
        print(told.to_text(), file=sys.stderr, flush=True)


def _read_line() -> str | None:
    """The user's next line, or None at the end of the input."""
    try:
        return input("you> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None


def _reply(chat_model: ChatAgentKV, messages: list[Any], session: str) -> Any:
    """Print one reply as it comes, and what it did to the KV; returns the message."""
    whole = None
    for chunk in chat_model.stream(messages, config={"configurable": {"session_id": session}}):
        print(chunk.content, end="", flush=True)
        whole = chunk if whole is None else whole + chunk
    print()
    assert whole is not None
    print(_kv_line(whole.response_metadata["agentkv"]), file=sys.stderr, flush=True)
    return whole


def _kv_line(facts: dict[str, Any]) -> str:
    mib = 2**20
    return (
        f"[{facts['policy']}: KV {facts['resident_kv_bytes'] / mib:.1f} MiB, peak {facts['peak_kv_bytes'] / mib:.1f}"
        f" | {facts['logical_length']} tokens, {facts['evicted_tokens']} evicted,"
        f" {facts['quantized_tokens']} quantised | prefilled {facts['new_tokens']} in {facts['prefill_ms']:.0f} ms,"
        f" reused {facts['reused_tokens']}, generated {facts['generated_tokens']} in {facts['decode_ms']:.0f} ms]"
    )
