"""trtexec's log and its export of the times of every query, in milliseconds."""

from __future__ import annotations

import pytest

from db.importers.support.files import read_file
from db.importers.tensorrt_benchmarks import TRTEXEC
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/trtexec"


def runs(name):
    return list(TRTEXEC.runs(read_file(FOLDER / name)))


def test_every_statistic_of_the_summary_is_imported_by_its_name():
    run, _ = runs("log.txt")
    (result,) = run.results
    assert result.point.label == "b8 image_size=224"
    stages = ("enqueue", "h2d", "gpu_compute", "d2h")
    assert {name: value for name, value in result.metrics.items() if not name.startswith(stages)} == {
        "latency_min_ms": 5.38672,
        "latency_max_ms": 13.3664,
        "latency_mean_ms": 7.60628,
        "latency_median_ms": 7.16092,
        "latency_p90_ms": 10.2996,
        "latency_p95_ms": 10.8698,
        "latency_p99_ms": 12.9675,
        "queries_per_sec": 130.298,
        "throughput_samples_per_sec": pytest.approx(8 * 130.298),
        "throughput_at_median": pytest.approx(8 * 130.298 * 7.60628 / 7.16092),
        "duration_s": 3.00082,
    }
    assert result.metrics["gpu_compute_median_ms"] == 7.14139
    assert result.metrics["enqueue_p99_ms"] == 14.1848
    assert (result.iterations, result.warmup_iterations) == (391, 26)
    assert len(result.extra["kept"]["warnings"]) == 1


def test_the_run_has_model_device_precision_and_time():
    run, _ = runs("log.txt")
    device = run.cell.device
    assert (run.cell.workload.model_id, run.cell.runtime) == ("resnet50", "tensorrt")
    assert (device.type, device.name, device.memory_bytes) == ("cuda", "NVIDIA GeForce RTX 2080", 7974 * 2**20)
    assert (run.cell.precision, run.cell.runtime_mode) == ("other", {"precisions": "FP32+FP16"})
    assert (run.origin.tool_version, run.started_at) == ("8.6.1", "2024-10-03T10:47:40+00:00")
    assert [doubt.kind for doubt in run.results[0].doubts] == ["time_zone_unknown"]


def test_a_failed_command_is_a_failed_run_with_the_reason_from_the_log():
    _, run = runs("log.txt")
    (result,) = run.results
    assert (run.cell.workload.model_id, run.status) == ("broken", "failed")
    assert result.error.startswith("Error[1]: [runtime.cpp::parsePlan::314] Error Code 1: Serialization")


def test_the_precision_of_an_engine_that_was_loaded_is_unknown(tmp_path):
    text = (FOLDER / "log.txt").read_text().replace("--onnx=models/resnet50.onnx --fp16", "--loadEngine=r.engine")
    (tmp_path / "log.txt").write_text(text.replace("Precision: FP32+FP16", "Precision: FP32"))
    run, _ = TRTEXEC.runs(read_file(tmp_path / "log.txt"))
    assert (run.cell.precision, run.cell.runtime_mode) == ("unknown", {})


TF32_LINE = "[10/03/2024-10:47:40] [I] TF32 is enabled by default. Add --noTF32 flag to further improve accuracy"


