"""Which text a session's cache still holds, and in what form."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from agentkv.cache import edits

if TYPE_CHECKING:
    from rich.text import Text

    from agentkv.engine.session import Session


class TokenState(StrEnum):
    """What became of a token's keys and values."""

    KEPT = "kept"
    """Every head holds it in the model's dtype."""
    QUANTIZED = "quantized"
    """Every head holds it, some or all of them quantised."""
    PARTLY = "partly kept"
    """Some heads hold it."""
    EVICTED = "evicted"
    """No head holds it: the policy gave it up."""
    DROPPED = "dropped"
    """No head holds it: :meth:`Session.drop_span` took it out."""
    WAITING = "waiting"
    """It is computed with the next call."""


_STYLES = {
    TokenState.KEPT: "bold",
    TokenState.QUANTIZED: "cyan",
    TokenState.PARTLY: "yellow",
    TokenState.EVICTED: "dim",
    TokenState.DROPPED: "dim strike",
    TokenState.WAITING: "italic",
}
_TEXT_WIDTH = 60
"""Characters of a span's text in :meth:`Explanation.to_text`."""


@dataclass(frozen=True)
class ExplainedSpan:
    """Neighbouring tokens start ≤ index < end in one state, of one role.

    Attributes:
        start, end: in the ledger.
        state: of every one of them.
        role: whose words they are, "" if nobody said.
        fp, quantized, dropped: mean share of the heads that hold them in the model's dtype, quantised, or not at all.
        text: what they read, "" without a tokenizer.
    """

    start: int
    end: int
    state: TokenState
    role: str
    fp: float
    quantized: float
    dropped: float
    text: str


@dataclass(frozen=True)
class Explanation:
    """What a session holds of its ledger. Heads are those of the layers that the policy manages.

    Attributes:
        policy: its name.
        tokens: in the ledger.
        fp, quantized: per token of the ledger the share of heads that hold it in the model's dtype, and quantised.
        spans: the same by spans, in order.
    """

    policy: str
    tokens: int
    fp: tuple[float, ...]
    quantized: tuple[float, ...]
    spans: tuple[ExplainedSpan, ...]

    def count(self, state: TokenState) -> int:
        """Tokens in a state."""
        return sum(span.end - span.start for span in self.spans if span.state is state)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    def to_text(self) -> str:
        """One line per span: tokens, state, share of heads that hold them, role, text."""
        lines = [self._summary()]
        for span in self.spans:
            text = repr(span.text) if span.text else ""
            if len(text) > _TEXT_WIDTH:
                text = f"{text[: _TEXT_WIDTH // 2]} … {text[-_TEXT_WIDTH // 2 :]}"
            held = f"{100 * (1 - span.dropped):.0f}%"
            where = f"{span.start}–{span.end - 1}"
            lines.append(f"{where:>13}  {span.state:<11}  {held:>4}  {span.role:<11}  {text}".rstrip())
        return "\n".join(lines)

    def __rich__(self) -> Text:
        """The text itself, coloured by state; without a tokenizer the lines of :meth:`to_text`."""
        from rich.text import Text

        if not any(span.text for span in self.spans):
            return Text(self.to_text())
        present = [state for state in TokenState if self.count(state)]
        out = Text(f"{self._summary()}\n")
        out.append_text(Text("  ").join(Text(state.value, style=_STYLES[state]) for state in present))
        out.append("\n\n")
        for span in self.spans:
            out.append(span.text, style=_STYLES[span.state])
        return out

    def _summary(self) -> str:
        counted = ((state, self.count(state)) for state in TokenState)
        parts = ", ".join(f"{number} {state}" for state, number in counted if number)
        return f"policy {self.policy}, {self.tokens} tokens: {parts or 'none yet'}"


def explain(session: Session, tokenizer: Any = None) -> Explanation:
    """What the session holds of its ledger; the caller has the session to itself."""
    cache, length = session.cache, session.logical_length
    waiting = np.zeros(len(session.ledger) - length)
    fp, quantized = (np.concatenate([share, waiting]) for share in edits.share_of_heads(cache))
    states = [_state(a, b) for a, b in zip(fp[:length], quantized[:length], strict=True)]
    for start, end in cache.facts.dropped:
        states[start:end] = [TokenState.DROPPED] * (end - start)
    states += [TokenState.WAITING] * len(waiting)
    roles = [""] * len(session.ledger)
    for span in cache.facts.spans:
        roles[span.start : span.end] = [span.role.value] * (min(span.end, len(roles)) - span.start)
    spans = []
    for start, end in _runs(list(zip(states, roles, strict=True))):
        text = "" if tokenizer is None else tokenizer.decode(session.ledger[start:end], skip_special_tokens=False)
        whole, coded = float(fp[start:end].mean()), float(quantized[start:end].mean())
        gone = max(0.0, 1 - whole - coded)
        spans.append(ExplainedSpan(start, end, states[start], roles[start], whole, coded, gone, text))
    return Explanation(
        session.policy.name, len(session.ledger), tuple(fp.tolist()), tuple(quantized.tolist()), tuple(spans)
    )


def _state(fp: float, quantized: float) -> TokenState:
    if fp + quantized == 0:
        return TokenState.EVICTED
    if fp + quantized < 1 - 1e-9:
        return TokenState.PARTLY
    return TokenState.KEPT if quantized == 0 else TokenState.QUANTIZED


def _runs(values: list[Any]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of equal neighbours."""
    start = 0
    for _, group in itertools.groupby(values):
        end = start + len(list(group))
        yield start, end
        start = end
