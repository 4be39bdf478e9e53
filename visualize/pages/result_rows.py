"""Results as table rows with all metrics that any result has, and their doubts explained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarking.core.doubts import KINDS, evidence_words, sentence
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import JUDGED, METRICS, PEAK_MEMORY, PEAK_MEMORY_SQL, Metric, peak_memory_column
from benchmarking.core.quality import QUALITY_METRICS
from benchmarking.core.text import ends, number
from benchmarking.core.verdicts.launches import COVERS, THROUGHPUT_APART
from db.analysis.selection import custom_metrics, judged_metric
from db.values import doubt_word, listed_doubts
from visualize.drawing.rows import Row
from visualize.pages.elements import (
    Cell,
    Heading,
    Tone,
    number_cell,
    number_text,
    point_text,
    separated,
    state_cell,
    text_cell,
)

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

OTHERS = "other_metrics"
"""Column with metrics that have no column of their own."""
GOODPUT = "goodput_requests_per_sec"
"""Metric of a load level: requests per second within every limit."""
FIRST = "latency_median_ms"
NUMBERS = tuple(name for name, metric in METRICS.items() if metric.heading and name not in (FIRST, "output_error"))
COLUMNS = (
    *("result_id", "run_id", "series_id", "status", "error", "validity", "doubts", "launches", "iterations"),
    *("latency_ci_low_ms", "latency_ci_high_ms", "ci_scope", FIRST, "output_error", *NUMBERS, *PEAK_MEMORY, OTHERS),
    *QUALITY_METRICS,
)
"""Columns that rows need, besides those of the point and origin_format."""
INTERVAL_END = re.compile(r"_ci_(low|high)_ms$")
STATE, DOUBTS, PEAK = "state", "doubts", "peak"

MODELS = """
SELECT heads.model_id FROM series_heads heads JOIN series USING (series_id)
JOIN hardware_info hardware ON hardware.hardware_id = series.hardware_id
LEFT JOIN benchmark_results accepted ON accepted.result_id = heads.accepted_result_id
GROUP BY heads.model_id
ORDER BY
    count(*) FILTER (WHERE {calls} AND series.definition IS NULL) DESC,
    count(*) FILTER (WHERE {calls} AND accepted.latency_median_ms > 0 AND accepted.throughput_samples_per_sec > 0) DESC,
    count(*) FILTER (WHERE {calls}) DESC, count(*) DESC, heads.model_id
""".format(calls="series.runtime_mode->>'loop' IS NULL AND NOT coalesce(hardware.simulated, FALSE)")


def models_by_calls(data: Data) -> tuple[str, ...]:
    """All models, that with the most series of calls measured here first, then with the most imported ones that have a
    latency and a throughput: pages begin with it."""
    return data.once("models", lambda: tuple(row["model_id"] for row in data.warehouse.query(MODELS).dicts()))


def own_metrics(data: Data) -> Mapping[str, Metric]:
    """Custom metrics of benches and workloads by name, with unit and direction."""
    return data.once("own metrics", lambda: custom_metrics(data.warehouse))


def metric_choices(data: Data) -> Mapping[str, str]:
    """Name -> title of every judged metric: those with a column, then custom ones."""
    own = {name: metric for name, metric in own_metrics(data).items() if metric.is_judged and name not in JUDGED}
    return {name: metric.words for name, metric in {**JUDGED, **own}.items()}


def metric_of(data: Data, name: str) -> Metric:
    """The judged metric with this name, a column before a custom metric. Raises UsageError."""
    own = None if name in JUDGED else own_metrics(data).get(name)
    return own if own is not None and own.is_judged else judged_metric(data.warehouse, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table of results."""

    heading: str
    cell: Callable[[Row], Cell]
    order: tuple[str, ...] = ()
    """SQL expressions to sort by."""
    value: Callable[[Row], object] = lambda row: True
    """The value; the column is hidden by default if no row has one."""
    is_number: bool = False
    is_down: bool = False
    """Whether the first sort is descending, since higher is better or newer."""
    own: str | None = None
    """The name of a custom metric."""

    def has(self, row: Row) -> bool:
        """Whether the row has a value."""
        return self.value(row) is not None


