"""Recipes: strict to read, equal to the policies they spell out, and what a session file remembers of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentkv import policies
from agentkv.engine import SamplingParams
from agentkv.errors import AgentKVError
from agentkv.policies.base import Policy
from agentkv.policies.parts import ALLOCATORS, PRECISIONS, SCORERS, TRIGGERS
from agentkv.policies.scorers import SegmentMean
from tests.runtime_helpers import logits_after, random_ids, tiny_engine

CONFIGS = Path(__file__).parents[2] / "configs"
SHIPPED = sorted(CONFIGS.glob("*.yaml"))
CHANNEL = {"name": "age", "format": "int8-channel", "fp_window": 64, "block": 1}
CONFIDENT: dict[str, object] = {
    "scorer": {"name": "mass-and-recency", "queries": 64}, "trigger": "confidence", "precision": "age", "sinks": 4,
    "recent": 0.0625,
}  # fmt: skip
SPELT_OUT: dict[str, dict[str, object]] = {
    "full": {"scorer": "none"},
    "int8": {"scorer": "none", "precision": {"name": "age", "format": "int8", "fp_window": 64}},
    "fp8": {"scorer": "none", "precision": {"name": "age", "format": "fp8", "fp_window": 64}},
    "int8-channel": {"scorer": "none", "precision": CHANNEL},
    "window": {"scorer": "recency"},
    "streaming-llm": {"scorer": "recency", "sinks": 4},
    "random": {"scorer": "noise", "sinks": 4, "recent": 0.0625},
    "h2o": {"scorer": "attention-mass", "sinks": 4, "recent": 0.5},
    "tova": {"scorer": {"name": "attention-mass", "decay": 0, "queries": 1}},
    "conf-kv": CONFIDENT,
    "conf-kv-l": {**CONFIDENT, "allocator": {"name": "geometric", "beta": 0.5, "least": 96}},
    "arkv": {
        "scorer": "window-statistics", "precision": "layer-share", "trigger": {"name": "block", "size": 0.25},
        "recent": 32,
    },
    "surprise": {"scorer": "segment-surprise", "sinks": 4, "recent": 0.125},
    "agentkv": {
        "scorer": {"name": "by-role", "of": "segment-rarity"}, "sinks": 4, "recent": 0.125,
        "precision": {"name": "age", "format": "int8", "fp_window": 0.0625},
    },
    "obs-window": {"scorer": "oldest-observation", "sinks": 4, "whole_observations": True},
    "snapkv": {"scorer": "window-mass", "trigger": "block", "recent": 32},
    "pyramidkv": {"scorer": "window-mass", "trigger": "block", "recent": 32, "allocator": "pyramid"},
    "r-kv": {"scorer": "importance-and-redundancy", "trigger": {"name": "block", "size": 0.125}, "recent": 8},
    "knorm": {"scorer": "key-norm"},
    "keydiff": {"scorer": "key-difference", "trigger": "block"},
    "trim-kv": {"scorer": "retention", "trigger": "block"},
    "trim-kv-db": {"scorer": "retention", "trigger": "block", "allocator": "global"},
}  # fmt: skip


def parts(policy: Policy) -> dict[str, object]:
    names = ("scorer", "allocator", "precision", "trigger", "sinks", "recent", "protect", "whole_observations")
    return {name: getattr(policy, name) for name in names}


def refusal(recipe: object) -> str:
    with pytest.raises(AgentKVError) as refused:
        policies.build("compose", recipe=recipe)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", policies.names())
def test_every_policy_is_a_recipe_of_its_parts(name: str) -> None:
    assert parts(policies.build("compose", recipe=SPELT_OUT[name])) == parts(policies.build(name))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_builds_runs_and_is_restored(path: Path, tmp_path: Path) -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session(str(path), 72)
    assert session.policy.name == path.stem
    list(engine.generate(session, random_ids(110), SamplingParams(max_tokens=8, min_tokens=8)))
    for token in random_ids(40, seed=3):
        assert bool(logits_after(engine, session, [token]).isfinite().all())
    assert session.stats.evicted_tokens > 0
    assert session.stats.peak_bytes <= session.limits.max_bytes
    engine.save_session(session, tmp_path / "s")
    restored = engine.restore_session(tmp_path / "s")
    assert restored.policy.name == path.stem
    assert parts(restored.policy) == parts(session.policy)
    torch.testing.assert_close(logits_after(engine, restored, [5]), logits_after(engine, session, [5]))


def test_shipped_conf_kv_is_conf_kv() -> None:
    assert parts(policies.build(str(CONFIGS / "conf-kv.yaml"))) == parts(policies.build("conf-kv"))


def test_a_session_file_needs_no_recipe_file(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yml"
    recipe.write_text("name: ours\nscorer: {name: noise, seed: 3}\nsinks: 2\n")
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session(str(recipe), 32)
    logits_after(engine, session, random_ids(50))
    engine.save_session(session, tmp_path / "s")
    recipe.unlink()
    restored = engine.restore_session(tmp_path / "s")
    assert (restored.policy.name, restored.policy.sinks) == ("ours", 2)
    assert restored.policy.options == {
        "recipe": {"name": "ours", "scorer": {"name": "noise", "seed": 3}, "sinks": 2},
    }


def test_what_was_left_out_is_written_down() -> None:
    """A default that changes later does not change a saved session."""
    policy = policies.build("compose", recipe={"scorer": "mass-and-recency", "precision": "age", "segments": True})
    assert policy.options["recipe"] == {
        "name": "compose",
        "scorer": {"name": "mass-and-recency", "alpha": 0.65, "decay": 0.9, "queries": None, "scale": "largest"},
        "precision": {"name": "age", "format": "int8", "fp_window": 0.0625, "block": 16},
        "segments": True,
    }
    assert isinstance(policy.scorer, SegmentMean)
    assert policies.build("compose", **policy.options) == policy


def test_protection_by_role_and_on_top() -> None:
    recipe = {"scorer": "recency", "protect": ["task"]}
    assert policies.build("compose", recipe=recipe).protect == ("task",)
    on_top = policies.build("compose", recipe=recipe, protect=["system"])
    assert on_top.protect == ("system",)
    assert policies.build("compose", **on_top.options) == on_top


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ({}, "there is no scorer; write 'scorer: none'"),
        ({"scorer": "recency", "sink": 3}, "there is no key 'sink'; did you mean 'sinks'? known: name, scorer, "),
        ({"scorer": "recencie"}, "scorer: there is no part 'recencie'; did you mean 'recency'? known: recency, noise"),
        (
            {"scorer": "recency", "trigger": {"name": "block", "sise": 3}},
            "trigger: block: there is no parameter 'sise'",
        ),
        ({"scorer": {"name": "noise", "seed": -1}}, "scorer: random: seed must be a whole number"),
        ({"scorer": {"name": "attention-mass", "decay": 2}}, "scorer: decay must be a number from 0 to 1"),
        ({"scorer": "recency", "allocator": {"name": "pyramid", "beta": 0.5}}, "allocator: beta must be at least 1"),
        (
            {"scorer": "recency", "precision": {"name": "age", "format": "int4"}},
            "precision: format must be one of int8",
        ),
        ({"scorer": 3}, "scorer must be a name or a mapping with one, not 3"),
        ({"scorer": "recency", "recent": 1.5}, "recent must be a whole number of slots or a share"),
        ({"scorer": "recency", "segments": "yes"}, "segments must be true or false"),
        ({"scorer": "recency", "protect": "task"}, "protect must be a list of roles"),
        ({"scorer": "recency", "protect": ["page"]}, "protect: cannot protect 'page'; roles: system"),
        ({"scorer": "recency", "name": 3}, "name must be a text"),
        # Each part is right, and together they make no policy.
        ({"scorer": "none", "trigger": "block"}, "trigger: with scorer none nothing is evicted"),
        ({"scorer": "recency", "precision": {"name": "age", "format": "int8-channel"}}, "precision: with a scale per"),
        (
            {"scorer": "recency", "allocator": "global", "precision": "age"},
            "allocator: heads that compete for one total",
        ),
        ({"scorer": "window-mass"}, "trigger: an observation window begins anew"),
        ({"scorer": "window-mass", "trigger": "confidence"}, "trigger: an observation window begins anew"),
        ({"scorer": "recency", "precision": "layer-share", "trigger": "block"}, "precision: it reads statistics of"),
        ({"scorer": "window-statistics", "precision": "layer-share"}, "trigger: precision by score is decided when"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(recipe: dict[str, object], reason: str, tmp_path: Path) -> None:
    text = refusal(recipe)
    assert text.startswith("recipe: ")
    assert reason in text
    path = tmp_path / "r.yaml"
    path.write_text(str(recipe).replace("True", "true"))  # a flow mapping is YAML
    assert reason in refusal(path)
    assert refusal(path).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("scorer: [", "this is no YAML"),
        ("- scorer", "a recipe is a mapping"),
        ("", "a recipe is a mapping"),
        ("scorer: recency\nsinks: 3\nsinks: 4\n", "the key 'sinks' is written twice"),
        ("scorer: !!python/object/apply:os.getcwd []\n", "this is no YAML"),
    ],
)
def test_files_that_are_no_recipes(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    assert reason in refusal(path)
    assert "there is no such recipe" in refusal(tmp_path / "none.yaml")
    assert "cannot be read" in refusal(tmp_path)


def test_compose_needs_a_recipe_and_is_no_policy_by_itself() -> None:
    assert "compose" not in policies.names()
    with pytest.raises(AgentKVError, match="policy 'compose' needs the option 'recipe'"):
        policies.build("compose")
    for recipe in (None, 5):
        with pytest.raises(AgentKVError, match="a recipe is the path of a file or a mapping"):
            policies.build("compose", recipe=recipe)
    with pytest.raises(AgentKVError, match="policy 'compose' has no option 'sinks'; it has recipe, protect, segments"):
        policies.build(str(CONFIGS / "conf-kv.yaml"), sinks=3)


@pytest.mark.parametrize("table", [SCORERS, ALLOCATORS, PRECISIONS, TRIGGERS])
def test_every_part_is_made_and_makes_itself_again(table) -> None:
    needed = {"mixture": {"of": ["recency", "noise"]}, "by-role": {"of": "recency"}}
    for name, part in table.items():
        component, values = part.make("here", needed.get(name, {}))
        assert tuple(values) == part.parameters, name
        assert part.make("here", values) == (component, values)
