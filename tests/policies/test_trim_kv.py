"""trim-kv and trim-kv-db: gates, their files, the score, and a budget that heads compete for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from agentkv import policies
from agentkv.cache.view import CacheView
from agentkv.engine import Engine, SamplingParams
from agentkv.errors import AgentKVError, BudgetTooSmall, GatesFileError
from agentkv.policies import shipped_gates, trim_kv
from agentkv.policies.trim_gates import Gates, load_gates, random_gates, save_gates
from agentkv.policies.trim_kv import Retention
from tests.policies.reference import HEADS, LAYERS, after_the_prompt, best, held
from tests.runtime_helpers import logits_after, oracle_logits, random_ids, recording, tiny_engine, tiny_model

HIDDEN = 48
POLICIES = ("trim-kv", "trim-kv-db")


def lively_gates(fingerprint: str | None = None, seed: int = 5) -> Gates:
    """Gates that differ between tokens, layers and heads as trained ones do, unlike those that training begins with."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, spread: float) -> Tensor:
        return torch.randn(shape, generator=generator) * spread

    return Gates(
        w1=draw(LAYERS, 16, HIDDEN, spread=0.3),
        b1=draw(LAYERS, 16, spread=0.1),
        w2=draw(LAYERS, HEADS, 16, spread=0.5),
        b2=torch.tensor([[4.0, 5.0], [6.0, 3.0]]),
        fingerprint=fingerprint,
    )


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_gates(lively_gates(), tmp_path / "gates.safetensors")
    return tmp_path / "gates.safetensors"


def attention_inputs(ids: list[int]) -> Tensor:
    """What q, k and v projections of plain transformers see: [L, T, hidden] float64."""
    model, seen = tiny_model("llama"), []
    for layer in model.model.layers:
        layer.input_layernorm.register_forward_hook(lambda module, args, output: seen.append(output[0]))
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
    return torch.stack(seen)


def log_beta_by_hand(gates: Gates, inputs: Tensor) -> Tensor:
    """[L, H, T] float64 through torch's own modules."""
    rows = []
    for layer in range(LAYERS):
        first, last = nn.Linear(HIDDEN, gates.w1.shape[1]).double(), nn.Linear(gates.w1.shape[1], HEADS).double()
        first.weight.data, first.bias.data = gates.w1[layer].double(), gates.b1[layer].double()
        last.weight.data, last.bias.data = gates.w2[layer].double(), gates.b2[layer].double()
        with torch.no_grad():
            rows.append(torch.sigmoid(last(nn.functional.silu(first(inputs[layer])))).log().T)
    return torch.stack(rows)


def test_log_beta_is_what_the_gate_says_of_the_attention_input(engine: Engine, path: Path) -> None:
    ids = random_ids(40)
    session = engine.open_session("trim-kv", 64, gates=str(path))
    logits_after(engine, session, ids)
    store = session.cache.store
    order = store.in_use(store.token_index).argsort(-1)
    got = store.in_use(store.columns["creation"]).gather(-1, order)
    torch.testing.assert_close(got.double(), log_beta_by_hand(lively_gates(), attention_inputs(ids)), rtol=1e-4, atol=0)


def test_a_prompt_keeps_what_has_decayed_least(path: Path) -> None:
    tokens = 90
    ids, session = after_the_prompt("trim-kv", 60, tokens, gates=str(path), block=20)
    decayed = log_beta_by_hand(lively_gates(), attention_inputs(ids)) * (tokens + 1 - torch.arange(tokens))
    for layer in range(LAYERS):
        for head in range(HEADS):
            assert held(session, layer, head) == best(decayed[layer, head], range(tokens), 40) | {tokens}
    assert held(session, 0, 0) != held(session, 0, 1), "each KV head has its own gate"


def test_a_dynamic_budget_keeps_the_best_of_all_heads(path: Path) -> None:
    tokens, budget, block = 90, 40, 10
    ids, session = after_the_prompt("trim-kv-db", budget, tokens, gates=str(path), block=block)
    decayed = log_beta_by_hand(lively_gates(), attention_inputs(ids)) * (tokens + 1 - torch.arange(tokens))
    chosen = set(decayed.flatten().topk((budget - block) * LAYERS * HEADS).indices.tolist())
    for layer in range(LAYERS):
        for head in range(HEADS):
            first = (layer * HEADS + head) * tokens
            assert held(session, layer, head) == {i - first for i in chosen if first <= i < first + tokens} | {tokens}
    assert len(set(session.cache.store.used.flatten().tolist())) > 1, "heads hold different numbers"


