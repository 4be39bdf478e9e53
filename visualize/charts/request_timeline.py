"""Requests of one load level over time: intended start, sending, first token and end of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.lines import doubtful_entries
from visualize.drawing.loads import (
    LEVELS,
    REQUEST_PARTS,
    TIMES,
    Request,
    by_kind,
    in_flight,
    level_words,
    part_of,
    request_words,
    requests_of,
)
from visualize.drawing.rows import (
    CELL_COLUMNS,
    CELL_DETAIL_COLUMNS,
    ChartPlugin,
    Drawing,
    Row,
    details,
    grouped,
)
from visualize.drawing.style import colour, look, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = f"""
SELECT {{facts}}, {LEVELS}, requests.*
FROM {{tables}}
JOIN (
    SELECT result_id AS load_id, launch, {TIMES}
    FROM requests WHERE phase = 'measure' GROUP BY result_id, launch
) requests ON requests.load_id = r.result_id
WHERE r.result_id IN {{latest}} AND {{selected}}
ORDER BY {{order}}, requests.launch
"""  # noqa: S608 - names of this module
MOST_BARS = 300
"""Maximum requests with a bar; with more, bars would be thinner than a pixel."""
WIDTH_IN, BARS_IN, FLIGHT_IN = 7.6, 3.4, 1.3


class RequestTimeline(ChartPlugin):
    name = "request_timeline"
    title = "Requests over time"
    needs = "a load test with stored requests"
    sql = SQL
    by_default = False
    loads = "only"

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing]:
        for key, members in by_kind(rows):
            for _, launches in grouped(members, (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS, "result_id")):
                yield _drawing({**launches[0], **key}, launches)


def _drawing(key: Row, launches: Sequence[Row]) -> Drawing:
    from matplotlib.ticker import MaxNLocator

    requests = requests_of(launches[0])
    shown = requests[:MOST_BARS]
    with theme():
        figure, (bars, flight) = new_figure(
            WIDTH_IN, BARS_IN + FLIGHT_IN, 2, sharey=False, height_ratios=(BARS_IN, FLIGHT_IN)
        )
        _draw_requests(bars, shown)
        flight.step(
            *zip(*(in_flight(requests) or [(0.0, 0)]), strict=True), where="post", color=look().ink, linewidth=1,
            label="_in flight",
        )  # fmt: skip
        flight.set(xlabel="Time since the first intended start (s)", ylabel="Requests\nin flight")
        flight.set_ylim(bottom=0)
        flight.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
        last = max((one.end or one.sent or one.intended) for one in shown)
        bars.set_xlim(0, last * 1.02 or 1)
        finish(figure, _figure_text(key, launches, requests, shown))
    return Drawing(
        figure=figure,
        name_parts=(*(str(key[column]) for column in CELL_COLUMNS), level_words(key)),
        details=details(key, CELL_DETAIL_COLUMNS),
    )


def _draw_requests(axes: Axes, shown: Sequence[Request]) -> None:
    """One bar in three parts per request, the first at the top; a cross marks a failure."""
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import MaxNLocator

    width = max(0.6, min(4.0, 200 / len(shown)))
    for part, name in enumerate(REQUEST_PARTS):
        segments = [
            ((start, y), (end, y)) for y, one in enumerate(shown) for start, end in [part_of(one, part)] if end > start
        ]
        axes.add_collection(LineCollection(segments, colors=_colours()[part], linewidths=width, label=f"_{name}"))
    failed = [(one.end if one.end is not None else one.intended, y) for y, one in enumerate(shown) if one.error]
    times, places = [time for time, _ in failed], [y for _, y in failed]
    axes.scatter(times, places, marker="x", s=22, color=look().ink, linewidth=1.2, zorder=5, label="_failed")
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("Request, by\nintended start")
    axes.grid(axis="y", visible=False)


def _colours() -> tuple[str, str, str]:
    return look().grey, colour(4), colour(0)


def _figure_text(
    key: Row, launches: Sequence[Row], requests: Sequence[Request], shown: Sequence[Request]
) -> FigureText:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    failed = [one for one in requests if one.error]
    kinds = ", ".join(sorted({str(one.error) for one in failed})[:3])
    entries: list[Any] = [Patch(color=own, label=name) for own, name in zip(_colours(), REQUEST_PARTS, strict=True)]
    if any(one.error for one in shown):
        entries.append(Line2D([], [], color=look().ink, marker="x", linestyle="none", label="failed"))
    lacking = (
        words.doubts(launches[:1]),
        f"{len(failed)} of {len(requests)} requests failed ({kinds})." if failed else None,
        f"Left out: {len(requests) - len(shown)} of {len(requests)} requests, after the first {len(shown)}."
        if len(shown) < len(requests)
        else None,
        f"Shown: the first of {len(launches)} repetitions." if len(launches) > 1 else None,
    )
    return FigureText(
        title=f"{RequestTimeline.title}: {key['model_id']} at {level_words(key)}",
        subtitle=words.SEPARATOR.join(part for part in (words.cell(key), *request_words(key)) if part),
        source=words.provenance(launches[:1]),
        notes=words.sentences(["Each line is a request from its intended start to its end."], lacking),
        legend=(*entries, *doubtful_entries(launches[:1])),
    )


PLUGIN = RequestTimeline()
