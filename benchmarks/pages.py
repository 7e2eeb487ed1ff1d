"""How many tokens the embedded sites' pages take as compact observations, by kind of page.

    python benchmarks/pages.py [--steps 120] [--tokenizer tokenizer.json] [SITE ...]

A walk over each site follows the links it has followed least. Kinds of pages are told apart by their address, numbers
and names in it aside. Without a tokenizer file the environment's own cautious estimate counts.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from urllib.parse import parse_qsl, urlsplit

from agentkv_envs import Action, Observation, Task, WebEnv
from agentkv_envs.grammar import suits
from agentkv_envs.observe import estimate_tokens

SITES = ("shopping", "classifieds", "forum", "wiki", "home")
_HOME_EVERY = 15


def page_kind(url: str) -> str:
    """The address without what names one of many: "/f/*/*/*", "/index.php?page=item"."""
    parts = urlsplit(url)
    path = re.sub(r"^/(f|user)/[^/]+", r"/\1/*", parts.path)
    segments = [_segment(s) for s in path.split("/")]
    page = next((value for key, value in parse_qsl(parts.query) if key == "page" and not value.isdigit()), "")
    return "/".join(segments) + (f"?page={page}" if page else "")


def _segment(text: str) -> str:
    if text.endswith(".html"):
        return "*.html"
    return "*" if re.search(r"\d|[A-Z]|-\w+-", text) else text


def walk(site: str, steps: int, count: Callable[[str], int]) -> dict[str, list[int]]:
    """Tokens of the pages of a walk, by kind of page."""
    check = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "ok"}}
    task = Task("walk", (site,), "Look.", f"__{site.upper()}__/", check, (), {})
    tokens: dict[str, list[int]] = defaultdict(list)
    followed: Counter[tuple[str, str]] = Counter()
    with WebEnv(screenshots=False, count_tokens=count) as env:
        seen = env.reset(task)
        home = seen.url
        for step in range(steps):
            tokens[page_kind(seen.url)].append(count(seen.text))
            action = _next(seen, followed) if step % _HOME_EVERY else Action("goto", text=home)
            seen = env.step(action).observation
    return tokens


def _next(seen: Observation, followed: Counter[tuple[str, str]]) -> Action:
    kind = page_kind(seen.url)
    links = [e for e in seen.elements if (e.role in ("link", "more") and not e.disabled)]
    if not links or seen.dialog is not None:
        return Action("dialog", text="dismiss") if seen.dialog is not None else Action("go_back")
    chosen = min(links, key=lambda e: (followed[kind, e.label], -e.id))
    followed[kind, chosen.label] += 1
    return Action("click" if suits("click", chosen) else "more", chosen.id, chosen.label)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sites", nargs="*", default=SITES)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--tokenizer", help="a tokenizer.json")
    options = parser.parse_args(arguments)
    count: Callable[[str], int] = estimate_tokens
    if options.tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(options.tokenizer)

        def count(text: str) -> int:
            return len(tokenizer.encode(text, add_special_tokens=False).ids)

    print("| site | page | seen | tokens, mean | most |\n|---|---|---|---|---|")
    for site in options.sites:
        found = walk(site, options.steps, count)
        for kind, values in sorted(found.items(), key=lambda item: -len(item[1])):
            print(f"| {site} | `{kind}` | {len(values)} | {statistics.mean(values):.0f} | {max(values)} |")
        everything = [value for values in found.values() for value in values]
        print(f"| {site} | all | {len(everything)} | {statistics.mean(everything):.0f} | {max(everything)} |")


if __name__ == "__main__":
    main()
