"""Inter-token latency and arrival time of each token of a generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Any

from benchmarking.core.sample_statistics import quantile_of_sorted
from visualize.drawing import words
from visualize.drawing.batch_charts import MOST_LINES
from visualize.drawing.figure import Figure, Mark, NotDrawn, Panel
from visualize.drawing.marks import Series, figure, legend, not_drawn
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Row,
    grouped,
    trust,
)
from visualize.drawing.scales import value_axis

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
    columns = "raw.launch, raw.metric, raw.samples"
    joins = "JOIN raw_benchmark_data raw ON raw.result_id = r.result_id"
    condition = """raw.phase = 'measure' AND raw.metric IN ('time_to_first_token', 'inter_token_latency')
        AND r.new_tokens > 1"""
    then_by = "raw.launch, raw.metric"
    by_default = False

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        for key, members in grouped(rows, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS, "new_tokens")):
            results = [samples for _, samples in grouped(members, ("batch_size", *POINT_COLUMNS, "result_id"))]
            found = [(samples[0], times) for samples in results if (times := generation(samples)) is not None]
            if found:
                yield self._figure(key, found)
            else:
                yield not_drawn(self, key, "no raw samples of individual tokens", of_cell=True)

    def _figure(self, key: Row, found: Sequence[tuple[Row, Generation]]) -> Figure:
        shown = found[:MOST_LINES]
        series, gaps, arrivals = [], [], []
        for style, (row, times) in enumerate(shown):
            one = Series(label=words.point({**row, "new_tokens": None}), rows=(row,), style=style)
            series.append(one)
            state = trust(row)
            look: dict[str, Any] = {"size": 4.0, "shape": style if len(times.positions) <= MOST_MARKS else None}
            each = zip(times.positions, times.gaps, times.low, times.high, strict=True)
            gaps.append(one.line([Mark(x=x, y=y, low=low, high=high, state=state) for x, y, low, high in each], **look))
            arrivals.append(one.line([Mark(x=x, y=y, state=state) for x, y in times.arrivals], **look))
        x = value_axis("Token", [float(key["new_tokens"])], may_be_log=False)
        parts = [("Inter-token latency (ms)", [value for _, times in shown for value in times.high], gaps)]
        until = [at for _, times in shown for _, at in times.arrivals]
        parts += [("Time since the start of the call (ms)", until, arrivals)] if until else []
        panels = [
            Panel(
                x=x, y=value_axis(f"{title}\nlower is better", values, may_be_log=False), elements=tuple(lines),
                height_in=HEIGHT_IN,
            )
            for title, values, lines in parts
        ]  # fmt: skip
        rows = [row for row, _ in shown]
        left_out = words.left_out(len(found) - len(shown), len(found), "points", "largest")
        return figure(
            self, key, rows, panels, of_cell=True, place=[f"{key['new_tokens']} new tokens"], columns=len(panels),
            notes=words.sentences([NOTE], (words.doubts(rows), left_out)), width_in=WIDTH_IN,
            legend=legend(series, rows), names=[f"n{key['new_tokens']}"],
        )  # fmt: skip


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
    return Generation(
        positions=tuple(range(2, each + 2)),
        gaps=tuple(map(median, by_position)),
        low=tuple(quantile_of_sorted(gaps, 0.1) for gaps in by_position),
        high=tuple(quantile_of_sorted(gaps, 0.9) for gaps in by_position),
        first=median(firsts) if firsts else None,
    )


PLUGIN = TokensOverTime()
