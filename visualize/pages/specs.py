"""Vega-Lite specifications of charts, drawn by the browser.

Colours are names from the style sheet ("--bad") that `static/app.js` replaces, so charts follow the page's theme. Field
names are fixed words, since Vega would parse "a.b" and "a[0]" as paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Spec = dict[str, Any]
Record = Mapping[str, Any]

CROSS = "M-1,-1L1,1M-1,1L1,-1"
"""SVG path of a diagonal cross, since Vega's shape "cross" is a plus sign."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Identifies the language version; nothing is fetched from it."""
MOST_SERIES_IN_LEGEND = 12
TONES = {"slower": "bad", "more": "bad", "faster": "good", "less": "good", "trend": "warn"}
"""Verdict -> tone; other verdicts are muted."""
TICKS = 8
MOST_LINEAR = 10
"""Ratio of the largest to the smallest value up to which an axis is linear."""
STEP = 22
"""Height in pixels of a row in charts with named rows."""


def steps_over(rows: Sequence[Record], x: str, y: str, colour: str, *, x_title: str, y_title: str) -> Spec:
    """Step lines, one per value of `colour`: the ECDF of each launch."""
    return _chart(
        rows,
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 1.5},
        encoding={
            "x": {"field": x, "type": "quantitative", "title": x_title, "scale": {"zero": False}},
            "y": {"field": y, "type": "quantitative", "title": y_title, "axis": {"format": "%"}},
            "color": _colour(colour),
            "tooltip": _tooltip((colour, x, y)),
        },
    )


def points_over(rows: Sequence[Record], x: str, y: str, colour: str, *, x_title: str, y_title: str) -> Spec:
    """Small points coloured by `colour`: samples in measured order."""
    return _chart(
        rows,
        mark={"type": "point", "filled": True, "size": 12, "opacity": 0.6},
        encoding={
            "x": {"field": x, "type": "quantitative", "title": x_title},
            "y": {"field": y, "type": "quantitative", "title": y_title, "scale": {"zero": False}},
            "color": _colour(colour),
            "tooltip": _tooltip((colour, x, y)),
        },
    )


def intervals(rows: Sequence[Record], name: str, low: str, middle: str, high: str, kind: str, *, title: str) -> Spec:
    """One row per name in the given order, with a point and its interval, and a rule at 0."""
    y = {"field": name, "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}}
    tones = {row[kind]: f"--{TONES.get(row[kind], 'muted')}" for row in rows}
    scale = {"domain": list(tones), "range": list(tones.values())}
    shared = {"y": y, "color": {**_colour(kind), "scale": scale, "legend": {"title": None, "orient": "top"}}}
    tooltip = _tooltip((name, kind, middle, low, high))
    x = {"field": middle, "type": "quantitative", "title": title, "axis": {"format": "+.0%", "tickCount": TICKS}}
    has_bars = any(row[low] is not None for row in rows)  # Vega warns about layers without values
    bars = {"x": {**x, "field": low}, "x2": {"field": high}, **shared, "tooltip": tooltip}
    return {
        **_base(rows, height=_rows_height(rows)),
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [3, 3]}, "encoding": {"x": {"datum": 0, "type": "quantitative"}}},
            *([{"mark": {"type": "rule", "strokeWidth": 2}, "encoding": bars}] if has_bars else []),
            {
                "mark": {"type": "point", "filled": True, "size": 50},
                "encoding": {"x": x, **shared, "tooltip": tooltip},
            },
        ],
    }


def bars(rows: Sequence[Record], name: str, value: str, colour: str, *, title: str) -> Spec:
    """One horizontal bar per name, in the given order."""
    return _chart(
        rows,
        mark={"type": "bar", "cornerRadiusEnd": 2},
        encoding={
            "y": {"field": name, "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}},
            "x": {"field": value, "type": "quantitative", "title": title, "axis": {"tickCount": TICKS}},
            "color": _colour(colour),
            "tooltip": _tooltip((name, colour, value)),
        },
        height=_rows_height(rows),
    )


def trend(
    points: Sequence[Record],
    levels: Sequence[Record],
    changes: Sequence[Record],
    notes: Sequence[Record],
    *,
    y_title: str,
) -> Spec:
    """Values over time, with levels between changes, a dashed rule at each change, and a mark at each user note.

    Points have "time", "value" and "commit"; levels "start", "end" and "level"; changes "time" and "change"; notes
    "time" and "note".
    """
    x = {"field": "time", "type": "temporal", "title": None, "axis": _time_axis([row["time"] for row in points])}
    y: Spec = {"field": "value", "type": "quantitative", "title": y_title, "scale": {"zero": False}}
    if len({row["value"] for row in points}) == 1:
        y["axis"] = {"format": "~g", "tickCount": 1}  # otherwise Vega appends six zeros
    level = {
        "x": {**x, "field": "start"},
        "x2": {"field": "end"},
        "y": {**y, "field": "level"},
        "tooltip": _tooltip(("level",)),
    }
    marks = {
        "data": {"values": list(notes)},
        "mark": {"type": "point", "shape": "triangle-down", "filled": True, "size": 90, "opacity": 1},
        "encoding": {"x": x, "y": {"value": 6}, "color": {"value": "--warn"}, "tooltip": _tooltip(("note", "time"))},
    }
    rules = {
        "data": {"values": list(changes)},
        "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5, "color": "--bad"},
        "encoding": {"x": x, "tooltip": _tooltip(("change", "time"))},
    }
    base = _base((), height=280)
    return {
        **base,
        "data": {"values": []},
        "layer": [
            *([rules] if changes else []),  # Vega warns about layers without values
            {
                "data": {"values": list(levels)},
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5},
                "encoding": level,
            },
            {
                "data": {"values": list(points)},
                "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.5},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": list(points)},
                "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
                "encoding": {"x": x, "y": y, "tooltip": _tooltip(("time", "value", "commit"))},
            },
            *([marks] if notes else []),
        ],
    }


