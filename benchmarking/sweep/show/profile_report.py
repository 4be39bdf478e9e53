"""A profile as text and tables: where the time goes, and what to try, each with measured evidence.

Every piece of advice is backed by evidence in the profile: a share of the time, a count, or a measured peak rate. A
command is only advised if it passes the checks of a command that is typed, on the device of the profile.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from statistics import fmean, median, stdev

from benchmarking.core.doubts import doubt_notes
from benchmarking.core.errors import BenchhouseError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import BYTES_PER_MB
from benchmarking.core.plugins import compiling_runtime, default_runtime
from benchmarking.core.profiles import (
    ATTENTION,
    COMPILE_S,
    COMPUTE,
    KERNEL_TIME,
    MEMORY,
    OTHER,
    OUTSIDE,
    ModuleTime,
    OperatorTime,
    Profile,
)
from benchmarking.core.records import PRECISIONS
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, number, visible, why_text, wrapped
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import Machine
from benchmarking.sweep.plan.request import Request, plan_points
from benchmarking.sweep.run.profile_launch import COPY_RATE

MAX_LAYERS, MAX_OPERATORS = 12, 10
MIN_SHARE = 0.15
"""Minimum share of a call for a part to be worth a remedy."""
MIN_ATTENTION_SHARE = 0.05
MIN_MATCHED_SHARE = 0.9
"""Share of operator time matched with modules below which the report says so."""
FASTER_PEAK = 1.3
"""A precision whose measured peak is higher by this factor is worth trying."""
KIND_NAMES = {"feed_forward": "feed-forward", "mixer": "mixer (state space)"}
OUTLIER_RATIO = 3.0
"""Ratio to the median call from which on other programs probably disturbed the slowest call."""
MIN_SIBLINGS = 3
OUTLIER_FACTOR, MIN_OUTLIER_SHARE = 2.0, 0.1
"""A part is an outlier if it takes this many times the median of its siblings, and the excess is this share of a
call."""
SAME_EXCESS = 0.8
"""A part inside another explains its excess from this share of it on."""
LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
HALF_PRECISIONS = ("bfloat16", "float16")
SOFTMAX = ("softmax", "bmm", "baddbmm")
FUSED_ATTENTION = ("scaled_dot_product", "flash", "attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something to try."""

    what: str
    """outlier, batch, compile, precision, attention, quantise, memory, tokenize or graph breaks."""
    text: str
    """The advice with its evidence."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """The advised flags (runtime, precision or an option) -> value; empty for advice without a command."""


def profile_text(profile: Profile, page: Page = PLAIN) -> str:
    cell, call = profile.run.cell, profile.call
    plain, profiled = median(call.latency_ms), median(call.profiled_ms)
    overhead = f"{profiled / plain - 1:+.0%}" if plain else "unknown"
    head = [
        visible(f"{cell.subject} on {cell.device.selector}, {cell.runtime} {cell.precision}, {profile.point.label}"),
        f"profiler {call.profiler}: a call takes {number(profiled, 3)} ms with it and {number(plain, 3)} ms "
        f"without ({overhead}), {len(call.latency_ms)} alternating calls each",
    ]
    if kinds := ", ".join(doubt.kind for doubt in call.doubts if doubt.severity != "info"):
        head.append(f"doubts: {kinds}")
    tips = [f"{tip.what}: {tip.text}" for tip in advice(profile)] or ["nothing stands out in this profile"]
    doubts = doubt_notes((doubt.kind, profile.point.label) for doubt in call.doubts)
    # The slowest operators, over all modules.
    by_name: dict[str, list[OperatorTime]] = defaultdict(list)
    for operator in profile.call.breakdown.operators:
        by_name[operator.operator].append(operator)
    total, rows = _total_ms(profile), []
    is_timed = KERNEL_TIME not in profile.call.breakdown.missing
    for name, group in sorted(by_name.items(), key=lambda item: -sum(map(_operator_ms, item[1])))[:MAX_OPERATORS]:
        spent = sum(map(_operator_ms, group))
        rows.append(
            (
                name,
                number(spent, 3),
                f"{spent / total:.1%}" if total else "-",
                f"{sum(operator.calls for operator in group):.0f}",
                _rate([(operator.flops, operator.work_ms) for operator in group]) if is_timed else "-",
                _rate([(operator.bytes_accessed, operator.work_ms) for operator in group]) if is_timed else "-",
                " and ".join(sorted({operator.bound for operator in group if operator.bound is not None})) or "-",
            )
        )
    parts = [
        "\n".join(head),
        table_text(_times(profile), page),
        table_text(_kinds(profile), page),
        table_text(_layers(profile), page) if _by_layer(profile) else "",
        table_text(
            Table(
                headings=("operator", "exclusive ms", "share", "calls", "GFLOP/s", "GB/s", "limited by"),
                rows=tuple(rows),
                numbers=(1, 2, 3, 4, 5),
            ),
            page,
        ),
        "Where the time goes\n" + wrapped("\n".join(_time_sentences(profile)), page.text_width),
        "What to try\n" + wrapped("\n".join(f"- {visible(tip)}" for tip in tips), page.text_width),
        wrapped("\n".join(doubts), page.text_width),
    ]
    return "\n\n".join(filter(None, parts))


def advice(profile: Profile) -> tuple[Advice, ...]:
    """What to try, as far as the profile has evidence for it and the advised command can run; an outlier among the
    parts of the model comes first."""
    cell, tips = profile.run.cell, list[Advice]()
    machine = Machine()
    machine.devices[cell.device.type] = (cell.device,)
    advisers = ADVISERS if KERNEL_TIME not in profile.call.breakdown.missing else WITHOUT_KERNEL_TIME
    for tip in (tip for adviser in advisers for tip in adviser(profile)):
        if changes := tip.changes:
            request = Request(
                model_id=cell.workload.model_id,
                device=cell.device.selector,
                runtime=changes.get("runtime", cell.runtime),
                precision=next(name for name in PRECISIONS if name == changes.get("precision", cell.precision)),
                options={name: value for name, value in changes.items() if name not in ("runtime", "precision")},
                num_threads=cell.num_threads,
                settings=settings("quick"),
            )
            points, session_id = (profile.point,), profile.run.session_id
            try:
                plan_points(request, session_id, cell.workload, points, skipped={}, machine=machine)
            except BenchhouseError:
                continue
        tips.append(tip)
    return tuple(tips)


def _times(profile: Profile) -> Table:
    """Tokenizing and everything together, without the profiler."""
    call, rows = profile.call, []
    for name, times in (("tokenize", call.tokenize_ms), ("inference", call.latency_ms), ("total", call.total_ms)):
        if times:
            spread = number(stdev(times), 3) if len(times) > 1 else "-"
            low, high, middle = (number(time, 4) for time in (min(times), max(times), median(times)))
            rows.append((name, number(fmean(times), 4), spread, low, high, middle))
    return Table(headings=("ms", "mean", "std", "min", "max", "median"), rows=tuple(rows), numbers=(1, 2, 3, 4, 5))


def exclusive_time_ms(module: ModuleTime) -> float:
    """A module's own time: on the accelerator if there is one, else on the host."""
    return module.exclusive_ms if module.device_exclusive_ms is None else module.device_exclusive_ms


