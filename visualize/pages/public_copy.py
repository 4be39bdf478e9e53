"""A copy of the warehouse for publication: the selected results, without host names, user names and folders.

Published pages read only this copy, so nothing left out of it can appear on any page.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from benchmarking.core import plugins, records
from benchmarking.core.codec import dumps, from_json, to_json
from benchmarking.core.doubts import KINDS
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC, METRICS
from benchmarking.core.quality import QUALITY_METRICS
from benchmarking.core.records import Json, LaunchLoad, Result, Run
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.untrusted.redaction import MIN_NAME_LENGTH, NO_HOSTS, redacted, without_folders
from db.analysis.history.changes import update_changes
from db.analysis.selection import EVERYTHING, Selection, judged_metrics, unstored
from db.run_records import GROUP_SIZE, TABLES, selected_profiles, stored_runs
from db.warehouse import Warehouse
from visualize.pages.snapshot import Data

Part = TypeVar("Part")
FOLDER = "benchhouse-publish"
NO_NAMES = (*NO_HOSTS, "localhost", "127.0.0.1", "[::1]")
"""Hosts that reveal nothing about a machine."""
HOST = "host"
"""Replaces host names."""
ALL_RUNS = "SELECT run_id FROM benchmark_runs ORDER BY started_at, run_id"
CHOSEN = "SELECT run_id, result_id FROM all_results WHERE {condition} ORDER BY started_at, run_id, result_id"
NEWEST = """
SELECT max(started_at) AS newest
FROM (SELECT started_at FROM benchmark_runs UNION ALL SELECT started_at FROM profiles)
"""
HOSTS = r"""
SELECT host FROM benchmark_runs WHERE host <> ''
UNION SELECT host FROM profiles WHERE host <> ''
UNION SELECT unnest(regexp_split_to_array(environment->'values'->>'cluster_worker', '[@:]')) FROM benchmark_runs
UNION SELECT regexp_extract(extra->'load'->>'url', '^https?://(\[[^\]]+\]|[^/:?#]+)', 1) FROM benchmark_results
"""
"""Names of measuring machines and of measured servers."""
MODELS = """
SELECT model_id, list(DISTINCT source) AS sources, list(DISTINCT type) AS types FROM (
    SELECT model_id, model_source AS source, config->>'model_type' AS type FROM benchmark_runs
    UNION ALL SELECT model_id, '', NULL FROM profiles
) GROUP BY model_id ORDER BY model_id
"""
PUBLIC = {"hub", "catalog"}
FOREIGN = {"import", "server", ""}
"""Sources that may call a model as the hub does."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
WORDS = """
SELECT DISTINCT unnest([device, split_part(device, ':', 1), runtime, precision, task]) AS word FROM benchmark_runs
UNION SELECT DISTINCT metric FROM raw_benchmark_data
UNION SELECT DISTINCT unnest(flatten([doubts, json_keys(axes)])) FROM benchmark_results
UNION SELECT DISTINCT unnest(flatten([map_keys(other_metrics), map_keys(missing)]))
FROM benchmark_results JOIN benchmark_runs USING (run_id) WHERE origin_format IS NOT NULL  -- not a user's own metric
UNION SELECT DISTINCT unnest(flatten([json_keys(runtime_mode), json_keys(settings), json_keys(origin->'definitions'),
    [origin_format, origin_definition]]))
FROM benchmark_runs
UNION SELECT DISTINCT unnest([device, split_part(device, ':', 1), runtime, precision, task]) FROM profiles
UNION SELECT DISTINCT kind FROM profile_modules
"""
IMPORTED = "SELECT run_id, ingested_at FROM benchmark_runs WHERE origin_format IS NOT NULL"
TAKE_IMPORTED = """
UPDATE benchmark_runs SET ingested_at = stored.ingested_at
FROM (SELECT unnest($ids) AS run_id, unnest($times) AS ingested_at) AS stored
WHERE benchmark_runs.run_id = stored.run_id
"""
OWN = "profile_id IN (SELECT unnest($ids::VARCHAR[]))"
PROFILE_ROWS = {
    "hardware_info": "SELECT * FROM hardware_info WHERE hardware_id IN (SELECT hardware_id FROM profiles WHERE {own})",
    "series": "SELECT * FROM series WHERE series_id IN (SELECT series_id FROM profiles WHERE {own})",
    **{table: f"SELECT * FROM {table} WHERE {{own}}" for table in TABLES},  # noqa: S608 - names of this program
}
JSON_COLUMNS = ("runtime_mode", "axes", "details")
"""JSON columns, whose names are replaced inside values to keep valid JSON."""
SEARCHED = "SELECT DISTINCT metric FROM history_scans ORDER BY metric"
SERIES = "SELECT series_id, min(result_id) AS result_id FROM benchmark_results GROUP BY series_id"
SERIES_OF = "SELECT result_id, series_id FROM benchmark_results WHERE result_id IN (SELECT unnest($ids))"
ALIASES = "SELECT series_id, canonical_series_id, created_at FROM series_alias ORDER BY series_id"
TAKE_ALIAS = """
INSERT INTO series_alias BY NAME
SELECT $own AS series_id, $canonical AS canonical_series_id, '' AS reason, $created_at AS created_at
"""
ALERTS = """
SELECT
    a.alert_id, a.metric, a.triage, a.relative_change, a.detector, a.detector_version, a.created_at, a.updated_at,
    coalesce(a.result_id, c.result_id) AS result_id
FROM alerts a LEFT JOIN change_points c USING (change_point_id) ORDER BY a.alert_id
"""
TAKE_ALERT = """
INSERT INTO alerts BY NAME
SELECT
    $alert_id AS alert_id, series_id, $metric AS metric, $triage AS triage, $relative_change AS relative_change,
    $detector AS detector, $detector_version AS detector_version, '{}' AS parameters,
    $created_at AS created_at, $updated_at AS updated_at, result_id
FROM benchmark_results WHERE result_id = $result_id
"""


