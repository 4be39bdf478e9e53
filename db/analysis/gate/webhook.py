"""New alerts, sent to an address of the user's as JSON.

The address is a secret, since whoever has it can post there: it comes from the environment, and no message, file or
database has it. Only https is taken, or a server of this machine, and no redirection is followed: either would show
what is sent to others. That a message was not delivered is said, and is never the gate's own failure.
"""

from __future__ import annotations

import ipaddress
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarking.core.command_line import note
from benchmarking.core.records import Json

ADDRESS = "BENCHHOUSE_WEBHOOK_URL"
ANY_SCHEME = "BENCHHOUSE_WEBHOOK_ALLOW_HTTP"
"""Variable that allows http to other machines, with 1."""
LIMIT_S = 20.0
"""Of all attempts together."""
ATTEMPT_S = 5.0
ATTEMPTS = 4
FIRST_WAIT_S = 0.5
"""Before the second attempt; doubled for each further one."""
TOO_MANY = 429


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def notify(command: str, rows: Sequence[Mapping[str, Json]]) -> None:
    """Send these alerts where the environment says, if it does; what fails is a remark on stderr."""
    address = os.environ.get(ADDRESS, "").strip()
    if not address or not rows:
        return
    problem = why_not_usable(address) or send(document(rows), address)
    if problem is not None:
        note(f"{command}: webhook: {problem}; the alerts are stored all the same (benchhouse alert list)")


def document(rows: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """What is sent: the alerts as `benchhouse alert list --json` prints them, and a line of text, which chats show."""
    names = [f"{row.get('model_id')} {row.get('runtime')} {row.get('metric')}" for row in rows]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    found: list[Json] = [dict(row) for row in rows]
    text = f"benchhouse: {len(rows)} new alert{'s' * (len(rows) > 1)}: {', '.join(names[:5])}{more}"
    return {"event": "alerts", "text": text, "alerts": found}


def why_not_usable(address: str) -> str | None:
    """Why nothing is sent to the address, in words without it; None where it is fine."""
    try:
        parts = urlsplit(address)
        host, user, _ = parts.hostname, parts.username, parts.port
    except ValueError:
        return f"${ADDRESS} is not a URL"
    if parts.scheme not in ("http", "https") or not host:
        return f"${ADDRESS} is not a URL that begins with https://"
    if user is not None or not address.isprintable() or " " in address:
        return f"${ADDRESS} has a user name or a space in it: put the secret into the path or the query"
    if parts.scheme == "http" and not _is_here(host) and os.environ.get(ANY_SCHEME) != "1":
        return (
            f"${ADDRESS} is http to another machine, which anybody between can read: use https, or set {ANY_SCHEME}=1"
        )
    return None


def send(
    message: Mapping[str, Json], address: str, *, limit_s: float = LIMIT_S, first_wait_s: float = FIRST_WAIT_S
) -> str | None:
    """Post the message: why it was not delivered, None where it was.

    Repeated after an answer of 5xx or 429, and when there is none. In a thread of its own, since a server that answers
    byte by byte would hold it longer than the limit.
    """
    problem: list[str | None] = [f"no answer within {limit_s:g} s"]
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")

    def attempts() -> None:
        problem[0] = _attempts(body, address, limit_s, first_wait_s)

    thread = threading.Thread(target=attempts, daemon=True)
    thread.start()
    thread.join(limit_s)
    return problem[0]


def _attempts(body: bytes, address: str, limit_s: float, wait_s: float) -> str | None:
    end_s = time.monotonic() + limit_s
    problem: str | None = None
    for _ in range(ATTEMPTS):
        problem, is_final, asked_s = _attempt(body, address, min(ATTEMPT_S, end_s - time.monotonic()))
        pause_s = max(wait_s, asked_s)
        if is_final or time.monotonic() + pause_s >= end_s:
            break
        time.sleep(pause_s)
        wait_s *= 2
    return problem


def _attempt(body: bytes, address: str, timeout_s: float) -> tuple[str | None, bool, float]:
    """Why it failed (None for success), whether another attempt is pointless, and the seconds the server asks to wait.

    Errors are named by their kind: their texts may contain the address.
    """
    headers = {"Content-Type": "application/json", "User-Agent": "benchhouse"}
    request = urllib.request.Request(address, data=body, headers=headers, method="POST")  # noqa: S310 - http(s), checked
    handlers: list[Any] = [_NoRedirection]
    if _is_here(urlsplit(address).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=max(timeout_s, 0.1)):
            return None, True, 0.0
    except urllib.error.HTTPError as error:
        with error:
            if 300 <= error.code < 400:
                return f"the server answered {error.code}: redirections are not followed", True, 0.0
            may_pass = error.code >= 500 or error.code == TOO_MANY
            return f"the server answered {error.code}", not may_pass, _asked_s(error.headers.get("Retry-After"))
    except urllib.error.URLError as error:
        return f"no connection ({type(error.reason).__name__})", False, 0.0
    except (OSError, HTTPException, ValueError) as error:
        return f"no connection ({type(error).__name__})", False, 0.0


def _asked_s(text: str | None) -> float:
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
