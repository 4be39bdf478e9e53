"""Style: number formats, scales, colours, themes and reproducible files."""

import itertools
import math
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex

from benchmarking.core import plugins
from benchmarking.core.plugins import family_names
from visualize.drawing import figure, marks, scales, style
from visualize.drawing.picture import picture
from visualize.drawing.rows import PACKAGE
from visualize.pages import vega


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (0.001234, "0.00123"),
        (1, "1"),
        (4.567, "4.57"),
        (1.04, "1.04"),
        (99.95, "100"),
        (1234.5, "1,234"),
        (1e14, "100,000,000,000,000"),
        (1.2345e149, "1.23e+149"),
    ],
)
def test_numbers_are_short(value, text):
    assert scales.number(value) == text


def test_only_positive_values_span_a_decade():
    assert scales.spans_decade([1.0, 10.0])
    assert not scales.spans_decade([1.0, 9.99])
    assert not scales.spans_decade([0.0, 100.0])
    assert not scales.spans_decade([])


@pytest.mark.parametrize(
    ("sizes", "by_factors"),
    [((1,), False), ((1, 2), True), ((1, 2, 4, 8), True), ((8, 9, 10, 12), False), (tuple(range(1, 9)), True)],
)
def test_batch_sizes_that_double_grow_by_factors(sizes, by_factors):
    assert scales.grows_by_factors(sizes) is by_factors


def test_doubling_batch_sizes_have_a_log_axis_with_a_tick_each():
    axis = scales.size_axis("Batch", (1, 2, 4, 1024))
    assert axis.is_log
    assert axis.ticks == ((1, "1"), (2, "2"), (4, "4"), (1024, "1,024"))


def test_stepped_batch_sizes_have_a_linear_axis():
    axis = scales.size_axis("Batch", (8, 9, 10, 12))
    assert not axis.is_log
    assert [at for at, _ in axis.ticks] == [8, 9, 10, 12]
    assert (axis.low, axis.high) == pytest.approx((7.76, 12.24))


def test_a_single_batch_size_is_centred():
    axis = scales.size_axis("Batch", (4,))
    assert (axis.low, axis.high) == (3.5, 4.5)


def test_ticks_are_numbers_that_people_write():
    def labels(low, high):
        return [text for _, text in scales.ticks(low, high)]

    assert labels(0.0, 4e-7) == ["0", "1e-07", "2e-07", "3e-07", "4e-07"]
    assert labels(0.0, 1.5e-6) == ["0", "5e-07", "1e-06", "1.5e-06"]
    assert labels(0.99999, 1.00002) == ["0.99999", "0.999995", "1", "1.000005", "1.00001", "1.000015", "1.00002"]
    assert labels(0.0, 0.0006)[1] == "0.0001"
    assert labels(0.0, 4000.0) == ["0", "1,000", "2,000", "3,000", "4,000"]
    assert labels(-1e33, 1.2e33) == ["-1e+33", "-5e+32", "0", "5e+32", "1e+33"]
    assert labels(1e16, 1.00001e16)[:2] == ["1e+16", "1.000002e+16"]


def test_many_batch_sizes_share_ticks():
    axis = scales.size_axis("Batch", tuple(2**power for power in range(12)), 6)
    assert [at for at, _ in axis.ticks] == [1, 4, 16, 64, 256, 1024]


def test_values_over_a_decade_have_a_log_axis_whose_labels_people_write():
    axis = scales.value_axis("ms", [2.0, 50.0])
    assert axis.is_log
    assert axis.low < 2.0 < 50.0 < axis.high
    assert [text for _, text in axis.ticks] == ["2", "5", "10", "20", "50"]
    assert [text for _, text in scales.value_axis("s", [0.0003, 4e6]).ticks][:2] == ["0.0001", "0.01"]


def test_values_within_a_decade_have_a_linear_axis_from_zero():
    axis = scales.value_axis("ms", [20.0, 50.0])
    assert (axis.low, axis.high, axis.is_log) == (0, 54, False)
    assert [text for _, text in axis.ticks] == ["0", "10", "20", "30", "40", "50"]


def test_values_that_are_equal_but_for_rounding_lie_on_a_flat_line():
    axis = scales.close_axis("ms", [2.56, 2.5600000000000005])
    assert axis.high - axis.low > 0.2
    assert all(len(text) <= 4 for _, text in axis.ticks)


