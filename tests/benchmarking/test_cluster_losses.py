"""Lost workers during a batch on a cluster with scripted, immediate events.

tests/benchmarking/test_cluster.py loses workers of a real one."""

from __future__ import annotations

import dataclasses
import errno
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from benchmarking.batch.batch_run import Batch, Manifest
from benchmarking.batch.summary import BatchInfo
from benchmarking.cluster import coordinator
from benchmarking.cluster.coordinator import ClusterSweep, Membership
from benchmarking.cluster.execution import (
    Order,
    Report,
    WorkerContext,
    WorkerTrack,
    execute,
    message_text,
    read_message,
)
from benchmarking.cluster.target import ClusterMachine
from benchmarking.core.codec import canonical_hash
from benchmarking.core.errors import StorageError, UnsupportedError, WorkersLostError, storage_errors
from benchmarking.core.provenance import uuid7
from benchmarking.core.quality import without_quality
from benchmarking.core.records import Measurement, Readings, Samples
from benchmarking.devices.support.handles import combine_devices
from benchmarking.devices.support.host import FREE
from benchmarking.devices.support.select import select
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import Machine
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run import spool
from benchmarking.sweep.run.command_session import finish_run
from benchmarking.sweep.run.supervisor import Observer, Track
from benchmarking.sweep.show.progress import observed

SAMPLES = Samples(
    launch=0, phase="measure", metric="latency_wall", unit="ms", started_at="2026-01-02", values=(1.0,) * 5
)


FULL = "cannot write to /spool: No space left on device"


class ScriptedCluster:
    """Each worker measures so many points of an order, then it is lost or done, or with FULL its disk is full; one with
    another text refuses it."""

    address = "scripted"
    status = "ok"

    def __init__(self, script, folder, *, accepts_workers):
        self.script = script
        self.folder = folder
        self.accepts_workers = accepts_workers
        self.orders = []
        self.told_to_forget = []
        self._events = []

    def submit(self, attempt, order, address, selector):
        assert on_disk(self.folder)[order.plan.run_id] == order.plan
        (launch,) = order.launches
        known = {(one.point.label, one.launch) for one in order.finished}
        points = [point for point in order.plan.points if (point.label, launch) not in known]
        self.orders.append((address, [point.label for point in points]))
        count = self.script[address]
        if isinstance(count, str):
            self._events.append(Report(attempt=attempt, kind="broken" if count == FULL else "refused", text=count))
            return
        is_lost = isinstance(count, tuple)
        measured = points[: count[0]] if is_lost else points
        for point in measured:
            kept = Measurement(point=point, launch=launch, status=self.status, started_at="a", finished_at="b")
            kept = dataclasses.replace(kept, samples=(dataclasses.replace(SAMPLES, launch=launch),))
            self._events.append(Report(attempt=attempt, kind="record", kept=kept))
        self._events.append(Membership(address, has_joined=False) if is_lost else Report(attempt=attempt, kind="done"))

    def cancel(self, attempt):
        pass

    def failure(self):
        return None

    def forget(self, addresses, run_ids):
        self.told_to_forget += addresses

    def next_event(self, limit_s):
        return self._events.pop(0) if self._events else None


def on_disk(folder):
    """The plans of the unfinished runs in a folder by run id."""
    plans = [file.read().plan for file in spool.unfinished(folder)]
    return {plan.run_id: plan for plan in plans}


def offers_of(script, other=()):
    """The offers of the workers of a script; those in `other` have other hardware."""
    device = select("null", lambda device: None, {})
    offer = WorkerContext(name="w", devices=(device,), folder=Path(), arguments={}, say=print).offer()
    (offered,) = offer.devices
    keys = {**offered.hardware.hashed_keys, "device_name": "another"}
    hardware = dataclasses.replace(offered.hardware, hashed_keys=keys, hardware_id=canonical_hash(keys)[:16])
    unlike = dataclasses.replace(offered, hardware=hardware)
    return {
        name: dataclasses.replace(offer, worker=name, devices=(unlike if name in other else offered,))
        for name in script
    }


def planned(launches=1):
    request = Request(
        model_id="tiny-bert",
        device="null",
        weights="random",
        batch_sizes=(1, 2, 4),
        sequence_lengths=(32,),
        settings=settings("quick", launches=launches),
    )
    return plan_cell(request, "11111111-1111-7111-8111-111111111111")


