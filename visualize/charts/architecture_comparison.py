"""Models measured under the same conditions, by architecture family: latency and peak memory, a block per task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import FURTHER
from benchmarking.core.plugins import family_names
from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure, wrap
from visualize.drawing.lines import doubtful_entries, draw_marks, legend_entry
from visualize.drawing.rows import (
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    details,
    distinct_names,
    grouped,
    is_doubtful,
    is_ok,
    memory_column,
)
from visualize.drawing.style import TEXT_SIZE, colour, scale_value_axis, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, {memory},
    r.latency_median_ms AS value, r.latency_ci_low_ms AS low, r.latency_ci_high_ms AS high
FROM {tables}
WHERE r.result_id IN {comparable} AND {selected}
ORDER BY {order}
"""

ALIKE = (
    "device",
    "runtime",
    "precision",
    "weights",
    "device_name",
    "simulated",
    "num_threads",
    "cpu_list",
    "hardware_id",
    "metric_definition",
)
"""What all results of a picture share. Runtime settings may differ, since models support different ones."""
DETAILS = ("device_name", "num_threads", "cpu_list", "metric_definition", "hardware_id")
LINE_IN, BLOCK_IN, AXIS_IN, LABEL_IN = 0.16, 0.45, 0.78, 3.2
ROW_IN, NARROW_ROW_IN, NARROW_FROM = 0.3, 0.22, 13
"""Height of a row, the lower height of many rows, and the number of rows from which it is used."""
WIDTH_IN = 9.0
CHOICE = "Each block shows the point that most of its models share."


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The models of one task, at the point that most of them share. Families without that point get another block."""

    point: Row
    rows: tuple[Row, ...]
    """From bottom to top: slowest family first, and within a family slowest model first."""
    elsewhere: tuple[str, ...]
    """Models of the task measured only at other points."""


class ArchitectureComparison(ChartPlugin):
    name = "architecture_comparison"
    title = "Models by architecture family"
    needs = "two or more models on the same device, runtime and precision, with the same kind of weights"
    scope = "models"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, ALIKE):
            measured = [row for row in members if _is_comparable(row)]
            what = f"{self.title} on {words.cell(key)}, {key['weights']} weights"
            if not measured:
                yield NotDrawn(what=what, why=words.nothing_to_draw(members))
            elif len({row["model_id"] for row in measured}) < 2:
                yield NotDrawn(what=what, why=f"{measured[0]['model_id']} is the only model")
            else:
                yield _drawing(self.title, key, members, _blocks(measured))


def _is_comparable(row: Row) -> bool:
    return is_ok(row) and row["validity"] != "invalid" and row["value"] is not None


def _blocks(measured: Sequence[Row]) -> list[Block]:
    """Blocks that together cover every family, in family order."""
    blocks: list[Block] = []
    for _, rows in grouped(measured, ("task",)):
        while rows:
            blocks.append(_block(rows))
            shown = {row["architecture_type"] for row in blocks[-1].rows}
            rows = [row for row in rows if row["architecture_type"] not in shown]
    return sorted(blocks, key=lambda block: min(_place(row["architecture_type"]) for row in block.rows))


def _block(rows: Sequence[Row]) -> Block:
    """The block at the point with the most models. Ties go to the smallest batch, then the longest sequence, then the
    smallest values on all other axes."""
    point, chosen = min(grouped(rows, ("batch_size", *POINT_COLUMNS)), key=_preference)
    measured = {row["model_id"] for row in chosen}
    best = {family: min(row["value"] for row in members) for family, members in _by_family(chosen)}
    ordered = sorted(chosen, key=lambda row: (-best[words.family(row)], words.family(row), -row["value"]))
    shown = {row["architecture_type"] for row in chosen}
    elsewhere = sorted({row["model_id"] for row in rows if row["architecture_type"] in shown} - measured)
    return Block(point={**point, "task": rows[0]["task"]}, rows=tuple(ordered), elsewhere=tuple(elsewhere))


def _preference(group: tuple[Row, list[Row]]) -> tuple[float, ...]:
    point, rows = group
    further = [point[name] or 0 for name in FURTHER]
    models = len({row["model_id"] for row in rows})
    return (-models, point["batch_size"], -(point["sequence_length"] or 0), point["new_tokens"] or 0, *further)


def _by_family(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows grouped by family, in family order."""
    groups = grouped(rows, ("architecture_type",))
    groups.sort(key=lambda group: _place(group[0]["architecture_type"]))
    return [(words.family(key), members) for key, members in groups]


def _place(family: str | None) -> int:
    """Index of the family, which fixes its colour and marker in every picture."""
    names = family_names()
    return names.index(family) if family in names else len(names)


