"""Documents to train gates on: running text, and facts that are asked for long after they were told."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from agentkv.train.documents import Document
from agentkv.train.errors import TrainError

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_THINGS = ("ticket", "locker", "parcel", "booking", "invoice", "seat", "permit", "badge", "shelf", "voucher")
_OWNERS = ("Aldo", "Brita", "Cosmo", "Dagny", "Enno", "Fenja", "Gregor", "Hedda", "Imre", "Jorun", "Knut", "Leif")
_FORMS = ("Note: the {thing} of {owner} is {value}.", "{owner} has {thing} {value}.", "- {thing} ({owner}): {value}")
_QUESTION = "\n\nQuestion: what is the {thing} of {owner}?\nAnswer:"

Encode = Callable[[str], list[int]]


def read_text(path: Path) -> str:
    """Raises TrainError: the file cannot be read, is not UTF-8 or is empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainError(f"cannot read the text {path}: {error}") from error
    if not text.strip():
        raise TrainError(f"the text {path} is empty")
    return text


def text_documents(text: str, encode: Encode, length: int, name: str) -> list[Document]:
    """The text in pieces of `length` tokens, each learned from its second token on; what is left over goes."""
    ids = encode(text)
    return [
        Document(tuple(ids[start : start + length]), ((1, length),), f"{name}, token {start}")
        for start in range(0, len(ids) - length + 1, length)
    ]


def recall_documents(
    text: str, encode: Encode, length: int, count: int, seed: int, facts: int = 4, asked: int = 2
) -> list[Document]:
    """Sentences of the text with facts among them, and at the end questions about some; the answers are learned.

    Args:
        text: where the sentences come from.
        encode: of the tokenizer, no special tokens.
        length: the most tokens of a document.
        count: documents.
        seed: decides all that is drawn.
        facts, asked: told in each document, and asked for.

    Raises:
        TrainError: documents of that length have no room for the facts.
    """
    sentences = [sentence for sentence in _SENTENCE.split(" ".join(text.split())) if sentence]
    rng = random.Random(f"recall/{seed}")
    return [_recall(rng, sentences, encode, length, facts, asked, f"recall {n}") for n in range(count)]


def _recall(
    rng: random.Random, sentences: Sequence[str], encode: Encode, length: int, facts: int, asked: int, name: str
) -> Document:
    pairs = rng.sample([(thing, owner) for thing in _THINGS for owner in _OWNERS], facts)
    told = [{"thing": thing, "owner": owner, "value": str(rng.randrange(1000, 100_000))} for thing, owner in pairs]
    lines = [encode(" " + rng.choice(_FORMS).format(**fact)) for fact in told]
    ends = [(encode(_QUESTION.format(**fact)), encode(f" {fact['value']}")) for fact in rng.sample(told, asked)]
    room = length - sum(map(len, lines)) - sum(len(question) + len(answer) for question, answer in ends)
    filler, at = [], rng.randrange(len(sentences))
    while (sentence := encode(" " + sentences[at % len(sentences)])) and room >= len(sentence):
        filler.append(sentence)
        room -= len(sentence)
        at += 1
    if not filler:
        raise TrainError(
            f"documents of {length} tokens have no room for {facts} facts among sentences; raise --document"
        )
    for line in lines:
        filler.insert(rng.randrange(len(filler) + 1), line)
    ids = [token for part in filler for token in part]
    spans = []
    for question, answer in ends:
        ids += question
        spans.append((len(ids), len(ids) + len(answer)))
        ids += answer
    return Document(tuple(ids), tuple(spans), name)
