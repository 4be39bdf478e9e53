"""Requests over HTTP/1.1 and HTTP/2, to another program's server and to ones that break the protocol."""

from __future__ import annotations

import asyncio
import errno
import math
import socket
import threading
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

pytest.importorskip("httptools")

from benchmarking.core.errors import UsageError
from benchmarking.load import observer
from benchmarking.load.connections import (
    MAX_HEAD_BYTES,
    MAX_REFUSAL,
    RequestError,
    Target,
    allow_connections,
    client_of,
)
from benchmarking.load.curve import holds
from benchmarking.load.generator import Level, run_level
from benchmarking.load.results import result_of
from benchmarking.load.traffic import Lengths, Traffic
from tests.helpers.certificates import certificate
from tests.helpers.null_server import NullServer, main, run_jumping

TRAFFIC = Traffic(arrivals="constant", lengths_in=Lengths("16"), lengths_out=Lengths("2"))
EVENTS = (
    b'data: {"choices":[{"index":0,"text":"a"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\n"
SIZED = b"content-length: %d\r\n\r\n" % len(EVENTS) + EVENTS
LEVEL = Level(concurrency=3, number=6)
REDIRECTED = "http_302: redirects to http://127.0.0.1:1/"
NO = "no_sockets"
LONG = b"x" * 200_000
"""More than HTTP/2 lets a client send unasked."""


async def results(target, bodies, *, in_turn=False):
    """For each body, sent all at once or in turn, what came back, or the kind of the error, and where a redirect leads
    to."""
    client = client_of(target)

    async def one(body):
        got = bytearray()
        try:
            await client.post(body, lambda piece, _: got.extend(piece))
        except RequestError as error:
            return (
                f"{error.kind}: {error}" if "http_3" in error.kind else error.kind if str(error) else "no reason given"
            )
        return bytes(got)

    try:
        return [await one(body) for body in bodies] if in_turn else await asyncio.gather(*map(one, bodies))
    finally:
        await client.close()


@asynccontextmanager
async def hypercorn(seen, **settings):
    """The port of a server that answers, refuses with 429 or waits, as the first byte of the body says."""
    pytest.importorskip("h2")
    pytest.importorskip("hypercorn")
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    async def application(scope, receive, send):
        if scope["type"] != "http":
            return
        body, is_whole = b"", False
        while not is_whole:
            message = await receive()
            body, is_whole = body + message.get("body", b""), not message.get("more_body")
        seen.append((scope["http_version"], len(body)))
        await send({"type": "http.response.start", "status": 429 if body[:1] == b"4" else 200, "headers": []})
        await send({"type": "http.response.body", "body": EVENTS, "more_body": True})
        if body[:1] == b"w":
            seen.append((await receive())["type"])
        await send({"type": "http.response.body", "body": b""})

    config = Config()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    config.bind, config.errorlog = [f"fd://{listening.detach()}"], None
    for name, value in settings.items():
        setattr(config, name, value)
    task = asyncio.create_task(serve(application, config, shutdown_trigger=asyncio.Event().wait))
    try:
        yield port
    finally:
        task.cancel()  # it would wait for connections that are idle


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_http2_carries_requests_together_and_ends_each_for_itself(scheme, tmp_path):
    seen, ca_file, settings = [], None, {"h2_max_concurrent_streams": 3}
    if scheme == "https":
        _, ca_file = certificate(tmp_path, "127.0.0.1")
        settings = {"certfile": str(tmp_path / "both.pem"), "keyfile": str(tmp_path / "both.pem")}

    async def run():
        async with hypercorn(seen, **settings) as port:
            target = Target(url=f"{scheme}://127.0.0.1:{port}/v1", model="m", http2=True, ca_file=ca_file)
            client = client_of(target)
            waiting = asyncio.create_task(client.post(b"w", lambda *_: waiting.cancel()))
            await asyncio.wait([waiting])
            while "http.disconnect" not in seen:
                await asyncio.sleep(0.01)
            await client.close()
            return await results(target, [b"4", *[LONG] * 8]), await run_level(target, TRAFFIC, LEVEL, limits={})

    several, found = asyncio.run(run())
    assert several == ["http_429", *[EVENTS] * 8]
    asked = [one for one in seen if one != "http.disconnect"]
    assert {version for version, _ in asked} == {"2"}
    assert [length for _, length in asked if length > 1000] == [len(LONG)] * 8
    assert (set(found.error), set(found.tokens_out), len(found)) == ({None}, {1}, 6)


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_server_without_http2_is_an_error_of_its_own(scheme, tmp_path):
    pytest.importorskip("h2")
    context, ca_file = certificate(tmp_path, "127.0.0.1") if scheme == "https" else (None, None)

    async def run():
        async with NullServer(tls=context) as server:
            return await results(Target(url=server.url, model="m", http2=True, ca_file=ca_file), [b"{}"])

    assert asyncio.run(run()) == ["no_http2"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (HEAD + SIZED, EVENTS),
        (HEAD + b"\r\n" + EVENTS, EVENTS),  # to the end of the connection
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + HEAD + SIZED, EVENTS),
        (HEAD + SIZED[:-5], "truncated"),
        (HEAD[:9], "truncated"),
        (b"", "truncated"),
        (HEAD + b"content-encoding: gzip\r\n" + SIZED, "transfer"),
        (HEAD + b"content-encoding: Identity\r\n" + SIZED, EVENTS),
        (HEAD + b"content-encoding: \r\n" + SIZED, EVENTS),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "transfer"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nx", "transfer"),
        (HEAD + b"x: " + MAX_HEAD_BYTES * b"y", "transfer"),
        (MAX_HEAD_BYTES // 20 * b"HTTP/1.1 103 Hint\r\n\r\n", "transfer"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy", "http_503"),
        (b"HTTP/1.1 429 Busy\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00", "http_429"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 99999\r\n\r\n" + MAX_REFUSAL * b"x", "http_503"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", REDIRECTED),
    ],
)
def test_an_http_1_1_response_is_read_to_its_end_or_is_an_error(reply, expected):
    async def answer(reader, writer):
        await reader.readuntil(b"{}")
        writer.write(reply)
        writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with server:
            return await results(Target(url=url, model="m"), [b"{}", b"{}"])

    assert asyncio.run(run()) == [expected] * 2


