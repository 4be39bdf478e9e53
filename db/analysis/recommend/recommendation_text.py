"""Recommendations as text for a terminal: the best option and why, then all options, best first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import get_args

from benchmarking.core.axes import AXES
from benchmarking.core.doubts import doubt_notes
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import METRICS
from benchmarking.core.quality import ALL_QUALITY_LIMITS, QUALITY_METRICS
from benchmarking.core.tables import Column, Table, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, listed, number, wrapped
from benchmarking.core.verdicts.launches import UNSEEN_LAUNCHES
from db.analysis.recommend.measured_options import Workload
from db.analysis.recommend.recommendation import (
    AT_LEAST,
    CLOSE,
    FAR,
    PERCENTILES,
    UNITS,
    UNSEEN_SESSIONS,
    WITHOUT_INTERVAL,
    Aim,
    Miss,
    Option,
    Quantity,
    Rated,
    Recommendation,
    measured_value,
)
from db.analysis.recommend.servers import Server
from db.values import differing_names, optional_number, precision_words

WORDS: Mapping[Quantity, str] = {
    **{name: name.replace("_", " ") for name in get_args(Quantity)},
    **{name: f"{name.removeprefix('latency_')} latency" for name in PERCENTILES},
    "ttft": "time to first token",
    "memory": "peak memory",
    "energy": "energy per item",
    "kl": "KL divergence",
    "agreement": "top-1 agreement",
}
AIMS: Mapping[Aim, str] = {
    "latency": "the lowest latency",
    "throughput": "the highest throughput",
    "memory": "the least memory",
    "energy": "the least energy per item",
    "cost": "the lowest cost",
}
OF_MEDIAN: tuple[Quantity, ...] = (*PERCENTILES, "throughput")
"""Quantities whose limits take them to be as uncertain as the median latency."""
MOST_MEASURES = 2
"""Maximum measures of quality in the advice, of those without a limit."""
MOST_EQUAL = 4
"""Maximum equal options named in the advice; the rest are counted."""
EQUAL_NOTE = (
    f"equal: their intervals overlap, or memory and energy, which have none, are within {CLOSE:.0%}; among equals the "
    f"cheapest is recommended, then, of those within {FAR:.0%} of the best as measured, the simplest, then the first "
    f"by name; the interval of a single launch counts as at least {UNSEEN_LAUNCHES:.0%} wide to either side, and those "
    f"of two sessions as at least {UNSEEN_SESSIONS:.0%}"
)
TURNS_NOTE = (
    "equal: launches in turns do not tell them from the recommended one, which is the best in these launches; where "
    "they prove others equivalent to the best (within 2 %), it is the one of these with the fewest settings"
)
LIMITS_NOTE = (
    "limits: what counts is the worse end of the 95 % interval (of the latency: up to), by which percentiles and "
    "throughput are moved too, and memory and energy as measured; without an interval, latency, throughput and quality "
    "meet no limit"
)
IMPORTED_LIMITS_NOTE = "; of an import, latency and throughput count at a percentile or maximum that it states"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationWords:
    """A recommendation in words, for terminals and pages."""

    title: str
    """The workload, and how many options meet the limits."""
    advice: str
    """The recommended option and why, or the closest one and the limits it misses."""
    table: Table
    """A row per option or server, best first."""
    notes: tuple[str, ...]
    precisions: tuple[Table, str] | None = None
    """The best option of each precision, with a sentence about them; None for a single precision."""


def recommendation_words(
    workload: Workload,
    recommendation: Recommendation,
    limits: Mapping[Quantity, float],
    currency: str | None = None,
    page: Page = PLAIN,
    shown: Sequence[Rated] | None = None,
    title: str | None = None,
) -> RecommendationWords:
    """The recommended option for a workload and why, and the table of its options, or of those `shown`. `title` is that
    of the workload where others have the same text (`workload_titles`)."""
    unit = "tokens/s" if workload.has_tokens else "items/s"
    fitting, total = sum(option.fits for option in recommendation.rated), len(recommendation.rated)
    required = ", ".join(  # "latency <= 20 ms"
        f"{WORDS[quantity]} {'>=' if quantity in AT_LEAST else '<='} {number(limit)} {_unit(quantity, unit)}".rstrip()
        for quantity, limit in limits.items()
    )
    met = (
        f"{fitting} of {total} meet{'s' * (fitting == 1)} {required}"
        if limits
        else f"{counted(total, 'option')}, no limits"
    )
    *axes, last = recommendation.axes
    joined = f"{', '.join(axes)} and {last}" if axes else last
    which = "option that meets the limits" if limits and fitting else "option"
    notes = [f"front: no other {which} is at least as good in {joined} and better in one"]
    first = "the recommended one, those equal to it, then " if recommendation.equal else ""
    then = "; those that miss a limit last, the closest first" if fitting < total else ""
    notes.append(f"rows: {first}by {recommendation.aim}{then}")
    notes += [(TURNS_NOTE if recommendation.is_of_turns else EQUAL_NOTE)] if recommendation.equal else []
    notes += [LIMITS_NOTE + IMPORTED_LIMITS_NOTE * (workload.definition is not None)] if limits else []
    shown = recommendation.rated if shown is None else shown
    doubted = [option for option in shown if _doubts(option) is not None]
    # What distinguishes a doubted option from the others, without commas of its own: its place in a list of them.
    everywhere = set.intersection(*(set(_words(option.option, recommendation)) for option in shown))
    names = {id(option): _words(option.option, recommendation) for option in doubted}
    notes += doubt_notes(
        (kind, " ".join([word for word in names[id(option)] if word not in everywhere] or names[id(option)]))
        for option in doubted
        for kind in option.option.doubts
    )
    notes += [
        f"not the newest: {_name(one, recommendation)}: {one.option.newer.text}; the newest valid result is shown"
        for one in shown
        if one.option.newer is not None
    ]
    if any("slow_calls" in option.option.doubts for option in shown):
        notes.append(f"{unit}: over the time of all calls, slow ones included; the latency is that of the median call")
    return RecommendationWords(
        title=f"{title or workload.text}: {met}",
        advice=_advice(recommendation, unit, currency, limits),
        table=table_of(_columns(recommendation, unit, currency, limits), shown, page),
        notes=tuple(notes),
        precisions=_by_precision(recommendation, unit),
    )


def recommendation_text(words: RecommendationWords, page: Page = PLAIN) -> str:
    """The words for a terminal, of a table that was made for this page."""
    above = [words.title, words.advice, *([words.precisions[1]] if words.precisions else [])]
    above += [", ".join(words.table.shared)] if words.table.shared else []
    below = [*words.notes]
    below += [f"not shown: {', '.join(words.table.left_out)} (--json prints all)"] if words.table.left_out else []
    head, notes = (wrapped("\n".join(lines), page.text_width) for lines in (above, below))
    return "\n\n".join((head, table_text(words.table, page), notes))


def _advice(recommendation: Recommendation, unit: str, currency: str | None, limits: Mapping[Quantity, float]) -> str:
    """The recommendation with its reason, or the closest option."""
    first = recommendation.rated[0]
    name = _name(first, recommendation)
    if recommendation.best is None:
        missed = "; ".join(_missed(miss, first.option, unit) for miss in first.misses)
        none = "no option meets" if recommendation.is_of_all else "none of those measured meets"
        return f"{none} the limits; the closest: {name}: {missed}"
    throughput = f"{number(first.option.throughput)} {unit} at {number(first.option.latency_ms)} ms"
    if recommendation.aim == "cost" and first.option.cost is not None:
        figures = f"{number(first.option.cost)} {currency} per million {unit.removesuffix('/s')}, {throughput}"
    elif recommendation.aim == "memory" and first.option.memory_mb is not None:
        figures = f"{number(first.option.memory_mb)} MB, {throughput}"
    elif recommendation.aim == "energy" and first.option.energy_j is not None:
        figures = f"{number(first.option.energy_j)} J per item, {throughput}"
    else:
        figures = throughput
    doubts = f"; {first.option.validity}, see below" if first.option.validity != "valid" else ""
    if first.option.newer is not None:
        doubts += f"; a newer result {first.option.newer.state}, see below"
    among = "of all" if recommendation.is_of_all else "of those measured"
    if limits:
        among = f"of those {'' if recommendation.is_of_all else 'measured '}that meet the limits"
    aim = _aim_words(recommendation, among, unit, currency)
    quality = _quality_words(first.option, recommendation)
    return (
        f"recommended: {name}: {aim}, {figures}{f', {quality}' if quality else ''}{doubts}{_certainty(recommendation)}"
    )


def _aim_words(recommendation: Recommendation, among: str, unit: str, currency: str | None) -> str:
    """ "the highest throughput of all". Where another option has a better measured value, which the table shows, it is
    "among those with the highest throughput of all (the highest as measured: 7612 tokens/s)"."""
    aim = recommendation.aim
    own, *others = (measured_value(option.option, aim) for option in recommendation.rated if option.fits)
    if own is None:
        return f"{aim} is not known, so {AIMS['latency']} {among}"
    known = [value for value in others if value is not None]
    among += " where it is known" if len(known) < len(others) else ""
    best = number((max if aim in AT_LEAST else min)((own, *known)))
    if best == number(own):
        return f"{'among those with ' if recommendation.equal else ''}{AIMS[aim]} {among}"
    value = f"{best} {currency or '' if aim == 'cost' else _unit(aim, unit)}".rstrip()
    return f"among those with {AIMS[aim]} {among} (the {AIMS[aim].split()[1]} as measured: {value})"


def _quality_words(option: Option, recommendation: Recommendation) -> str | None:
    """What is known about the quality of an option: "KL 0.0021 nats, top-1 0.98", or "output error 0.03"; None where no
    precision or quantization is chosen."""
    known = [name for name in QUALITY_METRICS if name in option.quality]
    stated = [name for name in ALL_QUALITY_LIMITS.values() if name in known] or known[:MOST_MEASURES]
    if stated:
        shown = ((QUALITY_METRICS[name], number(option.quality[name])) for name in stated)
        return ", ".join(f"{metric.heading} {value} {metric.unit}".rstrip() for metric, value in shown)
    if (
        option.precision == "float32"
        or len({_precision_words(configuration.option) for configuration in recommendation.rated}) < 2
    ):
        return None
    return "quality not measured" if option.output_error is None else f"output error {number(option.output_error, 2)}"


Named = Option | Server


def precision_of(one: Named) -> str:
    """The precision, or the quantization where that is what is known."""
    return precision_words(one.precision, one.runtime_mode)


def _precision_words(option: Option) -> str:
    """The precision with the quantization, if one is stated: "int4 (Q4_K_M)"."""
    quantization = option.runtime_mode.get("quantization")
    has_both = quantization is not None and option.precision != "other"
    return f"{option.precision} ({quantization})" if has_both else precision_of(option)


def _by_precision(recommendation: Recommendation, unit: str) -> tuple[Table, str] | None:
    """The best option of each precision or quantization at the first point that most of them share, on the first device
    with several there, against that of the most precise one, as measured, and the same as a sentence; None without
    one."""
    by_point: dict[tuple[str, str], dict[str, Rated]] = {}
    for configuration in recommendation.rated:
        place = (_device(configuration.option, recommendation), configuration.option.point.label)
        by_point.setdefault(place, {}).setdefault(_precision_words(configuration.option), configuration)
    device = next((name for (name, _), found in by_point.items() if len(found) > 1), None)
    if device is None:
        return None
    here = {point: found for (name, point), found in by_point.items() if name == device}
    point, first = max(here.items(), key=lambda one: len(one[1]))
    others = dict.fromkeys(name for found in here.values() for name in found if name not in first)
    order = sorted(first, key=_bits, reverse=True)
    base = first[order[0]].option

    numbers = partial(Column[Rated], is_number=True)
    table = table_of(
        [
            Column[Rated]("precision", lambda one: _precision_words(one.option), is_key=True),
            Column[Rated]("runtime", lambda one: _runtime(one.option, recommendation), is_key=True),
            numbers(heading=AXES["batch_size"].heading, text=lambda one: str(one.option.point.batch_size)),
            numbers(heading=METRICS["latency_median_ms"].heading, text=lambda one: number(one.option.latency_ms)),
            numbers(heading=unit, text=lambda one: number(one.option.throughput)),
            numbers(heading="peak MB", text=lambda one: optional_number(one.option.memory_mb)),
            *_quality_columns(lambda quantity: 0),
            Column[Rated]("misses", lambda one: ", ".join(map(_missed_word, one.misses)) or None),
            Column[Rated]("doubts", _doubts, is_state=True),
        ],
        [first[name] for name in order],
    )
    clauses = []
    for name in order[1:]:
        option = first[name].option
        by = "" if option.runtime == base.runtime else f" by {_runtime(option, recommendation)}"
        clause = f"{name}{by} has {_times(option.throughput / base.throughput)} throughput"
        if option.memory_mb and base.memory_mb:
            clause += f" and {_times(option.memory_mb / base.memory_mb)} peak memory"
        quality = _quality_words(option, recommendation)
        clauses.append(f"{clause} ({quality})" if quality else clause)
    # A measure that compares with nothing says little without that of the other side.
    own = _quality_words(base, recommendation) if _is_without_reference(base) else None
    what = f"{order[0]} by {_runtime(base, recommendation)} at {number(base.throughput)} {unit}"
    what += f" with {own}" if own else ""
    where = f"Against {what} on {device}, all at {point}, as measured"
    is_apart = len({first[name].option.session_id for name in order}) > 1
    apart = " Not all of them were measured in one session: the load of the machine may have changed between them."
    rest = f" Not measured there: {', '.join(others)}." if others else ""
    return table, f"{where}: {'; '.join(clauses)}.{rest}{apart * is_apart}"


def _times(ratio: float) -> str:
    """ "2.5 times the", or "the same" within the variation of readings."""
    return "the same" if abs(ratio - 1) <= CLOSE else f"{number(ratio, 3)} times the"


def _bits(precision: str) -> float:
    """Bits of a weight, as far as the name of the precision says; tf32 computes with fewer."""
    found = re.search(r"(?<=Q)\d+", precision) or re.search(r"\d+", precision)
    return (float(found[0]) if found else 0.0) - (precision == "tf32")


def _certainty(recommendation: Recommendation) -> str:
    """How clear the choice is: what is equal, or how far the next option is behind."""
    equals = [_name(option, recommendation) for option in recommendation.equal]
    if equals:
        has_intervals = recommendation.aim not in WITHOUT_INTERVAL and not recommendation.is_of_turns
        how = "within their intervals" if has_intervals else "see below"
        return f"; equal, {how}: {listed(equals, MOST_EQUAL, '; ')}"
    first, *others = recommendation.rated
    if not others:
        return ""
    if not others[0].fits:
        if any(option.unknown for option in others):
            return "; of no other one it is known that it meets them"
        return (
            "; no other option meets them"
            if recommendation.is_of_all
            else "; no other one that was measured meets them"
        )
    best, following = (measured_value(option.option, recommendation.aim) for option in (first, others[0]))
    if not best or not following:
        return ""
    name, factor = _name(others[0], recommendation), number(max(best, following) / min(best, following))
    is_better = following > best if recommendation.aim in AT_LEAST else following < best
    if is_better:  # decided by the launches that both have, at the same load
        known = f"worse in the launches that both have ({recommendation.how})"
        return f"; {name} is better as measured, by a factor of {factor}, but {known}"
    return f"; the next best, {name}, is worse by a factor of {factor}, {recommendation.how}"


def _missed(miss: Miss, option: Option, unit: str) -> str:
    """ "memory 25 MB, 25 % over 20 MB"; where another value is compared than the measured one, "p95 latency 5.02 ms, up
    to 5.58 ms with the uncertainty of the median, 11.6 % over 5 ms" """
    shown = _unit(miss.quantity, unit)
    if miss.value is None:
        return f"{WORDS[miss.quantity]} unknown ({miss.why})"
    side, bound, best = ("below", "down to", "most") if miss.quantity in AT_LEAST else ("over", "up to", "least")
    off = abs(miss.value / miss.limit - 1) if miss.limit else None
    share = "" if off is None else f"{off:.1%} "
    measured = measured_value(option, miss.quantity)
    value, limit, found = (f"{number(one)} {shown}".rstrip() for one in (miss.value, miss.limit, measured or 0.0))
    if miss.why is not None:  # the best that an unknown value can be
        value = f"at {best} {value} ({miss.why})"
    elif measured is not None and found != value:
        is_of_median = miss.quantity in OF_MEDIAN or (miss.quantity == "ttft" and option.ttft_high_ms is None)
        uncertain = "with the uncertainty of the median" if is_of_median else "with its uncertainty"
        if option.latency_high_ms is None and miss.quantity in ("latency", "throughput"):
            uncertain = "by the percentile or maximum that the import states"
        value = f"{found}, {bound} {value} {uncertain}"
    return f"{WORDS[miss.quantity]} {value}, {share}{side} {limit}"


