"""Merging: every row once, whoever is merged into whom and how often; what contradicts is refused whole, and named."""

import json
import os
import shutil
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from benchmarking.core.errors import FormatError, LockedError, UsageError
from benchmarking.core.quality import Quality, QualityValue
from benchmarking.core.records import Doubt, Origin
from benchmarking.core.run_file import MIN_SAMPLES
from db import ingestion
from db.commands import compact
from db.commands.merge import main
from db.ingestion import FileRuns
from db.run_records import qualities, store_quality
from db.upkeep.merging import Alias, ConflictError, merge, united_aliases
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.databases import leave_log
from tests.helpers.load import make_load

STORED = {"benchmark_runs": ["source", "source_sha256", "ingested_at"], "raw_benchmark_data": ["compacted_at"]}
"""Columns that tell of the storing."""
TABLES = (
    *("hardware_info", "series", "benchmark_runs", "benchmark_results", "raw_benchmark_data", "requests"),
    *("series_alias", "series_heads", "change_points", "alerts", "annotations"),
)
ONE = {"batch_sizes": (1,), "sequence_lengths": (32,)}
LONG = {**ONE, "iterations": 50, "launches": 2}
ALIAS = "INSERT INTO series_alias VALUES (?, ?, ?, ?)"
NOTE = "INSERT INTO annotations VALUES (?, 'run', ?, 'me', ?, '2026-03-01'::TIMESTAMP)"
ALERT = """
INSERT INTO alerts (alert_id, series_id, metric, triage, detector, detector_version, parameters,
    created_at, updated_at)
SELECT 'one', min(series_id), 'latency_median_ms', ?, 'gate', '1', '{}', '2026-03-01'::TIMESTAMP, ?::TIMESTAMP
FROM series
"""


def contents(warehouse):
    """Every table's rows, in no order, without what tells of the storing."""
    found = {}
    for table in TABLES:
        apart = STORED.get(table, [])
        rows = warehouse.query(f"SELECT * FROM {table}").dicts()
        found[table] = sorted(repr({name: value for name, value in row.items() if name not in apart}) for row in rows)
    return found


def contents_of(path):
    with Warehouse.open(path) as warehouse:
        return contents(warehouse)


def verified(path):
    with Warehouse.open(path) as warehouse:
        return verify(warehouse)


@pytest.fixture
def make(tmp_path, empty_database):
    """A function that makes a warehouse file of runs, with a function to be called on it."""

    def make(name, *runs, change=None):
        path = Path(shutil.copy2(empty_database, tmp_path / f"{name}.duckdb"))
        with Warehouse.open(path) as warehouse:
            warehouse.ingest_files(
                [FileRuns(runs=[one], source=f"/{name}/{one.run_id}.json", source_sha256=one.run_id) for one in runs]
            )
            if change is not None:
                change(warehouse)
        return path

    return make


def into(target, *others, **options):
    with Warehouse.open(target) as warehouse:
        return [merge(warehouse, other, **options) for other in others]


def test_new_rows_are_added_and_existing_rows_stay(make, make_run):
    shared, mine, theirs = make_run(**ONE), make_run(**ONE), make_run(**ONE, model_id="gpt2")
    target, other = make("a", shared, mine), make("b", shared, theirs)
    before = other.read_bytes()
    (merged,) = into(target, other)
    assert {table: count for table, count in merged.added.items() if count} == {
        "series": 1,
        "benchmark_runs": 1,
        "benchmark_results": 1,
        "raw_benchmark_data": 90,
    }
    assert merged.present == 1
    assert verified(target) == []
    assert contents_of(target) == contents_of(make("all", shared, mine, theirs))
    assert other.read_bytes() == before


def test_a_dry_run_counts_the_same_and_changes_nothing(make, make_run):
    target, other = make("a", make_run(**ONE)), make("b", make_run(**ONE, model_id="gpt2"))
    before = target.read_bytes()
    with Warehouse.open(target, read_only=True) as warehouse:
        planned = merge(warehouse, other, dry_run=True)
    assert target.read_bytes() == before
    assert into(target, other) == [planned]


def test_a_quality_measured_later_joins_the_run_that_both_have(make, make_run):
    run = make_run(**ONE)
    found = Quality(inputs="i", values={"kl_divergence": QualityValue(value=0.01)}, how={"windows": 16})
    ours, theirs = make("ours", run), make("theirs", run, change=lambda one: store_quality(one, {run.run_id: found}))
    for _ in range(2):
        into(ours, theirs)
        with Warehouse.open(ours) as warehouse:
            assert qualities(warehouse, [run.run_id]) == {run.run_id: found}
    assert [one.added["quality_results"] for one in into(make("empty"), theirs)] == [1]  # of a new run
    with Warehouse.open(make("again", run)) as warehouse:  # the same from a file
        assert not warehouse.ingest(replace(run, quality=found), source_sha256="other")
        assert qualities(warehouse, [run.run_id]) == {run.run_id: found}


