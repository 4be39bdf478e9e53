"""The import of files: what the user gives in place of their values, and what is left out of them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
import socket
from datetime import datetime
from pathlib import Path

import pytest

from db.importers.openvino_benchmark_app import PLUGIN
from db.importers.support.files import importers, read_file, recognising
from db.importers.support.importing import GivenValues, files_in, import_files
from db.importers.timers import HYPERFINE
from tests.helpers.paths import FIXTURES

REPORT = FIXTURES / "imports/openvino_benchmark_app/benchmark_report.json"


def imported(path, stored=None):
    """The outcome of importing a file that is named."""

    def store(files):
        for file in files:
            (stored if stored is not None else []).extend(file.runs)
        return [len(file.runs) for file in files]

    (outcome,) = import_files([(path, True)], None, GivenValues(), store)
    return outcome


def report():
    (run,) = PLUGIN.runs(read_file(REPORT))
    return run


def test_an_empty_file_with_a_byte_order_mark_is_empty_and_a_repeated_name_is_named(tmp_path):
    (tmp_path / "empty.json").write_bytes(b"\xef\xbb\xbf")
    repeated = (
        '{"model_id": "m", "num_prompts": 5, "request_throughput": 1.5, "request_throughput": 2.5, "a": 1, "a": 1}'
    )
    (tmp_path / "repeated.json").write_text(repeated)
    empty, twice = import_files(files_in([tmp_path]), None, GivenValues(), lambda files: [1 for _ in files])
    assert (empty.state, empty.reason) == ("unknown", "an empty file")
    assert twice.left_out == ("request_throughput: '1.5': the name is repeated, and the last value is used",)


def test_given_values_replace_file_values_which_are_kept():
    run = GivenValues(model_id="bert-tiny", device_name="Xeon 8480", precision="float32").applied_to(report())
    assert (run.cell.workload.model_id, run.cell.precision, run.hardware.device.name) == (
        "bert-tiny",
        "float32",
        "Xeon 8480",
    )
    assert run.cell.device == run.hardware.device
    assert run.origin.kept["replaced"] == {"model_id": "ir", "device_name": None, "precision": "unknown"}


def test_a_value_that_is_replaced_twice_is_the_files_and_given_back_it_is_not_replaced():
    once = GivenValues(model_id="a", precision="float32").applied_to(report())
    twice = GivenValues(model_id="b").applied_to(once)
    assert twice.origin.kept["replaced"] == {"model_id": "ir", "precision": "unknown"}
    again = GivenValues(model_id="ir", precision="unknown").applied_to(twice)
    assert again.origin == report().origin


def test_benchmarks_that_are_given_a_model_stay_apart_by_their_names(tmp_path):
    rows = [{"command": f"python infer.py --{word}", "mean": 0.5, "times": [0.5]} for word in ("fp16", "fp32")]
    (tmp_path / "h.json").write_text(json.dumps({"results": rows}))
    runs = [*HYPERFINE.runs(read_file(tmp_path / "h.json"))]
    given = [GivenValues(model_id="bert").applied_to(run) for run in runs]
    assert [run.cell.workload.model_id for run in given] == ["bert", "bert"]
    assert [run.cell.runtime_mode["benchmark"] for run in given] == [row["command"] for row in rows]
    again = GivenValues(model_id="gpt").applied_to(given[0])
    assert again.cell.runtime_mode == given[0].cell.runtime_mode
    assert GivenValues(model_id=rows[0]["command"]).applied_to(again).cell == runs[0].cell


def test_a_given_value_for_several_of_a_file_is_told(tmp_path):
    path = tmp_path / "a.jsonl"
    shutil.copy(FIXTURES / "imports/llama_bench/41_columns.jsonl", path)
    rows = [json.loads(line) for line in path.read_text().splitlines()][:1]
    rows += [rows[0] | {"model_filename": "other.gguf", "model_type": "other 7B F16"}]
    path.write_text("\n".join(map(json.dumps, rows)))

    def told(**values):
        (outcome,) = import_files([(path, True)], None, GivenValues(**values), lambda files: [1 for _ in files])
        return outcome.made_alike

    assert told() == told(runtime="x") == ()
    (text,) = told(model_id="m")
    assert text.startswith("--model-id m replaces ")


def test_ids_and_hardware_depend_on_the_given_values():
    plain, first, second = report(), *(GivenValues(device_name=name).applied_to(report()) for name in ("A", "B"))
    assert len({plain.run_id, first.run_id, second.run_id}) == 3
    assert len({run.results[0].result_id for run in (plain, first, second)}) == 3
    assert len({run.hardware.hardware_id for run in (plain, first, second)}) == 3
    assert first == GivenValues(device_name="A").applied_to(report())


def test_tags_do_not_change_the_run_id():
    run = GivenValues(tags={"lab": "b"}).applied_to(report())
    assert run.provenance.tags == {"lab": "b"}
    assert run.run_id == report().run_id


def test_a_given_date_removes_the_doubt():
    run = GivenValues(started_at=datetime(2025, 5, 6, 7)).applied_to(report())
    assert (run.started_at, run.finished_at) == ("2025-05-06T07:00:00+00:00", None)
    assert "undated" not in [doubt.kind for doubt in run.results[0].doubts]


def test_a_given_date_moves_every_time_of_the_run():
    def of(format_name, path, *, started_at=None):
        (run, *_) = (one for one in importers() if one.name == format_name).__next__().runs(read_file(FIXTURES / path))
        return GivenValues(started_at=started_at).applied_to(run)

    date = datetime(2025, 5, 6, 7)
    (requests,) = of("vllm_bench_serve", "imports/vllm_bench_serve/detailed.json", started_at=date).results[0].requests
    assert requests.started_at == "2025-05-06T07:00:00+00:00"
    own, moved = (of("pyperf", "imports/pyperf/suite.json", started_at=at) for at in (None, date))
    kinds = [[doubt.kind for doubt in run.results[0].doubts] for run in (own, moved)]
    assert ["time_zone_unknown" in one for one in kinds] == [True, False], "of a time that is not used any more"
    starts = [[datetime.fromisoformat(one.started_at) for one in run.results[0].samples] for run in (own, moved)]
    assert len(set(starts[0])) > 1, "each process has its own start"
    assert [at - starts[0][0] for at in starts[0]] == [at - starts[1][0] for at in starts[1]]


def test_a_device_has_its_type_and_selector():
    device = GivenValues(device="cuda:1").applied_to(report()).cell.device
    assert (device.type, device.selector) == ("cuda", "cuda:1")


HUGE = "9" * 400


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        ("asv/result.json", '"num_cpu": "', f'"x": {HUGE}, "num_cpu": "'),
        ("google_benchmark/repetitions.json", '"iterations": 1', f'"iterations": {HUGE}, "y": 1'),
        ("onnxruntime_perf_test/printed.txt", "P95 Latency: 0.0139", f"P95 Latency: {HUGE}"),
        ("onnxruntime_perf_test/result.csv", "P90 Latency: ", f"P90 Latency: {HUGE}"),
        ("optimum_benchmark/tiny_gpt2.json", '"cpu_ram_mb": ', '"cpu_ram_mb": 1e305, "z": '),
        ("transformers_benchmark_v2/benchmark.json", '"gpu_memory_total_gb": ', '"gpu_memory_total_gb": 1e300, "z": '),
    ],
)
def test_an_absurd_number_is_left_out_alone(tmp_path, source, old, new):
    text = (FIXTURES / "imports" / source).read_text()
    assert old in text
    path = tmp_path / source.rpartition("/")[2]
    path.write_text(text.replace(old, new, 1))
    stored, before = [], []
    done, whole = imported(path, stored), imported(FIXTURES / "imports" / source, before)
    assert (done.state, done.results) == ("imported", whole.results)
    assert all("\n" not in text for text in done.left_out)


@pytest.mark.parametrize(
    ("content", "description"),
    [
        (b"", "an empty file"),
        (b"  \n", "an empty file"),
        (b"PK\x03\x04rest\xff", "not text in UTF-8 or UTF-16: it begins with the bytes 50 4b 03 04"),
        (b'{"a": 1, "b": []}', "JSON, an object with the keys a, b"),
        (b'[{"rows": 1}]', "JSON, a list of 1, the first an object with the keys rows"),
        (b'{"a": 1}\n{"a": 2}\n', "JSON lines, 2 of them, the first an object with the keys a"),
        ("hello".encode("utf-16"), "UTF-16 text that begins with 'hello'"),
        (b"name;value\n1;2\n", "text that begins with 'name;value'"),
    ],
)
def test_an_unknown_format_says_what_was_found(tmp_path, content, description):
    path = tmp_path / "a.dat"
    path.write_bytes(content)
    done = imported(path)
    assert done.state == "refused"
    assert f"unknown format: {description}" in done.reason


@pytest.mark.parametrize(
    ("source", "old", "new", "line"),
    [
        ("vllm_printed/serving.log", b"", b"caf\xe9\n", "line 1: read with \ufffd for what is not UTF-8: 'caf\ufffd'"),
        ("vllm_printed/serving.log", b"", b"100%|\xe2\x96", "'100%|\ufffd'"),
        ("llama_bench/33_columns.json", b"AMD Ryzen", b"AMD Ryz\xe9n", "for what is not UTF-8, as in 2 more lines: "),
        ("llama_bench/table.md", "±".encode(), b"\xb1", "for what is not UTF-8, as in 2 more lines: "),
        ("openvino_llm_bench/table.csv", b"", b"\xe9\n", "'\ufffd'"),
    ],
)
def test_a_few_bytes_that_are_no_utf_8_take_no_result_with_them(tmp_path, source, old, new, line):
    content = (FIXTURES / "imports" / source).read_bytes()
    at_end = not new.endswith(b"\n")
    path = tmp_path / source.rpartition("/")[2]
    path.write_bytes(content.replace(old, new) if old else content + new if at_end else new + content)
    done, whole = imported(path), imported(FIXTURES / "imports" / source)
    assert (done.state, done.results) == ("imported", whole.results)
    assert any(line in text for text in done.left_out)


def test_many_bytes_that_are_no_utf_8_are_no_text(tmp_path):
    (tmp_path / "a.dat").write_bytes((FIXTURES / "imports/llama_bench/table.md").read_bytes() + b"\xe9\xe8" * 100)
    assert "not text in UTF-8 or UTF-16" in imported(tmp_path / "a.dat").reason


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = imported(tmp_path / "pipe")
    assert (done.state, done.reason) == ("refused", f"cannot read {tmp_path / 'pipe'}: not a regular file")


def test_what_is_not_a_file_in_a_folder_is_named_and_takes_nothing_with_it(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/table.md").write_bytes((FIXTURES / "imports/llama_bench/table.md").read_bytes())
    os.mkfifo(tmp_path / "a_pipe")
    (tmp_path / "b_link").symlink_to("nothing")
    (tmp_path / "c_loop").symlink_to("c_loop")
    (tmp_path / "d_folder").symlink_to("results")
    (tmp_path / "e_device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "f_socket"))
        done = list(import_files(files_in([tmp_path]), None, GivenValues(), lambda files: [1 for _ in files]))
    assert {one.path.name: one.state for one in done} == {
        **dict.fromkeys(("a_pipe", "b_link", "c_loop", "d_folder", "e_device", "f_socket"), "unread"),
        "table.md": "imported",
    }
    assert next(one.reason for one in done if one.path.name == "d_folder").endswith(
        "a link to a folder, which is not followed: give the folder itself"
    )


def test_a_folder_that_cannot_be_read_is_refused_and_takes_nothing_with_it(tmp_path, monkeypatch):
    (tmp_path / "table.md").write_bytes((FIXTURES / "imports/llama_bench/table.md").read_bytes())
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def closed(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    done = list(import_files(files_in([tmp_path]), None, GivenValues(), lambda files: [1 for _ in files]))
    assert [(one.path.name, one.state) for one in done] == [("table.md", "imported"), ("closed", "refused")]
    assert "a folder that cannot be read: Permission denied" in done[1].reason


def test_a_page_about_a_result_file_is_not_a_result_file(tmp_path):
    shown = (FIXTURES / "imports/mlagility/turnkey_stats.yaml").read_text()
    (tmp_path / "page.md").write_text(f"# Results\n\nThe file of a build looks so:\n\n```yaml\n{shown}\n```\n")
    assert recognising(read_file(tmp_path / "page.md")) == ()


SECRET = {"account": "of-the-user", "system_name": "s", "accelerator_model_name": "a", "host_processor_model_name": "h"}


def kept_of(path):
    """What is stored of a file's runs, and what is left out."""
    stored = []
    outcome = imported(path, stored)
    return str([(run.origin.kept, run.hardware, run.results) for run in stored]), " ".join(outcome.left_out)


