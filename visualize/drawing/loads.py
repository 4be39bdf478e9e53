"""Shared parts of load-test charts: load levels and their lines, latency limits, and requests over time.

A level is the offered load: requests per second of an open loop, requests in flight of a closed loop. The two loops are
never in one picture, because a closed loop offers less load as soon as the server slows down.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import (
    LEAST_GOOD,
    NOT_MET,
    POOLED,
    SLO_SHARE,
    HighestRate,
    disturbing,
    pooled_shares,
    share_holds,
)
from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import LOOP, REQUEST_RATE
from benchmarking.core.text import number as exact
from visualize.drawing import words
from visualize.drawing.configurations import CONFIGURATION, MOST_COLOURS, configurations, fastest
from visualize.drawing.figure import Line, Mark
from visualize.drawing.marks import Series
from visualize.drawing.rows import MODEL_COLUMNS, POINT_COLUMNS, Row, axis_values, grouped, limits_of, trust
from visualize.drawing.scales import Axis, number, size_axis, ticks

RATE = REQUEST_RATE
LEVELS = f"""run.runtime_mode->>'loop' AS loop, TRY_CAST(r.axes->>'{RATE}' AS DOUBLE) AS offered_rate,
    run.runtime_mode->>'slo' AS slo,
    coalesce(TRY_CAST(run.runtime_mode->>'{SLO_SHARE}' AS DOUBLE), {LEAST_GOOD}) AS required_share,
    coalesce(TRY_CAST(r.extra->>'$.load.is_knee' AS BOOLEAN), FALSE) AS is_knee"""
"""SELECT list: loop, offered rate, latency limits, the share of the requests within them, and whether the level is the
knee."""
SUBJECT = ("model_id", *MODEL_COLUMNS, "loop")
LOOPS = {
    "open": "open loop: scheduled requests",
    "closed": "closed loop: fixed number in flight",
    "not stated": "loop not stated",
}
REQUEST_COLUMNS = ("intended_ms", "sent_ms", "first_token_ms", "end_ms", "error")
"""Columns of the table requests."""
MOST_READ = 3000
"""Maximum requests read of a level: those drawn as bars and those in flight at the same time."""
TIMES = ", ".join(
    f"list({name} ORDER BY ordinal) FILTER (WHERE ordinal < {MOST_READ}) AS each_{name}" for name in REQUEST_COLUMNS
)
"""SELECT list for `requests_of`."""
REQUEST_PARTS = ("waiting to be sent", "until first token", "until end")
LEVEL_TITLES = {"open": "Offered requests per second", "closed": "Requests in flight", "not stated": "Load"}


def is_load(row: Row) -> bool:
    """Whether the result belongs to a load test."""
    return LOOP in json.loads(row["runtime_mode"])


def as_level(row: Row) -> dict[str, Any]:
    """A result of the view all_results, with the columns of `LEVELS`."""
    mode = json.loads(row["runtime_mode"])
    return {
        **dict.fromkeys(POINT_COLUMNS),
        "metric_definition": row.get("origin_definition"),
        **row,
        "loop": str(mode[LOOP]),
        "offered_rate": json.loads(row["axes"]).get(RATE),
        "slo": None if mode.get("slo") is None else str(mode["slo"]),
        "required_share": mode.get(SLO_SHARE, LEAST_GOOD),
        "is_knee": facts_of(row).get("is_knee") is True,
    }


def facts_of(row: Row) -> Mapping[str, Any]:
    """What the run says about the load of a result, in its column `extra`."""
    found = json.loads(row["extra"]).get("load")
    return found if isinstance(found, dict) else {}


UNLIMITED = "unlimited"
"""Levels of an open loop without a rate: all requests are sent at once (`--request-rate inf`), or the file of another
tool does not say how many were offered. Unknown is not 0."""
SENT_AT_ONCE, NO_LIMIT = "at_once", "concurrency_unlimited"
"""Arrivals of our own loads, and the doubt of other tools' loads, in which all requests are sent at once."""


def number_sent(row: Row) -> int:
    """The number of requests of a level; 0 if unknown."""
    return int(max(row["iterations"] or 0, row["other_metrics"].get("requests_sent") or 0))


def is_search(row: Row) -> bool:
    """Whether the result is that of a search for the highest rate, which is not a level."""
    return facts_of(row).get("searched_per_s") is not None


def without_rate(row: Row) -> str | None:
    """The name of a level that has no rate; None for a rate or a number of requests in flight."""
    if row["loop"] == "closed" or row["offered_rate"] is not None:
        return None
    mode = words.settings_of({"runtime_mode": row.get("own_mode", row["runtime_mode"])})  # before `by_kind` replaced it
    is_at_once = mode.get("arrivals") == SENT_AT_ONCE or NO_LIMIT in (row.get("doubts") or ())
    return UNLIMITED if is_at_once else words.NOT_STATED


