"""The action language: reading, writing, and being lenient."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv_envs import KINDS, Action, action_help, format_action, parse_action
from agentkv_envs.actions import BARE_KINDS, ELEMENT_KINDS, clean_label

printable = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)
labels = st.none() | st.text(max_size=30).map(clean_label)
texts = printable.map(lambda t: t.replace("[", "(").replace("]", ")"))
ids = st.integers(1, 99)


def element_actions() -> st.SearchStrategy[Action]:
    return st.builds(Action, st.sampled_from(ELEMENT_KINDS), ids, labels)


def field_actions() -> st.SearchStrategy[Action]:
    typed = st.builds(Action, st.just("type"), ids, labels, texts, st.booleans())
    return typed | st.builds(Action, st.just("select"), ids, labels, texts)


def other_actions() -> st.SearchStrategy[Action]:
    return st.one_of(
        st.sampled_from(BARE_KINDS).map(Action),
        texts.map(lambda t: Action("stop", text=t)),
        st.sampled_from(("up", "down")).map(lambda t: Action("scroll", text=t)),
        st.integers(0, 9).map(lambda n: Action("tab_focus", text=str(n))),
        st.sampled_from(("accept", "dismiss", "accept Ann Lee")).map(lambda t: Action("dialog", text=t)),
        st.sampled_from(("Enter", "Control+a")).map(lambda t: Action("press", text=t)),
    )


@given(st.one_of(element_actions(), field_actions(), other_actions()), st.sampled_from(("label-first", "vwa")))
def test_canonical_text_is_read_back_strictly(action: Action, style: str) -> None:
    parsed = parse_action(format_action(action), style)
    assert (parsed.action, parsed.mode) == (action, "strict")


@given(st.text(max_size=200), st.sampled_from(("label-first", "vwa")))
def test_no_text_breaks_the_parser(text: str, style: str) -> None:
    parsed = parse_action(text, style)
    assert (parsed.action is None) == (parsed.mode == "failed") == (parsed.error is not None)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("click(27)", Action("click", 27)),
        ("CLICK [#27]", Action("click", 27)),
        ("click 27", Action("click", 27)),
        ("click 'black toaster' [27]", Action("click", 27, "black toaster")),
        ("I will now press the button.\nclick [4]", Action("click", 4)),
        ("In summary, the next action I will perform is ```click [12]```", Action("click", 12)),
        ("```\ntype [3] [red toaster]\n```", Action("type", 3, None, "red toaster", True)),
        ("type [3] [red] [0]", Action("type", 3, None, "red", False)),
        ('type "Postcode" [10115] [0]', Action("type", None, "Postcode", "10115", False)),
        ('type "Qty" [2] [5] [1]', Action("type", 2, "Qty", "5", True)),
        ("upload [red-mug.png] [4]", Action("upload", 4, None, "red-mug.png")),
        ('UPLOAD "Photo" [4] [red-mug.png]', Action("upload", 4, "Photo", "red-mug.png")),
        ('upload "Photo" [red-mug.png]', Action("upload", None, "Photo", "red-mug.png")),
        ("stop", Action("stop", text="")),
        ("stop [a [b] c]", Action("stop", text="a [b] c")),
        ("scroll down", Action("scroll", text="down")),
        ("dialog accept", Action("dialog", text="accept")),
        ("go_back()", Action("go_back")),
    ],
)
def test_near_misses_are_understood_and_marked(text: str, action: Action) -> None:
    parsed = parse_action(text)
    assert parsed.action == action
    assert parsed.mode == ("strict" if format_action(action) == text else "lenient")


def test_a_fenced_action_is_strict_only_in_the_benchmarks_style() -> None:
    assert parse_action("So: ```click [12]```", "vwa").mode == "strict"
    assert parse_action("So: ```click [12]```", "label-first").mode == "lenient"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "no action found"),
        ("I am done here.", "no action found"),
        ("click", "needs an element"),
        ("type [3]", "needs a text"),
        ("scroll [left]", "scroll [up] or scroll [down]"),
        ("goto []", "address"),
        ("dialog [maybe]", "dialog [accept]"),
        ("wait [soon]", "number of seconds"),
    ],
)
def test_failures_say_what_is_missing(text: str, hint: str) -> None:
    parsed = parse_action(text)
    assert parsed.mode == "failed"
    assert hint in (parsed.error or "")


@given(st.text(max_size=200))
def test_labels_stay_within_their_quotes(name: str) -> None:
    label = clean_label(name)
    assert not set(label) & set('"[]\n\r')
    assert len(label) <= 80


@pytest.mark.parametrize("style", ["label-first", "vwa"])
def test_help_names_every_action(style: str) -> None:
    text = action_help(style)
    assert all(kind in text for kind in KINDS)
    assert ('"label" [id]' in text) == (style == "label-first")
