"""The page Recommend: measured options of a model, the limits they meet, and the Pareto front.

Each limit has a number field and a slider. Slider positions are the values of the options, so each step admits one more
option; on a linear slider, most options would lie within the first millimetre.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, get_args

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import LEAST_GOOD
from benchmarking.core.quality import ALL_QUALITY_LIMITS
from benchmarking.core.text import counted, visible
from db.analysis.recommend.measured_options import (
    Computed,
    Workload,
    found_name,
    judged,
    models_by_name,
    options_by_workload,
    to_choose,
    why_no_options,
    workload_facts,
    workload_titles,
)
from db.analysis.recommend.recommendation import AT_LEAST, Option, Quantity, Recommendation, limited_value, recommend
from db.analysis.recommend.recommendation_text import RecommendationWords, recommendation_words
from db.analysis.recommend.servers import Demand, servers_by_traffic, why_no_servers
from db.analysis.recommend.servers import Limit as LoadLimit
from db.analysis.recommend.servers_text import servers_words
from db.analysis.selection import EVERYTHING, Selection
from visualize.drawing.figure import Figure, Mark, Note, doubtful_entries, entries, pareto
from visualize.drawing.figure import Line as Series
from visualize.drawing.marks import front_panel, spread
from visualize.drawing.rows import PLACES
from visualize.drawing.scales import LEAST
from visualize.drawing.words import axis as axis_words
from visualize.pages import vega
from visualize.pages.elements import Chart, Link, alternatives, grid_of
from visualize.pages.result_rows import models_by_calls
from visualize.pages.site import NotFoundError, View, has_sql
from visualize.pages.views.results_page import ResultsParameters
from visualize.pages.views.run_page import run_link

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

Prefer = Literal["latency", "throughput", "memory", "energy"]
MOST_POSITIONS = 40
"""Maximum positions of a slider, besides "no limit"."""
DIGITS = 3
"""Significant digits of a position."""
OF_EARLIER_TITLES = re.compile(
    r", (?:given weights|((?:revision|configuration) [0-9a-f]{1,8}|in (?:tokens|items)))(?=,|$)"
)
"""What titles of workloads have or had besides `Workload.text`; an old link has or lacks it. The group is a fact."""
FRONT_NOTE = (
    "The stepped line is the front of these two quantities: no option that meets the limits has both lower latency and "
    "higher throughput."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendParameters:
    """The model, and limits as in `benchhouse recommend`."""

    model: str | None = None
    """None for the model with the most series of calls."""
    workload: str | None = None
    """Title of the workload; None for the one with the most to choose from."""
    among: str | None = None
    """A selection of results."""
    prefer: Prefer | None = None
    latency_ms: float | None = None
    latency_p99_ms: float | None = None
    ttft_ms: float | None = None
    memory_mb: float | None = None
    energy_j: float | None = None
    throughput: float | None = None
    kl: float | None = None
    agreement: float | None = None
    perplexity_increase: float | None = None
    """In percent."""
    exact_match: float | None = None
    choice_accuracy: float | None = None
    accuracy: float | None = None
    """On the task of an imported evaluation."""
    tpot_ms: float | None = None
    request_rate: float | None = None
    """Requests per second to serve: then load tests are compared, and the limits are on each request."""

    @property
    def limits(self) -> dict[Quantity, float]:
        """The limits that are set."""
        given = {quantity: getattr(self, name) for name, (_, quantity) in LIMITS.items()}
        return {quantity: value for quantity, value in given.items() if value is not None}


LIMITS: Mapping[str, tuple[str, Quantity]] = {
    "latency_ms": ("Latency at most, ms", "latency"),
    "latency_p99_ms": ("p99 latency at most, ms", "latency_p99"),
    "ttft_ms": ("First token at most, ms", "ttft"),
    "memory_mb": ("Memory at most, MB", "memory"),
    "energy_j": ("Energy at most, J/item", "energy"),
    "throughput": ("Throughput at least, ", "throughput"),
    "kl": ("KL divergence at most, nats", "kl"),
    "agreement": ("Top-1 agreement at least", "agreement"),
    "perplexity_increase": ("Perplexity increase at most, %", "perplexity_increase"),
    "exact_match": ("Exact match at least", "exact_match"),
    "choice_accuracy": ("Right choices at least", "choice_accuracy"),
    "accuracy": ("Accuracy at least", "accuracy"),
}
"""Field -> its title, which that of the throughput's unit follows, and the quantity that it limits."""


