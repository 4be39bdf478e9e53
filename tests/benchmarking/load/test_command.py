"""benchhouse load against a server in the process, and its results in the warehouse."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from urllib.parse import quote

import psutil
import pytest

pytest.importorskip("httptools")

from benchmarking.commands import load_server
from benchmarking.core import load_doubts
from benchmarking.core.doubts import doubt
from benchmarking.core.errors import UsageError
from benchmarking.core.load_doubts import HIGHEST_RATE
from benchmarking.core.provenance import provenance, utc_now, uuid7
from benchmarking.core.records import REQUEST_RATE, Readings, dumps
from benchmarking.core.terminal import Page
from benchmarking.core.text import number
from benchmarking.core.untrusted.redaction import redacted_record
from benchmarking.load import curve, load_table, observer, results, served, server_load
from benchmarking.load.connections import Target
from benchmarking.load.observer import scraped
from benchmarking.load.traffic import why_unknown
from db.commands import compare, history, recommend, show
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.certificates import certificate
from tests.helpers.null_server import NullServer, Script
from tests.helpers.services import free_ports

pytestmark = pytest.mark.forked_children

METRICS = "# TYPE served counter\nserved_total 5.0\n# TYPE waiting gauge\nwaiting 2.0\n# EOF\n"


COUNTERS = """# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total {requests}
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total {requests}0
# EOF
"""
"""As vLLM's, of which a tenth comes from the cache."""


@contextmanager
def serving(script, tls=None, seen=None):
    """The address of a server in a thread of its own; `seen` gets the bodies of its requests."""
    ready, loop, found = threading.Event(), asyncio.new_event_loop(), []

    async def serve():
        async with NullServer(script, tls) as server:
            server.seen = server.seen if seen is None else seen
            found.append(server.url)
            stop = asyncio.Event()
            found.append(stop)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(found[1].set)
        thread.join()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Two levels of a real load, and a search for the highest rate, stored: (exit code, what was printed, folder of the
    database, what the search printed)."""
    folder = tmp_path_factory.mktemp("load")
    with serving(Script(ttft_s=0.002, itl_s=0.0005, metrics=METRICS)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-secret")
        said = []
        patch.setattr(load_table, "print_run", lambda run, as_json: said.append(run))
        code = load_server.main(
            [
                *("--url", url, "some-model", "--engine", "some-engine", "--request-rate", "20,40"),
                *("--num-requests", "10", "--output-length", "4", "--limit", "ttft:10s", "--capacity-seconds", "0.2"),
                *("--repetitions", "2", "--save", "--quiet", "--db-path", str(folder / "a.duckdb")),
                *("--output-dir", str(folder / "runs"), "--tag", "suite=x"),
            ]
        )
        again = [
            *("--url", url, "some-model", "--engine", "some-engine", "--request-rate", "40,80"),
            *("--num-requests", "6", "--output-length", "2", "--limit", "ttft:20s", "--capacity-seconds", "0"),
            *("--find-rate", "--save", "--quiet", "--db-path", str(folder / "a.duckdb")),
            *("--output-dir", str(folder / "searches")),
        ]
        patch.setattr(curve, "MOST_DURATIONS", 6)
        patch.setattr(curve, "WIDEST", inf)  # what is stored is tested here, not how much so few requests can tell
        patch.setattr(load_doubts, "MAX_LATENESS_SHARE", 1e6)  # the server is in this process, and delays the generator
        patch.setattr(load_doubts, "MIN_ACHIEVED_SHARE", 0.0)
        patch.setattr(results, "TOGETHER_MS", 0.0)  # and what it sends may arrive together
        assert load_server.main(again) == 0
    return code, said[0], folder, said[-1]


def test_a_load_is_stored_with_every_request_and_is_a_curve(stored):
    code, _, folder, _ = stored
    assert code == 0
    with Warehouse.open(folder / "a.duckdb", read_only=True) as warehouse:
        assert verify(warehouse) == []
        own = "WHERE tags->>'suite' = 'x'"
        curve = warehouse.query(f"SELECT * FROM load_curve {own} ORDER BY request_rate").dicts()
        of_curve = f"WHERE result_id IN (SELECT result_id FROM load_curve {own})"
        times = warehouse.query(f"SELECT * FROM request_times {of_curve}").dicts()
    assert [row["request_rate"] for row in curve] == [20.0, 40.0]
    assert {(row["runtime"], row["loop"], row["arrivals"]) for row in curve} == {("some-engine", "open", "poisson")}
    assert {(row["slo"], row["goodput_share"]) for row in curve} == {("ttft:10000ms", 1.0)}
    assert len(times) == 40
    assert {row["error"] for row in times} == {None}
    assert all(row["time_to_first_token_ms"] >= 2 for row in times)


def test_the_generators_capacity_its_processors_and_the_servers_metrics_are_stored_and_no_key(stored):
    _, run, folder, _ = stored
    facts = run.results[0].extra["load"]
    assert facts["generator_capacity_per_s"] > 0
    assert facts["generator_cpu_list"] == facts["server_cpu_list"]  # it runs in this process
    assert "shared_processors" in {one.kind for one in run.results[0].doubts}
    assert facts["server_metrics"]["served_total"] == {"after": 5.0, "change": 0.0}
    (path,) = (folder / "runs").glob("load_*.json")
    assert "sk-secret" not in path.read_text()
    assert [len(facts[name]) for name in ("activity", "arrival_seeds")] == [2, 2], "one for each repetition"
    assert facts["activity"][0]["elapsed_s"] > 0
    assert run.provenance.command[:3] == ("benchhouse", "load", "--url")  # as it is typed


def test_runs_that_start_in_the_same_second_have_files_of_their_own(stored, tmp_path):
    runs = [replace(stored[1], run_id=uuid7()) for _ in range(3)]
    paths = [load_server._written(run, tmp_path) for run in runs]
    assert [json.loads(path.read_text())["run_id"] for path in paths] == [run.run_id for run in runs]


def test_a_server_that_repeats_the_key_does_not_get_it_into_any_output(tmp_path, monkeypatch, capsys):
    key = "local 4f1c-9d27+x"
    said = json.dumps({"error": {"message": f"{'a' * 180} Incorrect API key provided: {key}"}})
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with refusing(said.encode()) as url:
        asked = ["--url", url, "--model", "m", "--num-requests", "3", "--output-length", "2", "--capacity-seconds", "0"]
        folder, database = tmp_path / "runs", tmp_path / "a.duckdb"
        saved = ["--save", "--output-dir", str(folder), "--db-path", str(database)]
        assert load_server.main([*asked, *saved]) == 1
    assert show.main(["--db-path", str(database), "--json"]) == 0
    with Warehouse.open(database, read_only=True) as warehouse:
        rows = warehouse.query("SELECT error FROM request_times WHERE error IS NOT NULL").dicts()
        stored = str([warehouse.query(f"FROM {table}").dicts() for table in ("requests", "benchmark_results")])
    assert len(rows) == 3
    (path,) = folder.glob("load_*.json")
    for text in (path.read_text(), stored, *capsys.readouterr()):
        assert not any(part in text for part in ("4f1c-9", "local 4", quote(key)))


@contextmanager
def refusing(body):
    """A server that refuses every request with this body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("flags", "shares"), [((), [0.1]), (("--endpoint", "chat"), []), (("--shared-prefix", "0.5"), [])]
)
def test_a_prefix_cache_is_detected_from_server_counters_if_replies_do_not_report_it(flags, shares, monkeypatch):
    said = []
    monkeypatch.setattr(load_table, "print_run", lambda run, as_json: said.append(run))
    with serving(Script(ttft_s=0, itl_s=0, metrics=COUNTERS)) as url:
        asked = ("m", "--url", url, "--num-requests", "6", "--output-length", "2", *flags)
        assert load_server.main([*asked, "--capacity-seconds", "0", "--no-save", "--quiet"]) == 0
    found = [one.evidence["cached_share"] for one in said[0].results[0].doubts if one.kind == "prefix_cache_hit"]
    assert found == pytest.approx(shares)