def test_measures_of_quality_that_are_missing_here_are_added_to_those_of_the_same_run(make, make_run):
    run, divergence = make_run(**ONE), {"kl_divergence": QualityValue(value=0.01)}
    here = Quality(inputs="i", values=divergence, how={"seconds": 3})
    there = Quality(inputs="i", values={**divergence, "perplexity": QualityValue(value=9.0)}, how={"seconds": 4})
    ours, theirs = (
        make(name, run, change=lambda one, found=found: store_quality(one, {run.run_id: found}))
        for name, found in (("ours", here), ("theirs", there))
    )
    into(ours, theirs)
    with Warehouse.open(ours) as warehouse:
        assert qualities(warehouse, [run.run_id])[run.run_id].values.keys() == there.values.keys()


def test_a_quality_that_both_measured_stays_and_the_rest_is_added(make, make_run, capsys):
    run, new = make_run(**ONE), make_run(**ONE, model_id="gpt2")
    here, there = (Quality(inputs="i", values={"perplexity": QualityValue(value=one)}, how={}) for one in (9.0, 8.0))
    ours = make("ours", run, change=lambda one: store_quality(one, {run.run_id: here}))
    theirs = make("theirs", run, new, change=lambda one: store_quality(one, {run.run_id: there}))
    for again in (False, True):
        assert main([str(theirs), "--db-path", str(ours)]) == 0
        out, err = capsys.readouterr()
        assert ("added nothing new" if again else "added 1 run") in out
        assert "1 run whose quality both measured, with other outcomes: kept as it is here" in err
        assert err.rstrip().endswith(f": {run.run_id}")
    with Warehouse.open(ours) as warehouse:
        assert qualities(warehouse, [run.run_id]) == {run.run_id: here}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE benchmark_results SET latency_mean_ms = 9", r"result [0-9a-f-]+ differs in latency_mean_ms"),
        ("UPDATE benchmark_runs SET host = 'other', status = 'failed'", r"run [0-9a-f-]+ differs in status, host"),
        (
            "UPDATE raw_benchmark_data SET samples = list_reverse(samples), mean = 7 WHERE launch = 0",
            r"raw samples [0-9a-f-]+ 0 measure latency_wall differs in samples, mean",
        ),
        ("UPDATE hardware_info SET hashed_keys = '{\"a\": 1}'", r"hardware [0-9a-f]+ differs in hashed_keys"),
        ("UPDATE benchmark_runs SET settings = '{\"launches\": 4}'", r"run [0-9a-f-]+ differs in settings"),
        (
            "UPDATE benchmark_runs SET run_id = 'x'; UPDATE benchmark_results SET run_id = 'x'",
            r"result [0-9a-f-]+ differs in run_id; run x comes from the same run file as run",
        ),
    ],
)
def test_different_content_under_the_same_id_is_refused_and_named(make, make_run, change, words):
    shared, new = make_run(**ONE), make_run(**ONE)
    target = make("a", shared)
    other = make("b", shared, change=lambda warehouse: [warehouse.query(one) for one in change.split(";")])
    with Warehouse.open(other) as warehouse:
        warehouse.ingest(new)
    before = contents_of(target)
    with pytest.raises(ConflictError, match=f"b.duckdb: contradicts this database, nothing was added.*{words}"):
        into(target, other)
    assert contents_of(target) == before