@contextmanager
def public_copy(
    source: Data, selection: Selection, title: str, *, with_hosts: bool, say: Callable[[str], None] = lambda text: None
) -> Iterator[Data]:
    """The data of a site, deleted at the end of the block. `say` is told of each run how far it is.

    Raises UsageError for an empty selection, StorageError if disk space runs out.
    """
    runs = _selected(source.warehouse, selection, source.name)
    names = None if with_hosts else _names(source.warehouse)
    with temporary_folder(FOLDER) as folder:
        path = folder / "published.duckdb"
        with Warehouse.open(path) as target:
            # Store runs in groups, which is faster than individually.
            group: list[Run] = []
            for number, run in enumerate(runs):
                say(f"{number:,} runs copied")
                group.append(run if names is None else names.of_run(run))
                if len(group) == GROUP_SIZE:
                    target.ingest_all(group)
                    group = []
            target.ingest_all(group)
            ids = [row["profile_id"] for row in selected_profiles(source.warehouse, selection)]
            target.take_profiles(
                {
                    table: [
                        _row(row, names) for row in source.warehouse.query(sql.format(own=OWN), {"ids": ids}).dicts()
                    ]
                    for table, sql in PROFILE_ROWS.items()
                }
            )
            _take_judgements(source.warehouse, target, names)
        with Warehouse.open(path, for_questions=True) as warehouse:
            warehouse.keep_answers()
            (row,) = warehouse.query(NEWEST).dicts()
            yield Data(warehouse=warehouse, name=title, taken_at=row["newest"])


