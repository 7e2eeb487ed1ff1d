"""Addresses of embedded sites. Their ports differ from episode to episode, what the agent sees of them must not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

# Public names under which the benchmark's prompts know the sites.
_ALIASES = {
    "onestopmarket.com": "shopping",
    "shopping.com": "shopping",
    "classifieds.com": "classifieds",
    "reddit.com": "forum",
    "wikipedia.org": "wiki",
    "homepage.com": "home",
}
_LOCAL = re.compile(r"127\.0\.0\.1:(\d+)")


def lasting(text: str, urls: Mapping[str, str]) -> str:
    """The text with the sites' names in place of their addresses: `http://shopping/deals/`.

    Args:
        text: anything that may hold addresses.
        urls: site name to address, such as http://127.0.0.1:40123.
    """
    names = {str(urlsplit(url).port): name for name, url in urls.items()}
    return _LOCAL.sub(lambda match: names.get(match[1], match[0]), text)


def wanted(text: str, here: str, urls: Mapping[str, str]) -> str:
    """The address an agent means.

    Args:
        text: as the agent writes it: whole, relative to the page it is on, or with a site's name as its host.
        here: the address of that page.
        urls: site name to address.
    """
    url = text.strip()
    host = re.match(r"(https?://)?(?:www\.)?([\w.-]+)", url)
    if host is not None:
        name = host[2].lower()
        site = _ALIASES.get(name, name if host[1] else "")
        if site in urls:
            url = urls[site] + url[host.end() :]
    # The browser resolves no names; the sites are known by their number only.
    url = re.sub(r"^(https?://)?localhost(?=[:/]|$)", "http://127.0.0.1", url)
    return urljoin(here, url)