def test_an_imported_file_that_another_version_read_otherwise_stays_and_the_rest_is_added(make, make_run, capsys):
    run, new = make_run(**ONE, origin=Origin(format="pyperf", definition="pyperf")), make_run(**ONE)
    later = replace(run, origin=Origin(format="pyperf", definition="the mean of a loop"))
    result_id = run.results[0].result_id

    def noted(warehouse):
        warehouse.query(NOTE, ["note", run.run_id, "a new fan"])
        warehouse.query(ALERT, ["new", "2026-03-01"])
        warehouse.query(
            "UPDATE alerts SET result_id = $1, series_id = (SELECT series_id FROM all_results WHERE result_id = $1)",
            [result_id],
        )
        warehouse.query(
            "INSERT INTO change_points (change_point_id, series_id, metric, state, result_id, run_id, detector, "
            "detector_version, parameters, detected_at) SELECT 'c', series_id, metric, 'suspected', result_id, ?, 'd', "
            "'1', '{}', created_at FROM alerts",
            [run.run_id],
        )

    for here, there in ((run, later), (later, run)):
        target, other = (
            make(f"a{len(here.origin.definition)}", here),
            make(f"b{len(there.origin.definition)}", there, new, change=noted),
        )
        for added in ("1 run", "nothing new"):
            assert main([str(other), "--db-path", str(target)]) == 0
            out, err = capsys.readouterr()
            assert f" added {added}" in out
            assert "1 run of imported files that another version read otherwise there: kept as stored here" in err
            assert err.splitlines()[-1].endswith(f": {run.run_id}")
        with Warehouse.open(target) as warehouse:
            (row,) = warehouse.query(
                "SELECT origin_definition FROM benchmark_runs WHERE origin_format IS NOT NULL"
            ).dicts()
            found = warehouse.query(
                "SELECT annotations.note, alert_id FROM annotations, alerts JOIN all_results USING (series_id)"
            )
        assert row == {"origin_definition": here.origin.definition}
        assert found.dicts() == [{"note": "a new fan", "alert_id": "one"}]
        assert verified(target) == []
    edited = make("edited", later, change=lambda one: one.query("UPDATE benchmark_runs SET source_sha256 = 'other'"))
    with pytest.raises(ConflictError, match="differs in origin"):
        into(make("c", run), edited)


def test_a_note_that_moved_with_corrected_labels_stays_where_it_is(make, make_run, capsys):
    run, corrected = (
        make_run(**ONE, model_id=name, origin=Origin(format="pyperf", definition="pyperf"))
        for name in ("wrong", "right")
    )
    sides = [
        make(one.run_id, one, change=lambda w, about=one: w.query(NOTE, ["note", about.run_id, "a new fan"]))
        for one in (run, corrected)
    ]
    for target, other, own in ((*sides, run), (*reversed(sides), corrected)):
        assert main([str(other), "--db-path", str(target)]) == 0
        assert "1 note about runs labelled or read otherwise here: kept as stored here: note" in capsys.readouterr().err
        with Warehouse.open(target) as warehouse:
            assert warehouse.query("SELECT target_id FROM annotations").dicts() == [{"target_id": own.run_id}]
    changed = make("changed", run, change=lambda w: w.query(NOTE, ["note", run.run_id, "an old fan"]))
    with pytest.raises(ConflictError, match="annotation note differs in note"):
        into(make("again", run, change=lambda w: w.query(NOTE, ["note", run.run_id, "a new fan"])), changed)


def test_the_source_of_a_run_is_not_a_contradiction(make, make_run):
    run = make_run(**ONE)
    target = make("a", run)
    other = make("b", run, change=lambda w: w.query("UPDATE benchmark_runs SET source_sha256 = 'x', source = NULL"))
    (merged,) = into(target, other)
    assert (merged.present, set(merged.added.values())) == (1, {0})
    with Warehouse.open(target) as warehouse:
        (row,) = warehouse.query("SELECT source FROM benchmark_runs").dicts()
    assert row["source"] == f"/a/{run.run_id}.json"


def test_empty_fields_are_not_a_contradiction(make, make_run):
    run = make_run(**ONE)
    sql = 'UPDATE benchmark_runs SET environment = \'{"missing":{},"values":{},"later":null,"new":[]}\''
    (merged,) = into(make("a", run), make("b", run, change=lambda warehouse: warehouse.query(sql)))
    assert merged.present == 1


def test_conflicting_rows_can_be_kept_and_the_rest_added(make, make_run):
    shared, new = make_run(**ONE), make_run(**ONE, model_id="gpt2")
    target = make("a", shared)
    other = make("b", shared, new, change=lambda w: w.query("UPDATE benchmark_results SET latency_mean_ms = 9"))
    (merged,) = into(target, other, keep_own=True)
    assert [conflict.columns for conflict in merged.left_out] == [("latency_mean_ms",)]
    with Warehouse.open(target) as warehouse:
        rows = warehouse.query("SELECT DISTINCT latency_mean_ms AS ms FROM benchmark_results ORDER BY 1").dicts()
    assert [row["ms"] for row in rows] == [8.0, 9.0]


def compacted(warehouse):
    with warehouse.cursor() as cursor:
        ids = [row[0] for row in cursor.execute("SELECT result_id FROM benchmark_results").fetchall()]
    compact.replace_samples(warehouse, ids)


