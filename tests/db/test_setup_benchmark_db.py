"""The command, as people call it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import db.setup_benchmark_db
from benchmarking import cli
from benchmarking.core.live_status import usable_folder
from benchmarking.core.storage_paths import LakePlace
from benchmarking.sweep.run.lock import device_lock
from db.setup_benchmark_db import main
from db.warehouse import Warehouse


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())


def run_count(path="benchmark_db.duckdb"):
    with Warehouse.open(path, create=False) as warehouse:
        return warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts()[0]["n"]


def test_it_makes_the_database(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out == "benchmark_db.duckdb: schema 13, runs 0, results 0, hardware 0\n"
    assert run_count() == 0


def test_a_second_time_changes_nothing(spool_run, capsys):
    spool_run()
    assert main(["--ingest", "runs"]) == 0
    assert main([]) == 0
    assert capsys.readouterr().out.endswith("benchmark_db.duckdb: schema 13, runs 1, results 4, hardware 1\n")


def test_the_environment_names_the_database(monkeypatch):
    monkeypatch.setenv("BENCHMARK_DB_PATH", "other.duckdb")
    assert main(["--quiet"]) == 0
    assert [path.name for path in Path().iterdir()] == ["other.duckdb"]


def test_the_home_folder_may_be_a_part_of_any_path(spool_run, monkeypatch, tmp_path, capsys):
    """`--db-path=~/x` is not replaced by every shell, and a variable in a file by none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    spool_run()
    assert main(["--db-path=~/x.duckdb", "--ingest=~/runs", "--quiet"]) == 0
    assert run_count("x.duckdb") == 1
    assert cli.main(["merge", "~/x.duckdb", "--db-path", "~/y.duckdb"]) == 0
    monkeypatch.setenv("BENCHMARK_DB_PATH", "~/x.duckdb")
    assert cli.main(["export", "--format", "csv", "--output", "~/out.csv"]) == 0
    assert cli.main(["charts", "--json-path", "~/runs/*.json", "--output-dir", "~/charts", "--formats", "svg"]) == 0
    capsys.readouterr()
    assert cli.main(["show", "--db-path=~/none.duckdb"]) == 1
    assert f"no database at {tmp_path / 'none.duckdb'}: " in capsys.readouterr().err
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"x.duckdb", "y.duckdb", "out.csv", "charts"}
    assert "~" not in names
    lake = LakePlace.parse("ducklake:~/z.ducklake?data_path=~/data")
    assert (lake.catalog, lake.data_path) == (str(tmp_path / "z.ducklake"), str(tmp_path / "data"))
    monkeypatch.setenv("BENCHHOUSE_LIVE_DIR", "~/live")
    assert usable_folder(create=True) == tmp_path / "live"
    monkeypatch.setenv("BENCHHOUSE_LOCK_DIR", "~/locks")
    with device_lock("cpu", print):
        assert (tmp_path / "locks").is_dir()


def test_ingest_reports_the_outcome_of_each_file(spool_run, capsys):
    spool_run("1")
    spool_run("2")
    assert main(["--ingest", "runs/1.json"]) == 0
    capsys.readouterr()
    Path("runs/3.json").write_text('{"benchmarks": []}')
    Path("runs/4.partial.jsonl").write_text("")
    assert main(["--ingest", "runs"]) == 1
    out, err = capsys.readouterr()
    runs = Path("runs")
    assert out.splitlines() == [
        f"loaded {runs / '2.json'}",
        f"already stored {runs / '1.json'}",
        "run files: 1 loaded, 1 already stored, 1 refused, 1 unfinished",
        "benchmark_db.duckdb: schema 13, runs 2, results 8, hardware 1",
    ]
    assert err.splitlines() == [
        f'setup_benchmark_db: refused {runs / "3.json"}: not a benchhouse run (no "format": "benchhouse-run")',
        f"setup_benchmark_db: unfinished {runs / '4.partial.jsonl'}: finish it with "
        "run_hardware_benchmark --resume --output-dir runs, or give the file to end it as it is",
    ]


