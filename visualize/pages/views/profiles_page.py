"""The pages of profiles: the newest profiles, and one in detail, as flame graph and time by layer and operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MB
from benchmarking.core.text import counted, grouped, share_text, visible
from visualize.charts import profiles
from visualize.drawing.rows import Row, charts
from visualize.pages import vega
from visualize.pages.elements import (
    Cell,
    Chart,
    Link,
    column,
    commit_text,
    facts,
    filled,
    grid,
    number_cell,
    number_text,
    point_text,
    settings_text,
    text_cell,
    time_text,
)  # fmt: skip
from visualize.pages.site import NoParameters, NotFoundError, View

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

MOST = 200
MOST_OPERATORS = 40
LEAST_SHARE = 0.001
"""Minimum share of a call of an operator in the table."""
NEWEST = """
WITH newest AS (
    SELECT * FROM profiles ORDER BY started_at DESC, profile_id DESC LIMIT $most
), parts AS (
    SELECT profile_id, kind, sum(coalesce(device_exclusive_ms, exclusive_ms)) AS ms FROM profile_modules
    WHERE profile_id IN (SELECT profile_id FROM newest) GROUP BY ALL
), longest AS (
    SELECT profile_id, max_by(kind, ms) AS kind, max(ms) / nullif(sum(ms), 0) AS share FROM parts GROUP BY profile_id
)
SELECT newest.*, kind, share FROM newest LEFT JOIN longest USING (profile_id)
ORDER BY started_at DESC, newest.profile_id DESC
"""
ONE = profiles.SQL.format(selected="run.profile_id = $profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileParameters:
    """The profile."""

    profile_id: str


COLUMNS: Mapping[str, Callable[[Any], Cell]] = {
    "started (UTC)": lambda row: text_cell(
        time_text(row["started_at"]),
        link=Link(view="profile", parameters=ProfileParameters(profile_id=row["profile_id"])),
    ),
    "model": column("model_id"),
    "device": column("device"),
    "runtime": column("runtime"),
    "precision": column("precision"),
    "point": lambda row: text_cell(point_text(row)),
    "call (ms)": lambda row: number_cell(row["latency_median_ms"], hint="median without the profiler"),
    "most time in": lambda row: text_cell(
        f"{profiles.WORDS.get(row['kind'], row['kind'])}, {row['share']:.0%}" if row["share"] else None
    ),
}


def profiles_page(data: Data, parameters: NoParameters) -> SimpleNamespace:
    """The page."""
    rows = data.warehouse.query(NEWEST, {"most": MOST}).dicts()
    return SimpleNamespace(profiles=grid(COLUMNS, rows, "Profiles", ("call (ms)",)), most=MOST)


def profile_page(data: Data, parameters: ProfileParameters) -> SimpleNamespace:
    """The page. Raises NotFoundError."""
    rows = data.warehouse.query(ONE, {"profile": parameters.profile_id}).dicts()
    if not rows:
        raise NotFoundError(f"no profile {parameters.profile_id!r}: see the page Profiles")
    (row,) = rows
    spent = grouped((operator["operator"], operator) for operator in row["operators"] or ())
    total = profiles.total_ms(row)
    own = {name: sum(call["exclusive_ms"] for call in calls) for name, calls in spent.items()}
    operators: Mapping[str, Callable[[str], Cell]] = {
        "operator": text_cell,
        "calls": lambda name: number_cell(sum(one["calls"] for one in spent[name])),
        "own ms": lambda name: number_cell(own[name]),
        "share": lambda name: text_cell(share_text(own[name] / total) if total else None),
        "limited by": lambda name: text_cell(
            " and ".join(sorted({one["bound"] for one in spent[name] if one["bound"]})) or None
        ),
    }
    longest = [name for name in sorted(spent, key=lambda name: -own[name]) if own[name] >= LEAST_SHARE * total]
    longest = longest[:MOST_OPERATORS]
    others = spent.keys() - set(longest)
    rest = f"Not listed: {counted(len(others), 'further operator')}" if others else None
    if rest and total:
        rest += f", with {share_text(sum(own[name] for name in others) / total)} of a call"
    return SimpleNamespace(
        title=visible(f"Profile of {row['model_id']} on {row['device_name'] or row['device']}"),
        profile_id=row["profile_id"],
        facts=_facts(row),
        charts=profile_charts(row),
        operators=grid(filled(operators, longest), longest, "Longest operators", ("calls", "own ms", "share")),
        rest=rest,
        missing=tuple((name.replace("_", " "), visible(why)) for name, why in sorted(dict(row["missing"]).items())),
        command=row["command"],
    )


def profile_charts(row: Row) -> tuple[Chart, ...]:
    """The flame graph of a profile, and its layer times if it has layers."""
    return tuple(chart for name in ("flame_graph", "layer_times") for chart in vega.charts(charts()[name].draw([row])))


def _facts(row: Row) -> tuple[tuple[str, str], ...]:
    latency = f"{_ms(row['latency_median_ms'])}; under the profiler {_ms(row['profiled_median_ms'])}"
    return facts(
        {
            "runtime": row["runtime"] + settings_text(row["runtime_mode"]),
            "precision": row["precision"],
            "point": point_text(row),
            "weights": row["weights"],
            "started": f"{time_text(row['started_at'])} UTC",
            "profiler": f"{row['profiler']}, {row['calls']} calls",
            "latency": latency,
            "outside operators": _ms(row["outside_operators_ms"]),
            "accelerator idle": _ms(row["device_idle_ms"]),
            "kernel launches": _count(row["kernel_launches"]),
            "operator calls": _count(row["operator_calls"]),
            "peak memory": None if row["peak_bytes"] is None else f"{number_text(row['peak_bytes'] / BYTES_PER_MB)} MB",
            "graphs": _count(row["graph_count"]),
            "graph breaks": _count(row["graph_break_count"]),
            "graph break reasons": "; ".join(map(str, json.loads(row["details"]).get("graph_break_reasons") or ())),
            "commit": commit_text(row),
            "tags": ", ".join(f"{name}={value}" for name, value in dict(row["tags"]).items()),
            "description": row["description"],
        }
    )


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{number_text(value)} ms"


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


VIEWS = (
    View(
        name="profiles",
        path="/profiles",
        question="Where does a call spend its time?",
        title="Profiles",
        parameters=NoParameters,
        page=profiles_page,
        in_files=lambda parameters: parameters,
    ),
    View(
        name="profile",
        path="/profiles/{profile_id}",
        title="Profile",
        parameters=ProfileParameters,
        page=profile_page,
        is_in_navigation=False,
        has_charts=True,
        in_files=lambda parameters: parameters,
    ),
)
