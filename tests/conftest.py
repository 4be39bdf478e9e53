"""Fixtures every test may use."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarking.core import child_process
from db import lake, migrate, warehouse
from db.connection import FILE_FORMAT
from db.warehouse import Warehouse
from tests.helpers import records
from tests.helpers.child_server import Popen
from tests.helpers.databases import Examined

# Shells ignore SIGINT in what they run in the background, and nohup ignores SIGHUP: the programs under test would
# inherit that and go on.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (getattr(signal, "SIGHUP", None), signal.SIG_DFL)):
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Several processes of tests share the processors: a thread that waits by spinning takes them from the one it waits for,
# and tests of small models take five times as long. To be set before torch is imported, here and in every child.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A reader takes all processors for an answer, which for the few rows of tests costs a tenth more. Commands
# that tests start still do.
FILE_FORMAT["threads"] = 1
# DuckDB checks the signature of the extension for lakes, 36 MB, on each connection: 0.2 s of a processor. Commands that
# tests start still let it.
lake.SETTINGS["allow_unsigned_extensions"] = True

STARTED = subprocess.Popen

with suppress(ImportError):
    from tqdm import tqdm

    # Its own lock is a semaphore in memory that processes share. In a process that lives as long as one of the tests,
    # with scripts that fork, waiting for it has aborted Python ("futex facility returned an unexpected error code").
    tqdm.set_lock(threading.RLock())


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """pytest-rerunfailures tells and asks the main process about each test by two small messages. The second waits
    40 ms until the first is acknowledged, unless the socket sends it at once: most tests are shorter than that."""
    if "PYTEST_XDIST_WORKER" in os.environ and (failures := getattr(config, "failures_db", None)) is not None:
        failures.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives to the end: looking for garbage in it would take a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each file is run by one process: those with slow tests first, then those with many, so that no process works
    alone at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow, -tests[item.path], item.path))


@pytest.fixture(scope="session")
def make_run() -> records.RunMaker:
    """A function that makes a complete run (tests/helpers/records.py)."""
    return records.make_run


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of builds that all processes of this run of the tests share: each model is exported once."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared-builds"


@pytest.fixture(scope="session", autouse=True)
def own_models(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test sees the user's cache of models, nor the hub; those of the hub's own code bring a server along."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT"):
        os.environ.pop(name, None)
    os.environ["HF_HOME"] = str(tmp_path_factory.mktemp("hf_home"))
    os.environ["HF_HUB_OFFLINE"] = "1"
    Popen.server_environment = child_process.environment()


@pytest.fixture(scope="session", autouse=True)
def own_live_statuses(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sweeps of the tests are not among those that somebody watches on this machine."""
    os.environ["BENCHHOUSE_LIVE_DIR"] = str(tmp_path_factory.mktemp("live"))


@pytest.fixture(scope="session", autouse=True)
def own_device_locks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The processes that run tests do not wait for each other's devices, nor for those of whoever measures beside
    them."""
    os.environ["BENCHHOUSE_LOCK_DIR"] = str(tmp_path_factory.mktemp("locks"))


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of an empty warehouse, made by the shipped code, to copy."""
    path = tmp_path_factory.mktemp("empty") / "empty.duckdb"
    with Warehouse.open(path):
        return path


@pytest.fixture(autouse=True)
def own_cache_of_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What --cache-dir sets for a command's children ends with the test that runs it in this process: later tests would
    look for ONNX Runtime Web in its folder, and skip."""
    before = os.environ.get("BENCHHOUSE_CACHE_DIR")
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", before or "")
    if before is None:
        monkeypatch.delenv("BENCHHOUSE_CACHE_DIR")


@pytest.fixture(scope="session")
def examined(empty_database: Path) -> Examined:
    """What of this process's databases need not be examined again when they are opened."""
    known = Examined(empty_database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "refuse_foreign", known.refuse_foreign)
        Warehouse.open(empty_database).close()
    return known


@pytest.fixture(scope="module", autouse=True)
def creation_of_databases(empty_database: Path, examined: Examined) -> Iterator[None]:
    """A warehouse that a test, or a fixture of its file, makes in this process is a copy: applying all migrations takes
    a second of a processor. One that it has closed is not examined anew. Tests of creating override this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warehouse, "_create", examined.create)
        patch.setattr(migrate, "refuse_foreign", examined.refuse_foreign)
        patch.setattr(Warehouse, "close", lambda opened: examined.close(opened))
        patch.setattr(Popen, "empty_database", empty_database)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where a test has the mark `forked_children`, ours start by a fork (tests/helpers/child_server.py). Before all
    fixtures, so that those of modules have it too."""
    mark = item.get_closest_marker("forked_children")
    is_forked = sys.platform == "linux" and mark is not None and mark.args != (False,)
    subprocess.Popen = Popen if is_forked else STARTED  # type: ignore[misc]


@pytest.fixture
def empty_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test in an empty folder, where the default database is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)


@pytest.fixture
def null_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A function that writes the null device's script and makes this process and its children play it."""

    def write(**script: Any) -> Path:
        path = tmp_path / "null_script.json"
        path.write_text(json.dumps(script))
        monkeypatch.setenv("BENCHHOUSE_NULL_SCRIPT", str(path))
        return path

    return write
