"""benchhouse load --serve: servers that the command starts itself, well-behaved and others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from operator import itemgetter

import psutil
import pytest

pytest.importorskip("httptools")

from benchmarking.commands import load_server
from benchmarking.core.child_process import environment
from benchmarking.core.errors import UsageError
from benchmarking.load import observer, served, server_plan
from benchmarking.load.connections import Target
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are found on Linux only")

SERVER = r"""
import asyncio, json, os, signal, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
port, kind, slots = int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if kind == "dies":
    print("loading\nno such model, key sk-abcdefghijklmnopqrstuvwxyz123456", flush=True)
    sys.exit(3)
from tests.helpers.null_server import NullServer, Script
if kind == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if kind == "parent":
    for own_session in (False, True):
        subprocess.Popen(["sleep", "600"], start_new_session=own_session)
models = json.dumps({"data": [{"id": "some-model"}]})
script = Script(ttft_s=0.001, itl_s=0.0005, slots=slots, closes_gets=kind == "posts")
script.pages = {"/v1/models": models, "/version": '{"version": "1.2.3"}', "/health": "ok"}
names = ("num_requests_running", 3), ("num_requests_running", 1), ("kv_cache_usage_perc", 0.995)
script.pages["/metrics"] = "".join(f'vllm:{name}{{engine="{n}"}} {value}\n' for n, (name, value) in enumerate(names))

async def serve():
    async with NullServer(script, port=port):
        print("up", os.environ.get("MARK"), flush=True)
        await asyncio.sleep(1 if kind in ("short", "dying") else 600)
    if kind == "dying":  # nothing listens any more
        time.sleep(2.5)
    sys.exit(7)

if kind == "never":
    time.sleep(600)
asyncio.run(serve())
"""
FAST = ("--num-requests", "6", "--output-length", "2", "--input-length", "4", "--capacity-seconds", "0", "--quiet")


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """The command of a server of a kind, with a name of its slots."""
    script = tmp_path_factory.mktemp("server") / "server.py"
    script.write_text(SERVER)

    def of(kind, slots="{slots}"):
        return f"{sys.executable} -P {script} {ROOT} {{port}} {kind} {slots}"

    return of


def processes_of(text):
    """The ids of the processes with a text in their command or environment."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if any(text in word for word in one.cmdline()) or text in one.environ().values():
                found.append(one.pid)
    return found


