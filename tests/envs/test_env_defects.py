"""The ten known defects of the benchmark's released code: what "official" reproduces and what "fixed" gives.

f, g and i are the runner's: tests/evals/test_outcomes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from env_pages import task_at

from agentkv_envs import Score, TaskError, WebEnv, load_suite, load_task_file, resolve
from agentkv_envs.scoring import images
from agentkv_envs.scoring.judges import Judges
from agentkv_envs.scoring.text import match_answer, match_content

SHOP = replace(load_suite("vwa75:shopping-001")[0], task_id="test-001", raw={}, oracle=())


@pytest.fixture(scope="module")
def official() -> Iterator[WebEnv]:
    with WebEnv(screenshots=False, scoring="official") as web_env:
        yield web_env


def both(env: WebEnv, official: WebEnv, play: Callable[[WebEnv], Score]) -> tuple[bool | None, bool | None]:
    """Verdicts in the order official, fixed."""
    return play(official).success, play(env).success


def test_a_strict_comparisons_admit_their_bound() -> None:
    strict = {"required_values": ["> 5"]}
    assert [match_answer("5", strict, dialect) for dialect in ("official", "fixed")] == [True, False]
    assert [match_answer("4", strict, dialect) for dialect in ("official", "fixed")] == [False, False]


async def test_b_only_the_last_picture_query_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pictures(case: Any, query: Any) -> list[bytes]:
        return [b"picture"]

    class Case:
        eval = {  # noqa: RUF012
            "page_image_query": [
                {"eval_vqa": [{"question": "Is it red?", "answer": "yes"}]},
                {"eval_vqa": [{"question": "Is it blue?", "answer": "yes"}]},
            ]
        }
        judges = Judges(image=lambda picture, question: "yes" if "blue" in question else "no")

        def __init__(self, dialect: str):
            self.dialect = dialect

    monkeypatch.setattr(images, "_pictures", pictures)
    verdicts = [(await images.page_image_query(Case(dialect)))[0] for dialect in ("official", "fixed")]  # type: ignore[arg-type]
    assert verdicts == [True, False]


def test_c_alternatives_of_a_fuzzy_match_are_all_asked_for() -> None:
    required = {"fuzzy_match": "a kettle |OR| a teapot"}
    ask = lambda reference, text: reference == "a teapot"  # noqa: E731
    assert [match_content("a pot for tea", required, dialect, ask) for dialect in ("official", "fixed")] == [
        False,
        True,
    ]


def html(target: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"eval_types": ["program_html", *more], "program_html": [target], **more}


@pytest.mark.browser
def test_d_the_prefix_lambda_is_stripped_letter_by_letter(env: WebEnv, official: WebEnv) -> None:
    target = {"url": "last", "locator": "lambda:document.title", "required_contents": {"exact_match": "Brightcart"}}

    def play(one: WebEnv) -> Score:
        one.reset(replace(SHOP, eval=html(target)))
        return one.evaluate()

    assert both(env, official, play) == (False, True)


@pytest.mark.browser
def test_e_an_evaluator_navigates_the_agents_own_page(env: WebEnv, official: WebEnv) -> None:
    target = {"url": "__SHOPPING__/deals/", "locator": "document.title", "required_contents": {"exact_match": "Deals"}}
    check = html(target)
    check |= {"eval_types": ["program_html", "url_match"], "reference_url": "__SHOPPING__/contact/"}

    def play(one: WebEnv) -> Score:
        one.step(resolve("goto [/contact/]", one.reset(replace(SHOP, eval=check))))
        return one.evaluate()

    assert both(env, official, play) == (False, True)


@pytest.mark.browser
def test_h_what_is_out_of_view_is_left_out_or_not(env: WebEnv, site: str) -> None:
    """The benchmark divides and multiplies where it means to divide by a product, so its filter lets nearly all pass.

    Here no element is filtered by its place: what lies below the fold is on a later part of the observation.
    """
    width, height, overlap_w, overlap_h = 100.0, 40.0, 100.0, 1.0
    released = (overlap_w * overlap_h) / width * height
    meant = (overlap_w * overlap_h) / (width * height)
    assert (released > 0.6, meant > 0.6) == (True, False)
    seen = env.reset(task_at(f"{site}/many"))
    for _ in range(40):
        if "link number 100" in seen.text:
            break
        more = [element for element in seen.elements if element.role == "more"][-1]
        seen = env.step(resolve(f'more "{more.label}" [{more.id}]', seen)).observation
    assert "link number 100" in seen.text


@pytest.mark.browser
@pytest.mark.parametrize("dialect", ["official", "fixed"])
def test_j_task_json_never_runs_as_code(env: WebEnv, official: WebEnv, tmp_path: Path, dialect: str, site: str) -> None:
    mark = tmp_path / "ran"
    attack = f"func:__import__('pathlib').Path({str(mark)!r}).touch()"
    target = {"url": "last", "locator": attack, "required_contents": {"exact_match": ""}}
    file = tmp_path / "task.json"
    file.write_text(
        '[{"task_id": "x", "sites": ["shopping"], "intent": "i", "start_url": "__SHOPPING__/", "eval":'
        ' {"eval_types": ["program_html"], "program_html": [{"url": "last", "locator": "ATTACK",'
        ' "required_contents": {"exact_match": ""}}]}}]'.replace("ATTACK", attack)
    )
    with pytest.raises(TaskError, match="not a plain function call"):
        load_task_file(file)
    one = official if dialect == "official" else env
    one.reset(replace(SHOP, eval=html(target)))
    with pytest.raises(TaskError, match="not a plain function call"):
        one.evaluate()
    assert not mark.exists()