@pytest.mark.parametrize("way", ["link", "name"])
def test_a_submission_leads_to_no_file_outside_of_its_folder(way, tmp_path):
    outside = tmp_path / "user/systems/config.json"
    outside.parent.mkdir(parents=True)
    outside.write_text(json.dumps(SECRET))
    folder = tmp_path / "given"
    systems = folder / "closed/Example/systems"
    systems.mkdir(parents=True)
    table = (FIXTURES / "imports/mlperf/summary.csv").read_text().splitlines()[:2]
    header, row = (next(csv.reader([line])) for line in table)
    values = dict(zip(header, row, strict=True))
    if way == "link":
        (systems / "config.json").symlink_to(outside)
        values |= {"Division": "closed", "Organization": "Example", "Platform": "config"}
    else:
        values |= {"Division": "..", "Organization": "user", "Platform": "config"}
    with (folder / "summary.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([header, values.values()])
    kept, left_out = kept_of(folder / "summary.csv")
    assert "of-the-user" not in kept
    assert "config.json: not read, since it is not in the folder of the file" in left_out
    if way == "link":
        (systems / "config.json").unlink()
        (systems / "config.json").write_text(json.dumps(SECRET))
        assert "of-the-user" in kept_of(folder / "summary.csv")[0]


def test_a_configuration_beside_a_result_is_no_link_to_another_file(tmp_path):
    outside = tmp_path / "config.yaml"
    outside.write_text("benchmark: {input_shapes: {batch_size: 2048}}\naccount: of-the-user\n")
    folder = tmp_path / "given"
    folder.mkdir()
    report = folder / "inference_results.csv"
    report.write_text(",forward.latency(s),forward.throughput(samples/s)\n0,0.0123,81.3\n")
    (folder / "hydra_config.yaml").symlink_to(outside)
    kept, left_out = kept_of(report)
    assert "batch_size=1" in kept
    assert "of-the-user" not in kept
    assert "hydra_config.yaml: not read" in left_out


TWINS = [
    ("aiperf/table.csv", "aiperf/profile_export_aiperf.json"),
    ("openvino_llm_bench/table.csv", "openvino_llm_bench/report.json"),
    ("onnxruntime_genai_benchmark/genai_e2e.csv", "onnxruntime_genai_benchmark/records.json"),
    ("vllm_bench_offline/latency.json", "vllm_bench_offline/latency_8.pytorch.json"),
]


@pytest.mark.parametrize(("name", "whole"), TWINS)
def test_a_file_gives_way_only_to_one_of_its_format(name, whole, tmp_path):
    path = tmp_path / f"run{Path(name).suffix}"
    path.write_bytes((FIXTURES / "imports" / name).read_bytes())
    other = tmp_path / ("run.pytorch.json" if whole.endswith(".pytorch.json") else "run.json")
    for content in ('{"name": "of another tool"}', '[{"cut": ', ""):
        other.write_text(content)
        assert imported(path).state == "imported", content
    other.write_bytes((FIXTURES / "imports" / whole).read_bytes())
    assert (imported(path).state, imported(path).reason) == ("nothing", f"{path}: all its numbers are in {other.name}")


def test_what_is_read_from_the_standard_input_has_no_folder(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text("server: {model_name: of-another-load}\n")
    monkeypatch.chdir(tmp_path)
    report = FIXTURES / "import_folders/inference_perf_rate/stage_0_lifecycle_metrics.json"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(report.read_bytes())))
    stored = []
    imported(Path("-"), stored)
    assert [run.cell.workload.model_id[:8] for run in stored] == ["unknown-"]


