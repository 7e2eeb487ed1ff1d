"""The encyclopedia's database: a template per world, copied into memory for every episode."""

from __future__ import annotations

import functools
import re
import sqlite3
from importlib import resources

from agentkv_envs.sites.storage import SCHEMA
from agentkv_envs.sites.wiki.articles import Fact, articles

_KEY = re.compile(r"[^A-Z0-9]+")


@functools.lru_cache(maxsize=64)
def facts(seed: int, split: str) -> dict[str, str]:
    """Every value of every article by the name tasks write it with: `WIKI_OTTERFORD_MARKET_DAY`."""
    return {
        f"WIKI_{_KEY.sub('_', f'{article.title} {fact.label}'.upper())}": fact.value
        for article in articles(seed, split)
        for fact in article.facts
    }


@functools.lru_cache(maxsize=32)
def template(seed: int, split: str) -> bytes:
    """The serialised database of a world."""
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA + resources.files(__package__ or "").joinpath("schema.sql").read_text("utf-8"))
    written = articles(seed, split)
    db.executemany(
        "INSERT INTO article (id, title, kind, category, summary, opening) VALUES (?, ?, ?, ?, ?, ?)",
        [(a.id, a.title, a.kind, a.category, a.summary, a.opening) for a in written],
    )
    db.executemany(
        "INSERT INTO fact (article_id, label, value, link, boxed) VALUES (?, ?, ?, ?, ?)",
        [(a.id, f.label, f.value, f.link, f.boxed) for a in written for f in a.facts],
    )
    db.executemany(
        "INSERT INTO section (article_id, heading, body) VALUES (?, ?, ?)",
        [(a.id, heading, body) for a in written for heading, body in a.sections],
    )
    db.executemany(
        "INSERT INTO article_search (rowid, title, summary, body) VALUES (?, ?, ?, ?)",
        [
            (a.id, a.title, a.summary, " ".join((a.opening, *(f"{h} {b}" for h, b in a.sections), *_values(a.facts))))
            for a in written
        ],
    )
    db.commit()
    data = db.serialize()
    db.close()
    return bytes(data)


def _values(facts: tuple[Fact, ...]) -> list[str]:
    return [f"{fact.label} {fact.value}" for fact in facts]
