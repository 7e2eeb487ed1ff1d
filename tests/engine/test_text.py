"""Streaming text: the pieces add up to the decoded whole, and stop strings never leak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.engine.text import TextStream
from agentkv.models import resolve_model


class ByteTokenizer:
    """One token per byte of UTF-8, so that characters arrive in pieces."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return bytes(ids).decode(errors="replace")


def stream(text: str, pieces: list[int], stop: tuple[str, ...] = ()) -> tuple[list[str], bool]:
    """Deltas of the text fed in pieces of the given lengths, flush included."""
    data, out, at = text.encode(), [], 0
    words = TextStream(ByteTokenizer(), stop)
    while at < len(data) and not words.stopped:
        size = pieces[len(out) % len(pieces)] if pieces else 1
        out.append(words.push(list(data[at : at + size])))
        at += size
    out.append(words.flush())
    return out, words.stopped


@given(text=st.text(max_size=40), pieces=st.lists(st.integers(1, 5), max_size=5))
def test_deltas_add_up_to_the_text(text: str, pieces: list[int]) -> None:
    deltas, stopped = stream(text, pieces)
    assert "".join(deltas) == text
    assert not stopped


@given(
    text=st.text(alphabet="ab<|é", max_size=30),
    stop=st.lists(st.text(alphabet="ab<|", min_size=1, max_size=4), min_size=1, max_size=3),
    pieces=st.lists(st.integers(1, 3), max_size=4),
)
def test_text_ends_before_the_first_stop_string(text: str, stop: list[str], pieces: list[int]) -> None:
    """Nothing of a stop string that appears is ever given out, however the text is cut into tokens."""
    deltas, stopped = stream(text, pieces, tuple(stop))
    given_out = "".join(deltas)
    assert stopped == any(s in text for s in stop)
    assert text.startswith(given_out)
    assert not any(s in given_out for s in stop)
    if not stopped:
        assert given_out == text


def test_a_possible_stop_string_is_held_back_until_it_is_refuted() -> None:
    words = TextStream(ByteTokenizer(), ("END",))
    assert words.push(list(b"theE")) == "the"
    assert words.push(list(b"N")) == ""
    assert words.push(list(b"O")) == "ENO"
    assert words.push(list(b"EN")) == ""
    assert words.flush() == "EN"


def test_what_is_whole_survives_a_cut_in_the_middle_of_a_character() -> None:
    words = TextStream(ByteTokenizer(), ("END",))
    assert words.push(list("plain EN👍".encode())[:-2]) == ""
    assert words.flush() == "plain EN"
    words = TextStream(ByteTokenizer(), ("END",))
    assert words.push(list("plain END👍".encode())[:-2]) == ""
    assert words.flush() == "plain "
    assert words.stopped


@pytest.mark.model
def test_a_real_tokenizer_keeps_its_spaces() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_model("smollm2-135m"))
    text = "Hello there,  two spaces, naïve café 日本語 👍 and\n\nlines."
    words = TextStream(tokenizer)
    deltas = [words.push([token]) for token in tokenizer(text)["input_ids"]]
    assert "".join([*deltas, words.flush()]) == text
