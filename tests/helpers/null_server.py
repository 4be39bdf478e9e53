"""An OpenAI-compatible server with scripted times, and an event loop whose clock jumps to the next event.

On that loop an hour of load takes as long as its events, and every time is exactly that of the script: nothing in a
test waits, and nothing depends on how busy the machine is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import ssl
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Value = TypeVar("Value")
ROUND_S = 20e-6
"""What a round of the loop takes in which nothing arrives: so the time comes for one that looks at the clock, too."""
HEAD_END = b"\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while something is ready, and then jumps to the next timer."""

    def __init__(self, busy_s: float = 0.0) -> None:
        super().__init__(_Jumping(self))
        self.now = 1000.0
        self.busy_s = busy_s
        """What a round of the loop takes, as on a machine that is too slow."""

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout is None:
            return super().select(5)
        self.loop.now += self.loop.busy_s
        if not found:
            self.loop.now += max(timeout or 0.0, ROUND_S)
        return found


def run_jumping(main: Coroutine[Any, Any, Value], busy_s: float = 0.0) -> Value:
    """The result of a coroutine on a `JumpingLoop`."""
    with asyncio.Runner(loop_factory=lambda: JumpingLoop(busy_s)) as runner:
        return runner.run(main)


@dataclass(kw_only=True)
class Script:
    """What a server does. Times in s."""

    ttft_s: float = 0.1
    itl_s: float = 0.01
    slots: int | None = None
    """Requests served at once; the others wait. None: all."""
    tokens: int | None = None
    """Of each reply; None: as many as requested."""
    reasoning: int = 0
    """Of each reply in a chat, those before the answer."""
    tokens_a_chunk: int = 1
    chunks_together: int = 1
    """Chunks that something in between holds back, to hand them on at once."""
    stall: tuple[float, float] | None = None
    """Start and length of a time in which the server does nothing, from its first request."""
    metrics: str = ""
    """Its page /metrics; "{requests}" in it is how many there were."""
    pages: dict[str, str] = field(default_factory=dict)
    """Further pages by their path in lower case; other paths are answered as /metrics is."""
    closes_gets: bool = False
    """Whether it closes the connection instead of answering to GET."""
    cached: int | None = None
    """Tokens of each prompt that it reports as cached."""
    fault: Callable[[int], str | None] = field(default=lambda number: None)
    """Number of a request, from 0 -> http_429, http_503, truncated, wrong_json, endless, no_usage (of the response's
    tokens) or no_done."""
    usage_delay_s: float = 0.0
    """From the last token to the usage and [DONE]."""
    hold_s: float = 0.0
    """From [DONE] to the end of the body."""


class NullServer:
    """Serves on a free port of the loopback until it is closed; `seen` has the bodies of the requests."""

    def __init__(self, script: Script | None = None, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.tls, self.port = tls, port
        self.script = script or Script()
        self.seen: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.first_s: float | None = None
        self._slots = asyncio.Semaphore(self.script.slots) if self.script.slots else None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> NullServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, backlog=4096, ssl=self.tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()

    @property
    def url(self) -> str:
        """The base address, with /v1."""
        assert self._server is not None
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(HEAD_END)).decode().lower()
                length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0)
                body = json.loads(await reader.readexactly(length)) if length else {}
                if head.startswith("get ") and self.script.closes_gets:
                    return
                if head.startswith("get "):
                    page = self.script.pages.get(head.split(" ")[1], self.script.metrics)
                    answer = page.replace("{requests}", str(len(self.seen))).encode()
                    writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(answer)}\r\n\r\n".encode() + answer)
                    continue
                self.paths.append(head.split(" ")[1])
                if not await self._answer(body, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays open."""
        loop, number = asyncio.get_running_loop(), len(self.seen)
        self.seen.append(body)
        self.first_s = loop.time() if self.first_s is None else self.first_s
        fault = self.script.fault(number)
        if fault in ("http_429", "http_503"):
            answer = b'{"error": {"message": "busy"}}'
            head = f"HTTP/1.1 {fault[5:]} Busy\r\nretry-after: 1\r\ncontent-length: {len(answer)}\r\n\r\n"
            writer.write(head.encode() + answer)
            return True
        if self._slots is None:
            return await self._stream(body, writer, fault)
        async with self._slots:
            return await self._stream(body, writer, fault)

    async def _stream(self, body: dict[str, Any], writer: asyncio.StreamWriter, fault: str | None) -> bool:
        script, is_chat = self.script, "messages" in body
        count = script.tokens or body["max_tokens"]
        writer.write(STREAM)
        done, held = 0, list[bytes]()
        await self._until(script.ttft_s)
        while done < count or fault == "endless":
            own = min(script.tokens_a_chunk, max(count - done, 1))
            name = "content" if done >= script.reasoning else "reasoning_content"
            piece: dict[str, Any] = {"delta": {name: "a" * own}} if is_chat else {"text": "a" * own}
            held.append(_event({"choices": [{"index": 0, **piece}]}))
            done += own
            if len(held) == script.chunks_together or done >= count:
                writer.write(b"".join(held))
                held.clear()
            if fault == "truncated" and done >= 2:
                return False
            if fault == "wrong_json":
                writer.write(_chunk(b"data: {not json\n\n"))
            if done < count or fault == "endless":
                await self._until(script.itl_s * own)
        if fault == "no_done":
            writer.write(_event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}))
            await self._until(script.usage_delay_s or 0.2)
            writer.write(b"0\r\n\r\n")
            return True
        if script.usage_delay_s:
            await self._until(script.usage_delay_s)
        details = {} if script.cached is None else {"prompt_tokens_details": {"cached_tokens": script.cached}}
        counted = {} if fault == "no_usage" else {"completion_tokens": count}
        writer.write(_event({"choices": [], "usage": {"prompt_tokens": 7, **counted, **details}}))
        writer.write(_chunk(b"data: [DONE]\n\n"))
        if script.hold_s:
            await self._until(script.hold_s)
        writer.write(b"0\r\n\r\n")
        return True

    async def _until(self, seconds: float) -> None:
        """Waits, and longer where the server stalls meanwhile."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        if self.script.stall is not None and self.first_s is not None:
            start = self.first_s + self.script.stall[0]
            if end > start and loop.time() < start + self.script.stall[1]:
                end = max(end, start + self.script.stall[1] + (end - max(start, loop.time())))
        await asyncio.sleep(end - loop.time())


def _event(data: dict[str, Any]) -> bytes:
    return _chunk(b"data: " + json.dumps(data).encode() + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def serve(script: Script, port: int = 0) -> None:
    """Prints the address, and serves until the process ends."""
    async with NullServer(script, port=port) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


def main(argv: Sequence[str]) -> None:
    """Serves with the times of the flags."""
    parser = argparse.ArgumentParser(prog="null_server", description=__doc__ and __doc__.partition("\n")[0])
    parser.add_argument(
        "--ttft", type=float, default=1.0, metavar="S", help="time to first token (default: %(default)s)"
    )
    parser.add_argument(
        "--itl", type=float, default=0.05, metavar="S", help="time between tokens (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=0, help="on the loopback; 0 takes a free one, which is printed")
    given = parser.parse_args(argv)
    asyncio.run(serve(Script(ttft_s=given.ttft, itl_s=given.itl), given.port))


if __name__ == "__main__":
    main(sys.argv[1:])