@pytest.mark.parametrize(("ours", "theirs"), [(compacted, None), (None, compacted)])
def test_what_was_compacted_on_either_side_comes_back_from_the_other(make, make_run, ours, theirs):
    load = make_load(rates=(1.0,))
    (result,) = load.results
    gaps = replace(result.samples[0], metric="inter_token_latency", values=(1.0,) * MIN_SAMPLES)
    runs = make_run(**LONG), replace(load, results=(replace(result, samples=(*result.samples, gaps)),))
    target, other = make("a", *runs, change=ours), make("b", *runs, change=theirs)
    (merged,) = into(target, other)
    assert (merged.samples_restored, merged.samples_kept) == ((2, 0) if ours else (0, 2))
    assert contents_of(target) == contents_of(make("full", *runs))


def test_raw_samples_that_one_side_lacks_come_from_the_other(make, make_run):
    run = make_run(**LONG)
    whole = contents_of(make("whole", run))

    def lacking(warehouse):  # as after the run file of a compacted run was loaded
        warehouse.query("DELETE FROM raw_benchmark_data WHERE launch = 0")

    for here, there, samples in ((lacking, None, 50), (None, lacking, 0), (lacking, compacted, 50)):
        target, other = make(f"a{samples}", run, change=here), make(f"b{samples}", run, change=there)
        (merged,) = into(target, other)
        assert (merged.added["raw_benchmark_data"], merged.present) == (samples, 1)
        assert verified(target) == []
        assert there is compacted or contents_of(target) == whole


def test_quantiles_of_other_samples_are_a_contradiction(make, make_run):
    run = make_run(**LONG)
    later = "sketch = list_transform(sketch, lambda x: x + 1)"
    change = f"UPDATE raw_benchmark_data SET mean = mean + 1, median = median + 1, {later}"
    other = make("b", run, change=lambda warehouse: (compacted(warehouse), warehouse.query(change)))
    with pytest.raises(ConflictError, match="differs in mean, median"):
        into(make("a", run), other)


def test_calibration_values_are_computed_from_both(make, make_run):
    def calibrating(name, peak, started_at):
        run = make_run(**ONE, model_id="device-calibration", started_at=started_at)
        workload = replace(run.cell.workload, task=ingestion.CALIBRATION)
        result = replace(run.results[0], metrics={**run.results[0].metrics, "peak_flops_per_sec": peak})
        return replace(run, cell=replace(run.cell, workload=workload), results=(result,))

    older, newer = calibrating("a", 1e9, "2026-01-01T00:00:00Z"), calibrating("b", 2e9, "2026-02-01T00:00:00Z")
    for first, second in ((older, newer), (newer, older)):
        target = make("a", first)
        into(target, make("b", second))
        with Warehouse.open(target) as warehouse:
            assert verify(warehouse) == []
            (row,) = warehouse.query("SELECT peak_flops, first_seen_at FROM hardware_info").dicts()
        assert row == {"peak_flops": {"float32": 2e9}, "first_seen_at": datetime(2026, 1, 1)}


def test_the_newer_triage_of_an_alert_is_kept(make, make_run, capsys):
    run = make_run(**ONE)
    old = make("a", run, change=lambda warehouse: warehouse.query(ALERT, ["new", "2026-03-01"]))
    new = make("b", run, change=lambda warehouse: warehouse.query(ALERT, ["noise", "2026-03-02"]))
    target = make("c", run)
    for order in ((old, new), (new, old)):
        into(target, *order)
        with Warehouse.open(target) as warehouse:
            assert warehouse.query("SELECT triage FROM alerts").dicts() == [{"triage": "noise"}]
    capsys.readouterr()
    for taken in ("1 later triage of an alert", "nothing new"):
        assert main([str(new), "--db-path", str(old)]) == 0
        assert capsys.readouterr().out == f"{new} added {taken}; 1 run already stored\n"


