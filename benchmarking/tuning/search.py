"""The measuring session of a search: launches by the order of the race, in one run per cell, within the budget.

A run has one launch per round of the race, as runs of other commands do that measure several cells in turns, so its
rounds can be compared like theirs. All runs share the session, whose id is also the seed of the order, and have the tag
`tune`. They are stored at the end. Until then their partial files hold every launch, from which an interrupted search
goes on.

The time of everything counts towards the budget: builds, references, launches, storing. The screening takes the most
promising cell next (`benchmarking.tuning.race`), until its share of the budget is used and no other promises more.
Cells that it had no time for enter the race later, if that is decided early.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median

from benchmarking.core import plugins
from benchmarking.core.command_line import note
from benchmarking.core.errors import LockedError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.provenance import utc_now
from benchmarking.core.records import Point, Result, Run
from benchmarking.core.shared_settings import DEVICE_WAIT_S
from benchmarking.core.text import counted
from benchmarking.core.untrusted.redaction import redacted_folder
from benchmarking.core.verdicts.launches import ROUNDS_TO_PROVE, random_order
from benchmarking.measure.aggregate import summarise
from benchmarking.measure.context import Settings
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import spool
from benchmarking.sweep.run.command_session import Ingest
from benchmarking.sweep.run.preparation import has_build
from benchmarking.sweep.run.process import OUT_OF_TIME
from benchmarking.sweep.run.spool import PartialRun
from benchmarking.sweep.run.supervisor import Observer, Track, run_launch
from benchmarking.tuning.race import MOST_ROUNDS, SHARES, Entrant, Race, Tried, improvement
from benchmarking.tuning.space import Candidate, Goal, Space

TAG = "tune"
SHORT_S, LONG_S = 0.5, 2.0
"""Timed calls of a point in the screening and in later rounds."""
LAUNCHES_TO_KNOW = 3
"""Later launches whose calls together show a limited percentile, unless that takes more than `CALLS_SHARE`."""
CALLS_SHARE = 0.02
"""Share of the budget that the calls of a point may take in a launch so that a percentile is known."""
POINT_S = 1.5
"""Other time of a point: first call, warm-up, memory."""
REFERENCE_SHARE, LEAST_REFERENCE_S = 0.01, 1.0
"""Share of the budget that the reference output of a point may take, and at least so many seconds; else the outputs are
compared at a smaller point, since each batch size would need a reference of its own."""
MOST_OF_A_CELL, MOST_AS_EXPECTED, ROOM = 0.2, 0.5, 1.5
"""Shares of the time left that the build and the first launch of a cell may take while others wait: where one hangs, or
the machine is much slower than usual, there is time for the others. The second is that of a cell which is expected to
take longer than the first: it has `ROOM` times the expected time, since what is cut off was for nothing."""
PROMISING = 0.005
"""Expected improvement on the best so far, as a share, for which the screening goes on when its share is used."""
LATE_SHARE = 0.5
"""Share of the time that an early decision left which cells that were not tried may take beside the finalists."""
LEAST_LAUNCH_S = 8.0
"""Budget of a launch of the screening: loading and a few calls of each point."""
STORE_S = 0.5
"""Time to store a run, set aside for the end."""
UNFINISHED = "its build or launch did not finish within its share of the budget"
"""Why a configuration that was launched has no result."""
FIRST_LOAD_S, FIRST_BUILD_S, FIRST_EXPORT_S, FIRST_COMPILE_S = 5.0, 10.0, 40.0, 60.0
"""Assumed times to load a model, to convert its weights, to export its graph, and to compile it, before any was."""


class Contender(Track):
    """The run of a cell during a search: in each launch, the points that are still in the race."""

    labels: frozenset[str] = frozenset()
    """Labels of these points."""
    launch_settings: Settings | None = None
    """Of the current launch."""
    limit_s: float = float("inf")
    """Time of a launch after which no further process is started."""
    last_s: float = float("inf")
    """The time (`time.monotonic`) that ends the budget."""
    waited_s: float = 0.0
    """Time that it waited for its device."""

    def waited(self, asked_s: float, began_s: float) -> None:
        """The wait is none of its share of the time left: it gets the same share of what the wait left."""
        self.waited_s += began_s - asked_s
        if asked_s < self.last_s < float("inf"):
            left = max(0.0, (self.last_s - began_s) / (self.last_s - asked_s))
            self.ends_s = self.last_s - (self.last_s - self.ends_s) * left

    def points_left(self, launch: int) -> tuple[Point, ...]:
        if self.spent_s.get(launch, 0.0) > self.limit_s:
            return ()
        return tuple(point for point in super().points_left(launch) if point.label in self.labels)

    def settings_of(self, points: Sequence[Point], launch: int) -> Settings:
        settings = self.launch_settings or self.plan.settings
        share = len(points) / max(1, len(self.points_left(launch)))
        return settings if settings.budget_s is None else replace(settings, budget_s=settings.budget_s * share)

    @property
    def seconds(self) -> float:
        """The time of its build and launches according to its records."""
        measured = ((one.started_at, one.finished_at) for one in self.measurements)
        times = ((datetime.fromisoformat(started), datetime.fromisoformat(finished)) for started, finished in measured)
        measured_s = sum(max(0.0, (finished - started).total_seconds()) for started, finished in times)
        return self.build_s + sum(sum(load.stages_s.values()) for load in self.loads) + measured_s

    @property
    def build_s(self) -> float:
        """The time of its build; 0 if it was in the cache."""
        build = {} if self.preparation is None else self.preparation.build
        took = build.get("build_s") if build.get("is_new") else None
        return float(took) if isinstance(took, int | float) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration of the space: a cell at a point."""

    candidate: Candidate
    point: Point

    @property
    def key(self) -> str:
        return f"{self.candidate.name}, {self.point.label}"