@pytest.mark.parametrize(
    ("old", "new", "precision"),
    [
        ("", "", "float32"),  # on a GPU without TF32
        ("Capability: 7.5", "Capability: 8.6", "tf32"),
        ("Compute Capability: 7.5", "SMs: 108", "unknown"),
        ("Compute Capability: 7.5", TF32_LINE, "tf32"),
        ("resnet50.onnx --shapes", f"resnet50.onnx --noTF32 --shapes=x:8\n{TF32_LINE}\n", "float32"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec", f"{TF32_LINE}\nA command with", "unknown"),
    ],
)
def test_fp32_is_tf32_unless_the_gpu_has_none_or_the_command_turns_it_off(tmp_path, old, new, precision):
    text = (FOLDER / "log.txt").read_text().partition("&&&& PASSED")[0]
    text = text.replace("FP32+FP16", "FP32").replace(" --fp16", "")
    (tmp_path / "log.txt").write_text(text.replace(old, new) if old else text)
    (run,) = TRTEXEC.runs(read_file(tmp_path / "log.txt"))
    assert (run.cell.precision, run.cell.runtime_mode["precisions"]) == (precision, "FP32")


def test_with_an_implicit_batch_the_stated_throughput_is_of_samples(tmp_path):
    text = (FOLDER / "log.txt").read_text().replace("Batch: Explicit", "Batch: 8")
    (tmp_path / "log.txt").write_text(text.replace("has 391 queries", "has 3128 queries"))
    run, _ = TRTEXEC.runs(read_file(tmp_path / "log.txt"))
    (result,) = run.results
    assert (result.point.batch_size, result.iterations) == (8, 391)
    assert result.metrics["throughput_samples_per_sec"] == 130.298


def test_every_query_is_a_raw_value_and_the_first_200_ms_are_warm_up():
    (run,) = runs("times.json")
    (result,) = run.results
    found = {(one.metric, one.phase): one.values for one in result.samples}
    assert found[("latency_wall", "measure")] == (5.17, 5.18, 5.19, 5.2, 5.21, 5.22)
    assert found[("latency_wall", "warmup")] == (5.15, 5.16)
    assert found[("latency_device", "measure")] == pytest.approx((5.02, 5.03, 5.04, 5.05, 5.06, 5.07))
    assert (result.iterations, result.warmup_iterations) == (6, 2)
    assert result.metrics["latency_median_ms"] == pytest.approx(5.195)


CUT_OUT = """\
[06/12/2022-22:34:00] [I] Average on 10 runs - GPU latency: 1.56245 ms - Host latency: 1.65786 ms
[06/12/2022-22:34:00] [I] Host Latency
[06/12/2022-22:34:00] [I] mean: 1.66069 ms (end to end 3.00909 ms)
[06/12/2022-22:34:00] [I] median: 1.65601 ms (end to end 3.01636 ms)
[06/12/2022-22:34:00] [I] throughput: 0 qps
"""
TWO = """\
[07/28/2022-16:00:55] [I] === Performance summary ===
[07/28/2022-16:00:55] [I] Throughput: 716.632 qps
[07/28/2022-16:00:55] [I] Latency: min = 1.3476 ms, max = 1.5657 ms, mean = 1.38629 ms, median = 1.38037 ms
[07/28/2022-16:00:55] [I] H2D Latency: min = 0 ms, max = 0 ms, mean = 0 ms, median = 0 ms, percentile(99%) = 0 ms
[07/28/2022-16:01:55] [I] === Performance summary ===
[07/28/2022-16:01:55] [I] Throughput: 500.5 qps
[07/28/2022-16:01:55] [I] Latency: min = 2.3476 ms, max = 2.5657 ms, mean = 2.38629 ms, median = 2.38037 ms, \
percentile(99.9%) = 2.56 ms
"""


def cut_out(folder, text):
    (folder / "notes.txt").write_text(text)
    return [run.results[0] for run in TRTEXEC.runs(read_file(folder / "notes.txt"))]


def test_a_part_of_a_log_of_version_7_is_recognised_and_a_throughput_of_0_is_none(tmp_path):
    (result,) = cut_out(tmp_path, CUT_OUT)
    assert result.metrics["latency_median_ms"] == 1.65601
    assert "0 qps" in result.missing["queries_per_sec"]


def test_two_summaries_without_their_commands_are_two_runs(tmp_path):
    first, second = cut_out(tmp_path, TWO)
    assert (first.metrics["latency_median_ms"], second.metrics["latency_median_ms"]) == (1.38037, 2.38037)
    assert (first.metrics["queries_per_sec"], second.metrics["queries_per_sec"]) == (716.632, 500.5)
    assert second.metrics["latency_p99_9_ms"] == 2.56
    assert "nothing was copied" in first.missing["h2d_median_ms"]


@pytest.mark.parametrize("name", ["version_7.txt", "log.txt"])
def test_times_of_a_command_that_ended_in_failed_are_invalid(tmp_path, name):
    (tmp_path / "a.log").write_text((FOLDER / name).read_text().replace("&&&& PASSED", "&&&& FAILED"))
    for path, validity in ((FOLDER / name, "valid"), (tmp_path / "a.log", "invalid")):
        result = next(iter(TRTEXEC.runs(read_file(path)))).results[0]
        assert (result.status, result.validity) == ("ok", validity)


def test_a_model_of_a_default_name_has_that_of_its_folder(tmp_path):
    text = (FOLDER / "log.txt").read_text().replace("models/resnet50.onnx", "bert-base/model.onnx")
    (tmp_path / "log.txt").write_text(text)
    run, _ = TRTEXEC.runs(read_file(tmp_path / "log.txt"))
    assert run.cell.workload.model_id == "bert-base"


def test_a_terminals_colours_are_no_part_of_a_name(tmp_path):
    text = (FOLDER / "log.txt").read_text()
    (tmp_path / "log.txt").write_text("".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines()))
    coloured = list(TRTEXEC.runs(read_file(tmp_path / "log.txt")))
    assert [run.cell for run in coloured] == [run.cell for run in runs("log.txt")]