def test_an_unfinished_run_is_no_failure_unless_there_is_no_other(spool_run):
    spool_run()
    unfinished = Path("runs/4.partial.jsonl")
    unfinished.write_text("")
    assert main(["--ingest", "runs"]) == 0
    Path("others").mkdir()
    unfinished.rename("others/4.partial.jsonl")
    assert main(["--ingest", "others"]) == 1
    assert main(["--ingest", "others", "--ingest", "runs"]) == 0


def test_the_command_that_finishes_a_run_is_quoted_for_a_shell(spool_run, capsys):
    spool_run()
    Path("runs").rename("out put")
    Path("out put/4.partial.jsonl").write_text("")
    assert main(["--ingest", "out put"]) == 0
    assert "--resume --output-dir 'out put', or give" in capsys.readouterr().err


def test_ingest_may_be_repeated(spool_run):
    spool_run("1")
    spool_run("2")
    assert main(["--ingest", "runs/1.json", "--ingest", "runs/2.json", "--quiet"]) == 0
    assert run_count() == 2


def test_json_tells_it_all(spool_run, capsys):
    spool_run("1")
    Path("runs/2.json").write_text("{")
    assert main(["--ingest", "runs", "--verify", "--json", "--backup", "copy.duckdb"]) == 1
    report = json.loads(capsys.readouterr().out)
    reason = report["refused"][0].pop("reason")
    assert "not JSON, or truncated" in reason
    assert report == {
        "database": "benchmark_db.duckdb",
        "loaded": [str(Path("runs/1.json"))],
        "present": [],
        "refused": [{"file": str(Path("runs/2.json"))}],
        "unfinished": [],
        "findings": [],
        "leftovers": [],
        "backup": "copy.duckdb",
        "schema_version": 13,
        "runs": 1,
        "results": 4,
        "hardware": 1,
    }


