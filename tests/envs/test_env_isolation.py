"""Episodes share nothing, repeat to the byte, and leave nothing behind."""

from __future__ import annotations

import gc
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest
from env_pages import task_at

from agentkv_envs import Action, Observation, Task, WebEnv, resolve
from agentkv_envs.grammar import suits

pytestmark = pytest.mark.browser


SHOP = task_at("__SHOPPING__/")
TASKS = tuple(
    task_at(f"__SHOPPING__/{page}") for page in ("", "deals/", "catalogsearch/result/?q=toaster", "wishlist/")
)


def walk(env: WebEnv, task: Task, seed: int, steps: int = 6) -> list[str]:
    """What is seen on a walk that depends on nothing but what is seen."""
    seen = env.reset(task, seed)
    texts = [seen.text]
    for i in range(steps):
        usable = [e for e in seen.elements if suits("click", e) and e.role in ("link", "button")]
        chosen = usable[(5 * i + 11) % len(usable)]
        seen = env.step(Action("click", chosen.id)).observation
        texts.append(seen.text)
    return texts


@pytest.mark.parametrize("options", [{}, {"observation": "image_som", "style": "vwa"}, {"form": "delta"}])
def test_the_same_seed_gives_the_same_bytes(options: dict[str, str]) -> None:
    def runs() -> list[list[str]]:
        with WebEnv(screenshots=False, **options) as env:  # type: ignore[arg-type]
            return [walk(env, SHOP, 3), walk(env, SHOP, 3)]

    first, second = runs()
    again, _ = runs()
    assert first == second == again


def observations(env: WebEnv, page: str) -> list[Observation]:
    """A page that shows addresses wherever it can, its links, and what is left after leaving it; ports are new."""
    task = task_at("__SHOPPING__/", sites=("shopping", "forum"))
    seen = [env.reset(task, 3)]
    home, forum = (env._episode.urls[name] for name in ("shopping", "forum"))  # type: ignore[union-attr]
    body = page.replace("SHOP", home).replace("FORUM", forum)
    write = "html => { document.open(); document.write(html); document.close(); }"  # a document left open is loading
    env._wait(env._episode.page().evaluate(write, body))  # type: ignore[union-attr]
    for action in ("press [Shift]", 'click "Ask"', "dialog [accept]", "goto [http://forum/wiki]", "goto [http://no/]"):
        result = env.step(resolve(action, seen[-1]))
        seen.append(replace(result.observation, text=f"{result.error}\n{result.observation.text}"))
    return seen


ADDRESSES = (
    "<title>SHOP/</title><a href='SHOP'></a><a href='FORUM/f/all'></a><a href='FORUM/wiki'>FORUM/wiki</a><p>At "
    "SHOP/deals/</p><label>Link <input value='FORUM/f/'></label>"
    "<button onclick=\"alert('SHOP/'); confirm('FORUM?')\">Ask</button>"
)


@pytest.mark.parametrize("options", [{}, {"observation": "image_som", "style": "vwa"}])
def test_nothing_that_is_seen_depends_on_the_ports(options: dict[str, str]) -> None:
    with WebEnv(screenshots=False, **options) as env:  # type: ignore[arg-type]
        first = observations(env, ADDRESSES)
        port = env._episode.urls["shopping"]  # type: ignore[union-attr]
        assert first == observations(env, ADDRESSES)
        assert port != env._episode.urls["shopping"]  # type: ignore[union-attr]
    assert "127.0.0.1" not in repr(first)
    assert [seen.url for seen in first[::3]] == ["http://shopping/", "http://shopping/"]
    assert first[4].url == "http://forum/wiki"
    assert "At http://shopping/deals/" in first[1].text


def test_the_order_of_episodes_does_not_matter(env: WebEnv) -> None:
    forth = [walk(env, task, 1, 3) for task in TASKS]
    back = [walk(env, task, 1, 3) for task in reversed(TASKS)]
    assert forth == back[::-1]


