"""Files of traffic. Traces: when requests arrived, how long they were, and which of them were turns of one session.
Conversations: what users wrote, and how long the replies were.

Formats of traces: Mooncake's JSON lines (also with the sessions and delays that AIPerf adds), Alibaba's Bailian,
Azure's CSV, and BurstGPT's CSV. Each names a session in its own way, or not at all. Conversations are those of
ShareGPT. A file is parsed once, since levels and their repetitions begin with it while requests are already due.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Any

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import grouped

AZURE = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
BURST_GPT = {"Timestamp", "Request tokens", "Response tokens"}
SESSION_COLUMNS = ("sessionid", "conversationid")
"""Columns of a CSV file that name a session, without case, spaces and underscores."""
MAX_TRACE_BYTES = 256_000_000
MAX_LENGTH = 10_000_000
"""Maximum tokens of a prompt or response: more than any model accepts, since a trace may contain anything."""
DIGITS = 16
"""Of a digest."""
MAX_PAUSE_S = 86_400.0
MAX_TIME_S = 1e18
"""Maximum time of a request, on either side of 0: differences of greater ones could be infinite."""
MOONCAKE_BLOCK, BAILIAN_BLOCK = 512, 16
"""Tokens per block of a prompt that `hash_ids` name."""
USERS = ("human", "user")
"""Names of the user in ShareGPT's files."""
EXPECTED = (
    "expected a trace in Mooncake's format or Bailian's (JSON lines with timestamp, input_length, output_length), "
    f"Azure's (CSV with {', '.join(sorted(AZURE))}) or BurstGPT's (CSV with {', '.join(sorted(BURST_GPT))})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    at_s: float | None
    """When it arrived, from the beginning of the trace's own clock; None if it follows the previous turn."""
    tokens_in: int
    tokens_out: int
    delay_s: float | None = None
    """Time from the end of the previous turn, instead of `at_s`."""
    session: str | None = None
    blocks: tuple[str, ...] = ()
    """Names of the blocks of the prompt: what is named alike is alike."""
    block_tokens: int = MOONCAKE_BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The sessions of a trace, in the order of their first requests."""

    sessions: tuple[tuple[TraceRow, ...], ...]
    counts_history: bool
    """Whether the lengths of prompts include everything said before in their sessions."""

    @property
    def has_blocks(self) -> bool:
        """Whether it says which parts of the prompts are alike."""
        return any(row.blocks for rows in self.sessions for row in rows)

    @property
    def has_varying_rate(self) -> bool:
        """Whether the numbers of starts in tenths of the trace differ by more than chance (chi-squared with 9 degrees
        of freedom, p = 0.001)."""
        starts_s = [rows[0].at_s or 0.0 for rows in self.sessions]
        span_s, expected = starts_s[-1] - starts_s[0], len(starts_s) / 10
        if span_s <= 0:
            return False
        counts = [0] * 10
        for at_s in starts_s:
            counts[min(9, int((at_s - starts_s[0]) / span_s * 10))] += 1
        return sum((count - expected) ** 2 for count in counts) / expected > 27.88


def read_trace(path: Path) -> Trace:
    """The trace in a file. Raises UsageError."""
    return _trace(path, _state(path))


def read_sharegpt(path: Path, most_turns: int) -> Sequence[Sequence[tuple[str, int]]]:
    """The first messages of the user in each conversation of a file, with the lengths of the replies in words. Raises
    UsageError."""
    return _sharegpt(path, most_turns, _state(path))


def digest_of(path: Path) -> str:
    """What tells a file from others of its name; empty for a pipe, which can be read only once. Raises UsageError."""
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()[:DIGITS]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _state(path: Path) -> tuple[int, int]:
    """What differs between two states of a file. Raises UsageError."""
    try:
        state = path.stat()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    return state.st_mtime_ns, state.st_size


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise UsageError(f"{path}: larger than {MAX_TRACE_BYTES // 10**6} MB: use a part of it")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


@lru_cache(maxsize=1)
def _sharegpt(path: Path, most_turns: int, _of: tuple[int, int]) -> Sequence[Sequence[tuple[str, int]]]:
    found = list[list[tuple[str, int]]]()
    try:
        for load in json.loads(_text(path)):
            # From the first message of the user on: many files begin with that of the system, or with a reply.
            messages = list(dropwhile(lambda one: one["from"] not in USERS, load.get("conversations") or ()))
            turns = list[tuple[str, int]]()
            for asked, reply in zip(messages[::2], messages[1::2], strict=False):
                if asked["from"] not in USERS or len(turns) == most_turns:
                    break
                turns.append((asked["value"], max(1, len(reply["value"].split()))))
            found += [turns] if turns else []
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: expected ShareGPT conversations (JSON): {error}") from error
    if not found:
        raise UsageError(f"{path}: no conversation has a user message and a response")
    return found


@lru_cache(maxsize=1)
def _trace(path: Path, _of: tuple[int, int]) -> Trace:
    lines = _text(path).splitlines()
    rows, roots = list[TraceRow](), dict[str, str]()
    try:
        header = set(next(csv.reader(lines[:1]), ()))
        is_csv = header >= AZURE or header >= BURST_GPT
        found = csv.DictReader(lines) if is_csv else (line for line in lines if line.strip())
        for row in found:
            rows.append(_csv_row(row) if isinstance(row, dict) else _json_row(json.loads(row), roots))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, csv.Error) as error:
        what = f"request {len(rows) + 1}: {type(error).__name__} {error}"
        raise UsageError(f"{path}: {EXPECTED}: {what}") from error
    if not rows:
        raise UsageError(f"{path}: the trace contains no requests")
    for place, one in enumerate(rows, 1):
        _check(path, place, one)
    sessions = _sessions(path, rows)
    turns = [pair for session in sessions for pair in pairwise(session)]
    return Trace(
        sessions=sessions, counts_history=all(later.tokens_in >= one.tokens_in + one.tokens_out for one, later in turns)
    )


def _csv_row(row: Mapping[str, str]) -> TraceRow:
    """A row of Azure's or BurstGPT's trace. BurstGPT's times are seconds; Azure's are dates, in UTC where they name no
    zone."""
    session = next(
        (
            value
            for name, value in row.items()
            if (name or "").lower().replace("_", "").replace(" ", "") in SESSION_COLUMNS and value and value.strip()
        ),
        None,
    )
    if "TIMESTAMP" in row:
        at = datetime.fromisoformat(row["TIMESTAMP"].strip())
        at_s = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
        tokens = row["ContextTokens"], row["GeneratedTokens"]
    else:
        at_s, tokens = float(row["Timestamp"]), (row["Request tokens"], row["Response tokens"])
    return TraceRow(at_s=at_s, tokens_in=int(tokens[0]), tokens_out=int(tokens[1]), session=session)


def _json_row(row: Any, roots: dict[str, str]) -> TraceRow:
    """A line of a Mooncake trace, whose times are ms, or of Bailian's, whose times are s, and in which each request
    names the one before it. `roots` are the first requests of the conversations so far, by the id of each request."""
    is_bailian = "chat_id" in row
    delay, stamp, session = row.get("delay"), row.get("timestamp"), row.get("session_id")
    if is_bailian:
        session = roots.get(str(row.get("parent_chat_id")), str(row["chat_id"]))
        roots[str(row["chat_id"])] = session
    if stamp is None and (delay is None or session is None):
        raise KeyError("timestamp, or delay with session_id")
    return TraceRow(
        at_s=None if stamp is None else float(stamp) * (1.0 if is_bailian else 1e-3),
        delay_s=None if delay is None else float(delay) * 1e-3,
        tokens_in=int(row["input_length"]),
        tokens_out=int(row["output_length"]),
        session=None if session is None else str(session),
        blocks=tuple(map(str, row.get("hash_ids") or ())),
        block_tokens=BAILIAN_BLOCK if is_bailian else MOONCAKE_BLOCK,
    )


def _check(path: Path, number: int, row: TraceRow) -> None:
    """Raise UsageError for a request that cannot be sent."""
    times = [value for value in (row.at_s, row.delay_s) if value is not None]
    lengths = row.tokens_in, row.tokens_out
    if not all(abs(value) <= MAX_TIME_S for value in times) or not 0 <= min(lengths) <= max(lengths) <= MAX_LENGTH:
        at = "no time" if row.at_s is None else f"{row.at_s:g} s"
        raise UsageError(
            f"{path}: request {number} is invalid: at {at} with {row.tokens_in} and {row.tokens_out} tokens: expected "
            f"lengths of at most {MAX_LENGTH}, none below 0, and a time of at most {MAX_TIME_S:g} s"
        )
    if row.delay_s is not None and not 0 <= row.delay_s <= MAX_PAUSE_S:
        raise UsageError(f"{path}: request {number} has a delay of {row.delay_s:g} s: expected 0 to {MAX_PAUSE_S:g}")


def _sessions(path: Path, rows: Sequence[TraceRow]) -> tuple[tuple[TraceRow, ...], ...]:
    """The rows by session, in the order of time; a row without one is a session of its own. Turns without a time stay
    behind those before them."""
    by_name = grouped(
        (f"row {number}" if row.session is None else f"session {row.session}", row) for number, row in enumerate(rows)
    )
    sessions = list[tuple[TraceRow, ...]]()
    for name, turns in by_name.items():
        if all(row.at_s is not None for row in turns):
            turns.sort(key=lambda row: row.at_s or 0.0)
        if turns[0].at_s is None:
            raise UsageError(f"{path}: {name} has no timestamp in its first request")
        sessions.append(tuple(turns))
    return tuple(sorted(sessions, key=lambda turns: turns[0].at_s or 0.0))
