"""db_state, http_trace, and the two backends of the shop's `func:` functions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from agentkv_envs import InfraError, Score, TaskError, WebEnv, load_suite, resolve
from agentkv_envs.scoring.case import Case
from agentkv_envs.scoring.functions import Sources, call
from agentkv_envs.scoring.judges import Judges
from agentkv_envs.scoring.shop import MagentoShop
from agentkv_envs.scoring.state import changed_tables, same_rows, select
from agentkv_envs.scoring.trace import matches
from agentkv_envs.sent import Sent, form_fields
from agentkv_envs.tasks.schema import read_task

# A text of 10^7 letters, by six replacements.
GROWING = "replace(" * 6 + "'xxxxxxxxxx'" + ", 'x', 'xxxxxxxxxx')" * 6
SHOP = replace(load_suite("vwa75:shopping-001")[0], task_id="test-001", raw={}, oracle=())


@pytest.fixture
def database() -> sqlite3.Connection:
    one = sqlite3.connect(":memory:")
    one.executescript(
        "CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT, stock INTEGER);"
        "CREATE TABLE session (token TEXT); CREATE TABLE log (line TEXT);"
        "CREATE VIRTUAL TABLE search USING fts5 (name);"
        "INSERT INTO thing VALUES (1, 'mug', 3), (2, 'cup', 4); INSERT INTO log VALUES ('a'), ('a');"
        "INSERT INTO search VALUES ('mug');"
    )
    return one


def test_queries_can_only_read(database: sqlite3.Connection) -> None:
    assert select(database, "SELECT name, stock + 1 FROM thing ORDER BY id", "t") == [("mug", 4), ("cup", 5)]
    for sql in (
        "WITH x AS (SELECT 1) DELETE FROM thing",
        "SELECT 1; DROP TABLE thing",
        "SELECT load_extension('x')",
        "ATTACH 'file' AS other",
        "SELECT * FROM nothing",
        "PRAGMA journal_mode",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
    ):
        with pytest.raises(TaskError, match="db_state"):
            select(database, sql, "t")
    assert database.execute("SELECT COUNT(*) FROM thing").fetchone() == (2,)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT length(zeroblob(1000000000))", "not authorized to use function: zeroblob"),
        ("SELECT randomblob(9)", "not authorized to use function: randomblob"),
        ("SELECT printf('%.*c', 900000000, 'x')", "not authorized to use function: printf"),
        ("SELECT json_group_array(name) FROM thing", "not authorized to use function: json_group_array"),
        (f"SELECT length({GROWING})", "too big"),
        (
            "WITH RECURSIVE n AS (SELECT 1 AS i, name FROM thing UNION SELECT i + 1, name || '!' FROM n)"
            " SELECT i FROM n ORDER BY name",
            "does not end|too big",
        ),
    ],
)
def test_queries_take_neither_memory_nor_time_without_end(database: sqlite3.Connection, sql: str, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        select(database, sql, "t")


def test_of_a_query_without_end_only_the_rows_that_matter_are_taken(database: sqlite3.Connection) -> None:
    sql = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    assert select(database, sql, "t", 2) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"unchanged": {"shopping": ["mesage"]}}, "unchanged.shopping: the database of shopping has no table 'mesage'"),
        ({"unchanged": {"shopping": ["product.stok"]}}, "no column 'stok' in the table product; there are id, sku"),
        ({"unchanged": {"forum": []}}, "the task has no site 'forum'; it has shopping"),
        ({"rows": [{"site": "wiki", "sql": "SELECT 1", "expect": []}]}, "the task has no site 'wiki'; it has shopping"),
        (
            {"rows": [{"site": "shopping", "sql": "SELECT nme FROM product", "expect": []}]},
            r"db_state.rows\[0\].sql: 'SELECT nme FROM product': no such column: nme",
        ),
    ],
)
def test_a_state_the_databases_do_not_have_is_refused_before_the_episode(
    env: WebEnv, state: dict[str, Any], reason: str
) -> None:
    task = replace(SHOP, eval={"eval_types": ["db_state"], "db_state": state})
    with pytest.raises(TaskError, match=reason) as caught:
        env.reset(task)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("expected", "same"),
    [
        ([["mug", 3], ["cup", 4]], True),
        ([["cup", "4"], ["mug", "3"]], True),
        ([["mug", 3]], False),
        ([["mug", 3], ["mug", 3]], False),
        ([["mug", 3, None], ["cup", 4]], False),
        ([[{"must_include": ["mug"]}, 3], [{"must_exclude": ["mug"]}, {"required_values": ["> 3"]}]], True),
        ([[{"exact_match": "jug"}, 3], ["cup", 4]], False),
    ],
)
def test_rows_are_compared_in_any_order(expected: list[list[Any]], same: bool) -> None:
    assert same_rows([("mug", 3), ("cup", 4)], expected, "fixed") is same


def test_null_is_only_null() -> None:
    assert same_rows([(None,)], [[None]], "fixed")
    assert not same_rows([(None,)], [["None"]], "fixed")
    assert not same_rows([(0,)], [[None]], "fixed")


@pytest.mark.parametrize(
    ("sql", "free", "changes"),
    [
        ("SELECT 1", [], []),
        ("UPDATE thing SET stock = 2 WHERE id = 1", [], ["thing (-1 +1)"]),
        ("UPDATE thing SET stock = 2 WHERE id = 1", ["thing.stock"], []),
        ("UPDATE thing SET stock = 2", ["thing.name"], ["thing (-2 +2)"]),
        ("DELETE FROM thing", ["thing"], []),
        ("INSERT INTO log VALUES ('a')", [], ["log (-0 +1)"]),
        ("INSERT INTO session VALUES ('x')", [], []),
        ("CREATE TABLE extra (a); INSERT INTO extra VALUES (1)", [], ["extra (-0 +1)"]),
        ("INSERT INTO search VALUES ('cup')", [], []),
    ],
)
def test_what_else_changed(database: sqlite3.Connection, sql: str, free: list[str], changes: list[str]) -> None:
    before = database.serialize()
    database.executescript(sql)
    assert changed_tables(before, database.serialize(), free) == changes


def play(env: WebEnv, extension: dict[str, Any], actions: Sequence[str]) -> Score:
    data = {
        "task_id": "mine",
        "sites": ["shopping"],
        "intent": "Do it.",
        "start_url": "__SHOPPING__/contact/",
        "eval": {"eval_types": []},
        "agentkv": {"eval_ext": extension},
    }
    seen = env.reset(read_task(data, "test"))
    for action in actions:
        result = env.step(resolve(action, seen))
        assert result.error is None, (action, result.error)
        seen = result.observation
    return env.evaluate()


CONTACT = ['type "Name" [Jo] [0]', 'type "Message" [Hello there] [0]', 'click "Send Message"']


@pytest.mark.browser
def test_the_state_of_an_episode(env: WebEnv) -> None:
    query = {"site": "shopping", "sql": "SELECT name, body FROM message", "expect": [["Jo", "Hello there"]]}
    state = {"rows": [query], "unchanged": {"shopping": ["message"]}}
    assert play(env, {"db_state": state}, CONTACT).success is True, env.evaluate()
    nothing = play(env, {"db_state": state}, [])
    assert (nothing.success, nothing.parts) == (False, {"db_state": 0.0})
    assert "query 0 gave []" in nothing.note
    side_effect = play(env, {"db_state": {**state, "unchanged": {"shopping": []}}}, CONTACT)
    assert "shopping also changed: message (-0 +1)" in side_effect.note
    wanted = {"method": "POST", "path": "/contact/", "site": "shopping", "form": {"name": "jo"}}
    assert play(env, {"http_trace": [wanted]}, CONTACT).success is True
    never = play(env, {"http_trace": [{**wanted, "count": 0}]}, CONTACT)
    assert "POST /contact/ was sent 1 times" in never.note


@pytest.mark.browser
def test_a_query_on_a_site_the_task_does_not_have_is_named(env: WebEnv) -> None:
    query = {"site": "forum", "sql": "SELECT 1", "expect": [[1]]}
    for state in ({"rows": [query]}, {"unchanged": {"forum": []}}):
        with pytest.raises(TaskError, match="the task has no site 'forum'"):
            play(env, {"db_state": state}, [])


@pytest.mark.parametrize(
    ("extension", "field", "reason"),
    [
        ([], "agentkv.eval_ext", "must be an object"),
        ({"smell": {}}, "agentkv.eval_ext", "unknown evaluator 'smell'; there are db_state, http_trace"),
        ({"db_state": {}}, "agentkv.eval_ext.db_state", "needs rows, unchanged or both"),
        ({"db_state": {"rows": [{"site": "shopping", "sql": "DROP TABLE x"}]}}, "db_state.rows[0].sql", "a SELECT"),
        ({"db_state": {"rows": [{"site": "shopping", "sql": "SELECT 1", "expect": [1]}]}}, "rows[0].expect", "rows"),
        ({"db_state": {"unchanged": {"shopping": "all"}}}, "unchanged.shopping", "must be a list"),
        ({"http_trace": [{"method": "POST"}]}, "http_trace[0].path", "is missing"),
        ({"http_trace": [{"path": "/x", "count": -1}]}, "http_trace[0].count", "must be a whole number"),
        ({"http_trace": [{"path": "/x", "form": {"a": 1}}]}, "http_trace[0].form", "must be an object of texts"),
    ],
)
def test_wrong_extensions_are_named(extension: Any, field: str, reason: str) -> None:
    data = {**SHOP.raw, "task_id": "t", "sites": ["shopping"], "intent": "i", "start_url": "__SHOPPING__/"}
    with pytest.raises(TaskError) as caught:
        read_task({**data, "eval": {"eval_types": []}, "agentkv": {"eval_ext": extension}}, "file")
    assert field in caught.value.field
    assert reason in caught.value.reason


def test_forms_are_read_in_both_encodings() -> None:
    assert form_fields(None) == {}
    assert form_fields(b"a=1&b=x+y&c=") == {"a": "1", "b": "x y", "c": ""}
    body = (
        b'--X\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
        b'--X\r\nContent-Disposition: form-data; name="photo"; filename="p.png"\r\n'
        b"Content-Type: image/png\r\n\r\n\xff\xfe\r\n"
        b'--X\r\nContent-Disposition: form-data; name="b"\r\n\r\nx\r\ny\r\n--X--\r\n'
    )
    assert form_fields(body) == {"a": "1", "photo": "", "b": "x\r\ny"}


@pytest.mark.parametrize(
    ("wanted", "same"),
    [
        ({"path": "/cart/add"}, True),
        ({"path": "/cart/*"}, True),
        ({"path": "/cart"}, False),
        ({"path": "/cart/add", "method": "post"}, True),
        ({"path": "/cart/add", "method": "GET"}, False),
        ({"path": "/cart/add", "form": {"qty": "2", "ref": "Home"}}, True),
        ({"path": "/cart/add", "form": {"qty": "3"}}, False),
        ({"path": "/cart/add", "form": {"colour": ""}}, False),
    ],
)
def test_requests_are_matched(wanted: dict[str, Any], same: bool) -> None:
    sent = Sent("POST", "http://h:1/cart/add/?ref=home", {"qty": "2"})
    assert matches(sent, wanted, "", "fixed") is same
    assert matches(sent, wanted, "http://h:1", "fixed") is same
    assert not matches(sent, wanted, "http://h:2", "fixed")
    assert not matches(replace(sent, url=sent.url.replace("h:1", "h:12")), wanted, "http://h:1", "fixed")


# A real shop's interface


def magento(request: httpx.Request) -> httpx.Response:
    if request.url.path.endswith("/integration/admin/token"):
        return httpx.Response(200, json="secret")
    assert request.headers["authorization"] == "Bearer secret"
    if request.url.path == "/rest/V1/orders":
        assert request.url.params["searchCriteria[pageSize]"] == "1"
        return httpx.Response(200, json={"items": [{"increment_id": "000000170"}]})
    if request.url.path == "/rest/V1/products/B01/reviews":
        reviews = [{"nickname": who, "detail": f"by {who}", "ratings": [{"percent": 60}]} for who in ("Al", "Bo")]
        return httpx.Response(200, json=reviews)
    if request.url.path == "/rest/V1/products/B02/reviews":
        return httpx.Response(200, json=[])
    if request.url.path == "/rest/V1/products/B01":
        return httpx.Response(200, json={"price": 24.5})
    return httpx.Response(404)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("shopping_get_latest_order_url()", "http://shop/sales/order/view/order_id/170/"),
        ("shopping_get_sku_latest_review_author('B01')", "Bo"),
        ('shopping_get_sku_latest_review_rating("B01")', "60"),
        ("shopping_get_sku_latest_review_text('B01')", "by Bo"),
        ("shopping_get_sku_latest_review_text('B02')", ""),
        ("shopping_get_product_price('B01')", "24.5"),
        ("shopping_get_num_reviews('B01')", "2"),
        ("reddit_get_post_url('http://r/f/books/12/a-title/-/comment/3')", "http://r/f/books/12/"),
        ("reddit_get_post_url('http://r/user/jo')", "http://r/user/jo"),
    ],
)
async def test_functions_on_a_real_shop(text: str, result: str) -> None:
    class Nowhere:
        url = "http://shop/"

    shop = MagentoShop("http://shop/", httpx.MockTransport(magento))
    assert await call(text, Sources(Nowhere(), shop), "t") == result  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(200, text="no json")])
async def test_a_shop_that_does_not_answer_is_the_hosts_fault(answer: httpx.Response) -> None:
    shop = MagentoShop("http://shop", httpx.MockTransport(lambda request: answer))
    with pytest.raises(InfraError, match="the shop at http://shop did not answer"):
        await shop.latest_order_url()


ORDER = """<table id="my-orders-table">
<tbody><tr><td class="col name"><strong>Protein Bars</strong>
  <dl><dt>Size</dt><dd>12 Count</dd><dt>Color</dt><dd>Red</dd></dl></td>
  <td class="col sku">B0A</td><td class="col qty"><ul><li>Ordered</li><li>2</li></ul></td></tr></tbody>
