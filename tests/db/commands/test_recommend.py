"""`benchhouse recommend`, through its own main."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from benchmarking.core.quality import Quality, QualityValue
from db.analysis.recommend.measured_options import model_and_quantization, models_by_name, newer_doubtful
from db.commands import recommend
from db.warehouse import Warehouse
from tests.helpers.run_changes import Alter
from visualize.drawing.rows import Selection, charts

CACHE = {}


@pytest.fixture
def measured(tmp_path_factory, empty_database, make_run):
    """A warehouse: eager takes 8, 16 ms at batch 1, 2; onnxruntime half; what is invalid or simulated a quarter."""
    if "path" not in CACHE:
        path = shutil.copy2(empty_database, tmp_path_factory.mktemp("recommend") / "measured.duckdb")
        small = {"sequence_lengths": (32,), "iterations": 3}
        wrong = make_run(runtime="compiled", slowdown=0.25, **small)
        wrong = replace(wrong, results=tuple(replace(result, validity="invalid") for result in wrong.results))
        emulated = make_run(device="qnn", runtime="qnn", slowdown=0.25, **small)
        device = replace(emulated.hardware.device, simulated=True)
        emulated = replace(
            emulated,
            cell=replace(emulated.cell, device=device),
            hardware=replace(emulated.hardware, device=device, hardware_id="e" * 16),
        )
        runs = (make_run(**small), make_run(runtime="onnxruntime", slowdown=0.5, **small), wrong, emulated)
        longer = make_run(sequence_lengths=(128,), batch_sizes=(1,), iterations=3)
        only_wrong = replace(
            wrong, run_id="w", cell=replace(wrong.cell, workload=replace(wrong.cell.workload, model_id="w"))
        )
        only_wrong = replace(only_wrong, results=(replace(only_wrong.results[0], result_id="w1"),))
        with Warehouse.open(path) as warehouse:
            warehouse.ingest_all((*runs, longer, only_wrong))
        CACHE["path"] = path
    return str(CACHE["path"])


@pytest.fixture
def asked(measured, capsys):
    """A function that runs the command and gives its exit code and document."""

    def run(*arguments):
        code = recommend.main(["bert-base-uncased", *arguments, "--json", "--db-path", measured])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_workloads_are_separate_and_invalid_or_simulated_results_are_no_options(asked):
    code, document = asked()

    assert code == 0
    lengths = {each["workload"]["sequence_length"]: len(each["options"]) for each in document["workloads"]}
    assert lengths == {32: 4, 128: 1}
    assert {one["runtime"] for each in document["workloads"] for one in each["options"]} == {"eager", "onnxruntime"}


def test_workloads_of_one_text_are_told_apart(tmp_path, empty_database, make_run, capsys):
    path, point = (
        shutil.copy2(empty_database, tmp_path / "own.duckdb"),
        {"batch_sizes": (1,), "sequence_lengths": (32,)},
    )
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([make_run(**point), Alter.workload(make_run(**point), revision="abcdef0123456789")])
    assert recommend.main(["bert-base-uncased", "--db-path", str(path)]) == 0
    text = capsys.readouterr().out
    assert "feature-extraction, s32, random weights: 1 option" in text
    assert "feature-extraction, s32, random weights, revision abcdef01: 1 option" in text


def test_how_many_simulated_results_are_left_out_is_said(measured, capsys):
    for among, said in (([], "left out: 2 simulated results"), (["--among", "runtime=eager"], "")):
        assert recommend.main(["bert-base-uncased", *among, "--db-path", measured]) == 0
        err = capsys.readouterr().err
        assert ("left out" in err) is bool(said)
        assert said in err


def test_the_limit_decides_the_batch(asked):
    code, document = asked("--sequence-length", "32", "--latency-ms", "8.2", "--prefer", "throughput")

    (workload,) = document["workloads"]
    assert code == 0
    assert [(one["runtime"], one["point"]["batch_size"], one["fits"]) for one in workload["options"]] == [
        ("onnxruntime", 1, True),
        ("onnxruntime", 2, False),
        ("eager", 1, False),
        ("eager", 2, False),
    ]
    assert workload["recommended"] == workload["options"][0]["result_id"]
    assert workload["options"][1]["misses"] == [{"quantity": "latency", "limit": 8.2, "value": 8.3, "why": None}]


def test_nothing_fits_is_exit_code_1_with_the_nearest(measured, capsys):
    code = recommend.main(
        ["bert-base-uncased", "--sequence-length", "32", "--latency-ms", "4", "--energy-j", "1", "--db-path", measured]
    )

    out = capsys.readouterr().out
    assert code == 1
    assert "no option meets the limits; the closest: Test CPU, onnxruntime, float32, batch 1" in out
    assert "latency 4 ms, up to 4.3 ms with its uncertainty, 7.5% over 4 ms" in " ".join(out.split())
    assert "energy per item unknown (not_supported)" in out


def test_a_memory_or_an_energy_of_0_was_not_measured(tmp_path, empty_database, make_run, capsys):
    """Tools write it for a process that the driver does not know, or without a counter."""
    path = shutil.copy2(empty_database, tmp_path / "zero.duckdb")
    known = {"memory_device_process_peak_mb": 700.0, "energy_gpu_j_per_call": 2.0, "energy_dram_j_per_call": 0.0}
    zero = {
        "memory_device_process_peak_mb": 0.0,
        "memory_device_reserved_peak_mb": 9000.0,
        "energy_gpu_j_per_call": 0.0,
    }
    with Warehouse.open(path) as warehouse:
        for runtime, found in (("eager", zero), ("onnxruntime", known)):
            run = make_run(runtime=runtime, batch_sizes=(1,), sequence_lengths=(32,))
            (result,) = run.results
            missing = {name: why for name, why in result.missing.items() if name not in found}
            changed = replace(result, metrics={**result.metrics, **found}, missing=missing)
            warehouse.ingest(replace(run, results=(changed,)))
        for view in ("hardware_comparison", "runtime_comparison", "architecture_comparison"):
            rows = warehouse.query(f"SELECT runtime, memory_peak_mb FROM {view}").dicts()
            assert {row["runtime"]: row["memory_peak_mb"] for row in rows} == {"eager": 9000.0, "onnxruntime": 700.0}
    recommend.main(["bert-base-uncased", "--json", "--db-path", str(path)])
    (workload,) = json.loads(capsys.readouterr().out)["workloads"]
    found = {one["runtime"]: (one["memory_mb"], one["energy_j"], one["energy_of"]) for one in workload["options"]}
    assert found == {"eager": (9000.0, None, None), "onnxruntime": (700.0, 2.0, "GPU")}


def test_the_table_has_cost_and_front(measured, capsys, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nper_hour: {cpu: 2.88}\n")

    code = recommend.main(
        ["bert-base-uncased", "--batch", "1", "--sequence-length", "32", "--price", str(prices), "--db-path", measured]
    )

    out = capsys.readouterr().out.replace("\n    ", " ").splitlines()
    assert code == 0
    assert out[2] == "feature-extraction, s32, random weights: 2 options, no limits"
    # 32 tokens in 4 ms are 8000 a second; 2.88 an hour are 0.0008 a second: 0.1 a million.
    assert out[3] == (
        "recommended: Test CPU, onnxruntime, float32, batch 1: the lowest cost of all, 0.1 EUR per million tokens, "
        "8000 tokens/s at 4 ms; the next best, Test CPU, eager, float32, batch 1, is worse by a factor of 2, judged "
        "slower"
    )
    assert out[5].split() == [
        *("device", "runtime", "precision", "batch", "median", "ms", "up", "to", "tokens/s", "peak", "MB"),
        *("EUR/M", "tokens", "front"),
    ]
    assert out[7].split()[-2:] == ["0.1", "yes"]
    assert out[8].split()[-2:] == ["0.2", "-"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("bert-base-uncase",), 2, "unknown model 'bert-base-uncase': did you mean bert-base-uncased"),
        (("w",), 3, "no result of w can be compared: 1 result is selected, 1 invalid or throttled"),
        (("bert-base-uncased", "--batch", "77"), 3, "0 results are selected; of it are stored device cpu, qnn, "),
        (
            ("bert-base-uncased", "--among", "runtime=eager,device=qnn"),
            3,
            "compiled, eager, onnxruntime, qnn, precision float32, batch 1, 2, sequence 32, 128",
        ),
        (("bert-base-uncased", "--price", "/nowhere.yaml"), 2, "per_hour: {cpu: 0.40}: found no /nowhere.yaml"),
        (("bert-base-uncased", "--price", "cpu=0.5"), 2, "per_hour: {cpu: 0.5}: found no cpu=0.5"),
        (("bert-base-uncased", "--prefer", "cost"), 2, "--prefer cost requires --price FILE"),
        (("gpt2",), 3, "no result of gpt2 is stored: measure it with benchhouse run gpt2 --save"),
        (("bert-base-uncased", "--among", "nonsense"), 2, "'nonsense' is not a selection"),
        (("bert-base-uncased", "--latency-ms", "fast"), 2, "takes a number from 0"),
    ],
)
def test_invalid_requests_are_one_line(measured, capsys, arguments, code, message):
    assert recommend.main([*arguments, "--db-path", measured]) == code

    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_each_result_that_is_no_option_is_counted_once(empty_database, tmp_path, make_run, capsys):
    path = shutil.copy2(empty_database, tmp_path / "failed.duckdb")
    run = make_run(sequence_lengths=(32,), batch_sizes=(1, 2), iterations=3)
    first, second = run.results
    device = replace(run.hardware.device, simulated=True)
    simulated = replace(
        make_run(sequence_lengths=(32,), batch_sizes=(1,), iterations=3),
        cell=replace(run.cell, device=device),
        hardware=replace(run.hardware, device=device, hardware_id="e" * 16),
    )
    simulated = replace(simulated, results=(replace(simulated.results[0], validity="invalid"),))
    run = replace(run, results=(replace(first, validity="invalid"), replace(second, validity="throttled")))
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(run)
        warehouse.ingest(simulated)
    assert recommend.main(["bert-base-uncased", "--db-path", str(path)]) == 3
    assert (
        "3 results are selected, 1 simulated (which is never recommended), 2 invalid or throttled"
        in capsys.readouterr().err
    )


def test_an_empty_database_has_not_enough_data(database, capsys):
    assert recommend.main(["gpt2", "--db-path", str(database)]) == 3
    assert "has no results" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "model", "quantization"),
    [
        ("~/models/SmolLM2-135M-Instruct.Q4_1.gguf", "~/models/SmolLM2-135M-Instruct", "Q4_1"),
        ("Qwen2.5-7B-Instruct-Q4_K_M", "Qwen2.5-7B-Instruct", "Q4_K_M"),
        ("gemma-3-4b-it-UD-Q3_K_XL.gguf", "gemma-3-4b-it", "UD-Q3_K_XL"),
        ("mistral-7b-instruct-v0.2.i1-IQ2_XXS.gguf", "mistral-7b-instruct-v0.2", "i1-IQ2_XXS"),
        ("llama-2-7b.q8_0.gguf", "llama-2-7b", "q8_0"),
        ("phi-2-F16.gguf", "phi-2", "F16"),
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b", "MXFP4"),
        ("Qwen/Qwen3-8B-AWQ", "Qwen/Qwen3-8B", "AWQ"),
        ("qwen3-8b-awq", "qwen3-8b", "awq"),
        ("Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen2.5-7B-Instruct", "GPTQ-Int4"),
        ("Llama-3.1-8B-FP8-dynamic", "Llama-3.1-8B", "FP8-dynamic"),
        ("Llama-3.1-8B-quantized.w4a16", "Llama-3.1-8B", "quantized.w4a16"),
        *((name, name, None) for name in ("gpt2", "Q4_0.gguf", "llama-2-7b.gguf", "a/b-Q4", "t5-f1", "awq", "point8")),
    ],
)
def test_the_quantization_ends_the_name_of_a_file_or_model(name, model, quantization):
    assert model_and_quantization(name) == (model, quantization)


def test_a_model_that_is_named_like_a_quantization_stays_with_its_own_quantizations():
    files = ("a-F16.Q4_0.gguf", "a-F16.Q8_0.gguf")
    assert models_by_name(["a-F16", *files, "b"]) == {"a-F16": ("a-F16", *files), "b": ("b",)}
    assert models_by_name([*files, "a-F16"]) == {"a-F16": (*files, "a-F16")}


@pytest.fixture
def quantized(empty_database, tmp_path, make_run):
    """Files of a model in three quantizations, each with a configuration of its own as GGUF files have; that model
    itself, and another one of the same runtime."""
    path = shutil.copy2(empty_database, tmp_path / "quantized.duckdb")
    files = {"F16": ("float16", 1.0), "Q8_0": ("int8", 0.7), "Q4_1": ("int4", 0.4)}
    small = {"sequence_lengths": (32,), "batch_sizes": (1,), "iterations": 3}
    with Warehouse.open(path) as warehouse:
        for name, (precision, slowdown) in files.items():
            run = make_run(runtime="llamacpp", precision=precision, slowdown=slowdown, **small)
            warehouse.ingest(Alter.workload(run, model_id=f"~/a-1b.{name}.gguf", config_hash=name, weights="given"))
        warehouse.ingest(Alter.workload(make_run(**small), model_id="~/a-1b", weights="pretrained"))
        warehouse.ingest(Alter.workload(make_run(**small), model_id="~/a-7b.Q4_1.gguf", weights="given"))
    return str(path)


@pytest.mark.parametrize("name", ["~/a-1b.Q8_0.gguf", "~/a-1b"])
def test_quantizations_of_one_model_are_compared(quantized, capsys, name):
    assert recommend.main([name, "--prefer", "latency", "--json", "--db-path", quantized]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["model_id"] == "~/a-1b"
    options = {one["workload"]["weights"]: one["options"] for one in document["workloads"]}
    assert [(one["precision"], one["runtime_mode"]["quantization"]) for one in options["given"]] == [
        *(("int4", "Q4_1"), ("int8", "Q8_0"), ("float16", "F16")),
    ]
    assert [one["runtime"] for one in options["pretrained"]] == ["eager"]

    assert recommend.main([name, "--db-path", quantized]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "llamacpp (quantization Q4_1), int4, batch 1: the highest throughput of all" in text
    assert "int4 (Q4_1) has 2.5 times the throughput" in text


def test_a_single_file_of_a_model_keeps_its_name_and_an_unknown_one_is_no_other(quantized, capsys):
    assert recommend.main(["~/a-7b", "--json", "--db-path", quantized]) == 0
    assert json.loads(capsys.readouterr().out)["model_id"] == "~/a-7b.Q4_1.gguf"
    assert recommend.main(["~/a-1b.Q2_K.gguf", "--db-path", quantized]) == 2
    assert "unknown model '~/a-1b.Q2_K.gguf'" in capsys.readouterr().err


def test_the_perplexity_of_files_without_a_reference_is_in_the_table(empty_database, tmp_path, make_run, capsys):
    """A GGUF file has no torch model beside it, so no measure that a limit applies to."""
    path = shutil.copy2(empty_database, tmp_path / "files.duckdb")
    with Warehouse.open(path) as warehouse:
        for name, precision, perplexity in (("Q8_0", "int8", 12.75), ("Q4_0", "int4", 18.04)):
            run = make_run(runtime="llamacpp", precision=precision, sequence_lengths=(32,), batch_sizes=(1,))
            run = Alter.workload(run, model_id=f"~/a-1b.{name}.gguf", config_hash=name, weights="given")
            quality = Quality(inputs="text", values={"perplexity": QualityValue(value=perplexity)}, how={"windows": 2})
            warehouse.ingest(Alter.renewed(replace(run, quality=quality)))
    assert recommend.main(["~/a-1b", "--db-path", str(path)]) == 0
    text = capsys.readouterr().out
    assert "Against int8 (Q8_0) by llamacpp" in " ".join(text.split())
    assert "tokens/s with perplexity 12.75 on Test CPU" in " ".join(text.split())
    lines = text.splitlines()
    (head,) = (line for line in lines if "median ms" in line and "perplexity" in line)
    below = lines[lines.index(head) :]
    assert [any(value in line for line in below) for value in ("12.75", "18.04")] == [True, True]


def test_a_newer_result_that_was_passed_over_is_named_wherever_an_older_one_is_shown(
    empty_database, tmp_path, make_run, capsys
):
    """The newest valid result is shown; that a newer one is slower, and doubtful, is not for the reader to find."""
    path = shutil.copy2(empty_database, tmp_path / "newer.duckdb")
    small = {"batch_sizes": (1,), "sequence_lengths": (32,), "iterations": 3}
    other = Alter.on_device(make_run(started_at="2026-03-01T00:00:00Z", slowdown=2, **small), "Other CPU")
    with Warehouse.open(path) as warehouse:
        for one in (make_run(started_at="2026-03-01T00:00:00Z", **small), other):
            warehouse.ingest(one)
        assert newer_doubtful(warehouse, ["no-such-result"]) == {}
        newest = make_run(started_at="2026-03-02T10:30:00Z", slowdown=3, **small)
        warehouse.ingest(Alter.results(newest, Alter.noisy))
    assert recommend.main(["bert-base-uncased", "--db-path", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert " at 8 ms; a newer result is noisy, see below" in out
    says = "a newer result, 24 ms, of 2026-03-02 10:30 UTC, is noisy (cpu_pressure)"
    assert f"not the newest: Test CPU, eager, float32, batch 1: {says}; the newest valid result is shown" in out
    assert out.count("not the newest:") == 1

    with Warehouse.open(path) as warehouse:
        chart = charts()["hardware_comparison"]
        (figure,) = chart.draw(chart.rows(warehouse, Selection()))
        assert f"1 of 2 points is not of the newest result: {says}" in " ".join(figure.notes)
        warehouse.ingest(make_run(started_at="2026-03-03T00:00:00Z", slowdown=1.5, **small))
    assert recommend.main(["bert-base-uncased", "--db-path", str(path)]) == 0
    assert "newer" not in capsys.readouterr().out


def test_the_workloads_of_a_users_benchmark_are_named_by_their_settings(empty_database, tmp_path, make_run, capsys):
    path = shutil.copy2(empty_database, tmp_path / "own.duckdb")
    with Warehouse.open(path) as warehouse:
        for mode in ("default", "max-autotune"):
            run = make_run(runtime="bench", batch_sizes=(1,), sequence_lengths=(32,), iterations=3)
            own = {"source": "bench", "config": {"compile_mode": mode, "options": {"rows": 8}}, "config_hash": mode}
            warehouse.ingest(Alter.workload(run, **own))
    assert recommend.main(["bert-base-uncased", "--db-path", str(path)]) == 0
    out = capsys.readouterr().out
    assert [f", compile_mode {mode}: 1 option" in out for mode in ("default", "max-autotune")] == [True, True]
    assert "configuration" not in out