@pytest.mark.parametrize("about", ["results", "last_good", "change_point_id"])
def test_one_change_that_both_raised_is_one_alert_with_the_triage_of_either(make, make_run, about):
    run = make_run(**ONE)
    result_id = run.results[0].result_id

    def raised(alert_id, metric="latency_median_ms", *, triage="new", days=(1, 1)):
        def change(warehouse):
            warehouse.query(ALERT, [triage, f"2026-03-0{days[1]}"])
            warehouse.query(
                "INSERT INTO change_points (change_point_id, series_id, metric, state, result_id, detector, "
                "detector_version, parameters, detected_at) SELECT 'c' || $metric, series_id, $metric, 'suspected', "
                "$result, 'd', '1', '{}', '2026-03-01' FROM alerts",
                {"metric": metric, "result": result_id},
            )
            evidence = {
                "results": [result_id] if about == "results" else [],
                "last_good": result_id if about == "last_good" else None,
            }
            warehouse.query(
                "UPDATE alerts SET alert_id = ?, metric = ?, created_at = ?, relative_change = 0.5, parameters = ?, "
                "change_point_id = ?",
                [
                    *(alert_id, metric, f"2026-03-0{days[0]}", json.dumps(evidence)),
                    f"c{metric}" if about == "change_point_id" else None,
                ],
            )
            warehouse.query(
                "INSERT INTO annotations (annotation_id, target_kind, target_id, note, author, created_at) "
                "VALUES (?, 'alert', ?, 'seen', 'me', '2026-03-01')",
                [f"note of {alert_id}", alert_id],
            )

        return change

    noise, late = raised("b", triage="noise", days=(1, 2)), raised("a", days=(3, 3))
    for first, second, kept in ((noise, late, "b"), (late, noise, "a")):
        target = make(f"target_{kept}", run, change=first)
        for _ in range(2):
            into(target, make(f"other_{kept}", run, change=second))
            with Warehouse.open(target) as warehouse:
                alerts = warehouse.query("SELECT alert_id, triage FROM alerts").dicts()
                notes = warehouse.query("SELECT target_id FROM annotations").dicts()
            assert alerts == [{"alert_id": kept, "triage": "noise"}]
            assert notes == [{"target_id": kept}] * 2
            assert verified(target) == []
        into(target, make(f"third_{kept}", run, change=raised("c", "throughput_samples_per_sec")))
        with Warehouse.open(target) as warehouse:
            assert len(warehouse.query("SELECT alert_id FROM alerts").dicts()) == 2


def test_an_alert_about_changes_that_are_several_here_stays_one_of_its_own(make, make_run):
    def raised(alerts):
        def change(warehouse):
            warehouse.query(ALERT, ["new", "2026-03-01"])
            for alert_id, *results in alerts:
                warehouse.query(
                    "INSERT INTO alerts BY NAME SELECT * REPLACE (? AS alert_id, ?::JSON AS parameters) "
                    "FROM alerts WHERE alert_id = 'one'",
                    [alert_id, json.dumps({"results": results})],
                )
            warehouse.query("DELETE FROM alerts WHERE alert_id = 'one'")

        return change

    run = make_run(**ONE)
    target = make("a", run, change=raised([("b1", "1", "2"), ("b2", "3", "4")]))
    into(target, make("b", run, change=raised([("c1", "1"), ("c2", "3"), ("c3", "2", "4")])))
    with Warehouse.open(target) as warehouse:
        alerts = warehouse.query("FROM alerts ORDER BY alert_id").dicts()
    assert [one["alert_id"] for one in alerts] == ["b1", "b2", "c3"]


def test_an_alert_keeps_what_either_version_knows_and_a_change_point_its_last_search(make, make_run):
    first, second = make_run(**ONE, started_at="2026-01-01T00:00:00Z"), make_run(**ONE)
    ids = [run.results[0].result_id for run in (first, second)]

    def older(warehouse):
        warehouse.query(ALERT, ["new", "2026-03-01"])
        warehouse.query(
            "INSERT INTO change_points (change_point_id, series_id, metric, state, result_id, detector, "
            "detector_version, parameters, detected_at) SELECT 'c', series_id, metric, 'suspected', ?, 'd', '1', '{}', "
            "'2026-03-01' FROM alerts",
            [ids[0]],
        )
        parameters = json.dumps({"low": 1.5, "results": ids[:1]})
        warehouse.query("UPDATE alerts SET result_id = ?, parameters = ?", [ids[0], parameters])

    def newer(warehouse):
        older(warehouse)
        warehouse.query("UPDATE change_points SET state = 'confirmed', value_after = 2")
        parameters = json.dumps({"low": 1.5, "results": ids})
        learned = "confirmed_by = ?, change_point_id = 'c', parameters = ?"
        warehouse.query(f"UPDATE alerts SET {learned}", [ids[1], parameters])

    def triaged(warehouse):
        older(warehouse)
        warehouse.query("UPDATE alerts SET triage = 'noise', note = 'a fan', updated_at = '2026-03-02'")

    makers = {"newer": newer, "older": older, "triaged": triaged}
    for order in (("older", "triaged", "newer"), ("triaged", "newer", "older"), ("newer", "older", "triaged")):
        target = make("_".join(order), first, second, change=makers[order[0]])
        into(target, *(make(f"{name}_{order[0]}", first, second, change=makers[name]) for name in order[1:]))
        with Warehouse.open(target) as warehouse:
            (alert,) = warehouse.query("SELECT * FROM alerts").dicts()
            (change,) = warehouse.query("SELECT state, value_after FROM change_points").dicts()
        assert (alert["triage"], alert["note"], alert["updated_at"].day) == ("noise", "a fan", 2)
        assert (alert["confirmed_by"], alert["change_point_id"]) == (ids[1], "c")
        assert json.loads(alert["parameters"]) == {"low": 1.5, "results": sorted(ids)}
        assert tuple(change.values()) == (("confirmed", 2.0) if order[0] == "newer" else ("suspected", None))
        assert verified(target) == []


