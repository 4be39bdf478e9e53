"""The little web server a page is measured on: loopback only, and nothing but what was put up is served.

Every address begins with a secret, so that no other page or user of the machine reads a model. Addresses are looked up
in a table and never joined to a folder: there is no path to climb out of.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarking.errors import BenchhouseError

LOOPBACK = "127.0.0.1"
CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".wasm": "application/wasm",
    ".json": "application/json",
}
"""A module or WebAssembly of another type is refused by browsers; what is not named here is bytes."""
BYTES = "application/octet-stream"

ISOLATION: Mapping[str, str] = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
"""The first two make the page cross-origin isolated: without it there is no shared memory, and so no threads of
WebAssembly, and the page's clock is rounded to 100 us instead of 5."""


class Site:
    """What is served, until it is closed: files and arrays to fetch, and places where the page may post an array."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._content: dict[str, Path | bytes] = {}
        self._posted: dict[str, bytes | None] = {}
        self._secret = secrets.token_urlsafe(16)
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        """Address and port."""
        return f"{LOOPBACK}:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """What every address of the site begins with; ends in a slash."""
        return f"http://{self.host}/{self._secret}/"

    def put(self, name: str, content: Path | bytes) -> None:
        """Serve a file (read when it is asked for) or bytes under a name such as "ort/ort.wasm"."""
        with self._lock:
            self._content[name] = content

    def remove(self, name: str) -> None:
        """Serve it no more."""
        with self._lock:
            self._content.pop(name, None)

    def expect(self, name: str) -> None:
        """Take what is posted to a name; anything else that is posted is refused."""
        with self._lock:
            self._posted[name] = None

    def take(self, name: str) -> bytes:
        """What was posted, which is forgotten then. Raises BenchhouseError when nothing was."""
        with self._lock:
            posted = self._posted.pop(name, None)
        if posted is None:
            raise BenchhouseError(f"the page did not send {name}")
        return posted

    def close(self) -> None:
        """Serve nothing any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _found(self, path: str) -> tuple[str, Path | bytes] | None:
        name = self._name(path)
        with self._lock:
            content = self._content.get(name) if name else None
        return None if name is None or content is None else (name, content)

    def _received(self, path: str, body: bytes) -> bool:
        name = self._name(path)
        with self._lock:
            if name is None or name not in self._posted:
                return False
            self._posted[name] = body
        return True

    def _name(self, path: str) -> str | None:
        secret, _, name = path.partition("?")[0].removeprefix("/").partition("/")
        is_ours = secrets.compare_digest(secret.encode(), self._secret.encode())
        return name if is_ours and name else None


def content_type(name: str) -> str:
    """The media type of a name, by its ending."""
    return CONTENT_TYPES.get(PurePosixPath(name).suffix, BYTES)


def _handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request. Names of methods are the standard library's."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = site._found(self.path) if self._is_for_us() else None
            if found is None:
                return self._answer(HTTPStatus.NOT_FOUND)
            name, content = found
            if isinstance(content, bytes):
                self._answer(HTTPStatus.OK, content_type(name), len(content))
                self.wfile.write(content)
                return None
            with content.open("rb") as file:
                self._answer(HTTPStatus.OK, content_type(name), content.stat().st_size)
                shutil.copyfileobj(file, self.wfile, 1 << 20)
            return None

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not self._is_for_us() or not length.isdecimal():
                self.close_connection = True
                return self._answer(HTTPStatus.NOT_FOUND)
            is_kept = site._received(self.path, self.rfile.read(int(length)))
            return self._answer(HTTPStatus.NO_CONTENT if is_kept else HTTPStatus.NOT_FOUND)

        def log_message(self, format: str, *values: Any) -> None:
            """Nothing is printed: stderr is for trouble."""

        def _is_for_us(self) -> bool:
            """Against pages elsewhere that let their own name point to this address."""
            return self.headers.get("Host") == site.host

        def _answer(self, status: HTTPStatus, kind: str = BYTES, length: int = 0) -> None:
            self.send_response(status)
            for name, value in {**ISOLATION, "Content-Type": kind}.items():
                self.send_header(name, value)
            if status is not HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(length))
            self.end_headers()

    return Handler
