"""Layout of figures: no text is clipped or overlaps, whatever the length of names."""

from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.transforms import Bbox

from benchmarking.core.plugins import family_names
from benchmarking.core.quality import Quality, QualityValue
from benchmarking.core.records import Samples
from visualize.drawing.figure import Figure as Drawing
from visualize.drawing.figure import Panel, end_notes, spaced
from visualize.drawing.picture import picture, wrap
from visualize.drawing.rows import charts
from visualize.drawing.scales import Axis, value_axis

TIME = "2026-01-02T03:04:06Z"


def test_text_that_fits_stays_on_one_line():
    assert wrap("short enough", 9, 4.0) == "short enough"


def test_long_text_breaks_after_spaces():
    text = "one two three four five six seven eight nine ten"
    wrapped = wrap(text, 9, 1.0)
    assert wrapped.count("\n") > 2
    assert wrapped.replace("\n", " ") == text


def test_a_number_stays_with_its_unit_and_its_name():
    assert wrap("cpu · onnxruntime · 1 thread", 9, 1.65) == "cpu · onnxruntime ·\n1 thread"
    assert wrap("at batch 2, sequence 16, 8 new tokens", 9, 1.3) == "at batch 2,\nsequence 16, 8 new\ntokens"


def test_long_names_break_after_separators():
    wrapped = wrap("organisation/model-name-that-goes-on-and-on-v2.5", 9, 2.0)
    assert wrapped.replace("\n", "") == "organisation/model-name-that-goes-on-and-on-v2.5"
    assert all(line[-1] in "/-_." for line in wrapped.split("\n")[:-1])


def test_a_word_without_separators_breaks_anywhere():
    wrapped = wrap("b" * 100, 9, 1.0)
    assert wrapped.replace("\n", "") == "b" * 100
    assert len({len(line) for line in wrapped.split("\n")[:-1]}) == 1


def test_the_last_line_is_never_one_short_word():
    assert wrap("one two three four 16", 9, 1.2).split("\n")[-1] == "four 16"


def test_names_at_line_ends_are_moved_up_to_avoid_overlap():
    first, second = end_notes(Axis(), [(1, 0.5, "first"), (1, 0.51, "second")], 3.5)
    assert (first.text, first.y) == ("first", 0.5)
    assert second.y - first.y == pytest.approx(0.04)
    notes = end_notes(Axis(), [(1, 0.99, name) for name in "abc"], 3.5)
    assert [note.y for note in notes] == pytest.approx([0.92, 0.96, 1.0]), "inside the panel"


def test_only_the_first_of_overlapping_labels_is_kept():
    places = [(0.1, 0.5), (0.11, 0.5), (0.11, 0.9), (0.9, 0.5)]
    assert spaced(places, Axis(), Axis(), 0.2, 0.1) == [0, 2, 3]
    assert spaced([], Axis(), Axis(), 0.2, 0.1) == []


def test_ticks_of_a_narrow_panel_are_thinned_out():
    """Labels such as 1,980 1,990 2,000 would be one."""
    axis = value_axis("Latency per sample (ms)", [0.0, 70_000.0])
    panels = tuple(Panel(x=axis, y=Axis(), elements=()) for _ in range(3))
    wide, narrow = (
        picture(Drawing(title="t", panels=panels, columns=3, width_in=width)).axes[0].get_xticks() for width in (24, 7)
    )
    assert list(narrow) == list(wide)[::2]


def test_a_width_of_zero_gives_one_character_per_line():
    assert wrap("abc", 9, 0.0) == "a\nb\nc"


def every_setup(make_run, alter):
    """A generative model with a long name, run in enough setups to give every chart data."""

    def complete(result):
        metrics = ("latency_wall", "inter_token_latency", "time_to_first_token", "monitor_time", "utilization", "power")
        raw = tuple(
            Samples(launch=launch, phase="measure", metric=metric, unit="ms", started_at=TIME, values=values)
            for launch in range(3)
            for metric, values in zip(
                metrics, ((3.0, 4.0), (1.0, 2.0, 3.0) * 2, (5.0, 6.0), *((1.0, 200.0),) * 3), strict=True
            )
        )
        read = {"memory_rss_base_mb": 100.0, "energy_gpu_j_per_call": 3.0, "output_error": 0.01}
        return replace(result, samples=raw, metrics={**result.metrics, **read})

    base = {"model_id": alter.LONG_MODEL, "family": "decoder-only"}
    runs = [make_run(**base, runtime=runtime) for runtime in ("eager", "openvino")]
    runs += [
        alter.renewed(replace(run, cell=replace(run.cell, num_threads=threads)))
        for threads in (1, 2)
        for run in [make_run(**base, slowdown=2.0 / threads)]
    ]
    runs.append(alter.on_device(make_run(**base, device="cuda", slowdown=0.5), alter.LONG_DEVICE, "cuda:0"))
    again = [replace(alter.renewed(run), started_at=f"2026-0{3 + i}-01T00:00:00Z") for i, run in enumerate(runs)]
    again[0] = alter.results(again[0], alter.noisy)
    for which in (1, -1):
        again[which] = alter.results(again[which], alter.invalid, where=lambda point: point.batch_size == 1)
    again[-1] = alter.results(again[-1], alter.noisy, where=lambda point: point.batch_size == 2)
    every = [alter.results(run, complete) for run in (*runs, *again)]
    values = (QualityValue(value=0.001 * (1 + i)) for i in range(len(every)))
    return [replace(run, quality=Quality(inputs="i", values={"kl_divergence": next(values)})) for run in every]


