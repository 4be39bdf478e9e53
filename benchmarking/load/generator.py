"""Sends requests to an OpenAI-compatible server, and records when each was scheduled, sent and answered; and measures
how many it can send.

Its own maximum request rate is measured against a server in a child process that answers immediately.

    python -m benchmarking.load.generator [--http2]

runs that server and prints its address.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import field, replace
from itertools import cycle, islice
from typing import Any

import psutil

from benchmarking.core.child_process import module_command, start
from benchmarking.core.codec import is_whole
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import MAX_ARRIVALS, MAX_REQUESTS, Requests, TokenCounter
from benchmarking.core.untrusted.redaction import without_secrets
from benchmarking.load.connections import MAX_DETAIL, MAX_REFUSAL, RequestError, Target, client_of
from benchmarking.load.traffic import (
    ITS_SUCCESSOR,
    MAX_TOKENS,
    OMITTABLE,
    Conversation,
    Lengths,
    PlannedRequest,
    Traffic,
    judged,
)
from benchmarking.measure.timing import short_gc

SPIN_S = 0.002
"""Time before a start during which the generator polls the clock instead of sleeping, since timers are up to 1 ms
late."""
LONG_PROMPT = 1000
"""Words of the prompts from which on those of closed loops are made ahead, in a thread: shorter ones take less time
than to change to it and back."""
HANDOVER_S = 0.0005
"""Time after which that thread lets replies be read, a tenth of the usual one."""
MAX_LINE_BYTES = 1 << 20
BYTES_PER_REPLY, BYTES_PER_TOKEN = 1 << 20, 1 << 14
"""Maximum bytes of a response, plus bytes per requested token. An endless stream would otherwise exhaust the memory
before the time limit."""
MAX_COUNT = 2**31 - 1
"""Maximum token count accepted, since a server may report anything."""
MAX_START = 84
"""Characters shown of a response that is not understood."""
WARM_UP = "warm-up"
DATA, EVENT_NAME, COMMENT, END = b"data:", b"event:", b":", b"[DONE]"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""A stream may begin with it."""
BROKEN_OFF = ("abort", "error", "timeout", "cancel", "insufficient_system_resource")
"""Beginnings of reasons for finishing of a response that the server gave up: the words of vLLM and SGLang, of
TensorRT-LLM (`timeout`, `cancelled`), and of gateways."""
Encoded = tuple[tuple[PlannedRequest, str], ...]
"""A conversation as it is sent: its turns, each with its prompt in JSON."""
Count = Callable[[str], int]
"""The number of tokens of a text."""
HOPELESS = 100
"""Requests that may fail in a row before a closed loop ends. It has no schedule, so that a server which refuses at once
would be sent as many as it can refuse."""
TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields of a chat's delta with output: of OpenAI, and, in the middle, of the servers of reasoning models. Mistral's
content is a list of parts."""
REFUSALS = ("http_400", "http_422")
REFUSING = re.compile(
    r"unrecogni|unsupported|not support|unknown|unexpected|extra|not permitted|not allowed|invalid arg", re.IGNORECASE
)
"""Words of an answer that refuses a field, rather than its value."""
ROLES = ("user", "assistant")
"""The alternating roles of a chat."""


@dataclass(slots=True)
class Sent:
    """A sent request; times in s of the event loop's clock."""

    intended_s: float
    sent_s: float | None = None
    tokens_s: array[float] = field(default_factory=lambda: array("d"))
    end_s: float | None = None
    """[DONE], or the reason for finishing where the stream ends without it; of a failed attempt, its end."""
    closed_s: float | None = None
    """End of the body."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    least_tokens: int = 0
    """Chunks with a text, each of at least one token."""
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    """Of `tokens_out`, by the server's count."""
    has_reasoning: bool = False
    """Whether text of the reasoning arrived."""
    error: str | None = None
    detail: str | None = None
    conversation: int | None = None
    turn: int | None = None
    prompt: str | tuple[int, ...] = ""
    """What was sent; kept only to count its tokens."""
    text: str = ""
    """The text of the response; kept in conversations and to count its tokens."""
    said: str = ""
    """What later turns repeat of it: reasoning and tool calls are no part of a message. Kept as `text` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of a load: a rate per second in an open loop, or a number in flight in a closed loop."""

    rate: float | None = None
    concurrency: int | None = None
    number: int | None = None
    """Number of requests; None for as many as start within the duration."""
    duration_s: float = 30.0

    @property
    def is_open(self) -> bool:
        return self.rate is not None

    @property
    def is_at_once(self) -> bool:
        """Whether all requests start at the same time."""
        return self.rate is not None and math.isinf(self.rate)

    @property
    def requests(self) -> int:
        """Number of requests that start in an open loop."""
        return self.number or max(1, round((self.rate or 0.0) * self.duration_s))

    def starts_s(self, requests: Requests) -> float:
        """The time that the starts of an open loop take, as long after the last one as after the others; 0 for requests
        that start at once, and for a closed loop."""
        return 0.0 if self.rate is None else sum(not turn for turn in requests.turn) / self.rate

    @property
    def words(self) -> str:
        if self.is_at_once:
            return f"{self.number} requests at once"
        return f"{self.rate:g} requests/s" if self.rate is not None else f"{self.concurrency} in flight"


