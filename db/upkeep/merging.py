"""Merges another warehouse into this one: each row once, and nothing from a file that contradicts this one; and
rebuilds a warehouse from its run files.

A run is added with all of its results and raw samples, or not at all. Hardware and series are equal if their ids,
which are hashes, are equal. Merging is commutative, associative and idempotent in content; where and when a run was
stored (`source`, `ingested_at`), a quality that both measured, what two versions read otherwise in one imported file,
and the state of a change point, which the next search computes from all runs, are kept from the warehouse that had them
first.

A rebuilt warehouse also has the readable rows that only the old file has. The old file is kept under another name; the
new one replaces it in one step.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import FormatError, LockedError, StorageError, UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.storage_paths import LakePlace, is_lake
from benchmarking.core.temporary import temporary_folder
from db import ingestion, run_records
from db.conflicts import (
    CHECKSUMMED,
    CONTENTS,
    Conflict,
    Relation,
    all_column_types,
    checksum,
    conflicts,
    conflicts_text,
)
from db.connection import FILE_FORMAT, LOG_ENDINGS, Connection, connect, copy_database, file_id, problem_of, quoted
from db.file_copy import make_folder, publish, share_as, temporary_sibling, turn
from db.ingestion import RUN_TABLES, Loaded, load_files
from db.upkeep.verify import ANNOTATION_TARGETS, CHECKS, REFERENCES, damage, unread_log
from db.warehouse import OutdatedError, Warehouse

BLOCKING_FAULTS = ("orphan", "duplicate")
"""Kinds of faults for which another warehouse is refused."""
MOVED = {"alerts": {"series_id"}, "annotations": {"target_kind", "target_id"}}
"""Table -> the columns that differ where the labels of an imported run were corrected on one side, which moved the
alerts and notes about it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What another warehouse added, or would add."""

    added: Mapping[str, int]
    """New rows by table; for raw_benchmark_data, samples."""
    present: int
    """Number of its runs that are already stored here."""
    samples_restored: int
    """Results compacted here that got the samples (or finer quantiles) or the arrivals of their tokens."""
    samples_kept: int
    """Results that have more of these here than there."""
    triages: int
    """Alerts that both have, and that were triaged later there."""
    beside: tuple[str, ...] = ()
    """The added runs of imported files that both have, under other ids: such as of a file whose labels were corrected
    on one side, or to which results were appended, whose measurement is then here twice."""
    read_otherwise: tuple[str, ...] = ()
    """Imported runs that both have of the same file, which another version read otherwise there: kept as here."""
    left_out: tuple[Conflict, ...] = ()
    """Conflicting rows, kept as they are here: measures of quality, alerts and notes about runs whose labels were
    corrected on one side, the rows of `read_otherwise`, and with `keep_own` others too."""


class ConflictError(FormatError):
    """Another warehouse has different content under the same id."""

    def __init__(self, path: str | Path, found: Sequence[Conflict]) -> None:
        super().__init__(f"{path}: contradicts this database, nothing was added: {conflicts_text(found)}")
        self.conflicts = tuple(found)


def merge(
    warehouse: Warehouse,
    path: str | Path,
    *,
    lock_timeout_s: float = 30.0,
    dry_run: bool = False,
    keep_own: bool = False,
) -> Merged:
    """Add everything that the warehouse in the file `path` has and this one lacks. The file is never changed.

    A file of an older version is upgraded in a copy. `dry_run` only counts. A quality that both measured stays as it is
    here, since it may be measured again, and so do an imported file that another version read otherwise and what was
    moved to other labels. With `keep_own`, other conflicting rows do too and the rest is added.
    Otherwise raises ConflictError; also FormatError for a file that is not a
    warehouse or has dangling references, LockedError and StorageError. After an error nothing has been added.
    """
    if is_lake(path) and is_lake(warehouse.path):
        is_same = LakePlace.parse(str(path)).catalog == LakePlace.parse(warehouse.path).catalog
    else:
        is_same = os.path.exists(path) and os.path.exists(warehouse.path) and os.path.samefile(path, warehouse.path)
    if is_same:
        raise UsageError(f"{path} is the database itself: give another warehouse to merge")

    def attempt() -> Merged:
        # A replaced connection has nothing attached.
        with warehouse.attached(current, lock_timeout_s=lock_timeout_s) as name, warehouse.transaction() as connection:
            connection.execute(TWINS.format(theirs=quoted(name)))
            mine, theirs = (stored_aliases(connection, of) for of in (str, table_names(name)))
            united, clashing = united_aliases(mine, theirs)
            aliases = {series: alias for series, alias in united.items() if mine.get(series) != alias}
            other = OtherWarehouse(
                connection=connection,
                database=name,
                columns=all_column_types(connection),
                conflicts=(*conflicts(connection, str, table_names(name)), *clashing),
                read_twice=dict(connection.execute(READ_TWICE.format(theirs=quoted(name))).fetchall()),
            )
            refused = [
                one
                for one in other.conflicts
                if one.table != "quality_results"
                and not (one.columns and MOVED.get(one.table, set()).issuperset(one.columns))
                and other.run_read_twice(one) is None
            ]
            if refused and not keep_own:
                raise ConflictError(path, refused)
            merged = other.counts(len(aliases))
            if not dry_run:
                other.take(aliases)
            return merged

    with upgraded(path, lock_timeout_s=lock_timeout_s, check=not keep_own) as current:
        return warehouse.repeated(attempt)


@contextmanager
def upgraded(path: str | Path, *, lock_timeout_s: float, check: bool) -> Iterator[Path]:
    """The file of a warehouse, or a copy if it is a lake or of an older version.

    With `check`, raises FormatError for dangling references.
    """
    if is_lake(path):
        with temporary_folder("benchhouse-lake") as folder:
            with Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s) as lake:
                if check:
                    _refuse_faults(lake)
                lake.backup(folder / "lake.duckdb")
            yield folder / "lake.duckdb"
        return
    path = Path(path)
    try:
        with Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s) as other:
            if check:
                _refuse_faults(other)
        is_old = False
    except OutdatedError:
        is_old = True
    if not is_old:
        yield path
        return
    with temporary_folder("benchhouse-upgrade") as folder:
        copy = folder / path.name
        with connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=lock_timeout_s):
            copy_database(path, copy)
        with Warehouse.open(copy, keeps_old=False) as other:
            if check:
                _refuse_faults(other)
        yield copy


def _refuse_faults(other: Warehouse) -> None:
    for kind, sql in CHECKS:
        faults = other.query(sql).dicts() if kind in BLOCKING_FAULTS else []
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            raise FormatError(
                f"{other.path} is damaged: {faults[0]['problem']}{more}: check it with "
                f"{as_typed('setup')} --verify --db-path {shlex.quote(other.path)}"
            )


RAW = "raw_benchmark_data"

IN_NEW_RUNS = "result_id IN (SELECT result_id FROM {theirs}.benchmark_results JOIN new_runs USING (run_id))"
NEW = {
    "hardware_info": "hardware_id NOT IN (SELECT hardware_id FROM hardware_info)",
    "series": "series_id NOT IN (SELECT series_id FROM series)",
    "benchmark_runs": "run_id IN (SELECT run_id FROM new_runs)",
    "benchmark_results": "run_id IN (SELECT run_id FROM new_runs)",
    RAW: f"{IN_NEW_RUNS} OR result_id IN (SELECT result_id FROM shared_results) AND (result_id, launch, phase, metric) "
    "NOT IN (SELECT (result_id, launch, phase, metric) FROM raw_benchmark_data)",
    "requests": IN_NEW_RUNS,
    "quality_results": (  # also of a run that both have, whose quality was measured later
        "run_id IN (SELECT run_id FROM benchmark_runs UNION ALL FROM new_runs) "
        "AND (run_id, metric) NOT IN (SELECT (run_id, metric) FROM quality_results)"
    ),
    "change_points": "change_point_id NOT IN (SELECT change_point_id FROM change_points)",
    "alerts": "alert_id NOT IN (SELECT alert_id FROM alerts)",
    "annotations": "annotation_id NOT IN (SELECT annotation_id FROM annotations)",
}
"""Table -> condition of the other warehouse's rows that are new here. What they are about, or cannot do without, is
here, or new: it may be unreadable there, or among the conflicting rows, which are not taken."""


def _is_known(column: str, table: str, key: str) -> str:
    return f"{column} IN (SELECT {key} FROM {table} UNION ALL SELECT {key} FROM {{theirs}}.{table} WHERE {NEW[table]})"


MACHINE = _is_known("hardware_id", "hardware_info", "hardware_id")
NEW["series"] += f" AND {MACHINE}"
SERIES = _is_known("series_id", "series", "series_id")
NEW["change_points"] += f" AND {SERIES} AND (result_id, series_id) NOT IN ("
NEW["change_points"] += "SELECT (theirs.result_id, theirs.series_id) FROM {theirs}.benchmark_results theirs "
NEW["change_points"] += "JOIN benchmark_results mine USING (result_id) WHERE mine.series_id <> theirs.series_id)"
for _column in ("result_id", "last_good_result_id"):
    NEW["change_points"] += f" AND ({_column} IS NULL OR {_is_known(_column, 'benchmark_results', 'result_id')})"
CHANGE = _is_known("change_point_id", "change_points", "change_point_id")
RESULT = _is_known("result_id", "benchmark_results", "result_id")
NEW["alerts"] += f" AND {SERIES} AND CASE WHEN result_id IS NOT NULL THEN {RESULT} "
NEW["alerts"] += f"ELSE change_point_id IS NULL OR {CHANGE} END"
for _kind, _target, _key in ANNOTATION_TARGETS:
    NEW["annotations"] += f" AND (target_kind <> '{_kind}' OR {_is_known('target_id', _target, _key)})"
NEW_PROFILES = f"""
SELECT profile_id FROM {{theirs}}.profiles WHERE profile_id NOT IN (SELECT profile_id FROM profiles)
    AND (source_sha256 IS NULL OR source_sha256 NOT IN (
        SELECT source_sha256 FROM profiles WHERE source_sha256 IS NOT NULL
    ))
    AND {MACHINE} AND {SERIES}