def _selected(warehouse: Warehouse, selection: Selection, name: str) -> Iterator[Run]:
    """Runs with their selected results. Raises UsageError if there are none."""
    if selection.condition == EVERYTHING.condition:  # includes calibrations and runs without results
        ids = [row["run_id"] for row in warehouse.query(ALL_RUNS).dicts()]
        if not ids and not selected_profiles(warehouse, selection):
            raise UsageError(f"{name}: the database is empty, so there is nothing to publish")
        return (stored_run.run for stored_run in stored_runs(warehouse, ids))
    rows = warehouse.query(CHOSEN.format(condition=selection.condition), selection.values).dicts()
    if not rows and not selected_profiles(warehouse, selection):
        why = unstored(warehouse, selection)
        raise UsageError(f"{name}: {selection.text!r} selects nothing, so there is nothing to publish{why}")
    chosen = {row["result_id"] for row in rows}
    found = stored_runs(warehouse, list(dict.fromkeys(row["run_id"] for row in rows)))
    return (
        replace(run.run, results=tuple(result for result in run.run.results if result.result_id in chosen))
        for run in found
    )


def _row(row: Mapping[str, Any], names: Names | None) -> dict[str, Any]:
    """A row ready for publication, without the path of its file."""
    found = dict(row)
    if names is not None:
        found = {name: names.column(name, value) for name, value in row.items()}
        found |= {name: value for name, value in (("host", ""), ("source", None)) if name in row}
    return {name: list(value.items()) if isinstance(value, dict) else value for name, value in found.items()}


def _take_judgements(source: Warehouse, target: Warehouse, names: Names | None) -> None:
    """Copy aliases and alerts of the copied series without their notes, and the times of imports, and search for
    changes again."""

    def metric(row: Mapping[str, Any]) -> str:  # a custom metric may have the name of a host
        name: str = row["metric"]
        return name if names is None else str(names.column("metric", name))

    # Series ids are hashes that include names, so redaction may change them.
    taken = {row["result_id"]: row["series_id"] for row in target.query(SERIES).dicts()}
    before = source.query(SERIES_OF, {"ids": list(taken)}).dicts()
    ids = {row["series_id"]: taken[row["result_id"]] for row in before}
    aliases = [
        {"own": own, "canonical": canonical, "created_at": row["created_at"]}
        for row in source.query(ALIASES).dicts()
        for own, canonical in [(ids.get(row["series_id"]), ids.get(row["canonical_series_id"]))]
        if own and canonical and own != canonical
    ]
    alerts = [{**row, "metric": metric(row)} for row in source.query(ALERTS).dicts()]
    imported = source.query(IMPORTED).dicts()
    times = {"ids": [row["run_id"] for row in imported], "times": [row["ingested_at"] for row in imported]}
    with target.transaction() as connection:
        connection.execute(TAKE_IMPORTED, times)
        for sql, rows in ((TAKE_ALIAS, aliases), (TAKE_ALERT, alerts)):
            for row in rows:
                connection.execute(sql, row)
    searched = [metric(row) for row in source.query(SEARCHED).dicts()]
    for judged in judged_metrics(target, dict.fromkeys((DEFAULT_METRIC, *searched))):
        update_changes(target, judged)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # not equal, but the same, is what the cache asks
class Names:
    """Names to replace in every text."""

    hosts: re.Pattern[str] | None
    """Matches host names, and names of models with a host name in them; None if there are no hosts."""
    public: Collection[str]
    """Names of models with a host name in them."""
    words: Collection[str]
    """Texts that stay, since they are part of the record format even if a host has the same name."""
    models: Mapping[str, str]
    """Renamed models -> their new names."""

    def of_run(self, run: Run) -> Run:
        """The run ready for publication. Most of its results and loads have no names, and stay the records they are,
        since making records of JSON takes longest."""
        before = to_json(run)
        after = self.without(before)
        if run.provenance.host.lower() in NO_HOSTS:
            after["provenance"]["host"] = run.provenance.host
        results = _kept(Result, run.results, before["results"], after.pop("results"))
        loads = _kept(LaunchLoad, run.loads, before["loads"], after.pop("loads"))
        return replace(from_json(Run, after), results=results, loads=loads)

    def without(self, value: Any) -> Any:
        """JSON values without host names, user names and folders."""
        return redacted(value, anonymous=True, then=lambda text: self.models.get(text) or self.text(text))

    def column(self, column: str, value: Any) -> Any:
        """A column value without host names, user names and folders. Row ids stay, since they are hashes or random."""
        if column in JSON_COLUMNS and isinstance(value, str):
            return dumps(self.without(json.loads(value)))
        if column == "command":  # a path with a space in it is one argument
            return shlex.join(self.without({column: shlex.split(value)})[column])
        is_id = column.endswith("_id") and column != "model_id"
        return value if is_id or not isinstance(value, str | dict) else self.without(value)

    @lru_cache(maxsize=100_000)  # noqa: B019 - one for each published site
    def text(self, text: str) -> str:
        """The text without host names and folders."""
        if text in self.words:
            return text
        if self.hosts is not None:
            text = self.hosts.sub(lambda found: found[0] if found[0] in self.public else HOST, text)
        return without_folders(text)


