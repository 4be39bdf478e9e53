"""Compares two profiles: which layer, module and operator takes more time in the second.

Each profile comes from one process: its intervals cover the calls of that process, and a shift of all layers alike may
come from the machine. A layer that changed relative to the others is named, with the module in it whose own time
changed most in that direction.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from statistics import median
from typing import TYPE_CHECKING, Literal

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import version_differences
from benchmarking.core.records import Json
from benchmarking.core.sample_statistics import describe
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, number, visible, wrapped
from benchmarking.core.verdicts.judging import Median, speedup
from benchmarking.core.verdicts.words import MIN_CHANGE, Judgement
from db.run_records import newest_profile, profile_parts
from db.values import percent_change

if TYPE_CHECKING:
    from db.analysis.selection import Selection
    from db.rows import Row
    from db.warehouse import Warehouse

MOST_LAYERS, MOST_OPERATORS = 12, 8
MIN_DEVIATION = 0.1
"""Minimum difference from the median change of all layers for a layer to stand out."""
IDENTITY = ("model_id", "device", "runtime", "precision", "batch_size", "sequence_length", "new_tokens", "git_commit")
Verdict = Literal["slower", "faster", "equivalent", "not judged"]
"""Words of `core.verdicts.words`, about the calls of the two processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One layer, part, module or operator in both profiles; 0 ms if a profile does not have it."""

    name: str
    before_ms: float
    after_ms: float
    verdict: Verdict | None = None
    """The verdict on the calls; None without samples of single calls."""

    @property
    def difference_ms(self) -> float:
        """Additional time in the second profile."""
        return self.after_ms - self.before_ms

    @property
    def ratio(self) -> float | None:
        """After / before; None if it took no time before."""
        return self.after_ms / self.before_ms if self.before_ms else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileComparison:
    """Two profiles, with lists of changes, largest first."""

    before: Mapping[str, Json]
    after: Mapping[str, Json]
    differs: Mapping[str, list[Json]] = field(default_factory=dict)
    """What differs between the profiles: column -> both values; versions by package."""
    parts: tuple[Change, ...] = ()
    layers: tuple[Change, ...] = ()
    modules: tuple[Change, ...] = ()
    """By own time, without the modules inside them."""
    operators: tuple[Change, ...] = ()
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    """Layers that only one profile has, such as when runtimes name them differently."""

    @property
    def usual_ratio(self) -> float | None:
        """The median change of all layers; None without layers."""
        ratios = [layer.ratio for layer in self.layers if layer.ratio is not None]
        return median(ratios) if ratios else None

    @property
    def outstanding(self) -> tuple[Change, ...]:
        """The layers that changed relative to the others, largest difference first; those without a verdict, of too few
        calls, as measured."""
        usual = self.usual_ratio
        return tuple(
            layer
            for layer in self.layers
            if usual and layer.ratio is not None and layer.verdict in (None, "slower", "faster")
            if abs(layer.ratio / usual - 1) >= MIN_DEVIATION
        )


def compare_profiles(warehouse: Warehouse, before: Selection, after: Selection) -> ProfileComparison:
    """The newest profile of each selection, compared. Raises UsageError for a selection without profiles."""
    first, second = newest_profile(warehouse, before), newest_profile(warehouse, after)
    ids = first["profile_id"], second["profile_id"]
    modules, operators = (
        [profile_parts(warehouse, table, profile_id) for profile_id in ids]
        for table in ("profile_modules", "profile_ops")
    )
    layers: list[dict[str, list[float]]] = []
    for rows in modules:
        calls = {row["module"]: list(row["inclusive_samples_ms"]) for row in rows if row["module"] == row["layer"]}
        sums = _own_ms([row for row in rows if row["layer"]], "layer")
        layers.append({name: calls.get(name) or [total] for name, total in sums.items()})
    differs: dict[str, list[Json]] = {
        name: [first[name], second[name]] for name in IDENTITY if first[name] != second[name]
    }
    if first["hardware_id"] != second["hardware_id"]:
        differs["hardware"] = [first["hardware_id"], second["hardware_id"]]
    modes = [json.loads(row["runtime_mode"]) for row in (first, second)]
    for name in sorted({*modes[0], *modes[1]}):
        if modes[0].get(name) != modes[1].get(name):
            differs[name] = [mode.get(name) for mode in modes]
    versions = version_differences(first["versions"], second["versions"])
    differs |= {name: [*both] for name, both in versions.items()}
    return ProfileComparison(
        before=_summary(first),
        after=_summary(second),
        differs=differs,
        parts=_changes(*(_own_ms(rows, "kind") for rows in modules)),
        layers=_by_difference(
            Change(
                name=name,
                before_ms=median(times),
                after_ms=median(layers[1][name]),
                verdict=_verdict(times, layers[1][name]),
            )
            for name, times in layers[0].items()
            if name in layers[1]
        ),
        modules=_changes(*(_own_ms(rows, "module") for rows in modules)),
        operators=_changes(*(_own_ms(rows, "operator", "device_ms") for rows in operators)),
        only_before=tuple(name for name in layers[0] if name not in layers[1]),
        only_after=tuple(name for name in layers[1] if name not in layers[0]),
    )


def profiles_text(comparison: ProfileComparison, page: Page = PLAIN) -> str:
    """Text for a terminal: the layers that changed most, operators, and sentences on what stands out."""
    layers = [layer for layer in comparison.layers if layer.before_ms and layer.after_ms][:MOST_LAYERS]
    sides = (("A", comparison.before), ("B", comparison.after))
    lines = [visible(f"{side}: {profile['subject']}, profile {profile['profile_id']}") for side, profile in sides]
    if comparison.differs:
        differs = (f"{name} {values[0]} -> {values[1]}" for name, values in comparison.differs.items())
        lines.append(visible(f"differs: {'; '.join(differs)}"))
    sentences, usual = [], comparison.usual_ratio
    for change in comparison.outstanding[:3]:
        assert change.ratio is not None
        assert usual is not None
        inside = (
            one
            for one in comparison.modules
            if f"{one.name}.".startswith(f"{change.name}.") and one.difference_ms * change.difference_ms > 0
        )
        location = ""
        if (module := next(inside, None)) is not None:
            part = "most of it" if abs(module.difference_ms) > abs(change.difference_ms) / 2 else "the largest part"
            location = f", {part} in {module.name} ({module.difference_ms:+.3g} ms of its own)"
        changed = "changed by" if change.verdict else "differs, as measured and not judged, by"
        sentences.append(
            f"{change.name} {changed} {change.difference_ms:+.3g} ms, {percent_change(change.ratio - 1)}{location}; "
            f"the median layer by {percent_change(usual - 1)}."
        )
    if comparison.layers and not any(change.verdict for change in comparison.outstanding):
        unknown = sum(layer.verdict in (None, "not judged") for layer in comparison.layers)
        some = f"; {unknown} of {counted(len(comparison.layers), 'layer')} are not judged" if unknown else ""
        sentences.append(f"No layer is shown to have changed by {MIN_DEVIATION:.0%} relative to the others{some}.")
    for side, names in (("A", comparison.only_before), ("B", comparison.only_after)):
        if names:
            sentences.append(f"{len(names)} layers are in {side} only, the first: {names[0]}.")
    sentences.append("Each side is one process: verdicts cover its calls only, and a shift of all layers may be noise.")
    parts = [
        wrapped("\n".join(lines), page.text_width),
        _table("part", comparison.parts, page),
        _table("layer", layers, page) if layers else "",
        _table("operator", comparison.operators[:MOST_OPERATORS], page),
        wrapped("\n".join(map(visible, sentences)), page.text_width),
    ]
    return "\n\n".join(filter(None, parts))


def _table(heading: str, changes: Sequence[Change], page: Page) -> str:
    rows = tuple(
        (
            change.name or "(in no module)",
            number(change.before_ms, 3),
            number(change.after_ms, 3),
            f"{change.difference_ms:+.3g}",
            percent_change(change.ratio - 1) if change.ratio is not None else "-",
            change.verdict or "-",
        )
        for change in changes
    )
    headings = (heading, "A ms", "B ms", "B - A", "change", "")
    return table_text(Table(headings=headings, rows=rows, numbers=(1, 2, 3, 4), states=(5,)), page)


def _summary(row: Row) -> dict[str, Json]:
    """What identifies a profile."""
    point = f"b{row['batch_size']}" + (f" s{row['sequence_length']}" if row["sequence_length"] else "")
    subject = f"{row['model_id']} on {row['device']}, {row['runtime']} {row['precision']}, {point}"
    return {
        "profile_id": row["profile_id"],
        "subject": subject,
        "started_at": row["started_at"].isoformat(),
        "latency_median_ms": row["latency_median_ms"],
        "host_ms": row["host_ms"],
    }


def _own_ms(rows: Iterable[Row], column: str, of_device: str = "device_exclusive_ms") -> dict[str, float]:
    """The own time by the value of a column: on the device where it is known, otherwise on the host."""
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        sums[row[column]] += float(row["exclusive_ms"] if row[of_device] is None else row[of_device])
    return sums


def _changes(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Change, ...]:
    """The changes of everything in either."""
    names = dict.fromkeys([*before, *after])
    return _by_difference(
        Change(name=name, before_ms=before.get(name, 0.0), after_ms=after.get(name, 0.0)) for name in names
    )


def _by_difference(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The changes, largest difference first."""
    return tuple(sorted(changes, key=lambda one: -abs(one.difference_ms)))


def _verdict(before: Sequence[float], after: Sequence[float]) -> Verdict | None:
    """By the interval of the ratio of both medians, which covers the calls: slower or faster if it excludes 1 and they
    differ by 2 %, equivalent if it lies within 2 %. None with too few calls for an interval."""
    medians = [
        Median(value=statistics.median, low=statistics.ci_low, high=statistics.ci_high)
        for statistics in (describe(before), describe(after))
    ]
    ratio = speedup(Judgement(verdict="not judged"), *medians)
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    changes = [1 / ratio.high - 1, 1 / ratio.low - 1]
    if max(map(abs, changes)) <= MIN_CHANGE:
        return "equivalent"
    if abs(1 / ratio.ratio - 1) < MIN_CHANGE or changes[0] <= 0 <= changes[1]:
        return "not judged"
    return "slower" if changes[0] > 0 else "faster"
