"""Configurations compared: what tells them apart, their speedups, and a row of marks for each.

A configuration is how one model was run: device, runtime, precision, settings, threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from visualize.drawing import words
from visualize.drawing.layout import wrap
from visualize.drawing.lines import Line, configuration_lines, draw_trusted
from visualize.drawing.rows import (
    SETUP_COLUMNS,
    Row,
    ahead,
    details,
    distinct_names,
    grouped,
    measured_apart,
    trust,
)
from visualize.drawing.style import SMALL_SIZE, TEXT_SIZE, look, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
"""Configurations in a picture with a row for each; the fastest of each device are kept."""
ROW_IN, LINE_IN, LABEL_IN = 0.3, 0.15, 2.7
"""Height of a row and of each further line of its name, and the longest width of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as fast one result is as another, with its 95 % interval where both have one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)


def speedup(baseline: Row, row: Row) -> Ratio:
    """How many times as fast `row` is as `baseline`, from their latencies `value`, `low`, `high`.

    The interval of a ratio of medians: on a log scale, the square root of the sum of the squares of the half-widths
    that point the same way (Zou and Donner 2008, "MOVER"), as in the view runtime_comparison.
    """
    value = baseline["value"] / row["value"]
    ends = [baseline["low"], baseline["high"], row["low"], row["high"]]
    if row is baseline or not all(ends):
        return Ratio(value=value)
    base_down, base_up = math.log(baseline["value"] / ends[0]), math.log(ends[1] / baseline["value"])
    own_down, own_up = math.log(row["value"] / ends[2]), math.log(ends[3] / row["value"])
    low = value * math.exp(-math.hypot(base_down, own_up))
    return Ratio(value=value, low=low, high=value * math.exp(math.hypot(base_up, own_down)))


APART = (
    "Different commands measured them, and the intervals do not cover how a machine changes in between: a small "
    "difference means nothing."
)
LEAST_ROUND = 1.1
"""A ratio below it keeps more digits, so that it does not read "1"."""


MOST_REACH = 2.0
CUT = "Intervals beyond the edge are cut."


def reach(values: Sequence[float], ends: Sequence[float | None]) -> float:
    """How far an axis goes: to the largest value, and to the ends of intervals up to twice as far. Of noisy results
    they may be a thousand times as far away, and the values would be one point."""
    largest = max(values)
    return max(largest, min(max((end for end in ends if end is not None), default=largest), MOST_REACH * largest))


