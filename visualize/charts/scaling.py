"""How much faster a model becomes with more threads, compared with perfect scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from visualize.drawing import words
from visualize.drawing.configurations import speedup
from visualize.drawing.layout import FigureText, finish, label_ends, new_figure
from visualize.drawing.lines import MOST_LINES, Line, doubtful_entries, draw_lines
from visualize.drawing.rows import (
    MODEL_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    details,
    distinct_names,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.rows import POINT_COLUMNS as FURTHER
from visualize.drawing.style import look, scale_batch_axis, theme

SQL = """
SELECT {facts},
    r.latency_median_ms AS value, r.latency_ci_low_ms AS low, r.latency_ci_high_ms AS high
FROM {tables}
WHERE r.result_id IN {comparable} AND run.num_threads IS NOT NULL AND {selected}
ORDER BY {order}
"""

SUBJECT = ("model_id", *MODEL_COLUMNS, "hardware_id", "device")
"""What a picture has in common."""
LINE = ("runtime", "precision", "runtime_mode", "simulated", "batch_size", *FURTHER)
"""What has a line of its own, over the numbers of threads."""
INTERVAL = "Band or whisker: 95 % confidence interval of the speed-up over launches."
WIDTH_IN, HEIGHT_IN = 6.4, 3.8


class Scaling(ChartPlugin):
    name = "scaling"
    title = "Scaling over threads"
    needs = "a model measured at the same point with two numbers of threads (--num-threads) or more"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, SUBJECT):
            drawn = [row for row in members if is_ok(row) and row["value"]]
            groups = [(own, found) for own, found in grouped(drawn, LINE) if _has_two(found)]
            if groups:
                yield _drawing(key, members, groups)
            else:
                why = "no point has results with two numbers of threads"
                yield NotDrawn(what=f"{self.title}: {key['model_id']} on {words.device(members[0])}", why=why)


def _has_two(found: Sequence[Row]) -> bool:
    return len({row["num_threads"] for row in found if trust(row) != "invalid"}) > 1


def _first(found: Sequence[Row]) -> Row:
    """The sound result with fewest threads, which counts as 1."""
    return min((row for row in found if trust(row) != "invalid"), key=lambda row: int(row["num_threads"]))


def _scaled(found: Sequence[Row]) -> tuple[Row, ...]:
    """The results with their speed-up over the one with fewest threads in the place of their latency."""
    first = _first(found)
    ratios = [(row, speedup(first, row)) for row in found]
    return tuple({**row, "value": ratio.value, "low": ratio.low, "high": ratio.high} for row, ratio in ratios)


def _drawing(key: Row, members: Sequence[Row], groups: Sequence[tuple[Row, list[Row]]]) -> Drawing:
    shown = groups[:MOST_LINES]
    names = [words.SEPARATOR.join((own["runtime"], own["precision"], words.point(own))) for own, _ in shown]
    labels = distinct_names(names, [details(own, ("runtime_mode", "simulated")) for own, _ in shown], ", ")
    lines = [
        Line(label=label, rows=_scaled(found), style=style, is_simulated=bool(own["simulated"]))
        for style, (label, (own, found)) in enumerate(zip(labels, shown, strict=True))
    ]
    drawn = [row for line in lines for row in line.rows]
    threads = sorted({row["num_threads"] for row in drawn})
    with theme():
        figure, (axes,) = new_figure(WIDTH_IN, HEIGHT_IN)
        draw_lines(axes, lines, "num_threads")
        ideal = [size / threads[0] for size in threads]
        axes.plot(threads, ideal, color=look().grey, linestyle="--", linewidth=1, label="_perfect", zorder=1)
        scale_batch_axis(axes, threads)
        axes.set_ylim(0, max(*ideal, *(row["high"] or row["value"] for row in drawn)) * 1.1)
        axes.set(xlabel="Threads", ylabel=f"Times as fast as with {threads[0]}\nhigher is better")
        lasts = [max(line.rows, key=lambda row: int(row["num_threads"])) for line in lines]
        ends = [
            (row["num_threads"], row["value"], line.label, line.colour) for row, line in zip(lasts, lines, strict=True)
        ]
        label_ends(axes, [*ends, (threads[-1], ideal[-1], "perfect scaling", look().grey)])
        finish(figure, _figure_text(key, members, drawn, shown, len(groups)))
    return Drawing(
        figure=figure,
        name_parts=(str(key["model_id"]), str(key["device"])),
        details=details({**members[0], **key}, (*MODEL_COLUMNS, "device_name", "hardware_id")),
    )


def _figure_text(
    key: Row, members: Sequence[Row], drawn: Sequence[Row], shown: Sequence[tuple[Row, list[Row]]], total: int
) -> FigureText:
    left_out = (
        f"Left out: {total - len(shown)} of {total} lines; a selection shows them." if total > len(shown) else None
    )
    alone = "Points with one number of threads are not drawn." if len(drawn) < len(members) else None
    notes = (
        words.provenance(drawn),
        "Speed-up over the fewest threads of the same line.",
        INTERVAL if any(row["low"] for row in drawn) else None,
        words.doubts(drawn),
        left_out,
        alone,
    )
    title = _title(key, shown)
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, Scaling.title, words.device(drawn[0]), str(key["task"])),
        notes=tuple(note for note in notes if note),
        legend=doubtful_entries(drawn),
    )


def _title(key: Row, shown: Sequence[tuple[Row, list[Row]]]) -> str:
    """The finding of the first line, if there is only one and its interval supports it."""
    found = [row for row in shown[0][1] if trust(row) == "valid"]
    if len(shown) == 1 and _has_two(found):
        first, most = _first(found), max(found, key=lambda row: int(row["num_threads"]))
        ratio = speedup(first, most)
        if ratio.is_clear:
            few = f"{first['num_threads']}" + (" thread" if first["num_threads"] == 1 else "")
            return f"{key['model_id']}: {most['num_threads']} threads are {ratio.value:.2g} times as fast as {few}"
    return f"{Scaling.title}: {key['model_id']}"


PLUGIN = Scaling()