def test_the_order_is_exact_in_float32_for_a_half_precision_model() -> None:
    """At β = σ(18) bfloat16 would leave a handful of different values; the order is that of float64."""
    engine = tiny_engine(dtype=torch.bfloat16)
    session = engine.open_session("trim-kv", 200, gates="random")
    logits_after(engine, session, random_ids(150))
    store = session.cache.store
    log_beta, tokens = store.in_use(store.columns["creation"]), store.in_use(store.token_index)
    assert log_beta.dtype == torch.float32
    assert log_beta[0, 0].unique().numel() > 60  # of at most 95 different tokens
    before_sigmoid = -(-log_beta[0, 0].double()).log()
    assert before_sigmoid.bfloat16().unique().numel() < 20
    view = CacheView(tokens, None, tokens < 0, 0, 150, None, store.read_keys, creation=log_beta)
    score, exact = Retention()(view), log_beta.double() * (151 - tokens)
    assert score.dtype == torch.float32
    order = exact.gather(-1, score.argsort(-1))
    assert bool((order.diff(dim=-1) >= -1e-7 * order[..., 1:].abs()).all())


def test_a_gate_is_evaluated_once_per_token(monkeypatch, engine: Engine, path: Path) -> None:
    """Through chunks, decoding and many decisions."""
    rows = [0] * LAYERS
    log_beta = Gates.log_beta

    def counted(self: Gates, layer: int, hidden: Tensor) -> Tensor:
        rows[layer] += len(hidden)
        return log_beta(self, layer, hidden)

    monkeypatch.setattr(Gates, "log_beta", counted)
    session = engine.open_session("trim-kv", 48, gates=str(path), block=8)
    for turn in (random_ids(70), *([t] for t in random_ids(30, seed=1)), random_ids(20, seed=2)):
        logits_after(engine, session, turn)
    assert session.stats.evicted_tokens > 60
    assert rows == [120] * LAYERS


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pruned_cache_equals_masked_attention(policy: str, engine: Engine, path: Path) -> None:
    session = engine.open_session(policy, 40, gates=str(path), block=8)
    ids = random_ids(130, seed=3)
    turns = [ids[:50], *([t] for t in ids[50:80]), ids[80:101], *([t] for t in ids[101:])]
    with recording(session) as log:
        got = [logits_after(engine, session, turn) for turn in turns]
    expected = oracle_logits(tiny_model("llama"), ids, log.visible(LAYERS, HEADS, len(ids)))
    torch.testing.assert_close(got[-1], expected[-1], rtol=0.0, atol=1e-9)


def test_a_ragged_budget_is_never_exceeded_in_total_or_by_a_head(engine: Engine, path: Path) -> None:
    session = engine.open_session("trim-kv-db", 40, gates=str(path), block=6, ceiling=1.5)
    store, most = session.cache.store, 0
    with recording(session) as log:
        turns = [random_ids(90), *([t] for t in random_ids(50, seed=1)), random_ids(33, seed=2), [7], [8]]
        for turn in turns:
            logits_after(engine, session, turn)
            assert int(store.used.sum()) <= 40 * LAYERS * HEADS
            assert int(store.used.max()) <= 60
            most = max(most, int(store.used.max()))
    assert most > 45, "some head holds more than the mean"
    assert max(log.resident) <= session.limits.max_bytes


def test_where_heads_compete_protected_tokens_fit_all_of_them(engine: Engine, path: Path) -> None:
    """What every head protects counts against the mean, not against the most that one head may reach."""
    session = engine.open_session("trim-kv-db", 64, gates=str(path), block=4, recent=40, protect=["system"])
    list(engine.generate(session, random_ids(90), SamplingParams(max_tokens=9, min_tokens=9), roles=[("system", 12)]))
    for layer in range(LAYERS):
        for head in range(HEADS):
            assert {*range(12), *range(58, 98)} <= held(session, layer, head)
    with pytest.raises(BudgetTooSmall, match="and the budget holds 64 of a head"):
        engine.generate(session, random_ids(70), roles=[("system", 30), ("observation", 40)])


