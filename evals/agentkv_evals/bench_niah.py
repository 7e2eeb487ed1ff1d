"""`agentkv bench niah`: does a cache under a budget still hold a number that was told once, long ago?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.chat.template import FALLBACK_TEMPLATE
from agentkv.engine import Engine, SamplingParams
from agentkv_evals.bench_common import (
    check_room,
    grid,
    mib,
    new_table,
    print_row,
    print_table,
    progress_bar,
    unequal_bytes,
)
from agentkv_evals.bench_plot import Panel, check_plot_file, save_plot
from agentkv_evals.bench_text import encode, leading_ids, read_text
from agentkv_evals.errors import EvalError
from agentkv_evals.niah_prompts import NeedlePrompt, make_prompts, read_prompts
from agentkv_evals.plan import Arm
from agentkv_evals.stats import wilson

MODES = ("known", "late")
DEFAULT_N = 10
REPLY_TOKENS = 16
# Stands between context and question when the chat template is rendered; private-use characters, in no text.
_MARK = "\ue0f3agentkv\ue0f4"


@dataclass(frozen=True)
class NiahOptions:
    """What to measure.

    Attributes:
        prompts: JSON lines of {context, question, prefix, answer}; None makes prompts up.
        lengths: tokens of a made-up context.
        n: prompts per length, or the first so many of the file; None is 10, or the whole file.
        modes: "known": the question is part of the first prefill; "late": it comes after the context was cached.
        policies: beside full KV, which is always measured.
        budgets: each applies to every policy but `full`.
        text: a UTF-8 file to take the filler of made-up contexts from.
        json: one JSON object per row instead of a table.
        plot: a file for a picture, .svg or .png.
    """

    prompts: Path | None = None
    model: str = "smollm2-135m"
    lengths: tuple[int, ...] = (1024,)
    n: int | None = None
    modes: tuple[str, ...] = ("late",)
    policies: tuple[str, ...] = ("streaming-llm", "h2o", "conf-kv")
    budgets: tuple[str, ...] = ("6MiB",)
    seed: int = 0
    text: Path | None = None
    dtype: str = "auto"
    json: bool = False
    plot: Path | None = None

    def __post_init__(self) -> None:
        if self.prompts is not None and self.text is not None:
            raise EvalError("--prompts brings whole contexts, so --text has no use; give one of them")
        if self.n is not None and self.n < 1:
            raise EvalError(f"--n must be at least 1, not {self.n}")
        if min(self.lengths) < 1:
            raise EvalError(f"--length must be at least 1, not {min(self.lengths)}")
        for mode in self.modes:
            if mode not in MODES:
                raise EvalError(f"unknown --mode {mode!r}; modes: {', '.join(MODES)}")


@dataclass(frozen=True)
class NiahRow:
    """One arm on one set of prompts.

    Attributes:
        prefill: how prompts enter the cache: "chunked", each chunk judged before the next is seen.
        length: tokens of a context as asked for, or the mean of a file's prompts.
        found: replies that contain the answer, of n.
        prompt_tokens: mean tokens of a whole prompt: template, context, question and the start of the reply.
        kv_bytes: the most bytes ever resident, measured, of all prompts.
    """

    policy: str
    budget: str | None
    mode: str
    length: int
    n: int
    found: int
    accuracy: float
    prompt_tokens: int
    kv_bytes: int
    prefill: str = field(default="chunked")
    bench: str = field(default="niah")


@dataclass(frozen=True)
class Case:
    """A prompt as token ids. The two parts join to the same tokens in both modes."""

    prompt: NeedlePrompt
    context_ids: list[int]
    question_ids: list[int]

    @property
    def tokens(self) -> int:
        return len(self.context_ids) + len(self.question_ids)


@dataclass(frozen=True)
class CaseSet:
    """Prompts that make one row per arm and mode."""

    length: int
    cases: list[Case]


def as_case(tokenizer: Any, prompt: NeedlePrompt) -> Case:
    """One user turn, context before question, in the model's chat template, and the reply begun with the prefix."""
    turn = {"role": "user", "content": f"{prompt.context.strip()}{_MARK}\n\n{prompt.question.strip()}"}
    template = tokenizer.chat_template
    text = tokenizer.apply_chat_template(
        [turn], chat_template=template or FALLBACK_TEMPLATE, tokenize=False, add_generation_prompt=True
    )
    # A reply goes on after a template's line break, but not after "Assistant:".
    gap = " " if prompt.prefix and not text[-1:].isspace() else ""
    context, _, question = f"{text}{gap}{prompt.prefix}".partition(_MARK)
    leading = [] if template else leading_ids(tokenizer)
    return Case(prompt, leading + encode(tokenizer, context), encode(tokenizer, question))


def ask(engine: Engine, arm: Arm, case: Case, mode: str) -> tuple[str, int]:
    """The greedy reply in a new session, and the most bytes that session held."""
    with closing(engine.open_session(arm.policy, arm.budget)) as session:
        new_ids = case.context_ids + case.question_ids
        if mode == "late":
            session.ledger.extend(case.context_ids)
            engine.compute_waiting(session)
            new_ids = case.question_ids
        params = SamplingParams(max_tokens=REPLY_TOKENS)
        reply = "".join(event.text for event in engine.generate(session, new_ids, params))
        return reply, session.stats.peak_bytes