def inclusive_time_ms(module: ModuleTime) -> float:
    """A module's time including nested modules, on the same side as `exclusive_time_ms`."""
    return module.inclusive_ms if module.device_inclusive_ms is None else module.device_inclusive_ms


def _total_ms(profile: Profile) -> float:
    return sum(map(exclusive_time_ms, profile.call.breakdown.modules)) or profile.call.breakdown.host_ms


def _kinds(profile: Profile) -> Table:
    """The parts of the model, each with its outermost modules and the limit on most of its operators' time."""
    breakdown, total = profile.call.breakdown, _total_ms(profile)
    grouped: dict[str, list[ModuleTime]] = defaultdict(list)
    for module in breakdown.modules:
        grouped[module.kind].append(module)
    bounds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for operator in breakdown.operators:
        if operator.bound is not None:
            bounds[operator.kind][operator.bound] += operator.work_ms
    rows = []
    for kind, group in sorted(grouped.items(), key=lambda item: -sum(map(exclusive_time_ms, item[1]))):
        spent, names = sum(map(exclusive_time_ms, group)), [module.module for module in group if module.module]
        outermost = [module for module in group if not any(module.module.startswith(f"{name}.") for name in names)]
        flops = sum(module.flops or 0 for module in group)
        limits = bounds[kind]
        rows.append(
            (
                KIND_NAMES.get(kind, kind),
                number(spent, 3),
                f"{spent / total:.1%}" if total else "-",
                number(sum(map(inclusive_time_ms, outermost)), 3) if kind != OTHER else "-",
                f"{sum(module.calls for module in group):.0f}",
                number(flops / 1e9, 3) if flops else "-",
                max(limits, key=lambda name: limits[name]) if limits else "-",
            )
        )
    return Table(
        headings=("part", "exclusive ms", "share", "inclusive ms", "calls", "GFLOP", "limited by"),
        rows=tuple(rows),
        numbers=(1, 2, 3, 4, 5),
    )