def page(data: Data, parameters: RecommendParameters) -> SimpleNamespace:
    """The page. Raises UsageError for an invalid selection, NotFoundError for an unknown model."""
    by_name = models_by_name(models_by_calls(data))
    model = next(iter(by_name), None) if parameters.model is None else found_name(by_name, parameters.model)
    if parameters.model is not None and model is None:
        known = ", ".join([*by_name][:20]) or "none"
        raise NotFoundError(f"no result of {visible(parameters.model)!r}: there are {known}")
    models = () if model is None else by_name[model]
    selection = EVERYTHING if parameters.among is None else Selection.parse(parameters.among).resolved(data.path)
    is_load = parameters.request_rate is not None
    options = {} if model is None or is_load else options_by_workload(data.warehouse, models, selection)
    served = _served(data, models, selection, parameters) if model is not None and is_load else []
    why_none = None
    if model is not None and not options and not served:
        why_none = (why_no_servers if is_load else why_no_options)(data.warehouse, models, selection)
    titles = workload_titles([*options])
    by_title = dict(zip(titles, options, strict=True))
    shown = {title: _in_words(title, computed) for title, computed in by_title.items()}
    meant = alike = [one for one in titles if parameters.workload in (None, one)]
    if not meant and parameters.workload is not None:  # a bookmark from before others of the same words were measured
        plain = OF_EARLIER_TITLES.sub("", parameters.workload)
        stated = {*filter(None, OF_EARLIER_TITLES.findall(parameters.workload))}
        alike = [title for title, option in by_title.items() if visible(option.text) == plain]
        meant = [title for title in alike if stated.issubset(workload_facts(by_title[title]))]
    workload = max(meant or alike or titles, key=lambda one: _choice(options[by_title[one]]), default=None)
    notice = None
    if workload is not None and not meant:  # one of another model, which the form sends; or a revision that is not here
        notice = (
            f"{visible(str(model))} has no workload {visible(str(parameters.workload))!r}: this is {shown[workload]}."
        )
    recommended: dict[str, Any] = {"words": None, "has_best": False, "grid": None, "chart": None, "precisions": None}
    chosen = None if workload is None else by_title[workload]
    if chosen is not None:
        found = recommend(options[chosen], parameters.limits, parameters.prefer)
        found = judged(data.warehouse, found, parameters.limits, has_tokens=chosen.has_tokens)
        words = recommendation_words(chosen, found, parameters.limits, title=shown[str(workload)])
        links = [run_link(option.option.run_id, option.option.result_id) for option in found.rated]
        recommended = {
            "words": words,
            "has_best": found.best is not None,
            "grid": grid_of(words.table, "Options, best first", links),
            "chart": _chart(data, words, found, chosen),
            "precisions": None
            if words.precisions is None
            else grid_of(words.precisions[0], "Each precision at the same point"),
        }
    current = RecommendParameters(model=model)
    of_models = ((one, replace(current, model=one)) for one in sorted(by_name))
    workloads = ((text, replace(current, workload=one)) for one, text in shown.items())
    return SimpleNamespace(
        **recommended,
        models=tuple(sorted(by_name)),
        model=model,
        workloads=shown,
        workload=workload,
        notice=notice,
        limits=_limits(parameters, chosen, () if chosen is None else options[chosen]),
        preferred=get_args(Prefer),
        served=served,
        why_none=why_none,
        choices=[
            alternatives("Model", "recommend", of_models, current),
            alternatives("Workload", "recommend", workloads, replace(current, workload=workload)),
        ],
    )


def _in_words(title: str, computed: Computed) -> str:
    """A title of a command as pages write it: "s128, after 512 tokens" instead of "s128 depth=512"."""
    for name, value in computed.axes:
        title = re.sub(
            f",? {re.escape(f'{name}={value:.15g}')}(?= |,|$)", f", {axis_words(name, value)}", title, count=1
        )
    return title


def _choice(options: Sequence[Option]) -> tuple[int, int, int]:
    """How much there is to choose from on the machine that has most, as the overview ranks workloads."""
    of_machines: dict[str, list[tuple[object, bool]]] = {}
    for option in options:
        precision = (option.precision, option.runtime_mode.get("quantization"))
        of_machines.setdefault(option.hardware_id, []).append((precision, bool(option.quality)))
    return max(map(to_choose, of_machines.values()))


def _served(
    data: Data, models: Sequence[str], selection: Selection, parameters: RecommendParameters
) -> list[SimpleNamespace]:
    """The servers of the model for the rate, by traffic, as `benchhouse recommend --request-rate` prints them. Raises
    UsageError for a limit that is not one of a request."""
    rate = parameters.request_rate
    if rate is None or not 0 < rate < math.inf:
        raise UsageError(f"request rate: expected a number of requests per second above 0: got {rate}")
    given: dict[LoadLimit, float | None] = {
        "ttft": parameters.ttft_ms,
        "tpot": parameters.tpot_ms,
        "latency": parameters.latency_ms,
    }
    limits = {name: value for name, value in given.items() if value is not None}
    demand = Demand(request_rate=rate, limits=limits, share=LEAST_GOOD)
    served = []
    for traffic, servers in servers_by_traffic(data.warehouse, models, selection, demand, None).items():
        words = servers_words(traffic, servers, demand)
        words = replace(words, title=_in_words(words.title, traffic))
        links = [
            Link(view="results", parameters=ResultsParameters(hardware=server.hardware_id, all=True))
            for server in servers
        ]
        grid = grid_of(words.table, "Servers, best first", links)
        served.append(
            SimpleNamespace(words=words, has_best=any(server.best is not None for server in servers), grid=grid)
        )
    return served


