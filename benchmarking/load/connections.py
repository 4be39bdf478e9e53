"""Connections to a server over HTTP/1.1 or HTTP/2, which send requests and pass on response bodies as they arrive.

2026-11-23: httptools and h2 parse directly on asyncio protocols, because a client library would cost more than all the
rest. A request with six chunks takes a third of the CPU time of aiohttp, and over HTTP/2 a quarter of that of httpx
(measured in turns; the figures are in docs/load.md).
"""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit, urlunsplit

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import httptools

Endpoint = Literal["completions", "chat"]
Take = Callable[[bytes, float], None]
"""Receives a piece of a response body, with the time of the event loop at which it was read, the same for all pieces of
one read; raises RequestError to end the request."""
FINAL = 200
"""Lowest status of a final response."""
MAX_DETAIL = 200
MAX_REFUSAL = 4096
IDENTITY = b"identity"
STATUS_DIGITS = 3
WINDOW_BYTES = 1 << 20
"""HTTP/2 flow-control window. The default of 64 KiB would stall fast streams."""
MAX_HEAD_BYTES = 1 << 18
"""Maximum head of an HTTP/1.1 response, far above that of any real server. HTTP/2 has its own limit."""
NO_HTTP2 = "no_http2"
NO_SOCKET = "no_socket"
"""The kind of error of a request for which this machine had no file or port left: the server never saw it."""
ERRNO = re.compile(r"\[Errno (\d+)\]")
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)
MOST_FILES = 1 << 16
"""Files that this process opens at most, about as many as there are ports."""
CROSSED_S, MOST_CROSSED_S = 0.02, 0.3
"""So soon after a request was sent, or within the time that its connection took to open, a closed connection had been
closed before the request arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server and how to send requests to it."""

    url: str
    """With /v1, without the path of an endpoint."""
    model: str
    endpoint: Endpoint = "completions"
    timeout_s: float = 120.0
    """Time limit per request, from sending to its end."""
    ca_file: str | None = None
    """File of certificates to trust instead of the system's."""
    headers: Mapping[str, str] = field(default_factory=dict)
    http2: bool = False
    """Whether to use HTTP/2: negotiated over TLS, and with prior knowledge without TLS."""
    omitted: Sequence[str] = ()
    """Fields of `OMITTABLE` that requests do not have, since the server refuses them."""

    @property
    def address(self) -> str:
        """The URL that requests are sent to."""
        return self.below("chat/completions" if self.endpoint == "chat" else "completions")

    def below(self, path: str) -> str:
        """The URL of a path below that of the server; its query stays behind it."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))


class RequestError(Exception):
    """A failed request: the kind of error, and the message."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Client(ABC):
    """Posts requests to a server over persistent connections."""

    def __init__(self, target: Target) -> None:
        """Raises UsageError for unreadable certificates and invalid addresses."""
        parts = urlsplit(target.address)
        self._host, self._port = str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)
        self._scheme = parts.scheme
        self._authority = _plain("--url", parts.netloc)
        path = quote(parts.path, safe="/%") + (f"?{parts.query}" if parts.query else "")
        self._path = _plain("--url", path)
        defaults = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": IDENTITY.decode(),
        }
        self._headers = [
            (_plain(name, name.lower()), _plain(name, text)) for name, text in (defaults | {**target.headers}).items()
        ]
        self._tls = _tls(target, "h2" if target.http2 else "http/1.1") if parts.scheme == "https" else None

    @abstractmethod
    async def post(self, body: bytes, take: Take) -> None:
        """Send a request and pass the pieces of its response to `take`. Raises RequestError. A request that is
        cancelled, or whose response `take` refuses, is also aborted on the server."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections."""

    async def _connect(self, made: Callable[[], _Connection]) -> Any:
        """Open a connection and return its protocol. Raises RequestError."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            _, protocol = await loop.create_connection(made, self._host, self._port, ssl=self._tls)
        except ssl.SSLCertVerificationError as error:
            raise RequestError("certificate", str(error)) from error
        except (OSError, UnicodeError) as error:
            # A name with several addresses has a combined error.
            numbers = (getattr(error, "errno", None), *map(int, ERRNO.findall(str(error))))
            is_refusal, is_ours = errno.ECONNREFUSED in numbers, any(one in EXHAUSTED for one in numbers)
            kind = "refused" if is_refusal else NO_SOCKET if is_ours else "no_connection"
            raise RequestError(kind, str(error)) from error
        protocol.opened_in_s = loop.time() - begun_s
        return protocol


def allow_connections() -> None:
    """Let this process open as many connections as the system lets it: the usual limit of Linux is 1024."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def client_of(target: Target) -> Client:
    return Http2Client(target) if target.http2 else Http1Client(target)


