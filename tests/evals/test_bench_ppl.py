"""Perplexity: full KV is transformers' own, and a policy decides as it does in generation."""

from __future__ import annotations

import json
import math

import pytest
import torch
from bench_fakes import word_engine

from agentkv.engine import SamplingParams
from agentkv.errors import AgentKVError
from agentkv_evals import bench_ppl
from agentkv_evals.bench_common import unequal_bytes
from agentkv_evals.bench_ppl import PplOptions, PplRow, Window, score
from tests.runtime_helpers import random_ids, tiny_model

IDS = random_ids(150, seed=3)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a [book] of $2.txt"
    path.write_text(" ".join(map(str, IDS)))
    return path


@pytest.fixture
def tiny(monkeypatch):
    engine = word_engine()
    monkeypatch.setattr(bench_ppl.Engine, "load", lambda *a, **k: engine)
    return engine


def transformers_nll(ids: list[int], first: int) -> torch.Tensor:
    """NLL of ids[first:], from one pass with transformers' default attention."""
    with torch.no_grad():
        logits = tiny_model("llama", torch.float64)(torch.tensor([ids])).logits[0]
    scores = logits.log_softmax(-1)[first - 1 : -1]
    return -scores.gather(-1, torch.tensor(ids[first:]).unsqueeze(-1)).squeeze(-1)


def rows_of(capsys) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_full_equals_transformers_on_every_window(tiny, text, capsys) -> None:
    options = PplOptions(text=text, policies=(), prompt_tokens=30, tokens=40, windows=2, json=True)
    assert bench_ppl.run(options) == 0
    (row,) = rows_of(capsys)
    expected = torch.cat([transformers_nll(IDS[:70], 30), transformers_nll(IDS[70:140], 30)])
    assert row["nll"] == pytest.approx(float(expected.mean()), abs=1e-5)
    assert row["ppl"] == pytest.approx(math.exp(row["nll"]), rel=1e-4)
    assert (row["tokens"], row["nll_above_full"], tiny.arena.used_pages) == (80, 0.0, 0)


def test_each_window_begins_with_the_tokenizers_own_first_token(text, capsys, monkeypatch) -> None:
    engine = word_engine(leading=True)
    monkeypatch.setattr(bench_ppl.Engine, "load", lambda *a, **k: engine)
    bench_ppl.run(PplOptions(text=text, policies=(), prompt_tokens=30, tokens=20, json=True))
    expected = transformers_nll([0, *IDS[:50]], 31)
    assert rows_of(capsys)[0]["nll"] == pytest.approx(float(expected.mean()), abs=1e-5)


@pytest.mark.parametrize("policy", ["conf-kv", "h2o"])
def test_a_policy_decides_as_in_generation(policy: str) -> None:
    """Scoring the tokens that a session generated goes through the same confidences and keeps the same tokens."""
    engine = word_engine()
    # 0.35 is in the middle of what this model feels, so that the target changes along the way.
    options = {"threshold": 0.35} if policy == "conf-kv" else {}
    spoken = engine.open_session(policy, "64", **options)
    events = list(engine.generate(spoken, IDS[:90], SamplingParams(max_tokens=60, min_tokens=60)))
    tokens = [token for event in events for token in event.token_ids]
    scored = engine.open_session(policy, "64", **options)
    felt = []
    for _ in score(engine, scored, Window(IDS[:90], tokens)):
        felt.append(scored.cache.confidence)
    assert felt == [event.confidence for event in events]
    if policy == "conf-kv":
        assert min(felt) < 0.35 < max(felt)
    assert scored.ledger == spoken.ledger
    assert torch.equal(scored.cache.store.token_index, spoken.cache.store.token_index)


def test_policies_are_compared_with_full_on_the_same_tokens(tiny, text, capsys) -> None:
    options = PplOptions(
        text=text, policies=("window", "full", "window"), budgets=("24", "48"), prompt_tokens=40, tokens=90, json=True
    )
    bench_ppl.run(options)
    full, small, large = rows_of(capsys)
    arms = [(row["bench"], row["policy"], row["budget"]) for row in (full, small, large)]
    assert arms == [("ppl", "full", None), ("ppl", "window", "24"), ("ppl", "window", "48")]
    assert small["nll_above_full"] == pytest.approx(small["nll"] - full["nll"], abs=2e-6)
    assert small["nll"] != large["nll"] != full["nll"]
    assert small["nll_standard_error"] > 0
    assert small["kv_bytes"] < large["kv_bytes"] < full["kv_bytes"]
    assert all(row["mean_kv_bytes"] <= row["kv_bytes"] for row in (full, small, large))


