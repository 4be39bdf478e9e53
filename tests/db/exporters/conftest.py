"""Exports of one read-only warehouse."""

from __future__ import annotations

import pytest

from db.analysis.selection import Selection
from db.exporters.support.exporting import ExportRequest, exporters
from db.warehouse import Warehouse


@pytest.fixture
def table_keys():
    """Key by name of the tables that a run goes to."""
    return {
        "hardware_info": "hardware_id",
        "series": "series_id",
        "benchmark_runs": "run_id",
        "benchmark_results": "result_id",
        "raw_benchmark_data": "result_id, launch, phase, metric",
    }


@pytest.fixture
def asked_warehouse(asked_database):
    with Warehouse.open(asked_database, for_questions=True) as warehouse:
        yield warehouse


@pytest.fixture
def export(asked_warehouse, asked_database):
    """A function that exports, and gives the notes on what was left out."""

    def run(name, output=None, selection="", tables=None, warehouse=None):
        (exporter,) = (exporter for exporter in exporters() if exporter.name == name)
        notes = []
        exporter.export(
            warehouse or asked_warehouse,
            ExportRequest(
                selection=Selection.parse(selection).resolved(asked_database),
                output=output,
                tables=tables or exporter.tables[0],
                notify=notes.append,
            ),
        )
        return notes

    return run
