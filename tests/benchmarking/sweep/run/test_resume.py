"""Untrusted unfinished runs and batches: they run no code, write nowhere else, and are not stored twice."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from benchmarking import batch_benchmark, run_hardware_benchmark
from benchmarking.batch.batch_run import Manifest
from benchmarking.batch.summary import BatchInfo
from benchmarking.benches.discovery import discover
from benchmarking.benches.runner import BenchPlanning, plan_benches
from benchmarking.commands import compare_runtimes
from benchmarking.core.errors import LockedError, StorageError, UsageError
from benchmarking.core.provenance import this_process, utc_now, uuid7
from benchmarking.core.records import Preparation, to_json
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import Machine, check_loaded_plan, code_flags
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run import journal, spool, supervisor
from benchmarking.sweep.run.command_session import Executor, Show, finish_run, run_plans, unfinished
from benchmarking.sweep.run.spool import PartialRun
from benchmarking.sweep.run.supervisor import Observer, Track, sweep, sweep_one_launch
from db import setup_benchmark_db
from db.warehouse import Warehouse

QUICK = settings("quick", iterations=2, warmup_iterations=1, launches=1)
NULL = {"device": "null", "batch_sizes": (1,), "sequence_lengths": (32,), "weights": "random", "settings": QUICK}
SWEEP = ["--model-id", "tiny-bert", "--device", "null", "--batch-sizes", "1", "--sequence-lengths", "32", "--save"]
SWEEP += ["--weights", "random", "--iterations", "2", "--warmup-iterations", "1", "--launches", "1", "--quiet"]
BENCH = """
from benchmarking import BenchmarkConfig, ModelBenchmark
open({mark!r}, "w").close()
class Mine(ModelBenchmark):
    configs = (BenchmarkConfig(name="mine", device="cpu"),)
    def setup_model(self): pass
    def run(self): pass
"""


pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("empty_working_folder")]


@pytest.fixture
def theirs(tmp_path):
    """The folder of a stranger."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    return folder


@pytest.fixture
def mark(tmp_path):
    """A file that code of theirs would make."""
    return tmp_path / "mark"


@pytest.fixture
def bench_plan(theirs, mark):
    """A plan that runs a benchmark's file in their folder."""
    (theirs / "bench.py").write_text(BENCH.format(mark=str(mark)))
    (plan,) = plan_benches(discover(theirs).benches, BenchPlanning(session_id=uuid7(), settings=QUICK), Machine())
    mark.unlink()  # planning imports it, which the stranger did elsewhere
    return plan


def null_plan(**fields):
    return plan_cell(Request(model_id="tiny-bert", **{**NULL, **fields}), uuid7())


def batch_of(folder, *plans, **about):
    """An unfinished batch in a folder."""
    session_id = plans[0].session_id if plans else uuid7()
    known = {"session_id": session_id, "command": ("x",), "started_at": "2026-01-02T03:04:05Z"}
    return Manifest.create(folder, BatchInfo(**{**known, "db_path": None, "report": None, **about}), plans)


def refused(capsys, main, *arguments, code=2):
    """The one line with which a command refuses."""
    assert main([*arguments, "--quiet"]) == code
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def resume_run(capsys, folder, *arguments, code=2):
    return refused(capsys, run_hardware_benchmark.main, "--resume", "--output-dir", str(folder), *arguments, code=code)


def resume_batch(capsys, folder, *arguments, code=2):
    return refused(capsys, batch_benchmark.main, "--resume", "--output-dir", str(folder), *arguments, code=code)


