"""Charts of load tests on pages and in reports: levels with limits and knee, and the requests of a level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.core.text import number
from visualize.drawing import loads
from visualize.drawing.rows import Row, is_ok, trust
from visualize.pages import specs
from visualize.pages.elements import Chart, Grid, headings, number_cell, state_cell, text_cell
from visualize.pages.result_rows import OTHERS

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

MARKS = "Hollow marks are doubtful, crosses invalid or simulated."
GOODPUT = "goodput_requests_per_sec"
MOST_BARS = 300
"""Maximum requests with a bar; with more, bars would be thinner than a pixel."""
MOST_READ = 3000
"""Maximum requests read of a level: those drawn as bars and those in flight at the same time."""
COUNTED = """
SELECT launch, count(*) AS requests, count(error) AS failed, list_sort(list_distinct(list(error))) AS errors
FROM requests WHERE result_id = $result AND phase = 'measure' GROUP BY launch ORDER BY launch
"""
REQUESTS = f"""
SELECT {loads.TIMES} FROM requests
WHERE result_id = $result AND phase = 'measure' AND launch = $launch AND ordinal < $most
"""  # noqa: S608 - names of columns
TABLE_ROWS = 100
"""Maximum rows of the tables behind charts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The metrics of a chart over load levels: one as a line with marks, one as a dotted line."""

    title: str
    column: str
    thin: str
    """Column of the dotted line, or key of other_metrics."""
    thin_title: str
    limit: str | None = None
    """Name of the latency limit drawn in the chart."""


REQUEST_RATES = Curve(
    title="Successful requests per second",
    column="throughput_samples_per_sec",
    thin=GOODPUT,
    thin_title="goodput (requests that meet every limit)",
)
TIMES = (
    Curve(
        title="Time to first token, median (ms)",
        column="time_to_first_token_ms",
        thin="time_to_first_token_p99_ms",
        thin_title="99th percentile",
        limit="ttft",
    ),
    Curve(
        title="Time per output token, median (ms)",
        column="time_per_output_token_ms",
        thin="time_per_output_token_p99_ms",
        thin_title="99th percentile",
        limit="tpot",
    ),
    Curve(
        title="Latency of a request, median (ms)",
        column="latency_median_ms",
        thin="latency_p99_ms",
        thin_title="99th percentile",
        limit="e2e",
    ),
)


def level_charts(key: Row, rows: Sequence[Row], left_out: int = 0, *, with_kind: bool = True) -> list[Chart]:
    """Throughput and latency over the levels of one kind of load (`loads.by_kind`), then total throughput against
    throughput per user.

    Rows have a "setup", which names the server, and a "state". `left_out` is the number of servers not drawn. With
    `with_kind`, captions begin with the kind of load.
    """
    kind = ", ".join(part for part in loads.request_words(key) if part) if with_kind else ""
    charts = [_curve_chart(key, rows, left_out, curve, kind) for curve in (REQUEST_RATES, *TIMES)]
    return [one for one in (*charts, _frontier(rows, left_out, kind)) if one is not None]


def _points(rows: Sequence[Row], x: Callable[[Row], float | None], y: str, thin: str | None) -> list[dict[str, Any]]:
    """Data of each level with a value."""
    return [
        {
            **dict.fromkeys(("low", "high")), "setup": row["setup"], "point": loads.level_words(row), "level": at,
            "value": row[y], "thin": None if thin is None else row.get(thin, row[OTHERS].get(thin)),
            "knee": row["is_knee"], "state": row["state"],
        }
        for row in sorted(rows, key=loads.level)
        if (at := x(row)) is not None and row[y] is not None
    ]  # fmt: skip


def _curve_chart(key: Row, rows: Sequence[Row], left_out: int, curve: Curve, kind: str) -> Chart | None:
    """One line per server over load levels; None without values."""
    points = _points(rows, loads.level, curve.column, curve.thin)
    if not points:
        return None
    is_rate, offered = curve is REQUEST_RATES, loads.LEVEL_TITLES[str(key["loop"])]
    limit = loads.limits_ms(rows).get(curve.limit or "")
    is_offered = is_rate and key["loop"] == "open"
    sentences = (
        "Higher is better." if is_rate else "Lower is better.",
        f"Dotted: {curve.thin_title}." if _any(points, "thin") else "",
        "Dashed grey: offered load." if is_offered else "",
        f"Dashed: limit of {number(limit)} ms." if limit is not None else "",
        "Beyond the knee (vertical line), more load mainly adds queueing delay." if _any(points, "knee") else "",
    )
    return Chart(
        title=_title(rows, curve, offered),
        caption=_caption(kind, points, left_out, *sentences),
        spec=specs.over_levels(points, y_title=curve.title, x_title=offered, limit=limit, is_rate=is_rate,
                               is_offered=is_offered),
        table=_table(points, curve.title, curve.thin_title),
    )  # fmt: skip


def _title(rows: Sequence[Row], curve: Curve, offered: str) -> str:
    """The knee if a single server is drawn and its knee is valid, else a description."""
    knees = [row for row in rows if row["is_knee"] and row["state"] == "valid"]
    is_one = len({row["setup"] for row in rows}) == 1 and len(knees) == 1
    if is_one and curve is REQUEST_RATES:
        served = number(knees[0][curve.column])
        return f"Throughput levels off beyond {loads.level_words(knees[0])}, where {served} requests/s succeed"
    return f"{curve.title} against {offered[0].lower()}{offered[1:]}"


def _frontier(rows: Sequence[Row], left_out: int, kind: str) -> Chart | None:
    """Total throughput against throughput per user; None without streamed tokens."""
    points = _points(rows, _per_user, "throughput_tokens_per_sec", None)
    if not points:
        return None
    title, per_user = "Total output tokens/s", "Output tokens/s per user"
    return Chart(
        title=f"{title} against {per_user[0].lower()}{per_user[1:]}",
        caption=_caption(kind, points, left_out, "Higher is better on both axes; each mark is a level."),
        spec=specs.curves(points, y_title=title, x_title=per_user),
        table=_table(points, title, None, x_title=per_user),
    )


def _per_user(row: Row) -> float | None:
    return 1000 / row["time_per_output_token_ms"] if row["time_per_output_token_ms"] else None


def _any(points: Sequence[Row], name: str) -> bool:
    return any(one[name] for one in points)


def _caption(kind: str, points: Sequence[Row], left_out: int, *sentences: str) -> str:
    more = f"{left_out} slower servers are only in the table." if left_out else ""
    marks = MARKS if any(one["state"] != "valid" for one in points) else ""
    return " ".join(part for part in (kind and f"{kind[0].upper()}{kind[1:]}.", *sentences, marks, more) if part)


def _table(points: Sequence[Row], title: str, thin_title: str | None, x_title: str | None = None) -> Grid:
    at = [x_title] if x_title else []
    thin = [thin_title] if thin_title and _any(points, "thin") else []
    return Grid(
        headings=headings(("server", "level", *at, title, *thin, "state"), (*at, title, *thin)),
        rows=tuple(
            (
                text_cell(one["setup"]),
                text_cell(one["point"] + (" (knee)" if one["knee"] else "")),
                *(number_cell(one["level"]) for _ in at),
                number_cell(one["value"]),
                *(number_cell(one["thin"]) for _ in thin),
                state_cell(one["state"]),
            )
            for one in points
        ),
        caption=title,
    )


def state(row: Row) -> str:
    """The state of a level: valid, doubtful, invalid or simulated."""
    return "simulated" if row["simulated"] else trust(row)


def request_charts(data: Data, row: Row) -> tuple[Chart, ...]:
    """Requests of the first repetition of a level over time, and the number in flight; empty without requests."""
    if not is_ok(row):
        return ()
    launches = data.warehouse.query(COUNTED, {"result": row["result_id"]}).dicts()
    if not launches:
        return ()
    first = launches[0]
    values = {"result": row["result_id"], "launch": first["launch"], "most": MOST_READ}
    (times,) = data.warehouse.query(REQUESTS, values).dicts()
    requests = loads.requests_of(times)
    shown = requests[:MOST_BARS]
    until = max(one.end or one.sent or one.intended for one in shown)
    if len(requests) < first["requests"]:  # later requests were not read and may be in flight
        until = min(until, requests[-1].intended)
    return (_bars(row, first, shown, len(launches)), _flight(requests, until))


def _bars(row: Row, counted: Row, shown: Sequence[loads.Request], repetitions: int) -> Chart:
    parts = [
        {"request": place + 1, "part": name, "start": start, "end": end}
        for place, one in enumerate(shown)
        for part, name in enumerate(loads.REQUEST_PARTS)
        for start, end in [loads.part_of(one, part)]
        if end > start
    ]
    failed = [
        {"request": place + 1, "end": one.intended if one.end is None else one.end, "error": one.error}
        for place, one in enumerate(shown)
        if one.error
    ]
    sentences = (
        "Each line is a request from its intended start to its end, the first at the top.",
        f"Crosses mark failures: {counted['failed']} of {counted['requests']} ({', '.join(counted['errors'][:3])})."
        if counted["failed"]
        else "",
        f"Shown: the first {len(shown)} of {counted['requests']} requests." if len(shown) < counted["requests"] else "",
        f"Shown: the first of {repetitions} repetitions." if repetitions > 1 else "",
    )
    return Chart(
        title=f"Requests over time at {loads.level_words(row)}",
        caption=" ".join(filter(None, sentences)),
        spec=specs.request_bars(parts, failed, count=len(shown), parts=loads.REQUEST_PARTS),
        table=_request_table(shown),
    )


def _request_table(shown: Sequence[loads.Request]) -> Grid:
    times = ("intended (s)", "sent (s)", "first token (s)", "end (s)")
    return Grid(
        headings=headings(("request", *times, "error"), ("request", *times)),
        rows=tuple(
            (
                text_cell(place),
                *(number_cell(value) for value in (one.intended, one.sent, one.first, one.end)),
                text_cell(one.error, tone="bad" if one.error else "muted"),
            )
            for place, one in enumerate(shown[:TABLE_ROWS], start=1)
        ),
        caption=f"Requests in the chart, at most {TABLE_ROWS}",
    )


def _flight(requests: Sequence[loads.Request], until: float) -> Chart:
    steps = [{"x": time, "y": count} for time, count in loads.in_flight(requests) if time <= until] or [
        {"x": 0.0, "y": 0}
    ]
    most = max(step["y"] for step in steps)
    return Chart(
        title=f"Up to {most} request{'' if most == 1 else 's'} in flight",
        caption="Requests sent but not finished. A line that keeps rising means that the server cannot keep up.",
        spec=specs.step_line(steps, x_title="time since the first intended start (s)", y_title="requests in flight"),
        table=Grid(
            headings=headings(("time (s)", "in flight"), ("time (s)", "in flight")),
            rows=tuple((number_cell(step["x"]), text_cell(step["y"])) for step in steps[:TABLE_ROWS]),
            caption=f"Requests in flight, at most the first {TABLE_ROWS} changes",
        ),
    )
