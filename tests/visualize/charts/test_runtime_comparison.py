"""The comparison of runtimes: speedups over eager at float32."""

import math
from dataclasses import replace

import pytest
from matplotlib.colors import to_hex

from visualize.drawing.figure import Figure as Drawing
from visualize.drawing.figure import NotDrawn
from visualize.drawing.style import LOOKS, colour

NAME = "runtime_comparison"
POINTS = {"batch_sizes": (1, 2), "sequence_lengths": (32,), "session_id": "1" * 8 + "-1111-7111-8111-111111111111"}


@pytest.fixture
def fast(make_run, alter):
    """ONNX Runtime, twice as fast as eager, with an output error of 4e-7."""
    run = alter.mode(alter.varied(make_run(**POINTS, runtime="onnxruntime", slowdown=0.5)), io_mode="host")
    return alter.results(run, alter.metrics(output_error=4e-7))


@pytest.fixture
def eager(make_run, alter):
    return alter.varied(make_run(**POINTS))


def bars(axes):
    """Bars by name, from the top down."""
    found = {}
    for bar in axes.patches:
        name = bar.get_label().removeprefix("_bar ").replace("\n", " ")
        found[name] = (round(bar.get_y() + bar.get_height() / 2), bar)
    return {name: bar for name, (_, bar) in sorted(found.items(), key=lambda item: item[1][0])}


def lengths(axes):
    return {name: pytest.approx(bar.get_width()) for name, bar in bars(axes).items()}


def remarks(axes):
    """Texts at the ends of the bars, from the top down."""
    return [text.get_text() for text in sorted(axes.texts, key=lambda text: text.xy[1])]


def test_there_is_one_panel_per_batch_size_with_the_fastest_runtime_on_top(eager, fast, figures, see):
    (figure,) = figures(NAME, eager, fast)
    assert [see.title(axes) for axes in figure.axes] == ["batch 1", "batch 2"]
    assert not see.says(figure, "not drawn")
    for axes in figure.axes:
        assert lengths(axes) == {"onnxruntime · float32": 2.0, "eager · float32": 1.0}
        assert list(bars(axes)) == ["onnxruntime · float32", "eager · float32"]
        assert remarks(axes) == ["2\N{MULTIPLICATION SIGN}, error 4e-07", "baseline"]
    top, bottom = figure.axes[0].get_ylim()[::-1]
    assert top < 0 < bottom, "the first line is the topmost"


def test_the_fastest_40_configurations_and_the_baseline_are_drawn(make_run, figures, see):
    points = {**POINTS, "batch_sizes": (1, 2, 3, 4)}
    rivals = [make_run(**points, runtime=f"r{i}", slowdown=0.3 + 0.01 * i) for i in range(44)]
    (figure,) = figures(NAME, make_run(**points), *rivals)
    names = list(bars(figure.axes[0]))
    assert (len(names), names[0], names[-1]) == (41, "r0 \N{MIDDLE DOT} float32", "eager \N{MIDDLE DOT} float32")
    assert [see.title(axes) for axes in figure.axes] == ["batch 1", "batch 3", "batch 4"]
    assert figure.get_size_inches()[1] < 13
    assert see.says(figure, "Left out: the 4 slowest of 45 configurations; narrow the selection to see them")
    assert see.says(figure, "Left out: 1 of 4 batch sizes")


def test_the_whisker_is_the_interval_of_the_speedup(eager, fast, figures, see, alter):
    (axes, _) = figures(NAME, eager, alter.varied(fast, 1.02))[0].axes
    (low, _), (high, _) = see.points(axes, "interval onnxruntime · float32")
    # ln 1.02 apart: the mean of the rounds is 2 / 1.02, its error ln 1.02 / sqrt(3), t(0.975, 2) = 4.302653
    half = 4.302653 * math.log(1.02) / math.sqrt(3)
    assert (low, high) == pytest.approx((2 / 1.02 * math.exp(-half), 2 / 1.02 * math.exp(half)), rel=1e-5)
    other = "2" * 8 + "-1111-7111-8111-111111111111"
    (axes, _) = figures(NAME, eager, replace(fast, session_id=other))[0].axes
    (low, _), (high, _) = see.points(axes, "interval onnxruntime · float32")
    assert (round(low, 3), round(high, 3)) == (1.843, 2.18), "of the two medians' intervals"
    assert "_interval eager · float32" not in [line.get_label() for line in axes.lines]


def test_an_invalid_result_is_crossed_out_and_last(eager, fast, make_run, figures, see, alter):
    wrong = alter.mode(make_run(**POINTS, runtime="openvino", precision="int4", slowdown=0.2), hint="latency")
    wrong = alter.results(wrong, lambda result: alter.invalid(alter.metrics(output_error=0.93)(result)))
    (figure,) = figures(NAME, eager, fast, wrong)
    axes = figure.axes[0]
    *_, (last, bar) = bars(axes).items()
    assert last == "openvino · int4"
    assert (to_hex(bar.get_facecolor()), to_hex(bar.get_edgecolor())) == ("#ffffff", LOOKS["light"].grey)
    assert "_crossed bar openvino · int4" in [line.get_label() for line in axes.lines]
    assert remarks(axes)[-1] == "invalid, error 0.93"
    assert "_interval openvino · int4" not in [line.get_label() for line in axes.lines]
    assert see.says(figure, "Crossed out: not ranked")
    assert not see.says(figure, "Hollow")


