"""Charts that compare configurations: Pareto front, hardware speedup, runtime and precision, scaling."""

from dataclasses import replace

import pytest

from benchmarking.core.quality import Quality, QualityValue
from visualize.charts.tradeoffs import EQUAL
from visualize.drawing.configurations import APART
from visualize.drawing.figure import NotDrawn

CPU, CARD = "Test CPU (cpu)", "Card (cuda:0)"
ONE_COMMAND = {"session_id": "1" * 8 + "-1111-7111-8111-111111111111"}


@pytest.fixture
def at_128(make_run, alter):
    """Runs at batch 1 and 4 of one sequence length: 32 and 128 ms times the slowdown, measured by one command."""
    points = {"batch_sizes": (1, 4), "sequence_lengths": (128,), **ONE_COMMAND}
    return lambda **facts: alter.varied(make_run(**{**points, **facts}))


@pytest.fixture
def on_card(at_128, alter):
    return lambda **facts: alter.on_device(at_128(device="cuda", **facts), "Card", "cuda:0")


def test_the_front_has_lower_latency_or_higher_throughput_than_all_others(at_128, figures, see, alter):
    quicker = alter.results(at_128(runtime="onnxruntime", slowdown=0.5), alter.metrics(throughput_samples_per_sec=10.0))
    (figure,) = figures("pareto_front", at_128(), quicker)
    (axes,) = figure.axes
    assert see.points(axes, f"valid {CPU} · eager · float32") == [(32, 31.25), (128, 31.25)]
    assert see.points(axes, f"valid {CPU} · onnxruntime · float32") == [(16, 10), (64, 10)]
    assert see.points(axes, "front") == [(16, 10), (32, 31.25)]
    assert {text.get_text() for text in axes.texts} == {"batch 1"}


def test_invalid_and_simulated_results_are_never_on_the_front(at_128, figures, see, alter):
    wrong = alter.results(at_128(runtime="openvino", slowdown=0.1), alter.invalid)
    (figure,) = figures("pareto_front", at_128(), wrong)
    (axes,) = figure.axes
    name = f"{CPU} · openvino · float32"
    assert see.points(axes, f"crossed {name}") == see.points(axes, f"invalid {name}") == [(3.2, 312.5), (12.8, 312.5)]
    assert see.points(axes, "front") == [(32, 31.25)]


def test_the_front_and_the_fastest_configurations_are_drawn_and_the_rest_counted(on_card, figures, see, alter):
    runs = [alter.on_device(on_card(slowdown=1.0 + i), f"Card {i}", "cuda:0") for i in range(15)]
    runs.append(alter.results(on_card(slowdown=99.0), alter.metrics(throughput_samples_per_sec=1e6)))
    (figure,) = figures("pareto_front", *runs)
    assert see.says(
        figure,
        "Left out: 4 of 16 configurations, keeping the fastest of each device; narrow the selection to see more.",
    )
    assert "Card (cuda:0) · eager · float32" in see.legend(figure), "slowest, but with the best throughput"
    assert len(see.legend(figure)) == 12


def test_speedups_are_over_the_best_configuration_of_the_slowest_device(at_128, on_card, figures, see):
    (figure,) = figures("hardware_speedup", at_128(), at_128(runtime="openvino", slowdown=0.5), on_card(slowdown=0.125))
    first, second = figure.axes
    name = f"{CARD} · eager · float32"
    assert see.points(first, f"valid {name}") == [(4, 0)]
    assert see.points(first, f"valid {CPU} · eager · float32") == [(0.5, 2)]
    (start, _), (end, _) = see.points(first, f"interval {name}")
    assert start < 4 < end
    assert see.title(second) == "batch 4"
    assert see.texts(figure)[0] == f"bert-base-uncased: {CARD} is 4 times as fast as {CPU} at batch 1"
    assert see.says(figure, f"Baseline: {CPU} · openvino · float32, the best configuration of its device.")


def test_a_title_tells_a_device_from_another_of_its_name_in_the_picture(at_128, on_card, outcomes):
    fast, slow = on_card(slowdown=0.125), on_card(slowdown=0.25)
    slow = replace(slow, hardware=replace(slow.hardware, hardware_id="f" * 16))
    (figure,) = outcomes("hardware_speedup", at_128(), fast, slow)
    assert figure.title.startswith(f"bert-base-uncased: {CARD}, hardware {fast.hardware.hardware_id[:8]} is ")
    assert f" as fast as {CPU} at batch 1" in figure.title


