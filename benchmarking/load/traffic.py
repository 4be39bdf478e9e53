"""The traffic of a load (arrivals, lengths, prompts, traces), and its limits on latency (`--limit`).

Everything random derives from one seed, so that two servers can get the same traffic.

The limits say which requests are in time. A limit on an unknown time is never met.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import accumulate, count, islice
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import LEAST_GOOD, LIMIT_WORDS, SLO_SHARE, lateness
from benchmarking.core.records import LOOP, Requests, Scalar
from benchmarking.load.traces import MAX_LENGTH, MAX_PAUSE_S, Trace, read_sharegpt, read_trace

COUNTED_BY_CHUNKS = ("chunks", "hidden")
"""Counters of tokens (`Requests.tokens_counted_by`) that do not tell how many followed the first output."""
TOGETHER_MS = 0.1
"""Chunks that arrive with smaller gaps were sent together: no server makes 10 000 tokens/s for one request."""


def limits_text(limits: Mapping[str, float]) -> str:
    """The limits in canonical form, as stored."""
    return ",".join(f"{name}:{limits[name]:g}ms" for name in sorted(limits))


def judged(requests: Requests, limits: Mapping[str, float]) -> Requests:
    """The requests, each with whether it succeeded within the limits (in ms from the scheduled start): None if a limit
    applies to a time that is unknown. Unchanged without limits.

    A time with a known upper bound meets a limit above the bound: the first token of a response that is not streamed
    comes no later than its end, a response has no fewer tokens than chunks, and no gap between tokens that arrived
    together was longer than the request. A response of one token has no time per output token and is judged by the
    other limits, unless no response of the load has more.
    """
    if not limits:
        return requests
    has_gaps = any(one is not None and one > 1 for one in requests.tokens_out)
    met = tuple(_meets(requests, place, limits, has_gaps=has_gaps) for place in range(len(requests)))
    return replace(requests, meets_limits=met)


def per_token_ms(requests: Requests, place: int) -> float | None:
    """The time from the first output of a response to its last, per token after the first. None if that is unknown, as
    of a response that arrived in one piece, and for fewer than two tokens. At most this long, where each chunk counts
    as one token (`COUNTED_BY_CHUNKS`)."""
    first, last, count = requests.first_token_ms[place], requests.last_token_ms[place], requests.tokens_out[place]
    if requests.tokens_counted_by[place] == "hidden":
        count = len(requests.token_ms[place])
    if last is None:
        last = requests.token_ms[place][-1] if requests.token_ms[place] else requests.end_ms[place]
    if first is None or last is None or count is None or count <= 1 or last - first < TOGETHER_MS:
        return None
    return (last - first) / (count - 1)


def share_in_time(requests: Requests, limits: Mapping[str, float]) -> float:
    """The share of the requests that may have met the limits if each had been sent in time. A server that is asked
    later answers no earlier, so no latency from the schedule would be shorter by more than the longest delay."""
    delay_ms = max([0.0, *lateness(requests)])
    earlier = replace(requests, intended_ms=tuple(at + delay_ms for at in requests.intended_ms))
    return sum(met is not False for met in judged(earlier, limits).meets_limits) / max(len(requests), 1)


def why_unknown(requests: Sequence[Requests], limits: Mapping[str, float]) -> str | None:
    """Why it is unknown whether some of the requests meet the limits; None if all are known, or without limits."""
    unknown, total = sum(met is None for request in requests for met in request.meets_limits), sum(map(len, requests))
    if not unknown or (unknown == total and not limits):
        return None
    if not limits:
        return f"it is unknown whether {unknown} of {total} requests meet the limits"
    is_first_unknown = any(
        met is None and first is None
        for request in requests
        for met, first in zip(request.meets_limits, request.first_token_ms, strict=True)
    )
    known = {"e2e", *(() if is_first_unknown or "tpot" not in limits else ("ttft",))}
    times = " and ".join(LIMIT_WORDS[name] for name in limits if name not in known)
    why = f"the {times} of {unknown} of {total} requests is unknown, so it is unknown whether they meet the limits"
    if "tpot" not in limits:
        return why
    rows = [
        (met, count, counter)
        for request in requests
        for met, count, counter in zip(request.meets_limits, request.tokens_out, request.tokens_counted_by, strict=True)
        if count is not None and counter != "chunks"
    ]
    if rows and max(count for _, count, _ in rows) <= 1:
        return f"{why}: no response has more than one token"
    if any(met is None and counter == "hidden" for met, _, counter in rows):
        return f"{why}: the server counts tokens that it did not stream (reasoning), so each chunk counts as one token"
    if any(met is None and count > 1 for met, count, _ in rows):
        return f"{why}: their tokens arrived in one piece"
    return (
        f"{why}: the server does not report their number of tokens (--tokenizer FOLDER counts them where it finds as "
        "many as chunks)"
    )


def _meets(requests: Requests, place: int, limits: Mapping[str, float], *, has_gaps: bool) -> bool | None:
    end, at = requests.end_ms[place], requests.intended_ms[place]
    if requests.error[place] is not None or end is None:
        return False
    first, count, sent = requests.first_token_ms[place], requests.tokens_out[place], requests.sent_ms[place]
    counter = requests.tokens_counted_by[place]
    is_bound = counter in COUNTED_BY_CHUNKS
    found: list[bool | None] = []
    for name, limit in limits.items():
        if name == "e2e":
            found.append(end - at <= limit)
        elif name == "ttft":
            found.append(first - at <= limit if first is not None else _within_bound(end - at, limit))
        elif count is None or not has_gaps or (is_bound and count <= 1):
            found.append(None)
        elif count <= 1:
            found.append(True)
        elif (time_ms := per_token_ms(requests, place)) is not None:
            found.append(_within_bound(time_ms, limit) if is_bound else time_ms <= limit)
        elif sent is None or counter == "hidden":
            found.append(None)
        else:
            found.append(_within_bound((end - sent) / (count - 1), limit))
    return False if False in found else None if None in found else True


def _within_bound(bound_ms: float, limit: float) -> bool | None:
    """Whether a time with this upper bound meets the limit; None if that is open."""
    return True if bound_ms <= limit else None


MAX_TOKENS, ITS_SUCCESSOR = "max_tokens", "max_completion_tokens"
"""A chat's limit of output tokens, and the field that replaces it where that is left out, as for OpenAI's reasoning
models."""
OMITTABLE = ("ignore_eos", MAX_TOKENS, "stream_options", "temperature")
"""Fields of requests that some servers refuse: the first is vLLM's and SGLang's own."""
Arrivals = Literal["constant", "poisson", "gamma", "burst", "ramp", "trace", "at_once"]
ARRIVALS: tuple[Arrivals, ...] = get_args(Arrivals)[:-2]
"""Arrival processes that can be requested. A trace has its own times, and an infinite rate has none."""
LENGTH = re.compile(r"(\d+)|uniform:(\d+)-(\d+)|normal:(\d+)\+-(\d+)")
WORDS = ("time", "year", "people", "way", "day", "thing", "life", "child", "world", "school", "state", "group", "hand")
PAUSE = re.compile(
    r"(?:exponential:)?(?P<mean>{n})|uniform:(?P<low>{n})-(?P<high>{n})|normal:(?P<typical>{n})\+-(?P<spread>{n})".replace(
        "{n}", r"\d+(?:\.\d+)?"
    )
)
SEEN = 100
"""Conversations of a file of which the mean length of prompts is known."""
MAX_WORDS = 100_000_000
"""Maximum words of all prompts of an open-loop level, which are created in advance at about 8 bytes per word."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Numbers of tokens, fixed or random."""

    text: str

    def __post_init__(self) -> None:
        match = LENGTH.fullmatch(self.text)
        if match is None or (match[2] and int(match[2]) > int(match[3])) or self.text == "0":
            span = re.fullmatch(r"(\d+)(?:-|\.\.|:)(\d+)", self.text)
            hint = f": a range is uniform:{span[1]}-{span[2]}" if span and int(span[1]) <= int(span[2]) else ""
            raise UsageError(f"invalid length {self.text!r}: expected 128, uniform:64-256 or normal:128+-32{hint}")
        if max(int(group) for group in match.groups() if group) > MAX_LENGTH:
            raise UsageError(f"invalid length {self.text!r}: at most {MAX_LENGTH} tokens are possible")

    @property
    def mean(self) -> float:
        """The fixed length, or the mean of random lengths."""
        match = LENGTH.fullmatch(self.text)
        assert match is not None
        return (int(match[2]) + int(match[3])) / 2 if match[2] else float(match[1] or match[4])

    @property
    def fixed(self) -> int | None:
        """The fixed length; None for random lengths."""
        return int(self.text) if self.text.isdecimal() else None

    def draw(self, chance: random.Random) -> int:
        """Draw a length of at least 1."""
        match = LENGTH.fullmatch(self.text)
        assert match is not None
        if match[1]:
            return max(1, int(match[1]))
        if match[2]:
            return max(1, chance.randint(int(match[2]), int(match[3])))
        return max(1, round(chance.gauss(int(match[4]), int(match[5]))))


