"""`agentkv train agent` from files to a folder that the rest of agentkv takes for a model."""

from __future__ import annotations

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_fakes import byte_tokenizer
from teach_helpers import row, write
from transformers import LlamaConfig, LlamaForCausalLM

from agentkv.chat_model import ChatAgentKV
from agentkv.cli import run as cli
from agentkv.engine import Engine
from agentkv.train.errors import TrainError
from agentkv.train.log import read_log
from agentkv.train.settings import TrainSettings
from agentkv_agents.prompting import PLAIN, Prompting, prompting_of
from agentkv_agents.teaching.run import TAUGHT, TeachOptions, run

SETTINGS = TrainSettings(tokens=9000, length=3000, batch=1, rank=4, lr=0.01, validations=2)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("base")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write(tmp_path / "traces.jsonl", [row(n, family) for family in ("shop", "forum", "ads") for n in range(4)])


def options(base: Path, traces: Path, out: Path, **changes: Any) -> TeachOptions:
    fields: dict[str, Any] = {"model": str(base), "settings": SETTINGS, "held_out": 1, "validate": 2}
    return TeachOptions((traces,), out, **{**fields, **changes})


def test_it_leaves_an_adapter_a_card_a_picture_and_a_log(
    base: Path, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "adapter"
    run(options(base, traces, out))
    assert sorted(file.name for file in out.iterdir()) == [
        "README.md", "adapter_config.json", "adapter_model.safetensors", "agent.json", "checkpoint.safetensors",
        "log.jsonl", "training.svg",
    ]  # fmt: skip
    checks = [row for row in read_log(out / "log.jsonl") if row["kind"] == "validation"]
    assert {row["set"] for row in checks} == {"unseen families", "seen families"}
    first, last = (checks[n]["loss"] for n in (0, -2))
    assert last < first
    card = (out / "README.md").read_text()
    assert "8 demonstrations" not in card
    assert "6 demonstrations of training tasks (0 of them with wrong steps" in card
    assert "writes a plan first" in card
    assert "goes through it by number. What was to be remembered is written down once more" in card
    assert "where it is needed. LoRA of rank 4" in card
    assert "| unseen families (2 tasks, 6 replies) | 0.0% |" in card
    assert prompting_of(str(out)) == Prompting(plan=True, explain_actions=False, recall=True)
    assert "<svg" in (out / "training.svg").read_text()
    assert "all tokens seen" in capsys.readouterr().out
    plain = Engine.load(str(base), kv_pool="4MiB")
    chat = ChatAgentKV(model=str(out), kv_pool="4MiB", max_tokens=4)
    assert chat.invoke("page: Shop").response_metadata["model_name"] == str(out)
    assert Engine.load(str(out), kv_pool="4MiB").fingerprint != plain.fingerprint


def test_another_training_does_not_go_on_in_its_folder(base: Path, traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "adapter"
    run(options(base, traces, out))
    other = TrainSettings(**{**SETTINGS.as_dict(), "lr": 0.5})
    with pytest.raises(TrainError, match=r"holds a training with another lr \(0.01, not 0.5\).*--fresh"):
        run(options(base, traces, out, settings=other))
    write(traces, [row(n, family) for family in ("shop", "forum", "ads") for n in range(5)])
    with pytest.raises(TrainError, match="with another traces"):
        run(options(base, traces, out))
    run(options(base, traces, out, settings=other, fresh=True))
    assert read_log(out / "log.jsonl")[0]["step"] == 0


def test_a_folder_with_other_things_is_left_alone(base: Path, traces: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(TrainError, match=r"holds thesis.tex, which is of no training"):
            run(options(base, traces, tmp_path / "mine", fresh=fresh))
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_traces_of_the_tests_are_refused_before_anything_is_written(base: Path, tmp_path: Path) -> None:
    from agentkv_envs import load_suite

    intent = load_suite("vwa75")[0].intent
    bad = write(tmp_path / "bad.jsonl", [row(1), row(2, "forum", intent=intent)])
    with pytest.raises(TrainError, match="has the intent of"):
        run(options(base, bad, tmp_path / "adapter"))
    assert not (tmp_path / "adapter").exists()


def test_packs_shorter_than_any_trace_are_refused(base: Path, traces: Path, tmp_path: Path) -> None:
    short = TrainSettings(**{**SETTINGS.as_dict(), "length": 50})
    with pytest.raises(TrainError, match="no trace has an action within 50 tokens; raise --length"):
        run(options(base, traces, tmp_path / "adapter", settings=short))


def test_the_command_prints_one_object_per_line(
    base: Path, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "adapter"
    command = ["train", "agent", "--traces", str(traces), "--out", str(out), "--model", str(base), "--held-out", "1"]
    assert cli([*command, "--tokens", "3000", "--rank", "2", "--validate", "1", "--validations", "1", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["kind"] for row in rows} == {"step", "validation", "result"}
    assert rows[:-1] == read_log(out / "log.jsonl")
    assert rows[-1]["sets"]["unseen families"]["spans"] == 3


def test_an_adapter_is_no_base(base: Path, traces: Path, tmp_path: Path) -> None:
    run(options(base, traces, tmp_path / "first"))
    with pytest.raises(TrainError, match="is an adapter already; train one for its base"):
        run(options(tmp_path / "first", traces, tmp_path / "second"))


def test_without_peft_it_says_what_to_install(
    base: Path, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == "peft":
            raise ModuleNotFoundError("No module named 'peft'", name="peft")
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    code = cli(["train", "agent", "--traces", str(traces), "--out", str(tmp_path / "x"), "--model", str(base)])
    assert code == 2
    assert capsys.readouterr().err == "agentkv: this command needs peft: pip install 'agentkv[train]'\n"


@pytest.mark.parametrize("replies_only", [False, True])
def test_habits_and_the_way_of_learning_are_chosen_and_belong_to_the_training(
    base: Path, traces: Path, tmp_path: Path, replies_only: bool
) -> None:
    out = tmp_path / "adapter"
    plain = {"plan": False, "explain_actions": True}
    run(options(base, traces, out, **plain, replies_only=replies_only))
    assert prompting_of(str(out)) == PLAIN
    checks = [row for row in read_log(out / "log.jsonl") if row["kind"] == "validation"]
    assert checks[-2]["loss"] < checks[0]["loss"]
    assert {row["spans"] for row in checks} == {4}
    with pytest.raises(TrainError, match="with another replies_only"):
        run(options(base, traces, out, **plain, replies_only=not replies_only))
    with pytest.raises(TrainError, match="with another plan"):
        run(options(base, traces, out, replies_only=replies_only))


def test_demonstrations_without_plans_teach_no_plans(base: Path, tmp_path: Path) -> None:
    old = [{k: v for k, v in row(n, f"f{n}").items() if k not in ("plan", "open")} for n in range(4)]
    file = write(tmp_path / "old.jsonl", old)
    with pytest.raises(TrainError, match="has no plan, and the model is one that plans: record"):
        run(options(base, file, tmp_path / "adapter"))
    run(options(base, file, tmp_path / "plain", plan=False))
    # Training it on does not make it another kind of agent, unless that is asked for.
    further = options(base, file, tmp_path / "further", start=str(tmp_path / "plain"))
    assert further.prompting == Prompting(plan=False, explain_actions=False)
    assert replace(further, plan=True).prompting == Prompting(plan=True, explain_actions=False)
    assert replace(further, plan=True, recall=True).prompting == replace(TAUGHT, recall=True)
    with pytest.raises(TrainError, match="--recall has no use without a plan"):
        run(replace(further, recall=True))


def test_what_is_recalled_belongs_to_the_training(base: Path, traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "adapter"
    run(options(base, traces, out, recall=False))
    assert prompting_of(str(out)) == Prompting(plan=True, explain_actions=False)
    assert "remembered" not in (out / "README.md").read_text()
    with pytest.raises(TrainError, match="with another recall"):
        run(options(base, traces, out))
    run(options(base, traces, tmp_path / "taught"))
    with pytest.raises(TrainError, match=r"with another recall \(True, not None\)"):
        run(options(base, traces, tmp_path / "taught", recall=False))


def test_plans_alone_are_taught_and_validated(base: Path, tmp_path: Path) -> None:
    """Where there are whole demonstrations as well, these alone validate."""
    plans_only = [row(n, f"f{n}", steps=[]) for n in range(4)]
    file, both = write(tmp_path / "plans.jsonl", plans_only), tmp_path / "both.jsonl"
    run(options(base, file, tmp_path / "planner"))
    first = read_log(tmp_path / "planner" / "log.jsonl")[0]
    assert (first["documents"], first["spans"]) == (1, 1)
    write(both, [*plans_only, *(row(n, f"f{n % 4}") for n in range(10, 18))])
    run(options(base, both, tmp_path / "agent"))
    assert read_log(tmp_path / "agent" / "log.jsonl")[0]["spans"] == 6


def test_a_training_begins_with_another_adapter(base: Path, traces: Path, tmp_path: Path) -> None:
    run(options(base, traces, tmp_path / "first"))
    run(options(base, traces, tmp_path / "second", start=str(tmp_path / "first")))
    first, second = (
        [row["loss"] for row in read_log(tmp_path / name / "log.jsonl") if row.get("set") == "unseen families"]
        for name in ("first", "second")
    )
    # The file holds bfloat16, hence not to the last digit.
    assert second[0] == pytest.approx(min(first), rel=0.01)
    assert second[0] < first[0]
    assert second[-1] < second[0]
    assert "It began with the adapter `first`. LoRA" in (tmp_path / "second" / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 2}, r"has rank 4 and alpha 32, not 2 and 32; use the same --rank and --alpha"),
        ({"alpha": 8}, r"has rank 4 and alpha 32, not 4 and 8; use the same"),
    ],
)
def test_an_adapter_of_another_shape_is_no_beginning(
    base: Path, traces: Path, tmp_path: Path, changes: dict[str, int], message: str
) -> None:
    run(options(base, traces, tmp_path / "first"))
    other = TrainSettings(**{**SETTINGS.as_dict(), **changes})
    with pytest.raises(TrainError, match=message):
        run(options(base, traces, tmp_path / "second", start=str(tmp_path / "first"), settings=other))


def test_a_beginning_that_cannot_be_removes_nothing(base: Path, traces: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    run(options(base, traces, first))
    before = {file.name: file.read_bytes() for file in first.iterdir()}
    for start, message in ((first, "is the folder that is to be written"), (tmp_path / "typo", "there is no adapter")):
        with pytest.raises(TrainError, match=message):
            run(options(base, traces, first, start=str(start), fresh=True))
        assert {file.name: file.read_bytes() for file in first.iterdir()} == before


def test_another_beginning_is_another_training(base: Path, traces: Path, tmp_path: Path) -> None:
    for name, seed in (("first", 0), ("other", 1)):
        settings = TrainSettings(**{**SETTINGS.as_dict(), "seed": seed})
        run(options(base, traces, tmp_path / name, settings=settings))
    run(options(base, traces, tmp_path / "second", start=str(tmp_path / "first")))
    with pytest.raises(TrainError, match=r"another start \(first, not other\)"):
        run(options(base, traces, tmp_path / "second", start=str(tmp_path / "other")))


def test_what_is_no_adapter_of_the_base_is_no_beginning(base: Path, traces: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"there is no adapter; give a name or a folder that has one"):
        run(options(base, traces, tmp_path / "second", start=str(base)))
    run(options(base, traces, tmp_path / "first"))
    model = LlamaForCausalLM.from_pretrained(base)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight += 0.01
    model.save_pretrained(tmp_path / "other")
    byte_tokenizer().save_pretrained(tmp_path / "other")
    with pytest.raises(TrainError, match=r"was trained for .*base.* with other weights; begin without it"):
        run(options(tmp_path / "other", traces, tmp_path / "second", start=str(tmp_path / "first")))


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_of_notes_that_is_none_is_refused(base: Path, traces: Path, tmp_path: Path, share: float) -> None:
    with pytest.raises(TrainError, match=r"--notes must be a share from 0 to 1"):
        run(options(base, traces, tmp_path / "adapter", notes=share))
    assert not (tmp_path / "adapter").exists()
