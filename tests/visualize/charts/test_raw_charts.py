"""Charts of raw samples, memory, and series over time."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from benchmarking.core.doubts import KINDS
from benchmarking.core.metrics import CUSTOM_METRICS
from benchmarking.core.records import Samples
from visualize.drawing.figure import Figure, Line, Mark, NotDrawn, Panel
from visualize.drawing.picture import picture
from visualize.drawing.rows import Selection, charts
from visualize.drawing.scales import Axis, time_axis
from visualize.drawing.style import MARKERS


def samples(launch, metric, values, phase="measure", started_at="2026-01-02T03:04:06Z"):
    return Samples(
        launch=launch, phase=phase, metric=metric, unit="ms", started_at=started_at, values=tuple(map(float, values))
    )


@pytest.fixture
def one_point(make_run, alter):
    """A run at batch 1 and sequence 32 with the given samples."""

    def make(*raw, **facts):
        run = make_run(batch_sizes=(1,), sequence_lengths=(32,), **facts)
        return alter.results(run, lambda result: replace(result, samples=raw))

    return make


def test_each_launch_has_a_distribution_and_a_strip_of_samples(one_point, figures, see):
    run = one_point(samples(0, "latency_wall", (3, 1, 2, 2) * 2), samples(1, "latency_wall", (4, 4, 5, 5) * 2))
    (figure,) = figures("sample_distribution", run)
    ecdf, strip = figure.axes
    assert see.points(ecdf, "ecdf 0")[1::2] == [(1, 0.25), (2, 0.5), (2, 0.75), (3, 1)]
    assert see.points(strip, "valid launch 1")[:4] == [(0, 3), (1, 1), (2, 2), (3, 2)]
    assert [y for _, y in see.points(strip, "valid launch 2")] == [4, 4, 5, 5] * 2
    assert see.points(strip, "median 0") == [(0, 2), (7, 2)]
    assert see.legend(figure) == ["launch 1", "launch 2"]
    styles = [line.get_linestyle() for line in ecdf.lines]
    assert len(set(styles)) == 2, "a curve shows through the gaps of one that lies on it"
    assert see.texts(figure)[0] == "bert-base-uncased: medians of 2 launches differ by up to 76.9%"


def test_five_samples_have_no_distribution(one_point, outcomes):
    """Its curve would be five large steps."""
    (figure,) = outcomes("sample_distribution", one_point(samples(0, "latency_wall", (1, 2, 3, 4, 5))))
    (strip,) = figure.panels
    assert [one.y for one in strip.lines[0].marks] == [1, 2, 3, 4, 5]
    assert "too few samples for a distribution" in figure.caption[0]


def test_one_extreme_sample_leaves_the_curve_of_the_others_readable(one_point, outcomes):
    usual = [10 + place / 100 for place in range(100)]
    (figure,) = outcomes("sample_distribution", one_point(samples(0, "latency_wall", [*usual, 10_000.0])))
    curve, strip = figure.panels
    assert 8 < curve.x.low < 10 < 10.99 < curve.x.high < 13
    assert strip.y.is_log
    assert strip.y.high > 10_000
    assert "Beyond the axis of the curves: samples of 10,000 ms above." in figure.caption[1]
    (figure,) = outcomes("sample_distribution", one_point(samples(0, "latency_wall", [0.1, 0.2, *usual, 10_000.0])))
    both = "Beyond the axis of the curves: samples of 0.1 to 0.2 ms below and of 10,000 ms above."
    assert both in figure.caption[1], "not of 0.1 to 10,000 ms, among which are those that the axis shows"
    (figure,) = outcomes("sample_distribution", one_point(samples(0, "latency_wall", [*usual, 12.0])))
    assert figure.panels[0].x.high > 12
    assert not any("Beyond" in text for text in figure.caption)


def test_no_disturbance_is_lost_among_many_samples(one_point, outcomes):
    (figure,) = outcomes(
        "sample_distribution", one_point(samples(0, "latency_wall", [1.0] * 4000 + [9.0] + [1.0] * 99))
    )
    _, strip = figure.panels
    marks = strip.lines[0].marks
    assert len(marks) < 600
    assert [one.words for one in marks if one.high == 9.0] == ["samples 3996 to 4012"]
    assert {(one.low, one.y) for one in marks} == {(1.0, 1.0)}, "the median of a stretch, not its ends"
    assert "bars: lowest to highest of each 17 samples, with their median" in " ".join(figure.caption)


def test_compacted_samples_keep_their_distribution(one_point, rows_of, see):
    chart = charts()["sample_distribution"]
    (row,) = rows_of("sample_distribution", one_point(samples(0, "latency_wall", (1, 2, 3))))
    (drawing,) = chart.draw([{**row, "samples": [], "sketch": [1.0, 2.0, 9.0] * 3}])
    ecdf, strip = picture(drawing).axes
    assert [x for x, _ in see.points(ecdf, "ecdf 0")] == [1, 1, 1, 2, 2, 2, 9, 9, 9]
    assert [text.get_text() for text in strip.texts] == ["order not stored"]


def test_at_most_six_points_are_drawn_and_the_others_counted(make_run, figures, see):
    (figure,) = figures("sample_distribution", make_run(batch_sizes=tuple(range(1, 21))))
    assert len(figure.axes) == 12
    assert see.says(figure, "Left out: the 34 largest of 40 points; narrow the selection to see them.")


def test_the_timeline_shows_warm_up_timed_calls_and_doubts(one_point, figures, see, alter):
    warmup = samples(0, "latency_wall", (500, 250), "warmup", "2026-01-02T03:04:06Z")
    timed = samples(0, "latency_wall", (100, 100, 200), "measure", "2026-01-02T03:04:08Z")
    (figure,) = figures("launch_timeline", alter.results(one_point(warmup, timed, launches=1), alter.noisy))
    (axes,) = figure.axes
    assert see.points(axes, "doubtful warm-up") == [(0, 500), (0.5, 250)]
    assert see.points(axes, "valid timed") == [(2, 100), (2.1, 100), (2.2, 200)]
    assert see.texts(figure)[0] == "Calls over time: bert-base-uncased, batch 1, sequence 32 (doubtful)"
    assert KINDS["cpu_pressure"].sentence in see.texts(figure)
    assert see.says(figure, "Time starts at the first warm-up call")
    (bare,) = figures("launch_timeline", one_point(timed, launches=1))
    assert see.says(bare, "Time starts at the first timed call, without the gaps between calls")


def test_timelines_of_doubtful_results_come_first_and_the_rest_is_counted(make_run, outcomes, alter):
    run = make_run(batch_sizes=(1, 2, 3, 4))
    *drawn, rest = outcomes("launch_timeline", alter.results(run, alter.noisy, lambda point: point.batch_size == 4))
    assert [drawing.name_parts[4] for drawing in drawn[:2]] == ["b4", "b4"]
    assert (len(drawn), rest.what) == (6, "Calls over time of 2 more results")


def test_token_times_are_medians_by_position_over_all_calls(make_run, figures, see, alter):
    raw = (
        samples(0, "inter_token_latency", (1, 2, 3, 3, 2, 1)),
        samples(1, "inter_token_latency", (2, 2, 9)),
        samples(0, "time_to_first_token", (10, 20)),
    )
    run = make_run(model_id="gpt2", family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,), launches=2)
    (figure,) = figures("tokens_over_time", alter.results(run, lambda result: replace(result, samples=raw)))
    gaps, arrivals = figure.axes
    name = "batch 1, sequence 32"
    assert see.points(gaps, f"valid {name}") == [(2, 2), (3, 2), (4, 3)]
    assert see.points(arrivals, f"line {name}") == [(1, 15), (2, 17), (3, 19), (4, 22)]


def test_memory_phases_and_device_utilization_are_drawn(make_run, figures, outcomes, see, alter):
    read = alter.metrics(
        memory_rss_base_mb=200.0, memory_peak_rss_load_mb=600.0, utilization_mean_percent=40.0,
        utilization_max_percent=90.0,
    )  # fmt: skip
    run = alter.results(make_run(batch_sizes=(1,), sequence_lengths=(32,)), read)
    (figure,) = figures("memory_phases", alter.results(run, alter.noisy))
    memory, use = figure.axes
    name = "batch 1, sequence 32"
    assert see.points(memory, f"doubtful {name}") == [(0, 200), (1, 600), (2, 910)]
    assert [label.get_text() for label in memory.get_xticklabels()] == [
        "before\nloading", "peak while\nloading", "peak while\ninferring"
    ]  # fmt: skip
    assert see.points(use, f"doubtful {name}") == [(0, 40), (1, 90)]
    assert use.get_ylabel() == "Device utilization (%)"
    assert see.texts(figure)[0] == "Memory by phase: bert-base-uncased", "doubtful results support no finding"
    (drawn,) = outcomes("memory_phases", run)
    _, rows = drawn.table()
    assert {"before loading", "peak while loading"} < {cell for row in rows for cell in row}, "lines are of the drawing"
    (figure,) = figures("memory_phases", run)
    assert see.texts(figure)[0] == "bert-base-uncased: memory peaks at 910 MB at batch 1, sequence 32"


def test_a_chart_of_memory_has_memory(make_run, outcomes, alter):
    use = alter.metrics(utilization_mean_percent=40.0, utilization_max_percent=90.0)
    gone = {"memory_peak_rss_infer_mb": None, "memory_rss_mean_mb": None}
    run = alter.results(make_run(batch_sizes=(1,), sequence_lengths=(32,)), use)
    bare = [replace(one, metrics={k: v for k, v in one.metrics.items() if k not in gone}) for one in run.results]
    (outcome,) = outcomes("memory_phases", replace(run, results=tuple(bare)))
    assert outcome.why == "no memory readings of two phases"


def test_memory_phases_need_two_readings(make_run, outcomes):
    (outcome,) = outcomes("memory_phases", make_run())
    assert isinstance(outcome, NotDrawn)
    assert outcome.why == "no memory readings of two phases"


def test_device_utilization_over_time_has_one_line_per_launch(one_point, outcomes, alter):
    def read(launch):
        series = {"monitor_time": (0, 100, 200), "utilization": (50, 90 - launch, 70), "memory_resident": (9, 8, 8)}
        return [samples(launch, metric, values) for metric, values in series.items()]

    run = one_point(*read(0), *read(1), samples(1, "power", (5, 6)))
    (figure,) = outcomes("use_over_time", alter.results(run, alter.noisy))
    use, memory = figure.panels
    name = "batch 1, sequence 32"
    assert [line.marks for line in use.lines][1] == tuple(
        Mark(x=x, y=y, words="launch 2") for x, y in [(0, 50), (0.1, 89), (0.2, 70)]
    )
    assert [(one.x, one.y) for one in memory.lines[0].marks] == [(0, 9), (0.1, 8), (0.2, 8)]
    assert [panel.y.title for panel in figure.panels] == ["Device\nutilization (%)", "Memory of the\nprocess (MB)"]
    assert [one.label for one in figure.legend] == [f"{name} (doubtful)"]
    (figure,) = outcomes("use_over_time", alter.results(run, alter.invalid))
    assert [one.label for one in figure.legend] == [f"{name} (invalid)"]
    assert all(len(line.joined) == 3 for line in figure.panels[0].lines), "its readings are not wrong, and stay a line"


@pytest.fixture
def months(make_run, alter):
    """24 runs of a series, three days apart: 8 ms within 0.4 %, and 12 % more from the 13th on, with another torch."""

    def run(number):
        time = (datetime(2026, 1, 3, tzinfo=UTC) + timedelta(days=3 * number)).strftime("%Y-%m-%dT%H:%M:%SZ")
        slowdown = (1.0 if number < 12 else 1.12) * (1 + 0.001 * (number * 7 % 5))
        one = make_run(batch_sizes=(1,), sequence_lengths=(32,), slowdown=slowdown, started_at=time)
        versions = {"torch": "2.13.0" if number < 12 else "2.14.0"}
        provenance = replace(one.provenance, git_commit=f"{number:040x}", git_commit_time=time, versions=versions)
        return replace(one, provenance=provenance)

    runs = [run(number) for number in range(24)]
    runs[7] = alter.results(runs[7], alter.noisy)
    runs[15] = alter.results(runs[15], alter.invalid)
    return runs


def test_a_trend_shows_levels_changes_and_versions(months, figures, see):
    (figure,) = figures("temporal_trend", *months)
    (axes,) = figure.axes
    assert [len(see.points(axes, state)) for state in ("valid", "doubtful", "invalid", "crossed")] == [
        22,
        1,
        1,
        1,
    ]
    before, after = (see.points(axes, f"level {number}") for number in (0, 1))
    assert before[0][1] == pytest.approx(8.016, abs=0.01)
    assert after[0][1] == pytest.approx(8.016 * 1.12, rel=0.002)
    (change,) = [line.get_xdata()[0] for line in axes.lines if str(line.get_label()).startswith("_change")]
    assert change == pytest.approx(after[0][0])
    (size,) = [text for text in axes.texts if text.get_text().startswith("+1")]
    highest = max(y for state in ("valid", "doubtful", "invalid") for _, y in see.points(axes, state))
    low, high = axes.get_ylim()
    assert size.xy[1] > (highest - low) / (high - low) + 0.05, "above all points"
    assert see.says(figure, "Marks: 1: torch 2.13.0 to 2.14.0.")
    title = see.texts(figure)[0]
    assert re.fullmatch(r"bert-base-uncased: latency per call rose by 1\d\.\d% on 2026-02-08", title)
    assert axes.get_ylabel() == "Latency per call, median (ms)\nlower is better"


def test_a_trend_of_one_commit_has_the_times_of_its_runs_everywhere(months, outcomes):
    def at_one_commit(run):
        provenance = replace(run.provenance, git_commit="a" * 40, git_commit_time="2025-06-01T00:00:00Z")
        return replace(run, provenance=provenance)

    (figure,) = outcomes("temporal_trend", *map(at_one_commit, months))
    assert figure.title.endswith(" on 2026-02-08")
    assert "by run time if there is no commit or only one" in figure.subtitle
    (runs,) = [line for line in figure.panels[0].lines if line.role == "run"]
    assert runs.marks[0].words.startswith("2026-01-03 00:00, commit aaaaaaaaaa")


def test_the_panels_of_machines_with_the_same_name_have_their_hardware(make_run, outcomes, alter):
    days = [f"2026-03-0{day}T12:00:00Z" for day in (1, 2)]
    runs = [make_run(batch_sizes=(1,), sequence_lengths=(32,), started_at=at) for at in days]
    others = [alter.on_device(alter.renewed(run), run.cell.device.name, "cpu:1") for run in runs]
    others = [replace(other, cell=run.cell) for other, run in zip(others, runs, strict=True)]
    (figure,) = outcomes("temporal_trend", *runs, *others)
    titles = {panel.title.replace("\N{NO-BREAK SPACE}", " ").rpartition(", ")[2] for panel in figure.panels}
    assert titles == {f"hardware {run.hardware.hardware_id[:8]}" for run in (runs[0], others[0])}


def test_the_runs_of_a_trend_are_circles_on_every_device(make_run, outcomes):
    """The mark of the eleventh device, a star, looks full where it is hollow."""
    days = [f"2026-03-0{day}T12:00:00Z" for day in (1, 2)]
    drawn = outcomes("temporal_trend", *(make_run(device=one, started_at=at) for one in ("cpu", "cuda") for at in days))
    runs = [line for figure in drawn for panel in figure.panels for line in panel.lines if line.role == "run"]
    assert {line.shape for line in runs} == {0}
    assert len({line.colour for line in runs}) == 2


def test_the_series_of_a_trend_are_in_the_order_of_their_points(make_run, outcomes):
    times = (f"2026-03-0{day}T12:00:00Z" for day in (1, 2))
    (figure,) = outcomes("temporal_trend", *(make_run(batch_sizes=(16, 1, 4, 2), started_at=at) for at in times))
    points = [panel.title.replace("\N{NO-BREAK SPACE}", " ").partition(": ")[2] for panel in figure.panels]
    assert points == [f"batch {size}, sequence {length}" for length in (32, 128) for size in (1, 2, 4, 16)]


def test_too_few_runs_to_detect_a_change_and_a_slow_trend_are_no_unchanged_level(months, make_run, figures, see):
    (short,) = figures("temporal_trend", *months[:3])
    assert see.says(short, "Too few runs to detect a change: 4 are needed")
    assert not [line for line in short.axes[0].lines if line.get_label().startswith("_level")], "it would look found"
    (long,) = figures("temporal_trend", *months[:7])
    assert see.says(long, "Line: median level; no lasting change detected")

    def leaking(number):
        time = (datetime(2026, 1, 3, tzinfo=UTC) + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
        slowdown = 1.004**number * (1 + 0.001 * (number * 7 % 5))
        return make_run(batch_sizes=(1,), sequence_lengths=(32,), slowdown=slowdown, started_at=time)

    (rising,) = figures("temporal_trend", *map(leaking, range(30)))
    assert see.says(rising, "Slow trend, for which no single run is to blame: +0.4")
    assert re.match(r"bert-base-uncased: latency per call rises slowly, by 1\d\.\d% over 30 runs", see.texts(rising)[0])


@pytest.mark.parametrize("seconds", [2.7, 160, 174 * 60, 69 * 3600, 24 * 86400, 1100 * 86400])
def test_the_times_of_a_trend_have_two_to_eight_labels(seconds):
    start = datetime(2026, 1, 3, 4, 5, 6, tzinfo=UTC).timestamp()
    axis = time_axis([start, start + seconds])
    assert 2 <= len(axis.ticks) <= 8
    assert all(axis.low <= at <= axis.high for at, _ in axis.ticks)
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)


def test_a_new_day_is_named_among_times_of_day():
    start = datetime(2026, 9, 1, 10, tzinfo=UTC).timestamp()
    labels = [text for _, text in time_axis([start, start + 86400]).ticks]
    assert labels == ["2026-09-01 12:00", "18:00", "09-02", "06:00"]


def test_the_first_label_of_a_time_axis_says_the_year_and_the_day():
    start = datetime(2026, 9, 1, 10, tzinfo=UTC).timestamp()
    for seconds, label in ((3, "2026-09-01 10:00:00"), (3600, "2026-09-01 10:00"), (9 * 86400, "2026-09-02")):
        assert time_axis([start, start + seconds]).ticks[0][1] == label
    assert time_axis([start + 0.3, start + 0.7]).ticks == ((start + 0.3, "2026-09-01 10:00:00"),)


def test_trend_levels_and_changes_equal_those_of_the_history(months, rows_of):
    rows = rows_of("temporal_trend", *months)
    assert [row["segment"] for row in rows] == [0] * 12 + [1] * 3 + [None] + [1] * 8
    (changed,) = [row for row in rows if row["change"] is not None]
    assert (changed["git_commit"], changed["change_state"]) == (f"{12:040x}", "confirmed")
    assert len(changed) < 60, "not every column of the results is read"
    assert changed["change"] == pytest.approx(0.12, abs=0.005)


def test_a_trend_of_another_metric_has_its_title_and_unit(months, outcomes, see):
    (drawing,) = outcomes("temporal_trend", *months, metric="throughput_samples_per_sec")
    (axes,) = picture(drawing).axes
    assert axes.get_ylabel() == "Throughput (items/s)\nhigher is better"
    assert see.points(axes, "level 0")[0][1] == pytest.approx(1000 / 8.016, rel=0.01)
    assert see.texts(picture(drawing))[0].startswith("bert-base-uncased: throughput fell by 10.")
    assert drawing.name_parts == ("bert-base-uncased", "throughput_samples_per_sec")
    (lacking,) = outcomes("temporal_trend", months[0], metric="load_time_s")
    assert (lacking.what, lacking.why) == (
        "Load time over time: bert-base-uncased", "every series has a single run"
    )  # fmt: skip


def test_user_notes_are_marked_and_explained(months, rows_of, shared_warehouse, see):
    chart = charts()["temporal_trend"]
    rows_of("temporal_trend", *months)
    shared_warehouse.query("DELETE FROM annotations")
    shared_warehouse.query(
        "INSERT INTO annotations VALUES ('a', 'run', $run, 'me', 'the fan was replaced', TIMESTAMP '2026-02-01')",
        {"run": months[5].run_id},
    )
    (drawing,) = chart.draw(chart.rows(shared_warehouse, Selection()))
    shared_warehouse.query("DELETE FROM annotations")
    assert see.says(picture(drawing), "Marks: 1: torch 2.13.0 to 2.14.0; A: the fan was replaced.")


def test_a_trend_says_which_points_are_not_judged_and_which_runs_are_not_drawn(months, alter, outcomes):
    """A metric of the user's may be 0 or less, of which there is no share."""

    def counting(number, run):
        errors = 0.0 if number < 6 else 5.0
        about = {CUSTOM_METRICS: {"errs": {"unit": "", "better": "lower"}}}
        added = {"metrics": {**run.results[0].metrics, "errs": errors}, "extra": {**run.results[0].extra, **about}}
        return alter.results(run, lambda result: replace(result, **added))

    runs = [counting(number, run) for number, run in enumerate(months[:12])]
    runs[3] = alter.results(runs[3], alter.failed)
    (figure,) = outcomes("temporal_trend", *runs, metric="errs")
    assert figure.notes[1].endswith("; not judged: 5 of 11 points, not above 0; not drawn: 1 failed.")
    assert "no lasting change detected among the points that are judged" in figure.notes[0]


