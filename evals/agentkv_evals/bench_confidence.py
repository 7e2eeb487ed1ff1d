"""`agentkv bench confidence`: does the model's confidence say how much the recent context matters?

At every scored position of a text the newest token is computed twice: with everything before it in the cache, and
without the K tokens just before it. CONF-KV (arXiv 2605.24786) rests on the claim that the two distributions differ
less the more confident the model is, and reports Pearson r(c, KL) = −0.77 for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from agentkv.engine import Engine, Session
from agentkv.policies.confidence import confidence
from agentkv_evals.bench_common import check_room
from agentkv_evals.bench_output import new_table, print_row, print_table, progress_bar
from agentkv_evals.bench_plot import check_plot_file, save_scatter
from agentkv_evals.bench_text import Window, cut_windows, encode, leading_ids, read_text
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import REFERENCE_POLICY, Arm

PAPER_R = -0.77
BLOCK = 32
"""Neighbouring positions resemble each other: so many in a row are drawn together by the bootstrap."""
_RESAMPLES = 2000
_GROUPS = 5
_LEAST_KL = 1e-6
"""Smaller values are drawn there: the plot's axis is logarithmic."""


@dataclass(frozen=True)
class ConfidenceOptions:
    """What to measure.

    Attributes:
        text: a UTF-8 file; its first tokens are used.
        prompt_tokens: tokens of a window that are prefilled, and not scored.
        tokens: positions of a window that are then scored.
        windows: consecutive windows of the text.
        ablate: K, how many tokens just before the newest one are taken away.
        json: one JSON object instead of a table.
        plot: a file for a picture, .svg or .png.
    """

    text: Path | None = None
    model: str = "smollm2-135m"
    prompt_tokens: int = 256
    tokens: int = 256
    windows: int = 2
    ablate: int = 64
    dtype: str = "auto"
    weights: str = "auto"
    json: bool = False
    plot: Path | None = None

    def __post_init__(self) -> None:
        if self.text is None:
            raise EvalError("bench confidence needs a text: give --text FILE; any UTF-8 file works")
        if self.windows < 1 or self.ablate < 1:
            raise EvalError("--windows and --ablate must be at least 1")
        if self.prompt_tokens < self.ablate + 2:
            raise EvalError(
                f"--ablate {self.ablate} needs at least {self.ablate + 2} --prompt-tokens, so that something is left"
            )
        if self.tokens < 2 * BLOCK:
            raise EvalError(f"--tokens must be at least {2 * BLOCK}: the interval comes from blocks of {BLOCK}")


@dataclass(frozen=True)
class Fifth:
    """A fifth of all positions, by confidence: how many, and means."""

    n: int
    confidence: float
    kl: float


@dataclass(frozen=True)
class ConfidenceRow:
    """All windows.

    Attributes:
        r: Pearson correlation of confidence and KL; NaN is written as None.
        r_low, r_high: its 95% interval, from a bootstrap over blocks of `BLOCK` neighbouring positions.
        n: positions.
        ablated_tokens: K.
        mean_kl: KL(full || ablated) of the next-token distribution, nats.
        kl_by_confidence: the same by fifths, least confident first.
    """

    model: str
    r: float | None
    r_low: float | None
    r_high: float | None
    n: int
    ablated_tokens: int
    mean_kl: float
    kl_by_confidence: tuple[Fifth, ...]
    windows: int
    prompt_tokens: int
    bench: str = field(default="confidence")


def ablated_logits(engine: Engine, session: Session, start: int, end: int) -> Tensor:
    """Logits [V] after the session's waiting tokens, computed as if attention to start ≤ index < end were masked.

    The session stays as it is: a fork is computed.
    """
    with closing(engine.fork_session(session)) as fork:
        fork.drop_span(start, end)
        return _computed(engine, fork)


def _computed(engine: Engine, session: Session) -> Tensor:
    logits = engine.compute_waiting(session)
    assert logits is not None  # nothing cancels it
    return logits


def score(engine: Engine, window: Window, ablate: int) -> Iterator[tuple[float, float]]:
    """Confidence with the whole context, and KL(full || ablated) in nats, once per token of the continuation."""
    with closing(engine.open_session(REFERENCE_POLICY)) as session:
        session.ledger.extend(window.prompt[:-1])
        engine.compute_waiting(session)
        # The last token of the text predicts nothing that is in the text.
        for newest in [window.prompt[-1], *window.continuation[:-1]]:
            session.ledger.append(newest)
            end = session.logical_length
            ablated = ablated_logits(engine, session, end - ablate, end)
            full = _computed(engine, session)
            yield float(confidence(full)), _kl(full, ablated)


def _kl(p: Tensor, q: Tensor) -> float:
    """KL(p || q) in nats of two distributions, from logits [V]."""
    log_p, log_q = torch.log_softmax(p.double(), dim=-1), torch.log_softmax(q.double(), dim=-1)
    return float((log_p.exp() * (log_p - log_q)).sum())