def every_family(make_run, alter):
    return [make_run(model_id=alter.LONG_MODEL[: 20 + 8 * i], family=family) for i, family in enumerate(family_names())]


def failed_and_doubtful(make_run, alter):
    troubled = alter.results(make_run(with_failed=True), alter.noisy, where=lambda point: point.batch_size == 1)
    return [troubled, make_run(model_id="other", family="decoder-only")]


def long_names(make_run, alter):
    names = (alter.LONG_MODEL, alter.UNBREAKABLE_MODEL)
    devices = (alter.LONG_DEVICE, f"{alter.LONG_DEVICE} 2")
    return [alter.on_device(make_run(model_id=name), device, "cuda:0") for name in names for device in devices]


def many_points(make_run, alter):
    many = make_run(batch_sizes=tuple(2**p for p in range(12)), sequence_lengths=tuple(range(64, 900, 64)))
    return [many, alter.renewed(alter.on_device(many, "Other")), make_run(model_id="other")]


def one_point(make_run, alter):
    runs = [make_run(model_id=model, batch_sizes=(1,), sequence_lengths=(32,)) for model in "aabb"]
    return [alter.on_device(run, "Other") if place % 2 else run for place, run in enumerate(runs)]


BATCH = "latency_vs_batch_size"
"""Represents all charts that share its code."""
COMPARED = ("hardware_comparison", "architecture_comparison")
OF_A_CELL = (
    *("batch_sequence_heatmap", "energy_per_input", "launch_timeline", "memory_phases", "sample_distribution"),
    *("time_to_first_token", "time_per_output_token", "tokens_over_time", "use_over_time"),
)
OF_PROFILES = ("flame_graph", "layer_times")
OF_LOADS = ("load_frontier", "load_latency", "request_timeline")
"""These need profiles or load tests; test_profile_charts.py and test_load_charts.py draw them."""
OTHERS = tuple(
    name
    for name in charts()
    if name
    not in (BATCH, "throughput_vs_batch_size", "memory_vs_batch_size", *COMPARED, *OF_A_CELL, *OF_PROFILES, *OF_LOADS)
)
SITUATIONS = {
    "every setup": (every_setup, OTHERS, {}),
    "every setup, one cell": (every_setup, OF_A_CELL, {"device": "cuda:0"}),
    "many devices": (
        lambda make_run, alter: [alter.on_device(make_run(), f"{alter.LONG_DEVICE} {i}") for i in range(9)],
        ("hardware_comparison",),
        {},
    ),
    "every family": (every_family, (BATCH, "architecture_comparison"), {}),
    "long names": (long_names, (BATCH, "throughput_vs_batch_size", "memory_vs_batch_size", *COMPARED), {}),
    "many points": (many_points, (BATCH, *COMPARED), {}),
    "failed and doubtful": (failed_and_doubtful, (BATCH, "memory_vs_batch_size", "architecture_comparison"), {}),
    "one point": (one_point, COMPARED, {}),
}
"""Runs that are hard to lay out, with the charts to draw and the selection."""
MOST_FIGURES = 2
"""Figures checked per chart: those with the most text."""


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_is_clipped_and_nothing_overlaps(make_run, charts_of, alter, see, situation):
    runs, names, selection = SITUATIONS[situation]
    draw = charts_of(*runs(make_run, alter), **selection)
    for chart in names:
        drawn = [picture(outcome) for outcome in draw(chart) if isinstance(outcome, Drawing)]
        assert drawn or chart == "roofline", "roofline needs a calibrated device and has its own test"
        for figure in sorted(drawn, key=lambda figure: -len("".join(see.texts(figure))))[:MOST_FIGURES]:
            assert troubles(figure) == [], chart
            if situation == "one point":
                assert_titled_with_units(figure, see)


def troubles(figure):
    """Clipped and overlapping parts of a figure."""
    figure.draw_without_rendering()
    renderer, page = figure.canvas.get_renderer(), figure.bbox
    inside = [axes.get_tightbbox(renderer) for axes in figure.axes]
    parts = [(text.get_text(), text.get_window_extent(renderer)) for text in figure.texts]
    parts += [("legend", legend.get_window_extent(renderer)) for legend in figure.legends]
    parts.append(("panels", Bbox.union(inside)))
    found = [
        f"{name!r} is clipped"
        for name, part in parts
        if not (page.x0 <= part.x0 and part.x1 <= page.x1 and page.y0 <= part.y0 and part.y1 <= page.y1)
    ]
    found += overlaps(parts)
    for axes, box in zip(figure.axes, inside, strict=True):
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            visible = [label for label in labels if label.get_visible() and label.get_text()]
            shown = [(label.get_text(), label.get_window_extent(renderer)) for label in visible]
            found += overlaps([(name, at) for name, at in shown if at.x1 > box.x0 and at.width > 0])
    return found


def overlaps(parts):
    """Overlapping pairs of parts (name, box)."""
    return [f"{a!r} and {b!r} overlap" for (a, one), (b, other) in combinations(parts, 2) if overlap(one, other)]


def overlap(one, other, tolerance_px=1.0):
    """Whether two boxes overlap by more than a pixel."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width > tolerance_px and height > tolerance_px


def assert_titled_with_units(figure, see):
    assert see.texts(figure)[0] != ""
    quantities = {axes.get_xlabel() for axes in figure.axes} | {axes.get_ylabel() for axes in figure.axes}
    assert quantities - {""}
    assert all(
        label.removesuffix("\nlower is better")
        .removesuffix("\nhigher is better")
        .endswith(("(ms)", "(MB)", "(inputs/s)", "(inputs per call)"))
        for label in quantities - {""}
    )