"""
# Parts come before their wholes, which are no longer new once they are added.
NEW |= dict.fromkeys(("profile_modules", "profile_ops", "profiles"), f"profile_id IN ({NEW_PROFILES})")
IF_STORED = {
    "alerts": """REPLACE (
        (SELECT result_id FROM benchmark_results WHERE result_id = confirmed_by) AS confirmed_by,
        (SELECT own.change_point_id FROM change_points own WHERE own.change_point_id = alerts.change_point_id)
            AS change_point_id,
        coalesce((SELECT series_id FROM benchmark_results own WHERE own.result_id = alerts.result_id), series_id)
            AS series_id
    )"""
}
"""Table -> its columns that are NULL in a new row if what they name is not here; the series is that of the result."""

NEW_RUNS = f"""
CREATE OR REPLACE TEMP TABLE new_runs AS
SELECT run_id FROM {{theirs}}.benchmark_runs
WHERE run_id NOT IN (SELECT run_id FROM benchmark_runs)
    AND run_id NOT IN (
        SELECT theirs.run_id FROM {{theirs}}.benchmark_results theirs JOIN benchmark_results mine USING (result_id)
    )
    AND {MACHINE} AND run_id NOT IN (SELECT run_id FROM {{theirs}}.benchmark_results WHERE NOT {SERIES})
    AND NOT (origin_format IS NULL AND source_sha256 IS NOT NULL AND source_sha256 IN (
        SELECT source_sha256 FROM benchmark_runs WHERE source_sha256 IS NOT NULL AND origin_format IS NULL
    ))
