"""The time left is right within 30 %, from the first finished point on."""

import io
import re
from types import SimpleNamespace

import pytest

from benchmarking.core.records import Measurement, Point, Samples
from benchmarking.measure.settings import PROFILES, Settings
from benchmarking.sweep.show import progress
from benchmarking.sweep.show.progress import Progress

POINTS = tuple(Point(batch_size=batch, sequence_length=length) for length in (128, 512) for batch in (1, 2, 4, 8))
LOAD_S, UNTIMED_CALLS = 12.0, 3


class Track:
    """Launches of all points, without processes."""

    def __init__(self, settings):
        self.plan = SimpleNamespace(
            run_id="run", settings=settings, cell=SimpleNamespace(workload=SimpleNamespace(model_id="model"))
        )
        self.open = [(launch, point) for launch in range(settings.launches) for point in POINTS]
        self.begun = set()

    points_total = property(lambda self: len(POINTS) * self.plan.settings.launches)
    points_settled = property(lambda self: self.points_total - len(self.open))
    launches_left = property(lambda self: len(self.open_launches() - self.begun))

    def open_launches(self):
        return {launch for launch, _ in self.open}

    def open_points(self):
        return [point for _, point in self.open]


def sweep(monkeypatch, settings, call_s, cut):
    """Seconds left at each finished point: as estimated, and as it was."""
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(progress, "cell_name", lambda cell: "cell")
    track, stream = Track(settings), io.StringIO()
    shown = Progress([track], stream)
    ends, estimates = [], []
    for launch in range(settings.launches):
        shown.launch(track, launch)
        clock.now_s += LOAD_S
        track.begun.add(launch)
        for point in POINTS:
            own_s = call_s * point.batch_size * point.sequence_length / 128
            calls = max(4, int(min(40 * own_s, cut) / own_s))
            shown.live(track, launch, point, None)
            clock.now_s += (calls + UNTIMED_CALLS) * own_s
            track.open.remove((launch, point))
            values = (own_s * 1e3,) * calls
            samples = Samples(
                launch=launch, phase="measure", metric="latency_wall", unit="ms", started_at="", values=values
            )
            one = Measurement(
                point=point, launch=launch, status="ok", started_at="", finished_at="", samples=(samples,)
            )
            shown.measured(track, one)
            ends.append(clock.now_s)
            estimates.append(shown._left_s)
    return [(left_s, clock.now_s - end_s) for left_s, end_s in zip(estimates, ends, strict=True)], stream.getvalue()


@pytest.mark.parametrize("call_s", [0.005, 0.05, 0.12, 0.22])
@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_the_time_left_is_right_within_thirty_percent(monkeypatch, profile, call_s):
    settings = PROFILES[profile]
    cut = settings.max_time_s + settings.warmup_max_time_s
    pairs, _ = sweep(monkeypatch, settings, call_s, cut)
    for left_s, really_s in pairs[:-1]:
        assert left_s == pytest.approx(really_s, rel=0.3)
    assert pairs[-1] == (0.0, 0.0)


def test_a_fixed_number_of_calls_is_scaled_with_the_work(monkeypatch):
    pairs, _ = sweep(monkeypatch, Settings(fixed_iterations=40), 0.1, float("inf"))
    assert all(left_s == pytest.approx(really_s, rel=0.05) for left_s, really_s in pairs)


def test_every_finished_point_is_a_line_with_the_time_left(monkeypatch):
    _, text = sweep(monkeypatch, PROFILES["quick"], 0.05, 8.0)
    lines = text.splitlines()
    assert len(lines) == len(POINTS)
    assert all(re.search(r"about .+ left$", line) for line in lines[:-1])
    assert lines[0].startswith("point 1/8")