def test_the_caption_says_where_an_axis_does_not_start_at_zero():
    def caption(axis):
        panel = figure.Panel(x=scales.name_axis(("a",)), y=axis, elements=())
        return figure.Figure(title="t", panels=(panel,)).caption

    assert caption(scales.value_axis("ms", [20.0, 50.0])) == ()
    assert caption(scales.close_axis("ms", [20.0, 21.0])) == ("The axis does not start at 0.",)
    assert caption(scales.value_axis("ms", [2.0, 50.0])) == ("Logarithmic axis.",)
    axes = (
        scales.value_axis("Time to first\ntoken (ms)\nlower is better", [2.0, 50.0]),
        scales.value_axis("requests/s", [0.0, 50.0]),
    )
    panels = tuple(figure.Panel(x=scales.name_axis(("a",)), y=axis, elements=()) for axis in axes)
    said = "Logarithmic axis: Time to first token (ms), lower is better."
    assert figure.Figure(title="t", panels=panels).caption == (said,), "the other is linear"
    panel = figure.Panel(x=scales.size_axis("Batch size", [1, 2, 4]), y=axes[1], elements=())
    assert figure.Figure(title="t", panels=(panel,)).caption == ("Logarithmic axis: Batch size.",)


def test_the_keys_and_cells_of_a_gradient_have_an_outline_that_a_dark_page_shows():
    key = marks.heat_key([1.0, 9.0], "ms", better="lower")
    cells = {(0, 0): marks.Cell(value=1.0, text="1"), (1, 0): marks.Cell(value=9.0, text="9")}
    panel = marks.heat_panel(cells, ("a", "b"), ("c",), better="lower")
    with style.chosen("dark"):
        drawn = picture(figure.Figure(title="t", panels=(panel,), legend=key))
        patches = (*drawn.legends[0].legend_handles, *drawn.axes[0].patches)
        assert {to_hex(patch.get_edgecolor()) for patch in patches} == {style.look().grey.lower()}
    (rects,) = (layer["mark"] for layer in vega.spec(panel)["layer"] if layer["mark"]["type"] == "rect")
    assert rects["stroke"] == "--grey"


def test_empty_cells_of_a_heat_map_are_explained():
    for empty, captions in ((0, ()), (1, ("Empty cells were not measured.",))):
        cells = {(place, 0): marks.Cell(value=1.0 + place, text="1") for place in range(3 - empty)}
        panel = marks.heat_panel(cells, ("a", "b", "c"), ("d",), better="lower")
        assert figure.Figure(title="t", panels=(panel,)).caption == captions


def test_darker_is_faster_in_every_heat_map():
    def fills(better):
        cells = {(0, 0): marks.Cell(value=1.0, text="1"), (1, 0): marks.Cell(value=9.0, text="9")}
        panel = marks.heat_panel(cells, ("a", "b"), ("c",), better=better)
        return [sum(int(one.fill[i : i + 2], 16) for i in (1, 3, 5)) for one in panel.blocks]

    low, high = fills("higher")
    assert low > high
    low, high = fills("lower")
    assert low < high


def test_colours_markers_and_dashes_distinguish_132_lines():
    looks = {(style.colour(i), style.marker(i)) for i in range(132)}
    assert len(looks) == 132
    assert [style.dashes(i) for i in (0, 10, 11, 22)] == [0, 0, 1, 2]


SIMULATED = {
    "normal vision": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB."""


def oklab(colour, seen_as):
    """Ottosson's Oklab (2020), times 100: 2 is about the smallest visible distance."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SIMULATED[seen_as]) @ linear, 0, 1)
    to_lms = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return 100 * np.array(to_lab) @ np.cbrt(np.array(to_lms) @ seen)


@pytest.mark.parametrize("theme", style.THEMES)
@pytest.mark.parametrize("seen_as", SIMULATED)
def test_colours_are_distinguishable_with_any_colour_vision(theme, seen_as):
    colours = style.LOOKS[theme].colours
    assert len(colours) == len(family_names()) == 11
    places = [oklab(colour, seen_as) for colour in colours]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2)]
    assert min(distances) > 7, "distinguishable"