def test_at_most_24_configurations_have_a_row_the_fastest_of_each_device_first(at_128, on_card, figures, see):
    cards = [on_card(batch_sizes=(1,), runtime=f"r{i}", slowdown=0.05 + 0.001 * i) for i in range(30)]
    slow = [at_128(batch_sizes=(1,), runtime=f"r{i}", slowdown=1.0 + 0.1 * i) for i in range(10)]
    (figure,) = figures("hardware_speedup", *cards, *slow)
    rows = [text.get_text().replace("\n", " ") for text in figure.axes[0].get_yticklabels()]
    assert (len(rows), sum(row.startswith(CPU) for row in rows)) == (24, 10)
    assert figure.axes[0].get_xscale() == "log", "a factor of 10 or more between the slowest and the fastest"
    assert figure.get_size_inches()[1] < 14
    assert see.says(figure, "Left out: 16 of 40 configurations, keeping the fastest of each device")


def test_the_speed_of_a_simulated_device_is_compared_with_nothing(at_128, on_card, outcomes, alter):
    emulator = alter.on_device(at_128(device="qnn", slowdown=0.125), "Emulator", "qnn", simulated=True)
    assert outcomes("hardware_speedup", at_128(), emulator) == []
    (figure,) = outcomes("hardware_speedup", at_128(), on_card(slowdown=0.125), emulator)
    assert not [one for one in figure.panels[0].lines if "simulated" in one.label]
    assert "Simulated devices are left out." in " ".join(figure.caption)


def test_a_wide_interval_does_not_hide_the_values(at_128, on_card, figures, see, alter):
    wide = alter.metrics(latency_ci_low_ms=0.01, latency_ci_high_ms=2000.0)
    apart = {"session_id": "2" * 8 + "-1111-7111-8111-111111111111"}
    for chart, runs in {
        "hardware_speedup": (at_128(slowdown=0.5), alter.results(on_card(slowdown=0.5, **apart), wide)),
        "runtime_comparison": (at_128(), alter.results(at_128(runtime="openvino", slowdown=0.5, **apart), wide)),
        "scaling": (threads(at_128(), 1), threads(alter.results(at_128(slowdown=0.5, **apart), wide), 2)),
    }.items():
        (figure,) = figures(chart, *runs)
        limits = figure.axes[0].get_ylim() if chart == "scaling" else figure.axes[0].get_xlim()
        assert limits[1] < 10, chart
        assert see.says(figure, "Intervals are cut off at the edge"), chart


def test_the_baseline_can_be_chosen(at_128, on_card, figures, see):
    (figure,) = figures("hardware_speedup", at_128(), on_card(slowdown=0.125), baseline="cuda")
    assert see.points(figure.axes[0], f"valid {CPU} · eager · float32") == [(0.125, 1)]
    assert see.says(figure, f"Baseline: {CARD} · eager · float32, the best configuration of its device.")


def test_the_baseline_of_several_devices_is_their_best_and_namesakes_have_their_hardware(at_128, outcomes, alter):
    first, second = (alter.on_device(at_128(slowdown=slow), "Test CPU", one) for slow, one in ((1.0, "a"), (0.5, "b")))
    alike = [replace(run, cell=replace(run.cell, device=at_128().cell.device)) for run in (first, second)]
    slow = alter.on_device(at_128(slowdown=3.0), "Slow CPU")
    (figure,) = outcomes("hardware_speedup", *alike, slow, baseline="cpu")
    hardware = [run.hardware.hardware_id[:8] for run in alike]
    best = f"{CPU} · eager · float32 · hardware {hardware[1]}"
    assert f"Baseline: {best}, the best configuration of its device" in " ".join(figure.caption)
    (figure,) = outcomes("hardware_speedup", *alike)
    assert figure.title.startswith(
        f"bert-base-uncased: {CPU}, hardware {hardware[1]} is 2 times as fast as {CPU}, hardware {hardware[0]} at batch"
    )


@pytest.mark.parametrize("change", ["noisy", "invalid"])
def test_a_title_never_names_a_doubtful_winner(at_128, on_card, figures, see, alter, change):
    (figure,) = figures("hardware_speedup", at_128(), alter.results(on_card(slowdown=0.125), getattr(alter, change)))
    assert see.texts(figure)[0] == "Speedup by hardware: bert-base-uncased"


def test_a_title_names_no_winner_without_intervals(at_128, on_card, figures, see):
    (figure,) = figures("hardware_speedup", at_128(launches=2), on_card(slowdown=0.125, launches=2))
    assert see.texts(figure)[0] == "Speedup by hardware: bert-base-uncased"


