"""What the agent is shown of every page of the shop: small, complete, stable."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from env_pages import task_at

from agentkv_envs import Action, Observation, WebEnv, load_suite, resolve
from agentkv_envs.observe import HARD_LIMIT
from agentkv_envs.sites.shopping.catalogue import build_catalogue
from agentkv_envs.sites.shopping.kinds import CATEGORIES

pytestmark = pytest.mark.browser
PRODUCTS = build_catalogue()
PAGES = (
    *("/", "/deals/", "/contact/", "/info/shipping-returns/", "/info/size-guide/", "/info/about/", "/nowhere/"),
    *("/customer/account/", "/customer/address/edit/", "/rewards/", "/wishlist/", "/sales/order/history/"),
    *(f"/sales/order/view/order_id/{i}/" for i in range(1, 6)),
    *("/checkout/cart/", "/checkout/", "/customer/account/login/", "/review/product/post/id/60/"),
    *(f"/{slug}.html" for slug, _, _ in CATEGORIES),
    *(f"/kitchen.html?p={p}&product_list_order=price" for p in (2, 3)),
    *(f"/catalogsearch/result/?q={q}" for q in ("red", "harbor+black", "zebra")),
    *(f"/{product.slug}.html" for product in PRODUCTS[::12]),
)


@pytest.fixture(scope="module")
def visits(env: WebEnv) -> list[Observation]:
    """Every page, with a filled cart."""
    seen = env.reset(load_suite("vwa75:shopping-001")[0])
    for product in ("field-red-rain-jacket", "harbor-red-2-slice-toaster", "summit-pink-round-pillow"):
        seen = env.step(Action("goto", text=f"/{product}.html")).observation
        if any(e.label == "Size" for e in seen.elements):
            seen = env.step(resolve('select "Size" [M]', seen)).observation
        env.step(resolve('click "Add to Cart"', seen))
    return [env.step(Action("goto", text=page)).observation for page in PAGES]


def test_pages_stay_within_the_token_budget(visits: list[Observation], count_tokens: Callable[[str], int]) -> None:
    sizes = [count_tokens(seen.text) for seen in visits]
    assert max(sizes) <= HARD_LIMIT, visits[sizes.index(max(sizes))].text
    assert sum(sizes) / len(sizes) <= 250


def test_ids_are_small_unique_and_stand_beside_their_label(visits: list[Observation]) -> None:
    for seen in visits:
        numbers = [e.id for e in seen.elements]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] <= 99
        for element in seen.elements:
            assert f'{element.role} "{element.label}" [{element.id}]' in seen.text


def test_no_addresses_boxes_or_references_leak(visits: list[Observation]) -> None:
    for seen in visits:
        assert not [sign for sign in ("http", "ref=", "box=", "/url", "127.0.0.1") if sign in seen.text]


def test_the_chrome_keeps_its_ids_from_page_to_page(visits: list[Observation]) -> None:
    chrome = {tuple((e.id, e.role, e.label) for e in seen.elements[:5]) for seen in visits}
    assert len(chrome) == 1


def everything(env: WebEnv, seen: Observation) -> Iterator[Observation]:
    """This page, then all that its `expand` and `more` elements show."""
    yield seen
    done: set[tuple[str, str]] = set()
    for _ in range(40):
        hidden = [e for e in seen.elements if e.role in ("more", "expand") and not e.label.startswith(("first", "top"))]
        fresh = [e for e in hidden if e.role == "more" or (e.role, e.label) not in done]
        if not fresh:
            return
        done.add((fresh[0].role, fresh[0].label))
        seen = env.step(Action(fresh[0].role, fresh[0].id)).observation
        yield seen
    pytest.fail(f"no end of more and expand:\n{seen.text}")


@pytest.mark.parametrize(
    "page", ["/harbor-red-2-slice-toaster.html", "/kitchen.html", "/sales/order/view/order_id/3/", "/"]
)
def test_everything_a_reader_sees_can_be_reached(env: WebEnv, page: str, count_tokens: Callable[[str], int]) -> None:
    env.reset(load_suite("vwa75:shopping-001")[0])
    shown = list(everything(env, env.step(Action("goto", text=page)).observation))
    assert all(count_tokens(seen.text) <= HARD_LIMIT for seen in shown)
    text = " ".join(" ".join(seen.text for seen in shown).split())
    script = "[...document.querySelectorAll('main h1, main a, main td, main p, main button, .review-content, .price')]"
    visible = env._wait(env._running().page().evaluate(f"{script}.map(e => e.innerText.trim()).filter(Boolean)"))
    for words in visible:
        first = " ".join(words.replace('"', "'").split())
        assert first in text or all(word in text for word in first.split()), first


def test_ids_stay_with_their_element_while_it_lives(env: WebEnv) -> None:
    env.reset(load_suite("vwa75:shopping-001")[0])
    first = env.step(Action("goto", text="/kitchen.html")).observation
    second = env.step(resolve('more "more items"', first)).observation
    third = env.step(resolve('more "first items"', second)).observation
    same = {e.label: e.id for e in first.elements}
    assert {e.label: e.id for e in third.elements} == same
    new = {e.id for e in second.elements if e.label not in same and e.role == "link"}
    assert new
    assert not new & {e.id for e in first.elements if e.role == "link"}
    assert first.page_key == env.step(Action("goto", text="/kitchen.html")).observation.page_key != second.page_key


def test_the_benchmarks_style_puts_the_id_first() -> None:
    with WebEnv(style="vwa", screenshots=False) as env:
        seen = env.reset(load_suite("vwa75:shopping-001")[0])
        assert "[2] searchbox 'Search'" in seen.text
        result = env.step(resolve("type [2] [red toaster] [1]", seen))
        assert "link 'Harbor Red 2-Slice Toaster'" in result.observation.text


def test_a_page_without_structure_is_paged(env: WebEnv, site: str, count_tokens: Callable[[str], int]) -> None:
    seen = env.reset(task_at(f"{site}/many"))
    labels: list[str] = []
    for _ in range(60):
        assert count_tokens(seen.text) <= HARD_LIMIT
        labels += [e.label for e in seen.elements if e.role == "link"]
        more = next(e for e in seen.elements if e.role == "more")
        if more.label == "top of page":
            break
        seen = env.step(Action("more", more.id)).observation
    assert labels == [f"link number {i}" for i in range(120)]