def test_nothing_of_an_episode_is_left_in_the_next(env: WebEnv) -> None:
    seen = env.reset(SHOP, 0)
    for action in ('type "Search" [Harbor Red 2-Slice Toaster] [1]', "go_back"):
        seen = env.step(resolve(action, seen)).observation
    before = env._episode
    assert env.reset(SHOP, 0).can_go_back is False
    after = env._episode
    assert before is not None
    assert after is not None
    assert before.urls != after.urls
    assert before.context is not after.context
    assert before.sites[0].database is not after.sites[0].database
    assert before.sites[0].cookies != after.sites[0].cookies


def test_two_environments_run_side_by_side(env: WebEnv) -> None:
    alone = walk(env, SHOP, 2)
    with WebEnv(screenshots=False) as other, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(walk, (env, other), (SHOP, SHOP), (2, 2))) == [alone, alone]


def test_several_sites_have_their_own_cookies_and_know_each_other(env: WebEnv) -> None:
    sites = ("shopping", "wiki", "home")
    env.reset(task_at("__SHOPPING__/ |AND| __WIKI__/ |AND| __HOME__/", sites=sites), 0)
    episode = env._episode
    assert episode is not None
    assert len(episode.tabs.pages) == 3
    assert env._episode.last.current_tab == 0  # type: ignore[union-attr]
    assert tuple(episode.urls) == sites
    names = [name for site in episode.sites for name in site.cookies]
    assert len(names) == len(set(names))
    home = env.step(resolve("tab_focus [2]", episode.last)).observation  # type: ignore[arg-type]
    assert "Portal" in home.title or home.elements


def test_captions_change_nothing_else() -> None:
    def lines(captions: str) -> list[list[str]]:
        with WebEnv(screenshots=False, captions=captions) as env:
            return [[re.sub(' ?img "[^"]*"', "", line) for line in text.split("\n")] for text in walk(env, SHOP, 0)]

    def full(pages: list[list[str]]) -> list[list[str]]:
        return [[line for line in page if line] for page in pages]

    assert full(lines("none")) == full(lines("oracle")) == full(lines("noisy"))


def test_an_environment_that_is_closed_leaves_nothing() -> None:
    before = {thread.name for thread in threading.enumerate()}
    with WebEnv(screenshots=False) as env:
        env.reset(SHOP)
        port = int(env._episode.urls["shopping"].rpartition(":")[2])  # type: ignore[union-attr]
        mark = env._host.mark
    assert {thread.name for thread in threading.enumerate()} <= before
    assert not any(mark in " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.full
def test_a_hundred_episodes_leave_nothing_behind() -> None:
    me = psutil.Process()

    def state(env: WebEnv) -> dict[str, int]:
        """Counted after the old episodes have been closed in the background."""
        env._thread.submit(env._contexts.drain()).result()
        gc.collect()
        browser = env._thread.submit(env._host.get()).result()
        tree = [me, *me.children(recursive=True)]
        return {
            "contexts": len(browser.contexts),
            "processes": len(tree),
            "threads": threading.active_count(),
            "ports": sum(c.status == psutil.CONN_LISTEN for c in me.net_connections()),
            "files": me.num_fds(),
            "python_mb": me.memory_info().rss >> 20,
            "browser_mb": sum(p.memory_full_info().pss for p in tree[1:]) >> 20,
        }

    with WebEnv() as env:
        marks = []
        for i in range(100):
            walk(env, TASKS[i % len(TASKS)], i, 2)
            env.evaluate()
            if i in (9, 34, 59, 84, 99):  # as long after the browser was begun anew, the last one aside
                marks.append(state(env))
    first, *_, last = marks
    assert last["contexts"] == 1
    for what in ("processes", "threads", "ports", "contexts"):
        assert last[what] <= first[what], (what, marks)
    assert last["files"] <= first["files"] + 5, marks
    assert last["python_mb"] < first["python_mb"] + 40, marks
    assert last["browser_mb"] < first["browser_mb"] + 80, marks
