"""Models measured under the same conditions, by architecture family: latency and peak memory, a block per task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarking.core.axes import FURTHER
from benchmarking.core.metrics import PEAK_MEMORY
from benchmarking.core.plugins import family_names
from visualize.drawing import words
from visualize.drawing.figure import Entry, Figure, Line, NotDrawn, Panel
from visualize.drawing.marks import ends, mark, states_legend
from visualize.drawing.rows import (
    LATENCY,
    MEMORY_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    Row,
    details,
    distinct_names,
    grouped,
    is_ok,
    read_column,
)
from visualize.drawing.scales import Axis, name_axis, value_axis

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
ROW_IN, NARROW_ROW_IN, NARROW_FROM, BLOCK_IN = 0.34, 0.27, 13, 0.45
"""Height of a row, the lower height of many rows, the number of rows from which it is used, and the rest of a block."""
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
    columns = f"{MEMORY_COLUMNS}, {LATENCY}"
    newest = "comparable"
    alike = ALIKE

    def drawing(self, key: Row, members: Sequence[Row]) -> Drawing:
        measured = [row for row in members if is_ok(row) and row["validity"] != "invalid" and row["value"] is not None]
        what = f"{self.title} on {words.cell(key)}, {key['weights']} weights"
        if not measured:
            return NotDrawn(what=what, why=words.nothing_to_draw(members))
        if len({row["model_id"] for row in measured}) < 2:
            return NotDrawn(what=what, why=f"{measured[0]['model_id']} is the only model")
        blocks = _blocks(measured)
        drawn = [row for block in blocks for row in block.rows]
        styles = {family: _place(own[0]["architecture_type"]) for family, own in _by_family(drawn)}
        memory = read_column(drawn, PEAK_MEMORY)
        columns = ["value", *([memory] if memory else [])]
        axes = {"value": value_axis(words.value_title("latency_median_ms"), ends(drawn))}
        if memory:
            axes[memory] = value_axis(words.value_title(memory), ends(drawn, memory))
        row_in = ROW_IN if len(drawn) < NARROW_FROM else NARROW_ROW_IN
        elsewhere = [f"{block.point['task']}: {', '.join(block.elsewhere)}" for block in blocks if block.elsewhere]
        tasks = "Tasks do different work per call: compare only within a block." if len(blocks) > 1 else None
        missing = f"Measured only at other points: {'; '.join(elsewhere)}." if elsewhere else None
        sound = set(map(id, measured))
        lost = [row for row in members if id(row) not in sound]
        entries = [Entry(label=family, colour=style, shape=style) for family, style in styles.items()]
        return Figure(
            title=self.title,
            subtitle=words.cell(key),
            source=words.provenance(drawn),
            notes=words.caption(
                [*drawn, *lost],
                drawn,
                words.interval(drawn, "Whisker"),
                tasks,
                CHOICE,
                lacking=[missing],
                named=lambda row: f"{row['model_id']} at {words.point(row)}",
            ),
            panels=tuple(_panel(block, column, axes[column], styles, row_in) for block in blocks for column in columns),
            columns=len(columns),
            widths=(1.0,) * len(columns),
            width_in=WIDTH_IN,
            legend=(*entries, *states_legend(drawn)),
            legend_title="Architecture family",
            name_parts=tuple(str(key[column]) for column in ("device", "runtime", "precision", "weights")),
            details=details(key, DETAILS),
        )


def _blocks(measured: Sequence[Row]) -> list[Block]:
    """Blocks that together cover every family, in family order. A block is at the point with the most models; ties go
    to the smallest batch, then the longest sequence, then the smallest values on all other axes."""

    def preference(group: tuple[Row, list[Row]]) -> tuple[float, ...]:
        point, rows = group
        further = [point[name] or 0 for name in FURTHER]
        models = len({row["model_id"] for row in rows})
        return (-models, point["batch_size"], -(point["sequence_length"] or 0), point["new_tokens"] or 0, *further)

    blocks: list[Block] = []
    for key, rows in grouped(measured, ("task",)):
        while rows:
            point, chosen = min(grouped(rows, ("batch_size", *POINT_COLUMNS)), key=preference)
            shown = {row["architecture_type"] for row in chosen}
            best = {family: min(row["value"] for row in members) for family, members in _by_family(chosen)}
            ordered = sorted(chosen, key=lambda row: (-best[words.family(row)], words.family(row), -row["value"]))
            models = {row["model_id"] for row in rows if row["architecture_type"] in shown}
            elsewhere = sorted(models - {row["model_id"] for row in chosen})
            blocks.append(Block(point={**point, **key}, rows=tuple(ordered), elsewhere=tuple(elsewhere)))
            rows = [row for row in rows if row["architecture_type"] not in shown]
    return sorted(blocks, key=lambda block: min(_place(row["architecture_type"]) for row in block.rows))


def _by_family(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows grouped by family, in family order."""
    groups = grouped(rows, ("architecture_type",))
    groups.sort(key=lambda group: _place(group[0]["architecture_type"]))
    return [(words.family(key), members) for key, members in groups]


def _place(family: str | None) -> int:
    """Index of the family, which fixes its colour and marker in every picture."""
    names = family_names()
    return names.index(family) if family in names else len(names)


def _panel(block: Block, column: str, x: Axis, styles: dict[str, int], row_in: float) -> Panel:
    """One mark per model, with its family's colour and shape, and its interval as a whisker."""
    lines = []
    for place, row in enumerate(block.rows):
        if row[column] is not None:
            style = styles[words.family(row)]
            low, high = (row["low"], row["high"]) if column == "value" else (None, None)
            own = mark(row, row[column], place, low=low, high=high)
            lines.append(
                Line(
                    label=str(row["model_id"]), role="mark", marks=(own,), colour=style, shape=style, dashes=None,
                    is_across=True, has_bands=False,
                )
            )  # fmt: skip
    title = ""
    if column == "value":  # the task and the point, preceded by the family if there is only one
        families = {words.family(row) for row in block.rows}
        task = block.point["task"] if len(families) > 1 else f"{families.pop()}, {block.point['task']}"
        title = words.unbroken(f"{task}: {words.point(block.point)}")
    # Settings distinguish models of the same name.
    facts = [details(row, ("runtime_mode", "model_revision", "config_hash")) for row in block.rows]
    plain = [
        str(row["model_id"])
        + ("" if (size := row["parameter_count"]) is None else " " + words.unbroken(f"({words.size(size)})"))
        for row in block.rows
    ]
    names = distinct_names(plain, facts, ", ")
    return Panel(
        x=x, y=name_axis(names, edge=0.6), elements=tuple(lines), title=title,
        height_in=BLOCK_IN + len(block.rows) * row_in,
    )  # fmt: skip


PLUGIN = ArchitectureComparison()
