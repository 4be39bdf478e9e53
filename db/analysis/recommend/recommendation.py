"""Finds the measured options that meet a user's limits, the Pareto front, and the option to choose.

A limit on latency or time to first token applies to the upper end of the median's 95 % interval, and one on throughput
to the lower end of its own, or else to the rate at that latency, so that a promise holds despite their uncertainty. A
percentile has no interval, nor has a time to first token of few samples: they count as too low by the factor by which
the median may be, since launches that differ in one mostly differ in the other. The interval of a single launch does
not cover other launches, so it counts as at least 10 % wide to either side. Without an interval of the median, its
percentiles are compared as stated. A limit on quality applies to the worse end of its interval over windows. Memory and
energy are compared as measured. An unmeasured quantity meets no limit.

Options whose intervals overlap with that of the best one are equal; beside one of another session, an interval counts
as at least 5 % wide to either side. Where all that meet the limits were measured in one search by `benchhouse tune`,
its launches in turns decide instead, as they did there. Among equals, the choice is the cheapest, then the simplest
(fewest settings, least concurrency, smallest batch), then the first by name, so it does not change from week to week
with the noise.

The axes of the front are those of latency, throughput, memory, energy per item and cost that all options of a workload
have. An option is on the front if no other one is at least as good on all axes and better on one; with limits, of those
that meet them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from benchmarking.core.codec import is_number
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import METRICS
from benchmarking.core.plugins import has
from benchmarking.core.quality import ALL_QUALITY_LIMITS, QUALITY_METRICS, TO_MEASURE, source_of
from benchmarking.core.records import Point
from benchmarking.core.text import number
from benchmarking.core.untrusted.input_files import read_yaml
from benchmarking.core.verdicts.judging import FEW_LAUNCHES
from benchmarking.core.verdicts.launches import UNSEEN_LAUNCHES
from benchmarking.core.verdicts.standing import Costs, standing
from benchmarking.core.verdicts.words import Judgement
from db.values import listed_doubts

Quantity = Literal[
    "latency",
    "latency_p90",
    "latency_p95",
    "latency_p99",
    "ttft",
    "memory",
    "energy",
    "throughput",
    "cost",
    "kl",
    "agreement",
    "perplexity_increase",
    "exact_match",
    "choice_accuracy",
    "accuracy",
]
Aim = Literal["latency", "throughput", "memory", "energy", "cost"]
AIMS: tuple[Aim, ...] = ("latency", "throughput", "memory", "energy", "cost")
"""The axes of the front, and the values of --prefer."""
WAITING: tuple[Quantity, ...] = ("latency", "latency_p90", "latency_p95", "latency_p99", "ttft")
"""Limits on times that a user waits for."""
UNITS: Mapping[Quantity, str] = {
    **dict.fromkeys(WAITING, "ms"),
    "memory": "MB",
    "energy": "J",
    "kl": "nats",
    "perplexity_increase": "%",
}
"""Of the throughput the option tells it; the others have none."""
AT_LEAST: tuple[Quantity, ...] = ("throughput", "agreement", "exact_match", "choice_accuracy", "accuracy")
"""Quantities with a lower limit; others have an upper one."""
WITHOUT_INTERVAL: tuple[Aim, ...] = ("memory", "energy")
FAR = 0.25
"""Relative difference from the best as measured above which an equal option, whose interval must be wide, is not chosen
for being the simplest."""
UNSEEN_SESSIONS = 0.05
"""Least relative half-width of an interval beside an option of another session: it does not cover what differs between
sessions. With half of it, 21 % of two equal options whose sessions vary by 3 % are told apart (2 % so); with twice as
much, options that differ by 20 % are equal."""
CLOSE = 0.02
"""Relative difference up to which values without an interval are equal, since runs vary as much."""
PERCENTILES: tuple[Quantity, ...] = ("latency_p90", "latency_p95", "latency_p99")
FIELDS: Mapping[Quantity, str] = {
    **{name: f"{name}_ms" for name in WAITING},
    "memory": "memory_mb",
    "energy": "energy_j",
    **{name: name for name in ("throughput", "cost")},
}
"""Field of an option with the measured value; the measures of quality are in `quality`."""
COLUMNS: Mapping[Quantity, str] = {
    **{name: f"{name}_ms" for name in PERCENTILES},
    "ttft": "time_to_first_token_ms",
    "memory": "memory_peak_rss_infer_mb",
    "energy": "energy_per_item",
}
"""A quantity that an option may lack -> its key in `missing`."""
READINGS: Mapping[Aim, str] = {"memory": "memory_of", "energy": "energy_of"}
"""A quantity that is read of different things -> the field that says of what."""
KEYS = ("currency", "per_hour")
SECONDS_PER_HOUR = 3600
MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per hour of devices, all in one currency, from a user's YAML file:

    currency: EUR
    per_hour:
      cuda: 2.50                      # a type of device
      NVIDIA H100 80GB HBM3: 3.90     # its name, preferred to the type
      4f1c09d2a7be5310: 0             # a hardware_id, preferred to both: all devices that the run used

    The price of a type or name is that of one device.
    """

    currency: str
    per_hour: Mapping[str, float]
    """By hardware_id, name or type of the device, names and types in lower case."""

    def lookup(self, hardware_id: str, device_name: str | None, device_type: str, devices: int) -> float | None:
        """The price per hour of the devices; None if the file has none."""
        name = device_name or ""
        one = name.removeprefix(f"{devices} x ")  # as several devices of a run of ours are named together
        of_all = (hardware_id,) if one == name else (hardware_id, name)
        for key in (*of_all, one, device_type):
            if key.lower() in self.per_hour:
                return self.per_hour[key.lower()] * (1 if key in of_all else devices)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Newer:
    """The newest result of a series, which is not valid."""

    result_id: str
    started_at: datetime
    """Start of its run, UTC."""
    state: str
    """What it is: "is noisy", "failed", "timed out"."""
    doubts: tuple[str, ...]
    """Kinds of doubt, without those of severity info."""
    latency_ms: float | None

    @property
    def text(self) -> str:
        """ "a newer result, 87.5 ms, of 2026-11-28 09:01 UTC, is noisy (unsteady)" """
        value = "" if self.latency_ms is None else f", {number(self.latency_ms)} ms"
        why = f" ({listed_doubts(self.doubts)})" if self.doubts else ""
        return f"a newer result{value}, of {self.started_at:%Y-%m-%d %H:%M} UTC, {self.state}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A measured configuration of the model: hardware, runtime, precision and batch."""

    result_id: str
    run_id: str
    session_id: str
    hardware_id: str
    device: str
    device_name: str | None
    device_type: str
    runtime: str
    runtime_mode: Mapping[str, object] = field(default_factory=dict)
    """Its settings, number of threads and bound processors."""
    precision: str
    point: Point
    validity: str
    doubts: tuple[str, ...] = ()
    latency_ms: float
    """Median latency of a call."""
    latency_low_ms: float | None = None
    latency_high_ms: float | None = None
    """Ends of the median's 95 % interval; None with too few samples."""
    is_between: bool = False
    """Whether the interval covers the variation between launches, not only between calls."""
    latency_p90_ms: float | None = None
    latency_p95_ms: float | None = None
    latency_p99_ms: float | None = None
    latency_stated_ms: float | None = None
    """Of an import without an interval: a stated percentile above the median, or the maximum."""
    ttft_ms: float | None = None
    ttft_high_ms: float | None = None
    """Upper end of its 95 % interval; None with too few samples."""
    memory_mb: float | None = None
    """Peak memory, of the device if it was measured, otherwise of the process."""
    memory_of: str | None = None
    """What that is of (`read_of`)."""
    energy_j: float | None = None
    """Per item, idle power included."""
    energy_of: str | None = None
    """Parts of the machine: "gpu", "cpu_pkg + dram", ..."""
    throughput: float
    """Tokens per second if the model has tokens, otherwise items per second: over the time of all calls."""
    throughput_half_width: float | None = None
    """Half of its 95 % interval over launches, as a logarithm; None below three launches."""
    devices: int = 1
    """Number of devices that the run used."""
    price_per_hour: float | None = None
    """Of all these devices."""
    output_error: float | None = None
    quality: Mapping[str, float] = field(default_factory=dict)
    """Measure of the model's quality -> its value, where it was measured."""
    quality_bounds: Mapping[str, float] = field(default_factory=dict)
    """The same -> the worse end of its 95 % interval, where it has one."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Column -> reason for a missing number."""
    newer: Newer | None = None
    """The newest result of its series, where this is an older one because that is not valid."""

    @property
    def cost(self) -> float | None:
        """Cost of a million tokens or items; None without a price."""
        return None if self.price_per_hour is None else cost_per_million(self.price_per_hour, self.throughput)


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A limit that an option does not meet."""

    quantity: Quantity
    limit: float
    value: float | None
    """The value compared with the limit; None if it is not known."""
    why: str | None = None
    """Why it is not known; of a value that is the best that it can be, what that is of."""

    @property
    def excess(self) -> float:
        """The relative excess: 0.1 is 10 % too much (or too little); infinite if it was not measured."""
        if self.value is None:
            return math.inf
        worse, better = (self.limit, self.value) if self.quantity in AT_LEAST else (self.value, self.limit)
        return math.inf if better == 0 else worse / better - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """An option with the limits it misses and its rank in its workload."""

    option: Option
    misses: tuple[Miss, ...]
    is_on_front: bool

    @property
    def fits(self) -> bool:
        return not self.misses

    @property
    def excess(self) -> float:
        """The largest excess over its measured limits; 0 if it meets them."""
        return max((miss.excess for miss in self.misses if miss.value is not None), default=0.0)

    @property
    def unknown(self) -> int:
        """The number of limits whose quantity is not known, or only at its best."""
        return sum(miss.value is None or miss.why is not None for miss in self.misses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The options of one workload, best first: those that meet the limits, then the others, closest first."""

    rated: tuple[Rated, ...]
    aim: Aim
    """What the options are ranked by."""
    axes: tuple[Aim, ...]
    """Axes of the front."""
    equal: tuple[Rated, ...] = ()
    """Further options that meet the limits and cannot be told apart from the recommended one; they follow it."""
    is_of_all: bool = True
    """Whether every option that could run was measured."""
    how: str = "as measured"
    """How it is known that the next option is worse, in words."""
    is_of_turns: bool = False
    """Whether launches in turns decided, rather than intervals."""
    judged: Mapping[str, Judgement] = field(default_factory=dict)
    """Of these launches: result id -> its judgement against the recommended option."""

    @property
    def best(self) -> Rated | None:
        """The recommended option; None if no option meets the limits."""
        return self.rated[0] if self.rated and self.rated[0].fits else None