class _Reply:
    """Parses the events of a stream as its pieces arrive, and records the tokens and their counts."""

    __slots__ = (
        "_begin",
        "_decode",
        "_finished_s",
        "_held",
        "_is_after_return",
        "_is_error",
        "_keeps_text",
        "_read_s",
        "_rest",
        "_room",
        "_tokens",
        "is_whole",
        "sent",
    )

    def __init__(self, sent: Sent, tokens: int, *, keeps_text: bool) -> None:
        self.sent = sent
        self.is_whole = False
        """Whether [DONE] has arrived. What follows does not change the response."""
        self._finished_s: float | None = None
        self._tokens = tokens
        self._room = BYTES_PER_REPLY + BYTES_PER_TOKEN * tokens
        self._rest, self._read_s = b"", 0.0
        self._begin: bytes | None = b""
        """The beginning of a response in which no line of a stream has arrived yet; None after the first."""
        self._is_after_return = False
        """Whether the last piece ended with a carriage return, whose line feed may follow."""
        self._held = list[bytes]()
        """The lines of an event that is no JSON until its further lines have arrived."""
        self._is_error = False
        """Whether the server has named the next event an error."""
        self._keeps_text = keeps_text
        self._decode = json.JSONDecoder().decode

    def __call__(self, piece: bytes, now_s: float) -> None:
        self._room, self._read_s = self._room - len(piece), now_s
        if self._room < 0:
            raise RequestError("endless", f"the response continues far beyond the {self._tokens} requested tokens")
        if self._begin is not None:
            self._begin = (self._begin + piece)[:MAX_REFUSAL]
        if self._is_after_return or b"\r" in piece:  # lines end with it, with a line feed, or with both
            rest = piece[1:] if self._is_after_return and piece.startswith(b"\n") else piece
            self._is_after_return = piece.endswith(b"\r")
            piece = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE_BYTES:
            raise RequestError("transfer", f"a line of the stream is longer than {MAX_LINE_BYTES} bytes")
        for line in lines:
            if self._begin is not None:
                line = line.removeprefix(BYTE_ORDER_MARK)
                if line.startswith((DATA, EVENT_NAME, COMMENT)):
                    self._begin = None
            if self._held and not line:
                data, self._held = b"\n".join(self._held), []
                self._event(data, now_s, has_ended=True)
            if not self.is_whole and line.startswith(DATA):
                self._event(line[len(DATA) :].strip(), now_s)
            elif line.startswith(EVENT_NAME):
                self._is_error = line[len(EVENT_NAME) :].strip() == b"error"

    def check(self) -> None:
        """Raise RequestError for a stream that ended early or without output. Its last line may have no line feed."""
        last, begin = self._rest, self._begin
        if last:
            self(b"\n", self._read_s)
        if not self.is_whole:
            if begin and self._begin:
                raise RequestError("no_stream", f"the response is no stream of events: {_start(begin)}")
            if self._finished_s is None and self._held and not last:
                raise RequestError("wrong_json", f"no JSON until the stream ended: {_start(self._held[0])}")
            if self._finished_s is None:
                raise RequestError("truncated", "the stream ended without [DONE] or a reason for finishing")
            self.sent.end_s = self._finished_s
        if not self.sent.tokens_s:
            raise RequestError("no_output", "the stream ended without any output")

    def _event(self, data: bytes, now_s: float, *, has_ended: bool = False) -> None:
        """Record an event, by the first of its lines where that is all of it, as it nearly always is: some servers send
        no empty line after it. `has_ended`: `data` are all of its lines."""
        if not data:  # only keeps the connection alive
            return
        if self._held:
            self._held.append(data)
            return
        if data == END:
            self.is_whole = True
            self.sent.end_s = now_s
            return
        if self._is_error:
            raise RequestError("server_error", data.decode(errors="replace"))
        try:
            event = self._decode(data.decode())
        except (ValueError, RecursionError) as error:
            if not has_ended:
                self._held.append(data)
                return
            raise RequestError("wrong_json", f"{error}: {_start(data)}") from error
        if not isinstance(event, dict):
            raise RequestError("wrong_json", f"expected an object: {_start(data)}")
        told = event if event.get("object") == "error" else event.get("error")
        if told is not None:  # some servers have the field in every event, as null
            raise RequestError("server_error", json.dumps(told))
        if isinstance(usage := event.get("usage"), dict):
            sent, details, of_output = (
                self.sent,
                usage.get("prompt_tokens_details"),
                usage.get("completion_tokens_details"),
            )
            sent.tokens_in = _whole(usage.get("prompt_tokens"), sent.tokens_in)
            sent.tokens_out = _whole(usage.get("completion_tokens"), sent.tokens_out)
            cached = details.get("cached_tokens") if isinstance(details, dict) else None
            sent.cached_tokens = _whole(cached, sent.cached_tokens)
            reasoning = of_output.get("reasoning_tokens") if isinstance(of_output, dict) else None
            sent.reasoning_tokens = _whole(reasoning, sent.reasoning_tokens)
        # The output in an event of either endpoint, including reasoning, refusals and tool calls, None if there is
        # none; and whether the event states the reason for finishing.
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            text, said, is_finished = None, None, False
        else:
            choice = choices[0]
            delta, found, reason = choice.get("delta"), choice.get("text"), choice.get("finish_reason")
            if isinstance(reason, str) and reason.lower().startswith(BROKEN_OFF):
                raise RequestError("server_error", f"the server ended the response with the reason {reason}")
            if isinstance(delta, dict):
                pieces = [_text(delta.get(name)) for name in TEXTS]
                self.sent.has_reasoning |= any(pieces[1:3])
                found = next(
                    (piece for piece in pieces if piece), next((piece for piece in pieces if piece is not None), None)
                )
                if not found:
                    found = _tool_call(delta) or found
                if found == "" and delta.get("role") is not None:
                    found = None  # the event that starts a message
            text, is_finished = _text(found), isinstance(reason, str) and reason != ""
            said = text
            if self._keeps_text and isinstance(delta, dict):
                said = _text(delta.get("content"), thoughts=False) or _text(delta.get("refusal"))
        if is_finished and self._finished_s is None:
            self._finished_s = now_s
        # An empty piece after the first output is a token that decodes to nothing, such as half a character. Empty
        # pieces before it, and with or after the reason for finishing, are no output.
        if text or (text == "" and self.sent.tokens_s and self._finished_s is None):
            self.sent.tokens_s.append(now_s)
            self.sent.least_tokens += text != ""
            if self._keeps_text:
                self.sent.text += text
                self.sent.said += said or ""


