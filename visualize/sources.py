"""The source of charts and reports: a database, or run files loaded into memory."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarking.core.axes import AXES
from benchmarking.core.command_line import default_database
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import BenchhouseError, FormatError, StorageError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.suggestions import meant_by
from benchmarking.core.text import first_few
from benchmarking.core.untrusted.redaction import redacted_folder, redacted_path
from db.analysis.selection import EVERYTHING
from db.analysis.selection import Selection as Words
from db.connection import MEMORY, quoted
from db.ingestion import load_files, run_files
from db.run_records import selected_profiles
from db.warehouse import Warehouse
from visualize.drawing.rows import CHOSEN, SELECTED, TABLES, Selection, bound

NAMED = ("model_id", "device", "runtime", "precision")
"""Fields of a selection that are columns of benchmark_runs."""
MEASURED = "($model IS NULL OR model_id = $model) AND task <> 'device-calibration'"
"""Condition for the runs of a model, or of all models; calibrations belong to no model."""
MOST_NAMED = 20
"""Maximum names in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An open warehouse, its name for messages, and errors of files that could not be loaded."""

    warehouse: Warehouse
    name: str
    refused: tuple[str, ...] = ()


def opened(files: Sequence[str] | None, database: str | None, lock_timeout_s: float) -> Source:
    """The run files, in memory, or else the database, by default the usual one, read-only. Raises as `_of_files`, and
    StorageError if the database is missing, locked, foreign or empty."""
    if files:
        return _of_files(files)
    path = database or default_database()
    warehouse = Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s)
    if not _values(warehouse, "run_id"):
        warehouse.close()
        word = shlex.quote(path)
        raise StorageError(
            f"{path} has no runs yet: measure with {as_typed('run')} --save --db-path {word}, "
            f"or load run files with {as_typed('setup')} --ingest FOLDER --db-path {word}"
        )
    return Source(warehouse=warehouse, name=path)


def _of_files(patterns: Sequence[str]) -> Source:
    """Load run files (or folders, or glob patterns) into memory. Raises UsageError if there is none, StorageError if
    none can be read."""
    named: dict[Path, None] = {}  # in order, without duplicates
    for pattern in patterns:
        found = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
        if not found:
            kind = "no file matches" if glob.has_magic(pattern) else "no such file:"
            raise UsageError(f"{kind} {pattern}: {as_typed('run')} --save writes run files to benchmark_results")
        named.update({Path(path): None for path in found})
    paths = run_files(list(named))
    warehouse = Warehouse.open(MEMORY)
    outcome = load_files(warehouse, paths)
    refused = tuple(reason for _, reason in outcome.refused)
    if outcome.loaded:
        name = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files"
        return Source(warehouse=warehouse, name=name, refused=refused)
    warehouse.close()
    if not refused:
        raise StorageError(f"no run file in {', '.join(patterns)}: --json-path takes the .json files of finished runs")
    more = f"; {len(refused) - 1} more {'is' if len(refused) == 2 else 'are'} invalid" if len(refused) > 1 else ""
    raise FormatError(refused[0] + more)


def resolved(text: str, files: Sequence[str] | None, database: str | None, lock_timeout_s: float) -> Words:
    """Parse a selection; user SQL in it is run on a read-only connection. Raises UsageError."""
    words = Words.parse(text)
    if words.sql is not None and files:
        raise UsageError("sql: in a selection needs a database: give --db-path, or select with FIELD=VALUE,...")
    return words.resolved(database or default_database(), lock_timeout_s=lock_timeout_s)


def checked(source: Source, selection: Selection) -> Selection:
    """The selection, with the model as it is stored: a path without the user's home folder. Raises UsageError for an
    unknown name, listing similar and existing names."""
    if selection.model_id is not None:
        models, stored = _values(source.warehouse, "model_id"), redacted_folder(selection.model_id)
        if selection.model_id not in models and stored in models:
            selection = replace(selection, model_id=stored)
    for column in NAMED:
        wanted = getattr(selection, column)
        known = _values(source.warehouse, column)
        if column == "device":
            known = sorted({*known, *(device.split(":")[0] for device in known)})
        if wanted is not None and wanted not in known:
            raise UsageError(_unknown(column, wanted, known, source.name))
    if selection.baseline is not None:
        known = _values(source.warehouse, "device")
        sql = "SELECT DISTINCT device_name FROM hardware_info JOIN benchmark_runs USING (hardware_id) ORDER BY 1"
        names = [str(row["device_name"]) for row in source.warehouse.query(sql).dicts() if row["device_name"]]
        known = sorted({*known, *(device.split(":")[0] for device in known), *names})
        if selection.baseline not in known:
            raise UsageError(_unknown("device", selection.baseline, known, source.name))
    return selection


def chosen(source: Source, selection: Selection, words: Words) -> Selection:
    """The selection, narrowed to the results of `words`.

    Raises UsageError for a model that is not stored, and StorageError, listing existing values, if nothing is selected.
    """
    if not words.text:
        return selection
    known = _values(source.warehouse, "model_id")
    for name in words.models:
        if not {name, redacted_path(name), redacted_folder(name)} & {*known}:
            raise UsageError(_unknown("model_id", name, known, source.name))
    sql = f"SELECT result_id FROM all_results WHERE {words.condition}"  # noqa: S608 - values are bound
    ids = tuple(str(row["result_id"]) for row in source.warehouse.query(sql, list(words.values)).dicts())
    profiles = tuple(str(row["profile_id"]) for row in selected_profiles(source.warehouse, words))
    if not ids and not profiles:
        raise nothing_selected(source, selection, words)
    return replace(selection, results=ids, profiles=profiles)


def has_results(source: Source, selection: Selection) -> bool:
    """Whether the selection has any result, whatever its status."""
    chosen_too = "" if selection.results is None else f" AND {CHOSEN}"
    sql = f"SELECT 1 FROM {TABLES} WHERE {SELECTED}{chosen_too} LIMIT 1"  # noqa: S608 - values are bound
    return bool(source.warehouse.query(sql, bound(sql, selection)).dicts())


def nothing_selected(source: Source, selection: Selection, words: Words = EVERYTHING) -> BenchhouseError:
    """The error of an empty selection of known names; usually the combination was never measured."""
    named = [str(getattr(selection, name)) for name in NAMED if getattr(selection, name)]
    selected = " ".join([*named, *([words.text] if words.text else [])])
    if not selected:
        return StorageError(f"{source.name} has runs but no results: they failed before their first point")
    sql = f"SELECT DISTINCT {', '.join(NAMED)} FROM benchmark_runs WHERE {MEASURED}"  # noqa: S608
    cells = source.warehouse.query(sql + " ORDER BY ALL", {"model": selection.model_id}).dicts()
    existing = [" ".join(map(str, list(cell.values())[1 if selection.model_id else 0 :])) for cell in cells]
    points = "".join(f", {_axis_values(source.warehouse, name, selection)}" for name in AXES if name in words.named)
    return StorageError(f"{source.name} has no results of {selected}: it has {first_few(existing, MOST_NAMED)}{points}")


def _values(warehouse: Warehouse, column: str) -> list[str]:
    """Sorted distinct values of a column of runs and profiles. `column` is never user input."""
    own = "profile_id" if column == "run_id" else quoted(column)
    sql = f"SELECT {quoted(column)} AS value FROM benchmark_runs UNION SELECT {own} FROM profiles ORDER BY 1"  # noqa: S608
    rows = warehouse.query(sql).dicts()
    return [str(row["value"]) for row in rows]


def _axis_values(warehouse: Warehouse, name: str, selection: Selection) -> str:
    """The values of an axis in the results: "batch size 1, 4"."""
    column = quoted(name)
    sql = f"""
        SELECT DISTINCT {column} AS value FROM benchmark_results JOIN benchmark_runs USING (run_id)
        WHERE {MEASURED} AND {column} IS NOT NULL ORDER BY 1
    """  # noqa: S608 - quoted
    values = [f"{row['value']:.15g}" for row in warehouse.query(sql, {"model": selection.model_id}).dicts()]
    return f"{AXES[name].noun} {', '.join(values[:MOST_NAMED])}" if values else f"no {AXES[name].noun}"


def _unknown(column: str, wanted: str, known: Sequence[str], where: str) -> str:
    near = meant_by(wanted, known) or [name for name in known if wanted.lower() in name.lower()][:3]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"no {column.removesuffix('_id')} {wanted!r} in {where}: {hint}it has {first_few(known, MOST_NAMED)}"
