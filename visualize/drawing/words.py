"""Text of charts: names of points and devices, axis titles, and caption sentences about source, doubts and gaps."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from benchmarking.core.axes import AXES, POINT_FIELDS
from benchmarking.core.doubts import KINDS
from benchmarking.core.metrics import JUDGED, METRICS, Metric
from benchmarking.core.records import LOOP, REQUEST_RATE, SERVER, Point
from benchmarking.core.sample_statistics import MIN_LAUNCHES_FOR_BETWEEN
from benchmarking.core.text import counted, cut_off
from benchmarking.core.verdicts.launches import COVERS
from db.values import precision_words
from visualize.drawing.rows import Row, is_ok, settings, shown_settings, trust
from visualize.drawing.scales import number

SEPARATOR = " · "
NO_VALUE = "without this metric"
LONGEST_TEXT = 160
"""Maximum characters of an error or note in a sentence."""
UNKNOWN, NOT_STATED = "unknown", "not stated"
"""What the warehouse has, and what people read, where neither a file nor a server says it."""


def cell(row: Row) -> str:
    """The device, runtime and precision of a row, separated by SEPARATOR, as far as the file of another tool states
    them."""
    known = [part for part in (device(row), engine(row), precision(row)) if part != NOT_STATED]
    return SEPARATOR.join(dict.fromkeys(known)) or f"setup {NOT_STATED}"


def stated(value: str) -> str:
    """The value, or that it is not known."""
    return NOT_STATED if value == UNKNOWN else value


def precision(row: Row) -> str:
    """The precision; the quantization if that is what the weights have instead: "Q4_K - Medium"."""
    return stated(precision_words(row["precision"], settings_of(row)))


def settings_of(row: Row) -> Mapping[str, object]:
    """The runtime settings of a row, stored as JSON or read already."""
    mode = row.get("runtime_mode") or {}
    found: Mapping[str, object] = json.loads(mode) if isinstance(mode, str) else mode
    return found


def engine(row: Row) -> str:
    """The runtime; in words for a server whose engine is not known."""
    return NOT_STATED if row["runtime"] == SERVER else stated(row["runtime"])


def device(row: Row) -> str:
    """Model name and selector of the device, and whether it is simulated."""
    selector = stated(row["device"]) + (", simulated" if row.get("simulated") else "")
    return f"{row['device_name']} ({selector})" if row["device_name"] else selector


def point(row: Row, *, with_batch: bool = True) -> str:
    """A point in words: "batch 4, sequence 128, 16 new tokens"."""
    named = [name for name in POINT_FIELDS if with_batch or name != "batch_size"]
    parts = [axis(name, row[name]) for name in named if row[name] not in (None, AXES[name].implied)]
    return ", ".join([*parts, *(axis(name, value) for name, value in sorted(json.loads(row["axes"]).items()))])


def subtitle(title: str, chart: str, *parts: str) -> str:
    """The non-empty parts, preceded by the chart's name if the title states a finding."""
    named = () if title.startswith(chart) else (chart,)
    return SEPARATOR.join(part for part in (*named, *parts) if part)


def cell_and_point(row: Row) -> str:
    """The cell of a row and its point: "cpu · eager · float32 at batch 4"."""
    return f"{cell(row)} at {point(row)}"


def axis(name: str, value: float | None) -> str:
    """A value on an axis in words: "sequence 128", "image 224 px", "5 s of audio"."""
    if value is None:
        return f"no {name.replace('_', ' ')}"
    if name in AXES:
        return AXES[name].in_words(value)
    if name not in OTHER_AXES:
        return f"{name.replace('_', ' ')} {value:,.15g}"
    text = OTHER_AXES[name].format(value)
    return PLURAL.sub(r"\1", text) if value == 1 else text


