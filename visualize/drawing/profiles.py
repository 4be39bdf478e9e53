"""Stored profiles prepared for charts: the newest of each series, its nested modules, its layers, and the finding.

A part is as wide as the exclusive times of it and of all below it, so that every row of a flame graph adds up to the
call. They are times of the accelerator where one computes, else of the host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarking.core.profiles import KINDS, OTHER, OUTSIDE
from visualize.drawing.rows import SELECTED, ChartPlugin, Query, Row, Selection, bound
from visualize.drawing.style import colour, look, number

if TYPE_CHECKING:
    from matplotlib.patches import Patch

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
"""What distinguishes the pictures of two profiles of one cell and point."""
LEAST_SHARE = 0.002
"""Minimum share of a call; narrower parts would be invisible."""
NOTABLE = 1.25
"""From this multiple on layers differ: the slowest one is a finding if it takes that much of the median layer."""
WORDS = {"feed_forward": "feed-forward", "mixer": "mixer (state space)", OTHER: "other"}
NO_LAYER = "outside layers"
CALL = "the call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of the call in a flame graph or in the bar of a layer."""

    name: str
    """The path of a module, or the name of an operator."""
    label: str
    """Its short name."""
    kind: str
    depth: int
    """From 0 for the call."""
    begin: float
    """Where it begins, as a share of the call."""
    share: float
    """Of the call."""
    ms: float
    is_operator: bool = False

    @property
    def words(self) -> str:
        """What it is, and how long it takes."""
        return f"{self.name}: {number(self.ms)} ms, {self.share:.1%} of the call ({WORDS.get(self.kind, self.kind)})"


class ProfileChart(ChartPlugin):
    """A chart of stored profiles, which belong to no result."""

    sql = SQL

    def query(self, selection: Selection) -> Query:
        """The newest profile of each series in the selection."""
        selected = SELECTED if selection.profiles is None else f"{SELECTED} AND {CHOSEN}"
        sql = self.sql.format(selected=selected)
        return Query(sql=sql, parameters=bound(sql, selection))


def total_ms(row: Row) -> float:
    """The call, as the sum of its modules' exclusive times."""
    return sum(float(module["exclusive_ms"]) for module in row["modules"] or ())


def is_on_device(row: Row) -> bool:
    """Whether the times are those of kernels on an accelerator."""
    return row["device_busy_ms"] is not None


def clock(row: Row) -> str:
    """Whose times they are, for an axis."""
    return "time of kernels" if is_on_device(row) else "time on the host"