@pytest.mark.parametrize(
    ("most_streams", "headers", "expected"),
    [
        (1, ((":status", "200"),), EVENTS),
        (0, ((":status", "200"),), "transfer"),
        (1, ((":status", "fine"),), "transfer"),
        (1, ((":status", 5000 * "9"),), "transfer"),
        (1, ((":status", "200"), ("content-encoding", "gzip")), "transfer"),
        (1, ((":status", "429"), ("content-encoding", "gzip")), "http_429"),
        (1, ((":status", "302"), ("location", "http://127.0.0.1:1/")), REDIRECTED),
    ],
)
def test_an_http_2_response_is_read_to_its_end_or_is_an_error(most_streams, headers, expected, caplog):
    pytest.importorskip("h2")
    from hpack import Encoder
    from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame

    ended = asyncio.Event()

    async def answer(reader, writer):
        writer.write(SettingsFrame(0, settings={SettingsFrame.MAX_CONCURRENT_STREAMS: most_streams}).serialize())
        if most_streams:
            await reader.readuntil(b"{}")
            writer.write(HeadersFrame(1, Encoder().encode(headers), flags=["END_HEADERS"]).serialize())
            writer.write(DataFrame(1, EVENTS, flags=["END_STREAM"]).serialize())
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        ended.set()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with server:
            found = await results(Target(url=url, model="m", http2=True), [b"{}"])
            await ended.wait()
        return found

    assert asyncio.run(run()) == [expected]
    assert [one.msg for one in caplog.records if one.levelname == "ERROR"] == []  # asyncio logs what a protocol raises


