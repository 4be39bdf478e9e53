"""Latency and throughput against offered load, with latency limits and the knee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure
from visualize.drawing.lines import Line, doubtful_entries, draw_trusted, legend_entry
from visualize.drawing.loads import (
    LEVEL_TITLES,
    LEVELS,
    by_kind,
    level,
    level_lines,
    level_words,
    limits_ms,
    ordered,
    request_words,
)
from visualize.drawing.rows import MODEL_COLUMNS, ChartPlugin, Drawing, NotDrawn, Row, details, is_ok, trust
from visualize.drawing.style import SMALL_SIZE, look, number, scale_batch_axis, scale_value_axis, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = f"""
SELECT {{facts}}, {LEVELS}, r.latency_median_ms AS value,
    r.time_to_first_token_ms AS ttft, r.time_to_first_token_p99_ms AS ttft_p99,
    r.time_per_output_token_ms AS tpot, r.time_per_output_token_p99_ms AS tpot_p99,
    r.latency_median_ms AS latency, r.latency_p99_ms AS latency_p99,
    r.throughput_samples_per_sec AS throughput, r.other_metrics['goodput_requests_per_sec'] AS goodput
FROM {{tables}}
WHERE r.result_id IN {{latest}} AND {{selected}}
ORDER BY {{order}}
"""  # noqa: S608 - a constant of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel: one column as a solid line, another as a dotted line."""

    title: str
    better: str
    main: str
    thin: str
    limit: str | None = None
    """Name of the latency limit drawn in the panel."""


TIMES = (
    Panel(title="Time to first\ntoken (ms)", better="lower", main="ttft", thin="ttft_p99", limit="ttft"),
    Panel(title="Time per output\ntoken (ms)", better="lower", main="tpot", thin="tpot_p99", limit="tpot"),
    Panel(title="Latency of\na request (ms)", better="lower", main="latency", thin="latency_p99", limit="e2e"),
)
RATES = Panel(title="Requests\nper second", better="higher", main="throughput", thin="goodput")
MOST_TIMES = 2
NEAR = 0.9
"""Goodput from this share of throughput on is not labelled: both lines coincide."""
WIDTH_IN, PANEL_IN = 7.2, 1.9
MOST_DOTTED = 4
"""Maximum servers with 99th percentiles, goodput and knees; with more, the picture would be cluttered."""
SOLID, TAILS = "Solid: median times, and successful requests per second", "99th percentiles"
GOODPUT = "goodput (requests that meet every limit)"
WITHOUT_DOTTED = "percentiles, goodput and knees are drawn for at most 4 servers."
IDEAL = "dashed grey: offered load."
KNEE = "dotted vertical: the knee, beyond which more load mainly adds queueing delay."


class LoadLatency(ChartPlugin):
    name = "load_latency"
    title = "Latency under load"
    needs = "a load test at two or more levels"
    sql = SQL
    loads = "only"

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in by_kind(rows):
            drawn = [row for row in members if is_ok(row) and row["value"] and row["throughput"]]
            if len(drawn) > 1:
                yield _drawing(key, members, drawn)
            else:
                why = "only one level was measured" if drawn else words.nothing_to_draw(members)
                yield NotDrawn(what=f"{self.title}: {key['model_id']}", why=why)


def _drawing(key: Row, members: Sequence[Row], drawn: Sequence[Row]) -> Drawing:
    lines, left_out = level_lines(drawn)
    shown = [row for line in lines for row in line.rows]
    has_dotted = len(lines) <= MOST_DOTTED
    times = [panel for panel in TIMES if any(row[panel.main] is not None for row in shown)][:MOST_TIMES]
    limits = limits_ms(shown)
    with theme():
        panels = (*times, RATES)
        figure, all_axes = new_figure(WIDTH_IN, PANEL_IN * len(panels), len(panels), sharey=False)
        for axes, panel in zip(all_axes, panels, strict=True):
            _draw_panel(axes, panel, lines, limits, has_dotted=has_dotted)
        if len(lines) == 1:
            _label_parts(all_axes[0], all_axes[-1], ordered(lines[0]))
        all_axes[-1].set_xlabel(LEVEL_TITLES[str(key["loop"])])
        if key["loop"] == "closed":
            scale_batch_axis(all_axes[-1], sorted({row["concurrency"] for row in shown}))
        else:
            all_axes[-1].set_xlim(0, 1.05 * max(map(level, shown)))
        if key["loop"] == "open":
            ends = (0.0, max(map(level, shown)))
            all_axes[-1].plot(ends, ends, color=look().grey, linestyle="--", linewidth=1, zorder=1, label="_offered")
        finish(figure, _figure_text(key, members, shown, lines, left_out))
    return Drawing(
        figure=figure,
        name_parts=(str(key["model_id"]), str(key["loop"])),
        details=(*details(key, MODEL_COLUMNS), *request_words(key)),
    )


