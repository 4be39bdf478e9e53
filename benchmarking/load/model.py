"""Load on a model on this machine, by open and closed loops or MLPerf's loadgen, with a fresh worker per repetition."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarking.core.doubts import doubt
from benchmarking.core.errors import BenchhouseError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import is_processor
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import (
    LOOP,
    SCENARIO,
    Doubt,
    Json,
    LaunchLoad,
    Measurement,
    Point,
    Preparation,
    Requests,
    Result,
    Run,
    Scalar,
)
from benchmarking.load.generator import Level
from benchmarking.load.observer import Observed
from benchmarking.load.results import level_point, result_of
from benchmarking.load.traffic import Lengths, PlannedRequest, Traffic, judged, limits_text
from benchmarking.measure.doubt_rules import about_window
from benchmarking.measure.request_loop import LoopSettings, Scenario, ScenarioSettings
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run.lock import device_locks
from benchmarking.sweep.run.preparation import prepared
from benchmarking.sweep.run.process import SLOTS, Job, LoopJob, ScenarioJob, Tested, attended
from benchmarking.sweep.run.supervisor import finished_run, without_samples

LOADGEN = "loadgen"
"""Key of loadgen's figures of each repetition, among the facts of a load."""
REASONS = ("result_invalid_reason", "early_stopping_result", "early_stopping_ttft_result", "early_stopping_tpot_result")
ACTIVITY = "activity"
"""Key of what else the machine did during each repetition."""
LEVEL_SEEDS = 1000
"""Distance between the seeds of successive levels, so that each has fresh arrivals."""
MET = ("result_perf_constraints_met", "result_min_duration_met", "result_min_queries_met", "early_stopping_met")


@dataclass(slots=True, kw_only=True)
class ModelLoad(ABC):
    """The load to measure, and the load records of its workers."""

    plan: CellPlan
    limits: Mapping[str, float]
    repetitions: int
    timeout_s: float
    """Time limit of a repetition."""
    device_wait_s: float | None
    say: Callable[[str], None]
    loads: list[LaunchLoad] = field(default_factory=list)
    measured_levels: int = 0
    pressure_before: Any = None
    """The CPU pressure before the first level: before later ones, it is that of the load itself."""
    preparations: list[Preparation | None] = field(default_factory=list)
    """The build that all workers load, once it has been made."""

    @abstractmethod
    def measured(self, level: Level) -> Result:
        """The result of a level."""

    @abstractmethod
    def keys(self) -> dict[str, Scalar]:
        """The settings that distinguish a series, for `Cell.runtime_mode`."""

    def run(self, results: Sequence[Result], settings: Mapping[str, Json]) -> Run:
        """The record of all levels."""
        mode = {**self.plan.cell.runtime_mode, **self.keys()}
        plan = replace(self.plan, cell=replace(self.plan.cell, runtime_mode=mode))
        made = finished_run(plan, self.loads, [], utc_now())
        failed = [result for result in results if result.status != "ok"]
        return replace(
            made,
            status="ok" if len(failed) < len(results) else "failed",
            error=failed[0].error if failed else None,
            settings=settings,
            results=tuple(results),
        )

    def tested(
        self, make: Callable[[int], Job], point: Point
    ) -> tuple[list[Requests | Measurement], dict[int, Tested], dict[int, Sequence[Doubt]]]:
        """The repetitions of a level at this point, each by the job for its number: their requests or failures; by the
        numbers of those that succeeded their answers, and the doubts about the machine and the device."""
        done: list[Requests | Measurement] = []
        answers: dict[int, Tested] = {}
        doubts: dict[int, Sequence[Doubt]] = {}
        for launch in range(self.repetitions):
            try:  # in a separate worker, with the device locked against other measurements
                job = make(launch)
                with device_locks(self.plan.cell.device, self.say, self.device_wait_s) as of_lock:
                    if not self.preparations:
                        self.preparations.append(prepared(self.plan, self.say))
                    job = replace(job, preparation=self.preparations[0])
                    load, answer = attended(job, Tested, self.timeout_s)
            except BenchhouseError as error:
                done.append(without_samples(point, launch, "failed", str(error)))
                continue
            self.loads += [] if any(launch_load.launch == launch for launch_load in self.loads) else [load]
            if answer.requests is None:
                done.append(without_samples(point, launch, "failed", answer.error or "", answer.traceback))
                continue
            done.append(judged(answer.requests, self.limits))
            answers[launch] = answer
            if self.pressure_before is None:
                self.pressure_before = answer.window.get("cpu_pressure_before")
            window = {**answer.window, "cpu_pressure_before": self.pressure_before}
            is_accelerator = not is_processor(self.plan.cell.device.type)
            doubts[launch] = [*of_lock, *about_window(window, is_accelerator=is_accelerator)]
        return done, answers, doubts


