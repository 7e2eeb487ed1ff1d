"""The retention gates that come along: files inside the packages, for the weights that come along."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from agentkv.engine import Engine
from agentkv.policies.shipped_gates import ENTRY_POINT_GROUP
from agentkv.policies.trim_gates import load_gates
from agentkv.policies.trim_kv import LogRetention

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
CARDS = {"smollm2-135m": "README.md", "smollm2-135m-web": "GATES.md"}


def test_all_of_them_are_looked_at() -> None:
    assert set(PROJECT["project"]["entry-points"]["agentkv.gates"]) == set(CARDS)


@pytest.mark.model
@pytest.mark.parametrize("name", CARDS)
def test_each_belongs_to_its_model_and_trim_kv_finds_it(name: str) -> None:
    engine = Engine.load(name)
    session = engine.open_session("trim-kv", "4MiB")
    rule = session.policy.creation
    assert isinstance(rule, LogRetention)
    assert rule.gates is not None
    file = Path(rule.gates.source)
    (entry,) = entry_points(group=ENTRY_POINT_GROUP, name=name)
    assert file == entry.load()
    assert file.stat().st_size <= 12_000_000
    assert rule.gates.fingerprint == engine.weights_fingerprint
    assert session.policy.options["digest"] == load_gates(file).digest
    card = (file.parent / CARDS[name]).read_text()
    assert "Apache-2.0" in card
    assert "gates.safetensors" in card


@pytest.mark.model
def test_they_tell_tokens_apart() -> None:
    """Untrained gates keep what is newest; trained ones hold on to some tokens longer than to others."""
    engine = Engine.load("smollm2-135m")
    session = engine.open_session("trim-kv", 64)
    text = "The door code of the green shed is 4711. " + "It rained, and then it rained again. " * 20
    ids = engine.tokenizer(text)["input_ids"]
    session.ledger.extend(ids)
    engine.compute_waiting(session)
    tokens = session.cache.store.token_index
    kept = [set(head[head >= 0].tolist()) for head in tokens.flatten(0, 1)]
    assert len({frozenset(head) for head in kept}) > len(kept) // 2, "heads keep different tokens"
    assert sum(min(head) < len(ids) // 2 for head in kept) > len(kept) // 2, "and old ones among them"
