"""MLAgility's family: stats, state and report written by turnkey 6.2.5's own classes, the old report by hand."""

from __future__ import annotations

import pytest

from benchmarking.core.errors import FormatError
from db.importers import mlagility
from db.importers.mlagility import PLUGIN
from db.importers.support.files import NoResultsError, read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/mlagility"


def runs_of(path):
    return list(PLUGIN.runs(read_file(path)))


@pytest.fixture
def changed(tmp_path):
    """A function that replaces a text in a recorded file, and gives the runs of what comes out."""

    def write(name, old, new):
        text = (FOLDER / name).read_text()
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new))
        return runs_of(tmp_path / name)

    return write


def check_tiny_bert(run):
    (result,) = run.results
    assert result.metrics == {"latency_mean_ms": 12.345, "inferences_per_sec": 81.0, "flops": 22.5e9}
    assert (result.iterations, [doubt.kind for doubt in result.doubts]) == (100, ["batch_size_not_stated"])
    workload, cell = run.cell.workload, run.cell
    assert (workload.model_id, workload.parameter_count, workload.task) == ("tiny_bert", 109166782, "fill-mask")
    assert (cell.device.type, cell.device.name, cell.runtime) == ("cpu", "AMD EPYC 7R32", "onnxruntime")
    assert (run.started_at, run.provenance.versions) == ("2024-05-06T07:08:09.123456+00:00", {"ort": "1.17.1"})
    assert run.hardware.cpu_model == "AMD EPYC 7R32"
    assert run.origin.kept["author"] == "demo"


def test_a_table_of_latencies_without_a_unit_is_no_report(tmp_path):
    (tmp_path / "a.csv").write_text("model_name,mean_latency,p99\nfoo,0.0123,0.02\n")
    assert not PLUGIN.recognises(read_file(tmp_path / "a.csv"))


def test_each_value_of_a_builds_stats_is_imported():
    (run,) = runs_of(FOLDER / "turnkey_stats.yaml")
    check_tiny_bert(run)


def test_a_report_has_a_row_for_each_build():
    broken, llm, bert = runs_of(FOLDER / "report.csv")
    check_tiny_bert(bert)
    assert (broken.status, broken.results[0].error) == ("failed", "RuntimeError: export failed")
    assert [result.point.label for result in llm.results] == ["b1 s128 n32", "b1 s256 n32"]


def test_each_prompt_of_lemonade_is_a_result():
    (run,) = runs_of(FOLDER / "lemonade_stats.yaml")
    assert run.results[1].metrics == pytest.approx(
        {
            "time_to_first_token_mean_ms": 90.0,
            "time_to_first_token_std_ms": 2.0,
            "prefill_tokens_per_sec": 2844.4,
            "decode_tokens_per_sec": 39.0,
            "process_peak_rss_mb": 1.75 * 1024**3 / 1e6,
        }
    )
    assert (run.results[1].iterations, run.results[1].warmup_iterations) == (10, 5)
    assert (run.cell.workload.model_id, run.cell.device.type, run.cell.precision) == (
        "demo/tiny-llm",
        "cuda",
        "float16",
    )


def test_a_state_without_a_measurement_is_a_result_with_a_reason(changed):
    (run,) = changed("state.yaml", "downcast_applied: false", "downcast_applied: true")
    assert (run.results[0].status, run.results[0].error) == (
        "skipped",
        "the file holds no measurement (status: successful)",
    )
    assert (run.origin.tool_version, run.origin.kept["uid"]) == ("6.2.5", "mymachine_1_2")


