"""Figures as charts of pages and reports: Vega-Lite, drawn by the browser.

Colours are names from the style sheet ("--c0") that `static/app.js` replaces, so charts follow the page's theme; a test
keeps them equal to those of image files. Field names are fixed words, since Vega would parse "a.b" and "a[0]" as paths,
and names from the data are values or parameters, never part of an expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from benchmarking.core.codec import is_number
from benchmarking.core.text import ends, visible
from visualize.drawing.figure import Colour, Figure, Line, Panel, one_line
from visualize.drawing.scales import Axis
from visualize.drawing.style import BAND_ALPHA, COLOURS, MARKERS
from visualize.pages.elements import Chart, Grid, Heading, number_cell, number_text, separated, state_cell, text_cell

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Identifies the language version; nothing is fetched from it."""
CROSS = "M-1,-1L1,1M-1,1L1,-1"
"""SVG path of a diagonal cross, since Vega's shape "cross" is a plus sign."""
SHAPES: Mapping[str, str] = {
    "o": "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "s": "M-.9,-.9H.9V.9H-.9Z",
    "^": "M0,-1L1,.8H-1Z",
    "D": "M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    "v": "M0,1L1,-.8H-1Z",
    "<": "M-1,0L.8,-1V1Z",
    "p": "M0,-1L.95,-.31L.59,.81H-.59L-.95,-.31Z",
    ">": "M1,0L-.8,-1V1Z",
    "h": "M0,-1L.87,-.5V.5L0,1L-.87,.5V-.5Z",
    "P": "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
    "*": "M0,-1L.25,-.33L.95,-.31L.4,.12L.59,.81L0,.42L-.59,.81L-.4,.12L-.95,-.31L-.25,-.33Z",
    "d": "M0,-1.1L.65,0L0,1.1L-.65,0Z",
}
"""Matplotlib's marker -> its outline within a square from -1 to 1."""
DASHES = ([1, 0], [6, 4], [2, 3], [6, 3, 2, 3])
PX_PER_IN = 76
LEAST_ROW_PX = 24
"""Height of a row."""
LETTER_PX, FLUSH_PX, BENEATH_PX = 6, 18, 12
"""Width of a letter of a note, distance of a label from the end of an axis, and of a note from the mark above it."""
MOST_ROWS = 400
"""Maximum rows of the table behind a chart."""
POINT = 1.33
"""Pixels of a point."""
Layers = list[Spec]


def chart(figure: Figure, table: Grid | None = None) -> Chart:
    """The figure as a chart of a page. `table` replaces the table of its marks."""
    return Chart(
        title=visible(figure.title),
        subtitle=visible(figure.subtitle),
        caption=visible(" ".join(figure.caption)),
        source=visible(figure.source),
        specs=tuple({**spec(panel), "description": _description(figure, panel)} for panel in figure.panels),
        columns=figure.columns,
        legend_title=figure.legend_title,
        legend=tuple(  # the outline of a marker, and the dash pattern of a line; None without one
            SimpleNamespace(
                label=visible(entry.label),
                colour=_class(entry.colour),
                path=None if entry.shape is None else SHAPES[MARKERS[entry.shape % len(MARKERS)]],
                dashes=None if entry.dashes is None else " ".join(map(str, DASHES[entry.dashes % len(DASHES)])),
                state=entry.state,
            )
            for entry in figure.legend
        ),
        table=_table(figure) if table is None else table,
    )


def _description(figure: Figure, panel: Panel) -> str:
    """What a panel is about, for screen readers: the chart, and which of several panels."""
    of_values = panel.x if panel.y.names else panel.y
    which = (panel.title, one_line(of_values.title)) if len(figure.panels) > 1 else ()
    return visible(f"{', '.join(filter(None, (figure.title, *which)))}; data in the table below")


def charts(figures: Iterable[object]) -> tuple[Chart, ...]:
    """The figures among what a chart plugin draws."""
    return tuple(chart(figure) for figure in figures if isinstance(figure, Figure))


