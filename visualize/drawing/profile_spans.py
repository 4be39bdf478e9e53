"""Stored profiles prepared for charts: the newest of each series, its nested modules, layers and titles.

The width of a block is the sum of the exclusive times of its module and all modules below, so every row of a flame
graph adds up to the call. Times are those of the accelerator if there is one, else of the host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from benchmarking.core.profiles import KINDS, OTHER, OUTSIDE
from visualize.drawing.figure import Colour, Entry
from visualize.drawing.rows import SELECTED, ChartPlugin, Query, Row, Selection, bound
from visualize.drawing.scales import number
from visualize.drawing.style import LOOKS, legible_on

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
WORDS = {"feed_forward": "feed-forward", "mixer": "mixer (state space)", OTHER: "other"}
NO_LAYER = "outside layers"
CALL = "the call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A module or operator of a flame graph, or a part of a layer."""

    name: str
    """Path of a module, or name of an operator."""
    label: str
    """Short name."""
    kind: str
    depth: int
    """From 0 for the call."""
    begin: float
    """Start, as a share of the call."""
    share: float
    """Width, as a share of the call."""
    ms: float
    is_operator: bool = False

    @property
    def words(self) -> str:
        """Name, time and kind, for tooltips."""
        return f"{self.name}: {number(self.ms)} ms, {self.share:.1%} of the call ({WORDS.get(self.kind, self.kind)})"


class ProfileChart(ChartPlugin):
    """A chart of stored profiles, which do not belong to results."""

    sql = SQL

    def query(self, selection: Selection) -> Query:
        """The newest profile of each series in the selection."""
        selected = SELECTED if selection.profiles is None else f"{SELECTED} AND {CHOSEN}"
        sql = self.sql.format(selected=selected)
        return Query(sql=sql, parameters=bound(sql, selection))


def total_ms(row: Row) -> float:
    """Time of the call: the sum of its modules' exclusive times."""
    return sum(float(module["exclusive_ms"]) for module in row["modules"] or ())


def is_on_device(row: Row) -> bool:
    """Whether times are those of kernels on an accelerator."""
    return row["device_busy_ms"] is not None


def clock(row: Row) -> str:
    """What the times are, for axis titles."""
    return "kernel time" if is_on_device(row) else "host time"


def flame(row: Row) -> list[Span]:
    """Blocks of the flame graph: the call, modules in model order below their parents, and operators below modules."""
    modules = {module["module"]: module for module in row["modules"] or () if module["module"] != OUTSIDE}
    total = total_ms(row)
    if not total:
        return []
    inner: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        inner[_parent(path, modules)].append(path)
    operators: dict[str, list[Row]] = defaultdict(list)
    for operator in row["operators"] or ():
        operators[operator["module"]].append(operator)
    spent = {path: float(module["exclusive_ms"]) for path, module in modules.items()}
    for path in sorted(modules, key=lambda one: -_depth(one, modules)):
        parent = _parent(path, modules)
        if parent != OUTSIDE:
            spent[parent] += spent[path]
    blocks = [Span(name=CALL, label=CALL, kind=OTHER, depth=0, begin=0.0, share=1.0, ms=total)]

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


def _depth(path: str, modules: dict[str, Row]) -> int:
    parent = _parent(path, modules)
    return 0 if parent == OUTSIDE else 1 + _depth(parent, modules)


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
    for depth, (layer, kinds) in enumerate(spent.items()):
        begin = 0.0
        found[layer] = []
        for kind in sorted(kinds, key=KINDS.index):
            share = kinds[kind] / total
            found[layer].append(
                Span(
                    name=f"{layer}, {WORDS.get(kind, kind)}", label=WORDS.get(kind, kind), kind=kind, depth=depth,
                    begin=begin, share=share, ms=kinds[kind],
                )
            )  # fmt: skip
            begin += share
    return found


def kinds_in(row: Row) -> list[tuple[str, float]]:
    """Kinds of modules with their share of the call, largest first."""
    shares: dict[str, float] = defaultdict(float)
    total = total_ms(row)
    for module in row["modules"] or ():
        shares[module["kind"]] += module["exclusive_ms"] / total if total else 0.0
    return sorted(shares.items(), key=lambda one: -one[1])


def flame_title(row: Row) -> str:
    """Title of a flame graph: the kind of module, or else the operator, that takes most of the call."""
    for kind, share in kinds_in(row):
        if kind != OTHER:
            return f"{row['model_id']}: {WORDS.get(kind, kind)} takes {share:.0%} of a call"
    spent: dict[str, float] = defaultdict(float)
    for operator in row["operators"] or ():
        spent[operator["operator"]] += operator["exclusive_ms"]
    if not spent:
        return f"Time of {row['model_id']}"
    longest = max(spent, key=lambda name: spent[name])
    return f"{row['model_id']}: {longest} takes {spent[longest] / (total_ms(row) or 1.0):.0%} of a call"


def layers_title(row: Row) -> str:
    """Title of a layer chart: the slowest layer against the median."""
    times = {name: sum(one.ms for one in own) for name, own in layers(row).items() if name != NO_LAYER}
    if not times:
        return f"Layers of {row['model_id']}"
    name, middle = max(times, key=lambda one: times[one]), median(times.values())
    if len(times) == 1 or not middle:
        return f"{row['model_id']}: layer {name} takes {number(times[name])} ms of a call"
    if times[name] >= NOTABLE * middle:
        return f"{row['model_id']}: layer {name} takes {times[name] / middle:.1f} times as long as the median layer"
    fastest = min(times.values())
    similar = "about the same time, " if times[name] < NOTABLE * fastest else ""
    return f"{row['model_id']}: {len(times)} layers take {similar}{number(fastest)} to {number(times[name])} ms each"


def notes(row: Row) -> tuple[str, ...]:
    """The caveat of every profile: the profiler slows the model down."""
    plain, profiled = row["latency_median_ms"], row["profiled_median_ms"]
    return (
        f"Means over {row['calls']} calls under {row['profiler']}, which slows a call from {number(plain)} to "
        f"{number(profiled)} ms (medians): use the shares, not the times.",
    )


def fill(kind: str) -> Colour:
    """Colour of a kind of module, the same in every figure."""
    return "grey" if kind == OTHER else KINDS.index(kind)


def ink(kind: str) -> Colour:
    """The colour of text on a kind of module."""
    own = fill(kind)
    return legible_on(LOOKS["light"].colours[own]) if isinstance(own, int) else "#FFFFFF"


def legend(spans: Iterable[Span]) -> tuple[Entry, ...]:
    """Legend entries for the kinds of modules in a figure, in the order of `KINDS`."""
    kinds = sorted({one.kind for one in spans}, key=KINDS.index)
    return tuple(Entry(label=WORDS.get(kind, kind), colour=fill(kind)) for kind in kinds)


MODULE_COLUMNS = ("module", "class", "part", "calls", "own ms", "share", "total ms")


def module_rows(row: Row) -> tuple[tuple[object, ...], ...]:
    """Modules with their times in ms per call."""
    total = total_ms(row)
    return tuple(
        (
            module["module"] or "outside modules", module["class_name"], WORDS.get(module["kind"], module["kind"]),
            module["calls"], module["exclusive_ms"], f"{module['exclusive_ms'] / total:.1%}" if total else None,
            module["inclusive_ms"],
        )
        for module in row["modules"] or ()
    )  # fmt: skip
