"""Following a plan: what is told is done where the page offers it, what is not told is left to the model."""

from __future__ import annotations

import pytest
from agent_fakes import ScriptedChatModel, accepting, page
from hypothesis import given
from hypothesis import strategies as st
from puppet import tiny

from agentkv.chat_model import ChatAgentKV
from agentkv_agents import WebAgent
from agentkv_agents.following import Course, labelled, read_plan, ways
from agentkv_agents.notes import start_with
from agentkv_agents.plans import format_plan
from agentkv_agents.prompting import Prompting
from agentkv_envs import Action, Element, Observation, action_grammar, parse_action

SEARCH, KETTLE, MORE = 'type "Search" [1] [kettle] [1]', 'click "Red Kettle" [2]', 'more "Products" [5]'
ELEMENTS = (
    Element(1, "searchbox", "Search", 'searchbox "Search"'),
    Element(2, "link", "Red Kettle", 'link "Red Kettle"'),
    Element(3, "link", "Red Kettle", 'link "Red Kettle"'),
    Element(4, "combobox", "Shipping", 'combobox "Shipping"', options=("Pickup $0", "Express $12")),
    Element(5, "more", "Products", 'more "Products"'),
    Element(6, "button", "Add to Cart", 'button "Add to Cart"', disabled=True),
    Element(7, "link", "A kettle that whistles a long and rather sad…", "link"),
)


def shop(*, tabs: tuple[str, ...] = ("Shop",), dialog: str | None = None, back: bool = False) -> Observation:
    return Observation(
        "text", "http://shop/", "Shop", ELEMENTS, (), tabs, "label-first", "p", dialog=dialog, can_go_back=back
    )


def unbound(*numbers: int) -> str:
    """The grammar of whatever the shop allows, after one of these numbers."""
    return start_with(action_grammar(shop()), " | ".join(f'"{number} " (unbound)' for number in numbers), "unbound")


def action(text: str) -> Action:
    found = parse_action(text).action
    assert found is not None
    return found


def test_a_plan_is_read_as_far_as_its_lines_go_on_counting() -> None:
    course = read_plan('1 type "Search" [kettle] [1]\n2 click "?"\nwell\n3 hope\n5 stop []')
    assert course is not None
    assert [step and str(step) for step in course.steps] == ['type "Search" [kettle] [1]', 'click "?"', None]
    assert (course.number, course.unsure) == (1, False)
    assert read_plan("I would rather not.") is None
    assert read_plan("2 stop []") is None


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ('type "Search" [kettle] [1]', {SEARCH}),
        ('type "search" [kettle] [0]', {'type "Search" [1] [kettle] [0]'}),
        ('type "Search" [?] [1]', {SEARCH, 'type "Search" [1] [pan] [1]'}),
        ('click "Red Kettle"', {KETTLE, 'click "Red Kettle" [3]'}),
        ('click "A kettle that whistles a long and rather sad tune"', {f'click "{ELEMENTS[6].label}" [7]'}),
        ('select "Shipping" [Express $12]', {'select "Shipping" [4] [Express $12]'}),
        ('select "Shipping" [?]', {'select "Shipping" [4] [Express $12]', 'select "Shipping" [4] [Pickup $0]'}),
        ('more "Products"', {MORE}),
        ("stop []", {"stop []"}),
        ("stop [?]", {"stop [12 kg]"}),
    ],
)
def test_what_the_plan_tells_and_the_page_offers_is_all_there_is(step: str, expected: set[str]) -> None:
    grammar = Course((action(step),)).grammar(shop())
    taken = accepting(grammar)
    for text in expected:
        assert taken(f"1 {text}")
    others = {SEARCH, 'type "Search" [1] [pan] [1]', KETTLE, 'click "Red Kettle" [3]', MORE, "stop []", "go_back"}
    assert not any(taken(f"1 {text}") for text in others - expected)
    assert not taken(f"2 {next(iter(expected))}")


@pytest.mark.parametrize(
    "step",
    [
        'click "?"', 'click "Blue Kettle"', 'click "Add to Cart"', 'select "Shipping" [By pigeon]', "close_tab",
        "go_back", 'type "Red Kettle" [x] [0]', 'type "Search" [1] [a] [b] [1]',
    ],
)  # fmt: skip
def test_else_whatever_the_page_allows_may_be_done(step: str) -> None:
    assert Course((action(step),)).grammar(shop()) == unbound(1)
    assert Course((None,)).grammar(shop()) == unbound(1)