PROFILES = "--minShapes=input_ids:1x128 --optShapes=input_ids:8x128 --maxShapes=input_ids:64x512"


def changed(folder, flags, printed=""):
    """The run of the recorded log with other flags in its command and other lines of options."""
    text = (FOLDER / "log.txt").read_text().replace("--shapes=input:8x3x224x224", flags)
    stated = "[10/03/2024-10:47:40] [I] Input inference shape : input=8x3x224x224\n"
    assert stated in text
    (folder / "log.txt").write_text(text.replace(stated, printed))
    return next(iter(TRTEXEC.runs(read_file(folder / "log.txt"))))


@pytest.mark.parametrize(
    ("flags", "printed", "label", "per_sec"),
    [
        (f"{PROFILES} --shapes=input_ids:32x128,mask:32x128", "", "b32 s128", 32),
        (f"{PROFILES} --shapes='input_ids:0':32x512", "", "b32 s512", 32),
        (PROFILES, "", "b8 s128", 8),
        (PROFILES, "[10/03/2024-10:47:40] [I] Input inference shape: input_ids=16x256\n", "b16 s256", 16),
        ("--shapes=images:4x3x640x640", "", "b4 image_size=640", 4),
    ],
)
def test_the_sizes_are_those_of_the_queries_and_not_those_the_engine_was_tuned_for(
    tmp_path, flags, printed, label, per_sec
):
    (result,) = changed(tmp_path, flags, printed).results
    assert result.point.label == label
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(per_sec * 130.298)


def test_shapes_that_are_no_sequence_and_no_square_image_tell_series_apart(tmp_path):
    run = changed(tmp_path, "--shapes=sample:2x4x64x96,t:1,states:2x77x768")
    assert run.results[0].point.label == "b2"
    assert run.cell.runtime_mode["shapes"] == "4x64x96, 1, 77x768"


def test_flags_that_change_what_a_query_does_are_settings_and_a_dla_is_no_gpu(tmp_path):
    run = changed(tmp_path, "--useDLACore=1 --allowGPUFallback --noDataTransfers --useCudaGraph --avgRuns=7")
    assert (run.cell.device.type, run.cell.device.selector) == ("dla", "dla:1")
    expected = {"allowGPUFallback": True, "noDataTransfers": True, "useCudaGraph": True, "precisions": "FP32+FP16"}
    assert run.cell.runtime_mode == expected


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        ("--memPoolSize=workspace:16 --maxTactics=1", {"memPoolSize": "workspace:16", "maxTactics": "1"}),
        ("--ofNewerVersions=3", {"ofNewerVersions": "3"}),
        ("--dynamicPlugins=/home/me/plugin.so", {"dynamicPlugins": "plugin.so"}),
        ("--exportProfile=/tmp/p.json", {"dumpProfile": True}),
        ("--explicitBatch --nvtxMode=verbose --deploy=/tmp/a.prototxt --remoteAutoTuningConfig=ssh://a@b", {}),
        ("--dumpProfile --separateProfileRun --exportTimes=t.json --duration=60 --device=1 --verbose", {}),
        ("--shapes=x:8x3x224x224 --optShapes=x:8x3x224x224 --useProfile=0", {}),
        ("--shapes=x:8x3x224x224 --optShapes=x:1x3x224x224", {"optShapes": "x:1x3x224x224"}),
        ("--batch=8 --maxBatch=8", {}),
        ("--batch=8 --maxBatch=64 --useProfile=1", {"maxBatch": "64", "useProfile": "1"}),
    ],
)
def test_every_flag_that_is_not_known_to_change_nothing_is_a_setting(tmp_path, flags, settings):
    plain = changed(tmp_path, "").cell.runtime_mode
    assert changed(tmp_path, flags).cell.runtime_mode == {**plain, **settings}


def test_a_log_without_its_command_states_the_settings_in_its_options(tmp_path):
    printed = "".join(
        f"[10/03/2024-10:47:40] [I] {line}\n"
        for line in ("DLACore: 0", "CUDA Graph: Enabled", "Spin-wait: Disabled", "Data transfers: Disabled")
    )
    changed(tmp_path, "", printed)
    text = (tmp_path / "log.txt").read_text()
    (tmp_path / "log.txt").write_text("".join(line for line in text.splitlines(True) if not line.startswith("&&&&")))
    run = next(iter(TRTEXEC.runs(read_file(tmp_path / "log.txt"))))
    assert run.cell.device.selector == "dla:0"
    assert run.cell.runtime_mode == {"useCudaGraph": True, "noDataTransfers": True, "precisions": "FP32+FP16"}