def test_what_the_builds_file_states_is_not_stored_again(tmp_path):
    build, report = tmp_path / "tiny_bert_1234", tmp_path / "2024-05-07.csv"
    build.mkdir()
    for name in ("turnkey_stats.yaml", "state.yaml"):
        (build / name).write_bytes((FOLDER / name).read_bytes())
    text = (FOLDER / "report.csv").read_text()
    report.write_text(text)
    assert [run.cell.workload.model_id for run in runs_of(report)] == ["broken_1", "demo/tiny-llm"]
    with pytest.raises(NoResultsError, match=r"all its numbers are in turnkey_stats\.yaml"):
        runs_of(build / "state.yaml")
    report.write_text(text.replace(",12.345,", ",13.5,"))
    assert [run.results[0].metrics.get("latency_mean_ms") for run in runs_of(report)] == [None, None, 13.5]
    header, *rows = text.splitlines(keepends=True)
    report.write_text(header + "".join(row for row in rows if "tiny_bert_1234" in row))
    with pytest.raises(NoResultsError, match="in the files of the builds"):
        runs_of(report)
    report.write_text(report.read_text() + "cut,off\n")
    with pytest.raises(FormatError, match="line 3: 2 cells"):
        runs_of(report)


def test_the_file_of_a_build_is_read_once_however_many_rows_and_reports_have_it(tmp_path, monkeypatch):
    header, *rows = (FOLDER / "report.csv").read_text().splitlines(keepends=True)
    (own,) = [row for row in rows if "tiny_bert_1234" in row]
    for day in (7, 8):
        (tmp_path / f"2024-05-0{day}.csv").write_text(header + own * 20)
    (tmp_path / "tiny_bert_1234").mkdir()
    (tmp_path / "tiny_bert_1234/turnkey_stats.yaml").write_bytes((FOLDER / "turnkey_stats.yaml").read_bytes())
    read, stated_in = [], mlagility._stated_in
    monkeypatch.setattr(mlagility, "_stated_in", lambda build: read.append(build.path.name) or stated_in(build))
    for day in (7, 8):
        with pytest.raises(NoResultsError):
            runs_of(tmp_path / f"2024-05-0{day}.csv")
    assert read == ["turnkey_stats.yaml"]


def test_an_old_report_has_a_result_for_each_device_and_estimates_are_kept():
    x86, nvidia, unmeasured = runs_of(FOLDER / "old_report.csv")
    assert (x86.cell.device.type, x86.results[0].metrics) == ("cpu", {"latency_mean_ms": 70.479})
    assert (nvidia.cell.runtime, nvidia.results[0].metrics) == ("tensorrt", {"latency_mean_ms": 0.53})
    assert x86.origin.kept["groq_estimated_latency"] == "0.215"
    assert (unmeasured.cell.workload.model_id, unmeasured.status) == ("detr", "skipped")


def test_evaluations_of_one_build_are_runs_with_its_shared_fields(tmp_path):
    (tmp_path / "stats.yaml").write_text(
        "build_name: b\nhash: h\nmodel_name: m\nevaluations:\n"
        "  one: {mean_latency: 2.0, device_type: nvidia, runtime: trt}\n"
        "  two: {benchmark_status: FunctionStatus.TIMEOUT}\n"
    )
    first, second = runs_of(tmp_path / "stats.yaml")
    assert (first.cell.workload.model_id, first.cell.device.type) == ("m", "cuda")
    assert first.results[0].metrics == {"latency_mean_ms": 2.0}
    assert second.status == "timed_out"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "turnkey_stats.yaml",
            "mean_latency: 12.345",
            "mean_latency: fast",
            "mean_latency: expected a number, found 'fast'",
        ),
        ("turnkey_stats.yaml", "milliseconds (ms)", "seconds", r"mean_latency_units: expected milliseconds \(ms\)"),
        ("turnkey_stats.yaml", "task: fill-mask", "task: [1, {", "not YAML: "),
        ("turnkey_stats.yaml", "task: fill-mask", "task: !!python/object:os.system x", "takes plain values: got tag:"),
        ("report.csv", ",12.345,", ",12.345,12,", r"line 4: 31 cells under 30 column names"),
    ],
)
def test_an_invalid_value_is_one_line_with_its_place(changed, name, old, new, message):
    with left_out(message):
        changed(name, old, new)


