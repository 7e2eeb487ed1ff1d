"""The plain turns of a conversation, as a chat template renders them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentkv.tools import Dialect, Tool, ToolCall
from agentkv.tools.dialect import describe_schema
from agentkv.tools.form import ReplyForm


@dataclass(frozen=True)
class Turn:
    """One message as the model sees it.

    Attributes:
        role: "system", "user", "assistant", "tool", or another that the template knows.
        calls: of tools, by the assistant.
        name: of the tool whose result this is.
        call_id: of the call whose result this is. Turns are equal whatever their ids.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    name: str | None = field(default=None, compare=False)
    call_id: str | None = field(default=None, compare=False)

    @property
    def characters(self) -> int:
        """About how much text it is."""
        return len(self.content) + sum(len(call.name) + len(str(call.arguments)) for call in self.calls)

    def says_the_same(self, other: Turn) -> bool:
        """Whether both are one message. Callers trim replies, and templates do; blanks around one mean nothing."""
        if self.role != other.role or self.calls != other.calls:
            return False
        if self.role == "assistant":
            return self.content.strip() == other.content.strip()
        return self.content == other.content


def common_turns(first: Sequence[Turn], second: Sequence[Turn]) -> int:
    """How many turns both conversations begin with."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if not a.says_the_same(b)), min(len(first), len(second)))


def roles_of(turns: Sequence[Turn]) -> tuple[str, ...]:
    """Whose words each turn is, as policies know roles: "system", "task", "observation" or "action".

    The first message that is neither a system message nor the model's is the task; what comes after, tool results
    included, is observed.
    """
    roles: list[str] = []
    for turn in turns:
        known = {"system": "system", "developer": "system", "assistant": "action"}.get(turn.role)
        roles.append(known or ("observation" if "task" in roles else "task"))
    return tuple(roles)


def with_tools(turns: Sequence[Turn], tools: Sequence[Tool], dialect: Dialect) -> tuple[Turn, ...]:
    """Turns that tell the model of its tools: in the system message, unless its template does that itself."""
    if not tools or dialect.native:
        return tuple(turns)
    told = dialect.describe(tools)
    if turns and turns[0].role in ("system", "developer"):
        return (replace(turns[0], content=f"{turns[0].content}\n\n{told}"), *turns[1:])
    return (Turn("system", told), *turns)


def with_hint(turns: Sequence[Turn], form: ReplyForm) -> tuple[Turn, ...]:
    """Turns whose last one asks for the form of the reply. Only rendered so: the conversation stays what it is."""
    if form.schema is None or not form.hint:
        return tuple(turns)
    last = turns[-1]
    return (*turns[:-1], replace(last, content=f"{last.content}\n\n{describe_schema(form.schema)}"))


def as_text(turn: Turn, dialect: Dialect) -> Turn:
    """A turn without calls and results, for a template that knows neither."""
    if turn.role == "tool":
        return Turn("user", dialect.write_result(turn.content))
    if turn.calls:
        before = f"{turn.content.rstrip()}\n" if turn.content.strip() else ""
        return Turn(turn.role, before + dialect.write(turn.calls))
    return turn
