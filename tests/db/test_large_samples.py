"""Run files of any size are read in bounded memory, and give the same run as when they are read at once."""

import dataclasses
import json
import subprocess
import sys
from array import array
from statistics import median

import numpy as np
import pytest

from benchmarking.core import run_file
from benchmarking.core.errors import FormatError
from benchmarking.core.records import Samples, dumps, to_json
from benchmarking.core.run_file import QUANTILES, LargeSamples
from db import ingestion
from db.setup_benchmark_db import main
from db.upkeep.verify import verify

PEAK = """
import sys
from pathlib import Path
from db.ingestion import load_files
from db.warehouse import Warehouse
with Warehouse.open(sys.argv[1]) as warehouse:
    print(load_files(warehouse, [Path(path) for path in sys.argv[2:]]).refused)
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def whole(run):
    """The run with tuples instead of `LargeSamples`."""
    results = (
        dataclasses.replace(
            result, samples=tuple(dataclasses.replace(one, values=tuple(one.values)) for one in result.samples)
        )
        for result in run.results
    )
    return dataclasses.replace(run, results=tuple(results))


@pytest.fixture
def streamed(monkeypatch):
    """Every run file is read block by block, in blocks of a few bytes."""

    def shrink(block_bytes=64):
        monkeypatch.setattr(run_file, "LARGE_BYTES", 0)
        monkeypatch.setattr(run_file, "BLOCK_BYTES", block_bytes)

    return shrink


@pytest.mark.parametrize("block_bytes", [7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_reading_block_by_block_gives_the_written_run(spool_run, streamed, block_bytes, indent):
    path, run = spool_run(launches=2, iterations=50)
    data = to_json(run)
    data["provenance"]["description"] = 'a "values": [1, 2] \\ in text'
    data["results"][0]["extra"] = {"values": [1, 2.5], "inner": {"values": [], "more": {"values": ["a", [1]]}}}
    path.write_text(json.dumps(data, indent=indent))
    expected = run_file.read_run(path)
    streamed(block_bytes)
    found = run_file.read_run(path)
    assert isinstance(found.run.results[0].samples[0].values, LargeSamples)
    assert whole(found.run) == expected.run
    assert (found.sha256, found.is_compacted) == (expected.sha256, False)


def test_a_run_read_block_by_block_is_stored_as_one_read_at_once(warehouse, spool_run, streamed):
    path, run = spool_run(launches=2, iterations=500)
    warehouse.ingest(run)
    before = warehouse.query("SELECT * FROM raw_samples ORDER BY ALL").dicts()
    raw = "SELECT result_id, launch, sample_count, mean, median, p99 FROM raw_benchmark_data ORDER BY ALL"
    statistics = warehouse.query(raw).dicts()
    streamed()
    assert ingestion.load_files(warehouse, [path]).present == (path,)
    for table in ("benchmark_runs", "benchmark_results", "raw_benchmark_data", "series_heads"):
        warehouse.query(f"DELETE FROM {table}")
    assert ingestion.load_files(warehouse, [path]).loaded == (path,)
    assert warehouse.query("SELECT * FROM raw_samples ORDER BY ALL").dicts() == before
    assert [list(row.values()) for row in warehouse.query(raw).dicts()] == [
        [pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for value in row.values()]
        for row in statistics
    ]
    assert verify(warehouse) == []


def test_a_run_with_too_many_samples_is_stored_with_quantiles_and_a_note(
    tmp_path, database, warehouse, spool_run, streamed, monkeypatch, capsys
):
    path, run = spool_run(launches=3, iterations=500, batch_sizes=(1, 2), sequence_lengths=(32,))
    streamed()
    monkeypatch.setattr(run_file, "MAX_RAW", 1200)
    assert main(["--ingest", str(path), "--verify", "--db-path", str(database)]) == 0
    assert f"{path}: more than" in capsys.readouterr().err
    assert ingestion.load_files(warehouse, [path]).compacted == (path,)
    rows = warehouse.query("SELECT * FROM raw_benchmark_data").dicts()
    values = {
        (result.result_id, one.launch): one.values
        for result in run.results
        for one in result.samples
        if one.metric == "latency_wall"
    }
    assert len(rows) >= len(values) == 6
    for row in rows:
        own = values[row["result_id"], row["launch"]]
        assert (row["samples"], row["sample_count"]) == ([], 500)
        np.testing.assert_allclose(row["sketch"], np.quantile(own, QUANTILES), rtol=1e-12)
        np.testing.assert_allclose(
            [row["mean"], row["median"], row["p99"]], [np.mean(own), np.median(own), np.quantile(own, 0.99)], rtol=1e-12
        )
    assert verify(warehouse) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"values":[', '"values":[1,,', "expected a list of numbers in number 1 of the file"),
        ('"values":[', '"values":[true,', "missing|expected a number|expected a list of numbers"),
        ('"values":[', '"values":[1,null,', "expected a list of numbers in number 1 of the file: more than numbers"),
        ('"values":[', '"values":[1,[2],', "expected a list of numbers in number 1 of the file"),
        ('"values":[', '"values":[1e400,', "expected numbers from -1e.300 to 1e.300, found inf"),
        ('"values":[', '"values":[1e308,', "expected numbers from -1e.300 to 1e.300, found 1e.308"),
        ('"values":[', '"values":[' + "1" * 5000 + ",", "expected numbers from"),
        ('"values":[', '"values":[NaN,', "NaN is not a number|expected a number"),
        ('"settings":{', '"settings":{"a":NaN,', "NaN is not a number"),
        ('"settings":{', '"settings":{"a":Infinity,', "Infinity is not a number"),
        ('"settings":{', '"settings":{"a":' + "[" * 900 + "]" * 900 + ",", "nested more than 64 levels deep"),
        ('"origin":null}', '"origin":null', "not JSON, or truncated"),
        ('],"inner_loops"', "", "not JSON, or truncated|expected a list of numbers"),
    ],
)
def test_a_bad_large_run_file_is_refused_in_a_line(spool_run, streamed, old, new, reason):
    path, _ = spool_run(launches=1, iterations=50)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1) if new else text[: text.index(old)])
    streamed()
    with pytest.raises(FormatError, match=reason) as caught:
        run_file.read_run(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_limits_of_a_launch_and_of_the_rest_are_named(spool_run, streamed, monkeypatch):
    path, _ = spool_run(launches=1, iterations=50)
    streamed()
    monkeypatch.setattr(run_file, "MAX_LAUNCH", 40)
    with pytest.raises(FormatError, match="samples: more than 40 of one launch and metric"):
        run_file.read_run(path)
    monkeypatch.setattr(run_file, "MAX_REST_BYTES", 1000)
    with pytest.raises(FormatError, match=r"more than 0\.001 MB without its samples"):
        run_file.read_run(path)


def test_large_samples_are_a_sequence_of_their_values():
    values = LargeSamples(array("d", [3.0, 1.0, 2.0]))
    assert (list(values), len(values), values[-1], values[:2]) == ([3.0, 1.0, 2.0], 3, 2.0, array("d", [3.0, 1.0]))
    assert (values.least, values.mean, values.median, values.p99) == (1.0, 2.0, 2.0, None)
    assert list(LargeSamples(array("d"))) == []


def long_run(make_run, path, megabytes):
    """A run file with eight launches of one result, of about so many megabytes."""
    launches, count = 8, megabytes * 1_000_000 // (8 * 18)
    numbers = tuple(12.5 + i / 7e6 for i in range(1000))
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,), launches=1, iterations=1)
    (result,) = run.results
    one = Samples(launch=0, phase="measure", metric="latency_wall", unit="ms", started_at=run.started_at, values=())
    samples = tuple(dataclasses.replace(one, launch=launch) for launch in range(launches))
    rounds = count // len(numbers)
    result = dataclasses.replace(
        result,
        launches=launches,
        iterations=launches * rounds * len(numbers),
        samples=samples,
        metrics={**result.metrics, "latency_median_ms": median(numbers)},
    )
    text = ",".join(map(repr, numbers))
    head, *others = dumps(dataclasses.replace(run, results=(result,))).split('"values":[')
    with path.open("w") as written:
        written.write(head)
        for other in others:
            written.write('"values":[' + ",".join([text] * rounds) + other)
    return path


def test_memory_is_bounded_by_the_stored_samples(tmp_path, database, make_run):
    """Read at once, 40 MB more of samples took 200 MB more."""
    peaks_mb = []
    for megabytes in (20, 60):
        path = long_run(make_run, tmp_path / f"{megabytes}.json", megabytes)
        assert path.stat().st_size > 0.9 * megabytes * 1e6
        command = [
            sys.executable,
            "-c",
            PEAK.replace("with", "import benchmarking.core.run_file; benchmarking.core.run_file.MAX_RAW = 10\nwith", 1),
        ]
        done = subprocess.run([*command, str(database), str(path)], capture_output=True, text=True, check=True)
        refused, peak_kb = done.stdout.splitlines()
        assert refused == "()"
        peaks_mb.append(int(peak_kb) / 1000)
    assert peaks_mb[1] - peaks_mb[0] < 30