<tbody><tr><td class="col name">Jar</td><td class="col sku">B0B</td><td class="col qty">Ordered1</td></tr></tbody>
</table>"""
PRODUCT = """<div class="product-info-main">
  <div class="product-info-price"><span class="price">$1,299.90</span></div></div>
<a id="tab-label-reviews-title">Reviews 12</a><div class="rating-result" title="87%"></div>
<table id="productDetails_detailBullets_sections1"><tbody><tr><th>Manufacturer</th><td>Acme</td></tr>
<tr><th>Brand Name</th><td>Ajax</td></tr></tbody></table>"""


def comment(who: str, day: int, text: str, inner: str = "") -> str:
    head = f'<header><a class="fg-inherit">{who}</a><time datetime="2023-01-0{day}T00:00:00Z"></time></header>'
    return f'<article class="comment">{head}<div class="comment__content">{text}</div>{inner}</article>'


FORUM = (
    '<div id="main"><article><a class="fg-inherit">poster</a><time datetime="2023-01-01T00:00:00Z"></time></article>'
    + comment("ann", 2, "first", comment("me", 4, "newest"))
    + comment("me", 3, "older")
    + "</div>"
)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("page", "text", "result"),
    [
        (ORDER, "shopping_get_order_product_name_list(__page__)", "Protein Bars"),
        (ORDER, "shopping_get_order_product_quantity(__page__, 'X |OR| B0A')", "2"),
        (ORDER, "shopping_get_order_product_quantity(__page__, 'B0B')", "1"),
        (ORDER, "shopping_get_order_product_quantity(__page__, 'B0C')", "0"),
        (ORDER, "shopping_get_order_product_option(__page__, 'B0A', 'Color')", "Red"),
        (ORDER, "shopping_get_order_product_option(__page__, 'B0B', 'Size')", ""),
        (PRODUCT, "shopping_get_product_price(__page__)", "1299.9"),
        (PRODUCT, "shopping_get_num_reviews(__page__)", "12"),
        (PRODUCT, "shopping_get_rating_as_percentage(__page__)", "87"),
        (PRODUCT, "shopping_get_product_attributes(__page__, 'brand name |OR| manufacturer')", "Acme, Ajax"),
        (FORUM, "shopping_get_product_price(__page__)", "0"),
        (FORUM, "reddit_get_latest_comment_content_by_username(__page__, 'me')", "newest"),
        (FORUM, "reddit_get_latest_comment_content_by_username(__page__, 'ann')", "first"),
        (FORUM, "reddit_get_latest_comment_content_by_username(__page__, 'nobody')", ""),
        (FORUM, "reddit_get_parent_comment_username_of_latest_comment_by_username(__page__, 'me')", "ann"),
        (FORUM, "reddit_get_parent_comment_username_of_latest_comment_by_username(__page__, 'ann')", "poster"),
        (FORUM, "reddit_get_latest_comment_obj_by_username(__page__, 'me')", '{"content": "newest", "parent": "ann"}'),
        (FORUM, "get_query_text(__page__, 'it\\'s [not] \"a selector')", ""),
    ],
)
def test_functions_read_real_markup(env: WebEnv, site: str, page: str, text: str, result: str) -> None:
    async def read() -> str:
        browser = await env._host.get()
        tab = await browser.new_page()
        try:
            await tab.set_content(page)
            return await call(text, Sources(tab, MagentoShop("http://shop")), "t")
        finally:
            await tab.close()

    found = env._wait(read())
    assert found.split(" |OR| ")[0].startswith(result) if "name_list" in text else found == result


@pytest.mark.browser
def test_functions_on_the_embedded_sites(env: WebEnv) -> None:
    """The same questions as on real ones, answered by the databases."""

    async def ask(*texts: str) -> list[str]:
        episode = env._running()
        case = Case(episode, "", "fixed", Judges())
        return [await case.call(text, episode.page()) for text in texts]

    env.reset(SHOP)
    shop = env._running().sites[0].database
    number, sku, slug, price = shop.execute(
        "SELECT p.id, p.sku, p.slug, p.price_cents / 100.0 FROM product p JOIN review r ON r.product_id = p.id"
    ).fetchone()
    stars = [row[0] for row in shop.execute("SELECT rating FROM review WHERE product_id = ?", (number,))]
    env.reset(replace(SHOP, start_url=f"__SHOPPING__/{slug}.html"))
    found = env._wait(
        ask(
            "func:shopping_get_product_price(__page__)",
            f"func:shopping_get_product_price('{sku}')",
            "func:shopping_get_num_reviews(__page__)",
            "func:shopping_get_rating_as_percentage(__page__)",
            "func:shopping_get_product_attributes(__page__, 'sku |OR| stock number')",
        )
    )
    assert [float(text) for text in found[:4]] == [price, price, len(stars), round(sum(stars) / len(stars) * 20)]
    assert found[4] == sku

    visit = replace(SHOP, sites=("forum",), start_url="__FORUM__/", eval={"eval_types": []})
    env.reset(visit)
    forum = env._running().sites[0].database
    post, sub, user, body, above = forum.execute(
        "SELECT p.id, f.name, u.name, c.body, pu.name FROM comment c JOIN post p ON p.id = c.post_id"
        " JOIN forum f ON f.id = p.forum_id JOIN user u ON u.id = c.author_id"
        " JOIN comment parent ON parent.id = c.parent_id JOIN user pu ON pu.id = parent.author_id"
        " WHERE NOT EXISTS (SELECT 1 FROM comment o WHERE o.post_id = c.post_id AND o.author_id = c.author_id"
        " AND o.id != c.id) ORDER BY c.id"
    ).fetchone()
    env.reset(replace(visit, start_url=f"__FORUM__/f/{sub}/{post}"))
    calls = [f"func:reddit_get_latest_comment_content_by_username(__page__, '{user}')"]
    calls += [f"func:reddit_get_parent_comment_username_of_latest_comment_by_username(__page__, '{user}')"]
    calls += ["func:reddit_get_latest_comment_content_by_username(__page__, 'nobody')"]
    assert env._wait(ask(*calls)) == [body, above, ""]
