"""The charts of a report: one in front, the others folded, drawn by the same plugins as image files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from visualize.drawing.configurations import CONFIGURATION
from visualize.drawing.figure import Figure
from visualize.drawing.rows import Row, Selection, charts, grouped
from visualize.pages import vega

if TYPE_CHECKING:
    from db.warehouse import Warehouse
    from visualize.pages.elements import Chart

IN_FRONT = ("load_latency", "hardware_comparison", "latency_vs_batch_size")
"""Charts in the order in which one is chosen for the front."""
COMPARISONS = ("hardware_comparison",)
"""Charts that show nothing more than others unless there are two configurations."""
MOST_CHARTS = 24
"""Maximum charts of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The charts of a model."""

    front: Chart | None
    others: tuple[Chart, ...]
    left_out: int = 0


def rows_by_chart(warehouse: Warehouse, ids: Sequence[str]) -> Mapping[str, Sequence[Row]]:
    """The rows of each chart of a model for these results; without charts over time, which show one run of each."""
    selection = Selection(results=tuple(ids), profiles=())
    names = [name for name, one in charts().items() if one.by_default and one.scope == "model" and not one.has_metric]
    return {name: charts()[name].rows(warehouse, selection) for name in names}


def drawn(rows: Mapping[str, Sequence[Row]], ids: Collection[str]) -> Drawn:
    """The charts of those of the results."""
    figures: dict[str, list[Figure]] = {}
    for name, found in rows.items():
        own = [row for row in found if row.get("result_id") in ids]
        if own and not (name in COMPARISONS and len(grouped(own, CONFIGURATION)) < 2):
            figures[name] = [one for one in charts()[name].draw(own) if isinstance(one, Figure)]
    order = sorted(figures, key=lambda name: (IN_FRONT.index(name) if name in IN_FRONT else len(IN_FRONT), name))
    every = [one for name in order for one in figures[name]]
    front = next((one for name in IN_FRONT for one in figures.get(name, ())), None)
    others = [one for one in every if one is not front]
    return Drawn(
        front=None if front is None else vega.chart(front),
        others=tuple(map(vega.chart, others[:MOST_CHARTS])),
        left_out=max(0, len(others) - MOST_CHARTS),
    )