def test_the_title_of_a_trend_counts_all_series(make_run, outcomes):
    """Not only those that have a panel."""
    times = [f"2026-03-{day:02}T12:00:00Z" for day in range(1, 13)]
    sizes = tuple(2**power for power in range(8))
    runs = [
        make_run(batch_sizes=sizes, slowdown=1.5 if place > 5 else 1.0 + 0.001 * (place % 3), started_at=at)
        for place, at in enumerate(times)
    ]
    (figure,) = outcomes("temporal_trend", *runs)
    assert len(figure.panels) == 12
    assert figure.title.endswith(" changed in 16 of 16 series")


def test_runs_of_one_moment_are_no_trend(make_run, alter, outcomes):
    """Such as the files of another tool that state no time."""
    (outcome,) = outcomes("temporal_trend", make_run(), alter.renewed(make_run(slowdown=2.0)))
    assert outcome.why == "all runs of a series have the same time"


def test_series_that_differ_only_in_their_settings_have_different_titles(months, alter, outcomes):
    others = [alter.renewed(alter.mode(run, attention="eager")) for run in months[:4]]
    (figure,) = outcomes("temporal_trend", *months[:4], *others)
    titles = [panel.title.replace("\N{NO-BREAK SPACE}", " ").rpartition(", ")[2] for panel in figure.panels]
    assert sorted(titles) == ["attention=eager", "attention=sdpa"]


def test_hollow_stars_are_hollow():
    """Arms as narrow as the edge of a small star would be filled by it."""
    star, circle = (
        Line(label=name, marks=(Mark(x=0.5, y=0.5, state="doubtful"),), shape=MARKERS.index(name)) for name in "*o"
    )
    (axes,) = picture(Figure(title="", panels=(Panel(x=Axis(), y=Axis(), elements=(star, circle)),))).axes
    sizes = [marks.get_sizes()[0] for marks in axes.collections]
    assert sizes[0] > 3 * sizes[1]


def test_a_trend_needs_two_runs_and_follows_the_selection(make_run, months, outcomes, rows_of):
    (outcome,) = outcomes("temporal_trend", make_run())
    assert outcome.why == "every series has a single run"
    ids = tuple(run.results[0].result_id for run in months[:5])
    assert len(rows_of("temporal_trend", *months, results=ids)) == 5
    assert rows_of("temporal_trend", *months, runtime="openvino") == []
