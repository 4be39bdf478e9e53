"""A warehouse in DuckLake: with many writers on a real PostgreSQL that die, and in a file."""

import ctypes
import importlib.util
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from tempfile import TemporaryFile
from types import SimpleNamespace

import duckdb
import pytest

from benchmarking.core.errors import FormatError, LockedError, StorageError, UsageError
from benchmarking.core.metrics import METRICS
from benchmarking.core.records import Origin
from benchmarking.core.storage_paths import LakePlace, absolute_database, without_place
from db import connection as connections
from db import lake, migrate, service, setup_benchmark_db
from db import warehouse as warehouses
from db.analysis.annotations import annotate
from db.analysis.gate.alerts import raise_alerts, set_triage
from db.analysis.history.changes import update_changes
from db.analysis.history.histories import alias_series
from db.commands import import_results, merge, query
from db.upkeep.merging import merge as merge_in
from db.upkeep.verify import CHECKS
from db.warehouse import Warehouse
from tests.helpers import postgres
from tests.helpers.paths import FIXTURES
from visualize.pages.snapshot import Snapshots

WITHOUT = [package for package in lake.EXTENSIONS.values() if importlib.util.find_spec(package) is None]
needs_extension = pytest.mark.skipif(
    lake.EXTENSIONS["ducklake"] in WITHOUT or not duckdb.__version__.startswith("1.5.5"),
    reason=f"needs DuckDB 1.5.5 and duckdb-extension-ducklake: found {duckdb.__version__}, without {WITHOUT}",
)
thorough = pytest.mark.skipif(
    "BENCHHOUSE_TEST_ALL" not in os.environ, reason="takes a minute of a processor: set BENCHHOUSE_TEST_ALL=1"
)

WRITER = """
import sys
from pathlib import Path
from db.warehouse import Warehouse

with Warehouse.open(sys.argv[1], lock_timeout_s=120) as warehouse:
    for path in sys.argv[2:]:
        warehouse.ingest_file(Path(path))
        print(Path(path).stem, flush=True)
"""


LEAVER = """
import sys
from db.warehouse import Warehouse

warehouse = Warehouse.open(sys.argv[1])
transaction = warehouse.transaction()
try:
    with transaction as connection:
        connection.execute("DELETE FROM series_alias")
        print("inside", flush=True)
        sys.stdin.readline()
        if sys.argv[2] == "close":
            warehouse.close()
            sys.exit("closed")
        raise KeyboardInterrupt
except KeyboardInterrupt:
    sys.exit("interrupted")
"""


@pytest.fixture(scope="module")
def server():
    why = postgres.missing() or (f"needs the packages {', '.join(WITHOUT)} for DuckDB 1.5.5" if WITHOUT else None)
    if why is None and not duckdb.__version__.startswith("1.5.5"):
        why = f"the extension packages are for DuckDB 1.5.5: found {duckdb.__version__}"
    if why is not None:
        pytest.skip(why)
    with postgres.running() as running:
        yield running


@pytest.fixture(scope="module")
def written(server, tmp_path_factory):
    """A lake, and the runs that two writers stored in it: they met at its making, some runs they all stored, one
    was killed and started again, and the server crashed and was restarted meanwhile."""
    from benchmarking.core.records import dumps
    from tests.helpers.records import make_run

    folder = tmp_path_factory.mktemp("written")
    place = f"ducklake:postgres:{server.database('written')}?data_path={folder / 'data'}"
    runs = {f"{number}": make_run(batch_sizes=(1, 8), iterations=40) for number in range(6)}
    for name, run in runs.items():
        (folder / f"{name}.json").write_text(dumps(run), encoding="utf-8")
    shared, own = ["4", "5"], {0: ["0", "1"], 1: ["2", "3"]}

    def started(writer):
        files = [str(folder / f"{name}.json") for name in [shared[0], *own[writer], *shared[1:]]]
        return subprocess.Popen([sys.executable, "-c", WRITER, place, *files], stdout=subprocess.PIPE, text=True)

    writers = {number: started(number) for number in own}
    assert writers[0].stdout.readline()  # it has stored one, and is at the next
    time.sleep(random.uniform(0, 0.05))
    writers[0].send_signal(signal.SIGKILL)
    writers[0].communicate()
    server.stop()
    writers[0] = started(0)
    time.sleep(0.5)
    server.start()
    for number, process in writers.items():
        process.communicate(timeout=300)
        assert process.returncode == 0, f"writer {number}"
    return place, runs


def counts(warehouse):
    tables = ("benchmark_runs", "benchmark_results", "raw_benchmark_data", "hardware_info", "series", "series_heads")
    return {table: warehouse.query(f"SELECT count(*) AS n FROM {table}").dicts()[0]["n"] for table in tables}


