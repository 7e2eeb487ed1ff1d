"""`agentkv bench throughput`: tokens per second when several sessions are decoded together.

All batches of all policies take turns, one token for every session of a batch each, so that whatever else the machine
does falls on all of them alike: read the ratios.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import torch

from agentkv.engine import Engine, Session
from agentkv_evals.bench_common import check_room, grid, mib
from agentkv_evals.bench_output import new_table, print_row, print_table, progress_bar
from agentkv_evals.bench_plot import Curve, check_plot_file, save_curves
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import REFERENCE_POLICY, Arm

_WARM_UP = 1
"""Steps before the clock counts: the first one after a prefill makes room."""


@dataclass(frozen=True)
class ThroughputOptions:
    """What to measure.

    Attributes:
        policies: beside full KV, which is always measured.
        budgets: of each session; each applies to every policy but `full`.
        batches: sessions decoded together.
        length: random tokens in each session before decoding.
        steps: tokens decoded and timed per session.
        json: one JSON object per row instead of a table.
        plot: a file for a picture, .svg or .png.
    """

    model: str = "smollm2-135m"
    policies: tuple[str, ...] = ("conf-kv",)
    budgets: tuple[str, ...] = ("6MiB",)
    batches: tuple[int, ...] = (1, 8)
    length: int = 1024
    steps: int = 32
    dtype: str = "auto"
    weights: str = "auto"
    json: bool = False
    plot: Path | None = None

    def __post_init__(self) -> None:
        if min(*self.batches, self.length, self.steps) < 1:
            raise EvalError("--batch, --length and --steps must be at least 1")


@dataclass(frozen=True)
class ThroughputRow:
    """One batch of one arm.

    Attributes:
        tokens_per_s: of all its sessions, at the median step.
        ms_step_median: a step is one token for every session.
        step_ratio_to_full: ms_step_median over that of full KV with the same batch.
        speedup_over_one: tokens_per_s over that of the same arm with batch 1; None if that was not measured.
        kv_bytes: resident in all its sessions at the end.
        load_average: of the last minute, at the end.
    """

    policy: str
    budget: str | None
    batch: int
    logical_length: int
    tokens_per_s: float
    ms_step_median: float
    step_ratio_to_full: float
    speedup_over_one: float | None
    kv_bytes: int
    load_average: float
    bench: str = field(default="throughput")


class Batch:
    """Sessions of one arm that are decoded together, greedily."""

    def __init__(self, engine: Engine, arm: Arm, sessions: Sequence[Session]):
        self.arm = arm
        self.times: list[float] = []
        """Milliseconds per step."""
        self._engine = engine
        self._sessions = sessions
        self._last: list[int] = []

    @property
    def size(self) -> int:
        return len(self._sessions)

    @property
    def kv_bytes(self) -> int:
        """Resident in all sessions now."""
        return sum(session.stats.resident_bytes for session in self._sessions)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute all but the last token of each prompt."""
        for session, prompt in zip(self._sessions, prompts, strict=True):
            session.ledger.extend(prompt[:-1])
            self._engine.compute_waiting(session)
        self._last = [prompt[-1] for prompt in prompts]

    def step(self) -> None:
        """One token for every session, timed."""
        started = time.perf_counter()
        logits = self._engine.decode_batch(self._sessions, self._last)
        self._last = logits.argmax(-1).tolist()
        self.times.append(1e3 * (time.perf_counter() - started))


def random_prompts(count: int, length: int, vocabulary: int) -> list[list[int]]:
    """Different prompts of random token ids, each time the same."""
    generator = torch.Generator().manual_seed(0)
    ids: list[list[int]] = torch.randint(vocabulary, (count, length), generator=generator).tolist()
    return ids


def measure(batches: Sequence[Batch], steps: int, step_done: Callable[[], None]) -> None:
    """Decode all batches in turns, step by step."""
    for _ in range(_WARM_UP + steps):
        for batch in batches:
            batch.step()
        step_done()
    for batch in batches:
        del batch.times[:_WARM_UP]