"""
"""A run is not new if its results or its run file belong to another run here, or without its machine and series."""

SHARED_RESULTS = """
CREATE OR REPLACE TEMP TABLE shared_results AS
SELECT result_id FROM {theirs}.benchmark_results SEMI JOIN benchmark_results USING (result_id)
WHERE run_id NOT IN (SELECT unnest($apart)) AND result_id NOT IN (SELECT unnest($apart))
"""
"""Results that both have, and that get the raw samples that they lack here: equal ones, of no file read twice."""

TWINS = """
CREATE OR REPLACE TEMP TABLE twins AS
WITH pair AS (
    SELECT mine.alert_id AS own, theirs.alert_id AS other
    FROM alerts mine JOIN {theirs}.alerts theirs USING (series_id, metric)
    WHERE own NOT IN (SELECT alert_id FROM {theirs}.alerts) AND other NOT IN (SELECT alert_id FROM alerts)
        AND sign(mine.relative_change) IS NOT DISTINCT FROM sign(theirs.relative_change)
        AND (
            mine.change_point_id = theirs.change_point_id
            OR (mine.parameters->>'$.last_good') = (theirs.parameters->>'$.last_good')
            OR list_has_any(
                TRY_CAST(mine.parameters->'$.results' AS VARCHAR[]),
                TRY_CAST(theirs.parameters->'$.results' AS VARCHAR[])
            )
        )
    QUALIFY row_number() OVER (PARTITION BY own ORDER BY other) = row_number() OVER (PARTITION BY other ORDER BY own)
)
SELECT own, min(other) AS other FROM (SELECT min(own) AS own, other FROM pair GROUP BY other) GROUP BY own
"""
"""Pairs of alerts that each side has raised about one change, as when both check copies of the same runs: one alert,
with the id that it has here. Where a side has several about one change, the first is that of the first, and so on."""
UNDER_OWN_ID = {
    "alerts": "coalesce((SELECT own FROM twins WHERE other = alert_id), alert_id) AS alert_id",
    "annotations": """CASE WHEN target_kind = 'alert'
        THEN coalesce((SELECT own FROM twins WHERE other = target_id), target_id) ELSE target_id END AS target_id""",
}
"""Table that names alerts -> the column of the other warehouse's rows with the ids of here."""