def test_killed_writers_and_a_crashed_server_lose_nothing_and_store_nothing_twice(written):
    place, runs = written
    with Warehouse.open(place, read_only=True) as warehouse, warehouse.transaction():  # without a turn: it only reads
        results = [result for run in runs.values() for result in run.results]
        found = counts(warehouse)
        assert found["benchmark_runs"] == len(runs)
        assert found["benchmark_results"] == len(results)
        assert found["raw_benchmark_data"] == sum(len(result.samples) for result in results)
        points = len(runs["0"].results)
        assert (found["hardware_info"], found["series"], found["series_heads"]) == (1, points, points)
        ids = {row["run_id"] for row in warehouse.query("SELECT run_id FROM benchmark_runs").dicts()}
        assert ids == {run.run_id for run in runs.values()}
        assert warehouse.query("FROM latest_results").arrow().num_rows == points
        assert warehouse.has_own_views
        for kind, sql in CHECKS:
            assert kind != "duplicate" or warehouse.query(sql).dicts() == []


def test_readers_go_on_once_a_crashed_server_is_back(server, written):
    with Warehouse.open(written[0], read_only=True) as warehouse, ThreadPoolExecutor(1) as pool:
        before = counts(warehouse)
        for read in (lambda: counts(warehouse), lambda: opened_counts(written[0])):
            server.stop()
            found = pool.submit(read)
            time.sleep(0.5)
            server.start()
            assert found.result() == before


def opened_counts(place):
    with Warehouse.open(place, read_only=True) as warehouse:
        return counts(warehouse)


@pytest.mark.parametrize(("way", "said"), [("close", "closed"), ("interrupt", "interrupted")])
def test_a_transaction_ends_cleanly_after_its_server_crashed(server, written, way, said):
    command = [sys.executable, "-c", LEAVER, written[0], way]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "inside\n"
        server.stop()
        _, errors = process.communicate("\n", timeout=60)
        server.start()
    assert (process.returncode, errors) == (1, f"{said}\n"), "DuckDB aborts where it rolls back by itself"


def test_an_invalidated_connection_is_replaced_and_its_session_and_lock_ended(written, monkeypatch):
    place, runs = written
    ingest, tries = warehouses.ingest_files, []

    def left_open(connection):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # DuckDB aborts where it closes one without a server
        return False

    def given_up_once(connection, *arguments, **options):
        tries.append(connection)
        if len(tries) > 1:
            monkeypatch.setattr(lake, "roll_back", roll_back)
            return ingest(connection, *arguments, **options)
        monkeypatch.setattr(lake, "roll_back", left_open)  # as after an internal error
        raise connections.storage_error("INTERNAL Error: Attempted to access index 0 within vector of size 0", place)

    roll_back = lake.roll_back
    monkeypatch.setattr(warehouses, "ingest_files", given_up_once)
    with Warehouse.open(place, lock_timeout_s=20) as warehouse:
        assert not warehouse.ingest(runs["0"])
    assert len(tries) == 2
    assert tries[0] is not tries[1]


REGRESSION = dict.fromkeys(
    ("last_good_commit", "first_bad_commit", "session_id", "value_before", "value_after", "p_value", "common_shift")
)


CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'cut' AND pid != pg_backend_pid()
"""


@thorough
def test_every_writer_is_repeated_where_the_server_cuts_it_or_its_answer_is_lost(
    server, tmp_path, make_run, monkeypatch
):
    """Each is cut before its commit; then its commit is made, but the answer to it is lost; then nothing happens."""
    place = f"ducklake:postgres:{server.database('cut')}?data_path={tmp_path / 'data'}"
    one = {"batch_sizes": (1,), "sequence_lengths": (32,)}
    run, renamed, other = make_run(**one), make_run(**one, model_id="renamed"), "other.duckdb"
    with Warehouse.open(tmp_path / other) as file:
        file.ingest_all([run, renamed])
    begin, faults = lake.Lake.transaction, []

    @contextmanager
    def cut(of_lake, connection):
        with begin(of_lake, connection):
            yield
            if faults[:1] == ["cut"]:
                faults.pop(0)
                server.ask("cut", CUT)
                return
        if faults[:1] == ["lost"]:
            faults.pop(0)
            raise duckdb.IOException("server closed the connection unexpectedly")

    def spoiled(change):
        faults[:] = ["cut", "lost"]
        done = change()
        assert faults == []
        return done

    with Warehouse.open(place, lock_timeout_s=20) as warehouse:
        monkeypatch.setattr(lake.Lake, "transaction", cut)
        spoiled(lambda: merge_in(warehouse, tmp_path / other))
        rows = warehouse.query("SELECT series_id, result_id FROM benchmark_results ORDER BY 1").dicts()
        (old, own), (new, _) = (tuple(row.values()) for row in rows)
        spoiled(lambda: annotate(warehouse, run.run_id, "seen"))
        spoiled(lambda: update_changes(warehouse, METRICS["latency_median_ms"]))
        found = {"metric": METRICS["latency_median_ms"], "state": "confirmed", "series_id": old, "result_id": own}
        found |= {"relative_change": 0.1, "detector": "d", "detector_version": "1", "change_point_id": None}
        regression = SimpleNamespace(**REGRESSION | found, last_good_result_id=own)
        (alert,) = spoiled(lambda: raise_alerts(warehouse, [regression])).new
        spoiled(lambda: set_triage(warehouse, [alert], "noise", "no"))
        spoiled(lambda: alias_series(warehouse, old, new, "renamed"))
        sizes = {"benchmark_runs": 2, "benchmark_results": 2, "series": 2, "annotations": 1, "history_scans": 2}
        sizes |= {"alerts": 1, "series_alias": 1}
        assert {name: warehouse.query(f"FROM {name}").arrow().num_rows for name in sizes} == sizes
        assert warehouse.query("SELECT triage FROM alerts").dicts() == [{"triage": "noise"}]
        spoiled(lambda: warehouse.remove_runs([renamed.run_id]))
        assert warehouse.query("SELECT run_id FROM benchmark_runs").dicts() == [{"run_id": run.run_id}]


def test_two_machines_that_label_one_run_at_once_leave_one_run_with_both_labels(server, tmp_path):
    place = f"ducklake:postgres:{server.database('labelled')}?data_path={tmp_path / 'data'}"
    assert import_results.main([str(FIXTURES / "imports/pyperf/memory.json"), "--db-path", place]) == 0
    command = [sys.executable, "-m", "db.commands.annotate", "label", "format=pyperf", "--db-path", place]
    labels = (["--model-id", "alpha"], ["--hardware", "NVIDIA L4"])
    for process in [subprocess.Popen([*command, *label]) for label in labels]:
        assert process.wait() == 0
    with Warehouse.open(place, read_only=True) as warehouse:
        runs = warehouse.query("SELECT DISTINCT run_id, model_id, device_name FROM all_results").dicts()
    assert [(run["model_id"], run["device_name"]) for run in runs] == [("alpha", "NVIDIA L4")]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (("dbname=refused", "dbname=none"), 'database "none" does not exist'),
        (("user=bench", "user=nobody"), 'role "nobody" does not exist'),
        (("user=bench", "user=bench sslmode=require"), "server does not support SSL, but SSL was required"),
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_connection_that_the_server_refuses_is_not_tried_again(server, tmp_path, changed, reason, read_only):
    if "refused" not in server.ask("postgres", "SELECT datname FROM pg_database"):
        server.database("refused")
    catalog = f"dbname=refused host=127.0.0.1 port={server.port} user=bench".replace(*changed)
    with pytest.raises(StorageError, match=f"refuses the connection: {reason}: check the database, the user") as found:
        Warehouse.open(f"ducklake:postgres:{catalog}?data_path={tmp_path / 'data'}", read_only=read_only)
    assert not isinstance(found.value, connections.TransientError)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            'failed: FATAL:  password authentication failed for user "me"\n',
            'password authentication failed for user "me"',
        ),
        ("failed: fe_sendauth: no password supplied\n", "fe_sendauth: no password supplied"),
        ('failed: FATAL:  no pg_hba.conf entry for host "::1"\n', 'no pg_hba.conf entry for host "::1"'),
        ("failed: FATAL:  the database system is starting up\n", None),
        ("failed: Connection refused\n", None),
    ],
)
def test_only_a_refusal_that_lasts_is_told_from_a_server_that_is_away(said, reason):
    text = f'IO Error: Unable to connect to Postgres at "dbname=b": connection to server at "lab", port 5432 {said}'
    error = connections.storage_error(text, "bench")
    assert isinstance(error, connections.TransientError) == (reason is None)
    assert reason is None or f"refuses the connection: {reason}: check" in str(error)


FAILED_COMMIT = """TransactionContext Error: Failed to commit: Failed to commit DuckLake transaction.
Failed to flush changes into DuckLake: Failed to execute query "INSERT INTO "public".x VALUES ('a: ERROR: b

