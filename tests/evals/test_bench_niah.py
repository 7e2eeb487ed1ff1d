"""Needles: both modes feed the same tokens in different order of arrival, and rows count what was found."""

from __future__ import annotations

import json
import random

import pytest
from bench_fakes import WordTokenizer, word_engine

from agentkv.errors import AgentKVError
from agentkv_evals import bench_niah
from agentkv_evals.bench_niah import MODES, CaseSet, NiahOptions, as_case, ask
from agentkv_evals.niah_prompts import NeedlePrompt
from agentkv_evals.plan import Arm

PROMPT = NeedlePrompt("one two three four five six", "which is it ?", "it is", "42")


@pytest.fixture
def tiny(monkeypatch):
    engine = word_engine()
    monkeypatch.setattr(bench_niah.Engine, "load", lambda *a, **k: engine)
    return engine


def write_prompts(path, prompts):
    path.write_text("".join(json.dumps(vars(prompt)) + "\n" for prompt in prompts))
    return path


def test_a_prompt_is_one_turn_split_before_the_question() -> None:
    case = as_case(WordTokenizer(leading=True), PROMPT)
    tokenizer = WordTokenizer()
    assert case.context_ids == [0, *tokenizer("User: one two three four five six")["input_ids"]]
    assert case.question_ids == tokenizer("which is it ? Assistant: it is")["input_ids"]


def test_late_caches_the_context_before_the_question_known_feeds_both_at_once(tiny, monkeypatch) -> None:
    case = as_case(tiny.tokenizer, PROMPT)
    fed = []
    generate = tiny.generate

    def spy(session, new_ids, params):
        fed.append((session.logical_length, list(session.ledger), list(new_ids), params.temperature))
        return generate(session, new_ids, params)

    monkeypatch.setattr(tiny, "generate", spy)
    known = ask(tiny, Arm("full"), case, ("known",))["known"]
    late = ask(tiny, Arm("full"), case, ("late",))["late"]
    assert fed == [
        (0, [], case.context_ids + case.question_ids, 0.0),
        (len(case.context_ids), case.context_ids, case.question_ids, 0.0),
    ]
    # Nothing is dropped, so the order of arrival changes nothing.
    assert known == late
    assert len(known[0].split()) <= 16
    assert tiny.arena.used_pages == 0


@pytest.mark.parametrize("prefill", ["chunked", "whole"])
@pytest.mark.parametrize("policy", ["random", "h2o", "snapkv", "conf-kv", "surprise", "full"])
def test_modes_asked_together_share_a_prefill_and_answer_as_alone(tiny, monkeypatch, policy: str, prefill: str) -> None:
    arm = Arm(policy, None if policy == "full" else "96")
    words = random.Random(5).choices(["one", "two", "three", "four", "five", "six", "seven"], k=220)
    case = as_case(tiny.tokenizer, NeedlePrompt(" ".join(words), "which is it ?", "it is", "42"))
    alone = {mode: ask(tiny, arm, case, (mode,), prefill)[mode] for mode in MODES}
    computed = []
    compute = tiny.compute_chunk

    def counted(session, at_most=None):
        before = session.logical_length
        logits = compute(session, at_most)
        computed.append(session.logical_length - before)
        return logits

    monkeypatch.setattr(tiny, "compute_chunk", counted)
    assert ask(tiny, arm, case, MODES, prefill) == alone
    if prefill == "chunked" and policy != "full":
        assert sum(computed) < 1.5 * case.tokens
    assert tiny.arena.used_pages == 0


def test_rows_count_the_answers_found(tiny, tmp_path, capsys) -> None:
    reply, _ = ask(tiny, Arm("full"), as_case(tiny.tokenizer, PROMPT), ("late",))["late"]
    hit = NeedlePrompt(PROMPT.context, PROMPT.question, PROMPT.prefix, reply.split()[-1])
    miss = NeedlePrompt(PROMPT.context, PROMPT.question, PROMPT.prefix, "lighthouse")
    prompts = write_prompts(tmp_path / "prompts.jsonl", [hit, miss, miss, miss])
    options = NiahOptions(prompts=prompts, policies=("window",), budgets=("96",), modes=("known", "late"), json=True)
    assert bench_niah.run(options) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    arms = [(row["mode"], row["policy"], row["budget"]) for row in rows]
    assert arms == [
        ("known", "full", None), ("late", "full", None), ("known", "window", "96"), ("late", "window", "96"),
    ]  # fmt: skip
    for row in rows:
        assert (row["bench"], row["kind"], row["prefill"]) == ("niah", "file", "chunked")
        assert (row["n"], row["found"], row["accuracy"]) == (4, 1, 0.25)
        assert (row["length"], row["prompt_tokens"]) == (7, 14)
        assert row["kv_bytes"] > 0
    bench_niah.run(NiahOptions(prompts=prompts, policies=(), n=1, json=True))
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0


