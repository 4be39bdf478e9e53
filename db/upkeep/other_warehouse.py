"""Another warehouse, attached inside a transaction: finds what is new in it, and adds that.

Aliases of series are united: each series becomes an alias of the last series of its chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from db import latest_results
from db.connection import Connection, quoted
from db.contents import CONTENTS, Conflict, Relation

RAW = "raw_benchmark_data"

NEW_PROFILES = """
SELECT profile_id FROM {theirs}.profiles WHERE profile_id NOT IN (SELECT profile_id FROM profiles)
    AND (source_sha256 IS NULL OR source_sha256 NOT IN (
        SELECT source_sha256 FROM profiles WHERE source_sha256 IS NOT NULL
    ))
"""
OF_NEW_RUNS = "result_id IN (SELECT result_id FROM {theirs}.benchmark_results JOIN new_runs USING (run_id))"
NEW = {
    "hardware_info": "hardware_id NOT IN (SELECT hardware_id FROM hardware_info)",
    "series": "series_id NOT IN (SELECT series_id FROM series)",
    "benchmark_runs": "run_id IN (SELECT run_id FROM new_runs)",
    "benchmark_results": "run_id IN (SELECT run_id FROM new_runs)",
    RAW: OF_NEW_RUNS,
    "requests": OF_NEW_RUNS,
    "change_points": "change_point_id NOT IN (SELECT change_point_id FROM change_points)",
    "alerts": "alert_id NOT IN (SELECT alert_id FROM alerts)",
    "annotations": "annotation_id NOT IN (SELECT annotation_id FROM annotations)",
    # Parts come before their wholes, which are no longer new once they are added.
    "profile_modules": f"profile_id IN ({NEW_PROFILES})",
    "profile_ops": f"profile_id IN ({NEW_PROFILES})",
    "profiles": f"profile_id IN ({NEW_PROFILES})",
}
"""Table -> condition of the other warehouse's rows that are new here."""

NEW_RUNS = """
CREATE OR REPLACE TEMP TABLE new_runs AS
SELECT run_id FROM {theirs}.benchmark_runs
WHERE run_id NOT IN (SELECT run_id FROM benchmark_runs)
    AND run_id NOT IN (
        SELECT theirs.run_id FROM {theirs}.benchmark_results theirs JOIN benchmark_results mine USING (result_id)
    )
    AND NOT (origin_format IS NULL AND source_sha256 IS NOT NULL AND source_sha256 IN (
        SELECT source_sha256 FROM benchmark_runs WHERE source_sha256 IS NOT NULL AND origin_format IS NULL
    ))
"""
"""A run is not new if its results or its run file belong to another run here."""

UPDATE_ALIAS = "UPDATE series_alias SET canonical_series_id = ?, reason = ?, created_at = ? WHERE series_id = ?"
ADD_ALIAS = """
INSERT INTO series_alias (canonical_series_id, reason, created_at, series_id)
SELECT ?, ?, ?, ? WHERE ? NOT IN (SELECT series_id FROM series_alias)
"""
CALIBRATED = """
SELECT DISTINCT hardware_id FROM benchmark_runs JOIN new_runs USING (run_id) WHERE task = ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """Rule for which of two versions of a row to keep."""

    time: str
    """The deciding column."""
    newer: bool
    """Whether to keep the newer version, or the older one."""
    ignored: tuple[str, ...] = ()
    """Columns computed from other tables."""


MERGE_RULES = {
    "hardware_info": MergeRule(
        time="first_seen_at",
        newer=False,
        ignored=("peak_flops", "peak_copy_bytes_per_sec", "calibrated_at", "calibration_run_id"),
    ),
    "series": MergeRule(time="first_seen_at", newer=False),
    "change_points": MergeRule(time="detected_at", newer=True),
    "alerts": MergeRule(time="updated_at", newer=True),
}
"""Tables whose rows may have two versions: for a machine the first is kept, for a finding the last."""

FINER = """
FROM {fine} fine JOIN {coarse} coarse USING (result_id, launch, phase, metric)
WHERE coarse.compacted_at IS NOT NULL
    AND (fine.compacted_at IS NULL OR len(fine.sketch) > len(coarse.sketch))
    AND concat_ws(' ', result_id, launch, phase, metric) NOT IN (SELECT unnest($left))
