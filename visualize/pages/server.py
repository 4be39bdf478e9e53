"""The web server of the pages: routes, access checks and response headers.

GET and HEAD change nothing. Forms that change the database use POST, with a token that only this server's pages contain
and with browser headers that name this server as their origin. Browsers run only this server's scripts
(Content-Security-Policy). Other sites can neither read a response nor trigger its computation, and requests whose
`Host` is not a name of this machine (DNS rebinding) are refused.
"""

from __future__ import annotations

import gzip
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarking.core.errors import BenchhouseError, LockedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from db.query.questions import STOPPER, Stopper
from visualize.pages.site import (
    STATIC,
    Action,
    Download,
    File,
    LiveSite,
    NotFoundError,
    View,
    actions,
    downloads,
    draw,
    parse,
    render,
    views,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from benchmarking.core.live_status import LiveSnapshot
    from visualize.pages.snapshot import Snapshots

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with "no-referrer", forms would have no origin
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
FOR_EVER = "public, max-age=31536000, immutable"
"""For static files, whose URLs change with their content."""
REVALIDATE = "no-cache"
"""For pages, so new results appear at once."""
MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
LEAST_ZIPPED = 500
COOKIE = "benchhouse_token"
TOKEN = "token"  # noqa: S105 - the name of a parameter
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
MOST_FORM_BYTES = 65_536
FORM_TOKEN = "form_token"  # noqa: S105 - the name of a field
FORM = "application/x-www-form-urlencoded"
AT_ONCE = 4
"""Maximum pages computed concurrently; further requests wait. DuckDB uses several cores for one page."""


CLIENT_CLOSED = 499
"""Status of a response that nobody receives, as in nginx."""
CONNECTION_CHECK_S = 0.2

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access rules."""

    names: Collection[str] = LOOPBACK_NAMES
    """Accepted names and addresses in `Host`, lower case."""
    any_address: bool = False
    """Whether any IP address is accepted in `Host`: DNS rebinding needs a name."""
    token: str | None = None
    """The token that viewers need, if any."""
    is_read_only: bool = False
    """Whether changes to the database are refused."""


def application(snapshots: Snapshots, access: Access, live_snapshot: Callable[[], LiveSnapshot]) -> ASGIApp:
    """The server's application; `live_snapshot` returns the commands running on this machine."""
    app = Starlette(
        routes=[
            Route("/static/{name:path}", _static),
            *(Route(download.path, _file_endpoint(download)) for download in downloads().values()),
            *(Route(view.path, _page_endpoint(view)) for view in views().values()),
            *(Route(action.path, _action_endpoint(action), methods=["POST"]) for action in actions().values()),
        ],
        middleware=[Middleware(GZipMiddleware, minimum_size=LEAST_ZIPPED, compresslevel=6)],
        exception_handlers={BenchhouseError: _error, 404: _error, 405: _not_allowed, Exception: _error},
    )
    app.state.snapshots = snapshots
    app.state.site = LiveSite(None if access.is_read_only else secrets.token_urlsafe(24))
    app.state.live_snapshot = live_snapshot
    app.state.limiter = CapacityLimiter(AT_ONCE)
    app.state.sql_limiter = CapacityLimiter(1)
    return Guard(app, access)


class Guard:
    """Checks requests and adds headers to responses."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", REVALIDATE)
            await send(message)

        answer = self._answer(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, with_headers)

    def _answer(self, request: Request) -> Response | None:
        """A refusal, or the redirect of a viewer with a valid token; None to continue."""
        host = request.headers.get("host", "")
        name = host_name(host)
        is_address = False
        if self._access.any_address:
            with suppress(ValueError):
                is_address = bool(ipaddress.ip_address(name))
        if name not in self._access.names and not is_address:
            return PlainTextResponse(
                f"{host[:200]!r} is not a name of this server: use its address, or start it with --host-name",
                HTTPStatus.MISDIRECTED_REQUEST,
            )
        if is_of_another_site(request.headers):
            return PlainTextResponse("requests from other sites are refused", HTTPStatus.FORBIDDEN)
        token = self._access.token
        if token is None:
            return None
        given = request.query_params.get(TOKEN)
        if given is not None and _equal(given, token):
            # Remove the token from the URL, since URLs are shared and stay in the browser's history.
            left = urlencode(
                [multi_item for multi_item in request.query_params.multi_items() if multi_item[0] != TOKEN]
            )
            path = "/" + request.url.path.lstrip("/")
            answer = RedirectResponse(f"{path}?{left}" if left else path, HTTPStatus.SEE_OTHER)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if _equal(request.cookies.get(COOKIE, ""), token) or _equal(bearer, token):
            return None
        return PlainTextResponse(
            "this server requires a token: open the address with ?token=... that the command printed",
            HTTPStatus.UNAUTHORIZED,
        )


def is_of_another_site(headers: Headers) -> bool:
    """Whether a page of another site or port sends the request, such as from a frame or as a prefetch, rather than a
    user following a link."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    is_followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return not is_followed or "sec-purpose" in headers or "purpose" in headers


def host_name(host: str) -> str:
    """The name or address in a `Host` header, without port and IPv6 brackets."""
    name = host.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if name.count(":") == 1 else name


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _page_endpoint(view: View[Any]) -> Callable[[Request], Any]:
    """Serves one view."""

    async def endpoint(request: Request) -> Response:
        parameters = _parameters(view, request)
        address = _site(request).url(view.name, parameters)
        given = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        runs_sql = view.runs_sql is not None and view.runs_sql(parameters)
        if runs_sql and request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _foreign_sql()
        is_part = request.headers.get("hx-request") == "true"
        if not is_part and any(not value for _, value in request.query_params.multi_items()):
            return RedirectResponse(address, HTTPStatus.SEE_OTHER)  # drop empty form fields: one URL per state
        if runs_sql:
            text = await _while_connected(request, lambda: _rendered(request, view, parameters))
            if text is None:
                return Response(status_code=CLIENT_CLOSED)
        else:
            limiter = request.app.state.limiter
            text = await anyio.to_thread.run_sync(_rendered, request, view, parameters, limiter=limiter)
        headers = {"HX-Push-Url": address} if is_part and address != given else {}
        return HTMLResponse(text, headers=headers)

    return endpoint


def _foreign_sql() -> Response:
    return PlainTextResponse(
        "a link of another site does not run SQL here: paste the address into the browser's address bar, "
        "if you trust the statement",
        HTTPStatus.FORBIDDEN,
    )


async def _while_connected(request: Request, work: Callable[[], T]) -> T | None:
    """The result of `work`, which runs SQL, in a slot of its own; None once the viewer has closed the connection, which
    ends the query or its wait for the slot."""
    stopper = Stopper()
    STOPPER.set(stopper)
    trouble: Exception | None = None

    async def watch() -> None:
        while not await request.is_disconnected():
            await anyio.sleep(CONNECTION_CHECK_S)
        stopper.stop()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        try:
            return await anyio.to_thread.run_sync(work, limiter=request.app.state.sql_limiter)
        except Exception as error:  # noqa: BLE001 - raised again outside the group, which would wrap it
            trouble = error
        finally:
            group.cancel_scope.cancel()
    if trouble is not None:
        raise trouble
    return None


def _rendered(request: Request, view: View[Any], parameters: Any) -> str:
    with _snapshots(request).reading(renewed=view.reads_warehouse) as data:
        return render(_site(request), view, replace(data, live_snapshot=request.app.state.live_snapshot), parameters)


def _action_endpoint(action: Action[Any]) -> Callable[[Request], Any]:
    """Makes one kind of change, then redirects to a page."""

    async def endpoint(request: Request) -> Response:
        site = _site(request)
        if site.form_token is None:
            return _refusal("this server was started with --read-only")
        if not is_from_here(request.headers):
            return _refusal("changes are accepted from this server's own pages only")
        fields = await _form(request)
        if not _equal(dict(fields).get(FORM_TOKEN, ""), site.form_token):
            return _refusal("the page was loaded before the server started: reload it and submit the form again")
        parameters = parse(action.parameters, [field for field in fields if field[0] != FORM_TOKEN])

        def act() -> None:
            with _snapshots(request).changing() as warehouse:
                action.act(warehouse, parameters)

        await anyio.to_thread.run_sync(act, limiter=request.app.state.limiter)
        link = action.next_page(parameters)
        return RedirectResponse(f"{site.url(link.view, link.parameters)}#{action.anchor}", HTTPStatus.SEE_OTHER)

    return endpoint


async def _form(request: Request) -> list[tuple[str, str]]:
    """The fields of a form. Raises UsageError."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise UsageError(f"expected a form ({FORM})")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise UsageError(f"a form has at most {MOST_FORM_BYTES} bytes")
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError as error:
        raise UsageError("the form is not valid") from error


def is_from_here(headers: Headers) -> bool:
    """Whether the browser's headers name this server as the origin of the form."""
    return headers.get("origin", "").partition("://")[2].lower() == headers.get("host", "").lower() != ""


def _refusal(reason: str) -> Response:
    return PlainTextResponse(f"nothing was changed: {reason}", HTTPStatus.FORBIDDEN)


def _site(request: Request) -> LiveSite:
    site: LiveSite = request.app.state.site
    return site


def _file_endpoint(download: Download[Any]) -> Callable[[Request], Any]:
    """Serves one kind of download in parts."""

    async def endpoint(request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _foreign_sql()
        parameters = _parameters(download, request)

        def opened() -> Iterator[Any]:
            """The file, then its parts; keeps the copy of the database until the end."""
            with _snapshots(request).reading() as data:
                found = download.file(data, parameters)
                yield found
                yield from found.parts

        parts = opened()
        file = await _while_connected(request, lambda: next(parts))
        if file is None:
            return Response(status_code=CLIENT_CLOSED)
        assert isinstance(file, File)
        headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
        return StreamingResponse(iterate_in_threadpool(parts), media_type=file.media_type, headers=headers)

    return endpoint


def _parameters(target: View[Any] | Download[Any], request: Request) -> Any:
    return parse(target.parameters, [*request.path_params.items(), *request.query_params.multi_items()])


def _snapshots(request: Request) -> Snapshots:
    snapshots: Snapshots = request.app.state.snapshots
    return snapshots


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in static_names():
        raise NotFoundError(f"no file {name}")
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    is_zipped = "gzip" in request.headers.get("accept-encoding", "")
    if is_zipped:
        headers["Content-Encoding"] = "gzip"
    media_type = MEDIA_TYPES["." + name.rpartition(".")[2]]
    return Response(_content(name, is_zipped=is_zipped), media_type=media_type, headers=headers)


@cache
def _content(name: str, *, is_zipped: bool) -> bytes:
    plain = (STATIC / name).read_bytes()
    return gzip.compress(plain, 9, mtime=0) if is_zipped else plain


@cache
def static_names() -> frozenset[str]:
    """Names of static files. Requested names are looked up here, never joined to a path."""
    found = (path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())
    return frozenset(name for name in found if "." + name.rpartition(".")[2] in MEDIA_TYPES)


def _error(request: Request, error: Exception) -> Response:
    """The page of an error. A bug's traceback goes to the server's stderr."""
    status, title, text = HTTPStatus.INTERNAL_SERVER_ERROR, "This page could not be rendered", str(error)
    if isinstance(error, UsageError):
        title = "Invalid address" if request.method != "POST" else "Nothing was changed"
        status = HTTPStatus.BAD_REQUEST
    elif isinstance(error, NotFoundError | HTTPException):
        status, title = HTTPStatus.NOT_FOUND, "Not found"
        text = str(error) if isinstance(error, NotFoundError) else f"no page {request.url.path}"
    elif isinstance(error, LockedError):  # another process has locked the database
        status, title = HTTPStatus.SERVICE_UNAVAILABLE, "Nothing was changed"
        holder = text.partition(" Run files are kept")[0]
        text = f"{holder} Go back and submit the form again once the database is free."
    elif not isinstance(error, BenchhouseError):
        text = f"{type(error).__name__}: this is a bug in benchhouse; the server's stderr has the traceback"
    return HTMLResponse(draw(_site(request), "error.html", title=title, text=text), status)


def _not_allowed(request: Request, error: Exception) -> Response:
    is_form = any(request.url.path == action.path for action in actions().values())
    methods = "only POST, from a form" if is_form else "only GET and HEAD"
    return PlainTextResponse(f"{request.method} is not for this address: {methods}", HTTPStatus.METHOD_NOT_ALLOWED)
