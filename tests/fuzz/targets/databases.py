"""DuckDB files of strangers: views, macros, other types and rows, changed tables, damaged bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.fuzz.base import copied, database, reading, verifying
from tests.fuzz.mutations import CANARY, CONDITIONS, OUTSIDE, WORDS, bytes_mutated
from tests.fuzz.sandbox import Command, Scratch

TABLES = ("benchmark_runs", "benchmark_results", "raw_benchmark_data", "series", "hardware_info", "schema_migrations")
OTHERS = ("launch_loads", "doubts", "series_heads", "change_points", "alerts", "annotations", "series_alias")
MACROS = (
    "coalesce",
    "hash",
    "starts_with",
    "concat_ws",
    "list_filter",
    "now",
    "median",
    "unnest",
    "canonical",
    "count",
)
READS = (f"(SELECT content FROM read_text('{CANARY}'))", "getenv('HOME')", "'x'", "NULL", "repeat('x', 100000)")


def make(random: Random, scratch: Scratch, base: Path) -> tuple[Command, ...]:
    """Write the input of a case; its commands."""
    copied(database(base), scratch.work / "mine.duckdb")
    other = scratch.work / "other.duckdb"
    copied(database(base), other)
    if random.random() < 0.75:
        _change(random, other)
    if random.random() < 0.35:
        _damage(random, other)
    merge = ("merge", "other.duckdb", "--db-path", "mine.duckdb")
    writes = ("work/mine.duckdb", "work/other.duckdb.wal")
    backup = ("setup_benchmark_db", "--backup", "made.duckdb", "--db-path", "other.duckdb")
    upgrade = ("setup_benchmark_db", "--db-path", "other.duckdb", "--lock-timeout", "2")
    ingest = ("import", "other.duckdb", "--db-path", "mine.duckdb")
    merged = Command(words=merge, writes=writes, lines=60)
    ways = (
        (merged, verifying("mine.duckdb", must_hold=True), reading(random, "mine.duckdb")),
        (Command(words=(*merge, "--dry-run"), writes=("work/other.duckdb.wal",), lines=60),),
        (verifying("other.duckdb", must_hold=False),),
        (reading(random, "other.duckdb"), reading(random, "other.duckdb")),
        (Command(words=backup, writes=("work/made.duckdb",), lines=60),),
        (Command(words=upgrade, writes=("work/other.duckdb",), lines=60), reading(random, "other.duckdb")),
        (Command(words=ingest, writes=("work/mine.duckdb",)), verifying("mine.duckdb", must_hold=True)),
    )
    return ways[random.choice((0, 0, 0, 1, 2, 3, 3, 3, 4, 5, 6))]


def _change(random: Random, path: Path) -> None:
    """Change the database with SQL; statements that DuckDB refuses are left out."""
    import duckdb

    for _ in range(random.choice((1, 1, 2, 4, 8))):
        with contextlib.suppress(duckdb.Error), duckdb.connect(str(path)) as connection:
            for statement in list(_statements(random, connection)):
                connection.execute(statement)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _statements(random: Random, connection: object) -> Iterator[str]:
    table = random.choice((*TABLES, *TABLES, *OTHERS))
    columns = connection.execute(  # type: ignore[attr-defined]
        "SELECT column_name FROM duckdb_columns() WHERE table_name = ?", [table]
    ).fetchall()
    column = random.choice(columns)[0] if columns else "x"
    hostile = random.choice((*CONDITIONS, *WORDS))
    match random.randrange(14):
        case 0:
            name = random.choice(
                (f'v"."x" IS NULL; COPY (SELECT 1) TO \'{OUTSIDE}/pwned\'; --', hostile, "all_results")
            )
            yield f"CREATE OR REPLACE VIEW {_quoted(name)} AS SELECT 1 AS series_id"
            yield "UPDATE schema_migrations SET sha256 = 'x' WHERE version > 1"
        case 1:
            read = random.choice(READS)
            yield f"ALTER TABLE {table} RENAME TO {table}_hidden"
            yield f"CREATE VIEW {table} AS SELECT * REPLACE ({read} AS {_quoted(column)}) FROM {table}_hidden"
        case 2:
            macro = random.choice(MACROS)
            yield f"CREATE MACRO {macro}(a) AS {random.choice(READS)}"
        case 3:
            yield f"CREATE TYPE {random.choice(('varchar', 'double', 'mine'))} AS ENUM ('a', 'b')"
        case 4:
            kind = random.choice(("VARCHAR", "DOUBLE", "BIGINT", "BLOB", "DATE", "VARCHAR[]", "JSON", "BIT"))
            yield f"ALTER TABLE {table} ALTER {_quoted(column)} TYPE {kind}"
        case 5:
            yield f"ALTER TABLE {table} DROP COLUMN {_quoted(column)}"
        case 6:
            yield f"ALTER TABLE {table} ADD COLUMN {_quoted(hostile or 'x')} VARCHAR DEFAULT {random.choice(READS)}"
        case 7:
            yield f"ALTER TABLE {table} RENAME COLUMN {_quoted(column)} TO {_quoted(hostile or 'x')}"
        case 8:
            yield f"DROP TABLE {table} CASCADE"
        case 9:
            yield f"CREATE TABLE {_quoted(hostile or 'x')} (a INT)"
        case 10:
            yield f"CREATE SCHEMA {_quoted(random.choice(('other', 'temp', hostile or 'x')))}"
            yield f"CREATE TABLE other.{table} (a INT)"
        case 11:
            yield f"DELETE FROM {table} USING SAMPLE 50%"
        case 12:
            yield f"COMMENT ON TABLE {table} IS {_literal(hostile)}"
        case _:
            value = random.choice(
                (_literal(hostile), "NULL", "'NaN'::DOUBLE", "-1", "1e308", "'infinity'::TIMESTAMP", "[]")
            )
            yield f"UPDATE {table} SET {_quoted(column)} = {value}" + random.choice(("", " WHERE random() < 0.1"))


def _damage(random: Random, path: Path) -> None:
    """Damage the bytes of the file, or give it a log."""
    content = path.read_bytes()
    if random.random() < 0.2:
        path.with_name(f"{path.name}.wal").write_bytes(random.randbytes(random.choice((1, 100, 5000))))
        return
    kept = random.choice((0, 0, 4096, 12288))
    path.write_bytes(content[:kept] + bytes_mutated(random, content[kept:]))