@pytest.mark.parametrize(
    ("script", "in_turn", "expected", "connections"),
    [
        ("held leave ignore answer", False, [EVENTS] * 3, 2),  # as nginx after keepalive_requests
        ("answer refuse answer", True, [EVENTS] * 2, 1),
        ("refuse refuse", True, ["truncated"], 1),
        ("answer close answer", True, [EVENTS] * 2, 2),
        ("close", True, ["truncated"], 1),
    ],
)
def test_http_2_requests_that_the_server_has_not_begun_with_are_sent_again_once(script, in_turn, expected, connections):
    pytest.importorskip("h2")
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.errors import ErrorCodes
    from h2.events import StreamEnded
    from hyperframe.frame import GoAwayFrame

    opened, actions, begun = [], iter(script.split()), {}

    async def answer(reader, writer):
        opened.append(writer)
        state = H2Connection(H2Configuration(client_side=False))
        state.initiate_connection()
        writer.write(state.data_to_send())
        while data := await reader.read(1 << 16):
            for event in state.receive_data(data):
                action = next(actions) if isinstance(event, StreamEnded) else ""
                if action == "leave":
                    writer.write(GoAwayFrame(0, last_stream_id=event.stream_id).serialize())
                if action in ("held", "answer", "leave"):
                    state.send_headers(event.stream_id, [(":status", "200")])
                    begun[event.stream_id] = state
                if action in ("answer", "leave"):
                    for stream in tuple(begun):
                        begun.pop(stream).send_data(stream, EVENTS, end_stream=True)
                elif action == "refuse":
                    state.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
                elif action == "close":
                    writer.close()
                    return
            writer.write(state.data_to_send())
        writer.close()  # from Python 3.12 on, a server waits for its connections at its end

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        target = Target(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", model="m", http2=True)
        async with server:
            return await results(target, [b"{}"] * len(expected), in_turn=in_turn)

    assert run_jumping(run()) == expected
    assert (len(opened), next(actions, None)) == (connections, None)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (HEAD + b"\r\nserved_total 3\n", {"served_total": 3.0}),
        (b"HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 15\r\n\r\nserved_total 3\n", {}),
        (HEAD + b"\r\n# TYPE served_total counter\nserved_total 3\n", {"served_total": 3.0}),
        (HEAD + b"\r\nserved_total three\n", {}),
        (HEAD + b"\r\nserved_total{\n", {}),
        (
            HEAD + b"\r\np NaN\nserved_total 3\n",
            {"p": math.nan, "served_total": 3.0},
        ),
        (HEAD + b"x: y\r\n" * 200 + b"\r\nserved_total 3\n", {}),
        (b"SSH-2.0-OpenSSH_9.2\r\n", {}),
        (b"", {}),
        (HEAD + b"content-length: 900\r\n\r\nserved_total 3\n", {}),
        (None, {}),
    ],
)
def test_server_metrics_are_read_in_time_or_left_out(reply, expected, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    def answer(listening):
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.recv(10_000)
            if reply is not None:
                connection.sendall(reply)
                return
            for _ in range(600):  # never silent as long as a socket's timeout
                connection.sendall(b"#")
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=[listening])
        thread.start()
        begun_s = time.monotonic()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        assert observer.scraped(Target(url=url, model="m")) == pytest.approx(expected, nan_ok=True)
        assert time.monotonic() - begun_s < 30  # not the minute that the server takes
        thread.join()


def test_an_unknown_change_of_a_server_metric_is_left_out():
    after = {"served_total": 3.0, "new_total": 2.0, "waiting": 1.0}
    found = observer.changes({"served_total": 5.0, "waiting": 4.0}, after)
    assert found["served_total"] == {"after": 3.0}, "the server started again"
    assert (found["new_total"], found["waiting"]) == ({"after": 2.0, "change": 2.0}, {"after": 1.0, "change": -3.0})
    assert observer.changes({}, {"served_total": 3.0}) == {"served_total": {"after": 3.0}}, "nothing was read before"
    empty = observer.changes({"p99": math.nan, "p50": 1.0}, {"p99": 2.0, "p50": math.nan})
    assert empty == {"p99": {"after": 2.0}}, "without a value at one of the times"


