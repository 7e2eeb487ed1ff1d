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
_BUDGETS = ("8MiB", "24MiB", "25%")


@dataclass(frozen=True)
class Finding:
    """One line of the report. `ok` is None for a plain fact."""

    topic: str
    text: str
    ok: bool | None = None


def doctor(
    model: Annotated[str, typer.Option(help="Embedded name, model folder or hub id.")] = "smollm2-135m",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Check versions, browser and model, and compare the model on pages with plain transformers.

    Exit code 1 if a check fails.

    \b
    Example:
      agentkv doctor --model smollm2-135m
    """
    findings = []
    for finding in _examine(model, dtype):
        findings.append(finding)
        if as_json:
            typer.echo(json.dumps({"topic": finding.topic, "text": finding.text, "ok": finding.ok}))
        else:
            mark = {True: "ok  ", False: "FAIL", None: "    "}[finding.ok]
            typer.echo(f"{mark} {finding.topic:<12} {finding.text}")
    raise typer.Exit(1 if any(finding.ok is False for finding in findings) else 0)


def _examine(model: str, dtype: str) -> Iterator[Finding]:
    yield Finding("versions", ", ".join(_versions()))
    yield Finding("devices", _devices())
    yield _browser()
    from agentkv.engine import Engine
    from agentkv.engine.self_check import compare_with_transformers
    from agentkv.models import resolve_model

    engine = Engine.load(model, dtype=dtype)
    layout = engine.layout
    yield Finding(
        "model",
        f"{model}: {layout.layers} layers, {layout.kv_heads} KV heads of {layout.head_dim}, {layout.dtype}, "
        f"window {engine.context_window} tokens",
        True,
    )
    yield from _memory(engine)
    check = compare_with_transformers(engine, resolve_model(model))
    yield Finding(
        "exactness",
        f"mean KL from plain transformers {check.mean_kl:.2g} nats over {check.positions} positions "
        f"(allowed {check.tolerance:g}), same top token {check.same_top:.0%}",
        check.passed,
    )


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

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    fast = "with" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "without"
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
    from agentkv import policies
    from agentkv.cache.budget import Budget, resolve
    from agentkv.cache.formats import KVFormat

    layout = engine.layout
    heads = layout.layers * layout.kv_heads
    per_slot = ", ".join(
        f"{fmt.name} {heads * layout.page_bytes / layout.slots_per_page(fmt) / 1024:.1f} KiB" for fmt in KVFormat
    )
    yield Finding("per token", f"{per_slot}, metadata apart; pages of {layout.page_bytes} bytes")
    for budget in _BUDGETS:
        holds = []
        for name in policies.names():
            policy = policies.build(name)
            if policy.evicts:
                limits = resolve(Budget.parse(budget), policy, layout, engine.context_window)
                holds.append(f"{name} {limits.max_slots}")
        yield Finding(f"{budget} holds", "tokens: " + ", ".join(holds))
