"""Charts of token times, energy, load stages, the heat map and the roofline."""

from dataclasses import replace

import pytest
from matplotlib.colors import to_hex

from visualize.drawing.figure import NotDrawn
from visualize.drawing.picture import picture
from visualize.drawing.style import GRADIENT


@pytest.fixture
def generation(make_run, alter):
    """Batch 1 and 2 at prompts of 32 and 128 tokens: TTFT of batch x sequence / 16 ms, with intervals."""

    def with_intervals(result):
        own = dict(result.metrics)
        for name in ("time_to_first_token", "time_per_output_token"):
            own |= {f"{name}_ci_low_ms": own[f"{name}_ms"] - 0.1, f"{name}_ci_high_ms": own[f"{name}_ms"] + 0.2}
        return replace(result, metrics={**own, "energy_gpu_j_per_call": 6.0})

    return alter.results(make_run(model_id="gpt2", family="decoder-only"), with_intervals)


def test_time_to_first_token_has_panels_by_batch_and_by_sequence(generation, figures, see):
    (figure,) = figures("time_to_first_token", generation)
    by_batch, by_sequence = figure.axes
    assert see.points(by_batch, "valid 32") == [(1, 2), (2, 4)]
    assert see.points(by_sequence, "valid batch 2") == [(32, 4), (128, 16)]
    assert see.band(by_batch, "band 32") == [(1, 1.9, 2.2), (2, 3.9, 4.2)]
    assert by_batch.get_ylabel() == "Time to first token, median (ms)\nlower is better"
    assert {text.get_text() for text in by_sequence.texts} == {"batch 1", "batch 2"}


def test_time_per_token_and_energy_are_drawn_per_token_and_per_input(generation, figures, see):
    (figure,) = figures("time_per_output_token", generation)
    assert see.points(figure.axes[0], "valid 32") == [(1, 2), (2, 4)]
    (figure,) = figures("energy_per_input", generation)
    assert see.points(figure.axes[0], "valid 32") == [(1, 6), (2, 3)]
    assert figure.axes[0].get_ylabel() == "Energy of the GPU per input (J)\nlower is better"


@pytest.mark.parametrize("chart", ["time_to_first_token", "time_per_output_token", "energy_per_input"])
def test_models_without_the_metric_have_no_rows(make_run, rows_of, chart):
    assert rows_of(chart, make_run()) == []


def test_the_heat_map_has_one_value_per_point_and_marks_doubts(make_run, figures, see, alter):
    run = alter.results(make_run(), alter.noisy, lambda point: point.batch_size == 1 and point.sequence_length == 32)
    run = alter.results(run, alter.invalid, lambda point: point.batch_size == 2 and point.sequence_length == 32)
    run = alter.results(run, alter.failed, lambda point: point.batch_size == 2 and point.sequence_length == 128)
    (figure,) = figures("batch_sequence_heatmap", run)
    (axes,) = figure.axes
    cells = {text.get_label(): text.get_text() for text in axes.texts}
    assert cells == {"_cell 0 0": "~125", "_cell 1 0": "125", "_cell 0 1": "31.2", "_cell 1 1": "failed"}
    assert [line.get_label() for line in axes.lines] == ["_crossed cell 1 0"]
    fills = {patch.get_label(): to_hex(patch.get_facecolor()).upper() for patch in axes.patches}
    assert (fills["_cell 0 0"], fills["_cell 0 1"]) == (GRADIENT[-1], GRADIENT[0]), "darker is faster"
    assert fills["_cell 1 0"] == fills["_cell 1 1"] == "#FFFFFF", "invalid values do not affect the scale"


def test_the_heat_map_title_names_the_best_point_if_its_interval_overlaps_no_other(make_run, figures, see, alter):
    def faster(result):
        return replace(result, metrics={**result.metrics, "throughput_samples_per_sec": 523.0})

    run = alter.results(make_run(), faster, lambda point: point.batch_size == 2 and point.sequence_length == 32)
    (figure,) = figures("batch_sequence_heatmap", run)
    assert see.texts(figure)[0] == "bert-base-uncased: highest throughput at batch 2, sequence 32 (523 inputs/s)"

    def with_a_slow_call(result):
        last = replace(result.samples[-1], values=(*result.samples[-1].values, 5000.0))
        return replace(result, samples=(*result.samples[:-1], last))

    slow = alter.results(run, with_a_slow_call, lambda point: point.batch_size == 2 and point.sequence_length == 32)
    (figure,) = figures("batch_sequence_heatmap", slow)
    assert "highest" not in see.texts(figure)[0], "the median latency of a launch does not show its throughput"
    (figure,) = figures("batch_sequence_heatmap", make_run())
    assert see.texts(figure)[0] == "Throughput by batch size and sequence length: bert-base-uncased"


