"""The throughput bench: batches of sessions take turns, and a batch computes what its sessions would alone."""

from __future__ import annotations

import json

import pytest
from bench_fakes import word_engine

from agentkv.errors import AgentKVError
from agentkv_evals import bench_throughput
from agentkv_evals.bench_throughput import Batch, ThroughputOptions, make_rows, measure, random_prompts
from agentkv_evals.plan import Arm


@pytest.fixture
def tiny(monkeypatch):
    engine = word_engine()
    engine.tokenizer.__class__.__len__ = lambda self: 97
    monkeypatch.setattr(bench_throughput.Engine, "load", lambda *a, **k: engine)
    return engine


def batch_of(engine, policy: str, budget: str | None, size: int) -> Batch:
    arm = Arm(policy, budget)
    return Batch(engine, arm, [engine.open_session(policy, budget) for _ in range(size)])


def test_a_batch_continues_each_session_as_alone(tiny) -> None:
    prompts = random_prompts(3, 40, 97)
    assert len({tuple(prompt) for prompt in prompts}) == 3
    together = batch_of(tiny, "h2o", "24", 3)
    together.prefill(prompts)
    measure([together], 6, lambda: None)
    assert len(together.times) == 6
    for session, prompt in zip(together._sessions, prompts, strict=True):
        alone = batch_of(tiny, "h2o", "24", 1)
        alone.prefill([prompt])
        measure([alone], 6, lambda: None)
        assert session.ledger == alone._sessions[0].ledger
        assert session.logical_length == 40 + 6


def test_batches_take_turns_step_by_step(tiny, monkeypatch) -> None:
    batches = [batch_of(tiny, "full", None, 1), batch_of(tiny, "full", None, 2)]
    for batch in batches:
        batch.prefill(random_prompts(batch.size, 10, 97))
    sizes = []
    decode = tiny.decode_batch
    monkeypatch.setattr(
        tiny, "decode_batch", lambda sessions, last: sizes.append(len(sessions)) or decode(sessions, last)
    )
    measure(batches, 3, lambda: None)
    assert sizes == [1, 2] * 4


def test_rows_compare_with_full_and_with_batch_one(tiny) -> None:
    batches = [
        batch_of(tiny, *arm) for arm in [("full", None, 1), ("h2o", "24", 1), ("full", None, 4), ("h2o", "24", 4)]
    ]
    for batch, times in zip(batches, ([10.0], [9.0, 8.0, 1.0], [20.0], [16.0]), strict=True):
        batch.times = times
    full, small, full_4, small_4 = make_rows(batches, 50, 1.234)
    assert (full.tokens_per_s, full.step_ratio_to_full, full.speedup_over_one) == (100, 1, 1)
    assert (small.ms_step_median, small.tokens_per_s, small.step_ratio_to_full) == (8, 125, 0.8)
    assert (full_4.tokens_per_s, full_4.speedup_over_one) == (200, 2)
    assert (small_4.tokens_per_s, small_4.step_ratio_to_full, small_4.speedup_over_one) == (250, 0.8, 2)
    assert (small_4.batch, small_4.logical_length, small_4.load_average) == (4, 50, 1.23)
    assert make_rows(batches[2:], 50, 0)[0].speedup_over_one is None


def test_json_rows_have_the_stable_fields(tiny, capsys, tmp_path) -> None:
    plot = tmp_path / "throughput.png"
    options = ThroughputOptions(
        policies=("full", "h2o"), budgets=("24",), batches=(2, 1, 2), length=40, steps=2, json=True, plot=plot
    )
    assert bench_throughput.run(options) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["bench"], row["batch"], row["policy"], row["budget"]) for row in rows] == [
        ("throughput", 1, "full", None), ("throughput", 1, "h2o", "24"),
        ("throughput", 2, "full", None), ("throughput", 2, "h2o", "24"),
    ]  # fmt: skip
    for row in rows:
        assert row["tokens_per_s"] == pytest.approx(1e3 * row["batch"] / row["ms_step_median"], rel=0.05)
        assert row["logical_length"] == 43
    assert rows[3]["kv_bytes"] == 2 * rows[1]["kv_bytes"] < rows[2]["kv_bytes"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert tiny.arena.used_pages == 0


def test_the_table_shows_both_ratios(tiny, capsys) -> None:
    bench_throughput.run(ThroughputOptions(budgets=("24",), batches=(2,), length=20, steps=2))
    out = capsys.readouterr().out
    assert "/ full" in out
    assert "tokens/s over batch 1" in out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"batches": (0,)}, "must be at least 1"),
        ({"length": 250}, "the model's window holds 256; lower --length or --steps"),
        ({"policies": ("nope",)}, "unknown policy 'nope'"),
    ],
)
def test_what_cannot_be_measured_is_refused(tiny, change, reason) -> None:
    with pytest.raises(AgentKVError, match=reason):
        bench_throughput.run(ThroughputOptions(**{"length": 20, "steps": 8, **change}))
    assert tiny.arena.used_pages == 0


def test_sessions_that_the_pool_cannot_hold_are_one_error_and_leave_nothing_behind(tiny) -> None:
    with pytest.raises(AgentKVError, match="pool"):
        bench_throughput.run(ThroughputOptions(policies=(), batches=(96,), length=200, steps=2))
    assert tiny.arena.used_pages == 0