@pytest.mark.parametrize("policy", POLICIES)
def test_protected_tokens_survive_any_gate(policy: str, engine: Engine, path: Path) -> None:
    session = engine.open_session(policy, 48, gates=str(path), block=8, recent=6, sinks=2)
    logits_after(engine, session, random_ids(100))
    for token in random_ids(30, seed=1):
        logits_after(engine, session, [token])
    for layer in range(LAYERS):
        for head in range(HEADS):
            assert {0, 1, *range(124, 130)} <= held(session, layer, head)


def test_random_gates_repeat_with_their_seed_and_forget_nothing() -> None:
    first, other = random_gates(2, HIDDEN, 2, 1), random_gates(2, HIDDEN, 2, 2)
    hidden = torch.randn(5, HIDDEN)
    assert not torch.equal(first.log_beta(0, hidden), other.log_beta(0, hidden))
    assert float(first.log_beta(0, hidden).exp().min()) > 1 - 1e-6
    random_gates.cache_clear()
    assert torch.equal(random_gates(2, HIDDEN, 2, 1).w1, first.w1)


def test_a_recipe_keeps_the_digest_of_its_gates(engine: Engine, path: Path, tmp_path: Path) -> None:
    recipe = {"scorer": {"name": "retention", "gates": str(path)}, "trigger": "block"}
    session = engine.open_session("compose", 64, recipe=recipe)
    logits_after(engine, session, random_ids(90))
    engine.save_session(session, tmp_path / "s")
    engine.restore_session(tmp_path / "s")
    save_gates(lively_gates(seed=6), path)
    with pytest.raises(AgentKVError, match="holds other gates than the session was saved with"):
        engine.restore_session(tmp_path / "s")


class Package:
    """An entry point of an installed package."""

    def __init__(self, name: str, brings: object) -> None:
        self.name, self.value, self._brings = name, f"{name}:GATES", brings

    def load(self) -> object:
        if isinstance(self._brings, Exception):
            raise self._brings
        return self._brings


@pytest.fixture
def installed(monkeypatch) -> list[Package]:
    packages: list[Package] = []
    monkeypatch.setattr(shipped_gates, "entry_points", lambda group: packages if group == "agentkv.gates" else [])
    monkeypatch.setattr(trim_kv, "find_gates", shipped_gates.find_gates)
    return packages


