"""What no honest run holds: it is refused with one line, or stored as it is and read back equal; never executed."""

import contextlib
import dataclasses
import json
import math

import duckdb
import pytest

from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, FormatError, StorageError
from benchmarking.core.metrics import custom_metric
from benchmarking.core.records import Origin, Point, Readings, canonical_hash, dumps, run_from_json
from db import rows
from db.analysis.compare.stored_results import launch_values
from db.commands import check, compare, export_results, history, recommend, show
from db.setup_benchmark_db import main
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from visualize import visualize_benchmarks

ONE = {"batch_sizes": (1,), "sequence_lengths": (32,), "launches": 1, "iterations": 3}
HOSTILE = {
    "sql": "'); DROP TABLE benchmark_runs; --",
    "quotes": "\"'`\\\"\"''$$ {} {{x}} %s ?1 $name",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>&amp;",
    "nul": "before\0after",
    "control": "\x01\x07\x1b[31m\x7f\r\n\t\u2028\u202eevil",
    "unicode": "\U0001f600 e\u0301 \ufeff \uffff \ud7ff",
}
TEXT_COLUMNS = {
    "benchmark_runs": ("model_id", "task", "runtime", "error", "host", "description", "git_branch", "weights_reason"),
    "benchmark_results": ("error", "stop_reason"),
    "hardware_info": ("device_name", "vendor", "cpu_model"),
    "raw_benchmark_data": ("metric", "unit"),
    "series": ("model_id", "task", "runtime"),
}


