"""The command line hands every flag of the benches over."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkv import cli
from agentkv_evals import bench_confidence, bench_latency, bench_niah, bench_ppl, bench_throughput, bench_trace


def options_of(monkeypatch, module, command: str):
    seen = []
    monkeypatch.setattr(module, "run", lambda options: seen.append(options) or 1)
    assert cli.run(["bench", *command.split()]) == 1
    return seen[0]


def test_ppl(monkeypatch) -> None:
    flags = "ppl --text t.txt --model m --policy window --policy h2o --budget 6MiB --budget 512 --prompt-tokens 7"
    flags += " --tokens 8 --windows 9 --prefill whole --dtype float32 --weights int8 --json --plot p.svg"
    assert options_of(monkeypatch, bench_ppl, flags) == bench_ppl.PplOptions(
        text=Path("t.txt"), model="m", policies=("window", "h2o"), budgets=("6MiB", "512"), prompt_tokens=7, tokens=8,
        windows=9, prefill="whole", dtype="float32", weights="int8", json=True, plot=Path("p.svg"),
    )  # fmt: skip
    assert options_of(monkeypatch, bench_ppl, "ppl --text t.txt") == bench_ppl.PplOptions(text=Path("t.txt"))


def test_niah(monkeypatch) -> None:
    flags = "niah --prompts p.jsonl --length 300 --length 500 --n 3 --mode known --mode late --model m --policy window"
    flags += " --budget 25% --seed 4 --dtype float32 --weights int8 --json --plot p.png"
    assert options_of(monkeypatch, bench_niah, flags) == bench_niah.NiahOptions(
        prompts=Path("p.jsonl"), lengths=(300, 500), n=3, modes=("known", "late"), model="m", policies=("window",),
        budgets=("25%",), seed=4, dtype="float32", weights="int8", json=True, plot=Path("p.png"),
    )  # fmt: skip
    assert options_of(monkeypatch, bench_niah, "niah") == bench_niah.NiahOptions()
    made = options_of(monkeypatch, bench_niah, "niah --text t.txt --kind number --kind sentence --prefill whole")
    assert made == bench_niah.NiahOptions(text=Path("t.txt"), kinds=("number", "sentence"), prefill="whole")


def test_latency(monkeypatch) -> None:
    flags = "latency --model m --policy window --budget 64 --length 300 --steps 3 --dtype float32 --weights int8"
    flags += " --json --plot p.svg"
    assert options_of(monkeypatch, bench_latency, flags) == bench_latency.LatencyOptions(
        model="m", policies=("window",), budgets=("64",), lengths=(300,), steps=3, dtype="float32",
        weights="int8", json=True, plot=Path("p.svg"),
    )  # fmt: skip


def test_throughput(monkeypatch) -> None:
    flags = "throughput --model m --policy h2o --policy window --budget 64 --batch 2 --batch 3 --length 30 --steps 4"
    flags += " --dtype float32 --weights int8 --json --plot p.svg"
    assert options_of(monkeypatch, bench_throughput, flags) == bench_throughput.ThroughputOptions(
        model="m", policies=("h2o", "window"), budgets=("64",), batches=(2, 3), length=30, steps=4, dtype="float32",
        weights="int8", json=True, plot=Path("p.svg"),
    )  # fmt: skip
    assert options_of(monkeypatch, bench_throughput, "throughput") == bench_throughput.ThroughputOptions()


def test_confidence(monkeypatch) -> None:
    flags = "confidence --text t.txt --model m --windows 3 --prompt-tokens 70 --tokens 80 --ablate 9 --dtype float32"
    flags += " --weights int8 --json --plot p.png"
    assert options_of(monkeypatch, bench_confidence, flags) == bench_confidence.ConfidenceOptions(
        text=Path("t.txt"), model="m", windows=3, prompt_tokens=70, tokens=80, ablate=9, dtype="float32",
        weights="int8", json=True, plot=Path("p.png"),
    )  # fmt: skip
    default = bench_confidence.ConfidenceOptions(text=Path("t.txt"))
    assert options_of(monkeypatch, bench_confidence, "confidence --text t.txt") == default


def test_trace(monkeypatch) -> None:
    flags = "trace --text t.txt --model m --policy h2o --policy full --budget 64 --prompt-tokens 30 --steps 4"
    flags += " --temperature 0.5 --seed 6 --dtype float32 --weights int8 --json --plot p.svg"
    assert options_of(monkeypatch, bench_trace, flags) == bench_trace.TraceOptions(
        text=Path("t.txt"), model="m", policies=("h2o", "full"), budgets=("64",), prompt_tokens=30, steps=4,
        temperature=0.5, seed=6, dtype="float32", weights="int8", json=True, plot=Path("p.svg"),
    )  # fmt: skip
    assert options_of(monkeypatch, bench_trace, "trace") == bench_trace.TraceOptions()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ppl", "give --text FILE; any UTF-8 file works"),
        ("ppl --text t --tokens 0", "--tokens"),
        ("niah --mode never", "modes: known, late"),
        ("niah --n 0", "--n"),
        ("niah --prefill half", "there are: chunked, whole"),
        ("confidence", "give --text FILE"),
        ("throughput --batch 0", "--batch"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(capsys, command, words) -> None:
    assert cli.run(["bench", *command.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("agentkv: ")
    assert err.count("\n") == 1
    assert words in err
