"""`agentkv chat`: talk to a model and watch its KV memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.errors import AgentKVError

if TYPE_CHECKING:
    from agentkv.cli.chat_screen import Screen
    from agentkv.cli.chat_talks import Talks

_option = typer.Option


def chat(
    model: Annotated[str, _option(help="Name (agentkv models list), folder or hub id.")] = "smollm2-135m",
    policy: Annotated[str, _option(help="KV policy of the session.")] = "full",
    budget: Annotated[str | None, _option(help="KV budget of the session: 512, 24MiB or 25%.")] = None,
    session: Annotated[str, _option(help="Id of the session.")] = "chat",
    system: Annotated[str | None, _option(help="System prompt.")] = None,
    max_tokens: Annotated[int, _option(min=1, help="Longest reply, in tokens.")] = 256,
    temperature: Annotated[float, _option(min=0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, _option(help="Seed of sampling.")] = None,
    dtype: Annotated[str, _option(help="auto, float32, bfloat16, float16 or float64.")] = "auto",
    device: Annotated[str, _option(help="cpu or cuda.")] = "cpu",
    weights: Annotated[str, _option(help="Of decode steps: model, int8 or auto.")] = "auto",
) -> None:
    """Chat in the terminal, above a live line of the session's KV memory. Ctrl-D ends it, Ctrl-C a reply.

    /policy, /budget, /save, /load, /fork and /explain change, keep, copy and show the session; /help lists all.

    Lines piped to stdin are taken as one message or command each; replies go to stdout, all else to stderr.

    \b
    Examples:
      agentkv chat --policy conf-kv --budget 8MiB
      echo "Name three colours." | agentkv chat --max-tokens 40
    """
    from agentkv.chat.sessions import KVSettings
    from agentkv.cli.chat_commands import under
    from agentkv.cli.chat_screen import PlainScreen, screen
    from agentkv.cli.chat_talks import Talks
    from agentkv.engine import Engine, SamplingParams

    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed, min_tokens=1)
    engine = Engine.load(model, dtype=dtype, device=device, weights=weights)
    talks, shown = Talks(engine, KVSettings(policy, budget), params, session, system), screen()
    if not isinstance(shown, PlainScreen):
        shown.note(f"{model}; {under(talks.current)}; /help lists the commands")
    _converse(talks, shown)


def _converse(talks: Talks, screen: Screen) -> None:
    """Answer line by line. What fails is told, and leaves the conversation as it was."""
    from agentkv.cli.chat_commands import run_command

    while (line := screen.read()) is not None:
        try:
            if not line.startswith("/"):
                if line:
                    screen.reply(partial(talks.say, line))
            elif (told := run_command(talks, line)) is None:
                return
            elif isinstance(told, str):
                screen.note(told)
            else:
                screen.explain(told)
        except AgentKVError as error:
            screen.note(f"agentkv: {error}")
