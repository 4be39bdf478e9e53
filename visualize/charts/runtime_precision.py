"""Latency and output error of a model for every runtime and precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from benchmarking.core.records import Precision
from visualize.drawing import words
from visualize.drawing.layout import FigureText, finish, new_figure, wrap
from visualize.drawing.rows import (
    MODEL_COLUMNS,
    POINT_COLUMNS,
    ChartPlugin,
    Drawing,
    NotDrawn,
    Row,
    axis_values,
    clear_winner,
    details,
    distinct_names,
    grouped,
    is_ok,
    trust,
)
from visualize.drawing.style import SMALL_SIZE, TEXT_SIZE, look, number, text_on, theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SQL = """
SELECT {facts}, c.place, c.is_ranked, r.latency_median_ms AS value, r.latency_ci_low_ms AS low,
    r.latency_ci_high_ms AS high, r.output_error
FROM {tables}
JOIN runtime_comparison c ON c.result_id = r.result_id
WHERE {selected}
ORDER BY {order}
"""

SUBJECT = ("model_id", *MODEL_COLUMNS, "place", "num_threads", "cpu_list", *POINT_COLUMNS)
"""What all results of a picture share."""
RUNTIME = ("runtime", "runtime_mode", "device", "device_name", "simulated", "hardware_id")
"""Columns that identify a row."""
PRECISIONS: tuple[str, ...] = get_args(Precision)
"""Precisions in column order."""
LABEL_IN, CELL_IN, ROW_IN, MOST_PANELS, MOST_ROWS = 2.0, 1.15, 0.55, 2, 30


class RuntimePrecision(ChartPlugin):
    name = "runtime_precision"
    title = "Latency and error by runtime and precision"
    needs = "a model measured with two runtimes or precisions on the same device"
    sql = SQL

    def draw(self, rows: Sequence[Row]) -> Iterator[Drawing | NotDrawn]:
        for key, members in grouped(rows, SUBJECT):
            drawn = [row for row in members if is_ok(row) and row["value"]]
            if len({(row["runtime"], row["precision"]) for row in drawn}) < 2:
                continue  # a single cell is no comparison
            yield _drawing(key, drawn)


def _drawing(key: Row, drawn: Sequence[Row]) -> Drawing:
    groups = sorted(grouped(drawn, RUNTIME), key=lambda group: min(row["value"] for row in group[1]))
    shown = groups[:MOST_ROWS]
    facts = [details(own, RUNTIME[1:]) for own, _ in shown]
    names = distinct_names([own["runtime"] for own, _ in shown], facts, ", ")
    columns = [name for name in PRECISIONS if any(row["precision"] == name for row in drawn)]
    sizes = sorted({row["batch_size"] for row in drawn})
    batches = sizes if len(sizes) <= MOST_PANELS else [sizes[0], sizes[-1]]
    with theme():
        width_in = LABEL_IN + CELL_IN * len(columns) * len(batches)
        figure, panels = new_figure(max(width_in, 5.4), 0.9 + ROW_IN * len(shown), 1, len(batches))
        for axes, batch in zip(panels, batches, strict=True):
            at = {(place, row["precision"]): row for place, (_, members) in enumerate(shown) for row in members
                  if row["batch_size"] == batch}  # fmt: skip
            _draw_panel(axes, at, columns, len(shown))
            axes.set_title(f"batch {batch}: ms per call", loc="left")
            axes.set_yticks(
                [place + 0.5 for place in range(len(shown))], [wrap(name, TEXT_SIZE, LABEL_IN - 0.2) for name in names]
            )
        cells = [row for _, rows in shown for row in rows if row["batch_size"] in batches]
        finish(figure, _figure_text(key, cells, sizes, batches, len(groups) - len(shown)))
    return Drawing(
        figure=figure,
        name_parts=(
            str(key["model_id"]),
            str(drawn[0]["device"]).split(":")[0],
            *words.point_names(key["new_tokens"], key["concurrency"], axis_values(key)),
        ),
        details=details(key, (*MODEL_COLUMNS, "num_threads", "cpu_list", "place")),
    )


def _draw_panel(axes: Axes, at: dict[tuple[int, str], Row], columns: Sequence[str], count: int) -> None:
    """One cell per runtime and precision, coloured by latency; invalid cells are crossed out and uncoloured."""
    import seaborn
    from matplotlib.colors import LogNorm

    sound = {place: row["value"] for place, row in at.items() if row["is_ranked"]}
    values = list(sound.values()) or [1.0]
    low, high = min(values), max(values)
    norm = LogNorm(low, high if high > low else low * 1.01)
    grid = [[sound.get((line, name), float("nan")) for name in columns] for line in range(count)]
    seaborn.heatmap(
        grid, ax=axes, norm=norm, cmap=look().gradient, cbar=False, linewidths=1.5, linecolor=look().background
    )
    fills = axes.collections[0]
    best = clear_winner([row for row in at.values() if row["is_ranked"]], "lower")
    for (line, name), row in at.items():
        column = columns.index(name)
        own = look().ink
        if row["is_ranked"]:
            own = text_on(fills.cmap(norm(row["value"])))
        axes.text(
            column + 0.5, line + 0.5, _cell(row, is_best=row is best), ha="center",
            va="center", color=own, fontsize=SMALL_SIZE, linespacing=1.35, label=f"_cell {line} {name}",
        )  # fmt: skip
        if trust(row) == "invalid":
            ends = ([column + 0.08, column + 0.92], [line + 0.92, line + 0.08])
            axes.plot(*ends, color=look().ink, linewidth=1, label=f"_crossed {line} {name}")
    axes.set_xticks([index + 0.5 for index in range(len(columns))], columns, rotation=0)
    axes.tick_params(axis="y", rotation=0, length=0)
    axes.grid(visible=False)


def _cell(row: Row, *, is_best: bool) -> str:
    """The latency, marked with ~ if doubtful and a star if fastest, and the error."""
    mark = "~" if trust(row) == "doubtful" else ""
    star = " \N{BLACK STAR}" if is_best else ""
    error = "" if row["output_error"] is None else f"\nerror {row['output_error']:.0e}".replace("e+00", "")
    state = "\nsimulated" if row["simulated"] else "\ninvalid" if trust(row) == "invalid" else ""
    return f"{mark}{number(row['value'])}{star}{error}{state}"


def _title(key: Row, shown: Sequence[Row], batch: int) -> str:
    """The finding, if one runtime and precision is the fastest at the smallest batch size."""
    best = clear_winner([row for row in shown if row["is_ranked"] and row["batch_size"] == batch], "lower")
    if best is None:
        return f"{RuntimePrecision.title}: {key['model_id']}"
    return f"{key['model_id']}: {best['runtime']} at {best['precision']} is the fastest at batch {batch}"


def _figure_text(
    key: Row, shown: Sequence[Row], sizes: Sequence[int], batches: Sequence[int], rows_left_out: int
) -> FigureText:
    missing = [str(size) for size in sizes if size not in batches]
    reading = (
        "Star: the fastest; its interval overlaps no other.",
        "Error: relative L2 distance from the output of unmodified PyTorch at float32.",
    )
    lacking = (
        words.doubts(shown, ("~", "Crossed out")),
        f"Batch sizes without a panel: {', '.join(missing)}." if missing else None,
        f"Left out: the {rows_left_out} slowest runtimes." if rows_left_out else None,
    )
    same = {**key, "batch_size": 1}
    held = (
        words.device({**shown[0], "simulated": False}),
        str(key["task"]),
        words.unbroken(words.point(same, with_batch=False)),
    )
    title = _title(key, shown, batches[0])
    return FigureText(
        title=title,
        subtitle=words.subtitle(title, RuntimePrecision.title, *held),
        source=words.provenance(shown),
        notes=words.sentences(reading, lacking),
    )


PLUGIN = RuntimePrecision()
