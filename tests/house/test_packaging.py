"""The wheel holds all five packages with their data, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(target), str(ROOT)], check=True, capture_output=True)
    (path,) = target.glob("agentkv-*.whl")
    return set(zipfile.ZipFile(path).namelist())


def test_the_wheel_holds_every_module_and_data_file(wheel: set[str]) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for folder in ("agentkv", "kernels/agentkv_kernels", "envs/agentkv_envs", "agents/agentkv_agents"):
        parent = folder.rpartition("/")[0]
        expected = {f[len(parent) + 1 :] if parent else f for f in tracked if f.startswith(folder + "/")}
        assert expected
        assert not expected - wheel, "files that git tracks and the wheel lacks"


def test_the_wheel_holds_nothing_else(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "agentkv", "agentkv_kernels", "agentkv_envs", "agentkv_agents", "agentkv_evals",
    }  # fmt: skip
