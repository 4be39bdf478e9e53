"""Nothing is clipped and nothing overlaps, for names of any length."""

import pytest
from matplotlib.transforms import Bbox

from benchmarking.core.plugins import family_names
from visualize.drawing.layout import wrap

CHARTS = (
    "latency_vs_batch_size",
    "throughput_vs_batch_size",
    "memory_vs_batch_size",
    "hardware_comparison",
    "architecture_comparison",
)


def test_text_that_fits_stays_on_one_line():
    assert wrap("short enough", 9, 4.0) == "short enough"


def test_long_text_breaks_after_spaces_and_loses_nothing_else():
    text = "one two three four five six seven eight nine ten"
    wrapped = wrap(text, 9, 1.0)
    assert wrapped.count("\n") > 2
    assert wrapped.replace("\n", " ") == text


def test_long_names_break_after_their_own_separators():
    wrapped = wrap("organisation/model-name-that-goes-on-and-on-v2.5", 9, 2.0)
    assert wrapped.replace("\n", "") == "organisation/model-name-that-goes-on-and-on-v2.5"
    assert all(line[-1] in "/-_." for line in wrapped.split("\n")[:-1])


def test_a_word_without_separators_breaks_anywhere():
    wrapped = wrap("b" * 100, 9, 1.0)
    assert wrapped.replace("\n", "") == "b" * 100
    assert len({len(line) for line in wrapped.split("\n")[:-1]}) == 1


def test_a_width_of_zero_gives_one_letter_per_line():
    assert wrap("abc", 9, 0.0) == "a\nb\nc"


def situations(make_run, alter):
    """Runs that are hard to lay out, by name."""
    names = (alter.LONG_MODEL, alter.UNBREAKABLE_MODEL)
    long_named = [alter.on_device(make_run(model_id=name), alter.LONG_DEVICE, "cuda:0") for name in names]
    many = make_run(batch_sizes=tuple(2**p for p in range(12)), sequence_lengths=tuple(range(64, 900, 64)))
    crowd = [alter.on_device(make_run(), f"{alter.LONG_DEVICE} {i}") for i in range(9)]
    troubled = [alter.results(make_run(with_failed=True), alter.noisy, where=lambda point: point.batch_size == 1)]
    return {
        "long names": long_named,
        "many points": [many, make_run(model_id="other")],
        "many devices": crowd,
        "trouble": [*troubled, make_run(model_id="other", family="decoder-only")],
        "every family": [
            make_run(model_id=alter.LONG_MODEL[: 20 + 8 * i], family=family) for i, family in enumerate(family_names())
        ],
        "one point": [make_run(model_id=m, batch_sizes=(1,), sequence_lengths=(32,)) for m in "ab"],
    }


@pytest.mark.parametrize(
    ("chart", "situation"),
    [
        ("hardware_comparison", "many devices"),
        ("hardware_comparison", "every family"),
        ("architecture_comparison", "every family"),
        ("latency_vs_batch_size", "every family"),
        *((chart, name) for chart in CHARTS for name in ("long names", "many points", "trouble", "one point")),
    ],
)
def test_nothing_is_clipped_and_no_two_parts_overlap(make_run, figures, alter, chart, situation):
    drawn = figures(chart, *situations(make_run, alter)[situation])
    assert drawn
    for figure in drawn:
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()
        page = figure.bbox
        texts = [text.get_window_extent(renderer) for text in figure.texts]
        legends = [legend.get_window_extent(renderer) for legend in figure.legends]
        panels = [Bbox.union([axes.get_tightbbox(renderer) for axes in figure.axes])]
        parts = [*texts, *legends, *panels]
        assert all(page.x0 <= part.x0 and part.x1 <= page.x1 for part in parts)
        assert all(page.y0 <= part.y0 and part.y1 <= page.y1 for part in parts)
        for index, part in enumerate(parts):
            assert not any(overlap(part, other) for other in parts[index + 1 :])
        assert_labels_apart(figure, renderer)


def overlap(one, other, tolerance_px=1.0):
    """Whether two boxes share more than a pixel's edge."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width > tolerance_px and height > tolerance_px


def assert_labels_apart(figure, renderer):
    for axes in figure.axes:
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            boxes = [label.get_window_extent(renderer) for label in labels if label.get_visible() and label.get_text()]
            boxes = [box for box in boxes if box.x1 > axes.get_tightbbox(renderer).x0 and box.width > 0]
            assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


@pytest.mark.parametrize("chart", CHARTS)
def test_every_chart_has_a_title_and_axes_labelled_with_their_units(make_run, figures, see, chart):
    for figure in figures(chart, make_run(), make_run(model_id="other")):
        assert see.texts(figure)[0] != ""
        labels = {axes.get_xlabel() for axes in figure.axes} | {axes.get_ylabel() for axes in figure.axes}
        quantities = labels - {""}
        assert quantities
        assert all(
            label.removesuffix("\nlower is better")
            .removesuffix("\nhigher is better")
            .endswith(("(ms)", "(MB)", "(inputs/s)", "(inputs per call)"))
            for label in quantities
        )
