"""Screenshots made small enough to live inside the report."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

BUDGET_BYTES = 2_500_000
WIDTH = 480
QUALITY = 50


class ShotStore:
    """Thumbnails as JPEG data URIs; equal pictures are kept once, and all of them stay in a budget."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self.uris: list[str] = []
        self._left = budget_bytes
        self._known: dict[str, int] = {}

    def add(self, path: Path) -> int | None:
        """Index of the picture in `uris`; None if it cannot be read or the budget is used up."""
        try:
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            if digest in self._known:
                return self._known[digest]
            uri = _thumbnail(data)
        except OSError:  # also what Pillow raises for a file that is no picture
            return None
        if len(uri) > self._left:
            return None
        self._left -= len(uri)
        self.uris.append(uri)
        self._known[digest] = len(self.uris) - 1
        return self._known[digest]


def embed(store: ShotStore, episodes: Iterable[list[Path | None]]) -> list[list[int | None]]:
    """Embeds the first steps of all episodes before the second ones, so that a tight budget cuts every
    episode's tail and not the last episodes. Returns indices in the shape of the input."""
    paths = list(episodes)
    found: list[list[int | None]] = [[None] * len(steps) for steps in paths]
    for step in range(max((len(steps) for steps in paths), default=0)):
        for row, steps in enumerate(paths):
            path = steps[step] if step < len(steps) else None
            if path is not None:
                found[row][step] = store.add(path)
    return found


def _thumbnail(data: bytes) -> str:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image.thumbnail((WIDTH, 4 * WIDTH), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