def _unit(quantity: Quantity, rate: str) -> str:
    """The unit of a quantity, with that of the throughput given."""
    return rate if quantity == "throughput" else UNITS.get(quantity, "")


def _measured(rated: Rated, quantity: Quantity) -> str | None:
    return optional_number(measured_value(rated.option, quantity))


def _quality(rated: Rated, measure: str) -> str | None:
    return optional_number(rated.option.quality.get(measure))


def _name(rated: Rated, recommendation: Recommendation) -> str:
    return ", ".join(_words(rated.option, recommendation))


def _words(option: Option, recommendation: Recommendation) -> list[str]:
    words = [
        _device(option, recommendation),
        _runtime(option, recommendation),
        precision_of(option),
        f"batch {option.point.batch_size}",
    ]
    return words + ([f"concurrency {option.point.concurrency}"] if option.point.concurrency > 1 else [])


def _columns(
    recommendation: Recommendation, unit: str, currency: str | None, limits: Mapping[Quantity, float]
) -> list[Column[Rated]]:
    several = any(option.option.point.concurrency > 1 for option in recommendation.rated)
    memory_of = {one.option.memory_of for one in recommendation.rated if one.option.memory_of is not None}

    def spare(order: int, quantity: Quantity) -> int:
        """Order in which the column may be dropped; 0 for a limit, the aim and the axes of the front, which stay."""
        return 0 if quantity in limits or quantity in (recommendation.aim, *recommendation.axes) else order

    words, numbers = Column[Rated], partial(Column[Rated], is_number=True)

    def measured(heading: str, quantity: Quantity, order: int = 0) -> Column[Rated]:
        return numbers(heading=heading, text=partial(_measured, quantity=quantity), spare=spare(order, quantity))

    return [
        words(heading="device", text=lambda one: _device(one.option, recommendation), is_key=True),
        words(heading="runtime", text=lambda one: _runtime(one.option, recommendation), is_key=True),
        words(heading="precision", text=lambda one: precision_of(one.option), is_key=True),
        numbers(heading=AXES["batch_size"].heading, text=lambda one: str(one.option.point.batch_size)),
        numbers(
            heading=AXES["concurrency"].heading, text=lambda one: str(one.option.point.concurrency) if several else None
        ),
        numbers(heading=METRICS["latency_median_ms"].heading, text=lambda one: number(one.option.latency_ms)),
        numbers(heading="up to", text=lambda one: optional_number(one.option.latency_high_ms)),
        *(
            measured(f"{quantity.removeprefix('latency_')} ms", quantity)
            for quantity in PERCENTILES[:-1]
            if quantity in limits
        ),
        measured(METRICS["latency_p99_ms"].heading, "latency_p99", 5),
        measured(METRICS["time_to_first_token_ms"].heading, "ttft", 3),
        numbers(heading=unit, text=lambda one: number(one.option.throughput)),
        measured("peak MB", "memory", 2),
        words(heading="peak of", text=lambda one: one.option.memory_of if len(memory_of) > 1 else None, spare=6),
        measured("J/item", "energy"),
        words(heading="energy of", text=lambda one: one.option.energy_of, spare=spare(6, "energy")),
        measured(f"{currency}/M {unit.removesuffix('/s')}", "cost"),
        *_quality_columns(lambda quantity: spare(3, quantity)),
        words(heading="front", text=lambda one: "yes" if one.is_on_front else None),
        words(heading="misses", text=lambda one: ", ".join(map(_missed_word, one.misses)) or None),
        words(heading="doubts", text=_doubts, is_state=True),
    ]


