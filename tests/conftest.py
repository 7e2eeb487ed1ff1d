"""Settings for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# A browser shares the cores with the model, and threads that spin while they wait slow both many times over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Triton decides when it is first imported, by whichever test comes first, whether its kernels are interpreted.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest  # after the environment is set
from hypothesis import settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile("agentkv", deadline=None)
settings.load_profile("agentkv")


@pytest.fixture(autouse=True, scope="session")
def gates_for_made_up_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No package brings gates for the models that tests make up: there, untrained ones stand in."""
    from agentkv.policies import trim_kv
    from agentkv.policies.rules import ModelFacts
    from agentkv.policies.trim_gates import random_gates, save_gates

    shipped, folder = trim_kv.find_gates, tmp_path_factory.mktemp("gates")

    def find(model: ModelFacts) -> Path | None:
        found = shipped(model)
        if found is None and model.hidden_size < 100:
            shape = model.layers, model.hidden_size, model.kv_heads
            found = folder / "-".join(map(str, shape))
            if not found.exists():
                save_gates(random_gates(*shape, width=16), found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trim_kv, "find_gates", find)
        yield
