"""`agentkv bench latency`: milliseconds per decoded token at growing lengths, beside transformers' own cache.

All implementations decode in turns, one token each, so that whatever else the machine does falls on all of them alike:
read the ratios, not the milliseconds.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import DynamicCache

from agentkv.cache.adapter import cache_keyword
from agentkv.engine import Engine, SamplingParams
from agentkv.engine.merging import plain_model
from agentkv.errors import AgentKVError
from agentkv.models import resolve_model
from agentkv_evals.bench_common import every_arm, mib
from agentkv_evals.bench_output import new_table, print_row, print_table, progress_bar
from agentkv_evals.bench_plot import Curve, check_plot_file, save_curves
from agentkv_evals.plan import Arm

_CHUNK = 256


@dataclass(frozen=True)
class LatencyOptions:
    """What to measure.

    Attributes:
        policies: KV policies; every budget applies to all of them but `full`.
        budgets: as `--budget`.
        lengths: logical tokens at the end of each measurement, the one chosen last included.
        steps: tokens decoded and timed per measurement.
        json: one JSON object per row instead of a table.
        plot: a file for a picture, .svg or .png.
    """

    model: str = "smollm2-135m"
    policies: tuple[str, ...] = ("full", "conf-kv")
    budgets: tuple[str, ...] = ("512",)
    lengths: tuple[int, ...] = (256, 1024, 4096, 8192)
    steps: int = 32
    dtype: str = "auto"
    weights: str = "auto"
    json: bool = False
    plot: Path | None = None


@dataclass(frozen=True)
class LatencyRow:
    """One measurement. `kv_bytes`: resident at its end. `load_average`: of the last minute, at its end."""

    impl: str
    policy: str
    budget: str | None
    logical_length: int
    ms_median: float
    ms_min: float
    kv_bytes: int
    load_average: float
    batch: int = 1
    bench: str = field(default="latency")


class Decoder(Protocol):
    """An implementation under measurement: extend the context, then decode token by token."""

    @property
    def impl(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def budget(self) -> str | None: ...

    def extend(self, ids: list[int]) -> None:
        """Run what the last decoding left over, then these tokens."""
        ...

    def decode(self, first: int, steps: int) -> Iterator[None]:
        """Run `first`, then greedily chosen tokens: one forward pass per item. The last choice is left over."""
        ...

    def kv_bytes(self) -> int: ...


class OurDecoder:
    """A session of the engine."""

    impl = "agentkv"

    def __init__(self, engine: Engine, policy: str, budget: str | None):
        self.policy, self.budget = policy, budget
        self._engine = engine
        self._session = engine.open_session(policy, budget)

    def extend(self, ids: list[int]) -> None:
        self._session.ledger.extend(ids)
        self._engine.compute_waiting(self._session)

    def decode(self, first: int, steps: int) -> Iterator[None]:
        params = SamplingParams(max_tokens=steps, min_tokens=steps)
        for _ in self._engine.generate(self._session, [first], params):
            yield

    def kv_bytes(self) -> int:
        return self._session.stats.resident_bytes


class TransformersDecoder:
    """The same weights with transformers' DynamicCache and default attention, in a plain greedy loop."""

    impl, policy, budget = "transformers", "full", None

    def __init__(self, engine: Engine, source: str):
        self._model = plain_model(source, dtype=engine.layout.dtype)
        self._cache = DynamicCache(config=self._model.config)
        self._left_over: list[int] = []

    @torch.inference_mode()
    def _forward(self, ids: list[int]) -> torch.Tensor:
        arguments: dict[str, Any] = {cache_keyword(self._model): self._cache}
        out = self._model(torch.tensor([ids]), use_cache=True, logits_to_keep=1, **arguments)
        logits: torch.Tensor = out.logits[0, -1]
        return logits

    def extend(self, ids: list[int]) -> None:
        ids = self._left_over + ids
        for start in range(0, len(ids), _CHUNK):
            self._forward(ids[start : start + _CHUNK])

    def decode(self, first: int, steps: int) -> Iterator[None]:
        token = first
        for _ in range(steps):
            token = int(self._forward([token]).argmax())
            yield
        self._left_over = [token]

    def kv_bytes(self) -> int:
        layers: list[Any] = self._cache.layers
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)