c');": ERROR:  {}
"""


def test_a_failed_commit_is_told_without_its_rows_and_a_missing_right_is_not_tried_again():
    error = connections.storage_error(FAILED_COMMIT.format("permission denied for table ducklake_snapshot"), "bench")
    assert isinstance(error, connections.UnwritableError)
    assert str(error).startswith("bench: the server refuses: permission denied for table ducklake_snapshot: use a user")
    for what in ("INSERT", "CREATE TABLE"):
        said = f"cannot execute {what} in a read-only transaction"
        error = connections.storage_error(FAILED_COMMIT.format(said), "bench")
        assert isinstance(error, connections.UnwritableError)
        assert str(error) == f"bench: the server refuses: {said}: use a user or server that may"
    text = FAILED_COMMIT.format('permission denied for schema public\nLINE 1: CREATE TABLE "public"."x"("y"\n   ^')
    assert str(connections.storage_error(text, "bench")).endswith(
        "permission denied for schema public: use a user or server that may, or GRANT CREATE ON SCHEMA public"
    )
    error = connections.storage_error(FAILED_COMMIT.format("deadlock detected"), "bench")
    assert isinstance(error, connections.TransientError)
    assert str(error).endswith("into DuckLake: Failed to execute a statement: ERROR: deadlock detected")


def test_a_persistent_error_lists_the_attempts():
    def fail():
        raise connections.storage_error("Unable to connect to Postgres", "bench")

    server = "check that the server is running, and "
    for place, advice in (("ducklake:postgres:host=x", server), ("ducklake:a.ducklake", "")):
        for lock_timeout_s, said in ((0.0, "tried once"), (0.05, r"tried [2-9] times in 0\.05 s")):
            of_lake = lake.Lake(place=LakePlace.parse(place), lock_timeout_s=lock_timeout_s)
            with pytest.raises(StorageError, match=f"Unable to connect to Postgres: {said}: {advice}run the command"):
                of_lake.repeated(fail)


@thorough
@contextmanager
def pooler(server):
    """The port of one that passes connections on, but refuses the server's settings, as PgBouncer does."""

    def forward(source, target):
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)

    def serve(client):
        with client, socket.create_connection(("127.0.0.1", server.port)) as behind:
            while (asked := client.recv(1 << 16)) and len(asked) == 8:  # whether it speaks TLS or GSSAPI
                client.sendall(b"N")
            if b"\0options\0" in asked:
                told = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
                client.sendall(b"E" + struct.pack("!i", len(told) + 4) + told)
                return
            behind.sendall(asked)
            answers = threading.Thread(target=forward, args=(behind, client), daemon=True)
            answers.start()
            forward(client, behind)
            answers.join()

    def accept():
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def settings_of(place, name):
    """A setting of the server for the sessions of the catalog and of the writers' lock."""
    asked = f"SELECT current_setting({lake.literal(name)})"
    with Warehouse.open(place) as warehouse, warehouse.transaction() as connection:
        return [
            connection.execute(f"FROM postgres_query({lake.literal(one)}, {lake.literal(asked)})").fetchall()[0][0]
            for one in (lake.CATALOG, lake.LOCK_CONNECTION)
        ]


def test_the_server_ends_sessions_of_lost_machines_also_behind_a_pooler_that_takes_no_settings(
    server, written, monkeypatch
):
    monkeypatch.setenv("PGOPTIONS", "-c search_path=public")
    assert settings_of(written[0], "tcp_keepalives_idle") == ["20", "20"]
    assert settings_of(written[0], "search_path") == ["public", "public"], "as the environment says"
    monkeypatch.delenv("PGOPTIONS")
    with pooler(server) as port:
        assert opened_counts(written[0].replace(f"port={server.port}", f"port={port}"))["benchmark_runs"]


def test_a_locked_catalog_is_waited_for_no_longer_than_said(server, written, monkeypatch):
    monkeypatch.setattr(lake, "WAIT_SLICE_S", 0.2)
    monkeypatch.setattr(warehouses, "RESTART_S", 1.0)
    with server.asking("written", "BEGIN; LOCK TABLE ducklake_snapshot; SELECT pg_sleep(60)"):
        while server.ask("written", "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock'") == "0":
            time.sleep(0.02)
        with pytest.raises(connections.TransientError, match="end the session that locks its catalog") as raised:
            Warehouse.open(written[0], read_only=True)
    assert "statement: ERROR: canceling statement due to lock timeout: tried" in str(raised.value)


def test_readers_see_a_snapshot_while_another_writes_and_nobody_waits(written, make_run):
    place, _ = written
    with Warehouse.open(place) as writing, Warehouse.open(place, read_only=True) as reading:
        before = counts(reading)
        with writing.transaction() as connection:
            connection.execute("UPDATE benchmark_runs SET description = 'changed'")
            assert counts(reading) == before
            assert reading.query("FROM benchmark_runs WHERE description = 'changed'").dicts() == []
            with closing(Snapshots(place)) as snapshots, snapshots.reading() as data:
                assert counts(data.warehouse) == before
                with pytest.raises(StorageError, match="postgres_query"):  # a user's SQL reaches no server
                    data.warehouse.query("FROM postgres_query('lake_turns', 'SELECT 1')")
            with Warehouse.open(place, lock_timeout_s=0.3) as other:
                try:
                    other.ingest(make_run())
                except LockedError as error:
                    message = str(error)
        assert "is being written by another process (waited 0.3 s)" in message
        changed = reading.query("FROM benchmark_runs WHERE description = 'changed'").dicts()
        assert len(changed) == before["benchmark_runs"]


@thorough
@needs_extension
def test_a_users_sql_and_the_shell_read_a_copy_without_access_to_the_lake(place, make_run):
    with Warehouse.open(place) as warehouse:
        warehouse.ingest(make_run())
    with Warehouse.open(place, for_questions=True) as copy:
        assert counts(copy)["benchmark_runs"] == 1
        assert copy.query("SELECT database_name FROM duckdb_databases() WHERE NOT internal").arrow().num_rows == 1
        for reach in ("lake_catalog.ducklake_table", "ducklake_settings('lake')"):
            with pytest.raises(StorageError, match=r"does not exist|not in the catalog"):
                copy.query(f"FROM {reach}")
    with TemporaryFile() as statements:
        statements.write(b"SELECT count(*) AS runs FROM benchmark_runs;")
        statements.seek(0)
        done = subprocess.run(
            [sys.executable, "-m", "db.commands.sql", "--db-path", place, "--format", "csv"],
            stdin=statements,
            capture_output=True,
            text=True,
        )
    assert done.stdout == "runs\n1\n" or "duckdb-cli" in done.stderr