@pytest.fixture
def sweep(tmp_path):
    """A function that sweeps a cell of three points over scripted workers: its orders and finished runs. `script` is
    worker -> the points after which it is lost, in a tuple, or None, or why it refuses; those in `other` have other
    hardware. With several `launches` they are spread."""

    def swept(script, other=(), launches=1, accepts_workers=True, done=lambda track: None):
        folder = tmp_path / "runs"
        cluster = ScriptedCluster(script, folder, accepts_workers=accepts_workers)
        finished = []

        def finish(track):
            done(track)
            finished.append(finish_run(track).run)

        spool.prepare(folder)
        track = Track(planned(launches), folder)
        with observed([track], quiet=True) as shown:
            ClusterSweep(cluster, offers_of(script, other), spread=launches > 1)([track], shown, finish)
        swept.told_to_forget = cluster.told_to_forget
        return cluster.orders, finished

    return swept


def points(run):
    return [(one.point.batch_size, one.status) for one in run.results]


def test_points_finished_by_a_lost_worker_are_not_measured_again(sweep):
    orders, (run,) = sweep({"one": (2,), "two": None})
    assert orders == [("one", ["b1 s32", "b2 s32", "b4 s32"]), ("two", ["b4 s32"])]
    assert points(run) == [(1, "ok"), (2, "ok"), (4, "ok")]


def test_refused_cells_move_to_other_workers_until_all_refuse(sweep):
    orders, (run,) = sweep({"one": "it has no such model", "two": None})
    assert ([address for address, _ in orders], points(run)[0]) == (["one", "two"], (1, "ok"))
    orders, (run,) = sweep({"one": "one has no such model", "two": (1,), "three": "three has another"})
    assert [address for address, _ in orders] == ["one", "two", "three"]
    assert points(run) == [(1, "ok"), (2, "failed"), (4, "failed")]
    assert run.results[1].error == "one has no such model; three has another"


def test_a_worker_with_a_full_disk_gets_nothing_more_and_its_points_do_not_fail(sweep):
    orders, (run,) = sweep(dict.fromkeys(("one", "two", "three", "four"), FULL) | {"five": None})
    assert [address for address, _ in orders] == ["one", "two", "three", "four", "five"]
    assert points(run) == [(1, "ok"), (2, "ok"), (4, "ok")]
    assert sweep.told_to_forget == sorted(["one", "two", "three", "four", "five"]), "copies fill a full disk, too"
    with pytest.raises(WorkersLostError, match="continue with --resume"):
        sweep({"one": FULL}, accepts_workers=False)


def test_a_lost_worker_is_not_told_to_delete_copies(sweep):
    sweep({"one": (2,), "two": None})
    assert sweep.told_to_forget == ["two"]


@pytest.mark.parametrize("has_copy", [False, True])
def test_a_worker_that_cannot_write_says_that_it_is_broken(tmp_path, monkeypatch, has_copy):
    def full(*_):
        with storage_errors("cannot write to its file", "free some space, then resume"):
            raise OSError(errno.ENOSPC, "No space left on device")

    plan, sent = planned(), []
    context = WorkerContext(name="w", devices=(plan.cell.device,), folder=tmp_path, arguments={}, say=print)
    worker = SimpleNamespace(
        benchhouse=context,
        get_current_task=lambda: "attempt",
        log_event=lambda topic, text: sent.append(read_message(Report, text)),
    )
    monkeypatch.setattr("distributed.get_worker", lambda: worker)
    if has_copy:
        copy = SimpleNamespace(hold=lambda: True, read=lambda: SimpleNamespace(plan=plan), take_over=full)
        monkeypatch.setattr(WorkerContext, "copies", lambda self, saved: {plan.run_id: copy})
    else:
        monkeypatch.setattr(Track, "begin", full)
    execute("topic", message_text(Order(plan=plan, launches=(0,))))
    (report,) = sent
    assert (report.kind, report.text) == ("broken", f"cannot write to {tmp_path}: No space left on device")


def test_a_cell_that_loses_three_workers_fails(sweep):
    orders, (run,) = sweep({"one": (0,), "two": (1,), "three": (0,), "four": None})
    assert [address for address, _ in orders] == ["one", "two", "three"]
    assert points(run) == [(1, "ok"), (2, "failed"), (4, "failed")]
    assert {one.error for one in run.results[1:]} == {"3 workers were lost while measuring this cell"}