def measure(
    engine: Engine, arms: Sequence[Arm], sets: Sequence[CaseSet], modes: Sequence[str], prompt_done: Callable[[], None]
) -> Iterator[NiahRow]:
    """Every arm on the same prompts, one set and mode after the other."""
    for case_set in sets:
        for mode in modes:
            for arm in arms:
                found, peak = 0, 0
                for case in case_set.cases:
                    reply, held = ask(engine, arm, case, mode)
                    found += case.prompt.found_in(reply)
                    peak = max(peak, held)
                    prompt_done()
                yield _row(arm, mode, case_set, found, peak)


def _row(arm: Arm, mode: str, case_set: CaseSet, found: int, peak: int) -> NiahRow:
    n = len(case_set.cases)
    return NiahRow(
        policy=arm.policy,
        budget=arm.budget,
        mode=mode,
        length=case_set.length,
        n=n,
        found=found,
        accuracy=round(found / n, 4),
        prompt_tokens=round(sum(case.tokens for case in case_set.cases) / n),
        kv_bytes=peak,
    )


def make_sets(
    options: NiahOptions, tokenizer: Any, prompts: list[NeedlePrompt] | None, filler: str | None
) -> list[CaseSet]:
    """The prompts of a file as one set, or a set of made-up ones for every length."""
    if prompts is not None:
        cases = [as_case(tokenizer, prompt) for prompt in prompts[: options.n]]
        return [CaseSet(round(sum(len(case.context_ids) for case in cases) / len(cases)), cases)]

    def count(text: str) -> int:
        return len(encode(tokenizer, text))

    sets = []
    for length in sorted(set(options.lengths)):
        made = make_prompts(options.n or DEFAULT_N, length, options.seed, count, filler)
        sets.append(CaseSet(length, [as_case(tokenizer, prompt) for prompt in made]))
    return sets


def run(options: NiahOptions) -> int:
    """Measure and print; returns the exit code.

    Raises:
        AgentKVError: a malformed file of prompts, an unknown policy, or any of the engine's refusals.
    """
    prompts = None if options.prompts is None else read_prompts(options.prompts)
    filler = None if options.text is None else read_text(options.text)
    arms = grid(options.policies, options.budgets)
    check_plot_file(options.plot)
    engine = Engine.load(options.model, dtype=options.dtype)
    if prompts is None and max(options.lengths) > engine.context_window:
        raise EvalError(
            f"--length {max(options.lengths)} is beyond the model's window of {engine.context_window} tokens"
        )
    sets = make_sets(options, engine.tokenizer, prompts, filler)
    longest = max(case.tokens for case_set in sets for case in case_set.cases)
    check_room(engine, arms, longest + REPLY_TOKENS, "shorten the contexts")
    modes = tuple(dict.fromkeys(options.modes))
    rows: list[NiahRow] = []
    total = len(arms) * len(modes) * sum(len(case_set.cases) for case_set in sets)
    with progress_bar("asking", total) as prompt_done:
        for row in measure(engine, arms, sets, modes, prompt_done):
            rows.append(row)
            if options.json:
                print_row(row)
    groups = _groups(rows)
    if not options.json:
        _print_table(groups, engine, options)
    if options.plot is not None:
        save_plot(options.plot, [_panel(title, group) for title, group in groups.items()], "accuracy", "needles found")
    return 0


def _groups(rows: Sequence[NiahRow]) -> dict[str, list[NiahRow]]:
    """Rows that answer the same prompts in the same mode, the baseline first."""
    groups: dict[str, list[NiahRow]] = {}
    for row in rows:
        groups.setdefault(f"{row.mode}, {row.length} tokens", []).append(row)
    return groups


def _panel(title: str, rows: Sequence[NiahRow]) -> Panel:
    labels = tuple(Arm(row.policy, row.budget).label for row in rows)
    return Panel(title, labels, tuple(row.accuracy for row in rows))


def _print_table(groups: dict[str, list[NiahRow]], engine: Engine, options: NiahOptions) -> None:
    table = new_table(
        f"needles, {options.model}, {engine.layout.dtype}, chunked prefill, replies of up to {REPLY_TOKENS} tokens",
        ("mode", "tokens", "policy", "budget"),
        ("found", "accuracy", "95% interval", "peak KV MiB"),
    )
    notes: list[str] = []
    for title, rows in groups.items():
        for row in rows:
            low, high = wilson(row.found, row.n)
            table.add_row(
                row.mode, str(row.length), row.policy, row.budget or "–",
                f"{row.found}/{row.n}", f"{row.accuracy:.2f}", f"{low:.2f}–{high:.2f}", mib(row.kv_bytes),
                end_section=row is rows[-1],
            )  # fmt: skip
        notes += unequal_bytes(rows, f" ({title})")
    table.caption = "\n".join(notes) or None
    print_table(table)