class Search:
    """A search: its race, the runs of its cells, and its budget."""

    def __init__(
        self,
        space: Space,
        goal: Goal,
        budget_s: float,
        folder: Path,
        *,
        say: Callable[[str], None] = lambda line: None,
        device_wait_s: float | None = None,
    ) -> None:
        self.space, self.goal, self.budget_s, self.folder = space, goal, budget_s, folder
        self.configurations = {
            configuration.key: configuration
            for candidate in space.candidates
            for configuration in (Configuration(candidate=candidate, point=point) for point in candidate.plan.runnable)
        }
        self.candidates = {candidate.name: candidate for candidate in space.candidates}
        self.tracks: dict[str, Contender] = {
            name: Contender(candidate.plan, folder) for name, candidate in self.candidates.items()
        }
        self.race = Race([Entrant(key=key, cell=one.candidate.name) for key, one in self.configurations.items()])
        self.session_id = space.candidates[0].plan.session_id
        self._say, self._device_wait_s = say, device_wait_s
        self._observer = _Builds(say)
        self._began_s = time.monotonic()
        self._tried: set[str] = set()
        self._took_s: dict[str, tuple[float, float]] = {}
        """Cell -> time of its build and references, and of its first launch."""
        self._screening_s = 0.0
        """Time of a cell in the screening."""
        self._runs: dict[str, Run] = {}
        """The stored runs by id: their results have ids of their own."""
        self._median_s: dict[str, float] = {}
        """Configuration -> the median of its last launch."""
        self._point_s: dict[str, float] = {}
        """Cell -> time of a point in its last launch, loading excluded."""
        self.lost_s: dict[str, float] = {}
        """Cell -> time of its launches that measured nothing, builds included."""

    @property
    def spent_s(self) -> float:
        """The time of the search so far, with that before an interruption."""
        return time.monotonic() - self._began_s

    @property
    def left_s(self) -> float:
        """The time left for launches."""
        return self.budget_s - self.spent_s - STORE_S * (1 + len(self._tried))

    @property
    def budget_for_all_s(self) -> float | None:
        """About the budget with which the screening of another search tries every cell, now that the builds of those
        that were tried are made. None if all were, or if it should have been enough."""
        untried = [name for name in self.candidates if name not in self._tried]
        launches_s = sum(launch_s for _, launch_s in self._took_s.values())
        needed_s = (launches_s + sum(map(self._first_s, untried))) / SHARES[0]
        return needed_s if untried and needed_s > self.budget_s else None

    def run(self) -> None:
        """Measure until the race is decided or the budget is used, also by waiting for the device. Raises StorageError
        and LockedError as `sweep` does; after an interruption everything measured is on disk."""
        try:
            self._race()
        except LockedError as error:
            if self.left_s > 0:
                raise
            message = _of_budget(str(error))
            if not any(entrant.launches for entrant in self.race.entrants.values()):
                raise LockedError(message) from error
            self._say(f"{message}: the budget is used")
        self._leave_untried()

    def _race(self) -> None:
        if self.race.round == 0:
            self._screen()
            self._end_round()
        while True:
            if self.race.readmit(self.left_s, self._cost_s) or not self.race.is_over():
                self.race.narrow(self.left_s, self._cost_s)
            elif not self._try_late():
                return
            order = random_order(self.session_id, self.race.round, self.race.cells)
            for place, name in enumerate(order, start=1):
                keys = self.race.keys_of(name)
                is_late = name not in self._tried
                if self._cost_s(name, keys) > self.left_s:
                    return  # an unfinished round says nothing about those that it lacks
                if self.race.round not in self.race.entrants[keys[0]].launches:
                    self._say(self._progress(f"round {self.race.round}, {place} of {len(order)}", name))
                    self._measure(name, share=MOST_OF_A_CELL if is_late else 1.0)
            self._end_round()

    def _try_late(self) -> bool:
        """Whether the race goes on with cells that the screening had no time for: the race was decided early, and half
        of the time that it left holds a launch of each beside those of the finalists."""
        if self.race.round > MOST_ROUNDS - ROUNDS_TO_PROVE:
            return False
        finalists_s = sum(self._cost_s(name, self.race.keys_of(name)) for name in self.race.cells)
        room = int((self.left_s * LATE_SHARE - finalists_s) / max(self._screening_s, 1e-9))
        late = self._by_promise([name for name in self.candidates if name not in self._tried])[: max(0, room)]
        self.race.extend([key for key, one in self.configurations.items() if one.candidate.name in late])
        return bool(late)

    def close(self) -> None:
        """Release the runs, so that another command can continue them."""
        for track in self.tracks.values():
            track.close()

    def store(self, ingest: Ingest | None) -> list[Path]:
        """Write the run files of all cells that were measured, and store them with `ingest`. Raises StorageError."""
        started = [self.tracks[name] for name in self.candidates if name in self._tried]
        for track in started:
            launches = 1 + max((measurement.launch for measurement in track.measurements), default=0)
            track.plan = replace(track.plan, settings=replace(track.plan.settings, launches=launches))
            self._runs[track.plan.run_id] = track.run(utc_now())
        paths = [track.file.write(self._runs[track.plan.run_id]) for track in started]
        if ingest is not None and paths:
            ingest(*paths)
        for track in started:
            track.file.remove()
        return paths

    def run_of(self, name: str) -> Run:
        """The run of a cell: as stored, or so far."""
        track = self.tracks[name]
        return self._runs.get(track.plan.run_id) or track.run(utc_now())

    def resume(self) -> None:
        """Take over the newest interrupted search of this model in the folder. Raises UsageError if there is none, or
        if it had another space, and LockedError if another process continues it."""
        model_id = redacted_folder(self.space.candidates[0].plan.cell.workload.model_id)
        found: dict[str, list[tuple[PartialRun, CellPlan]]] = {}
        for file, plan in spool.readable(spool.unfinished(self.folder), lambda error: note(str(error))):
            if TAG in plan.provenance.tags and redacted_folder(plan.cell.workload.model_id) == model_id:
                found.setdefault(plan.session_id, []).append((file, plan))
        if not found:
            raise UsageError(f"--resume: no interrupted search of {model_id} in {self.folder}")
        self.session_id = max(found)  # ids begin with their time
        by_cell = {_identity(candidate.plan): name for name, candidate in self.candidates.items()}
        for file, plan in found[self.session_id]:
            name = by_cell.get(_identity(plan))
            if name is None:
                raise UsageError(
                    f"--resume: {file.path} is not in this space: repeat the command of the search, and add --resume"
                )
            self.tracks[name] = track = Contender.resume(file)
            track.plan = replace(track.plan, cell=self.candidates[name].plan.cell)  # ours, not the file's
            self._tried.add(name)
            launches = 1 + max((measurement.launch for measurement in track.measurements), default=0)
            self._took_s[name] = track.build_s, (track.seconds - track.build_s) / launches
        for name, track in self.tracks.items():
            if name not in self._tried:
                track.plan = replace(
                    track.plan,
                    session_id=self.session_id,
                    provenance=replace(track.plan.provenance, tags=found[self.session_id][0][1].provenance.tags),
                )
        self._replay()
        measured = {entrant.cell for entrant in self.race.entrants.values() if entrant.launches}
        self.lost_s = {name: self.tracks[name].seconds for name in self._tried - measured}
        self._began_s -= sum(self.tracks[name].seconds for name in self._tried)
        self._screening_s = self.spent_s / len(self._tried)

    def _replay(self) -> None:
        """Bring the race to where it was."""
        last = max(
            (measurement.launch for track in self.tracks.values() for measurement in track.measurements), default=0
        )
        for number in range(last + 1):
            measured = {
                name
                for name in self._tried
                if any(measurement.launch == number for measurement in self.tracks[name].measurements)
            }
            late = list[str]()
            for key, one in self.configurations.items():
                entrant, found = self.race.entrants[key], self.tracks[one.candidate.name].measurements
                is_measured = any(each.launch == number and each.point.label == one.point.label for each in found)
                if entrant.out == "no room" and is_measured:
                    late += [] if entrant.launches else [key]
                    entrant.out = entrant.reason = None  # it came back
            self.race.extend(late)
            for name in measured:
                self.tracks[name].labels = frozenset(
                    measurement.point.label
                    for measurement in self.tracks[name].measurements
                    if measurement.launch == number
                )
                self._record(name, number)
            if number == last:
                return
            if number == 0:
                self._leave_untried()
            for entrant in self.race.racing:
                if number not in entrant.launches:
                    self.race.leave(entrant.key, "no room", "the budget had no room to measure it longer")
            self.race.settle()

    def _screen(self) -> None:
        """One short launch of each cell, the most promising first, while the screening's share of the budget lasts.
        Then only of those that may be better than the best so far by `PROMISING`, such as the neighbours of a cell that
        came late, while the launches that a recommendation needs have their time."""
        ends_s = self.spent_s + SHARES[0] * self.left_s
        untried = [name for name in self.candidates if name not in self._tried]
        budget_s = max(LEAST_LAUNCH_S, (ends_s - self.spent_s) / max(1, len(untried)))
        while self.left_s > 0 and untried:
            is_longer = self.spent_s >= ends_s
            next_ones = self._by_promise(untried, PROMISING if is_longer else 0.0)
            reserve_s = self.race.least_s(self._cost_s)
            if is_longer and not (next_ones and self.left_s >= self._first_s(next_ones[0]) + reserve_s):
                return
            name = next_ones[0]
            untried.remove(name)
            self._say(self._progress(f"screening, {len(self._tried) + 1} of {len(self.candidates)}", name))
            self._measure(name, budget_s=budget_s, share=MOST_OF_A_CELL if untried else 1.0)

    def _by_promise(self, untried: Sequence[str], least: float = 0.0) -> list[str]:
        """Those of these cells whose expected improvement is at least so much, by the improvement per second, the most
        promising first. One with further settings comes after the same runtime and precision without them, and half
        precision on a processor after float32 by the same runtime: most emulate it, several times slower."""
        tried = [Tried(traits=self.candidates[name].traits, log_cost=self._log_cost(name)) for name in self._tried]
        improvements = improvement([self.candidates[name].traits for name in untried], tried)
        order = random_order(self.session_id, 0, untried)

        def place(item: tuple[str, float]) -> tuple[bool, float, int]:
            name, improves = item
            before, cell = self.candidates[name].base, self.candidates[name].plan.cell
            if before == name and plugins.is_processor(cell.device.type) and cell.precision in ("float16", "bfloat16"):
                before = f"{cell.runtime} float32"
            return before != name and before in untried, -improves / max(1.0, self._first_s(name)), order.index(name)

        promising = [one for one in zip(untried, improvements, strict=True) if one[1] >= least]
        return [name for name, _ in sorted(promising, key=place)]

    def _log_cost(self, name: str) -> float | None:
        """The logarithm of the best cost of a cell; a value beyond a limit counts as if the cost grew by its square.
        None if nothing was measured."""
        costs = []
        for entrant in (entrant for entrant in self.race.entrants.values() if entrant.cell == name):
            beyond = 2 * math.log(max(1.0, entrant.excess or 1.0))
            costs += [math.log(cost) + beyond for cost in entrant.costs.values()]
        return min(costs, default=None)

    def _first_s(self, name: str) -> float:
        """The expected time of the first launch of a cell, with its build: as for the same runtime and precision, which
        mostly share a build, else at most as long as for the same runtime, else as usual."""
        candidate = self.candidates[name]
        if candidate.base != name and candidate.base in self._took_s:
            build_s, launch_s = self._took_s[candidate.base]
            return launch_s or build_s  # where the build took all of its time, so will this one
        times = [(self.candidates[other], sum(took)) for other, took in self._took_s.items()]
        if same := [took for other, took in times if other.request.runtime == candidate.request.runtime]:
            return max(same)
        assumed_s = _assumed_s(candidate.plan)
        like = [took for other, took in times if _assumed_s(other.plan) == assumed_s]
        return median(like) if like else assumed_s

    def _end_round(self) -> None:
        if self.race.round == 0:
            self._screening_s = self.spent_s / max(1, len(self._tried))
            self._leave_untried()
        self.race.settle()

    def _leave_untried(self) -> None:
        for key, one in self.configurations.items():
            if one.candidate.name not in self._tried:
                self.race.leave(key, "no room", "not tried: the budget has no room for a launch of it")

    def _measure(self, name: str, *, budget_s: float | None = None, share: float = 1.0) -> None:
        """One launch of a cell, of the round that runs, with its build if it has none yet; within this share of the
        time left."""
        track, number = self.tracks[name], self.race.round
        keys = self.race.keys_of(name)
        track.labels = frozenset(self.configurations[key].point.label for key in keys)
        if budget_s is None:
            budget_s = 1.5 * self._cost_s(name, keys)
            if name not in self._tried:  # nothing is known about its time
                budget_s = max(LEAST_LAUNCH_S, budget_s)
        calls_s, calls = (SHORT_S, 0) if number == 0 else self._later_calls(keys)
        base = self.candidates[name].plan
        track.launch_settings = replace(
            base.settings,
            min_time_s=calls_s / 2,
            max_time_s=calls_s,
            warmup_max_time_s=SHORT_S if number == 0 else LONG_S,
            accelerator_min_time_s=calls_s / 2,
            min_calls=max(min(base.settings.min_calls, 3), calls),
            min_samples=max(base.settings.min_samples, calls),
            monitor_s=0.0,
            energy_windows=base.settings.energy_windows if self.goal.needs_energy else 0,
            budget_s=budget_s,
        )
        track.limit_s, track.reference_s = budget_s, max(LEAST_REFERENCE_S, REFERENCE_SHARE * self.budget_s)
        now_s, left_s = time.monotonic(), max(0.0, self.left_s)
        own_s = left_s * share
        if share < 1:
            own_s = max(own_s, min(left_s * MOST_AS_EXPECTED, ROOM * self._first_s(name)))
        track.ends_s, track.last_s = now_s + own_s, now_s + left_s
        self._tried.add(name)
        track.begin()
        wait_s = DEVICE_WAIT_S if self._device_wait_s is None else self._device_wait_s
        self._observer.is_budget = wait_s > left_s
        run_launch(track, number, self._observer, min(wait_s, left_s))
        took_s, launch_s = time.monotonic() - now_s, track.spent_s.get(number, 0.0)
        self._took_s.setdefault(name, (max(0.0, took_s - launch_s), launch_s))
        self._record(name, number)
        if all(number not in self.race.entrants[key].launches for key in keys):
            self.lost_s[name] = self.lost_s.get(name, 0.0) + took_s
        spent_s, loads = track.spent_s.get(number, 0.0), [load for load in track.loads if load.launch == number]
        points_s = spent_s - sum(sum(load.stages_s.values()) for load in loads)
        self._point_s[name] = max(0.0, points_s) / max(1, len(keys))

    def _record(self, name: str, number: int) -> None:
        """Tell the race about the launch of a cell."""
        track = self.tracks[name]
        measured = {one.point.label: one for one in track.measurements if one.launch == number}
        for key in self.race.keys_of(name):
            label = self.configurations[key].point.label
            if label not in track.labels:
                continue
            measurement = measured.get(label)
            if measurement is None or measurement.status == "skipped":
                why = "the launch of its cell took its share of the budget before it"
                self.race.leave(key, "no room", f"not measured: {why}")
                continue
            result = _result(track, label, range(number, number + 1))
            if OUT_OF_TIME in (result.error or ""):
                self.race.leave(key, "no room", UNFINISHED)
            elif result.status != "ok":
                self.race.leave(key, "failed", f"{result.status.replace('_', ' ')}: {result.error}")
            elif result.validity == "invalid":
                kinds = ", ".join(doubt.kind for doubt in result.doubts if doubt.severity == "invalid")
                self.race.leave(key, "failed", f"invalid: {kinds}")
            else:
                self._median_s[key] = result.metrics[DEFAULT_METRIC] / 1000
                so_far = _result(track, label, range(number + 1))
                self.race.record(key, self.goal.launch(result, track.quality, so_far=so_far))

    def _later_calls(self, keys: Collection[str]) -> tuple[float, int]:
        """The timed seconds of a point in a later launch, and the calls that it needs for a limited percentile; at
        most those that fit `CALLS_SHARE` of the budget where one takes as long as the slowest median."""
        slowest_s = max((self._median_s.get(key, 0.0) for key in keys), default=0.0)
        calls = math.ceil(self.goal.calls_to_know / LAUNCHES_TO_KNOW)
        if slowest_s > 0:
            calls = min(calls, int(max(LONG_S, CALLS_SHARE * self.budget_s) / slowest_s))
        return max(LONG_S, calls * slowest_s), calls

    def _cost_s(self, name: str, keys: Collection[str]) -> float:
        """The expected time of a later launch of a cell with these configurations; 0 without any."""
        if not keys:
            return 0.0
        track = self.tracks[name]
        loads = [sum(load.stages_s.values()) for load in track.loads]
        load_s = loads[-1] if loads else FIRST_LOAD_S
        each_s = self._point_s.get(name, SHORT_S + POINT_S)
        if len({load.launch for load in track.loads}) < 2:  # what the screening measured had shorter calls
            each_s += self._later_calls(keys)[0] - SHORT_S
        processes = len(keys) if track.plan.settings.point_per_process else 1
        return processes * load_s + each_s * len(keys)

    def _progress(self, where: str, name: str) -> str:
        minutes, seconds = divmod(round(self.spent_s), 60)
        count = len(self.race.keys_of(name))
        return f"{minutes}:{seconds:02d}  {where}: {name} ({counted(count, 'configuration')})"