def level(row: Row) -> float:
    """The offered load: requests per second, or requests in flight; infinite without a rate."""
    if row["loop"] == "closed":
        return float(row["concurrency"])
    return math.inf if row["offered_rate"] is None else float(row["offered_rate"])


def rate_words(value: float) -> str:
    """A rate that tells apart those of a search, which are close: "2.114", "2.14"."""
    return number(value) if value >= 100 else exact(value)


def level_words(row: Row, rate: Callable[[float], str] = rate_words) -> str:
    """ "5 requests/s", "1 request/s", "unlimited requests/s", "8 in flight" """
    if row["loop"] == "closed":
        return f"{number(level(row))} in flight"
    bare = without_rate(row)
    if bare is not None:
        return f"{bare} requests/s" if bare == UNLIMITED else f"{'rate' if row['loop'] == 'open' else 'load'} {bare}"
    return f"{rate(level(row))} request{'' if level(row) == 1 else 's'}/s"


def level_names(rows: Sequence[Row]) -> Callable[[Row], str]:
    """The name of each level: `level_words`, with the lengths of its requests if not all have the same: "8 in flight,
    s128 n64"."""
    lengths = {(row["sequence_length"], row["new_tokens"]) for row in rows}

    def name(row: Row) -> str:
        sizes = {"s": row["sequence_length"], "n": row["new_tokens"]} if len(lengths) > 1 else {}
        own = " ".join(f"{letter}{size}" for letter, size in sizes.items() if size is not None)
        return ", ".join(filter(None, (level_words(row), own)))

    return name


GOOD_SHARE = "goodput_share"
"""Metric of a load level: the share of its requests within every limit."""
UNSTEADY = frozenset({"unsteady", "short_window"})
"""Doubts about a level whose rate is that of no steady state."""
NO_RATE = "no rate is known"


def found_rate(rows: Sequence[Row]) -> str | None:
    """The answer of the newest search for the highest rate with requests of each length among the rows, which share
    server and limits, or why it found none; None without a search."""
    searches = sorted(filter(is_search, rows), key=lambda row: (row["started_at"], row["result_id"]), reverse=True)
    of_lengths = grouped(searches, ("sequence_length", "new_tokens"))
    answers, reasons = list[str](), list[str]()
    for key, (newest, *_) in of_lengths:
        sizes = (("s", key["sequence_length"]), ("n", key["new_tokens"]))
        lengths = " ".join(f"{letter}{size}" for letter, size in sizes if size is not None)
        own = f"{lengths or 'other lengths'}: " if len(of_lengths) > 1 else ""
        found = HighestRate.of(newest["other_metrics"], facts_of(newest))
        if found is not None:
            answers.append(f"{own}{found.advice}")
        elif newest["error"]:
            reasons.append(f"{own}{newest['error']}")
    if not answers and reasons:
        return f"{NO_RATE}: {'; '.join(reasons)}"
    return "; ".join([*answers, *reasons]) or None


def rates_text(rows: Sequence[Row]) -> str:
    """The highest rate of answers in a steady state, and the rate that a search found, or else up to which level the
    limits hold, by the rule of the load test itself; if neither is known, `NO_RATE` and why."""
    levels, searched = [row for row in rows if not is_search(row)], found_rate(rows)
    name_of = level_names(levels)
    sound = [row for row in levels if row["status"] == "ok" and trust(row) != "invalid"]
    steady = [row for row in sound if not UNSTEADY & {*row["doubts"]}]
    # What a short window has above the offered rate is chance.
    answered = [
        (min(float(rate), row["offered_rate"] or math.inf), row)
        for row in steady
        if (rate := row["throughput_samples_per_sec"]) is not None
    ]
    parts: list[str] = []
    judged, pooled = _judged(levels)
    if levels and searched is None and not sound and all(is_held is None for _, is_held in judged):
        return f"{NO_RATE}: {_unfit_words(levels)}"
    if answered:
        rate, row = max(answered, key=lambda one: one[0])
        text = rate_words(rate)
        parts.append(f"at most {text} request{'' if text == '1' else 's'}/s answered at {name_of(row)}")
    if searched is not None:
        parts.insert(0, searched)
    elif any(row["other_metrics"].get(GOOD_SHARE) is not None for row in levels):
        parts.append(_within_limits(judged, name_of))
        parts += [f"{', '.join(pooled)} {POOLED}"] if pooled else []
    if parts:
        return "; ".join(parts)
    return f"{NO_RATE}: {'no level states one' if steady or not levels else _unfit_words(levels)}"


