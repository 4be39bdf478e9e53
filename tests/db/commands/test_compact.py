"""Compacting raw samples: every statistic stays, quantiles are exact, nothing else is touched, and it is done once."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarking.core.metrics import JUDGED
from benchmarking.core.records import Samples
from benchmarking.core.run_file import MIN_SAMPLES, QUANTILES, STEPS
from benchmarking.core.sample_statistics import TAIL_MIN_SAMPLES
from db.analysis.compare.stored_results import launch_values
from db.commands.compact import main
from db.upkeep.merging import merge
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.load import make_load, make_requests
from tests.helpers.records import with_own_median

ONE = {"batch_sizes": (1,), "sequence_lengths": (32,)}
OLD, NEW = {"started_at": "2020-01-02T00:00:00Z"}, {"started_at": "2100-01-02T00:00:00Z"}
KEPT = "result_id, launch, phase, metric, unit, started_at, inner_loops, sample_count, mean, median, p99"
KILLED = """
import os, signal, sys
from db.warehouse import Warehouse
print("go", flush=True)
with Warehouse.open(sys.argv[1]) as warehouse:
    compact.replace_samples(warehouse, [r["result_id"] for r in warehouse.query("FROM benchmark_results").dicts()])
Warehouse.compact(sys.argv[1])
"""


def noisy(run, seed):
    """The run with samples that are not evenly spread."""
    rng = random.Random(seed)
    result = run.results[0]
    samples = tuple(replace(s, values=tuple(rng.lognormvariate(2, 0.1) for _ in s.values)) for s in result.samples)
    return replace(run, results=(with_own_median(replace(result, samples=samples)),))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return tmp_path_factory.mktemp("template") / "a.duckdb"


@pytest.fixture
def filled(template, tmp_path, empty_database, make_run):
    """An old run with samples enough for a p99, an old one with few, a new one."""
    if not template.exists():
        shutil.copy2(empty_database, template)
        with Warehouse.open(template) as warehouse:
            warehouse.ingest(noisy(make_run(**ONE, **OLD, iterations=400), 1))
            warehouse.ingest(noisy(make_run(**ONE, **OLD, iterations=41, model_id="gpt2"), 2))
            warehouse.ingest(noisy(make_run(**ONE, **NEW, iterations=400), 3))
    return Path(shutil.copy2(template, tmp_path / "b.duckdb"))


def rows(path, sql):
    with Warehouse.open(path) as warehouse:
        return warehouse.query(sql).dicts()


def run(path, *arguments):
    return main(["--raw-older-than", "180d", "--db-path", str(path), *arguments])


def test_old_long_rows_become_quantiles_and_every_statistic_stays(filled, capsys):
    every = "SELECT * FROM benchmark_results ORDER BY result_id"
    launches = f"SELECT {KEPT} FROM raw_benchmark_data ORDER BY ALL"
    before = rows(filled, every), rows(filled, launches)
    samples = {
        (row["result_id"], row["launch"]): row["samples"]
        for row in rows(filled, "SELECT result_id, launch, samples FROM raw_benchmark_data")
    }
    assert run(filled, "--yes") == 0
    assert (rows(filled, every), rows(filled, launches)) == before
    found = rows(filled, "SELECT result_id, launch, samples, sketch, compacted_at FROM raw_benchmark_data")
    replaced = [row for row in found if row["compacted_at"] is not None]
    assert len(replaced) == 3
    for row in replaced:
        values = samples[row["result_id"], row["launch"]]
        assert row["samples"] == []
        np.testing.assert_allclose(row["sketch"], np.quantile(values, QUANTILES), rtol=1e-12)
        assert (row["sketch"][0], row["sketch"][-1]) == (min(values), max(values))
    for row in found:
        if row["compacted_at"] is None:
            assert (row["samples"], row["sketch"]) == (samples[row["result_id"], row["launch"]], None)
    with Warehouse.open(filled) as warehouse:
        assert verify(warehouse) == []
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("1 200 raw samples of 1 result in runs before ")
    assert second == "become 63 quantiles: 21 per launch and metric (3)"


def test_the_quantiles_include_every_stored_one_and_are_finer_than_noise():
    assert {0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0} <= set(QUANTILES)
    assert 1.36 / np.sqrt(739) > 1 / STEPS > 1.36 / np.sqrt(740)
    assert TAIL_MIN_SAMPLES[0.90] < MIN_SAMPLES == 42


def test_judging_sees_no_difference(filled):
    def values():
        with Warehouse.open(filled) as warehouse:
            ids = [row["result_id"] for row in warehouse.query("SELECT result_id FROM benchmark_results").dicts()]
            return [launch_values(warehouse, ids, JUDGED[name]) for name in ("latency_median_ms", "latency_p99_ms")]

    before = values()
    assert any(before[1].values())
    run(filled, "--yes")
    assert values() == before


def test_raw_quantiles_are_the_same_before_and_after_compacting(filled):
    sql = "SELECT result_id, launch, quantile, value, sample_count FROM raw_quantiles ORDER BY ALL"
    before = rows(filled, sql)
    assert len(before) == 9 * 21
    run(filled, "--yes")
    assert rows(filled, sql) == before
    assert rows(filled, "SELECT count(DISTINCT result_id) AS n FROM raw_samples") == [{"n": 2}]


def test_a_second_time_changes_nothing(filled, capsys):
    run(filled, "--yes")
    before = filled.read_bytes()
    capsys.readouterr()
    assert run(filled, "--yes") == 0
    assert filled.read_bytes() == before
    assert "3 compacted already" in capsys.readouterr().out


def test_a_dry_run_measures_on_a_copy_and_changes_nothing(filled, capsys):
    before = filled.read_bytes()
    assert run(filled, "--dry-run", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["results"], report["rows"], report["samples"], report["quantiles"]) == (1, 3, 1200, 63)
    assert report["short_rows"] == 3
    sizes = report["measured_on_a_copy"]
    assert sizes["before_bytes"] == len(before)
    assert sizes["after_bytes"] <= sizes["rewritten_bytes"]
    assert filled.read_bytes() == before
    assert [entry.name for entry in filled.parent.iterdir()] == [filled.name]


def test_token_arrivals_are_dropped_with_their_gaps_and_the_load_still_merges(filled, tmp_path, capsys):
    gaps = (make_samples("inter_token_latency", 60), make_samples("inter_token_latency", 30))
    hidden = make_requests(tokens_out=(20, None), tokens_counted_by=("hidden", None))
    loads = [with_samples(make_load(rates=(1.0,), **OLD), one) for one in (*gaps, gaps[0])]
    loads[2] = replace(loads[2], results=(replace(loads[2].results[0], requests=(hidden,)),))
    for path in (filled, Path(shutil.copy2(filled, tmp_path / "other.duckdb"))):
        with Warehouse.open(path) as warehouse:
            for load in loads:
                warehouse.ingest(load)
    assert run(filled, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["arrivals"] == 2
    times = "SELECT * EXCLUDE (chunks) FROM request_times ORDER BY ALL"
    before = rows(filled, times)
    assert run(filled, "--yes") == 0
    assert "2 token arrival times are dropped" in capsys.readouterr().out
    assert rows(filled, times) == before
    chunks = rows(filled, "SELECT result_id, list(chunks ORDER BY ordinal) AS n FROM request_times GROUP BY result_id")
    dropped, short, uncounted = (load.results[0].result_id for load in loads)
    assert {row["result_id"]: row["n"] for row in chunks} == {dropped: [None, 0], short: [2, 0], uncounted: [2, 0]}
    with Warehouse.open(filled) as warehouse:
        assert verify(warehouse) == []
        assert merge(warehouse, tmp_path / "other.duckdb").added["requests"] == 0


def make_samples(metric, count):
    values = tuple(1.0 + place / 100 for place in range(count))
    return Samples(
        launch=0, phase="measure", metric=metric, unit="ms", started_at="2020-01-02T00:00:00Z", values=values
    )


def with_samples(load, samples):
    (result,) = load.results
    return replace(load, results=(replace(result, samples=(*result.samples, samples)),))


def test_a_selection_narrows_it(filled):
    run(filled, "--yes", "model=gpt2")
    assert rows(filled, "SELECT count(*) AS n FROM raw_benchmark_data WHERE compacted_at IS NOT NULL") == [{"n": 0}]
    run(filled, "--yes", "model=bert-base-uncased,validity=valid")
    assert rows(filled, "SELECT count(*) AS n FROM raw_benchmark_data WHERE compacted_at IS NOT NULL") == [{"n": 3}]


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 6), ("n\n", 2, 9), ("", 2, 9)])
def test_it_asks_for_confirmation(filled, monkeypatch, capsys, answer, code, left):
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert run(filled) == code
    out, err = capsys.readouterr()
    assert "Replace them? [y/N] " in err
    assert ", measured on a copy (" in out
    assert rows(filled, "SELECT count(*) AS n FROM raw_benchmark_data WHERE compacted_at IS NULL") == [{"n": left}]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--raw-older-than", "180"], 2, "expected days or weeks such as 180d or 26w: got '180'"),
        (["--raw-older-than", "-3d"], 2, "--raw-older-than: expected"),
        ([], 2, "the following arguments are required: --raw-older-than"),
        (["--raw-older-than", "180d", "colour=red"], 2, "unknown selection 'colour'"),
        (["--raw-older-than", "999999d"], 2, "expected an age within the calendar: got '999999d'"),
        (["--raw-older-than", "180d", "--db-path", "gone.duckdb"], 1, "no database at gone.duckdb"),
        (["--raw-older-than", "180d"], 2, "check with --dry-run, then add --yes"),
        (["--raw-older-than", "180d", "--yes", "sql:1) OR (DROP TABLE series"], 2, "syntax error at or near"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_touched(filled, monkeypatch, capsys, arguments, code, words):
    before = filled.read_bytes()
    monkeypatch.setenv("BENCHMARK_DB_PATH", str(filled))
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert filled.read_bytes() == before


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("UPDATE raw_benchmark_data SET sketch = list_reverse(sketch)", "have quantiles that are not in order"),
        ("UPDATE raw_benchmark_data SET sketch = NULL", "were compacted, but have no quantiles"),
        ("UPDATE raw_benchmark_data SET compacted_at = NULL", "have quantiles, but were not compacted"),
        ("UPDATE raw_benchmark_data SET sample_count = 5", "iterations in 3 launches, but 15 raw samples"),
        ("UPDATE raw_benchmark_data SET median = 2 * median", "have another median"),
        ("UPDATE raw_benchmark_data SET p99 = 2 * p99", "have a mean or p99 beyond their least or greatest"),
        ("UPDATE raw_benchmark_data SET samples = [1.0]", "were compacted, but are stored"),
    ],
)
def test_verify_still_finds_faults_in_a_compacted_file(filled, fault, words):
    run(filled, "--yes")
    with Warehouse.open(filled) as warehouse:
        warehouse.query(f"{fault} WHERE compacted_at IS NOT NULL")
        assert any(words in finding.problem for finding in verify(warehouse))


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_after_a_kill_a_row_has_all_samples_or_all_quantiles(filled):
    whole = rows(filled, f"SELECT {KEPT} FROM raw_benchmark_data ORDER BY ALL")
    for moment_s in (0.0, *(random.uniform(0.0, 0.6) for _ in range(3))):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(filled)], stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"go\n"
            time.sleep(moment_s)
            process.send_signal(signal.SIGKILL)
        with Warehouse.open(filled) as warehouse:
            assert verify(warehouse) == []
        compacted = rows(filled, "SELECT count(*) AS n FROM raw_benchmark_data WHERE compacted_at IS NOT NULL")
        assert compacted in ([{"n": 0}], [{"n": 6}])
        assert rows(filled, f"SELECT {KEPT} FROM raw_benchmark_data ORDER BY ALL") == whole