def recommend(options: Sequence[Option], limits: Mapping[Quantity, float], aim: Aim | None = None) -> Recommendation:
    """Rate the options of one workload, at least one.

    The default aim is cost if all have a price, latency if the only limit is on throughput, otherwise throughput.
    """
    axes = tuple(axis for axis in AIMS if _is_shared(axis, options))
    is_rate_only = "throughput" in limits and not any(quantity in limits for quantity in WAITING)
    chosen = aim or ("cost" if "cost" in axes else "latency" if is_rate_only else "throughput")
    options = _of_one_kind(options, chosen) if chosen in READINGS else options
    # The options that no other option beats: at least as good on all axes and better on one. Those that miss a limit
    # count only where all do.
    missed = [misses(option, limits) for option in options]
    compared = [option for option, its in zip(options, missed, strict=True) if not its] or list(options)
    scores = [tuple(_goodness(option, axis) for axis in axes) for option in compared]
    front = [
        option
        for option, score in zip(compared, scores, strict=True)
        if not any(other != score and all(a <= b for a, b in zip(other, score, strict=True)) for other in scores)
    ]
    rated = [Rated(option=one, misses=its, is_on_front=one in front) for one, its in zip(options, missed, strict=True)]
    in_order = sorted(rated, key=lambda one: _place(one, chosen))
    fitting = [configuration for configuration in in_order if configuration.fits]
    equals = [configuration for configuration in fitting if _is_equal(fitting[0].option, configuration.option, chosen)]
    equals.sort(key=lambda one: _preference(one, fitting[0], chosen))
    others = [configuration for configuration in in_order if configuration not in equals]
    return Recommendation(rated=(*equals, *others), aim=chosen, axes=axes, equal=tuple(equals[1:]))


