"""Planning many cells looks everything up once and reports all problems."""

from __future__ import annotations

import threading

import pytest

from benchmarking.batch import cell_plans
from benchmarking.batch.cell_plans import PlanError, cell_requests, plan_all
from benchmarking.batch.model_list import Entry
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.sweep.plan.plan import Machine

SMALL = {"batch_sizes": (1,), "sequence_lengths": (32,), "weights": "random", "devices": ("null",)}


def plan(*names, machine=None, **flags):
    entries = [Entry(model_id=name, location="--models") for name in names]
    return plan_all(cell_requests(entries, {**SMALL, **flags}, ("batch_benchmark",)), "session", machine or Machine())


def counted(monkeypatch, target):
    """How often a function was called, as a list with an entry a call."""
    module, name = target.rsplit(".", 1)
    original = getattr(__import__(module, fromlist=[name]), name)
    calls = []

    def count(*arguments, **keywords):
        calls.append(arguments)
        return original(*arguments, **keywords)

    monkeypatch.setattr(target, count)
    return calls


def test_planning_probes_the_machine_and_each_model_once(monkeypatch):
    plan("tiny-bert", devices=("null", "cpu"))  # modules that are imported later would have the counting function
    lookups = {
        name: counted(monkeypatch, name)
        for name in (
            "benchmarking.devices.support.host.host_facts",
            "benchmarking.measure.machine_state.capture",
            "benchmarking.sweep.plan.plan.provenance",
            "benchmarking.devices.support.select.Probes",
            "benchmarking.workloads.support.resolve.resolve",
        )
    }
    precisions = ("float32", "bfloat16", "float16", "int8", "tf32")
    plans = plan("tiny-bert", "tiny-gpt2", "tiny-t5", "gpt2", precisions=precisions, devices=("null", "cpu"),
                 skip_unsupported=True)  # fmt: skip
    assert len(plans) == 40
    assert {name.rsplit(".", 1)[1]: len(calls) for name, calls in lookups.items()} == {
        "host_facts": 1,
        "capture": 1,
        "provenance": 1,
        "Probes": 2,
        "resolve": 4,
    }
    assert len({one.run_id for one in plans}) == 40
    assert {one.session_id for one in plans} == {"session"}


def test_models_are_looked_up_at_the_same_time(monkeypatch):
    original, together = cell_plans.workload_of, threading.Barrier(3, timeout=20)

    def look_up(request):
        together.wait()  # ends only when all three are here
        return original(request)

    monkeypatch.setattr(cell_plans, "workload_of", look_up)
    assert len(plan("tiny-bert", "tiny-gpt2", "tiny-t5")) == 3


def test_every_problem_is_reported_and_equal_reasons_are_merged():
    with pytest.raises(PlanError) as error:
        plan("tiny-bert", "tiny-brt", "tiny-gpt2", devices=("null", "nul"))
    nul, unknown = error.value.reasons
    assert nul.startswith(
        "tiny-bert on nul (float32) [--models], tiny-gpt2 on nul (float32) [--models]: unknown device"
    )
    assert unknown.startswith("tiny-brt on null (float32) [--models], tiny-brt on nul (float32) [--models]: ")
    assert (str(error.value), error.value.exit_code) == ("nothing measured: 4 of 6 cells are unsupported or invalid", 2)


def test_long_lists_of_cells_with_the_same_reason_are_shortened():
    troubles = [(f"m{i}", StorageError("no room")) for i in range(6)]
    error = PlanError(troubles, 6)
    assert error.reasons == ("m0, m1, m2, m3 and 2 more: no room",)
    assert error.exit_code == 1


def test_a_shared_axis_needs_at_least_one_model_with_it():
    assert [len(one.points) for one in plan("tiny-bert", "tiny-gpt2", new_tokens=(2, 4))] == [1, 2]
    with pytest.raises(UsageError, match=r"no model of the batch has the axis new_tokens \(number of new tokens\)"):
        plan("tiny-bert", new_tokens=(2,))


def test_an_axis_set_for_one_model_must_be_an_axis_of_it():
    entries = [Entry(model_id="tiny-bert", location="models.yaml:2", model_settings={"new_tokens": (2,)})]
    with pytest.raises(PlanError) as error:
        plan_all(cell_requests(entries, SMALL, ()), "session", Machine())
    (reason,) = error.value.reasons
    assert reason.startswith("tiny-bert on null (float32) [models.yaml:2]: task feature-extraction of tiny-bert")
