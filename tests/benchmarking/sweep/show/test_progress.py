"""The time left is accurate within 30 % from the first finished point."""

import dataclasses
import io
import re
from types import SimpleNamespace

import pytest

from benchmarking.core.records import Measurement, Point, Samples
from benchmarking.measure.context import PROFILES, Live, Settings
from benchmarking.sweep.run.budget import UNTIMED_CALLS, Budget
from benchmarking.sweep.show import progress
from benchmarking.sweep.show.progress import PointTime, Progress

POINTS = tuple(Point(batch_size=batch, sequence_length=length) for length in (128, 512) for batch in (1, 2, 4, 8))
LOAD_S = 12.0


class Track:
    """Launches of all points, without processes."""

    def __init__(self, settings):
        self.plan = SimpleNamespace(
            run_id="run",
            settings=settings,
            cluster=None,
            cell=SimpleNamespace(workload=SimpleNamespace(model_id="model")),
        )
        self.open = [(launch, point) for launch in range(settings.launches) for point in POINTS]
        self.begun = set()

    points_total = property(lambda self: len(POINTS) * self.plan.settings.launches)
    points_finished = property(lambda self: self.points_total - len(self.open))
    launches_left = property(lambda self: len(self.open_launches() - self.begun))

    def open_launches(self):
        return {launch for launch, _ in self.open}

    def open_points(self):
        return [point for _, point in self.open]


def sweep(monkeypatch, settings, call_s, **shown_as):
    """Seconds left at each finished point: estimated and actual. Points take their share of the budget."""
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(progress, "cell_name", lambda cell: "cell")
    track, stream = Track(settings), io.StringIO()
    shown = Progress([track], stream, **shown_as)
    ends, estimates = [], []
    for launch in range(settings.launches):
        shown.launch(track, launch)
        budget = Budget(settings, POINTS, int(clock.now_s * 1e9))
        clock.now_s += LOAD_S
        track.begun.add(launch)
        for point in POINTS:
            now, own_s = budget.next_settings(), call_s * point.batch_size * point.sequence_length / 128
            calls = spend(shown, track, launch, point, now, own_s, clock)
            track.open.remove((launch, point))
            one = budget.record(measurement(launch, point, own_s, calls), now)
            shown.measured(track, one)
            ends.append(clock.now_s)
            estimates.append(shown.left_s)
    shown.close()
    return [(left_s, clock.now_s - end_s) for left_s, end_s in zip(estimates, ends, strict=True)], stream.getvalue()


def spend(shown, track, launch, point, now, own_s, clock):
    """Advance the clock by a point's phases; returns its calls: at most 40, within the limits of its settings."""

    def phase(name, calls=0):
        shown.live(track, launch, point, None if name is None else Live(phase=name, calls=calls, elapsed_s=0.0))

    warm_up = int(now.fixed_warmup_iterations is None)
    limit_s = float("inf") if now.fixed_iterations else now.max_time_s + warm_up * now.warmup_max_time_s
    calls = max(warm_up + now.min_calls, int(min(40 * own_s, limit_s) / own_s))
    phase(None)
    phase("first_call")
    clock.now_s += own_s
    phase("warmup")
    clock.now_s += warm_up * own_s
    if calls > warm_up + now.min_calls:  # not too slow for windows
        phase("warmup", calls=1)
    phase("measure")
    clock.now_s += (calls - warm_up) * own_s
    phase("memory")
    clock.now_s += (UNTIMED_CALLS - 1) * own_s
    return calls


def measurement(launch, point, own_s, calls):
    samples = Samples(
        launch=launch, phase="measure", metric="latency_wall", unit="ms", started_at="", values=(own_s * 1e3,) * calls
    )
    return Measurement(point=point, launch=launch, status="ok", started_at="", finished_at="", samples=(samples,))


SLOW = 0.7
"""Seconds of a call at which the fewest calls of all points exceed the budget: 75 units of work."""


@pytest.mark.parametrize(
    ("profile", "call_s"),
    [(profile, call_s) for profile in ("quick", "standard") for call_s in (0.005, 0.05, 0.12, 0.15)]
    + [("quick", SLOW), ("quick", 10.0)],
)
def test_the_time_left_is_accurate_within_thirty_percent(monkeypatch, profile, call_s):
    pairs, _ = sweep(monkeypatch, PROFILES[profile], call_s)
    for left_s, really_s in pairs[:-1]:
        assert left_s == pytest.approx(really_s, rel=0.3)
    assert pairs[-1] == (0.0, 0.0)


@pytest.mark.parametrize(("call_s", "is_warned"), [(0.05, False), (0.15, False), (SLOW, True), (10.0, True)])
def test_exceeding_the_budget_prints_the_expected_time(monkeypatch, call_s, is_warned):
    _, text = sweep(monkeypatch, PROFILES["quick"], call_s)
    warnings = [line for line in text.splitlines() if line.startswith("slow: ")]
    assert len(warnings) == is_warned
    assert all("of the time budget of 150 s: measure fewer or smaller points" in line for line in warnings)


def test_exceeding_the_budget_is_reported_before_the_first_point(monkeypatch):
    pairs, text = sweep(monkeypatch, PROFILES["quick"], 10.0)
    first, *_ = text.splitlines()
    assert first.startswith("slow: what remains, 8 points, takes about 50 min even with the minimum of calls")
    assert pytest.approx(pairs[0][1], rel=0.3) == 50 * 60


