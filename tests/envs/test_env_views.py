"""Options, captions, set-of-mark lists, file inputs and delta observations, without a browser."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from agentkv_envs import EnvError, action_grammar, parse_action, resolve
from agentkv_envs.captions import ATTRIBUTES, caption_of, noisy_caption
from agentkv_envs.delta import Delta
from agentkv_envs.observe import PageState, Surroundings, estimate_tokens, observe
from agentkv_envs.options import EnvOptions
from agentkv_envs.som import draw_marks, observe_som
from agentkv_envs.types import Element, Observation
from agentkv_envs.uploads import UPLOADS, upload_bytes

MARK = "\u2063\ufe01"
AROUND = Surroundings("http://h/", "Shop", ("Shop",), 0)


def seen_lines(snapshot: str, around: Surroundings = AROUND) -> list[str]:
    return observe(snapshot, PageState(), around).text.split("\n")[1:]


# Options


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"captions": "blip"}, "unknown captions 'blip'; there are none, noisy, oracle"),
        ({"observation": "html"}, "unknown observation 'html'; there are compact, image_som"),
        ({"form": "diff"}, "unknown form 'diff'; there are full, delta"),
        ({"max_tokens": 20}, "max_tokens must be at least 100, not 20"),
        ({"step_timeout_s": float("nan")}, "step_timeout_s must be positive"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(EnvError, match=reason):
        EnvOptions(**options)  # type: ignore[arg-type]


def test_options_can_be_stored_with_results() -> None:
    stored = EnvOptions().as_dict()
    assert (stored["captions"], stored["caption_noise"], stored["max_tokens"]) == ("noisy", 0.15, 350)
    assert EnvOptions(observation="image_som", captions="oracle").as_dict()["max_tokens"] == 1500


# Captions


def test_noise_changes_attributes_only_and_is_the_same_for_a_picture() -> None:
    truth = "two red striped mugs on a wooden table"
    noisy = {noisy_caption(truth, f"shopping/media/{i}.png", 0.5) for i in range(50)}
    assert len(noisy) > 5
    for caption in noisy:
        for said, true in zip(caption.split(), truth.split(), strict=True):
            assert said == true or any({said, true} <= set(words) for words in ATTRIBUTES)
    assert noisy_caption(truth, "a", 0.5) == noisy_caption(truth, "a", 0.5)
    assert (noisy_caption(truth, "a", 0.0), caption_of(truth, "a", "oracle")) == (truth, truth)


def test_about_the_stated_share_of_attributes_is_wrong() -> None:
    wrong = sum(noisy_caption("red mug", str(i)) != "red mug" for i in range(2000))
    assert 0.12 < wrong / 2000 < 0.18


ENTRY = (
    '- list [ref=e1]:\n  - listitem [ref=e2]:\n    - link "{mark} Cedar Mug" [ref=e3]:\n'
    '      - img "{mark}" [ref=e4]\n      - text: Cedar Mug\n    - text: $5'
)


def test_a_caption_ends_the_line_of_its_picture_and_is_no_part_of_a_label() -> None:
    around = replace(AROUND, captions={"\ufe01": ("blue mug with stripes", "red mug with stripes")})
    assert seen_lines(ENTRY.format(mark=MARK), around) == ['link "Cedar Mug" [1] $5 img "blue mug with stripes"']
    assert seen_lines(ENTRY.format(mark=MARK)) == ['link "Cedar Mug" [1] $5']


def test_a_picture_whose_line_says_what_it_shows_is_silent_under_noise_too() -> None:
    around = replace(AROUND, captions={"\ufe01": ("steel mug", "cedar mug")})
    assert seen_lines(ENTRY.format(mark=MARK), around) == ['link "Cedar Mug" [1] $5']


def test_a_caption_follows_the_pictures_own_text() -> None:
    around = replace(AROUND, captions={"\ufe01": ("red mug", "red mug")})
    assert seen_lines(f'- img "Photo 1{MARK}" [ref=e1]', around) == ['img "Photo 1, red mug"']
    assert seen_lines(f'- img "Photo 1{MARK}" [ref=e1]') == ['img "Photo 1"']


# Files


def test_a_file_input_is_an_element_where_its_label_stands() -> None:
    around = replace(AROUND, inputs=({"label": "Add photo", "value": ""}, {"label": "File", "value": "a.png"}))
    snapshot = '- form [ref=e1]:\n  - text: Add photo\n  - button "Send" [ref=e2]'
    seen = observe(snapshot, PageState(), replace(around, files=("red-mug.png",)))
    assert seen.text.split("\n")[1:] == ['file "Add photo" [1], button "Send" [2]', 'file "File" [3] = a.png']
    assert '"red-mug.png"' in action_grammar(seen)
    assert str(resolve('upload "Add photo" [red-mug.png]', seen)) == 'upload "Add photo" [1] [red-mug.png]'
    assert parse_action("upload [1] [red-mug.png]", "vwa").mode == "strict"
    assert "upload" not in action_grammar(replace(seen, files=()))


@pytest.mark.parametrize("name", UPLOADS)
def test_samples_are_pictures_that_do_not_change(name: str) -> None:
    assert Image.open(io.BytesIO(upload_bytes(name))).size == (320, 320)
    assert upload_bytes(name) == upload_bytes.__wrapped__(name)


# Set of marks

SCREEN = (
    '- main [ref=e1] [box=0,0,1280,3000]:\n  - heading "Mugs" [ref=e2] [box=10,10,200,30]\n'
    '  - link "Red mug" [ref=e3] [box=10,50,100,20]\n  - text: Five dollars\n'
    f'  - img "{MARK}" [ref=e4] [box=10,80,50,50]\n  - textbox "Qty" [ref=e5] [box=10,140,50,20]: "1"\n'
    '  - link "Everything" [ref=e6] [box=0,0,1280,790]\n  - link "Below" [ref=e7] [box=10,2000,50,20]'
)


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("label-first", ["Mugs", 'link "Red mug" [1]', "Five dollars", 'img "red mug"', 'textbox "Qty" [2] = 1']),
        (
            "vwa",
            [
                "[] [StaticText] [Mugs]",
                "[1] [A] [Red mug]",
                "[] [StaticText] [Five dollars]",
                "[] [IMG] [red mug]",
                "[2] [INPUT] [Qty] = 1",
            ],
        ),
    ],
)
def test_the_list_of_marks_holds_what_is_on_the_screen(style: str, expected: list[str]) -> None:
    around = replace(AROUND, captions={"\ufe01": ("red mug", "red mug")})
    seen = observe_som(SCREEN, PageState(), around, style, estimate_tokens, 1500)
    assert seen.text.split("\n")[1:] == expected
    assert [e.box for e in seen.elements] == [(10, 50, 100, 20), (10, 140, 50, 20)]


def test_an_empty_page_is_an_empty_list_of_marks() -> None:
    seen = observe_som("", PageState(), AROUND, "vwa", estimate_tokens, 1500)
    assert (seen.text, seen.elements) == ("page: Shop", ())


def test_boxes_in_frames_are_boxes_on_the_screen() -> None:
    snapshot = (
        '- iframe [ref=e1] [box=300,200,400,150]:\n  - link "In" [ref=f1e1] [box=8,8,30,20]\n'
        '  - iframe [ref=f1e2] [box=10,50,100,50]:\n    - link "Deep" [ref=f2e1] [box=1,2,30,20]'
    )
    seen = observe_som(snapshot, PageState(), AROUND, "label-first", estimate_tokens, 1500)
    assert [e.box for e in seen.elements] == [(308, 208, 30, 20), (311, 252, 30, 20)]


def test_a_list_of_marks_that_is_too_long_drops_texts_before_elements() -> None:
    snapshot = "\n".join(f'- text: {"word " * 40}{i}\n- link "L{i}" [ref=e{i}] [box=0,{i},9,9]' for i in range(30))
    seen = observe_som(snapshot, PageState(), AROUND, "label-first", estimate_tokens, 400)
    assert (len(seen.elements), "word" in seen.text) == (30, False)
    assert estimate_tokens(seen.text) <= 400
    fewer = observe_som(snapshot, PageState(), AROUND, "label-first", estimate_tokens, 200)
    assert [e.label for e in fewer.elements] == [f"L{i}" for i in range(len(fewer.elements))]
    assert 8 < len(fewer.elements) < 20
    assert estimate_tokens(fewer.text) <= 200


def test_marks_are_drawn_where_the_elements_are() -> None:
    blank = io.BytesIO()
    Image.new("RGB", (200, 100), "white").save(blank, "PNG")
    box = (40.0, 40.0, 60.0, 30.0)
    drawn = Image.open(io.BytesIO(draw_marks(blank.getvalue(), [Element(7, "link", "x", "", box=box)])))
    dark = [(x, y) for x in range(200) for y in range(100) if sum(drawn.getpixel((x, y))) < 400]  # type: ignore[arg-type]
    assert {(40, 60), (99, 60), (70, 69)} <= set(dark)
    assert not any(x > 110 or y > 80 for x, y in dark)


# Delta

LINES = st.lists(st.sampled_from([f"line {i} of some length, so that it is worth a reference" for i in range(9)]))


def observation(lines: list[str]) -> Observation:
    return Observation("\n".join(["page: P", *lines]), "u", "P", (), (), ("P",), "label-first", "k")


def expand(texts: list[str]) -> list[str]:
    """What a careful reader makes of delta texts."""
    full: list[str] = []
    for text in texts:
        out: list[str] = []
        for line in text.split("\n"):
            if line.startswith("= "):
                which, step = line[2:].rsplit(" as in step ", 1)
                first, _, last = which.split(" ", 1)[1].partition("-")
                out += texts[int(step)].split("\n")[int(first) - 1 : int(last or first)]
            else:
                out.append(line)
        full.append("\n".join(out))
    return full


@given(st.lists(LINES, max_size=6))
def test_delta_texts_can_be_read_back(pages: list[list[str]]) -> None:
    delta = Delta(estimate_tokens)
    seen = [delta.apply(observation(lines)) for lines in pages]
    assert expand([s.text for s in seen]) == [s.full_text for s in seen]


def test_lines_that_stood_in_an_earlier_text_are_referred_to() -> None:
    delta = Delta(estimate_tokens)
    first = [f"link {i} with a name of a few words" for i in range(6)]
    delta.apply(observation(first))
    second = delta.apply(observation([first[0], "new", *first[3:]]))
    assert second.text.split("\n") == ["page: P", "= line 2 as in step 0", "new", "= lines 5-7 as in step 0"]