def test_a_gzipped_file_may_come_on_the_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(REPORT.read_bytes()))))
    file = read_file(Path("-"))
    assert (file.content, file.sha256) == (REPORT.read_bytes(), read_file(REPORT).sha256)


BESIDE = [
    ("import_folders/inference_perf_rate", "stage_0_lifecycle_metrics.json", "config.yaml"),
    ("import_folders/inference_perf_rate", "stage_0_lifecycle_metrics.json", "per_request_lifecycle_metrics.json"),
    ("imports/optimum_benchmark", "tiny_bert_report.json", "tiny_bert_config.json"),
    ("imports/mlperf", "summary.csv", "closed/AMD/systems/87xMI355X_22xEPYC_9575F.json"),
]


@pytest.mark.parametrize(("folder", "name", "other"), BESIDE)
@pytest.mark.parametrize("content", [b"\x1f\x8b\x08 no gzip", b'[{"cut": '])
def test_a_file_that_cannot_be_read_takes_no_file_beside_it_with_it(folder, name, other, content, tmp_path):
    shutil.copytree(FIXTURES / folder, tmp_path, dirs_exist_ok=True)
    for twin in ("tiny_bert.json", "tiny_bert.csv"):
        (tmp_path / twin).unlink(missing_ok=True)
    assert (tmp_path / other).exists()
    (tmp_path / other).write_bytes(content)
    stored = []
    outcome = imported(tmp_path / name, stored)
    assert (outcome.state, bool(stored)) == ("imported", True)
    assert any(one.startswith(f"{Path(other).name}: ") for one in outcome.left_out), outcome.left_out


def test_gzipped_files_are_understood_as_the_files_are_together_with_those_beside_them(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    shutil.copytree(FIXTURES / "imports", plain / "imports")
    shutil.copytree(FIXTURES / "import_folders", plain / "import_folders")
    (plain / "broken.json").write_text('{"a": 1')
    shutil.copytree(plain, packed)
    for path in [path for path in packed.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        os.utime(f"{path}.gz", ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        path.unlink()

    def understood(root):
        runs = []

        def store(files):
            runs.extend((file.source_sha256, file.runs) for file in files)
            return [1 for _ in files]

        outcomes = import_files(files_in([root]), None, GivenValues(), store)
        states = {str(one.path.relative_to(root)).removesuffix(".gz"): (one.state, one.format) for one in outcomes}
        return states, dict(runs)

    (states, runs), (states_of_plain, runs_of_plain) = understood(packed), understood(plain)
    assert states == states_of_plain
    assert runs == runs_of_plain
