"""`agentkv bench trace`: the memory of one generation, step by step."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean

from agentkv.engine import Engine, SamplingParams
from agentkv_evals.bench_common import MIB, check_room, every_arm, mib
from agentkv_evals.bench_output import new_table, print_row, print_table, progress_bar
from agentkv_evals.bench_plot import Trace, check_plot_file, save_traces
from agentkv_evals.bench_text import encode, leading_ids, read_text
from agentkv_evals.errors import EvalError
from agentkv_evals.niah_kinds import plain_sentences
from agentkv_evals.plan import Arm


@dataclass(frozen=True)
class TraceOptions:
    """What to record.

    Attributes:
        policies: KV policies.
        budgets: each applies to every policy but `full`.
        prompt_tokens: tokens that are prefilled.
        steps: tokens decoded after them.
        text: a UTF-8 file whose first tokens are the prompt; None for sentences made up.
        temperature: 0 is greedy.
        seed: of the sampling, and of a made-up prompt.
        json: one JSON object per step instead of a table.
        plot: a file for a picture, .svg or .png.
    """

    text: Path | None = None
    model: str = "smollm2-135m"
    policies: tuple[str, ...] = ("conf-kv",)
    budgets: tuple[str, ...] = ("6MiB",)
    prompt_tokens: int = 512
    steps: int = 400
    temperature: float = 1.0
    seed: int = 0
    dtype: str = "auto"
    weights: str = "auto"
    json: bool = False
    plot: Path | None = None

    def __post_init__(self) -> None:
        if min(self.prompt_tokens, self.steps) < 1:
            raise EvalError("--prompt-tokens and --steps must be at least 1")


@dataclass(frozen=True)
class TraceRow:
    """A session after a step.

    Attributes:
        step: tokens decoded so far; 0 is after the prefill.
        resident_bytes: held by the session, measured from its tensors.
        fp_tokens, quantized_tokens, evicted_tokens: of those seen, means over layers and KV heads.
        confidence: of the model in the token that it chose after this step, where the policy asks for it. It decides
            what the next step may hold.
    """

    policy: str
    budget: str | None
    step: int
    resident_bytes: int
    fp_tokens: int
    quantized_tokens: int
    evicted_tokens: int
    confidence: float | None
    bench: str = field(default="trace")


def record(engine: Engine, arm: Arm, prompt: Sequence[int], options: TraceOptions) -> Iterator[TraceRow]:
    """One row after the prefill and one after each decoded token."""
    with closing(engine.open_session(arm.policy, arm.budget)) as session:
        # The last token chosen is never computed: one more than there are steps.
        tokens = options.steps + 1
        params = SamplingParams(
            max_tokens=tokens, min_tokens=tokens, temperature=options.temperature, seed=options.seed
        )
        for step, event in enumerate(engine.generate(session, prompt, params)):
            stats = session.stats
            yield TraceRow(
                policy=arm.policy,
                budget=arm.budget,
                step=step,
                resident_bytes=stats.resident_bytes,
                fp_tokens=stats.fp_tokens,
                quantized_tokens=stats.quantized_tokens,
                evicted_tokens=stats.evicted_tokens,
                confidence=None if event.confidence is None else round(event.confidence, 4),
            )


def make_prompt(options: TraceOptions, engine: Engine, text: str | None) -> list[int]:
    """Token ids. Raises EvalError if the text is too short."""
    leading = leading_ids(engine.tokenizer)
    wanted = options.prompt_tokens
    # A sentence has more than one token, so that these are enough.
    made = " ".join(islice(plain_sentences(random.Random(str(options.seed))), wanted))
    ids = encode(engine.tokenizer, made if text is None else text)
    if len(ids) < wanted:
        raise EvalError(f"{options.text} has {len(ids)} tokens, {wanted} are needed; lower --prompt-tokens")
    return leading + ids[:wanted]


def run(options: TraceOptions) -> int:
    """Record and print; returns the exit code.

    Raises:
        AgentKVError: a text that is missing or too short, an unknown policy, or any of the engine's refusals.
    """
    text = None if options.text is None else read_text(options.text)
    arms = every_arm(options.policies, options.budgets)
    check_plot_file(options.plot)
    engine = Engine.load(options.model, dtype=options.dtype, weights=options.weights)
    prompt = make_prompt(options, engine, text)
    check_room(engine, arms, len(prompt) + options.steps + 1, "lower --steps or --prompt-tokens")
    traces: dict[Arm, list[TraceRow]] = {arm: [] for arm in arms}
    with progress_bar("generating", len(arms) * (options.steps + 1)) as step_done:
        for arm, rows in traces.items():
            for row in record(engine, arm, prompt, options):
                rows.append(row)
                step_done()
                if options.json:
                    print_row(row)
    if not options.json:
        _print_table(traces, engine, options)
    if options.plot is not None:
        _plot(options.plot, traces, options)
    return 0


def _print_table(traces: dict[Arm, list[TraceRow]], engine: Engine, options: TraceOptions) -> None:
    table = new_table(
        f"resident KV over {options.steps} decoded tokens after {options.prompt_tokens}, {options.model}, "
        f"{engine.layout.dtype}, temperature {options.temperature:g}",
        ("policy", "budget"),
        ("least MiB", "mean MiB", "most MiB", "FP tokens", "quantized", "mean confidence"),
    )
    for arm, rows in traces.items():
        sizes = [row.resident_bytes for row in rows]
        felt = [row.confidence for row in rows if row.confidence is not None]
        table.add_row(
            arm.policy, arm.budget or "–", mib(min(sizes)), mib(fmean(sizes)), mib(max(sizes)),
            f"{fmean(row.fp_tokens for row in rows):.0f}", f"{fmean(row.quantized_tokens for row in rows):.0f}",
            f"{fmean(felt):.2f}" if felt else "–",
        )  # fmt: skip
    print_table(table)


def _plot(path: Path, traces: dict[Arm, list[TraceRow]], options: TraceOptions) -> None:
    lines = [
        Trace(arm.label, tuple(row.resident_bytes / MIB for row in rows), tuple(row.confidence for row in rows))
        for arm, rows in traces.items()
    ]
    save_traces(path, lines, f"{options.model}, {options.prompt_tokens} tokens prefilled")
