"""Killed and interrupted batches resume where they stopped: the same results, without duplicates."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from benchmarking.batch import batch_run
from benchmarking.sweep.run import spool
from db.warehouse import Warehouse
from tests.helpers.sweeps import wait_for

pytestmark = [pytest.mark.forked_children, pytest.mark.skipif(os.name != "posix", reason="POSIX signals")]

COMMAND = [sys.executable, "-m", "benchmarking.batch_benchmark", "--quiet"]
BATCH = ["--models", "tiny-bert,tiny-gpt2", "--devices", "null", "--batch-sizes", "1,2", "--sequence-lengths", "32"]
BATCH += ["--new-tokens", "4", "--iterations", "20", "--warmup-iterations", "1", "--launches", "2"]
BATCH += ["--weights", "random"]
POINTS = {("tiny-bert", "b1 s32"), ("tiny-bert", "b2 s32"), ("tiny-gpt2", "b1 s32 n4"), ("tiny-gpt2", "b2 s32 n4")}


@pytest.fixture(autouse=True)
def in_real_time(tmp_path, monkeypatch, null_script):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)
    null_script(real_time=True, latency_ms={"*": [8.0, 9.0, 8.5]})


def start(*arguments):
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def settled(folder):
    """The measurements on disk, by model, point and launch."""
    found = {}
    for partial in spool.unfinished(folder):
        try:
            progress = partial.read()
        except OSError:
            continue  # finished in between
        model = progress.plan.cell.workload.model_id
        found |= {(model, one.point.label, one.launch): one.samples[-1].values for one in progress.measurements}
    for path in batch_run.run_files(folder).values():
        run = json.loads(path.read_text())
        for result in run["results"]:
            label = "b{batch_size} s{sequence_length}".format(**result["point"])
            label += f" n{result['point']['new_tokens']}" if result["point"]["new_tokens"] else ""
            launches = {samples["launch"]: tuple(samples["values"]) for samples in result["samples"]}
            found |= {
                (run["cell"]["workload"]["model_id"], label, launch): values for launch, values in launches.items()
            }
    return found


def stored(folder):
    """(model, points, launches) of each run in the database."""
    with Warehouse.open(folder / "benchmark_db.duckdb") as warehouse:
        sql = "select model_id, count(*) as points, min(launches) as launches from benchmark_results "
        return warehouse.query(sql + "join benchmark_runs using (run_id) group by run_id, model_id order by 1").dicts()


def check_complete(tmp_path):
    """Both runs are whole, in their files and in the database, and nothing of the batch is left unfinished."""
    folder = tmp_path / "benchmark_results"
    assert {(model, label) for model, label, _ in settled(folder)} == POINTS
    assert len(settled(folder)) == 2 * len(POINTS)
    assert stored(tmp_path) == [
        {"model_id": "tiny-bert", "points": 2, "launches": 2},
        {"model_id": "tiny-gpt2", "points": 2, "launches": 2},
    ]
    assert len(batch_run.run_files(folder)) == 2
    assert spool.unfinished(folder) == list(batch_run.unfinished(folder)) == []
    summary = json.loads((folder / "benchmark_summary.json").read_text())
    assert (summary["status"], summary["cells_by_status"]) == ("finished", {"ok": 2})
    assert [cell["stored"] for cell in summary["cells"]] == [True, True]


MOMENTS = {
    "planned": lambda folder: batch_run.unfinished(folder),
    "half": lambda folder: len(settled(folder)) >= 4,
    "first run file": lambda folder: batch_run.run_files(folder),
    "last run file": lambda folder: len(batch_run.run_files(folder)) == 2,
}
KILLED = MOMENTS if os.environ.get("BENCHHOUSE_TEST_ALL") else ("half", "last run file")
"""Moments at which a batch is killed: in the middle of a cell, and where only the summary is missing."""


@pytest.mark.slow
@pytest.mark.parametrize("moment", KILLED)
def test_a_killed_batch_resumes_to_the_same_results_without_duplicates(tmp_path, moment):
    folder = tmp_path / "benchmark_results"
    process = start(*BATCH)
    wait_for(lambda: folder.is_dir() and MOMENTS[moment](folder), poll_s=0.005)
    process.kill()
    finish(process)
    before = settled(folder)
    assert finish(start("--resume"))[0] == 0
    after = settled(folder)
    assert {name: after[name] for name in before} == before
    check_complete(tmp_path)


def test_sigterm_ends_a_batch_like_ctrl_c_without_leftover_processes(tmp_path):
    folder = tmp_path / "benchmark_results"
    process = start(*BATCH)
    wait_for(lambda: folder.is_dir() and len(settled(folder)) >= 1, poll_s=0.005)
    own = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    before = settled(folder)
    assert code == 143
    assert "cells finished: saved; continue with batch_benchmark --resume --output-dir benchmark_results" in err
    assert json.loads((folder / "benchmark_summary.json").read_text())["status"] == "interrupted"
    assert psutil.wait_procs(own, timeout=10)[1] == []
    assert finish(start("--resume", "--output-dir", "benchmark_results"))[0] == 0
    assert {name: settled(folder)[name] for name in before} == before
    check_complete(tmp_path)


def test_an_interrupted_batch_names_commands_that_resume_it(tmp_path):
    folder = tmp_path / "benchmark_results"
    process = start(*BATCH)
    wait_for(lambda: folder.is_dir() and len(settled(folder)) >= 1, poll_s=0.005)
    code, _, err = (1, "", "") if process.poll() is not None else finish(start("--resume"))
    assert (code, f"in use by PID {process.pid}" in err) == (1, True)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "0 of 2 cells finished: saved; continue with batch_benchmark --resume --output-dir benchmark_results" in err
    summary = json.loads((folder / "benchmark_summary.json").read_text())
    assert summary["status"] == "interrupted"
    begun = len(spool.unfinished(folder))
    single = [sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--quiet", "--resume"]
    assert subprocess.run(single, capture_output=True, check=False).returncode == 0
    assert len(batch_run.run_files(folder)) == begun
    assert finish(start("--resume"))[0] == 0
    check_complete(tmp_path)