def test_a_device_has_the_same_colour_in_every_chart(at_128, on_card, figures, see, alter):
    other = alter.on_device(at_128(device="cuda", slowdown=0.3), "Other", "cuda:0")
    runs = [at_128(), on_card(slowdown=0.125), replace(other, started_at="2026-05-01T00:00:00Z")]
    name = f"valid {CARD} · eager · float32"
    colours = set()
    for chart in ("pareto_front", "hardware_speedup", "hardware_comparison"):
        for drawn in (runs, runs[:2]):
            (figure,) = figures(chart, *drawn)
            colours.add(see.face(figure.axes[0], name))
    assert len(colours) == 1


@pytest.mark.parametrize("name", ["runtime_precision", "architecture_comparison"])
def test_pictures_of_different_threads_say_which(name, at_128, charts_of, alter, make_run):
    runs = []
    for threads in (1, None):
        for run in (at_128(), at_128(runtime="onnxruntime"), make_run(model_id="gpt2", family="decoder-only")):
            runs.append(alter.renewed(replace(run, cell=replace(run.cell, num_threads=threads))))
    drawn = charts_of(*runs)(name)
    subtitles = [one.subtitle for one in drawn if hasattr(one, "subtitle")]
    assert len(subtitles) == len(set(subtitles))
    assert any("1 thread" in one for one in subtitles)


def test_runtime_precision_cells_have_latency_and_error_and_invalid_cells_are_crossed(at_128, figures, see, alter):
    half = alter.results(at_128(precision="bfloat16", slowdown=0.5), alter.metrics(output_error=0.003))
    wrong = alter.results(at_128(runtime="openvino", precision="int8", slowdown=0.1), alter.invalid)
    (figure,) = figures("runtime_precision", at_128(), half, wrong)
    first, _ = figure.axes
    cells = {text.get_label(): text.get_text() for text in first.texts}
    assert cells == {
        "_cell 0 1": "32",
        "_cell 1 1": "16 \N{BLACK STAR}\nerror 0.003",
        "_cell 2 0": "3.2\ninvalid",
    }
    assert [line.get_label() for line in first.lines] == ["_crossed cell 2 0"]


def threads(run, count):
    return replace(run, cell=replace(run.cell, num_threads=count))


def gpus(run, count, alter):
    """The run, as if on `count` GPUs of a machine."""
    selector = ",".join(f"cuda:{place}" for place in range(count))
    several = alter.on_device(run, f"{count} x Card" if count > 1 else "Card", selector)
    return alter.mode(several, attention="sdpa", **({"placement": "replicas"} if count > 1 else {}))


def test_a_doubtful_result_is_a_baseline_only_of_a_device_without_a_valid_one(at_128, on_card, figures, see, alter):
    noisy = alter.results(at_128(runtime="openvino", slowdown=0.5), alter.noisy)
    (figure,) = figures("hardware_speedup", at_128(), noisy, on_card(slowdown=0.125))
    assert see.says(figure, f"Baseline: {CPU} · eager · float32")
    assert not see.says(figure, "The baseline itself is")
    (figure,) = figures("hardware_speedup", noisy, on_card(slowdown=0.125))
    assert see.says(figure, "The baseline itself is noisy")


@pytest.mark.parametrize("commands", ["one command", "two commands", "a comparison in turns"])
def test_a_title_names_a_winner_only_if_one_command_measured_both_sides(at_128, figures, see, alter, commands):
    """Sides of two sessions may differ by drift alone: their readings are stated, and no chart names a winner."""
    further = {} if commands == "one command" else {"session_id": "2" * 8 + "-1111-7111-8111-111111111111"}

    def side(slowdown, **facts):
        run = at_128(batch_sizes=(1,), slowdown=slowdown, **facts)
        tags = {"ab": "one-name"} if commands == "a comparison in turns" else {}
        return replace(run, provenance=replace(run.provenance, tags=tags))

    sides = {
        "hardware_speedup": (side(1.0), alter.on_device(side(0.5, device="cuda", **further), "Card", "cuda:0")),
        "runtime_comparison": (side(1.0), side(0.5, runtime="openvino", **further)),
        "scaling": (threads(side(1.0), 1), threads(side(0.5, **further), 2)),
    }
    titles = {chart: see.texts(*figures(chart, *runs)) for chart, runs in sides.items()}
    for title, *rest in titles.values():
        is_apart = commands == "two commands"
        assert title.endswith((" at batch 1", "1 thread", "32 ms"))
        assert (" 2 times as fast as " in title) is not is_apart
        assert (" took 16 ms, " in title) is any(APART[1:-1] in text for text in rest) is is_apart
    (figure,) = figures("runtime_precision", *sides["runtime_comparison"])
    stars = [text.get_text() for text in figure.axes[0].texts if "\N{BLACK STAR}" in text.get_text()]
    assert len(stars) == (0 if commands == "two commands" else 1)


