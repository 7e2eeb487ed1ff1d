"""`agentkv bench niah`: does a cache under a budget still hold a fact that was told once, long ago?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkv.chat.template import FALLBACK_TEMPLATE
from agentkv.engine import Engine, SamplingParams, Session
from agentkv_evals.bench_common import check_prefill, check_room, grid, mib, open_session, unequal_bytes
from agentkv_evals.bench_output import new_table, print_row, print_table, progress_bar
from agentkv_evals.bench_plot import Panel, check_plot_file, save_plot
from agentkv_evals.bench_text import encode, leading_ids, read_text
from agentkv_evals.errors import EvalError
from agentkv_evals.niah_kinds import FILLED_KINDS, KINDS, make_prompts
from agentkv_evals.niah_prompts import NeedlePrompt, read_prompts
from agentkv_evals.plan import Arm
from agentkv_evals.stats import wilson

MODES = ("known", "late")
FILE_KIND = "file"
"""What rows call the prompts of a file."""
DEFAULT_N = 10
REPLY_TOKENS = 16
# Stands between context and question when the chat template is rendered; private-use characters, in no text.
_MARK = "\ue0f3agentkv\ue0f4"


@dataclass(frozen=True)
class NiahOptions:
    """What to measure.

    Attributes:
        prompts: JSON lines of {context, question, prefix, answer}; None makes prompts up.
        kinds: of made-up prompts, from `KINDS`; None is "number".
        lengths: tokens of a made-up context.
        n: prompts per length, or the first so many of the file; None is 10, or the whole file.
        modes: "known": the question is part of the first prefill; "late": it comes after the context was cached.
        prefill: how prompts enter the cache: "chunked" or "whole".
        policies: beside full KV, which is always measured.
        budgets: each applies to every policy but `full`.
        text: a UTF-8 file to take the filler of made-up contexts from.
        json: one JSON object per row instead of a table.
        plot: a file for a picture, .svg or .png.
    """

    prompts: Path | None = None
    kinds: tuple[str, ...] | None = None
    model: str = "smollm2-135m"
    lengths: tuple[int, ...] = (1024,)
    n: int | None = None
    modes: tuple[str, ...] = ("late",)
    prefill: str = "chunked"
    policies: tuple[str, ...] = ("streaming-llm", "h2o", "conf-kv")
    budgets: tuple[str, ...] = ("6MiB",)
    seed: int = 0
    text: Path | None = None
    dtype: str = "auto"
    weights: str = "auto"
    json: bool = False
    plot: Path | None = None

    def __post_init__(self) -> None:
        if self.prompts is not None and self.text is not None:
            raise EvalError("--prompts brings whole contexts, so --text has no use; give one of them")
        if self.prompts is not None and self.kinds is not None:
            raise EvalError("--prompts brings its own needles, so --kind has no use; give one of them")
        for kind in self.made_kinds:
            if kind not in KINDS:
                raise EvalError(f"unknown --kind {kind!r}; kinds: {', '.join(KINDS)}")
            if self.text is not None and kind not in FILLED_KINDS:
                raise EvalError(f"--text fills the contexts of {' and '.join(FILLED_KINDS)} needles, not of {kind!r}")
        check_prefill(self.prefill)
        if self.n is not None and self.n < 1:
            raise EvalError(f"--n must be at least 1, not {self.n}")
        if min(self.lengths) < 1:
            raise EvalError(f"--length must be at least 1, not {min(self.lengths)}")
        for mode in self.modes:
            if mode not in MODES:
                raise EvalError(f"unknown --mode {mode!r}; modes: {', '.join(MODES)}")

    @property
    def made_kinds(self) -> tuple[str, ...]:
        """What to make up; of no use with a file of prompts."""
        return tuple(dict.fromkeys(self.kinds or KINDS[:1]))


@dataclass(frozen=True)
class NiahRow:
    """One arm on one set of prompts.

    Attributes:
        kind: of made-up prompts, or "file".
        prefill: how prompts enter the cache: "chunked" or "whole".
        length: tokens of a context as asked for, or the mean of a file's prompts.
        found: replies that contain the answer, of n.
        prompt_tokens: mean tokens of a whole prompt: template, context, question and the start of the reply.
        kv_bytes: the most bytes ever resident, measured, of all prompts.
    """

    policy: str
    budget: str | None
    kind: str
    mode: str
    prefill: str
    length: int
    n: int
    found: int
    accuracy: float
    prompt_tokens: int
    kv_bytes: int
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

    kind: str
    length: int
    cases: list[Case]

    def answered(self, case: Case, reply: str) -> bool:
        """Whether a reply is right. Where every line holds some answer, only the reply's first line counts."""
        if self.kind not in (*FILLED_KINDS, FILE_KIND):
            reply = reply.strip().partition("\n")[0]
        return case.prompt.found_in(reply)


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


def ask(
    engine: Engine, arm: Arm, case: Case, modes: Sequence[str], prefill: str = "chunked"
) -> dict[str, tuple[str, int]]:
    """For each mode the greedy reply in a new session, and the most bytes that session held."""
    answers: dict[str, tuple[str, int]] = {}
    with closing(open_session(engine, arm, prefill)) as session:
        if len(modes) > 1:
            _compute_common(engine, session, case)
        for mode in modes:
            with closing(engine.fork_session(session)) as own:
                reply = _answer(engine, own, case, mode)
                answers[mode] = reply, max(session.stats.peak_bytes, own.stats.peak_bytes)
    return answers


