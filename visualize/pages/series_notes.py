"""Alert triage and notes for a series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.core.metrics import Metric
from db.analysis.annotations import Annotation, list_annotations
from db.analysis.gate.alerts import TRIAGES, list_alerts
from db.analysis.history.changes import change_point_id
from db.analysis.history.histories import ChangePoint, History
from db.analysis.selection import Selection
from db.values import percent_change
from visualize.pages.elements import Link, time_text
from visualize.pages.views.run_page import RunParameters

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

COMMIT_LETTERS = 10
MOST_RUNS = 30
"""Number of newest runs that the form offers as the subject of a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert with its triage."""

    alert_id: str
    title: str
    """Change, time raised, and commits."""
    triage: str
    note: str | None
    run: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A user note."""

    text: str
    about: str
    run: Link | None
    """The run it refers to; None for the whole series."""
    signature: str
    """Author and time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesNotes:
    """Alerts and notes of a series, for its page."""

    alerts: tuple[Alert, ...]
    unraised: int
    """Confirmed regressions without an alert."""
    notes: tuple[Note, ...]
    targets: tuple[tuple[str, str], ...]
    """Possible subjects of a note: (id, text)."""
    triages: tuple[str, ...] = TRIAGES


def series_notes(data: Data, history: History, metric: Metric) -> SeriesNotes:
    """Alerts of the series for the metric, and notes about the series, its runs, results and alerts."""
    rows = list_alerts(data.warehouse, Selection.parse(f"series={history.series_id}"))
    rows = [row for row in rows if row["metric"] == metric.column]
    places = {name: point for point in history.points for name in (point.run_id, point.result_id)}
    about = [history.series_id, *places, *(row["alert_id"] for row in rows)]
    found = list_annotations(data.warehouse, about) if history.points else ()
    newest = reversed(history.points[-MOST_RUNS:])
    return SeriesNotes(
        alerts=tuple(map(_alert, rows)),
        unraised=sum(
            one.change.state == "confirmed"
            and metric.is_worse(one.change.relative_change)
            and not _has_alert(one, rows, history, metric)
            for one in history.change_points
        ),
        notes=tuple(_note(one, places) for one in found),
        targets=(
            (history.series_id, "the whole series"),
            *(
                (
                    one.run_id,
                    f"run of {time_text(one.history_time)}, commit {(one.git_commit or 'none')[:COMMIT_LETTERS]}",
                )
                for one in newest
            ),
        ),
    )


def _alert(row: dict[str, Any]) -> Alert:
    commits = [(row[name] or "")[:COMMIT_LETTERS] for name in ("first_commit", "last_commit")]
    change = "" if row["relative_change"] is None else f"{percent_change(row['relative_change'])}, "
    return Alert(
        alert_id=row["alert_id"],
        title=f"{change}raised {time_text(row['created_at'])} UTC"
        + (f", between commits {commits[0]} and {commits[1]}" if all(commits) else ""),
        triage=row["triage"],
        note=row["note"],
        run=Link(view="run", parameters=RunParameters(run_id=row["run_id"], result=row["result_id"])),
    )


def _has_alert(change: ChangePoint, alerts: Sequence[dict[str, Any]], history: History, metric: Metric) -> bool:
    """Whether an alert refers to the change, by the rule of `raise_alerts`."""
    first, commit = change.first_changed.result_id, change.last_good.git_commit
    places = {point.result_id: place for place, point in enumerate(history.points)}
    good, bad = places[change.last_good.result_id], places[first]
    return any(
        row["change_point_id"] == change_point_id(metric.column, first)
        or (commit is not None and row["first_commit"] == commit)
        or first in row["parameters"].get("results", ())
        or (
            row["result_id"] in places
            and row["parameters"].get("last_good") in places
            and max(good, places[row["parameters"]["last_good"]]) <= min(bad, places[row["result_id"]])
        )
        for row in alerts
    )


def _note(one: Annotation, places: dict[str, Any]) -> Note:
    point = places.get(one.target_id)
    by = f"{one.author}, " if one.author else ""
    return Note(
        text=one.note,
        about=f"run of {time_text(point.history_time)}" if point else f"the {one.target_kind}",
        run=None if point is None else Link(view="run", parameters=RunParameters(run_id=point.run_id)),
        signature=f"{by}{time_text(one.created_at)} UTC",
    )