def wait_until(claim, limit_s=20.0):
    deadline_s = time.monotonic() + limit_s
    while not claim():
        assert time.monotonic() < deadline_s, "too late"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def stored(command, tmp_path_factory, empty_database):
    """Two servers, one of which dies at its start, at two levels each: (exit code, folder)."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(empty_database, folder / "a.duckdb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARK", "of-stored")
        code = load_server.main(
            [
                *("--serve", command("{kind}"), "--sweep", "kind=fine,dies", "--sweep", "slots=1,2", *FAST),
                *("--request-rate", "50,100", "--limit", "e2e:10s"),
                *("--db-path", str(folder / "a.duckdb"), "--output-dir", str(folder)),
            ]
        )
    assert processes_of("of-stored") == []
    return code, folder


def runs_in(folder):
    return sorted((json.loads(path.read_text()) for path in folder.glob("load_*.json")), key=itemgetter("started_at"))


def test_each_combination_is_a_run_of_its_own_series_in_one_session(stored):
    code, folder = stored
    assert code == 1, "two servers did not start"
    with Warehouse.open(folder / "a.duckdb", read_only=True) as warehouse:
        assert verify(warehouse) == []
        rows = warehouse.query(
            "SELECT session_id, series_id, model_id, status, runtime_mode->>'serve_kind' AS kind, "
            "runtime_mode->>'serve_slots' AS slots FROM all_results"
        ).dicts()
    assert len(rows) == len({row["series_id"] for row in rows}) == 8
    assert len({row["session_id"] for row in rows}) == 1
    assert {(row["kind"], row["slots"], row["status"]) for row in rows} == {
        *(("fine", "1", "ok"), ("fine", "2", "ok"), ("dies", "1", "failed"), ("dies", "2", "failed"))
    }
    assert {row["model_id"] for row in rows} == {"some-model"}


def test_what_the_server_says_of_itself_and_its_start_are_stored(stored):
    first, second, *_ = runs_in(stored[1])
    assert first["provenance"]["versions"]["server"] == "1.2.3"
    assert (first["settings"]["server"]["start"], second["settings"]["server"]["start"]) == ("cold", "warm")
    assert first["settings"]["server"]["health"] == "/health"
    assert first["settings"]["server"]["about"]["/v1/models"] == {"data": [{"id": "some-model"}]}
    for run, name in ((first, "server_start_cold_s"), (second, "server_start_warm_s")):
        assert {one["metrics"][name] for one in run["results"]} == {run["settings"]["server"]["start_s"]}


def test_what_the_server_does_during_a_level_is_stored_over_time(command, tmp_path, monkeypatch, empty_database):
    shutil.copy(empty_database, tmp_path / "a.db")
    monkeypatch.setattr(observer, "INTERVAL_S", 0.1)
    code = load_server.main(
        [
            *("--serve", command("fine", "4"), "--request-rate", "20", "--num-requests", "40", "--output-length", "2"),
            *("--capacity-seconds", "0", "--quiet", "--output-dir", str(tmp_path), "--db-path", str(tmp_path / "a.db")),
        ]
    )
    assert code == 0
    with Warehouse.open(tmp_path / "a.db", read_only=True) as warehouse:
        assert verify(warehouse) == []
        (row,) = warehouse.query("SELECT other_metrics, doubts FROM all_results").dicts()
        raw = warehouse.query("SELECT metric, samples FROM raw_benchmark_data WHERE launch = 0").dicts()
    metrics, series = row["other_metrics"], {one["metric"]: one["samples"] for one in raw}
    assert metrics["server_running_mean"] == 4
    assert metrics["server_memory_max_mb"] == max(series["memory_resident"]) > 10
    assert "kv_cache_full" in row["doubts"]
    assert set(series["server_running"]) == {4.0}
    names = ("monitor_time", "memory_resident", "server_running", "server_kv_cache_percent")
    assert len({len(series[name]) for name in names}) == 1
    assert series["monitor_time"] == sorted(series["monitor_time"])
    assert 1000 < series["monitor_time"][-1] < 10_000


def test_a_server_that_dies_at_once_is_a_failed_result_with_the_end_of_its_log_without_secrets(stored):
    *_, run = runs_in(stored[1])
    assert run["status"] == "failed"
    for result in run["results"]:
        assert result["error"].startswith("the server did not start: the server ended by itself (exit code 3): no such")
    assert run["settings"]["server"]["log_end"].startswith("loading\nno such model")
    assert "sk-abc" not in json.dumps(run)


def test_a_server_that_is_never_healthy_is_given_up_and_ended(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MARK", "of-never")
    code = load_server.main(
        [
            *("m", "--serve", command("never", "1"), "--start-timeout", "0.5", *FAST),
            *("--no-save", "--json", "--output-dir", str(tmp_path)),
        ]
    )
    ((run,), code_of_never) = json.loads(capsys.readouterr().out), code
    assert code_of_never == 1
    assert "not healthy within 0.5 s (/health: Connection refused)" in run["results"][0]["error"]
    assert processes_of("of-never") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["stubborn", "parent"])
def test_no_process_of_a_server_is_left(kind, command, tmp_path, monkeypatch):
    monkeypatch.setenv("MARK", f"of-{kind}")
    monkeypatch.setattr(served, "GRACE_S", 0.5)
    (one,) = server_plan.servers(command(kind, "1"), [], None)
    with served.served(one, Target(url="", model=""), log=tmp_path / "log", limit_s=30) as server:
        assert len(processes_of(f"of-{kind}")) == (4 if kind == "parent" else 2)  # with the keeper
        assert server.models == ["some-model"]
    assert processes_of(f"of-{kind}") == []
    assert (tmp_path / "log").read_text() == f"up of-{kind}\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_is_ended_without_its_keeper(number, command, tmp_path, monkeypatch):
    monkeypatch.setenv("MARK", "of-lost")
    monkeypatch.setattr(served, "GRACE_S", 0.5)
    (one,) = server_plan.servers(command("parent", "1"), [], None)
    with served.served(one, Target(url="", model=""), log=tmp_path / "log", limit_s=30) as server:
        server.keeper.process.send_signal(number)
        wait_until(lambda: server.why_ended() is not None)
        assert "keeper process was killed" in server.why_ended()
    assert [pid for pid in processes_of("of-lost") if psutil.Process(pid).name() != "sleep"] == []
    for pid in processes_of("of-lost"):  # the one in a session of its own, whose parents are both gone
        os.kill(pid, signal.SIGKILL)


def test_a_server_that_closes_every_get_is_up_when_it_answers_a_request(command, tmp_path):
    (one,) = server_plan.servers(command("posts", "1"), [], "some-model")
    with served.served(one, Target(url="", model=""), log=tmp_path / "log", limit_s=30) as server:
        assert (server.health, server.about) == ("/v1/completions", {})
        assert server.start_s < 30


def test_a_long_page_is_kept_without_its_longest_fields_and_an_older_path_is_read_where_there_is_no_newer(monkeypatch):
    """SGLang's configuration is long, once more within its `internal_states`, and has its version beside it."""
    fields = {f"field_{number}": number for number in range(900)}
    info = {**fields, "internal_states": [fields], "version": "0.5.23"}
    many = {"longest": "x" * 399, **{str(number): number for number in range(9000)}}
    pages = {"/server_info": info, "/get_server_info": info, "/get_model_info": {"path": "m"}, "/info": many}

    def fetch(target, path):
        return (200, json.dumps(pages[path])) if path in pages else (404, "")

    monkeypatch.setattr(served, "fetch", fetch)
    found = served.about(Target(url="", model=""))
    assert found.keys() == {"/server_info", "/get_model_info", "/info"}
    too_long = f"{len(json.dumps([fields]))} characters: too long to keep"
    assert found["/server_info"] == {**fields, "internal_states": too_long, "version": "0.5.23"}
    assert found["/info"] == f"{len(json.dumps(many))} characters: too long to keep"


