"""MiniWoB++ in this environment and in BrowserGym: time of a reset and of a step, memory.

BrowserGym pins an old Playwright, so it lives in a virtual environment of its own:

    python3 -m venv /tmp/bgym && /tmp/bgym/bin/pip install browsergym-miniwob
    python benchmarks/browsergym.py --other /tmp/bgym/bin/python --pages FOLDER/html

FOLDER is where the package `miniwob` is unpacked. Both sides play the same five tasks with the same actions, one after
the other in fresh processes, in turns. Times are medians in milliseconds, memory is the PSS of Python and everything
it started. BrowserGym is measured as it comes and without its deliberate waits (slow_mo 100 ms an operation, 500 ms
before an observation), with the Chromium that is found here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

TASKS = ("click-test", "click-button", "enter-text", "login-user", "click-checkboxes")


def pss_mib() -> float:
    """Proportional memory of this process and all below it."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    mine, found = {os.getpid()}, True
    while found:
        found = {pid for pid, parent in parents.items() if parent in mine and pid not in mine}
        mine |= found
    total = 0
    for pid in mine:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(int(kib) for kib in re.findall(r"^Pss:\s+(\d+)", rollup, re.M))
        except OSError:
            continue
    return total / 1024


def play_here(episodes: int) -> dict[str, list[float]]:
    """This environment, screenshots on."""
    from agentkv_envs import WebEnv, load_suite
    from agentkv_envs.tasks.miniwob_oracle import MiniwobPilot

    times: dict[str, list[float]] = {"reset": [], "step": [], "observe": [], "memory": [], "won": []}
    tasks = load_suite("miniwob:" + ",".join(TASKS))
    with WebEnv() as env:
        for seed in range(episodes):
            for task in tasks:
                began = perf_counter()
                seen = env.reset(task, seed)
                times["reset"].append((perf_counter() - began) * 1e3)
                assert env.task is not None
                pilot = MiniwobPilot(task.task_id, env.task.intent)
                while (action := pilot.next(seen)).kind != "stop":
                    began = perf_counter()
                    result = env.step(action)
                    times["step"].append((perf_counter() - began) * 1e3)
                    times["observe"].append(result.timings["observe"] + result.timings["screenshot"])
                    seen = result.observation
                times["won"].append(float(env.evaluate().success is True))
            times["memory"].append(pss_mib())
    return times


def play_there(episodes: int, waits: bool) -> dict[str, list[float]]:
    """BrowserGym."""
    import browsergym.miniwob  # noqa: F401
    import gymnasium as gym

    times: dict[str, list[float]] = {"reset": [], "step": [], "observe": [], "memory": [], "won": []}
    options: dict[str, Any] = {} if waits else {"slow_mo": 0, "pre_observation_delay": 0.0}
    for name in TASKS:
        env = gym.make(f"browsergym/miniwob.{name}", disable_env_checker=True, **options)
        inner = env.unwrapped
        observe = inner._get_obs

        def timed(observe: Any = observe) -> Any:
            began = perf_counter()
            seen = observe()
            times["observe"].append((perf_counter() - began) * 1e3)
            return seen

        for seed in range(episodes):
            inner._get_obs = observe
            began = perf_counter()
            seen, _ = env.reset(seed=seed)
            times["reset"].append((perf_counter() - began) * 1e3)
            inner._get_obs = timed
            reward = 0.0
            for action in actions(name, seen["goal"], inner.page):
                began = perf_counter()
                seen, reward, *_ = env.step(action)
                times["step"].append((perf_counter() - began) * 1e3)
            times["won"].append(float(reward > 0))
        times["memory"].append(pss_mib())
        env.close()
    return times