def cut_note(ends: Sequence[float | None], edge: float) -> str | None:
    """The sentence about intervals that are cut at the edge; None without any."""
    return CUT if any(end is not None and end > edge for end in ends) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a title may say about a result and a baseline."""

    text: str
    note: str | None = None
    """What the caption has to add."""


def finding(
    best: tuple[str, Row], baseline: tuple[str, Row], rivals: Sequence[Row], verb: str = "is"
) -> Finding | None:
    """How many times as fast one result is as another, both with their names, if intervals and doubts of all `rivals`,
    which they are among, support that one of both is the fastest. Where different commands measured the rivals, no more
    than the readings is stated. None where the intervals overlap, or a result of the title is in doubt.
    """
    (name, row), (other, base) = best, baseline
    ratio = speedup(base, row)
    leader = ahead(rivals, "lower")
    if not (leader is row or leader is base) or not ratio.is_clear or trust(row) != "valid" or trust(base) != "valid":
        return None
    if measured_apart(rivals):
        return Finding(text=f"{name} took {number(row['value'])} ms, {other} {number(base['value'])} ms", note=APART)
    times = f"{ratio.value:.2g}" if abs(math.log(ratio.value)) > math.log(LEAST_ROUND) else f"{ratio.value:.4g}"
    return Finding(text=f"{name} {verb} {times} times as fast as {other}")


def configurations(rows: Sequence[Row]) -> list[Line]:
    """A line per configuration, with a name that no other one has and the colour of its device."""
    groups = grouped(rows, CONFIGURATION)
    facts = [details(key, SETUP_COLUMNS) for key, _ in groups]
    return configuration_lines(distinct_names([words.cell(key) for key, _ in groups], facts, words.SEPARATOR), groups)


MOST_COLOURS = 12
"""Configurations in a picture that tells them apart by colours and marks."""


def fastest(lines: Sequence[Line], most: int = MOST_ROWS, keep: Sequence[Row] = ()) -> tuple[list[Line], str | None]:
    """The lines by their least sound `value`, and a note about those left out: of more than `most` the fastest of each
    device stay, then the second fastest of each, and so on. Lines with one of the rows in `keep` come first."""
    kept = {id(row) for row in keep}
    by_speed = sorted(lines, key=_least)
    if len(lines) <= most and not kept:
        return by_speed, None
    places = [line.place for line in by_speed]
    order = sorted(
        range(len(by_speed)),
        key=lambda at: (not any(id(row) in kept for row in by_speed[at].rows), places[:at].count(places[at]), at),
    )
    if len(lines) <= most:
        return [by_speed[at] for at in order], None
    rest = f"the {len(lines) - most} slowest of {len(lines)} configurations"
    if len(set(places)) > 1:
        rest = f"{len(lines) - most} of {len(lines)} configurations, the fastest of each device come first"
    left_out = f"Left out: {rest}; narrow the selection to see them."
    return _numbered([by_speed[at] for at in sorted(order[:most])]), left_out


def _numbered(lines: Sequence[Line]) -> list[Line]:
    """The lines with marks, dashes and, on a single device, colours that differ among these."""
    places = [line.place for line in lines]
    several = len(set(places)) > 1
    return [
        replace(line, style=style, place=line.place if several else None, dashes=places[:style].count(places[style]))
        for style, line in enumerate(lines)
    ]


def _least(line: Line) -> tuple[bool, float]:
    sound = [row["value"] for row in line.rows if trust(row) != "invalid"]
    return (not sound or line.is_simulated, min(sound or [row["value"] for row in line.rows]))


def rows_height_in(lines: Sequence[Line]) -> float:
    """Height of the rows' panel; every row is as high as the longest name needs."""
    further = max(row_name(line).count("\n") for line in lines)
    return (ROW_IN + LINE_IN * further) * len(lines) + ROW_IN


def row_name(line: Line) -> str:
    """The name of a line, wrapped for the left of a panel."""
    return wrap(line.label, TEXT_SIZE, LABEL_IN)


def draw_rows(
    axes: Axes, lines: Sequence[Line], at: Sequence[Row], ratio_of: Callable[[Row], Ratio], remark: Callable[[Row], str]
) -> None:
    """A row per line, fastest on top: the mark of its result among `at`, its interval as a whisker, and a remark."""
    there = {id(row) for row in at}
    for place, line in enumerate(lines):
        found = [row for row in line.rows if id(row) in there]
        if not found:
            axes.annotate("not measured", (0, place), xycoords=axes.get_yaxis_transform(), xytext=(4, 0),
                          textcoords="offset points", va="center", fontsize=SMALL_SIZE, color=look().grey)  # fmt: skip
        for row in found:
            ratio = ratio_of(row)
            end = ratio.value
            if trust(row) != "invalid" and ratio.low is not None and ratio.high is not None:
                axes.hlines(place, ratio.low, ratio.high, color=line.colour, zorder=2, label=f"_interval {line.label}")
                end = max(end, min(ratio.high, MOST_REACH * end))
            draw_trusted(axes, [(ratio.value, place, row)], line.colour, line.style, line.label)
            axes.annotate(
                remark(row), (end, place), xytext=(8, 0), textcoords="offset points", va="center",
                fontsize=SMALL_SIZE, color=look().ink if trust(row) != "invalid" else look().grey,
                bbox={"facecolor": look().background, "edgecolor": "none", "pad": 0.8}, zorder=3,
            )  # fmt: skip
    axes.set_yticks(range(len(lines)), [row_name(line) for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
