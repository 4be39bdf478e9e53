"""Fixtures of charts, pages and reports: rows, figures drawn from them, and a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarking.core.records import Run
from benchmarking.runtimes.support.browser.browser import find_browser, why_no_browser
from db.ingestion import RUN_TABLES, SHARED_TABLES
from db.warehouse import Warehouse
from tests.helpers.figures import See
from tests.helpers.run_changes import Alter
from visualize.drawing.figure import Figure as Drawing
from visualize.drawing.figure import NotDrawn
from visualize.drawing.picture import picture
from visualize.drawing.rows import Row, Selection, charts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, without a database in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def shared_warehouse() -> Iterator[Warehouse]:
    """One warehouse for all tests, since making one takes longer than a test."""
    with Warehouse.open(":memory:") as warehouse:
        yield warehouse


@pytest.fixture(scope="session")
def charts_of(shared_warehouse: Warehouse) -> Callable[..., Callable[[str], list[Drawing | NotDrawn]]]:
    """Stores runs; the returned function gives the drawings of a chart, and what it did not draw."""

    def store(*runs: Run, **selection: Any) -> Callable[[str], list[Drawing | NotDrawn]]:
        with shared_warehouse.transaction() as connection:
            for table in (*SHARED_TABLES, *RUN_TABLES, "series_heads"):
                connection.execute(f"DELETE FROM {table}")
        shared_warehouse.ingest_all(runs)

        def draw(name: str) -> list[Drawing | NotDrawn]:
            chart = charts()[name]
            return list(chart.draw(chart.rows(shared_warehouse, Selection(**selection))))

        return draw

    return store


@pytest.fixture(scope="session")
def rows_of(shared_warehouse: Warehouse, charts_of: Callable[..., Any]) -> Callable[..., list[Row]]:
    """Rows of a chart for the given runs."""

    def rows(name: str, *runs: Run, **selection: Any) -> list[Row]:
        charts_of(*runs)
        chart = charts()[name]
        return chart.rows(shared_warehouse, Selection(**selection))

    return rows


@pytest.fixture(scope="session")
def outcomes(rows_of: Callable[..., list[Row]]) -> Callable[..., list[Drawing | NotDrawn]]:
    """Drawings of a chart for the given runs, and what it did not draw."""

    def draw(name: str, *runs: Run, **selection: Any) -> list[Drawing | NotDrawn]:
        return list(charts()[name].draw(rows_of(name, *runs, **selection)))

    return draw


@pytest.fixture(scope="session")
def figures(outcomes: Callable[..., list[Drawing | NotDrawn]]) -> Callable[..., list[Figure]]:
    """Figures of a chart for the given runs."""

    def draw(name: str, *runs: Run, **selection: Any) -> list[Figure]:
        return [picture(outcome) for outcome in outcomes(name, *runs, **selection) if isinstance(outcome, Drawing)]

    return draw


@pytest.fixture(scope="session")
def alter() -> type[Alter]:
    return Alter


@pytest.fixture(scope="session")
def see() -> type[See]:
    return See


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium by Playwright; skips without a browser. It is closed after each test file: Playwright's event loop would
    keep other tests of the process from using asyncio or starting another browser."""
    reason = why_no_browser()
    if reason is not None:
        pytest.skip(reason)
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=find_browser(),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        yield chromium
        chromium.close()