def actions(name: str, goal: str, page: Any) -> Iterable[str]:
    """The actions of our scripts, in BrowserGym's grammar."""

    def bid(selector: str) -> str:
        return str(page.locator(selector).first.get_attribute("bid"))

    quoted = re.findall(r'"([^"]*)"', goal)
    if name == "click-test":
        yield f"click({bid('#subbtn')!r})"
    elif name == "click-button":
        buttons = page.locator("button").all()
        yield f"click({next(b for b in buttons if b.inner_text() == quoted[0]).get_attribute('bid')!r})"
    elif name == "enter-text":
        yield f"fill({bid('#tt')!r}, {quoted[0]!r})"
        yield f"click({bid('#subbtn')!r})"
    elif name == "login-user":
        yield f"fill({bid('#username')!r}, {quoted[0]!r})"
        yield f"fill({bid('#password')!r}, {quoted[1]!r})"
        yield f"click({bid('#subbtn')!r})"
    else:
        wanted = re.search(r"Select (.*) and click", goal).group(1).split(", ")  # type: ignore[union-attr]
        for label in page.locator("label").all():
            if label.inner_text().strip() in wanted:
                yield f"click({label.locator('input').get_attribute('bid')!r})"
        yield f"click({bid('#subbtn')!r})"


def browsers_folder(python: str) -> str:
    """A folder where Playwright of the other environment finds the Chromium of this machine under its own name."""
    chromium = os.environ.get("AGENTKV_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no Chromium found; name one in AGENTKV_CHROMIUM")
    script = (
        "import pathlib, playwright;"
        " print((pathlib.Path(playwright.__file__).parent / 'driver/package/browsers.json').read_text())"
    )
    listed = json.loads(subprocess.run([python, "-c", script], check=True, capture_output=True, text=True).stdout)
    revision = next(b["revision"] for b in listed["browsers"] if b["name"] == "chromium")
    folder = Path(tempfile.mkdtemp(prefix="browsers-"))
    (folder / f"chromium-{revision}" / "chrome-linux").mkdir(parents=True)
    (folder / f"chromium-{revision}" / "chrome-linux" / "chrome").symlink_to(chromium)
    return str(folder)


def run(python: str, side: str, episodes: int, pages: str, browsers: str) -> dict[str, list[float]]:
    """One side in a process of its own."""
    environment = {
        **os.environ,
        "AGENTKV_MINIWOB": pages,
        "MINIWOB_URL": f"file://{pages}/miniwob/",
        **({"PLAYWRIGHT_BROWSERS_PATH": browsers} if side != "agentkv" else {}),
    }
    # -P: this file must not be found when the package of the same name is imported.
    command = [python, "-P", __file__, "--side", side, "--episodes", str(episodes)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    found: dict[str, list[float]] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="Python of the environment with browsergym-miniwob")
    parser.add_argument("--pages", help="folder `html` of the package miniwob")
    parser.add_argument("--episodes", type=int, default=4, help="episodes of each task in a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--side", choices=("agentkv", "browsergym", "browsergym-no-waits"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        here = options.side == "agentkv"
        print(
            json.dumps(
                play_here(options.episodes) if here else play_there(options.episodes, options.side == "browsergym")
            )
        )
        return
    if not options.other or not options.pages:
        parser.error("name --other and --pages")
    browsers = browsers_folder(options.other)
    pages = str(Path(options.pages).resolve())
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(options.rounds):
        for side in ("agentkv", "browsergym", "browsergym-no-waits"):
            python = sys.executable if side == "agentkv" else options.other
            for key, values in run(python, side, options.episodes, pages, browsers).items():
                found.setdefault(side, {}).setdefault(key, []).extend(values)
    shutil.rmtree(browsers)
    print(f"{'':20} {'reset ms':>9} {'step ms':>8} {'observe ms':>11} {'memory MiB':>11} {'solved':>8}")
    for side, times in found.items():
        reset, step, observe, memory = (statistics.median(times[key]) for key in ("reset", "step", "observe", "memory"))
        solved = f"{sum(times['won']):.0f}/{len(times['won'])}"
        print(f"{side:20} {reset:9.0f} {step:8.0f} {observe:11.0f} {memory:11.0f} {solved:>8}")


if __name__ == "__main__":
    main()