def _draw_panel(
    axes: Axes, panel: Panel, lines: Sequence[Line], limits: Mapping[str, float], *, has_dotted: bool
) -> None:
    values: list[float] = []
    for line in lines:
        rows = ordered(line)
        main = [(level(row), row[panel.main], row) for row in rows if row[panel.main] is not None]
        thin = [(level(row), row[panel.thin]) for row in rows if has_dotted and row[panel.thin] is not None]
        if main:
            axes.plot(
                [x for x, _, _ in main], [y for _, y, _ in main], color=line.colour, linestyle=line.line_style,
                linewidth=1.4, zorder=3, label=f"_line {line.label}",
            )  # fmt: skip
            draw_trusted(axes, main, line.colour, line.style, line.label, size=4.5)
        if thin:
            axes.plot(
                *zip(*thin, strict=True), color=line.colour, linestyle=":", linewidth=1, zorder=2,
                label=f"_thin {line.label}",
            )  # fmt: skip
        values += [y for _, y, _ in main] + [y for _, y in thin]
        for row in rows:
            if has_dotted and row["is_knee"]:
                axes.axvline(level(row), color=line.colour, linestyle=":", linewidth=1, label=f"_knee {line.label}")
    limit = limits.get(panel.limit or "")
    if panel is RATES:
        axes.set_ylim(0, 1.08 * max(values))
        axes.yaxis.set_major_formatter(lambda value, _: number(value))
    elif values:
        scale_value_axis(axes, [one for one in (*values, limit) if one])
    if limit is not None:
        axes.axhline(limit, color=look().ink, linestyle="--", linewidth=1, zorder=1, label="_limit")
        axes.annotate(
            f"limit {number(limit)} ms", (0, limit), xycoords=("axes fraction", "data"), xytext=(3, 2),
            textcoords="offset points", ha="left", va="bottom", fontsize=SMALL_SIZE, color=look().ink,
        )  # fmt: skip
    axes.set_ylabel(f"{panel.title}\n{words.better(panel.better)}")


def _label_parts(first: Axes, rates: Axes, rows: Sequence[Row]) -> None:
    """Label the knee and the goodput line of a single server."""
    shared: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL_SIZE, "color": look().ink}
    for row in (one for one in rows if one["is_knee"]):
        first.annotate("knee", (level(row), 0), xycoords=("data", "axes fraction"), xytext=(3, 3), **shared)
    good = [row for row in rows if row["goodput"] is not None]
    apart = [row for row in good if row["goodput"] < NEAR * row["throughput"]]
    if apart:
        at = (level(apart[0]), apart[0]["goodput"])
        rates.annotate("goodput", at, xytext=(5, 3), va="bottom", **shared)


def _note(rows: Sequence[Row]) -> str:
    """The meaning of the solid and dotted lines."""
    has_tails = any(row[panel.thin] is not None for panel in TIMES for row in rows)
    has_goodput = any(row[RATES.thin] is not None for row in rows)
    dotted = " and ".join([TAILS] * has_tails + [GOODPUT] * has_goodput)
    return f"{SOLID}; dotted: {dotted}." if dotted else f"{SOLID}."


def _title(key: Row, lines: Sequence[Line]) -> str:
    """The knee, if a single server is drawn and its knee is valid."""
    knees = [row for line in lines for row in line.rows if row["is_knee"] and trust(row) == "valid"]
    if len(lines) != 1 or len(knees) != 1:
        return f"{LoadLatency.title}: {key['model_id']}"
    return f"{key['model_id']}: latency knee at {level_words(knees[0])}"


def _figure_text(
    key: Row, members: Sequence[Row], shown: Sequence[Row], lines: Sequence[Line], left_out: str | None
) -> FigureText:
    title = _title(key, lines)
    has_dotted = len(lines) <= MOST_DOTTED
    entries = [legend_entry(line.label, line.colour, line.style, linestyle=line.line_style) for line in lines]
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, LoadLatency.title, *request_words(key)),
        source=words.provenance(shown),
        notes=words.caption(
            words.accountable(members, shown, left_out),
            shown,
            _note(shown) if has_dotted else f"{SOLID}; {WITHOUT_DOTTED}",
            IDEAL if key["loop"] == "open" else None,
            KNEE if has_dotted and any(row["is_knee"] for row in shown) else None,
            lacking=[left_out],
            named=lambda row: f"{words.cell(row)} at {level_words(row)}",
        ),
        legend=(*entries, *doubtful_entries(shown)),
    )


PLUGIN = LoadLatency()
