"""One change has one alert, whoever finds it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from db.analysis.gate.alerts import has_alert, list_alerts, raise_alerts, set_triage
from db.analysis.history.changes import regressions, update_changes
from db.analysis.history.histories import histories
from db.analysis.selection import EVERYTHING
from db.commands.check import main as check
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
