"""The trace bench: every row is the session's own state after that step."""

from __future__ import annotations

import json

import pytest
from bench_fakes import word_engine

from agentkv.engine import SamplingParams
from agentkv.errors import AgentKVError
from agentkv_evals import bench_trace
from agentkv_evals.bench_trace import TraceOptions, make_prompt, record
from agentkv_evals.plan import Arm
from tests.runtime_helpers import random_ids

IDS = random_ids(80, seed=2)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" ".join(map(str, IDS)))
    return path


@pytest.fixture
def tiny(monkeypatch):
    engine = word_engine()
    monkeypatch.setattr(bench_trace.Engine, "load", lambda *a, **k: engine)
    return engine


def test_rows_follow_one_generation_under_the_policy(tiny) -> None:
    options = TraceOptions(prompt_tokens=80, steps=50, seed=3)
    rows = list(record(tiny, Arm("conf-kv", "40"), IDS, options))
    assert [row.step for row in rows] == list(range(51))
    for row in rows:
        assert row.fp_tokens + row.quantized_tokens + row.evicted_tokens == 80 + row.step
    assert rows[0].evicted_tokens > 0 < rows[0].quantized_tokens
    session = tiny.open_session("conf-kv", "40")
    params = SamplingParams(max_tokens=51, min_tokens=51, temperature=options.temperature, seed=3)
    felt = [event.confidence for event in tiny.generate(session, IDS, params)]
    assert [row.confidence for row in rows] == pytest.approx(felt, abs=1e-4)
    assert rows[-1].resident_bytes == session.stats.resident_bytes


def test_full_grows_and_a_budget_holds(tiny, text, capsys, tmp_path) -> None:
    plot = tmp_path / "trace.svg"
    options = TraceOptions(
        text=text,
        policies=("window", "full", "conf-kv"),
        budgets=("48",),
        prompt_tokens=60,
        steps=40,
        json=True,
        plot=plot,
    )
    assert bench_trace.run(options) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    of = {name: [row for row in rows if row["policy"] == name] for name in ("window", "full", "conf-kv")}
    assert [len(part) for part in of.values()] == [41, 41, 41]
    assert {row["bench"] for row in rows} == {"trace"}
    sizes = {name: [row["resident_bytes"] for row in part] for name, part in of.items()}
    assert sizes["full"] == sorted(sizes["full"])
    assert len(set(sizes["full"])) > 2
    assert max(sizes["window"]) < min(sizes["full"])
    assert (of["full"][0]["budget"], of["window"][0]["budget"]) == (None, "48")
    assert of["window"][0]["confidence"] is None
    assert 0 < of["conf-kv"][0]["confidence"] < 1
    assert "</svg>" in plot.read_text()
    assert tiny.arena.used_pages == 0


def test_the_table_sums_up_each_policy(tiny, capsys) -> None:
    bench_trace.run(TraceOptions(policies=("window", "conf-kv"), budgets=("48",), prompt_tokens=60, steps=10))
    out = capsys.readouterr().out
    assert "mean confidence" in out
    assert "window" in out
    assert "conf-kv" in out


def test_prompts_are_the_texts_first_tokens_or_made_up(tiny, text) -> None:
    assert make_prompt(TraceOptions(prompt_tokens=50), tiny, text.read_text()) == IDS[:50]
    made = make_prompt(TraceOptions(prompt_tokens=70, seed=1), tiny, None)
    assert len(made) == 70
    assert made == make_prompt(TraceOptions(prompt_tokens=70, seed=1), tiny, None)
    assert made != make_prompt(TraceOptions(prompt_tokens=70, seed=2), tiny, None)
    leading = word_engine(leading=True)
    assert make_prompt(TraceOptions(prompt_tokens=5), leading, text.read_text()) == [0, *IDS[:5]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"steps": 0}, "must be at least 1"),
        ({"prompt_tokens": 81}, "has 80 tokens, 81 are needed; lower --prompt-tokens"),
        ({"steps": 200, "policies": ("full",)}, "the model's window holds 256; lower --steps"),
        ({"policies": ("nope",)}, "unknown policy 'nope'"),
    ],
)
def test_what_cannot_be_recorded_is_refused(tiny, text, change, reason) -> None:
    with pytest.raises(AgentKVError, match=reason):
        bench_trace.run(TraceOptions(**{"text": text, "prompt_tokens": 60, **change}))
