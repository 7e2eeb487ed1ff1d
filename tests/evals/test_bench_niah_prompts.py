"""Needle prompts: where the needle lies, what surrounds it, and files of prompts that are not right."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from agentkv_evals.errors import EvalError
from agentkv_evals.niah_prompts import NeedlePrompt, make_prompts, read_prompts


def count(text: str) -> int:
    return len(text.split())


def test_needles_lie_at_depths_spread_over_contexts_of_the_asked_length() -> None:
    prompts = make_prompts(8, 400, 5, count)
    for index, prompt in enumerate(prompts):
        assert 370 < count(prompt.context) <= 400
        (needle,) = [line for line in prompt.context.splitlines() if "special number" in line]
        name, number = re.fullmatch(r"The special number of (\w+) is (\d{5})\.", needle).groups()
        assert prompt.context.count(number) == 1
        assert (prompt.question, prompt.answer) == (f"What is the special number of {name}?", number)
        assert prompt.prefix == f"The special number of {name} is"
        depth = count(prompt.context.partition(needle)[0]) / 400
        assert index / 8 - 0.05 <= depth <= (index + 1) / 8 + 0.05


def test_a_seed_repeats_its_prompts() -> None:
    assert make_prompts(3, 200, 1, count) == make_prompts(3, 200, 1, count)
    assert make_prompts(3, 200, 1, count) != make_prompts(3, 200, 2, count)


def test_filler_comes_from_the_text_in_order_and_long_lines_are_cut() -> None:
    words = [f"w{n}" for n in range(500)]
    prompts = make_prompts(4, 150, 0, count, " ".join(words[:250]) + "\n" + " ".join(words[250:]))
    for prompt in prompts:
        assert 80 < count(prompt.context) <= 150
        filler = [int(word[1:]) for word in prompt.context.split() if re.fullmatch(r"w\d+", word)]
        assert all(b == (a + 1) % 500 for a, b in itertools.pairwise(filler))
    assert len({prompt.context.split()[0] for prompt in prompts}) > 1


def test_a_context_without_room_is_refused() -> None:
    with pytest.raises(EvalError, match="a context of 9 tokens has no room"):
        make_prompts(1, 9, 0, count)


@pytest.mark.parametrize(
    ("reply", "found"),
    [(" 48213.", True), ("It is 48213", True), ("148213", False), ("482135", False), ("4821", False), ("", False)],
)
def test_an_answer_is_a_whole_word(reply: str, found: bool) -> None:
    assert NeedlePrompt("c", "q", "", "48213").found_in(reply) is found


def test_a_file_of_prompts(tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"context": "c\nd", "question": "q?", "prefix": "It is ", "answer": "Blue", "more": 1},
        {"context": "c", "question": "q?", "answer": "x"},
    ]
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    first, second = read_prompts(path)
    assert first == NeedlePrompt("c\nd", "q?", "It is", "Blue")
    assert first.found_in("it is BLUE.")
    assert second.prefix == ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: not a JSON object"),
        ('{"context": "c", "question": "q"}', "line 2: 'answer' is missing"),
        ('{"context": "c", "question": "q", "answer": 7}', "line 2: 'answer' must be a string, not int"),
        ('{"context": " ", "question": "q", "answer": "a"}', "line 2: 'context' is empty"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line: str, reason: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"context": "c", "question": "q", "answer": "a"}\n' + line + "\n")
    with pytest.raises(EvalError, match=f"prompts.jsonl, {reason}"):
        read_prompts(path)


def test_an_empty_file_is_refused(tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n")
    with pytest.raises(EvalError, match="holds no text"):
        read_prompts(path)
