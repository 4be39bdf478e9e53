"""A database is seen to work before anything is measured."""

from __future__ import annotations

import pytest

from db.commands.prepare_database import main
from db.warehouse import Warehouse


def test_a_missing_database_is_made(tmp_path):
    path = tmp_path / "new.duckdb"
    assert main([str(path)]) == 0
    with Warehouse.open(path, create=False) as warehouse:
        assert warehouse.query("select count(*) as n from benchmark_runs").df().n[0] == 0


@pytest.mark.parametrize("content", [b"text, not a database " * 300, b""])
def test_what_is_no_database_is_named(tmp_path, capsys, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert main([str(path)]) == 1
    assert str(path) in capsys.readouterr().err