def recommend_of_turns(
    options: Sequence[Option],
    limits: Mapping[Quantity, float],
    aim: Aim | None,
    costs: Mapping[str, Costs],
    *,
    is_of_all: bool = True,
) -> Recommendation:
    """The recommendation of options whose launches were in turns, as in a search by `benchhouse tune`, and tell more
    apart than intervals do: `costs` are those of the aim, by result id. `is_of_all`: whether all that could run were
    measured."""
    found = recommend(options, limits, aim)
    by_id = {rated.option.result_id: rated for rated in found.rated}
    # Launches tell nothing of a reading that is of something else than the others'.
    known = {name for name, rated in by_id.items() if measured_value(rated.option, found.aim) is not None}
    fitting = {name: costs.get(name, {}) if name in known else {} for name, rated in by_id.items() if rated.fits}
    answer = standing(fitting, lambda name: _simplicity(by_id[name].option))
    first = [] if answer is None else [by_id[name] for name in (answer.best, *answer.equal)]
    others = sorted((rated for rated in found.rated if rated not in first), key=lambda one: _place(one, found.aim))
    judged = {} if answer is None else answer.judged
    how = how_known(judged.get(others[0].option.result_id)) if others else ""
    rated, equal = (*first, *others), tuple(first[1:])
    return replace(found, rated=rated, equal=equal, is_of_all=is_of_all, how=how, is_of_turns=True, judged=judged)