def kind_shares(profile: Profile) -> dict[str, float]:
    """The share of each part of the model in the time of its modules, the largest first."""
    kinds, total = defaultdict[str, float](float), _total_ms(profile)
    for module in profile.call.breakdown.modules:
        kinds[module.kind] += exclusive_time_ms(module) / total if total else 0.0
    return dict(sorted(kinds.items(), key=lambda item: -item[1]))


def _by_layer(profile: Profile) -> dict[str, float]:
    """Exclusive time by layer, in the model's order."""
    layers: dict[str, float] = defaultdict(float)
    for module in profile.call.breakdown.modules:
        if module.layer is not None:
            layers[module.layer] += exclusive_time_ms(module)
    return dict(layers)


def _layers(profile: Profile) -> Table:
    layers, total = _by_layer(profile), _total_ms(profile)
    longest = sorted(layers, key=lambda name: -layers[name])[:MAX_LAYERS]
    inclusive = {module.module: inclusive_time_ms(module) for module in profile.call.breakdown.modules}
    return Table(
        headings=(f"layer ({len(layers)})", "exclusive ms", "share", "inclusive ms"),
        rows=tuple(
            (
                name,
                number(layers[name], 3),
                f"{layers[name] / total:.1%}" if total else "-",
                number(inclusive[name], 3) if name in inclusive else "-",
            )
            for name in layers
            if name in longest
        ),
        numbers=(1, 2, 3),
    )


def _operator_ms(operator: OperatorTime) -> float:
    return operator.exclusive_ms if operator.device_ms is None else operator.device_ms


def _rate(done: Sequence[tuple[float | None, float]]) -> str:
    """Giga-units per second, over what was counted."""
    amount = sum(count or 0 for count, _ in done)
    spent_ms = sum(ms for count, ms in done if count)
    return number(amount / spent_ms / 1e6, 3) if amount and spent_ms else "-"