def test_an_alert_names_again_what_was_deleted_and_nothing_that_is_not_stored(make, make_run):
    first, second = make_run(**ONE, started_at="2026-01-01T00:00:00Z"), make_run(**ONE)

    def confirmed(by):
        def change(warehouse):
            warehouse.query(ALERT, ["new", "2026-03-01"])
            warehouse.query("UPDATE alerts SET result_id = ?, confirmed_by = ?", [first.results[0].result_id, by])

        return change

    def stored(path):
        with Warehouse.open(path) as warehouse:
            return [row["confirmed_by"] for row in warehouse.query("SELECT confirmed_by FROM alerts").dicts()]

    by = second.results[0].result_id
    target, backup = (make(name, first, second, change=confirmed(by)) for name in ("live", "backup"))
    with Warehouse.open(target) as warehouse:
        warehouse.remove_runs([second.run_id])
    into(target, make("damaged", first, change=confirmed("a result that is gone")), keep_own=True)
    assert stored(target) == [None]
    into(target, backup)
    assert stored(target) == [by]


def test_the_latest_results_of_a_series_are_computed_from_both(make, make_run):
    old, new = make_run(**ONE, started_at="2026-01-01T00:00:00Z"), make_run(**ONE, started_at="2026-02-01T00:00:00Z")
    target = make("a", new)
    into(target, make("b", old))
    with Warehouse.open(target) as warehouse:
        (row,) = warehouse.query("SELECT run_id FROM latest_results").dicts()
    assert row["run_id"] == new.run_id


def alias(canonical, reason="renamed", day=1):
    return Alias(canonical=canonical, reason=reason, created_at=datetime(2026, 1, day))


def test_aliases_of_both_are_followed_to_the_end():
    found, clashing = united_aliases({"a": alias("b")}, {"b": alias("c")})
    assert ({series: one.canonical for series, one in found.items()}, clashing) == ({"a": "c", "b": "c"}, [])
    again, clashing = united_aliases(found, {"a": alias("b")})
    assert (again, clashing) == (found, [])


def test_the_earlier_of_two_reasons_for_an_alias_is_kept():
    both = {"a": alias("b", "second", 2)}, {"a": alias("b", "first", 1)}
    assert united_aliases(*both) == united_aliases(*reversed(both)) == ({"a": alias("b", "first", 1)}, [])


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        ({"a": "b"}, {"a": "c"}, ["series a is an alias of b and of c"]),
        ({"a": "b"}, {"b": "a"}, ["series a is an alias of itself", "series b is an alias of itself"]),
        ({"a": "b", "b": "d"}, {"a": "c"}, ["series a is an alias of c and of d"]),
    ],
)
def test_aliases_that_contradict_are_named(mine, theirs, words):
    sides = ({series: alias(canonical) for series, canonical in side.items()} for side in (mine, theirs))
    _, clashing = united_aliases(*sides)
    assert [str(conflict) for conflict in clashing] == words


def test_a_series_with_two_aliases_is_refused(make, make_run):
    run = make_run(batch_sizes=(1, 2, 4), sequence_lengths=(32,))
    target, other = make("a", run), make("b", run)
    for path, which in ((target, 1), (other, 2)):
        with Warehouse.open(path) as warehouse:
            ids = [row["id"] for row in warehouse.query("SELECT series_id AS id FROM series ORDER BY id").dicts()]
            warehouse.query(ALIAS, [ids[0], ids[which], "renamed", datetime(2026, 1, 1)])
    with pytest.raises(ConflictError, match=f"series {ids[0]} is an alias of {ids[1]} and of {ids[2]}"):
        into(target, other)


def test_an_older_schema_is_upgraded_in_a_copy(make, make_run, file_of_version, tmp_path):
    run = make_run(**ONE)
    old = file_of_version(2, tmp_path / "old.duckdb", run)
    before = old.read_bytes()
    target = make("a")
    (merged,) = into(target, old)
    assert merged.added["benchmark_runs"] == 1
    assert old.read_bytes() == before
    assert into(target, make("b", run))[0].present == 1  # what is worked out otherwise since then is no contradiction


