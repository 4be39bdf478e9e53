"""Fixtures of the page tests: one warehouse and one server for all, since each takes longer to make than a test."""

from __future__ import annotations

import dataclasses
import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarking.core.metrics import CUSTOM_METRICS, JUDGED
from benchmarking.core.records import Doubt, Run, canonical_hash
from db.analysis.history.changes import update_changes
from db.warehouse import Warehouse
from tests.helpers.load import make_load, make_requests
from tests.helpers.records import make_profile, make_run

HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>"
PROFILE = "a profile"
LOADED = "a/served-model"
FIRST = datetime(2026, 9, 1, 8, tzinfo=UTC)
STORE = (
    "import sys; from db.warehouse import Warehouse; from tests.helpers.records import make_run\n"
    "for number in range(int(sys.argv[2])):\n"
    "    with Warehouse.open(sys.argv[1], lock_timeout_s=0) as warehouse: warehouse.ingest(make_run())\n"
)
"""Stores runs one by one, as measuring commands do, without waiting for locks."""
LOADED_AT = "2026-08-30T08:00:00+00:00"
"""Before all other runs, so those stay the newest."""
SLOWER_FROM = 12
RUNS = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running `benchhouse dashboard`."""

    url: str
    printed: str
    """The URL printed by the command."""

    def get(self, path: str, *, method: str = "GET", **headers: str) -> Answer:
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        found = Answer(
            status=answer.status,
            headers={name.lower(): value for name, value in answer.getheaders()},
            body=answer.read(),
        )
        connection.close()
        return found


@contextmanager
def serving(path: Path, *arguments: str) -> Iterator[Server]:
    """The dashboard command on a free port."""
    command = [sys.executable, "-m", "visualize.pages.dashboard", "--db-path", str(path), "--port", "0", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "BENCHHOUSE_DASHBOARD_TOKEN"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            printed = process.stdout.readline().strip()
            place = urlsplit(printed)
            yield Server(url=f"http://127.0.0.1:{place.port}", printed=printed)
        finally:
            process.terminate()


def with_own_metric(run: Run) -> Run:
    """The run with a custom metric, pages per second."""
    about = {CUSTOM_METRICS: {"pages_per_sec": {"unit": "pages/s", "better": "higher"}}}
    results = [
        dataclasses.replace(
            one,
            metrics={**one.metrics, "pages_per_sec": 4000 / one.metrics["latency_median_ms"]},
            extra={**one.extra, **about},
        )
        for one in run.results
        if one.status == "ok"
    ]
    return dataclasses.replace(run, results=(*results, *(one for one in run.results if one.status != "ok")))


def make_loads() -> Iterator[Run]:
    """Load tests with open and closed loop: a knee at the second level, a failed request, and an invalid level."""
    requests = make_requests(
        intended_ms=(0.0, 500.0), sent_ms=(5.0, 520.0), first_token_ms=(60.0, None), end_ms=(900.0, 640.0)
    )
    for levels in ({"rates": (1.0, 2.0, 4.0, 8.0)}, {"concurrency": (1, 2, 4, 8)}):
        run = make_load(model_id=LOADED, started_at=LOADED_AT, finished_at=LOADED_AT, **levels)
        served = []
        for place, one in enumerate(run.results):
            is_over = place == 3
            rate = (1.0, 2.0, 2.3, 2.2)[place]
            own = {"throughput_samples_per_sec": rate, "throughput_tokens_per_sec": 20 * rate,
                   "goodput_requests_per_sec": 0.0 if is_over else rate, "time_to_first_token_ms": 40.0 * 3**place,
                   "time_to_first_token_p99_ms": 90.0 * 3**place, "time_per_output_token_ms": 8.0 + place,
                   "requests_sent": 2.0, "requests_failed": 1.0}  # fmt: skip
            served.append(
                dataclasses.replace(
                    one,
                    metrics={**one.metrics, **own},
                    requests=(requests,),
                    extra={"load": {"is_knee": place == 1}},
                    doubts=(Doubt(kind="over_saturated", severity="invalid"),) if is_over else (),
                    validity="invalid" if is_over else "valid",
                )
            )
        yield dataclasses.replace(run, results=tuple(served))


def fill(path: Path, *, with_hostile: bool = True) -> None:
    """Two runtimes of a model over time, one of which becomes slower; other families; a hostile name."""
    runs = []
    with Warehouse.open(path) as warehouse:
        for number in range(RUNS):
            started = FIRST + timedelta(days=number)
            when: dict[str, Any] = {
                "started_at": started.isoformat(),
                "finished_at": (started + timedelta(minutes=5)).isoformat(),
            }
            for runtime, slowdown in (("eager", 1.0), ("onnxruntime", 0.6)):
                is_slower = runtime == "onnxruntime" and number >= SLOWER_FROM
                factor = slowdown * (1 + (number * 7 % 5 - 2) / 300) * (1.2 if is_slower else 1)
                run = make_run(runtime=runtime, slowdown=factor, with_failed=number == RUNS - 1, **when)
                run = with_own_metric(run) if runtime == "eager" else run
                commit = canonical_hash({"run": number})[:40]
                provenance = dataclasses.replace(run.provenance, git_commit=commit, git_commit_time=None)
                runs.append(dataclasses.replace(run, provenance=provenance))
        for family, model in (("decoder-only", "gpt2"), ("vision", "google/vit-base-patch16-224")):
            runs.append(make_run(model_id=model, family=family, with_doubtful=True))
        runs.append(make_run(model_id="gpt2", family="decoder-only", device="cuda", slowdown=0.5))
        warehouse.ingest_all([*runs, *make_loads()])
        newest = (FIRST + timedelta(days=RUNS)).isoformat()
        if with_hostile:
            hostile = make_run(model_id=HOSTILE, started_at=newest, finished_at=newest)
            warehouse.ingest(hostile)
            warehouse.ingest_profile(make_profile(run=dataclasses.replace(hostile, results=())))
        warehouse.ingest_profile(make_profile(4.0))
        update_changes(warehouse, JUDGED["latency_median_ms"])


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse that no test changes."""
    path = tmp_path_factory.mktemp("pages") / "pages.duckdb"
    fill(path)
    return path


@pytest.fixture(scope="session")
def run_ids(database: Path) -> Mapping[str, str]:
    """The newest run of each model, and the profile with the hostile name."""
    with Warehouse.open(database, read_only=True) as warehouse:
        rows = warehouse.query(
            "SELECT model_id, max_by(run_id, started_at) AS run_id FROM benchmark_runs GROUP BY model_id"
        ).dicts()
        (profile,) = warehouse.query(
            "SELECT profile_id FROM profiles WHERE model_id = $name", {"name": HOSTILE}
        ).dicts()
    return {PROFILE: profile["profile_id"], **{row["model_id"]: row["run_id"] for row in rows}}


@pytest.fixture(scope="session")
def server(database: Path) -> Iterator[Server]:
    with serving(database) as running:
        yield running


@pytest.fixture(scope="session")
def own_database(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy that tests may change."""
    return Path(shutil.copy(database, tmp_path_factory.mktemp("own") / "own.duckdb"))


@pytest.fixture(scope="session")
def own_server(own_database: Path) -> Iterator[Server]:
    with serving(own_database) as running:
        yield running
