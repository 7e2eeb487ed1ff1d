"""`agentkv bench ppl`: teacher-forced perplexity of a long continuation under KV policies.

The start of a window is prefilled as the policy prefills; then every token of the text is fed by itself through the
decode path, so that eviction, quantisation and the model's confidence act exactly as they do in generation.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from agentkv.engine import Engine, Session
from agentkv.engine.reply import conclude_step
from agentkv_evals.bench_common import check_prefill, check_room, grid, mib, open_session, unequal_bytes
from agentkv_evals.bench_output import new_table, print_row, print_table, progress_bar
from agentkv_evals.bench_plot import Panel, check_plot_file, save_plot
from agentkv_evals.bench_text import Window, cut_windows, encode, leading_ids, read_text
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import Arm


@dataclass(frozen=True)
class PplOptions:
    """What to measure.

    Attributes:
        text: a UTF-8 file; its first tokens are used.
        policies: beside full KV, which is always measured.
        budgets: each applies to every policy but `full`.
        prompt_tokens: tokens of a window that are prefilled, and not scored.
        tokens: tokens of a window that are then fed one by one, and scored.
        windows: consecutive windows of the text, a new session each.
        prefill: how the first tokens of a window enter the cache: "chunked" or "whole".
        json: one JSON object per row instead of a table.
        plot: a file for a picture, .svg or .png.
    """

    text: Path | None = None
    model: str = "smollm2-135m"
    policies: tuple[str, ...] = ("streaming-llm", "h2o", "conf-kv")
    budgets: tuple[str, ...] = ("6MiB",)
    prompt_tokens: int = 512
    tokens: int = 512
    windows: int = 1
    prefill: str = "chunked"
    dtype: str = "auto"
    weights: str = "auto"
    json: bool = False
    plot: Path | None = None

    def __post_init__(self) -> None:
        check_prefill(self.prefill)
        if self.text is None:
            raise EvalError("bench ppl needs a text to score: give --text FILE; any UTF-8 file works")
        for flag, value in (("prompt-tokens", self.prompt_tokens), ("tokens", self.tokens), ("windows", self.windows)):
            if value < 1:
                raise EvalError(f"--{flag} must be at least 1, not {value}")


@dataclass(frozen=True)
class PplRow:
    """One arm, over all windows.

    Attributes:
        ppl: exp(nll).
        nll: mean negative log-likelihood of a scored token, in nats.
        nll_above_full: nll minus that of the full-KV baseline on the same tokens.
        nll_standard_error: of that difference, over tokens as if they were independent: a lower bound.
        tokens: scored tokens of all windows.
        kv_bytes: the most bytes ever resident, measured; prefill included.
        mean_kv_bytes: resident bytes, averaged over scored tokens.
    """

    policy: str
    budget: str | None
    ppl: float
    nll: float
    nll_above_full: float
    nll_standard_error: float
    tokens: int
    windows: int
    prompt_tokens: int
    prefill: str
    kv_bytes: int
    mean_kv_bytes: int
    bench: str = field(default="ppl")


@dataclass
class _Measured:
    """Of one arm: NLL and resident bytes per scored token, and the peak of all sessions."""

    nll: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    peak: int = 0


def score(engine: Engine, session: Session, window: Window) -> Iterator[float]:
    """NLL in nats of each token of the continuation, given all before it that the policy kept."""
    session.ledger.extend(window.prompt)
    for token in window.continuation:
        logits = engine.compute_waiting(session)
        assert logits is not None  # nothing cancels it
        nll, _ = conclude_step(session, logits, partial(_nll, token=token))
        session.ledger.append(token)
        yield nll


def _nll(logits: Tensor, token: int) -> Tensor:
    return -torch.log_softmax(logits.double(), dim=-1)[token]


def measure(
    engine: Engine, arms: Sequence[Arm], windows: Sequence[Window], prefill: str, token_done: Callable[[], None]
) -> Iterator[tuple[Arm, _Measured]]:
    """Score all windows under one arm after the other."""
    for arm in arms:
        measured = _Measured()
        for window in windows:
            with closing(open_session(engine, arm, prefill)) as session:
                for nll in score(engine, session, window):
                    measured.nll.append(nll)
                    measured.resident.append(session.stats.resident_bytes)
                    token_done()
                measured.peak = max(measured.peak, session.stats.peak_bytes)
        yield arm, measured


def _row(arm: Arm, measured: _Measured, full: _Measured, options: PplOptions) -> PplRow:
    nll = statistics.fmean(measured.nll)
    above = [ours - theirs for ours, theirs in zip(measured.nll, full.nll, strict=True)]
    spread = statistics.stdev(above) / math.sqrt(len(above)) if len(above) > 1 else 0.0
    return PplRow(
        policy=arm.policy,
        budget=arm.budget,
        ppl=round(math.exp(nll), 4),
        nll=round(nll, 6),
        nll_above_full=round(statistics.fmean(above), 6),
        nll_standard_error=round(spread, 6),
        tokens=len(measured.nll),
        windows=options.windows,
        prompt_tokens=options.prompt_tokens,
        prefill=options.prefill,
        kv_bytes=measured.peak,
        mean_kv_bytes=round(statistics.fmean(measured.resident)),
    )


def run(options: PplOptions) -> int:
    """Measure and print; returns the exit code.

    Raises:
        AgentKVError: a text that is missing or too short, an unknown policy, or any of the engine's refusals.
    """
    assert options.text is not None  # checked by the options
    text = read_text(options.text)
    arms = grid(options.policies, options.budgets)
    check_plot_file(options.plot)
    engine = Engine.load(options.model, dtype=options.dtype, weights=options.weights)
    leading = leading_ids(engine.tokenizer)
    needed = len(leading) + options.prompt_tokens + options.tokens
    check_room(engine, arms, needed, "lower --tokens or --prompt-tokens", options.prefill)
    windows = cut_windows(encode(engine.tokenizer, text), leading, options)
    rows: list[PplRow] = []
    with progress_bar("scoring", len(arms) * options.windows * options.tokens) as token_done:
        full: _Measured | None = None
        for arm, measured in measure(engine, arms, windows, options.prefill, token_done):
            full = full or measured
            rows.append(_row(arm, measured, full, options))
            if options.json:
                print_row(rows[-1])
    if not options.json:
        _print_table(rows, engine, options)
    if options.plot is not None:
        labels = tuple(Arm(row.policy, row.budget).label for row in rows)
        save_plot(options.plot, [Panel("", labels, tuple(row.ppl for row in rows))], "perplexity", options.text.name)
    return 0


def _print_table(rows: list[PplRow], engine: Engine, options: PplOptions) -> None:
    assert options.text is not None
    table = new_table(
        f"perplexity of {options.text.name}, {options.model}, {engine.layout.dtype}, {options.windows} × "
        f"{options.tokens} tokens after {options.prompt_tokens}, {options.prefill} prefill",
        ("policy", "budget"),
        ("perplexity", "NLL", "NLL above full", "peak KV MiB", "mean KV MiB"),
    )
    for row in rows:
        table.add_row(
            row.policy, row.budget or "–", f"{row.ppl:.3f}", f"{row.nll:.4f}",
            f"{row.nll_above_full:+.4f} ± {row.nll_standard_error:.4f}" if row.budget else "–",
            mib(row.kv_bytes), mib(row.mean_kv_bytes),
        )  # fmt: skip
    table.caption = "\n".join(unequal_bytes(rows)) or None
    print_table(table)
