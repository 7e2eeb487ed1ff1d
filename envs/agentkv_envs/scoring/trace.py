"""http_trace: requests the pages made during the episode."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from agentkv_envs.scoring.text import clean
from agentkv_envs.sent import Sent

if TYPE_CHECKING:
    from agentkv_envs.scoring.case import Case


async def http_trace(case: Case) -> tuple[bool, str]:
    """Whether each wanted request was made as often as wanted, and a note on the first that was not."""
    for wanted in case.eval["http_trace"]:
        base = case.episode.urls.get(wanted.get("site", ""), "")
        made = sum(matches(sent, wanted, base, case.dialect) for sent in case.episode.sent)
        count = wanted.get("count")
        if (made == 0 and count != 0) or (count is not None and made != count):
            return False, f"{wanted.get('method', 'GET')} {wanted['path']} was sent {made} times"
    return True, ""


def matches(sent: Sent, wanted: Mapping[str, Any], base: str, dialect: str) -> bool:
    """Whether a request is the wanted one.

    Args:
        sent: the request.
        wanted: method (any when absent), path (a pattern with `*`, compared without the final slash), form (fields
            that must be among those sent, or in the query of the address).
        base: address of the site it must go to, "" for any.
        dialect: how the values of fields are compared.
    """
    parts = urlsplit(sent.url)
    fields = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **sent.form}
    return (
        wanted.get("method", sent.method).upper() == sent.method.upper()
        and (not base or f"{sent.url}/".startswith(f"{base}/"))
        and fnmatch.fnmatchcase(unquote(parts.path).rstrip("/"), wanted["path"].rstrip("/"))
        and all(
            name in fields and clean(fields[name], dialect) == clean(value, dialect)
            for name, value in wanted.get("form", {}).items()
        )
    )
