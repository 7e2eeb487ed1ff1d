"""The HTTP side: it reads, queues, and writes; the model's thread does the rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from agentkv.chat.call import ChatCall, ChatRequest
from agentkv.chat.turns import with_tools
from agentkv.errors import AgentKVError
from agentkv.server.body import B, ChatBody, FileBody, ForkBody, TokenizeBody, parse
from agentkv.server.convert import chat_request, check_model, turns_of
from agentkv.server.errors import RETRY_AFTER, ApiError, Json, log_bug, problem, to_text
from agentkv.server.guard import Guard
from agentkv.server.inbox import ClientGone, Inbox, unless_gone
from agentkv.server.replies import Writer
from agentkv.server.running import Sent
from agentkv.server.saved import Sessions, read, write
from agentkv.server.scheduler import Scheduler
from agentkv.tools.calls import parse_tools
from agentkv.tools.constraint import ReplyConstraint

T = TypeVar("T")
_PING_SECONDS = 15
_CLIENT_GONE = 499
"""As nginx has it; nobody reads it but logs."""


def create_app(scheduler: Scheduler) -> FastAPI:
    """The application of a server; its life is that of the model's thread."""
    service = Service(scheduler)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        scheduler.start()
        yield
        await asyncio.to_thread(scheduler.stop)

    # Bodies are read by hand, so that FastAPI could not describe them.
    app = FastAPI(title="agentkv", version=version("agentkv"), openapi_url=None, lifespan=lifespan)
    app.add_middleware(Guard, settings=scheduler.settings)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _query_error)
    for kind in (AgentKVError, ClientGone, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _error)
    for method, path, endpoint in (
        ("POST", "/v1/chat/completions", service.chat),
        ("GET", "/v1/models", service.models),
        ("GET", "/v1/models/{name:path}", service.model),
        ("GET", "/health", service.health),
        ("GET", "/ready", service.ready),
        ("GET", "/metrics", service.metrics),
        ("POST", "/tokenize", service.tokenize),
        ("GET", "/v1/sessions", service.list_sessions),
        ("GET", "/v1/sessions/{name}", service.get_session),
        ("DELETE", "/v1/sessions/{name}", service.delete_session),
        ("POST", "/v1/sessions/{name}/save", service.save_session),
        ("POST", "/v1/sessions/{name}/restore", service.restore_session),
        ("POST", "/v1/sessions/{name}/fork", service.fork_session),
    ):
        app.add_api_route(path, endpoint, methods=[method], response_model=None)
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    """A path or method that there is not."""
    assert isinstance(error, HTTPException)
    return problem(ApiError(str(error.detail), error.status_code, headers=error.headers)).response()


async def _query_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return problem(ApiError(f"{place}: {first['msg']}", code="invalid_value", param=place)).response()


async def _error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientGone | ClientDisconnect):
        return Response(status_code=_CLIENT_GONE)
    log_bug(error)
    return problem(error).response()