def _limits(
    parameters: RecommendParameters, chosen: Workload | None, options: Sequence[Option]
) -> list[SimpleNamespace]:
    """Fields of the form. A slider's positions are the values of the options from the left, and None for no limit;
    there are none if no option has the quantity, but the reason why the first lacks it."""
    rate = "tokens/s" if chosen is None or chosen.has_tokens else "items/s"
    titles: dict[str, tuple[str, Quantity | None]] = {
        name: (title + (rate if name == "throughput" else ""), quantity)
        for name, (title, quantity) in LIMITS.items()
        if name not in ALL_QUALITY_LIMITS  # of which only those are shown that an option has a value of
        or getattr(parameters, name) is not None
        or any(ALL_QUALITY_LIMITS[name] in option.quality for option in options)
    }
    if parameters.request_rate is not None:
        titles = {
            "latency_ms": ("Latency of each request at most, ms", None),
            "ttft_ms": ("First token of each request at most, ms", None),
            "tpot_ms": ("Each further token at most, ms", None),
        }
    fields = []
    for name, (title, quantity) in titles.items():
        value, is_least = getattr(parameters, name), quantity in AT_LEAST
        values = [] if quantity is None else [limited_value(option, quantity) for option in options]
        rounded = {_rounded(one, up=not is_least) for one, _ in values if one is not None}
        why = next((reason for _, reason in values if reason is not None), "not measured")
        steps = spread(sorted(rounded), MOST_POSITIONS)
        place = 0 if is_least else len(steps)
        if value is not None:
            place = bisect_right(steps, value) if is_least else bisect_left(steps, value)
        positions: tuple[float | None, ...] = (None, *steps) if is_least else (*steps, None)
        fields.append(
            SimpleNamespace(
                name=name,
                title=title,
                value=value,
                positions=positions if steps else (),
                position=place,
                missing=why.partition(":")[0].replace("_", " "),
            )
        )
    return fields


def _rounded(value: float, *, up: bool) -> float:
    """The value rounded such that the option with this value still meets the limit."""
    if value < LEAST:
        return max(value, 0.0)
    unit = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    return float(f"{(math.ceil if up else math.floor)(value / unit) * unit:.{DIGITS}g}")


def _chart(data: Data, words: RecommendationWords, found: Recommendation, workload: Workload) -> Chart:
    """Latency and throughput of each option, with the front of these two quantities and the name of the recommended
    one; options that miss a limit are crossed out."""
    unit = "tokens/s" if workload.has_tokens else "items/s"
    options = [
        (row, one, float(one.option.latency_ms), float(one.option.throughput))
        for row, one in zip(words.table.rows, found.rated, strict=True)
        if one.option.latency_ms and one.option.throughput
    ]
    machines = data.warehouse.query(f"SELECT hardware_id, device_place FROM {PLACES}").dicts()  # noqa: S608
    places = {machine["hardware_id"]: machine["device_place"] for machine in machines}
    devices: dict[str, int] = {}  # its name, and the colour that it has in every chart
    for row, one, *_ in options:
        devices.setdefault(row[0], places[one.option.hardware_id])
    lines = [
        Series(
            label=device, colour=colour, shape=place, dashes=None,
            marks=tuple(
                Mark(
                    x=latency, y=throughput, words=", ".join(row[1 : words.table.keys + 2]),
                    state="invalid" if not one.fits else "valid" if one.option.validity == "valid" else "doubtful",
                )
                for row, one, latency, throughput in options
                if row[0] == device
            ),
        )
        for place, (device, colour) in enumerate(devices.items())
    ]  # fmt: skip
    best = pareto([option for option in options if option[1].fits], lambda one: (one[2], one[3]))
    front = [(latency, throughput, "") for _, _, latency, throughput in best]
    panel = front_panel(lines, front, "Median latency (ms)", f"Throughput ({unit})", is_cost=True)
    named = tuple(
        Note(x=latency, y=throughput, text="recommended", dx=6, dy=8)
        for _, one, latency, throughput in options
        if one is found.best
    )
    beneath = len(options) - len({(f"{latency:.3g}", f"{throughput:.3g}") for _, _, latency, throughput in options})
    crossed = "misses a limit" + (", or its value is not known" if any(one.unknown for one in found.rated) else "")
    figure = Figure(
        title="Latency and throughput of each option",
        notes=(
            "Up and left is better.",
            *([FRONT_NOTE] if len(front) > 1 else []),
            *([f"Beneath others, at the same place: {counted(beneath, 'option')}."] if beneath else []),
        ),
        panels=(replace(panel, elements=(*panel.elements, *named)),),
        legend=(*entries(lines), *doubtful_entries((mark.state for line in lines for mark in line.marks), crossed)),
    )
    return vega.chart(figure, grid_of(words.table, "The options in the chart"))


VIEWS = (
    View(
        name="recommend",
        path="/recommend",
        question="Which setup meets my limits?",
        title="Recommend",
        parameters=RecommendParameters,
        page=page,
        has_charts=True,
        runs_sql=lambda given: has_sql(given.among),
        in_files=lambda given: (  # each model and workload, without limits
            given if given == RecommendParameters(model=given.model, workload=given.workload) else None
        ),
    ),
)