@pytest.mark.parametrize("theme", style.THEMES)
def test_a_theme_applies_inside_its_block(make_run, figures, theme):
    with style.chosen(theme):
        (figure,) = figures("latency_vs_batch_size", make_run())
        assert style.look() is style.LOOKS[theme]
    own = style.LOOKS[theme]
    assert to_hex(figure.get_facecolor()).upper() == own.background
    assert to_hex(figure.axes[0].xaxis.label.get_color()).upper() == own.ink
    assert to_hex(figure.texts[0].get_color()).upper() == own.ink
    assert style.look() is style.LOOKS["light"]


@pytest.fixture(scope="module")
def twins(make_run, figures):
    """The same figure, drawn twice."""
    run = make_run()
    return [figure for _ in range(2) for figure in figures("latency_vs_batch_size", run)]


@pytest.fixture(scope="module")
def images(twins):
    """Image files of the figure by format."""
    return {image_format: style.image(twins[0], image_format) for image_format in style.FORMATS}


def test_text_in_an_svg_is_text(images):
    assert ">bert-base-uncased: the latency at batch 2 is" in images["svg"].decode()


def test_text_in_a_pdf_is_text_in_an_embedded_font(images):
    content = images["pdf"]
    assert b"/TrueType" in content or b"/CIDFontType2" in content
    assert b"/Type3" not in content


def contrast(one, other):
    """WCAG 2's contrast ratio."""

    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    low, high = sorted(map(luminance, (one, other)))
    return high / low


@pytest.mark.parametrize("theme", style.THEMES)
def test_colours_are_visible_and_text_is_legible_on_the_background(theme):
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    look = style.LOOKS[theme]
    assert min(contrast(colour, look.background) for colour in look.colours) > 2
    assert min(contrast(colour, look.background) for colour in (look.ink, look.grey)) >= 4.5
    with style.chosen(theme):
        fills = [*range(len(look.colours)), "grey"]
        assert min(contrast(style.paint(f"on {fill}"), style.paint(fill)) for fill in fills) > 3.8


def test_settings_apply_inside_the_theme_only():
    before = dict(mpl.rcParams)
    with mpl.rc_context({"lines.linewidth": 9.0}):
        with style.theme():
            assert mpl.rcParams["lines.linewidth"] == 1.6
        assert mpl.rcParams["lines.linewidth"] == 9.0
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("image_format", style.FORMATS)
def test_the_same_figure_gives_the_same_bytes(images, twins, image_format):
    content = images[image_format]
    assert content == style.image(twins[1], image_format)
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[image_format])


def test_an_svg_has_no_date(images):
    assert "dc:date" not in images["svg"].decode()


def test_a_png_has_at_least_150_dots_per_inch(images):
    width_px = int.from_bytes(images["png"][16:20], "big")
    assert width_px == 6.4 * style.PNG_DPI
    assert style.PNG_DPI >= 150


def test_imports_are_light_and_drawing_leaves_pyplot_unchanged():
    modules = [f"{PACKAGE}.{name}" for name in plugins.names(PACKAGE)]
    modules += [
        f"visualize.drawing.{name}"
        for name in ("batch_charts", "figure", "marks", "picture", "rows", "scales", "style", "words")
    ]
    code = (
        f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\nprint(*sys.modules)\n"
        "import matplotlib, matplotlib.colors\n"
        "def settings(): return {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != 'backend'}\n"
        "before = settings()\n"
        "from visualize.drawing import picture, style\nfrom visualize.drawing import figure as words\n"
        "from visualize.drawing.scales import Axis\n"
        "panel = words.Panel(x=Axis(), y=Axis(), elements=())\n"
        "figure = picture.picture(words.Figure(title='t', subtitle='s', panels=(panel,)))\n"
        "style.image(figure, 'svg')\n"
        "from matplotlib import pyplot\n"
        "assert pyplot.get_fignums() == []\n"
        "assert matplotlib.get_backend(auto_select=False) is None, 'no backend was chosen'\n"
        "assert matplotlib.colors.to_hex('b') == '#0000ff'\n"
        "assert settings() == before\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert {"matplotlib", "seaborn", "pandas", "numpy", "duckdb"}.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("values", [[5e-324, 1e290], [5e-324, 1e-320], [1e290, 1e308], [1.0, 1e305]])
def test_an_axis_of_absurd_values_has_finite_ends(values):
    axis = scales.value_axis("ms", values)
    assert all(map(math.isfinite, (axis.low, axis.high, *(at for at, _ in axis.ticks))))
    assert axis.low < axis.high
