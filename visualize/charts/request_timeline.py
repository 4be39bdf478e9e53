"""Requests of one load level over time: intended start, sending, first token and end of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from visualize.drawing import words
from visualize.drawing.figure import Block, Colour, Entry, Figure, Line, Mark, Panel
from visualize.drawing.loads import (
    LEVELS,
    REQUEST_PARTS,
    TIMES,
    by_kind,
    in_flight,
    level_words,
    part_of,
    request_words,
    requests_of,
)
from visualize.drawing.marks import figure, states_legend
from visualize.drawing.rows import CELL_COLUMNS, CELL_DETAIL_COLUMNS, ChartPlugin, Row, grouped
from visualize.drawing.scales import count_axis, number, value_axis

MOST_BARS = 300
"""Maximum requests with a bar; with more, bars would be thinner than a pixel."""
COLOURS: tuple[Colour, ...] = ("grey", 4, 0)
WIDTH_IN, BARS_IN, FLIGHT_IN = 7.6, 3.4, 1.3


class RequestTimeline(ChartPlugin):
    name = "request_timeline"
    title = "Requests over time"
    needs = "a load test with stored requests"
    columns = f"{LEVELS}, requests.*"
    joins = f"""JOIN (
        SELECT result_id AS load_id, launch, {TIMES}, count(*) AS count_all, count(error) AS count_failed,
            list_sort(list_distinct(list(error)))[:3] AS errors
        FROM requests WHERE phase = 'measure' GROUP BY result_id, launch
    ) requests ON requests.load_id = r.result_id"""  # noqa: S608 - names of columns only
    then_by = "requests.launch"
    by_default = False
    loads = "only"

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure]:
        for key, members in by_kind(rows):
            for _, launches in grouped(members, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS, "result_id")):
                yield self._figure({**launches[0], **key}, launches)

    def _figure(self, key: Row, launches: Sequence[Row]) -> Figure:
        requests = requests_of(launches[0])
        shown = list(enumerate(requests[:MOST_BARS], start=1))
        total, failed = launches[0]["count_all"], launches[0]["count_failed"]
        kinds = ", ".join(map(str, launches[0]["errors"] or ()))
        last = max((one.end or one.sent or one.intended) for _, one in shown)
        if len(requests) < total:  # later requests were not read and may be in flight
            last = min(last, requests[-1].intended)
        x = value_axis("Time since the first intended start (s)", [last], room=1.02, may_be_log=False)
        # One bar in three parts per request, the first at the top; a cross marks a failure.
        blocks = [
            Block(
                left=start, right=end, bottom=place - 0.4, top=place + 0.4, role=part, fill=COLOURS[at],
                words=f"request {place}: {part}, {number(end - start)} s",
            )
            for place, one in shown
            for at, part in enumerate(REQUEST_PARTS)
            for start, end in [part_of(one, at)]
            if end > start
        ]  # fmt: skip
        crosses = tuple(
            Mark(x=one.intended if one.end is None else one.end, y=place, state="invalid", words=str(one.error))
            for place, one in shown
            if one.error
        )
        lost = Line(label="failed", role="failed", marks=crosses, colour="ink", shape=0, dashes=None, size=3.5)
        first = count_axis("Request, by\nintended start", len(shown), from_top=True)
        bars = Panel(x=x, y=first, elements=(*blocks, *((lost,) if crosses else ())), height_in=BARS_IN)
        steps = in_flight(requests) or [(0.0, 0)]
        line = Line(
            label="", role="in flight", colour="ink", shape=None, step="after", width=1.0, in_table=False,
            marks=tuple(Mark(x=time, y=count) for time, count in steps if time <= x.high),
        )  # fmt: skip
        y = value_axis("Requests\nin flight", [float(max(count for _, count in steps))], may_be_log=False)
        y = replace(y, ticks=tuple((value, f"{value:,.0f}") for value, _ in y.ticks if value == int(value)))
        entries = [Entry(label=name, colour=own) for own, name in zip(COLOURS, REQUEST_PARTS, strict=True)]
        if crosses:
            entries.append(Entry(label="failed", colour="ink", shape=0, state="invalid"))
        more = total - len(shown)
        lacking = (
            words.doubts(launches[:1]),
            f"{failed} of {total} requests failed ({kinds})." if failed else None,
            f"Left out: {more} of {total} requests, after the first {len(shown)}." if more else None,
            f"Shown: the first of {len(launches)} repetitions." if len(launches) > 1 else None,
        )
        return figure(
            self, key, launches[:1], [bars, Panel(x=x, y=y, elements=(line,), height_in=FLIGHT_IN)], of_cell=True,
            title=f"{self.title}: {key['model_id']} at {level_words(key)}", about=request_words(key),
            notes=words.sentences(["Each line is a request from its intended start to its end."], lacking),
            width_in=WIDTH_IN, legend=(*entries, *states_legend(launches[:1])), names=[level_words(key)],
            columns_of_table=("request", "intended s", "sent s", "first token s", "end s", "error"),
            rows=tuple((place, one.intended, one.sent, one.first, one.end, one.error) for place, one in shown),
        )  # fmt: skip


PLUGIN = RequestTimeline()
