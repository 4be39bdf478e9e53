"""After each command that changes a database, `--verify` finds nothing: samples with ties, imports, merges and all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarking.core.records import to_json
from db import setup_benchmark_db
from db.commands import alert, annotate, check, compact, history, import_results, merge, regressions, series
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.paths import ROOT
from tests.helpers.records import with_own_median

VALUES = (0.1, 0.3, 0.7, 1.1, 2.3, 4.9, 9.7)
"""With these, DuckDB's interpolation between equal samples is off by the last digit."""


def tied(run, value):
    """The run with samples that are all equal, but for one in the first launch."""
    changed = []
    for result in run.results:
        samples = tuple(
            replace(one, values=(value * 1.5, *(value for _ in one.values[1:])) if one.launch == 0 else (value,) * 300)
            if (one.phase, one.metric) == ("measure", "latency_wall")
            else one
            for one in result.samples
        )
        timed = sum(len(one.values) for one in samples if (one.phase, one.metric) == ("measure", "latency_wall"))
        changed.append(with_own_median(replace(result, samples=samples, iterations=timed)))
    return replace(run, results=tuple(changed))


@pytest.fixture
def spooled(tmp_path, make_run):
    """Run files of 14 days, the last three with a regression."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for day in range(14):
        model_id = "bert-base-uncased" if day < 13 else "bert-renamed"
        value = VALUES[day % len(VALUES)] / VALUES[0] * 0.1 if day < 7 else 5.0 * (1.0 if day < 11 else 1.6)
        run = make_run(
            model_id=model_id,
            batch_sizes=(1,),
            sequence_lengths=(32,),
            iterations=300,
            started_at=f"2020-01-{day + 1:02}T00:00:00Z",
        )
        (folder / f"{day}.json").write_text(json.dumps(to_json(tied(run, value))))
    return folder


@pytest.mark.slow
def test_every_command_leaves_no_fault(tmp_path, spooled, capsys):
    path, other = tmp_path / "a.duckdb", tmp_path / "b.duckdb"
    database = ["--db-path", str(path)]

    def run(main, *arguments, codes=(0,)):
        assert main([*arguments, *database]) in codes, capsys.readouterr().err
        with Warehouse.open(path, read_only=True) as warehouse:
            assert verify(warehouse) == [], arguments

    files = sorted(spooled.iterdir())
    run(setup_benchmark_db.main, "--ingest", *map(str, files[:1]))
    run(setup_benchmark_db.main, *(word for file in files for word in ("--ingest", str(file))))
    run(import_results.main, str(ROOT / "tests/fixtures/imports/pyperf"), codes=(0, 1))
    run(history.main, "model=bert-base-uncased", codes=(0, 3))
    run(regressions.main, codes=(0, 1, 3))
    run(check.main, codes=(0, 1, 3))
    run(alert.main, "raise", codes=(0, 1, 3))
    with Warehouse.open(path, read_only=True) as warehouse:
        sql = "SELECT series_id FROM series WHERE model_id LIKE 'bert-%' ORDER BY model_id DESC"
        ids = [row["series_id"] for row in warehouse.query(sql).dicts()]
    run(annotate.main, "add", ids[0], "a note")
    run(series.main, "alias", ids[0], ids[1], "--reason", "renamed")
    run(compact.main, "--raw-older-than", "180d", "--yes")
    with Warehouse.open(path, read_only=True) as warehouse:
        assert (
            warehouse.query("SELECT count(*) AS n FROM raw_benchmark_data WHERE len(sketch) > 0").dicts()[0]["n"] > 20
        )
    run(series.main, "unalias", ids[0])
    run(setup_benchmark_db.main, "--compact")
    assert setup_benchmark_db.main(["--db-path", str(other), "--ingest", str(files[0])]) == 0
    run(merge.main, str(other))
    assert setup_benchmark_db.main(["--db-path", str(tmp_path / "c.duckdb"), "--quiet"]) == 0
    assert merge.main([str(path), "--db-path", str(tmp_path / "c.duckdb")]) == 0
    path = tmp_path / "c.duckdb"
    database[:] = ["--db-path", str(path)]
    run(setup_benchmark_db.main, "--backup", str(tmp_path / "d.duckdb"))
    run(setup_benchmark_db.main, "--rebuild-from", str(spooled), codes=(0, 1))
    run(setup_benchmark_db.main, "--overwrite", "--yes")


def test_quantiles_that_rounding_disordered_are_repaired_and_others_are_not(tmp_path, spooled, capsys):
    path = str(tmp_path / "a.duckdb")
    assert setup_benchmark_db.main(["--db-path", path, "--ingest", str(spooled), "--quiet"]) == 0
    assert compact.main(["--raw-older-than", "180d", "--yes", "--db-path", path]) == 0
    swap = "UPDATE raw_benchmark_data SET sketch = list_transform(sketch, lambda x, i: {change}) WHERE {which}"
    ids = "result_id IN (SELECT result_id FROM benchmark_results ORDER BY result_id LIMIT 1 OFFSET {})"
    with Warehouse.open(path) as warehouse, warehouse.transaction() as connection:
        which = f"len(sketch) > 0 AND {ids}"
        connection.execute(swap.format(change="CASE i WHEN 3 THEN x * (1 - 2e-16) ELSE x END", which=which.format(0)))
        connection.execute(swap.format(change="CASE i WHEN 3 THEN x * 0.5 ELSE x END", which=which.format(1)))
    capsys.readouterr()
    assert setup_benchmark_db.main(["--db-path", path, "--verify", "--quiet"]) == 1
    found = capsys.readouterr().out
    assert "not in order, by rounding: run benchhouse setup --repair" in found
    assert setup_benchmark_db.main(["--db-path", path, "--repair", "--verify"]) == 1
    left = capsys.readouterr().out
    assert "repaired: quantiles of" in left
    assert "have quantiles that are not in order\n" in left
    assert "by rounding" not in left