def front(rows: Sequence[Record], *, x_title: str, y_title: str) -> Spec:
    """Options by "latency" and "throughput", coloured by "device". Crosses miss a limit ("fits"), hollow marks are
    doubtful ("state"), and a line joins the Pareto front ("front")."""
    x = {
        "field": "latency",
        "type": "quantitative",
        "title": x_title,
        "scale": {"type": "log", "nice": False, "padding": 14},
    }
    y = {
        "field": "throughput",
        "type": "quantitative",
        "title": y_title,
        "scale": {"type": "log", "nice": False, "padding": 14},
    }
    names = ("option", "latency", "throughput", "front", "fits")
    return {
        **_base(rows, height=320),
        "layer": [
            {
                "transform": [{"filter": {"field": "front", "equal": "yes"}}],
                "mark": {"type": "line", "strokeDash": [4, 3], "color": "--muted"},
                "encoding": {"x": x, "y": y, "order": {"field": "latency"}},
            },
            {
                "mark": {"type": "point", "size": 70, "strokeWidth": 1.5},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": _colour("device"),
                    "fill": _colour("device"),
                    "fillOpacity": {
                        "condition": {"test": {"field": "state", "equal": "doubtful"}, "value": 0},
                        "value": 1,
                    },
                    "shape": {
                        "field": "fits",
                        "type": "nominal",
                        "scale": {"domain": ["yes", "no"], "range": ["circle", CROSS]},
                        "legend": {
                            "title": "meets the limits",
                            "symbolFillColor": "--muted",
                            "symbolStrokeColor": "--muted",
                        },
                    },
                    "tooltip": _tooltip(names),
                },
            },
        ],
    }


def lines(rows: Sequence[Record], x: str, y: str, *, is_time: bool) -> Spec:
    """A line through the values of two columns of a query result."""
    time: Spec = {"type": "temporal", "axis": _time_axis([row["x"] for row in rows])} if is_time else {}
    return _chart(
        rows,
        mark={"type": "line", "point": True, "strokeWidth": 1.5},
        encoding={
            "x": {"field": "x", "type": "quantitative", "title": x, **time},
            "y": {"field": "y", "type": "quantitative", "title": y, "scale": {"zero": False}},
            "tooltip": _tooltip(("x", "y")),
        },
    )


def plain_bars(rows: Sequence[Record], x: str, y: str) -> Spec:
    """One bar per row, with its name in "x" and its value in "y"."""
    return _chart(
        rows,
        mark={"type": "bar", "cornerRadiusEnd": 2},
        encoding={
            "y": {"field": "x", "type": "nominal", "sort": None, "title": x, "axis": {"labelLimit": 320}},
            "x": {"field": "y", "type": "quantitative", "title": y, "axis": {"tickCount": TICKS}},
            "tooltip": _tooltip(("x", "y")),
        },
        height=_rows_height(rows),
    )


def curves(rows: Sequence[Record], *, y_title: str, x_title: str = "batch size", y_scale: Spec | None = None) -> Spec:
    """One line per "setup" over "batch" or over the "level" of a load: "value", with its interval from "low" to "high".

    Marks are filled if "state" is valid, hollow if doubtful, crosses if invalid or simulated. The y scale depends on
    the values unless `y_scale` is given.
    """
    x = _level(x_title) if "level" in rows[0] else _batch(x_title, sorted({row["batch"] for row in rows}))
    y = {"field": "value", "type": "quantitative", "title": y_title, "scale": y_scale or _value_scale(rows)}
    names = list(dict.fromkeys(row["setup"] for row in rows))
    legend = {"title": None, "orient": "bottom", "columns": 1, "labelLimit": 480}
    colour = {"field": "setup", "type": "nominal", "scale": {"domain": names}, "legend": legend}
    line = {
        "transform": [{"filter": {"field": "state", "oneOf": list(JOINED)}}],
        "mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.7},
        "encoding": {"x": x, "y": y, "color": colour},
    }
    whiskers = {
        "transform": [{"filter": {"field": "low", "valid": True}}],
        "mark": {"type": "rule", "strokeWidth": 1.5},
        "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
    }
    return {**_base(rows, height=260), "layer": _measured(rows, [line], whiskers, {"x": x, "y": y, "color": colour})}


