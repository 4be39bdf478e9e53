"""Sweeps on the null device in real time, and hand-made live statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarking.core.live_status import LiveStatus, StatusFile, snapshot
from benchmarking.core.provenance import this_process
from benchmarking.core.records import to_json

LIMIT_S = 300.0


@contextmanager
def running_sweep(folder: Path, *arguments: str, call_ms: float = 60.0, calls: int = 30) -> Iterator[subprocess.Popen]:  # type: ignore[type-arg]
    """A command that measures two points for about `call_ms * calls` each; killed at the end if it still runs."""
    script = folder / "slow.json"
    script.write_text(json.dumps({"real_time": True, "latency_ms": {"*": [call_ms]}}))
    command = [
        *(sys.executable, "-m", "benchmarking.run_hardware_benchmark", "--model-id", "tiny-bert", "--device", "null"),
        *("--runtime", "null", "--batch-sizes", "1,2", "--sequence-lengths", "32", "--iterations", str(calls)),
        *("--warmup-iterations", "1", "--launches", "1", *arguments),
    ]
    environment = {**os.environ, "BENCHHOUSE_NULL_SCRIPT": str(script), "BENCHHOUSE_CACHE_DIR": str(folder / "cache")}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(found: Callable[[], Any], *, poll_s: float = 0.02) -> Any:
    """The result of `found` once it is true."""
    deadline_s = time.monotonic() + LIMIT_S
    while not (result := found()):
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(poll_s)
    return result


def statuses() -> list[LiveStatus]:
    """The live statuses of this user's commands, the running ones first."""
    found = snapshot()
    return [one.status for one in (*found.running, *found.ended)]


def write_status(**changes: Any) -> StatusFile:
    """A live status of this process."""
    now_s = time.time()
    fields = {
        "owner": this_process(),
        "words": "gpt2 on cpu (eager, float32): 8 points, profile quick",
        "command": ("run_hardware_benchmark", "--model-id", "gpt2"),
        "folder": None,
        "started_s": now_s - 60,
        "updated_s": now_s,
        "total": 8,
        "done": 3,
        "failed": 0,
    }
    file = StatusFile()
    file.write(to_json(LiveStatus(**{**fields, **changes})))
    return file
