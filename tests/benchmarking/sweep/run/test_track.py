"""The remaining work of a cell, and the end of its run."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from benchmarking.core.errors import FormatError, LockedError
from benchmarking.core.records import Measurement, Point, Readings, Samples
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import journal
from benchmarking.sweep.run.command_session import finish_run, store_run
from benchmarking.sweep.run.supervisor import Observer, Track, finished_run, sweep
from db.warehouse import Warehouse

POINTS = (Point(batch_size=1, sequence_length=32), Point(batch_size=2, sequence_length=32))


@pytest.fixture
def track(make_run, tmp_path):
    run = make_run()

    def make(launches=2, skipped=()):
        plan = CellPlan(
            session_id="s",
            started_at="2020-01-01T00:00:00Z",
            cell=run.cell,
            hardware=run.hardware,
            provenance=run.provenance,
            settings=settings("quick", launches=launches),
            timeout_s=60.0,
            points=POINTS,
            skipped=dict.fromkeys(skipped, "too long"),
        )
        return Track(plan, tmp_path)

    return make


def measurement(point, launch, status="ok"):
    samples = Samples(
        launch=launch, phase="measure", metric="latency_wall", unit="ms", started_at="2026-01-02", values=(1.0, 2.0)
    )
    kept = (samples,) if status == "ok" else ()
    return Measurement(point=point, launch=launch, status=status, started_at="a", finished_at="a", samples=kept)


def labels(points):
    return [point.label for point in points]


def test_every_point_is_open_once_per_launch_until_it_is_measured(track):
    one = track()
    one.begin()
    assert (one.points_total, one.points_finished, len(one.open_points())) == (4, 0, 4)
    one.keep(measurement(POINTS[0], 0))
    assert labels(one.next_points(0)) == ["b2 s32"]
    assert labels(one.next_points(1)) == ["b1 s32", "b2 s32"]
    assert one.points_finished == 1


def test_points_without_a_success_are_not_retried_in_later_launches(track):
    one = track(launches=3)
    one.begin()
    one.keep(measurement(POINTS[0], 0, "failed"))
    one.keep(measurement(POINTS[1], 0))
    one.keep(measurement(POINTS[1], 1, "failed"))
    assert labels(one.next_points(1)) == []
    assert labels(one.next_points(2)) == ["b2 s32"]


def test_the_partial_file_is_created_at_the_start(track, tmp_path):
    one = track()
    assert list(tmp_path.iterdir()) == []
    one.begin()
    assert one.plan.started_at > "2020-01-01T00:00:00Z"
    path = one.file.path
    one.begin()
    assert one.file.path == path


def test_a_released_track_keeps_its_finished_points(track, tmp_path):
    one = track(launches=1)
    one.begin()
    for point in POINTS:
        one.keep(measurement(point, 0))
    finished = finish_run(one)
    assert [len(result.samples) for result in finished.run.results] == [1, 1]
    assert (one.points_finished, [m.samples for m in one.measurements]) == (2, [(), ()])
    assert list(tmp_path.iterdir()) == [finished.path]
    assert store_run(finished.path, None) is None


def test_done_is_called_right_after_the_last_launch(track):
    """Skipped points need no worker, so this tests the order alone."""
    everything = labels(POINTS)
    short, long = track(launches=1, skipped=everything), track(launches=3, skipped=everything)
    done = []
    sweep([long, short], Observer(), done.append)
    assert done == [short, long]


def test_journals_appear_complete_and_never_replace_a_file(tmp_path):
    paths = [tmp_path / name for name in ("a", "b", "c")]
    first = journal.create(paths, {"format": "x", "version": 1}, lambda path: True)
    second = journal.create(paths, {"format": "x", "version": 1}, lambda path: path.name != "b")
    assert (first.path.name, second.path.name) == ("a", "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]
    header, owner = journal.read(first.path, "x", 1, "an x")
    assert (header, owner["Owner"]["pid"]) == ({"format": "x", "version": 1}, os.getpid())
    with pytest.raises(FormatError, match="expected version 2, found 1"):
        journal.read(first.path, "x", 2, "an x")


def test_journals_are_locked_from_their_first_moment_to_their_release(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "CLAIM_S", 0.1)
    held = journal.create([tmp_path / "a"], {"format": "x", "version": 1}, lambda path: True)
    with pytest.raises(LockedError, match=f"a: in use by PID {os.getpid()}"):
        journal.hold(held.path)
    held.release()
    again = journal.hold(held.path)
    held.path.unlink()
    again.release()
    assert journal.hold(held.path) is None


def test_a_file_system_without_links_gets_the_same_file(tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(journal.NO_LINKS[0], "no links here")

    monkeypatch.setattr("os.link", no_links)
    paths = [tmp_path / name for name in ("a", "b")]
    found = [journal.create(paths, {"format": "x", "version": 1}, lambda path: True).path for _ in range(2)]
    assert found == paths
    assert paths[0].read_text().count("\n") == 2


def test_a_run_that_ends_before_its_start_is_stored_with_a_doubt(track, tmp_path):
    one = track()
    one.begin()
    for point in POINTS:
        one.keep(measurement(point, 0))
    assert [doubt.kind for doubt in one.run("2126-01-01T00:00:00.000Z").results[0].doubts].count("clock_set_back") == 0
    early, *others = one.measurements
    early = replace(early, finished_at="b")
    between = finished_run(one.plan, (), (early, *others), "2126-01-01T00:00:00.000Z")  # set back between two points
    at_once = (early, replace(others[0], launch=1))  # on two machines of a cluster
    plan = replace(one.plan, environment=Readings(values={"cluster": "lab"}))
    of_cluster = finished_run(plan, (), at_once, "2126-01-01T00:00:00.000Z")
    assert "clock_set_back" not in [doubt.kind for doubt in of_cluster.results[0].doubts]
    run = one.run("2000-01-01T00:00:00.000Z")
    for result in (*between.results, *run.results):
        assert "clock_set_back" in [doubt.kind for doubt in result.doubts]
    with Warehouse.open(tmp_path / "a.duckdb") as warehouse:
        assert warehouse.ingest(run)
        sql = "SELECT DISTINCT list_contains(doubts, 'clock_set_back') AS found FROM all_results"
        assert warehouse.query(sql).dicts() == [{"found": True}]
