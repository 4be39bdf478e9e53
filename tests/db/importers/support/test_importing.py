"""Values that the user gives in place of a file's own."""

from __future__ import annotations

from datetime import datetime

from db.importers.openvino_benchmark_app import PLUGIN
from db.importers.support.files import read_file
from db.importers.support.importing import GivenValues
from tests.helpers.paths import FIXTURES

REPORT = FIXTURES / "imports/openvino_benchmark_app/benchmark_report.json"


def report():
    (run,) = PLUGIN.runs(read_file(REPORT))
    return run


def test_given_values_replace_those_of_the_file_which_are_kept():
    run = GivenValues(model_id="bert-tiny", device_name="Xeon 8480", precision="float32").on(report())
    assert (run.cell.workload.model_id, run.cell.precision, run.hardware.device.name) == (
        "bert-tiny",
        "float32",
        "Xeon 8480",
    )
    assert run.cell.device == run.hardware.device
    assert run.origin.kept["replaced"] == {"model_id": "ir", "device_name": None, "precision": "unknown"}


def test_ids_and_hardware_depend_on_the_given_values():
    plain, first, second = report(), *(GivenValues(device_name=name).on(report()) for name in ("A", "B"))
    assert len({plain.run_id, first.run_id, second.run_id}) == 3
    assert len({run.results[0].result_id for run in (plain, first, second)}) == 3
    assert len({run.hardware.hardware_id for run in (plain, first, second)}) == 3
    assert first == GivenValues(device_name="A").on(report())


def test_tags_do_not_change_the_run_id():
    run = GivenValues(tags={"lab": "b"}).on(report())
    assert run.provenance.tags == {"lab": "b"}
    assert run.run_id == report().run_id


def test_a_given_date_removes_the_doubt():
    run = GivenValues(started_at=datetime(2025, 5, 6, 7)).on(report())
    assert run.started_at == run.finished_at == "2025-05-06T07:00:00+00:00"
    assert "undated" not in [doubt.kind for doubt in run.results[0].doubts]


def test_a_device_has_its_type_and_selector():
    device = GivenValues(device="cuda:1").on(report()).cell.device
    assert (device.type, device.selector) == ("cuda", "cuda:1")