def test_a_lead_that_three_rounds_cannot_prove_is_in_no_title(at_128, figures, see):
    """A recurring disturbance can look like 20 % in three rounds, as `benchhouse compare` says of them."""
    (figure,) = figures("runtime_comparison", at_128(), at_128(runtime="openvino", slowdown=0.8))
    assert see.texts(figure)[0] == "Speedup by runtime: bert-base-uncased"
    many = {"launches": 10}
    (figure,) = figures("runtime_comparison", at_128(**many), at_128(runtime="openvino", slowdown=0.8, **many))
    assert see.texts(figure)[0].startswith("bert-base-uncased: openvino is 1.2 times as fast as eager")


def test_gpus_are_counted_from_the_device_selector(at_128, figures, see, alter):
    slowdowns = {1: 1.0, 2: 0.5, 4: 0.4}
    runs = [gpus(at_128(device="cuda", slowdown=slowdown), count, alter) for count, slowdown in slowdowns.items()]
    (figure,) = figures("scaling", *(alter.only(run, lambda point: point.batch_size == 4) for run in runs))
    (axes,) = figure.axes
    assert see.points(axes, "valid eager · float32 · batch 4, sequence 128") == [(1, 1), (2, 2), (4, 2.5)]
    assert axes.get_xlabel() == "GPUs"
    assert see.texts(figure)[:2] == [
        "bert-base-uncased: 4 GPUs are 2.5 times as fast as 1 GPU",
        "Scaling over GPUs · Card · feature-extraction · eager · float32 · batch 4, sequence 128",
    ]


def test_scaling_is_the_speedup_over_the_lowest_thread_count(at_128, figures, see, alter):
    runs = [threads(at_128(slowdown=slowdown), count) for count, slowdown in ((1, 1.0), (2, 0.5), (4, 0.4))]
    (figure,) = figures("scaling", *(alter.only(run, lambda point: point.batch_size == 1) for run in runs))
    (axes,) = figure.axes
    assert see.points(axes, "valid eager · float32 · batch 1, sequence 128") == [(1, 1), (2, 2), (4, 2.5)]
    assert see.points(axes, "perfect") == [(1, 1), (2, 2), (4, 4)]
    assert see.texts(figure)[0] == "bert-base-uncased: 4 threads are 2.5 times as fast as 1 thread"


def test_lines_that_start_at_another_count_have_a_picture_of_their_own(at_128, figures, see, alter):
    """Half of a perfect scaling would be drawn where a line starts at 2 threads on an axis over 1."""
    slowdowns = {("eager", 1): 1.0, ("eager", 2): 0.5, ("openvino", 2): 0.4, ("openvino", 4): 0.2}
    runs = [threads(at_128(runtime=runtime, slowdown=at), count) for (runtime, count), at in slowdowns.items()]
    drawn = figures("scaling", *(alter.only(run, lambda point: point.batch_size == 1) for run in runs))
    for figure, runtime, start in zip(drawn, ("eager", "openvino"), (1, 2), strict=True):
        (axes,) = figure.axes
        perfect = [(start, 1), (2 * start, 2)]
        assert see.points(axes, f"valid {runtime} · float32 · batch 1, sequence 128") == perfect
        assert see.points(axes, "perfect") == perfect
        assert axes.get_ylabel().startswith(f"Speedup over {start} thread")
        assert not see.says(figure, "Not drawn")


def test_scaling_is_never_over_an_invalid_result(at_128, figures, see, alter):
    runs = [threads(at_128(slowdown=1.0 / count), count) for count in (1, 2, 4)]
    runs[0] = alter.results(runs[0], alter.invalid)
    (figure,) = figures("scaling", *(alter.only(run, lambda point: point.batch_size == 1) for run in runs))
    (axes,) = figure.axes
    assert see.points(axes, "perfect") == [(1, 0.5), (2, 1), (4, 2)]
    assert axes.get_ylabel().startswith("Speedup over 2 threads")


def test_scaling_needs_two_thread_counts(at_128, outcomes):
    (outcome,) = outcomes("scaling", threads(at_128(), 2))
    why = "no point was measured with two thread counts"
    assert outcome == NotDrawn(what=f"Scaling over threads: bert-base-uncased on {CPU}", why=why)