def how_known(judgement: Judgement | None) -> str:
    """How it is known that an option is worse than the best one, of its judgement against that."""
    if judgement is None:
        return f"as measured, and not judged: {FEW_LAUNCHES}"
    how = "as measured, and not judged" if judgement.verdict == "not judged" else f"judged {judgement.verdict}"
    return how if judgement.reason is None else f"{how}: {judgement.reason}"


def _place(rated: Rated, aim: Aim) -> tuple[object, ...]:
    """A sort key: options that meet the limits first, best first; among equals valid before noisy."""
    option = rated.option
    return (rated.unknown, rated.excess, _goodness(option, aim), option.validity != "valid", option.latency_ms)


def _is_equal(best: Option, other: Option, aim: Aim) -> bool:
    """Whether the intervals of two options overlap. An option without a value is only equal to itself."""
    values = [measured_value(option, aim) for option in (best, other)]
    if values[0] is None or values[1] is None:
        return best is other
    if min(values[0], values[1]) <= 0:
        return values[0] == values[1]
    apart = abs(math.log(values[0] / values[1]))
    if aim in WITHOUT_INTERVAL:
        return apart <= math.log1p(CLOSE)
    unseen = 0.0 if best.session_id == other.session_id else math.log1p(UNSEEN_SESSIONS)
    ends = ((best, best.latency_high_ms), (other, other.latency_low_ms))
    return apart <= sum(max(unseen, _reach(option, end_ms, aim)) for option, end_ms in ends)


def _reach(option: Option, end_ms: float | None, aim: Aim) -> float:
    """How far the interval of an option's latency, throughput or cost reaches from its value, as a logarithm, towards
    the given end of the latency's. Throughput counts slow calls, so it varies more than the median latency; without an
    interval of its own, it has that of the latency."""
    if aim != "latency" and option.throughput_half_width is not None:
        return option.throughput_half_width
    stated = 0.0 if not end_ms else abs(math.log(end_ms / option.latency_ms))
    return stated if option.is_between and end_ms else max(stated, math.log1p(UNSEEN_LAUNCHES))


def _preference(rated: Rated, best: Rated, aim: Aim) -> tuple[object, ...]:
    """A sort key of equal options: valid ones first, then the cheapest, those not far behind the best as measured, the
    simplest, and by name."""
    option = rated.option
    values = [value for one in (best.option, option) if (value := measured_value(one, aim)) is not None and value > 0]
    is_far = len(values) == 2 and max(values) / min(values) > 1 + FAR
    price = math.inf if option.price_per_hour is None else option.price_per_hour
    return (option.validity != "valid", price, is_far, *_simplicity(option))