def everywhere(run, text):
    """The run with the text in every field that takes one of one's own."""
    result = run.results[0]
    samples = tuple(dataclasses.replace(one, metric=text, unit=text) for one in result.samples)
    result = dataclasses.replace(
        result,
        status="failed",
        validity=None,
        error=text,
        stop_reason=text,
        launches=0,
        iterations=0,
        metrics={},
        missing={text: text},
        samples=samples,
        extra={text: text},
    )
    device = dataclasses.replace(run.hardware.device, name=text, vendor=text, facts=Readings(values={text: text}))
    keys = {"device_name": text}
    workload = dataclasses.replace(
        run.cell.workload,
        model_id=text,
        task=text,
        weights_reason=text,
        config={text: [text]},
        config_hash=canonical_hash({text: [text]}),
    )
    return dataclasses.replace(
        run,
        status="failed",
        error=text,
        cell=dataclasses.replace(run.cell, workload=workload, runtime=text, runtime_mode={text: text}),
        hardware=dataclasses.replace(
            run.hardware, hardware_id=canonical_hash(keys)[:16], hashed_keys=keys, device=device, cpu_model=text
        ),
        provenance=dataclasses.replace(
            run.provenance, host=text, description=text, git_branch=text, tags={text: text}, versions={text: text}
        ),
        settings={text: text},
        environment=Readings(missing={text: text}),
        results=(result,),
        origin=Origin(format=text, definition=text),  # another tool's runtimes may have any name
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_any_text_is_stored_unchanged_and_never_executed(warehouse, make_run, name):
    text = HOSTILE[name]
    run = everywhere(make_run(**ONE), text)
    warehouse.ingest(run_from_json(json.loads(dumps(run)), "run"))
    for table, columns in TEXT_COLUMNS.items():
        (row,) = warehouse.query(f"SELECT {', '.join(columns)} FROM {table}").dicts()
        assert [column for column in columns if row[column] != text] == [], table
    (row,) = warehouse.query("SELECT tags, versions, settings, config, environment FROM benchmark_runs").dicts()
    assert (row["tags"], row["versions"]) == ({text: text}, {text: text})
    assert (json.loads(row["settings"]), json.loads(row["config"])) == ({text: text}, {text: [text]})
    assert json.loads(row["environment"])["missing"] == {text: text}
    (row,) = warehouse.query("SELECT missing, extra FROM benchmark_results").dicts()
    assert (row["missing"], json.loads(row["extra"])[text]) == ({text: text}, text)
    found = warehouse.query("SELECT run_id FROM benchmark_runs WHERE model_id = ? AND host = ?", [text, text]).dicts()
    assert found == [{"run_id": run.run_id}]
    assert verify(warehouse) == []


@pytest.mark.parametrize("name", [*(name for name in HOSTILE if name != "nul"), "path"])  # no argument has a NUL
def test_a_metric_may_have_any_name(tmp_path, make_run, capsys, name):
    """It reaches SQL, as a key of maps and of JSON and as the name of a column, in every command with --metric."""
    metric = {**HOSTILE, "path": "a.b/c~d[0].*"}[name]
    database, ids = tmp_path / "a.duckdb", []
    with Warehouse.open(database) as warehouse:
        for tag, values in (("before", {metric: 11.0}), ("after", {})):
            run = change_of(make_run(**ONE), "provenance", tags={"side": tag})
            definitions = {metric: {"unit": "points", "better": "higher"}}
            extra = {"launches": [{"launch": 0, "metrics": values}], "custom_metrics": definitions}
            (result,) = run.results
            result = dataclasses.replace(result, metrics={**result.metrics, **values}, extra=extra)
            warehouse.ingest(dataclasses.replace(run, results=(result,)))
            ids.append(result.result_id)
        found = launch_values(warehouse, ids, custom_metric(metric, "points", "higher"))
        assert found == {ids[0]: {0: 11.0}}
    flags = (f"--db-path={database}", f"--metric={metric}")
    assert compare.main(["tag.side=before", "tag.side=after", *flags]) == EXIT_NOT_ENOUGH_DATA
    assert "not measured" in capsys.readouterr().out
    assert show.main([*flags, "tag.side=before", "--json"]) == EXIT_OK
    (row,) = json.loads(capsys.readouterr().out)
    assert (row[metric], row["trend"], row["launch_values"]) == (11.0, [11.0], [11.0])


def test_ten_megabytes_of_text_are_stored_as_they_are(warehouse, make_run):
    text = "'quoted'\0;" * 1_000_000
    run = change_of(make_run(**ONE), "provenance", description=text, tags={"long": text})
    warehouse.ingest(run_from_json(json.loads(dumps(run)), "run"))
    (row,) = warehouse.query("SELECT description = ? AS is_equal, tags FROM benchmark_runs", [text]).dicts()
    assert (row["is_equal"], len(text)) == (True, 10_000_000)
    assert row["tags"] == {"long": text}


@pytest.mark.parametrize(
    ("time", "stored"),
    [
        ("0001-01-01T00:00:00Z", "0001-01-01 00:00:00"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31 23:59:59.999999"),
        ("2026-01-01T05:30:00+05:30", "2026-01-01 00:00:00"),
        ("0000-01-01T00:00:00Z", None),
        ("10000-01-01T00:00:00Z", None),
        ("294247-01-10T04:00:54Z", None),
        ("-4712-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("2026-02-30T00:00:00Z", None),
        ("infinity", None),
        ("now(); DROP TABLE series", None),
        ("", None),
    ],
)
def test_times_outside_the_years_1_to_9999_are_refused(warehouse, make_run, time, stored):
    run = make_run(**ONE, started_at=time)
    if stored is None:
        with pytest.raises(FormatError, match="expected a time in ISO 8601, found ") as caught:
            warehouse.ingest(run)
        assert "\n" not in str(caught.value)
        assert warehouse.query("SELECT count(*) AS n FROM series").dicts() == [{"n": 0}]
    else:
        warehouse.ingest(run)
        sql = "SELECT started_at::VARCHAR AS time FROM benchmark_runs"
        assert warehouse.query(sql).dicts() == [{"time": stored}]
        assert warehouse.query("SELECT started_at FROM history").dicts() != []


def change_of(run, part, **fields):
    """The run with fields of its result, of its first samples or of a record of its own changed."""
    result = run.results[0]
    if part == "result":
        return dataclasses.replace(run, results=(dataclasses.replace(result, **fields),))
    if part == "samples":
        samples = (dataclasses.replace(result.samples[0], **fields), *result.samples[1:])
        return dataclasses.replace(run, results=(dataclasses.replace(result, samples=samples),))
    if part == "workload":
        return dataclasses.replace(
            run, cell=dataclasses.replace(run.cell, workload=dataclasses.replace(run.cell.workload, **fields))
        )
    return dataclasses.replace(run, **{part: dataclasses.replace(getattr(run, part), **fields)})


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        *(("samples", {"values": (1.0, bad, 2.0)}) for bad in (math.nan, math.inf, -math.inf, -1.0, -1e-300)),
        ("samples", {"values": (1.7e308, 1.7e308)}),
        ("samples", {"launch": -1}),
        ("samples", {"inner_loops": 0}),
        ("samples", {"inner_loops": 2**40}),
        *(("result", {"metrics": {"latency_median_ms": bad}}) for bad in (math.nan, math.inf, -0.5)),
        ("result", {"metrics": {"step_ms": math.inf}}),
        ("result", {"metrics": {"of_my_own": math.nan}}),
        ("result", {"metrics": {"throughput_samples_per_sec": -1.0}}),
        ("result", {"metrics": {"memory_weights_mb": -1.0}}),
        ("result", {"launches": -1}),
        ("result", {"iterations": -5}),
        ("result", {"warmup_iterations": 2**70}),
        ("result", {"point": Point(batch_size=-1)}),
        ("result", {"point": Point(batch_size=1, sequence_length=0)}),
        ("result", {"point": Point(batch_size=1, concurrency=0)}),
        ("result", {"point": Point(batch_size=1, axes={"audio_seconds": math.nan})}),
        ("result", {"extra": {"a": [math.nan]}}),
        ("result", {"error": "\ud800 alone"}),
        ("workload", {"parameter_count": -1}),
        ("workload", {"parameter_count": 2**63}),
        ("workload", {"vocab_size": 0}),
        ("workload", {"config": {"deep": math.inf}}),
        ("hardware", {"cpu_cores": 0}),
        ("hardware", {"memory_bytes": -1}),
    ],
)
def test_a_run_with_impossible_numbers_is_refused(warehouse, make_run, part, fields):
    run = make_run(**ONE)
    with pytest.raises(StorageError) as caught:
        warehouse.ingest(change_of(run, part, **fields))
    assert "\n" not in str(caught.value)
    assert warehouse.query("SELECT count(*) AS n FROM hardware_info").dicts() == [{"n": 0}]
    assert warehouse.ingest(run)


def test_values_that_may_be_negative_are_stored(warehouse, make_run):
    metrics = {"host_gap_ms": -0.25, "memory_device_global_delta_mb": -3.0, "of_my_own": -1.0}
    run = make_run(**ONE)
    warehouse.ingest(change_of(run, "result", metrics=metrics))
    sql = "SELECT host_gap_ms, memory_device_global_delta_mb AS mb, other_metrics AS other FROM benchmark_results"
    assert warehouse.query(sql).dicts() == [{"host_gap_ms": -0.25, "mb": -3.0, "other": {"of_my_own": -1.0}}]


def test_a_different_run_with_a_stored_id_is_refused_and_the_difference_named(warehouse, make_run):
    run = make_run(**ONE)
    warehouse.ingest(run, source_sha256="ab")
    assert warehouse.ingest(run, source_sha256="cd") is False
    other = change_of(run, "result", metrics={**run.results[0].metrics, "latency_mean_ms": 1.0})
    with pytest.raises(
        FormatError, match=rf"run {run.run_id} is already stored with different content: .* differs in latency_mean_ms$"
    ):
        warehouse.ingest(other, source_sha256="ef")
    fewer = dataclasses.replace(run, results=())
    with pytest.raises(FormatError, match="has 1 of its benchmark_results only here"):
        warehouse.ingest(fewer)


@pytest.mark.parametrize(
    "content",
    [
        b'{"format": "benchhouse-run", "x": NaN}',
        b'{"format": "benchhouse-run", "format_version": 1, "results": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xff\xfe\x00",
        b'{"format": "benchhouse-run", "format_version": 1, "run_id": 7}',
        b"[]",
        b"null",
        b"1e400",
    ],
)
def test_a_non_run_file_is_reported_and_the_others_are_loaded(tmp_path, make_run, capsys, content):
    (tmp_path / "bad.json").write_bytes(content)
    (tmp_path / "good.json").write_text(dumps(make_run(**ONE)))
    database = tmp_path / "a.duckdb"
    assert main(["--ingest", str(tmp_path), "--db-path", str(database), "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"setup_benchmark_db: refused {tmp_path / 'bad.json'}")
    with Warehouse.open(database) as warehouse:
        assert warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts() == [{"n": 1}]


@pytest.mark.parametrize(
    ("table", "column", "text"),
    [
        ("benchmark_results", "axes", "[1]"),
        ("benchmark_results", "axes", '{"depth": {"a": 1}}'),
        ("benchmark_results", "axes", '{"request_rate": "abc"}'),
        ("benchmark_results", "extra", '{"load": 1}'),
        ("benchmark_runs", "runtime_mode", '{"loop":"open","slo_share":"x"}'),
        ("benchmark_runs", "runtime_mode", '"text"'),
        ("benchmark_runs", "settings", "5"),
        ("benchmark_runs", "loads", "5"),
        ("benchmark_runs", "settings", "[" * 5000 + "]" * 5000),
        ("benchmark_runs", "settings", '{"a":' + "[" * 5000 + "]" * 5000 + "}"),
        ("benchmark_runs", "settings", '{"a":' + "9" * 10_000 + "}"),
        ("benchmark_runs", "settings", '{"a":' + "[" * 400 + "]" * 400 + "}"),
        ("benchmark_runs", "settings", '{"a":1,}'),
        ("benchmark_runs", "settings", '{"a":1e400}'),
        ("benchmark_runs", "settings", '{"a":nan}'),
        ("benchmark_results", "extra", '{"doubts":[{"a":-Infinity}]}'),
    ],
    ids=lambda value: value[:30],
)
def test_json_of_another_program_in_a_file_is_one_line(tmp_path, make_run, capsys, table, column, text):
    path = tmp_path / "changed.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([make_run(runtime=runtime) for runtime in ("eager", "onnxruntime")])
    with contextlib.closing(duckdb.connect(str(path))) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", [text])
    codes = []
    commands = {
        recommend: ["bert-base-uncased"],
        export_results: ["--format", "json", "--output-dir", str(tmp_path / "out")],
    }
    for command in (show, history, check, recommend, export_results):
        arguments = commands.get(command, [])
        codes.append(command.main([*arguments, "--db-path", str(path)]))
        if codes[-1] == 1:
            (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
            assert f"{path}: {column}: found " in line
            assert "another one changed the file: " in line
    assert 1 in codes
    with Warehouse.open(path, read_only=True) as warehouse:
        assert {fault.problem.split(" of ")[0] for fault in verify(warehouse)} == {f"{table}: {column}"}


def test_results_of_many_launches_are_not_parsed_to_be_checked(database, make_run, monkeypatch):
    """It would take 0.6 ms each."""
    run = make_run()
    launches = [{"state": {"loads": [1.5]}, "limits": [{"end": [2]}]} for _ in range(20)]
    results = [dataclasses.replace(result, extra={"launches": launches}) for result in run.results]
    monkeypatch.setattr(rows, "json_problem", lambda text: pytest.fail(f"parsed: {text}"))
    with Warehouse.open(database) as warehouse:
        warehouse.ingest(dataclasses.replace(run, results=results))
        assert len(warehouse.query("SELECT extra FROM benchmark_results").dicts()) == len(results)


@pytest.mark.parametrize(
    ("change", "found", "is_drawn"),
    [
        ("benchmark_runs SET started_at = 'infinity'", "found a time outside of the years 1 to 9999", True),
        ("benchmark_runs SET command = 'it''s'", "command: found it's", True),
        ("benchmark_results SET doubts = [NULL]", "doubts: found a list with NULL", True),
        ("benchmark_results SET latency_median_ms = 1.7e308 WHERE batch_size = 1", None, False),
        ("benchmark_results SET latency_median_ms = -5", None, False),
        ("raw_benchmark_data SET median = 'infinity', mean = 1.7e308", None, True),
        ("benchmark_results SET throughput_samples_per_sec = -1", None, False),
        ("benchmark_results SET throughput_samples_per_sec = 5e-324", None, True),
    ],
    ids=lambda value: str(value)[:50],
)
def test_values_of_another_program_end_no_command_with_a_traceback(tmp_path, make_run, capsys, change, found, is_drawn):
    path = tmp_path / "changed.duckdb"
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([make_run() for _ in range(3)])
    with contextlib.closing(duckdb.connect(str(path))) as connection:
        connection.execute(f"UPDATE {change}")
    lines = []
    for command in (show, history, check, recommend, export_results):
        arguments = {
            recommend: ["bert-base-uncased"],
            export_results: ["--format", "json", "--output", str(path) + "x"],
        }
        command.main([*arguments.get(command, []), "--db-path", str(path)])
        lines += [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    assert found is None or any(found in line for line in lines)
    with Warehouse.open(path, read_only=True) as warehouse:
        assert found is None or {fault.kind for fault in verify(warehouse)} == {"value"}
    drawn = ["--db-path", str(path), "--output-dir", str(tmp_path / "charts"), "--format", "png"]
    assert visualize_benchmarks.main(drawn) in (0, 1)
    lines = capsys.readouterr().err.splitlines()
    assert is_drawn == (not any("no run has the value" in line for line in lines))