def _time_sentences(profile: Profile) -> Iterator[str]:
    """Sentences about where the time goes."""
    breakdown = profile.call.breakdown
    why_not = breakdown.missing.get(KERNEL_TIME)
    kinds = [*kind_shares(profile).items()]
    shares = [f"{KIND_NAMES.get(kind, kind)} {share:.0%}" for kind, share in kinds[:4]]
    if len(kinds) > 4:
        shares.append(f"{counted(len(kinds) - 4, 'more kind')} {sum(share for _, share in kinds[4:]):.0%}")
    if why_not is None:
        yield f"{', '.join(shares)} of a call."
    else:
        why = why_text(why_not)
        yield f"Kernel time is not attributed to operators: {why}. The times are those of the host, as in launches."
    graphs, breaks = (breakdown.metrics.get(name) for name in ("graph_count", "graph_break_count"))
    if graphs is not None:
        between = "" if breaks is None else f", with {counted(round(breaks), 'break')} between them"
        yield (
            f"The compiler made {counted(round(graphs), 'graph')} of the model{between}; inside a graph there are no "
            "modules, only operators."
        )
    if isinstance(took_s := breakdown.details.get(COMPILE_S), float):
        yield f"Compilation took {number(took_s, 2)} s beforehand and is not part of the profile."
    matched = breakdown.details.get("matched_share")
    if matched == 0:
        yield "No operator could be matched with a module: use --rebuild always to export the model again with modules."
    elif isinstance(matched, float) and matched < MIN_MATCHED_SHARE:
        yield f"Only {matched:.0%} of the time in operators could be matched with modules; the rest counts as other."
    layers = _by_layer(profile)
    if len(layers) > 1 and why_not is None:
        slowest = max(layers, key=lambda name: layers[name])
        usual = median(layers.values())
        factor = f", {layers[slowest] / usual:.1f} times the median layer" if usual else ""
        yield visible(f"The slowest layer is {slowest}: {number(layers[slowest], 3)} ms{factor}.")
    if (outside := _outside_share(profile)) is not None:
        yield f"Outside all operators (Python and the framework): at least {outside:.0%}."
    elif "outside_operators_ms" in breakdown.metrics:
        yield "How much of a call is outside all operators is unknown: the profiler slows the operators themselves."
    if (idle := _idle_share(profile)) is not None:
        yield f"The accelerator waits for {idle:.0%} of a call, in {breakdown.metrics['kernel_launches']:.0f} launches."
    if (peak := breakdown.metrics.get("peak_bytes")) is not None:
        yield f"A call allocates at most {number(peak / BYTES_PER_MB, 2)} MB at a time{_at_peak(breakdown.modules)}."
    longest, usual_ms = max(profile.call.profiled_ms), median(profile.call.profiled_ms)
    if longest > OUTLIER_RATIO * usual_ms:
        text = (
            f"The slowest call took {longest / usual_ms:.1f} times the median, and the means include the disturbance."
        )
        yield f"{text} Profile on an idle machine."
    if "bound" in breakdown.missing:
        yield f"Whether operators are compute-bound or memory-bound is unknown: {breakdown.missing['bound']}."


def _at_peak(modules: Sequence[ModuleTime]) -> str:
    inner = [
        module for module in modules if module.module != OUTSIDE and module.layer is not None and module.peak_bytes
    ]
    if not inner:
        return ""
    most = max(inner, key=lambda module: module.peak_bytes or 0)
    return visible(f", {number((most.peak_bytes or 0) / BYTES_PER_MB, 2)} MB of it in {most.module}")


def _outside_share(profile: Profile) -> float | None:
    """Least share of a call without the profiler that its operators leave, whose times include some of the profiler's
    overhead; None if they include so much that nothing is left, or if they are not reported."""
    breakdown, call_ms = profile.call.breakdown, median(profile.call.latency_ms)
    outside_ms = breakdown.metrics.get("outside_operators_ms")
    if outside_ms is None or not call_ms:
        return None
    share = 1 - (breakdown.host_ms - outside_ms) / call_ms
    return share if round(share, 2) > 0 else None


def _idle_share(profile: Profile) -> float | None:
    """Share of a call without the profiler in which no kernel runs; None without kernel times."""
    busy_ms, call_ms = profile.call.breakdown.metrics.get("device_busy_ms"), median(profile.call.latency_ms)
    return None if busy_ms is None or not call_ms else max(0.0, 1 - busy_ms / call_ms)