def test_the_summary_shows_the_share_of_timed_calls(monkeypatch):
    _, text = sweep(monkeypatch, PROFILES["quick"], 0.05)
    assert re.fullmatch(r"8 points in \d+ s, \d\d% of it timed calls", text.splitlines()[-1])
    _, text = sweep(monkeypatch, PROFILES["standard"], 0.05)
    times = 8 * PROFILES["standard"].launches
    assert text.splitlines()[-1].startswith(f"8 points, measured {times} times, in ")


@pytest.mark.parametrize("ends_s", [0.0, -1.0])
def test_a_clock_that_stands_still_or_goes_back_leaves_out_the_share_of_timed_calls(monkeypatch, ends_s):
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(progress, "cell_name", lambda cell: "cell")
    track, stream = Track(PROFILES["quick"]), io.StringIO()
    shown = Progress([track], stream)
    for number, point in enumerate(POINTS):
        track.open.remove((0, point))
        shown.measured(track, measurement(0, point, 0.001 * number, 3))
        clock.now_s += number % 2
    clock.now_s = ends_s
    shown.close()
    assert stream.getvalue().splitlines()[-1] == "8 points in 0 s"


def test_the_summary_does_not_count_the_wait_for_the_device(monkeypatch):
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(progress, "cell_name", lambda cell: "cell")
    track, stream = Track(PROFILES["quick"]), io.StringIO()
    shown = Progress([track], stream)
    shown.waiting("cpu is in use by process 1")
    clock.now_s = 60.0
    shown.waiting("still in use")
    clock.now_s = 70.0
    shown.launch(track, 0)
    shown.waiting("no live status: the disk is full")  # said meanwhile, and no wait
    for point in POINTS:
        shown.live(track, 0, point, None)
        clock.now_s += 1.0
        track.open.remove((0, point))
        shown.measured(track, measurement(0, point, 0.1, 5))
    shown.launch(track, 1)
    shown.close()
    assert stream.getvalue().splitlines()[-1] == "8 points in 8 s, 50% of it timed calls"


def test_a_fixed_number_of_calls_is_scaled_with_the_work(monkeypatch):
    pairs, _ = sweep(monkeypatch, Settings(fixed_iterations=40), 0.1)
    assert all(left_s == pytest.approx(really_s, rel=0.05) for left_s, really_s in pairs)


def test_finished_points_are_lines_with_the_time_left(monkeypatch):
    _, text = sweep(monkeypatch, PROFILES["quick"], 0.05)
    *lines, _ = text.splitlines()
    assert len(lines) == len(POINTS)
    assert all(re.search(r"about .+ left$", line) for line in lines[:-1])
    assert lines[0].startswith("1 of 8 done")


def test_a_turn_says_nothing_of_the_time_left_of_which_the_other_side_takes_a_part(monkeypatch):
    _, text = sweep(monkeypatch, PROFILES["quick"], 0.05, is_turn=True)
    assert "1 of 8 done" in text
    assert " left" not in text


def test_points_of_a_model_that_was_not_measured_yet_take_the_mean_time():
    """Work is comparable between points of one model: 10 000 documents are not 10 000 times a call of another one."""
    measured, other = Track(PROFILES["quick"]), Track(PROFILES["quick"])
    other.plan.run_id, other.plan.cell.workload.model_id = "other run", "other model"
    other.open = [(0, Point(batch_size=batch, sequence_length=32, axes={"documents": 10_000})) for batch in (1, 4)]
    shown = Progress([measured, other], quiet=True)
    timed = {"track": "run", "model": "model", "work": 128.0, "calls": 20, "calls_s": 9.0}
    shown._timed = [
        PointTime(**timed, label="b1 s128", seconds=10.0),
        PointTime(**timed, label="b1 s128", seconds=14.0),
    ]
    assert shown._points_left_s(other) == 2 * 12.0
    other.plan.cell.workload.model_id = "model"
    assert shown._points_left_s(other) > 1000


def test_without_a_terminal_the_cell_that_is_loaded_is_named_where_there_are_several(monkeypatch):
    monkeypatch.setattr(progress, "cell_name", lambda cell: "bert on cpu (webgpu, float32)")
    tracks, stream = [Track(PROFILES["quick"]), Track(PROFILES["quick"])], io.StringIO()
    shown = Progress(tracks, stream)
    shown.launch(tracks[1], 0)
    shown.launch(tracks[1], 1)
    Progress(tracks[:1], stream).launch(tracks[0], 0)
    total = sum(track.points_total for track in tracks)
    assert stream.getvalue() == f"0 of {total} done  loading bert on cpu (webgpu, float32), launch 1\n"


def test_calls_that_are_timed_in_blocks_are_all_counted(monkeypatch):
    monkeypatch.setattr(progress, "cell_name", lambda cell: "cell")
    track, stream = Track(PROFILES["quick"]), io.StringIO()
    shown = Progress([track], stream)
    one = measurement(0, POINTS[0], 0.001, 3)
    blocks = tuple(dataclasses.replace(row, inner_loops=13) for row in one.samples)
    shown.measured(track, dataclasses.replace(one, samples=blocks))
    shown.close()
    assert "39 calls  median" in stream.getvalue()