def _kept(kind: type[Part], own: Sequence[Part], before: Sequence[Json], after: Sequence[Json]) -> tuple[Part, ...]:
    """The records after a change of their JSON: themselves where it is unchanged."""
    pairs = zip(own, before, after, strict=True)
    return tuple(part if old == new else from_json(kind, new) for part, old, new in pairs)


def _public_names(rows: Sequence[Mapping[str, Any]], hosts: Collection[str]) -> set[str]:
    """The names of models in which a host's name is a word: those of the hub and the catalog, with and without their
    owner, and those of folders where it is the architecture, such as falcon-7b."""
    found = set()
    for row in rows:
        *owners, name = re.split(r"[/\\]", row["model_id"].rstrip("/\\"))
        sources = set(row["sources"])
        is_name = bool(sources & PUBLIC) and len(owners) < 2
        is_name = is_name or (sources <= FOREIGN and HUB_NAME.fullmatch(row["model_id"]) is not None)
        types = [kind.lower() for kind in row["types"] if kind]
        if is_name or all(any(kind.startswith(host.lower()) for kind in types) for host in hosts if host in name):
            found |= {name, row["model_id"]} if is_name else {name}
    return {name for name in found if name not in hosts and any(host in name for host in hosts)}


def _names(warehouse: Warehouse) -> Names:
    of_models = warehouse.query(MODELS).dicts()
    models = [row["model_id"] for row in of_models]
    found = {row["host"] for row in warehouse.query(HOSTS).dicts()} - {None}
    hosts = {host for host in found if host.lower() not in NO_NAMES and not host.isdecimal()}  # not a port
    # Field names, and values of fields with a fixed set of values.
    kinds = [part for part in vars(records).values() if isinstance(part, type) and is_dataclass(part)]
    hints = [hint for kind in kinds for hint in get_type_hints(kind).values()]
    options = [one for hint in hints for one in (hint, *get_args(hint)) if get_origin(one) is Literal]
    chosen = {str(value) for option in options for value in get_args(option)}
    named = {field.name for kind in kinds for field in fields(kind)}
    words_of_records = {*named, *chosen, *METRICS, *QUALITY_METRICS, *KINDS, *plugins.family_names()}
    words = {row["word"] for row in warehouse.query(WORDS).dicts()} | words_of_records | hosts.intersection(models)
    # A pattern for host names with and without domain; `-` and `_` may adjoin one, letters and digits may not.
    labels = {host: host.partition(".")[0] for host in hosts}
    plain = {one for host, label in labels.items() for one in (host, host if label.isdecimal() else label)}
    long = {one for one in plain if len(one) >= MIN_NAME_LENGTH}
    public = _public_names(of_models, long)
    ordered = sorted(long | public, key=lambda name: (-len(name), name))
    any_of = rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, ordered))})(?![A-Za-z0-9])"
    names = Names(hosts=re.compile(any_of) if long else None, public=public, words=words, models={})
    # New names of models that are folders. Folders with the same name in different places stay distinct.
    renamed: dict[str, str] = {}
    for model in models:
        name = names.text(redacted(model, anonymous=True))
        if name != model:
            free = (name if number == 1 else f"{name} ({number})" for number in count(1))
            renamed[model] = next(one for one in free if one not in models and one not in renamed.values())
    return replace(names, models=renamed)
