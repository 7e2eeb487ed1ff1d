"""What the web environment costs: start and end of an episode, the parts of a step, reading a large page.

    python benchmarks/env.py [--episodes 20] [--site shopping] [--json]

Medians and smallest values in milliseconds. An episode starts on the site's first page with screenshots off, 300 ms
after the one before, as it would after a model's last answer; a step clicks a link. The large page has 100 cards of a
link, a text, a button, a field and a select box: 500 elements.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agentkv_envs import Action, Task, WebEnv, find_executable
from agentkv_envs.grammar import suits

_CARD = (
    "<div><a href='#{0}'>Card {0}</a> costs {0} <button>Buy</button><input aria-label='Qty {0}'>"
    "<select aria-label='Size {0}'><option>S<option>M</select></div>"
)
_PAGE = "<title>Cards</title>" + "".join(_CARD.format(i) for i in range(100))


@contextmanager
def large_page() -> Iterator[str]:
    """Its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = _PAGE.encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def task_at(url: str, site: str) -> Task:
    """A task that starts there."""
    check = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "ok"}}
    return Task("bench", (site,), "Look.", url, check, (), {})


def starts_and_steps(site: str, episodes: int) -> dict[str, list[float]]:
    """Milliseconds by what took them. "start" is by the environment's own clock, "reset" the whole call; "start, new
    data" is an episode of a data seed that no episode had before."""
    found: dict[str, list[float]] = {}
    with WebEnv(screenshots=False) as env:
        task = task_at(f"__{site.upper()}__/", site)
        for seed in range(2, 7):
            env.reset(task, seed)
            found.setdefault("start, new data", []).append(env.start_ms)
            time.sleep(0.3)
        for _ in range(episodes):
            began = time.perf_counter()
            seen = env.reset(task, 2)
            whole = (time.perf_counter() - began) * 1e3
            found.setdefault("start", []).append(env.start_ms)
            found.setdefault("reset", []).append(whole)
            for i in range(3):
                links = [e for e in seen.elements if suits("click", e) and e.role == "link"]
                result = env.step(Action("click", links[(5 * i + 7) % len(links)].id))
                seen = result.observation
                for part in ("action", "settle", "observe"):
                    found.setdefault(f"step: {part}", []).append(result.timings[part])
            began = time.perf_counter()
            env.screenshot()
            found.setdefault("screenshot", []).append((time.perf_counter() - began) * 1e3)
            time.sleep(0.3)
        began = time.perf_counter()
    found["close"] = [(time.perf_counter() - began) * 1e3]
    return found


def reading(times: int) -> list[float]:
    """Milliseconds of observing the large page."""
    with large_page() as url, WebEnv(screenshots=False) as env:
        env.reset(task_at(url, "shopping"))
        return [env.step(Action("press", text="Shift")).timings["observe"] for _ in range(times)]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--site", default="shopping")
    parser.add_argument("--json", action="store_true", help="all values, as one JSON object")
    options = parser.parse_args(arguments)
    found = starts_and_steps(options.site, options.episodes)
    found["observe 500 elements"] = reading(options.episodes)
    if options.json:
        print(json.dumps({name: [round(v, 1) for v in values] for name, values in found.items()}))
        return
    print(f"{find_executable()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, ms")
    for name, values in found.items():
        print(f"{name:22} median {statistics.median(values):6.0f}   least {min(values):6.0f}   n {len(values)}")


if __name__ == "__main__":
    main()
