"""How the processes of a cell report what failed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarking.core.errors import OutOfMemoryError
from benchmarking.core.records import Point
from benchmarking.measure.context import PROFILES
from benchmarking.runtimes.null import NullSession
from benchmarking.sweep.plan.plan import Machine
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run import preparation
from benchmarking.sweep.run.output_check import Check
from benchmarking.sweep.run.process import Job, Referenced, ends_worker
from benchmarking.sweep.run.worker import Stages, load, measure


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (OutOfMemoryError("the page ran out of room"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),  # of a check of the output, say
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), True),
        (ValueError("a size does not fit"), False),
    ],
)
def test_a_process_whose_memory_ran_out_measures_no_further_points(error, ends, monkeypatch):
    """In the words of any library, wherever in a point it happened: what is left in memory would affect the others."""

    def operation(point):
        raise error

    monkeypatch.setattr(Check, "of", lambda job, point: None)
    handle, job = SimpleNamespace(answers=lambda: True), SimpleNamespace(launch=0)
    measured = measure(job, SimpleNamespace(operation=operation), handle, Point(batch_size=1), print, None)
    assert measured.status == "failed"
    assert ends_worker(measured) is ends


def test_a_process_whose_memory_ran_out_makes_no_further_references(monkeypatch):
    class Maker:
        def __init__(self, *arguments):
            pass

        def stand_in(self, point):
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

        def has_lost_device(self, error):
            return False

    sent = []
    monkeypatch.setattr(preparation, "ReferenceMaker", Maker)
    monkeypatch.setattr(preparation, "needs_reference", lambda cell: True)
    points = (Point(batch_size=1), Point(batch_size=2))
    job = {"cell": None, "points": points, "build": {}, "with_references": True, "quality": None}
    job |= {"rebuild": "auto", "timeout_s": None, "reference_s": None}
    assert not preparation.make_all(SimpleNamespace(**job), sent.append)
    assert [message.label for message in sent if isinstance(message, Referenced)] == [points[0].label]


@pytest.mark.parametrize("elsewhere", [None, 5_000_000])
def test_the_memory_before_a_load_is_missing_where_the_model_is_in_other_processes(elsewhere, monkeypatch):
    monkeypatch.setattr(NullSession, "resident_bytes", lambda session: elsewhere)
    plan = plan_cell(Request(model_id="tiny-bert", device="null", settings=PROFILES["quick"]), "s", machine=Machine())
    job = Job(cell=plan.cell, launch=0, points=plan.points, settings=plan.settings, spawned_at_ns=0, preparation=None)
    sent = []
    session, handle = load(job, Stages(0.0), sent.append)
    session.close()
    handle.close()
    of_load = ("rss_base_bytes", "peak_rss_load_bytes")
    assert [name in sent[0].memory_bytes for name in of_load] == [elsewhere is None] * 2
    assert [name in sent[0].missing for name in of_load] == [elsewhere is not None] * 2
