"""The application: routes, limits of requests, headers, errors in one line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuparse.models.pipeline import Pipeline
from gpuparse.serve import api, inception, udpipe
from gpuparse.serve.engine import Engine
from gpuparse.serve.service import Service, version
from gpuparse.serve.settings import Refused, ServerLimits
from gpuparse.system.quote import shown

PAGE = Path(__file__).parent / "page"
FILES = {
    "index.html": "text/html",
    **{f"{name}.js": "text/javascript" for name in ("app", "work", "tree", "panel", "files", "keys")},
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_ABOUT = (
    "Dependency parsing as exact structured inference: parse, keep what is annotated and predict the rest, list the "
    "best trees with their probabilities. Errors are one line in `detail`."
)


def create_app(pipeline: Pipeline, limits: ServerLimits | None = None, name: str = "gpuparse") -> FastAPI:
    """The application that serves a pipeline, for any ASGI server (with one worker, as it has one parser).

    Args:
        limits: of requests.
        name: what the model is called.
    """
    service = Service(Engine(pipeline, limits or ServerLimits(), name))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.batcher.close()

    app = FastAPI(
        title="gpuparse",
        version=version(),
        description=_ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,  # pages that load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(api.router)
    app.include_router(udpipe.router)
    app.include_router(inception.router)
    for path, kind in FILES.items():
        _add_file(app, path, kind)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(_Guard, max_bytes=service.limits.max_bytes)
    return app


def _add_file(app: FastAPI, path: str, kind: str) -> None:
    """A file of the page, by its name; no other name reaches a file."""

    async def get() -> FileResponse:
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        return FileResponse(PAGE / path, media_type=f"{kind}; charset=utf-8", headers=headers)

    app.add_api_route("/" if path == "index.html" else f"/page/{path}", get, include_in_schema=False)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"detail": shown(error.detail, 1000)}, error.status, dict(error.headers))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = {404: "there is nothing here", 405: "no such method here"}.get(error.status_code, str(error.detail))
    return JSONResponse({"detail": shown(detail)}, error.status_code, dict(error.headers or {}))


async def _invalid(request: Request, error: Exception) -> Response:
    """The first thing that is wrong with a request."""
    assert isinstance(error, RequestValidationError)
    first, *more = error.errors()
    place = ".".join(str(part) for part in first["loc"][1:])
    what = str(first["msg"]).removeprefix("Value error, ")
    also = f" (and {len(more)} more)" if more else ""
    return JSONResponse({"detail": shown(f"{place or 'body'}: {what}{also}", 1000)}, 422)


class _Guard:
    """Reads no more of a request than it may have, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                have = {name.lower() for name, _ in message["headers"]}
                extra = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in have)]
            await send(message)

        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length[:12]) > self.max_bytes:
            await _refuse(answer, self.max_bytes)
            return
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":  # the client has gone
                return
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self.max_bytes:
                await _refuse(answer, self.max_bytes)
                return
        given = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def replay() -> Message:
            return given.pop() if given else await receive()

        await self.app(scope, replay, answer)


async def _refuse(send: Send, max_bytes: int) -> None:
    body = json.dumps({"detail": f"a request of more than {max_bytes:,} bytes"}).encode()
    headers: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