def test_tabs_and_history_that_are_there() -> None:
    assert ways(action("close_tab"), shop(tabs=("Shop", "Forum"))) == '"close_tab"'
    assert ways(action("go_back"), shop(back=True)) == '"go_back"'


def test_a_dialog_comes_first() -> None:
    assert ways(action('click "Red Kettle"'), shop(dialog="confirm: sure?")) == ""


def test_what_was_futile_is_not_held_to() -> None:
    step = action('click "Red Kettle"')
    assert ways(step, shop(), {KETTLE}) == '"click \\"Red Kettle\\" [3]"'
    assert ways(step, shop(), {KETTLE, 'click "Red Kettle" [3]'}) == ""
    note = action('type "Search" [?] [0]')
    assert ways(note, shop(), {KETTLE}) == '"type \\"Search\\" [1] [" TEXT "] [0]"'
    assert ways(note, shop(), {SEARCH}) == "", "a field that took one text without effect takes no other"


def test_the_course_goes_on_when_a_step_is_done_and_asks_where_that_cannot_be_told() -> None:
    course = read_plan(format_plan(['type "Search" [kettle] [1]', 'click "?"', 'type "Note" [?] [0]', "stop []"]))
    assert course is not None
    course = course.after(1, action(KETTLE))
    assert course.numbers == (1, 2), "something else was done: on the way to it, or in its place"
    course = course.after(1, action(SEARCH))
    assert course.numbers == (2,)
    course = course.after(2, action(MORE))
    assert course.numbers == (2, 3)
    course = course.after(2, action(KETTLE))
    assert course.numbers == (2, 3), "any click may be the one that was meant"
    course = course.after(3, action('type "Note" [9] [red] [0]'))
    assert course.numbers == (4,)
    assert course.after(4, action("stop []")).numbers == (4,)
    assert course.after(17, action(KETTLE)).numbers == (4,)
    assert course.after(0, action(KETTLE)).numbers == (1, 2)


def test_a_plan_that_does_not_stop_is_over_after_its_last_step() -> None:
    course = read_plan('1 type "Search" [kettle] [1]\n2 click "Red Kettle"')
    assert course is not None
    course = course.after(1, action(SEARCH))
    assert not accepting(course.grammar(shop()))("2 stop []")
    for done in (KETTLE, MORE, KETTLE):
        course = course.after(2, action(done))
        taken = accepting(course.grammar(shop()))
        assert taken("2 stop []")
        assert taken(f"2 {MORE}")


@pytest.mark.parametrize(
    "line", ["Check the price and stop.", "Stop when the item is in the cart", "Open a new_tab", "click(27)", ""]
)
def test_a_line_that_is_not_exactly_an_action_binds_nothing(line: str) -> None:
    course = read_plan(f"1 {line}\n2 stop []")
    assert course is None or course.steps[0] is None
    if course is not None:
        assert course.grammar(shop()) == unbound(1)


def test_without_labels_the_page_says_what_an_action_was_done_to() -> None:
    step = action('click "Red Kettle"')
    done = labelled(action("click [3]"), shop())
    assert done.label == "Red Kettle"
    assert Course((step, step)).after(1, done).numbers == (2,)
    assert Course((step, step)).after(1, labelled(action("click [7]"), shop())).numbers == (1, 2)
    assert labelled(action("click [99]"), shop()).label is None
    assert labelled(action("go_back"), shop()) == action("go_back")


def test_of_two_numbers_each_has_its_own_actions() -> None:
    course = Course((action('click "?"'), action('type "Search" [kettle] [1]')), 1, unsure=True)
    taken = accepting(course.grammar(shop()))
    assert taken(f"1 {MORE}")
    assert taken(f"1 {KETTLE}")
    assert taken(f"2 {SEARCH}")
    assert not taken(f"2 {KETTLE}")


NOTE = "note [the kettle: 12 kg]\n"


