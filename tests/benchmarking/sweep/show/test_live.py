"""Live status of real sweeps on the null device."""

from __future__ import annotations

import os
import signal

import pytest

from benchmarking.core.errors import StorageError
from benchmarking.core.live_status import FOLDER_VARIABLE, StatusFile, snapshot
from benchmarking.core.records import Measurement
from benchmarking.run_hardware_benchmark import main
from benchmarking.sweep.show import progress
from benchmarking.sweep.show.progress import observed
from tests.helpers.sweeps import running_sweep, statuses, wait_for

SWEEP = ["--model-id", "tiny-bert", "--device", "null", "--runtime", "null", "--sequence-lengths", "32"]
SWEEP += ["--batch-sizes", "1,2", "--iterations", "5", "--launches", "1", "--quiet"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "live"))
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_a_finished_status_has_results_and_failures_without_secrets(folder, null_script):
    null_script(faults={"b2 s32": "raise"})
    assert main([*SWEEP, "--launches", "2", "--anonymous", "--tag", "api_key=hunter2000"]) == 1
    (status,) = statuses()
    assert status.words == "tiny-bert on null (null, float32): 2 points in each of 2 launches, 4 in all, profile quick"
    assert (status.state, status.total, status.done, status.failed) == ("finished", 4, 4, 1)
    assert [(one.point, one.launch, one.status, one.calls) for one in reversed(status.results)] == [
        ("b1 s32", 1, "ok", 5),
        ("b2 s32", 1, "failed", 0),
        ("b1 s32", 2, "ok", 5),
    ]
    assert status.results[0].median_ms == pytest.approx(0.32, rel=0.2)
    assert status.results[1].error
    assert status.folder is None
    assert status.command[:3] == ("run_hardware_benchmark", "--model-id", "tiny-bert")
    assert status.owner.pid == os.getpid()
    assert "hunter2000" not in next((folder / "live").iterdir()).read_text()


def test_a_point_that_the_budget_left_out_is_no_failure(folder, null_track):
    track, at = null_track(), "2026-01-02T03:04:05Z"
    first, second = track.plan.points
    with observed([track], quiet=True) as observer:
        for point, status in ((first, "skipped"), (second, "timed_out")):
            observer.measured(
                track, Measurement(point=point, launch=0, status=status, started_at=at, finished_at=at, error="why")
            )
        assert observer.status.failed == {track.plan.run_id: 1}


def test_the_time_left_is_not_known_while_nothing_is_measured(folder, null_track):
    with observed([null_track()], quiet=True) as observer:
        observer.left_s = 22.0
        observer.waiting("no worker is left: waiting up to 10 min for one to join")
        observer.status.write()
        (status,) = statuses()
        assert (status.left_s, status.activity[:17]) == (None, "no worker is left")


def test_without_a_usable_folder_a_sweep_warns_once_and_continues(folder, null_track, capsys):
    (folder / "live").write_text("a file")
    with observed([null_track()], quiet=False) as observer:
        observer.waiting("the device is in use")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("no live status: ")
    assert "choose another folder with BENCHHOUSE_LIVE_DIR" in first
    assert second == "the device is in use"


def test_large_sweeps_write_their_status_less_often(folder, null_track, monkeypatch):
    written = []
    monkeypatch.setattr(StatusFile, "write", lambda self, content: written.append(content))
    monkeypatch.setattr(progress, "SCAN_INTERVAL_FACTOR", 1e9)
    for cells, writes in ((2, 4), (progress.MANY_CELLS + 1, 2)):
        written.clear()
        tracks = [null_track() for _ in range(cells)]
        with observed(tracks, quiet=True) as observer:
            for track in tracks[:2]:
                observer.launch(track, 0)
        assert len(written) == writes
        assert (written[-1]["state"], written[-1]["total"]) == ("finished", written[0]["total"])


@pytest.mark.parametrize(
    ("error", "state", "activity"),
    [(KeyboardInterrupt, "interrupted", "interrupted"), (StorageError("no room"), "failed", "no room")],
)
def test_a_status_records_how_its_sweep_ended(folder, null_track, error, state, activity):
    with pytest.raises((KeyboardInterrupt, StorageError)), observed([null_track()], quiet=True):
        raise error
    (status,) = statuses()
    assert (status.state, status.activity, status.words[:17]) == (state, activity, "bert-base-uncased")


def test_running_sweeps_show_progress_and_killed_ones_are_crashed(folder):
    with running_sweep(folder, "--save", "--db-path", "x.duckdb", call_ms=50, calls=200) as process:
        found = wait_for(lambda: (now := snapshot()).running and now.running[0].status.current and now)
        (one,) = found.running
        assert one.status.owner.pid == process.pid
        assert one.status.folder == str(folder / "benchmark_results")
        calls = one.status.current.calls
        wait_for(lambda: (now := snapshot().running[0].status.current) and now.calls > calls)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert snapshot().running == ()
    assert [one.state for one in snapshot().ended] == ["crashed"]
