"""Comparison of configurations: the best by the judge of every comparison (`core.verdicts`), their names, speedups and
findings, and charts with one row each.

A configuration is how a model was run: device, runtime, precision, settings, threads. Where launches of one command
ran in turns, by their starts, those with the same number are a round, and the rounds are judged. Other results are
described and never judged here, since no interval of a result covers what the machine did meanwhile; `benchhouse
compare` judges them by the history of their series."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC, METRICS, Direction
from benchmarking.core.sample_statistics import MIN_LAUNCHES_FOR_BETWEEN, between_launches_interval
from benchmarking.core.text import distinct_names
from benchmarking.core.text import number as exact
from benchmarking.core.verdicts import judging
from benchmarking.core.verdicts.judging import Median, Pair, Speedup, judge
from benchmarking.core.verdicts.words import Judgement
from visualize.drawing import words
from visualize.drawing.figure import Colour, Element, Note, Panel, Rule
from visualize.drawing.marks import Series, mark
from visualize.drawing.rows import SETUP_COLUMNS, Row, details, grouped, measured_apart, trust
from visualize.drawing.scales import Axis, number, row_axis

if TYPE_CHECKING:
    from db.warehouse import Warehouse

LAUNCHES = "launch_values"
"""Key of a row: number of a launch -> its median latency in ms, or what else a chart is about."""
STARTS = "launch_starts"
"""Key of a row: number of a launch -> start of its measurement."""
CLOCK_STEP = "clock_step"
"""Key of a row: step of a coarse clock over its calls; 0 without one."""
JUDGED: Mapping[Direction, str] = {"lower": DEFAULT_METRIC, "higher": "throughput_samples_per_sec"}
"""Better direction of the rows' values -> the metric whose words are used."""


def with_launches(warehouse: Warehouse, rows: Sequence[Row], metric: str = DEFAULT_METRIC) -> list[Row]:
    """The rows, each with the metric of its launches, their starts and, where the query has none, their interval, of
    three launches or more and scaled to `value`, which may be in another unit."""
    from db.analysis.compare.stored_results import clock_steps, launch_starts, launch_values

    ids = sorted({row["result_id"] for row in rows})
    found, starts = launch_values(warehouse, ids, METRICS[metric]), launch_starts(warehouse, ids)
    steps = clock_steps(warehouse, ids)
    given: list[Row] = []
    for row in rows:
        launches = found.get(row["result_id"], {})
        own: dict[str, Any] = {**row, LAUNCHES: launches, STARTS: starts.get(row["result_id"], {})}
        own[CLOCK_STEP] = steps.get(row["result_id"], 0.0)
        if "value" in row and "low" not in row:  # others are drawn with an interval of their own
            own |= {"low": None, "high": None}
            values = [value for value in launches.values() if value > 0]
            if row["value"] is not None and len(values) == len(launches) >= MIN_LAUNCHES_FOR_BETWEEN:
                low, high = (row["value"] * end / median(values) for end in between_launches_interval(values))
                own |= {"low": low, "high": high}
        given.append(own)
    return given


def judgements(rival: Row, others: Sequence[Row], better: Direction = "lower") -> tuple[Judgement, ...]:
    """The judgements of a row against each other row, as one comparison; "faster" if the row is faster than that one.
    The launches of the rows are those of a latency, or with "higher" of a throughput."""
    return judged_pairs([(other, rival) for other in others], better)


def judged_pairs(pairs: Sequence[tuple[Row, Row]], better: Direction = "lower") -> tuple[Judgement, ...]:
    """The judgement of each second row against the first, as one comparison. There are no rounds of rows of different
    commands, nor of launches that did not alternate."""
    judged = []
    for pair in pairs:
        if measured_apart(pair):
            judged.append(Pair())
            continue
        sides = [{number: value for number, value in row.get(LAUNCHES, {}).items() if value > 0} for row in pair]
        starts = pair[0].get(STARTS, {}), pair[1].get(STARTS, {})
        of_clocks = pair[0].get(CLOCK_STEP, 0.0), pair[1].get(CLOCK_STEP, 0.0)
        is_simulated = bool(pair[0].get("simulated"))
        judged.append(judging.pair_of_launches((sides[0], sides[1]), starts, of_clocks, is_simulated=is_simulated))
    return judge(judged, METRICS[JUDGED[better]])