def test_a_contended_machine_is_a_doubt_about_a_load(monkeypatch):
    """Steal of 10 %, and 3 s of waits of one thread in 10 s."""
    pressure = {"avg10_percent": 95.0, "total_us": 0}
    readings = [
        Readings(
            values={
                "steal": {"steal": 1000 * after, "total": 10_000 * after},
                "cpu_pressure": pressure,
                "run_queue": {"1": [5_000_000_000 * after, 3_000_000_000 * after]},
            }
        )
        for after in (0, 1)
    ]
    monkeypatch.setattr(server_load.machine_state, "counters", lambda processes: readings.pop(0))
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(server_load.time, "monotonic", lambda: next(clock))
    window = server_load.Activity([]).close()
    kinds = {one.kind for one in server_load.about_window(window, is_accelerator=False)}
    assert kinds == {"cpu_pressure", "run_queue_wait", "steal"}


@pytest.mark.parametrize(("flags", "length", "facts"), [((), 5, {"prompt_tokens": 7}), (("--prompt-ids", "50"), 7, {})])
def test_words_have_the_length_that_was_asked_for_and_token_ids_the_servers_count(flags, length, facts, monkeypatch):
    """The count of words varies with the words: runs of one series would have different points."""
    said = []
    monkeypatch.setattr(load_table, "print_run", lambda run, as_json: said.append(run))
    with serving(Script(ttft_s=0, itl_s=0)) as url:  # which counts 7
        asked = ("m", "--url", url, "--num-requests", "4", "--input-length", "5", "--output-length", "2", *flags)
        assert load_server.main([*asked, "--capacity-seconds", "0", "--no-save", "--quiet"]) == 0
    (result,) = said[0].results
    assert result.point.sequence_length == length
    assert {name: value for name, value in result.extra["load"].items() if name == "prompt_tokens"} == facts
    assert set(result.requests[0].tokens_in) == {7}


def test_all_requests_at_once_have_no_rate(monkeypatch):
    said = []
    monkeypatch.setattr(load_table, "print_run", lambda run, as_json: said.append(run))
    with serving(Script(ttft_s=0.01, itl_s=0)) as url:
        asked = ("--url", url, "--model", "m", "--num-requests", "6", "--output-length", "2", "--request-rate", "inf")
        assert load_server.main([*asked, "--capacity-seconds", "0", "--no-save", "--quiet"]) == 0
    (result,) = said[0].results
    assert (result.point.axes, len(set(result.requests[0].intended_ms))) == ({}, 1)
    assert said[0].cell.runtime_mode["arrivals"] == "at_once"
    assert load_table._level_text(result) == "all at once"


def test_metrics_are_read_over_tls_with_the_trusted_certificates_alone(tmp_path):
    context, ca_file = certificate(tmp_path, "127.0.0.1")
    with serving(Script(metrics=METRICS), context) as url:
        assert scraped(Target(url=url, model="m", ca_file=ca_file)) == {"served_total": 5.0, "waiting": 2.0}
        assert scraped(Target(url=url, model="m")) == {}


def test_a_server_that_is_not_running_is_reported_before_the_load(capsys):
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/v1"
    assert load_server.main(["--url", url, "--model", "m", "--capacity-seconds", "60"]) == 1
    assert capsys.readouterr() == (
        "",
        f"benchhouse load: error: --url {url}: cannot connect (Connection refused): start the server, or correct the "
        "address\n",
    )


@pytest.mark.parametrize(
    ("pages", "answer"),
    [
        ({"/v1/models": '{"data": [{"id": "own-name"}]}'}, None),
        ({"/v1/models": '{"data": [{"id": "a"}, {"id": "b"}]}'}, "give one of a, b: {url}/models lists 2\n"),
        ({"/v1/models": '{"data": [3, {"id": null}]}'}, "give its name on the server: {url}/models lists none\n"),
        ({}, "give its name on the server: {url}/models cannot be read (no JSON)\n"),
    ],
)
def test_without_a_model_the_only_one_of_the_server_is_loaded(pages, answer, monkeypatch, capsys):
    said = []
    monkeypatch.setattr(load_table, "print_run", lambda run, as_json: said.append(run))
    with serving(Script(ttft_s=0, itl_s=0, pages=pages)) as url:
        asked = ("--url", url, "--num-requests", "2", "--output-length", "2", "--capacity-seconds", "0.01", "--no-save")
        code = load_server.main([*asked])
    if answer is None:
        assert (code, said[0].cell.workload.model_id) == (0, "own-name")
    else:
        assert (code, said) == (2, [])
        error = capsys.readouterr().err  # one line, before the generator is measured
        assert error == f"benchhouse load: error: MODEL is missing: {answer.format(url=url)}"


@pytest.mark.parametrize("model", [(), ("m",)])
def test_a_certificate_that_is_not_trusted_is_named_before_the_load(model, tmp_path, capsys):
    context, _ = certificate(tmp_path, "127.0.0.1")
    with serving(Script(pages={"/v1/models": '{"data": [{"id": "m"}]}'}), context) as url:
        assert load_server.main([*model, "--url", url, "--no-save"]) == 1
        asked = f"benchhouse load: error: --url {url}: its certificate is not trusted (self-signed certificate): "
        assert capsys.readouterr().err.startswith(asked)


def test_a_page_of_models_that_needs_a_key_is_not_called_empty(monkeypatch):
    monkeypatch.setattr(served, "fetch", lambda target, path: (401, '{"error": "no key"}'))
    found = served.models_at(Target(url="http://localhost/v1", model=""))
    assert found == ([], "status 401: the server's key goes in $OPENAI_API_KEY")