def _drawing(title: str, key: Row, members: Sequence[Row], blocks: Sequence[Block]) -> Drawing:
    drawn = [row for block in blocks for row in block.rows]
    styles = {family: _place(members[0]["architecture_type"]) for family, members in _by_family(drawn)}
    memory = memory_column(drawn)
    row_in = ROW_IN if len(drawn) < NARROW_FROM else NARROW_ROW_IN
    heights = [_height_in(block, row_in) for block in blocks]
    with theme():
        columns = 2 if memory else 1
        figure, panels = new_figure(
            WIDTH_IN, sum(heights) + AXIS_IN, len(blocks), columns, sharex="col", sharey="row", height_ratios=heights
        )
        for index, block in enumerate(blocks):
            first, *rest = panels[index * columns : (index + 1) * columns]
            _draw_block(first, block, styles)
            if memory and rest:
                _draw_marks(
                    rest[0], [{**row, "value": row[memory], "low": None, "high": None} for row in block.rows], styles
                )
        _scale(panels[0::columns], drawn, ("value", "low", "high"), words.value_title("latency_median_ms"))
        if memory:
            _scale(panels[1::columns], drawn, (memory,), words.value_title(memory))
        finish(figure, _figure_text(title, key, members, blocks, styles))
    return Drawing(
        figure=figure,
        name_parts=tuple(str(key[column]) for column in ("device", "runtime", "precision", "weights")),
        details=details(key, DETAILS),
    )


def _height_in(block: Block, row_in: float) -> float:
    """Height of a block; every row is as high as the longest label requires."""
    lines = max(name.count("\n") + 1 for name in _names(block.rows))
    return BLOCK_IN + len(block.rows) * (row_in + (lines - 1) * LINE_IN)


def _draw_block(axes: Axes, block: Block, styles: dict[str, int]) -> None:
    _draw_marks(axes, block.rows, styles)
    axes.set_yticks(range(len(block.rows)), _names(block.rows))
    axes.set_ylim(-0.6, len(block.rows) - 0.4)
    axes.set_title(wrap(_heading(block), TEXT_SIZE, WIDTH_IN - LABEL_IN - 0.8), loc="left", x=0)


def _heading(block: Block) -> str:
    """The task and the point, preceded by the family if there is only one."""
    families = {words.family(row) for row in block.rows}
    task = block.point["task"] if len(families) > 1 else f"{families.pop()}, {block.point['task']}"
    return words.unbroken(f"{task}: {words.point(block.point)}")


def _draw_marks(axes: Axes, rows: Sequence[Row], styles: dict[str, int]) -> None:
    """One mark per model, with its family's colour and shape, and its interval as a whisker."""
    for place, row in enumerate(rows):
        if row["value"] is None:
            continue
        style = styles[words.family(row)]
        if row["low"] is not None and row["high"] is not None:
            axes.hlines(
                place, row["low"], row["high"], color=colour(style), zorder=2, label=f"_interval {row['model_id']}"
            )
        hollow = is_doubtful(row)
        draw_marks(axes, [(row["value"], place)], colour(style), style, hollow=hollow, label=f"_mark {row['model_id']}")


def _names(rows: Sequence[Row]) -> list[str]:
    """Wrapped labels: each model with its size, and with the settings that distinguish models of the same name."""
    facts = [details(row, ("runtime_mode", "model_revision", "config_hash")) for row in rows]
    names = distinct_names([_name(row) for row in rows], facts, ", ")
    return [wrap(name, TEXT_SIZE, LABEL_IN) for name in names]


def _name(row: Row) -> str:
    count = row["parameter_count"]
    return str(row["model_id"]) if count is None else f"{row['model_id']} {words.unbroken(f'({words.size(count)})')}"


def _name_and_point(row: Row) -> str:
    return f"{row['model_id']} at {words.point(row)}"


def _scale(panels: Sequence[Axes], drawn: Sequence[Row], columns: Sequence[str], label: str) -> None:
    values = [row[column] for row in drawn for column in columns if row[column] is not None]
    for axes in panels:
        scale_value_axis(axes, values, "x")
    panels[-1].set_xlabel(label)


def _figure_text(
    title: str, key: Row, members: Sequence[Row], blocks: Sequence[Block], styles: dict[str, int]
) -> FigureText:
    drawn = [row for block in blocks for row in block.rows]
    elsewhere = [f"{block.point['task']}: {', '.join(block.elsewhere)}" for block in blocks if block.elsewhere]
    tasks = "Tasks do different work per call: compare only within a block." if len(blocks) > 1 else None
    missing = f"Measured only at other points: {'; '.join(elsewhere)}." if elsewhere else None
    lost = [row for row in members if not _is_comparable(row)]
    return FigureText(
        title=title,
        subtitle=words.cell(key),
        source=words.provenance(drawn),
        notes=words.caption(
            [*drawn, *lost],
            drawn,
            words.interval(drawn, "Whisker"),
            tasks,
            CHOICE,
            lacking=[missing],
            named=_name_and_point,
        ),
        legend=_legend(styles, drawn),
        legend_title="Architecture family",
    )


def _legend(styles: dict[str, int], drawn: Sequence[Row]) -> tuple[Any, ...]:
    entries = [legend_entry(family, colour(style), style) for family, style in styles.items()]
    return (*entries, *doubtful_entries(drawn))


PLUGIN = ArchitectureComparison()
