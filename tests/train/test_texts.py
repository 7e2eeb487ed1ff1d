"""What gates are trained on: pieces of text, and facts with questions whose answers were told before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentkv.train.errors import TrainError
from agentkv.train.texts import read_text, recall_documents, text_documents

TEXT = "The river was wide. Nobody crossed it before noon! A boat lay there, tied to a post. It leaked. " * 8


def encode(text: str) -> list[int]:
    return [ord(char) for char in text]


def decode(ids: tuple[int, ...]) -> str:
    return "".join(map(chr, ids))


def test_text_is_cut_into_pieces_learned_from_their_second_token_on() -> None:
    documents = text_documents(TEXT, encode, 100, "book")
    assert [len(document.ids) for document in documents] == [100] * (len(TEXT) // 100)
    assert "".join(decode(document.ids) for document in documents) == TEXT[: 100 * len(documents)]
    assert {document.spans for document in documents} == {((1, 100),)}
    assert documents[2].name == "book, token 200"


def test_answers_were_told_and_nothing_else_is_learned() -> None:
    documents = recall_documents(TEXT, encode, 500, 30, seed=1)
    assert len({document.ids for document in documents}) == 30
    for document in documents:
        whole = decode(document.ids)
        assert 400 < len(whole) <= 500
        context = whole[: whole.index("\n\nQuestion")]
        assert len(document.spans) == 2
        for start, end in document.spans:
            answer, asked = whole[start:end], whole[:start].rpartition("Question: ")[2]
            thing, owner = re.fullmatch(r"what is the (\w+) of (\w+)\?\nAnswer:", asked).groups()
            told = re.findall(rf"{thing} \W?(?:of )?{owner}\W*(?:is )?(\d+)|{owner} has {thing} (\d+)", context)
            assert [first or second for first, second in told] == [answer.strip()]


def test_the_same_seed_draws_the_same() -> None:
    assert recall_documents(TEXT, encode, 500, 3, seed=1) == recall_documents(TEXT, encode, 500, 3, seed=1)
    assert recall_documents(TEXT, encode, 500, 3, seed=1) != recall_documents(TEXT, encode, 500, 3, seed=2)


def test_documents_too_short_for_the_facts_are_refused() -> None:
    with pytest.raises(TrainError, match="documents of 120 tokens have no room for 4 facts"):
        recall_documents(TEXT, encode, 120, 1, seed=0)


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe\xfa", None])
def test_a_text_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "book.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TrainError, match=r"the text .*book\.txt"):
        read_text(path)