class TestPackages:
    def test_gates_are_found_by_the_weights(self, engine: Engine, installed: list[Package], tmp_path: Path) -> None:
        save_gates(lively_gates(fingerprint="another"), tmp_path / "other")
        save_gates(lively_gates(fingerprint=engine.weights_fingerprint), tmp_path / "own")
        installed += [Package("theirs", tmp_path / "other"), Package("ours", tmp_path / "own")]
        ids, held_by = random_ids(90), []
        for gates in ("auto", str(tmp_path / "own")):
            session = engine.open_session("trim-kv", 40, gates=gates)
            logits_after(engine, session, ids)
            held_by.append([held(session, layer, head) for layer in range(LAYERS) for head in range(HEADS)])
        assert held_by[0] == held_by[1]

    def test_a_session_goes_on_with_the_gates_it_had(
        self, engine: Engine, installed: list[Package], tmp_path: Path
    ) -> None:
        save_gates(lively_gates(fingerprint=engine.weights_fingerprint), tmp_path / "own")
        installed += [Package("ours", tmp_path / "own")]
        session = engine.open_session("trim-kv", 40, gates="auto")
        logits_after(engine, session, random_ids(90))
        assert session.policy.options["gates"] == "auto"
        assert session.policy.options["digest"] == load_gates(tmp_path / "own").digest
        engine.save_session(session, tmp_path / "s")
        restored = engine.restore_session(tmp_path / "s")
        torch.testing.assert_close(logits_after(engine, restored, [5]), logits_after(engine, session, [5]))
        newer = replace(lively_gates(fingerprint=engine.weights_fingerprint), b2=torch.full((LAYERS, HEADS), 3.0))
        save_gates(newer, tmp_path / "newer")
        installed[:] = [Package("ours", tmp_path / "newer")]
        with pytest.raises(GatesFileError, match="other gates than the session was saved with; install the package"):
            engine.restore_session(tmp_path / "s")

    @pytest.mark.parametrize(
        ("brings", "said"),
        [
            ([], "trim-kv: no installed package brings retention gates for this model; train some"),
            (["twice", "twice"], "several installed packages bring gates for this model: p0, p1; name a file"),
            (["text"], "are no path of a file; mend that package"),
            (["fault"], r"cannot be loaded \(no such module\)"),
            (["junk"], "is no whole gates file"),
        ],
    )
    def test_what_is_not_one_file_of_gates_is_refused(
        self, engine: Engine, installed: list[Package], tmp_path: Path, brings: list[str], said: str
    ) -> None:
        save_gates(lively_gates(fingerprint=engine.weights_fingerprint), tmp_path / "twice")
        (tmp_path / "junk").write_text("junk")
        things = {"text": "gates", "fault": ImportError("no such module"), "junk": tmp_path / "junk"}
        installed += [Package(f"p{n}", things.get(name, tmp_path / "twice")) for n, name in enumerate(brings)]
        with pytest.raises(GatesFileError, match=said) as refusal:
            engine.open_session("trim-kv", 40, gates="auto")
        assert "\n" not in str(refusal.value)

    def test_a_broken_package_is_no_matter_to_other_models(
        self, engine: Engine, installed: list[Package], tmp_path: Path
    ) -> None:
        save_gates(lively_gates(fingerprint=engine.weights_fingerprint), tmp_path / "own")
        (tmp_path / "junk").write_text("junk")
        installed += [Package("theirs", tmp_path / "junk"), Package("ours", tmp_path / "own")]
        assert engine.open_session("trim-kv", 40).policy.options["digest"] == load_gates(tmp_path / "own").digest
        assert shipped_gates.installed_digests() == {"ours": load_gates(tmp_path / "own").digest}