READ_TWICE = """
WITH run AS (
    SELECT run_id FROM benchmark_runs JOIN {theirs}.benchmark_runs theirs USING (run_id, source_sha256)
    WHERE benchmark_runs.origin_format IS NOT NULL AND theirs.origin_format IS NOT NULL
)
SELECT run_id, run_id FROM run UNION ALL SELECT result_id, run_id FROM benchmark_results JOIN run USING (run_id)
"""
"""What an imported file says is as the version that read it understood it, while the ids of its runs and results are
those of the file."""

BESIDE = """
WITH added AS MATERIALIZED (
    SELECT run_id, origin_format, started_at, source_sha256 FROM {theirs}.benchmark_runs JOIN new_runs USING (run_id)
    WHERE origin_format IS NOT NULL
),
own AS MATERIALIZED (
    SELECT run_id, origin_format, started_at, source_sha256 FROM benchmark_runs
    WHERE origin_format IS NOT NULL AND run_id NOT IN (SELECT run_id FROM {theirs}.benchmark_runs)
),
own_results AS MATERIALIZED (
    SELECT own.*, series_id, latency_mean_ms, throughput_samples_per_sec FROM benchmark_results JOIN own USING (run_id)
    WHERE coalesce(latency_mean_ms, throughput_samples_per_sec) IS NOT NULL
)
SELECT run_id FROM added
WHERE (source_sha256, origin_format) IN (SELECT (source_sha256, origin_format) FROM own WHERE source_sha256 IS NOT NULL)
    OR run_id IN (  -- of a file that one side read while it grew: the same results in runs of other contents
        SELECT added.run_id FROM {theirs}.benchmark_results result JOIN added USING (run_id)
        SEMI JOIN own_results ON own_results.origin_format = added.origin_format
            AND own_results.started_at = added.started_at AND own_results.series_id = result.series_id
            AND own_results.latency_mean_ms IS NOT DISTINCT FROM result.latency_mean_ms
            AND own_results.throughput_samples_per_sec IS NOT DISTINCT FROM result.throughput_samples_per_sec
    )
ORDER BY started_at, run_id
"""

# In two steps, since INSERT OR REPLACE needs a key, which a lake does not have.
UPDATE_ALIAS = """
UPDATE series_alias SET canonical_series_id = $canonical, reason = $reason, created_at = $created_at
WHERE series_id = $series
"""
ADD_ALIAS = """
INSERT INTO series_alias (canonical_series_id, reason, created_at, series_id)
SELECT $canonical, $reason, $created_at, $series WHERE $series NOT IN (SELECT series_id FROM series_alias)
    AND $canonical IN (SELECT series_id FROM series)
"""
NEWLY_CALIBRATED = """
SELECT DISTINCT hardware_id FROM benchmark_runs JOIN new_runs USING (run_id) WHERE task = ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """How two versions of a row, `mine` and `theirs`, become one. Each part is commutative and associative."""

    time: str
    """SQL of what decides whose version is kept of all columns that are not named here, with `{side}`."""
    newer: bool
    """Whether to keep the version where that is greater, or the one where it is less."""
    ignored: tuple[str, ...] = ()
    """Columns computed from other tables."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Column -> SQL of its value, where both versions may know something."""