@thorough
@needs_extension
def test_a_file_goes_into_a_lake_and_comes_out_again_unchanged(place, tmp_path, make_run, capsys):
    first, second = str(tmp_path / "first.duckdb"), str(tmp_path / "second.duckdb")
    with Warehouse.open(first) as warehouse:
        warehouse.ingest_all([make_run(), make_run(model_id="gpt2", family="decoder-only")])
        before = counts(warehouse)
    assert merge.main([first, "--db-path", place]) == 0
    assert merge.main([place, "--db-path", second]) == 0
    with Warehouse.open(second, read_only=True) as warehouse:
        assert counts(warehouse) == before
    capsys.readouterr()
    assert merge.main([second, "--db-path", first, "--dry-run"]) == 0  # compares them column by column
    assert capsys.readouterr().out == f"{second} would add nothing new; 2 runs already stored\n"


@thorough
@needs_extension
def test_verify_finds_what_a_key_would_have_refused(place, make_run, capsys):
    run = make_run()
    with Warehouse.open(place) as warehouse:
        warehouse.ingest(run)
        with warehouse.transaction() as connection:
            connection.execute("INSERT INTO benchmark_runs FROM benchmark_runs")
            for _ in range(2):
                connection.execute("INSERT INTO series_alias VALUES ('one', 'other', 'renamed', now()::TIMESTAMP)")
    assert setup_benchmark_db.main(["--verify", "--quiet", "--db-path", place]) == 1
    found = capsys.readouterr().out
    assert f"duplicate: benchmark_runs: 2 rows have run_id {run.run_id}" in found
    assert 'duplicate: "series_alias": 2 rows have "series_id" one' in found


@needs_extension
def test_a_macro_in_a_strangers_lake_is_refused(place):
    with Warehouse.open(place) as warehouse, warehouse.transaction() as connection:
        connection.execute("CREATE MACRO len(x) AS 1")
    for options in ({}, {"read_only": True}, {"for_questions": True}):
        with pytest.raises(FormatError, match='it contains the macro "len"'):
            Warehouse.open(place, **options)


@needs_extension
def test_a_writer_waits_for_a_server_that_restarts(place, monkeypatch):
    tries = []

    def prepare(connection, of_lake):
        tries.append(connection)
        if len(tries) == 1:
            raise connections.storage_error("FATAL: the database system is shutting down", place)

    monkeypatch.setattr(lake, "prepare", prepare)
    with Warehouse.open(place) as warehouse:
        assert counts(warehouse)["benchmark_runs"] == 0
    assert len(tries) == 2
    with pytest.raises(duckdb.ConnectionException):
        tries[0].execute("SELECT 1")  # the first connection was closed


@needs_extension
def test_a_copy_waits_for_a_server_that_restarts(place, monkeypatch):
    Warehouse.open(place).close()
    connect, tries = lake.connect, []

    def connected(*given, **named):
        tries.append(given)
        if len(tries) == 1:
            raise connections.storage_error("FATAL: the database system is starting up", place)
        return connect(*given, **named)

    monkeypatch.setattr(lake, "connect", connected)
    with Warehouse.open_copy(place) as warehouse:
        assert counts(warehouse)["benchmark_runs"] == 0
    assert len(tries) == 2


@needs_extension
@pytest.mark.parametrize("is_backup", [True, False])
def test_a_copy_begins_again_where_the_server_goes_away_meanwhile(place, tmp_path, monkeypatch, is_backup):
    Warehouse.open(place).close()
    create_views, tries = migrate.create_views, []

    def created(connection):
        tries.append(connection)
        if len(tries) == 1:
            raise connections.storage_error("Current transaction is aborted (please ROLLBACK)", place)
        create_views(connection)

    monkeypatch.setattr(migrate, "create_views", created)
    if is_backup:
        with Warehouse.open(place, read_only=True) as warehouse:
            warehouse.backup(tmp_path / "backup.duckdb")
    with Warehouse.open_copy(place) if not is_backup else Warehouse.open(tmp_path / "backup.duckdb") as warehouse:
        assert counts(warehouse)["benchmark_runs"] == 0
    assert len(tries) == 2


def test_a_statement_that_failed_is_told_without_its_text():
    text = 'IO Error: Failed to prepare COPY "COPY (SELECT "table_id" FROM "public"."x") TO STDOUT": server closed the'
    error = connections.storage_error(f"{text} connection unexpectedly\n\tThis probably means", "bench")
    assert str(error) == (
        "bench: IO Error: Failed to execute a statement: server closed the connection unexpectedly This probably means"
    )
    assert isinstance(error, connections.TransientError)


OTHER_VERSION = (
    "Invalid Input Error: DuckLake catalog version mismatch: catalog version is {}, but the extension requires version "
    "1.0. To automatically migrate, set AUTOMATIC_MIGRATION to TRUE when attaching."
)


