"""One change has one alert, whoever finds it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from benchmarking.cli import main as cli
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from db.analysis.gate.alerts import (
    StoredAlerts,
    excursions_of,
    has_alert,
    list_alerts,
    raise_alerts,
    set_triage,
    with_recovery,
)
from db.analysis.gate.gate import DETECTOR
from db.analysis.history.changes import regressions, update_changes
from db.analysis.history.histories import histories
from db.analysis.selection import EVERYTHING
from db.commands.check import main as check
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.records import make_run

METRIC = JUDGED[DEFAULT_METRIC]


@pytest.fixture
def nights(tmp_path):
    """Twelve nights without commits; the last four took 30 % longer."""

    def run(night):
        time = (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=night)).strftime("%Y-%m-%dT%H:%M:%SZ")
        slowdown = (1.0 if night < 12 else 1.3) * (1 + 0.002 * (night * 7 % 5))
        one = make_run(batch_sizes=(1,), sequence_lengths=(32,), slowdown=slowdown, started_at=time)
        provenance = replace(one.provenance, git_commit=None, git_commit_time=None)
        return replace(one, provenance=provenance)

    return tmp_path / "w.duckdb", [run(night) for night in range(16)]


def test_a_regression_without_commits_has_one_alert(nights, capsys):
    path, runs = nights
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(runs[:12])
    for run in runs[12:]:
        with Warehouse.open(path) as warehouse:
            warehouse.ingest(run)
        check(["--db-path", str(path)])
    printed = capsys.readouterr().err
    assert printed.count("alerts: 1 new") == 1
    assert printed.count("0 new, 1 already known") == 3
    with Warehouse.open(path) as warehouse:
        update_changes(warehouse, METRIC)
        found = regressions(warehouse, [METRIC])
        stored = raise_alerts(warehouse, found)
        assert (len(found), len(stored.new), len(stored.known)) == (1, 0, 1)
        (alert,) = list_alerts(warehouse, EVERYTHING)
        assert alert["change_point_id"] == found[0].change_point_id
        set_triage(warehouse, [alert["alert_id"]], "noise", None)
        assert raise_alerts(warehouse, found).new == (), "a change that was triaged is not raised again"


@pytest.fixture
def incident(tmp_path, empty_database, write_history):
    """The path of a warehouse whose alert of three slow runs, confirmed and triaged, is followed by runs that it was
    called with."""

    def stored(later):
        path = shutil.copy2(empty_database, tmp_path / "incident.duckdb")
        with Warehouse.open(path) as warehouse:
            results = write_history(warehouse, [10.0, 10.1, 9.9] * 4 + [12.0] * 3 + later)
            with warehouse.transaction() as connection:
                connection.execute(INCIDENT, [json.dumps({"centre": 10.0, "results": results[12:15]}), results[12]])
        return path

    return stored


INCIDENT = f"""
INSERT INTO alerts BY NAME SELECT
    'a1fe5c1' AS alert_id, series_id, 'latency_median_ms' AS metric, 'regression' AS triage, 0.2 AS relative_change,
    '{DETECTOR}' AS detector, '1' AS detector_version, ? AS parameters, TIMESTAMP '2026-03-02 10:00:00' AS created_at,
    TIMESTAMP '2026-03-02 10:00:00' AS updated_at, result_id, result_id AS confirmed_by