@dataclass(slots=True, kw_only=True)
class LoopLoad(ModelLoad):
    """Open and closed loops, with the lengths and arrivals of a traffic. The plan has every point of the requests."""

    traffic: Traffic
    is_open: bool
    warmup: int
    """Untimed calls before a level."""
    request_timeout_s: float
    """Time limit of a request."""

    def measured(self, level: Level) -> Result:
        template = self.plan.points[0]

        def job(launch: int) -> Job:
            self.say(f"{level.words}, repetition {launch + 1} of {self.repetitions}")
            traffic = replace(self.traffic, repetition=launch, look=self.measured_levels)
            requests = planned_requests(traffic, level)
            points, sizes = points_of(template, requests)
            settings = LoopSettings(
                starts_s=() if level.rate is None else tuple(traffic.schedule(level.rate, requests)),
                concurrency=level.concurrency or 1,
                number=level.number,
                duration_s=level.duration_s,
                sizes=sizes if len(points) > 1 else (),
                timeout_s=self.request_timeout_s,
                warmup=self.warmup,
            )
            return LoopJob(
                cell=self.plan.cell,
                launch=launch,
                points=points or (template,),
                settings=self.plan.settings,
                loop=settings,
            )

        # Random lengths are no axes; they belong to the series.
        is_fixed = self.traffic.file is None
        point = replace(
            level_point(template, level),
            sequence_length=template.sequence_length if is_fixed and self.traffic.lengths_in.fixed else None,
            new_tokens=template.new_tokens if is_fixed and self.traffic.lengths_out.fixed else None,
            concurrency=level.concurrency or 1,
        )
        self.measured_levels += 1
        done, answers, doubts = self.tested(job, point)
        slots = [slot for answer in answers.values() if isinstance(slot := answer.figures[SLOTS], int)]
        return result_of(
            self.traffic,
            level,
            done,
            point=point,
            limits=self.limits,
            observed={launch: Observed(doubts=tuple(found)) for launch, found in doubts.items()},
            facts={
                "arrival_seeds": [[self.traffic.seed + one.launch, self.measured_levels] for one in done],
                **({SLOTS: slots[0]} if slots else {}),
                ACTIVITY: [dict(answer.window) for answer in answers.values()],
            },
            slots=max(slots, default=1),
        )

    def keys(self) -> dict[str, Scalar]:
        template, found = self.plan.points[0], self.traffic.keys(self.limits, is_open=self.is_open)
        axes = {"lengths_in": template.sequence_length, "lengths_out": template.new_tokens}
        return {name: value for name, value in found.items() if axes.get(name, 1) is not None}