def test_an_import_of_an_older_version_is_the_same_run_though_it_states_what_the_file_did_not(
    make, make_run, file_of_version, tmp_path
):
    """Also where an upgrade cannot tell: the start of the last test as the end, 0 calls before the timed ones."""
    run = make_run(**ONE, origin=Origin(format="pyperf", definition="pyperf"))
    (result,) = run.results
    then = replace(result, samples=(), iterations=0, warmup_iterations=0)
    older = replace(run, finished_at="2026-03-01T12:00:07Z", results=(then,))
    newer = replace(
        run, finished_at=None, results=(replace(result, samples=(), iterations=None, warmup_iterations=None),)
    )
    target = make("a", newer)
    assert into(target, file_of_version(12, tmp_path / "old.duckdb", older))[0].present == 1
    with Warehouse.open(target) as warehouse:
        assert not warehouse.ingest(older), "nor is its run file, which an older version wrote"
        (row,) = warehouse.query("SELECT finished_at, iterations FROM all_results").dicts()
    assert set(row.values()) == {None}
    other = replace(newer, results=(replace(newer.results[0], iterations=7),))
    (merged,) = into(make("c", other), make("d", replace(other, results=(replace(other.results[0], iterations=8),))))
    assert merged.read_otherwise == (run.run_id,)


def test_rows_with_dangling_references_are_not_merged(make, make_run):
    target = make("a")
    other = make("b", make_run(**ONE), change=lambda warehouse: warehouse.query("DELETE FROM series"))
    with pytest.raises(FormatError, match=r"b\.duckdb is damaged: .* refers to series_id .*, which is not in series"):
        into(target, other)


def test_a_log_left_by_a_killed_process_is_read_too(make, make_run, database, spool_run):
    path, _ = spool_run(**ONE)
    leave_log(database, path)
    assert database.with_name(f"{database.name}.wal").exists()
    (merged,) = into(make("a"), database)
    assert merged.added["benchmark_runs"] == 1


def test_a_warehouse_in_use_is_waited_for(make, make_run, holding):
    target, other = make("a"), make("b", make_run(**ONE))
    with holding(other), pytest.raises(LockedError):
        into(target, other, lock_timeout_s=0.1)
    with holding(other, seconds=0.5):
        assert into(target, other, lock_timeout_s=60)[0].added["benchmark_runs"] == 1


def test_a_warehouse_is_not_merged_into_itself(make, tmp_path):
    target = make("a")
    (tmp_path / "link.duckdb").symlink_to(target)
    with pytest.raises(UsageError, match="is the database itself"):
        into(target, tmp_path / "link.duckdb")


def test_the_command_merges_what_it_can_and_names_the_rest(make, make_run, tmp_path, capsys):
    shared = make_run(**ONE)
    target, good = make("a", shared), make("good", shared, make_run(**ONE))
    bad = make("bad", shared, change=lambda warehouse: warehouse.query("UPDATE benchmark_runs SET host = 'x'"))
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes\n")
    assert main([str(bad), str(notes), str(good), "--db-path", str(target)]) == 1
    out, err = capsys.readouterr()
    assert out == f"{good} added 1 run, 1 result, 90 raw samples; 1 run already stored\n"
    first, second = err.splitlines()
    assert first.startswith(f"benchhouse merge: refused {bad}: contradicts this database, nothing was added")
    assert first.endswith(f"run {shared.run_id} differs in host")
    assert second == f"benchhouse merge: refused {notes}: not a DuckDB database: choose another path"
    assert main([str(good), "--db-path", str(target)]) == 0
    assert capsys.readouterr().out == f"{good} added nothing new; 2 runs already stored\n"


