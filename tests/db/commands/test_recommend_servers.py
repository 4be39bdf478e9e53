"""`benchhouse recommend --request-rate`, and how loads are compared and judged, through the commands' own mains."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from benchmarking.core.doubts import doubt
from benchmarking.core.load_doubts import HIGHEST_RATE, RATE_HIGH, RATE_LOW, SEARCHED
from benchmarking.core.records import REQUEST_RATE, Doubt
from benchmarking.load.traffic import Lengths, Pauses, Traffic
from db.analysis.compare.matching import allowed_across
from db.analysis.recommend.measured_options import UNSTATED_CONFIG
from db.analysis.recommend.servers import LOAD_SETTINGS
from db.commands import check, compare, history, import_results, recommend, show
from db.warehouse import Warehouse
from tests.helpers.load import make_load, make_requests
from tests.helpers.records import make_run
from tests.helpers.run_changes import Alter

MODEL, REQUESTS = "served", 20
LATE_BY = "15 of 20 requests may have missed a limit only because they were sent late"
ASKED = ("--ttft-ms", "100", "--tpot-ms", "20", "--share", "0.9")


def answered(late, times=None):
    """REQUESTS requests, of which `late` waited 400 ms for the first token and the others 50 ms; 10 ms a token."""
    starts = [100.0 * at for at in range(REQUESTS)]
    first = [start + (400.0 if at < late else 50.0) for at, start in enumerate(starts)]
    whole = {"tokens_in": 32, "tokens_out": 11, "cached_tokens": 0, "error": None, "detail": None}
    whole |= {"meets_limits": None, "conversation": None, "turn": None}
    return make_requests(
        intended_ms=tuple(starts),
        sent_ms=tuple(starts),
        first_token_ms=tuple(first),
        token_ms=((),) * REQUESTS,
        end_ms=tuple(one + 100.0 for one in first),
        **{name: (value,) * REQUESTS for name, value in whole.items()},
    )


def server(engine, late, device="cpu", **fields):
    """A load of an engine: late requests by rate."""
    run = make_load(rates=tuple(late), engine=engine, **{"model_id": MODEL, **fields})
    run = Alter.on_device(run, f"Made-up {device}", device, type=device)

    def loaded(result):
        return replace(result, requests=(answered(late[result.point.axes[REQUEST_RATE]]),))

    return Alter.results(run, loaded)


@pytest.fixture(scope="module")
def served(tmp_path_factory, empty_database):
    """One engine on two machines: the GPU holds 8/s, the CPU 2/s. The invalid and the closed load do not count."""
    path = shutil.copy2(empty_database, tmp_path_factory.mktemp("served") / "served.duckdb")
    quick = server("engine", {2.0: 0, 8.0: 2, 16.0: 0}, "cuda")
    quick = Alter.results(quick, Alter.invalid, where=lambda point: point.axes[REQUEST_RATE] == 16.0)
    slow = server("engine", {1.0: 0, 2.0: 1, 4.0: 15, 8.0: 0})
    closed = make_load(concurrency=(64,), engine="closed-engine", model_id=MODEL)
    others = (make_load(concurrency=(1,), model_id="closed"), make_load(engine="unstored", model_id="percentiles"))
    with Warehouse.open(path) as warehouse:
        batched = server("engine", {2.0: 15, 8.0: 15}, model_id="batched")
        in_fours = Alter.results(server("engine", {2.0: 0, 8.0: 0}, model_id="batched"), in_batches_of_four)
        uncounted = Alter.results(server("engine", {1.0: 0}, model_id="uncounted"), without_counts)
        in_one = Alter.results(server("engine", {1.0: 0}, model_id="whole"), whole)
        hidden = Alter.results(server("engine", {1.0: 0}, model_id="hidden"), half_hidden)
        tools = Alter.results(others[1], without_requests)
        loads = {
            name: server("engine", {2.0: 0, 8.0: 15}, model_id=name) for name in ("late", "too late", "unscheduled")
        }
        late = Alter.results(loads["late"], sent_late(10.0))
        too_late = Alter.results(loads["too late"], sent_late(350.0))
        unscheduled = Alter.results(loads["unscheduled"], sent_late(0.0))
        warehouse.ingest_all(
            (
                *(quick, slow, closed, others[0], tools, batched, in_fours, uncounted, in_one, hidden),
                *(late, too_late, unscheduled),
            )
        )
    (path.parent / "prices.yaml").write_text("currency: EUR\nper_hour: {cuda: 2.0, cpu: 0.5}\n")
    return path


def without_requests(result):
    """The result as of another tool: percentiles alone."""
    own = {"time_to_first_token_p90_ms": 90.0, "time_to_first_token_p99_ms": 400.0}
    return replace(result, requests=(), metrics={**result.metrics, **own})


def without_counts(result):
    """The result of a server that does not report tokens: its time per output token is unknown."""
    return replace(result, requests=(replace(result.requests[0], tokens_out=(None,) * REQUESTS),))


def whole(result):
    """The result of a server whose replies of 11 tokens arrive in one piece, after 150 ms."""
    requests = result.requests[0]
    return replace(result, requests=(replace(requests, first_token_ms=requests.end_ms),))


def half_hidden(result):
    """The result of a server that streams 6 of its 11 tokens, one every 20 ms."""
    (found,) = result.requests
    tokens = tuple(tuple(first + 20.0 * place for place in range(6)) for first in found.first_token_ms)
    requests = replace(found, token_ms=tokens, tokens_counted_by=("hidden",) * REQUESTS)
    return replace(result, requests=(requests,))


def sent_late(delay_ms):
    """A change of a result: its requests were sent so late after their schedule."""

    def changed(result):
        (found,) = result.requests
        requests = replace(found, sent_ms=tuple(at + delay_ms for at in found.intended_ms))
        return replace(result, requests=(requests,), validity="invalid", doubts=(doubt("late_generator"),))

    return changed


def in_batches_of_four(result):
    return replace(result, point=replace(result.point, batch_size=4))


@pytest.fixture
def asked(served, capsys):
    """A function that asks and gives the exit code and the servers of the first kind of traffic."""

    def run(*arguments, model=MODEL):
        code = recommend.main([model, *arguments, "--json", "--db-path", str(served)])
        return code, json.loads(capsys.readouterr().out)["traffic"][0]["servers"]

    return run


def test_a_rate_holds_where_enough_requests_met_every_limit_and_lower_rates_hold_too(asked):
    code, servers = asked("--request-rate", "5", *ASKED)
    found = {one["device"]: (one["holds_up_to"], one["machines"]) for one in servers}
    assert (code, found) == (0, {"cuda": (8.0, 1), "cpu": (2.0, 3)})
    shares = {
        level["request_rate"]: level["share"] for one in servers for level in one["levels"] if one["device"] == "cpu"
    }
    assert shares == {1.0: 1.0, 2.0: 0.95, 4.0: 0.25, 8.0: 1.0}


def test_servers_of_the_quantizations_of_a_model_are_ranked_together(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "quantized.duckdb")
    with Warehouse.open(path) as warehouse:
        for name, late in (("q-8b", 15), ("q-8b-AWQ", 0)):
            run = server("engine", {2.0: 0, 8.0: late}, model_id=name)
            warehouse.ingest(Alter.workload(run, config_hash=UNSTATED_CONFIG))
    words = ["--request-rate", "5", *ASKED, "--db-path", str(path)]
    for name in ("q-8b", "q-8b-AWQ"):
        assert recommend.main([name, *words, "--json"]) == 0
        (traffic,) = json.loads(capsys.readouterr().out)["traffic"]
        found = [(one["holds_up_to"], one["runtime_mode"].get("quantization")) for one in traffic["servers"]]
        assert found == [(8.0, "AWQ"), (2.0, None)]
    assert recommend.main(["q-8b", *words]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "engine (quantization AWQ), float32: holds up to 8/s (100.0% of 20 requests)" in text
    with Warehouse.open(path) as warehouse:  # on another engine
        run = server("fast", {2.0: 0, 8.0: 0}, model_id="q-8b-GPTQ")
        warehouse.ingest(Alter.workload(run, config_hash=UNSTATED_CONFIG))
    assert recommend.main(["q-8b", *words]) == 0
    assert "GPTQ" in capsys.readouterr().out


def test_invalid_loads_and_closed_loops_are_no_answer_to_a_rate(asked):
    _, servers = asked("--request-rate", "5", *ASKED)
    assert [one["runtime"] for one in servers] == ["engine", "engine"]
    assert [level["request_rate"] for level in servers[0]["levels"]] == [2.0, 8.0]


@pytest.mark.parametrize(
    ("model", "held"),
    [("late", [(2.0, True, None), (8.0, False, None)]), ("too late", [(2.0, True, None), (8.0, None, LATE_BY)])],
)
def test_a_late_generator_leaves_open_only_limits_that_lateness_decides(asked, model, held):
    """Latencies count from the schedule: what met its limits did so in spite of being sent late."""
    code, servers = asked("--request-rate", "2", *ASKED, model=model)
    levels = [(one["request_rate"], one["holds"], one["why_unknown"]) for one in servers[0]["levels"]]
    assert (code, levels, servers[0]["holds_up_to"]) == (0, held, 2.0)
    assert {one["validity"] for one in servers[0]["levels"]} == {"invalid"}, "the times stay invalid"


@pytest.mark.parametrize("model", ["unscheduled", "closed"])
def test_without_a_load_that_can_be_judged_the_command_that_measures_one_is_named(served, model, capsys):
    """As of a closed loop, or of late requests whose schedule the file of another tool does not state."""
    words = ["--request-rate", "8", *ASKED[:4], "--db-path", str(served)]
    assert recommend.main([model, *words]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert f"measure one: benchhouse load {model} --request-rate 8 --num-requests 100, with --url or --serve" in told


def test_batch_sizes_of_a_model_on_this_machine_are_separate_servers(asked):
    code, servers = asked("--request-rate", "5", *ASKED, model="batched")
    found = [(one["runtime_mode"].get("batch_size"), one["holds_up_to"]) for one in servers]
    assert (code, found) == (0, [(4, 8.0), (None, None)])


def test_a_limit_on_an_unknown_time_is_not_met_and_the_reason_is_named(asked, served, capsys):
    code, servers = asked("--request-rate", "1", "--tpot-ms", "1000", model="uncounted")
    (level,) = servers[0]["levels"]
    assert (code, level["holds"], level["share"]) == (3, None, None)
    assert level["why_unknown"] == "of 20 of 20 requests a limited time is unknown"
    (level,) = asked("--request-rate", "1", "--tpot-ms", "10", "--share", "0.9", model="whole")[1][0]["levels"]
    assert (level["holds"], level["share"]) == (None, None)
    (level,) = asked("--request-rate", "1", "--tpot-ms", "16", "--share", "0.9", model="whole")[1][0]["levels"]
    assert (level["holds"], level["share"]) == (True, 1.0)
    for limit_ms, known in (("15", None), ("20", True)):
        (level,) = asked("--request-rate", "1", "--tpot-ms", limit_ms, "--share", "0.9", model="hidden")[1][0]["levels"]
        assert level["holds"] is known, "10 ms a token of all, and 20 of those after the first"
    code, servers = asked("--request-rate", "1", "--tpot-ms", "1000", "--ttft-ms", "1", model="uncounted")
    assert (code, servers[0]["levels"][0]["holds"]) == (1, False)  # the other limit decides
    recommend.main(["uncounted", "--request-rate", "1", "--tpot-ms", "1000", "--db-path", str(served)])
    text = " ".join(capsys.readouterr().out.split())
    assert "within the limits is unknown: of 20 of 20 requests" in text
    assert "0 of 1 can serve 1 request/s with 99 % of them within time per output token <= 1000 ms; of 1 it is" in text


def test_what_is_known_by_late_requests_alone_says_so(served, capsys):
    assert recommend.main(["late", "--request-rate", "2", *ASKED, "--db-path", str(served)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "1 of 1 can serve 2 requests/s" in text
    assert "; 1 of them by a load test whose requests were sent late recommended:" in text
    assert "sent late: such a load test is invalid, but latencies count from the schedule" in text


def test_a_level_that_was_disturbed_does_not_end_what_holds_above_it(empty_database, tmp_path, capsys):
    """Six of 40 requests at 1/s missed the limit, and none of the 120 at 2, 4 and 8/s; 16/s fails by itself."""
    path = shutil.copy2(empty_database, tmp_path / "disturbed.duckdb")
    run = server("engine", {1.0: 3, 2.0: 0, 4.0: 0, 8.0: 0, 16.0: 4})
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(Alter.results(run, lambda one: replace(one, requests=one.requests * 2)))
    arguments = [MODEL, "--request-rate", "8", *ASKED, "--db-path", str(path)]

    assert recommend.main([*arguments, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["traffic"][0]["servers"]
    assert found["holds_up_to"] == 8.0
    assert [(one["holds"], one["pooled"]) for one in found["levels"]] == [
        (True, pytest.approx(154 / 160)),
        *[(True, None)] * 3,
        (False, None),
    ]
    assert recommend.main(arguments) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "pooled: with the requests of higher rates that did better, since the share can only fall with the" in text
    assert "85.0% at 1/s, pooled 96.2%" in text


@pytest.mark.parametrize(("rate", "machines", "cheapest"), [("5", 3, "cpu"), ("8", 4, "cuda"), ("2", 1, "cpu")])
def test_the_cheapest_sufficient_machines_come_first(asked, served, rate, machines, cheapest):
    prices = str(served.parent / "prices.yaml")
    _, servers = asked("--request-rate", rate, *ASKED, "--price", prices)
    by_device = {one["device"]: one for one in servers}
    assert servers[0]["device"] == cheapest
    assert by_device["cpu"]["machines"] == machines
    assert by_device["cpu"]["cost_per_hour"] == 0.5 * machines
    assert by_device["cpu"]["cost_per_million_requests"] == pytest.approx(0.5 * machines / 3600 / float(rate) * 1e6)


def test_without_stored_requests_the_percentile_of_the_share_must_meet_the_limit(asked):
    outcomes = [
        asked("--request-rate", "1", "--ttft-ms", "100", "--share", share, model="percentiles")
        for share in ("0.9", "0.99", "1")
    ]
    assert [code for code, _ in outcomes] == [0, 1, 3]
    assert [servers[0]["levels"][0]["holds"] for _, servers in outcomes] == [True, False, None]


def test_the_answer_names_machines_rate_and_price(served, capsys):
    prices = str(served.parent / "prices.yaml")
    assert recommend.main([MODEL, "--request-rate", "5", *ASKED, "--price", prices, "--db-path", str(served)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "2 of 2 (1 of them with one machine) can serve 5 requests/s with 90 % of them within time to first token "
        "<= 100 ms" in text
    )
    holds = "holds up to 2/s (95.0% of 20 requests), 1.5 EUR an hour"
    assert f"recommended: 3 machines: Made-up cpu, engine, float32: {holds}" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((MODEL, "--request-rate", "5", "--memory-mb", "10"), 2, "--memory-mb does not apply with --request-rate"),
        ((MODEL, "--tpot-ms", "5"), 2, "--tpot-ms requires --request-rate"),
        ((MODEL, "--request-rate", "5", "--share", "2"), 2, "takes a share from 0 to 1, such as 0.95 or 95%: got '2'"),
        (("closed", "--request-rate", "5"), 3, "1 from closed loops, which have no request rate"),
        (
            (MODEL,),
            3,
            "from load tests (which sustain a rate: benchhouse recommend --request-rate, or the page Recommend)",
        ),
    ],
)
def test_requests_without_an_answer_are_one_line(served, capsys, arguments, code, message):
    assert recommend.main([*arguments, "--db-path", str(served)]) == code
    assert message in capsys.readouterr().err


GOODPUT = "goodput_requests_per_sec"


@pytest.fixture(scope="module")
def nightly(tmp_path_factory, empty_database):
    """Sixteen nights of a load, whose goodput falls from 2 to 1 in the last one; an earlier one was invalid."""
    path = shutil.copy2(empty_database, tmp_path_factory.mktemp("nightly") / "nightly.duckdb")
    with Warehouse.open(path) as warehouse:
        for night in range(16):
            day = f"2026-03-{night + 1:02d}T00:00:00+00:00"
            goodput = 1.0 if night == 15 else 50.0 if night == 7 else 2.0 + 0.002 * (night % 3)
            run = make_load(rates=(2.0,), started_at=day, finished_at=day, metrics={GOODPUT: goodput})
            run = replace(run, provenance=replace(run.provenance, git_commit=None, git_commit_time=None))
            warehouse.ingest(Alter.results(run, Alter.invalid) if night == 7 else run)
        warehouse.ingest(make_load(concurrency=(2,), started_at="2026-02-20T00:00:00+00:00", metrics={GOODPUT: 9.0}))
    return str(path)


def test_a_fall_of_goodput_is_a_regression_and_an_invalid_load_is_not_judged(nightly, capsys):
    arguments = ("runtime=some-engine", "--metric", GOODPUT, "--db-path", nightly)
    assert check.main([*arguments, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["judgement"]["outcome"], found["value"], found["judgement"]["n"]) == ("worse", 1.0, 14)
    assert history.main([*arguments, "--json"]) == 0
    series = {one["runtime"] + str(one["point"]["axes"]): one for one in json.loads(capsys.readouterr().out)}
    nights = series["some-engine{'request_rate': 2.0}"]
    assert (nights["left_out"], len(nights["points"])) == (1, 15)
    assert max(point["value"] for point in nights["points"]) < 2.01


def test_open_and_closed_loops_are_never_compared(nightly, capsys):
    sides = ["since=2026-03-01", "until=2026-02-28"]  # all of the open loops, and the closed one
    assert compare.main([*sides, "--metric", GOODPUT, "--across", "all", "--json", "--db-path", nightly]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["findings"], len(document["only_before"]), len(document["only_after"])) == ([], 1, 1)
    assert not allowed_across(["all"])("runtime_mode loop")


KINDS = {
    "open loop, poisson arrivals": {"loop": "open", "arrivals": "poisson"},
    "open loop, constant arrivals": {"loop": "open", "arrivals": "constant"},
    "open loop, poisson arrivals, shared_prefix 0.5": {"loop": "open", "arrivals": "poisson", "shared_prefix": 0.5},
    "MLPerf server": {"loop": "open", "arrivals": "poisson", "scenario": "server"},
    "open loop, poisson arrivals, think_time 5": {"loop": "open", "arrivals": "poisson", "think_time": "5"},
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory, empty_database):
    """Kinds of load at the same rate, each on two days."""
    path = shutil.copy2(empty_database, tmp_path_factory.mktemp("kinds") / "kinds.duckdb")
    with Warehouse.open(path) as warehouse:
        for day in ("2026-03-01", "2026-03-02"):
            for mode in KINDS.values():
                times = dict.fromkeys(("started_at", "finished_at"), f"{day}T00:00:00+00:00")
                run = Alter.mode(make_load(rates=(2.0,), model_id="kinds", session_id=day, **times), **mode)
                warehouse.ingest(run)
    return str(path)


@pytest.mark.parametrize("command", [show.main, history.main, check.main])
def test_kinds_of_load_at_the_same_rate_are_distinguished(kinds, command, capsys):
    command(["--json", "--db-path", kinds])
    found = json.loads(capsys.readouterr().out)
    rows = found["findings"] if command is check.main else found
    assert sorted(row["settings"] for row in rows) == sorted(KINDS)
    command(["--db-path", kinds])
    text = " ".join(capsys.readouterr().out.split())
    assert all(words in text for words in ("open loop, constant arrivals", "MLPerf server"))


def test_imported_tests_of_mlperf_are_told_apart_and_its_server_is_no_call(tmp_path, capsys):
    database = ("--db-path", str(tmp_path / "b.duckdb"))
    folder = Path("tests/fixtures/imports/mlperf/closed/Example")
    for name, changed in (("server", {}), ("single", {"Server": "SingleStream", "server": "singlestream"})):
        shutil.copytree(folder, tmp_path / name / "closed" / "Example")
        for old, new in changed.items():
            for path in sorted(tmp_path.glob(f"{name}/**/{old}")):
                path.rename(path.with_name(new))
        assert import_results.main([str(tmp_path / name / "closed"), *database]) == 0
    capsys.readouterr()
    assert show.main(["--json", *database]) == 0
    rows = json.loads(capsys.readouterr().out)
    (model,) = {one["model_id"] for one in rows}
    assert sorted(one["settings"] for one in rows) == ["MLPerf server", "MLPerf singlestream"]
    recommend.main([model, "--limit", "latency:100s", "--json", *database])
    (workload,) = json.loads(capsys.readouterr().out)["workloads"]
    assert [one["runtime_mode"]["scenario"] for one in workload["options"]] == ["singlestream"]
    assert recommend.main([model, "--request-rate", "1", "--limit", "latency:100s", *database]) == 3
    assert "1 of MLPerf, of which no file states what share met a limit, 1 from calls" in capsys.readouterr().err
    assert recommend.main([model, "--among", "sql:runtime_mode->>'scenario' = 'server'", *database]) == 3
    assert "1 of MLPerf under load, which are no single calls" in capsys.readouterr().err


def test_kinds_of_load_at_the_same_rate_are_rows_of_a_comparison(kinds, capsys):
    compare.main(["session=2026-03-01", "session=2026-03-02", "--db-path", kinds])
    text = capsys.readouterr().out
    rows = text.splitlines()[5 : 5 + len(KINDS)]
    assert sorted(line[: text.splitlines()[3].index("A ms")].strip() for line in rows) == sorted(KINDS)


@pytest.fixture(scope="module")
def started(tmp_path_factory, empty_database):
    """Loads of servers that were started with 2 and 8 slots, whose limits differ on one side, and of 4 slots with other
    prompts."""
    path = shutil.copy2(empty_database, tmp_path_factory.mktemp("started") / "started.duckdb")
    mode = {"loop": "open", "arrivals": "poisson", "serve": "engine --slots {slots}"}
    with Warehouse.open(path) as warehouse:
        for slots, slo in ((2, "ttft:100ms"), (2, "ttft:200ms"), (8, "ttft:100ms"), (4, "ttft:100ms")):
            run = Alter.mode(server("engine", {2.0: 0}), **mode, serve_slots=slots, slo=slo)
            run = replace(run, provenance=replace(run.provenance, tags={"slots": str(slots)}))
            if slots == 4:
                run = Alter.results(run, lambda one: replace(one, point=replace(one.point, sequence_length=33)))
            warehouse.ingest(run)
    return str(path)


def test_a_server_that_the_load_started_is_named_by_its_command_and_values(started, capsys):
    assert show.main(["tag.slots=8", "--db-path", started]) == 0
    assert "serve engine --slots {slots}, serve_slots 8" in " ".join(capsys.readouterr().out.split())
    asked = (MODEL, "--request-rate", "2", *ASKED, "--among", "tag.slots=8", "--db-path", started)
    assert recommend.main(asked) == 0
    named = "cpu, engine, float32 (serve engine --slots {slots}, serve_slots 8): holds up to 2/s"
    assert named in " ".join(capsys.readouterr().out.split())


def test_sides_that_differ_in_one_setting_of_the_server_are_named_by_it(started, capsys):
    across = ("--across", "runtime", "--db-path", started)
    compare.main(["tag.slots=2,sql:runtime_mode->>'slo'='ttft:100ms'", "tag.slots=8", *across])
    text = " ".join(capsys.readouterr().out.split())
    assert "serve_slots 8 is not judged against serve_slots 2 at 1 of 1 point" in text
    compare.main(["tag.slots=2", "tag.slots=8", *across])
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("slo ttft:100ms") == 3, "of A in one row, and of B, which has it too, in both"


def test_a_comparison_without_a_common_point_names_what_differs_and_what_allows_it(started, capsys):
    sides = ("tag.slots=8", "tag.slots=4", "--db-path", started)
    assert compare.main([*sides, "--across", "sequence"]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "nearest: b1 s32 n2 request_rate=2.0 / b1 s33 n2 request_rate=2.0: serve_slots: 8 / 4" in text
    assert "(allow it with --across runtime); also sequence_length: 32 / 33" in text
    assert compare.main([*sides, "--across", "runtime,sequence"]) == 3
    assert "not judged" in capsys.readouterr().out


def test_servers_are_not_ranked_across_kinds_of_requests(kinds, capsys):
    assert recommend.main(["kinds", "--request-rate", "2", "--share", "0.1", "--json", "--db-path", kinds]) == 0
    traffic = [one["traffic"] for one in json.loads(capsys.readouterr().out)["traffic"]]
    found = [{"arrivals": one["arrivals"], **dict(one["kind"])} for one in traffic]
    own = [{name: value for name, value in mode.items() if name != "loop"} for mode in KINDS.values()]
    assert sorted(found, key=str) == sorted(own, key=str)


def test_what_a_doubt_means_is_said_once(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "doubted.duckdb")
    noisy = (Doubt(kind="cpu_pressure", severity="noisy", evidence={}),)
    with Warehouse.open(path) as warehouse:
        for turns in (2, 3):
            run = Alter.mode(server("engine", {2.0: 0}), loop="open", arrivals="poisson", turns=turns)
            warehouse.ingest(Alter.results(run, lambda one: replace(one, doubts=noisy, validity="noisy")))
    assert recommend.main([MODEL, "--request-rate", "2", *ASKED, "--db-path", str(path)]) == 0
    text = capsys.readouterr().out
    notes = [line for line in text.splitlines() if line.startswith("cpu_pressure (Made-up cpu engine float32): ")]
    assert [line.endswith("): see above") for line in notes] == [False, True]


def test_every_setting_of_the_requests_belongs_to_the_traffic_and_none_to_the_server():
    lengths = Lengths("8")
    pauses = Pauses("1")
    by_arrivals = [
        Traffic(
            arrivals=arrivals, lengths_in=lengths, lengths_out=lengths, shared_prefix=0.5, vocabulary=9, file=file,
            turns=2, think_time=pauses, tool_calls=1, tool_pause=pauses, file_digest="a",
        )
        for arrivals in ("poisson", "gamma", "burst")
        for file in (None, Path("conversations.json"))
    ]  # fmt: skip
    found = {name for one in by_arrivals for name in one.keys({"ttft": 1.0}, is_open=True)}
    assert (
        {"turns", "think_time", "tool_calls", "traffic_file", "traffic_digest", "burst", "variation"}
        < found
        <= {*LOAD_SETTINGS}
    )


def test_one_server_under_imported_loads_of_other_requests_is_not_two_servers(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "data.duckdb")
    settings = {
        "dataset_name": ("sonnet", "custom"),
        "prefix_repetition_prefix_len": (256, 896),
        "data.kind": ("huggingface", "synthetic_image"),
        "extra.best_of": (2, 4),
        "extras.body": ('{"temperature": 0.9}', '{"temperature": 0.1}'),
        "prompt_tokens_stdev": (8, 16),
        "stddev_output_tokens": (10, 20),
        "temperature": (0.5, 0.9),
        "endpoint": ("chat", "/v1/completions"),
    }
    engines = {"endpoint": ("vllm", "sglang"), "hf_overrides": ("{}", "[]"), "max_num_seqs": (16, 32)}
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all(
            [
                Alter.mode(server("engine", {2.0: 0}, model_id=f"{kind}-{name}"), loop="open", **{name: value})
                for kind, found in (("requests", settings), ("engine", engines))
                for name, values in found.items()
                for value in values
            ]
        )

    def servers(model):
        assert recommend.main([model, "--request-rate", "2", *ASKED, "--json", "--db-path", str(path)]) == 0
        return [len(one["servers"]) for one in json.loads(capsys.readouterr().out)["traffic"]]

    assert [servers(f"requests-{name}") for name in settings] == [[1, 1]] * len(settings)
    assert [servers(f"engine-{name}") for name in engines] == [[2]] * len(engines)


def test_a_server_with_several_quantizations_of_a_model_is_several(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "files.duckdb")
    with Warehouse.open(path) as warehouse:
        for name in ("Q4_1", "Q8_0"):
            warehouse.ingest(server("llama-server", {2.0: 0}, model_id=f"a-1b-{name}.gguf"))
    asked = ("a-1b-Q4_1.gguf", "--request-rate", "2", "--share", "0.9")
    assert recommend.main([*asked, "--json", "--db-path", str(path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["model_id"] == "a-1b"
    (traffic,) = document["traffic"]
    assert sorted(one["runtime_mode"]["quantization"] for one in traffic["servers"]) == ["Q4_1", "Q8_0"]


def test_a_try_out_of_a_few_requests_shows_at_most_that_a_rate_is_missed(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "tried.duckdb")
    run = server("engine", {2.0: 0, 50.0: 0}, model_id="tried")

    def tried(result):
        (whole,) = result.requests
        few = {one.name: getattr(whole, one.name)[:5] for one in fields(whole) if one.type.startswith("tuple")}
        return replace(result, requests=(replace(whole, **few),))

    with Warehouse.open(path) as warehouse:
        alone = server("engine", {50.0: 0}, model_id="alone")
        once = server("engine", {2.0: 0, 50.0: 1}, model_id="once")
        missed = server("engine", {2.0: 0, 50.0: 2, 60.0: 0}, model_id="missed")
        below = server("engine", {50.0: 0, 60.0: 20}, model_id="below")
        for one in (run, alone, once, missed, below):
            warehouse.ingest(Alter.results(one, tried, where=lambda point: point.axes[REQUEST_RATE] == 50.0))

    def levels(model):
        code = recommend.main([model, "--request-rate", "50", *ASKED, "--json", "--db-path", str(path)])
        ((server,),) = [one["servers"] for one in json.loads(capsys.readouterr().out)["traffic"]]
        return code, [(one["request_rate"], one["holds"]) for one in server["levels"]], server

    code, found, of_server = levels("tried")
    assert (code, found, of_server["holds_up_to"]) == (0, [(2.0, True)], 2.0)
    assert levels("once")[:2] == (0, [(2.0, True)]), "five more that meet the limits would do"
    code, found, of_server = levels("missed")
    assert (code, found, of_server["holds_up_to"]) == (0, [(2.0, True), (50.0, False), (60.0, True)], 2.0)
    code, found, of_server = levels("alone")
    assert (code, found) == (3, [(50.0, None)])
    assert of_server["levels"][0]["why_unknown"] == "5 requests cannot tell 90 %: measure 10 or more (--num-requests)"
    code, found, of_server = levels("below")
    assert (code, found) == (3, [(50.0, None), (60.0, False)]), "what fails at a higher rate may hold at this one"


def test_load_tests_that_contradict_the_newest_are_named(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "again.duckdb")

    def overloaded(result):
        doubts = (Doubt(kind="over_saturated", severity="invalid", evidence={}),)
        return replace(result, doubts=doubts, validity="invalid")

    with Warehouse.open(path) as warehouse:
        for minute, late in enumerate((20, 0, 5, 20, 0)):
            run = server("engine", {2.0: 0, 4.0: late}, model_id="again", started_at=f"2026-01-01T10:0{minute}:00Z")
            rate = 4.0 if minute == 3 else None
            warehouse.ingest(
                Alter.results(run, overloaded, where=lambda point, rate=rate: point.axes[REQUEST_RATE] == rate)
            )
    assert recommend.main(["again", "--request-rate", "4", *ASKED, "--db-path", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    missed = "3 of 4 other load tests at 4/s missed the limits"
    assert f"holds up to 4/s (100.0% of 20 requests); but {missed}" in text
    assert f"contradicted: Made-up cpu engine float32: {missed}; the newest valid one counts" in text
    assert "other load tests at 2/s" not in text


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (
            "late_generator",
            3,
            "is known to hold; the closest: Made-up cpu, engine, float32: at 4/s 0.0% of the requests",
        ),
        ("over_saturated", 1, "no measured rate holds; the closest"),
    ],
)
def test_a_lower_rate_whose_load_was_invalid_may_hold(kind, code, words, empty_database, tmp_path, capsys):
    """A late generator shows nothing of the server, which an overloaded one is at fault itself."""
    path = shutil.copy2(empty_database, tmp_path / "late.duckdb")

    def invalid(result):
        doubts = (Doubt(kind=kind, severity="invalid", evidence={}),)
        return replace(result, doubts=doubts, validity="invalid")

    run = server("engine", {2.0: 0, 4.0: 20}, model_id="late")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(Alter.results(run, invalid, where=lambda point: point.axes[REQUEST_RATE] == 2.0))
    assert recommend.main(["late", "--request-rate", "5", *ASKED, "--db-path", str(path)]) == code
    text = " ".join(capsys.readouterr().out.split())
    assert words in text
    assert ("not judged, since the load tests were invalid: 2/s" in text, " unknown " in text) == (code == 3, code == 3)


def test_a_percentile_that_only_an_import_states_is_used(empty_database, tmp_path, capsys):
    path = shutil.copy2(empty_database, tmp_path / "imports.duckdb")
    load = {
        "model_id": "m",
        "num_prompts": 200,
        "completed": 200,
        "request_rate": 4.0,
        "request_throughput": 4.0,
        "duration": 50.0,
        "total_input_tokens": 2000,
        "total_output_tokens": 2000,
        "p99_ttft_ms": 80.0,
        "median_ttft_ms": 50.0,
        "mean_ttft_ms": 50.0,
        "date": "20260901-120000",
    }
    (tmp_path / "load.json").write_text(json.dumps(load))
    assert import_results.main([str(tmp_path), "--db-path", str(path)]) == 0
    capsys.readouterr()
    assert recommend.main(["m", "--request-rate", "4", "--limit", "ttft:100ms", "--db-path", str(path)]) == 0
    assert recommend.main(["m", "--request-rate", "4", "--limit", "ttft:70ms", "--db-path", str(path)]) == 1


@pytest.fixture(scope="module")
def swept(tmp_path_factory, empty_database):
    """A server that was swept with two numbers of slots."""
    path = shutil.copy2(empty_database, tmp_path_factory.mktemp("swept") / "swept.duckdb")
    with Warehouse.open(path) as warehouse:
        for slots in (2, 4):
            run = Alter.mode(make_load(rates=(2.0,), session_id=f"s{slots}"), serve="server {slots}", serve_slots=slots)
            warehouse.ingest(run)
    return str(path)


@pytest.mark.parametrize(
    "words", [["serve_slots=2", "serve_slots=4"], ["session=s2", "session=s4", "--across", "serve_slots"]]
)
def test_configurations_of_a_server_are_compared_by_the_name_that_show_gives_them(swept, words, capsys):
    shown = []
    for selection in ([], ["serve_slots=4"]):
        assert show.main([*selection, "--json", "--db-path", swept]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert sorted("serve_slots 4" in row["settings"] for row in shown[0]) == [False, True]
    assert len(shown[1]) == 1
    reasons = []
    for sides in (words, ["session=s2", "session=s4"]):
        assert compare.main([*sides, "--json", "--db-path", swept]) == 3, "a single load of each has no verdict"
        (finding,) = json.loads(capsys.readouterr().out)["findings"]
        reasons.append(finding["judgement"]["reason"])
    assert "serve_slots" not in reasons[0]
    assert "serve_slots: 2 / 4" in reasons[1], "else they are two series"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["slots=2", "slots=4"],
            "a value of --sweep is serve_slots=2, another setting sql:runtime_mode->>'slots' = '2'",
        ),
        (["--by", "slots"], "values of load --sweep are compared by compare serve_slots=A serve_slots=B"),
        (["--by", "serve_slots"], "two values of serve_slots are compared by compare serve_slots=A serve_slots=B"),
        (["serve_slots=3", "serve_slots=4"], "no serve_slots '3' is stored: there are 2, 4"),
    ],
)
def test_other_names_of_a_swept_value_lead_to_its_own(swept, words, told, capsys):
    assert compare.main([*words, "--db-path", swept]) in (2, 3)
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("asked", "share", "rate"),
    [(None, "0.99", 4.0), (None, "0.97", 4.0), (None, "0.9", 8.0), (0.9, "0.9", 4.0), (0.97, "0.99", None)],
)
def test_what_a_search_found_for_a_share_holds_for_a_lower_one_too(
    asked, share, rate, empty_database, tmp_path, capsys
):
    """Twenty requests tell neither 97 nor 99 %, but the search did: a lower share is not less sure."""
    path = shutil.copy2(empty_database, tmp_path / "searched.duckdb")
    run = server("engine", {2.0: 0, 8.0: 2})
    limits = {"slo": "tpot:20ms,ttft:100ms", **({} if asked is None else {"slo_share": asked})}
    run = replace(run, cell=replace(run.cell, runtime_mode={**run.cell.runtime_mode, **limits}))
    found = {HIGHEST_RATE: 4.0, RATE_LOW: 3.5, RATE_HIGH: 4.5}
    run = Alter.results(run, Alter.metrics(**found), where=lambda point: point.axes[REQUEST_RATE] == 2.0)
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(run)
    words = [MODEL, "--request-rate", "1", "--ttft-ms", "100", "--tpot-ms", "20", "--share", share]
    assert recommend.main([*words, "--json", "--db-path", str(path)]) == (3 if rate is None else 0)
    (traffic,) = json.loads(capsys.readouterr().out)["traffic"]
    (one,) = traffic["servers"]
    assert one["holds_up_to"] == rate
    recommend.main([*words, "--db-path", str(path)])
    shown = capsys.readouterr().out
    assert ("a search found" in shown) == (rate == 4.0 and share != "0.97")
    for wanted, sure in (("3.5", None), ("3.9", 2), ("7.5", 3)) if "a search found" in shown else ():
        recommend.main([MODEL, "--request-rate", wanted, *words[3:], "--db-path", str(path)])
        shown = capsys.readouterr().out
        told = re.findall(r"chance decides, and (\d) machines are sure", " ".join(shown.split()))
        assert told == ([] if sure is None else [str(sure)])
    assert recommend.main([*words[:-2], "--db-path", str(path)]) == (0 if asked is None else 3)
    told = "a search with these limits found a rate for a smaller share of the requests: --share"
    assert (told in capsys.readouterr().err) == (asked is not None)


@pytest.mark.parametrize(("has_search", "code"), [(False, 0), (True, 3)])
def test_levels_of_a_search_that_found_nothing_tell_nothing_one_by_one(
    has_search, code, empty_database, tmp_path, capsys
):
    """They are short: what holds and fails among them is chance, and the search has said that it cannot tell."""
    path = shutil.copy2(empty_database, tmp_path / "searched.duckdb")
    run = server("engine", {2.0: 0, 4.0: 10, 8.0: 10})
    mode = {**run.cell.runtime_mode, "slo": "tpot:20ms,ttft:100ms", "slo_share": 0.9}
    run = replace(run, cell=replace(run.cell, runtime_mode=mode))
    why = "not found: it may be anything from 1 to 5 requests/s"
    failed = {"status": "failed", "error": why, "metrics": {}, "extra": {"load": {SEARCHED: [1.5, 8.0]}}}
    if has_search:
        run = replace(run, results=(*run.results[:-1], replace(run.results[-1], **failed)))
    with Warehouse.open(path) as warehouse:
        warehouse.ingest(run)
    words = [MODEL, "--request-rate", "1", "--ttft-ms", "100", "--tpot-ms", "20", "--share", "0.9"]
    words = [*words, "--db-path", str(path)]
    assert recommend.main([*words, "--json"]) == code
    ((one,),) = (traffic["servers"] for traffic in json.loads(capsys.readouterr().out)["traffic"])
    assert one["holds_up_to"] == (None if has_search else 2.0)
    assert recommend.main(words) == code
    shown = " ".join(capsys.readouterr().out.split())
    assert ("of 1 it is unknown" in shown) == ("at 1.5/s" in shown) == (why in shown) == has_search


@pytest.mark.parametrize(
    ("other", "words"),
    [
        # log(8 / 4) +- sqrt(2) log(9 / 8) / 2: both intervals are of log(9 / 8)
        ((8.0, 7.5424724, 8.4852814), "B serves 1.84 to 2.174 times as many"),
        ((4.2, 4.0, 4.6), "which of them serves more is not known, since the intervals overlap"),
        ((2.0, 1.8, 2.1), "A serves 1."),
        ((8.0, 8.4852814, None), "B serves at least 2 times as many"),
    ],
)
def test_a_comparison_of_two_servers_begins_with_the_highest_rates_that_searches_found(
    other, words, empty_database, tmp_path, capsys
):
    path = str(shutil.copy2(empty_database, tmp_path / "two.duckdb"))
    with Warehouse.open(path) as warehouse:
        for engine, (rate, low, high) in (("one", (4.0, 3.7712362, 4.2426407)), ("two", other)):
            found = {HIGHEST_RATE: rate, RATE_LOW: low, **({} if high is None else {RATE_HIGH: high})}
            warehouse.ingest(Alter.results(server(engine, {2.0: 0}), Alter.metrics(**found)))
    assert compare.main(["runtime=one", "runtime=two", "--db-path", path]) == 3
    first = " ".join(capsys.readouterr().out.split()).partition("highest rate within the limits: A 4 requests/s")[2]
    assert words in first.partition("not judged")[0]
    assert "each search measured this at its own highest rate" in first


@pytest.mark.parametrize(("completed", "code"), [(99, 3), (100, 0)])
def test_a_stated_percentile_of_few_requests_tells_nothing_of_the_share(completed, code, tmp_path, capsys):
    stated = json.loads(Path("tests/fixtures/imports/vllm_bench_serve/summary.json").read_text())[0]
    number = {"num_prompts": completed, "completed": completed, "duration": completed / 2}
    rates = {"max_concurrency": None, "request_rate": 2.0, "request_throughput": 2.0}
    (tmp_path / "few.json").write_text(json.dumps({**stated, **number, **rates, "model_id": MODEL}))
    database = ("--db-path", str(tmp_path / "b.duckdb"))
    assert import_results.main([str(tmp_path / "few.json"), *database]) == 0
    assert recommend.main([MODEL, "--request-rate", "1", "--ttft-ms", "100", *database]) == code
    text = " ".join(capsys.readouterr().out.split())
    assert ("99 requests cannot tell 99 %: measure 100 or more" in text) == (code == 3)


def test_the_price_is_of_all_devices_of_a_server_or_a_run(tmp_path, capsys):
    """An import's count of devices is of those that it used; that of our own runs, of those in the machine."""
    database, prices = str(tmp_path / "b.duckdb"), tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nper_hour: {H100: 4.0}\n")
    stated = json.loads(Path("tests/fixtures/imports/vllm_bench_serve/summary.json").read_text())[0]
    for size, rate in ((1, 1.0), (8, 4.0)):
        file = {
            **stated,
            "model_id": MODEL,
            "max_concurrency": None,
            "request_rate": rate,
            "tensor_parallel_size": str(size),
        }
        (tmp_path / f"{size}.json").write_text(json.dumps(file))
        arguments = [str(tmp_path / f"{size}.json"), "--device", "cuda", "--hardware", "H100", "--db-path", database]
        assert import_results.main(arguments) == 0
    calls = make_run(model_id="calls")
    with Warehouse.open(Path(database)) as warehouse:
        warehouse.ingest(Alter.on_device(calls, "H100", "cuda:0", type="cuda", count=8))
        both = Alter.on_device(replace(calls, run_id="both"), "2 x H100", "cuda:0,cuda:1", type="cuda", count=8)
        warehouse.ingest(Alter.results(both, lambda one: replace(one, result_id=f"both {one.result_id}")))
    capsys.readouterr()
    of_servers = [MODEL, "--request-rate", "1", "--ttft-ms", "100000", "--share", "0.9"]
    found = {}
    for asked in (of_servers, ["calls"]):
        recommend.main([*asked, "--price", str(prices), "--json", "--db-path", database])
        document = json.loads(capsys.readouterr().out)
        options = [one for each in document.get("traffic", ()) for one in each["servers"]]
        options += [one for each in document.get("workloads", ()) for one in each["options"]]
        found |= {(one["device"], one["devices"]): one["price_per_hour"] for one in options}
    assert found == {("cuda", 1): 4.0, ("cuda", 8): 32.0, ("cuda:0", 1): 4.0, ("cuda:0,cuda:1", 2): 8.0}
