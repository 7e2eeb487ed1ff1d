"""url_match: is the agent on the right page?"""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit


def match_url(url: str, reference: str, note: str, dialect: str) -> bool:
    """Whether `url` equals one of the alternatives (joined by " |OR| "), or holds one (`GOLD in PRED`).

    "official" compares the texts; "fixed" compares parsed addresses, so that the order of query parameters and
    percent-encoding do not matter, and `GOLD in PRED` must end at a boundary of the address.
    """
    alternatives = [_canonical(one) for one in reference.split(" |OR| ")]
    url = _canonical(url)
    if note == "GOLD in PRED":
        return any(_within(one, url, dialect) for one in alternatives)
    if dialect == "official":
        return url in alternatives
    return _parsed(url) in [_parsed(one) for one in alternatives]


def _canonical(url: str) -> str:
    return url.strip().replace("localhost", "127.0.0.1").removesuffix("/")


def _parsed(url: str) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
    parts = urlsplit(url)
    query = tuple(sorted(parse_qsl(parts.query, keep_blank_values=True)))
    return parts.scheme, parts.netloc.lower(), unquote(parts.path).rstrip("/"), query


def _within(reference: str, url: str, dialect: str) -> bool:
    start = url.find(reference)
    if dialect == "official" or start < 0:
        return start >= 0
    after = url[start + len(reference) :]
    return after[:1] in ("", "/", "?", "#", "&") or reference[-1:] in ("/", "?", "=", "&")