def result_columns(own: Mapping[str, Metric], taken: Collection[str] = ()) -> dict[str, Column]:
    """The columns of results by name. A custom metric with the name of another column, also of those `taken`, is
    "other_metrics.NAME"; those of interval ends are left out."""

    def of_metric(name: str, better: str | None, heading: str, cell: Callable[[Row], Cell]) -> Column:
        return Column(
            heading=heading, cell=cell, order=(name,), value=lambda row: row[name], is_number=True,
            is_down=better == "higher",
        )  # fmt: skip

    def error_of(row: Row) -> Cell:
        return text_cell(None if row["output_error"] is None else number(row["output_error"], 2))

    cells = {"output_error": error_of, ITEMS: rate_of(ITEMS), TOKENS: rate_of(TOKENS)}
    columns = {STATE: Column(heading="state", cell=state_of, order=("coalesce(validity, status)",))}
    for name in dict.fromkeys([FIRST, "latency_p90_ms", "latency_p99_ms", *NUMBERS, "output_error"]):
        metric = METRICS[name]
        columns[name] = of_metric(name, metric.better, metric.heading or metric.words, cells.get(name, _number(name)))
    columns[PEAK] = Column(
        heading="peak MB", cell=peak_of, order=(PEAK_MEMORY_SQL,), is_number=True,
        value=lambda row: None if (found := peak_memory_column(row)) is None else row[found],
    )  # fmt: skip
    for name, quality in QUALITY_METRICS.items():
        columns[name] = of_metric(name, quality.better, quality.heading_with_unit, _number(name, quality.title))
    last = {
        "interval": Column(
            heading="95 % interval", cell=interval_of, order=("latency_ci_low_ms",), is_number=True,
            value=lambda row: None if row["latency_ci_low_ms"] is None else interval_of(row).text,
        ),
        DOUBTS: Column(
            heading="doubts", cell=doubts_of, order=("len(doubts)",), value=lambda row: row["doubts"] or None,
        ),
        "launches": Column(
            heading="launches", cell=launches_of, order=("launches",), value=lambda row: str(row["launches"]),
            is_number=True,
        ),
    }  # fmt: skip
    for name, metric in own.items():
        key = name
        while key in taken or key in columns or key in last:
            key = f"{OTHERS}.{key}"
        if INTERVAL_END.search(name) is None:
            columns[key] = Column(
                heading=metric.words, cell=lambda row, name=name: number_cell(row[OTHERS].get(name)),  # type: ignore[misc]
                order=("other_metrics[$metric]",), value=lambda row, name=name: row[OTHERS].get(name),  # type: ignore[misc]
                is_number=True, is_down=metric.better == "higher", own=name,
            )  # fmt: skip
    return {**columns, **last}


def result_table(
    rows: Sequence[Row], own: Mapping[str, Metric] = MappingProxyType({}), *, has_quality: bool = False
) -> tuple[tuple[Heading, ...], list[tuple[Cell, ...]]]:
    """Headings and cells of each row, with only the columns that have values. State and doubts are next to the latency,
    since narrow windows cut off the right. `own` are custom metrics. `has_quality`: the rows have the quality of their
    runs."""
    known = result_columns(own)
    quality = [name for name in QUALITY_METRICS if has_quality and name != "kl_divergence_p99"]
    if any(map(known["perplexity_increase"].has, rows if has_quality else ())):
        quality.remove("perplexity")  # in less room, the increase says what it does
    customs = [name for name, one in known.items() if one.own is not None]
    names = [FIRST, "interval", STATE, DOUBTS, *NUMBERS, PEAK, "output_error", *quality, *customs]
    shown = [known[name] for name in names if name in (STATE, DOUBTS) or any(map(known[name].has, rows))]
    if any(row["origin_format"] is None or row["launches"] > 1 for row in rows):  # others' files state no launches
        shown.append(known["launches"])
    headings = tuple(Heading(text=one.heading, is_number=one.is_number) for one in shown)
    return headings, [tuple(one.cell(row) for one in shown) for row in rows]


def _number(name: str, hint: str | None = None) -> Callable[[Row], Cell]:
    return lambda row: number_cell(row[name], hint=hint)


ITEMS, TOKENS = "throughput_samples_per_sec", "throughput_tokens_per_sec"
RATE_NOTE = (
    "Throughput counts all calls: it is the work of a call over the mean latency, not over the median one. A star "
    f"marks rates whose mean call differs from the median by more than {THROUGHPUT_APART - 1:.0%}, because some calls "
    "were much slower or faster."
)


