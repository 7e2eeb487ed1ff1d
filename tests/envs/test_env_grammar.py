"""The grammar generates what the parser reads and the page has, and nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from agentkv_envs import STYLES, Element, Observation, action_grammar, parse_action, resolve
from agentkv_envs.actions import BARE_KINDS, clean_label

BYTES = LLTokenizer("byte")


def observation(
    elements: tuple[Element, ...], style: str = "label-first", dialog: str | None = None, tabs: int = 1
) -> Observation:
    return Observation("", "u", "t", elements, (), ("t",) * tabs, style, "k", 0, dialog, True)


SHOP = (
    Element(1, "searchbox", "Search", ""),
    Element(2, "link", "black toaster", ""),
    Element(7, "link", "black kettle", ""),
    Element(9, "combobox", "Sort by", "", ("Popular", "Name (A-Z)", 'say "x" \\ y')),
    Element(12, "button", "Add to Cart", "", disabled=True),
    Element(31, "more", "more items", ""),
    Element(32, "expand", "Footer", ""),
)


def walk(grammar: str, rng: random.Random) -> str:
    """A random text of the grammar, byte by byte."""
    matcher = LLMatcher(BYTES, grammar)
    assert not matcher.is_error(), matcher.get_error()
    out: list[int] = []
    while not matcher.is_stopped():
        mask = matcher.compute_bitmask()
        token = rng.choice([t for t in range(BYTES.vocab_size) if mask[t // 8] >> (t % 8) & 1])
        if token == BYTES.eos_token:
            break
        out.append(token)
        matcher.consume_token(token)
    return BYTES.decode_bytes(out).decode()


def accepts(grammar: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, grammar)
    tokens = BYTES.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def check(text: str, seen: Observation) -> None:
    """The text is a strict action on an element of the page, with its own label."""
    parsed = parse_action(text, seen.style)
    assert parsed.mode == "strict", (text, parsed)
    assert parsed.action is not None
    if parsed.action.element_id is not None:
        element = seen.element(parsed.action.element_id)
        assert element is not None
        assert parsed.action.label == (element.label if seen.style == "label-first" else None)
        resolve(parsed.action, seen)
    if parsed.action.kind == "select":
        assert element is not None
        assert parsed.action.text in element.options


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("dialog", "tabs"), [(None, 1), (None, 3), ('confirm "Sure?"', 1), ('prompt "Name?"', 2)])
def test_random_walks_are_strict_actions_of_the_page(style: str, dialog: str | None, tabs: int) -> None:
    seen = observation(SHOP, style, dialog, tabs)
    grammar = action_grammar(seen)
    rng = random.Random(7)
    kinds = set()
    for _ in range(60):
        text = walk(grammar, rng)
        check(text, seen)
        kinds.add(text.split(" ")[0])
    assert kinds == {"dialog", "stop"} if dialog else len(kinds) > 8


label_texts = st.text(min_size=1, max_size=40).map(clean_label).filter(bool)
label_lists = st.lists(label_texts, min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(label_lists, st.sampled_from(STYLES), st.randoms(use_true_random=False))
def test_any_labels_give_a_valid_grammar(labels: list[str], style: str, rng: random.Random) -> None:
    roles = ("link", "textbox", "more", "expand", "button")
    elements = tuple(Element(i, roles[i % 5], label, "") for i, label in enumerate(labels, 1))
    seen = observation(elements, style)
    check(walk(action_grammar(seen, kinds=("click", "type", "more", "expand", "hover")), rng), seen)


def test_what_is_not_on_the_page_is_refused() -> None:
    grammar = action_grammar(observation(SHOP))
    assert accepts(grammar, 'click "black toaster" [2]')
    assert accepts(grammar, 'select "Sort by" [9] [Name (A-Z)]')
    assert accepts(grammar, "stop []")
    assert accepts(grammar, 'type "Search" [1] [red toaster] [1]')
    for wrong in (
        'click "black toaster" [7]',
        "click [2]",
        'click "black toaster" [3]',
        'click "Add to Cart" [12]',
        'click "more items" [31]',
        'more "black toaster" [2]',
        'type "black toaster" [2] [x] [1]',
        'type "Search" [1] [a\nb] [1]',
        f'type "Search" [1] [{"x" * 61}] [1]',
        'select "Sort by" [9] [Cheapest]',
        "dialog [accept]",
        "tab_focus [0]",
        "close_tab",
    ):
        assert not accepts(grammar, wrong), wrong


def test_kinds_narrow_the_grammar_but_stop_stays() -> None:
    grammar = action_grammar(observation(SHOP), kinds=("click",))
    assert accepts(grammar, 'click "black kettle" [7]')
    assert accepts(grammar, "stop [done]")
    assert not any(accepts(grammar, kind) for kind in BARE_KINDS)
    with pytest.raises(ValueError, match="unknown action kinds"):
        action_grammar(observation(SHOP), kinds=("jump",))


def test_a_unique_label_is_forced_to_its_end() -> None:
    matcher = LLMatcher(BYTES, action_grammar(observation(SHOP)))
    matcher.consume_tokens(BYTES.tokenize_str('click "black t'))
    assert matcher.compute_ff_bytes() == b'oaster" [2]'


def test_a_full_page_compiles() -> None:
    elements = tuple(Element(i, "link", f"Harbor Red {i}-Slice Toaster", "") for i in range(1, 100))
    grammar = action_grammar(observation(elements))
    assert accepts(grammar, 'click "Harbor Red 99-Slice Toaster" [99]')
    assert grammar.count("Harbor Red") == 99, "kinds with the same targets share one rule"


def test_excluded_actions_cannot_be_written_and_others_still_can() -> None:
    seen = observation(SHOP)
    gone = ['click "black toaster" [2]', "scroll [down]", 'select "Sort by" [9] [Popular]', 'more "more items" [31]']
    kept = ['hover "black toaster" [2]', 'click "black kettle" [7]', "scroll [up]",
            'select "Sort by" [9] [Name (A-Z)]', "stop []"]  # fmt: skip
    whole, grammar = action_grammar(seen), action_grammar(seen, exclude=gone)
    for text in gone:
        assert accepts(whole, text), text
        assert not accepts(grammar, text), text
    for text in kept:
        assert accepts(grammar, text), text
    clicks = [f'click "{e.label}" [{e.id}]' for e in SHOP]
    assert not any(accepts(action_grammar(seen, exclude=clicks), click) for click in clicks)
