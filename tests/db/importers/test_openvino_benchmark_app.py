"""benchmark_app's reports, of the Python tool (recorded) and the C++ tool, value by value."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from db.importers.openvino_benchmark_app import PLUGIN
from db.importers.support.files import read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/openvino_benchmark_app"


def only_run(path):
    (run,) = PLUGIN.runs(read_file(path))
    return run


def test_each_value_of_the_python_tools_json_is_imported():
    run = only_run(FOLDER / "benchmark_report.json")
    (result,) = run.results
    assert result.metrics == pytest.approx(
        {
            "latency_median_ms": 3.93,
            "latency_mean_ms": 5.08,
            "latency_min_ms": 0.21,
            "latency_max_ms": 12.19,
            "throughput_samples_per_sec": 191.94,
            "first_call_ms": 22.42,
            "compile_s": 1.13317,
            "read_model_s": 0.13272,
            "reshape_model_s": 0.03445,
        }
    )
    assert (result.point.label, result.iterations) == ("b1 s16", 40)
    assert (run.cell.device.selector, run.cell.runtime, run.cell.precision) == ("openvino:CPU", "openvino", "unknown")
    assert run.cell.runtime_mode == {"api": "sync", "inference_only": True, "hint": "latency"}
    assert run.cell.workload.model_id == "ir"
    assert run.origin.kept == {"execution_results": {"execution_time": "208.40"}}
    assert [doubt.kind for doubt in result.doubts] == ["undated"]


def test_each_value_of_the_python_tools_csv_is_imported():
    run = only_run(FOLDER / "benchmark_report.csv")
    (result,) = run.results
    assert result.metrics == pytest.approx(
        {
            "latency_p90_ms": 6.83,
            "latency_mean_ms": 9.08,
            "latency_min_ms": 0.26,
            "latency_max_ms": 279.74,
            "throughput_samples_per_sec": 142.92,
            "first_call_ms": 234.99,
            "compile_s": 1.24657,
            "read_model_s": 0.12297,
        }
    )
    assert result.missing["latency_median_ms"] == "not_supported: percentile 90 was asked for in its place"
    assert result.point.concurrency == 2
    assert run.provenance.command[:3] == ("benchmark_app", "-m", "ir/model.xml")


def test_a_batch_size_that_contradicts_the_shapes_is_a_doubt():
    (result,) = only_run(FOLDER / "benchmark_report.csv").results
    doubt = next(doubt for doubt in result.doubts if doubt.kind == "batch_size_differs")
    assert doubt.evidence == {"batch_size": 1, "shape": [2, 16]}
    assert (result.point.batch_size, result.validity) == (1, "noisy")


def test_the_cpp_tools_names_are_read():
    run = only_run(FOLDER / "cpp_report.json")
    (result,) = run.results
    assert result.metrics == {
        "latency_median_ms": 12.5,
        "latency_mean_ms": 12.75,
        "latency_min_ms": 10.25,
        "latency_max_ms": 30.5,
        "throughput_samples_per_sec": 133.3,
        "compile_s": 1.2345,
    }
    assert (result.point.label, result.iterations) == ("b4 c8", 2000)
    assert (run.cell.precision, run.cell.device.selector) == ("float16", "openvino:GPU")
    assert run.cell.runtime_mode == {"api": "async", "inference_only": True, "gpu_streams": "4", "hint": "throughput"}


def test_a_tail_of_too_few_iterations_is_only_stated():
    run = only_run(FOLDER / "cpp_report.csv")
    (result,) = run.results
    assert "latency_p99_ms" not in result.metrics
    assert (result.metrics["stated_latency_p99_ms"], result.missing["latency_p99_ms"]) == (0.35, "too_few_samples")
    assert run.cell.workload.model_id == "models"
    assert run.origin.kept["execution_results"]["group"] == [["1", "[1,3,224,224]"], ["2", "[1,3,112,112]"]]


def test_rounding_is_a_doubt_where_it_matters():
    (result,) = only_run(FOLDER / "cpp_report.csv").results
    doubt = next(doubt for doubt in result.doubts if doubt.kind == "rounded")
    assert doubt.severity == "noisy"
    assert doubt.evidence["share"] == pytest.approx(0.005 / 0.2)


def test_an_error_is_a_failed_result(tmp_path):
    text = (FOLDER / "benchmark_report.json").read_text().replace('"throughput"', '"error": "out of memory", "fps"')
    (tmp_path / "report.json").write_text(text)
    run = only_run(tmp_path / "report.json")
    assert (run.status, run.results[0].status, run.results[0].error) == ("failed", "failed", "out of memory")


def test_a_run_that_failed_before_its_configuration_was_known_is_a_failed_result(tmp_path):
    report = {"cmd_options": {"-m": "a.xml", "-d": "NPU"}, "execution_results": {"error": "no driver"}}
    (tmp_path / "a.json").write_text(json.dumps(report))
    (tmp_path / "a.csv").write_text("Command line parameters\n-m;a.xml\n-d;NPU\n\nExecution results\nerror;no driver\n")
    for name in ("a.json", "a.csv"):
        assert PLUGIN.recognises(read_file(tmp_path / name))
        run = only_run(tmp_path / name)
        assert (run.cell.workload.model_id, run.cell.device.selector) == ("a", "openvino:NPU")
        assert (run.status, run.results[0].error) == ("failed", "no driver")


def test_reports_that_were_joined_are_runs_of_their_own(tmp_path):
    text = (FOLDER / "benchmark_report.csv").read_text()
    damaged = text.replace("avg latency;9.08", "avg latency;fast").replace("number of parallel infer requests;2", "")
    setup_alone = text.partition("Configuration setup")[1:]
    path = tmp_path / "all.csv"
    path.write_text("\n".join([text, text.replace("9.08", "8.5"), damaged, "".join(setup_alone)]))
    with left_out(r"report 3: execution_results\.latency_avg: expected a number, found 'fast'"):
        runs = list(PLUGIN.runs(read_file(path)))
    assert [run.results[0].metrics.get("latency_mean_ms") for run in runs] == [9.08, 8.5, None, 9.08]
    assert [run.results[0].point.concurrency for run in runs] == [2, 2, 1, 2]
    assert len({run.run_id for run in runs}) == 4


def test_a_non_numeric_value_is_refused_with_its_path(tmp_path):
    path = Path(shutil.copy(FOLDER / "benchmark_report.csv", tmp_path / "r.csv"))
    path.write_text(path.read_text().replace("avg latency;9.08", "avg latency;fast"))
    with left_out(r"r\.csv: execution_results\.latency_avg: expected a number, found 'fast'"):
        only_run(path)


@pytest.mark.parametrize(
    ("name", "median_ms", "calls", "throughput"),
    [("timed.json", 0.09, 16722, 16720.43), ("timed.csv", 0.07, 12672, 12669.72)],
)
def test_a_report_without_a_number_of_iterations_is_imported(name, median_ms, calls, throughput):
    (run,) = PLUGIN.runs(read_file(FOLDER / name))
    (result,) = run.results
    assert (result.metrics["latency_median_ms"], result.iterations) == (median_ms, calls)
    assert result.metrics["throughput_samples_per_sec"] == throughput
    assert run.settings == {"iterations": None, "duration_ms": 1000.0}


def test_printed_results_have_the_settings_above_them():
    first, second = PLUGIN.runs(read_file(FOLDER / "printed.log"))
    (result,) = first.results
    assert (first.cell.workload.model_id, first.cell.precision) == ("resnet-50", "float32")
    assert (first.origin.tool_version or "").startswith("2024.0.0")
    assert (result.point.batch_size, result.point.concurrency, result.iterations) == (2, 4, 504)
    assert result.metrics["latency_p90_ms"] == 128.28
    assert (result.metrics["throughput_samples_per_sec"], result.metrics["first_call_ms"]) == (66.84, 57.12)
    assert "90" in result.missing["latency_median_ms"]
    assert second.cell.workload.model_id == "model_int8"
    assert second.results[0].metrics["latency_median_ms"] == 118.28
    assert "concurrency_not_stated" in [doubt.kind for doubt in second.results[0].doubts]


def test_every_value_of_a_repeated_option_is_in_the_command(tmp_path):
    report = (FOLDER / "benchmark_report.csv").read_text()
    first = next(line for line in report.splitlines() if line.startswith("-m;"))
    path = tmp_path / "benchmark_report.csv"
    path.write_text(report.replace(first, f"{first}\n-i;one.bin\n-i;two.bin\n-i;three.bin"))
    command = " ".join(only_run(path).provenance.command)
    assert "-i one.bin -i two.bin -i three.bin" in command


def test_the_printed_average_of_version_2022_1_is_read(tmp_path):
    text = (FOLDER / "printed.log").read_text()
    assert "Average:" in text
    (tmp_path / "a.log").write_text(text.replace("Average:", "Avg:"))
    found, expected = (next(iter(PLUGIN.runs(read_file(one)))) for one in (tmp_path / "a.log", FOLDER / "printed.log"))
    assert found.results[0].metrics == expected.results[0].metrics


def test_printed_latencies_below_a_millisecond_are_in_microseconds(tmp_path):
    text = """\
