"""The space and the goal of a search: which runtimes, precisions, placements, options and batch sizes are tried, and
what for.

Everything comes from the plugins' declarations: a runtime says what it supports and which values of its options are
worth trying (`Option.tried`), a device how its processors are worth using (`DeviceKind.placements`). What cannot run
here is left out with the reason, as a plan of a single run would be refused. A YAML file restricts or extends it.

The goal is an objective and limits, and says what one launch shows of both. A limit is compared with the value of a
launch. What other launches may do is unknown after a single one, so a configuration is hopeless only if a bound beyond
which they hardly go misses the limit: a launch counts as 10 % uncertain and memory as 2 %, as in `benchhouse
recommend`, and a percentile with too few calls is at least the median. A percentile that the calls of one launch do not
show is that of the calls of all launches so far. Quality belongs to the loaded model: a limit on it is met by the worse
end of its interval, and hopeless if the better end misses it. It is measured on as many windows or inputs as a least
agreement takes, since even a model that always agrees has no interval above it with fewer.
"""

from __future__ import annotations

import itertools
import math
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from benchmarking.core import plugins
from benchmarking.core.command_line import choice
from benchmarking.core.contracts import Runtime
from benchmarking.core.device_contracts import Placement
from benchmarking.core.doubts import FIT
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import energy_per_item, peak_memory_column
from benchmarking.core.plugins import default_runtime
from benchmarking.core.quality import QUALITY_LIMITS, Quality, QualitySettings
from benchmarking.core.records import PRECISIONS, Precision, Result, Scalar, Workload
from benchmarking.core.sample_statistics import PERCENTILES, TAIL_MIN_SAMPLES, exact_share_interval
from benchmarking.core.settings import TEXT
from benchmarking.core.text import counted, why_text
from benchmarking.core.untrusted.input_files import read_yaml
from benchmarking.core.verdicts.launches import UNSEEN_LAUNCHES
from benchmarking.sweep.plan.measuring_settings import MEASURING, runtime_options
from benchmarking.sweep.plan.plan import CellPlan, Machine, points_by_reason
from benchmarking.sweep.plan.request import Request, plan_cell
from benchmarking.sweep.run.quality_pass import METRICS_OF, kind_of, quality_point, why_not_quality
from benchmarking.tuning.race import Launch, Traits, traits
from benchmarking.workloads.support.exported_folder import torch_workload
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.quality_inputs import text_windows

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
"""Batch sizes that are tried by default; one at a time where only the latency of a call counts."""
FILE_FORMAT = """
space.yaml, every key of which is optional:
  runtimes: [onnxruntime, openvino]   only these, also such as are not tried by default
  precisions: [float32, int8]
  batch_sizes: [1, 8, 32]
  num_threads: [1, 4, 8]
  cpu_list: ["0-3", "0-7"]            logical processors that a configuration is bound to
  fusion: [none, transformers]        an option: its values, for the runtimes that have it
  exclude:                            combinations to leave out; all keys of one must match
    - {runtime: openvino, precision: int8}
"""
MOST_DEPARTURES = 2
"""Most settings that a cell has besides the defaults; of values that the user named, every combination is tried."""
MOST_CELLS = 1000
"""Cells of a space; each takes milliseconds to plan, and no budget holds a launch of more."""
CANNOT = "cannot run this: "
"""Where the reason begins, in the refusal of a device."""
LISTS = ("runtimes", "precisions", "batch_sizes", "num_threads", "cpu_list")
EXCLUDE = "exclude"
EXCLUDED_BY = ("runtime", "precision", "num_threads", "cpu_list")
"""Keys of an entry of `exclude`, beside the options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What restricts or extends a space; empty for what the plugins declare."""

    runtimes: tuple[str, ...] = ()
    precisions: tuple[Precision, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    num_threads: tuple[int, ...] = ()
    cpu_list: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: tuple[Mapping[str, str], ...] = ()

    def or_of(self, other: Choices) -> Choices:
        """These choices; where they are empty, the other's."""
        return Choices(**{one.name: getattr(self, one.name) or getattr(other, one.name) for one in fields(Choices)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A cell of the space: its configurations differ in their point only."""

    name: str
    """ "onnxruntime int8, 2 threads, fusion transformers" """
    base: str
    """The name of the same runtime and precision with default settings."""
    departures: int
    """Settings that are not the default, without those whose values the user named."""
    request: Request
    plan: CellPlan

    @property
    def traits(self) -> Traits:
        """What its cost has in common with that of others."""
        placed = {"threads": self.request.num_threads, "processors": self.request.cpu_list}
        settings = {name: value for name, value in placed.items() if value is not None}
        return traits(self.request.runtime or "", self.request.precision, settings | dict(self.request.options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The candidates, those with default settings first, and what is left out."""

    candidates: tuple[Candidate, ...]
    left_out: Mapping[str, str]
    """What is left out -> why."""

    @property
    def size(self) -> int:
        return sum(len(candidate.plan.runnable) for candidate in self.candidates)


def read_choices(path: Path) -> Choices:
    """The choices in a YAML file. Raises UsageError with file, line and key, and StorageError."""
    root = read_yaml(path)
    keys = root.mapping("a space")
    known = (*LISTS, *runtime_options(), EXCLUDE)
    settings = {setting.key: setting for setting in MEASURING.values()}
    found: dict[str, Any] = {"options": {}}
    for key, node in keys.items():
        node.check_known(key, known)
        if key == EXCLUDE:
            excluded = []
            for entry in node.items():
                conditions = entry.mapping(EXCLUDE)
                for name, condition in conditions.items():
                    condition.check_known(name, (*EXCLUDED_BY, *runtime_options()))
                if not conditions:
                    entry.refuse("exclude takes mappings such as {runtime: eager, precision: int8}")
                excluded.append({name: _text(condition.content) for name, condition in conditions.items()})
            found[EXCLUDE] = tuple(excluded)
            continue
        if key in LISTS:
            found[key] = settings[key].kind.listed(key, node)
        else:
            found["options"][key] = TEXT.listed(key, node)
    for name in found.get("runtimes", ()):
        keys["runtimes"].check_known(name, plugins.names(plugins.RUNTIMES), "runtime")
    return Choices(**found)


def _text(value: object) -> str:
    """A value as a flag takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def space(
    base: Request,
    choices: Choices,
    session_id: str,
    workload: Workload,
    machine: Machine,
    *,
    needs_latency_only: bool = False,
) -> Space:
    """The space of a request, whose model, device and further axes hold for all of it.

    `needs_latency_only`: only the latency of a single call counts, so by default larger batches are not tried. Raises
    UsageError if nothing can run, and for a space of too many cells.
    """
    family = plugin_of(workload)
    only, axes = family.only_batch_size(workload), family.axes(workload)
    # A search has one value of each further axis: the first of the default where none is given.
    chosen: dict[str, Any] = {}
    for name in ("sequence_length", "new_tokens"):
        key = MEASURING[name].key
        if name in axes and getattr(base, key) is None:
            chosen[key] = tuple(axes[name][:1])
    given = {name: values[:1] for name, values in axes.items() if name not in ("sequence_length", "new_tokens")}
    base = replace(
        base,
        device=_device(base, choices, workload, machine),
        batch_sizes=choices.batch_sizes
        or ((only,) if only is not None else BATCH_SIZES[:1] if needs_latency_only else BATCH_SIZES),
        **{**chosen, "axes": {**given, **base.axes}},
        skip_unsupported=True,
    )
    left_out: dict[str, str] = {}
    candidates: list[Candidate] = []
    for runtime in _runtimes(choices, base.device, left_out):
        for candidate in _of_runtime(base, runtime, choices, session_id, workload, machine, left_out):
            several = candidate.request.concurrency is not None
            if needs_latency_only and several:
                left_out[candidate.name] = "several requests in flight do not make a call faster"
                continue
            candidates.append(candidate)
            if len(candidates) > MOST_CELLS:
                raise UsageError(f"the space has more than {MOST_CELLS} cells: restrict it with --space or flags")
    if not candidates:
        by_reason = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise UnsupportedError(f"no configuration of {base.model_id} can run on {base.device}: {by_reason}")
    return Space(candidates=tuple(sorted(candidates, key=lambda one: one.departures)), left_out=left_out)


def _device(base: Request, choices: Choices, workload: Workload, machine: Machine) -> str:
    """The one device of the search: as for several runtimes, `auto` is resolved once for all, by the default one."""
    names = choices.runtimes or (default_runtime(), None)
    error: UnsupportedError | None = None
    for name in names:
        try:
            return plan_cell(replace(base, runtime=name), "", workload=workload, machine=machine).cell.device.selector
        except UnsupportedError as problem:
            error = error or problem
    assert error is not None
    raise error


def _runtimes(choices: Choices, selector: str, left_out: dict[str, str]) -> list[Runtime]:
    """The runtimes to try: the named ones, else those that can serve a model here."""
    if choices.runtimes:
        return [plugins.runtime(choice(name, plugins.names(plugins.RUNTIMES), "runtime")) for name in choices.runtimes]
    kind = plugins.device_kind(selector.partition(":")[0])
    found = []
    for runtime in plugins.runtimes():
        if runtime.name == kind.implied_runtime or (runtime.runs_models and runtime.is_compared and runtime.serves):
            found.append(runtime)
        elif runtime.runs_models and not runtime.serves:
            left_out[runtime.name] = "its models run in the browsers of users, not here: name it to try it"
    return found


def _of_runtime(
    base: Request,
    runtime: Runtime,
    choices: Choices,
    session_id: str,
    workload: Workload,
    machine: Machine,
    left_out: dict[str, str],
) -> Iterator[Candidate]:
    """The candidates of a runtime. A precision that cannot run with default settings has none at all, and a value that
    no precision accepts is left out once."""
    refused: dict[str, str] = {}
    useless: dict[str, str] = {}
    useful: set[str] = set()
    precisions = choices.precisions or PRECISIONS
    for precision in precisions:
        base_name = f"{runtime.name} {precision}"
        request = replace(base, runtime=runtime.name, precision=precision)

        def planned(placement: Placement, options: Mapping[str, Scalar], request: Request = request) -> CellPlan | str:
            """The plan of a cell, or why there is none."""
            one = replace(request, **placement._asdict(), options=options, concurrency=_in_flight(runtime, options))
            try:
                plan = plan_cell(one, session_id, workload=workload, machine=machine)
            except UsageError as error:
                return str(error)
            return plan if plan.runnable else next(iter(plan.skipped.values())).rpartition(CANNOT)[2]

        first = planned(Placement(), {})
        if isinstance(first, str):
            refused[base_name] = first
            continue
        # The values of each option to try: the default, None, and those that are worth trying or given.
        values: dict[str, tuple[str | None, ...]] = {}
        for option in runtime.options(workload, first.cell.device):
            if option.name in choices.options:
                values[option.name] = choices.options[option.name]
            elif option.tried:
                offered = [one for one in option.tried if not option.values or one in option.values[1:]]
                values[option.name] = (None, *offered)
        for name, value in [(name, value) for name, tried in values.items() for value in tried if value is not None]:
            why_not = planned(Placement(), {name: value})
            if isinstance(why_not, str):
                useless[f"{runtime.name} {name} {value}"] = why_not
                values[name] = tuple(other for other in values[name] if other != value)
            else:
                useful.add(f"{runtime.name} {name} {value}")
        if choices.num_threads or choices.cpu_list:
            pairs = itertools.product(choices.num_threads or (None,), choices.cpu_list or (None,))
            placements = tuple(Placement(threads, cpus) for threads, cpus in pairs)
        else:
            placements = plugins.device_kind(first.cell.device.type).placements(first.cell.device)
        for placement, combination in itertools.product(placements, itertools.product(*values.values())):
            options: dict[str, Scalar] = {n: v for n, v in zip(values, combination, strict=True) if v is not None}
            departures = len(options.keys() - choices.options.keys())
            if not (choices.num_threads or choices.cpu_list):
                departures += sum(value is not None for value in placement)
            if departures > MOST_DEPARTURES:
                continue
            words = [] if placement.num_threads is None else [counted(placement.num_threads, "thread")]
            words += [] if placement.cpu_list is None else [f"processors {placement.cpu_list}"]
            name = ", ".join([base_name, *words, *(f"{option} {value}" for option, value in options.items())])
            stated = {"runtime": runtime.name, "precision": precision, **placement._asdict(), **options}
            if any(all(_text(stated.get(key)) == value for key, value in entry.items()) for entry in choices.exclude):
                left_out[name] = "excluded by --space"
            elif isinstance(plan := planned(placement, options), str):
                left_out[name] = plan
            else:
                left_out |= {f"{name}, {', '.join(labels)}": why for why, labels in points_by_reason(plan).items()}
                one = replace(request, **placement._asdict(), options=options, concurrency=_in_flight(runtime, options))
                yield Candidate(name=name, base=base_name, departures=departures, request=one, plan=plan)
    left_out |= {name: why for name, why in useless.items() if name not in useful}
    left_out |= refused if len(refused) < len(precisions) else {runtime.name: next(iter(refused.values()))}


def _in_flight(runtime: Runtime, options: Mapping[str, Scalar]) -> tuple[int, ...] | None:
    """The requests in flight, if the settings are those of several; one per processor keeps all of them busy."""
    defaults = {option.name: option.values[0] for option in runtime.declared_options if option.values}
    at_once = bool(runtime.concurrency_flag) and runtime.runs_at_once({**defaults, **options})
    return (max(2, os.cpu_count() or 2),) if at_once else None


LIMITS = (
    *("latency", "latency_p90", "latency_p95", "latency_p99", "ttft", "memory", "energy", "throughput"),
    *QUALITY_LIMITS,
)
"""What can be limited, in the grammar of `benchmarking.core.shared_settings`."""
MORE_IS_BETTER = frozenset({"throughput", "agreement"})
UNSEEN_MEMORY = 0.02
COLUMNS: Mapping[str, str] = {
    "latency": "latency_median_ms",
    "latency_p90": "latency_p90_ms",
    "latency_p95": "latency_p95_ms",
    "latency_p99": "latency_p99_ms",
    "ttft": "time_to_first_token_ms",
}
SHOWN_BY_CALLS = ("latency_p90", "latency_p95", "latency_p99")
"""Limits on a percentile of the calls, which needs more calls than a median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is optimized, within which limits."""

    objective: str
    """throughput, latency, energy or cost; on one device, the cheapest is the one with the highest throughput."""
    limits: Mapping[str, float]
    """In ms, MB, J per item, or items (tokens, where there are some) per second."""

    @property
    def needs_energy(self) -> bool:
        return self.objective == "energy" or "energy" in self.limits

    @property
    def needs_quality(self) -> bool:
        return any(name in QUALITY_LIMITS for name in self.limits)

    @property
    def calls_to_know(self) -> int:
        """The calls that show all limited percentiles; 0 if none is limited."""
        return max(
            (TAIL_MIN_SAMPLES[PERCENTILES[name[-3:]]] for name in self.limits if name in SHOWN_BY_CALLS), default=0
        )

    def launch(self, result: Result, quality: Quality | None = None, *, so_far: Result | None = None) -> Launch:
        """What a result of one launch says, with the quality of the loaded model and the result of all launches so
        far."""
        if result.status != "ok" or result.validity not in FIT:
            return Launch(cost=None)
        measured = {name for name in self.limits if name not in QUALITY_LIMITS}
        values = {name: _value(result, name) for name in {*measured, *COLUMNS, "throughput", "energy"}}
        for name in SHOWN_BY_CALLS:
            if values[name] is None and so_far is not None:
                values[name] = _value(so_far, name)
        objective = {"cost": "throughput"}.get(self.objective, self.objective)
        found = values[objective]
        cost = None if not found else 1 / found if objective in MORE_IS_BETTER else found
        least = {name: _bound(name, values) for name in measured}
        for name in self.limits:
            if name in QUALITY_LIMITS:  # the better and the worse end of its interval
                known = None if quality is None else quality.values.get(QUALITY_LIMITS[name])
                low, high = (None, None) if known is None else (known.low, known.high)
                least[name], values[name] = (high, low) if name in MORE_IS_BETTER else (low, high)
        return Launch(
            cost=cost,
            excess={name: _share(name, values[name], limit) for name, limit in self.limits.items()},
            least_excess={name: _share(name, least[name], limit) for name, limit in self.limits.items()},
        )


WINDOWS = 8
"""Windows of the text by which quality is measured, once for each cell: half of those of `run --quality`."""
MOST_WINDOWS = 512
"""Windows or inputs, at most, by which a least agreement is shown: one call takes all inputs, in each cell."""


def quality_to_show(limits: Mapping[str, float], workload: Workload) -> QualitySettings:
    """What the quality is measured on, so that a model which always agrees with the reference meets the limits. Raises
    UsageError for limits that none can meet, and UnsupportedError for a text that cannot be tokenized."""
    of = f"--limit on the quality of {workload.model_id}"

    def refuse(why: str, names: Iterable[str]) -> NoReturn:
        raise UsageError(f"{of}: {why} leave the limit on {' and '.join(names)} out")

    limited = [name for name in limits if name in QUALITY_LIMITS]
    if (why_not := why_not_quality(workload)) is not None:
        is_random = workload.weights == "random"
        way = " take trained weights, such as those of a local folder, or" if is_random else ""
        refuse(f"{why_text(why_not)}:{way}", limited)
    if torch_workload(workload) is None:
        refuse("a file has no torch model to compare with:", limited)
    kind = kind_of(workload)
    if unknown := [name for name in limited if QUALITY_LIMITS[name] not in METRICS_OF[kind]]:
        refuse(f"{workload.task} has {', '.join(METRICS_OF[kind])}:", unknown)
    own = QualitySettings(windows=WINDOWS) if kind == "text" else QualitySettings()
    least, most, each = limits.get("agreement", 0.0), MOST_WINDOWS, 1
    if kind == "text" and least > 0:
        windows = text_windows(workload, QualitySettings(windows=MOST_WINDOWS))
        most, each = len(windows.tokens), windows.scored
    elif workload.task == "fill-mask":
        each = quality_point(workload, own).sequence_length or 1
    elif not workload.task.endswith("-classification"):
        return own  # a label for each frame of a sound, which takes no more inputs
    choices = 1 + bisect_left(range(1, most * each + 1), least, key=lambda n: exact_share_interval(n, n)[0])
    if choices > most * each:
        held, shown = counted(most * each, "equal choice"), exact_share_interval(most * each, most * each)[0]
        raise UsageError(
            f"{of}: {held}, the most that are asked, show an agreement of {math.floor(shown * 1e4) / 1e4:g} at most, "
            f"not {least:g}: lower it, or limit kl"
        )
    return replace(own, windows=max(own.windows, math.ceil(choices / each)))


def _value(result: Result, name: str) -> float | None:
    """The limited quantity of a result; None if it was not measured."""
    metrics = result.metrics
    if name == "memory":
        return None if (peak := peak_memory_column(metrics)) is None else metrics[peak]
    if name == "energy":
        return energy_per_item(metrics, result.point.batch_size * result.point.concurrency)[0]
    if name == "throughput":
        return metrics.get("throughput_tokens_per_sec") or metrics.get("throughput_samples_per_sec")
    return metrics.get(COLUMNS[name])


def _bound(name: str, values: Mapping[str, float | None]) -> float | None:
    """The most favourable value that other launches may have."""
    value = values[name]
    if value is None and name.startswith("latency_"):
        value = values["latency"]
    if value is None:
        return None
    unseen = 1 + (UNSEEN_MEMORY if name == "memory" else UNSEEN_LAUNCHES)
    return value * unseen if name in MORE_IS_BETTER else value / unseen


def _share(name: str, value: float | None, limit: float) -> float | None:
    if value is None:
        return None
    if name in MORE_IS_BETTER:
        return limit / value if value > 0 else math.inf
    return value / limit