def test_no_vendor_is_asked_for_gpus_where_no_driver_shows_one(tmp_path, monkeypatch):
    monkeypatch.setattr(observer, "GPU_NODES", (f"{tmp_path}/renderD*",))
    assert not observer.may_have_gpus()
    (tmp_path / "renderD128").touch()
    assert observer.may_have_gpus()


@pytest.mark.parametrize(("error", "expected"), [(TimeoutError(), True), (ConnectionRefusedError(), False)])
def test_a_server_that_takes_no_more_connections_is_not_about_to_end(error, expected, monkeypatch):
    def connect(*address, **limits):
        raise error

    monkeypatch.setattr(served.socket, "create_connection", connect)
    assert served._listens(80) is expected


@pytest.mark.parametrize("kind", ["short", "dying"])
def test_a_server_that_ends_during_a_level_fails_it_and_those_after(command, kind, capsys):
    """Also one that takes its time to end after it has stopped listening, such as for a core dump."""
    code = load_server.main(
        [
            *("--serve", command(kind, "1"), "--concurrency", "1,2", "--duration", "2", "--output-length", "2"),
            *("--capacity-seconds", "0", "--json", "--quiet", "--no-save"),
        ]
    )
    ((run,), code_of_short) = json.loads(capsys.readouterr().out), code
    assert code_of_short == 1
    assert [one["error"] for one in run["results"]] == ["the server ended by itself (exit code 7): up None"] * 2
    assert [one["extra"]["load"]["log_end"] for one in run["results"]] == ["up None"] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_the_command(number, command, tmp_path, monkeypatch):
    mark = f"of-signal-{int(number)}-{os.getpid()}"
    with subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "benchmarking.cli", "load", "--serve", command("parent", "1")),
            *("--duration", "60", "--no-save", "--capacity-seconds", "0"),
        ],
        env=environment({"MARK": mark}),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "repetition 1" in line:
                break
        assert len(processes_of(mark)) >= 4  # this command, the keeper, and the server's
        process.send_signal(number)
        process.wait(30)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}[number]
    wait_until(lambda: processes_of(mark) == [])