def measure(
    engine: Engine, windows: Sequence[Window], ablate: int, token_done: Callable[[], None]
) -> list[list[tuple[float, float]]]:
    """(confidence, KL) of every scored position, window by window."""
    scored: list[list[tuple[float, float]]] = [[] for _ in windows]
    for window, pairs in zip(windows, scored, strict=True):
        for pair in score(engine, window, ablate):
            pairs.append(pair)
            token_done()
    return scored


def pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    """Pearson's r, or None where one of them does not vary."""
    if min(x.std(), y.std()) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def block_interval(blocks: Sequence[np.ndarray]) -> tuple[float | None, float | None]:
    """95% percentile interval of Pearson's r over blocks [n, 2] drawn with replacement, repeatable."""
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(_RESAMPLES):
        sample = np.concatenate([blocks[at] for at in generator.integers(len(blocks), size=len(blocks))])
        r = pearson(sample[:, 0], sample[:, 1])
        if r is not None:
            drawn.append(r)
    if not drawn:
        return None, None
    low, high = np.percentile(drawn, [2.5, 97.5])
    return round(float(low), 4), round(float(high), 4)


def summarize(scored: Sequence[Sequence[tuple[float, float]]], options: ConfidenceOptions) -> ConfidenceRow:
    """The row of all windows."""
    windows = [np.array(window) for window in scored]
    # A block never spans two windows; what is left over at a window's end belongs to its last block.
    blocks = [part for window in windows for part in np.array_split(window, len(window) // BLOCK)]
    pairs = np.concatenate(windows)
    r = pearson(pairs[:, 0], pairs[:, 1])
    low, high = block_interval(blocks)
    by_confidence = pairs[pairs[:, 0].argsort(kind="stable")]
    fifths = [
        Fifth(len(part), round(float(part[:, 0].mean()), 4), round(float(part[:, 1].mean()), 6))
        for part in np.array_split(by_confidence, _GROUPS)
    ]
    return ConfidenceRow(
        model=options.model,
        r=None if r is None else round(r, 4),
        r_low=low,
        r_high=high,
        n=len(pairs),
        ablated_tokens=options.ablate,
        mean_kl=round(float(pairs[:, 1].mean()), 6),
        kl_by_confidence=tuple(fifths),
        windows=options.windows,
        prompt_tokens=options.prompt_tokens,
    )


def run(options: ConfidenceOptions) -> int:
    """Measure and print; returns the exit code.

    Raises:
        AgentKVError: a text that is missing or too short, or any of the engine's refusals.
    """
    assert options.text is not None  # checked by the options
    text = read_text(options.text)
    check_plot_file(options.plot)
    engine = Engine.load(options.model, dtype=options.dtype, weights=options.weights)
    leading = leading_ids(engine.tokenizer)
    needed = len(leading) + options.prompt_tokens + options.tokens
    check_room(engine, [Arm(REFERENCE_POLICY)], needed, "lower --tokens or --prompt-tokens")
    windows = cut_windows(encode(engine.tokenizer, text), leading, options)
    with progress_bar("scoring", options.windows * options.tokens) as token_done:
        scored = measure(engine, windows, options.ablate, token_done)
    row = summarize(scored, options)
    if options.json:
        print_row(row)
    else:
        _print_table(row, engine, options)
    if options.plot is not None:
        _plot(options.plot, scored, row)
    return 0


def _r(row: ConfidenceRow) -> str:
    if row.r is None or row.r_low is None:
        return "r is undefined: confidence or KL does not vary"
    return f"r = {row.r:+.2f} (95%: {row.r_low:+.2f} to {row.r_high:+.2f})"


def _print_table(row: ConfidenceRow, engine: Engine, options: ConfidenceOptions) -> None:
    assert options.text is not None
    table = new_table(
        f"confidence, and KL(full || ablated) without the last {row.ablated_tokens} tokens: {options.text.name}, "
        f"{row.model}, {engine.layout.dtype}, {row.windows} × {options.tokens} positions after {row.prompt_tokens}",
        ("fifth of positions",),
        ("n", "mean confidence", "mean KL, nats"),
    )
    for number, fifth in enumerate(row.kl_by_confidence, start=1):
        name = {1: "1 (least confident)", _GROUPS: f"{_GROUPS} (most confident)"}.get(number, str(number))
        table.add_row(name, str(fifth.n), f"{fifth.confidence:.3f}", f"{fifth.kl:.4f}", end_section=number == _GROUPS)
    table.add_row("all", str(row.n), "", f"{row.mean_kl:.4f}")
    table.caption = f"Pearson {_r(row)}; CONF-KV's paper reports {PAPER_R:+.2f} on its models."
    print_table(table)


def _plot(path: Path, scored: Sequence[Sequence[tuple[float, float]]], row: ConfidenceRow) -> None:
    points = [(felt, max(kl, _LEAST_KL)) for window in scored for felt, kl in window]
    means = [(fifth.confidence, max(fifth.kl, _LEAST_KL)) for fifth in row.kl_by_confidence]
    y_name = f"KL without the last {row.ablated_tokens} tokens, nats"
    save_scatter(path, points, means, "confidence", y_name, f"{row.model}: {_r(row)}, n = {row.n}")