def _unfit_words(levels: Sequence[Row]) -> str:
    """Why no level has a rate: "all 3 levels are invalid or failed"."""
    found = {
        "failed" if row["status"] != "ok" else "invalid" if trust(row) == "invalid" else "unsteady" for row in levels
    }
    states = " or ".join(state for state in ("invalid", "unsteady", "failed") if state in found)
    return f"{'its only level is' if len(levels) == 1 else f'all {len(levels)} levels are'} {states}"


def _judged(levels: Sequence[Row]) -> tuple[list[tuple[Row, bool | None]], list[str]]:
    """Whether each level holds the limits, by itself or pooled with higher ones, and the names of the pooled ones."""
    held = {row["result_id"]: _holds(row) for row in levels}
    shared = [
        row for row in levels
        if held[row["result_id"]] is not None and row["offered_rate"] is not None and number_sent(row)
        and row["other_metrics"].get(GOOD_SHARE) is not None and not NOT_MET & {*row["doubts"]}
    ]  # fmt: skip
    pooled = []
    for key, rows in grouped(shared, ("sequence_length", "new_tokens", "required_share")):
        counts = [number_sent(row) for row in rows]
        met = [(level(row), row["other_metrics"][GOOD_SHARE] * n, n) for row, n in zip(rows, counts, strict=True)]
        together = pooled_shares(met, key["required_share"])
        pooled += [row for row, share in zip(rows, together, strict=True) if share is not None]
    held |= dict.fromkeys((row["result_id"] for row in pooled), True)
    return [(row, held[row["result_id"]]) for row in levels], list(map(level_names(levels), pooled))


def _within_limits(levels: Sequence[tuple[Row, bool | None]], name_of: Callable[[Row], str]) -> str:
    """Up to which level the limits hold: the highest that holds, if no lower one with such requests misses them."""
    sizes = ("sequence_length", "new_tokens")
    held = [
        row
        for row, is_held in levels
        if is_held
        and not any(
            is_other_held is False and level(other) < level(row) and all(other[name] == row[name] for name in sizes)
            for other, is_other_held in levels
        )
    ]
    shares = " or ".join(dict.fromkeys(f"{100 * row['required_share']:g}%" for row, _ in levels))
    rule, untold = f"{shares} of the requests were within the limits", sum(one is None for _, one in levels)
    if held:
        highest = max(held, key=level)
        is_top = len(levels) > 1 and highest is max((row for row, _ in levels), key=level)
        return f"{rule} up to {name_of(highest)}{', the highest measured' if is_top else ''}"
    if untold == len(levels):
        return f"whether {rule} is unknown ({untold} of {len(levels)} levels not judged)"
    return f"{rule} at no level" + (f" that was judged ({untold} of {len(levels)} were not)" if untold else "")


def _holds(row: Row) -> bool | None:
    """Whether a level holds the limits, as `curve.holds`; None if too few requests tell, something else than the server
    disturbed it, or none was sent."""
    if NOT_MET & {*row["doubts"]}:
        return False
    share, count, needed = row["other_metrics"].get(GOOD_SHARE), number_sent(row), float(row["required_share"])
    if row["status"] != "ok":
        return False if count else None
    if share is None:
        return None
    invalid = (doubt["kind"] for doubt in json.loads(row["extra"])["doubts"] if doubt["severity"] == "invalid")
    if disturbing(invalid, facts_of(row), is_met=share >= needed):
        return None
    return share_holds(round(min(share, 1.0) * count), 0, count, needed) if count else share >= needed


def level_axis(rows: Sequence[Row], loop: str) -> Axis:
    """The axis of offered loads. Levels without a rate are levels of their own at the right edge."""
    title = LEVEL_TITLES.get(loop, LEVEL_TITLES["closed"])
    stated = sorted({level(row) for row in rows if without_rate(row) is None})
    if stated and loop != "open":
        return size_axis(title, stated)
    bare = {name: place for row in rows if (name := without_rate(row)) for place in [place_of(row, rows)]}
    highest = stated[-1] if stated else 0.0
    named = tuple((place, name) for name, place in sorted(bare.items(), key=lambda one: one[1]))
    edge = max([highest, *bare.values()])
    low = 0.0 if stated else min(bare.values()) - 1.0
    return Axis(title=title, low=low, high=1.05 * edge, ticks=(*(ticks(0.0, highest) if stated else ()), *named))


def place_of(row: Row, rows: Sequence[Row]) -> float:
    """Where a level is on the axis of the rows: without a rate, to the right of the highest one."""
    bare = without_rate(row)
    if bare is None:
        return level(row)
    highest = max((level(one) for one in rows if without_rate(one) is None), default=0.8)
    return (1.25 if bare == UNLIMITED else 1.5) * highest


