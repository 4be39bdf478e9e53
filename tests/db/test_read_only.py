"""A database on a read-only medium: everything that only reads it works, the rest is one clear line; and --verify and
--backup change nothing of a file that could be written."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from db.setup_benchmark_db import main
from db.warehouse import Warehouse
from tests.helpers.databases import leave_log

COMMANDS = """
import contextlib, importlib, io, json, sys, traceback

found = []
for module, arguments in json.load(sys.stdin):
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = importlib.import_module(module).main(arguments)
        except BaseException:
            code = traceback.format_exc()
    found.append([code, error.getvalue()])
print(json.dumps(found))
"""
MOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
SETUP, MEASURE = "db.setup_benchmark_db", "benchmarking.run_hardware_benchmark"
MODEL = ("--model-id", "tiny-bert", "--device", "null", "--weights", "random", "--quiet", "--save")
READING = {
    "verify": (SETUP, "--verify"),
    "verify an older version": (SETUP, "--verify", "--db-path", "media/old.duckdb"),
    "verify one with a log": (SETUP, "--verify", "--db-path", "media/logged.duckdb"),
    "back up": (SETUP, "--backup", "work/copy.duckdb"),
    "back up an older version": (SETUP, "--backup", "work/old.duckdb", "--db-path", "media/old.duckdb"),
    "query": ("db.commands.query", "SELECT count(*) FROM latest_results"),
    "compare": ("db.commands.compare", "model=bert-base-uncased", "model=bert-base-uncased"),
    "history": ("db.commands.history",),
    "find regressions": ("db.commands.regressions", "--db-path", "media/judged.duckdb"),
    "judge": ("db.commands.check", "--db-path", "media/judged.duckdb"),
    "list series": ("db.commands.series", "list"),
    "export": ("db.commands.export_results", "--format", "csv", "--output", "work/csv"),
    "chart": ("visualize.visualize_benchmarks", "--chart", "latency_vs_batch_size", "--output-dir", "work/charts"),
    "merge from it": ("db.commands.merge", "media/a.duckdb", "--db-path", "work/merged.duckdb"),
    "merge an older version": ("db.commands.merge", "media/old.duckdb", "--db-path", "work/merged.duckdb"),
}
WRITING = {
    "upgrade": (SETUP, "--db-path", "media/old.duckdb"),
    "make new": (SETUP, "--db-path", "media/new.duckdb"),
    "make new in a new folder": (SETUP, "--db-path", "media/new/new.duckdb"),
    "ingest": (SETUP, "--ingest", "media/runs"),
    "compact": (SETUP, "--compact"),
    "empty": (SETUP, "--overwrite", "--yes"),
    "rebuild": (SETUP, "--rebuild-from", "media/runs"),
    "back up into it": (SETUP, "--backup", "media/copy.duckdb"),
    "merge into it": ("db.commands.merge", "media/old.duckdb"),
    "export into it": ("db.commands.export_results", "--format", "csv", "--output", "media/csv"),
    "chart into it": ("visualize.visualize_benchmarks", "--output-dir", "media/charts"),
    "measure into it": (MEASURE, *MODEL, "--output-dir", "media/out", "--db-path", "work/new.duckdb"),
    "measure and store there": (MEASURE, *MODEL, "--output-dir", "work/out", "--db-path", "media/new.duckdb"),
    "measure a batch into it": (
        *("benchmarking.batch_benchmark", "--models", "tiny-bert", "--devices", "null", "--weights", "random"),
        *("--output-dir", "media/out", "--db-path", "work/new.duckdb"),
    ),
}


def read_only(folder):
    """The beginning of a command to which the folder is on a read-only file system, or is not to be written."""
    mounted = ["unshare", "-rm", "sh", "-c", MOUNT, str(folder)]
    if shutil.which("unshare") and subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode == 0:
        return mounted
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        pytest.skip("neither a read-only mount nor permissions can be had here")
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in files)):
            os.chmod(path, 0o555)
    return []


def make_older(path):
    with Warehouse.open(path) as warehouse:
        warehouse.query("UPDATE schema_migrations SET sha256 = 'of another version' WHERE version = 0")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, empty_database, make_run):
    """(exit code or traceback, stderr) of each command, and what is in the read-only folder before and after them."""
    from benchmarking.core.records import dumps

    folder = tmp_path_factory.mktemp("read-only")
    media = folder / "media"
    (media / "runs").mkdir(parents=True)
    (folder / "work").mkdir()
    shutil.copy2(empty_database, folder / "work" / "merged.duckdb")
    (media / "runs" / "1.json").write_text(dumps(make_run()))
    with Warehouse.open(media / "a.duckdb") as warehouse:
        warehouse.ingest_file(media / "runs" / "1.json")
    for name in ("old", "logged"):
        shutil.copy(media / "a.duckdb", media / f"{name}.duckdb")
    make_older(media / "old.duckdb")
    with Warehouse.open(media / "judged.duckdb") as warehouse:
        for day in range(12):
            at = f"2026-03-{day + 1:02}T00:00:00Z"
            slowdown = 1 + 0.002 * (day * 7 % 5)
            warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(32,), slowdown=slowdown, started_at=at))
    (folder / "2.json").write_text(dumps(make_run()))
    leave_log(media / "logged.duckdb", folder / "2.json")
    before = {path: path.read_bytes() for path in media.rglob("*") if path.is_file()}
    commands = READING | WRITING
    environment = {**os.environ, "BENCHMARK_DB_PATH": "media/a.duckdb", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*read_only(media), sys.executable, "-c", COMMANDS],
        input=json.dumps([[module, arguments] for module, *arguments in commands.values()]),
        text=True,
        capture_output=True,
        cwd=folder,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    after = {path: path.read_bytes() for path in media.rglob("*") if path.is_file()}
    return dict(zip(commands, json.loads(done.stdout), strict=True)), before, after


@pytest.mark.slow
@pytest.mark.parametrize("name", READING)
def test_reading_commands_work_on_a_read_only_medium(outcomes, name):
    if name == "chart":
        pytest.importorskip("seaborn")
    nothing_to_compare = 3
    assert outcomes[0][name][0] == (nothing_to_compare if name == "compare" else 0), outcomes[0][name]


@pytest.mark.parametrize("name", ["judge", "find regressions"])
def test_what_is_judged_on_a_read_only_medium_is_not_stored(outcomes, name):
    code, error = outcomes[0][name]
    assert code == 0, error
    what = {"judge": "neither alerts nor change points are stored", "find regressions": "change points are not stored"}
    assert what[name] in error
    assert error.count("media/judged.duckdb cannot be opened") == 1


@pytest.mark.parametrize("name", WRITING)
def test_writing_commands_are_one_clear_line_on_a_read_only_medium(outcomes, name):
    code, error = outcomes[0][name]
    assert code == 1
    assert error.count("\n") == 1
    assert "Read-only file system" in error or "Permission denied" in error
    assert "choose another path" in error or "refused" in error


def test_nothing_of_a_read_only_medium_changes(outcomes):
    assert outcomes[1] == outcomes[2]


@pytest.mark.parametrize("flags", [["--verify"], ["--backup", "copy.duckdb"], ["--verify", "--backup", "copy.duckdb"]])
def test_a_file_of_an_older_version_is_inspected_and_left_unchanged(tmp_path, monkeypatch, make_run, flags):
    monkeypatch.chdir(tmp_path)
    with Warehouse.open("a.duckdb") as warehouse:
        warehouse.ingest(make_run())
    make_older("a.duckdb")
    before = (tmp_path / "a.duckdb").read_bytes()
    assert main([*flags, "--db-path", "a.duckdb"]) == 0
    assert (tmp_path / "a.duckdb").read_bytes() == before
    if "--backup" in flags:
        assert main(["--verify", "--db-path", "copy.duckdb"]) == 0


def test_run_files_of_an_older_version_are_compared_too(tmp_path, monkeypatch, spool_run):
    monkeypatch.chdir(tmp_path)
    file, _ = spool_run()
    with Warehouse.open("a.duckdb") as warehouse:
        warehouse.ingest_file(file)
    make_older("a.duckdb")
    assert main(["--verify", "--db-path", "a.duckdb"]) == 0
    file.write_text(f"{file.read_text()}\n")
    assert main(["--verify", "--db-path", "a.duckdb"]) == 1


def test_verify_does_not_write_the_log_into_the_file(tmp_path, spool_run):
    path = tmp_path / "place" / "a.duckdb"
    Warehouse.open(path).close()
    leave_log(path, spool_run()[0])
    before = {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}
    assert before["a.duckdb.wal"]
    assert main(["--verify", "--db-path", str(path)]) == 0
    assert {entry.name: entry.read_bytes() for entry in path.parent.iterdir()} == before