def over_levels(
    rows: Sequence[Record], *, y_title: str, x_title: str, limit: float | None, is_rate: bool, is_offered: bool
) -> Spec:
    """`curves` over load levels, with a dotted line of "thin", a vertical rule at the "knee", and a dashed rule at the
    limit. Rates have an axis from 0; `is_offered` adds the line where the rate equals the offered load."""
    values = [{"value": one} for row in rows for one in (row["value"], row["thin"], limit) if one]
    scale = {"zero": True} if is_rate or not values else _value_scale(values)
    spec = curves(rows, y_title=y_title, x_title=x_title, y_scale=scale)
    encoding = spec["layer"][-1]["encoding"]
    x, y, colour = (encoding[name] for name in ("x", "y", "color"))
    below: list[Spec] = []
    if is_offered:
        ideal = {"type": "line", "strokeDash": [6, 4], "strokeWidth": 1, "color": "--muted"}
        below.append({"mark": ideal, "encoding": {"x": x, "y": {**y, "field": "level"}}})
    if any(row["thin"] is not None and row["state"] in JOINED for row in rows):
        dotted = {"type": "line", "strokeDash": [2, 3], "strokeWidth": 1.5}
        below.append(
            {
                "transform": [
                    {"filter": {"field": "thin", "valid": True}},
                    {"filter": {"field": "state", "oneOf": list(JOINED)}},
                ],
                "mark": dotted,
                "encoding": {"x": x, "y": {**y, "field": "thin"}, "color": colour},
            }
        )
    if any(row["knee"] for row in rows):
        knees = {"transform": [{"filter": {"field": "knee", "equal": True}}]}
        rule = {"type": "rule", "strokeWidth": 1, "strokeDash": [2, 2]}
        below.append({**knees, "mark": rule, "encoding": {"x": x, "color": colour}})
    if limit is not None:
        rule = {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 1.5, "color": "--bad"}
        below.append({"data": {"values": [{"value": limit}]}, "mark": rule, "encoding": {"y": y}})
    return {**spec, "layer": [*below, *spec["layer"]]}


