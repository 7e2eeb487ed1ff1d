"""What importing the package pulls in."""

from __future__ import annotations

import subprocess
import sys

_CHECK = """
import sys
import agentkv_envs
from agentkv_envs import load_suite, parse_action
load_suite("vwa75")
heavy = {"torch", "transformers", "langchain_core", "agentkv", "agentkv_agents", "agentkv_evals", "agentkv_kernels"}
lazy = {"playwright", "starlette", "uvicorn", "PIL", "jinja2"}
early = (heavy | lazy) & {name.partition(".")[0] for name in sys.modules}
assert not early, f"imported too early: {early}"
from agentkv_envs import WebEnv
late = heavy & {name.partition(".")[0] for name in sys.modules}
assert not late, f"imported with the browser: {late}"
"""


def test_tasks_and_actions_need_no_browser_stack_and_nothing_needs_torch() -> None:
    done = subprocess.run([sys.executable, "-c", _CHECK], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
