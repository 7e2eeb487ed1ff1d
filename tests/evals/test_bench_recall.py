"""Actions that need a fact seen before: full KV is transformers' own, and a budget is what it says."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_fakes import byte_tokenizer
from teach_helpers import row, write
from transformers import LlamaConfig, LlamaForCausalLM

from agentkv.cache.facts import Role
from agentkv.cli import run as cli
from agentkv.engine import Engine, SamplingParams, Session
from agentkv.errors import AgentKVError
from agentkv.policies import trim_kv
from agentkv.train.errors import TrainError
from agentkv_agents.prompting import PLAIN, Prompting
from agentkv_agents.teaching.render import Renderer
from agentkv_agents.teaching.traces import read_traces
from agentkv_evals import bench_recall
from agentkv_evals.bench_recall import RecallOptions, as_case
from agentkv_evals.errors import EvalError

USE = 'type "Code" [4] [K7Q] [1]'
PAGES = [
    {"observation": "page: Deals\nThe code is K7Q.", "action": 'click "Shop" [1]'},
    {"observation": 'page: Shop\nlink "red kettle" [2]\nlink "blue kettle" [3]', "action": 'click "red kettle" [2]'},
    {"observation": 'page: Checkout\nfield "Code" [4]', "action": USE},
    {"observation": "page: Thanks", "action": "stop []"},
]  # fmt: skip


def needle_row(number: int, **changes: Any) -> dict[str, Any]:
    """A demonstration of four steps, the third of which needs the code of the first page."""
    needle = {"kind": "code", "fact": "k7q", "note": "the code is K7Q.", "used_step": 3}
    return row(number, **{"steps": PAGES, "needle": needle, **changes})


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return LlamaForCausalLM(config).double().eval()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, model: LlamaForCausalLM) -> Engine:
    own = LlamaForCausalLM(copy.deepcopy(model.config)).double().eval()  # the engine switches its attention
    own.load_state_dict(model.state_dict())
    engine = Engine(own, byte_tokenizer(), "tiny", kv_pool="16MiB")
    monkeypatch.setattr(bench_recall.Engine, "load", lambda *a, **k: engine)
    return engine


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write(tmp_path / "traces.jsonl", [needle_row(1), row(2), needle_row(3)])


def measured(traces: Path, capsys: pytest.CaptureFixture[str], **changes: Any) -> list[dict[str, Any]]:
    fields: dict[str, Any] = {"policies": (), "json": True, "protect": (), **changes}
    assert bench_recall.run(RecallOptions((traces,), **fields)) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_full_is_the_likelihood_that_transformers_gives_the_action(
    tiny: Engine, traces: Path, model: LlamaForCausalLM, capsys: pytest.CaptureFixture[str]
) -> None:
    (full,) = measured(traces, capsys)
    expected = []
    renderer = Renderer(tiny.tokenizer, tiny.tokenizer.eos_token_id)
    for trace in read_traces([traces]):
        if trace.needle is None:
            continue
        document = renderer.document(trace)
        start, end = document.spans[2]
        assert tiny.tokenizer.decode(document.ids[start : end - 1]) == USE
        with torch.no_grad():
            logp = model(torch.tensor([document.ids])).logits[0].log_softmax(-1)
        expected.append(-sum(float(logp[at - 1, document.ids[at]]) for at in range(start, end - 1)))
    assert (full["n"], full["right"], full["times_less"], full["nll_above_full"]) == (2, 0, 1.0, 0.0)
    assert full["nll"] == pytest.approx(sum(expected) / 2, abs=1e-3)
    assert tiny.arena.used_pages == 0


def test_a_budget_that_holds_everything_changes_nothing_and_a_smaller_one_is_kept(
    tiny: Engine, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = measured(traces, capsys, policies=("h2o", "window"), budgets=("full/4", "2MiB"))
    full, *rest = rows
    assert [(r["policy"], r["budget"] == "2MiB") for r in rest] == [
        ("h2o", False), ("h2o", True), ("window", False), ("window", True),
    ]  # fmt: skip
    for wide in (r for r in rest if r["budget"] == "2MiB"):
        assert (wide["nll"], wide["nll_above_full"]) == (full["nll"], 0.0)
    for tight in (r for r in rest if r["budget"] != "2MiB"):
        budget = 1024 * int(tight["budget"].removesuffix("KiB"))
        assert budget == pytest.approx(full["kv_bytes"] / 4, abs=1024)
        assert tight["kv_bytes"] <= budget
        assert tight["times_less"] >= 4
        assert tight["nll"] != full["nll"]


def test_what_is_protected_is_kept_and_too_small_a_budget_for_it_is_refused(
    tiny: Engine, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free, bound = (
        measured(traces, capsys, policies=("h2o",), budgets=("full/6",), protect=p)[1] for p in ((), ("task",))
    )
    assert free["nll"] != bound["nll"]
    assert bound["protect"] == ["task"]
    with pytest.raises(AgentKVError, match=r"^h2o @ \d+KiB: .*protected"):
        measured(traces, capsys, policies=("h2o",), budgets=("full/20",), protect=("system",))


def test_the_distance_counts_from_the_last_mention(tiny: Engine, tmp_path: Path) -> None:
    renderer = Renderer(tiny.tokenizer, tiny.tokenizer.eos_token_id)
    noted = [{**step} for step in PAGES]
    noted[1]["action"] = 'click "red kettle" [2] k7q'
    file = write(tmp_path / "t.jsonl", [needle_row(1), needle_row(2, steps=noted)])
    far, near = (as_case(trace, renderer) for trace in read_traces([file]))
    steps = far.steps
    assert far.distance == len(steps[1].prompt.ids) + len(steps[1].action) + len(steps[2].prompt.ids)
    assert near.distance == len(near.steps[2].prompt.ids)


def test_a_plan_that_comes_first_moves_neither_the_decision_nor_the_distance(tiny: Engine, tmp_path: Path) -> None:
    actions = [str(page["action"]) for page in PAGES]
    numbered = [{**page, "plan_step": number} for number, page in enumerate(PAGES, 1)]
    file = write(tmp_path / "t.jsonl", [needle_row(1, steps=numbered, plan=actions, open=["Deals"])])
    (trace,) = read_traces([file])
    plain, planning = (
        as_case(trace, Renderer(tiny.tokenizer, tiny.tokenizer.eos_token_id, prompting=prompting))
        for prompting in (PLAIN, Prompting(plan=True))
    )
    assert tiny.tokenizer.decode(planning.steps[0].action).startswith(f"1 {actions[0]}")
    assert tiny.tokenizer.decode(planning.steps[-1].action) == f"3 {USE}"
    assert len(planning.steps) == len(plain.steps) + 1
    # Of the steps between, one reply has a number more.
    assert planning.distance == plain.distance + len(tiny.tokenizer.encode("2 "))


def test_decisions_in_the_file_are_not_measured_again(
    tiny: Engine, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "decisions.jsonl"
    changes: dict[str, Any] = {"policies": ("h2o",), "budgets": ("full/2",), "rows": file}
    first = measured(traces, capsys, **changes)
    lines = file.read_text().splitlines()
    assert len(lines) == 4
    file.write_text("\n".join(lines[:3]) + "\n" + lines[3][:20])  # the last one was cut off
    asked = []
    monkeypatch.setattr(
        bench_recall, "decide", lambda e, s, steps, real=bench_recall.decide: asked.append(1) or real(e, s, steps)
    )
    assert measured(traces, capsys, **changes) == first
    assert (len(asked), len(file.read_text().splitlines())) == (1, 4)
    with pytest.raises(EvalError, match="something else than decisions of these settings; name another file"):
        measured(traces, capsys, **{**changes, "protect": ("system",)})


def test_decisions_of_a_recipe_that_has_changed_are_not_gone_on_with(
    tiny: Engine, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, recipe = tmp_path / "decisions.jsonl", tmp_path / "own.yaml"
    recipe.write_text("{scorer: noise, sinks: 2}")
    changes: dict[str, Any] = {"policies": (str(recipe),), "budgets": ("full/2",), "rows": file}
    first = measured(traces, capsys, **changes)
    assert measured(traces, capsys, **changes) == first
    recipe.write_text("{scorer: noise, sinks: 3}")
    before = file.read_text()
    with pytest.raises(EvalError, match=r"holds decisions of .*own\.yaml with other options; name another file"):
        measured(traces, capsys, **changes)
    assert file.read_text() == before
    assert measured(traces, capsys, **{**changes, "policies": ("window",)})[0] == first[0]


def test_a_policy_that_is_not_for_the_model_is_refused_before_anything_is_measured(
    tiny: Engine, traces: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim_kv, "find_gates", lambda model: None)
    monkeypatch.setattr(bench_recall, "decide", None)
    with pytest.raises(AgentKVError, match="trim-kv: no installed package brings retention gates for this model"):
        measured(traces, capsys, policies=("trim-kv",), budgets=("full/2",))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(1)], "no demonstration without slips has a fact to remember"),
        (
            [needle_row(1, needle={"kind": "code", "fact": "zzz", "note": "", "used_step": 3})],
            "no page before step 3 shows 'zzz'",
        ),
    ],
)
def test_demonstrations_of_no_use_are_refused(
    tiny: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(EvalError, match=said):
        measured(write(tmp_path / "t.jsonl", rows), capsys)


def test_a_step_that_there_is_not_is_refused(tmp_path: Path) -> None:
    needle = {"kind": "code", "fact": "K7Q", "note": "", "used_step": 9}
    with pytest.raises(TrainError, match="used_step is 9, of 4 steps"):
        read_traces([write(tmp_path / "t.jsonl", [needle_row(1, needle=needle)])])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--budget", "full/1"), "--budget full/1: say how many times less than full KV, above 1"),
        (("--policy", "h3o"), "did you mean 'h2o'"),
        (("--protect", "page"), "cannot protect 'page'"),
        (("--traces", "none.jsonl"), "cannot read the traces none.jsonl"),
    ],
)
def test_mistakes_at_the_command_line_are_one_line(
    tiny: Engine, traces: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert cli(["bench", "recall", "--traces", str(traces), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_the_table_shows_every_arm(
    tiny: Engine, traces: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "recall.svg"
    assert (
        cli(
            [
                "bench",
                "recall",
                "--traces",
                str(traces),
                "--policy",
                "obs-window",
                "--budget",
                "full/2",
                "--protect",
                "task",
                "--plot",
                str(plot),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert "2 actions that need a fact" in shown
    assert all(name in shown for name in ("full", "obs-window", "0/2", "protected: task"))
    assert "obs-window" in plot.read_text()


@pytest.mark.parametrize("content", ['{"day": 1}', "Dear diary", "Dear diary\n", '{"day": 1}\n{"day": 2}'])
def test_a_foreign_file_is_no_file_of_decisions_and_stays_as_it_is(
    tiny: Engine, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    file = tmp_path / "diary.txt"
    file.write_text(content)
    with pytest.raises(EvalError, match=r"something else than decisions|not JSON"):
        measured(traces, capsys, rows=file)
    assert file.read_text() == content


@pytest.mark.parametrize(("place", "said"), [(".", "that is a folder"), ("none/rows.jsonl", "no folder")])
def test_rows_that_cannot_be_written_are_refused_before_anything_is_measured(
    tmp_path: Path, traces: Path, capsys: pytest.CaptureFixture[str], place: str, said: str
) -> None:
    with pytest.raises(EvalError, match=said):
        measured(traces, capsys, rows=tmp_path / place)


def test_an_action_that_is_empty_is_named(tmp_path: Path) -> None:
    steps = [PAGES[0], {**PAGES[1], "action": " "}, *PAGES[2:]]
    with pytest.raises(TrainError, match="step 2 of t-shop-1 has no action"):
        read_traces([write(tmp_path / "t.jsonl", [needle_row(1, steps=steps)])])


def test_confidence_moves_the_budget_in_earlier_actions_too(tiny: Engine, tmp_path: Path) -> None:
    """A session is fed as one that generated the same actions: token by token, where confidence is measured."""
    renderer = Renderer(tiny.tokenizer, tiny.tokenizer.eos_token_id)
    (trace,) = read_traces([write(tmp_path / "t.jsonl", [needle_row(1)])])
    # The last action is one token, chosen before it can move anything: what differs comes from earlier ones.
    *before, last = as_case(trace, renderer).steps
    steps = (*before, replace(last, action=last.action[:1]))

    def replayed(threshold: float) -> tuple[Session, list[float]]:
        session, felt = tiny.open_session("conf-kv", 400, threshold=threshold), []
        for step in steps:
            roles = [(Role(name), count) for name, count in step.prompt.roles]
            params = SamplingParams(max_tokens=len(step.action), min_tokens=len(step.action))
            events = tiny.generate(session, step.prompt.ids, params, Replayed(list(step.action)), roles=roles)
            felt += [event.confidence for event in events]
        return session, felt

    # A threshold in the middle of what the model feels, so that the budget moves.
    felt = sorted(replayed(0.5)[1])
    middle = felt[len(felt) // 2]
    assert felt[0] < middle < felt[-1]
    theirs, _ = replayed(middle)
    ours = tiny.open_session("conf-kv", 400, threshold=middle)
    bench_recall.decide(tiny, ours, steps)
    assert ours.ledger == theirs.ledger
    kept = [session.cache.store.in_use(session.cache.store.token_index) for session in (ours, theirs)]
    assert [set(head.tolist()) for head in kept[0].flatten(0, 1)] == [set(h.tolist()) for h in kept[1].flatten(0, 1)]


class Replayed:
    """Lets only given tokens be chosen, one by one; none is forced."""

    def __init__(self, tokens: list[int]):
        self._tokens = tokens

    @property
    def done(self) -> bool:
        return not self._tokens

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        only = torch.full_like(logits, float("-inf"))
        only[self._tokens[0]] = 0.0
        return only

    def accept(self, token_id: int) -> None:
        assert token_id == self._tokens.pop(0)

    def forced(self) -> list[int]:
        return []
