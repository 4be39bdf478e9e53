"""The newest profiles, each with the part of the model that takes most of the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from visualize.drawing.profiles import WORDS
from visualize.pages.elements import Grid, Link, headings, number_cell, point_text, text_cell, time_text
from visualize.pages.site import View
from visualize.pages.views.profile import ProfileParameters

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

MOST = 200
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesParameters:
    """None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesPage:
    """The content of the page, for its template."""

    profiles: Grid
    most: int = MOST


def page(data: Data, parameters: ProfilesParameters) -> ProfilesPage:
    """The page."""
    rows = data.warehouse.query(NEWEST, {"most": MOST}).dicts()
    numbers = ("call (ms)",)
    names = ("started (UTC)", "model", "device", "runtime", "precision", "point", *numbers, "most time in")
    return ProfilesPage(
        profiles=Grid(
            headings=headings(names, numbers),
            rows=tuple(
                (
                    text_cell(
                        time_text(row["started_at"]),
                        link=Link(view="profile", parameters=ProfileParameters(profile_id=row["profile_id"])),
                    ),
                    text_cell(row["model_id"]),
                    text_cell(row["device"]),
                    text_cell(row["runtime"]),
                    text_cell(row["precision"]),
                    text_cell(point_text(row)),
                    number_cell(row["latency_median_ms"], hint="median without the profiler"),
                    text_cell(f"{WORDS.get(row['kind'], row['kind'])}, {row['share']:.0%}" if row["share"] else None),
                )
                for row in rows
            ),
            caption="Profiles",
        )
    )


VIEW = View(
    name="profiles",
    path="/profiles",
    title="Profiles",
    parameters=ProfilesParameters,
    page=page,
    in_files=lambda parameters: parameters,
)