def rate_of(name: str) -> Callable[[Row], Cell]:
    """A throughput, with a star if it does not follow from the median latency in the same row."""

    def cell(row: Row) -> Cell:
        # The mean latency that the throughput stands for; None for load tests, in which requests overlap, and for other
        # tools, which count items in their own ways.
        rate = row[ITEMS]
        is_of_calls = row["origin_format"] is None and row["concurrency"] == 1 and "requests_sent" not in row[OTHERS]
        mean_ms = 1000 * row["batch_size"] / rate if is_of_calls and rate and row[FIRST] else None
        if mean_ms is None or row[name] is None or 1 / THROUGHPUT_APART <= mean_ms / row[FIRST] <= THROUGHPUT_APART:
            return number_cell(row[name])
        hint = f"the mean call took {number(mean_ms)} ms, the median call {number(row[FIRST])} ms"
        return Cell(text=f"{number_text(row[name])}*", hint=hint)

    return cell


def has_star(row: Row) -> bool:
    """Whether the row has a rate with a star."""
    return rate_of(ITEMS)(row).hint is not None


def interval_of(row: Row) -> Cell:
    low, high = row["latency_ci_low_ms"], row["latency_ci_high_ms"]
    if low is None or high is None:
        return number_cell(None)
    return Cell(text=" .. ".join(map(separated, ends(low, high))), hint=f"covers {COVERS[row['ci_scope']]}")


def peak_of(row: Row) -> Cell:
    found = peak_memory_column(row)
    return number_cell(None) if found is None else Cell(text=f"{row[found]:,.0f}", hint=METRICS[found].title)


def launches_of(row: Row) -> Cell:
    calls = "the file does not state how many calls were timed"
    if row["iterations"] is not None:
        calls = f"{row['iterations']:,} timed samples in all launches: calls, or blocks of very short calls"
    return text_cell(row["launches"], hint=calls)


def state_of(row: Row) -> Cell:
    if row["status"] != "ok":
        return state_cell(row["status"], hint=row["error"])
    return state_cell(row["validity"] or "ok")


def doubts_of(row: Row) -> Cell:
    kinds = row["doubts"]
    if not kinds:
        return text_cell(None, tone="muted")
    word = doubt_word(kinds)
    is_info = word == "info" or row.get("validity") == "valid"  # an import's own kinds are in no table of severities
    tone: Tone = "bad" if word == "invalid" else "muted" if is_info else "warn"
    worst_first = sorted(kinds, key=lambda kind: TONES.index(_doubt_tone(kind)))
    return text_cell(listed_doubts(worst_first).replace("_", " "), tone=tone, hint=", ".join(worst_first))


TONES: tuple[Tone, ...] = ("bad", "warn", "muted")
"""The tones of doubts, severe ones first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtNote:
    """A kind of doubt, with the points that have it."""

    kind: str
    tone: Tone
    sentence: str
    points: tuple[str, ...]
    evidence: str


def noted_doubts(
    rows: Sequence[Row], place: Callable[[Row], str] = point_text, *, is_import: bool = False
) -> tuple[DoubtNote, ...]:
    """Kinds of doubt in the results, severe ones first; `place` names a result. Those of an import have no advice,
    which names flags of this program."""
    found: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in rows:
        for doubt in json.loads(row["extra"]).get("doubts", ()):
            found.setdefault(doubt["kind"], []).append((place(row), doubt.get("evidence") or {}))
    notes = []
    for kind, cases in found.items():
        evidence = cases[0][1]
        parts = evidence_words(evidence)
        stated = evidence.get("launches")
        launches = [str(one + 1) for one in stated if isinstance(one, int)] if isinstance(stated, list) else []
        parts += [f"in launch{'' if len(launches) == 1 else 'es'} {', '.join(launches)}"] if launches else []
        notes.append(
            DoubtNote(
                kind=kind,
                tone=_doubt_tone(kind),
                sentence=sentence(kind, with_advice=not is_import),
                points=tuple(dict.fromkeys(point for point, _ in cases)),
                evidence=", ".join(parts),
            )
        )
    return tuple(sorted(notes, key=lambda note: (TONES.index(note.tone), note.kind)))


def value_text(value: Any) -> str:
    """A JSON value as text; numbers have significant digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _doubt_tone(kind: str) -> Tone:
    """The colour of a doubt's severity."""
    severity = KINDS[kind].severity if kind in KINDS else "info"
    return "bad" if severity == "invalid" else "muted" if severity == "info" else "warn"