class TestFiles:
    def refused(self, engine: Engine, path: Path | str, reason: str) -> None:
        for policy in POLICIES:
            with pytest.raises(GatesFileError, match=reason) as refusal:
                engine.open_session(policy, 64, gates=str(path))
            assert "\n" not in str(refusal.value)

    def rewritten(self, path: Path, change) -> Path:
        with safe_open(path, framework="pt") as file:
            metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        change(metadata, tensors)
        changed = path.with_name("changed.safetensors")
        save_file(tensors, changed, metadata)
        return changed

    def test_what_is_saved_is_loaded(self, tmp_path: Path) -> None:
        gates = lively_gates(fingerprint="abc")
        save_gates(gates, tmp_path / "g")
        loaded = load_gates(tmp_path / "g")
        for part in ("w1", "b1", "w2", "b2"):
            assert torch.equal(getattr(loaded, part), getattr(gates, part))
        assert loaded.fingerprint == "abc"
        assert load_gates(tmp_path / "g") is loaded, "read once for all sessions"

    def test_what_bfloat16_says_without_loss_takes_half_the_file(self, tmp_path: Path) -> None:
        gates = lively_gates()
        save_gates(gates, tmp_path / "whole")
        gates = replace(gates, w1=gates.w1.bfloat16().float())
        save_gates(gates, tmp_path / "rounded")
        assert torch.equal(load_gates(tmp_path / "rounded").w1, gates.w1)
        whole, rounded = ((tmp_path / name).stat().st_size for name in ("whole", "rounded"))
        assert whole - rounded == pytest.approx(2 * gates.w1.numel(), abs=64)

    def test_gates_for_this_model_by_its_fingerprint(self, engine: Engine, tmp_path: Path) -> None:
        save_gates(lively_gates(fingerprint=engine.weights_fingerprint), tmp_path / "g")
        engine.open_session("trim-kv", 64, gates=str(tmp_path / "g"))

    def test_gates_for_other_weights(self, engine: Engine, tmp_path: Path) -> None:
        save_gates(lively_gates(fingerprint="another"), tmp_path / "g")
        self.refused(engine, tmp_path / "g", "trained for a model of this shape with other weights")

    @pytest.mark.parametrize("shape", [(3, HIDDEN, 2), (2, 64, 2), (2, HIDDEN, 4)])
    def test_gates_for_another_shape(self, engine: Engine, tmp_path: Path, shape: tuple[int, int, int]) -> None:
        save_gates(random_gates(*shape), tmp_path / "g")
        self.refused(engine, tmp_path / "g", r"KV heads\) \(\d, \d\d, \d\), this one has \(2, 48, 2\)")

    def test_no_file(self, engine: Engine, tmp_path: Path) -> None:
        self.refused(engine, tmp_path / "none", "there is no gates file")

    def test_truncated(self, engine: Engine, path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-9])
        self.refused(engine, path, "no whole gates file")

    def test_another_kind_of_file(self, engine: Engine, path: Path) -> None:
        self.refused(engine, self.rewritten(path, lambda about, _: about.pop("format")), "not of gates")

    def test_another_version(self, engine: Engine, path: Path) -> None:
        self.refused(engine, self.rewritten(path, lambda about, _: about.update(version="9")), "version '9'")

    def test_a_missing_part(self, engine: Engine, path: Path) -> None:
        self.refused(engine, self.rewritten(path, lambda _, t: t.pop("layers.0.w2")), r"lacks layers\.0\.w2")

    def test_a_part_too_many(self, engine: Engine, path: Path) -> None:
        self.refused(engine, self.rewritten(path, lambda _, t: t.update(w3=torch.zeros(1))), "'w3', which is no part")

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_numbers_that_are_not_finite(self, engine: Engine, path: Path, bad: float) -> None:
        changed = self.rewritten(path, lambda _, t: t["layers.1.b2"].fill_(bad))
        self.refused(engine, changed, r"layers\.1\.b2 holds numbers that are not finite")

    @pytest.mark.parametrize(
        ("part", "shape", "reason"),
        [("layers.0.w1", (16, 40), "not the same shape in every layer"), ("layers.1.b1", (), "not the same shape")],
    )
    def test_layers_that_differ(
        self, engine: Engine, path: Path, part: str, shape: tuple[int, ...], reason: str
    ) -> None:
        self.refused(engine, self.rewritten(path, lambda _, t: t.update({part: torch.zeros(shape)})), reason)

    def test_parts_that_do_not_fit_together(self, engine: Engine, path: Path) -> None:
        wide = {f"layers.{layer}.w2": torch.zeros(HEADS, 20) for layer in range(LAYERS)}
        self.refused(engine, self.rewritten(path, lambda _, t: t.update(wide)), "shapes do not fit together")

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(GatesFileError, match="cannot write the gates file"):
            save_gates(lively_gates(), tmp_path / "none" / "g")

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_saved_session_wants_the_same_gates(
        self, engine: Engine, policy: str, path: Path, tmp_path: Path
    ) -> None:
        session = engine.open_session(policy, 48, gates=str(path), block=8)
        logits_after(engine, session, random_ids(80))
        engine.save_session(session, tmp_path / "s")
        restored = engine.restore_session(tmp_path / "s")
        for token in random_ids(20, seed=4):
            assert torch.equal(logits_after(engine, restored, [token]), logits_after(engine, session, [token]))
        save_gates(replace(lively_gates(), b2=torch.zeros(LAYERS, HEADS)), path)
        with pytest.raises(GatesFileError, match="holds other gates than the session was saved with"):
            engine.restore_session(tmp_path / "s")


@pytest.mark.parametrize(
    ("policy", "option", "value"),
    [
        ("trim-kv", "gates", 3),
        ("trim-kv", "seed", -1),
        ("trim-kv", "block", 1.5),
        ("trim-kv-db", "ceiling", 0.5),
        ("trim-kv-db", "sinks", "4"),
    ],
)
def test_bad_options_are_refused(policy: str, option: str, value: object) -> None:
    with pytest.raises(AgentKVError, match=f"^{policy}: {option} must be"):
        policies.build(policy, **{option: value})