class _Builds(Observer):
    """Says which builds are made or looked up, and why a device is waited for."""

    is_budget = False
    """Whether a wait ends with the budget, before --lock-timeout."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def preparing(self, track: Track, what: str) -> None:
        if "build" in what:
            self._say(f"      preparing {what}")

    def waiting(self, message: str) -> None:
        self._say(_of_budget(message) if self.is_budget else message)


def _of_budget(message: str) -> str:
    """A message about the wait for a device that names the flag that limits it: here the time left of the budget."""
    return message.replace("--lock-timeout", "--budget")


def race_plan(candidate: Candidate, tags: dict[str, str]) -> Candidate:
    """The candidate with a plan of as many launches as a race has rounds, and the tags of the search."""
    plan = candidate.plan
    settings = replace(plan.settings, launches=MOST_ROUNDS)
    provenance = replace(plan.provenance, tags={**plan.provenance.tags, **tags})
    return replace(candidate, plan=replace(plan, settings=settings, provenance=provenance))


def _result(track: Track, label: str, launches: range) -> Result:
    """The result of some launches of a point by themselves."""
    measured = [
        measurement
        for measurement in track.measurements
        if measurement.point.label == label and measurement.launch in launches
    ]
    return summarise("", measured[0].point, measured, [load for load in track.loads if load.launch in launches])


def _assumed_s(plan: CellPlan) -> float:
    """The time of the first launch of a cell, before anything like it has been tried."""
    if plan.settings.point_per_process:
        return FIRST_LOAD_S + FIRST_COMPILE_S * len(plan.runnable)
    if not has_build(plan.cell):
        return FIRST_LOAD_S
    is_export = plugins.runtime(plan.cell.runtime).export_format is not None
    return FIRST_LOAD_S + (FIRST_EXPORT_S if is_export else FIRST_BUILD_S)


def _identity(plan: CellPlan) -> tuple[object, ...]:
    cell = plan.cell
    mode = tuple(sorted((name, str(value)) for name, value in cell.runtime_mode.items()))
    settings = (cell.runtime, mode, cell.precision, cell.num_threads, cell.cpu_list, cell.device.selector)
    return (*settings, cell.workload.config_hash, cell.workload.task, tuple(point.label for point in plan.points))