def flame(row: Row) -> list[Block]:
    """The call, the modules in the order of the model, each below the one around it, and the operators in them."""
    modules = {module["module"]: module for module in row["modules"] or () if module["module"] != OUTSIDE}
    total = total_ms(row)
    if not total:
        return []
    inner: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        inner[_around(path, modules)].append(path)
    operators: dict[str, list[Row]] = defaultdict(list)
    for operator in row["operators"] or ():
        operators[operator["module"]].append(operator)
    spent = {path: float(module["exclusive_ms"]) for path, module in modules.items()}
    for path in sorted(modules, key=lambda one: -_depth(one, modules)):
        around = _around(path, modules)
        if around != OUTSIDE:
            spent[around] += spent[path]
    blocks = [Block(name=CALL, label=CALL, kind=OTHER, depth=0, begin=0.0, share=1.0, ms=total)]

    def place(path: str, begin: float, depth: int) -> None:
        for child in inner[path]:
            share = spent[child] / total
            if share >= LEAST_SHARE:
                label = child if path == OUTSIDE else child.removeprefix(f"{path}.")
                blocks.append(
                    Block(
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
                    Block(
                        name=name, label=name.removeprefix("aten::"), kind=operator["kind"], depth=depth, begin=begin,
                        share=share, ms=operator["exclusive_ms"], is_operator=True,
                    )
                )  # fmt: skip
                begin += share

    place(OUTSIDE, 0.0, 1)
    return blocks


def _around(path: str, modules: dict[str, Row]) -> str:
    """The module around another; `OUTSIDE` for the model itself, whose path is the name of its class."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        if (above := ".".join(parts[:count])) in modules:
            return above
    root = next((name for name, module in modules.items() if name == module["class_name"]), OUTSIDE)
    return OUTSIDE if path == root else root


def _depth(path: str, modules: dict[str, Row]) -> int:
    around = _around(path, modules)
    return 0 if around == OUTSIDE else 1 + _depth(around, modules)


def layers(row: Row) -> dict[str, list[Block]]:
    """The parts of each layer by kind, in the model's order, and last of what is in no layer."""
    spent: dict[str, dict[str, float]] = {}
    for module in row["modules"] or ():
        kinds = spent.setdefault(module["layer"] or NO_LAYER, defaultdict(float))
        kinds[module["kind"]] += module["exclusive_ms"]
    total = total_ms(row)
    if not total or set(spent) == {NO_LAYER}:
        return {}
    spent[NO_LAYER] = spent.pop(NO_LAYER, {})
    found: dict[str, list[Block]] = {}
    for depth, (layer, kinds) in enumerate(spent.items()):
        begin = 0.0
        found[layer] = []
        for kind in sorted(kinds, key=KINDS.index):
            share = kinds[kind] / total
            found[layer].append(
                Block(
                    name=f"{layer}, {WORDS.get(kind, kind)}", label=WORDS.get(kind, kind), kind=kind, depth=depth,
                    begin=begin, share=share, ms=kinds[kind],
                )
            )  # fmt: skip
            begin += share
    return found


def kinds_in(row: Row) -> list[tuple[str, float]]:
    """The kinds of modules with their share of the call, the largest first."""
    shares: dict[str, float] = defaultdict(float)
    total = total_ms(row)
    for module in row["modules"] or ():
        shares[module["kind"]] += module["exclusive_ms"] / total if total else 0.0
    return sorted(shares.items(), key=lambda one: -one[1])


def where(row: Row) -> str:
    """The finding of a flame graph: the part of the model that takes most of the call."""
    named = [(kind, share) for kind, share in kinds_in(row) if kind != OTHER]
    if not named:
        name, share = _longest_operator(row)
        return f"{row['model_id']}: {name} takes {share:.0%} of a call" if name else f"Time of {row['model_id']}"
    kind, share = named[0]
    return f"{row['model_id']}: {WORDS.get(kind, kind)} takes {share:.0%} of a call"


def _longest_operator(row: Row) -> tuple[str, float]:
    spent: dict[str, float] = defaultdict(float)
    for operator in row["operators"] or ():
        spent[operator["operator"]] += operator["exclusive_ms"]
    if not spent:
        return "", 0.0
    name = max(spent, key=lambda one: spent[one])
    return name, spent[name] / (total_ms(row) or 1.0)


def slowest(row: Row) -> str:
    """The finding of a layer chart: the slowest layer against the median one."""
    times = {name: sum(one.ms for one in own) for name, own in layers(row).items() if name != NO_LAYER}
    if not times:
        return f"Layers of {row['model_id']}"
    name, middle = max(times, key=lambda one: times[one]), median(times.values())
    if len(times) == 1 or not middle:
        return f"{row['model_id']}: layer {name} takes {number(times[name])} ms of a call"
    if times[name] >= NOTABLE * middle:
        return f"{row['model_id']}: layer {name} takes {times[name] / middle:.1f} times as long as the median layer"
    fastest = min(times.values())
    alike = "about the same time, " if times[name] < NOTABLE * fastest else ""
    return f"{row['model_id']}: {len(times)} layers take {alike}{number(fastest)} to {number(times[name])} ms each"


def notes(row: Row) -> tuple[str, ...]:
    """What applies to every profile: the profiler slows the model down."""
    plain, profiled = row["latency_median_ms"], row["profiled_median_ms"]
    return (
        f"Means over {row['calls']} calls under {row['profiler']}, which slows a call from {number(plain)} to "
        f"{number(profiled)} ms (medians): read shares, not latencies.",
    )


def kinds_of(blocks: Iterable[Block]) -> list[str]:
    """The kinds in a picture, in the order of the table of kinds."""
    return sorted({one.kind for one in blocks}, key=KINDS.index)


def fill(kind: str) -> str:
    """The colour of a kind of module, the same in every picture."""
    return look().grey if kind == OTHER else colour(KINDS.index(kind))


def legend(blocks: Iterable[Block]) -> tuple[Patch, ...]:
    """An entry for each kind of module in a picture."""
    from matplotlib.patches import Patch

    return tuple(Patch(color=fill(kind), label=WORDS.get(kind, kind)) for kind in kinds_of(blocks))