class Service:
    """The endpoints."""

    def __init__(self, scheduler: Scheduler):
        self._scheduler = scheduler
        self._settings = scheduler.settings
        self._started = int(time.time())

    # --- replies ---

    async def chat(self, request: Request) -> Response:
        """Answer a conversation, as a whole or as a stream of events."""
        try:
            body, asked, constraint = await self._asked(request)
        except AgentKVError:
            self._scheduler.metrics.requests.labels("refused").inc()
            raise
        inbox = Inbox()
        call = self._scheduler.enqueue(asked, constraint, inbox.put)
        usage = bool(body.stream_options and body.stream_options.include_usage)
        writer = Writer(self._settings.model, self._scheduler.host.engine.tokenizer, usage)
        headers = {"X-AgentKV-Ignored": _header(body.ignored)} if body.ignored else {}
        try:
            first = await unless_gone(request, inbox.get())
            if body.stream:
                return self._stream(call, inbox, writer, first, headers)
            items = [first, *await unless_gone(request, _gathered(inbox))]
        except BaseException:
            call.cancel.set()
            raise
        return Json(writer.completion(items), headers=headers)

    async def _asked(self, request: Request) -> tuple[ChatBody, ChatRequest, ReplyConstraint | None]:
        body = await self._body(request, ChatBody)
        self._check_ready()
        host, header = self._scheduler.host, request.headers.get("x-session-id")
        asked = await asyncio.to_thread(chat_request, body, header, self._settings, host.engine.context_window)
        return body, asked, await asyncio.to_thread(host.constraint, asked)

    def _stream(
        self, call: ChatCall, inbox: Inbox, writer: Writer, first: Sent, headers: dict[str, str]
    ) -> EventSourceResponse:
        async def events() -> AsyncIterator[dict[str, str]]:
            try:
                for chunk in writer.chunks(first):
                    yield {"data": to_text(chunk)}
                async for item in inbox.rest():
                    for chunk in writer.chunks(item):
                        yield {"data": to_text(chunk)}
            except Exception as error:  # the status has been sent: the error is an event
                yield {"data": to_text(problem(error).body)}
            finally:
                call.cancel.set()
            yield {"data": "[DONE]"}

        async def gone(message: Any) -> None:
            call.cancel.set()

        return EventSourceResponse(
            events(), headers=headers, ping=_PING_SECONDS, sep="\n", client_close_handler_callable=gone
        )

    # --- the model and the server ---

    async def models(self) -> Response:
        """The one model, with what its sessions may take."""
        return Json({"object": "list", "data": [self._model()]})

    async def model(self, name: str) -> Response:
        """The model of that name."""
        check_model(name, self._settings)
        return Json(self._model())

    def _model(self) -> dict[str, Any]:
        settings = self._settings
        told: dict[str, Any] = {
            "id": settings.model,
            "object": "model",
            "created": self._started,
            "owned_by": "agentkv",
            "kv_policy": settings.policy,
            "kv_budget": settings.budget,
        }
        if self._scheduler.ready:
            engine = self._scheduler.host.engine
            pool = engine.arena.pages * engine.layout.page_bytes
            told |= {"max_model_len": engine.context_window, "kv_pool_bytes": pool}
        return told

    async def health(self) -> Response:
        """The server runs."""
        return Json({"status": "ok"})

    async def ready(self) -> Response:
        """The model is loaded."""
        self._check_ready()
        return Json({"status": "ready"})

    async def metrics(self) -> Response:
        """For Prometheus."""
        return Response(self._scheduler.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a text, or of the prompt that a conversation becomes."""
        body = await self._body(request, TokenizeBody)
        self._check_ready()
        ids = await asyncio.to_thread(self._token_ids, body)
        limit = self._scheduler.host.engine.context_window
        return Json({"tokens": ids, "count": len(ids), "max_model_len": limit})

    def _token_ids(self, body: TokenizeBody) -> list[int]:
        check_model(body.model, self._settings)
        template = self._scheduler.host.template
        if (body.text is None) == (body.messages is None):
            raise ApiError("tokenize takes a text or messages", param="text")
        if body.text is not None:
            return template.encode(body.text)
        tools = parse_tools(body.tools or ())
        return template.prompt(with_tools(turns_of(body.messages or ()), tools, template.dialect), tools).ids

    # --- sessions ---

    async def list_sessions(self) -> Response:
        """Every live or saved session."""
        return Json({"object": "list", "data": await self._on_thread(lambda sessions: sessions.list())})

    async def get_session(self, name: str, explain: bool = False) -> Response:
        """One session; with ?explain=true, the text its cache still holds."""
        return Json(await self._on_thread(lambda sessions: sessions.get(name, explain)))

    async def delete_session(self, name: str) -> Response:
        """Close a session and remove its file."""
        await self._on_thread(lambda sessions: sessions.delete(name))
        return Json({"id": name, "object": "session", "deleted": True})

    async def save_session(self, name: str, request: Request) -> Response:
        """Write a session to a file of its name, or of another."""
        body = await self._body(request, FileBody)
        file = body.name or name
        packed = await self._on_thread(lambda sessions: sessions.pack(name))
        # Written on another thread, so that no reply waits for the disk.
        size = await asyncio.to_thread(write, self._settings, file, packed)
        told = await self._on_thread(lambda sessions: sessions.get(name, False))
        return Json(told | {"name": file, "file_bytes": size})

    async def restore_session(self, name: str, request: Request) -> Response:
        """Open a session from a file, in place of one of its name."""
        body = await self._body(request, FileBody)
        self._check_ready()
        packed = await asyncio.to_thread(read, self._scheduler.host, self._settings, body.name or name)
        return Json(await self._on_thread(lambda sessions: sessions.restore(name, packed)))

    async def fork_session(self, name: str, request: Request) -> Response:
        """Copy a session under another name."""
        body = await self._body(request, ForkBody)
        return Json(await self._on_thread(lambda sessions: sessions.fork(name, body.to)))

    # --- helpers ---

    async def _on_thread(self, act: Callable[[Sessions], T]) -> T:
        self._check_ready()
        sessions = Sessions(self._scheduler.host, self._settings)
        return await asyncio.wrap_future(self._scheduler.submit(act, sessions))

    def _check_ready(self) -> None:
        if not self._scheduler.ready:
            raise ApiError("the model is being loaded", 503, "loading", headers=RETRY_AFTER)

    async def _body(self, request: Request, kind: type[B]) -> B:
        kind_sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        raw = await self._read(request)
        # A form can be sent from any web page without asking; JSON cannot.
        if raw and kind_sent != "application/json":
            raise ApiError("the body must be application/json", 415, "unsupported_media_type")
        return await asyncio.to_thread(parse, raw or b"{}", kind)

    async def _read(self, request: Request) -> bytes:
        raw, limit = bytearray(), self._settings.max_body_bytes
        async for part in request.stream():
            raw += part
            if len(raw) > limit:
                raise ApiError(f"the request is longer than {limit} bytes", 413, "request_too_large")
        return bytes(raw)


async def _gathered(inbox: Inbox) -> list[Sent]:
    return [item async for item in inbox.rest()]


def _header(names: list[str]) -> str:
    """Names of fields, as far as a header can hold them."""
    plain = ("".join(char for char in name if char.isascii() and char.isprintable())[:40] for name in names[:20])
    return ", ".join(plain)
