"""Real hosts of the benchmark: their addresses, whether they answer, signing in, setting them back.

Addresses come from the benchmark's own environment variables, with or without the prefix `VWA_`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.async_api import Browser, BrowserContext, Locator, Page, StorageState
from playwright.async_api import Error as PlaywrightError

from agentkv_envs.errors import EnvError, InfraError, TaskError
from agentkv_envs.tasks.files import below
from agentkv_envs.types import Task

Environ = Mapping[str, str]
_REACH_S, _PAGE_MS, _RESET_S = 10.0, 20_000, 900.0


@dataclass(frozen=True)
class Form:
    """How to sign in to a site, and how to tell that one is.

    Attributes:
        page: the form, below the site's address.
        user: label, or selector with #, of the field for the account's name.
        password: the same for the password.
        button: name of the button.
        members: a page for members only; `{user}` stands for the account's name.
        sign: a text only that page has; when it is empty, the address must stay.
        account: name and password of the benchmark's public test account.
    """

    page: str
    user: str
    password: str
    button: str
    members: str
    sign: str
    account: tuple[str, str]


FORMS = {
    "classifieds": Form(
        "/index.php?page=login",
        "#email",
        "#password",
        "Log in",
        "/index.php?page=user&action=items",
        "My listings",
        ("blake.sullivan@gmail.com", "Password.123"),
    ),
    "reddit": Form(
        "/login",
        "Username",
        "Password",
        "Log in",
        "/user/{user}/account",
        "Delete",
        ("MarvelsGrantMan136", "test1234"),
    ),
    "shopping": Form(
        "/customer/account/login/",
        "Email",
        "Password",
        "Sign In",
        "/wishlist/",
        "",
        ("emma.lopez@gmail.com", "Password.123"),
    ),
}
HOST_NAMES = ("classifieds", "reddit", "shopping", "wikipedia", "homepage")


def variable(name: str, environ: Environ = os.environ) -> str:
    """The value of a variable or of its twin with the prefix `VWA_`; "" when neither is set."""
    return environ.get(name, "").strip() or environ.get(f"VWA_{name}", "").strip()


def addresses(environ: Environ = os.environ) -> dict[str, str]:
    """Site name to address, without a final slash, of those that are set.

    Raises:
        EnvError: one is not an address.
    """
    found = {name: variable(name.upper(), environ).rstrip("/") for name in HOST_NAMES}
    for name, url in found.items():
        if url and not _is_address(url):
            raise EnvError(f"{name.upper()}={url} is not an address; write it as http://HOST:PORT")
    return {name: url for name, url in found.items() if url}


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half a bracket, a port above 65535
        return False


def host_names() -> frozenset[str]:
    """Names of the machines that the addresses stand for."""
    return frozenset(str(urlsplit(url).hostname) for url in addresses().values())


def needed(tasks: Iterable[Task]) -> tuple[str, ...]:
    """The sites that tasks on real hosts need: those they name, and those whose placeholders they hold."""
    names: set[str] = set()
    for task in tasks:
        if task.external:
            text = f"{task.start_url} {task.eval} {task.images}"
            names |= {name for name in HOST_NAMES if name in task.sites or f"__{name.upper()}__" in text}
    return tuple(name for name in HOST_NAMES if name in names)


def require(tasks: Sequence[Task], environ: Environ = os.environ) -> tuple[str, ...]:
    """Check that every site the tasks need has an address. Returns notes about what else is not set.

    Raises:
        EnvError: lists the variables that are missing.
    """
    known = addresses(environ)
    missing = [name.upper() for name in needed(tasks) if name not in known]
    if missing:
        have = ", ".join(name.upper() for name in known)
        state = f"set are only {have}" if have else "none is set"
        raise EnvError(
            f"the addresses of the benchmark's sites are missing: {', '.join(missing)} ({state});"
            " set each to http://HOST:PORT, with or without the prefix VWA_"
        )
    return tuple(_reset_notes(tasks, environ))


_RESET_VARIABLES = {
    "classifieds": "CLASSIFIEDS_RESET_TOKEN",
    "reddit": "REDDIT_RESET_URL",
    "shopping": "SHOPPING_RESET_CMD",
}


def _reset_notes(tasks: Sequence[Task], environ: Environ) -> Iterable[str]:
    for name, hook in _RESET_VARIABLES.items():
        count = sum(task.external and wants_reset(task) and name in task.sites for task in tasks)
        if count and not variable(hook, environ):
            yield f"{count} tasks ask for a fresh {name}, but {hook} is not set: they run on whatever is there"


def wants_reset(task: Task) -> bool:
    """Whether the task asks for fresh data."""
    return bool(task.raw.get("require_reset"))


# Reaching and resetting


async def unreachable(urls: Mapping[str, str], transport: httpx.AsyncBaseTransport | None = None) -> dict[str, str]:
    """The sites that do not answer, with the reason."""

    async def ask(url: str) -> str:
        try:
            async with httpx.AsyncClient(transport=transport, timeout=_REACH_S) as client:
                answer = await client.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return str(error) or type(error).__name__
        return f"HTTP {answer.status_code}" if answer.status_code >= 500 else ""

    reasons = await asyncio.gather(*(ask(url) for url in urls.values()))
    return {name: reason for name, reason in zip(urls, reasons, strict=True) if reason}


async def preflight(tasks: Sequence[Task], browser: Browser, logins: Logins) -> list[str]:
    """Hosts that do not answer and sign-ins that fail, one line each.

    Raises:
        EnvError: none of the hosts answers.
    """
    known = addresses()
    urls = {name: known[name] for name in needed(tasks)}
    gone = await unreachable(urls)
    notes = [f"{name} at {urls[name]} does not answer: {reason}" for name, reason in gone.items()]
    if gone and len(gone) == len(urls):
        raise EnvError("; ".join(notes))
    for sites in sorted({login_sites(task) for task in tasks if task.external}):
        if not set(sites) & set(gone):
            try:
                await logins.state(browser, known, sites)
            except InfraError as error:
                notes.append(str(error))
    return notes


async def reset(
    task: Task,
    urls: Mapping[str, str],
    environ: Environ = os.environ,
    transport: httpx.AsyncBaseTransport | None = None,
) -> None:
    """Set the task's sites back where it asks for that and there is a hook.

    Classifieds gets its reset token posted, REDDIT_RESET_URL is posted to, SHOPPING_RESET_CMD is run (without a shell).

    Raises:
        InfraError: a hook failed.
    """
    if not wants_reset(task):
        return
    hooks = {name: variable(hook, environ) for name, hook in _RESET_VARIABLES.items() if name in task.sites}
    if hooks.get("classifieds"):
        form = {"token": hooks["classifieds"]}
        await _post(f"{urls['classifieds']}/index.php?page=reset", form, "classifieds", transport)
    if hooks.get("reddit"):
        await _post(hooks["reddit"], {}, "reddit", transport)
    if hooks.get("shopping"):
        await _run(hooks["shopping"])


async def _post(url: str, form: dict[str, str], site: str, transport: httpx.AsyncBaseTransport | None) -> None:
    try:
        async with httpx.AsyncClient(transport=transport, timeout=_RESET_S) as client:
            (await client.post(url, data=form)).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InfraError(f"{site} could not be reset: {error or type(error).__name__}") from None


async def _run(command: str) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
    except (OSError, ValueError) as error:
        raise InfraError(f"SHOPPING_RESET_CMD does not run: {error}") from None
    try:
        _, errors = await asyncio.wait_for(process.communicate(), _RESET_S)
    except TimeoutError:
        raise InfraError(f"SHOPPING_RESET_CMD took longer than {_RESET_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise InfraError(f"SHOPPING_RESET_CMD ended with {process.returncode}: {last}")


# Signing in


def login_sites(task: Task) -> tuple[str, ...]:
    """The sites to sign in to: those its `storage_state` names ("./.auth/reddit_state.json"), as in the benchmark."""
    state = task.raw.get("storage_state")
    named = str(state).rpartition("/")[2].removesuffix("_state.json").split(".") if state else []
    return tuple(name for name in named if name in FORMS)


def account(name: str, environ: Environ = os.environ) -> tuple[str, str]:
    """Name and password for a site: `SHOPPING_USER` and `SHOPPING_PASSWORD`, or the benchmark's test account."""
    user, password = FORMS[name].account
    return variable(f"{name.upper()}_USER", environ) or user, variable(f"{name.upper()}_PASSWORD", environ) or password


