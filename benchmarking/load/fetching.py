"""Reads pages of a server under load: its health, what it says of itself, its metrics; and sends a single request."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from urllib.parse import urlsplit

from benchmarking.load.connections import Target

MAX_BYTES = 1 << 22
LIMIT_S = 2.0
"""How long reading a page may take."""


class ClosedError(ValueError):
    """The server closed the connection instead of answering."""


def fetch(target: Target, path: str, body: bytes | None = None, limit_s: float = LIMIT_S) -> tuple[int, str]:
    """The status and text of the response to GET, or with a body to POST; the text is empty unless it is complete.
    Redirects and proxies are not used, since the request contains the key. Raises OSError and ValueError."""
    parts = urlsplit(target.url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=target.ca_file)
        connection: HTTPConnection = HTTPSConnection(host, parts.port, timeout=limit_s, context=context)
    else:
        connection = HTTPConnection(host, parts.port, timeout=limit_s)
    connection.connect()
    # The socket's timeout applies to each read, and a server may send a byte at a time.
    begun_s, timer = time.monotonic(), threading.Timer(limit_s, _shut, [connection.sock])
    timer.start()
    try:
        headers = {**target.headers, "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request("GET" if body is None else "POST", path, body, headers)
        reply = connection.getresponse()
        text = reply.read(MAX_BYTES + 1)
        is_whole = not reply.length and len(text) <= MAX_BYTES
        return reply.status, text.decode("utf-8", "replace") if is_whole else ""
    except (RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
        if time.monotonic() - begun_s >= limit_s:  # the timer closed it
            raise TimeoutError(f"no answer within {limit_s:g} s") from error
        raise ClosedError("it closes the connection without an answer") from error
    except HTTPException as error:
        raise ValueError(f"no valid HTTP: {error!r}") from error
    finally:
        timer.cancel()
        connection.close()


def _shut(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
