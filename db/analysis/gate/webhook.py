"""Sends new alerts to the user's webhook as JSON.

The address is a secret, since anyone who has it can post there: it comes from the environment, and never appears in a
message, file or database. Only https or a server on this machine is accepted, and redirects are not followed, since
either could disclose the message. A failed delivery is reported, but never fails the gate.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarking.core.argument_types import is_loopback
from benchmarking.core.command_line import note
from benchmarking.core.records import Json
from benchmarking.core.text import counted, first_few, visible

ADDRESS = "BENCHHOUSE_WEBHOOK_URL"
ANY_SCHEME = "BENCHHOUSE_WEBHOOK_ALLOW_HTTP"
"""Environment variable that allows http to other machines if set to 1."""
LIMIT_S = 20.0
"""Time limit of all attempts together."""
ATTEMPT_S = 5.0
ATTEMPTS = 4
FIRST_WAIT_S = 0.5
"""Wait before the second attempt; doubled for each further one."""
TOO_MANY = 429
MAX_NAME = 200
MENTIONS = re.compile(r"[@<`]|(?<=\])(?=\()|:(?=//|(?:[a-z]|[+-]1)[\w+-]*:)|(?<=www)\.", re.IGNORECASE)
ZERO_WIDTH_SPACE = "\u200b"


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def notify(command: str, rows: Sequence[Mapping[str, Json]]) -> None:
    """Send these alerts to the address in the environment, if there is one; a failure is a note on stderr."""
    address = os.environ.get(ADDRESS, "").strip()
    if not address or not rows:
        return
    problem = why_not_usable(address) or send(document(rows), address)
    if problem is not None:
        note(f"{command}: webhook: {problem}; the alerts are stored anyway (benchhouse alert list)")


def document(rows: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The message: the alerts as `benchhouse alert list --json` prints them, and a line of text for chats."""
    names = [_quiet(f"{row.get('model_id')} {row.get('runtime')} {row.get('metric')}") for row in rows]
    alerts: list[Json] = [dict(row) for row in rows]
    text = f"benchhouse: {counted(len(rows), 'new alert')}: {first_few(names, 5)}"
    return {"event": "alerts", "text": text, "alerts": alerts}


def _quiet(name: str) -> str:
    """A name from the data as a chat shows it, in which nothing mentions or links: `<!channel>`, `@all`, `[a](b)`."""
    return MENTIONS.sub(lambda found: f"{found[0]}{ZERO_WIDTH_SPACE}", visible(name[:MAX_NAME]))


def why_not_usable(address: str) -> str | None:
    """Why the address is rejected, without naming it; None if it is usable."""
    try:
        parts = urlsplit(address)
        host, user, _ = parts.hostname, parts.username, parts.port
    except ValueError:
        return f"${ADDRESS} is not a URL"
    if parts.scheme not in ("http", "https") or not host:
        return f"${ADDRESS} is not a URL that starts with https://"
    if user is not None or not address.isprintable() or " " in address:
        return f"${ADDRESS} contains a user name or a space: put the secret into the path or the query"
    if parts.scheme == "http" and not is_loopback(host) and os.environ.get(ANY_SCHEME) != "1":
        return f"${ADDRESS} is unencrypted http to another machine: use https, or set {ANY_SCHEME}=1"
    return None


def send(
    message: Mapping[str, Json], address: str, *, limit_s: float = LIMIT_S, first_wait_s: float = FIRST_WAIT_S
) -> str | None:
    """Post the message; returns why it was not delivered, or None on success.

    It is sent again after a 5xx or 429 response, and without a response. It runs in its own thread, since a server that
    responds byte by byte would hold it longer than the limit.
    """
    problem: list[str | None] = [f"no answer within {limit_s:g} s"]
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")

    def attempts() -> None:
        end_s, wait_s = time.monotonic() + limit_s, first_wait_s
        for _ in range(ATTEMPTS):
            reason, is_final, retry_after_s = _attempt(body, address, min(ATTEMPT_S, end_s - time.monotonic()))
            pause_s = max(wait_s, retry_after_s)
            if is_final or time.monotonic() + pause_s >= end_s:
                break
            time.sleep(pause_s)
            wait_s *= 2
        problem[0] = reason

    thread = threading.Thread(target=attempts, daemon=True)
    thread.start()
    thread.join(limit_s)
    return problem[0]


def _attempt(body: bytes, address: str, timeout_s: float) -> tuple[str | None, bool, float]:
    """Why it failed (None on success), whether retrying is pointless, and the Retry-After of the server in seconds.

    Errors are named by type only: their text may contain the address.
    """
    headers = {"Content-Type": "application/json", "User-Agent": "benchhouse"}
    request = urllib.request.Request(address, data=body, headers=headers, method="POST")  # noqa: S310 - http(s), checked
    handlers: list[Any] = [_NoRedirection]
    if is_loopback(urlsplit(address).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=max(timeout_s, 0.1)):
            return None, True, 0.0
    except urllib.error.HTTPError as error:
        with error:
            if 300 <= error.code < 400:
                return f"the server answered {error.code}: redirects are not followed", True, 0.0
            is_transient = error.code >= 500 or error.code == TOO_MANY
            text = error.headers.get("Retry-After")
            return (
                f"the server answered {error.code}",
                not is_transient,
                (float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 6 else 0.0),
            )
    except urllib.error.URLError as error:
        return f"no connection ({type(error.reason).__name__})", False, 0.0
    except (OSError, HTTPException, ValueError) as error:
        return f"no connection ({type(error).__name__})", False, 0.0