class Logins:
    """Sign-ins of one browser; a session that has expired is renewed."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, ...], StorageState] = {}

    async def state(self, browser: Browser, urls: Mapping[str, str], sites: tuple[str, ...]) -> StorageState | None:
        """The cookies of a browser context that is signed in to the sites; None when there is nothing to sign in to.

        Raises:
            InfraError: a site does not answer, or refuses.
        """
        if not sites:
            return None
        known = self._states.get(sites)
        context = await browser.new_context(storage_state=known) if known else await browser.new_context()
        try:
            page = await context.new_page()
            for name in sites:
                await _ensure(page, name, urls[name])
            self._states[sites] = await context.storage_state()
        finally:
            with contextlib.suppress(PlaywrightError):
                await context.close()
        return self._states[sites]


async def _ensure(page: Page, name: str, url: str) -> None:
    user, password = account(name)
    form = FORMS[name]
    try:
        if await _signed_in(page, form, url, user):
            return
        await _goto(page, url + form.page)
        await _field(page, form.user).fill(user, timeout=_PAGE_MS)
        await _field(page, form.password).fill(password, timeout=_PAGE_MS)
        async with page.expect_navigation(wait_until="load", timeout=_PAGE_MS):
            await page.get_by_role("button", name=form.button, exact=True).first.click(timeout=_PAGE_MS)
        if await _signed_in(page, form, url, user):
            return
    except PlaywrightError as error:
        raise InfraError(f"signing in to {name} at {url} failed: {str(error).strip().splitlines()[0]}") from None
    raise InfraError(f"{name} at {url} does not accept the account {user}; set {name.upper()}_USER and _PASSWORD")


def _field(page: Page, name: str) -> Locator:
    return (page.locator(name) if name.startswith("#") else page.get_by_label(name, exact=True)).first


async def _signed_in(page: Page, form: Form, url: str, user: str) -> bool:
    members = url + form.members.format(user=user)
    await _goto(page, members)
    if form.sign:
        return form.sign in await page.content()
    return page.url.rstrip("/") == members.rstrip("/")


async def _goto(page: Page, url: str) -> Any:
    return await page.goto(url, wait_until="load", timeout=_PAGE_MS)


# Pictures of the goal


async def check_images(task: Task, known: Mapping[str, str], context: BrowserContext) -> None:
    """Make sure that the pictures of the task's intent are there.

    Args:
        known: site name to address, for the placeholders of the pictures' addresses.

    Raises:
        TaskError: names those that are not.
    """
    sources = [_filled(source, known) for source in task.images]
    gone = [source for source in sources if not await _is_there(source, task.folder, context)]
    if gone:
        raise TaskError(task.task_id, "image", f"cannot be read: {', '.join(gone)}")


def _filled(source: str, known: Mapping[str, str]) -> str:
    for name, url in known.items():
        source = source.replace(f"__{name.upper()}__", url)
    return source


async def _is_there(source: str, folder: str, context: BrowserContext) -> bool:
    if not source.startswith(("http://", "https://")):
        return below(folder, source) is not None
    try:
        return (await context.request.get(source, timeout=_PAGE_MS)).ok
    except PlaywrightError:
        return False
