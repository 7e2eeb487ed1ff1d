from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_agents import StopRules, Taken, early_stop_reason
from agentkv_agents.stop_rules import trailing_parse_failures, trailing_repeats

RULES = StopRules()
steps = st.lists(
    st.builds(Taken, st.sampled_from([None, "click [1]", "click [2]", "go_back"]), st.sampled_from(["a", "b"])),
    max_size=40,
)


def clicks(n: int, key: str = "a") -> list[Taken]:
    return [Taken("click [1]", key)] * n


def test_fifth_equal_action_on_the_same_page_ends_the_episode() -> None:
    assert early_stop_reason(clicks(4), "a", RULES) is None
    assert early_stop_reason(clicks(5), "a", RULES) == "repeated_actions"


def test_a_page_that_changed_starts_the_count_anew() -> None:
    assert early_stop_reason(clicks(5), "b", RULES) is None  # the fifth click had an effect
    assert early_stop_reason(clicks(4, "a") + clicks(4, "b"), "b", RULES) is None
    assert early_stop_reason(clicks(4, "a") + clicks(5, "b"), "b", RULES) == "repeated_actions"


def test_typing_another_text_is_another_action() -> None:
    typed = [Taken(f'type "Search" [1] [{word}] [1]', "a") for word in ("tea", "pot", "cup", "mug", "jar")]
    assert early_stop_reason(typed, "a", RULES) is None


def test_equal_actions_count_only_in_a_row() -> None:
    other = [Taken("go_back", "a")]
    assert early_stop_reason(clicks(4) + other + clicks(4), "a", RULES) is None


def test_three_replies_in_a_row_that_do_not_parse() -> None:
    failed = [Taken(None, "a")]
    assert early_stop_reason(failed * 2, "a", RULES) is None
    assert early_stop_reason(failed * 2 + clicks(1) + failed * 2, "a", RULES) is None
    assert early_stop_reason(clicks(1) + failed * 3, "a", RULES) == "parse_failures"


def test_max_steps() -> None:
    walk = [Taken(f"click [{n}]", "a") for n in range(30)]
    assert early_stop_reason(walk[:29], "a", RULES) is None
    assert early_stop_reason(walk, "a", RULES) == "max_steps"


@pytest.mark.parametrize("name", ["max_steps", "max_parse_failures", "max_repeats"])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        StopRules(**{name: 0})


@given(steps, st.sampled_from(["a", "b"]))
def test_counts_are_suffixes(taken: list[Taken], key: str) -> None:
    failures, repeats = trailing_parse_failures(taken), trailing_repeats(taken, key)
    assert not (failures and repeats)
    assert all(step.action is None for step in taken[len(taken) - failures :])
    assert len(set(taken[len(taken) - repeats :])) <= 1
    assert all(step.page_key == key for step in taken[len(taken) - repeats :])
    if repeats < len(taken) and repeats:
        assert taken[len(taken) - repeats - 1] != taken[-1]


@given(steps, st.sampled_from(["a", "b"]))
def test_no_reason_below_every_limit_and_always_one_at_max_steps(taken: list[Taken], key: str) -> None:
    reason = early_stop_reason(taken, key, RULES)
    if len(taken) >= RULES.max_steps:
        assert reason is not None
    if len(taken) < RULES.max_parse_failures:
        assert reason is None
    assert early_stop_reason(taken, "a page never seen", StopRules(99, 99, 1)) is None
