"""Imports point one way: kernels ← agentkv ← agents ← evals, envs ← agents; the command line is the roof."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "agentkv": ROOT / "agentkv",
    "agentkv_kernels": ROOT / "kernels/agentkv_kernels",
    "agentkv_envs": ROOT / "envs/agentkv_envs",
    "agentkv_agents": ROOT / "agents/agentkv_agents",
    "agentkv_evals": ROOT / "evals/agentkv_evals",
}
MAY_IMPORT = {
    "agentkv": {"agentkv_kernels"},
    "agentkv_kernels": set(),
    "agentkv_envs": set(),
    "agentkv_agents": {"agentkv", "agentkv_envs", "agentkv_kernels"},
    "agentkv_evals": {"agentkv", "agentkv_envs", "agentkv_kernels", "agentkv_agents"},
}
NEVER = {
    "agentkv_envs": {"torch", "transformers", "langchain_core"},
    "agentkv_kernels": {"transformers", "langchain_core"},
}


def imported(source: Path) -> set[str]:
    """Dotted names of everything a file imports, at the top or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return names


def wrong_imports(package: str, files: list[Path]) -> list[str]:
    ours = set(PACKAGES) - {package} - MAY_IMPORT[package]
    forbidden = ours | NEVER.get(package, set())
    return [f"{file}: {name}" for file in files for name in imported(file) if name.split(".")[0] in forbidden]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    files = sorted(PACKAGES[package].rglob("*.py"))
    assert files
    if package == "agentkv":
        files = [file for file in files if "cli" not in file.relative_to(PACKAGES[package]).parts]
    assert wrong_imports(package, files) == []


def test_the_check_sees_a_wrong_import(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text("def f():\n    from agentkv_evals import runner\n")
    assert wrong_imports("agentkv", [file]) == [f"{file}: agentkv_evals"]


def test_policies_never_see_storage() -> None:
    storage = {"agentkv.cache.store", "agentkv.cache.region", "agentkv.cache.arena", "agentkv.cache.controller"}
    for file in (ROOT / "agentkv/policies").glob("*.py"):
        assert not imported(file) & storage, file


def test_only_the_adapter_knows_how_transformers_caches() -> None:
    for file in PACKAGES["agentkv"].rglob("*.py"):
        inside = {name for name in imported(file) if name.startswith(("transformers.cache", "transformers.masking"))}
        assert not inside or file.name == "adapter.py", file


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    assert (PACKAGES[package] / "py.typed").exists()


@pytest.mark.parametrize(
    ("module", "absent"),
    [("agentkv", {"torch", "transformers"}), ("agentkv.cli", {"torch", "playwright"}), ("agentkv_envs", {"torch"})],
)
def test_light_imports_stay_light(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print(sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
