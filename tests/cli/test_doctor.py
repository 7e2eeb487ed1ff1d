"""`agentkv doctor` passes on a sound model and fails on one that computes something else."""

from __future__ import annotations

import json

import pytest
import torch

from agentkv.cli import doctor, run
from agentkv.engine import self_check
from agentkv.engine.self_check import compare_with_transformers
from tests.runtime_helpers import DigitTokenizer, tiny_engine, tiny_model


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


def test_other_weights_fail(engine, tmp_path) -> None:
    tiny_model("llama", torch.float32, seed=1).save_pretrained(tmp_path)
    assert not compare_with_transformers(engine, tmp_path).passed


@pytest.mark.model
def test_the_command_reports_and_passes(capsys) -> None:
    assert run(["doctor", "--dtype", "float32", "--json"]) == 0
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_topic = {finding["topic"]: finding for finding in findings}
    assert by_topic["exactness"]["ok"] is True
    assert "FP 45.0 KiB, INT8_TOKEN 11.2 KiB" in by_topic["per token"]["text"]
    assert "conf-kv" in by_topic["8MiB holds"]["text"]


def test_a_failed_check_is_exit_code_1(monkeypatch, capsys) -> None:
    findings = [doctor.Finding("model", "fine", True), doctor.Finding("exactness", "KL 3", False)]
    monkeypatch.setattr(doctor, "_examine", lambda model, dtype: iter(findings))
    assert run(["doctor"]) == 1
    assert "FAIL exactness" in capsys.readouterr().out
    assert self_check.SelfCheck(1, 0.5, 1.0, 0.1).passed is False
