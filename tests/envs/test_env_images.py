"""page_image_query: pictures compared and asked about."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from env_pages import task_at
from PIL import Image, ImageDraw, ImageFilter

from agentkv_envs import Task, TaskError, WebEnv
from agentkv_envs.scoring.judges import Judges
from agentkv_envs.scoring.similarity import similarity


def picture(seed: int, size: tuple[int, int] = (120, 90)) -> Image.Image:
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for i in range(12):
        x, y = (seed * 37 + i * 29) % size[0], (seed * 53 + i * 31) % size[1]
        draw.ellipse([x, y, x + 25, y + 25], fill=((seed * 40 + i * 70) % 256, (i * 90) % 256, 60))
    return image


def test_similarity_is_that_of_the_reference_implementation() -> None:
    """The figures are those of scikit-image 0.26 on the same pictures, which the benchmark uses."""
    one = picture(1)
    assert similarity(one, one) == pytest.approx(1.0)
    assert similarity(one, picture(2)) == pytest.approx(SKIMAGE["other"], abs=1e-6)
    assert similarity(one, one.filter(ImageFilter.GaussianBlur(1))) == pytest.approx(SKIMAGE["blurred"], abs=1e-6)
    assert similarity(one, picture(1, (60, 45))) == pytest.approx(SKIMAGE["smaller"], abs=1e-6)
    assert similarity(Image.new("L", (2, 2)), Image.new("L", (3, 1), 255)) < 0.1


SKIMAGE = {"other": 0.400610144, "blurred": 0.874632561, "smaller": 0.260146066}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("gallery")
    picture(1).save(folder / "one.png")
    picture(1).save(folder / "one.jpg", quality=80)
    picture(2).save(folder / "two.png")
    (folder / "broken.png").write_bytes(b"\x89PNG broken")
    (folder / "index.html").write_text(
        "<title>Gallery</title><div class='item-photos'><img src='one.jpg'><img src='gone.png'></div>"
        "<img class='extra' src='two.png'><p class='empty'>nothing</p><div class='bad'><img src='broken.png'></div>"
    )

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def query(url: str = "last", selector: str = ".item-photos", **more: Any) -> dict[str, Any]:
    return {"eval_image_url": url, "eval_image_class": selector, **more}


@pytest.fixture
def scored(env: WebEnv, gallery: str) -> Callable[..., Any]:
    def score(*queries: dict[str, Any], judges: Judges | None = None, folder: str = "") -> Any:
        check = {"eval_types": ["page_image_query"], "page_image_query": list(queries)}
        task: Task = replace(task_at(f"{gallery}/index.html"), eval=check, folder=folder)
        env.reset(task)
        env.judges = judges
        try:
            return env.evaluate()
        finally:
            env.judges = None

    return score


@pytest.mark.browser
def test_pictures_are_compared(scored: Callable[..., Any], gallery: str, tmp_path: Path) -> None:
    like = f"{gallery}/one.png"
    assert scored(query(eval_fuzzy_image_match=like)).success is True
    assert scored(query(eval_fuzzy_image_match=f"{gallery}/two.png")).success is False
    assert scored(query(eval_fuzzy_image_match=f"{gallery}/two.png |OR| {like}")).success is True
    assert scored(query(selector=".extra", eval_fuzzy_image_match=like)).success is False
    assert scored(query(selector=".extra", eval_fuzzy_image_match=like, ssim_threshold=-1)).success is True
    assert scored(query(selector="", eval_fuzzy_image_match=f"{gallery}/two.png")).success is True
    other = query(url=f"{gallery}/index.html?x", eval_fuzzy_image_match=like)
    assert scored(other, query(eval_fuzzy_image_match=like)).success is True
    (tmp_path / "coco_images").mkdir()
    picture(1).save(tmp_path / "coco_images" / "1.png")
    assert scored(query(eval_fuzzy_image_match="coco_images/1.png"), folder=str(tmp_path)).success is True


@pytest.mark.browser
@pytest.mark.parametrize("selector", [".empty", ".bad", ".none"])
def test_no_picture_is_a_failure(scored: Callable[..., Any], gallery: str, selector: str) -> None:
    score = scored(query(selector=selector, eval_fuzzy_image_match=f"{gallery}/one.png"))
    assert score.success is False
    assert "query 0 found no picture" in score.note


@pytest.mark.browser
@pytest.mark.parametrize("source", ["{gallery}/gone.png", "{gallery}/broken.png", "no/such.png", "../one.png"])
def test_a_picture_to_compare_with_that_is_missing_is_named(
    scored: Callable[..., Any], gallery: str, tmp_path: Path, source: str
) -> None:
    (tmp_path / "inside").mkdir()
    picture(1).save(tmp_path / "one.png")  # outside the folder of the task: never read
    source = source.format(gallery=gallery)
    with pytest.raises(TaskError) as caught:
        scored(query(eval_fuzzy_image_match=source), folder=str(tmp_path / "inside"))
    assert f"eval_fuzzy_image_match: the picture {source} cannot be read" in str(caught.value)


@pytest.mark.browser
def test_questions_go_to_the_image_judge(scored: Callable[..., Any], gallery: str) -> None:
    ask = query(eval_vqa=[{"question": "Is it red? (yes/no)", "answer": "yes"}])
    unscored = scored(ask)
    assert (unscored.success, unscored.parts) == (None, {})
    assert "needs an image judge" in unscored.note
    seen: list[bytes] = []

    def judge(data: bytes, question: str) -> str:
        seen.append(data)
        return "Yes, it is." if "red" in question else "no"

    assert scored(ask, judges=Judges(image=judge)).success is True
    assert Image.open(io.BytesIO(seen[0])).size == (120, 90)
    no = query(eval_vqa=[{"question": "Is it blue?", "answer": "yes"}])
    assert scored(no, judges=Judges(image=judge)).success is False
    mismatch = query(eval_fuzzy_image_match=f"{gallery}/two.png")
    assert scored(ask, mismatch).success is False  # settled without the judge