def clear_winner(rows: Sequence[Row], better: Direction) -> Row | None:
    """The row that is faster than each other one by the judge, and valid; None without one."""
    if len(rows) < 2:
        return None
    best = (max if better == "higher" else min)(rows, key=lambda row: row["value"])
    if trust(best) != "valid":
        return None
    found = judgements(best, [row for row in rows if row is not best], better)
    return best if all(judgement.verdict == "faster" for judgement in found) else None


CONFIGURATION = (
    "device_name",
    "simulated",
    "device",
    "runtime",
    "precision",
    "runtime_mode",
    "num_threads",
    "cpu_list",
    "hardware_id",
)
MOST_ROWS = 24
"""Maximum configurations of a picture with one row each; the fastest of each device are kept."""
ROW_IN, LABEL_IN = 0.42, 2.9
"""Height of a row, whose label may have two lines, and maximum width of a label."""


def speedup(baseline: Row, row: Row) -> Speedup:
    """The speedup of `row` over `baseline`, from their latencies, by `core.verdicts.judging`: that of the judge for
    results of one command, otherwise the ratio of the medians `value`; 1, without an interval, over itself."""
    (judged,) = judgements(row, [baseline])
    if row is baseline:
        return Speedup(ratio=1.0, judgement=judged)
    medians = [Median(value=one["value"], low=one["low"], high=one["high"]) for one in (baseline, row)]
    found = judging.speedup(judged, *medians)
    assert found is not None  # rows with a value above 0 are drawn
    return found


APART = (
    "Not judged: different commands measured the two sides, and the intervals do not cover changes of the machine in "
    "between."
)
LEAST_ROUND = 1.1
"""Ratios closer to 1 keep more digits, so they do not read "1"."""


MOST_REACH = 2.0
CUT = "Intervals are cut off at the edge."


def reach(values: Sequence[float], ends: Sequence[float | None]) -> float:
    """End of an axis: the largest value, or the largest interval end up to twice that value. Interval ends of noisy
    results can be a thousand times as large, which would squeeze all values together."""
    largest = max(values)
    return max(largest, min(max((end for end in ends if end is not None), default=largest), MOST_REACH * largest))


def cut_note(ends: Sequence[float | None], edge: float) -> str | None:
    """The note about intervals cut off at the edge; None if there are none."""
    return CUT if any(end is not None and end > edge for end in ends) else None