def test_resuming_a_benchmark_requires_its_file_on_the_command_line(theirs, mark, bench_plan, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    partial = PartialRun.create(theirs, bench_plan)
    disown(partial)
    for further in ((), ("--benches", str(tmp_path / "mine"))):
        line = resume_run(capsys, theirs, *further)
        assert (
            f"would run the code in '{theirs / 'bench.py'}', so it was not started: if you trust the code, add" in line
        )
        assert "add" in line
    assert not mark.exists()
    arguments = ["--resume", "--output-dir", str(theirs), "--benches", str(theirs), "--quiet"]
    assert run_hardware_benchmark.main(arguments) == 0
    assert mark.exists()


def test_a_run_whose_code_is_not_named_keeps_no_other_from_being_finished(theirs, mark, bench_plan, capsys):
    partial = PartialRun.create(theirs, bench_plan)
    other = PartialRun.create(theirs, null_plan())
    disown(partial)
    disown(other)
    assert "so it was not started" in resume_run(capsys, theirs)
    assert (other.final_path.exists(), other.path.exists()) == (True, False)
    assert (partial.path.exists(), mark.exists()) == (True, False)


def test_code_flags_name_the_files_of_cells_or_the_folder_of_all(bench_plan, theirs):
    assert code_flags([null_plan().cell], {}) == []
    assert code_flags([bench_plan.cell, null_plan().cell], {}) == ["--benches", str(theirs / "bench.py")]
    assert code_flags([bench_plan.cell], {"benches": "mine"}) == ["--benches", "mine"]
    workload = dataclasses.replace(bench_plan.cell.workload, path=str(theirs / "sub" / "other.py"))
    other = dataclasses.replace(bench_plan.cell, workload=workload)
    assert code_flags([bench_plan.cell, other], {}) == ["--benches", str(theirs)]
    far = dataclasses.replace(other, workload=dataclasses.replace(workload, path="/0/bench.py"))
    assert code_flags([bench_plan.cell, far], {}) == ["--benches", "/0/bench.py"]


def test_resuming_a_batch_of_benchmarks_requires_their_folder_on_the_command_line(theirs, mark, bench_plan, capsys):
    disown(batch_of(theirs, bench_plan))
    assert "so it was not started: if you trust the code, add" in resume_batch(capsys, theirs)
    assert not mark.exists()
    arguments = ["--resume", "--output-dir", str(theirs), "--benches", str(theirs), "--quiet"]
    assert batch_benchmark.main(arguments) == 0
    assert mark.exists()


def test_a_turn_runs_only_files_named_by_its_command(theirs, mark, bench_plan, capsys):
    disown(PartialRun.create(theirs, bench_plan))
    assert "add" in refused(capsys, run_hardware_benchmark.main, *SWEEP[:-1], "--turn", str(theirs))
    assert not mark.exists()


@pytest.mark.parametrize("path", ["{mine}/../theirs/bench.py", "{mine}/linked/bench.py", "{mine}/..", "", "bench.py"])
def test_paths_that_leave_the_named_folder_are_refused(theirs, bench_plan, tmp_path, path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "linked").symlink_to(theirs)
    workload = dataclasses.replace(bench_plan.cell.workload, path=path.format(mine=mine))
    plan = dataclasses.replace(bench_plan, cell=dataclasses.replace(bench_plan.cell, workload=workload))
    with pytest.raises(UsageError, match="so it was not started: if you trust the code, add"):
        check_loaded_plan(plan, {"benches": str(mine)}, "x")


def test_resuming_with_local_kernels_requires_their_folder_on_the_command_line(theirs, capsys):
    (theirs / "build").mkdir()
    plan = null_plan()
    mode = {"attention": "sdpa", "kernel_repo": str(theirs)}
    plan = dataclasses.replace(plan, cell=dataclasses.replace(plan.cell, runtime="kernelized", runtime_mode=mode))
    disown(PartialRun.create(theirs, plan))
    assert f"the code in '{theirs}'" in (line := resume_run(capsys, theirs))
    assert "add --kernel-repo" in line
    check_loaded_plan(plan, {"kernel_repo": str(theirs)}, "x")
    on_hub = dataclasses.replace(plan.cell, runtime_mode={"kernel_repo": "kernels-community/activation@1"})
    check_loaded_plan(dataclasses.replace(plan, cell=on_hub), {}, "x")


@pytest.mark.parametrize(("flag", "instead"), [("--benches", "batch_benchmark --benches"), ("--scripts", "benchit")])
def test_code_is_named_for_a_resumed_run_only(flag, instead, capsys):
    assert f"use {instead}" in refused(capsys, run_hardware_benchmark.main, flag, ".", *SWEEP[:-1])


def test_a_batch_of_a_copied_project_is_told_of_both_databases(theirs, tmp_path, capsys, monkeypatch, empty_database):
    """The original's is at the path of the file, and the copy has its own."""
    original, own = tmp_path / "original.duckdb", tmp_path / "copy/original.duckdb"
    own.parent.mkdir()
    for path in (original, own):
        shutil.copy2(empty_database, path)
    monkeypatch.setenv("BENCHMARK_DB_PATH", str(own))
    disown(batch_of(theirs, null_plan(), db_path=str(original)))
    line = resume_batch(capsys, theirs)
    assert f"to use {own}, add --db-path {own}; to use it, repeat --db-path {original}" in line


@pytest.mark.parametrize(("field", "flag"), [("db_path", "--db-path"), ("report", "--report")])
def test_a_manifest_writes_outside_its_folder_only_with_flags(theirs, tmp_path, capsys, field, flag):
    (theirs / "linked").symlink_to(tmp_path)
    manifest = None
    for path in (tmp_path / "out.md", f"{theirs}/../out.md", theirs / "linked" / "out.md"):
        if manifest is not None:
            manifest.path.unlink()
        manifest = disown(batch_of(theirs, null_plan(), **{field: str(path)}))
        line = resume_batch(capsys, theirs)
        assert f"refers to {path}, outside its folder: to use it, repeat {flag}" in line
        assert not (tmp_path / "out.md").exists()
    assert (
        batch_benchmark.main(["--resume", "--output-dir", str(theirs), "--quiet", flag, str(tmp_path / "own.md")]) == 0
    )
    assert (tmp_path / "own.md").exists()
    assert not (tmp_path / "out.md").exists()


def test_paths_in_the_folder_and_the_default_database_are_used_again(theirs, tmp_path):
    about = {"db_path": str(tmp_path / "benchmark_db.duckdb"), "report": str(theirs / "report.md")}
    disown(batch_of(theirs, null_plan(), **about))
    assert batch_benchmark.main(["--resume", "--output-dir", str(theirs), "--quiet"]) == 0
    assert (tmp_path / "benchmark_db.duckdb").exists()
    assert (theirs / "report.md").exists()


def test_the_log_of_a_batch_is_never_written_through_a_link(theirs, tmp_path, capsys):
    victim = tmp_path / "profile"
    victim.write_text("precious")
    manifest = disown(batch_of(theirs, null_plan()))
    (theirs / f"batch_{manifest.info.session_id}.log").symlink_to(victim)
    assert "cannot write" in resume_batch(capsys, theirs, code=1)
    assert victim.read_text() == "precious"


def test_the_log_of_a_batch_stays_in_its_folder(theirs, tmp_path, capsys):
    manifest = disown(batch_of(theirs, null_plan()))
    (theirs / "batch_x").mkdir()
    content = manifest.path.read_text().replace(manifest.info.session_id, "x/../../profile", 1)
    manifest.path.write_text(content)
    assert "not the manifest of session 'x/../../profile'" in resume_batch(capsys, theirs, code=1)
    assert not (tmp_path / "profile.log").exists()


def test_files_in_a_folder_cannot_redirect_writes(theirs, tmp_path, capsys):
    """Links with the names of everything that is written while a run is resumed."""
    victim = tmp_path / "profile"
    victim.write_text("precious")
    partial = disown(PartialRun.create(theirs, null_plan()))
    for name in (f".{os.getpid()}.probe", f".{partial.final_path.name}.tmp", ".benchmark_summary.json.tmp"):
        (theirs / name).symlink_to(victim)
    partial.final_path.symlink_to(tmp_path / "made")
    spool.prepare(theirs)
    assert run_hardware_benchmark.main(["--resume", "--output-dir", str(theirs), "--quiet"]) == 0
    assert victim.read_text() == "precious"
    assert not (tmp_path / "made").exists()
    assert partial.final_path.is_file()


def test_an_unfinished_run_behind_a_link_is_refused(theirs, tmp_path, capsys):
    partial = disown(PartialRun.create(tmp_path, null_plan()))
    before = partial.path.read_text()
    (theirs / "x.partial.jsonl").symlink_to(partial.path)
    assert "x.partial.jsonl" in resume_run(capsys, theirs, code=1)
    assert partial.path.read_text() == before


def _fifo(path, content):
    os.mkfifo(path)


def _file(path, content):
    path.write_bytes(content)


HEADER = b'{"format":"benchhouse-partial","version":1'


@pytest.mark.parametrize(
    ("make", "content", "reason"),
    [
        (_fifo, b"", "expected a file of at most 1 GiB"),
        (_file, b"\xff\xfe\n", "not UTF-8"),
        (_file, b"[" * 100_000 + b"\n", "not JSON"),
        (_file, HEADER + b"}\n", "plan: expected an object, found null"),
        (_file, HEADER + b',"plan":' + b"[" * 100_000 + b"\n", "not JSON"),
    ],
)
def test_a_damaged_file_of_an_unfinished_run_is_one_line(theirs, capsys, make, content, reason):
    make(theirs / "x.partial.jsonl", content)
    assert reason in resume_run(capsys, theirs, code=1)


def test_a_damaged_file_does_not_keep_the_other_runs_from_being_finished(theirs, capsys):
    plan = null_plan()
    spool.PartialRun.create(theirs, plan).release()
    damaged = theirs / "x.partial.jsonl"
    damaged.write_bytes(HEADER + b"}\n")
    assert "x.partial.jsonl: plan: expected an object" in resume_run(capsys, theirs, code=1)
    (finished,) = theirs.glob("*.json")
    assert json.loads(finished.read_text())["run_id"] == plan.run_id
    assert [path.name for path in theirs.glob("*.partial.jsonl")] == [damaged.name]


def test_a_run_of_a_model_in_the_home_folder_is_resumed_by_its_name(theirs, monkeypatch):
    monkeypatch.setenv("HOME", str(theirs))
    plan = null_plan()
    workload = dataclasses.replace(plan.cell.workload, model_id="~/model")  # as it is stored
    cell = dataclasses.replace(plan.cell, workload=workload)
    spool.PartialRun.create(theirs, dataclasses.replace(plan, cell=cell)).release()
    for model_id in ("~/model", str(theirs / "model")):
        with unfinished(theirs, model_id, {}, on_cluster=False) as files:
            assert len(files) == 1
    with (
        pytest.raises(UsageError, match="no unfinished run of ~/other"),
        unfinished(theirs, "~/other", {}, on_cluster=False),
    ):
        pass


def test_a_file_that_another_process_has_finished_is_no_damaged_one(theirs):
    left = spool.PartialRun.create(theirs, null_plan())
    left.release()
    errors = []
    (found,) = spool.readable([spool.PartialRun(theirs / "finished.partial.jsonl"), left], errors.append)
    assert (found[0], errors) == (left, [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cell: cell.update(runtime="support.torch.session"), "'support.torch.session' is none of"),
        (lambda cell: cell["device"].update(type="../x"), "'../x' is none of"),
    ],
)
def test_plans_with_unknown_runtimes_and_devices_are_refused(theirs, capsys, change, reason):
    data = to_json(null_plan())
    change(data["cell"])
    header = {"format": spool.PARTIAL_FORMAT, "version": spool.PARTIAL_VERSION, "plan": data}
    (theirs / "x.partial.jsonl").write_text(json.dumps(header) + "\n")
    assert reason in resume_run(capsys, theirs, code=1)