def test_a_heat_map_of_40_lengths_fits_a_page(make_run, figures):
    (figure,) = figures("batch_sequence_heatmap", make_run(sequence_lengths=tuple(range(8, 328, 8))))
    assert figure.get_size_inches()[1] < 12


def test_a_heat_map_needs_two_batch_sizes(make_run, outcomes):
    (outcome,) = outcomes("batch_sequence_heatmap", make_run(batch_sizes=(1,)))
    assert isinstance(outcome, NotDrawn)
    assert outcome.why == "needs two batch sizes and two sequence lengths"


def test_load_stages_are_those_of_the_launch_with_the_median_load_time(make_run, figures, see):
    run = make_run()
    others = [
        replace(load, stages_s={**load.stages_s, "import": seconds, "to_device": 9.0})
        for load, seconds in zip(run.loads, (50.0, 0.1), strict=False)
    ]
    lasting = replace(run.loads[0], stages_s=dict(run.loads[0].stages_s))
    others[1] = replace(others[1], stages_s=dict.fromkeys(lasting.stages_s, 0.3))
    (figure,) = figures("load_stages", replace(run, loads=(others[0], lasting, others[1])))
    (axes,) = figure.axes
    bars = {bar.get_label().split()[0]: (bar.get_x(), round(bar.get_width(), 9)) for bar in axes.patches}
    assert bars == {
        "_spawn": (0, 0.1), "_import": (0.1, 2.0), "_device_init": (2.1, 0.0), "_weights_read": (2.1, 1.0),
        "_to_device": (3.1, 0.2),
    }  # fmt: skip
    assert see.texts(figure)[0] == "bert-base-uncased: importing libraries takes 61% of the load time"
    assert [text.get_text() for text in axes.texts] == ["3.3 s"], "a median of each stage would be no load time"
    assert see.says(figure, "Of each configuration's newest run, the launch (a fresh process) with the median load")
    assert "opening the device" not in see.legend(figure), "it took no visible time"


def test_the_load_time_of_a_simulated_device_is_no_finding(make_run, figures, see, alter):
    emulator = alter.on_device(make_run(), "Emulator", "qnn", simulated=True)
    quick = replace(emulator, loads=tuple(replace(load, stages_s={"spawn": 0.01}) for load in emulator.loads))
    (figure,) = figures("load_stages", make_run(), quick)
    assert see.texts(figure)[0] == "bert-base-uncased: loading takes 3.3 s"


def calibrated(shared_warehouse):
    shared_warehouse.query(
        "UPDATE hardware_info SET peak_flops = MAP {'float32': 1e12}, peak_copy_bytes_per_sec = 1e10, "
        "calibrated_at = TIMESTAMP '2026-01-01', calibration_run_id = (SELECT max(run_id) FROM benchmark_runs)"
    )


def test_the_roofline_shows_results_below_the_measured_peaks(make_run, rows_of, shared_warehouse, see, alter):
    from visualize.drawing.rows import Selection, charts

    counted = alter.metrics(flops=4e9, bytes_accessed=2e8, achieved_flops_per_sec=5e11)
    whole = make_run()
    whole = replace(whole, cell=replace(whole.cell, num_threads=4))
    run = alter.only(whole, lambda point: point.batch_size == 1 and point.sequence_length == 32)
    chart = charts()["roofline"]
    rows = rows_of("roofline", alter.results(run, counted))
    (outcome,) = chart.draw(rows)
    assert outcome.why == "not calibrated: benchhouse run --calibrate-device --device cpu --save"
    calibrated(shared_warehouse)
    (drawing,) = chart.draw(chart.rows(shared_warehouse, Selection()))
    (axes,) = picture(drawing).axes
    assert see.points(axes, "valid bert-base-uncased · eager · float32") == [(20, 500)]
    (start, ridge, _) = see.points(axes, "roof float32")
    assert ridge == (100, 1000)
    assert start[1] == pytest.approx(start[0] * 10)
    assert see.texts(picture(drawing))[0] == ("Roofline: up to 50% of the measured peak (bert-base-uncased)")
    how = f"{run.started_at[:10]}, 4 threads, valid"
    assert f"peaks measured on this device ({how}); points above" in " ".join(drawing.caption)
    shared_warehouse.query("UPDATE hardware_info SET peak_flops = MAP {'float32': 1e11}")
    (drawing,) = chart.draw(chart.rows(shared_warehouse, Selection()))
    assert drawing.title == "Roofline: speed against operations per byte", "nothing is faster than the device"
    assert "1 of 1 point is above the peak of the precision, which was measured too low" in " ".join(drawing.caption)
