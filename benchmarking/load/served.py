"""Runs servers that a load test starts itself (`server_plan`), one after the other.

Each gets a free port on the loopback interface. The server is up when one of `HEALTH` answers with status 200. What it
says of itself is read from the pages in `ABOUT`, and kept under their paths. A process between the two ends it with
all its processes, see `keeper`.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from http import HTTPStatus
from pathlib import Path
from subprocess import PIPE, TimeoutExpired
from typing import Any
from urllib.parse import urlsplit

from benchmarking.core.child_process import ending, kill_tree, module_command, start
from benchmarking.core.errors import BenchhouseError, FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json
from benchmarking.core.untrusted.input_files import parse_json
from benchmarking.core.untrusted.redaction import cut_to, end_of_log
from benchmarking.load.connections import Target
from benchmarking.load.generator import one_token
from benchmarking.load.observer import LIMIT_S, ClosedError, fetch, why_unread
from benchmarking.load.server_plan import Combination

HEALTH = ("/health", "/v2/health/ready", "/v1/models")
ABOUT = (
    *("/v1/models", "/version", "/props", "/server_info", "/get_server_info", "/model_info", "/get_model_info"),
    *("/info", "/api/version", "/v1/config"),
)
"""Pages on which servers state their models, version and configuration: vLLM, llama-server, SGLang, TGI, ollama,
OVMS."""
OLDER = "/get_"
"""Beginning of SGLang's older paths of pages, which are not read where the newer path has one."""
VERSIONS = ("version", "build_info")
"""Fields of these pages that are the server's version."""
REQUEST_S = 60.0
"""Time limit of the request that shows whether a server is up that answers to no GET."""
LOADING = (502, 503, 504)
"""Statuses of a server that is not ready yet."""
WAIT_SHARE, LEAST_WAIT_S, MOST_WAIT_S = 0.02, 0.01, 0.5
"""The health is read again after this share of the time so far, which is how precisely the start-up time is known."""
GRACE_S = 15.0
"""Time for a server to clean up after SIGTERM, before it is killed."""
DYING_S = 10.0
"""How long a server at whose port nothing listens any more may take to end: its memory is freed, or written to a core
dump."""
FREE_S = 5.0
"""How long the port of an ended server may still be in use."""
LOG_LINES, LOG_CHARACTERS, MOST_TEXT, MOST_ANSWER = 20, 4000, 400, 20_000
"""Last lines and bytes of a log in a result; characters of a text and of a whole page that are kept."""
TOO_LONG = "{} characters: too long to keep"


class NotStartedError(BenchhouseError):
    """The server did not become healthy; the message says why."""