def _simplicity(option: Option) -> tuple[object, ...]:
    """A sort key: the simplest first, then by name."""
    return (
        len(option.runtime_mode),
        option.point.concurrency,
        option.point.batch_size,
        *(option.runtime, option.precision, option.device_name or option.device),
        json.dumps(dict(option.runtime_mode), sort_keys=True, default=str),
        option.hardware_id,
    )


def misses(option: Option, limits: Mapping[Quantity, float]) -> tuple[Miss, ...]:
    """The limits that the option does not meet."""
    missed = []
    for quantity, limit in limits.items():
        value, reason = limited_value(option, quantity)
        if value is None and (best := _at_best(option, quantity)) is not None and _is_beyond(best[0], limit, quantity):
            value, reason = best
        if value is None or _is_beyond(value, limit, quantity):
            missed.append(Miss(quantity=quantity, limit=limit, value=value, why=reason))
    return tuple(missed)


def _is_beyond(value: float, limit: float, quantity: Quantity) -> bool:
    return value < limit if quantity in AT_LEAST else value > limit


def _at_best(option: Option, quantity: Quantity) -> tuple[float, str] | None:
    """The best that an unknown value can be, and what that is of: a percentile is no lower than the median and lower
    percentiles, and a value without an interval is no better than measured. None if nothing is known of it."""
    if quantity not in PERCENTILES:
        value = None if quantity == "memory" and _is_memory_elsewhere(option) else measured_value(option, quantity)
        return None if value is None else (value, "as measured")
    lower = {"the median": limited_value(option, "latency")[0] or option.latency_ms}
    for name in PERCENTILES[: PERCENTILES.index(quantity)]:
        if (value := limited_value(option, name)[0]) is not None:
            lower[f"the {name.removeprefix('latency_')}"] = value
    of = max(lower, key=lower.__getitem__)
    return lower[of], of


def limited_value(option: Option, quantity: Quantity) -> tuple[float | None, str | None]:
    """The value that a limit applies to, or None and the reason."""
    high = option.latency_high_ms if option.latency_high_ms is not None else option.latency_stated_ms
    # An interval of one launch knows nothing of the next.
    unseen = 1.0 if option.is_between or option.latency_high_ms is None else 1 + UNSEEN_LAUNCHES
    if quantity in ("latency", "throughput") and high is None:
        return None, "too few samples for an interval"
    if quantity == "throughput":
        assert high is not None
        if option.throughput_half_width is not None:
            return option.throughput * math.exp(-option.throughput_half_width), None
        return option.throughput * min(1 / unseen, option.latency_ms / high), None
    if (measure := ALL_QUALITY_LIMITS.get(quantity)) is not None:
        if measure in option.quality_bounds:
            return option.quality_bounds[measure], None
        if measure in option.quality:
            return None, QUALITY_METRICS[measure].no_interval
        return None, option.missing.get(measure, TO_MEASURE[source_of(measure)])
    if quantity == "cost":
        return option.cost, None if option.cost is not None else "no price"
    if quantity == "latency":
        assert high is not None
        return max(high, option.latency_ms * unseen), None
    if quantity == "memory" and _is_memory_elsewhere(option):
        return None, f"only {option.memory_of} is known, not the device's own memory"
    value = measured_value(option, quantity)
    if value is None:
        return None, option.missing.get(COLUMNS[quantity], "not measured")
    if quantity == "ttft" and option.ttft_high_ms is not None:
        return max(option.ttft_high_ms, value * unseen), None
    if quantity in (*PERCENTILES, "ttft") and option.latency_high_ms is not None:
        value *= max(unseen, option.latency_high_ms / option.latency_ms)
    return value, None


def measured_value(option: Option, quantity: Quantity) -> float | None:
    """The measured value of what a limit is on; None if it was not measured."""
    if quantity in ALL_QUALITY_LIMITS:
        return option.quality.get(ALL_QUALITY_LIMITS[quantity])
    value: float | None = getattr(option, FIELDS[quantity])
    return value