class _Exchange:
    """A request and the state of its response."""

    __slots__ = ("done", "encoding", "is_unseen", "location", "refusal", "sent_s", "status", "take")

    def __init__(self, take: Take) -> None:
        loop = asyncio.get_running_loop()
        self.take = take
        self.sent_s = loop.time()
        self.is_unseen = False
        """Whether it failed before the server began with the request, which may then be sent again."""
        self.done: asyncio.Future[None] = loop.create_future()
        self.status = 0
        self.encoding = IDENTITY
        """Of the body; none is asked for, but proxies compress error pages unasked."""
        self.location = b""
        """Where a redirect leads to, which is not followed: what is sent there is the user's decision."""
        self.refusal = b""

    @property
    def is_encoded(self) -> bool:
        return self.encoding.strip().lower() not in (b"", IDENTITY)

    def add(self, piece: bytes, read_s: float) -> None:
        if self.status != HTTPStatus.OK:
            self.refusal = (self.refusal + piece)[:MAX_REFUSAL]
            if len(self.refusal) == MAX_REFUSAL:  # which may have no end
                self.finish()
        elif not self.done.done():
            try:
                self.take(piece, read_s)
            except RequestError as error:
                self.done.set_exception(error)

    def finish(self) -> None:
        if self.status == HTTPStatus.OK:
            if not self.done.done():
                self.done.set_result(None)
        else:
            why = self.refusal.decode(errors="replace").strip() if not self.is_encoded else ""
            is_redirect = self.location and 300 <= self.status < 400
            leads = f"redirects to {self.location.decode(errors='replace')}" if is_redirect else ""
            self.fail(f"http_{self.status}", leads or why or f"status {self.status} without a message")

    def begin(self, status: int) -> None:
        """The head of the response has arrived."""
        self.status = status
        if status == HTTPStatus.OK and self.is_encoded:
            named = self.encoding[:MAX_DETAIL].decode(errors="replace")
            self.fail("transfer", f"unrequested encoding of the response: {named}")

    def fail(self, kind: str, detail: str) -> None:
        """The request failed; no more data will arrive."""
        if not self.done.done():
            self.done.set_exception(RequestError(kind, detail))


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport
    opened_in_s = 0.0

    def had_ended(self, exchange: _Exchange) -> bool:
        """Whether the connection was closed so soon after a request that the server had done so before it arrived. A
        server that closes it later has worked on the request, and may have crashed over it."""
        waited_s = asyncio.get_running_loop().time() - exchange.sent_s
        return waited_s <= min(max(self.opened_in_s, CROSSED_S), MOST_CROSSED_S)


