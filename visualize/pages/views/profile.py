"""One profile: a flame graph, and the time of a call by layer, module and operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.core.metrics import BYTES_PER_MB
from benchmarking.core.text import number, visible
from visualize.drawing import profiles
from visualize.pages.elements import Grid, point_text, time_text
from visualize.pages.profile_pictures import Bars, operators_table, pictures
from visualize.pages.site import NotFoundError, View

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

Row = Mapping[str, Any]
ONE = profiles.SQL.format(selected="run.profile_id = $profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileParameters:
    """Which profile."""

    profile_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePage:
    """The content of the page, for its template."""

    title: str
    profile_id: str
    facts: tuple[tuple[str, str], ...]
    pictures: tuple[Bars, ...]
    operators: Grid
    missing: tuple[tuple[str, str], ...]
    command: str


def page(data: Data, parameters: ProfileParameters) -> ProfilePage:
    """The page. Raises NotFoundError."""
    rows = data.warehouse.query(ONE, {"profile": parameters.profile_id}).dicts()
    if not rows:
        raise NotFoundError(f"no profile {parameters.profile_id!r}: the page Profiles lists them")
    (row,) = rows
    return ProfilePage(
        title=visible(f"Profile of {row['model_id']} on {row['device_name'] or row['device']}"),
        profile_id=row["profile_id"],
        facts=_facts(row),
        pictures=pictures(row),
        operators=operators_table(row),
        missing=tuple((name.replace("_", " "), visible(why)) for name, why in sorted(dict(row["missing"]).items())),
        command=row["command"],
    )


def _facts(row: Row) -> tuple[tuple[str, str], ...]:
    mode = ", ".join(f"{name}={value}" for name, value in sorted(json.loads(row["runtime_mode"]).items()))
    reasons = json.loads(row["details"]).get("graph_break_reasons") or ()
    commit = row["git_commit"]
    given = {
        "runtime": row["runtime"] + (f" ({mode})" if mode else ""),
        "precision": row["precision"],
        "point": point_text(row),
        "weights": row["weights"],
        "started": f"{time_text(row['started_at'])} UTC",
        "profiler": f"{row['profiler']}, {row['calls']} calls",
        "latency": f"{number(row['latency_median_ms'])} ms; under the profiler {number(row['profiled_median_ms'])} ms",
        "outside operators": _ms(row["outside_operators_ms"]),
        "accelerator idle": _ms(row["device_idle_ms"]),
        "kernel launches": _count(row["kernel_launches"]),
        "operator calls": _count(row["operator_calls"]),
        "peak memory": None if row["peak_bytes"] is None else f"{number(row['peak_bytes'] / BYTES_PER_MB)} MB",
        "graphs": _count(row["graph_count"]),
        "graph breaks": _count(row["graph_break_count"]),
        "graph break reasons": "; ".join(map(str, reasons)),
        "commit": None if not commit else commit[:10] + (" with changes" if row["git_dirty"] else ""),
        "tags": ", ".join(f"{name}={value}" for name, value in dict(row["tags"]).items()),
        "description": row["description"],
    }
    return tuple((name, visible(str(value))) for name, value in given.items() if value not in (None, ""))


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{number(value)} ms"


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


VIEW = View(
    name="profile",
    path="/profiles/{profile_id}",
    title="Profile",
    parameters=ProfileParameters,
    page=page,
    is_in_navigation=False,
    in_files=lambda parameters: parameters,
)
