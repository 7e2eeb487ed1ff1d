"""Needle prompts: where the needle lies, what surrounds it, and files of prompts that are not right."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from agentkv_evals.errors import EvalError
from agentkv_evals.niah_kinds import KINDS, make_prompts
from agentkv_evals.niah_prompts import NeedlePrompt, read_prompts


def count(text: str) -> int:
    return len(text.split())


def test_needles_lie_at_depths_spread_over_contexts_of_the_asked_length() -> None:
    prompts = make_prompts("number", 8, 400, 5, count)
    for index, prompt in enumerate(prompts):
        assert 370 < count(prompt.context) <= 400
        (needle,) = [line for line in prompt.context.splitlines() if "special number" in line]
        name, number = re.fullmatch(r"The special number of (\w+) is (\d{5})\.", needle).groups()
        assert prompt.context.count(number) == 1
        assert (prompt.question, prompt.answer) == (f"What is the special number of {name}?", number)
        assert prompt.prefix == f"The special number of {name} is"
        depth = count(prompt.context.partition(needle)[0]) / 400
        assert index / 8 - 0.05 <= depth <= (index + 1) / 8 + 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_depends_on_its_seed_and_place_only(kind: str) -> None:
    prompts = make_prompts(kind, 6, 400, 1, count)
    assert prompts == make_prompts(kind, 6, 400, 1, count)
    assert len(set(prompts)) == 6
    assert not set(prompts) & set(make_prompts(kind, 6, 400, 2, count))


def test_a_sentence_is_told_once_and_has_no_digits() -> None:
    prompts = make_prompts("sentence", 8, 400, 3, count)
    for index, prompt in enumerate(prompts):
        needle = f"{prompt.prefix} {prompt.answer}."
        assert prompt.context.splitlines().count(needle) == 1
        assert prompt.context.count(prompt.prefix) == prompt.context.count(prompt.answer) == 1
        assert prompt.question == f"What is {prompt.prefix.removesuffix(' is').replace('The', 'the', 1)}?"
        assert not re.search(r"\d", prompt.context)
        assert abs(count(prompt.context.partition(needle)[0]) / 400 - (index + 0.5) / 8) < 0.12
    assert len({prompt.prefix for prompt in prompts}) > 4


@pytest.mark.parametrize("tokens", [250, 3000])
def test_pairs_are_alike_and_each_key_and_value_is_there_once(tokens: int) -> None:
    for index, prompt in enumerate(make_prompts("pairs", 5, tokens, 0, count)):
        lines = prompt.context.splitlines()
        pairs = [re.fullmatch(r"- \*\*([a-z-]+)\*\*: (\d{4}) \([a-z ]+\)", line).groups() for line in lines]
        keys, values = zip(*pairs, strict=True)
        assert len(set(keys)) == len(set(values)) == len(lines)
        assert len({key.count("-") for key in keys}) == 1
        assert tokens - 9 < count(prompt.context) <= tokens
        (at,) = (at for at, line in enumerate(lines) if line.startswith(f"{prompt.prefix} {prompt.answer} "))
        assert f'"{keys[at]}"' in prompt.question
        assert abs(at / len(lines) - (index + 0.5) / 5) < 0.12


def test_pages_ask_for_a_detail_that_one_earlier_page_shows() -> None:
    prompts = make_prompts("page", 12, 500, 0, count)
    for index, prompt in enumerate(prompts):
        pages = prompt.context.split("page: ")[1:]
        detail, name = re.fullmatch(r'Which (\w+) does the page show for "(.+)"\?', prompt.question).groups()
        assert prompt.context.count(f'"{name}"') == 1
        (line,) = [line for line in prompt.context.splitlines() if f'"{name}"' in line]
        assert line == f"{prompt.prefix}{'' if detail == 'price' else ' '}{prompt.answer}"
        assert line not in pages[-1].splitlines()
        before_the_last = prompt.context.rindex("page: ")
        assert abs(prompt.context.index(line) / before_the_last - (index + 0.5) / 12) < 0.12
    assert {prompt.question.split()[1] for prompt in prompts} == {"price", "rating", "colour"}


def test_ids_on_pages_are_what_agents_see() -> None:
    """At most 99, and without repetition while there are any left."""
    (prompt,) = make_prompts("page", 1, 400, 0, count)
    ids = [int(n) for n in re.findall(r"^link .*\[(\d+)\] \S*[^\],]*$", prompt.context, flags=re.MULTILINE)]
    assert len(ids) == len(set(ids)) > 20
    assert max(ids) <= 99


def test_filler_comes_from_the_text_in_order_and_long_lines_are_cut() -> None:
    words = [f"w{n}" for n in range(500)]
    prompts = make_prompts("number", 4, 150, 0, count, " ".join(words[:250]) + "\n" + " ".join(words[250:]))
    for prompt in prompts:
        assert 80 < count(prompt.context) <= 150
        filler = [int(word[1:]) for word in prompt.context.split() if re.fullmatch(r"w\d+", word)]
        assert all(b == (a + 1) % 500 for a, b in itertools.pairwise(filler))
    assert len({prompt.context.split()[0] for prompt in prompts}) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_without_room_is_refused(kind: str) -> None:
    with pytest.raises(EvalError, match="a context of 5 tokens has no room"):
        make_prompts(kind, 1, 5, 0, count)


@pytest.mark.parametrize("kind", ["pairs", "page"])
def test_a_context_that_cannot_be_filled_is_refused(kind: str) -> None:
    with pytest.raises(EvalError, match=r"there are only lines for \d+ tokens of context; lower --length"):
        make_prompts(kind, 1, 10**6, 0, count)


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
