"""People's notes about runs, results, series, machines and alerts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import naive_now, uuid7
from benchmarking.core.untrusted.redaction import redacted

if TYPE_CHECKING:
    from db.connection import Connection
    from db.warehouse import Warehouse

Kind = Literal["run", "result", "series", "hardware", "alert"]
LATEST = "latest"
"""In place of an id: the newest run."""
NEWEST_RUN = "SELECT run_id FROM benchmark_runs ORDER BY started_at DESC, run_id DESC LIMIT 1"
MIN_PREFIX = 8
"""Minimum characters of an id prefix."""
MAX_LENGTH = 2000
"""Maximum characters of a note."""
MAX_NAME = 200
"""Maximum characters of its author's name."""
FIND = """
SELECT kind, id FROM (
    SELECT 'run' AS kind, run_id AS id FROM benchmark_runs WHERE starts_with(run_id, $id)
    UNION ALL SELECT 'result', result_id FROM benchmark_results WHERE starts_with(result_id, $id)
    UNION ALL SELECT 'series', series_id FROM series WHERE starts_with(series_id, $id)
    UNION ALL SELECT 'hardware', hardware_id FROM hardware_info WHERE starts_with(hardware_id, $id)
    UNION ALL SELECT 'alert', alert_id FROM alerts WHERE starts_with(alert_id, $id)
) ORDER BY id <> $id, kind, id LIMIT 3
"""
INSERT = """
INSERT INTO annotations BY NAME SELECT
    $annotation_id AS annotation_id, $kind AS target_kind, $target_id AS target_id, $author AS author, $note AS note,
    $created_at AS created_at
WHERE $annotation_id NOT IN (SELECT annotation_id FROM annotations)
"""
LIST = """
SELECT annotation_id, target_kind, target_id, author, note, created_at FROM annotations
WHERE $ids IS NULL OR list_contains($ids, target_id) ORDER BY created_at, annotation_id
"""
FIND_ANNOTATION = "SELECT annotation_id FROM annotations WHERE starts_with(annotation_id, $id) LIMIT 2"
DELETE = "DELETE FROM annotations WHERE annotation_id = $id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A note. The fields are the columns of the table annotations."""

    annotation_id: str
    target_kind: Kind
    target_id: str
    author: str | None
    note: str
    created_at: datetime
    """UTC."""


def annotate(warehouse: Warehouse, target: str, note: str, author: str | None = None) -> Annotation:
    """Store a note about the object with the id `target`, or a unique prefix of it.

    `latest` is the newest run. Secrets are redacted, as in everything that is stored. Raises UsageError for an empty or
    too long note, for a too long author, and for an unknown or ambiguous target.
    """
    text = stored_words(note, "a note", MAX_LENGTH)
    name = stored_words(author, "an author", MAX_NAME) if (author or "").strip() else None
    if target == LATEST:
        found = next((row["run_id"] for row in warehouse.query(NEWEST_RUN).dicts()), None)
        if found is None:
            raise UsageError(f"{LATEST}: no run is stored yet: benchhouse run MODEL --save stores one")
        target = found
    _check_prefix(target)
    row: dict[str, Any] = {"annotation_id": uuid7(), "author": name, "note": text, "created_at": naive_now()}

    def store(connection: Connection) -> Annotation:
        matches = [(row["kind"], row["id"]) for row in warehouse.query(FIND, {"id": target}).dicts()]
        if not matches:
            raise UsageError(f"no run, result, series, machine or alert has an id that begins with {target!r}")
        if len(matches) > 1 and matches[0][1] != target:
            names = ", ".join(f"{kind} {name}" for kind, name in matches)
            raise UsageError(f"several ids begin with {target!r} ({names}): give a longer prefix")
        kind, target_id = matches[0]
        connection.execute(INSERT, {**row, "target_id": target_id, "kind": kind})
        return Annotation(target_kind=kind, target_id=target_id, **row)

    return warehouse.change(store)


def stored_words(words: str | None, what: str, most: int) -> str:
    """What a user writes about results as it is stored: without secrets and outer spaces. Raises UsageError where
    nothing is left, or more than `most` characters; `what` names it."""
    text = str(redacted(words or "")).strip()
    if not text or len(text) > most:
        raise UsageError(f"expected {what} of 1 to {most} characters: got {len(text)}")
    return text


def list_annotations(warehouse: Warehouse, target_ids: Collection[str] | None = None) -> tuple[Annotation, ...]:
    """The notes about these ids, or all of them, oldest first."""
    rows = warehouse.query(LIST, {"ids": None if target_ids is None else list(target_ids)}).dicts()
    return tuple(Annotation(**row) for row in rows)


def remove_annotation(warehouse: Warehouse, annotation_id: str) -> str:
    """Delete a note by its id or a unique prefix; returns its id. Raises UsageError."""
    _check_prefix(annotation_id)
    ids = [row["annotation_id"] for row in warehouse.query(FIND_ANNOTATION, {"id": annotation_id}).dicts()]
    if len(ids) != 1:
        raise UsageError(
            f"{'several notes have' if ids else 'no note has'} an id that begins with {annotation_id!r}: "
            "see benchhouse annotate list"
        )
    warehouse.change(lambda connection: connection.execute(DELETE, {"id": ids[0]}))
    return str(ids[0])


def _check_prefix(text: str) -> None:
    if len(text) < MIN_PREFIX:
        raise UsageError(f"{text!r}: expected an id or at least its first {MIN_PREFIX} characters")
