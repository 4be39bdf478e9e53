"""Fixtures of the charts' tests: rows as the warehouse gives them, and figures drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from benchmarking.core import plugins
from benchmarking.core.records import Run
from db.warehouse import RUN_TABLES, SHARED_TABLES, Warehouse
from tests.helpers.figures import See
from tests.helpers.run_changes import Alter
from visualize.drawing.rows import PACKAGE, ChartPlugin, Drawing, NotDrawn, Row, Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@pytest.fixture(scope="session")
def shared_warehouse() -> Iterator[Warehouse]:
    """One warehouse for all tests: making it takes longer than a test."""
    with Warehouse.open(":memory:") as warehouse:
        yield warehouse


@pytest.fixture
def rows_of(shared_warehouse: Warehouse) -> Callable[..., list[Row]]:
    """The rows a chart's query gives of runs."""

    def rows(name: str, *runs: Run, **selection: Any) -> list[Row]:
        for table in (*SHARED_TABLES, *RUN_TABLES, "series_heads"):
            shared_warehouse.query(f"DELETE FROM {table}")
        for run in runs:
            shared_warehouse.ingest(run)
        chart: ChartPlugin = plugins.load(PACKAGE, name)
        return chart.rows(shared_warehouse, Selection(**selection))

    return rows


@pytest.fixture
def outcomes(rows_of: Callable[..., list[Row]]) -> Callable[..., list[Drawing | NotDrawn]]:
    """Everything a chart makes of runs: drawings and what is not drawn."""

    def draw(name: str, *runs: Run, **selection: Any) -> list[Drawing | NotDrawn]:
        return list(plugins.load(PACKAGE, name).draw(rows_of(name, *runs, **selection)))

    return draw


@pytest.fixture
def figures(outcomes: Callable[..., list[Drawing | NotDrawn]]) -> Callable[..., list[Figure]]:
    """The figures a chart draws of runs."""

    def draw(name: str, *runs: Run, **selection: Any) -> list[Figure]:
        return [outcome.figure for outcome in outcomes(name, *runs, **selection) if isinstance(outcome, Drawing)]

    return draw


@pytest.fixture
def alter() -> type[Alter]:
    return Alter


@pytest.fixture
def see() -> type[See]:
    return See