def test_the_table_and_the_plot(tiny, text, capsys, tmp_path) -> None:
    plot = tmp_path / "rows.svg"
    # In tokens, a policy that quantises holds far fewer bytes.
    options = PplOptions(
        text=text, policies=("window", "conf-kv"), budgets=("64",), prompt_tokens=60, tokens=60, plot=plot
    )
    bench_ppl.run(options)
    out = " ".join(capsys.readouterr().out.split())
    assert "a [book] of $2.txt" in out
    assert "Not at equal bytes: under 64 the peaks range from" in out
    assert "</svg>" in plot.read_text()


def test_windows_are_prefilled_as_asked(tiny, text, capsys, monkeypatch) -> None:
    opened = []
    open_session = tiny.open_session

    def spy(policy, budget, prefill=None):
        opened.append(prefill)
        return open_session(policy, budget)

    monkeypatch.setattr(tiny, "open_session", spy)
    bench_ppl.run(
        PplOptions(text=text, policies=(), prompt_tokens=30, tokens=20, windows=2, prefill="whole", json=True)
    )
    assert rows_of(capsys)[0]["prefill"] == "whole"
    # Once to see that it fits, and once for each window.
    assert opened == ["whole"] * 3


def test_unequal_bytes_are_told_per_budget() -> None:
    def row(policy: str, budget: str | None, size: int) -> PplRow:
        return PplRow(policy, budget, 1, 0, 0, 0, 1, 1, 1, "chunked", size, size)

    rows = [row("full", None, 900), row("a", "x", 100), row("b", "x", 105), row("a", "y", 300), row("b", "y", 316)]
    (note,) = unequal_bytes(rows)
    assert "under y" in note
    assert "(a)" in note
    assert "(b)" in note


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"windows": 3}, r"has 150 tokens, but 3 × \(30 \+ 40\) = 210"),
        ({"tokens": 300}, "needs 330 tokens but the model's window holds 256; lower --tokens"),
        ({"policies": ("nope",)}, "unknown policy 'nope'"),
        ({"budgets": ("much",)}, "budget 'much'"),
        ({"policies": ("h2o",), "budgets": ("1",)}, "holds 1 tokens"),
    ],
)
def test_what_cannot_be_measured_is_refused(tiny, text, change, reason) -> None:
    with pytest.raises(AgentKVError, match=reason):
        bench_ppl.run(PplOptions(**{"text": text, "prompt_tokens": 30, "tokens": 40, **change}))
    assert tiny.arena.used_pages == 0


def test_mistakes_in_the_command_are_found_before_the_model_loads(tmp_path, monkeypatch, text) -> None:
    monkeypatch.setattr(bench_ppl.Engine, "load", lambda *a, **k: pytest.fail("loaded"))
    latin = tmp_path / "latin.txt"
    latin.write_bytes("caf\xe9".encode("latin-1"))
    blank = tmp_path / "blank.txt"
    blank.write_text(" \n")
    cases = [
        ({"text": None}, "give --text FILE; any UTF-8 file works"),
        ({"text": tmp_path / "gone.txt"}, "gone.txt: No such file"),
        ({"text": tmp_path}, "Is a directory"),
        ({"text": latin}, r"not UTF-8 text \(byte 3\)"),
        ({"text": blank}, "holds no text"),
        ({"tokens": 0}, "--tokens must be at least 1"),
        ({"prefill": "half"}, "unknown --prefill 'half'"),
        ({"plot": tmp_path / "a.pdf"}, "must end in .svg or .png"),
        ({"plot": tmp_path / "gone" / "a.svg"}, "there is no folder"),
    ]
    for change, reason in cases:
        with pytest.raises(AgentKVError, match=reason):
            bench_ppl.run(PplOptions(**{"text": text, **change}))