@needs_extension
def test_a_catalog_of_an_older_ducklake_is_upgraded_by_a_writer_only(place, monkeypatch, capsys):
    Warehouse.open(place).close()
    attach, version = lake._attach_lake, ["0.4"]

    def attached(connection, of_lake, *further, **named):
        version[0] = "1.0" if lake.UPGRADED in further else version[0]
        if version[0] == "0.4":
            raise connections.storage_error(OTHER_VERSION.format("0.4"), place)
        attach(connection, of_lake, *further, **named)

    monkeypatch.setattr(lake, "_attach_lake", attached)
    with pytest.raises(StorageError, match=r"is of DuckLake 0\.4: upgrade it to 1\.0 with benchhouse setup --db-path"):
        Warehouse.open(place, read_only=True)
    with Warehouse.open(place) as warehouse:
        assert counts(warehouse)["benchmark_runs"] == 0
    assert "its catalog is upgraded: other machines need DuckDB" in capsys.readouterr().err
    assert opened_counts(place)["benchmark_runs"] == 0


def test_a_catalog_of_a_newer_ducklake_is_told_as_newer():
    error = connections.storage_error(OTHER_VERSION.format("1.10"), "bench")
    assert isinstance(error, FormatError)
    assert str(error) == 'bench: written by DuckLake 1.10, newer than 1.0 here: pip install -U "benchhouse[lake]"'


@needs_extension
def test_reading_does_not_create_a_missing_lake(tmp_path):
    with pytest.raises(StorageError, match=r"no lake at .*: create it with benchhouse setup"):
        Warehouse.open(f"ducklake:{tmp_path / 'none.ducklake'}", read_only=True)
    assert not list(tmp_path.iterdir())


