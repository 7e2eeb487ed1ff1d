"""Scripted policies for MiniWoB++ over the observations an agent sees: they show that the pages can be played."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable

from agentkv_envs.errors import ActionError
from agentkv_envs.resolve import resolve
from agentkv_envs.types import Action, Element, Observation

# Given the intent and the first page, it yields the text of an action and is sent the page after it.
Script = Generator[str, Observation, None]
Policy = Callable[[str, Observation], Script]


def _quoted(intent: str) -> list[str]:
    return re.findall(r'"([^"]*)"', intent)


def _after(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise ActionError(f"the script expected {pattern!r} in {text!r}")
    return match.group(1).strip()


def _all(seen: Observation, *roles: str) -> list[Element]:
    return [element for element in seen.elements if element.role in roles]


def _fields(seen: Observation) -> list[Element]:
    return _all(seen, "textbox", "searchbox", "spinbutton")


def _click(element: Element) -> str:
    return f'click "{element.label}" [{element.id}]'


def _type(element: Element, text: str) -> str:
    return f'type "{element.label}" [{element.id}] [{text}] [0]'


def _named(seen: Observation, label: str, *roles: str) -> Element:
    """The element of that label, in whatever case."""
    found = [e for e in seen.elements if e.label.casefold() == label.casefold() and (not roles or e.role in roles)]
    if not found:
        raise ActionError(f"the script found no {label!r} on the page")
    return found[0]


def _press(seen: Observation, label: str = "Submit") -> str:
    return _click(_named(seen, label, "button", "tab"))


def _fill_in(seen: Observation, texts: Iterable[str], button: str = "Submit") -> Script:
    for field, text in zip(_fields(seen), texts, strict=False):
        seen = yield _type(field, text)
    yield _press(seen, button)


# One button or field


def _only_button(intent: str, seen: Observation) -> Script:
    yield _click(_all(seen, "button")[0])


def _quoted_button(intent: str, seen: Observation) -> Script:
    yield _click(_named(seen, _quoted(intent)[0], "button"))


def _button_one(intent: str, seen: Observation) -> Script:
    yield _click(_named(seen, "ONE"))


def _one_then_two(intent: str, seen: Observation) -> Script:
    seen = yield _click(_named(seen, "ONE"))
    yield _click(_named(seen, "TWO"))


def _close_dialog(intent: str, seen: Observation) -> Script:
    label = "Close" if _quoted(intent)[0] == "x" else _quoted(intent)[0]
    yield _click(_named(seen, label, "button"))


def _focus(intent: str, seen: Observation) -> Script:
    number = re.search(r"(\d)(?:st|nd|rd|th)", intent)
    yield _click(_fields(seen)[int(number.group(1)) - 1 if number else 0])


def _tab(intent: str, seen: Observation) -> Script:
    yield _click(_named(seen, _after(intent, r"Click on (.*)\."), "tab"))


# Forms


def _enter_quoted(intent: str, seen: Observation) -> Script:
    text = _quoted(intent)[0]
    if "lower case" in intent:
        text = text.lower()
    elif "upper case" in intent:
        text = text.upper()
    return _fill_in(seen, [text])


def _password_twice(intent: str, seen: Observation) -> Script:
    return _fill_in(seen, _quoted(intent) * 2)


def _log_in(intent: str, seen: Observation) -> Script:
    return _fill_in(seen, _quoted(intent), "Login")


def _letters(intent: str, seen: Observation) -> Script:
    shown = _after(seen.text, r"press Submit\. (.*?) textbox")
    return _fill_in(seen, [shown.replace(" ", "")])


def _word(intent: str, seen: Observation) -> Script:
    words = seen.text.splitlines()[2].split()
    return _fill_in(seen, [words[int(_after(intent, r"the (\d+)")) - 1].strip(".,")])


def _table_value(intent: str, seen: Observation) -> Script:
    name = _after(intent, r"value of (.*?) into")
    return _fill_in(seen, [_row(seen, name)])


def _table_values(intent: str, seen: Observation) -> Script:
    names = re.findall(r'([A-Z][\w ]*): textbox "', seen.text)
    return _fill_in(seen, [_row(seen, name) for name in names])


def _row(seen: Observation, name: str) -> str:
    return _after(seen.text, rf"(?m)^{re.escape(name)}, (.*)$")


def _sum(intent: str, seen: Observation) -> Script:
    left, sign, right = re.findall(r"(\d+) ([-+x×*]) (\d+) =", seen.text)[0]
    value = {"+": int(left) + int(right), "-": int(left) - int(right)}.get(sign, int(left) * int(right))
    return _fill_in(seen, [str(value)])


def _equation(intent: str, seen: Observation) -> Script:
    left, sign, right, total = re.findall(r"(-?\w+) ([-+]) (-?\w+) = (-?\d+)", seen.text)[0]
    if left == "x":
        value = int(total) - int(right) if sign == "+" else int(total) + int(right)
    else:
        value = int(total) - int(left) if sign == "+" else int(left) - int(total)
    return _fill_in(seen, [str(value)])


def _guess(intent: str, seen: Observation) -> Script:
    low, high = 0, 9
    while low <= high:
        middle = (low + high) // 2
        seen = yield _type(_fields(seen)[0], str(middle))
        seen = yield _press(seen)
        if "higher" in seen.text:
            low = middle + 1
        else:
            high = middle - 1


def _movie(intent: str, seen: Observation) -> Script:
    values = {
        "genre": _after(intent, r"for (.*?) movies"),
        "director": _after(intent, r"by (.*?) from"),
        "year": _after(intent, r"year (\d+)"),
        "date": _after(intent, r"year (\d+)"),
    }
    for field in _fields(seen):
        before = seen.text[: seen.text.index(f"[{field.id}]")].lower()
        nearest = max(values, key=before.rfind)
        seen = yield _type(field, values[nearest])
    yield _click(_all(seen, "button")[-1])


# Choices


def _boxes(intent: str, seen: Observation) -> Script:
    wanted = _after(intent, r"Select (.*) and click").split(", ")
    for box in _all(seen, "checkbox"):
        if box.label in wanted:
            seen = yield _click(box)
    yield _press(seen)


def _option(intent: str, seen: Observation) -> Script:
    seen = yield _click(_named(seen, _after(intent, r"Select (.*) and click"), "radio"))
    yield _press(seen)


def _from_list(intent: str, seen: Observation) -> Script:
    box = _all(seen, "combobox")[0]
    wanted = _after(intent, r"Select (.*) from the")
    if wanted in box.options:
        seen = yield f'select "{box.label}" [{box.id}] [{wanted}]'
    yield _press(seen)


def _cheapest(intent: str, seen: Observation) -> Script:
    def price(button: Element) -> int:
        return int(_after(button.label, r"\$(\d+)"))

    if "cheapest" in intent:
        yield _click(min(_all(seen, "button"), key=price))
    elif "expensive" in intent:
        yield _click(max(_all(seen, "button"), key=price))
    else:
        minutes = [int(h) * 60 + int(m) for h, m in re.findall(r"Duration: (\d+)h (\d+)m", seen.text)]
        wanted = max(minutes) if "longest" in intent else min(minutes)
        yield _click(_all(seen, "button")[minutes.index(wanted)])


def _parity(intent: str, seen: Observation) -> Script:
    numbers = [int(n) for n in re.findall(r'"Odd" \[\d+\] (-?\d+) button', seen.text)]
    buttons = [b for b in _all(seen, "button") if b.label in ("Odd", "Even")]
    for i, number in enumerate(numbers):
        seen = yield _click(buttons[2 * i + (number % 2 == 0)])
    yield _press(seen)


def _search(intent: str, seen: Observation) -> Script:
    wanted = int(_after(intent, r"the (\d+)"))
    seen = yield _type(_fields(seen)[0], _quoted(intent)[0])
    seen = yield _press(seen, "Search")
    results = [link for link in _all(seen, "link") if not re.fullmatch(r"[<>\d]+", link.label)]
    for _ in range((wanted - 1) // 3):
        seen = yield _click(_named(seen, ">"))
        results = [link for link in _all(seen, "link") if not re.fullmatch(r"[<>\d]+", link.label)]
    yield _click(results[(wanted - 1) % 3])


POLICIES: dict[str, Policy] = {
    "buy-ticket": _cheapest,
    "choose-list": _from_list,
    "click-button": _quoted_button,
    "click-button-sequence": _one_then_two,
    "click-checkboxes": _boxes,
    "click-checkboxes-large": _boxes,
    "click-checkboxes-transfer": _boxes,
    "click-dialog": _close_dialog,
    "click-dialog-2": _close_dialog,
    "click-option": _option,
    "click-tab": _tab,
    "click-test": _only_button,
    "click-test-2": _button_one,
    "click-test-transfer": _button_one,
    "enter-password": _password_twice,
    "enter-text": _enter_quoted,
    "enter-text-2": _enter_quoted,
    "enter-text-dynamic": _enter_quoted,
    "find-word": _word,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "guess-number": _guess,
    "login-user": _log_in,
    "multi-layouts": _movie,
    "multi-orderings": _movie,
    "odd-or-even": _parity,
    "read-table": _table_value,
    "read-table-2": _table_values,
    "search-engine": _search,
    "simple-algebra": _equation,
    "simple-arithmetic": _sum,
    "text-transform": _letters,
    "unicode-test": _quoted_button,
}


class MiniwobPilot:
    """Plays a task by its policy, then stops. `next` gives the action for a page."""

    def __init__(self, name: str, intent: str):
        self._name = name
        self._intent = intent
        self._script: Script | None = None

    def next(self, seen: Observation) -> Action:
        """The next action.

        Raises:
            ActionError: there is no script for the task, or the page is not as it expects.
        """
        if self._name not in POLICIES:
            raise ActionError(f"there is no script for {self._name!r}")
        try:
            if self._script is None:
                self._script = POLICIES[self._name](self._intent, seen)
                return resolve(next(self._script), seen)
            return resolve(self._script.send(seen), seen)
        except StopIteration:
            return Action("stop", text="")
        except (IndexError, ValueError) as error:
            raise ActionError(f"the page is not as the script expects: {error}") from None
