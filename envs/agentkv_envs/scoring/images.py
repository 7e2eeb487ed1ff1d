"""page_image_query: pictures on a page, compared with others or asked about."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Sequence
from typing import Any

from PIL import Image
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from agentkv_envs.errors import TaskError
from agentkv_envs.scoring.case import Case
from agentkv_envs.scoring.similarity import similarity
from agentkv_envs.scoring.text import Unscored, includes
from agentkv_envs.tasks.files import below

_THRESHOLD = 0.8
_SOURCES = """selector => [...document.querySelectorAll(selector || "img")]
    .flatMap(e => e.tagName === "IMG" ? [e] : [...e.querySelectorAll("img")]).map(e => e.src)"""


async def page_image_query(case: Case) -> tuple[bool, str]:
    """Whether the pictures are as asked; "official" lets only the last query count.

    Raises:
        Unscored: nothing fails, but a question needs an image judge.
        TaskError: a picture to compare with cannot be read.
    """
    unsure: Unscored | None = None
    verdict = (True, "")
    for i, query in enumerate(case.eval["page_image_query"]):
        found = await _pictures(case, query)
        if not found:
            return False, f"query {i} found no picture"
        try:
            passed = await _similar(case, query, found, i) and await _answers(case, query, found)
        except Unscored as reason:
            unsure = reason
            continue
        verdict = (passed, "" if passed else f"query {i} does not hold")
        if not passed and case.dialect == "fixed":
            return verdict
    if unsure is not None and verdict[0]:
        raise unsure
    return verdict


async def _pictures(case: Case, query: dict[str, Any]) -> list[bytes]:
    """The pictures the query is about; those that do not load are left out."""
    async with case.page_at(str(query["eval_image_url"])) as page:
        if page is None:
            return []
        try:
            sources = await page.evaluate(_SOURCES, query.get("eval_image_class", "").strip())
        except PlaywrightError:
            return []
        loaded = [await _fetch(page, source) for source in dict.fromkeys(sources)]
    return [data for data in loaded if data is not None and _open(data) is not None]


async def _fetch(page: Page, url: str) -> bytes | None:
    try:
        answer = await page.context.request.get(url, timeout=20_000)
        return await answer.body() if answer.ok else None
    except PlaywrightError:
        return None


def _open(data: bytes) -> Image.Image | None:
    try:
        picture = Image.open(io.BytesIO(data))
        picture.load()
        return picture
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None


async def _answers(case: Case, query: dict[str, Any], found: Sequence[bytes]) -> bool:
    """Every question must be answered right on some picture."""
    for question in query.get("eval_vqa", ()):
        answers = [await asyncio.to_thread(case.judges.look, data, question["question"]) for data in found]
        if not any(_says(answer, question["answer"], case.dialect) for answer in answers):
            return False
    return True


def _says(answer: str, wanted: str, dialect: str) -> bool:
    return wanted.lower() in answer.lower() if dialect == "official" else includes(answer, wanted, dialect)


async def _similar(case: Case, query: dict[str, Any], found: Sequence[bytes], index: int) -> bool:
    """Some picture must resemble some alternative."""
    wanted = query.get("eval_fuzzy_image_match")
    if wanted is None:
        return True
    references = [one for source in wanted.split(" |OR| ") if (one := await _reference(case, source)) is not None]
    if not references:
        field = f"eval.page_image_query[{index}].eval_fuzzy_image_match"
        raise TaskError(case.task.task_id, field, f"the picture {wanted} cannot be read")
    limit = float(query.get("ssim_threshold", _THRESHOLD))
    return await asyncio.to_thread(_any_similar, found, references, limit)


async def _reference(case: Case, source: str) -> bytes | None:
    if re.match(r"https?://", source):
        data = await _fetch(case.episode.page(), source)
    else:
        file = below(case.task.folder, source)
        data = file.read_bytes() if file is not None else None
    return data if data is not None and _open(data) is not None else None


def _any_similar(found: Sequence[bytes], references: Sequence[bytes], limit: float) -> bool:
    pictures = [(_open(one), _open(other)) for one in found for other in references]
    return any(one is not None and other is not None and similarity(one, other) > limit for one, other in pictures)