def _quality_columns(spare: Callable[[Quantity], int]) -> list[Column[Rated]]:
    """The error of the output, the measures of quality that limits apply to, and of options without them the first."""
    numbers = partial(Column[Rated], is_number=True)
    return [
        numbers(
            heading=METRICS["output_error"].heading,
            text=lambda one: None if one.option.output_error is None else number(one.option.output_error, 2),
            spare=4,
        ),
        *(
            numbers(
                heading=QUALITY_METRICS[measure].heading, text=partial(_quality, measure=measure), spare=spare(quantity)
            )
            for quantity, measure in ALL_QUALITY_LIMITS.items()
        ),
        *(
            numbers(heading=metric.heading, text=partial(_further_quality, measure=name), spare=spare("kl"))
            for name, metric in QUALITY_METRICS.items()
            if name not in ALL_QUALITY_LIMITS.values()
        ),
    ]


def _further_quality(rated: Rated, measure: str) -> str | None:
    """A measure without a limit, of an option without one that has: a GGUF file has only its perplexity."""
    known = [name for name in QUALITY_METRICS if name in rated.option.quality]
    is_first = measure in known[:MOST_MEASURES] and _is_without_reference(rated.option)
    return _quality(rated, measure) if is_first else None


def _is_without_reference(option: Option) -> bool:
    """Whether a quality was measured, but nothing that a limit applies to."""
    return bool(option.quality) and not set(option.quality).intersection(ALL_QUALITY_LIMITS.values())


