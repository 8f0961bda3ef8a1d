"""What the framework serves: conveniences, the API description and its page, and every path that nobody has.

Invariant: whatever the framework refuses by itself comes in the closed error envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match

from pamspec_common.asgi import ASGIApp, Receive, Scope, Send
from pamspec_common.calls import Answer
from pamspec_common.contracts import openapi, sources
from pamspec_common.contracts.catalogues import OperationCatalogue
from pamspec_common.errors import InternalError, InvalidRequest
from pamspec_gateway.authentication import Guard
from pamspec_gateway.conveniences import endpoint, response
from pamspec_gateway.door import Load, Route, not_allowed, refused

_PAGE = Path(__file__).with_name("docs.html")
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_HEALTH = {
    "/healthz": "The process lives.",
    "/readyz": "Whether work is taken, and which part lags.",
    "/metrics": "Metrics in Prometheus form.",
}


def framework(catalogue: OperationCatalogue, routes: Mapping[str, Route], guard: Guard, load: Load) -> ASGIApp:
    """The application behind the operation door and the channels."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_url="/openapi.json",
        # The framework's own would export paths, queries and the messages of exceptions.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.openapi = description  # type: ignore[method-assign]
    for name, operation in catalogue.operations.items():
        if name not in routes:
            continue
        for convenience in operation.conveniences:
            app.add_api_route(
                convenience.path.replace("{operation_id}", "{operation_id:path}"),
                endpoint(convenience, routes[name], guard, load),
                methods=[convenience.method],
                response_model=None,
                include_in_schema=False,
            )
    app.add_api_route("/docs", _docs, methods=["GET"], response_model=None, include_in_schema=False)
    app.add_exception_handler(HTTPException, _refused_by_framework)
    app.add_exception_handler(Exception, _failed)
    return _Methods(app)


@cache
def description() -> dict[str, Any]:
    """The OpenAPI document: operations, conveniences and channels from the contracts, and the pages of health."""
    document = openapi.document(sources.load())
    for path, summary in _HEALTH.items():
        document["paths"][path] = {
            "get": {
                "summary": summary,
                "tags": ["health"],
                "security": [],
                "responses": {"200": {"description": summary}},
            }
        }
    return document


async def _docs() -> Response:
    return HTMLResponse(_PAGE.read_text(encoding="utf-8"), headers=_PAGE_HEADERS)


async def _refused_by_framework(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 400
    message = "No such path; /docs lists the operations." if status == 404 else "The request does not fit this path."
    return response(refused(InvalidRequest(message, status=status)))


async def _failed(request: Request, error: Exception) -> Response:
    return response(refused(InternalError()))


class _Methods:
    """HEAD wherever there is GET, OPTIONS everywhere, and 405 with all the methods that a path has."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _close_unknown(receive, send)
            return
        method = scope["method"]
        methods = self._methods(scope)
        if methods and (method == "OPTIONS" or method not in methods):
            answer: Answer = not_allowed(method, ", ".join(sorted(methods)))
            await response(answer)(scope, receive, send)
            return
        await self._app({**scope, "method": "GET"} if method == "HEAD" else scope, receive, send)

    def _methods(self, scope: Scope) -> set[str]:
        found: set[str] = set()
        for route in self._app.router.routes:
            if route.matches({**scope, "method": "GET"})[0] is not Match.NONE:
                found |= set(getattr(route, "methods", None) or ())
        return found | {"OPTIONS"} | ({"HEAD"} if "GET" in found else set()) if found else found


async def _close_unknown(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1008})