def test_a_locked_page_of_models_is_named_before_a_load_with_a_model(monkeypatch, capsys):
    monkeypatch.setattr(served, "fetch", lambda target, path: (401, '{"error": "no key"}'))
    with serving(Script(ttft_s=0, itl_s=0)) as url:
        asked = ("--url", url, "--num-requests", "2", "--output-length", "2", "--capacity-seconds", "0", "--no-save")
        assert load_server.main(["m", *asked, "--quiet"]) == 0
    why = "cannot be read (status 401: the server's key goes in $OPENAI_API_KEY)\n"
    assert f"{url}/models {why}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("has_own_certificate", "is_trusted", "closes", "why"),
    [
        (True, False, False, "cannot be read (its certificate is not trusted: self-signed certificate)"),
        (True, True, False, "shows no metrics of a DCGM exporter or node exporter"),
        (False, False, True, "cannot be read (it closes the connection without an answer)"),
        (False, False, False, "shows no metrics of a DCGM exporter or node exporter"),
    ],
)
def test_why_device_metrics_cannot_be_used_is_said(has_own_certificate, is_trusted, closes, why, tmp_path, capsys):
    tls, ca_file = certificate(tmp_path, "127.0.0.1") if has_own_certificate else (None, None)
    trusted = ("--ca-file", ca_file) if is_trusted else ()
    with serving(Script()) as url, serving(Script(closes_gets=closes), tls) as exporter:
        assert load_server.main(["m", "--url", url, "--device-metrics", exporter, "--no-save", *trusted]) == 2
    said = f"benchhouse load: error: --device-metrics {exporter}: /metrics there {why}: start an exporter, or correct"
    assert said in capsys.readouterr().err


def test_the_status_of_device_metrics_that_cannot_be_read_is_said(monkeypatch):
    monkeypatch.setattr(observer, "fetch", lambda target, path: (401, ""))
    with pytest.raises(UsageError, match=re.escape("/metrics there cannot be read (status 401): ")):
        load_server._exporter("http://127.0.0.1:9400")


@pytest.mark.parametrize(
    ("model", "said"), [("own-nmae", "the server lists own-name, not own-nmae: "), ("own-name", "")]
)
def test_a_model_that_the_server_does_not_list_is_named(model, said, monkeypatch, capsys):
    monkeypatch.setattr(load_table, "print_run", lambda run, as_json: None)
    with serving(Script(ttft_s=0, itl_s=0, pages={"/v1/models": '{"data": [{"id": "own-name"}]}'})) as url:
        asked = ("--url", url, "--num-requests", "2", "--output-length", "2", "--capacity-seconds", "0", "--no-save")
        assert load_server.main([model, *asked, "--quiet"]) == 0
    err = capsys.readouterr().err
    assert ("the server lists" in err) == bool(said)
    assert said in err


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("", "its API is at {url}: give that"),
        ("/", "its API is at {url}: give that"),
        ("/v1/chat/completions", "the address before the endpoint: {url}, with --endpoint chat"),
        ("/v1/completions/", "the address before the endpoint: {url}, with --endpoint completions"),
    ],
)
def test_an_address_beside_that_of_the_api_is_answered_with_it(path, answer, capsys):
    with serving(Script(pages={"/v1/models": '{"data": [{"id": "m"}]}'})) as url:
        code = load_server.main(["m", "--url", url.removesuffix("/v1") + path, "--no-save"])
    assert code == 2
    assert answer.format(url=url) in capsys.readouterr().err


def anonymous_run(address, results, monkeypatch, tmp_path):
    """The record of a load with --anonymous, as JSON, with the address wherever a record may contain it."""
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: tmp_path)
    monkeypatch.setattr(load_server, "check_listening", lambda target: None)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: [(2, 1, 6, "", ("10.9.8.7", 0))])
    server_load.is_here.cache_clear()
    command = [
        "--url",
        f"http://{address}/v1",
        "--model",
        "m",
        "--engine",
        "vllm",
        "--capacity-seconds",
        "0",
        "--quiet",
    ]
    arguments = load_server._parser().parse_args([*command, "--anonymous"])
    target = load_server._named_target(arguments, print)
    load = load_server._server_load(arguments, {}, load_server._traffics(arguments)[0], target, print)
    result = results[0]
    facts = {"load": {**result.extra["load"], "url": load.target.url}}
    details = tuple("Connect call failed ('10.9.8.7', 8000)" for _ in result.requests[0].detail)
    failed = replace(
        result,
        status="failed",
        error=f"cannot connect to {address}",
        extra=facts,
        requests=(replace(result.requests[0], detail=details),),
    )
    about = provenance(("benchhouse", "load", *command), {}, None)
    run = load.run([failed], {}, about, utc_now(), is_open=True)
    return run, dumps(redacted_record(run, anonymous=True))


def test_an_anonymous_load_does_not_contain_the_servers_address(stored, monkeypatch, tmp_path):
    results, runs = stored[1].results, {}
    for address in ("gpu-17.acme.example:8000", "10.1.2.3:8000", "vllm:8000", "vllm"):
        runs[address], text = anonymous_run(address, results, monkeypatch, tmp_path)
        host = address.split(":")[0]
        assert "10.9.8.7" not in text
        assert host not in text if host != "vllm" else "vllm:8000" not in text and "//vllm" not in text
        assert runs[address].cell.runtime == "vllm", "a word that a host is called like stays"
        assert re.fullmatch(r"server-[0-9a-f]{16}", runs[address].hardware.device.name)
    again, _ = anonymous_run("10.1.2.3:8000", results, monkeypatch, tmp_path)
    assert again.hardware.hardware_id == runs["10.1.2.3:8000"].hardware.hardware_id
    assert len({run.hardware.hardware_id for run in runs.values()}) == len(runs)


def test_a_server_on_this_machine_is_one_under_every_address_of_it(stored, monkeypatch):
    """Servers print 0.0.0.0 as their address, and scripts name the machine."""
    run, known = stored[1], socket.getaddrinfo
    own = next(one.address for each in psutil.net_if_addrs().values() for one in each if one.family == socket.AF_INET)
    names = {"this-machine": [own], "balanced": [own, "192.0.2.1"], "elsewhere": ["192.0.2.1"]}

    def resolved(host, *rest):
        return [(2, 1, 6, "", (one, 0)) for one in names[host]] if host in names else known(host, *rest)

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    server_load.is_here.cache_clear()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        found = {}
        for host in ("127.0.0.1", "0.0.0.0", "127.0.0.2", "[::1]", "localhost", own, *names, "no-such.invalid"):
            arguments = load_server._parser().parse_args(["--url", f"http://{host}:{port}/v1", "--model", "m"])
            target = Target(url=arguments.url, model="m")
            load = load_server._server_load(arguments, {}, load_server._traffics(arguments)[0], target, print)
            made = load.run(run.results[:1], {}, run.provenance, utc_now(), is_open=True)
            is_another = made.cell.device.name == f"{host}:{port}" and made.hardware.cpu_model is None
            found[host] = (os.getpid() in load.server_pids, is_another)
    server_load.is_here.cache_clear()
    others = {host for host, each in found.items() if each == (False, True)}
    assert others == {"balanced", "elsewhere", "no-such.invalid"}
    assert {each for host, each in found.items() if host not in others} == {(True, False)}


