"""`agentkv train gates`: a folder with gates that the policy loads, exact resuming, refusals."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from agentkv.engine.merging import base_fingerprint
from agentkv.policies.trim_gates import load_gates
from agentkv.train import gates as module
from agentkv.train.documents import Document
from agentkv.train.errors import TrainError
from agentkv.train.gates import FILE, PAGE, PICTURE, GateOptions, run
from agentkv.train.log import FILE as LOG
from agentkv.train.log import read_log
from agentkv.train.settings import TrainSettings
from tests.runtime_helpers import VOCABULARY, DigitTokenizer, random_ids, tiny_engine, tiny_model

TEXT = "A heron stood by the mill. Rain fell on the slates until dusk! Two carts went by, one of them empty. " * 60
SETTINGS = TrainSettings(tokens=8000, length=400, batch=1, lr=5e-3, validations=4)


class CharTokenizer(DigitTokenizer):
    """A token a character."""

    def __call__(self, text: str, **kwargs: Any) -> dict[str, list[int]]:
        return {"input_ids": [2 + ord(char) % (VOCABULARY - 2) for char in text]}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GateOptions:
    book = tmp_path / "book.txt"
    book.write_text(TEXT, "utf-8")
    monkeypatch.setattr(module, "resolve_model", lambda name: name)
    monkeypatch.setattr(module, "load_merged", lambda *_: (tiny_model("llama", torch.float32), CharTokenizer()))
    return GateOptions(
        (book,), tmp_path / "out", "tiny", SETTINGS, document=400, width=8, bias=5.0, capacity=20, validate=2, json=True
    )


def rows_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_folder_ends_with_gates_that_the_policy_takes(
    options: GateOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    run(options)
    rows = rows_of(capsys)
    checks = [row for row in rows if row["kind"] == "validation"]
    assert checks[0]["held"] > checks[-1]["held"]
    assert rows[-1]["kind"] == "result"
    assert rows[-1]["held_out"]["loss"] == pytest.approx(min(row["loss"] for row in checks), rel=1e-4)
    assert (options.out / PICTURE).read_text("utf-8").startswith("<?xml")
    assert all(kind in (options.out / PAGE).read_text("utf-8") for kind in ('"text: ', '"recall: '))
    found = load_gates(options.out / FILE)
    assert found.fingerprint == base_fingerprint(tiny_model("llama", torch.float32))
    assert found.w1.shape[1] == 8
    assert torch.equal(found.w1, found.w1.bfloat16().float()), "as the figures were measured"
    engine = tiny_engine("llama", torch.float32)
    session = engine.open_session("trim-kv", 64, gates=str(options.out / FILE))
    assert session.policy.options["gates"].endswith(FILE)


def test_an_interrupted_training_goes_on_with_the_same_losses(options: GateOptions, tmp_path: Path) -> None:
    whole = replace(options, out=tmp_path / "whole")
    run(whole)
    asked: Iterator[bool] = (n == 5 for n in range(1, 1000))
    with pytest.raises(KeyboardInterrupt):
        run(options, lambda: next(asked))
    run(options)

    def losses(folder: Path) -> list[tuple[str, int, float]]:
        return [(row["kind"], row["step"], row["loss"]) for row in read_log(folder / LOG)]

    assert losses(options.out) == losses(whole.out)
    resumed, uninterrupted = load_gates(options.out / FILE), load_gates(whole.out / FILE)
    for part in ("w1", "b1", "w2", "b2"):
        assert torch.equal(getattr(resumed, part), getattr(uninterrupted, part))


def test_an_interrupted_training_can_end_where_it_stands(
    options: GateOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TrainError, match="no training that could be finished; leave out --finish"):
        run(replace(options, finish=True))
    asked: Iterator[bool] = (n == 5 for n in range(1, 1000))
    with pytest.raises(KeyboardInterrupt):
        run(options, lambda: next(asked))
    with pytest.raises(TrainError, match="give one of them"):
        run(replace(options, finish=True, fresh=True))
    capsys.readouterr()
    run(replace(options, finish=True))
    rows = rows_of(capsys)
    assert (rows[-1]["step"], rows[-1]["ended"]) == (5, "finished by hand")
    assert rows[-1]["best_step"] == 5, "it has learned, and what it has learned is written"
    written = load_gates(options.out / FILE)
    run(options)
    assert torch.equal(load_gates(options.out / FILE).w1, written.w1), "a training that has ended does not go on"


def test_kinds_share_the_tokens_and_all_of_them_validate(options: GateOptions) -> None:
    own = [Document(tuple(random_ids(50, seed=n)), ((3, 9),), f"trace {n}") for n in range(80)]
    asked = replace(options, more=lambda tokenizer, model: {"traces": own})
    kinds = module._kinds(asked, {"book": TEXT * 5}, tiny_model("llama"), CharTokenizer())
    data = module._data(kinds, asked.settings)
    held: dict[str, int] = {}
    for document in data.training:
        kind = document.name.split()[0].rstrip(",")
        held[kind] = held.get(kind, 0) + len(document.ids)
    assert set(held) == {"book", "recall", "trace"}
    assert all(2000 <= tokens <= 2666 + 400 for tokens in held.values())
    names = [document.name for document in data.validation["held out"]]
    assert [name.split()[0].rstrip(",") for name in names] == ["book"] * 2 + ["recall"] * 2 + ["trace"] * 2
    assert not {document.ids for document in data.training} & {d.ids for d in data.validation["held out"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capacity": 400}, "--capacity 400 is no limit for documents of 400 tokens"),
        ({"width": 0}, "--width must be at least 1, not 0"),
        ({"weight": 0.0}, "--weight must be above 0"),
        ({"weight": float("nan")}, "--weight must be above 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options: GateOptions, change: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        replace(options, **change)


def test_another_training_in_the_folder_is_refused(options: GateOptions) -> None:
    run(options)
    with pytest.raises(TrainError, match=r"holds a training with another capacity \(20, not 30\)"):
        run(replace(options, capacity=30))


def test_other_content_of_the_same_files_is_another_training(options: GateOptions, tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    traces.write_text("{}\n")
    options = replace(options, sources=(traces,))
    run(options)
    for path, name in ((options.text[0], "text"), (traces, "sources")):
        before = path.read_text("utf-8")
        path.write_text(before + "Something else. ", "utf-8")
        with pytest.raises(TrainError, match=f"holds a training with another {name}"):
            run(options)
        path.write_text(before, "utf-8")


def test_a_text_too_short_for_a_document_is_refused(options: GateOptions) -> None:
    options.text[0].write_text("Too short. " * 9, "utf-8")
    with pytest.raises(TrainError, match="the texts are too short: documents have 400 tokens"):
        run(options)


def test_too_little_memory_is_said_before_anything_is_trained(
    options: GateOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = namedtuple("memory", "available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(1000))
    with pytest.raises(TrainError, match=r"tokens take about .* are free; use --length \d+ and no longer --document$"):
        run(options)
    assert not (options.out / FILE).exists()


def test_texts_that_must_not_be_trained_on_are_refused_first(options: GateOptions) -> None:
    def refuse(texts: Mapping[str, str]) -> None:
        raise TrainError(f"no to {len(texts)}")

    with pytest.raises(TrainError, match="no to 1"):
        run(replace(options, check=refuse))
    assert not options.out.exists()