def _outlier(profile: Profile) -> Iterator[Advice]:
    """The part that takes much longer than its siblings, which are the parts at the same place of other layers; the
    innermost one that explains the excess."""
    total, excess = _total_ms(profile), dict[str, float]()
    siblings: dict[str, list[ModuleTime]] = defaultdict(list)
    for module in profile.call.breakdown.modules:
        if module.module != OUTSIDE and module.layer is not None:
            siblings[LAYER_NUMBER.sub("*", module.module, count=1)].append(module)
    found: dict[str, tuple[float, ModuleTime, ModuleTime]] = {}
    for group in siblings.values():
        if len(group) < MIN_SIBLINGS:
            continue
        ordered = sorted(group, key=_typical_ms)
        usual, slowest = ordered[len(ordered) // 2], ordered[-1]
        over = _typical_ms(slowest) - _typical_ms(usual)
        # Other programs disturbed the fastest call least.
        shortest_ms = [
            min(module.inclusive_samples_ms, default=inclusive_time_ms(module)) for module in (usual, slowest)
        ]
        is_slower = _typical_ms(slowest) >= OUTLIER_FACTOR * _typical_ms(usual)
        is_slower = is_slower and shortest_ms[1] >= OUTLIER_FACTOR * shortest_ms[0]
        if is_slower and over >= MIN_OUTLIER_SHARE * total:
            found[slowest.module], excess[slowest.module] = (over, slowest, usual), over
    if not found:
        return
    most = max(excess.values())
    responsible = [path for path, over in excess.items() if over >= SAME_EXCESS * most]
    path = max(responsible, key=lambda path: path.count("."))
    over, slowest, usual = found[path]
    factor = _typical_ms(slowest) / _typical_ms(usual) if _typical_ms(usual) else math.inf
    is_same = slowest.class_name == usual.class_name
    other = "" if is_same else f" ({slowest.class_name}; most others are {usual.class_name})"
    text = (
        f"{path}{other} first: it takes {number(_typical_ms(slowest), 3)} ms, {factor:.1f} times the median of the "
        f"same part in other layers, and without the difference a call would be {over / total:.0%} shorter"
    )
    yield Advice(what="outlier", text=text)


def _typical_ms(module: ModuleTime) -> float:
    """The time of a module in a typical call: a single disturbed call makes no outlier."""
    return median(module.inclusive_samples_ms) if module.inclusive_samples_ms else inclusive_time_ms(module)


def _batch(profile: Profile) -> Iterator[Advice]:
    outside, idle = _outside_share(profile), _idle_share(profile)
    if idle is not None and idle >= MIN_SHARE:
        text = f"a larger batch: the accelerator waits for the host for {idle:.0%} of a call"
        yield Advice(what="batch", text=text)
    elif outside is not None and idle is None and outside >= MIN_SHARE:
        text = f"a larger batch: at least {outside:.0%} of a call is outside operators and hardly grows with the batch"
        yield Advice(what="batch", text=text)


def _graph_breaks(profile: Profile) -> Iterator[Advice]:
    breakdown = profile.call.breakdown
    breaks = breakdown.metrics.get("graph_break_count")
    if breaks:
        reasons = breakdown.details.get("graph_break_reasons")
        first = f", the first: {reasons[0]}" if isinstance(reasons, list) and reasons else ""
        yield Advice(what="graph breaks", text=f"remove graph breaks: the compiler found {breaks:.0f}{first}")


def _compile(profile: Profile) -> Iterator[Advice]:
    breakdown = profile.call.breakdown
    if profile.run.cell.runtime != default_runtime():
        return
    small = sum(operator.work_ms for operator in breakdown.operators if operator.bound == MEMORY and not operator.flops)
    outside, total = _outside_share(profile) or 0.0, _total_ms(profile)
    calls = breakdown.metrics.get("operator_calls", 0.0)
    if small >= MIN_SHARE * total:
        text = (
            f"--runtime compiled: memory-bound operators without matrix products take {small / total:.0%} of a call, "
            "and a compiler can fuse them"
        )
        yield Advice(what="compile", text=text, changes={"runtime": compiling_runtime()})
    elif outside >= MIN_SHARE:
        text = f"--runtime compiled: {calls:.0f} operator calls, with at least {outside:.0%} of a call between them"
        yield Advice(what="compile", text=text, changes={"runtime": compiling_runtime()})


def _precision(profile: Profile) -> Iterator[Advice]:
    precision, peaks, total = profile.run.cell.precision, profile.peaks, _total_ms(profile)
    peak = peaks.get(precision)
    products = sum(operator.work_ms for operator in profile.call.breakdown.operators if operator.bound == COMPUTE)
    better = {name: peaks[name] / peak for name in HALF_PRECISIONS if peak and name in peaks and name != precision}
    if precision in HALF_PRECISIONS or not better or products < MIN_SHARE * total:
        return
    name = max(better, key=lambda operator: better[operator])
    if better[name] >= FASTER_PEAK:
        text = (
            f"--precision {name}: {products / total:.0%} of a call is compute-bound, and the measured peak rate of "
            f"{name} is {better[name]:.1f} times that of {precision} on this device"
        )
        yield Advice(what="precision", text=text, changes={"precision": name})


def _quantise(profile: Profile) -> Iterator[Advice]:
    total, rate = _total_ms(profile), profile.peaks.get(COPY_RATE)
    products = [
        operator for operator in profile.call.breakdown.operators if operator.flops and operator.bound == MEMORY
    ]
    spent = sum(operator.work_ms for operator in products)
    if rate and spent >= MIN_SHARE * total and profile.run.cell.precision not in ("int8", "int4"):
        moved = sum(operator.bytes_accessed or 0 for operator in products)
        text = (
            f"--precision int8: memory-bound matrix products take {spent / total:.0%} of a call; they move "
            f"{moved / BYTES_PER_MB:.0f} MB, {1e3 * moved / rate:.3g} ms at the measured {rate / 1e9:.3g} GB/s, and "
            "int8 weights are smaller"
        )
        yield Advice(what="quantise", text=text, changes={"precision": "int8"})


def _attention(profile: Profile) -> Iterator[Advice]:
    operators = [operator for operator in profile.call.breakdown.operators if operator.kind == ATTENTION]
    is_fused = any(word in operator.operator.lower() for operator in operators for word in FUSED_ATTENTION)
    unfused = sum(
        _operator_ms(operator) for operator in operators if any(word in operator.operator.lower() for word in SOFTMAX)
    )
    if not is_fused and unfused >= MIN_ATTENTION_SHARE * _total_ms(profile):
        share = unfused / _total_ms(profile)
        text = f"--attention sdpa: unfused softmax and score products take {share:.0%} of a call"
        yield Advice(what="attention", text=text, changes={"attention": "sdpa"})


def _memory(profile: Profile) -> Iterator[Advice]:
    loads, peak = profile.run.loads, profile.call.breakdown.metrics.get("peak_bytes", 0.0)
    weights = loads[0].memory_bytes.get("weights_bytes", 0) if loads else 0
    if weights and peak > weights:
        text = (
            f"a smaller batch, or shorter sequences: a call allocates {peak / BYTES_PER_MB:.0f} MB, more than the "
            f"weights' {weights / BYTES_PER_MB:.0f} MB{_at_peak(profile.call.breakdown.modules)}"
        )
        yield Advice(what="memory", text=text)


def _tokenize(profile: Profile) -> Iterator[Advice]:
    call = profile.call
    if call.tokenize_ms and median(call.tokenize_ms) >= MIN_SHARE * median(call.total_ms):
        share = median(call.tokenize_ms) / median(call.total_ms)
        text = f"tokenize while the model runs: preparing the inputs takes {share:.0%} of the total"
        yield Advice(what="tokenize", text=text)


ADVISERS: tuple[Callable[[Profile], Iterator[Advice]], ...] = (
    *(_outlier, _batch, _graph_breaks, _compile, _precision, _attention, _quantise, _memory, _tokenize),
)
WITHOUT_KERNEL_TIME = (_graph_breaks, _memory, _tokenize)
"""Those whose evidence is not the time of operators."""