@dataclass(frozen=True, slots=True)
class Pauses:
    """Times between the turns of a conversation in s, fixed or random."""

    text: str

    def __post_init__(self) -> None:
        match = PAUSE.fullmatch(self.text)
        if match is None or (match["low"] and float(match["low"]) > float(match["high"])):
            raise UsageError(
                f"invalid pause {self.text!r}: expected seconds such as 2, exponential:5, uniform:1-9 or normal:5+-2"
            )
        if max(float(group) for group in match.groups() if group) > MAX_PAUSE_S:
            raise UsageError(f"invalid pause {self.text!r}: at most {MAX_PAUSE_S:g} s are possible")

    def draw(self, chance: random.Random) -> float:
        """Draw a pause of at least 0."""
        match = PAUSE.fullmatch(self.text)
        assert match is not None
        if match["low"]:
            return chance.uniform(float(match["low"]), float(match["high"]))
        if match["typical"]:
            return max(0.0, chance.gauss(float(match["typical"]), float(match["spread"])))
        mean_s = float(match["mean"])
        return chance.expovariate(1 / mean_s) if self.text.startswith("exponential") and mean_s else mean_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """A request to send: one on its own, or a turn of a conversation."""

    prompt: str | tuple[int, ...]
    """The prompt as text or as token ids, without the previous turns."""
    tokens_out: int
    offset_s: float | None = None
    """Its time in a trace; None for random arrivals."""
    pause_s: float | None = 0.0
    """Time from the end of the previous turn; None where `offset_s` says when this one is due."""
    has_history: bool = True
    """Whether the previous turns are sent with it."""

    @property
    def length(self) -> int:
        """Words of the text, or number of token ids."""
        return len(self.prompt.split()) if isinstance(self.prompt, str) else len(self.prompt)


