"""How many requests per second the generator itself can send: to a server that answers at once, in a child process."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from benchmarking.core.child_process import module_command, start
from benchmarking.core.errors import BenchhouseError
from benchmarking.load.generator import Generator, Level, Target
from benchmarking.load.traffic import Lengths, Traffic

IN_FLIGHT = 32
TOKENS = 4
EVENT = b'data: {"choices":[{"index":0,"text":" a"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":4}}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in (*[EVENT] * TOKENS, USAGE)) + b"0\r\n\r\n"
LENGTH = b"content-length:"


async def capacity_per_s(duration_s: float) -> float:
    """Requests per second in a closed loop to a child process. Raises BenchhouseError where it does not start."""
    child = start(module_command("benchmarking.load.capacity"))
    try:
        assert child.stdout is not None
        url = (await asyncio.to_thread(child.stdout.readline)).strip()
        if not url:
            raise BenchhouseError(f"the server to measure the generator with did not start: {child.communicate()[1]}")
        traffic = Traffic(lengths_in=Lengths("8"), lengths_out=Lengths(str(TOKENS)))
        target, level = Target(url=url, model="any"), Level(concurrency=IN_FLIGHT, duration_s=duration_s)
        async with Generator(target) as generator:
            await generator.run(traffic, replace(level, number=IN_FLIGHT))
            sent = await generator.run(traffic, level)
    finally:
        child.kill()
        child.communicate()
    done = [one for one in sent if one.error is None and one.end_s is not None]
    if not done:
        raise BenchhouseError(f"no request reached the server to measure the generator with: {sent[0].detail}")
    return len(done) / (max(one.end_s or 0.0 for one in done) - min(one.intended_s for one in done))


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


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_AtOnce, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