def test_levels_that_failed_for_the_same_reason_are_one_line(stored, capsys):
    level = replace(stored[1].results[0], status="failed", error="the server did not start", requests=(), metrics={})
    levels = tuple(replace(level, point=replace(level.point, axes={REQUEST_RATE: at})) for at in (1.0, 2.0, 4.0, 8.0))
    other = replace(level, error="another reason")
    load_table.print_run(replace(stored[1], results=(*levels, other)), as_json=False)
    lines = " ".join(capsys.readouterr().out.split())
    assert lines.count("the server did not start") == lines.count("another reason") == 1
    assert "1/s, 2/s, 4/s +1: failed: the server did not start" in lines


def test_a_knee_and_a_simulation_are_explained_below_the_table(stored, capsys):
    run = stored[1]
    load_table.print_run(run, as_json=False)
    assert "knee" not in (shown := capsys.readouterr().out)
    assert "simulated" not in shown
    first, *others = run.results
    at_knee = replace(first, extra={**first.extra, "load": {**first.extra["load"], "is_knee": True}})
    device = replace(run.cell.device, simulated=True)
    load_table.print_run(replace(run, cell=replace(run.cell, device=device), results=(at_knee, *others)), as_json=False)
    shown = capsys.readouterr().out
    assert "(knee)" in shown
    assert "\nknee: the last level before the throughput nearly stops growing with the load\n" in shown
    assert "\nsimulated: the numbers come from a script or an emulator, not from a device\n" in shown


@pytest.mark.parametrize(("levels", "words"), [(1, "1 of 2 levels measured and saved"), (0, "0 of 2 levels measured;")])
def test_an_interrupted_load_says_how_many_levels_it_keeps(levels, words, tmp_path, monkeypatch, capsys):
    measured, done = server_load.ServerLoad.measured, []

    def interrupted(load, level):
        if len(done) == levels:
            raise KeyboardInterrupt
        done.append(level)
        return measured(load, level)

    monkeypatch.setattr(server_load.ServerLoad, "measured", interrupted)
    with serving(Script(ttft_s=0, itl_s=0)) as url:
        asked = ("--url", url, "m", "--concurrency", "1,2", "--num-requests", "4", "--capacity-seconds", "0")
        kept = ("--db-path", str(tmp_path / "a.duckdb"), "--output-dir", str(tmp_path / "runs"))
        assert load_server.main([*asked, *kept, "--output-length", "2", "--quiet"]) == 130
    *_, kept, last = capsys.readouterr().err.splitlines()
    assert kept.startswith(words)
    assert kept.endswith("; the unfinished one is not kept")
    assert last == "benchhouse load: interrupted"
    assert len([*(tmp_path / "runs").glob("load_*.json")]) == levels


def test_an_error_in_a_level_leaves_the_levels_before_it(tmp_path, monkeypatch, capsys):
    measured = server_load.ServerLoad.measured

    def failing(load, level):
        if level.concurrency == 2:
            raise TypeError("an error of ours")
        return measured(load, level)

    monkeypatch.setattr(server_load.ServerLoad, "measured", failing)
    with serving(Script(ttft_s=0, itl_s=0)) as url, suppress(TypeError):
        asked = ("--url", url, "m", "--concurrency", "1,2", "--num-requests", "4", "--capacity-seconds", "0")
        kept = ("--db-path", str(tmp_path / "a.duckdb"), "--output-dir", str(tmp_path / "runs"))
        assert load_server.main([*asked, *kept, "--output-length", "2", "--quiet"]) == 1
    assert "1 in flight" in capsys.readouterr().out
    assert len([*(tmp_path / "runs").glob("load_*.json")]) == 1


def test_a_character_that_arrives_in_two_halves_is_counted_as_one(tmp_path, monkeypatch):
    class Tokens:
        def encode(self, text, add_special_tokens):
            return [*text.encode()]

    monkeypatch.setattr("benchmarking.workloads.support.processing.load", lambda *_: Tokens())
    (tmp_path / "tokenizer.json").touch()
    count = server_load.tokenizer(tmp_path)
    assert (count("\ud83d" + "\ude00"), count("a\ud83d"), count("é")) == (4, 4, 2)


def test_an_interrupted_search_stores_the_answer_of_its_levels_which_recommend_names(tmp_path, monkeypatch, capsys):
    measured, rates = server_load.ServerLoad.measured, []

    def interrupted(load, level):
        if len(rates) == 2:
            raise KeyboardInterrupt
        rates.append(level.rate)
        return measured(load, level)

    monkeypatch.setattr(server_load.ServerLoad, "measured", interrupted)
    monkeypatch.setattr(curve, "WIDEST", inf)
    monkeypatch.setattr(load_doubts, "MAX_LATENESS_SHARE", 1e6)  # the server is in this process
    monkeypatch.setattr(load_doubts, "MIN_ACHIEVED_SHARE", 0.0)
    database = ["--db-path", str(tmp_path / "a.duckdb")]
    with serving(Script(ttft_s=0.002, itl_s=0.0005)) as url:
        words = ["--url", url, "m", "--request-rate", "40,80", "--find-rate", "--limit", "ttft:20s", "--share", "0.8"]
        words += [
            "--save",
            "--num-requests",
            "60",
            "--output-length",
            "2",
            "--capacity-seconds",
            "0",
            "--quiet",
            *database,
        ]
        assert load_server.main([*words, "--output-dir", str(tmp_path / "runs")]) == 130
    shown, err = capsys.readouterr()
    assert "so far: the answer is that of the levels until now" in err
    (rate,) = re.findall(r"within the limits is ([\d.]+) requests/s", " ".join(shown.split()))
    assert recommend.main(["m", "--request-rate", "1", "--ttft-ms", "20000", "--share", "0.8", *database]) == 0
    assert f"a search found {rate} requests/s (95 % interval" in " ".join(capsys.readouterr().out.split())


