"""The generator's own maximum request rate, measured against a server in a child process that answers immediately.

    python -m benchmarking.load.capacity [--http2]

runs that server and prints its address.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import psutil

from benchmarking.core.child_process import module_command, start
from benchmarking.core.errors import BenchhouseError
from benchmarking.load.connections import Target
from benchmarking.load.generator import Generator, Level
from benchmarking.load.traffic import Lengths, Traffic

IN_FLIGHT = 32
TOKENS = 4
EVENT = b'data: {"choices":[{"index":0,"text":" a"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":4}}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKS = (*[EVENT] * TOKENS, USAGE)
ANSWER = b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in CHUNKS) + b"0\r\n\r\n"
LENGTH = b"content-length:"
HTTP2 = "--http2"


async def capacity_per_s(duration_s: float, *, http2: bool = False, cpus: Sequence[int] = ()) -> float:
    """Requests per second in a closed loop to a child process, over HTTP/1.1 or HTTP/2.

    The child runs on these processors, or else on the generator's. Raises BenchhouseError if it does not start.
    """
    traffic = Traffic(lengths_in=Lengths("8"), lengths_out=Lengths(str(TOKENS)))
    level = Level(concurrency=IN_FLIGHT, duration_s=duration_s)
    async with answering_at_once(http2=http2, cpus=cpus) as target, Generator(target) as generator:
        await generator.run(traffic, replace(level, number=IN_FLIGHT))
        sent = await generator.run(traffic, level)
    done = [one for one in sent if one.error is None and one.end_s is not None]
    if not done:
        raise BenchhouseError(f"cannot measure the generator's rate: no request succeeded: {sent[0].detail}")
    return len(done) / (max(one.end_s or 0.0 for one in done) - min(one.intended_s for one in done))


@asynccontextmanager
async def answering_at_once(*, http2: bool = False, cpus: Sequence[int] = ()) -> AsyncIterator[Target]:
    """A server in a child process that answers each request at once. Raises BenchhouseError where it does not start."""
    child = start(module_command("benchmarking.load.capacity", *([HTTP2] if http2 else [])))
    try:
        if cpus:
            with suppress(OSError, psutil.Error):  # a smaller cpuset: the server then competes with the generator
                psutil.Process(child.pid).cpu_affinity(list(cpus))
        assert child.stdout is not None
        url = (await asyncio.to_thread(child.stdout.readline)).strip()
        if not url:
            raise BenchhouseError(
                f"cannot measure the generator's rate: its server did not start: {child.communicate()[1]}"
            )
        yield Target(url=url, model="any", http2=http2)
    finally:
        child.kill()
        child.communicate()


class _AtOnce(asyncio.Protocol):
    """Answers each request with the same stream."""

    def __init__(self) -> None:
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            after = head.partition(LENGTH)[2].partition(b"\r")[0]
            whole = end + 4 + int(after or 0)
            if len(self._read) < whole:
                return
            self._read = self._read[whole:]
            self._transport.write(HEAD + ANSWER)


class _AtOnceHttp2(asyncio.Protocol):
    """The same over HTTP/2."""

    def __init__(self) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        self._state = H2Connection(H2Configuration(client_side=False, header_encoding=None))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._state.initiate_connection()
        transport.write(self._state.data_to_send())

    def data_received(self, data: bytes) -> None:
        from h2.events import DataReceived, StreamEnded

        for event in self._state.receive_data(data):
            if isinstance(event, DataReceived):
                self._state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                head = [(b":status", b"200"), (b"content-type", b"text/event-stream")]
                self._state.send_headers(event.stream_id, head)
                for one in CHUNKS:
                    self._state.send_data(event.stream_id, one, end_stream=one is USAGE)
        self._transport.write(self._state.data_to_send())


async def _serve(protocol: type[asyncio.Protocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(_AtOnceHttp2 if HTTP2 in sys.argv else _AtOnce))
