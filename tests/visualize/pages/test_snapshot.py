"""The copy that pages read: it never blocks writers, is never torn, and is renewed soon."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from benchmarking.core.errors import StorageError
from db.warehouse import RESTART_S, Warehouse
from tests.helpers.databases import file_of_version, holding
from tests.helpers.records import make_run
from tests.helpers.sweeps import wait_for
from tests.visualize.pages.conftest import STORE
from visualize.pages import snapshot
from visualize.pages.snapshot import Snapshots

RUNS = "SELECT count(*) AS runs FROM benchmark_runs"
RESULTS_PER_RUN = "SELECT count(*) AS n FROM benchmark_results GROUP BY run_id"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(make_run())
    return path


@pytest.fixture
def snapshots(path):
    made = Snapshots(path)
    yield made
    made.close()


def runs(snapshots):
    with snapshots.reading() as data:
        return data.warehouse.query(RUNS).dicts()[0]["runs"]


def test_writers_never_wait_and_their_runs_become_visible(path, snapshots):
    torn, done = [], threading.Event()

    def read():
        while not done.is_set():
            with snapshots.reading() as data:
                counts = {row["n"] for row in data.warehouse.query(RESULTS_PER_RUN).dicts()}
                torn.extend(counts - {4})

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    subprocess.run([sys.executable, "-c", STORE, str(path), "5"], check=True, timeout=120)
    done.set()
    for reader in readers:
        reader.join()
    assert torn == []
    wait_for(lambda: runs(snapshots) == 6, poll_s=0.1)


def test_stored_runs_are_visible_while_another_process_keeps_the_file_open(path):
    with holding(path):
        made = Snapshots(path)
        assert runs(made) == 1
        made.close()


def test_a_page_keeps_its_copy_until_it_is_rendered(path, snapshots):
    with snapshots.reading() as old:
        with Warehouse.open(path) as warehouse:
            warehouse.ingest(make_run())
        wait_for(lambda: runs(snapshots) == 2, poll_s=0.1)
        assert old.warehouse.query(RUNS).dicts()[0]["runs"] == 1
    with pytest.raises(StorageError):
        old.warehouse.query("SELECT 1")


def test_copies_are_deleted(path, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    made = Snapshots(path)
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    made.close()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_only_the_first_copy_waits_for_a_server_that_starts(path, monkeypatch):
    waits = []
    monkeypatch.setattr(snapshot, "_signature", lambda name, wait_s=0.0: waits.append(wait_s))
    monkeypatch.setattr(snapshot, "CHECKED_S", 0.0)
    snapshots = Snapshots(path)
    with snapshots.reading():
        pass
    snapshots.close()
    assert waits == [RESTART_S, 0.0, 0.0]  # later, there is a copy to go on with


def test_the_copy_is_read_only_and_confined(snapshots, tmp_path):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with snapshots.reading() as data:
        for sql in (
            "DELETE FROM benchmark_runs",
            f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
            "SET enable_external_access = true",
            f"ATTACH '{tmp_path}/a.duckdb' AS other",
        ):
            with pytest.raises(StorageError):
                data.warehouse.query(sql)


def test_an_older_database_is_refused_with_advice_and_unchanged(tmp_path):
    path = file_of_version(5, tmp_path / "old.duckdb", make_run())
    before = path.read_bytes()
    with pytest.raises(StorageError, match=f"upgrade it with benchhouse setup --db-path {path}"):
        Snapshots(path)
    assert path.read_bytes() == before


def test_a_deleted_file_leaves_the_last_copy_with_a_reason(path, snapshots, monkeypatch):
    monkeypatch.setattr(snapshot, "CHECKED_S", 0.0)
    path.unlink()
    with snapshots.reading() as data:
        assert data.warehouse.query(RUNS).dicts()[0]["runs"] == 1
        assert data.trouble is not None
        assert "no database at" in data.trouble


@pytest.mark.parametrize("content", [None, b"", b"not a database, but long enough to look at" * 200])
def test_a_file_that_is_no_warehouse_is_refused_by_name(tmp_path, content):
    path = tmp_path / "other.duckdb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageError, match=str(path)):
        Snapshots(path)