OTHER_AXES: Mapping[str, str] = {
    REQUEST_RATE: "{:,.15g} requests/s",
    "num_prompts": "{:,.15g} requests",
    "tokens_per_request": "{:,.15g} tokens a request",
    **dict.fromkeys(("input_tokens_mean", "mean_input_tokens"), "{:,.15g} input tokens on average"),
    "mean_output_tokens": "{:,.15g} output tokens on average",
    "depth": "after {:,.15g} tokens",
}
"""Axis of load tests and of other tools -> template of a value in words."""
PLURAL = re.compile(r"\b(request|token)s\b")


def short_point(whole: Point) -> str:
    """A point in short: "b1 s128 n16", and further axes in words: "b1 n16, 4 requests/s"."""
    return ", ".join([replace(whole, axes={}).label, *(axis(name, one) for name, one in sorted(whole.axes.items()))])


def axis_title(name: str) -> str:
    """Legend title of an axis, with its unit."""
    return AXES[name].title if name in AXES else name


def count(number_of: float | None) -> str:
    """A value on an axis, such as "2,048"; "none" if the point has none."""
    return "none" if number_of is None else f"{number_of:,.15g}" if isinstance(number_of, float) else f"{number_of:,}"


def family(row: Row) -> str:
    """The architecture family; torch modules and custom benchmarks may have none."""
    return row["architecture_type"] or "no family"


def point_names(new_tokens: int | None, concurrency: int, axes: Mapping[str, float | None]) -> tuple[str, ...]:
    """Axis values that all points of a picture share, as parts of its file name: ("n16", "image_size-224")."""
    values = {"new_tokens": new_tokens, "concurrency": concurrency}
    stated = {name: value for name, value in values.items() if value not in (None, AXES[name].implied)}
    parts = [f"{AXES[name].letter}{value}" for name, value in stated.items()]
    return (*parts, *(f"{name}-{value}" for name, value in sorted(axes.items())))


IN_SUBTITLES = (LOOP, "lengths_in", "lengths_out")
"""Settings that the subtitles of loads state: of lengths, fixed ones."""


def provenance(drawn: Sequence[Row]) -> str:
    """One line about the source of the data: weights, common settings, launches or the format of imports, dates."""
    weights = " and ".join(sorted({row["weights"] for row in drawn} - {"given"}))  # those of the server or caller
    formats = sorted({row["origin_format"] for row in drawn if row.get("origin_format")})
    own = [row for row in drawn if not row.get("origin_format")]
    each = f"imported from {' and '.join(formats)}" if formats else ""
    if own:  # a load test has no launches of its own
        launches = sorted({int(row["launches"]) for row in own})
        count = str(launches[0]) if len(launches) == 1 else f"{launches[0]} to {launches[-1]}"
        is_load = all(LOOP in settings_of(row) for row in own)
        what = f"repetition{'' if launches == [1] else 's'} per level" if is_load else "launch{} per point"
        each = SEPARATOR.join(filter(None, (f"{count} {what.format('' if launches == [1] else 'es')}", each)))
    modes = {settings(row["runtime_mode"]): row["runtime_mode"] for row in drawn}
    own_settings = settings_of(drawn[0])
    said = [name for name in IN_SUBTITLES if name == LOOP or str(own_settings.get(name)).isdigit()]
    mode = shown_settings(next(iter(modes.values())), said) if len(modes) == 1 else ""
    days: dict[str, list[str]] = {"measured": [], "file of": []}  # of an undated file: the day of its last change
    for row in drawn:
        one = row["started_at"]
        days["file of" if "undated" in (row.get("doubts") or ()) else "measured"].append(
            one.date().isoformat() if isinstance(one, datetime) else one[:10]
        )
    when = ", ".join(
        f"{what} {min(of)}" + (f" to {max(of)}" if min(of) != max(of) else "") for what, of in days.items() if of
    )
    return SEPARATOR.join(part for part in (weights and f"{weights} weights", mode, each, when) if part)


