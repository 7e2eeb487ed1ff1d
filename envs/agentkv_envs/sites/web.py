"""What the pages of all sites share: templates, static files, form reading, routes behind a sign-in."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

S = TypeVar("S")
Handler = Callable[[S, Request], Awaitable[Response]]
# Method, path, handler, and whether one must be signed in.
Entry = tuple[str, str, Handler[S], bool]
# The answer to a visitor who may not see a page (mostly the way to the sign-in form), None where all is well.
Guard = Callable[[S, Request], Response | None]

_TYPES = {".css": "text/css", ".js": "text/javascript"}
CACHED = {"cache-control": "max-age=3600"}


def money(cents: int) -> str:
    """`$25` or `$25.50`."""
    return f"${cents / 100:.2f}" if cents % 100 else f"${cents // 100}"


def to_int(text: str | None, default: int) -> int:
    """A whole number from a form or an address; `default` where the text is none."""
    try:
        return int((text or "").strip())
    except ValueError:
        return default


@functools.lru_cache(maxsize=16)
def templates(package: str) -> Environment:
    """The templates in a package's folder `templates`, with the filter `money`."""
    env = Environment(
        loader=PackageLoader(package, "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    env.filters["money"] = money
    return env


def render(package: str, template: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    """A page. It is never kept by the browser: what was shown once must not come back with `go_back`."""
    html = templates(package).get_template(template).render(values)
    return HTMLResponse(html, status, headers={"cache-control": "no-store"})


@functools.lru_cache(maxsize=32)
def _static_text(package: str, name: str) -> str | None:
    file = resources.files(package).joinpath("static", name)
    return file.read_text("utf-8") if file.is_file() else None


def static_file(package: str, name: str) -> Response:
    """A style sheet or script from a package's folder `static`.

    Raises:
        HTTPException: 404, there is none of that name.
    """
    kind = _TYPES.get(name[name.rfind(".") :])
    text = _static_text(package, name) if kind and "/" not in name else None
    if text is None:
        raise HTTPException(404)
    return Response(text, media_type=kind, headers=CACHED)


async def form_of(request: Request) -> dict[str, str]:
    """The texts of a posted form."""
    form = await request.form()
    return {key: value for key, value in form.items() if not isinstance(value, UploadFile)}


@dataclass(frozen=True)
class Upload:
    """An uploaded file; both are empty where none was chosen."""

    name: str = ""
    content: bytes = b""


async def upload_of(request: Request, field: str) -> Upload:
    """The file a posted form brings in `field`."""
    value = (await request.form()).get(field)
    return Upload(value.filename or "", await value.read()) if isinstance(value, UploadFile) else Upload()


def inside(path: str, default: str) -> str:
    """A path to go on to that was handed in by the browser, unless it leads to another site."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else default


def see(path: str) -> RedirectResponse:
    """Go on to a page after a form was posted."""
    return RedirectResponse(path, 303)


def guarded(site: S, handler: Handler[S], guard: Guard[S] | None) -> Callable[[Request], Awaitable[Response]]:
    """A handler as an endpoint of `site`."""

    async def run(request: Request) -> Response:
        refused = guard(site, request) if guard is not None else None
        return refused if refused is not None else await handler(site, request)

    return run


def application(site: S, entries: Sequence[Entry[S]], guard: Guard[S], missing: Handler[S]) -> Starlette:
    """The ASGI application of one episode's site; `missing` makes the page for an address that does not exist."""

    async def not_found(request: Request, error: Exception) -> Response:
        return await missing(site, request)

    routes = [
        Route(path, guarded(site, handler, guard if private else None), methods=[method])
        for method, path, handler, private in entries
    ]
    return Starlette(routes=routes, exception_handlers={404: not_found})
