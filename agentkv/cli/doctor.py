"""`agentkv doctor`: is everything here, and does it compute what it should?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentkv.engine import Engine

_PACKAGES = ("agentkv", "torch", "transformers", "langchain-core", "llguidance", "playwright", "triton")
_BUDGETS = ("6MiB", "64MiB", "25%")


@dataclass(frozen=True)
class Finding:
    """One line of the report. `ok` is None for a plain fact."""

    topic: str
    text: str
    ok: bool | None = None


def doctor(
    model: Annotated[str, typer.Option(help="Name (agentkv models list), folder or hub id.")] = "smollm2-135m",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    weights: Annotated[str, typer.Option(help="Of decode steps: model, int8 or auto.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Check versions, browser and model, and compare the model on pages with plain transformers.

    Exit code 1 if a check fails.

    \b
    Example:
      agentkv doctor --model smollm2-135m
    """
    findings = []
    for finding in _examine(model, dtype, device, weights):
        findings.append(finding)
        if as_json:
            typer.echo(json.dumps({"topic": finding.topic, "text": finding.text, "ok": finding.ok}))
        else:
            mark = {True: "ok  ", False: "FAIL", None: "    "}[finding.ok]
            typer.echo(f"{mark} {finding.topic:<12} {finding.text}")
    raise typer.Exit(1 if any(finding.ok is False for finding in findings) else 0)


def _examine(model: str, dtype: str, device: str, weights: str) -> Iterator[Finding]:
    yield Finding("versions", ", ".join(_versions()))
    yield Finding("devices", _devices())
    yield _browser()
    from agentkv.engine import Engine
    from agentkv.engine.self_check import compare_with_transformers
    from agentkv.models import resolve_model
    from agentkv_kernels import computed_by

    engine = Engine.load(model, dtype=dtype, device=device, weights=weights)
    yield Finding("model", f"{model}: {_shape(engine)}", True)
    kernels = computed_by(engine.device, engine.layout.dtype)
    yield Finding("runs on", f"{engine.device}; kernels: {kernels}; decode steps: {_decoding(engine)}")
    yield Finding("beyond it", _beyond_window(engine))
    yield from _quantising(engine)
    yield from _memory(engine)
    check = compare_with_transformers(engine, resolve_model(model))
    yield Finding(
        "exactness",
        f"mean KL from plain transformers {check.mean_kl:.2g} nats over {check.positions} positions of {check.length} "
        f"tokens (allowed {check.tolerance:g}), same top token {check.same_top:.0%}",
        check.passed,
    )


def _shape(engine: Engine) -> str:
    layout = engine.layout
    text = (
        f"{layout.layers} layers, {layout.kv_heads} KV heads of {layout.head_dim}, {layout.dtype}, "
        f"window {engine.context_window} tokens"
    )
    sliding = [width for width in layout.windows if width is not None]
    if sliding:
        text += f", {len(sliding)} layers slide within {max(sliding)} tokens"
    return text


def _decoding(engine: Engine) -> str:
    return "int8 weights" if engine.decode_weights == "int8" else "the model's own weights"


def _beyond_window(engine: Engine) -> str:
    if engine.no_rebase is None:
        return "a session under an evicting policy outlives the window: its keys are given new positions"
    return f"no session outlives the window: {engine.no_rebase}"


def _quantising(engine: Engine) -> Iterator[Finding]:
    """What each format costs the attention of this model, and the layers that are spared it."""
    found = []
    for fmt, errors in engine.quantization_errors.items():
        exempt = sorted(engine.quantization_exempt[fmt])
        layers = f"layers {', '.join(map(str, exempt))} stay as they are" if exempt else "no layer is exempt"
        found.append(f"{fmt.name} up to {max(errors):.1%}, {layers}")
    yield Finding("quantising", "error of a layer's attention: " + "; ".join(found))


def _versions() -> list[str]:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    return found


def _devices() -> str:
    import torch

    from agentkv_kernels.arithmetic import multiplies_fast

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    fast = "with" if multiplies_fast(torch.bfloat16, torch.device("cpu")) else "without"
    return f"CPU {fast} bfloat16 arithmetic, {torch.get_num_threads()} threads; GPUs: {', '.join(gpus) or 'none'}"


def _browser() -> Finding:
    try:
        from agentkv_envs import EnvError, find_executable
    except ModuleNotFoundError:
        return Finding("browser", "not needed for the runtime; pip install 'agentkv[eval]' brings agentkv eval")
    try:
        return Finding("browser", find_executable() or "none on the PATH; Playwright's own is used if installed")
    except EnvError as error:
        return Finding("browser", str(error), False)


def _memory(engine: Engine) -> Iterator[Finding]:
    from agentkv.engine.self_check import bytes_per_token

    measured = bytes_per_token(engine.layout, engine.device)
    sizes = ", ".join(f"{fmt.name} {size / 1024:.1f} KiB" for fmt, size in measured.items())
    yield Finding("per token", f"{sizes}, metadata included; pages of {engine.layout.page_bytes} bytes")
    for budget in _BUDGETS:
        yield Finding(f"{budget} holds", "tokens: " + _holds(engine, budget))


def _holds(engine: Engine, budget: str) -> str:
    """How many tokens each evicting policy keeps under a budget, policies that keep as many together."""
    from agentkv import policies
    from agentkv.cache.budget import Budget, resolve
    from agentkv.errors import BudgetTooSmall

    by_tokens: dict[str, list[str]] = {}
    for name in policies.names():
        policy = policies.build(name)
        if not policy.evicts:
            continue
        exempt = engine.quantization_exempt[policy.code_format] if policy.precision else frozenset()
        try:
            limits = resolve(Budget.parse(budget), policy, engine.layout, engine.context_window, exempt)
            tokens = str(limits.max_slots)
        except BudgetTooSmall:
            tokens = "too small for"
        by_tokens.setdefault(tokens, []).append(name)
    return "; ".join(f"{tokens} {', '.join(names)}" for tokens, names in by_tokens.items())
