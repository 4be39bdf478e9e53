"""`benchmark_model` returns the same record as the command."""

from __future__ import annotations

import json
import threading

import jsonschema
import pytest
import torch

from benchmarking import benchmark_model
from benchmarking.core.errors import UsageError
from benchmarking.core.records import dumps
from db.warehouse import Warehouse
from tests.helpers.run_schema import run_schema

QUICK = {"profile": "quick", "iterations": 8, "warmup_iterations": 2}


@pytest.fixture
def module():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))


def test_modules_are_measured_in_place(module):
    module.train()
    run = benchmark_model(module, torch.randn(8, 64), name="mlp", tags={"a": "b"}, **QUICK)
    (result,) = run.results
    assert (run.status, run.cell.workload.model_id, run.cell.workload.source) == ("ok", "mlp", "module")
    assert (run.cell.workload.family, run.cell.workload.weights) == (None, "given")
    assert run.cell.workload.parameter_count == 64 * 256 + 256 + 256 * 64 + 64
    assert (result.point.batch_size, result.launches, result.iterations, result.ci_scope) == (8, 1, 8, "within")
    assert result.metrics["latency_median_ms"] > 0
    assert result.metrics["memory_weights_mb"] == run.cell.workload.parameter_count * 4 / 1e6
    assert run.provenance.tags == {"a": "b"}
    assert module.training


class Points(torch.nn.Module):
    """A maximum over points, with a state between calls."""

    def __init__(self):
        super().__init__()
        self.sums = []

    def forward(self, points):
        self.sums.append(float(points.sum()))
        return points.max(0).values


def test_a_module_that_cannot_be_copied_is_measured_where_it_is():
    module = torch.nn.Linear(4, 4)
    module.lock = threading.Lock()
    assert [result.status for result in benchmark_model(module, torch.ones(8, 4), iterations=2).results] == ["ok"]
    with pytest.raises(
        UsageError, match=r"cannot be copied: cannot pickle .*: measure it where it is, without a device"
    ):
        benchmark_model(module, torch.ones(8, 4), iterations=2, device="cpu", runtime="eager")


def test_the_call_that_shows_the_batch_comes_after_the_measured_ones_and_leaves_no_state():
    points = Points()
    (result,) = benchmark_model(points, torch.ones(16, 4), **QUICK).results
    assert set(points.sums) == {64.0}, "no call with other values"
    assert result.point.batch_size == 1
    assert result.metrics["throughput_at_median"] == pytest.approx(1000 / result.metrics["latency_median_ms"])


def test_runs_of_modules_are_valid_and_can_be_stored(module):
    run = benchmark_model(module, {"input": torch.randn(8, 64)}, **QUICK)
    jsonschema.validate(json.loads(dumps(run)), run_schema())
    with Warehouse.open(":memory:") as warehouse:
        assert warehouse.ingest(run)
        (row,) = warehouse.query("select model_id, architecture_type, weights from benchmark_runs").dicts()
    assert row == {"model_id": "Sequential", "architecture_type": None, "weights": "given"}


def test_a_model_id_is_measured_in_fresh_processes(monkeypatch):
    run = benchmark_model("tiny-bert", device="null", batch_sizes=(1, 2), sequence_lengths=(32,), launches=2, **QUICK)
    assert [result.point.label for result in run.results] == ["b1 s32", "b2 s32"]
    assert {result.launches for result in run.results} == {2}


@pytest.mark.parametrize(
    ("arguments", "fields", "message"),
    [
        (("tiny-bert", torch.zeros(1)), {}, "inputs and name apply to torch modules only"),
        ((5,), {}, "expected a model id or a torch module: found int"),
        ((torch.nn.Linear, torch.zeros(1)), {}, "expected a model id or a torch module: found the class Linear"),
        ((torch.nn.Linear(1, 1), torch.zeros(1)), {"name": 5}, "name: expected text, found 5"),
        (
            ("tiny-bert",),
            {"device": "null", "batch_sizes": (0,)},
            "batch_sizes takes whole numbers from 1: got 0",
        ),
        (("tiny-bert",), {"device": "null", "profile": "fast"}, "unknown profile 'fast'"),
        (("tiny-bert",), {"device": "null", "options": 5}, "options: expected a mapping of names to values, found 5"),
        ((torch.nn.Linear(2, 2),), {}, "pass a tensor"),
        (
            (torch.nn.Linear(2, 2), torch.zeros(1, 2)),
            {"batch_sizes": (1,)},
            "batch_sizes applies to a module only with device, runtime or precision",
        ),
        ((torch.nn.Linear(2, 2), "text"), {}, "the inputs contain no tensor"),
        ((torch.nn.Linear(2, 2).double(), torch.zeros(1, 2).double()), {}, "parameters are float64"),
    ],
)
def test_invalid_arguments_are_usage_errors(arguments, fields, message):
    with pytest.raises(UsageError, match=message):
        benchmark_model(*arguments, **fields)


def test_a_module_of_two_precisions_is_measured_at_the_one_that_is_named(module):
    module[0].to(torch.bfloat16)  # the most of its values, which the named precision replaces
    with pytest.raises(UsageError, match="parameters are bfloat16, float32"):
        benchmark_model(module, torch.randn(8, 64), device="cpu", **QUICK)
    run = benchmark_model(module, torch.randn(8, 64), device="cpu", precision="float32", **QUICK)
    (result,) = run.results
    assert (result.status, run.cell.precision) == ("ok", "float32")


def test_an_unknown_name_is_pythons_error_with_the_nearest():
    with pytest.raises(TypeError, match="unexpected keyword argument 'batch_size': did you mean 'batch_sizes'"):
        benchmark_model("tiny-bert", device="null", batch_size=1)
