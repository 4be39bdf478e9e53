"""The web server of a measured page.

It listens on loopback only and serves only the entries of its table. Every path begins with a secret, so no other page
or user of the machine can read a model, and no request body is read without it. Paths are looked up in the table and
never joined to a folder, so none can escape it.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarking.core.errors import BenchhouseError

LOOPBACK = "127.0.0.1"

MAX_CONNECTIONS = 64
"""Limit of connections; browsers open six per host."""

MAX_BODY_BYTES = 4 << 30
"""Limit of a body: the memory that WebAssembly can address."""

MAX_HEADER_BYTES = 16 << 10
"""Limit of a request's headers; a browser's have about 500 bytes."""

MAX_LENGTH_DIGITS = 20

REQUEST_LIMIT_S = 10.0
"""Time limit for a request's first line and headers, from the start of the connection."""

SILENCE_LIMIT_S = 60.0
"""Time limit for the next bytes of a body to be sent or received; a busy page needs seconds."""

CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".wasm": "application/wasm",
    ".json": "application/json",
}
"""Media types by suffix: browsers reject modules and WebAssembly with another type. Other suffixes are served as
bytes."""

BYTES = "application/octet-stream"

ISOLATION: Mapping[str, str] = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
"""The first two make the page cross-origin isolated. Without isolation there is no shared memory, hence no threads in
WebAssembly, and the page's clock is rounded to 100 us instead of 5."""


class Site:
    """The web server: files and arrays to fetch, and names to which the page may post an array."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._content: dict[str, Path | bytes] = {}
        self._posted: dict[str, bytes | None] = {}
        self._secret = secrets.token_urlsafe(16)
        self._server = _Server((LOOPBACK, 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        """Address and port."""
        return f"{LOOPBACK}:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The common prefix of all addresses of the site, with a trailing slash."""
        return f"http://{self.host}/{self._secret}/"

    def put(self, name: str, content: Path | bytes) -> None:
        """Serve a file (read at each request) or bytes under a name such as "ort/ort.wasm"."""
        with self._lock:
            self._content[name] = content

    def remove(self, name: str) -> None:
        """Stop serving a name."""
        with self._lock:
            self._content.pop(name, None)

    def expect(self, name: str) -> None:
        """Accept a post to a name; posts to other names are rejected."""
        with self._lock:
            self._posted[name] = None

    def take(self, name: str) -> bytes:
        """Remove and return the posted body. Raises BenchhouseError if there is none."""
        with self._lock:
            posted = self._posted.pop(name, None)
        if posted is None:
            raise BenchhouseError(f"the page did not send {name}")
        return posted

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def lookup(self, path: str) -> tuple[str, Path | bytes] | None:
        """The name and content that a request gets; None for a wrong secret or an unknown name."""
        name = self._name(path)
        with self._lock:
            content = self._content.get(name) if name else None
        return None if name is None or content is None else (name, content)

    def expected_name(self, path: str) -> str | None:
        """The name that a request may post to; None for a wrong secret or a name without an expected post."""
        name = self._name(path)
        with self._lock:
            return name if name in self._posted else None

    def store(self, name: str, body: bytes) -> None:
        """Keep a posted body for `take`."""
        with self._lock:
            self._posted[name] = body

    def _name(self, path: str) -> str | None:
        secret, _, name = path.partition("?")[0].removeprefix("/").partition("/")
        is_authorized = secrets.compare_digest(secret.encode(), self._secret.encode())
        return name if is_authorized and name else None


def content_type(name: str) -> str:
    """The media type of a name, by its suffix."""
    return CONTENT_TYPES.get(PurePosixPath(name).suffix, BYTES)


class _Server(ThreadingHTTPServer):
    """One thread per connection, up to `MAX_CONNECTIONS`; further connections are closed unread."""

    daemon_threads = True

    def __init__(self, *values: Any) -> None:
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(*values)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, *_: Any) -> None:
        """Print nothing: the page reports missing data itself."""


def _handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request of one connection. Method names are the standard library's.

        Until it has shown the secret, a request has `REQUEST_LIMIT_S` in total and its body is not read.
        """

        protocol_version = "HTTP/1.1"
        timeout = SILENCE_LIMIT_S

        def setup(self) -> None:
            super().setup()
            # With only a socket timeout, a client could send one byte at a time forever.
            self._limit = threading.Timer(REQUEST_LIMIT_S, self._disconnect)
            self._limit.daemon = True
            self._limit.start()

        def finish(self) -> None:
            self._limit.cancel()
            super().finish()

        def do_GET(self) -> None:
            entry = site.lookup(self.path) if self._is_allowed() else None
            if entry is None:
                return self._respond(HTTPStatus.NOT_FOUND)
            self._limit.cancel()
            name, content = entry
            if isinstance(content, bytes):
                self._respond(HTTPStatus.OK, content_type(name), len(content))
                self.wfile.write(content)
                return None
            with content.open("rb") as file:
                self._respond(HTTPStatus.OK, content_type(name), content.stat().st_size)
                shutil.copyfileobj(file, self.wfile, 1 << 20)
            return None

        def do_POST(self) -> None:
            name = site.expected_name(self.path) if self._is_allowed() else None
            length = self.headers.get("Content-Length", "")
            if name is None or not (length.isascii() and length.isdecimal()):
                return self._respond(HTTPStatus.NOT_FOUND)
            if len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_BODY_BYTES:
                return self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            self._limit.cancel()
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                return self._respond(HTTPStatus.BAD_REQUEST)
            site.store(name, body)
            return self._respond(HTTPStatus.NO_CONTENT)

        def log_message(self, format: str, *values: Any) -> None:
            """Print nothing: stderr is for errors."""

        def _is_allowed(self) -> bool:
            """Whether the request names this host (another site could make its name resolve to this address) and has
            small headers."""
            size = sum(len(name) + len(value) for name, value in self.headers.items())
            return self.headers.get("Host") == site.host and size <= MAX_HEADER_BYTES

        def _disconnect(self) -> None:
            with suppress(OSError):  # already closed
                self.connection.shutdown(socket.SHUT_RDWR)

        def _respond(self, status: HTTPStatus, kind: str = BYTES, length: int = 0) -> None:
            self.close_connection = True
            self.send_response(status)
            for name, value in {**ISOLATION, "Content-Type": kind, "Connection": "close"}.items():
                self.send_header(name, value)
            if status is not HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(length))
            self.end_headers()

    return Handler
