"""`benchhouse tune` end to end on the null device, whose times are scripted."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from types import SimpleNamespace

import pytest

from benchmarking import cli
from benchmarking.commands import tune
from benchmarking.core.errors import LockedError
from benchmarking.core.records import PRECISIONS
from benchmarking.core.verdicts.launches import ROUNDS_TO_PROVE
from benchmarking.sweep.run import supervisor
from benchmarking.tuning import search
from benchmarking.tuning.race import ROUNDS, SHARES, Entrant, Launch, Race
from db.analysis.recommend import measured_options
from db.warehouse import Warehouse

pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("empty_working_folder")]

POINTS = ["--batch-sizes", "1,2", "--sequence-length", "32", "--weights", "random"]
TUNE = ["tune", "tiny-bert", "--device", "null", *POINTS, "--budget", "5m", "--quiet"]
WAVER = [1.0, 1.01, 0.99, 1.005, 0.995]
"""Factors of successive calls: without a spread, a result would be invalid."""
TIMES = {
    "float32 b1 s32": [factor * 10 for factor in WAVER],
    "float32 b2 s32": [factor * 19 for factor in WAVER],
    "int8 b1 s32": [factor * 4 for factor in WAVER],
    "int8 b2 s32": [factor * 7 for factor in WAVER],
}


@pytest.fixture(autouse=True)
def scripted(null_script, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    null_script(latency_ms=TIMES)


def answer(capsys, *flags, code=0):
    assert cli.main([*TUNE, *flags, "--precisions", "float32,int8", "--json"]) == code
    return json.loads(capsys.readouterr().out)


def state_of(document):
    return {one["configuration"]: one["state"] for one in document["configurations"]}


def test_the_fastest_within_the_limits_is_recommended_and_every_launch_is_stored(capsys):
    found = answer(capsys, "--limit", "latency:5ms")
    assert found["recommended"]["configuration"] == "null int8, b1 s32"
    assert state_of(found) == {
        "null float32, b1 s32": "misses",
        "null float32, b2 s32": "misses",
        "null int8, b1 s32": "finalist",
        "null int8, b2 s32": "misses",
    }
    assert found["spent_s"] < found["budget_s"]
    command = " ".join(found["recommended"]["command"])
    assert command.startswith("benchhouse run --model-id tiny-bert --device null --runtime null --precision int8")
    assert command.endswith("--batch-sizes 1 --sequence-lengths 32 --profile quick --launches 8")
    with Warehouse.open("benchmark_db.duckdb", read_only=True) as warehouse:
        rows = warehouse.query(
            "SELECT precision, batch_size, launches, tags['tune'] AS search FROM all_results ORDER BY ALL"
        ).dicts()
    session = found["session_id"]
    launches = {one["configuration"]: one["launches"] for one in found["configurations"]}
    assert [tuple(row.values()) for row in rows] == [
        ("float32", 1, 1, session),
        ("float32", 2, 1, session),
        ("int8", 1, launches["null int8, b1 s32"], session),
        ("int8", 2, 1, session),
    ]
    assert launches["null int8, b1 s32"] >= 4


def test_the_answer_names_the_command_that_shows_what_was_stored_and_none_that_ranks_what_is_simulated(
    capsys, tmp_path
):
    assert cli.main([*TUNE, "--precisions", "int8", "--db-path", str(tmp_path / "my own.duckdb")]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    show = next(line for line in lines if line.startswith("benchhouse show "))
    assert cli.main(shlex.split(show)[1:]) == 0
    assert "b2 s32" in capsys.readouterr().out
    _, _, among, *there = shlex.split(show)
    assert cli.main(["recommend", "tiny-bert", "--among", among, *there, "--prefer", "latency"]) == 3
    assert "2 results are selected, 2 simulated (which is never recommended)" in capsys.readouterr().err
    assert not any("benchhouse recommend" in line for line in lines)  # which would find nothing to rank
    assert not any("deploy it" in line for line in lines)
    assert cli.main([*TUNE, "--precisions", "int8", "--no-save"]) == 0
    assert "benchhouse show" not in capsys.readouterr().out


@pytest.mark.parametrize(("int8_ms", "best"), [(9.9, "float32"), (9.5, "int8")])
def test_recommend_chooses_of_a_stored_search_what_the_search_did(capsys, null_script, monkeypatch, int8_ms, best):
    """The simpler one of what launches in turns prove equivalent, whatever their intervals."""
    no_simulated = " AND NOT coalesce(simulated, FALSE)"
    assert no_simulated in measured_options.OPTIONS
    monkeypatch.setattr(measured_options, "OPTIONS", measured_options.OPTIONS.replace(no_simulated, ""))
    times_ms = {"float32 b1": 10.0, "int8 b1": int8_ms, "float32 b2": 30.0, "int8 b2": 30.0}
    null_script(latency_ms={f"{name} s32": [ms * one for one in WAVER] for name, ms in times_ms.items()})
    found = answer(capsys, "--objective", "latency")
    assert found["recommended"]["configuration"] == f"null {best}, b1 s32"
    among = f"tag.tune={found['session_id']}"
    assert cli.main(["recommend", "tiny-bert", "--among", among, "--prefer", "latency", "--json"]) == 0
    (workload,) = json.loads(capsys.readouterr().out)["workloads"]
    (chosen,) = (one["precision"] for one in workload["options"] if one["result_id"] == workload["recommended"])
    assert chosen == best


def test_if_nothing_meets_the_limits_the_closest_is_shown_with_exit_code_3(capsys):
    assert cli.main([*TUNE, "--precisions", "float32,int8", "--limit", "latency:1ms"]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "no option meets the limits; the closest: null device, null, int8, batch 1: latency 4" in shown
    assert "4 missed a limit" in shown
    assert "measure it again" not in shown


def test_an_unknown_quantity_meets_no_limit(capsys):
    found = answer(capsys, "--limit", "energy:5J", "--no-save", "--batch-sizes", "1", code=3)
    assert found["recommended"] is None
    (missed,) = found["configurations"][0]["misses"]
    assert (missed["quantity"], missed["value"]) == ("energy", None)
    assert set(state_of(found).values()) == {"unknown"}
    assert {one["launches"] for one in found["configurations"]} == {2}


@pytest.mark.parametrize(("call_ms", "limit"), [(200, "latency_p95:300ms"), (60, "latency_p99:90ms")])
def test_a_percentile_is_known_from_the_calls_of_all_launches(capsys, null_script, call_ms, limit):
    null_script(
        latency_ms={f"{precision} b1 s32": [call_ms * one for one in WAVER] for precision in ("float32", "int8")}
    )
    found = answer(capsys, "--limit", limit, "--no-save", "--batch-sizes", "1")
    assert found["recommended"] is not None
    assert state_of(found)[found["recommended"]["configuration"]] == "finalist"


def test_a_failed_configuration_is_named_and_takes_no_other_with_it(capsys, null_script):
    null_script(latency_ms=TIMES, faults={"b2 s32": "raise"})
    assert cli.main([*TUNE, "--precisions", "float32,int8", "--no-save"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "recommended: null device, null, int8, batch 1" in shown
    assert "b2 s32 and 1 more: failed: RuntimeError: scripted: the call raised" in shown


def test_if_every_launch_fails_nothing_is_judged(capsys, null_script):
    null_script(faults={"load": "raise"})
    assert cli.main([*TUNE, "--precisions", "int8", "--no-save"]) == 3
    assert "nothing could be judged: 2 failed" in capsys.readouterr().err


def test_an_interrupted_search_prints_its_answer_and_goes_on_with_resume(capsys, monkeypatch):
    launches, run_launch = [], supervisor.run_launch

    def interrupted(track, launch, *rest):
        if len(launches) == 3:
            raise KeyboardInterrupt  # a signal would go to whatever handler an earlier test has left
        launches.append((track.plan.cell.precision, launch))
        run_launch(track, launch, *rest)

    monkeypatch.setattr(search, "run_launch", interrupted)
    assert cli.main([*TUNE, "--precisions", "float32,int8"]) == 130
    first = capsys.readouterr()
    assert "recommended: null device, null, int8, batch 2" in " ".join(first.out.split())
    assert "saved; continue with benchhouse tune tiny-bert" in first.err
    before = list(launches)
    monkeypatch.setattr(search, "run_launch", lambda *rest: (launches.append(None), run_launch(*rest)))
    found = answer(capsys, "--resume")
    assert found["recommended"]["configuration"] == "null int8, b2 s32"
    counts = {one["configuration"]: one["launches"] for one in found["configurations"]}
    cells = [max(counts[f"null {precision}, b{size} s32"] for size in (1, 2)) for precision in ("float32", "int8")]
    assert sum(cells) == len(before) + launches.count(None)  # nothing is measured twice
    assert cli.main([*TUNE, "--precisions", "float32,int8", "--resume"]) == 2
    assert "--resume: no interrupted search of tiny-bert" in capsys.readouterr().err


def test_a_device_that_stays_in_use_ends_a_search_with_its_answer_so_far(capsys, monkeypatch):
    launches, run_launch = [], supervisor.run_launch

    def in_use(track, launch, *rest):
        if len(launches) == 3:
            raise LockedError("null is in use")
        launches.append(launch)
        run_launch(track, launch, *rest)

    monkeypatch.setattr(search, "run_launch", in_use)
    assert cli.main([*TUNE, "--precisions", "float32,int8"]) == 1
    out, err = capsys.readouterr()
    assert "recommended: null device, null, int8, batch 2" in " ".join(out.split())
    assert "saved; continue with benchhouse tune tiny-bert" in err
    assert "benchhouse tune: error: null is in use" in err
    launches[:] = [None] * 3
    assert cli.main([*TUNE, "--precisions", "float32,int8"]) == 1  # nothing was measured: no answer
    assert capsys.readouterr().out == ""


def test_the_budget_ends_the_search_and_what_was_not_tried_is_named(capsys, monkeypatch):
    start_s, steps = search.time.monotonic(), itertools.count(0, 50)
    clock = SimpleNamespace(monotonic=lambda: start_s + next(steps))  # of the search only: workers end by the real one
    monkeypatch.setattr(search, "time", clock)
    found = answer(capsys, "--budget", "600", "--no-save")
    assert found["budget_s"] == 600
    assert "no room" in state_of(found).values()
    reasons = {one["reason"] for one in found["configurations"] if one["state"] == "no room"}
    assert all("budget" in reason for reason in reasons)


def test_the_budget_that_tries_all_is_that_of_the_launches_so_far_and_of_the_rest_with_builds():
    def needed_s(budget_s, tried="a"):
        took_s = dict.fromkeys(tried, (30.0, 5.0))
        one = SimpleNamespace(candidates="abc", _tried=set(tried), _took_s=took_s, _first_s=lambda name: 20.0)
        one.budget_s = budget_s
        return search.Search.budget_for_all_s.fget(one)

    assert needed_s(60) == pytest.approx((5 + 2 * 20) / SHARES[0])
    assert needed_s(120) is None  # it should have been enough, so what they take is not known
    assert needed_s(1, "abc") is None


def test_what_hangs_takes_half_of_the_time_left_and_never_more_than_the_budget(capsys, monkeypatch, null_script):
    ends, run_launch = [], supervisor.run_launch

    def watched(track, *rest):
        ends.append((search.time.monotonic(), track.ends_s))
        run_launch(track, *rest)

    monkeypatch.setattr(search, "run_launch", watched)
    null_script(build={"exporter": "scripted"}, faults={"prepare": "hang"})
    assert cli.main([*TUNE, "--budget", "8", "--precisions", "float32,int8", "--no-save", "--json"]) == 3
    out, err = capsys.readouterr()
    (first_s, first_end_s), *others = ends
    assert first_end_s - first_s <= 4
    assert all(end_s <= first_s + 8 for _, end_s in others)
    assert {one["state"] for one in json.loads(out)["configurations"]} == {"no room"}
    reasons = {one["reason"] for one in json.loads(out)["configurations"]}
    assert "its build or launch did not finish within its share of the budget" in reasons
    shown = " ".join(err.split())
    assert "launched but not finished in time" in shown
    assert "s went into launches without a result: null " in shown
    assert f" more: {search.UNFINISHED}" in shown


def test_the_reason_of_what_failed_is_shown_where_nothing_could_be_judged(capsys, null_script):
    null_script(faults={"load": "raise"})
    assert cli.main([*TUNE, "--precisions", "int8", "--no-save"]) == 3
    assert "null int8, b1 s32 and 1 more: failed: " in capsys.readouterr().err


@pytest.mark.parametrize("promising", [search.PROMISING, math.inf])
def test_the_screening_goes_on_where_more_is_promised(capsys, monkeypatch, null_script, promising):
    """Two cells use more than its share of the budget; launches like theirs and those of the best fit what is left."""
    monkeypatch.setattr(search, "PROMISING", promising)
    clock, run_launch, spent_s = search.time.monotonic(), supervisor.run_launch, []
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: clock + sum(spent_s)))
    null_script(latency_ms={"b1 s32": TIMES["int8 b1 s32"], "b2 s32": TIMES["int8 b2 s32"]})

    def slow_at_first(track, launch, *rest):
        run_launch(track, launch, *rest)
        spent_s.append(4700 if len(spent_s) < 3 else 1)

    monkeypatch.setattr(search, "run_launch", slow_at_first)
    flags = ["--precisions", "float32,bfloat16,float16,int8", "--budget", "20000", "--no-save"]
    assert cli.main([*TUNE, *flags, "--json"]) == 0
    launches = {one["configuration"]: one["launches"] for one in json.loads(capsys.readouterr().out)["configurations"]}
    assert len(launches) == 8
    assert list(launches.values()).count(0) == (0 if promising < 1 else 4)


@pytest.mark.parametrize("is_late", [True, False])
def test_what_the_screening_had_no_time_for_enters_the_race_that_is_decided_early(
    capsys, monkeypatch, null_script, is_late
):
    """Four of seven cells use 48 % of the budget, and more rounds are expected than it takes to decide between them."""
    clock, run_launch, spent_s = search.time.monotonic(), supervisor.run_launch, []
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: clock + sum(spent_s)))
    monkeypatch.setattr(search.Race, "least_s", lambda *rest: 5000.0)
    times = {name: [2**place * factor for factor in WAVER] for place, name in enumerate(PRECISIONS)}
    null_script(
        latency_ms={f"{name} b{size} s32": [size * one for one in times[name]] for name in times for size in (1, 2)}
    )

    def slow_at_first(track, launch, *rest):
        run_launch(track, launch, *rest)
        spent_s.append(1200 if len(spent_s) < 4 else 1)

    monkeypatch.setattr(search, "run_launch", slow_at_first)
    if not is_late:
        monkeypatch.setattr(search.Search, "_try_late", lambda self: False)
    assert cli.main([*TUNE, "--budget", "10000", "--no-save", "--objective", "latency"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{14 if is_late else 8} of 14 configurations measured" in shown
    assert f"the lowest latency of {'all' if is_late else 'those measured'}, " in shown
    assert ("6 had no room in the budget for any launch: nothing is proven about them" in shown) != is_late
    if is_late:
        assert f"recommended: null device, null, {PRECISIONS[0]}, " in shown


def test_a_wait_for_the_device_leaves_a_cell_its_share_of_what_is_left(monkeypatch):
    waited_s, shares = [], []
    clock = SimpleNamespace(monotonic=lambda: 1000.0 + sum(waited_s))
    monkeypatch.setattr(search, "time", clock)
    monkeypatch.setattr(supervisor, "time", clock)
    locks, session = supervisor.device_locks, supervisor.WorkerSession.run

    def in_use_at_first(*arguments):
        waited_s.append(0 if waited_s else 200)
        return locks(*arguments)

    def measured(self):
        shares.append(self.track.ends_s - clock.monotonic())
        self.track.ends_s = float("inf")  # the worker's own clock is another
        session(self)

    monkeypatch.setattr(supervisor, "device_locks", in_use_at_first)
    monkeypatch.setattr(supervisor.WorkerSession, "run", measured)
    assert cli.main([*TUNE, "--precisions", "float32,int8", "--no-save"]) == 0
    assert shares[0] == pytest.approx((300 - 200) * search.MOST_OF_A_CELL, abs=1)


@pytest.mark.parametrize(
    ("expected_s", "share"), [(5, search.MOST_OF_A_CELL), (60, 0.3), (200, search.MOST_AS_EXPECTED)]
)
def test_a_launch_has_the_time_that_it_is_expected_to_take_and_at_most_half_of_what_is_left(
    monkeypatch, expected_s, share
):
    monkeypatch.setattr(search, "FIRST_LOAD_S", expected_s)
    clock, run_launch, shares = search.time.monotonic(), supervisor.run_launch, []
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: clock))

    def watched(track, *rest):
        shares.append((track.ends_s - clock) / 300)
        track.ends_s = float("inf")  # the worker's own clock is another
        run_launch(track, *rest)

    monkeypatch.setattr(search, "run_launch", watched)
    assert cli.main([*TUNE, "--precisions", "float32,int8", "--no-save"]) == 0
    assert shares[0] == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("late_round", [None, 5])
def test_a_resumed_search_has_as_many_rounds_for_cells_that_entered_late(late_round):
    launches = {"early": range(7), "late": range(late_round or 0, 7)}
    race = search.Race([search.Entrant(key=f"{name} b1", cell=name) for name in launches])
    found = SimpleNamespace(
        race=race,
        _tried=set(launches),
        configurations={
            f"{name} b1": SimpleNamespace(candidate=SimpleNamespace(name=name), point=SimpleNamespace(label="b1"))
            for name in launches
        },
        tracks={
            name: SimpleNamespace(
                measurements=[
                    SimpleNamespace(launch=number, point=SimpleNamespace(label="b1")) for number in launches[name]
                ]
            )
            for name in launches
        },
        _leave_untried=lambda: None,
        _record=lambda name, number: race.record(f"{name} b1", Launch(cost=1.0)),
    )
    search.Search._replay(found)
    assert race.round == 6
    assert all(entrant.out is None for entrant in race.racing)
    assert race.share() == 1 / ((ROUNDS if late_round is None else late_round + ROUNDS_TO_PROVE) - 6)


def test_cells_that_entered_late_leave_no_room_for_more_of_them_at_a_second_time():
    names = [f"cell {number}" for number in range(20)]
    counts = []
    for tried in (5, 10):
        found = SimpleNamespace(
            race=search.Race([search.Entrant(key=name, cell=name) for name in names]),
            candidates=dict.fromkeys(names),
            configurations={name: SimpleNamespace(candidate=SimpleNamespace(name=name)) for name in names},
            spent_s=50.0,
            left_s=80.0,
            _tried=set(names[:5]),
            _cost_s=lambda name, keys: 0.0,
            _by_promise=list,
            _leave_untried=lambda: None,
        )
        search.Search._end_round(found)
        for name in names:
            found.race.leave(name, "no room", "not tried")
        found._tried |= set(names[:tried])
        assert search.Search._try_late(found)
        counts.append(len(found.race.racing))
    assert counts == [4, 4], "half of 80 s holds four launches of 10 s, whoever entered since"


def test_later_launches_are_expected_to_have_longer_calls_than_the_screening():
    """Also while the screening runs, which goes on only where all of them fit the time left."""
    screened = SimpleNamespace(
        loads=[SimpleNamespace(launch=0, stages_s={"load": 1.0})],
        plan=SimpleNamespace(settings=SimpleNamespace(point_per_process=False)),
    )
    during = SimpleNamespace(
        race=search.Race([]),
        tracks={"a": screened},
        _point_s={"a": 0.75},
        _later_calls=lambda keys: (search.LONG_S, 0),
    )
    longer_s = search.LONG_S - search.SHORT_S
    assert search.Search._cost_s(during, "a", ["a b1", "a b2"]) == 1.0 + 2 * (0.75 + longer_s)


def test_cells_without_a_build_are_screened_first(capsys, monkeypatch):
    names, run_launch = [], supervisor.run_launch
    monkeypatch.setattr(search, "has_build", lambda cell: cell.precision == "float32")
    monkeypatch.setattr(
        search, "run_launch", lambda track, *rest: (names.append(track.plan.cell.precision), run_launch(track, *rest))
    )
    answer(capsys, "--no-save")
    assert names[:2] == ["int8", "float32"]


@pytest.mark.parametrize(
    ("device", "last"), [("cpu", ["eager bfloat16", "eager float16"]), ("cuda", ["eager float32"])]
)
def test_half_precision_on_a_processor_is_tried_after_float32_by_the_same_runtime(monkeypatch, device, last):
    names = [
        f"{runtime} {precision}"
        for runtime in ("eager", "openvino")
        for precision in ("float32", "bfloat16", "float16")
    ]
    promise = {name: 0.5 if name == "eager float32" else 1.0 for name in names}
    monkeypatch.setattr(search, "improvement", lambda traits, tried: [promise[name] for name in traits])

    def candidate(name):
        runtime, precision = name.split()
        cell = SimpleNamespace(runtime=runtime, precision=precision, device=SimpleNamespace(type=device))
        return SimpleNamespace(base=name, traits=name, plan=SimpleNamespace(cell=cell))

    one = SimpleNamespace(
        candidates={name: candidate(name) for name in names},
        _tried=set(),
        session_id="session",
        _first_s=lambda name: 5.0,
    )
    untried = [name for name in names if name not in ("openvino float32", "openvino float16")]
    assert sorted(search.Search._by_promise(one, untried)[-len(last) :]) == last


@pytest.mark.parametrize(("before", "code"), [(0, 1), (3, 0)])
def test_the_budget_ends_the_wait_for_a_device_that_others_use(capsys, monkeypatch, before, code):
    """What was measured before is the answer; without anything, the search fails with the holder's name."""
    launches, waited_s, run_launch, clock = [], [], supervisor.run_launch, search.time.monotonic

    def in_use_later(track, launch, observer, wait_s):
        if len(launches) == before:
            waited_s.append(wait_s)
            observer.waiting("null is in use by PID 1: waiting up to 300 s (--lock-timeout)")
            raise LockedError("null is in use by PID 1: use a longer --lock-timeout")
        launches.append(launch)
        if before:
            track.waited(0.0, 2.0)
        run_launch(track, launch, observer, wait_s)

    monkeypatch.setattr(search, "run_launch", in_use_later)
    monkeypatch.setattr(search.time, "monotonic", lambda: clock() + sum(waited_s))
    assert cli.main([*TUNE[:-1], "--precisions", "float32,int8", "--lock-timeout", "9999"]) == code
    out, err = capsys.readouterr()
    assert len(waited_s) == 1
    assert 0 < waited_s[0] <= 300
    assert "null is in use by PID 1: waiting up to 300 s (--budget)" in err
    assert "null is in use by PID 1: use a longer --budget" in err
    assert "--lock-timeout" not in err
    if before:
        assert "use a longer --budget: the budget is used" in err
        assert "6 s passed in waiting for the device, which was in use" in out
        assert "recommended: null device, null, int8, batch 2" in " ".join(out.split())


