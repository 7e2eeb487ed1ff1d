"""The pages of the classifieds, without a browser and in one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agentkv_envs import Observation, WebEnv, load_task_file, parse_action, resolve
from agentkv_envs.sites import Site, World, open_site
from agentkv_envs.sites.classifieds.catalogue import build_ads
from agentkv_envs.sites.classifieds.database import facts
from agentkv_envs.sites.classifieds.photos import RECIPES, photo, prepared
from agentkv_envs.sites.classifieds.store import Store
from agentkv_envs.sites.web import inside, money
from agentkv_envs.uploads import upload_bytes

FORM = {
    "title": "Old red lamp",
    "category": "garden",
    "price": "12",
    "condition": "worn",
    "place": "oakham",
    "pickup_day": "Friday",
    "description": "A lamp of my aunt.",
}


@pytest.fixture
def site() -> Iterator[Site]:
    opened = open_site("classifieds", World(), {"home": "http://portal"})
    yield opened
    opened.close()


@pytest.fixture
def client(site: Site) -> TestClient:
    client = TestClient(site.app)
    client.cookies.update(site.cookies)
    return client


def path(query: str) -> str:
    return f"/index.php?{query}"


PUBLIC = ("", "page=search&sPattern=sofa", "page=item&id=3", "page=item&action=location&id=3", "page=login")
PRIVATE = (
    *("page=item&action=item_add", "page=item&action=item_edit&id=250", "page=item&action=offer&id=3"),
    *("page=item&action=contact&id=3", "page=item&action=add_comment&id=3", "page=item&action=report&id=3"),
    *("page=user&action=items", "page=user&action=offers", "page=user&action=messages", "page=user&action=alerts"),
    *("page=user&action=thread&id=1", "page=user&action=profile", "page=user&action=following"),
    *("page=custom&route=watchlist-user", "page=user&action=dashboard", "page=user&action=rate&id=5"),
)


@pytest.mark.parametrize("query", PUBLIC + PRIVATE)
def test_pages_say_the_same_every_time_and_show_no_session(site: Site, client: TestClient, query: str) -> None:
    first, second = client.get(path(query)), client.get(path(query))
    assert first.status_code == 200
    assert first.text == second.text
    assert next(iter(site.cookies.values())) not in first.text
    assert first.headers["cache-control"] == "no-store"


def test_private_pages_lead_to_the_sign_in_form_and_back(site: Site) -> None:
    stranger = TestClient(site.app)
    for query in PRIVATE:
        answer = stranger.get(path(query), follow_redirects=False)
        assert answer.headers["location"].startswith("/index.php?page=login&next=")
    form = {"email": facts(World())["CL_EMAIL"], "password": "wrong", "next": path(PRIVATE[6])}
    assert "password is wrong" in stranger.post(path("page=login"), data=form).text
    page = stranger.post(path("page=login"), data={**form, "password": facts(World())["CL_PASSWORD"]}).text
    assert "<h1>My Ads</h1>" in page
    stranger.post(path("page=main&action=logout"))
    assert "Sign In" in stranger.get(path("page=user&action=items")).text


@pytest.mark.parametrize(
    "query", ["page=item&id=99999", "page=item&id=x", "page=nothing", "page=user&action=pub_profile&id=999"]
)
def test_missing_pages_are_404(client: TestClient, query: str) -> None:
    answer = client.get(path(query))
    assert answer.status_code == 404
    assert "Page not found" in answer.text


def test_the_forms_of_other_peoples_ads_are_404(client: TestClient) -> None:
    for action in ("item_edit", "answer"):
        assert client.get(path(f"page=item&action={action}&id=3&comment=1")).status_code == 404
    assert client.post(path("page=item&action=item_delete&id=3")).status_code == 404


def test_an_ad_has_what_evaluators_look_for(client: TestClient) -> None:
    html = client.get(path("page=item&id=3")).text
    price = facts(World())["AD_3_PRICE"]
    assert re.search(rf'<span class="price">\${price}</span>', html)
    assert 'class="comments-list"' in html
    assert 'class="item-description"' in html
    assert '<a href="http://portal/">Portal</a>' in html
    images = re.findall(r"<img [^>]*>", html)
    assert images
    assert all('alt=""' in image for image in images)


def test_the_portal_is_linked_only_where_there_is_one() -> None:
    alone = open_site("classifieds", World(), {})
    assert "Portal" not in TestClient(alone.app).get("/").text


def test_a_secret_is_shown_on_one_page_only(client: TestClient) -> None:
    shown = client.post(path("page=user&action=secret&id=1")).text
    assert facts(World())["CL_GATE_CODE"] in shown
    again = client.get(path("page=user&action=thread&id=1")).text
    assert facts(World())["CL_GATE_CODE"] not in again
    assert "Read Secret Message" not in again


def test_a_refused_form_keeps_what_was_typed(client: TestClient) -> None:
    page = client.post(path("page=item&action=item_add"), data={**FORM, "price": "many"}).text
    assert "must be a whole number" in page
    assert 'value="Old red lamp"' in page
    assert "A lamp of my aunt." in page


def test_photos_are_drawn_or_uploaded(site: Site, client: TestClient) -> None:
    drawn = client.get("/oc-content/uploads/250.png")
    assert drawn.content == client.get("/oc-content/uploads/250_thumbnail.png").content
    assert drawn.content.startswith(b"\x89PNG")
    upload = {"photo": ("blue-mug.png", upload_bytes("blue-mug.png"), "image/png")}
    client.post(path("page=item&action=item_edit&id=250"), data=FORM, files=upload)
    assert client.get("/oc-content/uploads/250.png").content == prepared(upload_bytes("blue-mug.png"))
    assert site.caption("/oc-content/uploads/250.png") == "blue mug"
    assert client.get("/oc-content/uploads/99999.png").status_code == 404


def test_captions_tell_what_the_photo_shows(site: Site) -> None:
    ad = Store(World()).listing(3)
    assert ad is not None
    told = site.caption("/oc-content/uploads/3.png")
    assert told is not None
    assert len(told) <= 60
    assert ad["colour"] in told
    assert ad["kind"].lower() in told
    assert (ad["pattern"] in told) == (ad["pattern"] != "plain")
    assert site.caption("/oc-content/uploads/3_thumbnail.png") in told
    assert site.caption("/static/doorstep.css") is None
    longest = max((site.caption(f"/oc-content/uploads/{ad.id}.png") or "" for ad in build_ads("test")), key=len)
    assert len(longest) <= 60


def test_every_kind_colour_and_pattern_looks_different() -> None:
    assert len({photo(kind, "red", "plain", "wall", "good") for kind in RECIPES}) == len(RECIPES)
    looks = [("red", "striped", "wall", "good"), ("blue", "striped", "wall", "good"), ("red", "dotted", "wall", "good")]
    looks += [
        ("red", "striped", "grass", "good"),
        ("red", "striped", "wall", "worn"),
        ("red", "striped", "wall", "new"),
    ]
    assert len({photo("Sofa", *look) for look in looks}) == len(looks)


def test_places_are_suggested(client: TestClient) -> None:
    assert client.get(path("page=ajax&action=location&term=o")).json() == ["Oakham"]
    assert client.get(path("page=ajax&action=location&term=")).json() == []


def test_paths_handed_in_stay_on_the_site() -> None:
    assert inside("/index.php?page=item&id=3", "/") == "/index.php?page=item&id=3"
    for elsewhere in ("http://x", "//x", "/\\x", ""):
        assert inside(elsewhere, "/home") == "/home"
    assert (money(2500), money(2550)) == ("$25", "$25.50")


def test_only_style_sheets_and_scripts_are_static(client: TestClient) -> None:
    assert client.get("/static/doorstep.css").headers["content-type"].startswith("text/css")
    for name in ("nothing.css", "__init__.py"):
        assert client.get(f"/static/{name}").status_code == 404


# With a browser


@pytest.fixture
def start(env: WebEnv, tmp_path: Path) -> Callable[[str], Observation]:
    def begin(query: str) -> Observation:
        data = {
            "sites": ["classifieds"],
            "task_id": "classifieds-check",
            "start_url": f"__CLASSIFIEDS__{path(query)}",
            "intent": "Look around.",
            "eval": {"eval_types": ["string_match"], "reference_answers": {"exact_match": "x"}},
            "agentkv": {"version": 1, "files": ["red-lamp.png"]},
        }
        file = tmp_path / "task.json"
        file.write_text(json.dumps(data))
        return env.reset(load_task_file(file)[0])

    return begin


def do(env: WebEnv, seen: Observation, *actions: str) -> Observation:
    for text in actions:
        result = env.step(resolve(parse_action(text).action, seen))
        assert result.error is None, (text, result.error)
        seen = result.observation
    return seen


@pytest.mark.browser
def test_the_map_is_a_frame_one_can_act_in(env: WebEnv, start: Callable[[str], Observation]) -> None:
    seen = start("page=item&id=3")
    assert "bus " not in seen.text
    seen = do(env, seen, 'click "Show Route"')
    assert re.search(r"Take bus \d+, \d+ minutes", seen.text)
    assert seen.title == "Harvest Winter Coat, S"


@pytest.mark.browser
def test_deleting_an_ad_asks_first(env: WebEnv, start: Callable[[str], Observation]) -> None:
    seen = do(env, start("page=item&id=250"), 'click "Delete Ad"')
    assert seen.dialog == 'confirm "Delete this ad for good?"'
    seen = do(env, seen, "dialog [dismiss]")
    assert seen.title == "Dune Kayak, 380 cm"
    seen = do(env, seen, 'click "Delete Ad"', "dialog [accept]")
    assert seen.alerts == ("Dune Kayak, 380 cm is deleted.",)


@pytest.mark.browser
def test_an_ad_is_posted_with_a_suggested_place_and_a_photo(env: WebEnv, start: Callable[[str], Observation]) -> None:
    seen = do(
        env,
        start("page=item&action=item_add"),
        'type "Title" [Old red lamp] [0]',
        'type "Price" [12] [0]',
        'select "Category" [Home and Garden]',
        'select "Condition" [worn]',
        'select "Pickup day" [Friday]',
        'type "Place" [oa] [1]',
        'click "Oakham"',
        'type "Description" [A lamp of my aunt.] [0]',
        'upload "Photo" [red-lamp.png]',
        'click "Publish Ad"',
    )
    assert seen.title == "Old red lamp"
    assert seen.alerts == ("Your ad is published.",)
    seen = do(env, seen, 'click "Edit Ad"')
    assert 'textbox "Place"' in seen.text
    assert "= Oakham" in seen.text


@pytest.mark.browser
def test_pages_are_short(env: WebEnv, start: Callable[[str], Observation], count_tokens: Callable[[str], int]) -> None:
    seen = start("")
    sizes = [count_tokens(seen.text)]
    for query in (*PUBLIC[1:], *PRIVATE, "page=item&id=250", "page=user&action=pub_profile&id=5"):
        seen = do(env, seen, f"goto [{path(query)}]")
        sizes.append(count_tokens(seen.text))
    assert max(sizes) <= 350
    assert sum(sizes) / len(sizes) <= 250