@pytest.mark.parametrize("pid", [-1, 0, 10**30])
def test_impossible_process_ids_are_not_alive(pid):
    assert not dataclasses.replace(this_process(), pid=pid).is_alive()


def test_preparations_in_a_file_are_not_loaded(monkeypatch, tmp_path):
    """A digest may be any path."""
    track = Track(null_plan(), tmp_path, preparation=Preparation(references={"b1 s32": "../../../secret"}))
    jobs = []
    monkeypatch.setattr(supervisor, "WorkerSession", lambda track, job, *others: jobs.append(job) or 1 / 0)
    monkeypatch.setattr(supervisor, "needs_preparation", lambda cell, quality: False)
    with pytest.raises(ZeroDivisionError):
        sweep([track], Observer())
    assert [job.preparation for job in jobs] == [None]


KILLED = """
import os, pathlib, signal, sys
unlink = pathlib.Path.unlink
def dying(self, *arguments, **named):
    if self.name.endswith(".partial.jsonl"):
        os.kill(os.getpid(), signal.SIGKILL)
    unlink(self, *arguments, **named)
pathlib.Path.unlink = dying
from benchmarking.run_hardware_benchmark import main
main(sys.argv[1:])
"""


def killed_between_rename_and_unlink(*arguments):
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL


def ids(path):
    return [result["result_id"] for result in json.loads(path.read_text())["results"]]


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_a_finished_run_is_not_written_again(tmp_path, empty_database):
    shutil.copy(empty_database, "benchmark_db.duckdb")
    killed_between_rename_and_unlink(*SWEEP)
    folder = tmp_path / "benchmark_results"
    (path,) = folder.glob("*.json")
    before = path.read_bytes()
    ingest = ["--ingest", str(folder), "--quiet"]
    assert setup_benchmark_db.main(ingest) == 0
    assert run_hardware_benchmark.main(["--resume", "--quiet"]) == 0
    assert path.read_bytes() == before
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    assert setup_benchmark_db.main(ingest) == 0
    with Warehouse.open(tmp_path / "benchmark_db.duckdb") as warehouse:
        stored = [row["result_id"] for row in warehouse.query("select result_id from benchmark_results").dicts()]
    assert stored == ids(path)


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_a_turn_does_not_write_a_finished_run_again(tmp_path):
    turn = ("--turn", str(tmp_path / "a"), *(word for word in SWEEP if word != "--save"))
    killed_between_rename_and_unlink(*turn)
    (path,) = (tmp_path / "a").glob("*.json")
    before = path.read_bytes()
    assert run_hardware_benchmark.main(turn) == 0
    assert (path.read_bytes(), list((tmp_path / "a").iterdir())) == (before, [path])