def spec(panel: Panel) -> Spec:
    """The Vega-Lite specification of a panel."""
    scales = _Scales(panel)
    values = [
        {"x": one.x, "y": one.low, "high": one.high, "colour": _class(line.colour), "series": f"{place}-{number}"}
        for place, line in enumerate(panel.lines)
        for number, band in enumerate(line.intervals()[0])
        for one in band
    ]
    mark: Spec = {"type": "area", "opacity": BAND_ALPHA, "clip": True}
    bands = _layer(
        values, mark, x=scales.x, y=scales.y, y2={"field": "high"}, color=scales.colour, detail={"field": "series"}
    )
    rules: Layers = []
    for rule in panel.rules:
        about = [{rule.along: rule.at, "colour": _class(rule.colour), "words": visible(rule.label)}]
        mark = {"type": "rule", "strokeWidth": 1.2, "strokeDash": DASHES[rule.dashes % len(DASHES)]}
        at = {"x": scales.x} if rule.along == "x" else {"y": scales.y}
        rules += _layer(about, mark, **at, color=scales.colour, tooltip={"field": "words", "type": "nominal"})
    notes: Layers = []
    for note in panel.notes:
        y, low, high = note.y, panel.y.low, panel.y.high
        if note.in_share:
            y = low * (high / low) ** note.y if panel.y.is_log else low + (high - low) * note.y
        text = [{"x": note.x, "y": y, "colour": _class(note.colour), "text": visible(note.text)}]
        dx = round(note.dx * POINT)
        mark = {
            "type": "text", "align": note.align, "baseline": "middle", "fontSize": 11, "dx": dx,
            "dy": round(-note.dy * POINT), "limit": 260,
        }  # fmt: skip
        if note.align == "left":  # beneath its place where a narrow panel would cut it off
            place, needed = f"{panel.x.share(note.x):.4f} * width", LETTER_PX * len(note.text)
            is_cut = f"{place} + {dx + needed} > width"
            mark |= {
                "dx": {"expr": f"{is_cut} ? max(-{place}, width - {place} - {needed}) : {dx}"},
                "dy": {"expr": f"{is_cut} ? {BENEATH_PX} : {mark['dy']}"},
            }
        field = {"field": "text", "type": "nominal"}
        notes += _layer(text, mark, x=scales.x, y=scales.y, text=field, color=scales.colour)
    layers = [
        *_blocks(panel, scales),
        *rules,
        *bands,
        *_lines(panel, scales),
        *_intervals_and_marks(panel, scales),
        *notes,
    ]
    height = panel.height_in * PX_PER_IN
    if panel.y.names:
        height = max(height, LEAST_ROW_PX * len(panel.y.names))
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": round(height),
        "autosize": {"type": "fit-x", "contains": "padding"},
        **({"title": {"text": visible(panel.title), "anchor": "start"}} if panel.title else {}),
        "params": scales.params,
        "layer": layers or [{"data": {"values": []}, "mark": "point"}],
    }


class _Scales:
    """Encodings that all layers of a panel share."""

    def __init__(self, panel: Panel) -> None:
        self.params: list[Spec] = []
        self.x = {"field": "x", "type": "quantitative", **self._axis(panel.x, "x")}
        self.y = {"field": "y", "type": "quantitative", **self._axis(panel.y, "y")}
        used: list[Colour] = [line.colour for line in panel.lines]
        used += [rule.colour for rule in panel.rules] + [note.colour for note in panel.notes]
        used += [colour for block in panel.blocks for colour in (block.fill, block.ink)]
        names = list(dict.fromkeys(map(_class, used)))
        scale = {"domain": names, "range": [name if name.startswith("#") else f"--{name}" for name in names]}
        self.colour = {"field": "colour", "type": "nominal", "scale": scale, "legend": None}

    def _axis(self, axis: Axis, name: str) -> Spec:
        self.params += [
            {"name": f"{name}at", "value": [at for at, _ in axis.ticks]},
            {"name": f"{name}text", "value": [visible(text, kept="\n") for _, text in axis.ticks]},
        ]
        scale: Spec = {"domain": [axis.low, axis.high], "nice": False}
        scale |= {"type": "log"} if axis.is_log else {"zero": False}
        flipped = axis.from_top if name == "y" else False
        scale |= {"reverse": True} if flipped else {}
        drawn: Spec = {
            "values": [at for at, _ in axis.ticks],
            "labelExpr": f"split({name}text[indexof({name}at, datum.value)], '\\n')",
            "labelOverlap": "greedy" if not axis.names or name == "x" else False,
            "grid": axis.has_grid,
        }
        if name == "x" and not axis.names:  # labels this near to an end are moved inwards
            drawn["labelFlush"] = FLUSH_PX
        return {"title": axis.title.split("\n") if axis.title else None, "scale": scale, "axis": drawn}


