"""Open and closed loops with a model in the process: on the null device, and on a small model through the command."""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarking.commands import load_server
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import LOOP, Point
from benchmarking.devices import null
from benchmarking.devices.null import NullHandle, Script
from benchmarking.load import model
from benchmarking.load.generator import Level
from benchmarking.load.model import LoopLoad
from benchmarking.load.results import Series, result_of
from benchmarking.load.traffic import Lengths, Traffic, judged
from benchmarking.measure import request_loop
from benchmarking.measure.request_loop import LoopSettings, run_loop
from benchmarking.measure.timing import NEVER
from benchmarking.runtimes.null import NullOperation
from benchmarking.sweep.run import process
from benchmarking.sweep.run.process import LoopJob
from db.upkeep.verify import verify
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children

CALL_MS = 10.0
SHORT, LONG = (
    Point(batch_size=1, sequence_length=8, new_tokens=5),
    Point(batch_size=1, sequence_length=16, new_tokens=3),
)
EXTRA = "SELECT concurrency, extra FROM all_results"
TRAFFIC = Traffic(lengths_in=Lengths("8"), lengths_out=Lengths("5"))


class Clock:
    """In the place of `time`: it stands still but for the calls, the waits, and a tick at each reading."""

    def __init__(self):
        self.now_ns = 0

    def perf_counter_ns(self):
        self.now_ns += 100
        return self.now_ns

    def sleep(self, seconds):
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def own_clock(monkeypatch):
    """The loop and its calls take as long as their script says, however busy the machine is."""
    clock = Clock()
    for module in (sys.modules[__name__], request_loop, null):
        monkeypatch.setattr(module, "time", clock)


