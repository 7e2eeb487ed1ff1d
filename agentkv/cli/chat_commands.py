"""What can be typed into `agentkv chat` beside messages: lines that begin with a slash."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv.errors import AgentKVError, UnknownName

if TYPE_CHECKING:
    from agentkv.cli.chat_talks import Talk, Talks
    from agentkv.engine import Explanation


@dataclass(frozen=True)
class Command:
    """One line of `/help`.

    Attributes:
        argument: how the help calls it, in brackets if it may be left out; "" if there is none.
        run: given the chat and the argument. Raises AgentKVError.
        aliases: further names.
    """

    name: str
    argument: str
    help: str
    run: Callable[[Talks, str], str | Explanation | None]
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


def run_command(talks: Talks, line: str) -> str | Explanation | None:
    """Run a line that begins with a slash; returns what it has to say, or None to end the chat.

    Raises:
        UnknownName: there is no such command.
        AgentKVError: its argument is missing or wrong; then nothing has changed.
    """
    name, _, argument = line.removeprefix("/").partition(" ")
    argument = argument.strip()
    command = _BY_NAME.get(name)
    if command is None:
        near = difflib.get_close_matches(name, _BY_NAME, n=2) or [known for known in _BY_NAME if known.startswith(name)]
        hint = f"did you mean {' or '.join(f'/{known}' for known in near)}?" if name and near else "/help lists them"
        raise UnknownName(f"unknown command /{name}; {hint}")
    if argument and not command.argument:
        raise AgentKVError(f"/{name} takes nothing after it, but there is {argument!r}")
    if not argument and command.argument and not command.argument.startswith("["):
        raise AgentKVError(f"{command.usage}: {command.help}")
    return command.run(talks, argument)


def _help(talks: Talks, argument: str) -> str:
    width = max(len(command.usage) for command in COMMANDS)
    return "\n".join(f"{command.usage:<{width}}  {command.help}" for command in COMMANDS)


def _policy(talks: Talks, name: str) -> str:
    return _now_under(talks, talks.keep_kv_by(name, _budget_of(talks.current)))


def _budget(talks: Talks, budget: str) -> str:
    wanted = None if budget == "none" else budget
    return _now_under(talks, talks.keep_kv_by(talks.current.settings.policy, wanted))


def _budget_of(talk: Talk) -> str | None:
    budget = talk.settings.budget
    return None if budget is None else str(budget)


def _now_under(talks: Talks, waiting: int) -> str:
    again = f"; the next reply reads its {waiting} tokens again" if waiting > 1 else ""
    return f"{under(talks.current)}{again}"


def under(talk: Talk) -> str:
    """A conversation's policy and budget in words."""
    budget = _budget_of(talk)
    return f"{talk.settings.policy}, {f'budget {budget}' if budget else 'no budget'}"


def _explain(talks: Talks, argument: str) -> Explanation:
    return talks.explain()


def _save(talks: Talks, file: str) -> str:
    path = Path(file).expanduser()
    talks.save(path)
    return f"saved to {path}, {path.stat().st_size / 2**20:.1f} MiB"


def _load(talks: Talks, file: str) -> str:
    talks.load(Path(file).expanduser())
    return f"session {_summary(talks, talks.current)}"


def _fork(talks: Talks, name: str) -> str:
    left = talks.current.name
    talks.fork(name)
    return f"session {name}, a copy of {left}; /session {left} goes back"


def _session(talks: Talks, name: str) -> str:
    if name:
        talks.go_to(name)
        return f"session {_summary(talks, talks.current)}"
    return "\n".join(f"{'*' if talk is talks.current else ' '} {_summary(talks, talk)}" for talk in talks)


def _summary(talks: Talks, talk: Talk) -> str:
    session = talks.live(talk)
    held = "nothing in the cache" if session is None else f"KV {session.kv.stats.resident_bytes / 2**20:.1f} MiB"
    return f"{talk.name}: {under(talk)}, {len(talk.turns)} messages, {held}"


def _quit(talks: Talks, argument: str) -> None:
    return None


COMMANDS = (
    Command("help", "", "show this", _help),
    Command("explain", "", "which text the cache still holds, and in what form", _explain, ("kv",)),
    Command("policy", "NAME", "go on under another KV policy", _policy),
    Command("budget", "B", "go on under another KV budget: 512, 24MiB, 25% or none", _budget),
    Command("fork", "NAME", "go on in a copy of this session", _fork),
    Command("session", "[NAME]", "list the sessions, or go to another", _session),
    Command("save", "FILE", "write the session and its conversation to a file", _save),
    Command("load", "FILE", "go on with the session of a file", _load),
    Command("quit", "", "end the chat, as Ctrl-D does", _quit),
)
_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}