Conversation = tuple[PlannedRequest, ...]
"""Requests of which each is sent after the end of the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The requests of a load, at any level."""

    arrivals: Arrivals = "poisson"
    variation: float = 1.0
    """Coefficient of variation of gamma arrivals: 1 is Poisson; larger values are burstier."""
    burst: int = 8
    """Requests per burst, which start together."""
    lengths_in: Lengths
    """Words per prompt (about as many tokens), or token ids."""
    lengths_out: Lengths
    shared_prefix: float = 0.0
    """Share of each prompt that all prompts have in common, from 0 to 1."""
    vocabulary: int | None = None
    """Prompts are random token ids below this number, so that their length is exact; None: text."""
    turns: int = 1
    """Messages of the user per conversation, each sent with all previous turns."""
    think_time: Pauses | None = None
    """Time from a reply to the next message of the user; None: none."""
    tool_calls: int = 0
    """Further requests after each message of the user, as an agent sends them with the result of a tool."""
    tool_pause: Pauses | None = None
    """Time from a reply to such a request, in which the tool runs; None: none."""
    seed: int = 0
    salt: str = ""
    """Combined with the seed for prompts only; traffic with different salts shares no prompts that a server may have
    cached."""
    repetition: int = 0
    """Number of the repetition of a level: its prompts are those of no other repetition, and of no other seed. Its
    arrivals are those of the seed that is larger by this number."""
    look: int = 0
    """Number of the level, so that levels of the same rate have fresh arrivals; combined with the seed for arrivals
    only."""
    required_share: float = LEAST_GOOD
    """Share of the requests that must meet the limits."""
    file: Path | None = None
    """A trace, or conversations in the format of ShareGPT."""
    file_digest: str = ""
    """Of its content."""

    @property
    def _seed(self) -> str:
        return f"{self.seed} repetition {self.repetition}" if self.repetition else str(self.seed)

    @property
    def trace(self) -> Trace | None:
        """The trace to replay. Raises UsageError."""
        return read_trace(self.file) if self.arrivals == "trace" and self.file is not None else None

    @property
    def has_one_size(self) -> bool:
        """Whether all requests have the same lengths."""
        return self.file is None and None not in (self.lengths_in.fixed, self.lengths_out.fixed)

    @property
    def most_turns(self) -> int:
        """The most requests of a conversation; 1 if each request stands alone."""
        if (trace := self.trace) is not None:
            return max(map(len, trace.sessions))
        return self.turns * (1 + self.tool_calls)

    @property
    def may_hit_a_prefix(self) -> bool:
        """Whether prompts share anything by intention."""
        trace = self.trace
        return self.shared_prefix > 0 or self.most_turns > 1 or (trace is not None and trace.has_blocks)

    @property
    def is_varying(self) -> bool:
        """Whether the rate changes during a level: figures of the level are then means over all rates."""
        trace = self.trace
        return self.arrivals == "ramp" or (trace is not None and trace.has_varying_rate)

    @property
    def lengths(self) -> str:
        """ "128/64" """
        return f"{self.lengths_in.text}/{self.lengths_out.text}"

    def is_one_burst(self, number: int) -> bool:
        """Whether this many requests, or conversations, would all start at one time, and so at no rate."""
        if (trace := self.trace) is not None:
            starts_s = [rows[0].at_s for rows in trace.sessions[:number]]
            return len(starts_s) > 1 and starts_s[0] == starts_s[-1]
        # About one gap of gamma arrivals in the square of their variation is longer than 0.
        most = {"burst": self.burst, "gamma": self.variation**2}.get(self.arrivals, 0)
        return 1 < number <= most

    def keys(self, limits: Mapping[str, float], *, is_open: bool) -> dict[str, Scalar]:
        """The settings that distinguish a series, for `Cell.runtime_mode`."""
        found: dict[str, Scalar] = {LOOP: "open" if is_open else "closed"}
        if is_open:
            found["arrivals"] = self.arrivals
        if is_open and self.arrivals == "gamma":
            found["variation"] = self.variation
        if is_open and self.arrivals == "burst":
            found["burst"] = self.burst
        if self.file is not None:
            found["traffic_file"] = self.file.name
            if self.file_digest:
                found["traffic_digest"] = self.file_digest
        else:
            found |= {"lengths_in": self.lengths_in.text, "lengths_out": self.lengths_out.text}
        if self.shared_prefix:
            found["shared_prefix"] = self.shared_prefix
        if self.vocabulary is not None:
            found["prompts"] = "token_ids"
        if self.turns > 1:
            found["turns"] = self.turns
        if self.think_time is not None:
            found["think_time"] = self.think_time.text
        if self.tool_calls:
            found["tool_calls"] = self.tool_calls
        if self.tool_pause is not None:
            found["tool_pause"] = self.tool_pause.text
        if limits:
            found["slo"] = limits_text(limits)
        if limits and self.required_share != LEAST_GOOD:
            found[SLO_SHARE] = self.required_share
        return found

    def schedule(self, rate: float, planned: Sequence[PlannedRequest]) -> list[float]:
        """The start times of the first requests of conversations in s from 0, at a mean rate per second: random, or
        those of the trace."""
        if self.arrivals == "trace":
            return slowed([request.offset_s or 0.0 for request in planned], rate)
        return self.starts(rate, len(planned))

    def starts(self, rate: float, number: int) -> list[float]:
        """The start times of the requests in s from 0, at a mean rate per second; all 0 for an infinite rate.

        Random times are those of a process that has this number of arrivals in number / rate seconds, so that the rate
        of a short level is the requested one: with 60 requests, that of an unconditional Poisson process is 10 % off in
        half of the cases."""
        seed = self.seed + self.repetition
        chance = random.Random(f"{seed} arrivals {rate}" + (f" level {self.look}" if self.look else ""))
        if math.isinf(rate):
            return [0.0] * number
        gap_s = 1 / rate
        if self.arrivals == "constant":
            return [gap_s * i for i in range(number)]
        if self.arrivals == "burst":
            return [gap_s * self.burst * (i // self.burst) for i in range(number)]
        if self.arrivals == "ramp":  # the rate rises from 0 to twice the mean: t = T * sqrt(i / n)
            return [number * gap_s * (i / number) ** 0.5 for i in range(number)]
        shape = 1.0 if self.arrivals == "poisson" else self.variation**-2
        times = list(accumulate(chance.gammavariate(shape, gap_s / shape) for _ in range(number + 1)))
        factor = number * gap_s / times[-1] if times[-1] > 0 else 1.0
        return [value * factor for value in times[:-1]]

    def conversations(self) -> Iterator[Conversation]:
        """What is sent: endless, except for a trace. Raises UsageError."""
        if (trace := self.trace) is not None:
            if self.shared_prefix and trace.has_blocks:
                raise UsageError(
                    f"{self.file} names what its prompts share (hash_ids): remove --shared-prefix, which does nothing"
                )
            if self.vocabulary is not None and any(not row.blocks for rows in trace.sessions for row in rows[1:]):
                raise UsageError(
                    f"{self.file} has sessions, whose turns repeat replies: send text, without --prompt-ids"
                )
            blocks: dict[str, list[Any]] = {}
            for number in range(len(trace.sessions)):
                yield self._session(trace, number, blocks)
            return
        pool = None if self.file is None else read_sharegpt(self.file, self.most_turns)
        for number in count():
            chance = random.Random(f"{self._seed} {self.salt} request {number}")
            turns: Iterable[tuple[str | tuple[int, ...], int]]
            if pool is not None:
                # Unlike its number, a conversation comes again, and a prefix cache would answer it sooner.
                (asked, tokens_out), *later = pool[chance.randrange(len(pool))]
                turns = [(f"{chance.getrandbits(32)}:{asked}", tokens_out), *later]
            else:
                turns = [
                    (self._prompt(self._drawn(self.lengths_in.draw(chance), chance)), self.lengths_out.draw(chance))
                    for _ in range(self.most_turns)
                ]
            found = list[PlannedRequest]()
            for place, (prompt, tokens_out) in enumerate(turns):
                # The user thinks before each message but the first, a tool runs before the other requests.
                pauses = self.tool_pause if place % (1 + self.tool_calls) else self.think_time
                pause_s = 0.0 if place == 0 or pauses is None else pauses.draw(chance)
                found.append(PlannedRequest(prompt=prompt, tokens_out=tokens_out, pause_s=pause_s))
            yield tuple(found)

    def requests(self) -> Iterator[PlannedRequest]:
        """The requests one by one, for a model that keeps no conversations: those of a trace at their own times.

        Raises UsageError for a trace in which that of a turn depends on the end of the previous one."""
        trace = self.trace
        if trace is None:
            yield from (turns[0] for turns in self.conversations())
            return
        if any(row.at_s is None for rows in trace.sessions for row in rows):
            raise UsageError(f"{self.file} has turns that follow the reply to the previous one: this requires --url")
        due = list[tuple[float, int, int, PlannedRequest]]()  # of the sessions so far: a long trace has too many words
        for place, turns in enumerate(self.conversations()):
            for turn, one in enumerate(turns):
                heappush(due, (one.offset_s or 0.0, place, turn, one))
            while due and due[0][0] <= (turns[0].offset_s or 0.0):
                yield heappop(due)[-1]
        while due:
            yield heappop(due)[-1]

    @property
    def prompt_lengths(self) -> Lengths:
        """The lengths of the prompts; of those in a file their mean."""
        if self.file is None:
            return self.lengths_in
        if (trace := self.trace) is not None:
            mean = self.words(len(trace.sessions)) / self.total(len(trace.sessions))
        else:
            mean = fmean(turns[0].length for turns in islice(self.conversations(), SEEN))
        return Lengths(str(max(1, min(round(mean), MAX_LENGTH))))

    def total(self, number: int) -> int:
        """The most requests of this many conversations."""
        if (trace := self.trace) is not None:
            return sum(map(len, trace.sessions[:number]))
        return number * self.most_turns

    def words(self, number: int) -> int:
        """The approximate total number of words or token ids in the prompts of this many conversations; 0 for ShareGPT
        files, which are in memory anyway."""
        if (trace := self.trace) is not None:
            return sum(row.tokens_in for rows in trace.sessions[:number] for row in rows)
        return 0 if self.file is not None else round(number * self.most_turns * self.lengths_in.mean)

    def _drawn(self, number: int, chance: random.Random) -> list[Any]:
        """This many words of a text, or token ids, starting with the shared part. The rest of a text begins with a
        unique number, so that it is not served from a prefix cache."""
        same = round(number * self.shared_prefix)
        common = random.Random(f"{self._seed} shared") if same else chance  # unused if nothing is shared
        if self.vocabulary is not None:
            ids = range(self.vocabulary)
            return [*common.choices(ids, k=same), *chance.choices(ids, k=number - same)]
        rest = [str(chance.getrandbits(32)), *chance.choices(WORDS, k=max(0, number - same - 1))][: number - same]
        return [*common.choices(WORDS, k=same), *rest]

    def _prompt(self, units: Sequence[Any]) -> str | tuple[int, ...]:
        """The prompt of these words or token ids."""
        return " ".join(units) if self.vocabulary is None else tuple(units)

    def _session(self, trace: Trace, number: int, blocks: dict[str, list[Any]]) -> Conversation:
        """A session of a trace. A prompt consists of its blocks, each the same wherever it is named; else of the
        previous turns and as many further words as its length requires. `blocks` has those made so far."""
        found, said, first_s = list[PlannedRequest](), 0, trace.sessions[0][0].at_s or 0.0
        for turn, row in enumerate(trace.sessions[number]):
            chance = random.Random(f"{self._seed} {self.salt} request {number}" + (f" turn {turn}" if turn else ""))
            length = max(1, row.tokens_in)
            if row.blocks:
                units, size = list[Any](), row.block_tokens
                for name in row.blocks[: -(-length // size)]:
                    if name not in blocks:
                        same = random.Random(f"{self._seed} {self.salt} block {name}")
                        blocks[name] = same.choices(
                            WORDS if self.vocabulary is None else range(self.vocabulary), k=size
                        )
                    units += blocks[name][: length - len(units)]
                if len(units) < length:
                    units += self._drawn(length - len(units), chance)
            else:
                units = self._drawn(max(1, length - said if trace.counts_history else length), chance)
            said = row.tokens_in + row.tokens_out
            found.append(
                PlannedRequest(
                    prompt=self._prompt(units),
                    tokens_out=max(1, row.tokens_out),
                    offset_s=None if row.at_s is None else row.at_s - first_s,
                    pause_s=row.delay_s,
                    has_history=not row.blocks,
                )
            )
        return tuple(found)


def slowed(offsets_s: Sequence[float], rate: float) -> list[float]:
    """The times of a trace, scaled to a mean rate per second. The last start, or burst, ends the time of the others."""
    span_s = offsets_s[-1] - offsets_s[0]
    factor = (len(offsets_s) - offsets_s.count(offsets_s[-1])) / rate / span_s if span_s > 0 else 1.0
    return [value * factor for value in offsets_s]