def test_a_log_without_options_has_the_precisions_of_its_command(tmp_path):
    (tmp_path / "log.txt").write_text(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=a.onnx --fp16 --int8 --infStreams=2\n" + TWO
    )
    run, *_ = TRTEXEC.runs(read_file(tmp_path / "log.txt"))
    assert run.cell.runtime_mode == {"precisions": "FP32+FP16+INT8", "streams": "2"}
    assert run.provenance.tool_version == "trtexec 8.6.1"


SUMMARY = """\
[I] === Performance summary ===
[I] Throughput: {0}00 qps
[I] Latency: min = 1.5 ms, max = 1.75 ms, mean = {0} ms, median = {0} ms
"""
COMMANDS = "`trtexec --onnx=models/static.onnx`\n`trtexec --onnx=dynamic.onnx --optShapes=x:64x512 --shapes=x:16x512`\n"


def of_text(folder, text):
    """Model, point and throughput of each run in a text."""
    (folder / "notes.md").write_text(text)
    found = [(run, run.results[0]) for run in TRTEXEC.runs(read_file(folder / "notes.md"))]
    return [
        (run.cell.workload.model_id[:7], one.point.label, one.metrics.get("throughput_samples_per_sec"))
        for run, one in found
    ]


def test_the_command_that_is_written_above_a_result_names_its_model_and_settings(tmp_path):
    built = "We use trtexec to measure - or trtexec itself:\ntrtexec --onnx=r.onnx --saveEngine=r.engine\n"
    engine = "$ trtexec --loadEngine=r.engine \\\n  --batch=8 --streams=8 --useCudaGraph | tee log\n"
    text = f"{built}{engine}{SUMMARY.format(1)}{COMMANDS[36:]}{SUMMARY.format(2)}"
    assert of_text(tmp_path, text) == [("r", "b8", 100.0), ("dynamic", "b16 s512", 3200.0)]
    run = next(iter(TRTEXEC.runs(read_file(tmp_path / "notes.md"))))
    assert run.cell.runtime_mode == {"useCudaGraph": True, "streams": "8"}


def test_the_command_ends_where_the_shell_takes_its_output(tmp_path):
    of_text(tmp_path, f"trtexec --onnx='my models/r.onnx' --batch=8 2>&1 | tee log\n{SUMMARY.format(1)}")
    run = next(iter(TRTEXEC.runs(read_file(tmp_path / "notes.md"))))
    assert run.provenance.command == ("trtexec", "--onnx=my models/r.onnx", "--batch=8")


def test_of_several_commands_above_a_result_none_is_its_own(tmp_path):
    text = (
        f"{COMMANDS}static:\n{SUMMARY.format(1)}dynamic:\n{SUMMARY.format(2)}Use trtexec --shapes=x:4x8 for others.\n"
    )
    assert of_text(tmp_path, text) == [("unknown", "b1", None)] * 2
    commands = "trtexec --onnx=a.onnx --useCudaGraph --batch=8\ntrtexec --onnx=a.onnx --useCudaGraph --batch=16\n"
    assert of_text(tmp_path, f"{commands}{SUMMARY.format(1)}") == [("a", "b1", None)]
    run = next(iter(TRTEXEC.runs(read_file(tmp_path / "notes.md"))))
    assert run.cell.runtime_mode == {"useCudaGraph": True}


def test_a_summary_below_a_logged_command_and_its_own_is_another_run(tmp_path):
    logged = "2026-10-01T10:00:00Z &&&& RUNNING TensorRT.trtexec # trtexec --onnx=r.onnx --shapes=x:8x512\n"
    text = f"{SUMMARY.format(3)}{logged}{SUMMARY.format(1)}&&&& PASSED # trtexec --onnx=r.onnx\n{SUMMARY.format(2)}"
    assert of_text(tmp_path, text) == [("unknown", "b1", None), ("r", "b8 s512", 800.0), ("unknown", "b1", None)]


def test_a_command_of_another_model_than_the_log_states_is_not_its_own(tmp_path):
    options = "[I] === Model Options ===\n[I] Model: a.onnx\n"
    assert of_text(tmp_path, f"trtexec --onnx=$MODEL --batch=4\n{options}{SUMMARY.format(1)}") == [("a", "b1", None)]


def test_values_that_are_quoted_or_not_resolved_are_read_as_a_shell_reads_them_or_not_at_all(tmp_path):
    command = (
        "trtexec --onnx=\"my models/a b.onnx\" --shapes='x:8x512' --builderOptimizationLevel=$LEVEL --useCudaGraph\n"
    )
    assert of_text(tmp_path, f"{command}{SUMMARY.format(1)}") == [("a b", "b8 s512", 800.0)]
    run = next(iter(TRTEXEC.runs(read_file(tmp_path / "notes.md"))))
    assert run.cell.runtime_mode == {"useCudaGraph": True}