[ INFO ] Count:            200 iterations
[ INFO ] Latency:
[ INFO ]    Median:        9.38 us
[ INFO ]    Average:       137.31 us
[ INFO ]    Min:           9.09 us
[ INFO ]    Max:           12331.19 us
[ INFO ]    StdDev:        1.20 us
[ INFO ] Throughput:   6934.83 FPS
"""
    (tmp_path / "a.log").write_text(text)
    run = only_run(tmp_path / "a.log")
    (result,) = run.results
    times = [result.metrics[f"latency_{name}_ms"] for name in ("median", "mean", "min", "max")]
    assert times == pytest.approx([0.00938, 0.13731, 0.00909, 12.33119])
    assert run.origin.kept["others"] == {"printed": {"StdDev": "1.20 us"}}
    assert "rounded" not in [doubt.kind for doubt in result.doubts]  # to 0.01 us
    (tmp_path / "b.log").write_text("".join(line for line in text.splitlines(True) if " us" not in line))
    (without,) = only_run(tmp_path / "b.log").results
    assert "rounded" not in [doubt.kind for doubt in without.doubts]  # no latency is stated


def test_printed_times_and_rates_that_are_not_known_are_kept(tmp_path):
    text = (FOLDER / "printed.log").read_text()
    more = "[ INFO ]    StdDev:        1.20 ms\n[ INFO ] Fill inputs took 5.10 ms\n[ INFO ]    Min:"
    (tmp_path / "a.log").write_text(text.replace("[ INFO ]    Min:", more, 1))
    run = next(iter(PLUGIN.runs(read_file(tmp_path / "a.log"))))
    assert run.origin.kept["others"] == {"printed": {"StdDev": "1.20 ms", "Fill inputs took": "5.10 ms"}}


@pytest.mark.parametrize(
    ("shape", "label", "shapes"),
    [
        ("[1,3,480,640]", "b1 c4", "3x480x640"),
        ("sample[1,4,64,64],states[1,77,768]", "b1 c4", "4x64x64, 77x768"),
        ("input_ids[1,128],mask[1,128]", "b1 s128 c4", None),
        ("[1,3,224,224]", "b1 c4 image_size=224", None),
        ("input_ids[1,16][1,512]", "b1 c4", "1x16/1x512"),
        ("input_ids[1,16],input_ids[1,512]", "b1 c4", "1x16/1x512"),
        ("ids[1,16][1,512],mask[1,16][1,512],image[1,3,8,8]", "b1 c4", "1x16/1x512, 1x3x8x8"),
        ("x[16][512]", "b1 c4", "16/512"),
        ("x[16]", "b1 c4", None),
    ],
)
def test_shapes_that_are_no_sequence_and_no_square_image_tell_series_apart(tmp_path, shape, label, shapes):
    report = {
        "cmd_options": {"m": "a.xml", "shape": shape},
        "configuration_setup": {"target_device": "CPU", "batch_size": "1", "nireq": "4"},
        "execution_results": {"latency_median": "10.00", "throughput": "100.00", "iterations_num": "100"},
    }
    (tmp_path / "r.json").write_text(json.dumps(report))
    run = only_run(tmp_path / "r.json")
    assert (run.results[0].point.label, run.cell.runtime_mode.get("shapes")) == (label, shapes)


@pytest.mark.parametrize(
    ("shapes", "other"), [("[8,3,64,64][4,3,64,64]", [8, 3, 64, 64]), ("[4,16][8,32]", [8, 32]), ("n[16][32]", None)]
)
def test_a_batch_that_one_of_several_shapes_contradicts_is_a_doubt(tmp_path, shapes, other):
    report = json.loads((FOLDER / "cpp_report.json").read_text())
    report["cmd_options"]["data_shape"] = shapes
    (tmp_path / "r.json").write_text(json.dumps(report))
    (result,) = only_run(tmp_path / "r.json").results
    found = [doubt.evidence for doubt in result.doubts if doubt.kind == "batch_size_differs"]
    assert found == ([] if other is None else [{"batch_size": 4, "shape": other}])


@pytest.mark.parametrize(
    ("asked", "precision", "mode"),
    [
        ("CPU:bf16", "bfloat16", None),
        ("CPU:f16,GPU:f16", "float16", None),
        ("CPU:bf16,GPU:f16", "other", "CPU:bf16,GPU:f16"),
    ],
)
def test_a_precision_of_each_device_is_the_runs_if_all_have_it(tmp_path, asked, precision, mode):
    report = json.loads((FOLDER / "benchmark_report.json").read_text())
    report["cmd_options"]["-infer_precision"] = asked
    (tmp_path / "r.json").write_text(json.dumps(report))
    cell = only_run(tmp_path / "r.json").cell
    assert (cell.precision, cell.runtime_mode.get("infer_precision")) == (precision, mode)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"-ip": "u8", "-pin": "NO"}, {"ip": "u8", "pin": "NO"}),
        ({"-load_config": "/home/me/c.json", "-max_irate": "10"}, {"load_config": "c.json", "max_irate": "10"}),
        ({"-pc": "", "layout": "[NHWC]"}, {"pc": True, "layout": "[NHWC]"}),
        ({"-report_type": "average_counters", "-progress": ""}, {"report_type": "average_counters"}),
        ({"-pin": "YES", "-i": "a.bin", "-t": "30", "-cache_dir": "/c", "-dump_config": "o.json"}, {}),
    ],
)
def test_options_tell_series_apart_but_for_inputs_outputs_and_lengths(tmp_path, options, mode):
    report = json.loads((FOLDER / "benchmark_report.json").read_text())
    report["cmd_options"] |= options
    (tmp_path / "r.json").write_text(json.dumps(report))
    found = only_run(tmp_path / "r.json").cell.runtime_mode
    assert found == {"api": "sync", "inference_only": True, "hint": "latency", **mode}


SETUP_OF_LOG = """\
[Step 1/11] Parsing and validating input arguments
[ INFO ] Device info:
[ INFO ] CPU
[ INFO ] Model batch size: 1
[Step 6/11] Configuring input of the model
[ INFO ]     x (node: x) : u8 / [N,C,H,W] / [1,3,8,8]
[ INFO ] Model outputs:
[ INFO ]     Result_5 (node: Convolution_4) : f32 / [...] / [1,4,8,8]
[ INFO ]   INFERENCE_NUM_THREADS: 2
[ INFO ]   PERFORMANCE_HINT: LATENCY
[ INFO ]   ENABLE_CPU_PINNING: True
[ INFO ]   EXECUTION_DEVICES: ['CPU']
[ INFO ] Benchmarking in inference only mode (inputs filling are not included in measurement loop).
[ INFO ] Count:            200 iterations
[ INFO ]    Average:       137.31 us
[ INFO ] Throughput:   6934.83 FPS
"""


@pytest.mark.parametrize(
    ("printed", "other", "expected"),
    [
        ("", "", {}),
        ("THREADS: 2", "THREADS: 1", {"num_threads": 1}),
        ("HINT: LATENCY", "HINT: PerformanceMode.THROUGHPUT", {"hint": "throughput"}),
        ("PINNING: True", "PINNING: False", {"pin": "NO"}),
        (": u8 / [N", ": f32 / [N", {"ip": "f32"}),
        ("inference only", "full", {"inference_only": False}),
        ("['CPU']", "['GPU.0', 'CPU']", {"device": "openvino:GPU.0,CPU"}),
        ("] CPU\n", "] MULTI\n", {"device": "openvino:MULTI:CPU"}),
    ],
)
def test_a_log_without_its_command_has_the_settings_that_it_prints(tmp_path, printed, other, expected):
    (tmp_path / "a.log").write_text(SETUP_OF_LOG.replace(printed, other))
    run = only_run(tmp_path / "a.log")
    found = {**run.cell.runtime_mode, "num_threads": run.cell.num_threads, "device": run.cell.device.selector}
    plain = {"hint": "latency", "ip": "u8", "inference_only": True, "num_threads": 2, "device": "openvino:CPU"}
    assert found == plain | expected
    assert run.provenance.command == ("benchmark_app",)


@pytest.mark.parametrize("device", ["AUTO", "GPU", "MULTI:GPU,CPU", "HETERO:GPU,CPU"])
def test_the_device_of_a_log_is_the_one_of_its_command(tmp_path, device):
    text = f"benchmark_app -m resnet50.xml -d {device}\n{SETUP_OF_LOG.replace('CPU', 'GPU.0')}"
    (tmp_path / "a.log").write_text(text)
    assert only_run(tmp_path / "a.log").cell.device.selector == f"openvino:{device}"


def test_a_batch_between_two_sizes_is_not_stated_and_a_groups_times_are_not_the_runs(tmp_path):
    (tmp_path / "a.log").write_text(SETUP_OF_LOG.replace("size: 1", "size: 1..4"))
    with left_out("batch_size: expected a number, found '1..4'"):
        (result,) = only_run(tmp_path / "a.log").results
    assert "batch_size_not_stated" in [doubt.kind for doubt in result.doubts]
    report = (FOLDER / "benchmark_report.csv").read_text()
    (own,) = only_run(FOLDER / "benchmark_report.csv").results
    groups = "group; x: [1,3,8,8]\navg latency;0.05\nmin latency;0.04\n"
    (tmp_path / "b.csv").write_text(report.replace("throughput;", f"{groups}throughput;"))
    run = only_run(tmp_path / "b.csv")
    assert run.results[0].metrics == own.metrics
    assert run.origin.kept["execution_results"]["group x: [1,3,8,8]: avg latency"] == "0.05"
