"""benchhouse load against a server in the process, and its results in the warehouse."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from contextlib import contextmanager

import pytest

pytest.importorskip("httptools")

from benchmarking import load_server
from benchmarking.load.connections import Target
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.null_server import NullServer, Script

METRICS = "# TYPE served counter\nserved_total 5.0\n# TYPE waiting gauge\nwaiting 2.0\n# EOF\n"


@contextmanager
def serving(script):
    """The address of a server in a thread of its own."""
    ready, loop, found = threading.Event(), asyncio.new_event_loop(), []

    async def serve():
        async with NullServer(script) as server:
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
    """Two levels of a real load, stored: (exit code, what was printed, path of the database)."""
    folder = tmp_path_factory.mktemp("load")
    with serving(Script(ttft_s=0.002, itl_s=0.0005, metrics=METRICS)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-secret")
        said = []
        patch.setattr(load_server, "_print", lambda run, as_json: said.append(run))
        code = load_server.main(
            [
                *("--url", url, "--model", "some-model", "--engine", "some-engine", "--request-rate", "20,40"),
                *("--num-requests", "10", "--output-length", "4", "--slo", "ttft:10s", "--capacity-seconds", "0.2"),
                *("--repetitions", "2", "--save", "--quiet", "--db-path", str(folder / "a.duckdb")),
                *("--output-dir", str(folder / "runs"), "--tag", "suite=x"),
            ]
        )
    return code, said[0], folder


def test_a_load_is_stored_with_every_request_and_is_a_curve(stored):
    code, _, folder = stored
    assert code == 0
    with Warehouse.open(folder / "a.duckdb", read_only=True) as warehouse:
        assert verify(warehouse) == []
        curve = warehouse.query("SELECT * FROM load_curve ORDER BY request_rate").dicts()
        times = warehouse.query("SELECT * FROM request_times").dicts()
    assert [row["request_rate"] for row in curve] == [20.0, 40.0]
    assert {(row["runtime"], row["loop"], row["arrivals"]) for row in curve} == {("some-engine", "open", "poisson")}
    assert {(row["slo"], row["goodput_share"]) for row in curve} == {("ttft:10000ms", 1.0)}
    assert len(times) == 40
    assert {row["error"] for row in times} == {None}
    assert all(row["time_to_first_token_ms"] >= 2 for row in times)


def test_the_generators_capacity_its_processors_and_the_servers_metrics_are_stored_and_no_key(stored):
    _, run, folder = stored
    facts = run.results[0].extra["load"]
    assert facts["generator_capacity_per_s"] > 0
    assert facts["generator_cpu_list"] == facts["server_cpu_list"]  # it runs in this process
    assert "shared_processors" in {one.kind for one in run.results[0].doubts}
    assert facts["server_metrics"]["served_total"] == {"after": 5.0, "change": 0.0}
    (path,) = (folder / "runs").glob("load_*.json")
    assert "sk-secret" not in path.read_text()


def test_the_table_shows_the_levels_and_the_doubts(stored, capsys):
    load_server._print(stored[1], as_json=False)
    shown = capsys.readouterr().out
    assert "20/s" in shown
    assert "goodput/s" in shown
    assert "shared_processors" in shown
    load_server._print(stored[1], as_json=True)
    assert json.loads(capsys.readouterr().out)["results"][0]["requests"] == []


def test_the_highest_rate_within_the_limits_is_searched_and_confirmed(stored, monkeypatch):
    asked = []

    def measured(self, level):
        asked.append(level.rate)
        share = 1.0 if level.rate <= 7 else 0.5
        base = stored[1].results[0]
        return load_server.replace(
            base,
            point=load_server.replace(base.point, axes={"request_rate": level.rate}),
            metrics={**base.metrics, "goodput_share": share},
            doubts=(),
        )

    monkeypatch.setattr(load_server.Load, "measured", measured)
    load = load_server.Load(
        target=Target(url="", model=""),
        traffic=None,
        limits={},
        repetitions=1,
        warmup=0,
        capacity_per_s=None,
        shares_processors=None,
        facts={},
        say=lambda text: None,
    )
    found = load_server._found(load, [load_server.Level(rate=1.0), load_server.Level(rate=16.0)])
    (best,) = [one for one in found if one.extra["load"].get("is_highest_rate")]
    assert 6.6 < best.point.axes["request_rate"] <= 7
    assert asked.count(best.point.axes["request_rate"]) == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--url", "localhost:8000"], "--url takes an address such as"),
        (["--url", "http://me:secret@host/v1"], r"\$OPENAI_API_KEY"),
        (["--url", "http://x/v1", "--output-length", "ten"], "a length is 128"),
        (["--url", "http://x/v1", "--find-rate"], "--find-rate takes --slo and two rates"),
        (["--url", "http://x/v1", "--trace", "nowhere", "--concurrency", "2"], "--trace takes --request-rate"),
        (["--url", "http://x/v1", "--shared-prefix", "2"], "a share from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(flags, words, capsys):
    assert load_server.main([*flags, "--model", "m"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(words, line)