def test_quiet_prints_nothing_when_all_is_well(spool_run, capsys):
    spool_run()
    assert main(["--ingest", "runs", "--verify", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_verify_prints_the_faults_and_fails(spool_run, capsys):
    spool_run()
    main(["--ingest", "runs", "--quiet"])
    assert main(["--verify"]) == 0
    assert "verified: no faults" in capsys.readouterr().out
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        warehouse.query(
            "DELETE FROM raw_benchmark_data WHERE result_id = (SELECT min(result_id) FROM benchmark_results)"
        )
    assert main(["--verify", "--quiet"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("raw_count: result ")
    assert out.endswith("90 iterations in 3 launches, but 0 raw samples in 0\n")


def test_a_backup_can_be_taken_and_verified(spool_run):
    spool_run()
    assert main(["--ingest", "runs", "--backup", "copy.duckdb", "--quiet"]) == 0
    assert main(["--verify", "--db-path", "copy.duckdb", "--quiet"]) == 0
    assert run_count("copy.duckdb") == 1


def test_overwrite_without_a_terminal_empties_a_warehouse_with_a_note(spool_run, capsys):
    spool_run()
    main(["--ingest", "runs", "--quiet"])
    assert main(["--overwrite"]) == 0
    assert "--overwrite: everything in benchmark_db.duckdb was deleted" in capsys.readouterr().err
    assert run_count() == 0


def test_overwrite_says_nothing_was_deleted_in_a_file_that_is_no_warehouse(tmp_path, capsys):
    Path("other.duckdb").write_text("kept")
    assert main(["--overwrite", "--db-path", "other.duckdb"]) == 1
    err = capsys.readouterr().err
    assert "deleted" not in err
    assert (len(err.splitlines()), Path("other.duckdb").read_text()) == (1, "kept")


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y\n", 0, 0), ("Yes\n", 0, 0), ("n\n", 2, 1), ("\n", 2, 1), ("", 2, 1)]
)
def test_overwrite_asks_on_a_terminal(spool_run, monkeypatch, capsys, answer, code, left):
    spool_run()
    main(["--ingest", "runs", "--quiet"])
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(["--overwrite", "--quiet"]) == code
    assert "Drop everything in benchmark_db.duckdb? [y/N] " in capsys.readouterr().err
    assert run_count() == left


def test_overwriting_nothing_asks_nothing():
    assert main(["--overwrite", "--quiet"]) == 0
    assert run_count() == 0


def test_overwrite_can_be_filled_at_once(spool_run):
    spool_run()
    main(["--ingest", "runs", "--quiet"])
    spool_run("2")
    assert main(["--overwrite", "--yes", "--ingest", "runs/2.json", "--quiet"]) == 0
    assert run_count() == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--db-path", "notes.txt"], 1, "notes.txt: not a DuckDB database"),
        (["--db-path", "notes.txt", "--overwrite", "--yes"], 1, "notes.txt: not a DuckDB database"),
        (["--db-path", "folder"], 2, "takes a file: folder is a folder"),
        (["--db-path", "notes.txt/a.duckdb"], 2, "notes.txt is a file"),
        (["--db-path", "gone.duckdb", "--verify"], 1, "no database at gone.duckdb"),
        (["--db-path", "gone.duckdb", "--backup", "b.duckdb"], 1, "no database at gone.duckdb"),
        (["--ingest", "gone"], 2, "--ingest: gone does not exist"),
        (["--backup", "notes.txt"], 2, "--backup: notes.txt already exists"),
        (["--backup", "gone/b.duckdb", "--overwrite"], 1, "No such file"),
        (["--lock-timeout", "-1"], 2, "takes seconds from 0, such as 90 or 2m: got '-1'"),
        (["--lock-timeout", "soon"], 2, "takes seconds from 0, such as 90 or 2m: got 'soon'"),
        (["--frobnicate"], 2, "unknown flag --frobnicate"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, code, words, capsys):
    Path("notes.txt").write_text("my notes\n")
    Path("folder").mkdir()
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("setup_benchmark_db: error: ")
    assert err.count("\n") == 1
    assert words in err
    assert Path("notes.txt").read_text() == "my notes\n"
    assert not Path("gone.duckdb").exists()


def test_a_database_of_a_newer_program_is_one_clear_line(capsys):
    main(["--quiet"])
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        warehouse.query("INSERT INTO schema_migrations VALUES (99, '0099_later', 'x', now()::TIMESTAMP)")
    assert main(["--ingest", "."]) == 1
    assert capsys.readouterr().err == (
        "setup_benchmark_db: error: benchmark_db.duckdb: schema 99 is newer than this benchhouse knows (13): "
        "upgrade it with pip install --upgrade benchhouse\n"
    )


def test_a_database_in_use_is_an_error_with_the_pid_and_nothing_is_stored(spool_run, holding, capsys):
    spool_run()
    main(["--quiet"])
    with holding("benchmark_db.duckdb") as holder:
        assert main(["--ingest", "runs", "--lock-timeout", "0.1"]) == 1
    err = capsys.readouterr().err
    assert f"in use by PID {holder.pid}" in err
    assert err.count("\n") == 1
    assert main(["--ingest", "runs", "--quiet"]) == 0


def test_a_traceback_is_shown_on_request(monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_TRACEBACK", "1")
    Path("notes.txt").write_text("my notes\n")
    with pytest.raises(Exception, match="not a DuckDB database"):
        main(["--db-path", "notes.txt"])


@pytest.mark.parametrize(
    "form", [["-m", "db.setup_benchmark_db"], [str(Path(db.setup_benchmark_db.__file__).resolve())]]
)
def test_it_runs_as_a_module_and_as_a_file(form, spool_run):
    spool_run()
    done = subprocess.run(
        [sys.executable, *form, "--ingest", "runs", "--verify"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("verified: no faults\nbenchmark_db.duckdb: schema 13, runs 1, results 4, hardware 1\n")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from db.setup_benchmark_db import main; main(['--help']); "
        "heavy = {'duckdb', 'pyarrow', 'pandas', 'numpy', 'torch'} & set(sys.modules); sys.exit(bool(heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="needs limits on the size of files")
def test_a_full_disk_is_one_clear_line_and_loses_nothing(spool_run):
    import resource
    import signal

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit then fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    main(["--quiet"])
    spool_run(iterations=10_000)
    command = [sys.executable, "-m", "db.setup_benchmark_db", "--ingest", "runs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=small_files)
    assert done.returncode == 1
    assert done.stderr.startswith("setup_benchmark_db: error: benchmark_db.duckdb: ")
    assert done.stderr.count("\n") == 1
    assert main(["--verify", "--quiet"]) == 0
    assert main(["--ingest", "runs", "--verify", "--quiet"]) == 0
    assert run_count() == 1