def _missed_word(miss: Miss) -> str:
    return WORDS[miss.quantity] + (" (unknown)" if miss.value is None else "")


def device_words(one: Named, all_of_them: Sequence[Named]) -> str:
    """The device's name, with the hardware_id if another machine has a device of that name."""
    name = one.device_name or one.device
    same = {other.hardware_id for other in all_of_them if (other.device_name or other.device) == name}
    return name if len(same) == 1 else f"{name} ({one.hardware_id[:8]})"


def runtime_words(one: Named, all_of_them: Sequence[Named]) -> str:
    """The runtime, with the settings in which options with the same runtime differ, and threads, processors and a
    served model's quantization if any options differ in them."""
    modes = [other.runtime_mode for other in all_of_them if other.runtime == one.runtime]
    shown = ("threads", "processors", *(("quantization",) if isinstance(one, Server) else ()))
    bound = [{name: other.runtime_mode.get(name) for name in shown} for other in all_of_them]
    in_precision = "quantization" if precision_words(one.precision, one.runtime_mode) != one.precision else None
    differing = sorted({*differing_names(modes), *differing_names(bound)})
    named = (name for name in differing if name in one.runtime_mode and name != in_precision)
    settings = ", ".join(f"{name} {one.runtime_mode[name]}" for name in named)
    return f"{one.runtime} ({settings})" if settings else one.runtime


def _device(option: Option, recommendation: Recommendation) -> str:
    return device_words(option, [configuration.option for configuration in recommendation.rated])


def _runtime(option: Option, recommendation: Recommendation) -> str:
    return runtime_words(option, [configuration.option for configuration in recommendation.rated])


def _doubts(one: Rated) -> str | None:
    """In few words; the notes below the table explain them."""
    words = [] if one.option.validity == "valid" else [one.option.validity]
    words += [] if one.option.newer is None else [f"a newer one {one.option.newer.state}"]
    return ", ".join(words) or None
