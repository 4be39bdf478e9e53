"""The newest load tests, each with its levels, knee and highest rates."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from visualize.drawing.loads import level_words
from visualize.pages.elements import Cell, Grid, Link, headings, number_cell, state_cell, text_cell, time_text
from visualize.pages.site import View
from visualize.pages.views.load import LoadParameters, kind_of

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

MOST = 200
NEWEST = """
WITH newest AS (
    SELECT * FROM benchmark_runs WHERE (runtime_mode->>'loop') IS NOT NULL ORDER BY started_at DESC, run_id DESC
    LIMIT $most
), levels AS (
    SELECT
        run_id,
        count(*) FILTER (WHERE status = 'ok') AS measured,
        count(*) AS levels,
        max(throughput_samples_per_sec) AS most_requests,
        max(throughput_tokens_per_sec) AS most_tokens,
        max(other_metrics['goodput_requests_per_sec']) AS most_goodput,
        max_by({'axes': axes, 'concurrency': concurrency, 'validity': validity}, result_id)
            FILTER (WHERE CAST(extra->>'$.load.is_knee' AS BOOLEAN)) AS knee,
        count(*) FILTER (WHERE validity = 'invalid') AS invalid,
        count(*) FILTER (WHERE validity NOT IN ('valid', 'invalid')) AS doubtful
    FROM benchmark_results
    WHERE run_id IN (SELECT run_id FROM newest) AND (extra->'$.load.searched_per_s') IS NULL GROUP BY run_id
)
SELECT newest.*, levels.* EXCLUDE (run_id), hardware.device_name
FROM newest LEFT JOIN levels USING (run_id) JOIN hardware_info hardware USING (hardware_id)
ORDER BY started_at DESC, newest.run_id DESC
"""
"""Without results of searches for a rate, which are not levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadsParameters:
    """None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadsPage:
    """The content of the page, for its template."""

    loads: Grid
    most: int = MOST


def page(data: Data, parameters: LoadsParameters) -> LoadsPage:
    """The page."""
    return LoadsPage(loads=newest_loads(data, MOST))


def newest_loads(data: Data, most: int) -> Grid:
    """A row for each of the newest loads, with a link to its page."""
    numbers = ("levels", "requests/s", "tokens/s", "goodput/s")
    names = ("started (UTC)", "model", "server", "engine", "loop", *numbers, "knee", "state")
    rows = data.warehouse.query(NEWEST, {"most": most}).dicts()
    return Grid(headings=headings(names, numbers), rows=tuple(map(_cells, rows)), caption="The newest loads")


def _cells(row: dict[str, Any]) -> tuple[Cell, ...]:
    return (
        text_cell(time_text(row["started_at"])),
        text_cell(row["model_id"], link=Link(view="load", parameters=LoadParameters(run_id=row["run_id"]))),
        text_cell(row["device_name"] or row["device"]),
        text_cell(row["runtime"]),
        text_cell(kind_of(json.loads(row["runtime_mode"]))),
        text_cell(f"{row['measured'] or 0}/{row['levels'] or 0}", hint="measured / planned"),
        number_cell(row["most_requests"]),
        number_cell(row["most_tokens"]),
        number_cell(row["most_goodput"], hint="requests per second within every limit"),
        text_cell(_knee(row)),
        _state(row),
    )


def _knee(row: dict[str, Any]) -> str | None:
    if row["knee"] is None:
        return None
    mode, axes = json.loads(row["runtime_mode"]), json.loads(row["knee"]["axes"])
    return level_words({**row["knee"], "loop": mode["loop"], "offered_rate": axes.get("request_rate")})


def _state(row: dict[str, Any]) -> Cell:
    if row["status"] != "ok":
        return state_cell(row["status"])
    found = {"invalid": row["invalid"] or 0, "doubtful": row["doubtful"] or 0}
    states = ", ".join(f"{count} {word}" for word, count in found.items() if count)
    return text_cell(states or "valid", tone="bad" if found["invalid"] else "warn" if states else "")


VIEW = View(
    name="loads",
    path="/loads",
    title="Loads",
    parameters=LoadsParameters,
    page=page,
    in_files=lambda parameters: parameters,
)