class RecordedCalls(NullOperation):
    """Calls of the null device that record their begin, the times of their tokens, and their end, in ns."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.calls, self.gc_thresholds = [], set()

    def run(self, mark):
        self.gc_thresholds.add(gc.get_threshold())
        begin_ns, tokens_ns = time.perf_counter_ns(), []

        def recorded(name):
            mark(name)
            tokens_ns.append(time.perf_counter_ns())

        output = super().run(recorded)
        self.calls.append((begin_ns, tokens_ns, time.perf_counter_ns()))
        return output


def loop_of(settings, *, batch_size=1, calls_ms=(CALL_MS,), points=(SHORT,), slots=1):
    """The requests of a loop, and its calls: begin, times of the tokens, end, in ms from the first scheduled start."""
    points = [replace(point, batch_size=batch_size) for point in points]
    handle = NullHandle(Script(latency_ms={"*": list(calls_ms)}, real_time=True))
    operations = [[RecordedCalls(handle, point, None, "float32") for point in points] for _ in range(slots)]
    requests = run_loop(operations, handle.synchronize, batch_size, settings, launch=0)
    calls = sorted(
        (call for slot in operations for operation in slot for call in operation.calls), key=lambda one: one[2]
    )
    zero_ns = calls[-1][2] - 1e6 * max(requests.end_ms)

    def ms(value):
        return (value - zero_ns) / 1e6

    return requests, [(ms(begin), [*map(ms, tokens)], ms(end)) for begin, tokens, end in calls]


def every(seconds, number):
    return tuple(seconds * i for i in range(number))


def close(found, expected):
    """Whether the times agree within 0.1 % of a call."""
    return all(abs(a - b) < 0.001 * CALL_MS for a, b in zip(found, expected, strict=True))


def test_users_of_a_closed_loop_wait_for_each_other(own_clock):
    requests, calls = loop_of(LoopSettings(concurrency=4, number=40))
    ends = [end for *_, end in calls]
    assert len(requests) == len(calls) == 40
    assert close(requests.end_ms, ends)
    assert close(requests.intended_ms, [0, 0, 0, 0, *ends[:-4]])
    assert close(requests.first_token_ms, [tokens[0] for _, tokens, _ in calls])
    assert close(requests.token_ms[-1], calls[-1][1])
    assert {len(one) for one in requests.token_ms} == {5}
    assert set(requests.tokens_in) == {8}
    assert requests.sent_ms == requests.intended_ms


@pytest.mark.parametrize(("slots", "kinds"), [(None, {"whole_replies"}), (1, set()), (4, set())])
def test_tokens_of_a_fast_model_in_the_process_do_not_count_as_held_back(own_clock, slots, kinds):
    """20 microseconds apart, as no server sends them."""
    level = Level(concurrency=1, number=40)
    requests, _ = loop_of(LoopSettings(concurrency=1, number=40))
    fast = [tuple(first + 0.02 * place for place in range(5)) for first, *_ in requests.token_ms]
    found = replace(requests, token_ms=tuple(fast), last_token_ms=tuple(one[-1] for one in fast))
    for tokens in (found, replace(found, token_ms=((),) * len(found))):  # with too many to keep
        doubts = {one.kind for one in result_of(TRAFFIC, level, [tokens], point=SHORT, slots=slots).doubts}
        assert doubts & {"whole_replies", "chunks_not_tokens"} == kinds


def test_no_search_for_garbage_through_all_objects_is_among_the_calls():
    usual, handle = gc.get_threshold(), NullHandle(Script())
    operation = RecordedCalls(handle, SHORT, None, "float32")
    run_loop([[operation]], handle.synchronize, 1, LoopSettings(number=3), launch=0)
    assert operation.gc_thresholds == {(*usual[:2], NEVER)}
    assert gc.get_threshold() == usual


def test_waiting_requests_share_a_call(own_clock):
    requests, calls = loop_of(LoopSettings(concurrency=4, number=40), batch_size=4)
    assert len(calls) == 10
    assert close(requests.end_ms, [end for *_, end in calls for _ in range(4)])


def test_a_closed_loop_without_a_number_ends_after_the_duration(own_clock):
    requests, calls = loop_of(LoopSettings(concurrency=2, duration_s=0.1))
    assert max(requests.intended_ms) < 100 <= max(requests.end_ms)
    assert len(requests) == len(calls) == 11


def test_an_open_loop_follows_its_schedule_whether_or_not_the_model_keeps_up(own_clock):
    requests, calls = loop_of(LoopSettings(starts_s=every(0.02, 20)))
    assert requests.intended_ms == pytest.approx([20.0 * i for i in range(20)], abs=0.001)
    assert close(requests.end_ms, [end for *_, end in calls])
    assert all(sent >= at for sent, at in zip(requests.sent_ms, requests.intended_ms, strict=True))
    overloaded, calls = loop_of(LoopSettings(starts_s=every(0.005, 120)))
    assert overloaded.intended_ms == pytest.approx([5.0 * i for i in range(120)], abs=0.001)
    assert close(Series.of(overloaded).latency, [end - 5.0 * i for i, (*_, end) in enumerate(calls)])
    result = result_of(TRAFFIC, Level(rate=200.0, number=120), [overloaded], point=SHORT, slots=1)
    assert "over_saturated" in {one.kind for one in result.doubts}
    assert result.validity == "invalid"


def test_a_stall_delays_every_request_that_was_due_during_it(own_clock):
    calls_ms = [CALL_MS] * 10 + [300.0] + [CALL_MS] * 29
    requests, _ = loop_of(LoopSettings(starts_s=every(0.02, 40)), calls_ms=calls_ms)
    assert max(Series.of(requests).latency) >= 300
    due = [place for place, at in enumerate(requests.intended_ms) if 200 <= at < 500]
    assert len(due) == 15
    assert all(Series.of(requests).latency[place] > 500 - requests.intended_ms[place] for place in due)


def test_a_request_that_waits_beyond_its_time_limit_fails_and_the_rest_go_on(own_clock):
    requests, calls = loop_of(LoopSettings(starts_s=(0.0,) * 20 + (0.2,), timeout_s=0.055))
    in_time = sum(end <= 55 for *_, end in calls)
    assert in_time == 5
    assert [error is None for error in requests.error[:in_time]] == [True] * in_time
    assert set(requests.error[len(calls) - 1 : 20]) == {"timed_out"}
    assert set(requests.detail[len(calls) - 1 : 20]) == {"not finished within 0.055 s"}
    assert set(requests.first_token_ms[len(calls) - 1 : 20]) == {None}
    assert requests.first_token_ms[20] is not None
    met = judged(requests, {"tpot": 1e6}).meets_limits  # which a request without tokens could not exceed
    assert met == tuple(error is None for error in requests.error)


def test_a_call_takes_requests_of_equal_size_oldest_first(own_clock):
    settings = LoopSettings(starts_s=(0.0,) * 6, sizes=(0, 1, 0, 1, 1, 0), warmup=1)
    requests, _ = loop_of(settings, batch_size=2, points=(SHORT, LONG))
    assert requests.tokens_in == (8, 16, 8, 16, 16, 8)
    assert requests.tokens_out == (5, 3, 5, 3, 3, 5)
    order = sorted(range(6), key=lambda place: (requests.end_ms[place], place))
    assert order == [0, 2, 1, 3, 4, 5]
    assert len(set(requests.end_ms)) == 4


def test_a_model_with_slots_runs_one_call_in_each():
    requests, calls = loop_of(LoopSettings(concurrency=6, number=60, warmup=1), slots=3)
    calls = calls[3:]  # the warm-up of each slot
    assert len(calls) == 60
    assert len(requests) == 60
    overlaps = [sum(begin <= end < other for begin, _, other in calls) for *_, end in calls]
    assert max(overlaps) == 2
    opened, _ = loop_of(LoopSettings(starts_s=every(0.004, 50)), slots=3)
    assert opened.intended_ms == pytest.approx([4.0 * i for i in range(50)], abs=0.001)
    assert all(sent >= at for sent, at in zip(opened.sent_ms, opened.intended_ms, strict=True))


def test_an_error_in_a_slot_ends_the_loop():
    handle = NullHandle(Script(real_time=True))
    operations = [[NullOperation(handle, SHORT, "raise", "float32")] for _ in range(2)]
    with pytest.raises(RuntimeError, match="scripted: the call raised"):
        run_loop(operations, handle.synchronize, 1, LoopSettings(concurrency=2, number=8), 0)


def test_a_call_that_serves_several_requests_by_itself_is_refused():
    handle = NullHandle(Script())
    operation = NullOperation(handle, SHORT, None, "float32")
    operation.requests_in_flight = 2
    with pytest.raises(UnsupportedError, match="load tests run calls one after another"):
        run_loop([[operation]], handle.synchronize, 1, LoopSettings(), 0)


def test_loops_through_the_command_are_stored_with_their_requests(tmp_path, null_script):
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    null_script(latency_ms={"*": [2.0]}, real_time=True)
    rows = [f'{{"timestamp": {500 * i}, "input_length": {4 + i % 3}, "output_length": 3}}' for i in range(12)]
    (tmp_path / "trace.jsonl").write_text("\n".join(rows))
    flags = [
        *("tiny-llama", "--num-requests", "12", "--limit", "e2e:50s", "--save", "--quiet"),
        *("--db-path", str(tmp_path / "a.duckdb"), "--output-dir", str(tmp_path / "runs")),
    ]
    closed = ["--device", "null", "--concurrency", "2", "--batch-size", "2", "--input-length=8", "--output-length=4"]
    traced = [
        *("--device", "cpu", "--runtime", "llamacpp", "--num-threads", "1", "--batch-size", "2"),
        *("--request-rate", "20", "--trace", str(tmp_path / "trace.jsonl")),
    ]
    assert [load_server.main([*flags, *more]) for more in (closed, traced)] == [0, 0]
    with Warehouse.open(tmp_path / "a.duckdb", read_only=True) as warehouse:
        levels = warehouse.query("SELECT * FROM load_curve").dicts()
        columns = ("concurrency", "request_rate", "batch_size", "sequence_length", "new_tokens", "goodput_share")
        found = [tuple(level[name] for name in columns) for level in levels]
        assert found == [(2, None, 2, 8, 4, 1.0), (None, 20.0, 2, None, None, 1.0)]
        query = f"SELECT * FROM request_times WHERE result_id = '{levels[1]['result_id']}'"
        sizes = [(one["tokens_in"], one["tokens_out"]) for one in warehouse.query(query).dicts()]
        assert sizes == [(4 + i % 3, 3) for i in range(12)]
        facts = {row["concurrency"]: json.loads(row["extra"])["load"] for row in warehouse.query(EXTRA).dicts()}
        seeds = {"arrival_seeds": [[0, 1]]}
        (idle,), (busy,) = (facts[concurrency].pop("activity") for concurrency in (2, 1))
        assert idle["elapsed_s"] > 0
        assert busy.get("run_queue_wait_share") is not None or "run_queue" in busy["missing"]
        for fact in facts.values():
            fact.pop("goodput_share_in_time", None)  # of a level whose requests this machine sent late
        assert facts == {2: {"slots": 1, **seeds}, 1: {"slots": 2, **seeds}}
        modes = [json.loads(run["runtime_mode"]) for run in warehouse.query("SELECT * FROM benchmark_runs").dicts()]
        assert {mode[LOOP]: mode.get("traffic_file") for mode in modes} == {"closed": None, "open": "trace.jsonl"}
        assert {len(mode["traffic_digest"]) for mode in modes if "traffic_file" in mode} == {16}
        assert not list(verify(warehouse))


def test_doubts_about_the_machine_are_of_the_repetition_and_pressure_counts_before_the_first_level_alone(monkeypatch):
    """Of the second, in which a thread waited for a processor, and of the first, whose lock others may not hold."""
    plan = SimpleNamespace(cell=SimpleNamespace(device=SimpleNamespace(type="cpu")))
    load = LoopLoad(
        plan=plan,  # type: ignore[arg-type]
        limits={},
        repetitions=2,
        timeout_s=1,
        device_wait_s=None,
        say=print,
        traffic=TRAFFIC,
        is_open=False,
        warmup=0,
        request_timeout_s=1,
    )
    requests, _ = loop_of(LoopSettings(number=2))
    windows = [
        {"elapsed_s": 10.0, "cpu_pressure_before": pressure, "run_queue_wait_share": wait, "busy_threads": 1}
        for pressure, wait in ((0.0, 0.0), (0.9, 0.3))
    ]
    answers = [process.Tested(requests=replace(requests, launch=i), window=one) for i, one in enumerate(windows)]
    locks, said = iter([(doubt("unshared_lock"),), ()]), iter(answers)
    monkeypatch.setattr(model, "device_locks", lambda *_: nullcontext(next(locks)))
    monkeypatch.setattr(model, "prepared", lambda *_: None)
    monkeypatch.setattr(model, "attended", lambda *_: (SimpleNamespace(launch=0), next(said)))
    job = LoopJob(cell=plan.cell, launch=0, points=(SHORT,), settings=None, loop=LoopSettings(number=2))
    done, of_launch, doubts = load.tested(lambda launch: job, SHORT)
    assert (len(done), of_launch) == (2, dict(enumerate(answers)))
    kinds = {launch: {one.kind for one in found} for launch, found in doubts.items()}
    assert kinds == {0: {"unshared_lock"}, 1: {"run_queue_wait"}}


def test_levels_before_ctrl_c_are_stored(tmp_path, null_script, monkeypatch, capsys):
    null_script(latency_ms={"*": [1.0]}, real_time=True)
    measured = LoopLoad.measured

    def interrupted(load, level):
        if level.concurrency == 4:
            raise KeyboardInterrupt
        return measured(load, level)

    monkeypatch.setattr(LoopLoad, "measured", interrupted)
    flags = [
        *("tiny-gpt2", "--device", "null", "--concurrency", "1,2,4", "--num-requests", "4", "--quiet", "--save"),
        *("--db-path", str(tmp_path / "a.duckdb"), "--output-dir", str(tmp_path)),
    ]
    assert load_server.main(flags) == 130
    shown = capsys.readouterr()
    assert "2 in flight" in shown.out
    assert shown.err.splitlines()[-1] == "benchhouse load: interrupted"
    with Warehouse.open(tmp_path / "a.duckdb", read_only=True) as warehouse:
        levels = warehouse.query("SELECT concurrency FROM load_curve").dicts()
    assert [level["concurrency"] for level in levels] == [1, 2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["gpt2", "--turns", "2"], "--turns requires --url: calls on this machine share no text"),
        (["gpt2", "--shared-prefix", "0.5"], "--shared-prefix requires --url"),
        (["gpt2", "--samples-per-query", "4"], "--samples-per-query requires --scenario"),
        (["gpt2", "--loadgen-logs", "x"], "--loadgen-logs requires --scenario"),
        (["gpt2", "--input-length", "uniform:1-9"], "random lengths in a closed loop require --num-requests"),
        (
            ["tiny-gpt2", "--num-requests", "999", "--input-length", "uniform:1-40", "--output-length", "uniform:1-40"],
            "different pairs of lengths exceed the limit of 256",
        ),
        (["tiny-gpt2", "--input-length", "5000"], "sequence length 5000"),
    ],
)
def test_flags_that_do_not_apply_to_a_model_are_refused(flags, message, capsys):
    assert load_server.main([*flags, "--device", "null", "--quiet"]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
