"""`benchhouse recommend`, through its own main."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from db.commands import recommend
from db.warehouse import Warehouse

CACHE = {}


@pytest.fixture
def measured(tmp_path_factory, empty_database, make_run):
    """A warehouse: eager takes 8, 16 ms at batch 1, 2; onnxruntime half; what is invalid or simulated a quarter."""
    if "path" not in CACHE:
        path = shutil.copy(empty_database, tmp_path_factory.mktemp("recommend") / "measured.duckdb")
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
            for run in (*runs, longer, only_wrong):
                warehouse.ingest(run)
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
    assert "latency 4.3 ms, 7.5% over 4 ms" in " ".join(out.split())
    assert "energy per item unknown (not_supported)" in out


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
        "8000 tokens/s at 4 ms; the next best, Test CPU, eager, float32, batch 1, is worse by a factor of 2, beyond "
        "both intervals"
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
        (("bert-base-uncased", "--batch", "77"), 3, "0 results are selected"),
        (("bert-base-uncased", "--price", "/nowhere.yaml"), 1, "cannot read /nowhere.yaml"),
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


def test_an_empty_database_has_not_enough_data(database, capsys):
    assert recommend.main(["gpt2", "--db-path", str(database)]) == 3
    assert "has no results" in capsys.readouterr().err