@pytest.mark.parametrize(
    ("line", "sweeps", "words"),
    [
        ("true", [], r"--serve requires \{port\}"),
        ("true '{port}", [], "No closing quotation"),
        ("true {port} {a}", [], r"\{a\} has no value: add --sweep a="),
        ("true {port}", [("a", ("1",))], r"the command does not contain \{a\}"),
        ("true {port} {a}", [("a", ("1",)), ("a", ("2",))], "--sweep a is given twice"),
        ("true {port}", [("port", ("1",))], "--sweep port is chosen by this command"),
        ("no-such-program {port}", [], "no-such-program is not found in PATH"),
        ("./no-such-program {port}", [], "./no-such-program is not a program"),
        ("true {port} {a}", [("a", tuple(map(str, range(300))))], "300 combinations exceed the limit of 256"),
    ],
)
def test_commands_that_do_not_fit_their_values_are_refused(line, sweeps, words):
    with pytest.raises(UsageError, match=words):
        server_plan.servers(line, sweeps, None)


def test_values_replace_names_in_words_and_never_make_new_words():
    line = """true --port={port} {flag} '{"a": 1}' x{b}y"""
    one, other = server_plan.servers(line, [("flag", ("--fast", "")), ("b", ("a b; rm -rf $HOME",))], None)
    assert one.filled(80) == ("true", "--port=80", "--fast", '{"a": 1}', "xa b; rm -rf $HOMEy")
    assert other.filled(80) == ("true", "--port=80", '{"a": 1}', "xa b; rm -rf $HOMEy")
    assert one.mode["serve_flag"] == "--fast"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["m", "--url", "http://127.0.0.1:1/v1", "--serve", "true {port}"], "--serve and --url exclude each other"),
        (["m", "--url", "http://127.0.0.1:1/v1", "--sweep", "a=1"], "--sweep requires --serve"),
        (["--serve", "true {port} {a}", "--sweep", "a=1,1"], "takes different values"),
        (["--serve", "true {port}", "--runtime", "eager"], "--runtime requires MODEL without --url"),
    ],
)
def test_flags_that_exclude_each_other_are_refused(flags, words, capsys):
    assert load_server.main(flags) == 2
    assert words in capsys.readouterr().err


def test_an_engine_is_started_by_its_name_with_swept_flags(monkeypatch):
    monkeypatch.setattr(server_plan, "program", lambda name: f"/usr/bin/{name}")
    sweeps = [("max_num_seqs", ("64", "128")), ("enable_prefix_caching", ("true", "false"))]
    found = server_plan.servers("vllm", sweeps, "org/model")
    assert [one.filled(8)[2:] for one in found[:2]] == [
        ("org/model", "--host", "127.0.0.1", "--port", "8", "--max-num-seqs", "64", "--enable-prefix-caching"),
        ("org/model", "--host", "127.0.0.1", "--port", "8", "--max-num-seqs", "64", "--no-enable-prefix-caching"),
    ]
    assert len(found) == 4
    assert {one.engine for one in found} == {"vllm"}
    assert found[0].mode == {
        "serve": "vllm serve {model} --host 127.0.0.1 --port {port} --max-num-seqs {max_num_seqs} "
        "--enable-prefix-caching {enable_prefix_caching}",
        "serve_max_num_seqs": 64,
        "serve_enable_prefix_caching": "true",
    }
    (off,) = server_plan.servers("sglang", [("disable_radix_cache", ("false",))], "m")
    assert not any("radix" in word for word in off.filled(1))
    swept = server_plan.servers("vllm", [("model", ("a", "b"))], "m")
    assert [one.filled(1)[2] for one in swept] == ["a", "b"], "a swept model is the one that is served"


