"""Needle prompts made up: one fact told once in a long context, and asked for after it.

In `number` and `sentence` the fact stands out from the filler around it. In `pairs` and `page` the whole context
consists of such facts, and only the question says which of them matters.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from agentkv_evals.errors import EvalError
from agentkv_evals.niah_lines import Line, ask_for_one
from agentkv_evals.niah_pages import page_prompt
from agentkv_evals.niah_prompts import NeedlePrompt

KINDS = ("number", "sentence", "pairs", "page")
FILLED_KINDS = ("number", "sentence")
"""Those whose needle lies in filler, which may come from a text."""
_NAMES = (
    "Agnes", "Alvar", "Beatrix", "Bruno", "Celeste", "Cyril", "Delia", "Edgar", "Elena", "Felix", "Flora", "Gideon",
    "Greta", "Hugo", "Ingrid", "Ivor", "Jasper", "Judith", "Klara", "Leander", "Lydia", "Magnus", "Mirela", "Nestor",
    "Odile", "Oskar", "Petra", "Quentin", "Ramona", "Rufus", "Selma", "Silas", "Tamsin", "Tobias", "Ursula", "Viktor",
    "Wanda", "Wilfred", "Yara", "Zelda",
)  # fmt: skip
_WHO = (
    "the baker", "an old sailor", "the girl next door", "our neighbour", "the postman", "a quiet student",
    "the gardener", "my uncle", "the librarian", "a young painter", "the innkeeper", "the schoolteacher",
)  # fmt: skip
_DID = (
    "carried a basket of apples", "told a story about the sea", "repaired the wooden gate", "waited for the last train",
    "planted beans along the wall", "read the newspaper aloud", "fed the ducks", "painted the shutters green",
    "wrote a long letter home", "looked for a lost glove", "hung the washing out to dry", "sharpened a dozen pencils",
    "listened to the rain", "counted the sheep on the hill", "boiled a pot of soup", "folded the clean sheets",
)  # fmt: skip
_WHERE = (
    "by the river", "behind the church", "in the market square", "on the way to the mill", "near the old bridge",
    "at the edge of the forest", "in the kitchen", "beside the stone well", "under the chestnut tree", "at the harbour",
)  # fmt: skip
_WHEN = (
    "before breakfast", "in the late afternoon", "every Sunday", "while the others slept", "on a windy morning",
    "after the first frost", "when the bells rang", "towards evening", "during the holidays", "as soon as it was warm",
)  # fmt: skip
_FACTS = {
    "secret ingredient of {}'s stew": (
        "smoked paprika", "dried apricots", "black cardamom", "roasted hazelnuts", "juniper berries", "anchovy paste",
        "tamarind syrup", "pickled lemon", "candied ginger", "star anise", "maple vinegar", "toasted sesame",
        "wild fennel", "burnt butter", "crushed pistachios", "plum brandy",
    ),
    "name of {}'s horse": (
        "Thunderbolt", "Marigold", "Copernicus", "Buttercup", "Moonlight", "Domino", "Cinnamon", "Hurricane",
        "Clementine", "Galileo", "Pepper", "Snowflake", "Sultan", "Biscuit", "Persephone", "Caramel",
    ),
    "birthplace of {}'s grandmother": (
        "Lisbon", "Tallinn", "Valencia", "Krakow", "Marrakesh", "Bergen", "Trieste", "Odessa", "Samarkand", "Galway",
        "Havana", "Kyoto", "Salzburg", "Tbilisi", "Antwerp", "Cartagena",
    ),
    "hobby of {}'s sister": (
        "falconry", "beekeeping", "juggling", "fencing", "origami", "pottery", "archery", "astronomy", "calligraphy",
        "weaving", "ventriloquism", "mountaineering", "embroidery", "glassblowing", "birdwatching", "bookbinding",
    ),
}  # fmt: skip
"""What a sentence tells about somebody, and what it may be."""
_WORDS = (
    "amber", "anchor", "ancient", "arrow", "badge", "barrel", "basket", "beacon", "bell", "blanket", "brave", "bridge",
    "bright", "bronze", "bucket", "button", "calm", "camel", "candle", "canyon", "carpet", "castle", "cedar", "chapel",
    "clever", "cliff", "clover", "comet", "compass", "copper", "cottage", "crane", "crimson", "desert", "dolphin",
    "donkey", "dusty", "eager", "eagle", "early", "emerald", "engine", "faint", "falcon", "fancy", "feather", "forest",
    "fountain", "garden", "garlic", "gentle", "ginger", "glacier", "golden", "grand", "guitar", "hammer", "harbor",
    "helmet", "hidden", "hollow", "honey", "humble", "icy", "island", "ivory", "jacket", "jolly", "jungle", "kettle",
    "ladder", "lantern", "lemon", "lion", "lively", "lonely", "lucky", "magnet", "marble", "market", "meadow", "mirror",
    "misty", "modest", "monkey", "mountain", "needle", "noble", "olive", "onion", "orchard", "palace", "parrot",
    "pepper", "piano", "pillow", "planet", "pocket", "proud", "quick", "quiet", "rabbit", "rapid", "raven", "ribbon",
    "river", "rocket", "royal", "rusty", "saddle", "salmon", "shadow", "silent", "silver", "spider", "spoon",
    "sugar", "tidy", "tiger", "tower", "tunnel", "turtle", "valley", "velvet", "violin", "walnut", "window",
)  # fmt: skip
_MOST_WORDS = 60
"""Longer sentences are cut: the needle's place and the context's length are only as fine as the pieces."""


def make_prompts(
    kind: str, n: int, tokens: int, seed: int, count: Callable[[str], int], text: str | None = None
) -> list[NeedlePrompt]:
    """Needle prompts whose needles lie at depths spread evenly over the context, from its start to its end.

    Args:
        kind: one of `KINDS`.
        n: how many.
        tokens: of a context; the last piece that would exceed it is left out.
        seed: of all that is chosen; each prompt depends on it and on its own place only.
        count: tokens of a piece of text.
        text: what the filler is taken from, for `FILLED_KINDS`; None for sentences made up here.

    Raises:
        EvalError: a context so short that only the needle fits, or longer than can be made up.
    """
    pieces = None if text is None else _sentences(text)
    prompts = []
    for index in range(n):
        chance = random.Random(f"{seed}/{index}")
        depth = (index + chance.random()) / n
        if kind == "pairs":
            prompts.append(ask_for_one(depth, tokens, count, _pairs(tokens, chance, count)))
        elif kind == "page":
            prompts.append(page_prompt(depth, tokens, chance, count))
        else:
            fact = _number(chance) if kind == "number" else _sentence(chance)
            filler = plain_sentences(chance) if pieces is None else _from_anywhere(pieces, chance)
            prompts.append(_in_filler(fact, depth, tokens, count, filler))
    return prompts


def _number(chance: random.Random) -> tuple[str, str]:
    """What is told, and its value."""
    return f"special number of {chance.choice(_NAMES)}", str(chance.randrange(10_000, 100_000))


def _sentence(chance: random.Random) -> tuple[str, str]:
    name, what = chance.choice(_NAMES), chance.choice(tuple(_FACTS))
    return what.format(name), chance.choice(_FACTS[what])


def _in_filler(
    fact: tuple[str, str], depth: float, tokens: int, count: Callable[[str], int], filler: Iterator[str]
) -> NeedlePrompt:
    what, answer = fact
    needle = f"The {what} is {answer}."
    prompt = NeedlePrompt(needle, f"What is the {what}?", f"The {what} is", answer)
    room = tokens - count(f"\n{needle}\n")
    before: list[str] = []
    after: list[str] = []
    used = 0
    for sentence in filler:
        size = count(f" {sentence}")
        if used + size > room:
            break
        used += size
        if not prompt.found_in(sentence):
            (before if used <= depth * room else after).append(sentence)
    if not used:
        raise EvalError(f"a context of {tokens} tokens has no room for a needle and filler; raise --length")
    context = "\n".join(part for part in (" ".join(before), needle, " ".join(after)) if part)
    return replace(prompt, context=context)


def _pairs(tokens: int, chance: random.Random, count: Callable[[str], int]) -> Iterator[Line]:
    """List entries, keys and values all different. A key is two words where single ones are too few."""
    values = chance.sample(range(1000, 10_000), 9000)
    keys = chance.sample(_WORDS, len(_WORDS))
    if sum(count(f"{_entry(key, value)}\n") for key, value in zip(keys, values, strict=False)) <= tokens:
        keys = [f"{first}-{second}" for first, second in itertools.permutations(keys, 2)]
        chance.shuffle(keys)
    for key, value in zip(keys, values, strict=False):
        question = f'In the list, which number is written next to "{key}"?'
        # The remark makes lines longer, hence fewer: a small model confuses many short ones even with full KV.
        yield Line(f"{_entry(key, value)} ({chance.choice(_WHERE)})", question, _entry(key), str(value))


def _entry(key: str, value: int | str = "") -> str:
    return f"- **{key}**: {value}".rstrip()


def plain_sentences(chance: random.Random) -> Iterator[str]:
    """Made-up sentences without end."""
    while True:
        who, did, where, when = (chance.choice(words) for words in (_WHO, _DID, _WHERE, _WHEN))
        sentence = f"{when}, {who} {did} {where}." if chance.random() < 0.5 else f"{who} {did} {where} {when}."
        yield sentence[0].upper() + sentence[1:]


def _sentences(text: str) -> list[str]:
    """Sentences of every line, none longer than `_MOST_WORDS`."""
    found = re.split(r"(?<=[.!?])\s+|\s*\n\s*", text)
    words = [sentence.split() for sentence in found if sentence.strip()]
    return [" ".join(part[at : at + _MOST_WORDS]) for part in words for at in range(0, len(part), _MOST_WORDS)]


def _from_anywhere(pieces: list[str], chance: random.Random) -> Iterator[str]:
    """The sentences in order from a random one on, over and over."""
    start = chance.randrange(len(pieces))
    return itertools.cycle([*pieces[start:], *pieces[:start]])