def test_on_different_hardware_the_remaining_points_are_a_separate_run(sweep):
    left = []
    orders, (first, second) = sweep(
        {"one": (1,), "two": None}, other=("two",), done=lambda track: left.append(on_disk(track.folder))
    )
    assert [point.label for point in left[0][second.run_id].points] == ["b2 s32", "b4 s32"]  # should it be killed here
    assert orders == [("one", ["b1 s32", "b2 s32", "b4 s32"]), ("two", ["b2 s32", "b4 s32"])]
    assert (points(first), points(second)) == ([(1, "ok")], [(2, "ok"), (4, "ok")])
    assert first.run_id != second.run_id
    assert first.hardware.hardware_id != second.hardware.hardware_id
    assert [one.environment.values["cluster_worker"] for one in (first, second)] == ["one", "two"]


def test_cells_without_results_move_to_different_hardware(sweep):
    _, (run,) = sweep({"one": (0,), "two": None}, other=("two",))
    assert points(run) == [(1, "ok"), (2, "ok"), (4, "ok")]
    assert run.hardware.hashed_keys["device_name"] == "another"


def test_resumed_batches_include_runs_that_continued_elsewhere(tmp_path):
    def batch(ingest):
        cluster = ScriptedCluster(script, tmp_path, accepts_workers=True)
        sweep = ClusterSweep(cluster, offers_of(script, ("two",)))
        return Batch(tmp_path, manifest, ingest, quiet=True, cluster=sweep)

    def end_at_the_second(path):
        stored.append(path)
        if len(stored) == 2:
            raise KeyboardInterrupt

    stored, again, plan = [], [], planned()
    script = {"one": (1,), "two": None}
    about = BatchInfo(
        session_id=plan.session_id, command=(), started_at="2026-01-02", db_path="own.duckdb", report=None
    )
    manifest = Manifest.create(tmp_path, about, (plan,))
    with pytest.raises(KeyboardInterrupt):
        batch(end_at_the_second).start()
    done = batch(again.append).resume(Machine())
    assert again == [stored[1]]
    assert [(cell.points_ok, cell.stored) for cell in done.cells] == [(1, True), (2, True)]


def test_a_batch_that_a_storage_error_ends_is_interrupted(tmp_path):
    def sweep(*tracks, **settings):
        raise StorageError("no room")

    plan = planned()
    about = BatchInfo(session_id=plan.session_id, command=(), started_at="2026-01-02", db_path=None, report=None)
    batch = Batch(tmp_path, Manifest.create(tmp_path, about, (plan,)), None, quiet=True, cluster=sweep)
    with pytest.raises(StorageError, match="no room"):
        batch.start()
    assert json.loads((tmp_path / "benchmark_summary.json").read_text())["status"] == "interrupted"


def test_launches_of_a_running_cell_do_not_move_to_different_hardware(sweep):
    orders, (run,) = sweep({"one": (0,), "two": None, "unlike": None}, other=("unlike",), launches=2)
    assert [address for address, _ in orders] == ["one", "two", "two"]
    assert {result.launches for result in run.results} == {2}


def test_a_fixed_cluster_is_abandoned_with_its_last_worker(sweep):
    with pytest.raises(WorkersLostError, match="no worker with null is left in scripted: continue with --resume"):
        sweep({"one": (1,)}, accepts_workers=False)


def test_a_cluster_that_gets_no_more_workers_is_abandoned_with_the_reason(sweep, monkeypatch):
    monkeypatch.setattr(ScriptedCluster, "failure", lambda self: "its jobs have ended")
    with pytest.raises(WorkersLostError, match="is left in scripted: its jobs have ended: continue with --resume"):
        sweep({"one": (1,)})


def test_the_wait_for_a_device_is_reported_once_and_limited_while_nothing_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(coordinator, "WAIT_FOR_WORKER_S", 0.1)
    plan = planned()
    second = dataclasses.replace(plan.cell.device, selector="null:1")
    other = dataclasses.replace(plan, run_id=uuid7(), cell=dataclasses.replace(plan.cell, device=second))
    script = {"one": None, "two": (0,)}
    offers = offers_of(script)
    (offered,) = offers["two"].devices
    offers["two"] = dataclasses.replace(offers["two"], devices=(dataclasses.replace(offered, device=second),))
    cluster = ScriptedCluster(script, tmp_path, accepts_workers=True)
    said, done = [], []

    class Shown(Observer):
        def waiting(self, message):
            said.append(message)

    spool.prepare(tmp_path)
    tracks = [Track(other, tmp_path), Track(plan, tmp_path)]
    with pytest.raises(WorkersLostError, match="no worker with null:1 joined scripted within"):
        ClusterSweep(cluster, offers)(tracks, Shown(), done.append)
    assert done == [tracks[1]]
    assert len([message for message in said if "null:1 is left: waiting up to" in message]) == 1