def test_devices_with_the_same_name_have_a_row_each(at_128, figures, alter):
    with_more_memory = replace(at_128(slowdown=0.5).hardware, hardware_id="f" * 16, memory_bytes=64_000_000_000)
    other = replace(at_128(slowdown=0.5), hardware=with_more_memory)
    (figure,) = figures("runtime_precision", at_128(), other, at_128(runtime="openvino", slowdown=0.9))
    numbers = {text.get_text().split()[0] for text in figure.axes[0].texts}
    assert {"32", "16", "28.8"} <= numbers
    assert len({label.get_text() for label in figure.axes[0].get_yticklabels()}) == 3


def test_rows_of_quantizations_are_told_apart_by_their_first_letters(at_128, figures, alter):
    """A page cuts off the end of a long label."""
    quantized = [
        alter.mode(at_128(precision=name, slowdown=factor), quantization=words)
        for name, factor, words in (("int8", 0.5, "Q8_0"), ("int4", 0.3, "Q4_K_M"))
    ]
    (figure,) = figures("runtime_precision", at_128(), *quantized)
    labels = [label.get_text().replace("\N{NO-BREAK SPACE}", " ") for label in figure.axes[0].get_yticklabels()]
    assert sorted(labels) == ["eager", "eager Q4_K_M", "eager Q8_0"]


def with_quality(run, metric, value):
    """The run with a measure of the quality of its model."""
    return replace(run, quality=Quality(inputs="same", values={metric: QualityValue(value=value)}))


@pytest.mark.parametrize(
    ("metric", "best", "good", "worse"),
    [("kl_divergence", 0.0, 0.01, 0.2), ("embedding_cosine", 1.0, 0.99, 0.8)],
)
def test_quality_is_drawn_against_throughput_at_the_smallest_batch(
    metric, best, good, worse, at_128, figures, see, alter
):
    runs = [
        with_quality(at_128(), metric, best),
        with_quality(at_128(precision="int8", slowdown=0.5), metric, good),
        with_quality(at_128(precision="bfloat16", slowdown=0.8), metric, worse),
        at_128(precision="float16", slowdown=0.1),
    ]
    (figure,) = figures("quality_tradeoff", *runs)
    (axes,) = figure.axes
    assert see.points(axes, f"valid {CPU} · eager · int8") == [(good, 62.5)]
    assert sorted(see.points(axes, "front")) == sorted([(best, 31.25), (good, 62.5)])
    assert {text.get_text() for text in axes.texts} == {"eager float32", "eager int8"}
    assert "float16" not in " ".join(text.get_text() for text in figure.texts)


@pytest.mark.parametrize(
    ("metric", "best", "equal", "worse"),
    [
        ("kl_divergence", 0.0, 3e-12, 2e-7),
        ("kl_divergence", 5e-8, 7e-8, 3e-7),
        ("embedding_cosine", 1.0, 1 - 1e-9, 0.999999),
    ],
)
def test_qualities_that_differ_by_less_than_the_resolution_of_float32_are_equal(
    metric, best, equal, worse, at_128, figures, see
):
    runs = [
        with_quality(at_128(), metric, best),
        with_quality(at_128(runtime="compiled", slowdown=0.5), metric, equal),
        with_quality(at_128(runtime="onnxruntime", slowdown=0.8), metric, worse),
    ]
    (figure,) = figures("quality_tradeoff", *runs)
    assert see.points(figure.axes[0], "front") == [(equal, 62.5)]
    assert see.says(figure, EQUAL)
    (apart,) = figures("quality_tradeoff", runs[0], runs[2])
    assert sorted(see.points(apart.axes[0], "front")) == sorted([(best, 31.25), (worse, 39.0625)])
    assert not see.says(apart, EQUAL)


def test_invalid_results_are_not_on_the_front_of_quality_and_one_configuration_is_not_drawn(
    at_128, figures, outcomes, see, alter
):
    runs = [
        with_quality(at_128(), "kl_divergence", 0.1),
        with_quality(alter.results(at_128(precision="int8", slowdown=0.1), alter.invalid), "kl_divergence", 0.01),
    ]
    (figure,) = figures("quality_tradeoff", *runs)
    assert see.points(figure.axes[0], "front") == [(0.1, 31.25)]
    (left_out,) = outcomes("quality_tradeoff", with_quality(at_128(), "kl_divergence", 0.1))
    assert left_out == NotDrawn(
        what="Quality and speed: bert-base-uncased", why="a single configuration has no comparison"
    )
