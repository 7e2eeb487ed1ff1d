"""The articles of a world: titles, relations and sentences by split, drawn values by data seed."""

from __future__ import annotations

import functools
import random
import re
from dataclasses import dataclass

from agentkv_envs.sites.wiki.kinds import Attribute, Kind
from agentkv_envs.sites.wiki.names import Topic, titles, topics
from agentkv_envs.sites.wiki.places import PLACES
from agentkv_envs.sites.wiki.things import THINGS

KINDS = {**PLACES, **THINGS}
_SLOT = re.compile(r"\{([^}]+)\}")


@dataclass(frozen=True)
class Fact:
    """One attribute of a topic. `link` is the title of the article that the value names, "" for none."""

    label: str
    value: str
    link: str
    boxed: bool


@dataclass(frozen=True)
class Article:
    """An article; texts hold links as `[[Title]]`."""

    id: int
    title: str
    kind: str
    category: str
    summary: str
    opening: str
    sections: tuple[tuple[str, str], ...]
    facts: tuple[Fact, ...]

    def fact(self, label: str) -> str:
        """The value of an attribute.

        Raises:
            KeyError: the article has no such attribute.
        """
        return {fact.label: fact.value for fact in self.facts}[label]


@functools.lru_cache(maxsize=64)
def articles(seed: int, split: str) -> tuple[Article, ...]:
    """All articles of a world, ordered by title."""
    fixed = random.Random(f"wiki-relations-{split}")
    drawn = random.Random(f"wiki-values-{split}-{seed}")
    written = [_write(topic, split, fixed, drawn) for topic in topics(split)]
    written.sort(key=lambda parts: parts[0].title)
    return tuple(_assemble(i, *parts) for i, parts in enumerate(written, 1))


@functools.lru_cache(maxsize=64)
def by_title(seed: int, split: str) -> dict[str, Article]:
    return {article.title: article for article in articles(seed, split)}


_Parts = tuple[Topic, Kind, tuple[Fact, ...], str, tuple[tuple[str, str], ...]]


def _write(topic: Topic, split: str, fixed: random.Random, drawn: random.Random) -> _Parts:
    kind = KINDS[topic.kind]
    facts = tuple(_fact(attribute, topic, split, fixed, drawn) for attribute in kind.attributes)
    sections = tuple((heading, fixed.choice(texts)) for heading, texts in kind.sections)
    return topic, kind, facts, fixed.choice(kind.openings), sections


def _fact(attribute: Attribute, topic: Topic, split: str, fixed: random.Random, drawn: random.Random) -> Fact:
    value = topic.given.get(attribute.label, "")
    if attribute.relation is not None and not value:
        value = fixed.choice([title for title in titles(split, attribute.relation) if title != topic.title])
    elif attribute.draw is not None:
        value = attribute.draw(drawn)
    link = value if attribute.relation is not None else ""
    return Fact(attribute.label, value, link, attribute.boxed)


def _assemble(
    number: int, topic: Topic, kind: Kind, facts: tuple[Fact, ...], opening: str, sections: tuple[tuple[str, str], ...]
) -> Article:
    values = {fact.label: f"[[{fact.link}]]" if fact.link else fact.value for fact in facts} | {"title": topic.title}

    def fill(text: str) -> str:
        text = _SLOT.sub(lambda match: values[match.group(1)], text)
        return text[:1].upper() + text[1:]

    where = next((fact.value for fact in facts if fact.label in ("Town", "Region", "Seat", "Covers")), "")
    summary = kind.summary + (f" for {where}" if topic.kind == "norm" else f" in {where}" if where else "")
    filled = tuple((heading, fill(text)) for heading, text in sections)
    # Only what a reader can find is a fact.
    written = {slot for text in (opening, *(text for _, text in sections)) for slot in _SLOT.findall(text)}
    facts = tuple(fact for fact in facts if fact.boxed or fact.label in written)
    return Article(number, topic.title, topic.kind, kind.category, summary, fill(opening), filled, facts)
