"""A bad run file is refused by name and reason, in a line; the others go in, and what went in passes `--verify`."""

import copy
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarking.core.records import dumps, to_json
from db.ingestion import load_files
from db.setup_benchmark_db import main
from db.upkeep.verify import verify
from db.warehouse import Warehouse

ONE = {"batch_sizes": (1,), "sequence_lengths": (32,), "launches": 1, "iterations": 3}


def changed(data, path, value):
    """The run's JSON with the value at a path such as "results.0.point.batch_size"."""
    data = copy.deepcopy(data)
    *holders, last = [int(name) if name.isdigit() else name for name in path.split(".")]
    place = data
    for name in holders:
        place = place[name]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return data


FIELDS = {
    "batch_size-0": ("results.0.point.batch_size", 0, "batch_size: expected a number from 1 to 2147483647, found 0"),
    "batch_size-1": ("results.0.point.batch_size", -1, "batch_size: expected a number from 1 to"),
    "batch_size-large": ("results.0.point.batch_size", 2**31, "batch_size: expected a number from 1 to"),
    "launch-1": ("results.0.samples.0.launch", -1, "launch: expected a number from 0 to 2147483647, found -1"),
    "loads": ("loads.0.launch", -1, "loads[0].launch: expected a number from 0"),
    "inner_loops": ("results.0.samples.0.inner_loops", 0, "inner_loops: expected a number from 1"),
    "vocab_size": ("cell.workload.vocab_size", 0, "vocab_size: expected a number from 1"),
    "cpu_cores": ("hardware.cpu_cores", 0, "cpu_cores: expected a number from 1"),
    "memory_bytes": ("hardware.memory_bytes", 2**63, "memory_bytes: expected a number from 0"),
    "count": ("hardware.device.count", 0, "count: expected a number from 1"),
    "iterations": ("results.0.iterations", 2**63, "iterations: expected a number from 0"),
    "samples-1e308": ("results.0.samples.0.values", [1e308] * 3, "values[0]: expected a number from -1e+300 to 1e+300"),
    "samples-int": ("results.0.samples.0.values", [10**299] * 2 + [10**301], "an integer of 302 digits"),
    "samples-text": ("results.0.samples.0.values", [1.0, "x", 2.0], "values[1]: expected a number, found"),
    "samples-negative": ("results.0.samples.0.values", [8.0, -2.0, 9.0], "latency_wall is -2.0, which cannot be"),
    "sum": ("results.0.metrics", {"a": 1e308, "b": 1e308}, "metrics.a: expected a number from -1e+300 to 1e+300"),
    "stages": ("loads.0.stages_s", {"spawn": 1e308, "import": 1e308}, "stages_s.spawn: expected a number from"),
    "axis": ("results.0.point.axes", {"image_size": 3e9}, "image_size is 3000000000.0, expected a whole number"),
    "rate": (
        "results.0.point.axes",
        {"request_rate": "fast"},
        'axes.request_rate: expected int or float, found "fast"',
    ),
    "share": ("cell.runtime_mode", {"slo_share": "most"}, "runtime_mode.slo_share: expected a number, found 'most'"),
    "seed": ("cell.workload.seed", 10**399, "an integer of 400 digits"),
    "hardware_id": ("hardware.hardware_id", "0" * 16, "hardware.hardware_id: '0000000000000000' is not the hash"),
    "hardware_id-none": ("hardware.hardware_id", "", "hardware.hardware_id: '' is not the hash"),
    "keys": ("hardware.hashed_keys", {"cpu": "other"}, "hardware.hardware_id: "),
    "no-samples": ("results.0.samples", [], "results[0]: iterations: 3, but 0 samples of latency_wall"),
    "launches": ("results.0.launches", 2, "results[0]: launches: 2, but samples of 1"),
    "no-launch": ("results.0.launches", 0, "results[0]: launches: 0, although the status is ok"),
    "validity": ("results.0.validity", None, "results[0]: validity: missing, although the status is ok"),
    "failed": ("results.0.status", "failed", "results[0]: error: missing, although the status is failed"),
    "no-median": (
        "results.0.metrics",
        {},
        "results[0]: metrics: latency_median_ms has neither a value nor a reason in missing",
    ),
    "median": (
        "results.0.metrics.latency_median_ms",
        9.0,
        "results[0]: metrics: latency_median_ms is 9, but the medians of its samples are 8 to 8",
    ),
    "interval": (
        "results.0.metrics.latency_ci_low_ms",
        9.0,
        "results[0]: metrics: latency_ci_low_ms is 9, above latency_ci_high_ms, 8.3",
    ),
    "runtime": ("cell.runtime", "rocket", "cell.runtime: 'rocket' is unknown: expected one of "),
    "device": ("hardware.device.type", "abacus", "hardware.device.type: 'abacus' is unknown: expected one of "),
    "time": ("started_at", "2026-02-30T00:00:00Z", "started_at: expected a time in ISO 8601"),
    "missing": ("run_id", KeyError, "missing field 'run_id'"),
}
TEXTS = {
    "nested": (
        b'"settings":{',
        b'"settings":{"a":' + b"[" * 900 + b"]" * 900 + b",",
        "nested more than 64 levels deep",
    ),
    "nan": (b'"settings":{', b'"settings":{"a":NaN,', "NaN is not a number"),
    "infinity": (b'"settings":{', b'"settings":{"a":-Infinity,', "-Infinity is not a number"),
    "1e400": (b'"seed":0', b'"seed":1e400', "seed: expected a whole number, found Infinity"),
    "1e400-settings": (b'"settings":{', b'"settings":{"a":1e400,', "a record must not contain inf"),
    "utf-8": (b'"host":"', b'"host":"\xff\xfe', "not UTF-8 at byte"),
    "surrogate": (b'"host":"', rb'"host":"\ud800', r"half of a surrogate pair (\ud800)"),
    "surrogate-key": (b'"tags":{', rb'"tags":{"\udfff":"a",', r"half of a surrogate pair (\udfff)"),
    "truncated": (b'"origin":null}', b"", "not JSON, or truncated"),
    "repeated": (
        b'"started_at":"2026-01-02T03:04:05Z"',
        b'"started_at":"","started_at":""',
        "occurs 2 times in one obj",
    ),
}
PLACES = {
    "empty": "not JSON, or truncated",
    "dangling": "No such file or directory",
    "pipe": "not a regular file",
    "device-file": "not a regular file",
    "doubled": "samples: launch 0, measure latency_wall occurs 2 times",
    "same-ids": "results: result_id ",
    "same-points": "results: the point 'b1 s32' occurs 2 times",
    "stored-id": " is already stored as part of run ",
}


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    """Outcome of loading a folder with one file of each fault and two good ones: exit code, lines, stored runs."""
    from tests.helpers.records import make_run

    folder = tmp_path_factory.mktemp("runs")
    good = make_run(**ONE)
    data = to_json(good)
    assert data["provenance"]["tags"] is not None
    for name, (path, value, _) in FIELDS.items():
        (folder / f"{name}.json").write_text(json.dumps(changed({**data, "run_id": name}, path, value)))
    for name, (old, new, _) in TEXTS.items():
        content = dumps(good).encode()
        assert content.count(old) == 1, name
        (folder / f"{name}.json").write_bytes(content.replace(old, new))
    (result,) = data["results"]
    (folder / "empty.json").touch()
    (folder / "dangling.json").symlink_to(folder / "nothing")
    (folder / "device-file.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.json")
    samples = result["samples"] * 2
    (folder / "doubled.json").write_text(json.dumps({**data, "results": [{**result, "samples": samples}]}))
    (folder / "same-ids.json").write_text(json.dumps({**data, "results": [result, result]}))
    twice = [result, {**result, "result_id": "another"}]
    (folder / "same-points.json").write_text(json.dumps({**data, "results": twice}))
    (folder / "0-good.json").write_text(dumps(good))
    (folder / "stored-id.json").write_text(json.dumps({**data, "run_id": "another"}))
    (folder / "z-good.json").write_text(dumps(make_run(**ONE)))
    database = folder.parent / "faults.duckdb"
    done = subprocess.run(
        [sys.executable, "-m", "db.setup_benchmark_db", "--ingest", str(folder), "--db-path", str(database)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    with Warehouse.open(database) as warehouse:
        stored = warehouse.query("SELECT count(*) AS n FROM benchmark_runs").dicts()[0]["n"]
        return folder, done, stored, verify(warehouse)


def test_the_good_files_go_in_and_the_exit_code_says_that_others_did_not(ingested):
    _, done, stored, findings = ingested
    assert (done.returncode, stored, findings) == (1, 2, [])
    assert f"run files: 2 loaded, 0 already stored, {len(FIELDS | TEXTS | PLACES)} refused" in done.stdout


@pytest.mark.parametrize("name", [*FIELDS, *TEXTS, *PLACES])
def test_a_bad_run_file_is_refused_by_name_and_reason_in_a_line(ingested, name):
    folder, done, _, _ = ingested
    reason = PLACES[name] if name in PLACES else (FIELDS | TEXTS)[name][2]
    lines = [line for line in done.stderr.splitlines() if f"{folder / name}.json" in line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("setup_benchmark_db: refused ")
    assert reason in lines[0]
    assert "Traceback" not in done.stderr
    assert "faults.duckdb" not in lines[0]


def test_a_run_file_given_by_name_that_is_a_pipe_is_refused_at_once(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    assert main(["--ingest", str(tmp_path / "pipe.json"), "--db-path", str(tmp_path / "a.duckdb"), "--quiet"]) == 1
    assert "pipe.json: not a regular file" in capsys.readouterr().err


def test_a_run_file_in_a_folder_whose_name_is_not_utf8_is_stored_and_found_again(tmp_path, warehouse, make_run):
    path = tmp_path / os.fsdecode(b"m\xff") / "run.json"
    path.parent.mkdir()
    path.write_text(dumps(make_run(**ONE)))
    assert load_files(warehouse, [path]).loaded == (path,)
    assert warehouse.query("SELECT source FROM benchmark_runs").dicts() == [{"source": f"{tmp_path}/m\\xff/run.json"}]
    assert verify(warehouse) == []
    path.write_text("{}")
    assert [finding.kind for finding in verify(warehouse)] == ["checksum"]


def test_ids_in_capitals_are_those_of_the_same_run(tmp_path, warehouse, make_run):
    run = make_run(**ONE)
    (result,) = run.results
    capitals = replace(run, run_id=run.run_id.upper(), results=(replace(result, result_id=result.result_id.upper()),))
    files = [tmp_path / "as_written.json", tmp_path / "capitals.json"]
    for path, one in zip(files, (run, capitals), strict=True):
        path.write_text(dumps(one))
    assert load_files(warehouse, files[1:]).loaded == (files[1],)
    assert load_files(warehouse, files).present == tuple(files)
    assert warehouse.query("SELECT run_id, result_id FROM benchmark_results").dicts() == [
        {"run_id": run.run_id, "result_id": result.result_id}
    ]


def leaves(value, path=()):
    """The paths of all values in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from leaves(one, (*path, str(key)))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 2**31, 2**63, 10**299, 1e308, -1e308, 1e-308, 0.5, "", "ok", "failed", "\x00", "é"]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
ANYTHING = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=3), SCALARS, max_size=2))


def test_a_run_file_with_any_value_changed_is_refused_or_passes_verify(tmp_path, warehouse, make_run):
    data = to_json(make_run(**ONE))
    places = [".".join(path) for path in leaves(data) if path and not any("." in name for name in path)]
    path = tmp_path / "run.json"

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.sampled_from(places), ANYTHING), min_size=1, max_size=2))
    def check(changes):
        run = data
        for place, value in changes:
            try:
                run = changed(run, place, value)
            except (KeyError, IndexError, TypeError):
                return  # within what another change replaced
        path.write_text(json.dumps(run))
        done = load_files(warehouse, [path])
        assert all("\n" not in reason for _, reason in done.refused)
        if done.refused:
            return
        assert verify(warehouse) == []
        for table in ("benchmark_runs", "benchmark_results", "raw_benchmark_data", "series", "series_heads"):
            warehouse.query(f"DELETE FROM {table}")
        warehouse.query("DELETE FROM hardware_info")

    check()