class Http1Client(Client):
    """HTTP/1.1: one connection per request in flight, preferring the most recently used."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        lines = [f"POST {self._path} HTTP/1.1", f"host: {self._authority}", *map(": ".join, self._headers)]
        self._head = "\r\n".join((*lines, "content-length: ")).encode()
        self._idle: list[_Http1Connection] = []
        self._open: set[_Http1Connection] = set()

    async def post(self, body: bytes, take: Take) -> None:
        if self._idle and await self._answered(self._idle.pop(), body, take, is_new=False):
            return
        await self._answered(await self._connect(lambda: _Http1Connection(self._idle, self._open)), body, take)

    async def _answered(self, connection: _Http1Connection, body: bytes, take: Take, *, is_new: bool = True) -> bool:
        """Send a request over a connection. False if an existing connection was closed at once without any response:
        the server had closed it before the request arrived, so the request is sent over a new one, like in curl and
        browsers. Some servers close connections that they promised to keep alive."""
        exchange = _Exchange(take)
        connection.ask(b"%b%d\r\n\r\n%b" % (self._head, len(body), body), exchange)
        try:
            await exchange.done
        except RequestError:
            if is_new or connection.has_answered or not connection.had_ended(exchange):
                raise
            return False
        finally:
            connection.leave(exchange)
        return True

    async def close(self) -> None:
        for connection in tuple(self._open):
            connection.transport.abort()


class _Http1Connection(_Connection):
    """A connection with one request at a time. httptools calls the methods `on_*`."""

    def __init__(self, idle: list[_Http1Connection], opened: set[_Http1Connection]) -> None:
        from httptools import HttpResponseParser

        self._parser: httptools.HttpResponseParser = HttpResponseParser(self)
        self._idle = idle
        self._opened = opened
        self._exchange: _Exchange | None = None
        self._has_length = False
        self._head_bytes = 0
        self._read_s = 0.0
        self._now = asyncio.get_running_loop().time
        self.has_answered = False
        """Whether any part of the response has arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._opened.add(self)

    def ask(self, request: bytes, exchange: _Exchange) -> None:
        """Send a request whose response the exchange receives."""
        self._exchange, self._has_length, self._head_bytes, self.has_answered = exchange, False, 0, False
        self.transport.write(request)

    def leave(self, exchange: _Exchange) -> None:
        """Close the connection if the response was not read to its end."""
        if self._exchange is exchange:
            self._exchange = None
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        from httptools import HttpParserError, HttpParserUpgrade

        self.has_answered = True
        self._read_s = self._now()
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._end("the server switched to another protocol without a request")
        except HttpParserError as error:
            self._end(f"the response is not HTTP/1.1: {error}")
        if self._exchange is not None and self._exchange.status < FINAL:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._end(f"the head of the response is longer than {MAX_HEAD_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif name == b"content-encoding" and self._exchange is not None:
            self._exchange.encoding = value
        elif name == b"location" and self._exchange is not None:
            self._exchange.location = value

    def on_headers_complete(self) -> None:
        if self._exchange is not None:
            self._exchange.begin(self._parser.get_status_code())

    def on_body(self, piece: bytes) -> None:
        if self._exchange is not None:
            self._exchange.add(piece, self._read_s)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or exchange.status < FINAL:  # such as 103: the final response follows
            return
        self._exchange = None
        exchange.finish()
        if self._parser.should_keep_alive():
            self._idle.append(self)
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._opened.discard(self)
        if self in self._idle:
            self._idle.remove(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if error is None and exchange.status and not self._has_length:  # the response ends with the connection
            exchange.finish()
        else:
            exchange.fail("truncated", str(error or "the connection was closed before the end of the response"))

    def _end(self, detail: str) -> None:
        """Read no more of what the server sends."""
        if self._exchange is not None:
            self._exchange.fail("transfer", detail)
        self.transport.abort()


class Http2Client(Client):
    """HTTP/2: as many requests per connection as the server allows, then another connection."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        first = [(":method", "POST"), (":scheme", self._scheme), (":authority", self._authority), (":path", self._path)]
        self._head = [*first, *self._headers]
        self._connections: list[_Http2Connection] = []
        self._connecting = asyncio.Lock()

    async def post(self, body: bytes, take: Take) -> None:
        if not await self._answered(body, take):
            await self._answered(body, take, is_last=True)

    async def _answered(self, body: bytes, take: Take, *, is_last: bool = False) -> bool:
        """Send a request over a connection with room. False if the server has not begun with it, so it is sent again,
        once: it said so (RFC 9113, 6.8 and 8.7), or had closed an existing connection before the request arrived."""
        connection = self._with_room() or await self._opened()
        exchange = _Exchange(take)
        stream = connection.ask([*self._head, ("content-length", str(len(body)))], body, exchange)
        try:
            await exchange.done
        except RequestError:
            if is_last or not exchange.is_unseen:
                raise
            return False
        finally:
            connection.leave(stream)
        return True

    async def close(self) -> None:
        for connection in self._connections:
            connection.transport.abort()

    def _with_room(self) -> _Http2Connection | None:
        return next((connection for connection in self._connections if connection.has_room()), None)

    async def _opened(self) -> _Http2Connection:
        """Open a connection with capacity; concurrent callers share the same attempt."""
        async with self._connecting:
            if (found := self._with_room()) is not None:
                return found
            connection: _Http2Connection = await self._connect(_Http2Connection)
            try:
                await connection.ready
            except BaseException:
                connection.transport.abort()
                raise
            self._connections = [one for one in self._connections if not one.transport.is_closing()]
            self._connections.append(connection)
            return connection


class _Http2Connection(_Connection):
    """A connection whose streams are requests."""

    def __init__(self) -> None:
        from h2.config import H2Configuration
        from h2.connection import ConnectionInputs, ConnectionState, H2Connection
        from h2.settings import SettingCodes, Settings

        self._state = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        values = {SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES}
        self._state.local_settings = Settings(client=True, initial_values=values)
        # A server that accepts no more requests goes on with those that it has (RFC 9113, 6.8). h2 would close at once.
        machine, state = self._state.state_machine, ConnectionState.CLIENT_OPEN
        stays: Any = {(state, ConnectionInputs.RECV_GOAWAY): (None, state)}
        machine._transitions = {**machine._transitions, **stays}
        self._exchanges: dict[int, _Exchange] = {}
        self._unsent: dict[int, bytes] = {}
        self._is_leaving = self._has_answered = False
        self._now = asyncio.get_running_loop().time
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the server has sent its stream limit; fails with an exception if it does not."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self._end(NO_HTTP2, "it does not offer HTTP/2 over TLS")
            transport.abort()
            return
        self._state.initiate_connection()
        self._state.increment_flow_control_window(WINDOW_BYTES)
        self._write()

    def has_room(self) -> bool:
        """Whether the server accepts one more stream."""
        most = self._state.remote_settings.max_concurrent_streams
        return not self._is_leaving and not self.transport.is_closing() and len(self._exchanges) < most

    def ask(self, headers: list[tuple[str, str]], body: bytes, exchange: _Exchange) -> int:
        """Send a request on a new stream; returns the stream's number. Raises RequestError."""
        from h2.exceptions import ProtocolError

        if self._is_leaving:
            raise RequestError("truncated", "the server ended a new connection before the first request")
        try:
            stream = self._state.get_next_available_stream_id()
            self._state.send_headers(stream, headers)
        except ProtocolError as error:  # such as a limit of no streams
            raise RequestError("transfer", f"the server accepts no requests: {error}") from error
        self._exchanges[stream] = exchange
        self._unsent[stream] = body
        self._send(stream)
        self._write()
        return stream

    def leave(self, stream: int) -> None:
        """Reset the stream if the response was not read to its end."""
        from h2.exceptions import ProtocolError

        if self._exchanges.pop(stream, None) is None:
            return
        self._unsent.pop(stream, None)
        try:
            self._state.reset_stream(stream)
        except ProtocolError:
            return  # the server has ended it in the meantime
        self._write()

    def data_received(self, data: bytes) -> None:
        from h2 import events
        from h2.errors import ErrorCodes
        from h2.exceptions import ProtocolError

        read_s = self._now()
        try:
            for event in self._state.receive_data(data):
                match event:
                    case events.DataReceived():
                        self._state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                        if (exchange := self._exchanges.get(event.stream_id)) is not None:
                            exchange.add(event.data, read_s)
                    case events.ResponseReceived():
                        self._has_answered = True
                        if (exchange := self._exchanges.get(event.stream_id)) is not None:
                            # The head of an HTTP/2 response.
                            head = dict(event.headers)
                            status, encoding = head[b":status"], head.get(b"content-encoding", IDENTITY)
                            if len(status) != STATUS_DIGITS or not status.isdigit():
                                exchange.fail("transfer", f"invalid status of the response: {status[:MAX_DETAIL]!r}")
                            else:
                                exchange.encoding, exchange.location = encoding, head.get(b"location", b"")
                                exchange.begin(int(status))
                    case events.StreamEnded():
                        if (exchange := self._exchanges.get(event.stream_id)) is not None:
                            exchange.finish()
                        if event.stream_id in self._unsent:  # a refusal before the request was fully sent
                            self.leave(event.stream_id)
                        self._exchanges.pop(event.stream_id, None)
                    case events.StreamReset():
                        is_unseen = event.error_code == ErrorCodes.REFUSED_STREAM
                        self._fail(event.stream_id, f"the server reset the stream: {event.error_code!r}", is_unseen)
                    case events.WindowUpdated():
                        for stream in tuple(self._unsent):
                            self._send(stream)
                    case events.RemoteSettingsChanged():
                        if not self.ready.done():
                            self.ready.set_result(None)
                    case events.ConnectionTerminated():
                        self._is_leaving = True
                        for stream in [one for one in self._exchanges if one > (event.last_stream_id or 0)]:
                            self._fail(stream, f"the server accepts no more requests: {event.error_code!r}", True)
        except ProtocolError as error:
            self._end("transfer", f"the response is not HTTP/2: {error}")
            self.transport.abort()
            return
        self._write()

    def connection_lost(self, error: Exception | None) -> None:
        if self._has_answered and not self._is_leaving:
            for exchange in self._exchanges.values():
                exchange.is_unseen = exchange.status == 0 and self.had_ended(exchange)
        self._end("truncated", str(error or "the connection was closed before the end of the response"))

    def _send(self, stream: int) -> None:
        """Send as much of a body as flow control permits."""
        while (rest := self._unsent.get(stream)) is not None:
            room = min(self._state.local_flow_control_window(stream), self._state.max_outbound_frame_size)
            if room <= 0 and rest:
                return
            self._state.send_data(stream, rest[:room], end_stream=len(rest) <= room)
            if len(rest) <= room:
                del self._unsent[stream]
            else:
                self._unsent[stream] = rest[room:]

    def _fail(self, stream: int, detail: str, is_unseen: bool) -> None:
        self._unsent.pop(stream, None)
        if (exchange := self._exchanges.pop(stream, None)) is not None:
            exchange.is_unseen = is_unseen and exchange.status == 0
            exchange.fail("truncated", detail)

    def _end(self, kind: str, detail: str) -> None:
        """End all requests; nothing more arrives over the connection."""
        self._is_leaving = True
        for exchange in self._exchanges.values():
            exchange.fail(kind, detail)
        self._exchanges, self._unsent = {}, {}
        if not self.ready.done():
            self.ready.set_exception(RequestError(NO_HTTP2, f"the server did not start HTTP/2: {detail}"))

    def _write(self) -> None:
        if data := self._state.data_to_send():
            self.transport.write(data)


def _plain(what: str, text: str) -> str:
    """Text for the head of a request. Raises UsageError for characters that are not allowed there."""
    if not text.isascii() or not text.isprintable():
        raise UsageError(f"{what} contains characters that are invalid in an HTTP header: {text[:3]!r}...")
    return text


def _tls(target: Target, protocol: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca-file {target.ca_file}: expected certificates in PEM format: {error}") from error
    context.set_alpn_protocols([protocol])
    return context