def test_each_engine_gets_flags_as_it_spells_them(monkeypatch):
    monkeypatch.setattr(server_plan, "program", lambda name: f"/usr/bin/{name}")
    sweeps = [("max_batch_size", ("64",)), ("trust_remote_code", ("true",)), ("enable_chunked_prefill", ("false",))]
    (one,) = server_plan.servers("tensorrt-llm", sweeps, "m")
    assert one.filled(8)[6:] == ("--max_batch_size", "64", "--trust_remote_code")
    assert one.mode["serve"].endswith(
        "--max_batch_size {max_batch_size} --trust_remote_code {trust_remote_code} "
        "--enable_chunked_prefill {enable_chunked_prefill}"
    )
    on, off = server_plan.servers("ovms", [("enable_prefix_caching", ("true", "false")), ("cache_size", ("2",))], "m")
    assert (on.path, on.filled(8)[-4:]) == (
        "/v3",
        ("--enable_prefix_caching=true", "--cache_size", "2", "--metrics_enable"),
    )
    assert "--enable_prefix_caching=false" in off.filled(8)
    (plain,) = server_plan.servers("ovms", [], "m")
    assert plain.filled(8)[-1] == "--metrics_enable"
    assert plain.mode["serve"] == server_plan.PRESETS["ovms"].command, "the series of earlier results"


@pytest.mark.parametrize(
    ("text", "sweeps", "model", "said"),
    [
        ("vllm", [], None, "--serve vllm: give MODEL, which it serves"),
        ("ollama", [("x", ("1",))], "m", r"does not contain \{x\}.* The command of ollama is: env OLLAMA_HOST"),
        ("lmstudio", [], "m", "part of its application: start it"),
        ("vlm", [], "m", r"requires \{port\}.*or the name of an engine: vllm, sglang"),
        ("true {model} {port}", [], None, "give MODEL"),
    ],
)
def test_an_engine_that_cannot_be_started_so_is_refused(text, sweeps, model, said):
    with pytest.raises(UsageError, match=said):
        server_plan.servers(text, sweeps, model)


def test_a_list_of_servers_has_engines_models_and_swept_values_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(server_plan, "program", lambda name: f"/usr/bin/{name}")
    path = tmp_path / "servers.yaml"
    path.write_text(
        "- serve: llama-server\n  model: a.gguf\n  sweep:\n    parallel: [1, 4]\n    cont_batching: [true, false]\n"
        "- serve: other --port {port}\n  engine: mine\n"
    )
    found = server_plan.servers(str(path), [], "b")
    assert [(one.engine, one.model, one.words) for one in found] == [
        *(("llama-server", "a.gguf", f"parallel={n} cont_batching={on}") for n in (1, 4) for on in ("true", "false")),
        ("mine", "b", "mine"),
    ]
    assert found[1].filled(7)[-3:] == ("--parallel", "1", "--no-cont-batching")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("a {port}", "alpha", ""), ("b {port}", "beta", "")], ["alpha", "beta"]),
        ([("a {port}", "alpha", "[1, 2]"), ("b {port}", "beta", "[1]")], ["alpha x=1", "x=2", "beta x=1"]),
        ([("a {port}", "alpha", ""), ("b {port}", "alpha", "")], ["a {port}", "b {port}"]),
        ([("a {port}", "alpha", ""), ("a {port}", "alpha", "")], ["server 1", "server 2"]),
        ([("a {port}", "alpha", "")], [""]),
    ],
)
def test_servers_of_a_list_are_named_where_their_values_do_not_tell_them_apart(entries, words, tmp_path, monkeypatch):
    monkeypatch.setattr(server_plan, "program", lambda name: f"/usr/bin/{name}")
    path = tmp_path / "servers.yaml"
    path.write_text(
        "\n".join(
            f"- serve: {command}{' {x}' if values else ''}\n  engine: {engine}\n"
            + f"  sweep: {{x: {values}}}" * bool(values)
            for command, engine, values in entries
        )
    )
    assert [one.words for one in server_plan.servers(str(path), [], None)] == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- model: x\n", "servers.yaml:1: a server needs the key serve"),
        ("- serve: vllm\n  sweeps: {}\n", "servers.yaml:2: 'sweeps' is no key of a server"),
        ("- serve: [a]\n", "serve takes a text"),
        ("- serve: other --port {port}\n  sweep: {x: [{a: 1}]}\n", "a swept value is a number or a text"),
        ("- serve: other {port}\n  sweep: {x: 1}\n", r"servers.yaml:1: --sweep x: .* does not contain"),
        ("[]", "the list contains no server"),
        ("x", "a server takes keys and values"),
    ],
)
def test_a_wrong_list_of_servers_is_refused_with_the_place(text, said, tmp_path):
    path = tmp_path / "servers.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        server_plan.servers(str(path), [], "m")