class Keeper:
    """The process that keeps a server, and the messages that it has sent."""

    def __init__(self) -> None:
        self.process = start(module_command("benchmarking.load.keeper"), stdin=PIPE, stderr=None, new_session=True)
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.pid: int | None = None
        """The server's first process, which leads a group of its own."""
        self._ended: str | None = None

    def run(self, job: Mapping[str, Json]) -> None:
        """Start a server. Raises NotStartedError."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        message = self._messages.get() or {"error": "its keeper process was killed"}
        if "error" in message:
            raise NotStartedError(f"cannot start the server: {message['error']}")
        self.pid = message["pid"]

    def why_ended(self, limit_s: float = 0.0) -> str | None:
        """How the server ended, if it did within the limit: by itself, since its keeper was not told to end it."""
        if self._ended is None:
            with suppress(queue.Empty):
                message = self._messages.get(timeout=limit_s)
                self._ended = "its keeper process was killed" if message is None else ending(message["ended"])
        return self._ended

    def close(self) -> None:
        """End the server with all its processes."""
        with self.process as process:
            with suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
            try:
                code = process.wait(GRACE_S * 2)
            except TimeoutExpired:
                process.kill()
                code = process.wait()
        if code != 0 and self.pid is not None:
            kill_tree(self.pid)
            if os.name == "posix":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError, OSError):  # closed
            for line in self.process.stdout:
                self._messages.put(json.loads(line))
        self._messages.put(None)


@dataclass(slots=True, kw_only=True)
class Server:
    target: Target
    log: Path
    keeper: Keeper
    start_s: float = 0.0
    """From the start of its process to its health."""
    health: str = ""
    """The page that answered, or the endpoint."""
    about: dict[str, Json] = field(default_factory=dict)
    """Page -> what the server says of itself there."""

    @property
    def models(self) -> list[str]:
        return _models_in(self.about.get("/v1/models"))

    @property
    def version(self) -> str | None:
        """Its version, by its own words."""
        pages = [page for page in self.about.values() if isinstance(page, dict)]
        return next((text for name in VERSIONS for page in pages if isinstance(text := page.get(name), str)), None)

    def why_ended(self) -> str | None:
        """How the server ended by itself, with the last line of its log; None if it did not."""
        return self._words(self.keeper.why_ended())

    def why_gone(self) -> str | None:
        """The same of a server that was up: if nothing listens at its port, it may still be about to end."""
        why = self.keeper.why_ended()
        if why is None and not _listens(urlsplit(self.target.url).port):
            why = self.keeper.why_ended(DYING_S)
        return self._words(why)

    def _words(self, why: str | None) -> str | None:
        return None if why is None else f"the server ended by itself ({why}){self.last_words()}"

    def last_words(self) -> str:
        """The last line of its log, after a colon; empty without any."""
        lines = log_end(self.log).splitlines()
        return f": {lines[-1]}" if lines else ""


@contextmanager
def served(
    combination: Combination, target: Target, *, log: Path, limit_s: float, cpus: Sequence[int] | None = None
) -> Iterator[Server]:
    """Inside, the server of a combination is up; `target` has everything but its address. At the end none of its
    processes is left. Its processors are `cpus` (None: all that this process may use).

    Raises NotStartedError if it ends, or is not healthy within the limit. Raises BenchhouseError if its processes could
    not be ended.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    keeper = Keeper()
    address = f"http://127.0.0.1:{port}{combination.path}"
    model = target.model or combination.model or ""
    found = Server(target=replace(target, url=address, model=model), keeper=keeper, log=log)
    try:
        keeper.run(
            {
                "command": list(combination.filled(port)),
                "variables": dict(os.environ),
                "cpus": None if cpus is None else list(cpus),
                "log": str(log.resolve()),
                "grace_s": GRACE_S,
            }
        )
        begun_s = time.monotonic()
        found.health = _wait_until_healthy(found, begun_s, limit_s)
        found.start_s = time.monotonic() - begun_s
        found.about = about(found.target)
        yield found
    finally:
        keeper.close()
    if not _is_free(port):
        raise BenchhouseError(f"port {port} is still in use after the server was ended: end what listens there")


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A server that the load test started itself, or could not start, as it is recorded."""

    combination: Combination
    is_cold: bool
    """Whether it is the first of its command, which may have found the model's files in no cache."""
    server: Server | None = None
    """None if it did not start."""
    log_end: str | None = None
    """The last lines of its log, if it did not start."""

    @property
    def readings(self) -> dict[str, float]:
        """The start-up time. Its name says from what state, so that only like is compared with like."""
        kind = "cold" if self.is_cold else "warm"
        return {} if self.server is None else {f"server_start_{kind}_s": self.server.start_s}

    @property
    def versions(self) -> dict[str, str]:
        version = None if self.server is None else self.server.version
        return {} if version is None else {"server": version}

    @property
    def facts(self) -> dict[str, Json]:
        """What is stored besides what distinguishes its series."""
        found: dict[str, Json] = {"values": dict(self.combination.values), "start": "cold" if self.is_cold else "warm"}
        if (server := self.server) is not None:
            found |= {"start_s": server.start_s, "health": server.health, "about": server.about}
        return found if self.log_end is None else {**found, "log_end": self.log_end}


def log_end(log: Path) -> str:
    """The last lines of a server's log, without secrets; empty if there are none."""
    try:
        with log.open("rb") as opened:
            text = end_of_log(opened)
    except OSError:
        return ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-LOG_LINES:])[-LOG_CHARACTERS:]


def about(target: Target) -> dict[str, Json]:
    """What a server says of itself: page -> its JSON, with long texts cut, and without the longest fields of a page
    that is too long."""
    found: dict[str, Json] = {}
    for path in ABOUT:
        if path.startswith(OLDER) and path.replace(OLDER, "/", 1) in found:
            continue
        with suppress(OSError, ValueError, FormatError):
            status, text = fetch(target, path)
            if status == HTTPStatus.OK and isinstance(value := parse_json(text.encode(), path), dict):
                found[path] = _within(_shortened(value))
    return found