@dataclass(slots=True, kw_only=True)
class ScenarioLoad(ModelLoad):
    """A scenario of MLPerf's loadgen. The plan has one point, that of a call."""

    settings: ScenarioSettings
    """Settings, including the folder for loadgen's logs; an empty folder keeps none."""

    @property
    def scenario(self) -> Scenario:
        return self.settings.scenario

    @property
    def samples_per_query(self) -> int:
        if self.scenario == "multi-stream":
            return self.settings.samples_per_query
        return self.settings.number or 1 if self.scenario == "offline" else 1

    def measured(self, level: Level) -> Result:
        (point,) = self.plan.points
        self.measured_levels += 1
        at = "" if level.rate is None else f" at {level.rate:g} queries/s"
        with ExitStack() as folders:

            def job(launch: int) -> Job:
                self.say(f"{self.scenario}{at}, repetition {launch + 1} of {self.repetitions}")
                seed = self.settings.seed + launch + LEVEL_SEEDS * (self.measured_levels - 1)
                folder = folders.enter_context(self._folder(launch, level))
                settings = replace(self.settings, rate=level.rate, seed=seed, folder=folder)
                return ScenarioJob(
                    cell=self.plan.cell, launch=launch, points=(point,), settings=self.plan.settings, scenario=settings
                )

            done, answers, doubts = self.tested(job, level_point(point, level))
        return result_of(
            Traffic(
                lengths_in=Lengths(str(point.sequence_length or 1)), lengths_out=Lengths(str(point.new_tokens or 1))
            ),
            level,
            done,
            point=level_point(point, level),
            samples=self.samples_per_query,
            limits=self.limits,
            observed={
                launch: Observed(doubts=(*verdicts(answer.figures), *doubts[launch]))
                for launch, answer in answers.items()
            },
            facts={
                SCENARIO: self.scenario,
                LOADGEN: [dict(answer.figures) for answer in answers.values()],
                ACTIVITY: [dict(answer.window) for answer in answers.values()],
            },
            slots=1,
        )

    def keys(self) -> dict[str, Scalar]:
        is_open = self.scenario == "server"
        found: dict[str, Scalar] = {LOOP: "open" if is_open else "closed", SCENARIO: self.scenario}
        found |= {"arrivals": "poisson"} if is_open else {}
        found |= {"samples_per_query": self.samples_per_query} if self.samples_per_query > 1 else {}
        return found | ({"slo": limits_text(self.limits)} if self.limits else {})

    def _folder(self, launch: int, level: Level) -> nullcontext[str] | tempfile.TemporaryDirectory[str]:
        """The folder of loadgen's logs of one test, deleted afterwards unless the logs are kept."""
        if not self.settings.folder:
            return tempfile.TemporaryDirectory(prefix="benchhouse-loadgen-")
        name = self.scenario if level.rate is None else f"{self.scenario}-{level.rate:g}"
        path = Path(self.settings.folder).absolute() / name / f"run_{launch + 1}"
        with storage_errors(f"cannot create {path}", "choose another path for --loadgen-logs"):
            path.mkdir(parents=True, exist_ok=True)
        return nullcontext(str(path))


def planned_requests(traffic: Traffic, level: Level) -> list[PlannedRequest]:
    """The requests of a level whose number is known, else none: then all have the same size."""
    number = level.requests if level.is_open else level.number or 0
    if traffic.has_one_size:
        return [next(traffic.requests())] * number
    return list(islice(traffic.requests(), number))


def points_of(template: Point, requests: Sequence[PlannedRequest]) -> tuple[tuple[Point, ...], tuple[int, ...]]:
    """The different points of the calls for these requests, in their order, and the index of each request's point.

    A model without lengths has one point.
    """
    has_length, has_tokens = template.sequence_length is not None, template.new_tokens is not None
    lengths = [
        (max(1, request.length) if has_length else None, request.tokens_out if has_tokens else None)
        for request in requests
    ]
    places = {pair: place for place, pair in enumerate(dict.fromkeys(lengths))}
    points = tuple(replace(template, sequence_length=length, new_tokens=tokens) for length, tokens in places)
    return points, tuple(places[pair] for pair in lengths)


def verdicts(figures: Mapping[str, Json]) -> Sequence[Doubt]:
    """The doubts about a test that loadgen considers invalid, with its reasons; early stopping is a separate doubt."""
    if figures.get("result_validity") == "VALID":
        return ()
    unmet: list[Json] = [name for name in MET if figures.get(name) is False]
    words: dict[str, Json] = {name: text for name in REASONS if isinstance(text := figures.get(name), str) and text}
    evidence: dict[str, Json] = {"unmet": unmet, **words}
    if unmet == [MET[-1]]:
        return (doubt("early_stopping_unmet", **evidence),)
    return (doubt("mlperf_invalid", **evidence),)