def test_json_lists_each_conflict(make, make_run, capsys):
    run = make_run(**ONE)
    target = make("a", run)
    other = make("b", run, change=lambda warehouse: warehouse.query("UPDATE benchmark_runs SET host = 'x'"))
    assert main([str(other), "--db-path", str(target), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (refused,) = report["refused"]
    assert refused["conflicts"] == [
        {"table": "benchmark_runs", "subject": run.run_id, "columns": ["host"], "problem": None, "part": None}
    ]


def test_a_dry_run_into_a_missing_file_creates_nothing(make, make_run, tmp_path, capsys):
    other = make("b", make_run(**ONE))
    assert main([str(other), "--db-path", str(tmp_path / "new.duckdb"), "--dry-run"]) == 0
    assert "would add 1 run, 1 result, 90 raw samples, 1 machine, 1 series" in capsys.readouterr().out
    assert not (tmp_path / "new.duckdb").exists()


# The laws. A warehouse is a choice of runs, some of them compacted, with words of its own on findings.

PIECES = st.fixed_dictionaries(
    {
        "runs": st.sets(st.integers(0, 2)),
        "compacted": st.booleans(),
        "alert": st.none() | st.tuples(st.sampled_from(("new", "noise", "method")), st.integers(1, 3)),
        "note": st.booleans(),
        "alias": st.none() | st.integers(1, 3),
    }
)
OURS = {"runs": {0, 2}, "compacted": False, "alert": ("noise", 2), "note": True, "alias": 1}
THEIRS = {"runs": {1, 2}, "compacted": True, "alert": ("method", 3), "note": True, "alias": 2}
LAWS = settings(
    phases=tuple(Phase) if os.environ.get("BENCHHOUSE_TEST_ALL") else (Phase.explicit,),
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def build(tmp_path, empty_database, make_run):
    """A function that makes a new file of a drawn warehouse."""
    noisy = {"validity": "noisy", "doubts": (Doubt(kind="cpu_pressure", severity="noisy"),)}
    runs = [
        make_run(**LONG, started_at="2026-02-03T00:00:00Z"),
        make_run(**LONG, started_at="2026-02-01T00:00:00Z"),
        make_run(batch_sizes=(1, 2), sequence_lengths=(32,), started_at="2026-02-02T00:00:00Z"),
    ]
    runs[0] = replace(runs[0], results=(replace(runs[0].results[0], **noisy),))
    made = {}

    def build(pieces):
        key = repr(pieces)
        if key not in made:
            made[key] = Path(shutil.copy2(empty_database, tmp_path / f"piece{len(made)}.duckdb"))
            with Warehouse.open(made[key]) as warehouse:
                fill(warehouse, [runs[i] for i in sorted(pieces["runs"])], pieces)
        build.count += 1
        return Path(shutil.copy2(made[key], tmp_path / f"copy{build.count}.duckdb"))

    build.count = 0
    return build


def fill(warehouse, runs, pieces):
    warehouse.ingest_all(runs)
    if pieces["compacted"]:
        compacted(warehouse)
    if runs and pieces["note"]:
        warehouse.query(NOTE, [runs[0].run_id, runs[0].run_id, f"about {runs[0].run_id}"])
    if 2 in pieces["runs"]:
        if pieces["alias"]:
            ids = [row["id"] for row in warehouse.query("SELECT series_id AS id FROM series ORDER BY id").dicts()]
            warehouse.query(ALIAS, [*ids, f"reason {pieces['alias']}", datetime(2026, 1, pieces["alias"])])
        if pieces["alert"]:
            triage, day = pieces["alert"]
            warehouse.query(ALERT, [triage, f"2026-03-0{day}"])


@LAWS
@given(a=PIECES, b=PIECES)
@example(a=OURS, b=THEIRS)
def test_merging_is_commutative_and_idempotent(build, a, b):
    ab, ba = build(a), build(b)
    into(ab, build(b))
    into(ba, build(a))
    both = contents_of(ab)
    assert contents_of(ba) == both
    assert verified(ab) == []
    into(ab, ba)
    assert contents_of(ab) == both


@LAWS
@given(a=PIECES, b=PIECES, c=PIECES)
@example(a=OURS, b=THEIRS, c={"runs": {0, 1}, "compacted": False, "alert": None, "note": False, "alias": None})
def test_merging_is_associative(build, a, b, c):
    left, right, bc = build(a), build(a), build(b)
    into(left, build(b), build(c))
    into(bc, build(c))
    into(right, bc)
    assert contents_of(left) == contents_of(right)


def test_a_later_quality_replaces_what_it_measured_and_nothing_else(make, make_run):
    run = make_run(**ONE)
    text = {"perplexity": QualityValue(value=9.0), "kl_divergence": QualityValue(value=0.01)}
    score = {"exact_match": QualityValue(value=0.5, inputs="q")}
    both = Quality(inputs="i", values={**text, **score}, how={"windows": 16, "questions": {"file": "a.jsonl"}})
    later = Quality(
        inputs="j", values={"perplexity": QualityValue(value=8.0)}, missing={"exact_match": "gone"}, how={"windows": 5}
    )
    failed = Quality(inputs="", missing={"perplexity": "failed"}, how={})
    path = make("one", run)
    with Warehouse.open(path) as warehouse:
        for found in (both, later, failed):
            store_quality(warehouse, {run.run_id: found})
        stored = qualities(warehouse, [run.run_id])[run.run_id]
    assert stored.values == {**later.values, **score}
    assert (stored.inputs, stored.missing) == ("j", {})
    assert stored.how == {"windows": 5, "questions": {"file": "a.jsonl"}}
