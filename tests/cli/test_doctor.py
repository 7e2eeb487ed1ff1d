"""`agentkv doctor` passes on a sound model and fails on one that computes something else."""

from __future__ import annotations

import json

import pytest
import torch

from agentkv.cache.formats import KVFormat
from agentkv.cli import doctor, run
from agentkv.engine import self_check
from agentkv.engine.self_check import bytes_per_token, compare_with_transformers
from tests.runtime_helpers import SLIDING, DigitTokenizer, tiny_engine, tiny_model


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(DigitTokenizer, "__len__", lambda self: 97, raising=False)
    return tiny_engine(dtype=torch.float32)


def test_pages_compute_what_transformers_computes(engine, tmp_path) -> None:
    tiny_model("llama", torch.float32).save_pretrained(tmp_path)
    check = compare_with_transformers(engine, tmp_path)
    assert check.passed
    assert check.same_top == 1.0
    assert check.positions == 10
    assert engine.arena.used_pages == 0


def test_sliding_layers_are_compared_past_their_window(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(DigitTokenizer, "__len__", lambda self: 97, raising=False)
    engine = tiny_engine("gemma2", torch.float32)
    tiny_model("gemma2", torch.float32).save_pretrained(tmp_path)
    check = compare_with_transformers(engine, tmp_path)
    assert check.passed
    assert check.length > 2 * SLIDING


def test_bytes_per_token_are_those_of_the_pages_and_a_little_metadata(engine) -> None:
    layout = engine.layout
    measured = bytes_per_token(layout, engine.device)
    assert layout.token_bytes < measured[KVFormat.FP] < 1.2 * layout.token_bytes
    for fmt in (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN, KVFormat.INT8_CHANNEL):
        codes = layout.token_bytes / layout.dtype.itemsize
        assert codes < measured[fmt] < codes + layout.layers * layout.kv_heads * 20


def test_an_exempt_layer_and_a_budget_that_is_too_small_are_named(engine) -> None:
    engine.quantization_errors = {fmt: (0.01, 0.5) for fmt in KVFormat if fmt is not KVFormat.FP}
    (finding,) = doctor._quantising(engine)
    assert "INT8_TOKEN up to 50.0%, layers 1 stay as they are" in finding.text
    assert "too small for" in doctor._holds(engine, "8KiB")
    assert "too small for" not in doctor._holds(engine, "100%")


def test_other_weights_fail(engine, tmp_path) -> None:
    tiny_model("llama", torch.float32, seed=1).save_pretrained(tmp_path)
    assert not compare_with_transformers(engine, tmp_path).passed


@pytest.mark.model
def test_the_command_reports_and_passes(capsys) -> None:
    assert run(["doctor", "--dtype", "float32", "--json"]) == 0
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_topic = {finding["topic"]: finding for finding in findings}
    assert by_topic["exactness"]["ok"] is True
    assert "FP 45.4 KiB, INT8_TOKEN 12.3 KiB, FP8_TOKEN 12.3 KiB" in by_topic["per token"]["text"]
    assert "h2o" in by_topic["6MiB holds"]["text"]
    assert by_topic["quantising"]["text"].count("no layer is exempt") == 3
    assert by_topic["beyond it"]["text"].startswith("a session under an evicting policy outlives the window")


def test_a_failed_check_is_exit_code_1(monkeypatch, capsys) -> None:
    findings = [doctor.Finding("model", "fine", True), doctor.Finding("exactness", "KL 3", False)]
    monkeypatch.setattr(doctor, "_examine", lambda *settings: iter(findings))
    assert run(["doctor"]) == 1
    assert "FAIL exactness" in capsys.readouterr().out
    assert self_check.SelfCheck(136, 1, 0.5, 1.0, 0.1).passed is False