FROM all_results WHERE result_id = ?
"""


@pytest.mark.parametrize(
    ("later", "since", "off"),
    [
        ([10.0, 10.1, 9.9], 15, 3),
        ([10.0, 12.1, 9.9], 17, 5),  # only all runs since
        ([10.9, 11.1], None, None),  # the newest has more than half of the change
        ([9.0], 15, 3),  # better than before
        ([], None, None),
    ],
)
def test_an_alert_says_since_which_run_its_series_has_recovered(incident, later, since, off):
    with Warehouse.open(incident(later)) as warehouse:
        (alert,) = with_recovery(warehouse, list_alerts(warehouse, EVERYTHING))
        expected = None if since is None else f"bert-base-uncased-eager-{since}"
        assert (alert["recovered_since"], alert["runs_off"]) == (expected, off)
        unknown = [{**alert, "parameters": {"results": []}}, {**alert, "metric": "kl_divergence"}]
        assert [one["recovered_since"] for one in with_recovery(warehouse, unknown[:1])] == [None]
        assert [one["recovered_since"] for one in with_recovery(warehouse, unknown[1:])] == [None]


def test_an_incident_that_is_over_stays_in_every_answer(incident, capsys):
    """Three runs that come back are no change of level, so nothing else would show them."""
    path = str(incident([10.0, 10.1, 9.9]))
    for words, shown in (
        (
            "regressions",
            "1 open alert of benchhouse check (1 confirmed, 1 recovered since): see benchhouse alert list --db-path "
            f"{path}\n",
        ),
        ("alert list", "bert-base-uncased-eager-15"),
        ("history", "+20.0% 2026-01-13 for 3 runs, back again"),
    ):
        assert cli([*words.split(), "--db-path", path]) == 0
        assert shown in capsys.readouterr().out
    assert cli(["history", "--json", "--db-path", path]) == 0
    (history,) = json.loads(capsys.readouterr().out)
    assert [one["recovered_since"] for one in history["excursions"]] == ["bert-base-uncased-eager-15"]


def test_a_change_of_level_of_the_history_is_not_listed_again(tmp_path, empty_database, write_history):
    path = shutil.copy2(empty_database, tmp_path / "level.duckdb")
    with Warehouse.open(path) as warehouse:
        results = write_history(warehouse, [10.0, 10.1, 9.9] * 4 + [12.0] * 8 + [10.0] * 8)
        with warehouse.transaction() as connection:
            connection.execute(INCIDENT, [json.dumps({"centre": 10.0, "results": []}), results[12]])
        assert excursions_of(warehouse, EVERYTHING, METRIC, [results[12]]) == []
        assert len(excursions_of(warehouse, EVERYTHING, METRIC, [])) == 1


def test_an_alert_about_a_change_in_the_other_direction_is_none_of_this_change(nights):
    path, runs = nights
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(runs)
        update_changes(warehouse, METRIC)
        found = regressions(warehouse, [METRIC])
        (history,), _ = histories(warehouse, EVERYTHING, METRIC)
        (change,) = history.change_points

        def is_known():
            return has_alert(warehouse, history.series_id, METRIC.column, change)

        assert not is_known()
        raise_alerts(warehouse, found)
        assert is_known()
        with warehouse.transaction() as connection:
            connection.execute("UPDATE alerts SET relative_change = -relative_change")
        assert not is_known()
        assert len(raise_alerts(warehouse, found).new) == 1


def test_no_alert_is_raised_about_a_run_that_was_deleted_since_it_was_judged(nights):
    path, runs = nights
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(runs)
        update_changes(warehouse, METRIC)
        found = regressions(warehouse, [METRIC])
        warehouse.remove_runs([runs[12].run_id])
        assert raise_alerts(warehouse, found) == StoredAlerts()
        assert warehouse.query("FROM alerts").dicts() == []


def test_an_alert_stays_when_only_the_run_before_its_change_is_deleted(nights, file_or_lake):
    _, runs = nights
    with Warehouse.open(file_or_lake) as warehouse:
        warehouse.ingest_all(runs)
        update_changes(warehouse, METRIC)
        raise_alerts(warehouse, regressions(warehouse, [METRIC]))
        (before,) = list_alerts(warehouse, EVERYTHING)
        assert before["change_point_id"] is not None
        set_triage(warehouse, [before["alert_id"]], "noise", "a backup")
        warehouse.remove_runs([runs[11].run_id])
        assert verify(warehouse) == []
        (alert,) = list_alerts(warehouse, EVERYTHING)
        columns = ("alert_id", "triage", "note", "result_id", "change_point_id")
        assert [alert[name] for name in columns] == [before["alert_id"], "noise", "a backup", before["result_id"], None]
        update_changes(warehouse, METRIC)
        assert len(raise_alerts(warehouse, regressions(warehouse, [METRIC])).known) == 1
        warehouse.remove_runs([runs[12].run_id])
        assert list_alerts(warehouse, EVERYTHING) == []