STORED_REFERENCE = "least(mine.{column}, (SELECT {key} FROM {table} WHERE {key} = theirs.{column}))"
"""A reference that one version has; of two, the same one whichever is merged into the other."""
EVIDENCE = """
CASE WHEN mine.parameters = theirs.parameters THEN mine.parameters ELSE json_merge_patch(
    greatest(json_merge_patch(mine.parameters, '{"results": null}'),
        json_merge_patch(theirs.parameters, '{"results": null}')),
    json_object('results', list_sort(list_distinct(list_concat(
        TRY_CAST(mine.parameters->'$.results' AS VARCHAR[]), TRY_CAST(theirs.parameters->'$.results' AS VARCHAR[])
    ))))
) END
"""
"""The parameters of an alert, with the results that either version names."""
TRIAGED = "({side}.updated_at > {side}.created_at, {side}.updated_at)"
"""When somebody has triaged an alert: later than any that nobody has."""
MERGE_RULES = {
    "hardware_info": MergeRule(
        time="{side}.first_seen_at",
        newer=False,
        ignored=("peak_flops", "peak_copy_bytes_per_sec", "calibrated_at", "calibration_run_id"),
    ),
    "series": MergeRule(time="{side}.first_seen_at", newer=False),
    "alerts": MergeRule(
        time=TRIAGED,
        newer=True,
        ignored=("series_id",),
        columns={
            **{
                column: STORED_REFERENCE.format(column=column, table=target, key=key)
                for table, _, column, target, key in REFERENCES
                if table == "alerts" and column != "series_id"
            },
            "parameters": EVIDENCE,
        },
    ),
}
"""Tables whose rows may have two versions: of a machine the first is kept, of an alert the last triage and whatever
either version knows. A change point stays as the last search here left it: history_scans describes that state, and the
next search follows the runs of both."""

