"""Load tests are stored by default: not in the database of whoever runs the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The default database of each file of load tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHMARK_DB_PATH", str(tmp_path_factory.mktemp("database") / "loads.duckdb"))
        yield
