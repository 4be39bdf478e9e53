"""A recorded file of every importer in one warehouse, stored once and verified."""

from __future__ import annotations

import shutil

import pytest

from benchmarking.core import plugins
from db.importers.support.files import NoResultsError, read_file
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

IMPORTS = FIXTURES / "imports"


def runs_of_each():
    """(file, run) of the first recorded file of each importer that has runs in it."""
    for name in plugins.by_name("db.importers"):
        files = map(read_file, sorted(path for path in (IMPORTS / name).rglob("*") if path.is_file()))
        found = ((file, runs_in(file, name)) for file in files)
        file, runs = next(((file, runs) for file, runs in found if runs), (None, []))
        yield from ((file, run) for run in runs)


def runs_in(file, name):
    try:
        return list(importer_for(file, name).runs(file))
    except NoResultsError:
        return []


@pytest.fixture(scope="module")
def imported(tmp_path_factory, empty_database):
    """A warehouse with all of them."""
    path = shutil.copy2(empty_database, tmp_path_factory.mktemp("imported") / "all.duckdb")
    with Warehouse.open(path) as opened:
        for file, run in runs_of_each():
            opened.ingest(run, source=str(file.path), source_sha256=file.sha256)
        yield opened


def test_a_warehouse_of_all_recorded_files_verifies(imported):
    stored = {row["run_id"] for row in imported.query("SELECT run_id FROM benchmark_runs").dicts()}
    assert stored == {run.run_id for _, run in runs_of_each()}
    assert verify(imported) == []


def test_every_recorded_format_has_an_importer_also_where_several_share_a_module():
    recorded = {path.name for path in IMPORTS.iterdir() if path.is_dir()}
    assert recorded == recorded & set(plugins.by_name("db.importers"))
    assert len(plugins.by_name("db.importers")) > len(plugins.names("db.importers"))


def test_importing_again_adds_nothing(imported, row_counts):
    before = row_counts(imported)
    assert not any(imported.ingest(run, source_sha256=file.sha256) for file, run in runs_of_each())
    assert row_counts(imported) == before


def test_each_result_has_its_tools_definition(imported):
    sql = "SELECT count(*) AS n FROM all_results WHERE origin_definition IS NULL OR origin_format IS NULL"
    assert imported.query(sql).dicts() == [{"n": 0}]


def test_numbers_with_different_definitions_never_share_a_series(imported):
    sql = "SELECT series_id FROM all_results GROUP BY series_id HAVING count(DISTINCT origin_definition) > 1"
    assert imported.query(sql).dicts() == []