def test_a_dry_run_says_how_long_the_search_takes_and_that_the_weights_are_random(capsys):
    assert cli.main(["tune", "tiny-bert", "--device", "null", "--dry-run", "--budget", "20m"]) == 0
    err = capsys.readouterr().err
    assert "tiny-bert: random weights (seed 0): " in err
    assert "the search takes 20 min at most, by --budget\n" in err


def test_a_dry_run_lists_what_is_tried_and_what_is_left_out_and_why(capsys):
    assert cli.main(["tune", "tiny-bert", "--device", "null", "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("7 cells, 42 configurations; the most promising are tried first")
    assert "eager: runtime eager runs on cpu" in shown
    assert "wasm; webgpu; webnn: its models run in the browsers of users" in shown


def test_only_single_calls_are_tried_for_latency(capsys):
    assert cli.main(["tune", "tiny-bert", "--device", "null", "--dry-run", "--json", "--objective", "latency"]) == 0
    assert set(map(tuple, json.loads(capsys.readouterr().out)["configurations"].values())) == {("b1 s128",)}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--limit", "kls:0.1"], "unknown limit 'kls'"),
        (["--limit", "latency=5ms"], "write latency:5ms"),
        (["--limit", "latency:5ms", "--limit", "latency:6ms"], "latency is limited twice"),
        (["--objective", "cost"], "--objective cost requires --price FILE"),
        (["--resume", "--no-save"], "--resume and --no-save exclude each other"),
        (["--runtimes", "eagre"], "did you mean eager"),
        (["--runtimes", "eager"], "runtime eager runs on"),
        (["--space", "missing.yaml"], "missing.yaml"),
    ],
)
def test_a_wrong_request_is_one_line(capsys, flags, message):
    assert cli.main([*TUNE, *flags]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_cost_is_the_price_of_the_items_on_this_device(capsys, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text('currency: EUR\nper_hour: {"null": 3.6}\n')
    found = answer(capsys, "--objective", "cost", "--price", str(prices), "--no-save")
    best = next(one for one in found["configurations"] if one["configuration"] == found["recommended"]["configuration"])
    assert best["option"]["price_per_hour"] == 3.6
    assert cli.main([*TUNE, "--objective", "cost", "--price", str(tmp_path / "none.yaml")]) != 0
    prices.write_text("currency: EUR\nper_hour: {cuda: 3.6}\n")
    capsys.readouterr()
    assert cli.main([*TUNE, "--objective", "cost", "--price", str(prices)]) == 2
    assert "no price for null" in capsys.readouterr().err


def test_the_table_shows_the_next_best_where_the_recommended_one_has_no_equal(capsys):
    assert cli.main([*TUNE, "--precisions", "float32,int8", "--objective", "latency", "--no-save"]) == 0
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if line.startswith("null ")]
    assert len(rows) == 4
    assert "more were measured" not in shown


def test_what_is_equal_in_the_end_is_not_counted_as_behind_and_nothing_measured_as_untried():
    launched = {0: Launch(cost=1.0)}
    entrants = [
        Entrant(key="best", cell="a", launches=launched),
        Entrant(key="equal", cell="b", launches=launched, out="behind"),
        Entrant(key="behind", cell="c", launches=launched, out="behind"),
        Entrant(key="once", cell="d", launches=launched, out="no room"),
        Entrant(key="never", cell="e", out="no room"),
        Entrant(key="late, b1", cell="late", out="no room", reason=search.UNFINISHED),
        Entrant(key="late, b2", cell="late", out="no room", reason=search.UNFINISHED),
        Entrant(key="broken, b1", cell="broken", out="failed", reason="failed: no memory"),
    ]
    waited = SimpleNamespace(waited_s=0.4)
    lost_s = {"broken": 4.2, "late": 31.0}
    searched = SimpleNamespace(race=Race(entrants), budget_for_all_s=600.0, lost_s=lost_s, tracks={"late": waited})
    assert tune._reasons(searched, ("equal",)) == [
        "1 behind the best as measured, 1 failed, 2 launched but not finished in time, 1 had no room in the budget for "
        "more launches, 1 had no room in the budget for any launch: nothing is proven about them, a longer "
        "--budget measures them, about 10m tries all",
        "35 s went into launches without a result: late 31 s; broken 4 s",
        f"late, b1 and 1 more: {search.UNFINISHED}",
        "broken, b1: failed: no memory",
    ]