TRIAGED_LATER = f"""
FROM {{theirs}} theirs JOIN alerts mine USING (alert_id)
WHERE theirs.updated_at > theirs.created_at AND {TRIAGED.format(side="theirs")} > {TRIAGED.format(side="mine")}
    AND alert_id NOT IN (SELECT unnest($left))
"""
FINER = {
    RAW: "coarse.compacted_at IS NOT NULL AND (fine.compacted_at IS NULL OR len(fine.sketch) > len(coarse.sketch))",
    "requests": "len(coarse.token_ms) = 0 AND len(fine.token_ms) > 0",
}
"""Table whose rows `compact` changes -> condition of a row on one side that has more than that on the other: raw
samples or finer quantiles, the arrivals of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWarehouse:
    """The other warehouse. Conflicting rows here are never changed."""

    connection: Connection
    database: str
    """Name of the attached database in SQL."""
    columns: Mapping[str, Iterable[str]]
    """Table -> columns, the same in both."""
    conflicts: tuple[Conflict, ...] = ()
    read_twice: Mapping[str, str] = field(default_factory=dict)
    """Imported run that both have of the same file, or one of its results here -> the run."""

    def run_read_twice(self, conflict: Conflict) -> str | None:
        """The imported run of the same file in both that the conflicting row belongs to; None if there is none."""
        return self.read_twice.get(conflict.subject.split(" ")[0]) if conflict.table in RUN_TABLES else None

    def counts(self, aliases: int) -> Merged:
        """Find the new runs, which `take` needs too, and count what it would add, with so many `aliases`."""
        self.connection.execute(NEW_RUNS.format(theirs=quoted(self.database)))
        apart = {one.subject.split(" ")[0] for one in self.conflicts if one.table in RUN_TABLES} | set(self.read_twice)
        self.connection.execute(SHARED_RESULTS.format(theirs=quoted(self.database)), {"apart": sorted(apart)})
        what = {RAW: "coalesce(sum(sample_count), 0)::BIGINT"}
        added = {table: self._number(self._new(table), what.get(table, "count(*)")) for table in NEW}
        beside = BESIDE.format(theirs=quoted(self.database))
        return Merged(
            added={**added, "series_alias": aliases},
            present=self._number(f"FROM {self.theirs('benchmark_runs')} SEMI JOIN benchmark_runs USING (run_id)"),
            samples_restored=self._finer_results(self.theirs, str),
            samples_kept=self._finer_results(str, self.theirs),
            triages=self._number(TRIAGED_LATER.format(theirs=self.theirs("alerts")), left="alerts"),
            beside=tuple(str(run) for (run,) in self.connection.execute(beside).fetchall()),
            read_otherwise=tuple(
                dict.fromkeys(
                    run
                    for one in self.conflicts
                    if one.table != "quality_results" and (run := self.run_read_twice(one)) is not None
                )
            ),
            left_out=self.conflicts,
        )

    def take(self, aliases: Mapping[str, Alias]) -> None:
        """Restore what was compacted here; add everything that is new, and the new and changed aliases;
        merge the versions of rows that both have."""
        for table in FINER:
            finer, key = self._finer(table, self.theirs, str), ", ".join(CONTENTS[table].key)
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE finer AS SELECT fine.* {finer}", self._left(table))
            self.connection.execute(f"DELETE FROM {table} WHERE ({key}) IN (SELECT ({key}) FROM finer)")
            self.connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM finer")
            self.connection.execute("DROP TABLE finer")
        for table in NEW:
            columns = f"* {IF_STORED.get(table, '')}"
            self.connection.execute(f"INSERT INTO {table} BY NAME SELECT {columns} {self._new(table)}")
        for table, rule in MERGE_RULES.items():  # after the rows that the other version names
            (key,) = CONTENTS[table].key
            names = [quoted(name) for name in self.columns[table] if name not in (key, *rule.ignored, *rule.columns)]
            packed = {side: ", ".join(f"{name} := {side}.{name}" for name in names) for side in ("mine", "theirs")}
            # If times are equal the text decides, so that the order of merging makes no difference.
            mine, theirs = (
                f"({rule.time.format(side=side)}, to_json(struct_pack({fields}))::VARCHAR)"
                for side, fields in packed.items()
            )
            assigned, sign = ", ".join(f"{name} = theirs.{name}" for name in names), ">" if rule.newer else "<"
            updates = {assigned: f"{theirs} {sign} {mine}"}
            updates |= {f"{name} = {sql}": f"{sql} IS DISTINCT FROM mine.{name}" for name, sql in rule.columns.items()}
            for what, condition in updates.items():
                self.connection.execute(
                    f"UPDATE {table} AS mine SET {what} FROM {self.theirs(table)} theirs WHERE mine.{key} = "
                    f"theirs.{key} AND {condition} AND mine.{key} NOT IN (SELECT unnest($left))",
                    self._left(table),
                )
        for series, alias in aliases.items():
            for sql in (UPDATE_ALIAS, ADD_ALIAS):
                self.connection.execute(sql, {"series": series, **asdict(alias)})
        for (hardware_id,) in self.connection.execute(NEWLY_CALIBRATED, [ingestion.CALIBRATION]).fetchall():
            self.connection.execute(ingestion.UPDATE_CALIBRATION, [hardware_id])
        ingestion.compute_latest(self.connection)

    def theirs(self, table: str) -> str:
        """The other warehouse's table in SQL."""
        return table_names(self.database)(table)

    def _left(self, table: str) -> dict[str, list[str]]:
        """The keys of the conflicting rows, as the parameter `left`."""
        return {"left": [conflict.subject for conflict in self.conflicts if conflict.table == table]}

    def _new(self, table: str) -> str:
        return f"FROM {self.theirs(table)} {table} WHERE {NEW[table].format(theirs=quoted(self.database))}"

    def _finer(self, table: str, fine: Relation, coarse: Relation) -> str:
        """The rows of a table that have more on one side, in SQL."""
        key = ", ".join(CONTENTS[table].key)
        return f"""
            FROM {fine(table)} fine JOIN {coarse(table)} coarse USING ({key})
            WHERE {FINER[table]} AND concat_ws(' ', {key}) NOT IN (SELECT unnest($left))
        """

    def _finer_results(self, fine: Relation, coarse: Relation) -> int:
        """The number of results of which one side has more."""
        found = set[tuple[str]]()
        for table in FINER:
            sql = f"SELECT DISTINCT result_id {self._finer(table, fine, coarse)}"
            found.update(self.connection.execute(sql, self._left(table)).fetchall())
        return len(found)

    def _number(self, rest: str, what: str = "count(*)", *, left: str | None = None) -> int:
        bound = None if left is None else self._left(left)
        return int(self.connection.execute(f"SELECT {what} {rest}", bound).fetchall()[0][0])


def table_names(name: str) -> Relation:
    """A function: table -> its rows in the attached database, in SQL, with the ids of alerts of here (`TWINS`)."""

    def rows(table: str) -> str:
        of_table = f"{quoted(name)}.{table}"
        return f"(SELECT * REPLACE ({UNDER_OWN_ID[table]}) FROM {of_table})" if table in UNDER_OWN_ID else of_table

    return rows