def test_a_load_that_is_interrupted_after_its_levels_has_no_unfinished_one(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(load_server, "_measure_quality", interrupted)
    with serving(Script(ttft_s=0, itl_s=0)) as url:
        asked = ("--url", url, "m", "--concurrency", "1,2", "--num-requests", "4", "--output-length", "2", "--quality")
        kept = ("--db-path", str(tmp_path / "a.duckdb"), "--output-dir", str(tmp_path / "runs"))
        assert load_server.main([*asked, *kept, "--capacity-seconds", "0", "--quiet"]) == 130
    assert capsys.readouterr().err.splitlines()[-2] == "2 of 2 levels measured and saved"


def test_the_table_shows_the_levels_and_the_doubts(stored, capsys):
    load_table.print_run(stored[1], as_json=False)
    shown = capsys.readouterr().out
    assert "20/s" in shown
    assert "goodput/s" in shown
    assert "shared_processors" in shown
    load_table.print_run(stored[1], as_json=True)
    assert json.loads(capsys.readouterr().out)["results"][0]["requests"] == []


def test_a_search_is_stored_but_is_not_a_level_of_the_curve(stored):
    with Warehouse.open(stored[2] / "a.duckdb", read_only=True) as warehouse:
        assert verify(warehouse) == []
        curve = warehouse.query("SELECT * FROM load_curve WHERE slo = 'ttft:20000ms'").dicts()
        found = warehouse.query(f"SELECT other_metrics['{HIGHEST_RATE}'] AS rate, axes FROM benchmark_results").dicts()
    assert len({row["request_rate"] for row in curve}) == len(curve) >= 3
    (search,) = [row for row in found if row["rate"] is not None]
    assert 40 <= search["rate"] <= 80
    assert search["axes"] == "{}"


def test_the_highest_rate_is_judged_between_runs(stored, empty_database, tmp_path, capsys):
    database = str(shutil.copy(empty_database, tmp_path / "nights.duckdb"))
    with Warehouse.open(database) as warehouse:
        for night, rate in enumerate((80.0, 40.0), 1):
            warehouse.ingest(of_night(stored[3], night, rate))
    arguments = ("--metric", HIGHEST_RATE, "--db-path", database, "--json")
    assert history.main(arguments) == 0
    (series,) = json.loads(capsys.readouterr().out)
    assert [point["value"] for point in series["points"]] == [80.0, 40.0]
    show.main(["--db-path", database, "--rows", "100"])
    assert "40/s" in capsys.readouterr().out  # the rate itself, not only the latency at it
    compare.main(["tag.night=1", "tag.night=2", *arguments])
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["judgement"]["change"] == pytest.approx(-0.5)


def of_night(run, night, rate):
    """The run of a search with another rate as what it found, without the doubts that a busy machine gives it."""
    *_, found = run.results
    facts = [{**one, "metrics": {**one["metrics"], HIGHEST_RATE: rate}} for one in found.extra["launches"]]
    altered = replace(
        found,
        result_id=uuid7(),
        doubts=(),
        validity="valid",
        metrics={**found.metrics, HIGHEST_RATE: rate},
        extra={**found.extra, "launches": facts},
    )
    about = replace(run.provenance, tags={"night": str(night)})
    at = f"2026-03-0{night}T00:00:00+00:00"
    return replace(run, run_id=uuid7(), started_at=at, finished_at=at, provenance=about, results=(altered,))


def test_a_stored_search_is_shown_as_one(stored, capsys):
    assert show.main(["model=some-model", "--db-path", str(stored[2] / "a.duckdb")]) == 0
    table = capsys.readouterr().out.split("\n\n")[1]  # the notes below it name points, too
    rows = [line for line in table.splitlines() if " b1 s128 " in line]
    assert [" b1 s128 n2 highest rate " in row for row in rows].count(True) == 1
    assert len(rows) >= 5
    assert show.main(["model=some-model", "--json", "--db-path", str(stored[2] / "a.duckdb")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["axes"] for row in rows if row["is_search"]] == ["{}"]
    assert len(rows) > 1


def test_the_lengths_of_a_grid_are_curves_of_their_own_in_the_table_and_in_the_warehouse(tmp_path, capsys):
    seen = []
    with serving(Script(ttft_s=0.001, itl_s=0.0005), seen=seen) as url:
        code = load_server.main(
            [
                *("--url", url, "some-model", "--concurrency", "1,2", "--lengths", "8/2,24/3"),
                *("--num-requests", "4", "--warmup-requests", "0", "--capacity-seconds", "0", "--save", "--quiet"),
                *("--db-path", str(tmp_path / "a.duckdb"), "--output-dir", str(tmp_path)),
            ]
        )
    table = capsys.readouterr().out
    pairs = ["8/2", "24/3"]
    assert code == 0
    rows = [line.split() for line in table.splitlines() if " in flight " in line and not line.startswith(" ")]
    assert [row[0] for row in rows if row[0] in pairs] == [pair for pair in pairs for _ in range(2)]
    with Warehouse.open(tmp_path / "a.duckdb", read_only=True) as warehouse:
        curves = warehouse.query(
            "SELECT (run.runtime_mode->>'lengths_in') || '/' || (run.runtime_mode->>'lengths_out') AS lengths, "
            "run.session_id, count(DISTINCT curve_id) AS curves, count(DISTINCT run_id) AS runs, count(*) AS levels "
            "FROM load_curve JOIN benchmark_runs run USING (run_id) GROUP BY ALL"
        ).dicts()
    assert sorted(row["lengths"] for row in curves) == sorted(pairs)
    assert {(row["curves"], row["runs"], row["levels"]) for row in curves} == {(1, 1, 2)}
    assert len({row["session_id"] for row in curves}) == 1
    prompts = [body["prompt"] for body in seen]
    assert len({prompt[:8] for prompt in prompts}) == len(prompts), "no pair repeats what another has put into a cache"


def test_lists_of_lengths_multiply():
    parsed = load_server._parser().parse_args(["m", "--input-length", "8,uniform:1-9", "--output-length", "2,2,3"])
    assert [one.lengths for one in load_server._traffics(parsed)] == ["8/2", "8/3", "uniform:1-9/2", "uniform:1-9/3"]


def test_a_search_has_one_answer_in_the_table_in_the_sentence_and_in_recommend(stored, capsys):
    load_table.print_run(stored[3], as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    ((words, rate),) = re.findall(r"highest rate within the limits is ((?:at least )?([\d.]+) requests/s)", shown)
    assert "(highest" not in shown
    low = next(
        one.metrics["highest_request_rate_ci_low_per_sec"] for one in stored[3].results if load_table.is_search(one)
    )
    assert f"; deploy for up to {number(low)} requests/s, the lower end: " in shown
    assert f"--fail-on missed in place of --find-rate, and --request-rate {low:g} or less" in shown
    assert f"benchhouse recommend some-model --request-rate {low:g} --limit LIMITS" in shown
    arguments = ("some-model", "--request-rate", "1", "--ttft-ms", "20000", "--db-path", str(stored[2] / "a.duckdb"))
    assert recommend.main(arguments) == 0
    assert f"a search found {words}" in " ".join(capsys.readouterr().out.split())
    levels = [replace(one, validity="valid" if load_table.is_search(one) else "invalid") for one in stored[3].results]
    load_table.print_run(replace(stored[3], results=tuple(levels)), as_json=False)
    count = len(levels) - 1
    said = f"but {count} of its {count} levels are invalid, none of them left out of the answer: see the doubts below"
    assert said in " ".join(capsys.readouterr().out.split())
    assert recommend.main([*arguments, "--json"]) == 0
    servers = [one for each in json.loads(capsys.readouterr().out)["traffic"] for one in each["servers"]]
    assert float(rate) in [one["holds_up_to"] for one in servers]


def of_levels(run, *levels):
    """The run with levels of these rates, shares of requests within the limits, and doubts."""
    template = run.results[0]
    found = []
    for rate, share, *kinds in levels:
        metrics = {**template.metrics, "goodput_share": share, "requests_failed": 0.0, "requests_sent": 100.0}
        found.append(
            replace(
                template,
                point=replace(template.point, axes={"request_rate": rate}),
                metrics={name: value for name, value in metrics.items() if value is not None},
                doubts=tuple(map(doubt, kinds)),
                extra={},
                validity="invalid" if kinds else "valid",
            )
        )
    return replace(run, results=tuple(found))


def test_a_level_of_requests_that_are_sent_at_once_has_one_name(stored, capsys):
    (level,) = of_levels(stored[1], (5.0, 1.0)).results
    missing = {**level.missing, "time_per_output_token_ms": "not_supported: no tokens"}
    metrics = {name: value for name, value in level.metrics.items() if name != "time_per_output_token_ms"}
    at_once = replace(level, point=replace(level.point, axes={}), extra={"load": {"is_at_once": True}})
    at_once = replace(at_once, metrics=metrics, missing=missing)
    load_table.print_run(replace(stored[1], results=(at_once,)), as_json=False)
    shown = capsys.readouterr().out
    assert "unknown at all at once: no tokens" in shown
    assert "in flight" not in shown


def test_failed_requests_are_named_by_their_kinds(stored, capsys):
    run = of_levels(stored[1], (5.0, 1.0))
    (level,) = run.results
    kinds = ("http_503", "http_429", "http_503")
    failing = replace(level.requests[0], error=(*kinds, *level.requests[0].error[3:]))
    load_table.print_run(replace(run, results=(replace(level, requests=(failing,)),)), as_json=False)
    assert "5/s: failed requests: 2 http_503, 1 http_429" in capsys.readouterr().out.splitlines()


def test_only_the_times_that_are_unknown_are_named(stored):
    requests = stored[1].results[0].requests[0]
    uncounted = replace(requests, meets_limits=(None,) * len(requests), tokens_out=(None,) * len(requests))
    why = why_unknown([uncounted], {"ttft": 5.0, "tpot": 5.0})
    assert why.startswith("the time per output token of 10 of 10 requests is unknown")


def test_medians_that_do_not_add_up_to_the_latency_are_explained(stored, capsys):
    run = of_levels(stored[1], (5.0, 1.0))
    (level,) = run.results
    metrics = {**level.metrics, "time_to_first_token_ms": 1.0, "time_per_output_token_ms": 1.0}
    for latency, lag, words in (
        (4.1, 0.0, ""),
        (6.2, 0.0, "times add up in each request, but their medians do not: 5/s"),
        (204.0, 200.0, "responses end long after their last token: 5/s (200 ms)"),
    ):
        ends = tuple(tuple(one.last_token_ms) for one in level.requests)
        requests = tuple(
            replace(one, end_ms=tuple(at + lag for at in last)) for one, last in zip(level.requests, ends, strict=True)
        )
        altered = replace(level, metrics={**metrics, "latency_median_ms": latency}, requests=requests)
        load_table.print_run(replace(run, results=(altered,)), as_json=False)
        shown = capsys.readouterr().out
        assert words in shown.splitlines() or not words
        assert ("add up" in shown, "last token" in shown) == ("add up" in words, "last token" in words)


@pytest.mark.parametrize(
    ("levels", "sentence"),
    [
        ([(5.0, 1.0), (20.0, 0.99)], "at least 99% of the requests met ttft:10000ms at 5/s, 20/s"),
        (
            [(5.0, 1.0), (60.0, 0.984), (90.0, 0.995, "over_saturated")],
            "at least 99% of the requests met ttft:10000ms at 5/s; not at 60/s (98.4%: 2 of 100), 90/s "
            "(over_saturated); shares are of all requests, goodput/s is of the steady state",
        ),
        (
            [(5.0, 0.5)],
            "no level holds: fewer than 99% of the requests met ttft:10000ms at 5/s (50.0%); "
            "shares are of all requests, goodput/s is of the steady state",
        ),
        (
            [(5.0, 0.5), (6.0, None)],
            "no level is known to hold: fewer than 99% of the requests met ttft:10000ms at 5/s (50.0%); "
            "not judged: 6/s (unknown); shares are of all requests, goodput/s is of the steady state",
        ),
        ([(5.0, 1.0, "rate_not_achieved"), (6.0, None)], "not judged: 5/s (rate_not_achieved), 6/s (unknown)"),
    ],
)
def test_the_rates_that_hold_are_named_in_one_sentence(stored, levels, sentence, capsys):
    load_table.print_run(of_levels(stored[1], *levels), as_json=False)
    assert f" {sentence} " in " ".join(capsys.readouterr().out.split()) + " "


@pytest.mark.parametrize(
    ("outside", "count", "words"),
    [
        (1, 50, "not judged: 5/s (50 requests cannot tell 99%, 100 can)"),
        (2, 50, "fewer than 99% of the requests met ttft:10000ms at 5/s (96.0%: 2 of 50)"),
        (2, 150, "fewer than 99% of the requests met ttft:10000ms at 5/s (98.7%: 2 of 150)"),
        (3, 50, "at 5/s (94.0%)"),
        (2, 200, "at least 99% of the requests met ttft:10000ms at 5/s"),
        (0, 50, "not judged: 5/s (50 requests cannot tell 99%, 100 can)"),
    ],
)
def test_a_level_holds_misses_or_does_not_tell_by_the_rule_of_the_gate(stored, outside, count, words, capsys):
    """Of fewer than 100 requests, a single one is above 1 %, and more of them could show that it holds."""
    run = of_levels(stored[1], (5.0, 1 - outside / count))
    (level,) = run.results
    requests = replace(level.requests[0], meets_limits=(False,) * outside + (True,) * (count - outside))
    level = replace(level, requests=(requests,), metrics={**level.metrics, "requests_sent": count})
    load_table.print_run(replace(run, results=(level,)), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert words in shown
    code = curve.limits_outcome([level], "missed").exit_code
    assert code == (3 if "not judged" in words else 1 if "(" in words else 0)


@pytest.mark.parametrize(
    ("levels", "missed", "all_missed"),
    [
        ([(5.0, 1.0), (20.0, 0.99)], 0, 0),
        ([(5.0, 1.0), (60.0, 0.984)], 1, 0),
        ([(5.0, 0.5)], 1, 1),
        ([(5.0, 0.5), (6.0, 1.0, "over_saturated")], 1, 1),
        ([(5.0, 1.0, "rate_not_achieved"), (6.0, 1.0)], 3, 0),
        ([(5.0, 1.0, "late_generator"), (6.0, 1.0)], 0, 0),
        ([(5.0, 0.5, "late_generator"), (6.0, 1.0)], 3, 0),
        ([(5.0, 0.5), (6.0, None)], 1, 3),
        ([(6.0, None)], 3, 3),
    ],
)
def test_missed_limits_fail_a_gate_that_asks_and_what_is_unknown_is_neither_met_nor_missed(
    stored, levels, missed, all_missed
):
    results = [replace(one, requests=()) for one in of_levels(stored[1], *levels).results]
    codes = [curve.limits_outcome(results, asked).exit_code for asked in ("missed", "all-missed")]
    assert codes == [missed, all_missed]


def test_few_requests_within_the_limits_do_not_pass_a_gate(stored, capsys):
    """The 99th percentile of ten is unknown, and what is unknown is not met."""
    (level,) = of_levels(stored[1], (5.0, 1.0)).results

    def sent(count, outside=0):
        metrics = {**level.metrics, "requests_sent": count, "goodput_share": 1 - outside / count}
        return replace(level, requests=(), metrics=metrics)

    def gated(*counts):
        return curve.limits_outcome([sent(*counts)], "missed")

    assert gated(10).exit_code == 3
    assert "not known at 1 of 1 level: 10 requests cannot tell 99%: use 100 or more" in gated(10).text
    assert gated(100).exit_code == 0
    assert gated(60, 1).exit_code == 3, "40 more that meet them would do"
    assert gated(60, 2).exit_code == 1
    load_table.print_run(replace(stored[1], results=(sent(10), sent(100))), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "at least 99% of the requests met ttft:10000ms at 5/s; not judged: 5/s (10 requests cannot tell 99%, 100 can)"
        in shown
    )


def test_all_requests_are_told_by_no_fewer_than_nearly_all(stored, capsys):
    """A level of one request passed a gate on 100 %, and one of 999 none on 99.9 %."""
    (level,) = of_levels(stored[1], (5.0, 1.0)).results

    def sent(share, count, outside=0):
        metrics = {**level.metrics, "requests_sent": count, "goodput_share": 1 - outside / count}
        extra = {**level.extra, "load": {"required_share": share}}
        return replace(level, requests=(), metrics=metrics, extra=extra)

    for share in (0.999, 1.0):
        outcomes = [curve.limits_outcome([sent(share, *counts)], "missed") for counts in ((1,), (999,), (1000,))]
        assert [one.exit_code for one in outcomes] == [3, 3, 0]
        assert f"1 request cannot tell {100 * share:g}%: use 1000 or more" in outcomes[0].text
    assert curve.limits_outcome([sent(1.0, 3, 1)], "missed").exit_code == 1, "more would not help"
    load_table.print_run(replace(stored[1], results=(sent(1.0, 1), sent(1.0, 1000))), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "100% of the requests met" in shown
    assert "at least 100%" not in shown
    assert "(1 request cannot tell 100%, 1000 can)" in shown


def test_a_level_that_misses_holds_together_with_higher_ones_that_did_better(stored, capsys):
    levels = of_levels(stored[1], (5.0, 0.98), (10.0, 1.0), (20.0, 1.0), (40.0, 0.5)).results
    levels = [
        replace(one, requests=(), metrics={**one.metrics, "requests_sent": count})
        for one, count in zip(levels, (100, 400, 800, 400), strict=True)
    ]
    assert curve.limits_outcome(levels[:3], "missed").exit_code == 0
    assert curve.limits_outcome(levels, "missed").text.endswith("the limits were missed at 1 of 4 levels")
    assert curve.limits_outcome(levels[:2], "missed").exit_code == 1, "chance may be all that passes"
    load_table.print_run(replace(stored[1], results=tuple(levels)), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "met ttft:10000ms at 5/s (98.0%, pooled 99.8%), 10/s, 20/s; not at 40/s (50.0%)" in shown
    assert "pooled: with the requests of higher rates that did better" in shown


def test_a_share_of_its_own_decides_how_many_requests_pass_a_gate(stored, capsys):
    (level,) = of_levels(stored[1], (5.0, 1.0)).results
    load = {"required_share": 0.95}

    def sent(count, outside=0):
        metrics = {**level.metrics, "requests_sent": count, "goodput_share": 1 - outside / count}
        metrics |= {"time_to_first_token_p95_ms": 5.0}
        return replace(level, requests=(), metrics=metrics, extra={**level.extra, "load": load})

    def gated(*counts):
        return curve.limits_outcome([sent(*counts)], "missed")

    assert "10 requests cannot tell 95%: use 20 or more" in gated(10).text
    assert [gated(*counts).exit_code for counts in ((10,), (20,), (40, 2), (40, 3))] == [3, 0, 0, 1]
    load_table.print_run(replace(stored[1], results=(sent(40, 2),)), as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "at least 95% of the requests met ttft:10000ms at 5/s" in shown
    assert ("p95" in shown, "p99" in shown) == (True, False)


def test_the_requests_of_all_repetitions_tell_whether_a_level_passes(stored):
    (level,) = of_levels(stored[1], (5.0, 1.0)).results
    columns = {
        name: value[:1] * 50
        for name, value in ((one.name, getattr(level.requests[0], one.name)) for one in fields(level.requests[0]))
        if isinstance(value, tuple)
    }
    fifty = replace(level.requests[0], **columns)
    metrics = {**level.metrics, "requests_sent": 50.0}  # that of one repetition, as earlier versions stored it
    repeated = replace(level, requests=(fifty,) * 3, launches=3, metrics=metrics)
    assert curve.limits_outcome([repeated], "missed").exit_code == 0
    single = replace(repeated, requests=repeated.requests[:1], launches=1)
    assert curve.limits_outcome([single], "missed").exit_code == 3


def test_a_level_without_a_request_neither_held_nor_missed_its_limits(stored, capsys):
    """As of a server that did not start."""
    run = of_levels(stored[1], (5.0, 1.0), (9.0, None))
    held, down = run.results
    down = replace(down, status="failed", error="the server did not start", requests=())
    passes = replace(held, requests=())
    outcomes = [curve.limits_outcome([passes, down], "missed"), curve.limits_outcome([down], "all-missed")]
    assert [one.exit_code for one in outcomes] == [3, 3]
    assert "not known at 1 of 2 levels" in outcomes[0].text
    slow = replace(held, doubts=(doubt("rate_not_achieved"),))
    assert curve.limits_outcome([slow], "missed").text.endswith("not known at 1 of 1 level: rate_not_achieved")
    assert "no level was measured" in curve.limits_outcome([], "missed").text
    assert curve.limits_outcome([replace(down, requests=held.requests)], "missed").exit_code == 1
    load_table.print_run(replace(run, results=(held, down)), as_json=False)
    assert "not judged: 9/s (failed, no request was sent)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--fail-on", "missed"], 1), (["--fail-on", "all-missed"], 1)])
def test_only_a_gate_changes_the_exit_code_of_a_load_that_misses_its_limits(flags, code, capsys):
    with serving(Script(ttft_s=0.002, itl_s=0.002)) as url:
        words = [*("--url", url, "m", "--concurrency", "1", "--num-requests", "5", "--limit", "ttft:0.001ms")]
        words += [*("--output-length", "2", "--capacity-seconds", "0", "--no-save", "--quiet"), *flags]
        assert load_server.main(words) == code
    assert ("failed: the limits were missed at 1 of 1 level" in capsys.readouterr().err) == bool(flags)


def test_the_table_has_the_percentile_of_the_limit_and_names_what_it_leaves_out(stored, capsys, monkeypatch):
    levels = of_levels(stored[1], (7.899, 1.0), (8.0, 1.0))
    load_table.print_run(levels, as_json=False)
    shown = capsys.readouterr().out
    few = "too few samples: p99 takes 299, and 100 tell whether 99% met the limits"
    assert f"TTFT p99 ms unknown at 7.899/s, 8.000/s: {few}" in " ".join(shown.split())
    tails = {f"{name}_p99_ms": 5.0 for name in ("time_to_first_token", "time_per_output_token", "latency")}
    many = tuple(replace(one, metrics={**one.metrics, **tails}, missing={}) for one in levels.results)
    monkeypatch.setattr(load_table, "stdout_page", lambda: Page(width=100))
    load_table.print_run(replace(levels, results=many), as_json=False)
    table, _, rest = capsys.readouterr().out.partition("no request failed\n")
    *_, first, second = table.splitlines()
    assert "p99" in table
    assert (first.split()[0], second.split()[0]) == ("7.899/s", "8.000/s")
    assert rest.startswith("not shown: ")
    assert "latency p99 ms" in rest.splitlines()[0]


def test_a_rate_of_requests_that_have_one_time_is_refused_and_a_short_trace_is_told(tmp_path, capsys):
    rows = [{"timestamp": at, "input_length": 5, "output_length": 1} for at in (*[0] * 8, *[3000] * 4, 6000)]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(map(json.dumps, rows)))
    asked = ["--url", "http://127.0.0.1:9/v1", "--model", "m"]
    assert load_server.main([*asked, "--trace", str(trace), "--request-rate", "2,8", "--duration", "8"])
    assert f"{trace} ends after 13 starts, of which 8 requests/s would take 64: such a level takes about 1.625 s" in (
        capsys.readouterr().err
    )
    for flags, words in (
        (
            ("--trace", str(trace), "--request-rate", "1,4", "--num-requests", "8"),
            f"8 requests have one time in {trace}",
        ),
        (
            ("--arrivals", "burst", "--burst", "50", "--request-rate", "20", "--duration", "2"),
            "40 requests are one burst",
        ),
        (
            ("--arrivals", "gamma", "--variation", "10", "--request-rate", "20", "--num-requests", "100"),
            "100 requests are one burst, so they would start at once and at no rate: use a longer --duration (or "
            "--num-requests), or a smaller --variation",
        ),
    ):
        assert load_server.main([*asked, *flags]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--url", "localhost:8000"], "--url takes an address such as"),
        (["--url", "http://me:secret@host/v1"], r"\$OPENAI_API_KEY"),
        (["--url", "http://x/v1", "--output-length", "ten"], "expected 128, uniform:64-256"),
        (["--url", "http://x/v1", "--output-length", "0"], "expected 128, uniform:64-256"),
        (["--url", "http://x/v1", "--lengths", "128,1024/128"], "--lengths takes pairs such as 128/128"),
        (["--url", "http://x/v1", "--lengths", "8/8", "--input-length", "9"], "--lengths and --input-length exclude"),
        (
            ["--url", "http://x/v1", "--sharegpt", "f", "--shared-prefix", "0.5"],
            "--sharegpt and --shared-prefix exclude each other",
        ),
        (["--url", "http://x/v1", "--sharegpt", "f", "--prompt-ids", "400"], "--sharegpt and --prompt-ids exclude"),
        (
            ["--url", "http://x/v1", "--trace", "f", "--request-rate", "2", "--arrivals", "ramp"],
            "--trace and --arrivals exclude each other",
        ),
        (["--url", "http://x/v1", "--think-time", "2"], "--think-time requires --turns"),
        (["--url", "http://x/v1", "--turns", "2", "--think-time", "5m"], "expected seconds such as 2, exponential:5"),
        (["--url", "http://x/v1", "--tool-pause", "2"], "--tool-pause requires --tool-calls"),
        (
            ["--url", "http://x/v1", "--input-length", "5000000", "--request-rate", "4"],
            "exceed the limit of 100000000 per level",
        ),
        (["--url", "http://x/v1", "--find-rate"], "--find-rate requires --limit and two rates"),
        (["--url", "http://x/v1", "--fail-on", "missed"], "--fail-on requires --limit"),
        (["--num-requests", "5", "--duration", "30"], "each is the length of a level, so give one"),
        (["--url", "http://x/v1", "--trace", "nowhere", "--concurrency", "2"], "--trace requires --request-rate"),
        (
            ["--url", "http://x/v1", "--request-rate", "2,0.02", "--duration", "1"],
            r"0\.02 requests/s for 1 s are less than one request: use a longer --duration",
        ),
        (["--url", "http://x/v1", "--request-rate", "inf"], "--request-rate inf requires --num-requests"),
        (["--url", "http://x/v1", "--tokenizer", "nowhere"], "--tokenizer nowhere: expected a local folder"),
        (["--url", "http://x/v1", "--shared-prefix", "2"], "a share from 0 to 1"),
        (["--url", "http://x/v1", "--arrivals", "gamma"], "--arrivals requires --request-rate"),
        (["--url", "http://x/v1", "--request-rate", "2", "--variation", "2"], "--variation requires --arrivals gamma"),
        (["--url", "http://x/v1", "--runtime", "llamacpp"], "--runtime requires MODEL without --url: use --engine"),
        (["--url", "http://x/v1", "--batch-size", "2"], "--batch-size requires MODEL without --url"),
        (["--url", "http://x/v1", "--concurrency", "200001"], "200001 requests exceed the limit of 200000 per level"),
        (["--url", "http://127.0.0.1:99999/v1"], "--url takes an address such as"),
        (["--url", "http://127.0.0.1:http/v1"], "--url takes an address such as"),
        (["--url", "http://[::1/v1"], "--url takes an address such as"),
        (["--url", "https://x/v1", "--ca-file", "nowhere.pem"], r"nowhere\.pem"),
        (["--url", "http://x/v1", "--omit-fields", "max_tokens"], "--omit-fields max_tokens requires --endpoint chat"),
        (["--url", "http://x/v1", "--omit-fields", "prompt"], "field"),
        (
            ["--url", "http://x/v1", "--request-rate", "9000", "--turns", "2", "--duration", "12"],
            "exceed the limit of 200000 per level",
        ),
    ],
)
def test_invalid_requests_are_refused_before_anything_is_sent(flags, words, capsys):
    assert load_server.main([*flags, "--model", "m"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(words, line)