def interval(drawn: Sequence[Row], what: str = "Band or whisker", of: str = "") -> str:
    """What the intervals mean, or that there are none. `of` is a ratio that they are of ("the speedup of ")."""
    with_interval = [row for row in drawn if row["low"] is not None]
    if drawn and not with_interval and all(row.get("origin_format") for row in drawn):
        return "No intervals are drawn for imported results."
    least = MIN_LAUNCHES_FOR_BETWEEN
    has_few = all(row["launches"] < least for row in drawn if row["low"] is None)
    if not with_interval:
        return f"No intervals: they need at least {least} launches per point." if has_few else "No intervals are known."
    why = f"points with fewer than {least} launches have none" if has_few else "some points have none"
    some = "" if len(with_interval) == len(drawn) else f"; {why}"
    return f"{what}: 95 % interval of {of}{COVERS['between']}{some}."


def readings(drawn: Sequence[Row], own: str) -> str:
    """How readings without an interval were taken: `own`, unless all are imported."""
    return "Readings as the files state them; no interval." if all(row.get("origin_format") for row in drawn) else own


def doubts(drawn: Sequence[Row], marks: tuple[str, str] | None = ("Hollow", "Crossed")) -> str | None:
    """How many drawn points are doubtful or invalid, with the two most common doubts above severity info, of invalid
    ones those that make them so; None if there are none. An import's own kinds, of unknown severity, are reasons only
    of a row without another. `marks` is None where the name of a point says it."""
    parts: list[str] = []
    for mark, state in zip(marks or ("", ""), ("doubtful", "invalid"), strict=True):
        rows = [row for row in drawn if trust(row) == state]
        if not rows:
            continue
        kinds: list[str] = []
        for row in rows:
            severities = {kind: KINDS[kind].severity for kind in row["doubts"] if kind in KINDS}
            known = [kind for kind, severity in severities.items() if severity != "info"]
            decisive = [kind for kind, severity in severities.items() if severity == state]
            kinds += decisive or known or [kind for kind in row["doubts"] if kind not in KINDS]
        common = [kind for kind, _ in sorted(Counter(kinds).items(), key=lambda item: (-item[1], item[0]))[:2]]
        meanings = [KINDS[kind].meaning if kind in KINDS else kind.replace("_", " ") for kind in common]
        why = f" ({'; '.join(meanings)})" if meanings else ""
        of_points = f"{len(rows)} of {counted(len(drawn), 'point')} {'is' if len(rows) == 1 else 'are'}"
        if len(drawn) == 1:
            of_points = "the point is" if mark else "The point is"
        named = f"{mark.lower() if parts else mark}: " if mark else ""
        parts.append(f"{named}{of_points} {state}{why}")
    if older := not_newest(drawn):
        parts.append(older)
    return "; ".join(parts) + "." if parts else None


def not_newest(drawn: Sequence[Row]) -> str | None:
    """How many points are of an older result since the newest is not valid (`rows.with_newer`), without a full stop;
    None if there are none."""
    older = [row["newer"] for row in drawn if row.get("newer")]
    if not older:
        return None
    shown = f"{len(older)} of {counted(len(drawn), 'point')} {'is' if len(older) == 1 else 'are'}"
    more = f", and {len(older) - 1} more" if len(older) > 1 else ""
    return f"{shown} not of the newest result: {older[0]}{more}; the newest valid one is shown"


METRIC_ENDS = re.compile("(_(samples|tokens)_per_sec|_ms|_mb|_s)$")


def metric_name(metric: Metric) -> str:
    """A metric in words, without its unit: "Latency per call", "Throughput"."""
    words = metric.title.partition(" (")[0].removesuffix(", median")
    words = words or METRIC_ENDS.sub("", metric.column).replace("_", " ")
    return f"{words[0].upper()}{words[1:]}"


def value_title(column: str) -> str:
    """Axis title of a column."""
    return metric_title(JUDGED[column] if column in JUDGED else METRICS[column])


def metric_title(metric: Metric, separator: str = "\n") -> str:
    """Axis title of a metric: its name, unit and better direction."""
    title = metric.title or metric_name(metric) + (f" ({metric.unit})" if metric.unit else "")
    return f"{title}{separator}{metric.better} is better" if metric.better else title