def read_of(column: str) -> str:
    """What a column of peak memory was read of: "device memory allocated", "resident memory of the process", ..."""
    return METRICS[column].title.removesuffix(" (MB)").removeprefix("Peak ")


def _is_memory_elsewhere(option: Option) -> bool:
    """Whether the peak memory is the host's, of a device that has its own: the runtime reads none of that."""
    return option.memory_of == read_of(COLUMNS["memory"]) and has(option.device_type, lambda kind: kind.memory == "own")


def with_prices(option: Option, prices: Prices | None) -> Option:
    """The option with the price of its devices."""
    if prices is None:
        return option
    price = prices.lookup(option.hardware_id, option.device_name, option.device_type, option.devices)
    return replace(option, price_per_hour=price)


def _is_shared(axis: Aim, options: Sequence[Option]) -> bool:
    """Whether all options have a comparable value on the axis."""
    if any(measured_value(option, axis) is None for option in options):
        return False
    return axis not in READINGS or len({getattr(option, READINGS[axis]) for option in options}) == 1


def _of_one_kind(options: Sequence[Option], axis: Aim) -> list[Option]:
    """The options with the readings that are of the same thing as most of them, such as the GPU's energy; that of what
    is ranked is unknown of the others."""
    kinds = [getattr(option, READINGS[axis]) for option in options if measured_value(option, axis) is not None]
    most = max(dict.fromkeys(kinds), key=kinds.count, default=None)
    found = []
    for option in options:
        kind = getattr(option, READINGS[axis])
        if measured_value(option, axis) is not None and kind != most:
            why = {COLUMNS[axis]: f"it was read of {kind}, not of {most} as for most"}
            fields: dict[str, Any] = {FIELDS[axis]: None, "missing": {**option.missing, **why}}
            option = replace(option, **fields)
        found.append(option)
    return found


def _goodness(option: Option, axis: Aim) -> float:
    """A sort key on an axis: lower is better, a missing value is last."""
    value = measured_value(option, axis)
    if value is None:
        return math.inf
    return -value if axis == "throughput" else value


def cost_per_million(price_per_hour: float, throughput_per_sec: float) -> float:
    """The price of a million items (or tokens) at a throughput: price / 3600 / throughput * 10^6.

    3.60 per hour at 1000 tokens/s is 0.001 per second, so 1 per million tokens.
    """
    return price_per_hour / SECONDS_PER_HOUR / throughput_per_sec * MILLION


def read_prices(path: Path) -> Prices:
    """The prices in a file. Raises UsageError for an invalid file or none, StorageError for an unreadable one."""
    if not path.exists():
        device, equals, price = str(path).partition("=")
        example = f"{{{device}: {price}}}" if equals else "{cpu: 0.40}"
        raise UsageError(f"--price takes a YAML file, with currency: EUR and per_hour: {example}: found no {path}")
    data = read_yaml(path).plain()
    if not isinstance(data, dict) or set(data) != set(KEYS):
        found = ", ".join(map(str, data)) if isinstance(data, dict) else type(data).__name__
        raise UsageError(f"{path}: expected the keys currency and per_hour, found {found or 'nothing'}")
    currency, per_hour = data["currency"], data["per_hour"]
    if not isinstance(currency, str) or not currency.strip():
        raise UsageError(f"{path}: currency: expected a word such as EUR, found {currency!r}")
    if not isinstance(per_hour, dict) or not per_hour:
        raise UsageError(f"{path}: per_hour: expected devices with prices, such as cuda: 2.50, found {per_hour!r}")
    prices: dict[str, float] = {}
    for device, price in per_hour.items():
        key = str(device).lower()
        if key in prices:
            raise UsageError(f"{path}: per_hour: {device} occurs twice")
        if not is_number(price) or not math.isfinite(price) or price < 0:
            raise UsageError(f"{path}: per_hour: {device}: expected a number from 0, found {price!r}")
        prices[key] = float(price)
    return Prices(currency=currency.strip(), per_hour=prices)
