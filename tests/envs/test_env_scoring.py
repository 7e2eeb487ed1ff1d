"""Evaluator semantics in both dialects, and the parts that need the browser."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from env_pages import task_at

from agentkv_envs import TaskError, WebEnv, load_suite, resolve
from agentkv_envs.scoring.functions import FUNCTIONS
from agentkv_envs.scoring.text import Unscored, clean, match_answer, match_content, words
from agentkv_envs.scoring.urls import match_url
from agentkv_envs.tasks import calls
from agentkv_envs.tasks.calls import parse_call


@pytest.mark.parametrize(
    ("answer", "references", "official", "fixed"),
    [
        ("Red", {"exact_match": "red"}, True, True),
        ("'Red'", {"exact_match": "red"}, True, True),
        ("red ", {"exact_match": "red"}, False, True),
        ("The answer is red.", {"must_include": ["red"]}, True, True),
        ("It is reddish", {"must_include": ["red"]}, False, False),
        ("a red kettle here", {"must_include": ["red kettle"]}, True, True),
        ("green", {"must_include": ["red |OR| green"]}, True, True),
        ("green", {"must_include": ["red", "green"]}, False, False),
        ("0.", {"must_include": ["0"]}, True, True),
        ("0. none of them", {"must_include": ["0"]}, False, True),
        ("It costs $25.50", {"must_include": ["25.50"]}, True, True),
        ("000170", {"must_include": ["170"]}, False, False),
        ("a blue one", {"must_include": ["blue"], "must_exclude": ["red"]}, True, True),
        ("a blue and red one", {"must_include": ["blue"], "must_exclude": ["red"]}, False, False),
        ("i like it in blue", {"one_of": ["red", "blue"]}, True, True),
        ("5", {"required_values": ["> 5"]}, True, False),
        ("6", {"required_values": ["> 5"]}, True, True),
        ("1,200", {"required_values": [">= 1000", "< 2000"]}, True, True),
        ("$121.50", {"required_values": ["== 121.5"]}, False, True),
        ("many", {"required_values": ["> 1"]}, False, False),
        ("7", {"required_values": ["< 3 |OR| == 7"]}, True, True),
        ("n/a", {"fuzzy_match": "N/A"}, True, True),
        ("", {"fuzzy_match": "N/A"}, False, False),
    ],
)
def test_string_match(answer: str, references: dict[str, Any], official: bool, fixed: bool) -> None:
    assert match_answer(answer, references, "official") is official
    assert match_answer(answer, references, "fixed") is fixed


def test_fuzzy_match_without_a_judge_is_unscored_unless_already_lost() -> None:
    with pytest.raises(Unscored):
        match_answer("some reason", {"fuzzy_match": ["another reason"]}, "fixed")
    assert not match_answer("some reason", {"must_include": ["x"], "fuzzy_match": ["some"]}, "fixed")


def test_tokens_split_signs_from_words() -> None:
    assert words("it's $25.50 (new), isn't it?", "fixed") == (
        ["it", "'s", "$", "25.50", "(", "new", ")", ",", "is", "n't", "it", "?"]
    )
    assert words("done.", "official") == ["done", "."]
    assert words("call 412-268-2000, 64gb +7 e.g. here. cannot", "official") == (
        ["call", "412-268-2000", ",", "64gb", "+7", "e.g.", "here", ".", "can", "not"]
    )
    assert words("the 'x' is 5:30--not 1,000...", "official") == (
        ["the", "'", "x", "'", "is", "5:30", "--", "not", "1,000", "..."]
    )
    assert clean('"A  b"', "official") == "a  b"
    assert clean('"A  b"', "fixed") == "a b"


def test_the_first_key_of_required_contents_decides() -> None:
    assert match_content("red", {"exact_match": "red", "must_include": ["blue"]}, "fixed")
    assert not match_content("red and blue", {"must_exclude": ["blue"]}, "fixed")
    assert match_content("12", {"required_values": ["> 3"]}, "fixed")


@pytest.mark.parametrize(
    ("url", "reference", "note", "official", "fixed"),
    [
        ("http://127.0.0.1:1/a/", "http://localhost:1/a", "EXACT", True, True),
        ("http://h/a?x=1&y=2", "http://h/a?y=2&x=1", "EXACT", False, True),
        ("http://h/a%20b", "http://h/a b", "EXACT", False, True),
        ("http://h/b", "http://h/a |OR| http://h/b", "EXACT", True, True),
        ("http://h/ab", "http://h/a", "EXACT", False, False),
        ("http://h/a/b", "http://h/a", "GOLD in PRED", True, True),
        ("http://h/abc", "http://h/ab", "GOLD in PRED", True, False),
        ("http://h/c", "http://h/a", "GOLD in PRED", False, False),
    ],
)
def test_url_match(url: str, reference: str, note: str, official: bool, fixed: bool) -> None:
    assert match_url(url, reference, note, "official") is official
    assert match_url(url, reference, note, "fixed") is fixed


def test_functions_are_called_by_name_and_never_evaluated() -> None:
    assert parse_call("get_query_text(__page__, '.price')") == ("get_query_text", [".price"])
    for text in (
        "__import__('os').system('x')",
        "get_query_text(open('x'))",
        "get_query_text(selector='x')",
        "get_query_text(*a)",
        "get_query_text(",
        "os_system('x')",
        "1 + 1",
        "(lambda: 1)()",
    ):
        with pytest.raises(ValueError, match="func:"):
            parse_call(text)
    for text in ("get_query_text(__page__)", "shopping_get_latest_order_url(1)", "get_query_text('a', 'b')"):
        with pytest.raises(ValueError, match="takes"):
            parse_call(text)
    assert set(FUNCTIONS) == set(calls.FUNCTIONS)


# A task of its own: one of the suite would be made anew from its family.
SHOP = replace(load_suite("vwa75:shopping-001")[0], task_id="test-001", raw={})


def html(url: str, locator: str, required: dict[str, Any]) -> dict[str, Any]:
    target = {"url": url, "locator": locator, "required_contents": required}
    return {"eval_types": ["program_html"], "program_html": [target]}


@pytest.mark.browser
@pytest.mark.parametrize(
    ("url", "locator", "required", "passes"),
    [
        ("last", "", {"must_include": ["product-item-link"]}, True),
        ("last", "document.querySelector('h1').outerText", {"exact_match": "Good things for every room"}, True),
        ("last", "document.querySelector('.none').outerText", {"exact_match": ""}, True),
        ("last", "lambda: 1 + 1", {"exact_match": "2"}, True),
        ("last", "lambda:() => document.title", {"exact_match": "Brightcart"}, True),
        ("last", "lambda: nothing.here", {"exact_match": ""}, False),
        ("__last_url__", "[...document.querySelectorAll('.tiles a')].length", {"required_values": ["== 8"]}, True),
        ("last", "func:get_query_text(__page__, '.cart')", {"exact_match": "Cart (0)"}, True),
        ("last", "func:get_query_text_lowercase(__page__, '.cart')", {"exact_match": "cart (0)"}, True),
        ("last", "func:shopping_get_product_price('KE013')", {"required_values": ["== 43"]}, True),
        ("last", "func:shopping_get_num_reviews('KE013')", {"required_values": [">= 1"]}, True),
        ("func:shopping_get_latest_order_url()", "document.title", {"must_include": ["Order"]}, True),
        (
            "last",
            "func:shopping_get_order_product_name_list(__page__)",
            {"must_include": ["Orbit Black 1 L Kettle"]},
            True,
        ),
        ("http://127.0.0.1:9/", "document.title", {"must_include": ["x"]}, False),
    ],
)
def test_program_html(env: WebEnv, url: str, locator: str, required: dict[str, Any], passes: bool) -> None:
    env.reset(replace(SHOP, eval=html(url, locator, required)))
    score = env.evaluate()
    assert score.success is passes, score


@pytest.mark.browser
def test_scoring_leaves_the_agents_page_alone(env: WebEnv) -> None:
    check = html("__SHOPPING__/deals/", "document.title", {"exact_match": "Deals"})
    check["eval_types"] = ["program_html", "url_match"]
    seen = env.reset(replace(SHOP, eval={**check, "reference_url": "__SHOPPING__/contact/"}))
    result = env.step(resolve("goto [/contact/]", seen))
    assert env.evaluate().parts == {"program_html": 1.0, "url_match": 1.0}
    assert env.step(resolve("scroll [down]", result.observation)).observation.tabs == ("Contact",)


@pytest.mark.browser
def test_a_part_without_a_judge_leaves_the_score_open_unless_another_failed(env: WebEnv, site: str) -> None:
    unsure = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": ["a reason"]}}
    env.reset(replace(task_at(f"{site}/late"), eval=unsure))
    env.step(resolve("stop [maybe]", env.reset(replace(task_at(f"{site}/late"), eval=unsure))))
    score = env.evaluate()
    assert (score.success, score.parts) == (None, {})
    assert "needs a judge" in score.note
    both = {**unsure, "eval_types": ["string_match", "url_match"], "reference_url": "http://127.0.0.1/"}
    env.step(resolve("stop [maybe]", env.reset(replace(task_at(f"{site}/late"), eval=both))))
    assert env.evaluate().success is False


@pytest.mark.browser
def test_a_wrong_function_in_a_task_is_a_task_error(env: WebEnv) -> None:
    env.reset(replace(SHOP, eval=html("last", "func:os_system('x')", {"exact_match": ""})))
    with pytest.raises(TaskError, match="there is no function 'os_system'"):
        env.evaluate()