@pytest.mark.parametrize(
    ("script", "status", "counts"),
    [
        ({"one": (1,), "two": (0,), "three": (0,)}, "ok", [("one", 1, 0), ("two", 0, 0), ("three", 2, 2)]),
        ({"one": None}, "skipped", [("one", 3, 0)]),
    ],
)
def test_points_given_up_with_a_worker_are_its_failures_and_points_left_out_are_none(script, status, counts, tmp_path):
    cluster = ScriptedCluster(script, tmp_path, accepts_workers=True)
    cluster.status = status
    spool.prepare(tmp_path)
    sweep = ClusterSweep(cluster, offers_of(script))
    sweep([Track(planned(), tmp_path)], Observer(), lambda track: None)
    assert [(shown.worker, shown.done, shown.failed) for shown in sweep.machines] == counts


def test_several_devices_as_one_are_refused_before_anything_is_measured():
    offers = offers_of({"one": None})
    (offered,) = offers["one"].devices
    machine = ClusterMachine(offers, "scripted")
    assert machine.hardware(offered.device) == offered.hardware
    both = combine_devices([offered.device, dataclasses.replace(offered.device, selector="null:1")])
    for fact in (machine.free_memory, machine.hardware):
        with pytest.raises(UnsupportedError, match="--device null,null:1: a worker measures on one device at a time"):
            fact(both)


@pytest.mark.parametrize("small", ["one", "two"])
def test_a_cell_is_planned_for_the_workers_on_which_it_fits_and_given_to_no_other(small, tmp_path):
    script = {"one": None, "two": None}
    offers = offers_of(script)
    for worker, offer in offers.items():
        free = Readings(values={FREE: 1000 if worker == small else 10**12})
        devices = tuple(dataclasses.replace(device, free=free) for device in offer.devices)
        offers[worker] = dataclasses.replace(offer, devices=devices)
    request = Request(model_id="bert-base-uncased", weights="random", device="null", settings=settings("quick"))
    plan = plan_cell(request, uuid7(), machine=ClusterMachine(offers, "scripted"))
    plan = dataclasses.replace(plan, settings=dataclasses.replace(plan.settings, launches=1))
    cluster = ScriptedCluster(script, tmp_path, accepts_workers=True)
    spool.prepare(tmp_path)
    ClusterSweep(cluster, offers)([Track(plan, tmp_path)], Observer(), lambda track: None)
    assert [address for address, _ in cluster.orders] == sorted(script.keys() - {small})
    with pytest.raises(UnsupportedError, match=r"bert-base-uncased needs 0\.4 GB for weights"):
        plan_cell(request, uuid7(), machine=ClusterMachine({small: offers[small]}, "scripted"))


def test_a_device_that_no_worker_has_is_skipped_if_that_is_asked_for():
    machine = ClusterMachine(offers_of({"one": None}), "scripted")
    request = Request(model_id="tiny-bert", device="cuda", settings=settings("quick"), skip_unsupported=True)
    (why_not,) = set(plan_cell(request, uuid7(), machine=machine).skipped.values())
    assert "no worker of scripted has one" in why_not


def test_a_quality_that_was_measured_before_is_not_measured_again(tmp_path):
    class Sent(ScriptedCluster):
        def submit(self, attempt, order, address, selector):
            super().submit(attempt, order, address, selector)
            orders.append(order)

    orders, script, quality = [], {"one": None}, without_quality("measured before")
    spool.prepare(tmp_path)
    sweep = ClusterSweep(Sent(script, tmp_path, accepts_workers=True), offers_of(script))
    sweep([Track(planned(), tmp_path, quality=quality)], Observer(), lambda track: None)
    (order,) = orders
    context = WorkerContext(name="w", devices=(), folder=tmp_path / "worker", arguments={}, say=print)
    assert WorkerTrack.open(order.plan, order, SimpleNamespace(context=context)).quality == quality