"""
"""Raw samples, or finer quantiles, on one side where the other has only quantiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWarehouse:
    """The other warehouse. Conflicting rows here are never changed."""

    connection: Connection
    database: str
    """Name of the attached database in SQL."""
    columns: Mapping[str, Iterable[str]]
    """Table -> columns, the same in both."""
    conflicts: tuple[Conflict, ...] = ()

    def mark_new_runs(self) -> None:
        """Find the new runs, which the methods below need."""
        self.connection.execute(NEW_RUNS.format(theirs=quoted(self.database)))

    def new(self) -> dict[str, int]:
        """New rows by table; for raw_benchmark_data, samples."""
        what = {RAW: "coalesce(sum(sample_count), 0)::BIGINT"}
        return {table: self._number(self._new(table), what.get(table, "count(*)")) for table in NEW}

    def present(self) -> int:
        """Number of its runs that are stored here."""
        return self._number(f"FROM {self.theirs('benchmark_runs')} SEMI JOIN benchmark_runs USING (run_id)")

    def restorable(self) -> int:
        """Results with coarser raw data here."""
        return self._finer(self.theirs(RAW), RAW)

    def kept_finer(self) -> int:
        """Results with coarser raw data there."""
        return self._finer(RAW, self.theirs(RAW))

    def take(self, aliases: Mapping[str, Alias]) -> None:
        """Add everything that is new, and the new and changed aliases."""
        self._restore()
        for table in MERGE_RULES:
            self._supersede(table)
        for table in NEW:
            self.connection.execute(f"INSERT INTO {table} BY NAME SELECT * {self._new(table)}")
        for series, alias in aliases.items():
            values = [alias.canonical, alias.reason, alias.created_at, series]
            for sql in (UPDATE_ALIAS, ADD_ALIAS):  # a lake has no keys, so INSERT OR REPLACE does not work there
                self.connection.execute(sql, values if sql == UPDATE_ALIAS else [*values, series])
        for (hardware_id,) in self.connection.execute(CALIBRATED, [latest_results.CALIBRATION]).fetchall():
            self.connection.execute(latest_results.UPDATE, [hardware_id])
        latest_results.compute(self.connection)

    def theirs(self, table: str) -> str:
        """The other warehouse's table in SQL."""
        return table_names(self.database)(table)

    def _left(self, table: str) -> dict[str, list[str]]:
        """The keys of the conflicting rows, as the parameter `left`."""
        return {"left": [conflict.subject for conflict in self.conflicts if conflict.table == table]}

    def _new(self, table: str) -> str:
        return f"FROM {self.theirs(table)} WHERE {NEW[table].format(theirs=quoted(self.database))}"

    def _finer(self, fine: str, coarse: str) -> int:
        return self._number(FINER.format(fine=fine, coarse=coarse), "count(DISTINCT result_id)", left=RAW)

    def _restore(self) -> None:
        """Replace quantiles with samples or finer quantiles."""
        finer = FINER.format(fine=self.theirs(RAW), coarse=RAW)
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE finer AS SELECT fine.* {finer}", self._left(RAW))
        key = ", ".join(CONTENTS[RAW].key)
        self.connection.execute(f"DELETE FROM {RAW} WHERE ({key}) IN (SELECT ({key}) FROM finer)")
        self.connection.execute(f"INSERT INTO {RAW} BY NAME SELECT * FROM finer")
        self.connection.execute("DROP TABLE finer")

    def _supersede(self, table: str) -> None:
        names = ", ".join(f"{quoted(name)} = theirs.{quoted(name)}" for name in self._versioned(table))
        self.connection.execute(
            f"UPDATE {table} AS mine SET {names} FROM {self.theirs(table)} theirs WHERE {self._decides(table)}",
            self._left(table),
        )

    def _decides(self, table: str) -> str:
        """The condition for keeping the other version of a row."""
        (key,), decided = CONTENTS[table].key, MERGE_RULES[table]
        sign = ">" if decided.newer else "<"
        # If times are equal the text decides, so that the order of merging makes no difference.
        mine, theirs = (f"({side}.{decided.time}, {self._text(table, side)})" for side in ("mine", "theirs"))
        return f"mine.{key} = theirs.{key} AND {theirs} {sign} {mine} AND mine.{key} NOT IN (SELECT unnest($left))"

    def _text(self, table: str, side: str) -> str:
        fields = ", ".join(f"{quoted(name)} := {side}.{quoted(name)}" for name in self._versioned(table))
        return f"to_json(struct_pack({fields}))::VARCHAR"

    def _versioned(self, table: str) -> list[str]:
        ignored = (*CONTENTS[table].key, *MERGE_RULES[table].ignored)
        return [name for name in self.columns[table] if name not in ignored]

    def _number(self, rest: str, what: str = "count(*)", *, left: str | None = None) -> int:
        bound = None if left is None else self._left(left)
        return int(self.connection.execute(f"SELECT {what} {rest}", bound).fetchall()[0][0])


def table_names(name: str) -> Relation:
    """A function: table -> its name in the attached database, in SQL."""
    return lambda table: f"{quoted(name)}.{table}"


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
    found: dict[str, Alias] = {}
    clashing: list[Conflict] = []
    for series in sorted(mine.keys() | theirs.keys()):
        stored = [aliases[series] for aliases in (mine, theirs) if series in aliases]
        ends = {end for alias in stored for end in _ends(alias.canonical, mine, theirs)}
        if len(ends) == 1 and series not in ends:
            first = min(stored, key=lambda alias: (alias.created_at, alias.reason))
            found[series] = replace(first, canonical=ends.pop())
        else:
            problem = f"is an alias of {' and of '.join(sorted(ends))}" if len(ends) > 1 else "is an alias of itself"
            clashing.append(Conflict(table="series_alias", subject=series, problem=problem))
    return found, clashing


def _ends(series: str, mine: Aliases, theirs: Aliases) -> set[str]:
    """The ends of the chains from the series; empty for a cycle."""
    seen, ahead, ends = set[str](), [series], set[str]()
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        nexts = {aliases[one].canonical for aliases in (mine, theirs) if one in aliases}
        ahead += nexts
        ends |= set() if nexts else {one}
    return ends
