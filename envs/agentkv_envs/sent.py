"""Requests the pages of an episode make, as evaluators see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

_PART = re.compile(r'name="([^"]*)"(?P<file>[^\r\n]*filename=)?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n(.*?)\r\n--', re.S)


@dataclass(frozen=True)
class Sent:
    """One request of a page: its method, its whole address and the fields of its form."""

    method: str
    url: str
    form: Mapping[str, str]


def form_fields(body: bytes | None) -> dict[str, str]:
    """The fields of a form's body, url-encoded or multipart; contents of files are left out."""
    if not body:
        return {}
    text = body.decode("utf-8", "replace")
    if text.startswith("--"):
        return {m.group(1): "" if m.group("file") else m.group(3) for m in _PART.finditer(text)}
    return dict(parse_qsl(text, keep_blank_values=True))