def missing_points(
    rows: Sequence[Row], drawn: Sequence[Row], named: Callable[[Row], str] = point, otherwise: str = NO_VALUE
) -> str | None:
    """How many points are not drawn, which ones (named by `named`), and why; None if all are drawn.

    `otherwise` is the reason for measured points that are not invalid.
    """
    shown = {id(row) for row in drawn}
    missing = [row for row in rows if id(row) not in shown]
    if not missing:
        return None
    every = list(dict.fromkeys(map(named, missing)))
    names = "; ".join(every[:3]) + (" and others" if len(every) > 3 else "")
    error = _first_error(missing)
    of_points = counted(len(rows), "point")
    found = f"Not drawn, of {of_points}: {counts(_state(row, otherwise) for row in missing)} ({names})"
    return f"{found}: {error.rstrip('.!?')}." if error else f"{found}."


def accountable(rows: Sequence[Row], drawn: Sequence[Row], *left_out: str | None) -> list[Row]:
    """The rows for `missing_points`: if a note states what was left out, only failures count as missing."""
    shown = set(map(id, drawn))
    return [row for row in rows if not any(left_out) or id(row) in shown or not is_ok(row)]


def nothing_to_draw(rows: Sequence[Row]) -> str:
    """Why there is no picture of the rows."""
    error = _first_error(rows)
    why = f"; first error: {error}" if error else ""
    return f"nothing to draw, of {counted(len(rows), 'point')}: {counts(_state(row, NO_VALUE) for row in rows)}{why}"


def caption(
    rows: Sequence[Row],
    drawn: Sequence[Row],
    *reading: str | None,
    lacking: Sequence[str | None] = (),
    named: Callable[[Row], str] = point,
    otherwise: str = NO_VALUE,
) -> tuple[str, ...]:
    """The caption of a chart: how to read it, then what is left out, doubtful or missing."""
    return sentences(reading, (*lacking, doubts(drawn), missing_points(rows, drawn, named, otherwise)))


def left_out(count: int, of: int, things: str, which: str = "") -> str | None:
    """A note that some things are not drawn: the slowest or the like, else some that are evenly spread; None if all
    are."""
    if not count:
        return None
    found = f"{count} of {of} {things}, evenly spread"
    if which:
        found = f"the {which if count == 1 else f'{count} {which}'} of {of} {things}"
    return f"Left out: {found}; narrow the selection to see {'it' if count == 1 else 'them'}."


def sentences(*parts: Iterable[str | None]) -> tuple[str, ...]:
    """One sentence for each part that has text; its clauses are joined by semicolons."""
    found = []
    for clauses in ([text for text in part if text] for part in parts):
        if clauses:
            first, *others = [*(text.removesuffix(".") for text in clauses[:-1]), clauses[-1]]
            found.append("; ".join([first, *(text[0].lower() + text[1:] for text in others)]))
    return tuple(found)


def size(parameter_count: int) -> str:
    """A parameter count: "60.5 M", "109 M", "1.3 B"."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if parameter_count >= unit:
            return f"{number(float(f'{parameter_count / unit:.3g}'))} {name}"
    return str(parameter_count)


def unbroken(text: str) -> str:
    """The text with no-break spaces except after commas and colons, where lines may break."""
    return re.sub("(?<![,:]) ", "\N{NO-BREAK SPACE}", text)


def shortened(text: str) -> str:
    """The first line of a text, cut off if it is long."""
    return cut_off(" ".join(text.strip().split("\n", 1)[0].split()), LONGEST_TEXT)


def _state(row: Row, otherwise: str) -> str:
    """Why a point is not drawn, in one or two words."""
    if not is_ok(row):
        return str(row["status"]).replace("_", " ")
    return "invalid" if row["validity"] == "invalid" else otherwise


def _first_error(rows: Sequence[Row]) -> str | None:
    return next((shortened(str(row["error"])) for row in rows if row["error"]), None)


def counts(things: Iterable[str]) -> str:
    """Counts of each thing, the most first: "3 ok, 1 timed out"."""
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in Counter(things).most_common())