def test_a_run_whose_storing_is_interrupted_is_stored_by_resume(tmp_path, capsys):
    def interrupted(path):
        raise KeyboardInterrupt

    folder = tmp_path / "benchmark_results"
    with pytest.raises(KeyboardInterrupt):
        run_plans([null_plan()], folder, interrupted, Show(quiet=True))
    assert "1 of 1 points measured: saved; continue with benchhouse run --resume" in capsys.readouterr().err
    (path,) = folder.glob("*.json")
    assert run_hardware_benchmark.main(["--resume", "--quiet"]) == 0
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    with Warehouse.open(tmp_path / "benchmark_db.duckdb") as warehouse:
        stored = [row["result_id"] for row in warehouse.query("select result_id from benchmark_results").dicts()]
    assert stored == ids(path)


def test_an_interrupted_command_that_saves_prints_what_it_measured_in_the_order_of_its_plans(tmp_path, capsys):
    def one_launch_of_the_last(tracks, observer, done, **_):
        sweep_one_launch(tracks[1:], observer, done)
        sweep_one_launch(tracks[:1], observer, done)
        raise KeyboardInterrupt

    measured = []
    plans = [null_plan(), null_plan(settings=settings("quick", launches=2, iterations=3)), null_plan()]
    with pytest.raises(KeyboardInterrupt):
        run_plans(
            *(plans, tmp_path / "results", lambda path: None, Show(quiet=True)),
            interrupted=measured.extend,
            executor=Executor(sweep=one_launch_of_the_last),
        )
    out, err = capsys.readouterr()
    assert out.count("median ms") == 3
    assert "saved; continue with benchhouse run --resume" in err
    assert [run.run_id for run in measured] == [plan.run_id for plan in plans]