def _class(colour: Colour) -> str:
    """The name of a colour in the style sheet, or #rrggbb."""
    return f"c{colour % len(COLOURS)}" if isinstance(colour, int) else colour.replace(" ", "")


def _layer(values: Sequence[Spec], mark: Spec, **encoding: Any) -> Layers:
    """A layer, unless it has no data: Vega warns about empty ones."""
    return [{"data": {"values": list(values)}, "mark": mark, "encoding": encoding}] if values else []


def _lines(panel: Panel, scales: _Scales) -> Layers:
    layers: Layers = []
    alike: dict[tuple[Any, ...], list[tuple[int, Line]]] = {}
    for place, line in enumerate(panel.lines):
        if line.dashes is not None:
            alike.setdefault((line.dashes, line.step, line.width, line.opacity), []).append((place, line))
    for (dashes, step, width, opacity), lines in alike.items():
        values = [
            {"x": one.x, "y": one.y, "colour": _class(line.colour), "series": place, "order": order}
            for place, line in lines
            for order, one in enumerate(line.joined)
        ]
        mark: Spec = {"type": "line", "strokeWidth": width * 1.1, "opacity": opacity, "clip": True}
        mark |= {"interpolate": f"step-{step}"} if step else {}
        mark |= {"strokeDash": DASHES[dashes % len(DASHES)]} if dashes else {}
        layers += _layer(
            values, mark, x=scales.x, y=scales.y, color=scales.colour, detail={"field": "series"},
            order={"field": "order", "type": "quantitative"},
        )  # fmt: skip
    return layers


def _intervals_and_marks(panel: Panel, scales: _Scales) -> Layers:
    """Whiskers, and marks: filled if valid, hollow if doubtful, hollow and crossed out if invalid."""
    across: list[Spec] = []
    upright: list[Spec] = []
    for line in panel.lines:
        for interval in line.intervals()[1]:
            place = {"x": interval.low, "y": interval.y} if line.is_across else {"x": interval.x, "y": interval.low}
            chosen = across if line.is_across else upright
            chosen.append({**place, "high": interval.high, "colour": _class(line.colour)})
    rule = {"type": "rule", "strokeWidth": 1.6, "clip": True}
    layers: Layers = [
        *_layer(across, rule, x=scales.x, x2={"field": "high"}, y=scales.y, color=scales.colour),
        *_layer(upright, rule, x=scales.x, y=scales.y, y2={"field": "high"}, color=scales.colour),
    ]
    shapes = sorted({line.shape % len(MARKERS) for line in panel.lines if line.shape is not None})
    scale = {"domain": shapes, "range": [SHAPES[MARKERS[one]] for one in shapes]}
    shape = {"field": "shape", "type": "nominal", "scale": scale, "legend": None}
    tooltip = {"field": "words", "type": "nominal"}
    for size in sorted({line.size for line in panel.lines if line.shape is not None}):
        area = (size * POINT) ** 2
        shared: Spec = {"type": "point", "size": area, "strokeWidth": 1.6 if size > 3 else 0.5, "opacity": 1}
        for state in ("valid", "doubtful", "invalid"):
            values = []
            for line in panel.lines:
                if line.shape is None or line.size != size:
                    continue
                unit = (panel.x if line.is_across else panel.y).title.split("\n")[0]
                for one in (mark for mark in line.marks if mark.state == state and panel.shows(mark)):
                    value = number_text(one.x if line.is_across else one.y)
                    about = [line.label, one.words, f"{unit}: {value}" if unit else value]
                    if one.low is not None and one.high is not None:
                        about.append(" to ".join(map(separated, ends(one.low, one.high))))
                    about += [state] if state != "valid" else []
                    own = {"x": one.x, "y": one.y, "colour": _class(line.colour), "shape": line.shape % len(MARKERS)}
                    values.append({**own, "words": visible(", ".join(filter(None, about))), "state": state})
            mark = {**shared, "filled": True} if state == "valid" else {**shared, "fill": "--page"}
            layers += _layer(values, mark, x=scales.x, y=scales.y, color=scales.colour, shape=shape, tooltip=tooltip)
            if state == "invalid":
                cross = {**shared, "shape": CROSS, "size": area * 2.2, "strokeWidth": 1.6, "color": "--ink"}
                layers += _layer(values, cross, x=scales.x, y=scales.y, tooltip=tooltip)
    return layers


