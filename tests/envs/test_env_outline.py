"""Reading snapshots and outlining pages, without a browser."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv_envs.observe import HARD_LIMIT, IdPool, PageState, Surroundings, change_view, estimate_tokens, observe
from agentkv_envs.snapshot import parse_snapshot

AROUND = Surroundings("http://h/", "Shop", ("Shop",), 0)


def lines(snapshot: str, state: PageState | None = None, style: str = "label-first") -> list[str]:
    return observe(snapshot, state or PageState(), AROUND, style).text.split("\n")[1:]


def test_names_values_and_attributes_are_read() -> None:
    tree = parse_snapshot(
        '- generic [active] [ref=e1]:\n  - heading "A \\"b\\" [c]" [level=1] [ref=e2]\n'
        "  - 'link \"red: it''s\" [ref=e3] [cursor=pointer]':\n    - /url: /p\n"
        '  - textbox "City" [ref=e4]: "12: 30"\n  - text: "end: x"\n  - combobox [ref=e5]:\n    - option "A" [selected]'
    )
    heading, link, box, text, combo = tree.children[0].children
    assert (heading.name, heading.attrs["level"]) == ('A "b" [c]', "1")
    assert (link.name, link.ref, link.attrs["url"]) == ("red: it's", "e3", "/p")
    assert (box.text, text.text) == ("12: 30", "end: x")
    assert "selected" in combo.children[0].attrs


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    parse_snapshot(text)
    parse_snapshot(f"- generic [ref=e1]:\n  - {text}")


def test_chrome_collapses_to_one_line() -> None:
    snapshot = (
        '- banner [ref=e1]:\n  - link "Home" [ref=e2]\n  - search [ref=e3]:\n    - searchbox "Find" [ref=e4]\n'
        '    - button "Go" [ref=e5]\n  - navigation "Menu" [ref=e6]:\n'
        + "".join(f'    - link "M{i}" [ref=m{i}]\n' for i in range(9))
        + '- main [ref=e7]:\n  - paragraph [ref=e8]: Hello.\n- contentinfo [ref=e9]:\n  - link "Imprint" [ref=e10]'
    )
    state = PageState()
    chrome = 'link "Home" [1], searchbox "Find" [2], expand "Menu" [3], expand "Footer" [4]'
    assert lines(snapshot, state) == [chrome, "Hello."]
    change_view(state.view, state.shown[3])
    assert lines(snapshot, state)[1:3] == ["# Menu", ", ".join(f'link "M{i}" [{i + 5}]' for i in range(9))]


def test_entries_are_lines_and_buttons_are_named_by_their_row() -> None:
    snapshot = "- list [ref=e1]:\n" + "".join(
        f"  - listitem [ref=i{i}]:\n    - link [ref=p{i}]:\n      - /url: /t{i}\n"
        f'    - link "Toaster {i}" [ref=a{i}]:\n      - /url: /t{i}\n    - text: ${i}\n    - button "Buy" [ref=b{i}]\n'
        for i in range(10)
    )
    state = PageState()
    shown = lines(snapshot, state)
    assert shown[0] == 'link "Toaster 0" [1] $0 button "Buy Toaster 0" [2]'
    assert len(shown) == 9
    assert shown[-1] == 'more "more items" [17] 1-8 of 10 shown'
    change_view(state.view, state.shown[17])
    assert [line.split('"')[1] for line in lines(snapshot, state)] == ["Toaster 8", "Toaster 9", "first items"]


def test_tables_show_facts_together_and_rows_apart() -> None:
    snapshot = (
        '- table [ref=e1]:\n  - row [ref=e2]:\n    - rowheader "Colour" [ref=e3]\n    - cell "red" [ref=e4]\n'
        '  - row [ref=e5]:\n    - rowheader "Size" [ref=e6]\n    - cell "10" [ref=e7]\n'
        '- table [ref=f1]:\n  - row [ref=f2]:\n    - columnheader "Order" [ref=f3]\n'
        '    - columnheader "Total" [ref=f4]\n'
        '  - row [ref=f5]:\n    - cell [ref=f6]:\n      - link "Order 7" [ref=f7]\n    - cell "May 1" [ref=f8]\n'
        '    - cell "$9" [ref=f9]\n'
    )
    assert lines(snapshot) == ["Colour: red; Size: 10", "Order, Total:", 'link "Order 7" [1] May 1, $9']


def test_fields_show_value_options_and_state_without_their_label_twice() -> None:
    snapshot = (
        '- generic [ref=e1]:\n  - text: City\n  - textbox "City" [ref=e2]: Berlin\n'
        '- generic [ref=e3]:\n  - text: Sort\n  - combobox "Sort" [ref=e4]:\n    - option "Price"\n'
        '    - option "Name" [selected]\n- checkbox "Gift" [checked] [ref=e5]\n- button "Save" [disabled] [ref=e6]'
    )
    assert lines(snapshot) == [
        'textbox "City" [1] = Berlin',
        'combobox "Sort" [2] = Name or Price',
        'checkbox "Gift" [3] checked, button "Save" [4] disabled',
    ]
    assert lines(snapshot, style="vwa")[0] == "[1] textbox 'City' = Berlin"


def test_long_texts_are_cut_until_expanded() -> None:
    words = " ".join(f"word{i}" for i in range(60))
    snapshot = f'- heading "Details" [level=2] [ref=e1]\n- paragraph [ref=e2]: {words}'
    state = PageState()
    shown = lines(snapshot, state)
    assert shown[1].endswith('… expand "rest of Details" [1]')
    assert len(shown[1]) < 170
    change_view(state.view, state.shown[1])
    assert lines(snapshot, state) == ["# Details", words]


def test_alerts_come_before_the_content() -> None:
    alert = '- alert [ref=e2]:\n  - text: You added it to your\n  - link "cart" [ref=e3]\n  - text: .'
    snapshot = f"- paragraph [ref=e1]: Text.\n{alert}"
    seen = observe(snapshot, PageState(), AROUND)
    assert seen.text.split("\n")[1:] == ['alert: You added it to your link "cart" [1].', "Text."]
    assert seen.alerts == ("You added it to your cart .",)


@given(st.lists(st.sets(st.integers(0, 300), max_size=99), max_size=8))
def test_ids_are_kept_while_their_element_lives(views: list[set[int]]) -> None:
    pool, before = IdPool(), dict[str, int]()
    for view in views:
        keys = {f"e{n}" for n in view}
        now = pool.assign(sorted(keys), keys | set(before))
        assert len(set(now.values())) == len(now)
        assert all(1 <= number <= 99 for number in now.values())
        assert all(now[key] == before[key] for key in keys & set(before))
        before = now


def test_freed_ids_are_given_out_again() -> None:
    pool = IdPool()
    assert pool.assign(["a", "b"], {"a", "b"}) == {"a": 1, "b": 2}
    assert pool.assign(["c"], {"c"}) == {"c": 1}


@given(st.text(max_size=400))
def test_the_estimate_counts_something_for_every_text(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= 2 * len(text) + 1


names = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1, max_size=300)
ROLES = ("link", "button", "textbox", "list", "listitem", "paragraph", "generic", "table", "row", "cell", "heading")


@st.composite
def snapshots(draw: st.DrawFn) -> str:
    """Trees of any shape, with names of any length."""
    out, depth = [], 0
    for i in range(draw(st.integers(1, 60))):
        depth = draw(st.integers(0, depth + 1))
        name = json.dumps(draw(names), ensure_ascii=False) if draw(st.booleans()) else ""
        out.append(f"{'  ' * depth}- {draw(st.sampled_from(ROLES))} {name} [ref=e{i}]:".replace("  [", " ["))
    return "\n".join(out)


@settings(max_examples=60, deadline=None)
@given(snapshots())
def test_no_page_is_larger_than_the_limit(snapshot: str) -> None:
    state = PageState()
    for _ in range(30):
        seen = observe(snapshot, state, AROUND)
        assert estimate_tokens(seen.text) <= HARD_LIMIT
        more = [number for number, mark in state.shown.items() if mark.key == "more:page"]
        if not more or state.shown[more[0]].offset == 0:
            return
        change_view(state.view, state.shown[more[0]])