def test_an_unfinished_run_that_is_named_is_stored_with_what_is_measured_of_it(theirs, capsys):
    plan = null_plan(batch_sizes=(1, 2), settings=settings("quick", launches=3, iterations=3))
    track = Track(plan, theirs)
    track.begin()
    path = disown(track.file).path
    assert "nothing was measured" in refused(capsys, setup_benchmark_db.main, "--ingest", str(path))
    track = Track.resume(track.file)
    sweep_one_launch([track], Observer(), lambda done: None)
    track.close()

    assert setup_benchmark_db.main(["--ingest", str(path)]) == 0

    (run_file,) = theirs.iterdir()
    assert f"{path} is ended, 2 of 6 points measured: its run file is {run_file}" in capsys.readouterr().err
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        rows = warehouse.query("select status, launches from benchmark_results").dicts()
    assert rows == [{"status": "ok", "launches": 1}] * 2
    assert setup_benchmark_db.main(["--ingest", str(theirs)]) == 0


def test_an_interrupted_comparison_of_runtimes_writes_what_there_is(tmp_path, monkeypatch, capsys):
    def interrupted(plans, *_, interrupted, **__):
        with spool.opened_folder(None) as folder:
            interrupted([Track(plan, folder).run(utc_now()) for plan in plans])
        raise KeyboardInterrupt

    monkeypatch.setattr(compare_runtimes.command_session, "run_plans", interrupted)
    words = ["tiny-bert", "--device", "cpu", "--runtimes", "eager,compiled", "--batch-sizes", "1"]
    assert compare_runtimes.main([*words, "--output", str(tmp_path / "compared.json"), "--quiet"]) == 130
    document = json.loads((tmp_path / "compared.json").read_text())
    assert (document["interrupted"], len(document["runs"])) == (True, 2)
    assert "comparison of what was measured: " in capsys.readouterr().err