def test_a_simulated_result_is_crossed_out_and_last(eager, fast, figures, alter):
    loads = tuple(replace(load, verified={"is_simulated": True}) for load in fast.loads)
    (figure,) = figures(NAME, eager, replace(fast, loads=loads))
    assert list(bars(figure.axes[0])) == ["eager · float32", "onnxruntime · float32"]
    assert "_crossed bar onnxruntime · float32" in [line.get_label() for line in figure.axes[0].lines]
    assert remarks(figure.axes[0]) == ["baseline", "simulated, error 4e-07"]


def test_a_doubtful_result_is_hollow_and_keeps_its_rank(eager, fast, figures, see, alter):
    (figure,) = figures(NAME, eager, alter.results(fast, alter.noisy))
    bar = bars(figure.axes[0])["onnxruntime · float32"]
    assert (to_hex(bar.get_facecolor()), to_hex(bar.get_edgecolor())) == ("#ffffff", colour(0).lower())
    assert next(iter(bars(figure.axes[0]))) == "onnxruntime · float32"
    assert see.says(figure, "Hollow: 2 of 4 points are doubtful")


def test_the_title_states_a_finding_only_if_intervals_support_it(eager, fast, figures, see, alter):
    (figure,) = figures(NAME, eager, fast)
    finding = see.texts(figure)[0]
    assert finding.startswith("bert-base-uncased: onnxruntime is ")
    assert finding.endswith(" times as fast as eager at float32 at batch 1")
    assert see.texts(figure)[1].startswith("Speedup by runtime · ")
    for doubted in (alter.results(fast, alter.noisy), alter.results(fast, alter.invalid)):
        (figure,) = figures(NAME, eager, doubted)
        assert see.texts(figure)[0] == "Speedup by runtime: bert-base-uncased"


def test_settings_distinguish_two_bars_of_a_runtime(eager, fast, figures, alter):
    device = alter.mode(alter.renewed(fast), io_mode="device")
    (figure,) = figures(NAME, eager, fast, device)
    assert list(bars(figure.axes[0])) == [
        *("onnxruntime · float32, io_mode=device", "onnxruntime · float32, io_mode=host"),
        "eager · float32",
    ]


def test_a_missing_configuration_is_labelled_not_measured(eager, fast, figures, alter):
    (figure,) = figures(NAME, eager, alter.only(fast, lambda point: point.batch_size == 1))
    assert remarks(figure.axes[1]) == ["not measured", "baseline"]


def test_each_model_and_sequence_length_has_its_own_picture(make_run, outcomes):
    runs = [make_run(), make_run(runtime="onnxruntime"), make_run(model_id="b"), make_run(model_id="b", runtime="x")]
    names = [outcome.name_parts for outcome in outcomes(NAME, *runs) if isinstance(outcome, Drawing)]
    assert names == [
        (model, "cpu", f"sequence_length-{length}") for model in ("b", "bert-base-uncased") for length in (32, 128)
    ]


def test_a_picture_needs_a_baseline_and_another_result(eager, fast, outcomes):
    what = "Speedup by runtime: bert-base-uncased"
    why = "measured only with eager at float32, so there is no comparison"
    assert outcomes(NAME, eager) == [NotDrawn(what=what, why=why)]
    why = "2 points without a baseline (unmodified PyTorch at float32, with as many threads)"
    assert outcomes(NAME, fast) == [NotDrawn(what=what, why=why)]


def test_points_with_only_the_baseline_are_omitted(make_run, outcomes):
    found = outcomes(NAME, make_run(), make_run(runtime="x", sequence_lengths=(32,)))
    assert [outcome.name_parts[-1] for outcome in found] == ["sequence_length-32"]


def test_a_simulated_device_is_grey_in_the_hardware_comparison(eager, figures, see, alter):
    emulator = alter.on_device(alter.renewed(eager), "Emulator", "qnn", simulated=True)
    (figure,) = figures("hardware_comparison", eager, emulator)
    (axes,) = figure.axes
    assert see.artist(axes, "line Emulator (qnn, simulated) · eager · float32").get_color() == LOOKS["light"].grey
    assert see.artist(axes, "line Test CPU (cpu) · eager · float32").get_color() != LOOKS["light"].grey


def test_the_lines_of_one_real_device_keep_their_own_colours_beside_a_simulated_one(eager, fast, outcomes, alter):
    emulator = alter.on_device(alter.renewed(eager), "Emulator", "qnn", simulated=True)
    for runs in ((eager, fast), (eager, fast, emulator)):
        (figure,) = outcomes("hardware_comparison", *runs)
        colours = {line.colour for line in figure.panels[0].lines if "simulated" not in line.label}
        assert len(colours) == 2


def test_two_device_names_of_one_machine_have_a_bar_each(eager, fast, figures, alter):
    """A CPU may have another name in a container."""
    renamed = alter.on_device(alter.renewed(fast), "Test CPU in a container")
    (figure,) = figures(NAME, eager, fast, renamed)
    assert set(bars(figure.axes[0])) == {
        *("onnxruntime · float32, Test CPU", "onnxruntime · float32, Test CPU in a container"),
        "eager · float32",
    }


def test_the_same_runtime_with_the_same_settings_is_no_finding(eager, outcomes, alter):
    """Another name of the machine makes the difference, which the name of the runtime cannot say."""
    renamed = alter.on_device(alter.renewed(eager), "Test CPU in a container")
    faster = alter.results(renamed, lambda one: replace(one, metrics={**one.metrics, "latency_median_ms": 1.0}))
    (figure,) = outcomes(NAME, eager, faster)
    assert "times as fast" not in figure.title
    assert "attention" not in figure.title