class Generator:
    """Sends requests to a server over persistent connections; use it in `async with`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.keeps_text = False
        """Whether to keep prompts and responses, to count their tokens."""
        self._client = client_of(target)

    async def __aenter__(self) -> Generator:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def run(self, traffic: Traffic, level: Level) -> list[Sent]:
        """Send all requests of a level; returns them in the order of their scheduled starts once the last has ended."""
        planned = map(self.encoded, traffic.conversations())
        if level.rate is None:
            most = level.number or MAX_REQUESTS // traffic.most_turns
            return await self.in_turn(islice(planned, most), level, is_made_ahead=traffic.words(1) > LONG_PROMPT)
        loop, found = asyncio.get_running_loop(), list[Sent]()
        chosen, tasks = list(islice(planned, level.requests)), set[asyncio.Task[None]]()
        offsets = traffic.schedule(level.rate, [turns[0][0] for turns in chosen])
        start_s, before_s = loop.time(), math.nan
        for place, (turns, offset_s) in enumerate(zip(chosen, offsets, strict=True)):
            if offset_s != before_s:  # those of one time start together
                await _until(start_s + offset_s)
            before_s = offset_s
            tasks.add(task := loop.create_task(self._converse(turns, start_s + offset_s, place, found)))
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        return sorted(found, key=lambda one: one.intended_s)

    async def in_turn(self, planned: Iterator[Encoded], level: Level, *, is_made_ahead: bool) -> list[Sent]:
        """Send these conversations, of which the next starts when one has ended. `is_made_ahead`: each is made while
        the server works on those before."""
        loop, found, failures = asyncio.get_running_loop(), list[Sent](), 0
        jobs, made = enumerate(planned), deque[asyncio.Future[tuple[int, Encoded] | None]]()
        firsts = list(islice(jobs, level.concurrency or 1))
        end_s = loop.time() + level.duration_s if level.number is None else math.inf

        async def one_place(job: tuple[int, Encoded] | None, maker: ThreadPoolExecutor) -> None:
            nonlocal failures
            while job is not None and loop.time() < end_s and failures < HOPELESS:
                if is_made_ahead:
                    made.append(loop.run_in_executor(maker, lambda: next(jobs, None)))
                first, (place, turns) = len(found), job
                await self._converse(turns, loop.time(), place, found, end_s)
                if failures < HOPELESS:  # else the others have ended, and this one does
                    failures = 0 if found[first].error is None else failures + 1
                job = await made.popleft() if is_made_ahead else next(jobs, None)

        with _beside() as maker:
            await asyncio.gather(*(one_place(job, maker) for job in firsts))
        return sorted(found, key=lambda one: one.intended_s)

    def encoded(self, turns: Conversation) -> Encoded:
        """The conversation as it is sent. Its prompts are kept only to count their tokens."""
        return tuple((one if self.keeps_text else replace(one, prompt=""), json.dumps(one.prompt)) for one in turns)

    async def send(self, planned: PlannedRequest, sent: Sent, texts: Sequence[str]) -> None:
        """Send a request and record the response; errors are recorded and never raised. `texts` are the previous
        messages of its conversation and its prompt, in JSON."""
        loop = asyncio.get_running_loop()
        keeps_text = self.keeps_text or sent.conversation is not None
        reply = _Reply(sent, planned.tokens_out, keeps_text=keeps_text)
        body = _body(self.target, planned.tokens_out, texts)
        sent.sent_s = loop.time()
        try:
            async with asyncio.timeout(self.target.timeout_s):
                await self._client.post(body, reply)
            reply.check()
        except TimeoutError:
            if not reply.is_whole:
                sent.error, sent.detail = "timed_out", f"not finished within {self.target.timeout_s:g} s"
        except RequestError as error:
            if not reply.is_whole or error.kind == "no_output":
                # First without secrets: a part of one could not be recognised.
                sent.error, sent.detail = error.kind, without_secrets(" ".join(str(error).split()))[:MAX_DETAIL]
        sent.closed_s = loop.time()
        if self.keeps_text:
            is_text = isinstance(planned.prompt, str)
            sent.prompt = "\n".join(map(json.loads, texts)) if is_text else planned.prompt
        if sent.error is not None or sent.end_s is None:
            sent.end_s = sent.closed_s

    async def _converse(
        self, turns: Encoded, start_s: float, place: int, found: list[Sent], end_s: float = math.inf
    ) -> None:
        """Send a request, or the turns of a conversation until one fails or would begin after `end_s`. A turn is due
        when its pause after the previous one is over, or at its time in a trace, but not before the previous ended."""
        history: list[str] = []
        due_s, is_talk = start_s, len(turns) > 1
        for number, (planned, text) in enumerate(turns):
            sent = Sent(due_s, conversation=place if is_talk else None, turn=number if is_talk else None)
            found.append(sent)
            await self.send(planned, sent, (*history, text) if planned.has_history else (text,))
            reply, sent.said = sent.said, ""
            if not self.keeps_text:
                sent.text = ""
            if sent.error is not None or sent.closed_s is None or number + 1 == len(turns):
                return
            if any(turn.has_history for turn, _ in turns[number + 1 :]):
                history += (text, json.dumps(reply))
            later = turns[number + 1][0]
            due_s = sent.closed_s + (later.pause_s or 0.0)
            if later.pause_s is None and later.offset_s is not None and turns[0][0].offset_s is not None:
                due_s = max(due_s, start_s + later.offset_s - turns[0][0].offset_s)
            await _until(min(due_s, end_s))
            if due_s >= end_s:
                return


def requests_of(
    sent: list[Sent], launch: int, started_at: str, limits: Mapping[str, float], tokenizer: Count | None = None
) -> Requests:
    """The record of a level's requests; times to the microsecond, which compress well.

    Where the server does not report tokens, `tokenizer` counts those of a text; without it, each chunk is one.
    """
    counted_by = [None if request.error is not None else _count_tokens(request, tokenizer) for request in sent]
    start_s = min((request.intended_s for request in sent), default=0.0)
    keeps_all = sum(len(request.tokens_s) for request in sent) <= MAX_ARRIVALS

    def ms(value: float | None) -> float | None:
        return None if value is None else round((value - start_s) * MS_PER_S, 3)

    found = Requests(
        launch=launch,
        phase="measure",
        started_at=started_at,
        intended_ms=tuple(round((request.intended_s - start_s) * MS_PER_S, 3) for request in sent),
        sent_ms=tuple(ms(request.sent_s) for request in sent),
        first_token_ms=tuple(ms(request.tokens_s[0]) if request.tokens_s else None for request in sent),
        token_ms=tuple(
            tuple(round((at - start_s) * MS_PER_S, 3) for at in request.tokens_s) if keeps_all else ()
            for request in sent
        ),
        end_ms=tuple(ms(request.end_s) for request in sent),
        tokens_in=tuple(request.tokens_in for request in sent),
        tokens_out=tuple(request.tokens_out for request in sent),
        cached_tokens=tuple(request.cached_tokens for request in sent),
        error=tuple(request.error for request in sent),
        detail=tuple(request.detail for request in sent),
        meets_limits=(None,) * len(sent),
        conversation=tuple(request.conversation for request in sent),
        turn=tuple(request.turn for request in sent),
        last_token_ms=tuple(ms(request.tokens_s[-1]) if request.tokens_s else None for request in sent),
        closed_ms=tuple(ms(request.closed_s) for request in sent),
        tokens_counted_by=tuple(counted_by),
    )
    return judged(found, limits)


def _count_tokens(one: Sent, tokenizer: Count | None) -> TokenCounter | None:
    """Count the tokens that the server did not report, or of which it reported fewer than chunks, as some do in their
    first event; returns what counted those of the response. What a model generates may have more tokens than the
    encoding of its text, so fewer by the tokenizer than chunks are none either."""
    if one.tokens_in is None and isinstance(one.prompt, tuple):
        one.tokens_in = len(one.prompt)
    elif one.tokens_in is None and isinstance(one.prompt, str) and one.prompt and tokenizer is not None:
        one.tokens_in = tokenizer(one.prompt)
    if (one.tokens_out is not None and one.tokens_out >= one.least_tokens) or not one.tokens_s:
        hidden = 0 if one.has_reasoning else one.reasoning_tokens or 0
        return "hidden" if hidden and one.least_tokens <= (one.tokens_out or 0) - hidden else None
    by_tokenizer = 0 if tokenizer is None else tokenizer(one.text)
    is_less = by_tokenizer < one.least_tokens
    one.tokens_out = len(one.tokens_s) if is_less else by_tokenizer
    return "chunks" if is_less else "tokenizer"


async def run_level(
    target: Target,
    traffic: Traffic,
    level: Level,
    *,
    warmup: int = 0,
    warmed: Callable[[], None] | None = None,
    launch: int = 0,
    limits: Mapping[str, float],
    tokenizer: Count | None = None,
) -> Requests:
    """The requests of a level, after sequential warm-up requests, which are discarded. `warmed` is called after the
    warm-up; `tokenizer` is as in `requests_of`."""
    async with Generator(target) as generator:
        for turns in islice(replace(traffic, salt=WARM_UP).conversations(), warmup):
            # Only the first turns: the pauses before the others, or their times in a trace, may be hours.
            await generator.send(turns[0], Sent(asyncio.get_running_loop().time()), (json.dumps(turns[0].prompt),))
        if warmed is not None:
            warmed()
        generator.keeps_text = tokenizer is not None
        with short_gc():
            started_at = utc_now()
            sent = await generator.run(traffic, level)
        return requests_of(sent, launch, started_at, limits, tokenizer)


async def _until(at_s: float) -> None:
    """Sleep for most of the time, then yield to other tasks until the time has come: also where it is over, since a
    generator that is late has replies to read."""
    loop = asyncio.get_running_loop()
    if (rest_s := at_s - loop.time()) > SPIN_S:
        await asyncio.sleep(rest_s - SPIN_S)
    await asyncio.sleep(0)
    while loop.time() < at_s:
        await asyncio.sleep(0)


@contextmanager
def _beside() -> Iterator[ThreadPoolExecutor]:
    """A thread for work beside the reading of replies, which it soon lets go on."""
    usual_s, maker = sys.getswitchinterval(), ThreadPoolExecutor(1)
    sys.setswitchinterval(HANDOVER_S)
    try:
        yield maker
    finally:
        maker.shutdown(wait=False, cancel_futures=True)
        sys.setswitchinterval(usual_s)


def one_token(target: Target) -> bytes:
    """The body of the shortest request."""
    return _body(target, 1, ('"a"',))


def _body(target: Target, tokens_out: int, texts: Sequence[str]) -> bytes:
    """The body of a request. `texts`, in JSON, are put together as they are: making that of a long conversation again
    at each turn would hold up the other requests."""
    if target.endpoint == "chat":
        messages = (f'{{"role": "{ROLES[place % 2]}", "content": {text}}}' for place, text in enumerate(texts))
        content = f'"messages": [{", ".join(messages)}]'
    elif len(texts) == 1:  # a text, or token ids
        content = f'"prompt": {texts[0]}'
    else:
        content = '"prompt": "' + r"\n".join(text[1:-1] for text in texts) + '"'
    body = {
        "model": target.model,
        MAX_TOKENS: tokens_out,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    if MAX_TOKENS in target.omitted:  # an answer always has a limit
        body[ITS_SUCCESSOR] = tokens_out
    fields = json.dumps({name: value for name, value in body.items() if name not in target.omitted})
    return f"{fields[:-1]}, {content}}}".encode()


def omission_advice(kind: str, detail: str) -> str:
    """What to do about a request of which the server refused a field that can be left out; empty for any other."""
    field = next((name for name in OMITTABLE if name in detail), None)
    if kind not in REFUSALS or field is None or not REFUSING.search(detail):
        return ""
    return f"; --omit-fields {field} leaves it out of the requests"


def _text(found: Any, depth: int = 2, *, thoughts: bool = True) -> str | None:
    """A piece of output: a text, or the texts of its parts, which may be parts of a part; None if it has none."""
    if not isinstance(found, list) or not depth:
        return found if isinstance(found, str) else None
    parts = [
        _text(part.get("text", part.get("thinking") if thoughts else None), depth - 1, thoughts=thoughts)
        for part in found
        if isinstance(part, dict)
    ]
    texts = [part for part in parts if part is not None]
    return "".join(texts) if texts else None


def _tool_call(delta: Mapping[str, Any]) -> str | None:
    """The name and arguments in a piece of a tool call, also of the older form of one."""
    calls = delta.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    functions.append(delta.get("function_call"))
    pieces = [
        function.get(name) for function in functions if isinstance(function, dict) for name in ("name", "arguments")
    ]
    return "".join(piece for piece in pieces if isinstance(piece, str)) or None


def _whole(value: Any, before: int | None) -> int | None:
    """The count, or what an earlier event stated."""
    return value if is_whole(value) and 0 <= value <= MAX_COUNT else before


def _start(data: bytes) -> str:
    return without_secrets(repr(data[:MAX_REFUSAL]))[:MAX_START]


IN_FLIGHT, WORDS_IN_FLIGHT = 32, 400_000
TOKENS = 4
EVENT = b'data: {"choices":[{"index":0,"text":" a"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":4}}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKS = (*[EVENT] * TOKENS, USAGE)
ANSWER = b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in CHUNKS) + b"0\r\n\r\n"
LENGTH = b"content-length:"
HTTP2 = "--http2"


async def capacity_per_s(
    duration_s: float, traffic: Traffic, *, is_open: bool, http2: bool = False, cpus: Sequence[int] = ()
) -> float:
    """Requests per second in a closed loop to a child process, over HTTP/1.1 or HTTP/2, with prompts as long as those
    of the traffic; `is_open`: which an open loop has made before.

    The child runs on these processors, or else on the generator's. Raises BenchhouseError if it does not start.
    """
    alike = Traffic(lengths_in=traffic.prompt_lengths, lengths_out=Lengths(str(TOKENS)), vocabulary=traffic.vocabulary)
    in_flight = max(1, min(IN_FLIGHT, WORDS_IN_FLIGHT // max(1, round(alike.lengths_in.mean))))
    level, is_made_ahead = Level(concurrency=in_flight, duration_s=duration_s), alike.words(1) > LONG_PROMPT
    async with answering_at_once(http2=http2, cpus=cpus) as target, Generator(target) as generator:
        planned: Iterator[Encoded] = map(generator.encoded, alike.conversations())
        if is_open:
            planned, is_made_ahead = cycle(list(islice(planned, in_flight))), False
        await generator.in_turn(islice(planned, in_flight), level, is_made_ahead=is_made_ahead)
        sent = await generator.in_turn(planned, level, is_made_ahead=is_made_ahead)
    done = [request for request in sent if request.error is None and request.end_s is not None]
    if not done:
        raise BenchhouseError(f"cannot measure the generator's rate: no request succeeded: {sent[0].detail}")
    return len(done) / (max(request.end_s or 0.0 for request in done) - min(request.intended_s for request in done))


@asynccontextmanager
async def answering_at_once(*, http2: bool = False, cpus: Sequence[int] = ()) -> AsyncIterator[Target]:
    """A server in a child process that answers each request at once. Raises BenchhouseError where it does not start."""
    child = start(module_command("benchmarking.load.generator", *([HTTP2] if http2 else [])))
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