def test_the_file_of_another_run_is_not_overwritten(theirs, capsys, tmp_path):
    first = Track(null_plan(), theirs)
    sweep([first], Observer())
    other = finish_run(first).path
    partial = disown(PartialRun.create(theirs, null_plan()))
    content = other.read_bytes()
    other.rename(partial.final_path)
    assert "already exists and is not the run of" in resume_run(capsys, theirs, code=1)
    assert partial.final_path.read_bytes() == content


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2], lambda text: text.replace('"iterations": 2', '"iterations": 3')]
)
def test_a_run_file_that_cannot_be_stored_is_made_again(tmp_path, capsys, damage, empty_database):
    shutil.copy(empty_database, "benchmark_db.duckdb")
    killed_between_rename_and_unlink(*SWEEP)
    (tmp_path / "benchmark_db.duckdb").unlink()  # as if it had been killed before storing
    (path,) = (tmp_path / "benchmark_results").glob("*.json")
    good = path.read_text()
    path.write_text(damage(good))
    assert run_hardware_benchmark.main(["--resume", "--quiet"]) == 0
    assert "this run file is made again from" in capsys.readouterr().err
    assert samples(path.read_text()) == samples(good)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    with Warehouse.open(tmp_path / "benchmark_db.duckdb") as warehouse:
        assert warehouse.query("select run_id from benchmark_runs").df().run_id[0] == json.loads(good)["run_id"]


def samples(text):
    return [one["values"] for result in json.loads(text)["results"] for one in result["samples"]]


def test_a_partial_file_stays_until_its_run_file_has_been_read_back(theirs, monkeypatch):
    track = Track(null_plan(), theirs)
    sweep([track], Observer())
    write = journal.replace
    monkeypatch.setattr(journal, "replace", lambda path, text: write(path, text[:-100]))
    with pytest.raises(StorageError, match=r"cannot be read back: .*; everything measured is in .*\.partial\.jsonl"):
        finish_run(track)
    assert track.file.path.exists()


def test_a_contradicting_file_continues_after_its_consistent_beginning(theirs, tmp_path, capsys):
    """As two processes left it that resumed it at once, before files were locked."""
    plan = null_plan(settings=settings("quick", iterations=2, warmup_iterations=1, launches=2))
    track = Track(plan, theirs)
    sweep([track], Observer())
    partial = disown(track.file)
    lines = partial.path.read_text().splitlines(keepends=True)
    (first, second) = (place for place, line in enumerate(lines) if line.startswith('{"Measurement"'))
    partial.path.write_text("".join([*lines[: first + 1], lines[first], *lines[first + 1 :]]))
    before = partial.path.read_text()
    assert run_hardware_benchmark.main(["--resume", "--output-dir", str(theirs), "--quiet"]) == 0
    assert f"repaired: line {first + 2} is damaged or contradicts the lines above" in capsys.readouterr().err
    assert partial.path.with_name(f"{partial.path.name}.damaged").read_text() == before
    (result,) = json.loads(partial.final_path.read_text())["results"]
    assert (result["launches"], result["iterations"]) == (2, 4)
    assert result["samples"][1]["values"] == json.loads(lines[first])["Measurement"]["samples"][1]["values"]
    assert second > first


HOLDER = """
import sys
from pathlib import Path
from benchmarking.sweep.run.spool import PartialRun
file = PartialRun(Path(sys.argv[1]))
assert file.hold()
file.take_over(file.read())
print("held", flush=True)
sys.stdin.read()
"""


def test_a_run_that_another_process_resumes_is_refused(theirs, capsys):
    partial = disown(PartialRun.create(theirs, null_plan()))
    command = [sys.executable, "-c", HOLDER, str(partial.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        content = partial.path.read_bytes()
        assert f"being resumed by PID {holder.pid}: wait until it ends, or stop it" in resume_run(
            capsys, theirs, code=1
        )
        assert partial.path.read_bytes() == content
        holder.kill()
    assert run_hardware_benchmark.main(["--resume", "--output-dir", str(theirs), "--quiet"]) == 0


def test_a_lock_ends_with_its_command_not_with_its_process(theirs):
    track = Track(null_plan(), theirs)
    with closing(track):
        track.begin()
        with pytest.raises(LockedError, match=f"in use by PID {os.getpid()}"):
            Track.resume(PartialRun(track.file.path))
    Track.resume(PartialRun(track.file.path)).close()


def disown(file):
    """The file as if its process had ended."""
    journal.append(file.path, "Owner", json.dumps({"host": "elsewhere", "pid": 1, "created_s": 0.0}))
    file.release()
    return file
