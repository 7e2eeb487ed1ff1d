"""The shop's pages: over HTTP without scripts, and a few in the browser with them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from test_env_shop import ADDRESS

from agentkv_envs import Action, Observation, WebEnv, load_suite, resolve
from agentkv_envs.captions import ATTRIBUTES
from agentkv_envs.sites import Site, World, open_site
from agentkv_envs.sites.shopping import products
from agentkv_envs.sites.shopping.store import Store

PAGES = (
    *("/", "/kitchen.html", "/kitchen.html?kind=Toaster&brand=Tundra&low=10&high=90&rating=3&stock=1&p=2", "/deals/"),
    *("/catalogsearch/result/?q=red+kettle&product_list_order=rating", "/contact/", "/newsletter/", "/notices/"),
    *("/tundra-kettle.html", "/review/product/list/id/300/?sort=helpful", "/questions/product/id/300/"),
    *("/questions/answer/id/30/", "/review/product/post/id/300/", "/catalog/product_compare/", "/wishlist/"),
    *("/checkout/cart/", "/checkout/", "/checkout/?address=1", "/sales/order/history/", "/sales/returns/"),
    *("/sales/order/view/order_id/6/", "/sales/order/return/order_id/6/", "/customer/account/", "/rewards/"),
    *("/customer/address/", "/customer/address/new/", "/customer/address/edit/", "/customer/address/edit/id/1/"),
    *("/customer/messages/", "/info/about/", "/info/size-guide/", "/info/shipping-returns/"),
)
GONE = (
    *("/nowhere/", "/nowhere.html", "/info/x/", "/static/x.css", "/media/9999.png", "/media/review/999999.png"),
    *("/review/product/list/id/9999/", "/questions/product/id/9999/", "/questions/answer/id/999999/"),
    *("/sales/order/view/order_id/99/", "/customer/address/edit/id/99/"),
)


@pytest.fixture
def site() -> Iterator[Site]:
    opened = open_site("shopping", World(), {})
    yield opened
    opened.close()


@pytest.fixture
def client(site: Site, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(products, "DELIVERY_DELAY_S", 0.0)
    return TestClient(site.app, cookies=site.cookies)


def alerts(html: str) -> list[str]:
    return [" ".join(re.sub("<.*?>", "", found).split()) for found in re.findall(r'role="alert".*?>(.*?)</div>', html)]


def test_all_pages_are_there_and_others_are_not(client: TestClient) -> None:
    client.post("/checkout/cart/add/product/6/", data={"qty": "1"})
    for page in PAGES:
        answer = client.get(page)
        assert answer.status_code == 200, page
        assert "None" not in re.sub(r"<script.*?</script>", "", answer.text), page
    for page in GONE:
        assert client.get(page).status_code == 404, page


@pytest.mark.parametrize("split", ["test", "train"])
def test_every_product_has_a_page_and_a_picture(split: str) -> None:
    opened = open_site("shopping", World(2, split), {})
    client = TestClient(opened.app)
    for row in opened.database.execute("SELECT id, slug, name FROM product WHERE id % 20 = 0").fetchall():
        assert f"<title>{row['name']}</title>" in client.get(f"/{row['slug']}.html").text
        assert client.get(f"/media/{row['id']}.png?colour=Red").content.startswith(b"\x89PNG")
    opened.close()


def test_private_pages_lead_to_the_sign_in_and_back(site: Site) -> None:
    stranger = TestClient(site.app)
    form = stranger.get("/sales/returns/")
    assert str(form.url).endswith("/customer/account/login/?next=%2Fsales%2Freturns%2F")
    person = {"email": "emma.fischer@example.com", "password": "Password.123"}
    assert "incorrect" in stranger.post("/customer/account/login/", data={**person, "password": "x"}).text
    away = stranger.post("/customer/account/login/", data={**person, "next": "//elsewhere.example/"})
    assert str(away.url).endswith("/customer/account/")
    stranger.post("/customer/account/logout/")
    assert "Customer Login" in stranger.get("/wishlist/").text


@pytest.mark.parametrize(
    ("path", "form", "reason"),
    [
        ("/checkout/cart/add/product/172/", {"qty": "1"}, "Please choose a size."),
        ("/checkout/cart/add/product/246/", {"qty": "1", "size": "2 L"}, "Please choose a colour."),
        ("/checkout/cart/add/product/6/", {"qty": "many"}, "quantity from 1 to 20"),
        ("/review/product/post/id/6/", {"rating": "5"}, "fill in nickname"),
        ("/review/product/helpful/id/999999/", {"product": "6"}, "could not find that review"),
        ("/questions/product/id/6/", {"text": "Eh?"}, "at least 8 characters"),
        ("/questions/answer/id/30/", {"text": ""}, "write an answer"),
        ("/notices/add/product/6/", {"email": "a@b.de"}, "is in stock"),
        ("/sales/order/return/order_id/6/", {"item": "x"}, "choose an item"),
        ("/sales/order/return/order_id/3/", {"item": "1"}, "45 days"),
        ("/sales/order/cancel/order_id/2/", {}, "can no longer be cancelled"),
        ("/customer/address/new/", {**ADDRESS, "label": ""}, "a label"),
        ("/customer/address/edit/", {**ADDRESS, "street": ""}, "every field"),
        ("/newsletter/", {"email": "a@b.de", "topic": "x", "frequency": "y"}, "choose a topic"),
        ("/contact/", {"name": "Emma"}, "your message"),
        ("/checkout/", {"do": "apply", "coupon": "nope"}, "not valid"),
        ("/checkout/", {"do": "place"}, "cart is empty"),
    ],
)
def test_what_is_refused_is_said_on_the_page(client: TestClient, path: str, form: dict[str, str], reason: str) -> None:
    answer = client.post(path, data=form)
    assert answer.status_code == 200
    (said,) = [alert for alert in alerts(answer.text) if reason in alert]
    assert said not in alerts(client.get("/deals/").text), "a message is shown once"


def test_markup_from_forms_is_text(client: TestClient) -> None:
    form = {"rating": "5", "nickname": "<b>E</b>", "title": "T", "detail": "<script>alert(1)</script>"}
    client.post("/review/product/post/id/6/", data=form)
    page = client.get("/review/product/list/id/6/").text
    assert "&lt;script&gt;alert(1)" in page
    assert "<b>E</b>" not in page


def test_the_pin_of_a_return_is_shown_once(client: TestClient, site: Site) -> None:
    pin, number = site.facts["RETURN_PIN_2"], site.facts["RETURN_2"]
    item = site.database.execute("SELECT MIN(id) FROM order_item WHERE order_id = 6").fetchone()[0]
    form = {"item": str(item), "reason": "Wrong size", "resolution": "Exchange"}
    assert pin in client.post("/sales/order/return/order_id/6/", data=form).text
    again = client.get("/sales/returns/").text
    assert number in again
    assert pin not in again
    assert f"return {number}" in client.get("/sales/order/view/order_id/6/").text


def test_a_message_told_once_cannot_be_fetched_again(client: TestClient, site: Site) -> None:
    code = site.facts["LOCKER_CODE"]
    assert code in client.post("/customer/messages/open/id/1/").text
    assert client.get("/customer/messages/open/id/1/").status_code == 405
    again = client.post("/customer/messages/open/id/1/").text
    assert code not in again
    assert "was deleted" in again


def test_delivery_answers_scripts_and_people(client: TestClient) -> None:
    path = "/delivery/estimate/?product=6&postcode=10435"
    text = client.get(path, headers={"accept": "application/json"}).json()["text"]
    assert re.fullmatch(r"Arrives: Standard \w{3} \d+ March, (Express \w{3} \d+ March|no Express there)\.", text)
    assert text in client.get(path).text
    assert "five digits" in client.get("/delivery/estimate/?product=6&postcode=x").text
    assert "could not find" in client.get("/delivery/estimate/?product=none&postcode=10435").text


def test_the_portal_is_linked_where_there_is_one(client: TestClient) -> None:
    assert ">Portal<" not in client.get("/").text
    beside = open_site("shopping", World(), {"home": "http://127.0.0.1:9"})
    assert '<a href="http://127.0.0.1:9/">Portal</a>' in TestClient(beside.app).get("/deals/").text
    beside.close()


def test_captions_say_what_pictures_show(site: Site) -> None:
    assert site.caption("/media/6.png") == "red toaster"
    assert site.caption("/media/6.png?colour=Blue") == "blue toaster"
    review = Store().one("SELECT id FROM review WHERE photo IS NOT NULL")
    assert review is not None
    told = site.caption(f"/media/review/{review['id']}.png") or ""
    assert len(told) <= 60
    assert sum(word in ATTRIBUTES[0] or word in ATTRIBUTES[3] for word in told.split()) >= 2
    for other in ("/media/9999.png", "/media/review/999999.png", "/static/shop.css"):
        assert site.caption(other) is None


# In the browser


class Visitor:
    """Steps by label, keeping the last observation."""

    def __init__(self, env: WebEnv):
        self.env = env
        self.seen: Observation = env.reset(load_suite("vwa75:shopping-001")[0])

    def goto(self, path: str) -> None:
        self.seen = self.env.step(Action("goto", text=path)).observation

    def do(self, text: str) -> Observation:
        result = self.env.step(resolve(text, self.seen))
        assert result.error is None, result.error
        self.seen = result.observation
        return self.seen


@pytest.mark.browser
def test_a_category_opens_its_kinds_under_the_pointer(env: WebEnv) -> None:
    visitor = Visitor(env)
    visitor.do('expand "Categories"')
    assert not any(e.label == "Lantern" for e in visitor.seen.elements)
    visitor.do('hover "Garden"')
    assert visitor.do('click "Lantern"').title == "Garden: Lantern"
    assert "Only Lantern." in visitor.seen.text


@pytest.mark.browser
def test_options_change_the_price_and_the_cart_answers_with_a_toast(env: WebEnv) -> None:
    visitor = Visitor(env)
    visitor.goto("/tundra-kettle.html")
    before = visitor.seen.text
    assert visitor.do('click "Add to Cart"').alerts == ("Please choose a colour.",)
    assert visitor.do('click "Red"').alerts == (), "a toast goes with the next thing done"
    visitor.do('select "Model" [2 L]')
    row = Store().one("SELECT * FROM variant WHERE product_id = 246 AND colour = 'Red' AND size = '2 L'")
    assert row is not None
    assert "from $" in before
    assert f"${row['price_cents'] / 100:.2f}".removesuffix(".00") in visitor.seen.text
    assert f"{row['stock']} in stock" in visitor.seen.text
    assert visitor.do('click "Add to Cart"').alerts == ("You added Tundra Kettle to your shopping cart",)
    assert any(e.label == "Cart (1)" for e in visitor.seen.elements)
    assert "Red, 2 L" in visitor.do('click "shopping cart"').text


@pytest.mark.browser
def test_a_slow_answer_about_delivery_is_waited_for(env: WebEnv) -> None:
    visitor = Visitor(env)
    visitor.goto("/harbor-red-2-slice-toaster.html")
    visitor.do('type "Postcode" [10435] [0]')
    assert "Arrives: Standard" in visitor.do('click "Check Delivery"').text


@pytest.mark.browser
def test_deleting_an_address_asks_first_and_a_saved_one_fills_the_checkout(env: WebEnv) -> None:
    visitor = Visitor(env)
    visitor.goto("/customer/address/")
    visitor.do('click "Delete Office"')
    assert visitor.seen.dialog == 'confirm "Delete the address Office?"'
    assert "Hafenstrasse" in visitor.do("dialog [dismiss]").text
    visitor.goto("/harbor-red-2-slice-toaster.html")
    visitor.do('click "Add to Cart"')
    visitor.goto("/checkout/")
    assert 'textbox "First name"' in visitor.do('select "Saved address" [Paul]').text
    assert "= Paul" in visitor.seen.text
    assert "= Am Markt 3" in visitor.seen.text


@pytest.mark.browser
def test_filters_narrow_a_list_and_can_be_cleared(env: WebEnv) -> None:
    visitor = Visitor(env)
    visitor.goto("/kitchen.html?kind=Toaster")
    visitor.do('expand "Filters"')
    visitor.do('type "Price to" [40] [0]')
    visitor.do('click "Apply Filters"')
    assert "Only Toaster, up to $40." in visitor.seen.text
    shown = [float(price) for price in re.findall(r"\$([\d.]+) rated", visitor.seen.text)]
    assert shown
    assert max(shown) <= 40
    assert visitor.do('click "Clear Filters"').title == "Kitchen"
