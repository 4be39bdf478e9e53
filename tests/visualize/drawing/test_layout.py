"""Nothing is clipped and nothing overlaps, for names of any length."""

from dataclasses import replace

import pytest
from matplotlib.transforms import Bbox

from benchmarking.core import plugins
from benchmarking.core.plugins import family_names
from benchmarking.core.records import Samples
from visualize.drawing.layout import wrap
from visualize.drawing.rows import PACKAGE

TIME = "2026-01-02T03:04:06Z"

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


def every_way(make_run, alter):
    """A generating model with a long name, run so often and in so many ways that every chart has something to draw."""

    def complete(result):
        raw = tuple(
            Samples(launch=launch, phase="measure", metric=metric, unit="ms", started_at=TIME, values=values)
            for launch in range(3)
            for metric, values in (
                ("latency_wall", (3.0, 4.0)),
                ("inter_token_latency", (1.0, 2.0, 3.0) * 2),
                ("time_to_first_token", (5.0, 6.0)),
            )
        )
        read = {"memory_rss_base_mb": 100.0, "energy_gpu_j_per_call": 3.0, "output_error": 0.01}
        return replace(result, samples=raw, metrics={**result.metrics, **read})

    base = {"model_id": alter.LONG_MODEL, "family": "decoder-only"}
    runs = [make_run(**base, runtime=runtime) for runtime in ("eager", "openvino", "onnxruntime")]
    runs.append(alter.on_device(make_run(**base, device="cuda", slowdown=0.5), alter.LONG_DEVICE, "cuda:0"))
    runs += [
        alter.renewed(replace(run, cell=replace(run.cell, num_threads=threads)))
        for threads in (1, 2)
        for run in [make_run(**base, slowdown=2.0 / threads)]
    ]
    again = [replace(alter.renewed(run), started_at=f"2026-0{3 + i}-01T00:00:00Z") for i, run in enumerate(runs)]
    again[0] = alter.results(again[0], alter.noisy)
    again[1] = alter.results(again[1], alter.invalid, where=lambda point: point.batch_size == 1)
    return [alter.results(run, complete) for run in (*runs, *again)]


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
        "every way": every_way(make_run, alter),
        "one point": [make_run(model_id=m, batch_sizes=(1,), sequence_lengths=(32,)) for m in "ab"],
    }


NEWER = tuple(name for name in plugins.names(PACKAGE) if name not in CHARTS)


@pytest.mark.parametrize(
    ("chart", "situation"),
    [
        *((chart, "every way") for chart in NEWER),
        ("hardware_comparison", "many devices"),
        ("hardware_comparison", "every family"),
        ("architecture_comparison", "every family"),
        ("latency_vs_batch_size", "every family"),
        *((chart, name) for chart in CHARTS for name in ("long names", "many points", "trouble", "one point")),
    ],
)
def test_nothing_is_clipped_and_no_two_parts_overlap(make_run, figures, alter, chart, situation):
    drawn = figures(chart, *situations(make_run, alter)[situation])
    assert drawn or chart == "roofline", "that needs a calibrated device, and has a test of its own"
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
