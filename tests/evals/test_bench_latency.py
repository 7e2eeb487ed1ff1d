"""The latency bench: every implementation runs the same number of tokens, and the rows are what was measured."""

from __future__ import annotations

import json

import pytest
import torch

from agentkv.errors import AgentKVError
from agentkv_evals import bench_latency
from agentkv_evals.bench_latency import LatencyOptions, LatencyRow, OurDecoder, TransformersDecoder, measure
from agentkv_evals.bench_plot import Curve
from tests.runtime_helpers import WINDOW, tiny_engine, tiny_model


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A tiny engine in place of the embedded model, whose weights lie in a folder for transformers' side."""
    engine = tiny_engine(dtype=torch.float32)
    engine.tokenizer.__class__.__len__ = lambda self: 97
    tiny_model("llama", torch.float32).save_pretrained(tmp_path)
    monkeypatch.setattr(bench_latency.Engine, "load", lambda *a, **k: engine)
    monkeypatch.setattr(bench_latency, "resolve_model", lambda name: tmp_path)
    return engine


def test_all_contexts_grow_alike_up_to_the_window(tiny, tmp_path) -> None:
    ours, theirs = OurDecoder(tiny, "full", None), TransformersDecoder(tiny, str(tmp_path))
    pruned = OurDecoder(tiny, "streaming-llm", "64")
    lengths = [40, 90, WINDOW]
    for length, rows in zip(lengths, measure([theirs, ours, pruned], lengths, 5, 97), strict=True):
        assert theirs._cache.get_seq_length() == ours._session.logical_length == length - 1
        assert pruned._session.logical_length == length - 1
        assert [row.logical_length for row in rows] == [length] * 3
        assert all(0 < row.ms_min <= row.ms_median for row in rows)
    assert rows[2].kv_bytes < rows[0].kv_bytes <= rows[1].kv_bytes


def test_json_rows_have_the_stable_fields(tiny, capsys) -> None:
    options = LatencyOptions(policies=("full", "h2o"), budgets=("64", "96"), lengths=(30, 60), steps=3, json=True)
    assert bench_latency.run(options) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    fields = {"bench", "impl", "policy", "budget", "logical_length", "batch", "ms_median", "ms_min"}
    assert all(fields <= row.keys() for row in rows)
    arms = {(row["impl"], row["policy"], row["budget"]) for row in rows}
    assert arms == {
        ("transformers", "full", None), ("agentkv", "full", None), ("agentkv", "h2o", "64"), ("agentkv", "h2o", "96"),
    }  # fmt: skip
    assert len(rows) == 8


def test_the_table_shows_both_ratios_and_the_plot_every_implementation(tiny, capsys, tmp_path) -> None:
    plot = tmp_path / "latency.svg"
    options = LatencyOptions(lengths=(30, 60), policies=("full", "full", "h2o"), budgets=("64",), steps=3, plot=plot)
    assert bench_latency.run(options) == 0
    assert "</svg>" in plot.read_text()
    out = capsys.readouterr().out
    assert "/ transformers" in out
    assert "/ our full" in out


def test_curves_go_through_the_medians() -> None:
    def row(impl: str, policy: str, budget: str | None, length: int, ms: float) -> LatencyRow:
        return LatencyRow(impl, policy, budget, length, ms, 0, 0, 0)

    rows = [
        row("transformers", "full", None, 64, 3),
        row("agentkv", "full", None, 64, 2),
        row("agentkv", "h2o", "9", 64, 1),
        row("transformers", "full", None, 128, 6),
        row("agentkv", "full", None, 128, 4),
    ]
    assert bench_latency._curves(rows) == [
        Curve("transformers", (64, 128), (3, 6)), Curve("full", (64, 128), (2, 4)), Curve("h2o @ 9", (64,), (1,)),
    ]  # fmt: skip


def test_a_plot_that_cannot_be_written_is_refused_before_the_model_loads(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(bench_latency.Engine, "load", lambda *a, **k: pytest.fail("loaded"))
    with pytest.raises(AgentKVError, match=r"must end in \.svg or \.png"):
        bench_latency.run(LatencyOptions(plot=tmp_path / "a.pdf"))


@pytest.mark.parametrize(
    ("lengths", "reason"), [((WINDOW + 1,), "beyond the model's window"), ((40, 43), "no room for 5 decoded tokens")]
)
def test_lengths_that_cannot_be_measured_are_refused(tiny, lengths, reason) -> None:
    with pytest.raises(AgentKVError, match=reason):
        bench_latency.run(LatencyOptions(lengths=lengths, steps=5))