def measure(decoders: list[Decoder], lengths: list[int], steps: int, vocabulary: int) -> Iterator[list[LatencyRow]]:
    """Grow all contexts together and time them in turns; yields the rows of one length at a time."""
    generator = torch.Generator().manual_seed(0)
    seen = 0
    for length in lengths:
        ids = torch.randint(vocabulary, (length - steps - seen,), generator=generator).tolist()
        for decoder in decoders:
            decoder.extend(ids[:-1])
        running = [decoder.decode(ids[-1], steps) for decoder in decoders]
        times: list[list[float]] = [[] for _ in decoders]
        for _ in range(steps):
            for stream, spent in zip(running, times, strict=True):
                started = time.perf_counter()
                next(stream)
                spent.append(1e3 * (time.perf_counter() - started))
        for stream in running:
            next(stream, None)
        seen = length
        load = os.getloadavg()[0]
        yield [_row(decoder, length, spent, load) for decoder, spent in zip(decoders, times, strict=True)]


def _row(decoder: Decoder, length: int, spent: list[float], load: float) -> LatencyRow:
    return LatencyRow(
        impl=decoder.impl,
        policy=decoder.policy,
        budget=decoder.budget,
        logical_length=length,
        ms_median=round(statistics.median(spent), 2),
        ms_min=round(min(spent), 2),
        kv_bytes=decoder.kv_bytes(),
        load_average=round(load, 2),
    )


def run(options: LatencyOptions) -> int:
    """Measure and print; returns the exit code.

    Raises:
        AgentKVError: a length the model cannot reach, or any of the engine's refusals.
    """
    arms = every_arm(options.policies, options.budgets)
    check_plot_file(options.plot)
    engine = Engine.load(options.model, dtype=options.dtype, weights=options.weights)
    lengths = sorted(set(options.lengths))
    _check_lengths(lengths, options.steps, engine.context_window)
    decoders: list[Decoder] = [TransformersDecoder(engine, str(resolve_model(options.model)))]
    decoders.extend(OurDecoder(engine, arm.policy, arm.budget) for arm in arms)
    vocabulary = len(engine.tokenizer)
    rows: list[LatencyRow] = []
    with progress_bar("measuring", len(lengths)) as length_done:
        for measured in measure(decoders, lengths, options.steps, vocabulary):
            rows.extend(measured)
            length_done()
            if options.json:
                for row in measured:
                    print_row(row)
    if not options.json:
        _print_table(rows, engine, options)
    if options.plot is not None:
        save_curves(options.plot, _curves(rows), "tokens in context", "ms per token", f"decode, {options.model}")
    return 0


def _curves(rows: list[LatencyRow]) -> list[Curve]:
    """Medians over lengths, one curve per implementation, policy and budget."""
    curves: dict[str, list[LatencyRow]] = {}
    for row in rows:
        arm = Arm(row.policy, row.budget).label
        curves.setdefault(arm if row.impl == OurDecoder.impl else row.impl, []).append(row)
    return [
        Curve(label, tuple(row.logical_length for row in points), tuple(row.ms_median for row in points))
        for label, points in curves.items()
    ]


def _check_lengths(lengths: list[int], steps: int, window: int) -> None:
    if lengths[-1] > window:
        raise AgentKVError(f"length {lengths[-1]} is beyond the model's window of {window} tokens")
    for before, length in zip([0, *lengths], lengths, strict=False):
        if length - before <= steps:
            raise AgentKVError(
                f"length {length} leaves no room for {steps} decoded tokens after {before}; lower --steps or raise it"
            )


def _print_table(rows: list[LatencyRow], engine: Engine, options: LatencyOptions) -> None:
    """Milliseconds, with the ratio to transformers and to our own full cache at the same length."""
    peer = {row.logical_length: row.ms_median for row in rows if row.impl == "transformers"}
    full = {row.logical_length: row.ms_median for row in rows if row.impl == "agentkv" and row.policy == "full"}
    table = new_table(
        f"decode, {options.model}, {engine.layout.dtype}, {torch.get_num_threads()} threads, "
        f"{options.steps} tokens each, load {rows[-1].load_average}",
        ("tokens", "cache of", "policy", "budget"),
        ("ms median", "ms min", "/ transformers", "/ our full", "KV MiB"),
    )
    for row in rows:
        table.add_row(
            str(row.logical_length), row.impl, row.policy, row.budget or "–",
            f"{row.ms_median:.1f}", f"{row.ms_min:.1f}",
            f"{row.ms_median / peer[row.logical_length]:.2f}",
            f"{row.ms_median / full[row.logical_length]:.2f}" if row.logical_length in full else "–",
            mib(row.kv_bytes),
            end_section=row is rows[-1] or row.logical_length != rows[rows.index(row) + 1].logical_length,
        )  # fmt: skip
    print_table(table)
