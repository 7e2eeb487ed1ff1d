"""The latency bench: every implementation runs the same number of tokens, and the rows are what was measured."""

from __future__ import annotations

import json

import pytest
import torch

from agentkv.errors import AgentKVError
from agentkv_evals import bench_latency
from agentkv_evals.bench_latency import LatencyOptions, OurDecoder, TransformersDecoder, measure
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


def test_the_table_shows_both_ratios(tiny, capsys) -> None:
    assert bench_latency.run(LatencyOptions(lengths=(30,), budgets=("64",), steps=3)) == 0
    out = capsys.readouterr().out
    assert "/ transformers" in out
    assert "/ our full" in out


@pytest.mark.parametrize(
    ("lengths", "reason"), [((WINDOW + 1,), "beyond the model's window"), ((40, 43), "no room for 5 decoded tokens")]
)
def test_lengths_that_cannot_be_measured_are_refused(tiny, lengths, reason) -> None:
    with pytest.raises(AgentKVError, match=reason):
        bench_latency.run(LatencyOptions(lengths=lengths, steps=5))