@pytest.mark.parametrize(
    ("step", "done"),
    [('type "Search" [?] [1]', SEARCH), ('click "?"', KETTLE), ('select "?" [?]', MORE), ("stop [?]", "stop [12 kg]")],
)
def test_where_the_plan_leaves_something_open_it_may_be_recalled(step: str, done: str) -> None:
    course = Course((action(step), action("stop []")), recall=True)
    taken = accepting(course.grammar(shop()))
    assert taken(f"{NOTE}1 {done}")
    assert taken(f"1 {done}") == ("type" not in step), "a text that the plan does not tell is to be remembered"
    assert not taken(f"1 {NOTE}{done}")
    assert not taken(f"{NOTE}{NOTE}1 {done}")
    assert not accepting(Course(course.steps).grammar(shop()))(f"{NOTE}1 {done}")
    assert accepting(Course(course.steps, recall=True, binding=False).grammar(shop()))(f"{NOTE}1 {done}")


def test_where_the_field_is_not_on_the_page_nothing_need_be_recalled_yet() -> None:
    taken = accepting(Course((action('type "Comment" [?] [0]'),), recall=True).grammar(shop()))
    assert taken(f"1 {MORE}")
    assert taken(f"{NOTE}1 {MORE}")


def test_what_the_plan_tells_is_done_without_words() -> None:
    course = Course((action('click "?"'), action('type "Search" [kettle] [1]')), unsure=True, recall=True)
    taken = accepting(course.grammar(shop()))
    assert taken(f"{NOTE}1 {KETTLE}")
    assert taken(f"2 {SEARCH}")
    assert not taken(f"{NOTE}2 {SEARCH}")
    told = Course((action('click "Red Kettle"'),), recall=True)
    assert told.grammar(shop()) == Course(told.steps).grammar(shop())
    assert accepting(Course((None,), recall=True).grammar(shop()))(f"{NOTE}1 {KETTLE}"), "a line that tells nothing"


def test_without_binding_numbers_are_all_that_is_asked() -> None:
    course = Course((action('click "Red Kettle"'), action("stop []")), binding=False)
    assert course.grammar(shop()) == unbound(1)
    course = course.after(1, action(KETTLE))
    assert course.grammar(shop()) == unbound(1, 2)
    assert course.after(2, action(KETTLE)).numbers == (2,)


@given(st.lists(st.sampled_from([SEARCH, KETTLE, MORE, "stop []", "go_back"]), max_size=12), st.data())
def test_some_action_is_always_left_and_the_course_never_goes_back(done: list[str], data: st.DataObject) -> None:
    kinds = st.sampled_from(
        ['click "?"', 'click "Red Kettle"', 'type "Search" [?] [1]', "stop []", "nonsense", "go_back"]
    )
    steps = data.draw(st.lists(kinds, min_size=1, max_size=6))
    course = read_plan(format_plan(steps))
    assert course is not None
    possible = (SEARCH, KETTLE, 'click "Red Kettle" [3]', MORE, "stop []", 'type "Search" [1] [pan] [1]')
    for text in done:
        assert any(accepting(course.grammar(shop()))(f"{n} {text}") for n in course.numbers for text in possible)
        number = data.draw(st.sampled_from(course.numbers))
        following = course.after(number, action(text))
        assert min(course.number, len(steps)) <= number <= following.number <= len(steps) + 1
        course = following


def test_an_agent_keeps_to_its_plan_where_its_model_would_not() -> None:
    """A model of random weights; an action that failed is not done."""
    prompting = Prompting(plan=True, explain_actions=False)
    agent = WebAgent(ChatAgentKV.from_engine(tiny()), "Find it.", session_id="s", prompting=prompting)
    agent._planned, agent._course = True, read_plan('1 click "red kettle"\n2 select "Sort by" [?]\n3 stop []')
    feedback = (None, "the page did not answer", None, None)
    said = [agent.act(page(f"p{n}"), told).raw_text for n, told in enumerate(feedback)]
    assert said[:2] == ['1 click "red kettle" [2]'] * 2
    assert said[2] in ('2 select "Sort by" [3] [price]', '2 select "Sort by" [3] [name]')
    assert said[3] == "3 stop []"


def test_a_model_without_a_grammar_is_not_held_to_anything() -> None:
    model = ScriptedChatModel(replies=['1 click "red kettle"', "9 stop []", "go_back"])
    agent = WebAgent(model, "Find it.", prompting=Prompting(True, False), constrained=False)
    assert [str(agent.act(page(f"p{n}")).action) for n in range(2)] == ["stop []", "go_back"]