def request_bars(rows: Sequence[Record], failed: Sequence[Record], *, count: int, parts: Sequence[str]) -> Spec:
    """One line for each of `count` requests, in `parts` from "start" to "end" in s; crosses mark failures."""
    tick = max(1, -(-count // TICKS))
    y = {
        "field": "request",
        "type": "quantitative",
        "title": "request, by intended start",
        "scale": {"domain": [count + 0.5, 0.5], "nice": False, "zero": False},
        "axis": {
            "values": [1, *range(tick, count + 1, tick)] if tick > 1 else list(range(1, count + 1)),
            "grid": False,
        },
    }
    x = {"field": "start", "type": "quantitative", "title": "time since the first intended start (s)"}
    scale = {"domain": list(parts), "range": ["--muted", "--c4", "--c0"]}
    bars = {
        "data": {"values": list(rows)},
        "mark": {"type": "rule", "strokeWidth": max(1.0, min(5.0, 280 / count))},
        "encoding": {
            "x": x,
            "x2": {"field": "end"},
            "y": y,
            "color": {"field": "part", "type": "nominal", "scale": scale, "legend": {"title": None, "orient": "top"}},
            "tooltip": _tooltip(("request", "part", "start", "end")),
        },
    }
    crosses = {
        "data": {"values": list(failed)},
        "mark": {"type": "point", "shape": CROSS, "strokeWidth": 2, "size": 60, "color": "--bad", "opacity": 1},
        "encoding": {"x": {**x, "field": "end"}, "y": y, "tooltip": _tooltip(("request", "error", "end"))},
    }
    return {**_base((), height=320), "layer": [*([bars] if rows else []), *([crosses] if failed else [])]}


def step_line(rows: Sequence[Record], *, x_title: str, y_title: str) -> Spec:
    """A step line of a count over time; each "y" holds until the next "x"."""
    return _chart(
        rows,
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 1.5},
        encoding={
            "x": {"field": "x", "type": "quantitative", "title": x_title},
            "y": {"field": "y", "type": "quantitative", "title": y_title, "axis": {"format": "d", "tickMinStep": 1}},
            "tooltip": _tooltip(("x", "y")),
        },
        height=160,
    )


def _batch(title: str, batches: Sequence[int]) -> Spec:
    scale = {"type": "log", "base": 2, "nice": False, "padding": 14}
    axis = {"values": batches, "format": "d"}
    return {"field": "batch", "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _level(title: str) -> Spec:
    scale = {"domainMin": 0, "nice": True}
    return {"field": "level", "type": "quantitative", "title": title, "scale": scale, "axis": {"tickCount": TICKS}}


def ranges(rows: Sequence[Record], *, title: str) -> Spec:
    """One row per "setup" in the given order: "value" with its interval, marked as in `curves`."""
    y = {"field": "setup", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}}
    x = {"field": "value", "type": "quantitative", "title": title, "scale": _value_scale(rows)}
    whiskers = {
        "transform": [{"filter": {"field": "low", "valid": True}}],
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
    }
    return {**_base(rows, height=_rows_height(rows)), "layer": _measured(rows, [], whiskers, {"x": x, "y": y})}


MARKS: Mapping[str, tuple[tuple[str, ...], Spec]] = {
    "filled": (("valid",), {"type": "point", "filled": True, "size": 55, "opacity": 1}),
    "hollow": (("doubtful",), {"type": "point", "filled": False, "size": 55, "strokeWidth": 1.5, "opacity": 1}),
    "crossed": (
        ("invalid", "simulated"),
        {"type": "point", "shape": CROSS, "strokeWidth": 2, "size": 55, "opacity": 1},
    ),
}
"""Mark -> states with this mark, and its specification."""
JOINED = ("valid", "doubtful")
"""States of results that lines connect."""


def _measured(rows: Sequence[Record], below: Sequence[Spec], whiskers: Spec, encoding: Spec) -> list[Spec]:
    """Layers with data (Vega warns about empty ones): lines, whiskers, and each kind of mark."""
    found = {row["state"] for row in rows}
    tooltip = _tooltip(("setup", "point", "value", "low", "high", "state"))
    marks: list[Spec] = [
        {
            "transform": [{"filter": {"field": "state", "oneOf": list(states)}}],
            "mark": mark,
            "encoding": {**encoding, "tooltip": tooltip},
        }
        for states, mark in MARKS.values()
        if found.intersection(states)
    ]
    lines = below if found.intersection(JOINED) else []
    return [*lines, *([whiskers] if any(row["low"] is not None for row in rows) else []), *marks]


def _value_scale(rows: Sequence[Record]) -> Spec:
    """Linear from 0, or logarithmic if the values span more than a factor of `MOST_LINEAR`."""
    values = [row["value"] for row in rows]
    if min(values) > 0 and max(values) > MOST_LINEAR * min(values):
        return {"type": "log", "nice": False, "padding": 10}
    return {"zero": True}


TIME_STEPS: tuple[tuple[int, str, int, str], ...] = (
    (1500, "year", 1, "%Y"),
    (400, "month", 3, "%Y-%m"),
    (90, "month", 1, "%Y-%m"),
    (20, "week", 1, "%Y-%m-%d"),
    (10, "day", 2, "%Y-%m-%d"),
    (1, "day", 1, "%Y-%m-%d"),
)
"""(minimum days, unit and step of ticks, label format)."""


def _time_axis(times: Sequence[str]) -> Spec:
    """Ticks at whole days, weeks, months or years for times days apart, else times of day; a single tick for one
    time."""
    found = sorted(datetime.fromisoformat(time) for time in times)
    days = (found[-1] - found[0]).total_seconds() / 86_400 if found else 0.0
    if days == 0:
        return {"format": "%Y-%m-%d %H:%M", "tickCount": 1}
    for least, interval, step, label in TIME_STEPS:
        if days >= least:
            return {"format": label, "tickCount": {"interval": interval, "step": step}}
    return {"format": "%H:%M", "tickCount": TICKS}


def _chart(rows: Sequence[Record], *, mark: Spec, encoding: Spec, height: int = 240) -> Spec:
    return {**_base(rows, height=height), "mark": mark, "encoding": encoding}


def _base(rows: Sequence[Record], *, height: int) -> Spec:
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": list(rows)},
    }


def _rows_height(rows: Sequence[Record]) -> int:
    """Height of a chart with named rows. With a step size instead, Vega-Lite warns that it fits only the width."""
    return STEP * len(rows)


def _colour(field: str) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "sort": None,
        "legend": {"title": field, "symbolLimit": MOST_SERIES_IN_LEGEND, "labelLimit": 260},
    }


def _tooltip(fields: Sequence[str]) -> list[Spec]:
    return [{"field": field} for field in fields]
