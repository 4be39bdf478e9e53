"""Inter-token latency and arrival time of each token of a generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.lines import MOST_LINES, doubtful_entries, draw_trusted, legend_entry
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    details,
    grouped,
)
from visualize.drawing.style import BAND_ALPHA, colour, line_style, theme

SQL = """
SELECT {facts}, raw.launch, raw.metric, raw.samples
FROM {tables}
JOIN raw_benchmark_data raw ON raw.result_id = r.result_id
WHERE r.result_id IN {latest} AND raw.phase = 'measure'
    AND raw.metric IN ('time_to_first_token', 'inter_token_latency') AND r.new_tokens > 1 AND {selected}
ORDER BY {order}, raw.launch, raw.metric
"""

WIDTH_IN, HEIGHT_IN = 9.0, 3.4
MOST_MARKS = 64
"""Maximum tokens drawn with marks."""
NOTE = "Medians over all calls of all launches; bands cover the middle 80 % of calls."


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Token times of one result in ms, from the second token on."""

    positions: tuple[int, ...]
    """From 2."""
    gaps: tuple[float, ...]
    """Median time since the previous token, by position."""
    low: tuple[float, ...]
    """10th percentile of that time."""
    high: tuple[float, ...]
    """90th percentile of that time."""
    first: float | None
    """Median time to the first token."""

    @property
    def arrivals(self) -> list[tuple[int, float]]:
        """(position, ms since the start of the call) from the first token on; empty if its time is unknown."""
        if self.first is None:
            return []
        return list(zip((1, *self.positions), accumulate((self.first, *self.gaps)), strict=True))


class TokensOverTime(ChartPlugin):
    name = "tokens_over_time"
    title = "Tokens over time"
    needs = "raw samples of a model that generates two or more tokens"
    sql = SQL
    by_default = False

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS, "new_tokens")):
            results = [samples for _, samples in grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))]
            series = [(samples[0], times) for samples in results if (times := generation(samples)) is not None]
            if series:
                yield _drawing(key, series)
            else:
                what = f"{self.title}: {key['model_id']} on {words.cell(key)}"
                yield NotDrawn(what=what, why="no raw samples of individual tokens")


def generation(rows: Sequence[Row]) -> Generation | None:
    """Token times of a result from the samples of its launches; None if no launch has whole calls."""
    each = rows[0]["new_tokens"] - 1
    samples = [list(row["samples"]) for row in rows if row["metric"] == "inter_token_latency"]
    calls = [
        launch[at : at + each] for launch in samples if len(launch) % each == 0 for at in range(0, len(launch), each)
    ]
    if not calls:
        return None
    by_position = [sorted(gaps) for gaps in zip(*calls, strict=True)]
    firsts = [value for row in rows if row["metric"] == "time_to_first_token" for value in row["samples"]]
    last = len(calls) - 1
    return Generation(
        positions=tuple(range(2, each + 2)),
        gaps=tuple(map(median, by_position)),
        low=tuple(gaps[round(0.1 * last)] for gaps in by_position),
        high=tuple(gaps[round(0.9 * last)] for gaps in by_position),
        first=median(firsts) if firsts else None,
    )


def _drawing(key: Row, series: Sequence[tuple[Row, Generation]]) -> Drawing:
    shown = series[:MOST_LINES]
    labels = [words.point({**row, "new_tokens": None}) for row, _ in shown]
    with theme():
        figure, (gaps, arrivals) = new_figure(WIDTH_IN, HEIGHT_IN, 1, 2, sharey=False)
        for style, (label, (row, times)) in enumerate(zip(labels, shown, strict=True)):
            own, dashes = colour(style), line_style(style)
            band = gaps.fill_between(times.positions, times.low, times.high, color=own, alpha=BAND_ALPHA, linewidth=0)
            band.set_label(f"_band {label}")
            for axes, points in (
                (gaps, list(zip(times.positions, times.gaps, strict=True))),
                (arrivals, times.arrivals),
            ):
                axes.plot(*zip(*points, strict=True), color=own, linestyle=dashes, label=f"_line {label}")
                if len(points) <= MOST_MARKS:
                    draw_trusted(axes, [(x, y, row) for x, y in points], own, style, label, size=4)
        gaps.set_ylim(0, max(max(times.high) for _, times in shown) * 1.1)
        arrivals.set_ylim(bottom=0)
        gaps.set(xlabel="Token", ylabel="Inter-token latency (ms)\nlower is better")
        arrivals.set(xlabel="Token", ylabel="Time since the start of the call (ms)\nlower is better")
        rows = [row for row, _ in shown]
        entries = [
            legend_entry(label, colour(style), style, linestyle=line_style(style)) for style, label in enumerate(labels)
        ]
        rest = len(series) - len(shown)
        lacking = (
            words.doubts(rows),
            f"Left out: {rest} of {len(series)} points; narrow the selection to see them, e.g. batch=8."
            if rest
            else None,
        )
        finish(
            figure,
            FigureText(
                title=f"{TokensOverTime.title}: {key['model_id']}",
                subtitle=words.SEPARATOR.join((words.cell(key), str(key["task"]), f"{key['new_tokens']} new tokens")),
                source=words.provenance(rows),
                notes=words.sentences([NOTE], lacking),
                legend=(*entries, *doubtful_entries(rows)),
            ),
        )
    return Drawing(
        figure=figure,
        name_parts=(*(str(key[column]) for column in CELL_COLUMNS), f"n{key['new_tokens']}"),
        details=details(key, CELL_DETAIL_COLUMNS),
    )


PLUGIN = TokensOverTime()