def test_made_up_prompts_by_length_with_a_budget_that_forgets(tiny, capsys, tmp_path) -> None:
    plot = tmp_path / "found.png"
    options = NiahOptions(
        lengths=(120, 60, 120), n=2, policies=("window", "streaming-llm"), budgets=("40",), plot=plot, json=True
    )
    bench_niah.run(options)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["length"], row["policy"]) for row in rows] == [
        (60, "full"), (60, "window"), (60, "streaming-llm"), (120, "full"), (120, "window"), (120, "streaming-llm"),
    ]  # fmt: skip
    assert rows[4]["kv_bytes"] == rows[5]["kv_bytes"] < rows[3]["kv_bytes"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_every_kind_and_length_is_a_set_of_its_own(tiny, capsys) -> None:
    options = NiahOptions(kinds=("page", "sentence", "page"), lengths=(120, 90), n=1, policies=(), json=True)
    bench_niah.run(options)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["kind"], row["length"]) for row in rows] == [
        ("page", 90), ("page", 120), ("sentence", 90), ("sentence", 120),
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "found"), [("pairs", False), ("page", False), ("number", True), ("file", True)])
def test_where_every_line_holds_an_answer_only_the_first_line_counts(kind, found) -> None:
    case = as_case(WordTokenizer(), PROMPT)
    case_set = CaseSet(kind, 7, [case])
    assert case_set.answered(case, "\n 42.\nkey: 17")
    assert case_set.answered(case, " 17\nkey: 42") is found


def test_sessions_prefill_as_asked(tiny, capsys, monkeypatch) -> None:
    opened = []
    open_session = tiny.open_session

    def spy(policy, budget, prefill=None):
        opened.append((policy, prefill))
        return open_session(policy, budget)

    monkeypatch.setattr(tiny, "open_session", spy)
    options = NiahOptions(lengths=(60,), n=1, policies=("window",), budgets=("96",), prefill="whole", json=True)
    bench_niah.run(options)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["prefill"] for row in rows] == ["whole", "whole"]
    # Once each to see that it fits, and once to be asked.
    assert opened == [("full", "whole"), ("window", "whole")] * 2


def test_the_table_has_the_baseline_first_and_says_when_bytes_differ(tiny, capsys) -> None:
    bench_niah.run(NiahOptions(lengths=(150,), n=1, policies=("window", "conf-kv"), budgets=("64",)))
    out = " ".join(capsys.readouterr().out.split())
    assert out.index("full") < out.index("window")
    assert "chunked prefill" in out
    assert "Not at equal bytes (number, late, 150 tokens): under 64" in out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lengths": (4000,)}, "--length 4000 is beyond the model's window of 256"),
        ({"lengths": (250,)}, "the model's window holds 256; shorten the contexts"),
        ({"lengths": (8,)}, "has no room for a needle"),
    ],
)
def test_lengths_that_cannot_be_measured_are_refused(tiny, change, reason) -> None:
    with pytest.raises(AgentKVError, match=reason):
        bench_niah.run(NiahOptions(n=2, **change))


def test_mistakes_in_the_command_are_found_before_the_model_loads(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(bench_niah.Engine, "load", lambda *a, **k: pytest.fail("loaded"))
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"context": "a"}')
    cases = [
        ({"modes": ("never",)}, "unknown --mode 'never'; modes: known, late"),
        ({"n": 0}, "--n must be at least 1"),
        ({"kinds": ("hay",)}, "unknown --kind 'hay'; kinds: number, sentence, pairs, page"),
        ({"kinds": ("pairs",), "prompts": broken}, "so --kind has no use"),
        ({"kinds": ("sentence", "page"), "text": broken}, "--text fills the contexts of number and sentence needles"),
        ({"prefill": "half"}, "unknown --prefill 'half'; there are: chunked, whole"),
        ({"prompts": broken}, "broken.jsonl, line 1: 'question' is missing"),
        ({"prompts": broken, "text": broken}, "give one of them"),
        ({"text": tmp_path / "gone.txt"}, "No such file"),
        ({"policies": ("nope",)}, "unknown policy 'nope'"),
        ({"plot": tmp_path}, "must end in .svg or .png"),
    ]
    for change, reason in cases:
        with pytest.raises(AgentKVError, match=reason):
            bench_niah.run(NiahOptions(**change))


@pytest.mark.model
def test_the_embedded_model_finds_needles_with_full_kv(capsys) -> None:
    bench_niah.run(NiahOptions(lengths=(300,), n=2, policies=(), modes=("known", "late"), json=True))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["mode"], row["found"]) for row in rows] == [("known", 2), ("late", 2)]
    assert 300 < rows[0]["prompt_tokens"] < 350