@thorough
@needs_extension
def test_a_lake_in_a_file_is_a_warehouse_for_one_machine(place, tmp_path, spool_run, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = "ducklake:own.ducklake"
    path, _ = spool_run()
    assert service.main(["store", place, str(path)]) == 0
    assert setup_benchmark_db.main(["--ingest", "runs", "--compact", "--db-path", place]) == 0
    assert "already stored" in capsys.readouterr().out
    with Warehouse.open(place) as held:
        before = counts(held)
        other = "import sys; from db.warehouse import Warehouse; Warehouse.open(sys.argv[1], lock_timeout_s=0)"
        done = subprocess.run([sys.executable, "-c", other, place], capture_output=True, text=True)
        assert "own.ducklake is in use by PID" in done.stderr.splitlines()[-1]
        with closing(Snapshots(place)) as snapshots, snapshots.reading() as data:  # a dashboard does not wait for it
            assert counts(data.warehouse) == before
        assert before["benchmark_runs"] == 1
    assert (
        absolute_database(place) == f"ducklake:{tmp_path / 'own.ducklake'}?data_path={tmp_path / 'own.ducklake.files'}"
    )


@needs_extension
@pytest.mark.parametrize(
    "planted", ["VIEW ducklake_tag_view AS SELECT 1", "TABLE other (x INTEGER)", "MACRO f(x) AS x"]
)
def test_a_strangers_catalog_file_is_refused_before_it_is_attached(tmp_path, planted):
    path = tmp_path / "other.ducklake"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE {planted}")
    with pytest.raises(FormatError, match="refused before reading, since it contains the"):
        Warehouse.open(f"ducklake:{path}")


def test_the_digest_of_the_columns_is_that_of_the_newest_tables():
    with lake.model() as model:
        found = migrate.columns_digest(
            migrate._items(model, migrate.current_database(model), migrate.table_list(model))
        )
        assert found == migrate.COLUMNS_SHA256, "after a change of the tables, put this digest into db/migrate.py"


def test_an_older_lake_gets_missing_tables_columns_and_comments():
    with lake.model() as model:
        present = {}
        for table, column, _, is_nullable, _ in model.execute(lake.COLUMNS, [migrate.table_list(model)]).fetchall():
            present.setdefault(table, {})[column] = is_nullable
        assert lake.lake_statements(model, present) == []
        del present["alerts"]["note"]
        present["benchmark_runs"]["finished_at"] = False
        del present["series_heads"]
        made, altered, *rest = lake.lake_statements(model, present)
        assert made.startswith('CREATE TABLE "series_heads" ("series_id" VARCHAR NOT NULL, ')
        assert altered == 'ALTER TABLE "alerts" ADD COLUMN "note" VARCHAR'
        loosened = 'ALTER TABLE "benchmark_runs" ALTER COLUMN "finished_at" DROP NOT NULL'
        assert loosened in rest
        assert all(statement.startswith("COMMENT ON ") for statement in rest if statement != loosened)
        del present["alerts"]["triage"]
        with pytest.raises(StorageError, match=r"alerts\.triage needs a value: the lake cannot be upgraded in place"):
            lake.lake_statements(model, present)


@needs_extension
def test_a_lake_of_version_12_is_upgraded_in_place(tmp_path, make_run, monkeypatch):
    place = f"ducklake:{tmp_path / 'old.ducklake'}"
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    bare = replace(run.results[0], samples=(), iterations=0, warmup_iterations=0)
    foreign = Origin(format="llama_bench", definition="llama_bench")
    older_steps = migrate.migrations()[:12]
    with monkeypatch.context() as older:
        older.setattr(migrate, "migrations", lambda: older_steps)
        migrate._known_items.cache_clear()
        with Warehouse.open(place) as warehouse:
            warehouse.ingest(replace(run, results=(bare,), origin=foreign, finished_at=run.started_at))
            assert warehouse.query("SELECT max(version) AS version FROM schema_migrations").dicts() == [{"version": 12}]
    migrate._known_items.cache_clear()
    with Warehouse.open(place) as warehouse:
        rows = warehouse.query(
            "SELECT iterations, warmup_iterations, finished_at"
            " FROM benchmark_results JOIN benchmark_runs USING (run_id)"
        ).dicts()
        assert rows == [{"iterations": None, "warmup_iterations": None, "finished_at": None}]
        again = replace(run, run_id="again", results=(replace(bare, result_id="x", iterations=None),), origin=foreign)
        assert warehouse.ingest(again)
    Warehouse.open(place, read_only=True).close()


@pytest.mark.parametrize(
    "name",
    ["ducklake:postgres:host=db password=hunter2 dbname=x", "ducklake:postgres:postgresql://me:hunter2@db/x"],
)
def test_a_password_on_the_command_line_is_refused_and_not_shown(name, capsys):
    assert query.main(["SELECT 1", "--db-path", name]) == 2
    captured = capsys.readouterr()
    assert "use PGPASSWORD, ~/.pgpass or a service file" in captured.err
    assert "hunter2" not in captured.out + captured.err


@pytest.mark.parametrize("name", ["ducklake:", "ducklake:x.duckdb", "ducklake:postgres:bench", "ducklake:postgres:"])
def test_an_invalid_lake_name_is_a_usage_error(name):
    with pytest.raises(
        UsageError, match=r"expected ducklake:FILE\.ducklake or ducklake:postgres:dbname=NAME host=HOST"
    ):
        LakePlace.parse(name)


def test_a_missing_extension_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(connections.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StorageError) as caught:
        Warehouse.open(f"ducklake:{tmp_path / 'a.ducklake'}")
    assert "needs its extension ducklake for this, but cannot load it" in str(caught.value)
    assert 'pip install "benchhouse[lake]"' in str(caught.value)
    assert "INSTALL ducklake" in str(caught.value)


def test_credentials_of_an_object_store_come_from_amazons_variables_and_never_from_its_url(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    assert lake.store_options("s3") == {}
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert lake.store_options("s3") == {"KEY_ID": "key", "SECRET": "secret", "REGION": "us-east-1"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "lab")
    own = {"REGION": "lab", "ENDPOINT": "minio:9000", "URL_STYLE": "path", "USE_SSL": "false"}
    assert lake.store_options("s3") == {"KEY_ID": "key", "SECRET": "secret"} | own
    for url in ("s3://key:hunter2@bucket/x", "s3://bucket/x?s3_secret_access_key=hunter2"):
        with pytest.raises(UsageError, match="use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") as caught:
            LakePlace.parse(f"ducklake:a.ducklake?data_path={url}")
        assert "hunter2" not in str(caught.value)


@pytest.mark.skipif(importlib.util.find_spec("duckdb_extension_httpfs") is None, reason="needs duckdb-extension-httpfs")
@needs_extension
def test_an_object_store_without_credentials_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StorageError, match=r"no credentials for s3://bench/x: set AWS_ACCESS_KEY_ID and AWS_SECRET"):
        Warehouse.open(f"ducklake:{tmp_path / 'a.ducklake'}?data_path=s3://bench/x")
    assert not list(tmp_path.glob("a.ducklake*"))


@pytest.mark.parametrize("scheme", lake.STORES)
def test_missing_object_store_credentials_are_named(scheme, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)
    _, kind = lake.STORES[scheme]
    assert lake.store_options(kind) == {}
    variables, _ = lake.CREDENTIALS[kind]
    for name in set(re.findall(r"\b(?:AWS|AZURE)_\w+", variables)):
        monkeypatch.setenv(name, "given")
    assert bool(lake.store_options("s3" if "name it s3://" in variables else kind)), "what it says is of use"


@needs_extension
def test_a_lake_opens_without_its_original_data_folder(empty_lake, tmp_path, make_run):
    place = f"ducklake:{shutil.copy(empty_lake, tmp_path / 'other.ducklake')}"
    with Warehouse.open(place) as warehouse:
        warehouse.ingest(make_run(batch_sizes=range(1, 13), iterations=5))
    with closing(Snapshots(place)) as snapshots, snapshots.reading() as data:
        assert counts(data.warehouse)["benchmark_runs"] == 1
    assert list(empty_lake.with_name("empty.ducklake.files").rglob("*.parquet"))
    assert not (tmp_path / "other.ducklake.files").exists()


@needs_extension
def test_compacting_deletes_no_files_that_the_lake_did_not_write(place, tmp_path, make_run):
    folder = tmp_path / "own.ducklake.files"
    with Warehouse.open(place) as warehouse:
        warehouse.ingest(make_run(batch_sizes=range(1, 13), iterations=5))
    ours = next(folder.rglob("*.parquet"))
    others = [folder / "mine/results.parquet", folder / "mine/main" / ours.parent.name / ours.name, ours.with_name("x")]
    others.append(ours.with_name("ducklake-01a229bb-85e0-7697-9115-e522b2cfcf2e.parquet"))  # of another lake
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ours, path)
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 3 * 86400,) * 2)
    Warehouse.compact(place)
    assert [path for path in others if not path.exists()] == []
    with Warehouse.open(place, read_only=True) as warehouse:
        assert counts(warehouse)["benchmark_runs"] == 1