def unsure_baseline(validities: Iterable[str]) -> str | None:
    """The note about a baseline that is not valid; None if all its results are."""
    unsure = {*validities} - {"valid"}
    return f"The baseline itself is {' or '.join(sorted(unsure))}." if unsure else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A title about a result and a baseline."""

    text: str
    note: str | None = None
    """A caveat for the caption."""


def finding(
    best: tuple[str, Row], baseline: tuple[str, Row], rivals: Sequence[Row], verb: str = "is"
) -> Finding | None:
    """The speedup of a named result over a named baseline, as a title.

    None if one of the two is doubtful, or neither is faster than all other `rivals`, which include both. If different
    commands measured the rivals, the title states only the two readings.
    """
    (name, row), (other, base) = best, baseline
    if trust(row) != "valid" or trust(base) != "valid":
        return None
    if measured_apart(rivals):
        leader = min(rivals, key=lambda one: float(one["value"]))
        text = f"{name} took {number(row['value'])} ms, {other} {number(base['value'])} ms"
        return Finding(text=text, note=APART) if leader is row or leader is base else None
    winner = clear_winner(rivals, "lower")
    if winner is not row and winner is not base:
        return None
    ratio = speedup(base, row).ratio
    times = exact(ratio, 2 if abs(math.log(ratio)) > math.log(LEAST_ROUND) else 4)  # "12", "1.9", "1.034"
    return Finding(text=f"{name} {verb} {times} times as fast as {other}")


def configurations(rows: Sequence[Row], axes: Sequence[str] = ()) -> list[Series]:
    """One line per configuration and value of the axes, with a unique name. If there are several real devices, each
    keeps its colour of every chart, and its lines differ in marker and dashes; on a single one, each line has its own
    colour."""
    groups = grouped(rows, (*CONFIGURATION, *axes))
    facts = [(*details(key, SETUP_COLUMNS), *(words.axis(name, key[name]) for name in axes)) for key, _ in groups]
    always = SETUP_COLUMNS.index("hardware_id")  # its id says nothing to a reader where the others tell them apart
    labels = distinct_names([words.cell(key) for key, _ in groups], facts, words.SEPARATOR, always=always)
    places = [members[0]["device_place"] for _, members in groups]
    several = len({place for place, (key, _) in zip(places, groups, strict=True) if not key["simulated"]}) > 1
    return [
        Series(
            label=label, rows=tuple(members), style=style, is_simulated=bool(key["simulated"]),
            place=places[style] if several else None, twin=places[:style].count(places[style]),
        )
        for style, (label, (key, members)) in enumerate(zip(labels, groups, strict=True))
    ]  # fmt: skip


MOST_COLOURS = 12
"""Maximum configurations of a picture that distinguishes them by colour and marker."""


def fastest(
    lines: Sequence[Series], most: int = MOST_ROWS, keep: Sequence[Row] = ()
) -> tuple[list[Series], str | None]:
    """Lines sorted by their lowest `value` that is not invalid, and a note about lines left out.

    Of more than `most` lines, the fastest of each device stay, then the second fastest, and so on. Lines with a row in
    `keep` take precedence.
    """
    kept = {id(row) for row in keep}

    def least(line: Series) -> tuple[bool, float]:
        sound = [row["value"] for row in line.rows if trust(row) != "invalid"]
        return (not sound or line.is_simulated, min(sound or [row["value"] for row in line.rows]))

    by_speed = sorted(lines, key=least)
    if len(lines) <= most and not kept:
        return by_speed, None
    places = [line.place for line in by_speed]
    order = sorted(
        range(len(by_speed)),
        key=lambda at: (not any(id(row) in kept for row in by_speed[at].rows), places[:at].count(places[at]), at),
    )
    if len(lines) <= most:
        return [by_speed[at] for at in order], None
    left_out = words.left_out(len(lines) - most, len(lines), "configurations", "slowest")
    if len(set(places)) > 1:
        rest = f"{len(lines) - most} of {len(lines)} configurations, keeping the fastest of each device"
        left_out = f"Left out: {rest}; narrow the selection to see more."
    kept_lines = [by_speed[at] for at in sorted(order[:most])]
    places = [line.place for line in kept_lines]
    several = len({line.place for line in kept_lines if not line.is_simulated}) > 1
    # Distinct markers, dashes and, on a single device, colours.
    numbered = [
        replace(line, style=style, place=line.place if several else None, twin=places[:style].count(places[style]))
        for style, line in enumerate(kept_lines)
    ]
    return numbered, left_out


def above(high: float | None, end: float) -> float:
    """How far up, in points, a label at `end` is moved to clear a whisker that goes on to `high`."""
    return 7.0 if high is not None and high > end else 0.0


def rows_panel(
    series: Sequence[Series],
    at: Sequence[Row],
    ratio_of: Callable[[Row], Speedup],
    remark: Callable[[Row], str],
    x: Axis,
    title: str = "",
) -> Panel:
    """One row per series, fastest on top: the marker of its result in `at`, its interval as a whisker, and a remark."""
    chosen = {id(row) for row in at}
    elements: list[Element] = [Rule(at=1, along="x", role="baseline")]
    for place, one in enumerate(series):
        drawn = [row for row in one.rows if id(row) in chosen]
        if not drawn:
            elements.append(Note(x=x.low, y=place, text="not measured", dx=4, colour="grey"))
        for row in drawn:
            ratio = ratio_of(row)
            own = mark(row, ratio.ratio, place, low=ratio.low, high=ratio.high)
            elements.append(one.line([own], dashes=None, is_across=True, has_bands=False))
            end = ratio.ratio if ratio.high is None else max(ratio.ratio, min(ratio.high, MOST_REACH * ratio.ratio))
            ink: Colour = "ink" if trust(row) != "invalid" else "grey"
            elements.append(Note(x=end, y=place, text=remark(row), dx=8, dy=above(ratio.high, end), colour=ink))
    y = row_axis([one.label for one in series])
    return Panel(x=x, y=y, elements=tuple(elements), title=title, height_in=rows_height_in(series))


def rows_height_in(series: Sized) -> float:
    """Height of a panel of rows."""
    return ROW_IN * len(series) + 0.8