def make_rows(batches: Sequence[Batch], length: int, load_average: float) -> list[ThroughputRow]:
    """Rows in the order of the batches."""
    step = {(batch.arm, batch.size): statistics.median(batch.times) for batch in batches}

    def row(batch: Batch) -> ThroughputRow:
        median = step[batch.arm, batch.size]
        one = step.get((batch.arm, 1))
        return ThroughputRow(
            policy=batch.arm.policy,
            budget=batch.arm.budget,
            batch=batch.size,
            logical_length=length,
            tokens_per_s=round(1e3 * batch.size / median, 2),
            ms_step_median=round(median, 2),
            step_ratio_to_full=round(median / step[Arm(REFERENCE_POLICY), batch.size], 4),
            speedup_over_one=None if one is None else round(batch.size * one / median, 4),
            kv_bytes=batch.kv_bytes,
            load_average=round(load_average, 2),
        )

    return [row(batch) for batch in batches]


def run(options: ThroughputOptions) -> int:
    """Measure and print; returns the exit code.

    Raises:
        AgentKVError: a length the model cannot reach, sessions that the KV pool cannot hold, or any of the engine's
            other refusals.
    """
    arms = grid(options.policies, options.budgets)
    check_plot_file(options.plot)
    engine = Engine.load(options.model, dtype=options.dtype, weights=options.weights)
    end = options.length + _WARM_UP + options.steps
    check_room(engine, arms, end, "lower --length or --steps")
    sizes = sorted(set(options.batches))
    prompts = random_prompts(max(sizes), options.length, len(engine.tokenizer))
    with ExitStack() as opened:
        batches = [
            Batch(
                engine,
                arm,
                [opened.enter_context(closing(engine.open_session(arm.policy, arm.budget))) for _ in range(size)],
            )
            for size in sizes
            for arm in arms
        ]
        with progress_bar("prefilling and decoding", len(batches) + _WARM_UP + options.steps) as step_done:
            for batch in batches:
                batch.prefill(prompts[: batch.size])
                step_done()
            measure(batches, options.steps, step_done)
        rows = make_rows(batches, end, os.getloadavg()[0])
    if options.json:
        for row in rows:
            print_row(row)
    else:
        _print_table(rows, engine, options)
    if options.plot is not None:
        title = f"decode, {options.model}, {options.length:,} tokens in each session"
        save_curves(options.plot, _curves(rows), "sessions in a batch", "tokens per second", title)
    return 0


def _curves(rows: Sequence[ThroughputRow]) -> list[Curve]:
    """Tokens per second over batches, one curve per arm."""
    curves: dict[str, list[ThroughputRow]] = {}
    for row in rows:
        curves.setdefault(Arm(row.policy, row.budget).label, []).append(row)
    return [
        Curve(label, tuple(row.batch for row in points), tuple(row.tokens_per_s for row in points))
        for label, points in curves.items()
    ]


def _print_table(rows: list[ThroughputRow], engine: Engine, options: ThroughputOptions) -> None:
    table = new_table(
        f"decoding together, {options.model}, {engine.layout.dtype}, {torch.get_num_threads()} threads, "
        f"{options.steps} steps after {options.length} tokens each, load {rows[-1].load_average}",
        ("batch", "policy", "budget"),
        ("tokens/s", "ms per step", "/ full", "tokens/s over batch 1", "KV MiB"),
    )
    for at, row in enumerate(rows):
        table.add_row(
            str(row.batch), row.policy, row.budget or "–",
            f"{row.tokens_per_s:.1f}", f"{row.ms_step_median:.1f}", f"{row.step_ratio_to_full:.2f}",
            "–" if row.speedup_over_one is None else f"{row.speedup_over_one:.2f}",
            mib(row.kv_bytes),
            end_section=at + 1 == len(rows) or rows[at + 1].batch != row.batch,
        )  # fmt: skip
    print_table(table)
