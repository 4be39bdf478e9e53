"""Image files and pages show the same: words, order, colours and crosses of every chart."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from tests.helpers.figures import See
from tests.helpers.load import make_load
from tests.helpers.records import make_profile, make_run
from visualize.drawing import style
from visualize.drawing.figure import Block, Figure, Line, Mark, Note, Panel, entries
from visualize.drawing.picture import picture
from visualize.drawing.rows import Selection, charts
from visualize.drawing.scales import Axis
from visualize.pages import vega
from visualize.pages.site import STATIC, environment

DRAWN = (
    *("latency_vs_batch_size", "hardware_comparison", "runtime_comparison", "hardware_speedup", "pareto_front"),
    *("batch_sequence_heatmap", "runtime_precision", "load_latency", "load_frontier", "flame_graph", "layer_times"),
    *("sample_distribution", "temporal_trend", "architecture_comparison"),
)


@pytest.fixture(scope="module")
def figures(shared_warehouse, charts_of, alter):
    """Figures of charts of all kinds, with valid, doubtful and invalid results."""
    eager = make_run(batch_sizes=(1, 2, 4))
    doubtful = alter.results(eager, alter.noisy, where=lambda point: point.batch_size == 2)
    fast = make_run(runtime="onnxruntime", slowdown=0.5, batch_sizes=(1, 2, 4))
    wrong = alter.results(fast, alter.invalid, where=lambda point: point.batch_size == 4)
    older = make_run(started_at="2025-01-01T00:00:00Z", batch_sizes=(1, 2, 4))
    other = make_run(model_id="other", family="vision")
    card = alter.on_device(make_run(device="cuda", slowdown=0.2, batch_sizes=(1, 2, 4)), "Card", "cuda:0")
    charts_of(older, doubtful, wrong, card, other, make_load(rates=(1.0, 2.0, 4.0)))
    shared_warehouse.ingest_profile(make_profile(4.0))
    found = {}
    for name in DRAWN:
        drawn = charts()[name].draw(charts()[name].rows(shared_warehouse, Selection()))
        found[name] = [one for one in drawn if isinstance(one, Figure)][:2]
    return found


@pytest.mark.parametrize("name", DRAWN)
def test_files_and_pages_have_the_same_words_order_colours_and_crosses(figures, name):
    assert figures[name], "nothing was drawn"
    for figure in figures[name]:
        image, chart = picture(figure), vega.chart(figure)
        written = [" ".join(text.get_text().split()) for text in image.texts]
        page = [chart.title, chart.subtitle, *([chart.source] if chart.source else []), *figure.caption]
        assert written == [" ".join(one.split()) for one in page]
        assert " ".join(chart.caption.split()) == " ".join(" ".join(figure.caption).split())
        legends = [text.replace("\n", " ") for text in See.legend(image)] if image.legends else []
        assert legends == [one.label for one in chart.legend]
        assert len(chart.specs) == len([axes for axes in image.axes if axes.get_visible()])
        for axes, spec, panel in zip(image.axes, chart.specs, figure.panels, strict=True):
            names = {f"_{line.role} {line.label}".rstrip() for line in panel.lines}
            assert crosses(spec) == sorted(
                (float(x), float(y))
                for artist in axes.collections
                if str(artist.get_label()).startswith("_crossed")
                for x, y in artist.get_offsets()
            )
            assert line_colours(spec) == [
                to_hex(line.get_color()).upper()
                for line in axes.lines
                if line.get_label() in names and len(line.get_xdata()) > 0 and line.get_marker() == "None"
            ]


def crosses(spec):
    """Positions of the crosses of a panel on a page."""
    layers = [one for one in spec["layer"] if one["mark"].get("shape") == vega.CROSS]
    return sorted((row["x"], row["y"]) for layer in layers for row in layer["data"]["values"])


def test_each_panel_of_a_chart_has_a_name_of_its_own_for_screen_readers(figures):
    (figure, *_) = figures["load_latency"]
    names = [spec["description"] for spec in vega.chart(figure).specs]
    assert len({*names}) == len(names) > 1
    assert all(name.startswith(figure.title) and name.endswith("; data in the table below") for name in names)


def line_colours(spec):
    """Colours of the lines of a panel on a page, in drawing order."""
    found = {}
    for layer in spec["layer"]:
        if layer["mark"]["type"] == "line":
            found |= {row["series"]: row["colour"] for row in layer["data"]["values"]}
    look = style.LOOKS["light"]
    fixed = {"ink": look.ink, "grey": look.grey}
    return [fixed.get(name) or look.colours[int(name[1:])] for _, name in sorted(found.items())]


@pytest.mark.parametrize("theme", style.THEMES)
def test_the_style_sheet_has_the_colours_of_image_files(theme):
    sheet = (STATIC / "style.css").read_text()
    stated = dict(re.findall(r"--(\w+): light-dark\((.+?)\);", sheet))
    place = style.THEMES.index(theme)
    look = style.LOOKS[theme]
    for name, colour in {
        **{f"c{i}": one for i, one in enumerate(look.colours)},
        "grey": look.grey,
        "ink": look.ink,
        **{f"on{i}": style.legible_on(one) for i, one in enumerate(look.colours)},
        "ongrey": style.legible_on(look.grey),
    }.items():
        assert stated[name].split(", ")[place] == colour, name


def test_every_marker_of_image_files_has_an_outline_on_pages():
    assert set(vega.SHAPES) == set(style.MARKERS)


CONTROLS = "\x1b[31m\x07\x9b\u202egnp\u2066x\u2069"


def test_control_characters_and_changes_of_direction_are_shown_as_escapes(shared_warehouse, charts_of):
    charts_of(make_run(model_id=f"m{CONTROLS}"))
    chart = charts()["latency_vs_batch_size"]
    (figure,) = chart.draw(chart.rows(shared_warehouse, Selection()))
    image = picture(figure)
    written = "".join(text.get_text() for text in image.findobj(Text))
    page = environment().from_string("{{ text }}").render(text=f"m{CONTROLS}\tSELECT\r\n1")
    for text in (written, page):
        assert set(CONTROLS) & set(text) <= set("[31mgnpx")
        assert r"m\x1b[31m\x07\x9b\u202egnp\u2066x\u2069" in text.replace("\n", "")
    assert page.endswith("\tSELECT\r\n1")  # white space stays


def test_a_mark_at_the_end_of_an_axis_is_drawn_whole_and_one_beyond_it_not_at_all():
    marks = tuple(Mark(x=x, y=0.5) for x in (0.0, 1.0, 1.5))
    panel = Panel(x=Axis(), y=Axis(), elements=(Line(label="kl", marks=marks, shape=0, dashes=None),))
    (scatter,) = picture(Figure(title="quality", panels=(panel,))).axes[0].collections
    (layer,) = vega.spec(panel)["layer"]
    places = [[float(x) for x, _ in scatter.get_offsets()], [row["x"] for row in layer["data"]["values"]]]
    assert places == [[0.0, 1.0]] * 2
    assert [scatter.get_clip_on(), layer["mark"].get("clip", False)] == [False, False], "half of it would be hidden"


def test_a_note_that_a_narrow_panel_would_cut_off_is_beneath_its_place():
    """To the left of it, it would lie on the names of the rows."""
    axis = Axis(low=0.0, high=4.0)
    (layer,) = vega.spec(Panel(x=axis, y=axis, elements=(Note(x=3.0, y=1.0, text="3 times", dx=6, dy=3),)))["layer"]
    mark = layer["mark"]
    assert mark["align"] == "left"
    is_cut = "0.7500 * width + 50 > width"
    assert mark["dx"] == {"expr": f"{is_cut} ? max(-0.7500 * width, width - 0.7500 * width - 42) : 8"}
    assert mark["dy"] == {"expr": f"{is_cut} ? 12 : -4"}


def test_a_line_that_another_hides_is_named():
    def line(label, *ys, **look):
        return Line(label=label, marks=tuple(Mark(x=x / 4, y=y) for x, y in enumerate(ys)), **{"shape": 0, **look})

    lines = (
        line("eager", 0.2, 0.4),
        line("compiled", 0.2, 0.401, 0.9),
        line("slower", 0.2, 0.45),
        line("", 0.2, 0.4, shape=None),
        line("limit", 0.2, 0.4, in_table=False),
    )
    panel = Panel(x=Axis(), y=Axis(), elements=lines)
    assert Figure(title="latency", panels=(panel,)).caption == (
        "Nearly equal, so that one hides the other: eager and compiled.",
    )
    titled = Figure(title="latency", panels=(panel, panel), legend_title="Runtime", legend=entries(lines))
    assert titled.caption == ("Nearly equal in a panel, so that one hides the other: Runtime eager and compiled.",)
    assert "other: eager and" in " ".join(replace(titled, legend=()).caption), "names beside the lines are of no legend"
    assert Figure(title="latency", panels=(Panel(x=Axis(), y=Axis(), elements=lines[2:]),)).caption == ()
    alike = Panel(x=Axis(), y=Axis(), elements=tuple(line(name, 0.2, 0.4) for name in "abcde"))
    assert Figure(title="latency", panels=(alike,)).caption == (
        "Nearly equal, so that they hide one another: a, b, c and 2 more.",
    ), "not ten pairs"
    longer = Panel(x=Axis(), y=Axis(), elements=tuple(line(f"batch {n}, image 8", 0.2, 0.4) for n in (1, 2, 4)))
    (text,) = Figure(title="latency", panels=(longer,)).caption
    assert text.endswith("one another: batch 1, image 8; batch 2, image 8; batch 4, image 8.")


def test_blocks_too_thin_for_a_gap_are_outlined_in_their_own_colour():
    outlines = []
    for rows in (2, 300):
        block = Block(left=1.0, right=1.001, bottom=0.0, top=0.8, role="until end", fill=0)
        panel = Panel(x=Axis(high=10.0), y=Axis(high=float(rows)), elements=(block,), height_in=3.0)
        (patch,) = picture(Figure(title="requests", panels=(panel,))).axes[0].patches
        (layer,) = vega.spec(panel)["layer"]
        in_page = layer["encoding"].get("stroke", {}).get("field") == "colour"
        assert in_page != ("stroke" in layer["mark"])
        outlines.append((to_hex(patch.get_edgecolor()) == to_hex(patch.get_facecolor()), in_page))
    assert outlines == [(False, False), (True, True)], "a gap would hide every request of hundreds"
