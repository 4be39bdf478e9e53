"""Charts of stored profiles: a flame graph of nested modules, and the time of each layer by kind of module.

The width of a block is the sum of the exclusive times of its module and all modules below, so every row of a flame
graph adds up to the call. Times are those of the accelerator if there is one, else of the host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.profiles import HEAD, KINDS, OTHER, OUTSIDE
from benchmarking.core.text import share_text
from visualize.drawing import words
from visualize.drawing.figure import Block, Colour, Element, Entry, Figure, Note, Panel
from visualize.drawing.marks import figure
from visualize.drawing.rows import SELECTED, ChartPlugin, Drawing, Row, Selection, details
from visualize.drawing.scales import Axis, number, row_axis, share_axis, value_axis

CHOSEN = "run.profile_id IN (SELECT unnest($profiles::VARCHAR[]))"
"""The condition of `Selection.profiles`."""
SQL = """
SELECT run.* EXCLUDE (latency_samples_ms, profiled_samples_ms, tokenize_samples_ms), run.profile_id AS run_id,
    hardware.device_name, hardware.simulated, 1 AS launches,
    (SELECT list(struct_pack(
        module := m.module, class_name := m.class_name, kind := m.kind, layer := m.layer, calls := m.calls,
        inclusive_ms := coalesce(m.device_inclusive_ms, m.inclusive_ms),
        exclusive_ms := coalesce(m.device_exclusive_ms, m.exclusive_ms)
    ) ORDER BY m.ordinal) FROM profile_modules m WHERE m.profile_id = run.profile_id) AS modules,
    (SELECT list(struct_pack(
        module := o.module, operator := o.operator, kind := o.kind, calls := o.calls, bound := o.bound,
        exclusive_ms := coalesce(o.device_ms, o.exclusive_ms)
    ) ORDER BY o.ordinal) FROM profile_ops o WHERE o.profile_id = run.profile_id) AS operators
FROM profiles run JOIN hardware_info hardware USING (hardware_id)
WHERE {selected}
QUALIFY row_number() OVER (PARTITION BY run.series_id ORDER BY run.started_at DESC, run.profile_id DESC) = 1
ORDER BY run.model_id, run.device, run.runtime, run.precision, run.batch_size, run.started_at, run.profile_id
"""
DETAILS = ("weights", "runtime_mode", "num_threads", "hardware_id")
"""Columns that distinguish profiles of the same cell and point."""
LEAST_SHARE = 0.002
"""Minimum share of a call; narrower blocks would be invisible."""
NOTABLE = 1.25
"""Ratio from which layers count as different; the slowest layer is named if it takes this multiple of the median."""
HEAD_COLOUR = 10
WORDS = {"feed_forward": "feed-forward", "mixer": "mixer (state space)", OTHER: "other"}
NO_LAYER = "outside layers"
CALL = "the call"
MODULE_COLUMNS = ("module", "class", "part", "calls", "own ms", "share", "total ms")
FLAME_ROW_IN, LAYER_ROW_IN, MOST_DEPTH, MOST_LAYERS, OPERATOR_OPACITY = 0.29, 0.3, 40, 120, 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A module or operator of a flame graph, or a part of a layer."""

    name: str
    """Path of a module, or name of an operator."""
    label: str
    """Short name."""
    kind: str
    share: float
    """Width, as a share of the call."""
    ms: float
    begin: float = 0.0
    """Start in a flame graph, as a share of the call."""
    depth: int = 0
    """In a flame graph, from 0 for the call."""
    is_operator: bool = False

    @property
    def words(self) -> str:
        """Name, time and kind, for tooltips."""
        kind = WORDS.get(self.kind, self.kind)
        return f"{self.name}: {number(self.ms)} ms, {share_text(self.share)} of the call ({kind})"