def test_a_connection_is_used_again_until_the_server_ends_it():
    ports = []

    async def answer(reader, writer):
        for last in (False, False, True):
            await reader.readuntil(b"{}")
            ports.append(writer.get_extra_info("peername")[1])
            writer.write(HEAD + (b"connection: close\r\n" if last else b"") + SIZED)
        writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = client_of(Target(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", model="m"))
        async with server:
            for _ in range(4):
                await client.post(b"{}", lambda *_: None)
            await client.close()

    asyncio.run(run())
    assert ports[0] == ports[1] == ports[2] != ports[3]


def test_a_request_over_a_connection_that_the_server_was_just_ending_is_sent_over_another():
    """As llama-server ends each connection after a stream, though it says that it keeps it."""
    connections = []

    async def answer(reader, writer):
        connections.append(0)
        await reader.readuntil(b"{}")
        writer.write(HEAD + SIZED)
        await reader.readuntil(b"{}")
        connections[-1] = 1
        writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            client = client_of(Target(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", model="m"))
            found = bytearray()
            for _ in range(3):
                await client.post(b"{}", lambda piece, _: found.extend(piece))
            await client.close()
        return bytes(found)

    assert asyncio.run(run()) == 3 * EVENTS
    assert connections == [1, 1, 0]


def test_a_request_over_which_the_server_closes_its_connection_later_has_failed_and_is_not_sent_again():
    """As when a worker crashes over it, or a gateway gives up."""
    asked = []

    async def answer(reader, writer):
        for is_first in (True, False):
            asked.append(await reader.readuntil(b"{}"))
            if is_first:
                writer.write(HEAD + SIZED)
            else:
                await asyncio.sleep(1)
                writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            client = client_of(Target(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", model="m"))
            await asyncio.gather(*(client.post(b"{}", lambda *_: None) for _ in range(3)))
            with pytest.raises(RequestError) as raised:
                await client.post(b"{}", lambda *_: None)
            await client.close()
        return raised.value.kind

    assert run_jumping(run()) == "truncated"
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "no_socket"),
        (OSError("Multiple exceptions: [Errno 99] Cannot assign requested address, [Errno 99] Cannot"), "no_socket"),
        (OSError("Multiple exceptions: [Errno 99] Cannot assign, [Errno 111] Connect call failed"), "refused"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no_connection"),
    ],
)
def test_requests_for_which_no_file_or_port_is_left_are_no_fault_of_the_server(error, kind, monkeypatch):
    async def unable(*_, **__):
        raise error

    async def run():
        async with NullServer() as server:
            monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", unable)
            return await run_level(Target(url=server.url, model="m"), TRAFFIC, LEVEL, limits={})

    found = asyncio.run(run())
    assert set(found.error) == {kind}
    assert holds(result_of(TRAFFIC, LEVEL, [found])) is (None if kind == "no_socket" else False)
    some = replace(found, error=(None, *found.error[1:]), end_ms=found.intended_ms, sent_ms=found.intended_ms)
    doubts = {one.kind: one.evidence["requests"] for one in result_of(TRAFFIC, LEVEL, [some]).doubts if one.kind == NO}
    assert doubts == ({NO: 5} if kind == "no_socket" else {})


def test_the_limit_of_open_files_is_raised():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 512:
        pytest.skip("the hard limit is as low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (511, before[1]))
    try:
        allow_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 511
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("/a%20b,%Cd/v1", "/a%20b%2C%Cd/v1/completions"),
        ("/v1/?api-version=1&k=a%2Fb", "/v1/completions?api-version=1&k=a%2Fb"),
    ],
)
def test_the_address_of_a_server_is_asked_for_as_it_is(base, path):
    asked = []

    async def answer(reader, writer):
        asked.append((await reader.readuntil(b"{}")).split(b"\r\n")[0])
        writer.write(HEAD + SIZED)
        writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{base}"
        async with server:
            return await results(Target(url=url, model="m"), [b"{}"])

    assert asyncio.run(run()) == [EVENTS]
    assert asked == [f"POST {path} HTTP/1.1".encode()]


@pytest.mark.parametrize("named", [{"headers": {"authorization": "Bearer a\r\nx: y"}}, {"url": "http://x/v1?é"}])
def test_characters_invalid_in_a_request_head_are_refused(named):
    with pytest.raises(UsageError, match="characters that are invalid in an HTTP header"):
        client_of(Target(**{"url": "http://x/v1", "model": "m", **named}))


def test_the_scripted_server_explains_itself_instead_of_starting(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--ttft" in shown
    assert "http://" not in shown