def _compute_common(engine: Engine, session: Session, case: Case) -> None:
    """Compute the chunks that are the same whether the question follows in the same prefill or not."""
    context, question = case.context_ids, len(case.question_ids)
    while (left := len(context) - session.logical_length) > 0:
        n = session.cache.chunk(left)
        if n != session.cache.chunk(left + question):
            return
        done = session.logical_length
        session.ledger.extend(context[done : done + n])
        engine.compute_chunk(session)


def _answer(engine: Engine, session: Session, case: Case, mode: str) -> str:
    """The reply of a session that may have computed some of the context."""
    new_ids = (case.context_ids + case.question_ids)[session.logical_length :]
    if mode == "late":
        session.ledger.extend(new_ids[: -len(case.question_ids)])
        engine.compute_waiting(session)
        new_ids = case.question_ids
    params = SamplingParams(max_tokens=REPLY_TOKENS)
    return "".join(event.text for event in engine.generate(session, new_ids, params))


def measure(
    engine: Engine, arms: Sequence[Arm], sets: Sequence[CaseSet], options: NiahOptions, prompt_done: Callable[[], None]
) -> Iterator[NiahRow]:
    """Every arm on the same prompts, one set after the other."""
    modes = tuple(dict.fromkeys(options.modes))
    for case_set in sets:
        for arm in arms:
            found, peak = dict.fromkeys(modes, 0), dict.fromkeys(modes, 0)
            for case in case_set.cases:
                for mode, (reply, held) in ask(engine, arm, case, modes, options.prefill).items():
                    found[mode] += case_set.answered(case, reply)
                    peak[mode] = max(peak[mode], held)
                    prompt_done()
            for mode in modes:
                yield _row(arm, mode, options.prefill, case_set, found[mode], peak[mode])


def _row(arm: Arm, mode: str, prefill: str, case_set: CaseSet, found: int, peak: int) -> NiahRow:
    n = len(case_set.cases)
    return NiahRow(
        policy=arm.policy,
        budget=arm.budget,
        kind=case_set.kind,
        mode=mode,
        prefill=prefill,
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
    """The prompts of a file as one set, or a set of made-up ones for every kind and length."""
    if prompts is not None:
        cases = [as_case(tokenizer, prompt) for prompt in prompts[: options.n]]
        return [CaseSet(FILE_KIND, round(sum(len(case.context_ids) for case in cases) / len(cases)), cases)]

    def count(text: str) -> int:
        return len(encode(tokenizer, text))

    sets = []
    for kind, length in itertools.product(options.made_kinds, sorted(set(options.lengths))):
        made = make_prompts(kind, options.n or DEFAULT_N, length, options.seed, count, filler)
        sets.append(CaseSet(kind, length, [as_case(tokenizer, prompt) for prompt in made]))
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
    engine = Engine.load(options.model, dtype=options.dtype, weights=options.weights)
    if prompts is None and max(options.lengths) > engine.context_window:
        raise EvalError(
            f"--length {max(options.lengths)} is beyond the model's window of {engine.context_window} tokens"
        )
    sets = make_sets(options, engine.tokenizer, prompts, filler)
    longest = max(case.tokens for case_set in sets for case in case_set.cases)
    check_room(engine, arms, longest + REPLY_TOKENS, "shorten the contexts", options.prefill)
    rows: list[NiahRow] = []
    total = len(arms) * len(set(options.modes)) * sum(len(case_set.cases) for case_set in sets)
    with progress_bar("asking", total) as prompt_done:
        for row in measure(engine, arms, sets, options, prompt_done):
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
        groups.setdefault(f"{row.kind}, {row.mode}, {row.length} tokens", []).append(row)
    return groups


def _panel(title: str, rows: Sequence[NiahRow]) -> Panel:
    labels = tuple(Arm(row.policy, row.budget).label for row in rows)
    return Panel(title, labels, tuple(row.accuracy for row in rows))


def _print_table(groups: dict[str, list[NiahRow]], engine: Engine, options: NiahOptions) -> None:
    table = new_table(
        f"needles, {options.model}, {engine.layout.dtype}, {options.prefill} prefill, "
        f"replies of up to {REPLY_TOKENS} tokens",
        ("kind", "mode", "tokens", "policy", "budget"),
        ("found", "accuracy", "95% interval", "peak KV MiB"),
    )
    notes: list[str] = []
    for title, rows in groups.items():
        for row in rows:
            low, high = wilson(row.found, row.n)
            table.add_row(
                row.kind, row.mode, str(row.length), row.policy, row.budget or "–",
                f"{row.found}/{row.n}", f"{row.accuracy:.2f}", f"{low:.2f}–{high:.2f}", mib(row.kv_bytes),
                end_section=row is rows[-1],
            )  # fmt: skip
        notes += unequal_bytes(rows, f" ({title})")
    table.caption = "\n".join(notes) or None
    print_table(table)