def stored_aliases(connection: Connection, relation: Relation) -> dict[str, Alias]:
    """The aliases of a warehouse, by series."""
    sql = f"SELECT series_id, canonical_series_id, reason, created_at FROM {relation('series_alias')}"
    return {
        series: Alias(canonical=canonical, reason=reason, created_at=created_at)
        for series, canonical, reason, created_at in connection.execute(sql).fetchall()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """An alias of a series."""

    canonical: str
    reason: str
    created_at: datetime


Aliases = Mapping[str, Alias]
"""By series."""


def united_aliases(mine: Aliases, theirs: Aliases) -> tuple[dict[str, Alias], list[Conflict]]:
    """The union of both, and the series with two aliases or a cycle.

    If a is an alias of b in one warehouse and b of c in the other, a becomes an alias of c. If one alias has two
    reasons, the earlier is kept.
    """
    united: dict[str, Alias] = {}
    clashing: list[Conflict] = []
    for series in sorted(mine.keys() | theirs.keys()):
        stored = [aliases[series] for aliases in (mine, theirs) if series in aliases]
        # The ends of the chains from the series; none for a cycle.
        seen, queue, ends = set[str](), [alias.canonical for alias in stored], set[str]()
        while queue:
            current = queue.pop()
            if current in seen:
                continue
            seen.add(current)
            targets = {aliases[current].canonical for aliases in (mine, theirs) if current in aliases}
            queue += targets
            ends |= set() if targets else {current}
        if len(ends) == 1 and series not in ends:
            earliest = min(stored, key=lambda alias: (alias.created_at, alias.reason))
            united[series] = replace(earliest, canonical=ends.pop())
        else:
            problem = f"is an alias of {' and of '.join(sorted(ends))}" if len(ends) > 1 else "is an alias of itself"
            clashing.append(Conflict(table="series_alias", subject=series, problem=problem))
    return united, clashing


@dataclass(frozen=True, slots=True, kw_only=True)
class ABResult:
    """A table of the old warehouse compared with the new one."""

    table: str
    rows_before: int | None
    """None if it could not be read."""
    rows_after: int
    is_equal: bool | None
    """Whether all rows are equal, by checksum or one by one; None if the table could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The outcome of a rebuild."""

    loaded: Loaded
    kept: Path | None = None
    """New path of the old file; None if there was none."""
    compared: tuple[ABResult, ...] = ()
    copied: Merged | None = None
    """Rows that only the old file had; None if there was no old file, or if it could not be read at all."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Unreadable table of the old file -> reason. Rows of it that are in no run file are lost."""

    lost_log: str | None = None
    """Why the log of the old file was not read: what only the log has is lost. None if it was, or if there was none."""

    @property
    def differing(self) -> tuple[Conflict, ...]:
        """Rows of the old file that differ from the run files; the run files win."""
        return () if self.copied is None else _differing(self.copied, self.lost)


def rebuild(path: Path, files: Sequence[Path], *, lock_timeout_s: float = 30.0) -> Rebuilt:
    """Rebuild the warehouse at `path` from the run files, and keep the old file under another name.

    Other writers wait for their turn until its end, and the old file is locked, if it can be opened. Raises LockedError
    while another process has it open, and StorageError if no file is a run or nothing can be written; then nothing is
    changed.
    """
    path = path.resolve()
    make_folder(path.parent)
    # The turn too, since any other opening of the file in this process gives its lock up.
    with turn(path, lock_timeout_s) as left_s, ExitStack() as hold, temporary_sibling(path) as part:
        old, old_fault, lost_log = path, None, None
        if path.exists():
            try:  # keep writers out until the end
                hold.enter_context(connect(str(path), FILE_FORMAT, read_only=True, lock_timeout_s=left_s))
                lost_log = next((one.problem for one in unread_log(path, lock_timeout_s=left_s)), None)
            except LockedError:
                raise
            except StorageError as error:
                old_fault = problem_of(error)
                if any(os.path.exists(f"{path}{ending}") for ending in LOG_ENDINGS):  # the file itself may be readable
                    copy = hold.enter_context(temporary_folder("benchhouse-rebuild")) / path.name
                    with storage_errors(f"{path} cannot be copied to {copy.parent}"):
                        shutil.copyfile(path, copy)
                    with suppress(StorageError):
                        connect(str(copy), FILE_FORMAT, read_only=True, lock_timeout_s=0.0).close()
                        old, old_fault, lost_log = copy, None, old_fault
        file_before = file_id(str(path))
        with Warehouse.open(part) as warehouse:
            loaded = load_files(warehouse, files)
            if not loaded.loaded:
                raise StorageError(f"none of {len(files)} files is a readable run: {path} was left unchanged")
            rebuilt = Rebuilt(loaded=loaded)
            if path.exists():
                rebuilt = replace(_with_old(warehouse, path, old, loaded, old_fault), lost_log=lost_log)
        if os.name == "nt":
            hold.close()  # Windows cannot rename an open file
        if file_id(str(path)) != file_before:
            raise StorageError(f"{path} was replaced by another process: try again")
        _replace(path, part, rebuilt.kept)
    return rebuilt


def _with_old(warehouse: Warehouse, path: Path, old: Path, loaded: Loaded, old_fault: str | None) -> Rebuilt:
    """Copy the rows that only the old file has, which is read at `old`, and compare the two."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    kept = path.with_name(f"{path.stem}.before-{now}{path.suffix}")
    if old_fault is not None:
        lost = dict.fromkeys(CHECKSUMMED, old_fault)
        return Rebuilt(loaded=loaded, kept=kept, compared=_uncompared(warehouse, lost), lost=lost)
    with _readable(old) as (source, lost):
        compared, copied = list(_uncompared(warehouse, lost)), None
        readable = [table for table in CHECKSUMMED if table not in lost]
        if readable:
            copied = merge(warehouse, source, keep_own=True)
            differing = {conflict.table for conflict in _differing(copied, lost)}
            with warehouse.attached(source, lock_timeout_s=0.0) as name:
                for table in readable:
                    before, after = (_sum(warehouse, table, part) for part in (f"{quoted(name)}.{table}", table))
                    # Merging has compared the rows one by one, except where samples replaced quantiles.
                    is_equal = before == after or (before[0] == after[0] and table not in differing)
                    compared.append(
                        ABResult(table=table, rows_before=before[0], rows_after=after[0], is_equal=is_equal)
                    )
    compared.sort(key=lambda result: list(CHECKSUMMED).index(result.table))
    return Rebuilt(loaded=loaded, kept=kept, compared=tuple(compared), copied=copied, lost=lost)


@contextmanager
def _readable(path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The old file, or a copy of its readable tables if some are unreadable; and the unreadable ones with reasons."""
    try:
        with upgraded(path, lock_timeout_s=0.0, check=False) as current, Warehouse.open(current, read_only=True) as old:
            tables = {row["name"] for row in old.query("SELECT table_name AS name FROM duckdb_tables()").dicts()}
            is_whole = tables.issuperset(CHECKSUMMED) and next(damage(old), None) is None
    except StorageError:
        is_whole = False
    if is_whole:
        with upgraded(path, lock_timeout_s=0.0, check=False) as current:
            yield current, {}
        return
    lost: dict[str, str] = {}
    with temporary_folder("benchhouse-rebuild") as folder:
        copy = folder / path.name
        with Warehouse.open(copy) as salvaged:
            with salvaged.attached(path, lock_timeout_s=0.0) as name:
                for table in CHECKSUMMED:
                    try:
                        with salvaged.transaction() as connection:
                            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {quoted(name)}.{table}")
                    except StorageError as error:
                        lost[table] = problem_of(error).removeprefix(f"{salvaged.path}: ")
            for whole in (RUN_TABLES, run_records.TABLES):
                # A run may lack only its samples, and a profile only its operators.
                if needed := sorted(lost.keys() & set(whole[:2])):
                    without = " and ".join(needed)
                    for table in whole:
                        lost.setdefault(table, f"{table} is useless without {without}")
                        salvaged.query(f"DELETE FROM {table}")
        yield copy, lost


def _uncompared(warehouse: Warehouse, lost: Mapping[str, str]) -> tuple[ABResult, ...]:
    return tuple(
        ABResult(table=table, rows_before=None, rows_after=_sum(warehouse, table, table)[0], is_equal=None)
        for table in lost
    )


def _differing(copied: Merged, lost: Mapping[str, str]) -> tuple[Conflict, ...]:
    """The conflicts, except those due to unreadable tables."""
    return tuple(conflict for conflict in copied.left_out if conflict.part not in lost)


def _sum(warehouse: Warehouse, table: str, relation: str) -> tuple[int, str]:
    with warehouse.transaction() as connection:
        names = list(all_column_types(connection)[table])
        rows, total = connection.execute(checksum(table, names, relation)).fetchall()[0]
    return int(rows), str(total)


def _replace(path: Path, part: Path, kept: Path | None) -> None:
    """Rename the old file with its log to `kept`, and the new file to `path`. Raises StorageError."""
    if kept is None:
        if not publish(part, path):
            raise StorageError(f"{path} already exists: another process created it: check it, and try again")
        return
    with storage_errors(f"{path} cannot be replaced", f"the old file is {kept}"):
        if not publish(path, kept):
            raise StorageError(f"{kept} already exists: try again")
        for ending in LOG_ENDINGS:
            with suppress(FileNotFoundError):
                os.replace(f"{path}{ending}", f"{kept}{ending}")
        if path.exists():
            share_as(path, part)
        part.replace(path)