def by_kind(rows: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
    """Rows of each picture, which share the model, loop and kind of request. A level without a rate gets the arrivals
    of its server's other levels, if those agree: requests that are sent at once have none of their own."""
    curves: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        if row["offered_rate"] is not None:
            curves.setdefault(_without_arrivals(row), set()).add(row["runtime_mode"])
    marked = []
    for row in rows:
        modes = curves.get(_without_arrivals(row), set()) if row["offered_rate"] is None else set()
        axes = {name: one for name, one in axis_values(row).items() if name not in (RATE, "sequence_length")}
        other_axes = ", ".join(words.axis(name, value) for name, value in sorted(axes.items()))
        mode = min(modes) if len(modes) == 1 else row["runtime_mode"]
        marked.append({**row, "runtime_mode": mode, "own_mode": row["runtime_mode"], "other_axes": other_axes})
    others = tuple(name for name in POINT_COLUMNS if name not in ("concurrency", "axes"))
    return grouped(marked, (*SUBJECT, *others, "other_axes"))


def _without_arrivals(row: Row) -> tuple[object, ...]:
    mode = json.loads(row["runtime_mode"])
    others = tuple(row.get(name) for name in (*SUBJECT, *CONFIGURATION) if name != "runtime_mode")
    return (*others, json.dumps({name: one for name, one in mode.items() if name != "arrivals"}, sort_keys=True))


def level_lines(rows: Sequence[Row], keep: Sequence[Row] = ()) -> tuple[list[Series], str | None]:
    """One line per server, or per model and batch size, and a note about lines left out. Rows have a `value`; lower is
    better. The server of rows with `is_own` comes first and looks as in a chart of its own."""
    own = [row for row in rows if row.get("is_own")]
    lines, left_out = fastest(configurations(rows, ("batch_size",)), MOST_COLOURS, keep=[*keep, *own])
    if own:
        ordered = sorted(lines, key=lambda one: not any(row.get("is_own") for row in one.rows))
        lines = [replace(one, style=style, place=None) for style, one in enumerate(ordered)]
    return lines, left_out


def joined(series: Series, marks: Callable[[Sequence[Row]], tuple[Mark, ...]], **look: Any) -> list[Line]:
    """The line of a server through the levels with a load, and the marks of those without a rate, which no line leads
    to: their place beside the others is no load."""
    stated = marks([row for row in series.rows if without_rate(row) is None])
    bare = marks([row for row in series.rows if without_rate(row) is not None])
    alone = {**look, "dashes": None, "shape": series.style}
    return [series.line(found, **own) for found, own in ((stated, look), (bare, alone)) if found]


def request_words(key: Row) -> tuple[str, ...]:
    """The kind of load and request of a picture."""
    sizes = {"sequence_length": key["sequence_length"], "new_tokens": key["new_tokens"]}
    stated = [words.axis(name, value) for name, value in sizes.items() if value is not None]
    return (LOOPS.get(str(key["loop"]), str(key["loop"])), ", ".join([*stated, *filter(None, [key["other_axes"]])]))


def limits_ms(rows: Sequence[Row]) -> dict[str, float]:
    """Latency limits in ms by name (ttft, tpot, ...); empty unless all rows have the same limits."""
    (slo,) = stated if len(stated := {row["slo"] for row in rows}) == 1 else (None,)
    return limits_of(slo or "")


@dataclass(frozen=True, slots=True)
class Request:
    """A request; times are seconds since the first intended start, None for events that did not happen."""

    intended: float
    sent: float | None
    first: float | None
    end: float | None
    error: str | None


def requests_of(row: Row) -> list[Request]:
    """Requests of a repetition, by intended start."""
    each = zip(*(row[f"each_{name}"] for name in REQUEST_COLUMNS), strict=True)
    start = min(row["each_intended_ms"])
    return [
        Request(*[*(None if time is None else (time - start) / MS_PER_S for time in times), error])
        for *times, error in each
    ]


def in_flight(requests: Sequence[Request]) -> list[tuple[float, int]]:
    """Steps (time in s, requests in flight from then on)."""
    times = [(one.sent, one.end) for one in requests if one.sent is not None and one.end is not None]
    changes = sorted([*((sent, 1) for sent, _ in times), *((end, -1) for _, end in times)])
    return list(zip((time for time, _ in changes), accumulate(change for _, change in changes), strict=True))


def part_of(one: Request, part: int) -> tuple[float, float]:
    """Start and end in s of a part (index in `REQUEST_PARTS`); equal if the request did not reach it."""
    sent = one.sent if one.sent is not None else one.end if one.end is not None else one.intended
    end = one.end if one.end is not None else sent
    first = one.first if one.first is not None else end
    return ((one.intended, sent), (sent, first), (first, end))[part]