@needs_extension
@pytest.mark.parametrize(
    ("path", "is_relative"),
    [
        ("thesis.txt", True),
        ("main/series/../../thesis.txt", True),
        ("{folder}/main/series/ducklake-01a229bb-85e0-7697-9115-e522b2cfcf2e.parquet", False),
    ],
)
def test_a_catalog_that_has_other_files_deleted_is_not_compacted(place, path, is_relative, tmp_path, capsys):
    """As a stranger's, which also names the data folder."""
    Warehouse.open(place).close()
    folder = tmp_path / "own.ducklake.files"
    kept = folder / path.format(folder=folder)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("mine")
    with duckdb.connect(place.removeprefix("ducklake:")) as catalog:
        catalog.execute(
            "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (99, ?, ?, '2026-01-01 00:00:00+00')",
            [path.format(folder=folder), is_relative],
        )
    assert setup_benchmark_db.main(["--compact", "--db-path", place]) == 1
    assert kept.exists()
    assert "not compacted, which would delete" in capsys.readouterr().err


@needs_extension
def test_a_writer_puts_nothing_where_the_lakes_data_folder_is_not(place, tmp_path, make_run):
    """As below the mount point of a share that is not mounted, where other machines would not find it."""
    folder, run = tmp_path / "share", make_run(batch_sizes=range(1, 13), iterations=5)
    catalog, place = place, f"{place}?data_path={folder}"
    with Warehouse.open(place) as warehouse:  # which has no files yet
        assert warehouse.ingest(run)
    away = folder.rename(tmp_path / "away")
    for options in ({}, {"read_only": True}):
        with pytest.raises(StorageError, match=r"its data folder .* is not on this machine: mount it"):
            Warehouse.open(place, **options)
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises(StorageError, match="has none of the newest files that its catalog names: mount it"):
        Warehouse.open(place)
    assert list(folder.iterdir()) == []
    with Warehouse.open(f"{catalog}?data_path={away}") as warehouse:
        assert not warehouse.ingest(run)
    next(away.rglob("*.parquet")).unlink()
    Warehouse.open(f"{catalog}?data_path={away}").close()  # one that is lost is for --verify to find


def test_a_writer_of_a_new_lake_does_not_make_its_data_folder_on_a_machine_that_lacks_it(server, tmp_path):
    place = f"ducklake:postgres:{server.database('share')}?data_path={tmp_path / 'share'}"
    Warehouse.open(place).close()
    (tmp_path / "share").rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"its data folder .*share/ is not on this machine: mount it"):
        Warehouse.open(place)
    assert not (tmp_path / "share").exists()
    Warehouse.open(place.removesuffix("share") + "elsewhere").close()


@needs_extension
def test_a_catalog_file_may_not_name_an_object_store_missing_from_the_command(tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2")
    path = tmp_path / "a.ducklake"
    Warehouse.open(f"ducklake:{path}?data_path={tmp_path / 'data'}").close()
    with duckdb.connect(str(path)) as catalog:
        catalog.execute("UPDATE ducklake_metadata SET value = 's3://theirs/x/' WHERE key = 'data_path'")
    with pytest.raises(
        StorageError, match=r"its catalog names s3://theirs/x/ .* add \?data_path=s3://theirs/x/ to --db"
    ):
        Warehouse.open(f"ducklake:{path}", read_only=True)


def test_an_object_store_of_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(StorageError, match=r"ftp:// is not an object store: expected one of s3"):
        Warehouse.open(f"ducklake:{tmp_path / 'a.ducklake'}?data_path=ftp://x/y")


@pytest.mark.parametrize(
    ("database", "name"),
    [
        ("results/bench.duckdb", "bench.duckdb"),
        ("results/", "results"),
        ("ducklake:results/bench.ducklake?data_path=/mnt/data", "bench.ducklake"),
        ("ducklake:postgres:dbname=bench host=lab-db user=me?data_path=/mnt/data", "bench"),
        ("ducklake:postgres:host=lab-db", "ducklake"),
    ],
)
def test_a_report_names_a_lake_without_its_host_and_folders(database, name):
    assert without_place(database) == name
