"""The confidence bench: ablation is masked attention, and the statistics are what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from bench_fakes import word_engine

from agentkv.errors import AgentKVError
from agentkv.policies.confidence import confidence
from agentkv_evals import bench_confidence
from agentkv_evals.bench_confidence import (
    BLOCK,
    ConfidenceOptions,
    ablated_logits,
    block_interval,
    pearson,
    score,
    summarize,
)
from agentkv_evals.bench_text import Window
from tests.runtime_helpers import causal_logits, oracle_logits, random_ids, tiny_model

IDS = random_ids(250, seed=5)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" ".join(map(str, IDS)))
    return path


@pytest.fixture
def tiny(monkeypatch):
    engine = word_engine()
    monkeypatch.setattr(bench_confidence.Engine, "load", lambda *a, **k: engine)
    return engine


def masked_logits(ids: list[int], start: int, end: int) -> torch.Tensor:
    """[V] after the last token, which alone cannot see start ≤ index < end."""
    model = tiny_model("llama", torch.float64)
    visible = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    visible[-1, start:end] = False
    return oracle_logits(model, ids, visible.expand(model.config.num_hidden_layers, 1, -1, -1))[-1]


def test_ablation_is_masked_attention_and_leaves_the_session_alone() -> None:
    engine = word_engine()
    session = engine.open_session("full")
    session.ledger.extend(IDS[:40])
    engine.compute_waiting(session)
    session.ledger.append(IDS[40])
    ablated = ablated_logits(engine, session, 24, 40)
    torch.testing.assert_close(ablated, masked_logits(IDS[:41], 24, 40))
    full = engine.compute_waiting(session)
    torch.testing.assert_close(full, causal_logits(tiny_model("llama", torch.float64), IDS[:41])[-1])
    session.close()
    assert engine.arena.used_pages == 0


def test_every_position_is_scored_with_the_tokens_just_before_the_newest_taken_away() -> None:
    engine = word_engine()
    scored = list(score(engine, Window(IDS[:30], IDS[30:36]), ablate=8))
    whole = causal_logits(tiny_model("llama", torch.float64), IDS[:36])
    assert len(scored) == 6
    for at, (felt, kl) in enumerate(scored, start=29):
        assert felt == pytest.approx(float(confidence(whole[at])))
        log_p = whole[at].log_softmax(-1)
        log_q = masked_logits(IDS[: at + 1], at - 8, at).log_softmax(-1)
        assert kl == pytest.approx(float((log_p.exp() * (log_p - log_q)).sum()))
        assert kl > 0
    assert engine.arena.used_pages == 0


def test_pearson_of_known_data() -> None:
    x = np.arange(10.0)
    assert pearson(x, 3 - 2 * x) == pytest.approx(-1)
    assert pearson(x, np.ones(10)) is None
    assert pearson(np.array([0, 0, 1, 1.0]), np.array([0, 1, 0, 1.0])) == pytest.approx(0)


def test_the_interval_treats_a_block_as_one_draw() -> None:
    """Points repeated within their block say nothing new: the interval must stay as wide as without the repetition."""
    generator = np.random.default_rng(1)
    points = generator.normal(size=(30, 2))
    points[:, 1] -= points[:, 0]
    once = block_interval([point[None] for point in points])
    repeated = block_interval([point[None].repeat(20, axis=0) for point in points])
    pooled = block_interval([point[None] for point in points.repeat(20, axis=0)])
    assert once == pytest.approx(repeated)
    assert once[0] < pearson(*points.T) < once[1] < 0
    assert pooled[1] - pooled[0] < 0.5 * (once[1] - once[0])


def test_a_row_sums_up_all_windows() -> None:
    options = ConfidenceOptions(text="t", tokens=2 * BLOCK, ablate=3)
    felt = np.linspace(0.2, 1, 2 * BLOCK)
    scored = [[(c, 2 - c) for c in felt], [(c, 2 - c) for c in felt[::-1]]]
    row = summarize(scored, options)
    assert (row.r, row.n, row.ablated_tokens) == (-1.0, 4 * BLOCK, 3)
    assert row.r_low == row.r_high == pytest.approx(-1)
    assert row.mean_kl == pytest.approx(1.4)
    assert sum(fifth.n for fifth in row.kl_by_confidence) == row.n
    means = [(fifth.confidence, fifth.kl) for fifth in row.kl_by_confidence]
    assert means == sorted(means)
    assert all(kl == pytest.approx(2 - c, abs=1e-4) for c, kl in means)
    flat = summarize([[(0.5, 1.0)] * 2 * BLOCK], options)
    assert (flat.r, flat.r_low, flat.r_high) == (None, None, None)


def test_json_has_the_stable_fields_and_the_plot_is_drawn(tiny, text, capsys, tmp_path) -> None:
    plot = tmp_path / "confidence.svg"
    options = ConfidenceOptions(text=text, prompt_tokens=30, tokens=70, windows=2, ablate=8, json=True, plot=plot)
    assert bench_confidence.run(options) == 0
    (line,) = capsys.readouterr().out.splitlines()
    row = json.loads(line)
    assert (row["bench"], row["n"], row["ablated_tokens"], row["windows"]) == ("confidence", 140, 8, 2)
    assert row["r_low"] <= row["r"] <= row["r_high"]
    assert row["mean_kl"] > 0
    assert [fifth["n"] for fifth in row["kl_by_confidence"]] == [28] * 5
    assert "</svg>" in plot.read_text()


def test_the_table_states_the_papers_figure_beside_ours(tiny, text, capsys) -> None:
    bench_confidence.run(ConfidenceOptions(text=text, prompt_tokens=30, tokens=64, windows=1, ablate=8))
    out = " ".join(capsys.readouterr().out.split())
    assert "1 (least confident)" in out
    assert "Pearson r = " in out
    assert "paper reports -0.77" in out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"text": None}, "give --text FILE"),
        ({"ablate": 40}, "--ablate 40 needs at least 42 --prompt-tokens"),
        ({"ablate": 0}, "must be at least 1"),
        ({"tokens": 63}, "--tokens must be at least 64"),
        ({"windows": 4}, r"has 250 tokens, but 4 × \(30 \+ 64\)"),
        ({"tokens": 230}, "the model's window holds 256; lower --tokens"),
    ],
)
def test_what_cannot_be_measured_is_refused(tiny, text, change, reason) -> None:
    with pytest.raises(AgentKVError, match=reason):
        bench_confidence.run(
            ConfidenceOptions(**{"text": text, "prompt_tokens": 30, "tokens": 64, "ablate": 8, **change})
        )