class ProfileChart(ChartPlugin):
    """A chart of stored profiles, which do not belong to results."""

    columns = ""
    of_cell = True

    def groups(self, rows: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
        return [(row, [row]) for row in rows]

    def statement(self, selection: Selection) -> str:
        """The newest profile of each series in the selection."""
        return SQL.format(selected=SELECTED if selection.profiles is None else f"{SELECTED} AND {CHOSEN}")

    def _figure(self, row: Row, panel: Panel, title: str, spans: Iterable[Span], **parts: Any) -> Figure:
        kinds = sorted({span.kind for span in spans}, key=KINDS.index)
        return figure(
            self, row, [row], [panel], title=title,
            subtitle=words.SEPARATOR.join((self.title, words.cell(row), words.point(row))),
            legend=tuple(Entry(label=WORDS.get(kind, kind), colour=_fill(kind)) for kind in kinds),
            names=[words.point(row)], details=details(row, DETAILS), **parts,
        )  # fmt: skip


class FlameGraph(ProfileChart):
    name = "flame_graph"
    title = "Time by module and operator"
    needs = "a profile (benchhouse profile MODEL --save)"

    def drawing(self, row: Row, rows: Sequence[Row]) -> Drawing:
        shown = [span for span in flame(row) if span.depth < MOST_DEPTH]
        if not shown:
            return "the profile has no module times"
        depth = max(span.depth for span in shown) + 1
        total = total_ms(row)
        x = share_axis(f"Share of a call of {number(total)} ms ({clock(row)})")
        y = Axis(low=-0.5, high=depth - 0.5, from_top=True, has_grid=False)
        blocks = []
        for span in shown:
            fill = _fill(span.kind)
            blocks.append(
                Block(
                    left=span.begin, right=span.begin + span.share, bottom=span.depth - 0.47, top=span.depth + 0.47,
                    role=span.name, fill=fill, text=span.label, align="left", words=span.words,
                    ink="ink" if span.is_operator else f"on {fill}",
                    opacity=OPERATOR_OPACITY if span.is_operator else 1.0,
                )
            )  # fmt: skip
        modules = tuple(
            (
                module["module"] or "outside modules", module["class_name"],
                WORDS.get(module["kind"], module["kind"]), module["calls"], module["exclusive_ms"],
                share_text(module["exclusive_ms"] / total) if total else None, module["inclusive_ms"],
            )
            for module in row["modules"] or ()
        )  # fmt: skip
        how = (
            "Modules are nested from the top down, with operators (fainter) below the module that called them; a gap "
            f"below a module is its own code. {_caveat(row)}"
        )
        panel = Panel(x=x, y=y, elements=tuple(blocks), height_in=FLAME_ROW_IN * depth + 0.7)
        return self._figure(
            row, panel, flame_title(row), shown, notes=(how,), width_in=11.0, columns_of_table=MODULE_COLUMNS,
            rows=modules,
        )  # fmt: skip


class LayerTimes(ProfileChart):
    name = "layer_times"
    title = "Time by layer"
    needs = "a profile of a model with layers (benchhouse profile MODEL --save)"

    def drawing(self, row: Row, rows: Sequence[Row]) -> Drawing:
        every = layers(row)
        if not every:
            return "the profile has no layers; flame_graph shows its modules"
        shown, total = dict(list(every.items())[:MOST_LAYERS]), total_ms(row)
        elements: list[Element] = []
        for place, (layer, own) in enumerate(shown.items()):
            left = 0.0
            for span in own:
                elements.append(
                    Block(
                        left=left, right=left + span.ms, bottom=place - 0.36, top=place + 0.36,
                        role=f"{span.kind} {layer}", fill=_fill(span.kind), words=span.words,
                    )
                )  # fmt: skip
                left += span.ms
            elements.append(Note(x=left, y=place, text=f"{number(left)} ms", dx=4))
        longest = max(sum(one.ms for one in own) for own in shown.values())
        x_title = f"{clock(row).capitalize()} per call (ms)\nlower is better"
        x = value_axis(x_title, [longest], room=1.25, may_be_log=False)
        height_in = LAYER_ROW_IN * len(shown) + 0.8
        panel = Panel(x=x, y=row_axis(list(shown)), elements=tuple(elements), height_in=height_in)
        left_out = f"Left out: {len(every) - len(shown)} of {len(every)} layers; see the table profile_modules."
        notes = (_caveat(row), *((left_out,) if len(every) > len(shown) else ()))
        spans = [(layer, one) for layer, own in shown.items() for one in own]
        columns = ("layer", "part", "ms", "share")
        return self._figure(
            row, panel, layers_title(row), [one for _, one in spans], notes=notes, width_in=8.4,
            columns_of_table=columns,
            rows=tuple((layer, one.label, one.ms, share_text(one.ms / total)) for layer, one in spans),
        )  # fmt: skip


def total_ms(row: Row) -> float:
    """Time of the call: the sum of its modules' exclusive times."""
    return sum(float(module["exclusive_ms"]) for module in row["modules"] or ())


def clock(row: Row) -> str:
    """What the times are, for axis titles: those of kernels on an accelerator, or of the host."""
    return "host time" if row["device_busy_ms"] is None else "kernel time"


def flame(row: Row) -> list[Span]:
    """Blocks of the flame graph: the call, modules in model order below their parents, and operators below modules."""
    modules = {module["module"]: module for module in row["modules"] or () if module["module"] != OUTSIDE}
    total = total_ms(row)
    if not total:
        return []
    inner: dict[str, list[str]] = defaultdict(list)
    parents = {path: _parent(path, modules) for path in modules}
    for path, parent in parents.items():
        inner[parent].append(path)
    operators: dict[str, list[Row]] = defaultdict(list)
    for operator in row["operators"] or ():
        operators[operator["module"]].append(operator)
    spent: dict[str, float] = defaultdict(float)
    for path, module in modules.items():  # in its own block and in those of all modules above it
        while path != OUTSIDE:
            spent[path] += module["exclusive_ms"]
            path = parents[path]
    blocks = [Span(name=CALL, label=CALL, kind=OTHER, share=1.0, ms=total)]

    def place(path: str, begin: float, depth: int) -> None:
        for child in inner[path]:
            share = spent[child] / total
            if share >= LEAST_SHARE:
                label = child if path == OUTSIDE else child.removeprefix(f"{path}.")
                blocks.append(
                    Span(
                        name=child, label=label, kind=modules[child]["kind"], depth=depth, begin=begin, share=share,
                        ms=spent[child],
                    )
                )  # fmt: skip
                place(child, begin, depth + 1)
            begin += share
        for operator in sorted(operators[path], key=lambda one: -one["exclusive_ms"]):
            share = operator["exclusive_ms"] / total
            if share >= LEAST_SHARE:
                name = operator["operator"]
                blocks.append(
                    Span(
                        name=name, label=name.removeprefix("aten::"), kind=operator["kind"], depth=depth, begin=begin,
                        share=share, ms=operator["exclusive_ms"], is_operator=True,
                    )
                )  # fmt: skip
                begin += share

    place(OUTSIDE, 0.0, 1)
    return blocks


def _parent(path: str, modules: dict[str, Row]) -> str:
    """The parent of a module; `OUTSIDE` for the model itself, whose path is the name of its class."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        if (above := ".".join(parts[:count])) in modules:
            return above
    root = next((name for name, module in modules.items() if name == module["class_name"]), OUTSIDE)
    return OUTSIDE if path == root else root


def layers(row: Row) -> dict[str, list[Span]]:
    """Blocks of each layer by kind, in model order; modules outside layers come last."""
    spent: dict[str, dict[str, float]] = {}
    for module in row["modules"] or ():
        kinds = spent.setdefault(module["layer"] or NO_LAYER, defaultdict(float))
        kinds[module["kind"]] += module["exclusive_ms"]
    total = total_ms(row)
    if not total or set(spent) == {NO_LAYER}:
        return {}
    spent[NO_LAYER] = spent.pop(NO_LAYER, {})
    found: dict[str, list[Span]] = {}
    for layer, kinds in spent.items():
        named = [(kind, WORDS.get(kind, kind)) for kind in sorted(kinds, key=KINDS.index)]
        found[layer] = [
            Span(name=f"{layer}, {name}", label=name, kind=kind, share=kinds[kind] / total, ms=kinds[kind])
            for kind, name in named
        ]
    return found


def flame_title(row: Row) -> str:
    """Title of a flame graph: the kind of module, or else the operator, that takes most of the call."""
    shares: dict[str, float] = defaultdict(float)
    total = total_ms(row)
    for module in row["modules"] or ():
        shares[module["kind"]] += module["exclusive_ms"] / total if total else 0.0
    for kind, share in sorted(shares.items(), key=lambda one: -one[1]):
        if kind != OTHER:
            return f"{row['model_id']}: {WORDS.get(kind, kind)} takes {share:.0%} of a call"
    spent: dict[str, float] = defaultdict(float)
    for operator in row["operators"] or ():
        spent[operator["operator"]] += operator["exclusive_ms"]
    if not spent:
        return f"Time of {row['model_id']}"
    longest = max(spent, key=lambda name: spent[name])
    return f"{row['model_id']}: {longest} takes {spent[longest] / (total or 1.0):.0%} of a call"


def layers_title(row: Row) -> str:
    """Title of a layer chart: the slowest layer against the median."""
    times = {name: sum(span.ms for span in own) for name, own in layers(row).items() if name != NO_LAYER}
    if not times:
        return f"Layers of {row['model_id']}"
    name, middle = max(times, key=lambda one: times[one]), median(times.values())
    if len(times) == 1 or not middle:
        return f"{row['model_id']}: layer {name} takes {number(times[name])} ms of a call"
    fastest = min(times.values())
    if times[name] >= NOTABLE * middle:  # a median of two layers is neither
        than, base = "the median layer", middle
        if len(times) == 2 and fastest:
            than, base = min(times, key=lambda one: times[one]), fastest
        return f"{row['model_id']}: layer {name} takes {number(times[name] / base)} times as long as {than}"
    similar = "about the same time, " if times[name] < NOTABLE * fastest else ""
    ends = " to ".join(dict.fromkeys((number(fastest), number(times[name]))))
    return f"{row['model_id']}: {len(times)} layers take {similar}{ends} ms each"


def _caveat(row: Row) -> str:
    """The caveat of every profile: the profiler slows the model down."""
    plain, profiled = row["latency_median_ms"], row["profiled_median_ms"]
    calls = f"Means over {row['calls']} calls" if row["calls"] != 1 else "One call"
    return (
        f"{calls} under {row['profiler']}; the median call takes {number(plain)} ms without it and {number(profiled)} "
        "ms under it: use the shares, not the times."
    )


def _fill(kind: str) -> Colour:
    """Colour of a kind of module, the same in every figure; that of the head's place is a grey on dark pages."""
    return "grey" if kind == OTHER else HEAD_COLOUR if kind == HEAD else KINDS.index(kind)


PLUGINS = (FlameGraph(), LayerTimes())
