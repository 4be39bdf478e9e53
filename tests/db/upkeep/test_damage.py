"""Damaged files: what is broken is named in one line or finding, never with a traceback; what can be had comes back."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from benchmarking.core.errors import FormatError, StorageError, UsageError
from benchmarking.core.records import dumps
from db import file_copy
from db.ingestion import run_files
from db.setup_benchmark_db import main
from db.upkeep import merging
from db.upkeep.merging import rebuild
from db.upkeep.verify import damage, inspected, verify
from db.warehouse import Warehouse
from tests.helpers.databases import leave_log
from tests.helpers.records import make_profile

ONE = {"batch_sizes": (1,), "sequence_lengths": (32,)}
HEADER_BYTES = 12_288
BLOCK_BYTES = 32_768
BLOCKS = """
SELECT DISTINCT block_id AS block FROM pragma_storage_info('{table}') WHERE persistent AND block_id >= 0 AND
    (column_name = '{column}' OR '{column}' = '') ORDER BY 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damage")


@pytest.fixture
def stored(folder, tmp_path, empty_database, make_run, monkeypatch):
    """A warehouse of two runs with files, and one without, with an alias and a note; beside it the folder "runs"."""
    source = folder / "whole.duckdb"
    if not source.exists():
        shutil.copy2(empty_database, source)
        fill(
            source,
            folder / "runs",
            [make_run(**ONE, iterations=300), make_run(**ONE, model_id="gpt2")],
            make_run(**ONE),
        )
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "runs", "runs")
    return Path(shutil.copy2(source, "a.duckdb"))


def fill(path, runs, with_files, without):
    (runs / "deeper").mkdir(parents=True)
    with Warehouse.open(path) as warehouse:
        for place, run in zip((runs / "1.json", runs / "deeper" / "2.json"), with_files, strict=True):
            place.write_text(dumps(run))
            warehouse.ingest_file(place)
        warehouse.ingest(without)
        warehouse.query(
            "INSERT INTO annotations VALUES ('n1', 'run', ?, 'me', 'a note', now()::TIMESTAMP)", [without.run_id]
        )
        warehouse.query(
            "INSERT INTO series_alias SELECT min(series_id), max(series_id), 'renamed', now()::TIMESTAMP FROM series"
        )


