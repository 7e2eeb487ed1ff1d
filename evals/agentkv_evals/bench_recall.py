"""`agentkv bench recall`: does an agent on a budget still act on what it saw many pages ago?

Teacher-forced, without a browser: pages and actions of recorded demonstrations enter a session as an agent's would, and
where a fact that was seen earlier is needed, the model's likelihood of the right action is taken. So all policies see
the same pages, and one wrong step does not end the comparison; `agentkv eval` is the closed loop.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentkv.cache.facts import Role
from agentkv.engine import Engine, Session
from agentkv.engine.reply import conclude_step
from agentkv.errors import AgentKVError
from agentkv.policies.registry import parse_roles
from agentkv_agents.prompting import prompting_of
from agentkv_agents.teaching.documents import ending_token
from agentkv_agents.teaching.render import RenderedStep, Renderer
from agentkv_agents.teaching.traces import Trace, read_traces
from agentkv_envs.tasks.oracle import plain
from agentkv_evals.backends import protection
from agentkv_evals.bench_common import check_room, every_arm, mib
from agentkv_evals.bench_output import new_table, print_row, print_table, progress_bar
from agentkv_evals.bench_plot import Panel, check_plot_file, save_plot
from agentkv_evals.errors import EvalError
from agentkv_evals.plan import REFERENCE_POLICY, Arm
from agentkv_evals.recall_rows import Decision, DecisionFile, check_path
from agentkv_evals.relative import in_bytes, times_less
from agentkv_evals.stats import wilson


@dataclass(frozen=True)
class RecallOptions:
    """What to measure.

    Attributes:
        traces: files of demonstrations; those with a fact to remember and without slips are used.
        policies: beside full KV, which is always measured.
        budgets: each applies to every policy but `full`; also "full/2": its mean peak on these demonstrations, halved.
        n: the first so many demonstrations; None: all.
        protect: roles whose words no policy may evict.
        notes: whether the fact was noted when it was seen, as by an agent with notes.
        rows: a file to append every demonstration's row to; what it holds is not measured again.
        json: one JSON object per policy and budget instead of a table.
        plot: a file for a picture, .svg or .png.
    """

    traces: tuple[Path, ...]
    model: str = "smollm2-135m"
    policies: tuple[str, ...] = ("obs-window", "window", "h2o", "conf-kv", "surprise")
    budgets: tuple[str, ...] = ("full/2", "full/4")
    n: int | None = None
    protect: tuple[str, ...] = ("system",)
    notes: bool = False
    rows: Path | None = None
    dtype: str = "auto"
    weights: str = "auto"
    json: bool = False
    plot: Path | None = None

    def __post_init__(self) -> None:
        if not self.traces:
            raise EvalError("bench recall needs demonstrations: give --traces FILE, see docs/training.md")
        if self.n is not None and self.n < 1:
            raise EvalError(f"--n must be at least 1, not {self.n}")


@dataclass(frozen=True)
class Case:
    """A demonstration up to the action that needs the fact.

    Attributes:
        distance: tokens of the ledger between the fact's last mention and that action.
    """

    task_id: str
    family: str
    kind: str
    steps: tuple[RenderedStep, ...]
    distance: int

    @property
    def tokens(self) -> int:
        return sum(len(step.prompt.ids) + len(step.action) for step in self.steps)


@dataclass(frozen=True)
class RecallRow:
    """One arm over all cases.

    Attributes:
        n, right, top1: decisive actions, those right in every token, and their share.
        nll: mean over the actions of their negative log-likelihood, in nats.
        nll_above_full, nll_standard_error: mean and standard error of the difference to full KV, over cases.
        kv_bytes: mean over cases of the most bytes ever resident, measured.
        times_less: total of full KV's peaks over total of this arm's.
    """

    policy: str
    budget: str | None
    n: int
    right: int
    top1: float
    nll: float
    nll_above_full: float
    nll_standard_error: float
    kv_bytes: int
    times_less: float
    protect: tuple[str, ...]
    bench: str = field(default="recall")


def as_case(trace: Trace, renderer: Renderer) -> Case:
    """The steps of a demonstration up to the one that needs its fact. The trace has a needle.

    Raises:
        EvalError: nothing before that step shows the fact.
        TrainError: the model's chat template cannot continue a conversation.
    """
    needle, rendered = trace.needle, tuple(renderer.steps(trace))
    assert needle is not None
    steps, by_page = rendered[: renderer.before + needle.used_step], rendered[renderer.before :]
    if trace.seen_step is None:
        raise EvalError(f"trace {trace.task_id}: no page before step {needle.used_step} shows {needle.fact!r}")
    pages = [step.observation for step in trace.steps[: needle.used_step]]
    actions = [step.action for step in trace.steps[: needle.used_step - 1]]
    mentions = [n for texts in (pages, actions) for n, text in enumerate(texts) if plain(needle.fact) in plain(text)]
    since = by_page[max(mentions) + 1 : needle.used_step]
    between = sum(len(step.prompt.ids) + len(step.action) for step in since) - len(steps[-1].action)
    return Case(trace.task_id, trace.family, needle.kind, steps, max(0, between))


def decide(engine: Engine, session: Session, steps: Sequence[RenderedStep]) -> tuple[float, bool]:
    """Let all pages and actions into a session, as an agent's turns do: how likely the last action was, and whether
    every token of it was the likeliest.

    The actions before are what the demonstration did, whatever the model would have done.
    """
    *before, last = steps
    for step in before:
        logits = _ask(engine, session, step)
        if session.measures_confidence:  # which moves the budget from token to token
            _take_in(engine, session, logits, step.action)
        else:
            session.ledger.extend(step.action)
    return _take_in(engine, session, _ask(engine, session, last), last.action)


def _take_in(engine: Engine, session: Session, logits: Tensor, tokens: Sequence[int]) -> tuple[float, bool]:
    """A reply token by token, as if generated; its last token waits for the next page. How likely it was, and whether
    every token of it was the likeliest."""
    nll, right = 0.0, True
    for number, token in enumerate(tokens):
        if number:
            logits = _computed(engine, session)
        right &= int(logits.argmax()) == token
        own, _ = conclude_step(session, logits, partial(_nll, token=token))
        nll += own
        session.ledger.append(token)
    return nll, right


def _nll(logits: Tensor, token: int) -> Tensor:
    return -torch.log_softmax(logits.double(), dim=-1)[token]


def _ask(engine: Engine, session: Session, step: RenderedStep) -> Tensor:
    """Logits [V] from which a reply to the page would be drawn."""
    session.check_room(len(step.prompt.ids) + len(step.action), _roles(step))
    session.cache.confidence = None
    session.mark(_roles(step))
    session.ledger.extend(step.prompt.ids)
    return _computed(engine, session)


def _roles(step: RenderedStep) -> list[tuple[Role, int]]:
    """Whose words the prompt's tokens are, and the reply's."""
    return [*((Role(name), count) for name, count in step.prompt.roles), (Role.ACTION, len(step.action))]


def _computed(engine: Engine, session: Session) -> Tensor:
    logits = engine.compute_waiting(session)
    assert logits is not None  # nothing cancels it
    return logits


def measure(
    engine: Engine, arm: Arm, cases: Sequence[Case], protect: Sequence[str], known: Mapping[str, Decision]
) -> Iterator[Decision]:
    """Every case under one arm, a new session each; those that are known are not measured again."""
    for case in cases:
        if (decision := known.get(case.task_id)) is not None:
            yield decision
            continue
        with closing(_open(engine, arm, protect)) as session:
            nll, right = decide(engine, session, case.steps)
            yield Decision(
                policy=arm.policy,
                budget=arm.budget,
                task_id=case.task_id,
                family=case.family,
                kind=case.kind,
                distance=case.distance,
                nll=round(nll, 6),
                tokens=len(case.steps[-1].action),
                right=right,
                kv_bytes=session.stats.peak_bytes,
            )


def _open(engine: Engine, arm: Arm, protect: Sequence[str]) -> Session:
    return engine.open_session(arm.policy, arm.budget, **protection(arm, protect))


def _bound_options(engine: Engine, policy: str, protect: Sequence[str]) -> str:
    """Identifies a policy's options, bound to this model. Raises AgentKVError for a policy that does not fit it."""
    with closing(_open(engine, Arm(policy, None), protect)) as session:
        told = json.dumps(session.policy.options, sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _row(arm: Arm, decisions: Sequence[Decision], full: Sequence[Decision], protect: tuple[str, ...]) -> RecallRow:
    above = [own.nll - best.nll for own, best in zip(decisions, full, strict=True)]
    right = sum(decision.right for decision in decisions)
    return RecallRow(
        policy=arm.policy,
        budget=arm.budget,
        n=len(decisions),
        right=right,
        top1=round(right / len(decisions), 4),
        nll=round(statistics.fmean(decision.nll for decision in decisions), 4),
        nll_above_full=round(statistics.fmean(above), 4),
        nll_standard_error=round(statistics.stdev(above) / math.sqrt(len(above)) if len(above) > 1 else 0.0, 4),
        kv_bytes=round(statistics.fmean(decision.kv_bytes for decision in decisions)),
        times_less=round(sum(d.kv_bytes for d in full) / sum(d.kv_bytes for d in decisions), 3),
        protect=protect,
    )


def _check_arms(engine: Engine, arms: Sequence[Arm], cases: Sequence[Case], protect: Sequence[str]) -> None:
    """Raises EvalError, before any of them is measured, if a case does not fit an arm; see `Session.check_room`."""
    for arm in arms:
        try:
            with closing(_open(engine, arm, protect)) as session:
                for case in cases:
                    session.check_room(case.tokens, [part for step in case.steps for part in _roles(step)])
        except AgentKVError as error:
            raise EvalError(f"{arm.label}: {error}") from error


def _cases(options: RecallOptions, engine: Engine) -> list[Case]:
    traces = [trace for trace in read_traces(options.traces) if trace.needle is not None and not trace.has_slips]
    if not traces:
        raise EvalError(
            "no demonstration without slips has a fact to remember and says which step needs it; record some with "
            "python -m agentkv_envs.tasks.training FILE"
        )
    ending = ending_token(engine.eos_token_ids, engine.tokenizer)
    renderer = Renderer(engine.tokenizer, ending, float(options.notes), prompting_of(options.model))
    return [as_case(trace, renderer) for trace in traces[: options.n]]


def _settings_of(options: RecallOptions, cases: Sequence[Case], engine: Engine) -> str:
    """A hash of all that decides a decision but policy and budget."""
    told: list[Any] = [
        sorted(Decision.__dataclass_fields__),
        engine.weights_fingerprint,
        str(engine.layout.dtype),
        engine.decode_weights,
        options.protect,
    ]
    told += [[case.task_id, [[step.prompt.ids, step.action] for step in case.steps]] for case in cases]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def run(options: RecallOptions) -> int:
    """Measure and print; returns the exit code.

    Raises:
        AgentKVError: demonstrations that cannot be used, an unknown policy, or any of the engine's refusals.
    """
    reference = Arm(REFERENCE_POLICY)
    # Before anything slow: are there such policies and budgets?
    named = every_arm(options.policies, [budget for budget in options.budgets if times_less(budget) is None] or ["1"])
    parse_roles("--protect", options.protect)
    check_plot_file(options.plot)
    check_path(options.rows)
    engine = Engine.load(options.model, dtype=options.dtype, weights=options.weights)
    cases = _cases(options, engine)
    longest = max(case.tokens for case in cases)
    check_room(engine, (reference,), longest, "leave out the longest demonstrations")
    policies = [policy for policy in dict.fromkeys(arm.policy for arm in named) if policy != REFERENCE_POLICY]
    bound = {policy: _bound_options(engine, policy, options.protect) for policy in (REFERENCE_POLICY, *policies)}
    rows = DecisionFile(options.rows, _settings_of(options, cases, engine), bound)
    table: list[RecallRow] = []
    arms_in_all = 1 + len(policies) * len(set(options.budgets))
    with progress_bar("deciding", arms_in_all * len(cases)) as done:

        def measured(arm: Arm, full: Sequence[Decision]) -> list[Decision]:
            own = []
            for decision in measure(engine, arm, cases, options.protect, rows.known(arm)):
                rows.add(decision)
                own.append(decision)
                done()
            table.append(_row(arm, own, full or own, options.protect))
            if options.json:
                print_row(table[-1])
            return own

        full = measured(reference, ())
        peaks = [decision.kv_bytes for decision in full]
        arms = every_arm(policies, [in_bytes(budget, peaks) for budget in options.budgets])
        _check_arms(engine, arms, cases, options.protect)
        for arm in arms:
            measured(arm, full)
    if not options.json:
        _print_table(table, options, cases)
    if options.plot is not None:
        labels = tuple(Arm(row.policy, row.budget).label for row in table)
        panel = Panel("", labels, tuple(row.top1 for row in table))
        save_plot(options.plot, [panel], "decisive actions right", f"{len(cases)} demonstrations")
    return 0


def _print_table(rows: Sequence[RecallRow], options: RecallOptions, cases: Sequence[Case]) -> None:
    table = new_table(
        f"{len(cases)} actions that need a fact seen {statistics.median(case.distance for case in cases):.0f} tokens "
        f"before (median), {options.model}, protected: {', '.join(options.protect) or 'nothing'}",
        ("policy", "budget"),
        ("right", "95% interval", "NLL", "NLL above full", "peak KV MiB", "times less"),
    )
    for row in rows:
        low, high = wilson(row.right, row.n)
        table.add_row(
            row.policy, row.budget or "–", f"{row.right}/{row.n}", f"{low:.2f}–{high:.2f}", f"{row.nll:.2f}",
            f"{row.nll_above_full:+.2f} ± {row.nll_standard_error:.2f}" if row.budget else "–",
            mib(row.kv_bytes), f"{row.times_less:.2f}",
        )  # fmt: skip
    print_table(table)