def test_aliases_that_expand_without_end_are_refused(changed):
    lines = ["l0: &l0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(FormatError, match="its aliases expand to more than 100000 values"):
        changed("turnkey_stats.yaml", "task: fill-mask", "\n".join(lines))


def test_lemonades_report_has_the_responses_of_each_iteration():
    first, second = runs_of(FOLDER / "lemonade_perf.csv")
    assert (first.cell.workload.model_id, first.cell.precision, first.hardware.cpu_model) == (
        "demo/tiny-llm",
        "int4",
        "AMD Ryzen AI 9 HX 370",
    )
    assert [result.point.label for run in (first, second) for result in run.results] == [
        "b1 s64 n32",
        "b1 s64 n32",
        "b1 s128",  # iterations of 30 and 32 tokens
    ]
    assert first.results[0].metrics["prefill_tokens_std_per_sec"] == 12.5
    shorter, longer = second.results
    assert "time_to_first_token_std_ms" not in shorter.metrics
    assert (longer.metrics["time_to_first_token_mean_ms"], longer.metrics["decode_tokens_per_sec"]) == (250.0, 19.0)
    assert longer.extra["kept"]["response_tokens"] == [30, 32]


def tools(*names, more=""):
    return f"dtype: float16\n{more}selected_sequence_of_tools: [{', '.join(names)}]\n"


@pytest.mark.parametrize(
    ("name", "stated", "runtime", "mode", "point"),
    [
        ("lemonade", tools("huggingface-load", "accuracy-mmlu", "huggingface-bench"), "eager", {}, "b1 s128 n32"),
        (
            "lemonade",
            tools("quark-quantize", "huggingface-bench", more="num_beams: 4\n"),
            "eager",
            {"tools": "quark-quantize", "num_beams": 4},
            "b1 s128 n32",
        ),
        (
            "lemonade",
            tools("oga-load", "oga-bench", more="output_tokens: 512\n"),
            "onnxruntime-genai",
            {},
            "b1 s128 n512",
        ),
        (
            "lemonade",
            tools("load-llama-cpp", "llama-cpp-bench", more="output_tokens: 512\n"),
            "llama.cpp",
            {},
            "b1 s128 output_tokens_requested=512",
        ),
        ("lemonade", tools("load", "bench"), "server", {}, "b1 s128 n32"),
        (
            "turnkey",
            tools("export-pytorch", "convert-fp16", "benchmark").removeprefix("dtype: float16\n"),
            "onnxruntime",
            {"tools": "export-pytorch, convert-fp16"},
            "b1",
        ),
    ],
)
def test_the_tools_of_a_build_and_the_requested_length_tell_runs_apart(changed, name, stated, runtime, mode, point):
    before = "dtype: float16\n" if name == "lemonade" else "author: demo\n"
    (run,) = changed(f"{name}_stats.yaml", before, stated)
    cell = run.cell
    assert (cell.runtime, cell.runtime_mode, cell.precision) == (runtime, mode, "float16")
    assert run.results[0].point.label == point


@pytest.mark.parametrize(
    ("checkpoint", "model_id"),
    [
        ("/home/ann/models/Qwen3-0.6B-Q4_0.gguf", "Qwen3-0.6B-Q4_0"),
        ('"C:\\\\models\\\\phi-00001-of-00002.gguf"', "phi"),
        ("~/gemma-3/ggml-model-q4_0.gguf", "gemma-3/ggml-model-q4_0"),
        ("unsloth/Qwen3-0.6B-GGUF:Q4_0", "unsloth/Qwen3-0.6B-GGUF:Q4_0"),
    ],
)
def test_a_file_of_lemonade_is_the_model_in_it(changed, checkpoint, model_id):
    (run,) = changed("lemonade_stats.yaml", "checkpoint: demo/tiny-llm\n", f"checkpoint: {checkpoint}\n")
    assert run.cell.workload.model_id == model_id


def test_a_speed_of_0_of_lemonade_was_not_measured(changed):
    (run,) = changed("lemonade_stats.yaml", "- 40.0\n", "- 0\n")
    first, second = run.results
    assert "decode_tokens_per_sec" not in first.metrics
    assert first.missing["decode_tokens_per_sec"].startswith("left_out: 0 in the file")
    assert second.metrics["decode_tokens_per_sec"] == 39.0
