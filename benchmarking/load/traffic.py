"""The traffic of a load: arrivals, lengths, prompts, traces.

Everything random derives from one seed, so that two servers can get the same traffic.
"""

from __future__ import annotations

import csv
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, count
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarking.core.errors import UsageError
from benchmarking.core.records import LOOP, Scalar
from benchmarking.load.limits import limits_text

Arrivals = Literal["constant", "poisson", "gamma", "burst", "ramp", "trace", "at_once"]
ARRIVALS: tuple[Arrivals, ...] = get_args(Arrivals)[:-2]
"""Arrival processes that can be requested. A trace has its own times, and an infinite rate has none."""
LENGTH = re.compile(r"(\d+)|uniform:(\d+)-(\d+)|normal:(\d+)\+-(\d+)")
WORDS = ("time", "year", "people", "way", "day", "thing", "life", "child", "world", "school", "state", "group", "hand")
AZURE = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
MAX_TRACE_BYTES = 256_000_000
MAX_LENGTH = 10_000_000
"""Maximum tokens of a prompt or response: more than any model accepts, since a trace may contain anything."""
MAX_WORDS = 100_000_000
"""Maximum words of all prompts of an open-loop level, which are created in advance at about 8 bytes per word."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Numbers of tokens, fixed or random."""

    text: str

    def __post_init__(self) -> None:
        match = LENGTH.fullmatch(self.text)
        if match is None or (match[2] and int(match[2]) > int(match[3])) or self.text == "0":
            raise UsageError(f"invalid length {self.text!r}: expected 128, uniform:64-256 or normal:128+-32")
        if max(int(one) for one in match.groups() if one) > MAX_LENGTH:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """A request to send."""

    prompt: str | tuple[int, ...]
    """The prompt as text or as token ids."""
    tokens_out: int
    offset_s: float | None = None
    """Its time in a trace; None for random arrivals."""

    @property
    def length(self) -> int:
        """Words of the text, or number of token ids."""
        return len(self.prompt.split()) if isinstance(self.prompt, str) else len(self.prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The requests of a load, at any level."""

    arrivals: Arrivals = "poisson"
    variation: float = 1.0
    """Coefficient of variation of gamma arrivals: 1 is Poisson; larger values are burstier."""
    burst: int = 8
    """Requests per burst, which start together."""
    lengths_in: Lengths
    """Words per prompt (about as many tokens), or token ids. The stored count is the server's."""
    lengths_out: Lengths
    shared_prefix: float = 0.0
    """Share of each prompt that all prompts have in common, from 0 to 1."""
    vocabulary: int | None = None
    """Prompts are random token ids below this number, so that their length is exact; None: text."""
    turns: int = 1
    """Requests per conversation, each including all previous turns."""
    seed: int = 0
    salt: str = ""
    """Combined with the seed for prompts only; traffic with different salts shares no prompts that a server may have
    cached."""
    look: int = 0
    """Number of the level, so that levels of the same rate have fresh arrivals; combined with the seed for arrivals
    only."""
    file: Path | None = None
    """A trace (Mooncake or Azure), or conversations in the format of ShareGPT."""

    @property
    def has_one_size(self) -> bool:
        """Whether all requests have the same lengths."""
        return self.file is None and None not in (self.lengths_in.fixed, self.lengths_out.fixed)

    @property
    def may_hit_a_prefix(self) -> bool:
        """Whether prompts share anything by intention."""
        return self.shared_prefix > 0 or self.turns > 1

    @property
    def is_varying(self) -> bool:
        """Whether the rate changes during a level: figures of the level are then means over all rates."""
        return self.arrivals == "ramp" or (self.arrivals == "trace" and self._trace_varies())

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
        else:
            found |= {"lengths_in": self.lengths_in.text, "lengths_out": self.lengths_out.text}
        if self.shared_prefix:
            found["shared_prefix"] = self.shared_prefix
        if self.vocabulary is not None:
            found["prompts"] = "token_ids"
        if self.turns > 1:
            found["turns"] = self.turns
        if limits:
            found["slo"] = limits_text(limits)
        return found

    def schedule(self, rate: float, planned: Sequence[PlannedRequest]) -> list[float]:
        """The start times of these requests in s from 0, at a mean rate per second: random, or those of the trace."""
        if self.arrivals == "trace":
            return slowed([one.offset_s or 0.0 for one in planned], rate)
        return self.starts(rate, len(planned))

    def starts(self, rate: float, number: int) -> list[float]:
        """The start times of the requests in s from 0, at a mean rate per second; all 0 for an infinite rate.

        Random times are those of a process that has this number of arrivals in number / rate seconds, so that the rate
        of a short level is the requested one: with 60 requests, that of an unconditional Poisson process is 10 % off in
        half of the cases."""
        chance = random.Random(f"{self.seed} arrivals {rate}" + (f" level {self.look}" if self.look else ""))
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
        return [one * factor for one in times[:-1]]

    def requests(self) -> Iterator[PlannedRequest]:
        """The requests: endless, except for a trace."""
        if self.arrivals == "trace":
            yield from self._of_trace()
            return
        pool = self._of_sharegpt() if self.file is not None else None
        for number in count():
            chance = random.Random(f"{self.seed} {self.salt} request {number}")
            if pool is not None:
                yield pool[chance.randrange(len(pool))]
            else:
                words = self.lengths_in.draw(chance)
                yield PlannedRequest(prompt=self.prompt(words, chance), tokens_out=self.lengths_out.draw(chance))

    def words(self, number: int) -> int:
        """The approximate total number of words or token ids in the prompts of this many requests; 0 for ShareGPT
        files, which are in memory anyway."""
        if self.arrivals == "trace":
            return sum(words for _, words, _ in _trace_rows(self._read())[:number])
        return 0 if self.file is not None else round(number * self.lengths_in.mean)

    def prompt(self, words: int, chance: random.Random) -> str | tuple[int, ...]:
        """Text of this many words, or as many token ids, starting with the shared part. The rest of a text begins with
        a unique number, so that it is not served from a prefix cache."""
        same = round(words * self.shared_prefix)
        common = random.Random(f"{self.seed} shared") if same else chance  # unused if nothing is shared
        if self.vocabulary is not None:
            ids = range(self.vocabulary)
            return (*common.choices(ids, k=same), *chance.choices(ids, k=words - same))
        rest = [str(chance.getrandbits(32)), *chance.choices(WORDS, k=max(0, words - same - 1))][: max(0, words - same)]
        return " ".join([*common.choices(WORDS, k=same), *rest])

    def _trace_varies(self) -> bool:
        """Whether the numbers of arrivals in tenths of the trace differ by more than chance (chi-squared with 9 degrees
        of freedom, p = 0.001)."""
        at = [one[0] for one in _trace_rows(self._read())]
        span, expected = at[-1] - at[0], len(at) / 10
        if span <= 0:
            return False
        counts = [0] * 10
        for one in at:
            counts[min(9, int((one - at[0]) / span * 10))] += 1
        return sum((count - expected) ** 2 for count in counts) / expected > 27.88

    def _of_trace(self) -> Iterator[PlannedRequest]:
        rows = _trace_rows(self._read())
        first_s = rows[0][0]
        for number, (at_s, words, tokens_out) in enumerate(rows):
            chance = random.Random(f"{self.seed} {self.salt} request {number}")
            yield PlannedRequest(
                prompt=self.prompt(max(1, words), chance), tokens_out=max(1, tokens_out), offset_s=at_s - first_s
            )

    def _of_sharegpt(self) -> list[PlannedRequest]:
        """The first prompt of each conversation, with the length of its response in words."""
        try:
            data = json.loads(self._read())
            talks = [one["conversations"] for one in data if len(one.get("conversations") or ()) >= 2]
            found = [
                PlannedRequest(prompt=one[0]["value"], tokens_out=max(1, len(one[1]["value"].split())))
                for one in talks
                if one[0]["from"] in ("human", "user")
            ]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UsageError(f"{self.file}: expected ShareGPT conversations (JSON): {error}") from error
        if not found:
            raise UsageError(f"{self.file}: no conversation starts with a user message and a response")
        return found

    def _read(self) -> str:
        assert self.file is not None
        try:
            if self.file.stat().st_size > MAX_TRACE_BYTES:
                raise UsageError(f"{self.file}: larger than {MAX_TRACE_BYTES // 10**6} MB: use a part of it")
            return self.file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {self.file}: {error}") from error


def _trace_rows(text: str) -> list[tuple[float, int, int]]:
    """(time in s, tokens of the prompt, tokens of the output), in the order of time. Raises UsageError."""
    lines = text.splitlines()
    try:
        if lines and set(lines[0].split(",")) >= AZURE:
            rows = [_azure_row(row) for row in csv.DictReader(lines)]
        else:
            rows = [_mooncake_row(json.loads(line)) for line in lines if line.strip()]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(
            "expected a trace in Mooncake's format (JSON lines with timestamp, input_length, output_length) or Azure's "
            f"(CSV with {', '.join(sorted(AZURE))}): {type(error).__name__} {error}"
        ) from error
    if not rows:
        raise UsageError("the trace contains no requests")
    for row in rows:
        if not math.isfinite(row[0]) or max(row[1:]) > MAX_LENGTH:
            raise UsageError(
                f"the trace has an invalid request at {row[0]:g} s with {row[1]} and {row[2]} tokens: expected lengths "
                f"of at most {MAX_LENGTH}"
            )
    return sorted(rows)


def _azure_row(row: Mapping[str, str]) -> tuple[float, int, int]:
    at = datetime.fromisoformat(row["TIMESTAMP"].strip()[:26])  # Azure writes seven decimals, Python reads six
    return at.timestamp(), int(row["ContextTokens"]), int(row["GeneratedTokens"])


def _mooncake_row(row: Any) -> tuple[float, int, int]:
    return float(row["timestamp"]) / 1000, int(row["input_length"]), int(row["output_length"])


def slowed(offsets_s: Sequence[float], rate: float) -> list[float]:
    """The times of a trace, scaled to a mean rate per second."""
    span_s = offsets_s[-1] - offsets_s[0]
    factor = (len(offsets_s) - 1) / rate / span_s if span_s > 0 else 1.0
    return [one * factor for one in offsets_s]