def _within(page: dict[str, Json]) -> Json:
    """The page, without its longest fields if it is too long to keep."""
    sizes, whole = {name: len(json.dumps(value)) for name, value in page.items()}, len(json.dumps(page))
    size = whole
    for name, length in sorted(sizes.items(), key=lambda one: -one[1]):
        if size <= MOST_ANSWER or length <= MOST_TEXT:  # too many short ones are not left out one by one
            break
        page[name] = TOO_LONG.format(length)
        size -= length - len(json.dumps(page[name]))
    return page if size <= MOST_ANSWER else TOO_LONG.format(whole)


NEEDS_KEY = ": the server's key goes in $OPENAI_API_KEY"


def models_at(target: Target) -> tuple[list[str], str | None]:
    """The models that a running server names, on the page beside its endpoints; and why that could not be read. Raises
    BenchhouseError for a certificate that is not trusted, with which no request can be sent."""
    path = f"{urlsplit(target.url).path.rstrip('/')}/models"
    try:
        status, text = fetch(target, path)
        if status == HTTPStatus.OK:
            return _models_in(parse_json(text.encode(), path)), None
    except ssl.SSLCertVerificationError as error:
        raise BenchhouseError(
            f"--url {target.url}: its certificate is not trusted ({error.verify_message}): give the certificates to "
            "trust with --ca-file, or the host's name as its certificate has it"
        ) from error
    except FormatError:
        return [], "no JSON"
    except (OSError, ValueError) as error:
        return [], why_unread(error)
    is_locked = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    return [], f"status {status}{NEEDS_KEY * is_locked}"


def _models_in(page: Any) -> list[str]:
    data = page.get("data") if isinstance(page, dict) else None
    found = [one.get("id") for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    return [one for one in found if isinstance(one, str) and 0 < len(one) <= MOST_TEXT]


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MOST_TEXT else f"{cut_to(value, MOST_TEXT)}…"
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    return [_shortened(each) for each in value] if isinstance(value, list) else value


def _wait_until_healthy(server: Server, begun_s: float, limit_s: float) -> str:
    """The page that answered, or the endpoint of a server that closes connections on GET. Raises NotStartedError."""
    seen: dict[str, str] = {}
    while True:
        closed = 0
        for path in HEALTH:
            try:
                status, _ = fetch(server.target, path)
            except ClosedError as error:
                seen[path], closed = str(error), closed + 1
                continue
            except (OSError, ValueError) as error:
                seen[path] = getattr(error, "strerror", None) or str(error)
                break
            seen[path] = f"status {status}"
            if status == HTTPStatus.OK and server.why_ended() is None:
                return path
            if status in LOADING:
                break
        if closed == len(HEALTH):
            path = urlsplit(server.target.address).path
            with suppress(OSError, ValueError):
                rest_s = limit_s - (time.monotonic() - begun_s)
                status, _ = fetch(server.target, path, one_token(server.target), min(REQUEST_S, max(rest_s, LIMIT_S)))
                seen[path] = f"status {status}"
                if status == HTTPStatus.OK and server.why_ended() is None:
                    return path
        if (why := server.why_ended()) is not None:
            raise NotStartedError(why)
        elapsed_s = time.monotonic() - begun_s
        if elapsed_s > limit_s:
            answers = ", ".join(f"{path}: {what}" for path, what in seen.items())
            raise NotStartedError(f"not healthy within {limit_s:g} s ({answers}){server.last_words()}")
        time.sleep(min(max(WAIT_SHARE * elapsed_s, LEAST_WAIT_S), MOST_WAIT_S))


def _is_free(port: int) -> bool:
    """Whether nothing listens on a port, which a killed process may hold for a moment."""
    deadline_s = time.monotonic() + FREE_S
    while time.monotonic() < deadline_s:
        if not _listens(port):
            return True
        time.sleep(LEAST_WAIT_S)
    return False


def _listens(port: int | None) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port or 0), timeout=1).close()
    except TimeoutError:  # so many connections wait that it takes no more
        return True
    except OSError:
        return False
    return True