def flip(path, place):
    """Change a byte of the file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 0x55
    path.write_bytes(data)


def block_of(path, table, column=""):
    """Where in the file a block of the table, or of a column, begins."""
    with Warehouse.open(path, read_only=True) as warehouse:
        block = warehouse.query(BLOCKS.format(table=table, column=column)).dicts()[-1]["block"]
    return HEADER_BYTES + block * BLOCK_BYTES


def counts(path):
    with Warehouse.open(path) as warehouse:
        assert verify(warehouse) == []
        tables = ("benchmark_runs", "benchmark_results", "raw_benchmark_data", "annotations", "series_alias")
        return [warehouse.query(f"SELECT count(*) AS n FROM {table}").dicts()[0]["n"] for table in tables]


def kept_of(path):
    (kept,) = path.parent.glob(f"{path.stem}.before-*{path.suffix}")
    return kept


@pytest.mark.parametrize(
    ("bytes_left", "words"),
    [
        (0, "not a DuckDB database"),
        (100, "it is truncated at byte 100"),
        (5_000, "it is truncated at byte 5000"),
        (60_000, "it is truncated at byte"),
    ],
)
def test_a_truncated_file_is_one_line(stored, capsys, bytes_left, words):
    stored.write_bytes(stored.read_bytes()[:bytes_left])
    assert main(["--verify", "--db-path", "a.duckdb"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


def test_damage_in_the_header_is_an_error_with_the_remedy(stored, capsys):
    flip(stored, 4_100)
    assert main(["--verify", "--db-path", "a.duckdb"]) == 1
    assert capsys.readouterr().err == (
        "setup_benchmark_db: error: a.duckdb is damaged: checksum mismatch in the block at byte 4096: rebuild it "
        "from the run files with setup_benchmark_db --rebuild-from FOLDER --db-path a.duckdb\n"
    )


@pytest.mark.parametrize(
    ("table", "column"), [("raw_benchmark_data", "samples"), ("benchmark_runs", "host"), ("series_alias", "reason")]
)
def test_a_block_of_a_table_is_named_with_its_columns(stored, capsys, table, column):
    place = block_of(stored, table, column)
    flip(stored, place + 500)
    assert main(["--verify", "--db-path", "a.duckdb", "--quiet"]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"damage: {table}: ")
    assert column in first
    assert first.endswith(f"cannot be read: checksum mismatch in the block at byte {place}")


def test_the_index_of_a_key_is_checked_too(stored):
    """Of blocks that hold no column, a change is seen in all but the free ones."""
    whole = stored.read_bytes()
    with Warehouse.open(stored, read_only=True) as warehouse:
        tables = [row["name"] for row in warehouse.query("SELECT table_name AS name FROM duckdb_tables()").dicts()]
        held = {
            row["block"] for table in tables for row in warehouse.query(BLOCKS.format(table=table, column="")).dicts()
        }
    unseen = []
    for start in range(HEADER_BYTES, len(whole), BLOCK_BYTES):
        if (start - HEADER_BYTES) // BLOCK_BYTES in held:
            continue
        flip(stored, start + 900)
        try:
            with inspected(stored, lock_timeout_s=1) as warehouse:
                findings = list(damage(warehouse))
        except FormatError:
            findings = ["cannot be opened"]
        stored.write_bytes(whole)
        unseen += [] if findings else [start // BLOCK_BYTES]
    with Warehouse.open(stored, read_only=True) as warehouse:
        (row,) = warehouse.query("SELECT free_blocks, total_blocks FROM pragma_database_size()").dicts()
    assert len(unseen) <= row["free_blocks"] + 1 < row["total_blocks"]  # and the block in which DuckDB 2 lists those


def test_a_log_of_another_file_is_named(stored, capsys):
    leave_log("other.duckdb", next(Path("runs").glob("*.json")))
    shutil.copy("other.duckdb.wal", "a.duckdb.wal")
    assert main(["--verify", "--db-path", "a.duckdb"]) == 1
    assert "its log a.duckdb.wal cannot be read, or belongs to another file" in capsys.readouterr().err


def test_an_ignored_log_is_a_finding(stored, capsys):
    Path("a.duckdb.wal").write_bytes(b"nothing that is a log")
    assert main(["--verify", "--db-path", "a.duckdb", "--quiet"]) == 1
    assert capsys.readouterr().out == (
        "damage: the log a.duckdb.wal (21 bytes) was not read: it is damaged, or belongs to another file\n"
    )


def test_a_log_that_duckdb_ignores_is_kept_before_the_next_change(stored, make_run, capsys):
    Path("new.json").write_text(dumps(make_run(**ONE)))
    leave_log("a.duckdb", Path("new.json"))
    flip(Path("a.duckdb.wal"), 0)
    log = Path("a.duckdb.wal").read_bytes()
    assert counts(stored)[0] == 3
    (kept,) = Path().glob("a.duckdb.wal.unread-*")
    assert kept.read_bytes() == log
    said = capsys.readouterr().err
    assert said.startswith("a.duckdb: its log cannot be read (it is damaged, cut off, or of another file)")
    assert said.endswith(f"kept as {kept.resolve()}\n")
    assert counts(stored)[0] == 3
    assert capsys.readouterr().err == ""


def test_the_log_of_a_database_that_is_open_here_stays(stored, make_run, capsys):
    with Warehouse.open(stored) as first:
        first.ingest(make_run(**ONE))
        assert Path("a.duckdb.wal").stat().st_size > 0
        with pytest.raises(StorageError):
            Warehouse.open(stored)
        first.ingest(make_run(**ONE))
    assert (counts(stored)[0], capsys.readouterr().err, list(Path().glob("*unread*"))) == (5, "", [])


def test_a_log_left_by_a_killed_process_is_not_a_finding(stored, make_run):
    Path("new.json").write_text(dumps(make_run(**ONE)))
    leave_log("a.duckdb", Path("new.json"))
    assert Path("a.duckdb.wal").stat().st_size > 0
    assert main(["--verify", "--db-path", "a.duckdb", "--quiet"]) == 0
    assert counts(stored)[0] == 4


def test_rebuilding_gives_an_equal_warehouse_and_keeps_the_old_one(stored, capsys):
    before, bytes_before = counts(stored), stored.read_bytes()
    assert main(["--rebuild-from", "runs", "--db-path", "a.duckdb", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {one["table"]: one["is_equal"] for one in report["compared"]} == dict.fromkeys(
        [one["table"] for one in report["compared"]], True
    )
    assert len(report["compared"]) == 14
    assert {one["table"]: one["rows_before"] for one in report["compared"]}["benchmark_runs"] == before[0]
    assert report["brought"] | {"series": 0} == report["brought"] | {
        "series": 0,
        "benchmark_runs": 1,
        "annotations": 1,
        "series_alias": 1,
    }
    assert (report["lost"], report["differing"]) == ({}, [])
    assert counts(stored) == before
    assert Path(report["kept"]).read_bytes() == bytes_before


def test_rebuilding_into_a_new_file_keeps_nothing(stored):
    assert main(["--rebuild-from", "runs", "--db-path", "new.duckdb", "--quiet"]) == 0
    assert counts(Path("new.duckdb")) == [2, 2, 6, 0, 0]
    assert list(Path().glob("new.before-*")) == []


def test_rebuilding_an_unreadable_file_lists_the_losses(stored, capsys):
    damaged = stored.read_bytes()[:60_000]
    stored.write_bytes(damaged)
    Path("a.duckdb.wal").write_bytes(b"its log")
    assert main(["--rebuild-from", "runs", "--db-path", "a.duckdb"]) == 1
    last, lost = capsys.readouterr().out.splitlines()[-1:-3:-1]
    assert last == "a.duckdb: schema 13, runs 2, results 2, hardware 1"
    assert lost.startswith("neither compared nor copied: hardware_info, series, ")
    assert "annotations, profiles, profile_modules, profile_ops, series_alias: it is truncated" in lost
    assert kept_of(stored).read_bytes() == damaged
    assert kept_of(stored).with_name(f"{kept_of(stored).name}.wal").read_bytes() == b"its log"
    assert counts(stored) == [2, 2, 6, 0, 0]


@pytest.mark.parametrize("is_ignored", [False, True])
def test_only_what_the_damaged_log_has_is_lost_to_a_rebuilt_database(stored, make_run, capsys, is_ignored):
    Path("new.json").write_text(dumps(make_run(**ONE)))
    leave_log("a.duckdb", Path("new.json"))
    log = Path("a.duckdb.wal")
    flip(log, 0 if is_ignored else log.stat().st_size // 2)
    damaged = log.read_bytes()
    assert main(["--rebuild-from", "runs", "--db-path", "a.duckdb"]) == 1
    (lost,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("neither compared nor copied"))
    assert lost.startswith("neither compared nor copied: log: ")
    assert counts(stored) == [3, 3, 9, 1, 1]
    assert kept_of(stored).with_name(f"{kept_of(stored).name}.wal").read_bytes() == damaged


def test_the_other_tables_of_a_damaged_file_are_copied(stored):
    flip(stored, block_of(stored, "series_alias") + 500)
    rebuilt = rebuild(stored, run_files([Path("runs")]))
    assert set(rebuilt.lost) == {"series_alias"}
    assert "checksum mismatch" in rebuilt.lost["series_alias"]
    assert {one.table: one.is_equal for one in rebuilt.compared} | {"series_alias": True} == {
        one.table: True for one in rebuilt.compared
    }
    assert counts(stored) == [3, 3, 9, 1, 0]


def test_findings_and_notes_about_a_result_that_its_file_has_no_more_are_left_out(stored, make_run):
    run = make_run(batch_sizes=(1, 2), sequence_lengths=(32,))
    Path("runs/3.json").write_text(dumps(dataclasses.replace(run, results=run.results[:1])))
    with Warehouse.open(stored) as warehouse:
        warehouse.ingest(run)
        for place, result in enumerate(run.results):
            about = f"FROM benchmark_results WHERE result_id = '{result.result_id}'"
            for sql in (
                f"INSERT INTO annotations SELECT 'r{place}', 'result', result_id, 'me', 'x', now()::TIMESTAMP {about}",
                f"""INSERT INTO change_points BY NAME SELECT 'c{place}' AS change_point_id, series_id, 'x' AS metric,
                    result_id, 'confirmed' AS state, 'd' AS detector, '1' AS detector_version, '{{}}' AS parameters,
                    now()::TIMESTAMP AS detected_at {about}""",
                f"""INSERT INTO alerts BY NAME SELECT 'a{place}' AS alert_id, series_id, 'x' AS metric, result_id,
                    'c{place}' AS change_point_id, 'new' AS triage, 'd' AS detector, '1' AS detector_version,
                    '{{}}' AS parameters, now()::TIMESTAMP AS created_at, now()::TIMESTAMP AS updated_at {about}""",
                f"INSERT INTO annotations VALUES ('t{place}', 'alert', 'a{place}', 'me', 'x', now()::TIMESTAMP)",
            ):
                warehouse.query(sql)
    rebuilt = rebuild(stored, run_files([Path("runs")]))
    rows = {one.table: (one.rows_before, one.rows_after, one.is_equal) for one in rebuilt.compared}
    assert (rows["annotations"], rows["change_points"], rows["alerts"]) == ((5, 3, False), (2, 1, False), (2, 1, False))
    assert counts(stored)[3] == 3  # without faults


def test_an_alert_stays_without_its_change_point_and_its_confirmation(stored):
    with Warehouse.open(stored) as warehouse:
        warehouse.query(
            """INSERT INTO alerts BY NAME SELECT 'a' AS alert_id, series_id, 'x' AS metric, result_id,
                'c' AS change_point_id, 'gone' AS confirmed_by, 'noise' AS triage, 'd' AS detector,
                '1' AS detector_version, '{}' AS parameters, now()::TIMESTAMP AS created_at,
                now()::TIMESTAMP AS updated_at FROM benchmark_results LIMIT 1"""
        )
        warehouse.query("INSERT INTO annotations VALUES ('t', 'alert', 'a', 'me', 'x', now()::TIMESTAMP)")
        warehouse.query("DROP TABLE change_points")
    assert set(rebuild(stored, run_files([Path("runs")])).lost) == {"change_points"}
    assert counts(stored)[3] == 2
    with Warehouse.open(stored) as warehouse:
        kept = warehouse.query("SELECT triage, change_point_id, confirmed_by FROM alerts").dicts()
    assert kept == [{"triage": "noise", "change_point_id": None, "confirmed_by": None}]


def test_what_refers_to_a_lost_series_or_lacks_its_modules_is_left_out(stored, make_run):
    run = make_run(**ONE, model_id="t5")
    with Warehouse.open(stored) as warehouse:
        warehouse.ingest(run)
        warehouse.ingest_profile(make_profile())
        warehouse.query(
            "UPDATE series_alias SET canonical_series_id = (SELECT series_id FROM benchmark_results WHERE run_id = ?)",
            [run.run_id],
        )
        warehouse.query("DROP TABLE series")
        warehouse.query("DROP TABLE profile_modules")
    lost = rebuild(stored, run_files([Path("runs")])).lost
    assert set(lost) == {"series", "profiles", "profile_modules", "profile_ops"}
    assert lost["profile_ops"] == "profile_ops is useless without profile_modules"
    assert counts(stored) == [3, 3, 9, 1, 0]
    with Warehouse.open(stored) as warehouse:
        assert warehouse.ingest(run)  # as a rebuilt database without its series would refuse, as stored


def test_nothing_is_copied_of_a_missing_table(stored):
    with Warehouse.open(stored) as warehouse:
        warehouse.query("DROP TABLE annotations")
    assert main(["--verify", "--db-path", "a.duckdb", "--quiet"]) == 1
    rebuilt = rebuild(stored, run_files([Path("runs")]))
    assert set(rebuilt.lost) == {"annotations"}
    assert counts(stored) == [3, 3, 9, 0, 1]


def test_missing_rows_are_restored_from_the_files(stored):
    with Warehouse.open(stored) as warehouse:
        gone = "SELECT result_id FROM benchmark_results JOIN benchmark_runs USING (run_id) WHERE model_id = 'gpt2'"
        warehouse.query(f"DELETE FROM raw_benchmark_data WHERE result_id IN ({gone})")
        warehouse.query("UPDATE benchmark_runs SET host = 'changed' WHERE model_id = 'gpt2'")
    rebuilt = rebuild(stored, run_files([Path("runs")]))
    assert any(str(conflict).endswith("differs in host") for conflict in rebuilt.differing)
    unequal = {one.table for one in rebuilt.compared if not one.is_equal}
    assert {"benchmark_runs", "raw_benchmark_data"} <= unequal
    with Warehouse.open(stored) as warehouse:
        assert warehouse.query("SELECT count(*) AS n FROM benchmark_runs WHERE host = 'changed'").dicts() == [{"n": 0}]


def test_an_old_schema_is_compared_and_copied_too(stored, file_of_version, make_run):
    run, other = make_run(**ONE), make_run(**ONE, model_id="t5")
    old = file_of_version(1, Path("old.duckdb"), run, other)
    Path("mine").mkdir()
    Path("mine/run.json").write_text(dumps(run))
    rebuilt = rebuild(old, run_files([Path("mine")]))
    assert (dict(rebuilt.lost), rebuilt.differing) == ({}, ())
    assert all(one.is_equal for one in rebuilt.compared)
    assert counts(old)[:3] == [2, 2, 6]


@pytest.mark.parametrize("place", ["empty", "bad"])
def test_without_run_files_nothing_is_created(stored, place):
    Path(place).mkdir()
    if place == "bad":
        Path("bad/run.json").write_text("{")
    before = stored.read_bytes()
    with pytest.raises(StorageError, match="is a readable run"):
        rebuild(stored.resolve(), run_files([Path(place)]))
    assert stored.read_bytes() == before
    assert list(Path().glob("*before*")) == []


def test_a_database_in_use_is_left_unchanged(stored, holding, capsys):
    with holding(stored):
        assert main(["--rebuild-from", "runs", "--db-path", "a.duckdb", "--lock-timeout", "0.1"]) == 1
    assert "is in use by" in capsys.readouterr().err
    assert counts(stored)[0] == 3


def test_other_writers_wait_for_their_turn_during_a_rebuild(stored, monkeypatch):
    """Its lock of the old file alone is given up when the file is opened again, and a run that was stored then would
    have been in the old file only."""
    load_files = merging.load_files

    def while_taken(*arguments):
        with pytest.raises(Timeout):
            FileLock(file_copy._lock_file(stored)).acquire(timeout=0)
        return load_files(*arguments)

    monkeypatch.setattr(merging, "load_files", while_taken)
    assert rebuild(stored, run_files([Path("runs")])).kept is not None


def test_rebuild_and_overwrite_exclude_each_other(stored, capsys):
    assert main(["--rebuild-from", "runs", "--overwrite", "--yes", "--db-path", "a.duckdb"]) == UsageError.exit_code
    assert "choose one" in capsys.readouterr().err


def test_folders_are_searched_in_depth_but_not_hidden_ones_nor_links(tmp_path):
    for place in ("a/b", ".git", "a/.cache"):
        (tmp_path / place).mkdir(parents=True)
    for place in ("1.json", "a/2.json", "a/b/3.json", ".git/4.json", "a/.cache/5.json", "a/benchmark_summary.json"):
        (tmp_path / place).write_text("{}")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    found = run_files([tmp_path, tmp_path / "a"])
    assert [path.name for path in found] == ["1.json", "2.json", "3.json"]
