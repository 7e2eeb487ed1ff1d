"""`agentkv bench`: measurements of the runtime alone, without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkv.cli.bench_kernels import kernels

app = typer.Typer(rich_markup_mode=None, help="Measure the runtime, without a browser.")
app.command("kernels")(kernels)
_option = typer.Option


_MODEL_HELP = "Name (agentkv models list), folder or hub id."
_POLICY_HELP = "KV policy, beside the full-KV baseline; repeatable. [default: streaming-llm, h2o, conf-kv]"
_BUDGET_HELP = "KV budget: 6MiB, 512 tokens or 25%; repeatable. [default: 6MiB]"
_DTYPE_HELP = "auto, float32 or bfloat16."
_WEIGHTS_HELP = "Of decode steps: model, int8 (faster on a CPU) or auto: int8 where it was measured to be as good."
_JSON_HELP = "One JSON object per row, nothing else on stdout."
_PREFILL_HELP = "chunked: inside the budget; whole: the whole prompt is prefilled before anything is dropped."
_PLOT_HELP = "Draw the rows into this .svg or .png file."


@app.command("latency")
def latency(
    model: Annotated[str, _option(help=_MODEL_HELP)] = "smollm2-135m",
    policy: Annotated[list[str] | None, _option(help="KV policy; repeatable. [default: full, conf-kv]")] = None,
    budget: Annotated[
        list[str] | None, _option(help="KV budget: 512, 24MiB or 25%; repeatable. [default: 512]")
    ] = None,
    length: Annotated[
        list[int] | None,
        _option(min=1, help="Logical tokens before decoding; repeatable. [default: 256 1024 4096 8192]"),
    ] = None,
    steps: Annotated[int, _option(min=1, help="Tokens decoded and timed per measurement.")] = 32,
    dtype: Annotated[str, _option(help=_DTYPE_HELP)] = "auto",
    weights: Annotated[str, _option(help=_WEIGHTS_HELP)] = "auto",
    as_json: Annotated[bool, _option("--json", help=_JSON_HELP)] = False,
    plot: Annotated[Path | None, _option(help=_PLOT_HELP)] = None,
) -> None:
    """Milliseconds per decoded token at growing lengths, beside transformers' own cache.

    \b
    Example:
      agentkv bench latency --policy full --policy conf-kv --budget 512
    """
    from agentkv_evals.bench_latency import LatencyOptions, run

    options = LatencyOptions(
        model=model,
        policies=tuple(policy or LatencyOptions.policies),
        budgets=tuple(budget or LatencyOptions.budgets),
        lengths=tuple(length or LatencyOptions.lengths),
        steps=steps,
        dtype=dtype,
        weights=weights,
        json=as_json,
        plot=plot,
    )
    raise typer.Exit(run(options))


@app.command("throughput")
def throughput(
    model: Annotated[str, _option(help=_MODEL_HELP)] = "smollm2-135m",
    policy: Annotated[
        list[str] | None, _option(help="KV policy, beside the full-KV baseline; repeatable. [default: conf-kv]")
    ] = None,
    budget: Annotated[list[str] | None, _option(help="KV budget of each session; repeatable. [default: 6MiB]")] = None,
    batch: Annotated[
        list[int] | None, _option(min=1, help="Sessions decoded together; repeatable. [default: 1 8]")
    ] = None,
    length: Annotated[int, _option(min=1, help="Tokens in each session before decoding.")] = 1024,
    steps: Annotated[int, _option(min=1, help="Tokens decoded and timed per session.")] = 32,
    dtype: Annotated[str, _option(help=_DTYPE_HELP)] = "auto",
    weights: Annotated[str, _option(help=_WEIGHTS_HELP)] = "auto",
    as_json: Annotated[bool, _option("--json", help=_JSON_HELP)] = False,
    plot: Annotated[Path | None, _option(help=_PLOT_HELP)] = None,
) -> None:
    """Tokens per second when several sessions are decoded in one batch.

    \b
    Example:
      agentkv bench throughput --policy conf-kv --budget 6MiB --batch 1 --batch 8
    """
    from agentkv_evals.bench_throughput import ThroughputOptions, run

    options = ThroughputOptions(
        model=model,
        policies=tuple(policy or ThroughputOptions.policies),
        budgets=tuple(budget or ThroughputOptions.budgets),
        batches=tuple(batch or ThroughputOptions.batches),
        length=length,
        steps=steps,
        dtype=dtype,
        weights=weights,
        json=as_json,
        plot=plot,
    )
    raise typer.Exit(run(options))


@app.command("ppl")
def ppl(
    text: Annotated[Path | None, _option(help="UTF-8 file whose first tokens are scored.")] = None,
    model: Annotated[str, _option(help=_MODEL_HELP)] = "smollm2-135m",
    policy: Annotated[list[str] | None, _option(help=_POLICY_HELP)] = None,
    budget: Annotated[list[str] | None, _option(help=_BUDGET_HELP)] = None,
    prompt_tokens: Annotated[int, _option(min=1, help="Tokens of a window that are prefilled, not scored.")] = 512,
    tokens: Annotated[int, _option(min=1, help="Tokens of a window that are fed one by one and scored.")] = 512,
    windows: Annotated[int, _option(min=1, help="Consecutive windows of the text, averaged.")] = 1,
    prefill: Annotated[str, _option(help=_PREFILL_HELP)] = "chunked",
    dtype: Annotated[str, _option(help=_DTYPE_HELP)] = "auto",
    weights: Annotated[str, _option(help=_WEIGHTS_HELP)] = "auto",
    as_json: Annotated[bool, _option("--json", help=_JSON_HELP)] = False,
    plot: Annotated[Path | None, _option(help=_PLOT_HELP)] = None,
) -> None:
    """Perplexity of a long text, token by token, under KV policies and with full KV.

    \b
    Example:
      agentkv bench ppl --text book.txt --policy window --policy conf-kv --budget 6MiB
    """
    from agentkv_evals.bench_ppl import PplOptions, run

    options = PplOptions(
        text=text,
        model=model,
        policies=tuple(policy or PplOptions.policies),
        budgets=tuple(budget or PplOptions.budgets),
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        windows=windows,
        prefill=prefill,
        dtype=dtype,
        weights=weights,
        json=as_json,
        plot=plot,
    )
    raise typer.Exit(run(options))


@app.command("niah")
def niah(
    prompts: Annotated[
        Path | None, _option(help="JSON lines of {context, question, prefix, answer}. [default: made up]")
    ] = None,
    kind: Annotated[
        list[str] | None,
        _option(help="What is made up: number, sentence, pairs or page; repeatable. [default: number]"),
    ] = None,
    length: Annotated[
        list[int] | None, _option(min=1, help="Tokens of a made-up context; repeatable. [default: 1024]")
    ] = None,
    n: Annotated[int | None, _option(min=1, help="Prompts. [default: 10 per length, or all of the file]")] = None,
    mode: Annotated[
        list[str] | None,
        _option(help="known: the question is prefilled with the context; late: after it; repeatable. [default: late]"),
    ] = None,
    prefill: Annotated[str, _option(help=_PREFILL_HELP)] = "chunked",
    model: Annotated[str, _option(help=_MODEL_HELP)] = "smollm2-135m",
    policy: Annotated[list[str] | None, _option(help=_POLICY_HELP)] = None,
    budget: Annotated[list[str] | None, _option(help=_BUDGET_HELP)] = None,
    seed: Annotated[int, _option(help="Of made-up prompts.")] = 0,
    text: Annotated[Path | None, _option(help="UTF-8 file to fill made-up contexts with. [default: made up]")] = None,
    dtype: Annotated[str, _option(help=_DTYPE_HELP)] = "auto",
    weights: Annotated[str, _option(help=_WEIGHTS_HELP)] = "auto",
    as_json: Annotated[bool, _option("--json", help=_JSON_HELP)] = False,
    plot: Annotated[Path | None, _option(help=_PLOT_HELP)] = None,
) -> None:
    """A fact told once in a long context: is it found again under KV policies and with full KV?

    \b
    Examples:
      agentkv bench niah --kind number --kind page --policy window --policy conf-kv --budget 6MiB
      agentkv bench niah --prompts my_prompts.jsonl --mode known --mode late
    """
    from agentkv_evals.bench_niah import NiahOptions, run

    options = NiahOptions(
        prompts=prompts,
        kinds=tuple(kind) if kind else None,
        model=model,
        lengths=tuple(length or NiahOptions.lengths),
        n=n,
        modes=tuple(mode or NiahOptions.modes),
        prefill=prefill,
        policies=tuple(policy or NiahOptions.policies),
        budgets=tuple(budget or NiahOptions.budgets),
        seed=seed,
        text=text,
        dtype=dtype,
        weights=weights,
        json=as_json,
        plot=plot,
    )
    raise typer.Exit(run(options))


@app.command("recall")
def recall(
    traces: Annotated[list[Path], _option(help="File of demonstrations, see docs/training.md; repeatable.")],
    model: Annotated[str, _option(help=_MODEL_HELP)] = "smollm2-135m",
    policy: Annotated[
        list[str] | None,
        _option(help="KV policy; repeatable. [default: obs-window, window, h2o, conf-kv, surprise]"),
    ] = None,
    budget: Annotated[
        list[str] | None,
        _option(
            help="Budget: 6MiB, 512, 25% or full/2: full KV's mean peak, halved; repeatable. [default: full/2, full/4]"
        ),
    ] = None,
    n: Annotated[int | None, _option(min=1, help="The first so many demonstrations. [default: all]")] = None,
    protect: Annotated[
        list[str] | None,
        _option(help="Role never evicted: system, task, observation, action or none; repeatable. [default: system]"),
    ] = None,
    notes: Annotated[
        bool, _option("--notes", help="The fact was noted when it was seen, as by agentkv eval --notes.")
    ] = False,
    rows: Annotated[
        Path | None, _option(help="Append every decision to this file; what it holds is not measured again.")
    ] = None,
    dtype: Annotated[str, _option(help=_DTYPE_HELP)] = "auto",
    weights: Annotated[str, _option(help=_WEIGHTS_HELP)] = "auto",
    as_json: Annotated[bool, _option("--json", help=_JSON_HELP)] = False,
    plot: Annotated[Path | None, _option(help=_PLOT_HELP)] = None,
) -> None:
    """Actions that need a fact seen pages before, under KV policies and with full KV; teacher-forced, no browser.

    \b
    Examples:
      python -m agentkv_envs.tasks.training held.jsonl --count 60 --seed 9
      agentkv bench recall --traces held.jsonl --model adapter --budget full/4 --rows decisions.jsonl
    """
    from agentkv_evals.bench_recall import RecallOptions, run

    options = RecallOptions(
        traces=tuple(traces),
        model=model,
        policies=tuple(policy or RecallOptions.policies),
        budgets=tuple(budget or RecallOptions.budgets),
        n=n,
        protect=tuple(role for role in protect or RecallOptions.protect if role != "none"),
        notes=notes,
        rows=rows,
        dtype=dtype,
        weights=weights,
        json=as_json,
        plot=plot,
    )
    raise typer.Exit(run(options))


@app.command("confidence")
def confidence(
    text: Annotated[Path | None, _option(help="UTF-8 file whose first tokens are scored.")] = None,
    model: Annotated[str, _option(help=_MODEL_HELP)] = "smollm2-135m",
    windows: Annotated[int, _option(min=1, help="Consecutive windows of the text.")] = 2,
    prompt_tokens: Annotated[int, _option(min=1, help="Tokens of a window that are prefilled, not scored.")] = 256,
    tokens: Annotated[int, _option(min=1, help="Positions of a window that are scored.")] = 256,
    ablate: Annotated[int, _option(min=1, help="Tokens just before the newest one that are taken away.")] = 64,
    dtype: Annotated[str, _option(help=_DTYPE_HELP)] = "auto",
    weights: Annotated[str, _option(help=_WEIGHTS_HELP)] = "auto",
    as_json: Annotated[bool, _option("--json", help="One JSON object, nothing else on stdout.")] = False,
    plot: Annotated[Path | None, _option(help="Draw the positions into this .svg or .png file.")] = None,
) -> None:
    """Does the model's confidence say how much its recent context matters?

    \b
    Example:
      agentkv bench confidence --text book.txt --plot confidence.svg
    """
    from agentkv_evals.bench_confidence import ConfidenceOptions, run

    options = ConfidenceOptions(
        text=text,
        model=model,
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        windows=windows,
        ablate=ablate,
        dtype=dtype,
        weights=weights,
        json=as_json,
        plot=plot,
    )
    raise typer.Exit(run(options))


@app.command("trace")
def trace(
    text: Annotated[Path | None, _option(help="UTF-8 file to prompt with. [default: made up]")] = None,
    model: Annotated[str, _option(help=_MODEL_HELP)] = "smollm2-135m",
    policy: Annotated[list[str] | None, _option(help="KV policy; repeatable. [default: conf-kv]")] = None,
    budget: Annotated[list[str] | None, _option(help=_BUDGET_HELP)] = None,
    prompt_tokens: Annotated[int, _option(min=1, help="Tokens that are prefilled.")] = 512,
    steps: Annotated[int, _option(min=1, help="Tokens decoded after them.")] = 400,
    temperature: Annotated[float, _option(min=0, help="0 is greedy.")] = 1.0,
    seed: Annotated[int, _option(min=0, help="Of the sampling, and of a made-up prompt.")] = 0,
    dtype: Annotated[str, _option(help=_DTYPE_HELP)] = "auto",
    weights: Annotated[str, _option(help=_WEIGHTS_HELP)] = "auto",
    as_json: Annotated[bool, _option("--json", help=_JSON_HELP)] = False,
    plot: Annotated[Path | None, _option(help=_PLOT_HELP)] = None,
) -> None:
    """KV memory and confidence after every step of one generation.

    \b
    Example:
      agentkv bench trace --policy conf-kv --policy h2o --budget 6MiB --plot sawtooth.svg
    """
    from agentkv_evals.bench_trace import TraceOptions, run

    options = TraceOptions(
        text=text,
        model=model,
        policies=tuple(policy or TraceOptions.policies),
        budgets=tuple(budget or TraceOptions.budgets),
        prompt_tokens=prompt_tokens,
        steps=steps,
        temperature=temperature,
        seed=seed,
        dtype=dtype,
        weights=weights,
        json=as_json,
        plot=plot,
    )
    raise typer.Exit(run(options))