def _blocks(panel: Panel, scales: _Scales) -> Layers:
    layers: Layers = []
    span = panel.x.high - panel.x.low
    for state in ("valid", "doubtful", "invalid"):
        for opacity in sorted({block.opacity for block in panel.blocks if block.state == state}):
            found = [block for block in panel.blocks if block.state == state and block.opacity == opacity]
            values = [
                {
                    "x": block.left, "right": block.right, "y": block.bottom, "top": block.top,
                    "colour": _class(block.fill), "words": visible(block.words), "state": state,
                }
                for block in found
            ]  # fmt: skip
            is_heat = any(str(block.fill).startswith("#") for block in found)  # its ends would fade into the page
            mark: Spec = {"type": "rect", "opacity": opacity, "strokeWidth": 1}
            outline = {"stroke": scales.colour} if panel.is_dense and state == "valid" else {}
            mark |= {} if outline else {"stroke": "--grey" if is_heat else "--page"}
            if state != "valid":
                mark = {"type": "rect", "filled": False, "strokeWidth": 1.4}
            layers += _layer(
                values, mark, x=scales.x, x2={"field": "right"}, y=scales.y, y2={"field": "top"}, color=scales.colour,
                tooltip={"field": "words", "type": "nominal"}, **outline,
            )  # fmt: skip
            if state == "invalid":
                cross = {"type": "rule", "strokeWidth": 1, "color": "--ink"}
                layers += _layer(values, cross, x=scales.x, x2={"field": "right"}, y=scales.y, y2={"field": "top"})
    # Texts inside blocks, cut off where the block ends.
    for align in ("left", "center"):
        texts: list[Spec] = [
            {
                "x": block.left if align == "left" else (block.left + block.right) / 2,
                "y": (block.bottom + block.top) / 2, "colour": _class(block.ink),
                "text": [visible(part) for part in block.text.split("\n")], "room": (block.right - block.left) / span,
            }
            for block in panel.blocks
            if block.text and block.align == align
        ]  # fmt: skip
        mark = {
            "type": "text", "align": align, "baseline": "middle", "fontSize": 11, "dx": 4 if align == "left" else 0,
            "limit": {"expr": "max(1, datum.room * width - 6)"}, "opacity": {"expr": "datum.room * width < 24 ? 0 : 1"},
        }  # fmt: skip
        text = {"field": "text", "type": "nominal"}
        layers += _layer(texts, mark, x=scales.x, y=scales.y, text=text, color=scales.colour)
    return layers


def _table(figure: Figure) -> Grid:
    """The values behind the chart."""
    names, rows = figure.table()
    numeric = [all(isinstance(row[at], int | float) or row[at] is None for row in rows) for at in range(len(names))]
    shown = rows[:MOST_ROWS]
    return Grid(
        headings=tuple(
            Heading(text=visible(name), is_number=is_number) for name, is_number in zip(names, numeric, strict=True)
        ),
        rows=tuple(
            tuple(
                number_cell(value) if is_number(value)
                else state_cell(str(value)) if name == "state" else text_cell(value)
                for name, value in zip(names, row, strict=True)
            )
            for row in shown
        ),
        caption=figure.title,
        note=f"The first {MOST_ROWS} of {len(rows):,} rows." if len(rows) > len(shown) else "",
    )  # fmt: skip
