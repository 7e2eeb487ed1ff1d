"""What the documentation shows must run, and what it links to must exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.model
@pytest.mark.parametrize("page", ["README.md", "docs/chat_model.md", "docs/sessions.md"])
def test_python_in_the_docs_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_the_example_policy_works() -> None:
    from agentkv.policies import Policy, register, registry
    from agentkv.policies.scorers import Recency

    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.DOTALL)
    before = dict(registry._builders)
    try:
        exec(block, {"Policy": Policy, "register": register, "Recency": Recency})
        assert registry.build("oldest-first", sinks=2).sinks == 2
    finally:
        registry._builders.clear()
        registry._builders.update(before)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_policy_has_a_page() -> None:
    from agentkv import policies

    for name in policies.names():
        assert (ROOT / f"docs/policies/{name}.md").read_text().startswith(f"# {name}\n")
