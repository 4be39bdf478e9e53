"""A model on this machine under MLPerf's scenarios: loadgen tests a fresh worker for each repetition."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarking.core.doubts import doubt
from benchmarking.core.errors import BenchhouseError, StorageError
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import (
    LOOP,
    REQUEST_RATE,
    SCENARIO,
    Doubt,
    Json,
    LaunchLoad,
    Measurement,
    Point,
    Requests,
    Result,
    Run,
    Scalar,
)
from benchmarking.load.generator import Level
from benchmarking.load.results import result_of
from benchmarking.load.traffic import Lengths, Traffic, limits_text, meets
from benchmarking.measure.loadgen import Scenario, ScenarioSettings
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run.lock import WAIT_S, device_locks, lock_names
from benchmarking.sweep.run.process import Job, Tested
from benchmarking.sweep.run.profiling import attended, prepared
from benchmarking.sweep.run.supervisor import finished_run, without_samples

LOADGEN = "loadgen"
"""Key of loadgen's figures of each repetition, among the facts of a load."""
REASONS = ("result_invalid_reason", "early_stopping_result", "early_stopping_ttft_result", "early_stopping_tpot_result")
MET = ("result_perf_constraints_met", "result_min_duration_met", "result_min_queries_met", "early_stopping_met")


@dataclass(slots=True, kw_only=True)
class ScenarioLoad:
    """The load to measure, and the load records of its workers."""

    plan: CellPlan
    settings: ScenarioSettings
    """Settings, including the folder for loadgen's logs; an empty folder keeps none."""
    limits: Mapping[str, float]
    repetitions: int
    timeout_s: float
    """Time limit of a test."""
    device_wait_s: float | None
    say: Callable[[str], None]
    loads: list[LaunchLoad] = field(default_factory=list)

    @property
    def scenario(self) -> Scenario:
        return self.settings.scenario

    @property
    def point(self) -> Point:
        """The point of a call."""
        (point,) = self.plan.points
        return point

    def measured(self, level: Level) -> Result:
        """The result of a level."""
        settings = replace(self.settings, rate=level.rate)
        done: list[Requests | Measurement] = []
        found: dict[int, dict[str, Json]] = {}
        for launch in range(self.repetitions):
            at = "" if level.rate is None else f" at {level.rate:g} queries/s"
            self.say(f"{self.scenario}{at}, repetition {launch + 1} of {self.repetitions}")
            point = level_point(self.point, level)
            try:
                load, answer = self._tested(replace(settings, seed=settings.seed + launch), launch, level)
            except BenchhouseError as error:
                done.append(without_samples(point, launch, "failed", str(error)))
                continue
            self.loads += [] if any(one.launch == launch for one in self.loads) else [load]
            if answer.requests is None:
                done.append(without_samples(point, launch, "failed", answer.error or "", answer.traceback))
            else:
                done.append(with_limits(answer.requests, self.limits))
                found[launch] = dict(answer.figures)
        facts: dict[str, Json] = {SCENARIO: self.scenario, LOADGEN: list(found.values())}
        return result_of(
            _traffic(self.point),
            level,
            done,
            point=level_point(self.point, level),
            samples=self.samples_per_query,
            further={launch: tuple(verdicts(one)) for launch, one in found.items()},
            facts=facts,
            in_process=True,
        )

    @property
    def samples_per_query(self) -> int:
        if self.scenario == "multi-stream":
            return self.settings.samples_per_query
        return self.settings.number or 1 if self.scenario == "offline" else 1

    def keys(self) -> dict[str, Scalar]:
        """The settings that distinguish a series, for `Cell.runtime_mode`."""
        is_open = self.scenario == "server"
        found: dict[str, Scalar] = {LOOP: "open" if is_open else "closed", SCENARIO: self.scenario}
        found |= {"arrivals": "poisson"} if is_open else {}
        found |= {"samples_per_query": self.samples_per_query} if self.samples_per_query > 1 else {}
        return found | ({"slo": limits_text(self.limits)} if self.limits else {})

    def run(self, results: Sequence[Result], settings: Mapping[str, Json]) -> Run:
        """The record of all levels."""
        mode = {**self.plan.cell.runtime_mode, **self.keys()}
        plan = replace(self.plan, cell=replace(self.plan.cell, runtime_mode=mode))
        made = finished_run(plan, self.loads, [], utc_now())
        failed = [one for one in results if one.status != "ok"]
        return replace(
            made,
            status="ok" if len(failed) < len(results) else "failed",
            error=failed[0].error if failed else None,
            settings=settings,
            results=tuple(results),
        )

    def _tested(self, settings: ScenarioSettings, launch: int, level: Level) -> tuple[LaunchLoad, Tested]:
        """One test in a separate worker, with the device locked against other measurements."""
        locks = lock_names(self.plan.cell.device)
        wait_s = WAIT_S if self.device_wait_s is None else self.device_wait_s
        with device_locks(locks, self.say, wait_s), self._folder(launch, level) as folder:
            job = Job(
                cell=self.plan.cell,
                launch=launch,
                points=(self.point,),
                settings=self.plan.settings,
                preparation=prepared(self.plan, self.say),
                scenario=replace(settings, folder=folder),
                spawned_at_ns=time.monotonic_ns(),
            )
            return attended(job, Tested, self.timeout_s)

    def _folder(self, launch: int, level: Level) -> nullcontext[str] | tempfile.TemporaryDirectory[str]:
        """The folder of loadgen's logs of one test, deleted afterwards unless the logs are kept."""
        if not self.settings.folder:
            return tempfile.TemporaryDirectory(prefix="benchhouse-loadgen-")
        name = self.scenario if level.rate is None else f"{self.scenario}-{level.rate:g}"
        path = Path(self.settings.folder).absolute() / name / f"run_{launch + 1}"
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot create {path}: {error.strerror}: choose another path for --loadgen-logs"
            ) from error
        return nullcontext(str(path))


def level_point(point: Point, level: Level) -> Point:
    """The point of a call, with the offered rate of an open loop."""
    return point if level.rate is None else replace(point, axes={**point.axes, REQUEST_RATE: float(level.rate)})


def with_limits(requests: Requests, limits: Mapping[str, float]) -> Requests:
    """The requests, each with whether it meets the limits (in ms); unchanged without limits."""
    if not limits:
        return requests
    times = zip(requests.intended_ms, requests.first_token_ms, requests.end_ms, requests.tokens_out, strict=True)
    met = [
        end is not None
        and meets(limits, ttft=(end if first is None else first) - at, e2e=end - at, tokens_out=tokens_out)
        for at, first, end, tokens_out in times
    ]
    return replace(requests, meets_limits=tuple(met))


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


def _traffic(point: Point) -> Traffic:
    """The traffic equivalent to the scenario: every sample is the point's input."""
    return Traffic(lengths_in=Lengths(str(point.sequence_length or 1)), lengths_out=Lengths(str(point.new_tokens or 1)))
